"""What both caches promise, over every store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from semcache import (
    AsyncSemanticCache,
    CacheRequest,
    ConfigurationError,
    Hit,
    InvalidRequestError,
    Lead,
    Miss,
    OnlyIfCachedError,
    Policy,
    Response,
    SemanticCache,
    UnknownLookupError,
)
from semcache.testing import FailingEncoder, HashEncoder, TableEncoder
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade, waiting, within

TABLE = {
    "How do I reset my password?": [1.0, 0.0, 0.0],
    "How can I reset my password?": [0.98, 0.199, 0.0],
    "Where is my invoice?": [0.0, 1.0, 0.0],
    "Where do I find my bill?": [0.0, 0.95, 0.312],
}
RESET, RESET_TOO, INVOICE, BILL = TABLE


@pytest.fixture(params=["sync-memory", "async-memory", "sync-redis", "async-redis"])
def make(request: pytest.FixtureRequest, loop: Loop, namespace: str) -> Iterator[Callable[..., Facade]]:
    """Opens caches of one kind over one store; several share the store's entries."""
    kind, store = request.param.split("-")
    target = "memory://" if store == "memory" else request.getfixturevalue("redis_url")
    opened: list[Facade] = []

    def open_one(encoder: Any = None, **options: Any) -> Facade:
        encoder = encoder or TableEncoder(TABLE, default=[0.0, 0.0, 1.0])
        options.setdefault("matcher", ThresholdMatcher(0.9))
        options.setdefault("namespace", namespace)
        facade = open_facade(kind, target, loop, encoder=encoder, **options)
        opened.append(facade)
        return facade

    yield open_one
    for facade in opened:
        facade.close()


@pytest.fixture
def cache(make: Callable[..., Facade]) -> Facade:
    return make()


def ask(prompt: str = RESET, **fields: Any) -> CacheRequest:
    return CacheRequest(prompt, model="gpt-4o-mini", model_version="2024-07-18", tenant="acme", **fields)


def test_an_empty_cache_misses_with_a_fence(cache: Facade) -> None:
    found = cache.lookup(ask())

    assert isinstance(found, Miss)
    assert found.reason == "no_candidate"
    assert found.fence is not None


def test_the_same_text_is_an_exact_hit(cache: Facade) -> None:
    stored = cache.put(ask(), "Open Settings")
    found = cache.lookup(ask("  How do I reset my password?\r\n"))

    assert stored.outcome == "stored"
    assert isinstance(found, Hit)
    assert (found.text, found.match, found.similarity, found.entry_id) == (
        "Open Settings",
        "exact",
        1.0,
        stored.entry_id,
    )
    assert 0 <= found.age < 60


def test_a_rewording_is_a_semantic_hit(cache: Facade) -> None:
    cache.put(ask(), "Open Settings")
    found = cache.lookup(ask(RESET_TOO))

    assert isinstance(found, Hit)
    assert (found.text, found.match, found.prompt) == ("Open Settings", "semantic", RESET)
    assert found.similarity == pytest.approx(0.98, abs=2e-3)


def test_another_question_misses_below_the_threshold(cache: Facade) -> None:
    cache.put(ask(), "Open Settings")
    found = cache.lookup(ask(INVOICE))

    assert isinstance(found, Miss)
    assert found.reason == "below_threshold"
    assert found.best_similarity == pytest.approx(0.0, abs=1e-2)


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "globex"},
        {"model": "gpt-4o"},
        {"model_version": "2025-01-01"},
        {"context": [{"role": "system", "content": "Answer in French."}]},
        {"tools": [{"name": "search"}]},
        {"params": {"temperature": 0.7}},
        {"params": {"response_format": {"type": "json_schema", "schema": {"a": 1}}}},
        {"endpoint": "https://other.example/v1"},
        {"media": ("sha256:1",)},
        {"segment": {"tier": "gold"}},
        {"earlier_turns": 1},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_scope_is_never_served(cache: Facade, other: dict[str, Any]) -> None:
    base = {"model": "gpt-4o-mini", "model_version": "2024-07-18", "tenant": "acme"}
    cache.put(CacheRequest(RESET, **base), "Open Settings")

    for prompt in (RESET, RESET_TOO):
        assert isinstance(cache.lookup(CacheRequest(prompt, **{**base, **other})), Miss)


