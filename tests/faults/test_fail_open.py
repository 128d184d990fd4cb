"""It never breaks the call that it serves; withdrawals say so when they can't be acknowledged."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from semcache import Hit, Miss, Policy, StoreUnavailableError
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade, within
from tests.faults.proxy import Proxy

DEADLINE = 0.25
AMPLE = 10.0  # where a deadline isn't the subject
ENCODER = {"apple": [1.0, 0.0], "apples": [0.99, 0.141], "pear": [0.0, 1.0]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer.open(tmp_path / "data") as server:
        yield server


@pytest.fixture
def proxy(server: EmbeddedServer) -> Iterator[Proxy]:
    proxy = Proxy(server.socket_path)
    yield proxy
    proxy.close()


def open_cache(kind: str, target: str, loop: Loop, *, deadline: float = AMPLE, **options: Any) -> Facade:
    policy = Policy(deadline=deadline, breaker_failures=3, breaker_reset=0.3, local_bound=0.0)
    return open_facade(
        kind, target, loop, encoder=TableEncoder(ENCODER, default=[0.5, 0.5]), matcher=ThresholdMatcher(0.9),
        policy=policy, **options,
    )  # fmt: skip


@pytest.fixture(params=["sync", "async"])
def cache(request: pytest.FixtureRequest, loop: Loop, proxy: Proxy) -> Iterator[Facade]:
    cache = open_cache(request.param, proxy.url, loop)
    eventually_stores(cache)
    yield cache
    cache.close()


@pytest.fixture(params=["sync", "async"])
def hasty(request: pytest.FixtureRequest, loop: Loop, proxy: Proxy) -> Iterator[Facade]:
    """One whose deadline is short."""
    cache = open_cache(request.param, proxy.url, loop, deadline=DEADLINE)
    eventually_stores(cache)
    yield cache
    cache.close()


def eventually_stores(cache: Facade) -> None:
    assert within(30.0, lambda: cache.put("apple", "a fruit")), "the cache stores nothing"


def eventually_hits(cache: Facade, prompt: str = "apple") -> Any:
    found = within(30.0, lambda: cache.lookup(prompt))
    assert isinstance(found, Hit), "the cache didn't come back"
    return found


@pytest.mark.parametrize("mood", ["refuse", "hang", "cut"])
def test_a_broken_redis_is_a_miss_within_the_deadline(hasty: Facade, proxy: Proxy, mood: Any) -> None:
    cache = hasty
    eventually_hits(cache)
    proxy.set(mood)
    started = time.monotonic()
    found = cache.lookup("apple")
    took = time.monotonic() - started
    answers = [cache.get_or_compute("apple", lambda request: "from the model") for _ in range(5)]
    stored = cache.put("pear", "another fruit")
    with pytest.raises(StoreUnavailableError):
        cache.invalidate(everything=True)
    proxy.set("pass")

    assert isinstance(found, Miss)
    assert found.reason in ("store_unavailable", "deadline")
    assert took < 30.0  # a busy machine may be slow to wake us; the point is that it isn't for ever
    assert {answer.text for answer in answers} == {"from the model"}
    assert stored.outcome in ("store_unavailable", "deadline", "breaker_open")
    eventually_hits(cache)


def test_the_breaker_opens_and_closes(cache: Facade, proxy: Proxy) -> None:
    proxy.set("refuse")
    reasons = [cache.lookup("apple").reason for _ in range(6)]
    proxy.set("pass")

    assert reasons[:3] == ["store_unavailable"] * 3
    assert "breaker_open" in reasons
    eventually_hits(cache)
    assert cache.stats().failures["store_unavailable"] >= 3


def test_a_slow_redis_costs_no_more_than_the_deadline(hasty: Facade, proxy: Proxy) -> None:
    proxy.delay = 60.0
    proxy.set("slow")
    started = time.monotonic()
    found = hasty.lookup("apple")
    took = time.monotonic() - started
    proxy.set("pass")

    assert isinstance(found, Miss)
    assert found.reason == "deadline"
    assert took < 30.0
    eventually_hits(hasty)


def test_withdrawals_raise_while_redis_is_away(cache: Facade, proxy: Proxy) -> None:
    found = eventually_hits(cache)
    entry_id, lookup_id = found.entry_id, found.lookup_id
    proxy.set("refuse")
    for withdraw in (
        lambda: cache.invalidate(everything=True),
        lambda: cache.invalidate(entry_ids=[entry_id]),
        lambda: cache.invalidate(tags={"x"}),
        lambda: cache.feedback(lookup_id, -1, rater="u"),
        lambda: cache.restore(entry_id),
    ):
        with pytest.raises(StoreUnavailableError):
            withdraw()
    proxy.set("pass")

    eventually_hits(cache)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_application_starts_while_redis_is_away(kind: str, loop: Loop, proxy: Proxy) -> None:
    proxy.set("refuse")
    cache = open_cache(kind, proxy.url, loop)
    answer = cache.get_or_compute("apple", lambda request: "from the model")
    proxy.set("pass")
    eventually_stores(cache)
    eventually_hits(cache)
    cache.close()

    assert answer.text == "from the model"


def pid_of(server: EmbeddedServer) -> int:
    client = redis.Redis(unix_socket_path=server.socket_path)
    pid = int(client.info("server")["process_id"])
    client.close()
    return pid


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_stopped_redis_is_a_miss_and_hits_when_it_goes_on(
    kind: str, loop: Loop, server: EmbeddedServer
) -> None:
    cache = open_cache(kind, server.url, loop, deadline=DEADLINE)
    eventually_stores(cache)
    pid = pid_of(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        found = cache.lookup("apple")
        answer = cache.get_or_compute("apple", lambda request: "from the model")
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually_hits(cache)
    cache.close()

    assert isinstance(found, Miss)
    assert found.reason == "deadline"
    assert answer.text == "from the model"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_killed_embedded_server_is_started_again_with_its_data(
    kind: str, loop: Loop, tmp_path: Path
) -> None:
    cache = open_cache(kind, None, loop, data_dir=tmp_path / "data")  # type: ignore[arg-type]
    cache.put("apple", "a fruit")
    url = cache.cache._background._connections.client().connection_pool.connection_kwargs["path"]
    client = redis.Redis(unix_socket_path=url)
    time.sleep(1.1)  # the append-only file is synced every second
    os.kill(int(client.info("server")["process_id"]), signal.SIGKILL)
    client.close()
    answer = cache.get_or_compute("apple", lambda request: "from the model")
    eventually_hits(cache)
    cache.close()

    assert answer.text in ("from the model", "a fruit")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda client, key: client.set(key, "a string"),
        lambda client, key: client.hset(key, "response", b"\x80\x04pickle"),
        lambda client, key: client.hset(key, "response", b'{"v":99,"text":"x"}'),
        lambda client, key: client.hset(key, "id", "another/entry/0123"),
        lambda client, key: client.hdel(key, "fence"),
        lambda client, key: client.hset(key, "prompt", b"\xff\xfe"),
    ],
    ids=["wrong type", "pickle", "future schema", "another's entry", "missing field", "not utf-8"],
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_cant_be_read_is_a_counted_miss(
    kind: str, spoil: Any, loop: Loop, redis_url: str, namespace: str
) -> None:
    cache = open_cache(kind, redis_url, loop, namespace=namespace)
    cache.put("apple", "a fruit")
    client = redis.Redis.from_url(redis_url)
    (key,) = client.keys(f"semcache:{namespace}:entry:*")
    if client.type(key) == b"hash" and spoil.__code__.co_names[-1:] == ("set",):
        client.delete(key)
    spoil(client, key)
    exact, reworded = cache.lookup("apple"), cache.lookup("apples")
    failures = cache.stats().failures
    client.close()
    cache.close()

    assert isinstance(exact, Miss)
    assert isinstance(reworded, Miss)
    assert exact.reason in ("undecodable", "withdrawn")
    assert failures["undecodable"] >= 1
