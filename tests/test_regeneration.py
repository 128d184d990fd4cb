"""What was withdrawn is answered again; a new model version is warmed; the story end to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from semcache import (
    AsyncSemanticCache,
    CacheRequest,
    Hit,
    InvalidRequestError,
    Miss,
    Policy,
    RateLimitedError,
    SemanticCache,
)
from semcache.errors import ConfigurationError
from semcache.refresh import Refreshed, refresh, refresh_async
from semcache.requests import decode_request, encode_request
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
from semcache.warm import canary, carry_over, logged_questions, stored_questions, warm, wilson

TABLE = {
    "apple": [1.0, 0.0],
    "apples": [0.99, 0.141],
    "pear": [0.0, 1.0],
    "plum": [-1.0, 0.0],
    "fig": [0.0, -1.0],
}
OPTIONS: dict[str, Any] = {"policy": Policy(deadline=5.0), "matcher": ThresholdMatcher(0.9)}


@pytest.fixture(params=["memory", "redis"])
def make(request: pytest.FixtureRequest, namespace: str) -> Iterator[Callable[..., SemanticCache]]:
    target = "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")
    opened: list[SemanticCache] = []

    def one(**options: Any) -> SemanticCache:
        encoder = TableEncoder(TABLE, default=[0.7, 0.714])
        cache = SemanticCache.open(target, encoder=encoder, namespace=namespace, **{**OPTIONS, **options})
        opened.append(cache)
        return cache

    yield one
    for cache in opened:
        cache.close()


@pytest.fixture
def cache(make: Callable[..., SemanticCache]) -> SemanticCache:
    return make()


def ask(prompt: str = "apple", version: str = "v1", **fields: Any) -> CacheRequest:
    return CacheRequest(prompt, model="m", model_version=version, **fields)


def reject(cache: SemanticCache, request: CacheRequest, raters: int = 3) -> str:
    action = ""
    for number in range(raters):
        found = cache.lookup(request)
        assert isinstance(found, Hit)
        action = cache.feedback(found.lookup_id, -1, rater=f"u-{number}").action
    return action


def test_a_rejected_answer_is_regenerated(cache: SemanticCache) -> None:
    cache.put(ask(), "wrong", tags={"t"})
    reject(cache, ask())
    done = refresh(cache, lambda request: f"right: {request.prompt}")
    found = cache.lookup(ask())

    assert [(one.outcome, one.old, one.new) for one in done] == [("changed", "wrong", "right: apple")]
    assert isinstance(found, Hit)
    assert found.text == "right: apple"
    assert refresh(cache, lambda request: pytest.fail("called")) == []
    cache.invalidate(tags={"t"})
    assert isinstance(cache.lookup(ask()), Miss), "the new answer carries the old one's tags"


def test_regenerating_twice_does_no_harm(cache: SemanticCache) -> None:
    entry_id = cache.put(ask(), "wrong").entry_id
    assert entry_id is not None
    cache.queue_refresh([entry_id, entry_id])
    calls: list[str] = []

    def model(request: CacheRequest) -> str:
        calls.append(request.prompt)
        return "right"

    outcomes = [one.outcome for one in refresh(cache, model)]

    assert outcomes == ["changed"]
    assert calls == ["apple"]


def test_a_crashed_workers_claim_is_taken_over(cache: SemanticCache) -> None:
    entry_id = cache.put(ask(), "wrong").entry_id
    assert entry_id is not None
    cache.queue_refresh([entry_id])
    claimed = cache.take_refreshes("crashed")
    nothing = cache.take_refreshes("other", idle=60.0)
    taken = cache.take_refreshes("other", idle=0.0)

    assert len(claimed) == 1
    assert nothing == []
    assert [work.ticket for work in taken] == [claimed[0].ticket]


def test_a_failing_model_leaves_the_work_on_the_queue(cache: SemanticCache) -> None:
    cache.put(ask(), "wrong")
    reject(cache, ask())

    def broken(request: CacheRequest) -> str:
        raise RuntimeError("down")

    first = refresh(cache, broken, limit=1)
    second = refresh(cache, lambda request: "right", idle=0.0, limit=1)

    assert [one.outcome for one in (*first, *second)] == ["failed", "changed"]
    assert first[0].new == "RuntimeError: down"


def test_private_requests_are_kept_only_where_the_policy_says_so(make: Callable[..., SemanticCache]) -> None:
    private = ask(context="You are Ada's doctor.")
    for keep, outcome in ((False, "unknown"), (True, "changed")):
        cache = make(policy=Policy(deadline=5.0, keep_requests=keep))
        cache.put(private, "wrong")
        reject(cache, private)
        (done,) = refresh(cache, lambda request: f"for: {request.context}")

        assert done.outcome == outcome
    assert done.new == "for: You are Ada's doctor."


def test_requests_round_trip() -> None:
    request = CacheRequest(
        "x", model="m", model_version="v", tenant="t", context=[{"a": 1}], earlier_turns=2, tools=[{"n": 1}],
        params={"temperature": 0.5}, endpoint="e", media=("d",), segment={"tier": "gold"}, subject="s", kind="faq",
    )  # fmt: skip

    assert decode_request("x", encode_request(request, keep_all=True)) == request
    assert encode_request(request, keep_all=False) == ""
    assert encode_request(CacheRequest("x", opaque=True), keep_all=True) == ""
    assert encode_request(CacheRequest("x", context="y" * 100_000), keep_all=True) == ""


async def test_the_asynchronous_worker_does_the_same(redis_url: str, namespace: str) -> None:
    encoder = TableEncoder(TABLE, default=[0.7, 0.714])
    async with await AsyncSemanticCache.open(
        redis_url, encoder=encoder, namespace=namespace, **OPTIONS
    ) as cache:
        stored = await cache.put(ask(), "wrong")
        await cache.queue_refresh([str(stored.entry_id)])
        await asyncio.sleep(0.002)
        seen: list[Refreshed] = []

        async def model(request: CacheRequest) -> str:
            return "right"

        await refresh_async(cache, model, on_done=seen.append)
        found = await cache.lookup(ask())

    assert [one.outcome for one in seen] == ["changed"]
    assert isinstance(found, Hit)
    assert found.text == "right"


def test_versions_are_listed_newest_first(cache: SemanticCache) -> None:
    cache.put(ask(version="v1"), "x")
    cache.put(CacheRequest("apple", model="openai/gpt:4o", model_version=""), "x")
    cache.put(ask(version="v2"), "x")
    listed = [(version.model, version.model_version) for version in cache.versions()]

    assert listed == [("m", "v2"), ("openai/gpt:4o", ""), ("m", "v1")]


def test_a_new_version_is_warmed_and_a_broken_run_resumed(cache: SemanticCache) -> None:
    for prompt in ("apple", "pear", "plum", "fig"):
        cache.put(ask(prompt), f"v1: {prompt}")
    questions = stored_questions(cache.entries(), model="m", from_version="v1", to_version="v2")
    requests = [request for _, request in questions]
    calls: list[str] = []

    def model(request: CacheRequest) -> str:
        calls.append(request.prompt)
        if len(calls) == 3:
            raise RuntimeError("down")
        return f"v2: {request.prompt}"

    first = warm(cache, requests, model, concurrency=1)
    second = warm(cache, requests, model, concurrency=2)
    found = [cache.lookup(ask(prompt, "v2")) for prompt in ("apple", "pear", "plum", "fig")]

    assert [one.outcome for one in first].count("failed") == 1
    assert sorted(one.outcome for one in second) == ["there", "there", "there", "warmed"]
    assert len(calls) == 5
    assert all(isinstance(one, Hit) and one.text.startswith("v2: ") for one in found)


def test_a_log_is_ranked_by_frequency_and_growth() -> None:
    log = (
        [(t, "dying") for t in range(50)]
        + [(t, "growing") for t in range(60, 100)]
        + [(t, "steady") for t in range(0, 100, 4)]
    )
    ranked = logged_questions(log, model="m", version="v2", top=3)

    assert [request.prompt for request in ranked] == ["growing", "steady", "dying"]
    assert logged_questions([], model="m", version="v") == []


def test_a_canary_counts_what_still_holds_and_stores_nothing(cache: SemanticCache) -> None:
    for prompt in ("apple", "pear", "plum", "fig"):
        cache.put(ask(prompt), f"about {prompt}")
    questions = stored_questions(cache.entries(), model="m", from_version="v1", to_version="v2")
    report = canary(
        questions, lambda request: "other" if request.prompt == "fig" else f"About  {request.prompt}"
    )
    before = [isinstance(cache.lookup(ask(prompt, "v2")), Hit) for prompt in ("apple", "fig")]
    carried = carry_over(cache, questions)

    assert (report.asked, report.held) == (4, 3)
    assert report.low < 0.75 < report.high
    assert report.changed == (("fig", "about fig", "other"),)
    assert before == [False, False]
    assert [one.outcome for one in carried] == ["warmed"] * 4
    assert isinstance(cache.lookup(ask("apple", "v2")), Hit)


def test_wilson_is_known_at_its_ends() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10)[1] == 1.0
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)


def test_concurrency_and_pace_are_checked(cache: SemanticCache) -> None:
    with pytest.raises(ConfigurationError, match="concurrency is 0"):
        warm(cache, [], lambda request: "x", concurrency=0)
    with pytest.raises(ConfigurationError, match="per_second is -1"):
        refresh(cache, lambda request: "x", per_second=-1)
    with pytest.raises(InvalidRequestError, match="entry id"):
        cache.queue_refresh(["nonsense"])


def test_a_rater_who_speaks_too_often_is_refused(make: Callable[..., SemanticCache]) -> None:
    cache = make(policy=Policy(deadline=5.0, feedback_rate=3, feedback_rate_window=1e10))  # one window
    entry_id = cache.put(ask(), "x").entry_id
    assert entry_id is not None
    for _ in range(4):
        cache.feedback(entry_id, 1, rater="eager")
    with pytest.raises(RateLimitedError, match="more than 3 verdicts") as caught:
        cache.feedback(entry_id, 1, rater="eager")

    assert 0 < caught.value.retry_after <= 1e10
    assert cache.feedback(entry_id, 1, rater="another").action == "recorded"


def test_a_sweep_forgets_old_tombstones_and_folds_generations(redis_url: str, namespace: str) -> None:
    policy = Policy(deadline=5.0, max_generations=1000, tombstone_ttl=0.05, sweep_every=3600.0)
    encoder = TableEncoder(TABLE, default=[0.7, 0.714])
    options = {**OPTIONS, "policy": policy}
    with SemanticCache.open(redis_url, encoder=encoder, namespace=namespace, **options) as cache:
        cache.put(ask(), "old")
        cache.invalidate(entry_ids=[str(cache.put(ask("pear"), "x").entry_id)])
        for number in range(1010):
            cache.invalidate(tags={f"t-{number}"})
        time.sleep(0.06)
        first, second = cache.sweep(), cache.sweep()

        assert first.leader
        assert first.tombstones == 1
        assert first.generations == 0, "the last minute's are never folded"
        assert not second.leader, "somebody holds the lease"
        assert cache.withdrawn() == []
        assert isinstance(cache.lookup(ask()), Hit)


def test_the_story(redis_url: str, namespace: str) -> None:
    """v1 answers about apple the fruit; v2 comes; nothing of v1 is served; the popular are warm; three reject one."""
    encoder = TableEncoder(TABLE, default=[0.7, 0.714])
    options: dict[str, Any] = {**OPTIONS, "namespace": namespace, "encoder": encoder}
    with (
        SemanticCache.open(redis_url, **options) as shop,
        SemanticCache.open(redis_url, **options) as elsewhere,
    ):
        for prompt in ("apple", "pear"):
            shop.put(ask(prompt, "v1"), f"{prompt} is a fruit")
        assert isinstance(elsewhere.lookup(ask("apples", "v1")), Hit)

        shop.invalidate(model="m", model_version="v1")
        assert isinstance(shop.lookup(ask("apple", "v1")), Miss)
        assert isinstance(elsewhere.lookup(ask("apple", "v2")), Miss)

        log = [(float(n), "apple") for n in range(9)] + [(5.0, "pear")]
        warm(
            shop,
            logged_questions(log, model="m", version="v2", top=2),
            lambda request: f"{request.prompt} is a company",
        )
        assert isinstance(elsewhere.lookup(ask("apple", "v2")), Hit)

        for number, cache in enumerate((shop, elsewhere, shop)):
            found = cache.lookup(ask("apple", "v2"))
            assert isinstance(found, Hit)
            action = cache.feedback(found.lookup_id, -1, rater=f"customer-{number}").action
        assert action == "withdrawn"
        withdrawn_at = asked_at = time.monotonic()
        while isinstance(elsewhere.lookup(ask("apple", "v2")), Hit):
            assert asked_at - withdrawn_at < 1.2  # who asks after the bound doesn't get it
            asked_at = time.monotonic()
        assert isinstance(shop.lookup(ask("apple", "v2")), Miss)

        (done,) = refresh(elsewhere, lambda request: "apple is a fruit, and a company")
        found = shop.lookup(ask("apple", "v2"))
        assert done.outcome == "changed"
        assert isinstance(found, Hit)
        assert found.text == "apple is a fruit, and a company"