def test_equal_scopes_in_other_words_are_one(cache: Facade) -> None:
    cache.put(ask(params={"a": 1.0, "b": None, "c": {"x": 1, "y": [2]}}), "Open Settings")

    assert isinstance(cache.lookup(ask(params={"c": {"y": (2,), "x": 1}, "a": 1})), Hit)


def test_a_put_replaces_the_answer(cache: Facade) -> None:
    first = cache.put(ask(), "old")
    second = cache.put(ask(), "new")

    assert (second.outcome, second.entry_id) == ("replaced", first.entry_id)
    assert second.revision > first.revision
    assert cache.lookup(ask()).text == "new"


def test_the_whole_response_comes_back(cache: Facade) -> None:
    response = Response(
        "Open Settings \U0001f600\r\n",
        data={"choices": [{"message": {"content": "Open Settings"}}]},
        finish_reason="stop",
        usage={"total_tokens": 12},
        confidence=0.9,
        language="en",
    )
    cache.put(ask(), response)

    assert cache.lookup(ask()).response == response


def test_get_or_compute_calls_the_model_once(cache: Facade) -> None:
    calls: list[str] = []

    def model(request: CacheRequest) -> str:
        calls.append(request.prompt)
        return "Open Settings"

    first = cache.get_or_compute(ask(), model)
    second = cache.get_or_compute(ask(), model)
    third = cache.get_or_compute(ask(RESET_TOO), model)

    assert calls == [RESET]
    assert [answer.hit for answer in (first, second, third)] == [False, True, True]
    assert first.stored.outcome == "stored"
    assert {answer.text for answer in (first, second, third)} == {"Open Settings"}
    assert all(answer.lookup_id for answer in (first, second, third))


def test_what_the_model_raises_is_raised_and_not_stored(cache: Facade) -> None:
    def broken(request: CacheRequest) -> str:
        raise RuntimeError("the model is down")

    with pytest.raises(RuntimeError, match="the model is down"):
        cache.get_or_compute(ask(), broken)

    assert cache.get_or_compute(ask(), lambda request: "back").text == "back"


def test_only_if_cached_doesnt_call_the_model(cache: Facade) -> None:
    with pytest.raises(OnlyIfCachedError, match="no_candidate"):
        cache.get_or_compute(ask(only_if_cached=True), lambda request: pytest.fail("called"))


def test_no_cache_refreshes_the_entry(cache: Facade) -> None:
    cache.put(ask(), "old")
    answer = cache.get_or_compute(ask(no_cache=True), lambda request: "new")

    assert (answer.hit, answer.decision.reason) == (False, "bypass:no_cache")
    assert cache.lookup(ask()).text == "new"


def test_no_store_serves_but_doesnt_store(cache: Facade) -> None:
    answer = cache.get_or_compute(ask(no_store=True), lambda request: "new")

    assert answer.stored.outcome == "no_store"
    assert isinstance(cache.lookup(ask()), Miss)


def test_mode_off_neither_reads_nor_stores(cache: Facade) -> None:
    cache.put(ask(), "Open Settings")

    assert cache.lookup(ask(mode="off")).reason == "bypass:policy"
    assert cache.put(ask(INVOICE, mode="off"), "x").outcome == "policy"
    assert isinstance(cache.lookup(ask(INVOICE)), Miss)


def test_mode_exact_ignores_neighbours(cache: Facade) -> None:
    cache.put(ask(), "Open Settings")

    assert isinstance(cache.lookup(ask(mode="exact")), Hit)
    assert isinstance(cache.lookup(ask(RESET_TOO, mode="exact")), Miss)


def test_a_requests_threshold_only_tightens(cache: Facade) -> None:
    cache.put(ask(), "Open Settings")

    assert isinstance(cache.lookup(ask(RESET_TOO, threshold=0.99)), Miss)
    assert isinstance(cache.lookup(ask(RESET_TOO, threshold=1)), Miss)
    assert isinstance(cache.lookup(ask(RESET_TOO, threshold=0)), Hit)
    assert isinstance(cache.lookup(ask(INVOICE, threshold=-1)), Miss)


