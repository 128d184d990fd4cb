"""What the wording of a prompt and the history of an answer say about its ttl, and who may share it."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache import CacheRequest, ConfigurationError, Hit, InvalidRequestError, Miss, Policy, Response
from semcache.admission import aged, bypass, owner, ttl_of
from semcache.freshness import (
    KINDS,
    confidence_from_logprobs,
    confident_share,
    same_answer,
    stretched,
    traits,
)
from tests.facade import Facade

DATA = Path(os.environ.get("SEMCACHE_DATA", Path(__file__).resolve().parents[2] / ".." / "shared" / "data"))


@pytest.mark.parametrize(
    "prompt",
    [
        "What's the weather in Paris?", "What is the latest version of Python?", "bitcoin price", "What time is it?",
        "Who won the game today?", "What is the current exchange rate of the euro?", "What should I wear now?",
        "今天上海天气怎么样", "现在美元汇率是多少", "最新的苹果手机多少钱", "现在几点了",
    ],
)  # fmt: skip
def test_a_prompt_about_this_moment_is_time_bound(prompt: str) -> None:
    assert traits(prompt).time_bound


@pytest.mark.parametrize(
    "prompt",
    [
        "What is alternating current?", "How do I know if I'm right?", "Now that Python 2 is gone, what changes?",
        "How do I reset my password?", "How does a weather vane work?", "什么是现金流", "如何重置密码", "",
    ],
)  # fmt: skip
def test_a_prompt_that_holds_at_any_time_is_not(prompt: str) -> None:
    assert not traits(prompt).time_bound


@pytest.mark.parametrize(
    "prompt",
    [
        "Where is my order?", "Where's my package", "Can you track my last order", "What is my account balance?",
        "Is my flight delayed?", "How much is left on my data usage?", "Show me my invoices", "When is my next appointment?",
        "Hi, what is the status of my refund?", "Find a pharmacy near me", "nearest gas station", "restaurants near here",
        "What's the weather today?", "我的快递到哪了", "查一下我的余额", "我的积分有多少", "附近有什么好吃的", "离我最近的医院",
    ],
)  # fmt: skip
def test_a_prompt_about_the_person_or_place_that_asks_is_personal(prompt: str) -> None:
    assert traits(prompt).personal


@pytest.mark.parametrize(
    "prompt",
    [
        "How do I reset my password?", "How can I cancel my order?", "How do I track my package?", "Can I return my order?",
        "What is my IQ?", "Where do I find my bill?", "Where is my invoice?", "What happens to my flight if it rains?",
        "What is the nearest star to the sun?", "What is the weather in Paris today?", "How do I stop people close to me?",
        "怎么查询我的订单", "我的密码忘了怎么办", "如何取消我的订单", "西安火车站附近有什么酒店", "我可以退款吗",
    ],
)  # fmt: skip
def test_a_prompt_with_one_answer_for_all_is_not(prompt: str) -> None:
    assert not traits(prompt).personal


def test_a_long_prompt_is_read_at_both_ends() -> None:
    filler = "lorem ipsum dolor " * 1000

    assert traits(f"{filler} What is the weather in Paris").time_bound
    assert traits(f"What is the weather in Paris? {filler}").time_bound
    assert not traits(f"{filler} weather {filler}").time_bound


@pytest.mark.parametrize(
    ("file", "most"), [("pairs_qqp", 0.0005), ("clusters_faq", 0.0), ("pairs_zh", 0.002)]
)
def test_few_questions_of_people_are_taken_for_personal_ones(file: str, most: float) -> None:
    path = DATA / f"{file}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no {path}: set SEMCACHE_DATA to the folder of the evaluation data")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    prompts = {row[key] for row in rows for key in ("a", "b", "text") if key in row}
    taken = [prompt for prompt in prompts if traits(prompt).personal]

    assert len(taken) / len(prompts) <= most, taken


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert traits(text) == traits(text)


def test_what_is_personal_bypasses_without_anybody_to_belong_to() -> None:
    request = CacheRequest("Where is my order?")

    assert bypass(request, Policy()) == "bypass:personal"
    assert bypass(request, Policy(personal="share")) is None
    assert bypass(CacheRequest("Where is my order?", user="ada"), Policy()) is None
    assert bypass(CacheRequest("pharmacy near me", segment={"city": "Oslo"}), Policy()) is None


def test_what_is_personal_belongs_to_its_user_or_subject() -> None:
    assert owner(CacheRequest("Where is my order?", user="ada", subject="s"), Policy()) == ("ada", "s")
    assert owner(CacheRequest("How do I cancel my order?", user="ada"), Policy()) is None
    assert owner(CacheRequest("Where is my order?", user="ada"), Policy(personal="share")) is None


def ttl(prompt: str = "q", policy: Policy = Policy(), **given: object) -> float | None:  # noqa: B008 - frozen
    options = {"kind": None, "ttl": None, "confidence": None, **given}
    return ttl_of(CacheRequest(prompt), Response("a"), policy, **options)  # type: ignore[arg-type]


def test_a_ttl_comes_from_the_caller_then_the_kind_then_the_policy() -> None:
    policy = Policy(ttl=500.0, kinds={"faq": None, "own": 7.0})

    assert ttl("weather in Oslo", policy, ttl=9999.0, kind="own", confidence=0.1) == 9999.0
    assert ttl("weather in Oslo", policy, kind="own") == 7.0
    assert ttl(policy=policy, kind="faq") is None
    assert ttl(policy=policy, kind="search") == KINDS["search"]
    assert ttl(policy=policy, kind="never heard of") == 500.0
    assert ttl(policy=policy) == 500.0


def test_a_time_bound_prompt_has_a_short_ttl() -> None:
    assert ttl("weather in Oslo") == 60.0
    assert ttl("weather in Oslo", Policy(time_bound_ttl=5.0, ttl=None)) == 5.0
    assert ttl("weather in Oslo", Policy(ttl=10.0)) == 10.0
    assert ttl("weather in Oslo", Policy(time_bound="ignore", ttl=1000.0)) == 1000.0
    assert bypass(CacheRequest("weather in Oslo"), Policy(time_bound="bypass")) == "bypass:time_bound"
    assert bypass(CacheRequest("weather in Oslo", kind="faq"), Policy(time_bound="bypass")) is None


def test_a_time_bound_prompt_accepts_only_young_neighbours() -> None:
    assert aged(CacheRequest("weather in Oslo"), Policy()).max_age == 60.0
    assert aged(CacheRequest("weather in Oslo", max_age=5.0), Policy()).max_age == 5.0
    assert aged(CacheRequest("how to knit"), Policy()).max_age is None


def test_doubt_shortens_a_ttl() -> None:
    policy = Policy(ttl=100.0, min_confidence=0.5, unsure_ttl=0.2)

    assert ttl(policy=policy, confidence=0.5) == pytest.approx(20.0)
    assert ttl(policy=policy, confidence=0.75) == pytest.approx(60.0)
    assert ttl(policy=policy, confidence=1.0) == ttl(policy=policy) == 100.0


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.99), st.floats(0, 1))
def test_more_confidence_never_shortens(a: float, b: float, floor: float, least: float) -> None:
    low, high = (confident_share(max(c, floor), floor, least) for c in sorted((a, b)))

    assert least - 1e-9 <= low <= high + 1e-9 <= 1.0 + 2e-9


@given(st.lists(st.booleans(), max_size=50), st.floats(1, 64))
def test_an_adaptive_ttl_stays_in_its_bounds(history: list[bool], most: float) -> None:
    factor = 1.0
    for same in history:
        factor = stretched(factor, same, most)

    assert 1 / most <= factor <= most


def test_equal_refreshes_lengthen_and_changes_shorten() -> None:
    assert stretched(1.0, True, 8.0) == 2.0
    assert stretched(1.0, False, 8.0) == 0.5
    assert stretched(1.0, True, 1.0) == 1.0
    assert same_answer("Blue.\n", " blue. ")
    assert not same_answer("Blue.", "Green.")


def test_confidence_is_the_likelihood_per_token() -> None:
    assert confidence_from_logprobs([]) is None
    assert confidence_from_logprobs([math.log(0.5), math.log(0.5)]) == pytest.approx(0.5)
    assert confidence_from_logprobs([0.0, -math.inf]) == pytest.approx(math.exp(-10))
    for wrong in (0.5, math.nan, "x"):
        with pytest.raises(InvalidRequestError, match="log-probability 0"):
            confidence_from_logprobs([wrong])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "wrong", [{"time_bound": "sometimes"}, {"personal": "no"}, {"unsure_ttl": 1.5}, {"time_bound_ttl": -1.0}]
)
def test_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Policy(**wrong)  # type: ignore[arg-type]


def test_a_personal_prompt_is_neither_served_nor_stored_for_nobody(make: Callable[..., Facade]) -> None:
    cache = make()

    assert cache.put("Where is my order?", "In Oslo.").outcome == "policy"
    assert cache.lookup("Where is my order?").reason == "bypass:personal"


def test_what_is_one_users_is_never_anothers(make: Callable[..., Facade]) -> None:
    cache = make({"Where is my order?": [1.0, 0.0, 0.0], "Where's my order": [0.99, 0.141, 0.0]})
    ada, bob = (CacheRequest("Where is my order?", user=user) for user in ("ada", "bob"))
    cache.put(ada, "In Oslo.")

    assert cache.lookup(ada).text == "In Oslo."
    assert isinstance(cache.lookup(bob), Miss)
    assert isinstance(cache.lookup(CacheRequest("Where's my order", user="bob")), Miss)
    assert isinstance(cache.lookup(CacheRequest("Where's my order", user="ada")), Hit)


def test_what_is_everybodys_is_shared_by_users(make: Callable[..., Facade]) -> None:
    cache = make()
    cache.put(CacheRequest("How do I cancel my order?", user="ada"), "Click.")

    assert isinstance(cache.lookup(CacheRequest("How do I cancel my order?", user="bob")), Hit)


def test_a_time_bound_answer_is_stored_for_a_short_time(make: Callable[..., Facade]) -> None:
    cache = make()
    cache.put("weather in Oslo", "Rain.")
    cache.put("how to knit", "With needles.")

    assert cache.lookup("weather in Oslo").ttl_left <= 60.0
    assert cache.lookup("how to knit").ttl_left > 86400.0
