"""How long a socket may keep a caller waiting. Knows redis-py's connections, and nothing of what is sent over them."""

from __future__ import annotations

import math
import time
from typing import Any, Final

_STEPS: Final = (
    32  # a limit is rounded up to one of so many between two powers of two, by a sixteenth at most
)


def limit(connection: Any, end: float) -> None:
    """Let a connection of redis-py wait no longer than until then, by the monotonic clock, for each read and write.

    The limit is rounded up a little, so that the next caller's is the same: setting it is a system call.

    Raises:
        TimeoutError: It is over already.
    """
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time left")
    sock = getattr(connection, "_sock", None)
    if sock is None:  # it connects when something is sent, within its own limit
        return
    seconds = rounded(left)
    if sock.gettimeout() != seconds:
        sock.settimeout(seconds)


def release(connection: Any) -> None:
    """Give a connection the limit back that it has by its client's settings, before somebody else uses it."""
    sock = getattr(connection, "_sock", None)
    if sock is not None:
        sock.settimeout(connection.socket_timeout)


def rounded(seconds: float) -> float:
    """Round a limit up, so that nearly equal ones are equal."""
    mantissa, exponent = math.frexp(seconds)
    return math.ldexp(math.ceil(mantissa * _STEPS) / _STEPS, exponent)