def test_later_turns_match_exactly_only(cache: Facade) -> None:
    turn = {"context": ["Who is Ada?", "A mathematician."], "earlier_turns": 1}
    cache.put(ask(**turn), "Open Settings")

    assert isinstance(cache.lookup(ask(**turn)), Hit)
    assert cache.lookup(ask(RESET_TOO, **turn)).reason == "exact_only:turns"


def test_max_age_refuses_an_older_entry(cache: Facade) -> None:
    cache.put(ask(), "Open Settings")

    assert cache.lookup(ask(max_age=0)).reason == "max_age"
    assert isinstance(cache.lookup(ask(max_age=3600)), Hit)


def test_a_ttl_of_zero_isnt_stored(cache: Facade) -> None:
    assert cache.put(ask(), "x", ttl=0).outcome == "no_store"
    assert isinstance(cache.lookup(ask()), Miss)


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf"), "30s", True])
def test_a_ttl_that_is_no_number_of_seconds_is_refused(cache: Facade, ttl: Any) -> None:
    with pytest.raises(InvalidRequestError, match="ttl is"):
        cache.put(ask(), "x", ttl=ttl)

    assert isinstance(cache.lookup(ask()), Miss)


@pytest.mark.parametrize("prompt", ["", "   \n\t "])
def test_a_blank_prompt_is_refused(cache: Facade, prompt: str) -> None:
    with pytest.raises(InvalidRequestError, match="blank"):
        cache.lookup(prompt)
    with pytest.raises(InvalidRequestError, match="blank"):
        cache.put(prompt, "x")


def test_a_lone_surrogate_is_refused(cache: Facade) -> None:
    with pytest.raises(InvalidRequestError, match="surrogate"):
        cache.lookup(ask("hello \ud800"))
    with pytest.raises(InvalidRequestError, match="surrogate"):
        cache.put(ask("hello", context="\udfff"), "x")
    assert cache.put(ask(), "answer \ud800").outcome == "unserialisable"


@pytest.mark.parametrize(
    "text", ["a\x00b", "مرحبا كيف حالك", "👩‍👩‍👧 ?", "x" * 200_000], ids=["nul", "rtl", "emoji", "long"]
)
def test_odd_prompts_and_answers_come_back_as_they_were(cache: Facade, text: str) -> None:
    assert cache.put(ask(text), text).outcome == "stored"
    assert cache.lookup(ask(text)).text == text


