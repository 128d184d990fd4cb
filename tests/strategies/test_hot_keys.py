"""Hot entries are found within the sketch's bound, over processes, kept at hand, and spread over a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache import ConfigurationError, Hit, Miss, Policy, SemanticCache
from semcache.hotkeys import HotKey, HotKeys, decode_reports, encode_report, merged
from semcache.local import Copy, LocalCopies
from semcache.testing import HashEncoder
from semcache.types import Entry, Fence, Response
from tests.facade import Facade
from tests.servers import cluster, eventually

USES = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(1, 20)), max_size=60)


@given(USES, st.integers(2, 6))
def test_a_count_is_never_too_low_and_its_error_says_how_much_too_high(
    uses: list[tuple[str, int]], capacity: int
) -> None:
    sketch, real = HotKeys(0.0, capacity=capacity), Counter[str]()
    for name, count in uses:
        sketch.add([(name, count)], 0.0)
        real[name] += count
    scale = sketch.top(1, 0.0)[0].per_second / max(c.slow for c in sketch._counters.values()) if uses else 1.0
    found = {key.entry_id: key for key in sketch.top(capacity, 0.0)}

    assert len(found) <= capacity
    for name, key in found.items():
        assert key.per_second >= real[name] * scale - 0.01
        assert key.per_second - key.error <= real[name] * scale + 0.01
    assert {name for name, count in real.items() if count > real.total() / capacity} <= set(found)


def test_a_steady_rate_is_told_and_a_rising_one_grows() -> None:
    sketch = HotKeys(0.0)
    for second in range(300):
        sketch.add(
            [("steady", 50), ("rising", 1 if second < 280 else 200), ("gone", 100 if second < 60 else 1)],
            second + 1.0,
        )
    found = {key.entry_id: key for key in sketch.top(3, 300.0)}

    assert found["steady"].per_second == pytest.approx(50, rel=0.05)
    assert found["steady"].growth == pytest.approx(1.0, abs=0.1)
    assert found["rising"].growth > 2
    assert found["gone"].growth < 0.6


def test_a_young_sketch_tells_the_rate_too() -> None:
    sketch = HotKeys(0.0)
    for second in range(5):
        sketch.add([("a", 1000)], second + 1.0)

    assert sketch.top(1, 5.0)[0].per_second == pytest.approx(1000, rel=0.05)


def test_what_nobody_asks_for_any_more_is_forgotten() -> None:
    sketch = HotKeys(0.0)
    sketch.add([("a", 5)], 1.0)

    assert sketch.top(1, 3600.0) == []


def test_processes_add_up_and_stale_ones_are_left_out() -> None:
    reports = {
        "one": encode_report([HotKey("a", 10.0, 1.0), HotKey("b", 4.0, 3.0)], 100.0),
        "two": encode_report([HotKey("a", 30.0, 2.0, 1.0)], 110.0),
        "dead": encode_report([HotKey("c", 99.0, 1.0)], 10.0),
        "broken": "{",
    }

    assert merged(decode_reports(reports, 115.0).values(), 2) == [
        HotKey("a", 40.0, 1.75, 1.0),
        HotKey("b", 4.0, 3.0),
    ]


def test_a_pinned_copy_is_not_dropped_for_others() -> None:
    copies = LocalCopies(2, 1.0)
    copies.pinned = frozenset({"hot"})
    for name in ("hot", "a", "b", "c"):
        entry = Entry(
            entry_id=name,
            scope="s",
            prompt="p",
            response=Response("x"),
            fence=Fence("e", 1),
            revision=1,
            created_at=0.0,
        )
        copies.keep(Copy(entry, 0.0, 0), copies.serial)

    assert len(copies) == 2
    assert copies.get("hot", 0.5) is not None
    assert copies.get("c", 0.5) is not None


def test_stats_tell_what_is_hot(make: Callable[..., Facade]) -> None:
    cache = make()
    cache.put("often", "x")
    cache.put("once", "x")
    for _ in range(50):
        assert isinstance(cache.lookup("often"), Hit)
    cache.lookup("once")
    hot = cache.stats().hot

    assert [key.entry_id for key in hot] == [cache.lookup(p).entry_id for p in ("often", "once")]
    assert hot[0].per_second > 20 * hot[1].per_second


def test_another_process_hears_of_it(redis_url: str, namespace: str) -> None:
    def opened() -> SemanticCache:
        return SemanticCache.open(
            redis_url, namespace=namespace, encoder=HashEncoder(8), policy=Policy(deadline=5.0)
        )

    with opened() as one, opened() as two:
        one.put("often", "x")
        for _ in range(20):
            one.lookup("often")
        assert eventually(lambda: two.stats().hot)
        assert two.stats().hot[0].entry_id == one.lookup("often").entry_id  # type: ignore[union-attr]


def test_counting_can_be_turned_off(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=5.0, hot_keys=0))
    cache.put("often", "x")
    cache.lookup("often")

    assert list(cache.stats().hot) == []


@pytest.mark.slow
def test_copies_spread_a_hot_response_and_keep_the_promise(tmp_path: Path, namespace: str) -> None:
    policy = Policy(deadline=5.0, local_bound=0.0, hot_copies=6, hot_rate=0.0)
    with cluster(tmp_path, masters=3, replicas=0) as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        with SemanticCache.open(url, namespace=namespace, encoder=HashEncoder(8), policy=policy) as cache:
            stored = cache.put("hot", "x" * 20_000)
            cache.lookup("hot")
            assert cache.stats().hot  # from here on it is hot
            before = [int(node.client().info("stats")["total_net_output_bytes"]) for node in nodes]
            for _ in range(300):
                found = cache.lookup("hot")
                assert isinstance(found, Hit)
                assert found.text == "x" * 20_000
            sent = [
                int(n.client().info("stats")["total_net_output_bytes"]) - b
                for n, b in zip(nodes, before, strict=True)
            ]
            assert sum(sent) > 300 * 20_000
            assert max(sent) < 0.5 * sum(sent)  # without copies one node sends it all

            cache.put("hot", "y")
            assert [cache.lookup("hot").text for _ in range(12)] == ["y"] * 12  # type: ignore[union-attr]
            assert stored.entry_id is not None
            cache.invalidate(entry_ids=[stored.entry_id])
            assert all(isinstance(cache.lookup("hot"), Miss) for _ in range(12))


@pytest.mark.parametrize("wrong", [{"hot_keys": -1}, {"hot_copies": 1.5}, {"hot_rate": -1.0}])
def test_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Policy(**wrong)  # type: ignore[arg-type]
