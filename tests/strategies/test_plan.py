"""Capacity planning: curves that agree with plain replays, logs read as they are, and a plan that adds up."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from semcache.cli import app
from semcache.curve import hit_rate_with_ttl, miss_ratio_curve, sampled, stack_distances
from semcache.errors import ConfigurationError
from semcache.eviction import EVICTIONS, Ranked, heavier, replay, weight
from semcache.plan import Footprint, Prices, folded, plan
from semcache.traffic import Asked, asked_of, read_traffic

NAMES = st.lists(st.integers(0, 12), max_size=120)
FOOTPRINT = Footprint(redis_bytes=4000.0, row_bytes=2500.0, measured="made up")


def lru_hits(names: list[int], room: int) -> int:
    kept: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for name in names:
        hits += name in kept
        kept[name] = None
        kept.move_to_end(name)
        if len(kept) > room:
            kept.popitem(last=False)
    return hits


@given(NAMES, st.integers(1, 14))
def test_the_curve_counts_what_a_replay_hits(names: list[int], room: int) -> None:
    curve = miss_ratio_curve(names)

    assert curve.hit_rate(room) == pytest.approx(lru_hits(names, room) / max(len(names), 1))
    assert replay(names, entries=room, eviction="lru").hits == lru_hits(names, room)


@given(NAMES)
def test_a_stack_distance_counts_the_prompts_since(names: list[int]) -> None:
    expected = []
    for position, name in enumerate(names):
        before = [p for p in range(position) if names[p] == name]
        expected.append(len(set(names[before[-1] : position])) if before else 0)

    assert stack_distances(names) == expected


def zipf(requests: int, prompts: int, seed: int) -> list[int]:
    weights = [1 / (rank + 1) ** 0.9 for rank in range(prompts)]
    return random.Random(seed).choices(range(prompts), weights, k=requests)


def test_a_sample_draws_nearly_the_same_curve() -> None:
    names = zipf(120_000, 20_000, 1)
    whole, part = miss_ratio_curve(names), miss_ratio_curve(names, most=20_000)

    assert whole.rate == 1.0
    assert part.rate < 0.2
    for entries in (500, 2_000, 8_000, 20_000):
        assert part.hit_rate(entries) == pytest.approx(whole.hit_rate(entries), abs=0.03)
    positions, _ = sampled(names, 20_000)
    chosen = {names[p] for p in positions}
    assert positions == [
        p for p, name in enumerate(names) if name in chosen
    ]  # all of a prompt's requests or none


@given(NAMES, st.integers(1, 14), st.integers(1, 40))
def test_a_longer_ttl_never_serves_less_without_a_limit(names: list[int], room: int, ttl: int) -> None:
    times = [float(position) for position in range(len(names))]
    shorter = hit_rate_with_ttl(names, times, entries=None, ttl=ttl)

    assert shorter <= hit_rate_with_ttl(names, times, entries=None, ttl=None)
    assert hit_rate_with_ttl(names, times, entries=room, ttl=None) == pytest.approx(
        lru_hits(names, room) / max(len(names), 1)
    )


def test_hits_do_not_lengthen_a_life() -> None:
    assert hit_rate_with_ttl("aaaa", [0.0, 4.0, 8.0, 12.0], entries=None, ttl=10.0) == 0.5


@given(NAMES, st.integers(1, 8), st.sampled_from(EVICTIONS))
def test_a_budget_in_entries_is_never_exceeded(names: list[int], room: int, eviction: str) -> None:
    ranked: Ranked[int] = Ranked(entries=room, eviction=eviction)  # type: ignore[arg-type]
    for name in names:
        gone = ranked.put(name) or []

        assert len(ranked) <= room
        assert name in ranked
        assert name not in gone


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 60)), max_size=80), st.sampled_from(EVICTIONS))
def test_a_budget_in_bytes_is_never_exceeded(puts: list[tuple[int, int]], eviction: str) -> None:
    ranked: Ranked[int] = Ranked(entries=None, size=50, eviction=eviction)  # type: ignore[arg-type]
    sizes: dict[int, int] = {}
    for name, size in puts:
        gone = ranked.put(name, size)
        if gone is None:
            assert size > 50
            continue
        sizes[name] = size
        for other in gone:
            del sizes[other]

        assert ranked.size == sum(sizes.values()) <= 50
        assert set(sizes) == {n for n in range(13) if n in ranked}


@given(st.lists(st.floats(0, 40), min_size=1, max_size=30))
def test_a_fading_count_is_the_sum_of_its_uses(ages: list[float]) -> None:
    count = None
    for age in sorted(ages):
        count = heavier(count, age)

    assert count is not None
    assert 2.0 ** (count - max(ages)) == pytest.approx(sum(2.0 ** (age - max(ages)) for age in ages))


def test_what_is_used_often_outlives_what_was_used_last() -> None:
    names = ["often"] * 5 + ["b", "c", "d", "often"]

    assert replay(names, entries=2, eviction="lfu").hits == 5
    assert replay(names, entries=2, eviction="lru").hits == 4


def test_cost_keeps_what_was_dear_and_small() -> None:
    dear = weight("cost", tokens=1000, latency_ms=5000, size=100)
    cheap = weight("cost", tokens=10, latency_ms=100, size=1000)
    ranked: Ranked[str] = Ranked(entries=2, eviction="cost")
    ranked.put("dear", weight=dear)
    ranked.put("cheap", weight=cheap)
    ranked.touch("cheap", 3)

    assert ranked.put("new", weight=dear) == ["cheap"]
    assert weight("lru", tokens=5, latency_ms=5, size=5) == 0.0


def test_an_evicted_prompt_gets_its_count_back() -> None:
    ranked: Ranked[str] = Ranked(entries=2, eviction="lfu")
    for name, uses in (("a", 3), ("b", 6)):
        ranked.put(name)
        ranked.touch(name, uses - 1)
    assert ranked.put("c") == ["a"]
    assert ranked.put("a") == ["c"]
    ranked.touch("a", 3)

    assert ranked.put("d") == ["b"]  # 3 + 4 uses against 6


def test_a_served_paraphrase_needs_no_entry() -> None:
    near = {("a", ""): [("b", "")], ("b", ""): [("a", "")], ("c", ""): []}
    names = [("a", ""), ("b", ""), ("c", ""), ("a", "")]

    assert folded(names, near.__getitem__) == [("a", ""), ("a", ""), ("c", ""), ("a", "")]
    assert replay(names, entries=None, near=near.__getitem__).hits == 2


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": " q ", "time": 12.5}, Asked("q", time=12.5)),
        ({"prompt": "q", "timestamp": "1970-01-01T00:01:00Z", "latency_ms": 5}, Asked("q", time=60.0, latency_ms=5.0)),
        ({"query": "q", "ts": 1_700_000_000_000}, Asked("q", time=1_700_000_000.0)),
        (
            {"prompt": "q", "response": "a", "latency": 2, "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
            Asked("q", latency_ms=2000.0, tokens_in=3.0, tokens_out=4.0, response="a"),
        ),
        (
            {"body": {"messages": [{"role": "user", "content": "q"}]},
             "response": {"choices": [{"message": {"content": "a"}}], "usage": {"total_tokens": 9}}},
            Asked("q", tokens_out=9.0, response="a"),
        ),
        (
            {"inputs": {"question": "q"}, "outputs": {"output": "a"},
             "start_time": "2026-01-01T00:00:00", "end_time": "2026-01-01T00:00:01.5"},
            Asked("q", time=1767225600.0, latency_ms=1500.0, response="a"),
        ),
        ({"prompt": "   "}, None),
        ({"prompt": "q", "time": True, "latency_ms": -1, "usage": []}, Asked("q")),
    ],
)  # fmt: skip
def test_a_row_is_read_for_what_it_has(row: dict[str, object], expected: Asked | None) -> None:
    assert asked_of(row) == expected


def written(folder: Path, rows: list[dict[str, object]]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_popularity_stands_for_so_many_requests_of_that_day(tmp_path: Path) -> None:
    rows = [
        {"query": "b", "date": "1970-01-02", "popularity": 3},
        {"query": "a", "date": "1970-01-01", "popularity": 2},
    ]
    found = read_traffic(written(tmp_path, rows))  # type: ignore[arg-type]

    assert [asked.text for asked in found] == ["a", "a", "b", "b", "b"]
    assert all(0 <= (asked.time or -1) // 86400 == (asked.text == "b") for asked in found)
    assert found == read_traffic(written(tmp_path, rows))  # type: ignore[arg-type]


def test_a_popularity_beyond_reason_is_refused(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"query": "b", "date": "1970-01-02", "popularity": 10**12}]
    with pytest.raises(ConfigurationError, match="divide them"):
        read_traffic(written(tmp_path, rows))


def test_a_log_without_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no row has a prompt"):
        read_traffic(written(tmp_path, [{"prompt": "  "}]))


def test_a_plan_counts_what_it_saves() -> None:
    log = [Asked("q", latency_ms=3_601.0, tokens_out=1000.0, time=float(n)) for n in range(11)]
    made = plan(log, FOOTPRINT, Prices(usd_out=10.0))
    whole = made.sizes[-1]

    assert (made.requests, made.distinct, made.unbounded) == (11, 1, pytest.approx(10 / 11))
    assert whole.hours == pytest.approx(10 * 3.6 / 3600)
    assert whole.usd == pytest.approx(10 * 1000 * 10 / 1e6)
    assert whole.redis_bytes == 4000.0
    assert {ttl for ttl, _, _ in made.ttls} >= {60.0, None}
    bare = plan([Asked("q"), Asked("q")], FOOTPRINT, Prices())
    assert (bare.sizes[0].hours, bare.sizes[0].usd, bare.seconds, bare.ttls) == (None, None, None, ())


def test_a_sampled_plan_comes_close_to_the_whole() -> None:
    log = [Asked(f"prompt {n}") for n in zipf(60_000, 10_000, 2)]
    whole, part = (plan(log, FOOTPRINT, Prices(), most=most) for most in (10**9, 12_000))

    assert part.rate < 0.25
    for one, other in zip(whole.sizes[3:], part.sizes[3:], strict=True):
        assert other.best == pytest.approx(one.best, abs=0.04)


def test_the_command_plans_measures_and_draws(tmp_path: Path) -> None:
    names = zipf(600, 120, 3)
    rows: list[dict[str, object]] = [
        {
            "prompt": f"How do I mend thing number {n}?",
            "time": 3600.0 * t,
            "response": "Like this. " * 40,
            "latency_ms": 900,
        }
        for t, n in enumerate(names)
    ]
    path, drawing = written(tmp_path, rows), tmp_path / "plan.png"

    result = CliRunner().invoke(app, ["plan", str(path), "--json", "--plot", str(drawing), "--usd-in", "1"])

    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert made["distinct"] == len(set(names))
    assert made["unbounded"] == pytest.approx(1 - len(set(names)) / 600)
    assert (
        2_000 < made["footprint"]["redis_bytes"] < 20_000
    )  # the answer alone is 440 bytes, the embedding 1,024
    assert 1_000 < made["footprint"]["row_bytes"] < 10_000
    assert made["recommended"]["share"] in (0.2, 0.3, 0.4)
    assert made["sizes"][-1]["hours"] == pytest.approx(made["unbounded"] * 600 * 0.899 / 3600)
    assert made["usd_per_call"] is None  # nobody said how many tokens
    assert drawing.read_bytes()[:4] == b"\x89PNG"

    for target in (tmp_path / "nowhere" / "plan.png", tmp_path / "plan.sea"):
        refused = CliRunner().invoke(app, ["plan", str(path), "--entry-bytes", "1", "--plot", str(target)])
        assert refused.exit_code == 2
        assert "can't be written" in refused.output
    shown = CliRunner().invoke(app, ["plan", str(path), "--entry-bytes", "5000", "--semantic"])
    assert shown.exit_code == 0, shown.output
    assert "recommended:" in shown.stdout
    assert "distinct prompts" in shown.stdout
