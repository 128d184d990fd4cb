"""Shadow and split: nothing changes for who is watched, and what would have been served is compared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache import CacheRequest, ConfigurationError, Hit, OnlyIfCachedError, Policy, Response
from semcache.encoders.agreement import EmbeddingAgreement
from semcache.metrics import Stats
from semcache.testing import TableEncoder
from semcache.trial import agreement, hit_rate, serves
from tests.facade import Facade

Make = Callable[..., Facade]
TABLE = {"a": [1.0, 0.0, 0.0], "a?": [0.99, 0.141, 0.0]}
SHADOW = Policy(deadline=5.0, mode="shadow")


class Model:
    def __init__(self, *answers: str) -> None:
        self.answers = answers
        self.calls = 0
        self._lock = threading.Lock()

    def __call__(self, request: CacheRequest) -> Response:
        with self._lock:
            self.calls += 1
            text = self.answers[min(self.calls, len(self.answers)) - 1]
        return Response(text, usage={"total_tokens": 100}, latency_ms=2000.0)


def test_a_shadow_serves_nothing_and_compares(make: Make) -> None:
    cache, model = make(TABLE, policy=SHADOW), Model("blue", "Blue ", "green")
    first = cache.get_or_compute("a", model)
    second = cache.get_or_compute("a", model)
    third = cache.get_or_compute("a?", model)
    stats = cache.stats()

    assert [first.text, second.text, third.text] == ["blue", "Blue ", "green"]  # each got the model's own
    assert not (first.hit)
    assert not (second.hit)
    assert not (third.hit)
    assert (second.decision.reason, third.decision.best_prompt) == ("bypass:shadow", "a")
    assert [answer.stored.outcome for answer in (first, second, third)] == ["stored", "shadow", "shadow"]
    assert stats.shadow == {
        "misses": 1, "hits": 2, "agreed": 1, "differed": 1, "tokens": 200, "model_ms": 4000,
    }  # fmt: skip
    assert stats.shadow_hit_rate == pytest.approx(2 / 3)
    assert stats.agreement == 0.5
    assert (stats.hit_rate, stats.hits) == (0.0, {})


def test_a_shadow_changes_nothing_of_what_is_stored(make: Make) -> None:
    cache, model = make(TABLE, policy=SHADOW), Model("blue", "green")
    cache.get_or_compute("a", model)
    before = cache.all_entries()
    cache.get_or_compute("a", model)
    cache.get_or_compute("a?", model)

    assert cache.all_entries() == before  # a cache that serves would have put nothing either


def test_lookup_and_put_are_compared_too(make: Make) -> None:
    cache = make(TABLE, policy=SHADOW)
    cache.put("a", "blue", fence=cache.lookup("a").fence)
    found = cache.lookup("a")
    stored = cache.put("a", "blue", fence=found.fence)

    assert found.reason == "bypass:shadow"
    assert stored.outcome == "shadow"
    assert cache.stats().shadow == {"misses": 1, "hits": 1, "agreed": 1, "tokens": 0, "model_ms": 0}


def test_callers_of_a_shadow_dont_share_calls(make: Make) -> None:
    cache = make(policy=SHADOW)
    gate = threading.Barrier(4, timeout=20)

    def model(request: CacheRequest) -> str:
        gate.wait()  # all four are at the model at once
        return "a"

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: cache.get_or_compute("q", model), range(4)))

    assert not any(answer.waited for answer in found)


def test_an_error_is_no_answer_to_compare_with(make: Make) -> None:
    cache = make(policy=SHADOW)
    cache.get_or_compute("q", Model("blue"))
    found = cache.get_or_compute("q", lambda request: Response("", error=True))

    assert found.stored.outcome == "error_response"
    assert cache.stats().shadow == {"misses": 1, "hits": 1}
    assert cache.stats().agreement is None


def test_what_a_shadow_finds_isnt_given_to_who_wants_only_that(make: Make) -> None:
    cache = make(policy=SHADOW)
    cache.get_or_compute("q", Model("blue"))

    with pytest.raises(OnlyIfCachedError, match="shadow"):
        cache.get_or_compute(CacheRequest("q", only_if_cached=True), Model("blue"))


def test_a_request_that_is_off_isnt_watched(make: Make) -> None:
    cache = make(policy=SHADOW)
    cache.get_or_compute(CacheRequest("q", mode="off"), Model("blue"))
    cache.get_or_compute(CacheRequest("q", mode="off"), Model("blue"))

    assert cache.stats().shadow == {}


def test_a_stale_answer_that_is_watched_is_replaced_as_its_refresh_would(make: Make) -> None:
    policy = Policy(deadline=5.0, mode="shadow", ttl=0.2, stale_while_revalidate=100.0)
    cache, model = make(policy=policy), Model("blue", "green")
    cache.get_or_compute("q", model)
    time.sleep(0.25)
    found = cache.get_or_compute("q", model)

    assert found.stored.outcome == "replaced"
    assert cache.stats().shadow["differed"] == 1


def test_explain_tells_what_a_shadow_would_serve(make: Make) -> None:
    cache = make(policy=SHADOW)
    cache.get_or_compute("q", Model("blue"))

    assert isinstance(cache.explain("q").decision, Hit)


def test_a_split_serves_its_users_and_watches_the_others(make: Make, namespace: str) -> None:
    cache, model = make(TABLE, policy=Policy(deadline=5.0, mode="split", share=0.5)), Model("blue", "green")
    users = [f"user {number}" for number in range(40)]
    cache.get_or_compute(CacheRequest("a", user=users[0]), model)
    for _ in range(2):
        found = {user: cache.get_or_compute(CacheRequest("a", user=user), model).hit for user in users}
    served = {user for user, hit in found.items() if hit}
    stats = cache.stats()

    assert served == {user for user in users if serves(namespace, f"user:{user}", 0.5)}
    assert 5 < len(served) < 35
    assert stats.shadow["hits"] + sum(stats.hits.values()) == 80
    assert stats.agreement == 0.0
    assert stats.hit_rate == 1.0 or stats.misses.keys() == {"no_candidate", "bypass:shadow"}


def test_a_split_without_users_goes_by_the_text(make: Make) -> None:
    cache, model = make(policy=Policy(deadline=5.0, mode="split")), Model("blue")
    texts = [CacheRequest(f"text {number}", mode="exact") for number in range(30)]
    rounds = [[cache.get_or_compute(text, model).hit for text in texts] for _ in range(3)]

    assert rounds[1] == rounds[2]
    assert 3 < sum(rounds[1]) < 27


@pytest.mark.parametrize(("share", "hit"), [(0.0, False), (1.0, True)])
def test_a_split_of_nothing_and_of_all(make: Make, share: float, hit: bool) -> None:
    cache = make(policy=Policy(deadline=5.0, mode="split", share=share))
    cache.get_or_compute("q", Model("blue"))

    assert cache.get_or_compute("q", Model("blue")).hit is hit
    assert bool(cache.lookup("q")) is hit


def test_the_namespace_knows_what_all_its_processes_watched(make: Make) -> None:
    one, model = make(policy=SHADOW), Model("blue")
    for _ in range(3):
        one.get_or_compute("q", model)
    wanted = {"misses": 1, "hits": 2, "agreed": 2, "tokens": 200, "model_ms": 4000}
    store = one.cache._background
    end = time.monotonic() + 10.0
    while (found := store.tally({}, timeout=5.0)) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    one.get_or_compute("q", model)
    one.close()  # reports the rest

    assert found == wanted
    if hasattr(store, "_tally"):  # of Redis the connection is closed
        assert store.tally({}, timeout=5.0)["hits"] == 3


def test_answers_may_agree_by_their_embeddings() -> None:
    encoder = TableEncoder(
        {"yes": [1.0, 0.0], "yes indeed": [0.95, 0.312], "no": [0.0, 1.0], "": [0.0, 0.0]},
        over_window={"long"},
    )
    alike = EmbeddingAgreement(encoder, least=0.9)

    assert alike("yes", "yes indeed")
    assert not alike("yes", "no")
    assert not alike("yes", "long")
    assert alike("long", "Long ")
    with pytest.raises(ConfigurationError, match="least"):
        EmbeddingAgreement(encoder, least=1.5)


def test_a_measure_of_ones_own_compares_what_is_watched(make: Make) -> None:
    encoder = TableEncoder({"blue": [1.0, 0.0], "azure": [0.95, 0.312]})
    cache = make(policy=Policy(deadline=5.0, mode="shadow", same_answer=EmbeddingAgreement(encoder)))
    model = Model("blue", "azure")
    cache.get_or_compute("q", model)
    cache.get_or_compute("q", model)

    assert cache.stats().agreement == 1.0


@given(st.text(), st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_holds_the_smaller_one(namespace: str, name: str, a: float, b: float) -> None:
    low, high = sorted((a, b))

    assert serves(namespace, name, low) <= serves(namespace, name, high)
    assert serves(namespace, name, 1.0)
    assert not serves(namespace, name, 0.0)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_is_as_large_as_it_says(share: float) -> None:
    served = sum(serves("n", f"user:{number}", share) for number in range(10_000))

    assert served / 10_000 == pytest.approx(share, abs=0.02)


def test_rates_without_anything_watched() -> None:
    assert hit_rate({}) == 0.0
    assert agreement({"unjudged": 3}) is None
    assert Stats(hits={"exact": 1}, misses={"no_candidate": 2}, shadow={"misses": 1}).hit_rate == 0.5


@pytest.mark.parametrize("wrong", [{"mode": "off"}, {"share": 1.5}])
def test_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Policy(**wrong)