def test_what_is_too_large_isnt_stored(cache: Facade) -> None:
    assert cache.put(ask("x" * 1_000_000), "short").outcome == "too_large"
    assert cache.put(ask(), "x" * 1_100_000).outcome == "too_large"


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        (Response("x", error=True), "error_response"),
        (Response("x", partial=True), "partial"),
        (Response("x", refusal=True), "refusal"),
        (Response("x", finish_reason="length"), "truncated"),
        (Response("x", finish_reason="content_filter"), "filtered"),
        (Response("", tool_calls=True), "tool_calls"),
        (Response("x", media=True), "media"),
        (Response(""), "empty_disallowed"),
        (Response("x", data={"a": {1, 2}}), "unserialisable"),  # type: ignore[dict-item]
        (Response("x", data=[float("nan")]), "unserialisable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_may_not_be_stored_isnt(cache: Facade, response: Response, outcome: str) -> None:
    assert cache.put(ask(), response).outcome == outcome
    assert isinstance(cache.lookup(ask()), Miss)


@pytest.mark.parametrize("request_", [None, 3, b"x", ["x"]])
def test_wrong_types_are_refused(cache: Facade, request_: Any) -> None:
    with pytest.raises(InvalidRequestError, match="expected"):
        cache.lookup(request_)
    with pytest.raises(InvalidRequestError, match="expected"):
        cache.put("hello", request_)


def test_tags_withdraw_what_carries_them(cache: Facade) -> None:
    cache.put(ask(), "autumn", tags={"season:autumn"})
    cache.put(ask(INVOICE), "any", tags={"other"})
    cache.lookup(ask())
    done = cache.invalidate(tags={"season:autumn"})

    assert done.matched is None
    assert cache.lookup(ask()).reason == "stale_tag"
    assert cache.lookup(ask(RESET_TOO)).reason == "stale_tag"
    assert isinstance(cache.lookup(ask(INVOICE)), Hit)


def test_one_tenants_tag_doesnt_touch_another(cache: Facade) -> None:
    mine, theirs = CacheRequest(RESET, tenant="acme"), CacheRequest(RESET, tenant="globex")
    for request in (mine, theirs):
        cache.put(request, "x", tags={"t"})
    cache.invalidate(tags={"t"}, tenant="acme")

    assert isinstance(cache.lookup(mine), Miss)
    assert isinstance(cache.lookup(theirs), Hit)


@pytest.mark.parametrize(
    ("selector", "gone"),
    [
        ({"model": "m1"}, {"m1/v1", "m1/v2"}),
        ({"model": "m1", "model_version": "v1"}, {"m1/v1"}),
        ({"tenant": "acme"}, {"m1/v1", "m1/v2", "m2/v1"}),
        ({"everything": True}, {"m1/v1", "m1/v2", "m2/v1"}),
        ({"subject": "u-17"}, {"m2/v1"}),
        ({"segment": {"tier": "gold"}}, {"m1/v2"}),
        ({"older_than": 1e-6}, {"m1/v1", "m1/v2", "m2/v1"}),
        ({"older_than": 3600.0}, set()),
        ({"model": "m1", "tenant": "globex"}, set()),
    ],
    ids=str,
)
def test_selectors_withdraw_what_they_name_and_a_dry_run_counts_it(
    cache: Facade, selector: dict[str, Any], gone: set[str]
) -> None:
    requests = {
        "m1/v1": CacheRequest(RESET, model="m1", model_version="v1", tenant="acme"),
        "m1/v2": CacheRequest(RESET, model="m1", model_version="v2", tenant="acme", segment={"tier": "gold"}),
        "m2/v1": CacheRequest(RESET, model="m2", model_version="v1", tenant="acme", subject="u-17"),
    }
    for request in requests.values():
        cache.put(request, "x")
    counted = cache.invalidate(**selector, dry_run=True)
    still = {name for name, request in requests.items() if isinstance(cache.lookup(request), Hit)}
    cache.invalidate(**selector)
    missed = {name for name, request in requests.items() if isinstance(cache.lookup(request), Miss)}

    assert still == set(requests)
    assert (counted.matched, counted.dry_run) == (len(gone), True)
    assert missed == gone


@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"tags": set()},
        {"tags": {"a"}, "model": "m"},
        {"model_version": "v"},
        {"everything": True, "tags": {"a"}},
    ],
    ids=str,
)
def test_an_unclear_selector_is_refused(cache: Facade, selector: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=r"invalidate was given|model_version without model"):
        cache.invalidate(**selector)


def test_an_entry_is_withdrawn_by_name_listed_and_restored(cache: Facade) -> None:
    entry_id = cache.put(ask(), "Open Settings").entry_id
    done = cache.invalidate(entry_ids=[entry_id])
    missed, listed = cache.lookup(ask()), cache.withdrawn()
    restored = cache.restore(entry_id)

    assert (done.matched, done.entry_ids) == (1, (entry_id,))
    assert missed.reason == "withdrawn"
    assert [(tomb.entry_id, tomb.reason, tomb.text) for tomb in listed] == [
        (entry_id, "invalidated", "Open Settings")
    ]
    assert restored
    assert cache.lookup(ask()).text == "Open Settings"
    assert isinstance(cache.lookup(ask(RESET_TOO)), Hit)
    assert cache.withdrawn() == []


