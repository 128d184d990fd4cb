"""What callers may pass to put, get_or_compute and invalidate: refused with a reason before anything is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semcache import (
    CacheRequest,
    ConfigurationError,
    Fence,
    Hit,
    InvalidRequestError,
    Miss,
    Policy,
    UnknownLookupError,
)
from semcache.core.selectors import select
from semcache.feedback import principal_digest
from semcache.scope import given_tags, nfc, scope_generations, tag_generations
from tests.facade import Facade

COMPOSED, APART = "caf\u00e9", "cafe\u0301"
NOTHING: dict[str, Any] = {
    "entry_ids": (), "tags": (), "model": None, "model_version": None, "segment": None, "subject": None,
    "tenant": None, "older_than": None, "everything": False, "dry_run": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("stored", "named"), [(COMPOSED, APART), (APART, COMPOSED)], ids=["composed", "apart"]
)
@pytest.mark.parametrize("kind", ["tags", "subject", "model", "model_version", "segment", "tenant"])
def test_names_are_equal_under_nfc(cache: Facade, kind: str, stored: str, named: str) -> None:
    fields: dict[str, Any] = {"model": "m", "model_version": "v", kind: stored}
    tags = fields.pop("tags", None)
    if kind == "segment":
        fields["segment"] = {stored: stored}
    request = CacheRequest("apple", **fields)
    cache.put(request, "x", tags={tags} if tags else ())
    served = cache.lookup(request)
    selector: dict[str, Any] = {kind: named}
    if kind == "tags":
        selector = {"tags": [named]}
    if kind == "segment":
        selector = {"segment": {named: named}}
    if kind == "model_version":
        selector["model"] = "m"
    counted = cache.invalidate(**selector, dry_run=True)
    cache.invalidate(**selector)

    assert isinstance(served, Hit)
    assert counted.matched == 1
    assert isinstance(cache.lookup(request), Miss)


def test_a_rater_is_one_person_under_nfc() -> None:
    assert principal_digest(COMPOSED) == principal_digest(APART)


@pytest.mark.parametrize("ahead", [1, 10**6, 3600 * 10**6, 10**14])
def test_a_fence_from_the_future_outlives_nothing(cache: Facade, ahead: int) -> None:
    fence = cache.lookup("apple").fence
    stored = cache.put("apple", "x", fence=replace(fence, time_us=fence.time_us + ahead), tags={"t"})
    served = cache.lookup("apple")
    cache.invalidate(everything=True)

    assert stored.outcome == "stored"
    assert isinstance(served, Hit)
    assert isinstance(cache.lookup("apple"), Miss)


@pytest.mark.parametrize(
    "fence",
    [
        "a fence",
        ("epoch", 5),
        Fence("", 5),
        Fence("\udcff", 5),
        Fence("e" * 65, 5),
        Fence(None, 5),  # type: ignore[arg-type]
        Fence("e", -1),
        Fence("e", 0),
        Fence("e", 2**53),
        Fence("e", 10**400),
        Fence("e", True),
        Fence("e", 1.5),  # type: ignore[arg-type]
        Fence("e", "5"),  # type: ignore[arg-type]
    ],
    ids=lambda fence: ascii(fence)[:40],
)
def test_a_fence_that_no_lookup_gave_is_refused(cache: Facade, fence: Any) -> None:
    with pytest.raises(InvalidRequestError, match="fence"):
        cache.put("apple", "x", fence=fence)

    assert isinstance(cache.lookup("apple"), Miss)
    assert cache.all_entries() == []


WRONG_PUTS: list[dict[str, Any]] = [
    {"ttl": 1e300},
    {"ttl": 1.1e10},
    {"ttl": float("inf")},
    {"ttl": float("nan")},
    {"ttl": -1},
    {"ttl": "60"},
    {"ttl": True},
    {"confidence": 1.5},
    {"confidence": "high"},
    {"kind": 5},
    {"kind": ["faq"]},
    {"kind": "\udcff"},
    {"kind": "k" * 513},
    {"tags": "tag"},
    {"tags": 5},
    {"tags": [""]},
    {"tags": [5]},
    {"tags": ["\udcff"]},
    {"tags": ["t" * 513]},
    {"tags": [str(n) for n in range(65)]},
]


@pytest.mark.parametrize("wrong", WRONG_PUTS, ids=lambda wrong: ascii(wrong)[:40])
def test_what_cant_be_said_of_an_answer_is_refused_before_the_model_is_called(
    cache: Facade, wrong: dict[str, Any]
) -> None:
    calls: list[str] = []

    def model(request: CacheRequest) -> str:
        calls.append(request.prompt)
        return "x"

    with pytest.raises(InvalidRequestError):
        cache.put("apple", "x", **wrong)
    with pytest.raises(InvalidRequestError):
        cache.get_or_compute("apple", model, **wrong)

    assert calls == []
    assert cache.all_entries() == []
    assert cache.stats().failures == {}


@pytest.mark.parametrize("prompt", ["", " \n"])
def test_a_blank_prompt_is_refused_before_the_model_is_called(cache: Facade, prompt: str) -> None:
    with pytest.raises(InvalidRequestError, match="blank"):
        cache.get_or_compute(prompt, lambda request: pytest.fail("called"))


def test_tags_may_come_from_a_generator(cache: Facade) -> None:
    cache.get_or_compute("apple", lambda request: "x", tags=(tag for tag in ("a", "b")))
    cache.invalidate(tags=(tag for tag in ("c", "b")))

    assert isinstance(cache.lookup("apple"), Miss)


def test_numbers_of_numpy_are_numbers(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=5.0, ttl=np.float64(60.0), stale_while_revalidate=np.float64(1.0)))
    for number, options in enumerate(({}, {"ttl": np.float64(5.0), "confidence": np.float64(0.5)})):
        assert cache.put("apple", f"answer {number}", **options)
        assert cache.lookup("apple").text == f"answer {number}"
    cache.invalidate(older_than=np.float64(1e-6))

    assert isinstance(cache.lookup("apple"), Miss)
    assert cache.stats().failures == {}


def test_the_longest_ttl_is_stored(cache: Facade) -> None:
    assert cache.put("apple", "x", ttl=1e10)
    assert isinstance(cache.lookup("apple"), Hit)


@pytest.mark.parametrize(
    "selector",
    [
        {"everything": "no"},
        {"everything": 1},
        {"everything": None},
        {"everything": True, "dry_run": "no"},
        {"everything": True, "dry_run": 0},
        {"older_than": 0},
        {"older_than": -1},
        {"older_than": float("inf")},
        {"older_than": float("nan")},
        {"older_than": 1e11},
        {"older_than": "60"},
        {"older_than": True},
        {"tenant": ""},
        {"tenant": "", "older_than": 0},
        {"tenant": 5},
        {"tenant": "\udcff"},
        {"tenant": "t" * 513},
        {"tags": "tag"},
        {"tags": 5},
        {"tags": [""]},
        {"tags": [1]},
        {"tags": ["\udcff"]},
        {"tags": ["t" * 513]},
        {"model": ""},
        {"model": 5},
        {"model": "\udcff"},
        {"model": "m", "model_version": 5},
        {"subject": ""},
        {"subject": 5},
        {"subject": "\udcff"},
        {"subject": "s" * 513},
        {"segment": "tier=gold"},
        {"segment": {5: "gold"}},
        {"segment": {"tier": ["gold"]}},
        {"segment": {"tier": "\udcff"}},
        {"segment": {}},
        {"entry_ids": "m/v/" + "0" * 32},
        {"entry_ids": [1]},
        {"entry_ids": ["nonsense"]},
        {"entry_ids": ["m/v/" + "0" * 32], "tenant": "t"},
        {"entry_ids": ["m/v/" + "0" * 32], "tags": ["t"]},
    ],
    ids=lambda selector: ascii(selector)[:50],
)
def test_a_selector_that_cant_be_meant_withdraws_nothing(cache: Facade, selector: dict[str, Any]) -> None:
    cache.put("apple", "x", tags={"t"})
    with pytest.raises(InvalidRequestError):
        cache.invalidate(**selector)

    assert isinstance(cache.lookup("apple"), Hit)


@pytest.mark.parametrize(
    "selector",
    [
        {"older_than": 0, "everything": True},
        {"older_than": 0, "tenant": "acme"},
        {"tenant": "acme", "everything": True},
        {"model": "", "model_version": "", "tenant": "acme"},
        {"segment": {"seats": 5}, "older_than": 0},
    ],
    ids=str,
)
def test_what_says_what_it_reaches_is_accepted(cache: Facade, selector: dict[str, Any]) -> None:
    request = CacheRequest("apple", tenant="acme", segment={"seats": 5})  # type: ignore[dict-item]
    cache.put(request, "x")
    cache.invalidate(**selector)

    assert isinstance(cache.lookup(request), Miss)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None)
@given(
    tenant=names, model=names, tag=names, other=names,
    kind=st.sampled_from(["tenant", "model", "tags"]), narrowed=st.sampled_from(["no", "own", "other"]),
)  # fmt: skip
def test_whatever_is_stored_is_reached_by_its_own_names_and_no_others(
    tenant: str, model: str, tag: str, other: str, kind: str, narrowed: str
) -> None:
    request = CacheRequest("x", tenant=tenant, model=model)
    obeyed = {*scope_generations(request), *tag_generations(tenant, given_tags(request, [tag]))}
    narrow = {"no": None, "own": tenant, "other": other}[narrowed]
    wanted: dict[str, Any] = {**NOTHING, "tenant": narrow}
    wanted |= {"tenant": {"tenant": tenant}, "model": {"model": model}, "tags": {"tags": [tag]}}[kind]
    expected = kind == "tenant" or narrow is None or nfc(narrow) == nfc(tenant)

    assert (not obeyed.isdisjoint(select(**wanted).raised)) == expected


def test_a_dry_run_counts_only_what_it_would_end(cache: Facade) -> None:
    for version in ("v1", "v2", "v3", "v4"):
        cache.put(CacheRequest("apple", model="m", model_version=version), "x", tags={"t", version})
    cache.invalidate(tags={"v1"})
    cache.invalidate(model="m", model_version="v2")
    gone = cache.put(CacheRequest("apple", model="m", model_version="v3"), "x", tags={"t"}).entry_id
    cache.invalidate(entry_ids=[gone])
    left = [
        cache.invalidate(**selector, dry_run=True).matched
        for selector in ({"tags": {"t"}}, {"everything": True}, {"model": "m"}, {"entry_ids": [gone]})
    ]

    assert left == [1, 1, 1, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda cache: cache.take_refreshes("w", count=0),
        lambda cache: cache.take_refreshes("w", count=True),
        lambda cache: cache.take_refreshes("w", count=10**9),
        lambda cache: cache.take_refreshes("w", idle=float("nan")),
        lambda cache: cache.take_refreshes("w", idle=-1.0),
        lambda cache: cache.take_refreshes("w", idle="1"),
        lambda cache: cache.take_refreshes(""),
        lambda cache: cache.take_refreshes(5),
        lambda cache: cache.take_refreshes("\udcff"),
        lambda cache: cache.finish_refreshes(["1-0"]),
        lambda cache: cache.queue_refresh("m/v/" + "0" * 32),
        lambda cache: cache.queue_refresh(["m/v/" + "0" * 32], why=5),
        lambda cache: cache.withdrawn(limit="x"),
        lambda cache: cache.withdrawn(limit=0),
        lambda cache: cache.withdrawn(limit=10**6),
        lambda cache: cache.restore(5),
        lambda cache: cache.get([5]),
        lambda cache: cache.feedback("m/v/" + "0" * 32, -1, rater="\udcff"),
    ],
    ids=range(18),
)
def test_what_a_worker_or_an_operator_cant_mean_is_refused(
    cache: Facade, call: Callable[[Facade], Any]
) -> None:
    with pytest.raises(InvalidRequestError):
        call(cache)


def test_a_lookup_id_in_other_letters_is_another(cache: Facade) -> None:
    cache.put("apple", "x")
    lookup_id = cache.lookup("apple").lookup_id
    head, tail = lookup_id.split(".")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    others = [f"{head}.{tail[:-1]}{letter}" for letter in letters if letter != tail[-1]]
    others += [f"{head}=.{tail}", f"{head}.{tail}==", f" {lookup_id}", f"{lookup_id}\n"]
    for other in others:
        with pytest.raises(UnknownLookupError):
            cache.feedback(other, 1)

    assert cache.feedback(lookup_id, 1).action == "recorded"


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": float("inf")},
        {"ttl": 1e300},
        {"kinds": {"faq": float("inf")}},
        {"kinds": {5: 1.0}},
        {"kinds": None},
        {"kinds": ["faq"]},
        {"tombstone_ttl": float("inf")},
        {"feedback_window": float("inf")},
        {"feedback_rate_window": 1e300},
        {"deadline": float("inf")},
        {"deadline": 1e9},
        {"flight_timeout": float("inf")},
        {"sweep_every": -1.0},
        {"sweep_every": "often"},
        {"stale_while_revalidate": -1.0},
        {"stale_while_revalidate": float("nan")},
        {"stale_while_revalidate": None},
        {"max_semantic_chars": -1},
        {"max_semantic_chars": 10.0},
        {"guards": "off"},
        {"guards": None},
        {"store_empty": 1},
    ],
    ids=str,
)
def test_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"Policy.{next(iter(wrong))}"):
        Policy(**wrong)


def test_a_short_tombstone_still_refuses_what_was_asked_before(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=5.0, tombstone_ttl=0.01))
    fence = cache.lookup("apple").fence
    cache.invalidate(entry_ids=[cache.put("apple", "x").entry_id])
    time.sleep(0.03)

    assert cache.put("apple", "late", fence=fence).outcome == "tombstone"
