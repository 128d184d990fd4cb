"""The process that keeps one embedded server, and ends it when its last user is gone.

Run by path, with the standard library only: ``python -I -S _keeper.py <binary> <data folder> <socket> <seconds>``.
It knows the four lock files of a data folder; who may use the folder and how users find the socket is `embedded`'s
affair.

- ``start.lock``: exclusive, one process at a time looks whether the server lives, and starts it.
- ``users.lock``: shared by every user for as long as it lives. Exclusive = nobody uses the server any more.
- ``keeper.lock``: exclusive for the life of the keeper.
- ``server.lock``: exclusive, inherited by the server: two servers never write one folder, even when a keeper was
  killed and its server takes a while to follow.

A lock belongs to an open file. A forked child shares its parent's, so that a user's lock lasts until both are gone.
The locks that must end with a function are unlocked, not only closed, for the same reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

START_LOCK = "start.lock"
USERS_LOCK = "users.lock"
KEEPER_LOCK = "keeper.lock"
SERVER_LOCK = "server.lock"
RECORD = "keeper.json"
LOG = "server.log"
SPAWNED = b"spawned\n"  # said to the process that asked, once the socket can be no earlier server's

_LOG_BYTES = 1_000_000
_PR_SET_PDEATHSIG = 1
_KILL_AFTER = 60.0  # seconds that a server may take to write what it holds


class NotKeptError(Exception):
    """The keeper can't start its server; the message goes to the process that asked for it."""


def take_lock(path: str, *, exclusive: bool, deadline: float) -> int | None:
    """Open and lock a file, making it when missing.

    Args:
        deadline: On the monotonic clock; the lock is tried once even when it has passed.

    Returns:
        The descriptor, or None when another process held the lock until the deadline.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    taken = False
    try:
        while not (taken := _try_lock(descriptor, exclusive=exclusive)) and time.monotonic() < deadline:
            time.sleep(0.005)
    finally:
        if not taken:
            os.close(descriptor)
    return descriptor if taken else None


def _try_lock(descriptor: int, *, exclusive: bool) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def drop_lock(descriptor: int) -> None:
    """Unlock and close, for this process and for every child that inherited the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def is_locked(path: str, *, exclusive: bool) -> bool:
    """Tell whether somebody holds a lock that excludes an exclusive (or a shared) one."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor, exclusive=exclusive)
    finally:
        drop_lock(descriptor)


def space() -> str:
    """Name the container this process is in: paths and process ids mean the same only within one."""
    try:
        return " ".join(os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "mnt"))
    except OSError:
        return ""


def write_record(folder: str, socket_path: str) -> None:
    """Tell the users of a folder, our working directory, where its server listens."""
    draft = f"{RECORD}.new"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "folder": folder, "socket": socket_path, "space": space()}, file)
    os.replace(draft, RECORD)


def server_command(binary: str, socket_path: str) -> list[str]:
    """Return the server's command line; its working directory is the data folder."""
    settings = {
        "port": "0",
        "unixsocket": socket_path,
        "unixsocketperm": "700",
        "dir": ".",
        "logfile": LOG,
        "appendonly": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    return [binary, *(part for name, value in settings.items() for part in (f"--{name}", value))]


def _die_with_parent() -> Callable[[], None] | None:
    """Return what the server's process does before it becomes the server; the library is loaded beforehand."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # here, for the users of this module

    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def ask_for_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)

    return ask_for_signal


def _end_orphan(socket_path: str) -> None:
    """Ask a server whose keeper was killed to end; on Linux it was told already."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        connection.connect(socket_path)
        connection.sendall(b"SHUTDOWN NOSAVE\r\n")  # the append-only file is written all the same
        connection.recv(1)


def _recorded_socket() -> str | None:
    try:
        with open(RECORD, encoding="utf-8") as file:
            return str(json.load(file)["socket"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _take_server_lock(orphan_socket: str | None, deadline: float) -> int:
    descriptor = take_lock(SERVER_LOCK, exclusive=True, deadline=0.0)
    if descriptor is None and orphan_socket is not None:
        _end_orphan(orphan_socket)
    if descriptor is None:
        descriptor = take_lock(SERVER_LOCK, exclusive=True, deadline=deadline)
    if descriptor is None:
        raise NotKeptError("an earlier server of this folder is still running and doesn't end")
    return descriptor


def _spawn(binary: str, socket_path: str, server_lock: int) -> subprocess.Popen[bytes]:
    with contextlib.suppress(FileNotFoundError):
        if os.stat(LOG).st_size > _LOG_BYTES:
            os.replace(LOG, f"{LOG}.1")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(socket_path)
    with open(LOG, "ab") as log:
        try:
            server = subprocess.Popen(
                server_command(binary, socket_path),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[server_lock],
                preexec_fn=_die_with_parent(),  # this process has one thread so far
            )
        except OSError as error:
            raise NotKeptError(f"{binary} can't be run: {error.strerror}") from error
        os.dup2(log.fileno(), 2)  # from here on, what goes wrong in the keeper is in the log as well
    os.close(server_lock)  # the server's copy is the one that counts
    return server


def _end_with_last_user(server: subprocess.Popen[bytes]) -> None:
    descriptor = os.open(USERS_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # kept until this process ends: new users wait for it
    server.terminate()
    time.sleep(_KILL_AFTER)
    server.kill()


def _say(words: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # it listens only until the server answers
        os.write(1, words)


def keep(binary: str, folder: str, socket_path: str, *, deadline: float) -> None:
    """Run the server of a folder until its last user is gone, or it ends by itself.

    The signal for a dead parent follows the thread that started the server: it must be this, the main one.
    """
    os.chdir(folder)
    if take_lock(KEEPER_LOCK, exclusive=True, deadline=deadline) is None:
        raise NotKeptError("another keeper of this folder is running and doesn't end")
    earlier = _recorded_socket()
    write_record(folder, socket_path)
    server_lock = _take_server_lock(earlier, deadline)
    server = _spawn(binary, socket_path, server_lock)
    _say(SPAWNED)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    threading.Thread(target=_end_with_last_user, args=(server,), daemon=True).start()
    status = server.wait()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(socket_path)  # nobody can have made a new one: that needs our lock
    if status:
        raise NotKeptError(f"the server ended with status {status}")


def main(binary: str, folder: str, socket_path: str, seconds: str) -> None:
    """Leave the process that started us, so that it has no child to reap, and keep the server."""
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    # What the starting thread blocked or ignored is not for us, nor for the server.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    try:
        keep(binary, folder, socket_path, deadline=time.monotonic() + float(seconds))
    except NotKeptError as error:
        _say(str(error).encode())
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
