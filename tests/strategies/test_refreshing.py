"""Answers that are asked again behind a hit: when, how often, and what that does to their ttl."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache import CacheRequest, ConfigurationError, Policy, Response, StoreUnavailableError
from semcache.background import PAUSE, Refreshes, RefreshThreads
from semcache.freshness import agree, due, same_answer, stretched
from semcache.refresh import refresh
from semcache.steps import Ask, CallModel
from semcache.stores.memory import MemoryStore
from tests.facade import Facade

Make = Callable[..., Facade]


class Model:
    """Gives numbered answers, or one; may be held up, and may fail."""

    def __init__(self, *, same: bool = False) -> None:
        self.calls = 0
        self.same = same
        self.fails = False
        self.let = threading.Event()
        self.let.set()
        self.requests: list[CacheRequest] = []

    def __call__(self, request: CacheRequest) -> str:
        self.calls += 1
        self.requests.append(request)
        call = self.calls
        assert self.let.wait(20)
        if self.fails:
            raise ValueError("the model fails")
        return "answer" if self.same else f"answer {call}"


def until(true: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.005)
    assert found
    return found


def refreshed(cache: Facade, number: int = 1) -> dict[str, int]:
    """Wait until so many refreshes ended."""
    until(lambda: sum(cache.stats().refreshes.values()) >= number)
    found: dict[str, int] = dict(cache.stats().refreshes)
    return found


STALE = Policy(deadline=5.0, ttl=0.2, stale_while_revalidate=100.0, local_bound=0.0)


def expire(cache: Facade, *questions: CacheRequest | str) -> None:
    until(lambda: all(cache.lookup(question).stale for question in questions))


def test_a_stale_hit_is_answered_again_once_in_the_background(make: Make) -> None:
    cache, model = make(policy=STALE), Model()
    cache.get_or_compute("q", model)
    expire(cache, "q")
    model.let.clear()
    served = [cache.get_or_compute("q", model) for _ in range(5)]
    until(lambda: model.calls == 2)
    model.let.set()

    assert [answer.text for answer in served] == ["answer 1"] * 5
    assert all(answer.decision.stale for answer in served)
    assert refreshed(cache) == {"changed": 1}
    assert cache.lookup("q").text == "answer 2"
    assert model.calls == 2


def test_a_lookup_alone_has_no_model_to_ask(make: Make) -> None:
    cache, model = make(policy=STALE), Model()
    cache.get_or_compute("q", model)
    expire(cache, "q")
    cache.lookup("q")
    cache.get_or_compute(CacheRequest("q", only_if_cached=True), model)
    cache.get_or_compute(CacheRequest("q", no_store=True), model)

    assert model.calls == 1
    assert cache.stats().refreshes == {}


def test_a_refresh_that_fails_is_counted_and_the_old_answer_stays(make: Make) -> None:
    cache, model = make(policy=STALE), Model()
    cache.get_or_compute("q", model)
    expire(cache, "q")
    model.fails = True
    cache.get_or_compute("q", model)

    assert refreshed(cache) == {"failed": 1}
    assert cache.get_or_compute("q", model).text == "answer 1"  # and no second try at once
    assert model.calls == 2


def test_a_refresh_that_isnt_an_answer_is_refused(make: Make) -> None:
    cache = make(policy=STALE)
    cache.get_or_compute("q", Model())
    expire(cache, "q")
    cache.get_or_compute("q", lambda request: Response("cut", finish_reason="length"))

    assert refreshed(cache) == {"refused": 1}
    assert cache.lookup("q").text == "answer 1"


def test_an_invalidation_during_a_refresh_wins(make: Make) -> None:
    cache, model = make(policy=STALE), Model()
    cache.get_or_compute("q", model, tags={"t"})
    expire(cache, "q")
    model.let.clear()
    cache.get_or_compute("q", model, tags={"t"})
    until(lambda: model.calls == 2)
    cache.invalidate(tags={"t"})
    model.let.set()

    assert refreshed(cache) == {"refused": 1}
    assert not cache.lookup("q")


def test_a_refresh_keeps_tags_kind_and_subject(make: Make) -> None:
    policy = Policy(deadline=5.0, kinds={"own": 0.2}, stale_while_revalidate=100.0, local_bound=0.0)
    cache, model = make(policy=policy), Model()
    request = CacheRequest("q", subject="s")
    cache.put(request, "old", tags={"t"}, kind="own")
    until(lambda: cache.lookup(request).stale)
    cache.get_or_compute(request, model)
    refreshed(cache)
    (entry,) = cache.all_entries()

    assert entry.response.text == "answer 1"
    assert (entry.kind, entry.ttl) == ("own", 0.2)
    assert set(entry.tags) == {"t", "subject:s"}


def test_a_stale_neighbour_is_answered_again_under_the_text_that_was_asked(make: Make) -> None:
    cache = make({"a": [1.0, 0.0, 0.0], "b": [0.99, 0.141, 0.0]}, policy=STALE)
    cache.put("a", "old")
    expire(cache, "a")
    model = Model()
    found = cache.get_or_compute("b", model)
    refreshed(cache)

    assert (found.text, found.decision.match, found.decision.stale) == ("old", "semantic", True)
    assert [request.prompt for request in model.requests] == ["b"]
    assert (cache.lookup("b").text, cache.lookup("b").match) == ("answer 1", "exact")
    assert cache.lookup("a").text == "old"


def test_only_so_many_refreshes_run_at_once(make: Make) -> None:
    policy = Policy(
        deadline=5.0, ttl=0.2, stale_while_revalidate=100.0, background_refreshes=2, local_bound=0.0
    )
    cache, model = make(policy=policy), Model()
    questions = [CacheRequest(f"q{number}", mode="exact") for number in range(5)]
    for question in questions:
        cache.get_or_compute(question, model)
    expire(cache, *questions)
    model.let.clear()
    for question in questions:
        assert cache.get_or_compute(question, model).hit
    until(lambda: model.calls == 7)
    model.let.set()

    assert refreshed(cache, 5) == {"full": 3, "changed": 2}


def test_refreshes_can_be_turned_off(make: Make) -> None:
    policy = Policy(
        deadline=5.0, ttl=0.2, stale_while_revalidate=100.0, background_refreshes=0, local_bound=0.0
    )
    cache, model = make(policy=policy), Model()
    cache.get_or_compute("q", model)
    expire(cache, "q")

    assert cache.get_or_compute("q", model).text == "answer 1"
    assert model.calls == 1


def test_closing_ends_what_runs_in_the_background(make: Make) -> None:
    cache, model = make(policy=STALE), Model()
    cache.get_or_compute("q", model)
    expire(cache, "q")
    model.let.clear()
    cache.get_or_compute("q", model)
    until(lambda: model.calls == 2)
    threading.Timer(0.2, model.let.set).start()
    cache.close()

    outcomes = cache.cache._core.metrics.counts("refreshes")
    assert sum(outcomes.values()) == 1
    assert outcomes.keys() <= {"changed", "cancelled"}


def test_a_refresh_runs_in_the_context_of_who_asked(make: Make) -> None:
    cache, who = make(policy=STALE), contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []

    def model(request: CacheRequest) -> str:
        seen.append(who.get())
        return "a"

    cache.put("q", "old")
    expire(cache, "q")
    if cache._loop is None:
        who.set("ada")
        cache.get_or_compute("q", model)
    else:

        async def ask() -> None:
            who.set("ada")
            await cache.cache.get_or_compute("q", model)

        cache._loop.run(ask())
    refreshed(cache)

    assert seen == ["ada"]


def test_two_processes_refresh_an_entry_once(make: Make) -> None:
    one, other = make(policy=STALE), make(policy=STALE)
    model = Model()
    one.get_or_compute("q", model)
    if not other.lookup("q"):
        pytest.skip("each memory store is its own")
    expire(one, "q")
    model.let.clear()
    one.get_or_compute("q", model)
    until(lambda: model.calls == 2)
    other.get_or_compute("q", model)
    elsewhere = refreshed(other)
    model.let.set()

    assert elsewhere == {"elsewhere": 1}
    assert refreshed(one) == {"changed": 1}
    assert model.calls == 2


def test_what_is_read_often_is_answered_before_it_expires(make: Make) -> None:
    policy = Policy(deadline=5.0, ttl=60.0, refresh_ahead=0.002, local_bound=60.0)
    cache, model = make(policy=policy), Model()
    cache.get_or_compute("q", model)
    until(lambda: cache.get_or_compute("q", model).text == "answer 2")
    stats = cache.stats()

    assert sum(stats.misses.values()) == 1  # the first: it never expired
    assert stats.refreshes == {"changed": 1}
    assert "local" in stats.tiers


def test_without_refresh_ahead_nothing_is_asked_again(make: Make) -> None:
    cache, model = make(policy=Policy(deadline=5.0, ttl=0.3)), Model()
    cache.get_or_compute("q", model)
    until(lambda: cache.get_or_compute("q", model).text == "answer 2")

    assert sum(cache.stats().misses.values()) == 2
    assert cache.stats().refreshes == {}


ADAPTIVE = Policy(deadline=5.0, ttl=0.2, stale_while_revalidate=100.0, local_bound=0.0, adaptive_ttl=4.0)


@pytest.mark.parametrize(("same", "stretches"), [(True, [2.0, 4.0, 4.0]), (False, [0.5, 0.25, 0.25])])
def test_a_ttl_follows_what_refreshes_find(make: Make, same: bool, stretches: list[float]) -> None:
    cache, model = make(policy=ADAPTIVE), Model(same=same)
    cache.get_or_compute("q", model)
    found = []
    for _ in stretches:
        until(lambda: cache.all_entries()[0].ttl < time.time() - cache.all_entries()[0].created_at)
        cache.get_or_compute(CacheRequest("q", no_cache=True), model)
        (entry,) = cache.all_entries()
        found.append((entry.stretch, round(entry.ttl / 0.2, 3)))

    assert found == [(stretch, stretch) for stretch in stretches]


def test_a_background_refresh_stretches_too(make: Make) -> None:
    cache, model = make(policy=ADAPTIVE), Model(same=True)
    cache.get_or_compute("q", model)
    expire(cache, "q")
    cache.get_or_compute("q", model)

    assert refreshed(cache) == {"same": 1}
    assert cache.all_entries()[0].stretch == 2.0


def test_a_worker_on_the_queue_stretches_too(make: Make) -> None:
    cache, model = make(policy=ADAPTIVE), Model(same=True)
    if cache._loop is not None:
        pytest.skip("the worker has a face of its own for each kind of cache; the steps are the same")
    cache.get_or_compute("q", model)
    expire(cache, "q")
    cache.queue_refresh([cache.all_entries()[0].entry_id])
    (work,) = refresh(cache.cache, model)

    assert work.outcome == "same"
    assert cache.all_entries()[0].stretch == 2.0


def test_a_callers_own_ttl_and_what_is_time_bound_arent_lengthened(make: Make) -> None:
    policy = Policy(deadline=5.0, time_bound_ttl=0.2, adaptive_ttl=4.0, stale_while_revalidate=100.0)
    cache, model = make(policy=policy), Model(same=True)
    for question, options in (("weather in Oslo", {}), ("q", {"ttl": 0.2})):
        cache.get_or_compute(question, model, **options)
        time.sleep(0.25)
        cache.get_or_compute(CacheRequest(question, no_cache=True), model, **options)

    assert {entry.ttl for entry in cache.all_entries()} == {0.2}


def test_a_measure_of_ones_own_decides_what_is_the_same(make: Make) -> None:
    def same(old: str, new: str) -> bool:
        return old.split()[0] == new.split()[0]

    policy = Policy(deadline=5.0, ttl=0.2, stale_while_revalidate=100.0, adaptive_ttl=4.0, same_answer=same)
    cache, model = make(policy=policy), Model()
    cache.get_or_compute("q", model)
    expire(cache, "q")
    cache.get_or_compute("q", model)

    assert refreshed(cache) == {"same": 1}


def test_a_measure_that_fails_loses_no_answer(make: Make) -> None:
    def fails(old: str, new: str) -> bool:
        raise RuntimeError("no")

    policy = Policy(deadline=5.0, adaptive_ttl=4.0, same_answer=fails)
    cache, model = make(policy=policy), Model()
    cache.get_or_compute("q", model)
    found = cache.get_or_compute(CacheRequest("q", no_cache=True), model)

    assert found.text == "answer 2"
    assert found.stored
    assert cache.stats().failures["same_answer"] == 1


@given(st.floats(0.0, 0.99), st.floats(0.001, 1e6), st.floats(0.0, 1.5), st.floats(1e-9, 1.0))
def test_a_refresh_is_never_due_early_and_always_due_at_the_end(
    share: float, ttl: float, lived: float, draw: float
) -> None:
    found = due(lived * ttl, ttl, share, draw)

    if lived * ttl < share * ttl:
        assert not found
    if lived >= 1.0 and lived * ttl >= share * ttl:
        assert found or lived * ttl < ttl


def test_the_nearer_the_end_the_likelier_a_refresh() -> None:
    draws = [number / 1000 for number in range(1, 1001)]
    shares = [sum(due(age, 100.0, 0.8, draw) for draw in draws) / 1000 for age in (79, 80, 90, 95, 99, 100)]

    assert shares[0] == 0.0
    assert shares[1] == pytest.approx(0.05, abs=0.01)  # e^-3
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_ttl_isnt_lengthened_by_an_answer_that_hardly_aged() -> None:
    assert stretched(1.0, True, 8.0, lived=0.4) == 1.0
    assert stretched(1.0, True, 8.0, lived=0.5) == 2.0
    assert stretched(1.0, False, 8.0, lived=0.1) == 0.5


def test_answers_without_text_agree_by_their_data() -> None:
    assert agree(Response("", data={"x": 1}), Response("", data={"x": 1}), same_answer)
    assert not agree(Response("", data={"x": 1}), Response("", data={"x": 2}), same_answer)
    assert not agree(Response("Blue."), Response(""), same_answer)


def test_places_in_the_background_are_few_and_each_entry_has_its_pause() -> None:
    now = [0.0]
    places = Refreshes(2, clock=lambda: now[0])

    assert places.begin("a") is None
    assert places.begin("a") == "busy"
    assert places.begin("b") is None
    assert places.begin("c") == "full"
    places.end("a")
    assert places.begin("a") == "busy"
    now[0] = PAUSE
    assert places.begin("a") is None
    places.shut()
    assert places.begin("c") == "closed"


def test_a_refresh_that_outlives_its_cache_stores_nothing() -> None:
    let, ended, found = threading.Event(), threading.Event(), list[str]()

    def steps() -> Any:
        yield CallModel(lambda _: let.wait(20), None)
        try:
            yield Ask("put", (None,), {"timeout": 1.0})
        except StoreUnavailableError:
            found.append("refused")
        ended.set()

    threads = RefreshThreads(MemoryStore(), 1, wait=0.05)
    assert threads.start("e", steps) is None
    threads.close()
    let.set()

    assert ended.wait(20)
    assert found == ["refused"]


@pytest.mark.parametrize(
    "wrong",
    [{"refresh_ahead": 1.0}, {"adaptive_ttl": 0.5}, {"background_refreshes": -1}, {"same_answer": "equal"}, {"flight_lease": -1}],
)  # fmt: skip
def test_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Policy(**wrong)
