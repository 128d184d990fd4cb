"""The disk tier brings back what the store has let go of, and nothing that was withdrawn or invalidated."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from semcache import CacheRequest, ConfigurationError, Hit, Miss, Policy, Response, SemanticCache
from semcache.keys import Keys
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import HashEncoder
from tests.facade import Facade, Loop, open_facade, within


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest, loop: Loop, redis_url: str, namespace: str, tmp_path: Path) -> Any:
    opened: list[Facade] = []

    def open_one(**policy: Any) -> Facade:
        settings = {"deadline": 5.0, "local_bound": 0.0, "disk": str(tmp_path / "disk.db"), **policy}
        facade = open_facade(
            request.param,
            redis_url,
            loop,
            encoder=HashEncoder(8),
            policy=Policy(**settings),
            namespace=namespace,
        )
        opened.append(facade)
        return facade

    yield open_one
    for facade in opened:
        facade.close()


def let_go(url: str, namespace: str, cache: Facade) -> None:
    """Make the store lose its entries, as it does when it is full: their truth beside them stays."""
    assert cache.cache._core.disk.settle(5.0)
    with redis.from_url(url) as client:
        for key in client.scan_iter(match=Keys(namespace).prefix + "entry:*"):
            client.delete(key)


def test_what_the_store_let_go_comes_back(
    make: Callable[..., Facade], redis_url: str, namespace: str
) -> None:
    cache = make()
    cache.put("question", Response("x", usage={"total_tokens": 5}), tags={"t"}, ttl=1000.0, confidence=0.9)
    before = cache.lookup("question")
    let_go(redis_url, namespace, cache)
    found = cache.lookup("question")

    assert (found.tier, found.text, found.match) == ("disk", "x", "exact")
    assert found.response == before.response
    assert found.age >= before.age
    assert found.ttl_left <= before.ttl_left
    assert cache.lookup("question").tier == "store"
    assert cache.stats().tiers["disk"] == 1
    (entry,) = cache.all_entries()
    assert (entry.tags, entry.confidence) == (("t",), 0.9)


def test_it_keeps_its_age(make: Callable[..., Facade], redis_url: str, namespace: str) -> None:
    cache = make()
    cache.put("question", "x")
    let_go(redis_url, namespace, cache)

    assert isinstance(cache.lookup(CacheRequest("question", max_age=0.0)), Miss)
    assert cache.lookup("question").age > 0.0


def test_a_withdrawn_answer_does_not(make: Callable[..., Facade], redis_url: str, namespace: str) -> None:
    cache = make()
    entry_id = cache.put("question", "x").entry_id
    assert cache.cache._core.disk.settle(5.0)
    cache.invalidate(entry_ids=[entry_id])
    let_go(redis_url, namespace, cache)

    assert isinstance(cache.lookup("question"), Miss)
    assert isinstance(cache.lookup("question"), Miss)


@pytest.mark.parametrize(
    "selector",
    [
        {"tags": ["t"]},
        {"everything": True},
        {"subject": "ada"},
        {"segment": {"tier": "gold"}},
        {"model": "m"},
    ],
)
def test_an_invalidated_answer_does_not(
    selector: dict[str, Any], make: Callable[..., Facade], redis_url: str, namespace: str
) -> None:
    cache = make()
    request = CacheRequest("question", model="m", subject="ada", segment={"tier": "gold"})
    cache.put(request, "x", tags={"t"})
    let_go(redis_url, namespace, cache)
    cache.invalidate(**selector)

    assert isinstance(cache.lookup(request), Miss)


def test_an_answer_that_feedback_withdrew_does_not(
    make: Callable[..., Facade], redis_url: str, namespace: str
) -> None:
    cache = make()
    cache.put("question", "x")
    for rater in "abc":
        cache.feedback(cache.lookup("question").lookup_id, -1, rater=rater)
    let_go(redis_url, namespace, cache)

    assert isinstance(cache.lookup("question"), Miss)


def test_feedback_counts_for_what_came_back(
    make: Callable[..., Facade], redis_url: str, namespace: str
) -> None:
    cache = make()
    cache.put("question", "x")
    let_go(redis_url, namespace, cache)
    actions = [cache.feedback(cache.lookup("question").lookup_id, -1, rater=rater).action for rater in "abc"]

    assert actions == ["recorded", "recorded", "withdrawn"]
    let_go(redis_url, namespace, cache)
    assert isinstance(cache.lookup("question"), Miss)


def test_nothing_survives_a_flush_that_nobody_saw(tmp_path: Path) -> None:
    """Who saw it carries the file over: `test_flush` has that."""
    policy = Policy(deadline=5.0, local_bound=0.0, disk=str(tmp_path / "disk.db"))
    with EmbeddedServer.open(tmp_path / "data") as server:
        with SemanticCache.open(server.url, encoder=HashEncoder(8), policy=policy, secret=b"s" * 16) as cache:
            cache.put("question", "x")
        with redis.from_url(server.url) as client:
            client.flushall()
        with SemanticCache.open(server.url, encoder=HashEncoder(8), policy=policy, secret=b"s" * 16) as cache:
            assert isinstance(cache.lookup("question"), Miss)
            assert within(20.0, lambda: rows(tmp_path / "disk.db") == 0)
            assert isinstance(cache.lookup("question"), Miss)


def rows(file: Path) -> int:
    db = sqlite3.connect(file)
    (count,) = db.execute("SELECT count(*) FROM entries").fetchone()
    db.close()
    return int(count)


def test_it_outlives_the_process(make: Callable[..., Facade], redis_url: str, namespace: str) -> None:
    first = make()
    first.put("question", "x")
    let_go(redis_url, namespace, first)
    first.cache._core.disk.close()

    assert make().lookup("question").tier == "disk"


def test_the_store_keeps_it_shorter_and_the_disk_all_its_ttl(
    make: Callable[..., Facade], redis_url: str, namespace: str
) -> None:
    cache = make(store_ttl=100.0)
    entry_id = cache.put("question", "x", ttl=10_000.0).entry_id
    with redis.from_url(redis_url) as client:
        assert 90_000 < client.pttl(Keys(namespace).entry(entry_id)) <= 100_000
        let_go(redis_url, namespace, cache)
        assert cache.lookup("question").ttl_left > 9_000
        assert 90_000 < client.pttl(Keys(namespace).entry(entry_id)) <= 100_000


def test_what_is_past_its_ttl_stays_away(make: Callable[..., Facade], redis_url: str, namespace: str) -> None:
    cache = make()
    cache.put("question", "x", ttl=0.001)
    let_go(redis_url, namespace, cache)

    assert isinstance(cache.lookup("question"), Miss)


def test_nothing_is_kept_longer_than_withdrawals_are(make: Callable[..., Facade], tmp_path: Path) -> None:
    cache = make(tombstone_ttl=50.0, ttl=None)
    cache.put("question", "x")
    assert cache.cache._core.disk.settle(5.0)
    with sqlite3.connect(tmp_path / "disk.db") as db:
        ends, created = db.execute("SELECT ends, created FROM entries").fetchone()
    db.close()

    assert ends - created / 1e6 == pytest.approx(50.0)


def test_the_file_is_bounded_and_the_owners_alone(make: Callable[..., Facade], tmp_path: Path) -> None:
    cache = make(disk_bytes=20_000)
    for number in range(60):
        cache.put(f"question {number}", "x" * 1_000)
    assert cache.cache._core.disk.settle(5.0)
    with sqlite3.connect(tmp_path / "disk.db") as db:
        held, ids = db.execute("SELECT total(size), count(*) FROM entries").fetchone()
    db.close()

    assert 10_000 < held <= 20_000
    assert ids > 5
    assert os.stat(tmp_path / "disk.db").st_mode & 0o077 == 0


def test_a_broken_file_breaks_nothing(make: Callable[..., Facade], tmp_path: Path) -> None:
    (tmp_path / "disk.db").write_bytes(b"not a database at all" * 100)
    cache = make()

    assert cache.put("question", "x").outcome == "stored"
    assert isinstance(cache.lookup("question"), Hit)
    assert isinstance(cache.lookup("another"), Miss)
    assert cache.get_or_compute("third", lambda request: "y").text == "y"
    assert cache.cache._core.disk.settle(5.0)
    assert cache.stats().failures["disk"] >= 2


def test_explaining_puts_nothing_back(make: Callable[..., Facade], redis_url: str, namespace: str) -> None:
    cache = make()
    cache.put("question", "x")
    let_go(redis_url, namespace, cache)

    assert isinstance(cache.explain("question").decision, Miss)
    assert cache.all_entries() == []


@pytest.mark.parametrize("wrong", [{"disk": ""}, {"disk_bytes": 0}, {"store_ttl": 0}])
def test_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Policy(**wrong)
