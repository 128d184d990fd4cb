"""How long a socket may keep a caller waiting. Knows redis-py's connections, and nothing of what is sent over them.

Python's own time limit costs three system calls a round trip: one that sets it, and a poll before each send and receive. The
kernel keeps a limit itself (``SO_RCVTIMEO``, ``SO_SNDTIMEO``), and it is set anew only when another one is wanted. Sockets
that encrypt have Python's.
"""

from __future__ import annotations

import math
import socket
import struct
import sys
import time
from typing import Any, Final

_STEPS: Final = (
    32  # a limit is rounded up to one of so many between two powers of two, by less than a sixteenth
)
_KERNEL: Final = (
    sys.platform in ("linux", "darwin") and struct.calcsize("l") == 8
)  # where a timeval is two of these


def limit(connection: Any, end: float, *, kernel: bool) -> None:
    """Let a connection of redis-py wait no longer than until then, by the monotonic clock, for each read and write.

    Args:
        kernel: Whether the kernel may keep the limit: for connections that stay ours from one use to the next, since what it
            keeps costs more to take back than Python's.

    Raises:
        TimeoutError: It is over already.
    """
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time left")
    sock = getattr(connection, "_sock", None)
    if sock is None:  # it connects when something is sent, within its own limit
        return
    if not (kernel and _KERNEL) or type(sock) is not socket.socket:
        sock.settimeout(left)
        return
    seconds = rounded(left)
    known = getattr(connection, "semcache_limit", None)
    if known is not None and known[0] is sock and known[1] == seconds:
        return
    micros = max(1, math.ceil(seconds * 1e6))  # 0 would be for ever
    value = struct.pack("ll", *divmod(micros, 1_000_000))
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
    connection.semcache_limit = sock, seconds


def release(connection: Any) -> None:
    """Give a connection the limit back that it has by its client's settings, before somebody else uses it."""
    sock = getattr(connection, "_sock", None)
    if sock is None:
        return
    if connection.__dict__.pop("semcache_limit", (None,))[0] is sock:
        for which in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, which, struct.pack("ll", 0, 0))
    sock.settimeout(connection.socket_timeout)


def rounded(seconds: float) -> float:
    """Round a limit up, so that nearly equal ones are equal."""
    mantissa, exponent = math.frexp(seconds)
    return math.ldexp(math.ceil(mantissa * _STEPS) / _STEPS, exponent)