def test_an_answer_computed_before_a_withdrawal_isnt_stored_after_it(cache: Facade) -> None:
    before = cache.lookup(ask()).fence
    entry_id = cache.put(ask(), "old", tags={"t"}).entry_id
    cache.invalidate(entry_ids=[entry_id])
    by_name = cache.put(ask(), "late", fence=before)
    now = cache.lookup(ask()).fence
    cache.invalidate(tags={"t"})
    by_tag = cache.put(ask(), "late", fence=now, tags={"t"})

    assert by_name.outcome == "tombstone"
    assert by_tag.outcome == "old_fence"
    assert isinstance(cache.lookup(ask()), Miss)
    assert cache.put(ask(), "fresh", fence=cache.lookup(ask()).fence, tags={"t"})
    assert cache.lookup(ask()).text == "fresh"


def test_a_model_call_that_began_before_an_invalidation_isnt_served_after_it(cache: Facade) -> None:
    def slow(request: CacheRequest) -> str:
        threading.Thread(target=cache.invalidate, kwargs={"everything": True}).run()
        return "late"

    if cache._loop is not None:
        pytest.skip("the same steps; run once, without an event loop in the way")
    answer = cache.get_or_compute(ask(), slow)

    assert (answer.text, answer.stored.outcome) == ("late", "old_fence")
    assert isinstance(cache.lookup(ask()), Miss)


def test_three_raters_withdraw_an_answer(cache: Facade) -> None:
    cache.put(ask(), "wrong")
    actions = [cache.feedback(cache.lookup(ask()).lookup_id, -1, rater=f"u-{n}").action for n in range(3)]

    assert actions == ["recorded", "recorded", "withdrawn"]
    assert cache.lookup(ask()).reason == "withdrawn"
    assert cache.withdrawn()[0].reason == "feedback"


def test_a_thousand_names_on_one_lookup_id_are_one_rater(cache: Facade) -> None:
    cache.put(ask(), "right")
    lookup_id = cache.lookup(ask()).lookup_id
    raters = {cache.feedback(lookup_id, -1, rater=f"alias-{number}").raters for number in range(20)}

    assert raters == {1}
    assert isinstance(cache.lookup(ask()), Hit)


def test_one_name_on_many_lookup_ids_is_one_rater(cache: Facade) -> None:
    cache.put(ask(), "right")
    raters = {cache.feedback(cache.lookup(ask()).lookup_id, -1, rater="u-1").raters for _ in range(20)}

    assert raters == {1}
    assert isinstance(cache.lookup(ask()), Hit)


def test_a_raters_own_plus_one_takes_back_her_minus_one(cache: Facade) -> None:
    cache.put(ask(), "right")
    for rater in ("a", "b"):
        cache.feedback(cache.lookup(ask()).lookup_id, -1, rater=rater)
    cache.feedback(cache.lookup(ask()).lookup_id, 1, rater="a")
    third = cache.feedback(cache.lookup(ask()).lookup_id, -1, rater="c")

    assert (third.action, third.raters) == ("recorded", 2)


def test_complaints_about_an_older_revision_dont_count(cache: Facade) -> None:
    cache.put(ask(), "wrong")
    old = [cache.lookup(ask()).lookup_id for _ in range(3)]
    cache.put(ask(), "right")
    actions = {cache.feedback(lookup_id, -1, rater=f"u-{n}").action for n, lookup_id in enumerate(old)}

    assert actions == {"none"}
    assert cache.lookup(ask()).text == "right"


def test_a_match_complaint_blocks_the_text_for_the_one_who_complained(cache: Facade) -> None:
    cache.put(ask(), "Open Settings")
    found = cache.lookup(ask(RESET_TOO))
    result = cache.feedback(found.lookup_id, -1, rater="u-1")

    assert result.action == "blocked"
    assert cache.lookup(ask(RESET_TOO, user="u-1")).reason == "blocked_text"
    assert isinstance(cache.lookup(ask()), Hit), "the answer is fine for its own prompt"


def test_enough_match_complaints_block_the_text_for_everyone(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=5.0))
    cache.put(ask(), "Open Settings")
    served = [cache.lookup(ask(RESET_TOO)).lookup_id for _ in range(3)]
    for number, lookup_id in enumerate(served):
        cache.feedback(lookup_id, -1, rater=f"u-{number}")

    assert cache.lookup(ask(RESET_TOO)).reason == "blocked_text"
    assert isinstance(cache.lookup(ask()), Hit)


