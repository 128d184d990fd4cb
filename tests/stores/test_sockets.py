"""Time limits of sockets."""

from __future__ import annotations

import math
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from semcache import Hit, Policy, SemanticCache
from semcache.errors import StoreUnavailableError
from semcache.stores import sockets
from semcache.stores.connections import connect
from semcache.stores.embedded import EmbeddedServer
from semcache.stores.sockets import limit, release, rounded
from semcache.testing import HashEncoder
from tests.faults.proxy import Proxy


@pytest.fixture
def silent() -> Iterator[Any]:
    """A connection whose other end says nothing."""
    here, there = socket.socketpair()
    yield SimpleNamespace(_sock=here)
    here.close()
    there.close()


@given(st.floats(1e-6, 1e6))
def test_a_limit_is_rounded_up_by_a_sixteenth_at_most(seconds: float) -> None:
    assert seconds <= rounded(seconds) <= seconds * 17 / 16


def waited(connection: Any) -> float:
    started = time.monotonic()
    with pytest.raises(OSError):
        connection._sock.recv(1)
    return time.monotonic() - started


def test_a_read_ends_at_its_limit_and_the_next_has_its_own(silent: Any) -> None:
    limit(silent, time.monotonic() + 0.1)
    short = waited(silent)
    limit(silent, time.monotonic() + 0.4)
    long = waited(silent)

    assert 0.09 <= short < 30.0
    assert 0.39 <= long < 30.0


def test_the_shortest_limit_isnt_none_at_all(silent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0  # the clock stands, since the time is over when it is asked a moment late
    monkeypatch.setattr(sockets, "time", SimpleNamespace(monotonic=lambda: now))
    limit(silent, math.nextafter(now, math.inf))

    assert silent._sock.gettimeout() is not None
    assert waited(silent) < 30.0


def test_a_new_socket_of_a_connection_gets_the_limit_too(silent: Any) -> None:
    limit(silent, time.monotonic() + 0.5)
    here, there = socket.socketpair()
    with here, there, silent._sock:
        silent._sock = here
        limit(silent, time.monotonic() + 0.5)

        assert waited(silent) < 30.0


def test_a_connection_that_is_given_back_has_its_own_limit_again(silent: Any) -> None:
    silent.socket_timeout = None
    limit(silent, time.monotonic() + 60.0)
    release(silent)

    assert silent._sock.gettimeout() is None


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
def test_signals_dont_lengthen_a_limit(silent: Any) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        limit(silent, time.monotonic() + 0.3)
        took = waited(silent)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert 0.29 <= took < 30.0


def test_a_write_that_nobody_reads_ends_at_its_limit(silent: Any) -> None:
    limit(silent, time.monotonic() + 0.2)
    started = time.monotonic()
    with pytest.raises(OSError):
        silent._sock.sendall(b"x" * 10_000_000)

    assert 0.19 <= time.monotonic() - started < 30.0


def test_the_callers_own_client_waits_as_long_as_she_wants_afterwards(redis_url: str, namespace: str) -> None:
    with redis.Redis.from_url(redis_url, socket_timeout=7.0) as client:
        policy = Policy(deadline=5.0)
        with SemanticCache.open(client, encoder=HashEncoder(8), namespace=namespace, policy=policy) as cache:
            cache.put("How are you?", "Well.")
            assert isinstance(cache.lookup("How are you?"), Hit)
        pool = client.connection_pool
        taken = [pool.get_connection() for _ in range(4)]
        limits = {connection._sock.gettimeout() for connection in taken}
        for connection in taken:
            pool.release(connection)

    assert limits == {7.0}


def test_no_time_is_no_limit(silent: Any) -> None:
    with pytest.raises(TimeoutError):
        limit(silent, time.monotonic() - 1.0)


def test_a_server_that_hangs_says_so_in_time(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path) as server:
        proxy = Proxy(str(server.socket_path))
        connections = connect(proxy.url, 5.0)
        assert connections.execute([("PING",)], 1.0) == [b"PONG"]
        proxy.set("hang")
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="answer"):
            connections.execute([("PING",)], 0.3)
        took = time.monotonic() - started
        connections.close()
        proxy.close()

    assert 0.29 <= took < 30.0
