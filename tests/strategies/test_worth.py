"""What the numbers say: effective hit rate, freshness, mean latency, savings; in stats, on the command line, for Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from semcache import CacheRequest, Policy, Response, SemanticCache
from semcache.cli import app
from semcache.testing import HashEncoder
from semcache.worth import Worth, as_counts, cost_of, from_counts, summed
from tests.facade import Facade
from tests.servers import eventually

COUNT = st.integers(0, 1000).map(float)


@given(COUNT, COUNT, COUNT, COUNT, COUNT)
def test_what_is_wrong_or_stale_is_no_effective_hit(
    hits: float, misses: float, stale: float, right: float, wrong: float
) -> None:
    worth = Worth(hits=hits, attempted=hits + misses, stale=min(stale, hits), right=right, wrong=wrong)

    assert 0.0 <= worth.effective_hit_rate <= worth.hit_rate <= 1.0
    if not worth.stale and not wrong:
        assert worth.effective_hit_rate == worth.hit_rate


def test_the_mean_follows_the_formula() -> None:
    worth = Worth(hits=80, attempted=100, hit_ms=160, miss_ms=100, calls=20, model_ms=16_000)

    assert worth.mean_ms == pytest.approx(0.8 * 2 + 0.2 * (5 + 800))
    assert Worth().mean_ms is None


@given(st.lists(st.builds(Worth, hits=COUNT, attempted=COUNT, tokens=COUNT, usd=COUNT), max_size=5))
def test_processes_add_up(parts: list[Worth]) -> None:
    read = [from_counts(json.loads(json.dumps(as_counts(part)))) for part in parts]

    assert read == parts
    assert summed(read).tokens == sum(part.tokens for part in parts)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}, (150.0, 200.0, 0.0002)),
        ({"input_tokens": 100, "output_tokens": 50}, (150.0, 200.0, 0.0002)),
        ({"total_tokens": 7}, (7.0, 200.0, 0.0)),
        ({"prompt_tokens": True, "total_tokens": "many"}, (0.0, 200.0, 0.0)),
        (None, (0.0, 200.0, 0.0)),
    ],
)
def test_a_hit_saves_what_the_answer_cost(
    usage: dict[str, object] | None, expected: tuple[float, float, float]
) -> None:
    response = Response("x", usage=usage, latency_ms=200.0)  # type: ignore[arg-type]

    assert cost_of(response, 1.0, 2.0) == pytest.approx(expected)


def test_stats_tell_what_serving_was_worth(make: Callable[..., Facade]) -> None:
    cache = make(
        {"another": [1.0, 0.0, 0.0]}, policy=Policy(deadline=5.0, local_bound=60.0, usd_in=1.0, usd_out=2.0)
    )
    response = Response("x", usage={"prompt_tokens": 100, "completion_tokens": 50}, latency_ms=200.0)
    cache.put("question", response)
    for _ in range(8):
        found = cache.lookup("question")
    cache.lookup("another")
    cache.lookup("where is my order?")  # bypasses
    cache.feedback(found.lookup_id, -1, rater="ada")
    cache.feedback(cache.lookup("question").lookup_id, 1, rater="bob")
    worth = cache.stats().worth

    assert (worth.hits, worth.attempted, worth.stale) == (9, 10, 0)
    assert worth.wrong_share == 0.5
    assert worth.effective_hit_rate == pytest.approx(0.45)
    assert (worth.tokens, worth.saved_ms) == (9 * 150, 9 * 200)
    assert worth.usd == pytest.approx(9 * 0.0002)
    assert worth.mean_ms is not None
    assert set(cache.stats().tiers_ms) == {"local", "store"}
    assert all(set(times) == {"p50", "p95", "p99"} for times in cache.stats().tiers_ms.values())


def test_a_model_that_was_called_counts_in_the_mean(make: Callable[..., Facade]) -> None:
    cache = make()
    cache.get_or_compute("question", lambda request: "x")
    cache.get_or_compute("question", lambda request: "x")
    worth = cache.stats().worth

    assert (worth.calls, worth.hits, worth.attempted) == (1, 1, 2)


def test_a_stale_hit_is_no_fresh_one(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=5.0, stale_while_revalidate=3600.0, local_bound=0.0))
    cache.put("question", "x", ttl=0.001)

    assert eventually(lambda: cache.lookup("question").stale)
    worth = cache.stats().worth
    assert worth.stale >= 1
    assert worth.fresh_share < 1.0


def test_the_command_tells_it_of_all_processes(redis_url: str, namespace: str) -> None:
    def opened() -> SemanticCache:
        return SemanticCache.open(
            redis_url, namespace=namespace, encoder=HashEncoder(8), policy=Policy(deadline=5.0)
        )

    with opened() as one, opened() as two:
        for cache in (one, two):
            cache.put(
                CacheRequest("question", model="m"),
                Response("x", usage={"total_tokens": 150}, latency_ms=3600.0),
            )
            for _ in range(5):
                cache.lookup(CacheRequest("question", model="m"))

        def told() -> dict[str, float]:
            result = CliRunner().invoke(
                app, ["stats", "--redis", redis_url, "--namespace", namespace, "--json"]
            )
            found: dict[str, float] = json.loads(result.stdout)["worth"]
            return found

        assert eventually(lambda: told()["hits"] == 10)
        assert told()["tokens"] == 1500
        shown = CliRunner().invoke(app, ["stats", "--redis", redis_url, "--namespace", namespace]).stdout
    assert re.search(r"served +100\.0% of 10 lookups in 2 processes", shown)
    assert "saved       1,500 tokens" in shown
    assert re.search(r"hot .*question", shown)
    assert re.search(r"s of CPU", shown)