def test_a_block_survives_a_new_answer(cache: Facade) -> None:
    cache.put(ask(), "Open Settings")
    cache.feedback(cache.lookup(ask(RESET_TOO)).lookup_id, -1, rater="u-1")
    cache.put(ask(), "Open Account")

    assert cache.lookup(ask(RESET_TOO, user="u-1")).reason == "blocked_text"


def test_a_wrong_match_tightens_the_entrys_threshold(cache: Facade) -> None:
    cache.put(ask(), "Open Settings")
    cache.feedback(cache.lookup(ask(RESET_TOO)).lookup_id, -1, rater="u-1")
    tightened = cache.lookup(ask(RESET_TOO, user="somebody else"))
    cache.feedback(cache.lookup(ask()).lookup_id, 1, rater="u-2", about="match")

    assert isinstance(tightened, Miss)
    assert tightened.reason == "below_threshold"


@pytest.mark.parametrize("verdict", [2, -2, 0.5, "1", None, True])
def test_an_odd_verdict_is_refused(cache: Facade, verdict: Any) -> None:
    entry_id = cache.put(ask(), "x").entry_id
    with pytest.raises(InvalidRequestError, match="verdict is"):
        cache.feedback(entry_id, verdict, rater="u")


@pytest.mark.parametrize("rater", ["", "x" * 10_000, 7])
def test_an_odd_rater_is_refused(cache: Facade, rater: Any) -> None:
    entry_id = cache.put(ask(), "x").entry_id
    with pytest.raises(InvalidRequestError, match="rater"):
        cache.feedback(entry_id, -1, rater=rater)


def test_unknown_forged_and_foreign_lookup_ids_look_alike(make: Callable[..., Facade]) -> None:
    cache, other = make(), make(namespace="another-namespace")
    cache.put(ask(), "x")
    other.put(ask(), "x")
    good = cache.lookup(ask()).lookup_id
    foreign = other.lookup(ask()).lookup_id
    messages = set()
    for bad in ("nonsense", good[:-6] + "AAAAAA", foreign, good.split(".")[0], "", "é.é"):
        with pytest.raises(UnknownLookupError) as caught:
            cache.feedback(bad, -1, rater="u")
        messages.add(str(caught.value))
    with pytest.raises(UnknownLookupError) as caught:
        cache.feedback(good, -1, rater="u", tenant="globex")
    messages.add(str(caught.value))

    assert len(messages) == 1


def test_feedback_on_an_entry_that_is_gone_does_nothing(cache: Facade) -> None:
    cache.put(ask(), "x")
    lookup_id = cache.lookup(ask()).lookup_id
    cache.invalidate(entry_ids=[cache.lookup(ask()).entry_id])

    assert cache.feedback(lookup_id, -1, rater="u").action == "none"


def test_a_failing_encoder_leaves_exact_hits(make: Callable[..., Facade]) -> None:
    good = make()
    good.put(ask(INVOICE), "elsewhere")
    cache = make(FailingEncoder(TableEncoder(TABLE)))
    stored = cache.put(ask(), "Open Settings")
    reworded = cache.lookup(ask(RESET_TOO))

    assert stored.outcome == "stored"
    assert cache.lookup(ask()).text == "Open Settings"
    assert isinstance(reworded, Miss)


