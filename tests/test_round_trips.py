"""Round trips are a budget: an exact hit 1, a semantic hit 1 more, put 1, feedback 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from semcache import Hit, Policy, SemanticCache
from semcache.stores.connections import Direct, connect
from semcache.stores.redis import RedisStore
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher


class Counting:
    """Connections that count round trips."""

    cluster = False

    def __init__(self, inner: Direct) -> None:
        self._inner = inner
        self.trips = 0

    def execute(self, commands: Sequence[Any], timeout: float, packed: bytes | None = None) -> list[Any]:
        self.trips += 1
        return self._inner.execute(commands, timeout, packed)

    def client(self) -> Any:
        return self._inner.client()

    def close(self) -> None:
        self._inner.close()


@pytest.fixture
def counting(redis_url: str) -> Counting:
    inner = connect(redis_url, 5.0)
    assert isinstance(inner, Direct)
    return Counting(inner)


@pytest.fixture
def cache(counting: Counting, namespace: str) -> Iterator[SemanticCache]:
    encoder = TableEncoder(
        {"apple": [1.0, 0.0], "apples": [0.99, 0.141], "fruit": [0.98, 0.199]}, default=[0.0, 1.0]
    )
    store = RedisStore(counting, namespace)  # type: ignore[arg-type]
    policy = Policy(deadline=5.0, local_bound=0.0)
    with SemanticCache(
        store=store, encoder=encoder, namespace=namespace, policy=policy, matcher=ThresholdMatcher(0.9)
    ) as cache:
        cache.put("apple", "a fruit", tags={"kind:fruit", "season:autumn"})
        cache.lookup("apple")
        cache.lookup("fruit")
        yield cache


def trips(counting: Counting, act: Any) -> tuple[int, Any]:
    before = counting.trips
    result = act()
    return counting.trips - before, result


def test_an_exact_hit_is_one_round_trip(cache: SemanticCache, counting: Counting) -> None:
    count, found = trips(counting, lambda: cache.lookup("apple"))

    assert isinstance(found, Hit)
    assert count == 1


def test_a_semantic_hit_is_one_more(cache: SemanticCache, counting: Counting) -> None:
    count, found = trips(counting, lambda: cache.lookup("apples"))

    assert isinstance(found, Hit)
    assert found.match == "semantic"
    assert count == 2


def test_a_put_is_one_round_trip(cache: SemanticCache, counting: Counting) -> None:
    count, stored = trips(counting, lambda: cache.put("pear", "another fruit", tags={"x", "y"}))

    assert stored.outcome == "stored"
    assert count == 1


def test_feedback_is_one_round_trip(cache: SemanticCache, counting: Counting) -> None:
    found = cache.lookup("apple")
    assert isinstance(found, Hit)
    count, result = trips(counting, lambda: cache.feedback(found.lookup_id, -1, rater="u"))

    assert result.action == "recorded"
    assert count == 1


def test_invalidating_a_tag_is_one_round_trip(cache: SemanticCache, counting: Counting) -> None:
    count, _ = trips(counting, lambda: cache.invalidate(tags={"season:autumn"}))

    assert count == 1


def test_after_an_invalidation_the_tags_are_read_again_once(cache: SemanticCache, counting: Counting) -> None:
    cache.invalidate(tags={"something else"})
    first, _ = trips(counting, lambda: cache.lookup("apple"))
    second, found = trips(counting, lambda: cache.lookup("apple"))

    assert (first, second) == (2, 1)
    assert isinstance(found, Hit)


def test_an_empty_scope_costs_no_encoder_run(redis_url: str, namespace: str) -> None:
    encoder = TableEncoder({}, default=[1.0, 0.0])
    store = RedisStore(connect(redis_url, 5.0), namespace)
    with SemanticCache(
        store=store,
        encoder=encoder,
        namespace=namespace,
        matcher=ThresholdMatcher(0.9),
        policy=Policy(deadline=5.0),
    ) as cache:
        cache.lookup("apple")
        calls = encoder.calls
        cache.put("apple", "a fruit")
        cache.lookup("apple")

        assert calls == 0
        assert encoder.calls == 1