def held_up(cache: Facade, monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    """Let a thread lose two seconds so many times between its reading of the exact match and its decision."""
    core: Any = cache.cache._core
    read, lost = core._clock_for, iter(range(int(min(times, 1000))))

    def slow(look: Any, view: Any, entries: Any) -> Any:
        if (
            any(e is not None and e.prompt == look.request.prompt for e in view.entries)
            and next(lost, None) is not None
        ):
            now = core.clock
            monkeypatch.setattr(core, "clock", lambda: now() + 2.0)
        return read(look, view, entries)

    monkeypatch.setattr(core, "_clock_for", slow)


def test_who_is_held_up_reads_the_exact_match_again(
    make: Callable[..., Facade], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make(policy=Policy(deadline=60.0))
    cache.put(RESET, "Click here.")
    cache.put(RESET_TOO, "Click there.")
    held_up(cache, monkeypatch, 1)

    hit = cache.lookup(RESET_TOO)

    assert (hit.text, hit.match) == ("Click there.", "exact")


def test_a_neighbour_never_stands_in_for_an_exact_match_that_was_read_too_long_ago(
    make: Callable[..., Facade], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make(policy=Policy(deadline=60.0))
    cache.put(RESET, "Click here.")
    cache.put(RESET_TOO, "Click there.")
    held_up(cache, monkeypatch, float("inf"))

    assert cache.lookup(RESET_TOO).reason == "deadline"
    assert len([c for c in cache.explain(RESET_TOO).candidates if c.prompt == RESET_TOO]) == 1


def test_an_embedding_of_zeros_is_never_matched(make: Callable[..., Facade]) -> None:
    cache = make(TableEncoder({RESET: [0.0, 0.0], RESET_TOO: [0.0, 0.0], INVOICE: [1.0, 0.0]}))
    cache.put(ask(), "Open Settings")
    cache.put(ask(INVOICE), "invoice")

    assert isinstance(cache.lookup(ask()), Hit)
    assert cache.lookup(ask(RESET_TOO)).reason == "unknown_tokens"


def test_an_encoder_of_another_fingerprint_shares_exact_hits_only(make: Callable[..., Facade]) -> None:
    first = make(HashEncoder(8, name="one"))
    first.put(ask(), "Open Settings")
    second = make(HashEncoder(8, name="two"), matcher=ThresholdMatcher(-1.0))
    if first.cache._store is not second.cache._store and "Memory" in type(first.cache._store).__name__:
        pytest.skip("each memory store is its own")

    assert isinstance(second.lookup(ask()), Hit)
    assert second.lookup(ask(RESET_TOO)).reason == "no_candidate"


def test_explain_serves_and_counts_nothing(cache: Facade) -> None:
    cache.put(ask(), "Open Settings")
    cache.put(ask(INVOICE), "invoice")
    before = cache.stats().requests
    explained = cache.explain(ask(RESET_TOO))

    assert isinstance(explained.decision, Hit)
    assert [report.reason for report in explained.candidates] == [None, "below_threshold"]
    assert all(report.findings for report in explained.candidates)
    assert "threshold: refuses at a threshold above" in explained.candidates[0].flip
    assert "threshold: needs cosine ≥" in explained.candidates[1].flip
    assert cache.stats().requests == before


def test_every_lookup_is_counted_once(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=5.0, local_bound=60.0))
    cache.get_or_compute(ask(), lambda request: "x")  # miss
    cache.lookup(ask())  # exact, from the store
    cache.lookup(ask())  # exact, from the local copy
    cache.lookup(ask(RESET_TOO))  # semantic
    cache.lookup(ask(BILL))  # below the threshold
    cache.lookup(ask(mode="off"))  # bypass
    stats = cache.stats()

    assert stats.hits == {"exact": 2, "semantic": 1}
    assert stats.tiers == {"store": 2, "local": 1}
    assert stats.misses == {"no_candidate": 1, "below_threshold": 1, "bypass:policy": 1}
    assert stats.requests == 6
    assert stats.hit_rate == pytest.approx(3 / 5)
    assert stats.stored == {"stored": 1}


def test_an_unknown_store_is_refused(loop: Loop) -> None:
    for target in ("http://example.test", "redis:/oops", 7, object()):
        for kind in ("sync", "async"):
            with pytest.raises(ConfigurationError, match="expected"):
                open_facade(kind, target, loop, encoder=HashEncoder())


def test_a_client_that_decodes_replies_is_refused(loop: Loop, redis_url: str) -> None:
    import redis
    import redis.asyncio

    with pytest.raises(ConfigurationError, match="decode_responses=True"):
        open_facade(
            "sync", redis.Redis.from_url(redis_url, decode_responses=True), loop, encoder=HashEncoder()
        )
    client = redis.asyncio.Redis.from_url(redis_url, decode_responses=True)
    with pytest.raises(ConfigurationError, match="decode_responses=True"):
        open_facade("async", client, loop, encoder=HashEncoder())


def test_concurrent_callers_share_one_call(cache: Facade) -> None:
    calls: list[str] = []
    answers: list[Any] = []

    def model(request: CacheRequest) -> str:
        calls.append(request.prompt)
        assert within(20.0, lambda: waiting(cache.cache) == 15)
        return "Open Settings"

    threads = [
        threading.Thread(target=lambda: answers.append(cache.get_or_compute(ask(), model))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert calls == [RESET]
    assert {answer.text for answer in answers} == {"Open Settings"}
    assert sum(answer.waited for answer in answers) == 15


def test_who_begins_first_leads_and_the_others_get_what_it_finishes_with(cache: Facade) -> None:
    lead = cache.begin(ask(), tags={"t"})
    assert isinstance(lead, Lead)
    assert lead.decision.reason == "no_candidate"
    attended = threading.Event()
    lead.attend(attended.set)
    assert not attended.is_set()
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(cache.begin(ask())))
    other.start()
    assert attended.wait(10)
    answer = cache.finish(lead, "Open Settings")
    other.join(10)

    assert (answer.text, answer.stored.outcome, answer.waited) == ("Open Settings", "stored", False)
    assert [(f.text, f.waited, f.put.outcome) for f in found] == [("Open Settings", True, "stored")]
    assert cache.begin(ask()).hit
    assert cache.stats().waited == 1


def test_a_lead_that_is_given_up_or_dropped_passes_to_the_next(cache: Facade) -> None:
    for end in (lambda lead: lead.give_up(), lambda lead: lead.__del__()):
        lead = cache.begin(ask())
        found: list[Any] = []
        other = threading.Thread(target=lambda found=found: found.append(cache.begin(ask())))
        attended = threading.Event()
        lead.attend(attended.set)
        other.start()
        assert attended.wait(10)
        end(lead)
        other.join(10)

        assert isinstance(found[0], Lead)
        found[0].give_up()
        found[0].give_up()
    assert isinstance(cache.lookup(ask()), Miss)


def test_a_dropped_lead_keeps_nobody_waiting(cache: Facade) -> None:
    cache.begin(ask())  # and nobody holds it

    assert isinstance(cache.begin(ask()), Lead)


def test_an_answer_begun_before_an_invalidation_isnt_stored_after_it(cache: Facade) -> None:
    lead = cache.begin(ask(), tags={"t"})
    cache.invalidate(tags={"t"})
    late = cache.finish(lead, "late")
    new = cache.begin(ask(), tags={"t"})

    assert late.stored.outcome == "old_fence"
    assert isinstance(new, Lead)
    assert cache.finish(new, "new").stored


def test_what_cannot_be_meant_is_refused_before_anybody_leads(cache: Facade) -> None:
    for wrong in ({"ttl": -1.0}, {"tags": [""]}):
        with pytest.raises(InvalidRequestError):
            cache.begin(ask(), **wrong)
    lead = cache.begin(ask())
    with pytest.raises(InvalidRequestError):
        cache.finish(lead, 1)

    assert cache.finish(lead, "Open Settings").stored


def test_only_if_cached_leads_nobody(cache: Facade) -> None:
    with pytest.raises(OnlyIfCachedError):
        cache.begin(ask(only_if_cached=True))

    assert isinstance(cache.begin(ask()), Lead)


def test_a_pseudonym_is_the_same_in_both_caches_of_a_namespace(redis_url: str, namespace: str) -> None:
    import asyncio

    async def ask() -> str:
        async with await AsyncSemanticCache.open(redis_url, **options) as cache:
            return await cache.pseudonym("sk-1")

    options: dict[str, Any] = {
        "namespace": namespace, "encoder": HashEncoder(), "policy": Policy(deadline=5.0)
    }  # fmt: skip
    with SemanticCache.open(redis_url, **options) as cache:
        found = cache.pseudonym("sk-1")

    assert found == asyncio.run(ask())
