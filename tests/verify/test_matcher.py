"""What the matchers promise, whatever the rules are."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semcache.errors import ConfigurationError
from semcache.guards import analyse, compare
from semcache.protocols import Matcher
from semcache.reasons import MISS_REASONS
from semcache.verify import CalibratedMatcher, Calibration, ThresholdMatcher, calibration_for
from semcache.verify.features import LARGEST, NEUTRAL, REACH, SMALLEST, crowding, features, room

USE = CalibratedMatcher(calibration_for("use-multilingual-3"))
ENGLISH = CalibratedMatcher(calibration_for("semcache-encoder-en"))
CHINESE = CalibratedMatcher(calibration_for("semcache-encoder-zh"))
MATCHERS = [USE, CHINESE, CalibratedMatcher(calibration_for("nobody-tuned-this")), ThresholdMatcher(0.9)]
VOCABULARY = (
    "how do i reset my password before after 5 five 10 % dollars kg from paris to london not never good bad"
    ' what is the C++ C# v1.2 monday 今天 怎么 还款 花呗 不 3个月 昨天 ( ) == `x` "quoted" John the'
)
WORDS = st.sampled_from(VOCABULARY.split())
TEXTS = st.one_of(st.lists(WORDS, max_size=12).map(" ".join), st.text(max_size=60))


def matcher_name(matcher: Matcher) -> str:
    named = {id(CHINESE): "-chinese", id(MATCHERS[2]): "-uncalibrated"}
    return type(matcher).__name__ + named.get(id(matcher), "")


@pytest.mark.parametrize("matcher", MATCHERS, ids=matcher_name)
@settings(max_examples=150, deadline=None)
@given(a=TEXTS, b=TEXTS, similarity=st.floats(-1, 1), low=st.floats(-1, 1), high=st.floats(-1, 1))
def test_raising_the_threshold_never_turns_a_refusal_into_a_hit(
    matcher: Matcher, a: str, b: str, similarity: float, low: float, high: float
) -> None:
    low, high = min(low, high), max(low, high)
    loose = matcher.judge(a, b, similarity, threshold=low)
    tight = matcher.judge(a, b, similarity, threshold=high)

    assert not (loose.reason is not None and tight.reason is None)


@pytest.mark.parametrize("matcher", MATCHERS, ids=matcher_name)
@settings(max_examples=200, deadline=None)
@given(a=TEXTS, b=TEXTS, similarity=st.floats(-1, 1))
def test_a_judgement_is_symmetric_deterministic_and_has_a_known_reason(
    matcher: Matcher, a: str, b: str, similarity: float
) -> None:
    there, back = matcher.judge(a, b, similarity), matcher.judge(b, a, similarity)

    assert (there.reason is None) == (back.reason is None)
    assert there == matcher.judge(a, b, similarity)
    assert there.reason is None or there.reason in MISS_REASONS


@settings(max_examples=300, deadline=None)
@given(words=st.lists(WORDS, max_size=8), other=st.lists(WORDS, max_size=8), shuffled=st.randoms())
@example(words=["before", "london", "5", "before"], other=["i", "before", "to", "5"], shuffled=Random(0))
@example(words=["i", "John"], other=["John"], shuffled=Random(0))
@example(words=["怎么", "quoted"], other=["怎么", "reset"], shuffled=Random(0))
def test_what_a_probability_is_made_of_is_the_same_either_way(
    words: list[str], other: list[str], shuffled: Random
) -> None:
    moved = [*words, *other[:1]]
    shuffled.shuffle(moved)
    for pair in ((words, other), (words, moved)):
        a, b = (analyse(" ".join(text)) for text in pair)

        assert features(compare(a, b), 0.9, (0.8,)) == pytest.approx(features(compare(b, a), 0.9, (0.8,)))


@settings(max_examples=200, deadline=None)
@given(a=TEXTS, similarity=st.floats(-1, 1))
def test_a_text_always_matches_itself(a: str, similarity: float) -> None:
    assert USE.judge(a, a, similarity).reason is None


@settings(max_examples=150, deadline=None)
@given(a=TEXTS, b=TEXTS, similarity=st.floats(-1, 1))
def test_explaining_never_changes_the_decision(a: str, b: str, similarity: float) -> None:
    assert USE.judge(a, b, similarity).reason == USE.judge(a, b, similarity, explain=True).reason


def test_a_similarity_that_is_not_a_number_is_refused() -> None:
    for matcher in MATCHERS:
        assert matcher.judge("how do I reset it", "how can I reset it", math.nan).reason == "below_threshold"


def test_an_equal_normal_form_is_served_without_regard_to_the_cosine() -> None:
    assert USE.judge("Hi, what's 5,000 in euros?", "what is 5000 in euros", -0.3).reason is None


def test_an_answer_in_another_language_is_refused() -> None:
    same = "How do I reset my password?"

    assert USE.judge(same, same, 1.0, answer_language="zh-CN").reason == "guard:language"
    assert USE.judge(same, same, 1.0, answer_language="en-GB").reason is None


def test_explain_reports_every_rule_even_after_a_refusal() -> None:
    said = USE.judge("book a table for 4 people", "book a table for 6 people", 0.97, explain=True)

    rules = {finding.rule for finding in said.findings}
    assert said.reason == "guard:number"
    assert {"threshold", "number", "negation", "direction", "probability"} <= rules


def test_an_unknown_encoder_starts_strict_and_says_so() -> None:
    calibration = calibration_for("my-own-encoder-1")

    assert not calibration.calibrated
    assert "semcache tune" in calibration.note
    assert all(family.threshold >= 0.95 for family in calibration.families.values())


def test_a_calibration_survives_its_json() -> None:
    calibration = calibration_for("use-multilingual-3-anything")

    assert calibration.calibrated
    assert Calibration.from_json(calibration.to_json()) == calibration


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 1}', '{"version": 99, "fingerprint": "x", "families": {}}']
)
def test_a_file_that_is_no_calibration_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Calibration.from_json(text)


def test_a_calibration_of_an_older_version_says_to_tune_again() -> None:
    text = calibration_for("use-multilingual-3").to_json().replace('"version": 5', '"version": 4')
    older = text.replace('"request": ', '"gone": ')

    with pytest.raises(ConfigurationError, match="version 4, expected 5; run `semcache tune` again"):
        Calibration.from_json(older)


@settings(max_examples=150, deadline=None)
@given(
    a=TEXTS,
    b=TEXTS,
    similarity=st.floats(0.5, 1),
    rivals=st.lists(st.floats(-1, 1), max_size=7),
    one_more=st.floats(-1, 1),
)
def test_a_further_rival_never_makes_a_match_more_probable(
    a: str, b: str, similarity: float, rivals: list[float], one_more: float
) -> None:
    before = USE.judge(a, b, similarity, rivals=rivals)
    after = USE.judge(a, b, similarity, rivals=[*rivals, one_more])

    assert (after.probability or 0.0) <= (before.probability or 0.0)
    assert before.reason is None or after.reason is not None


def test_rivals_far_behind_count_for_nothing_and_near_ones_for_as_much_as_they_are_near() -> None:
    assert crowding(0.9, []) == crowding(0.9, [0.59, -1.0]) == 0.0
    assert crowding(0.9, [0.9]) == pytest.approx(math.log(2))
    assert crowding(0.9, [0.95]) == pytest.approx(math.log(2))  # it was refused for another reason
    assert 0.0 < crowding(0.9, [0.75]) < crowding(0.9, [0.85]) < crowding(0.9, [0.85, 0.85])


@given(gaps=st.lists(st.floats(0, 1), max_size=6), spread=st.floats(0.05, 1))
def test_where_cosines_lie_closer_so_do_rivals(gaps: list[float], spread: float) -> None:
    wide = crowding(0.9, [0.9 - gap for gap in gaps])
    narrow = crowding(0.9, [0.9 - gap * spread for gap in gaps], spread)

    edge = any(abs(gap - REACH) < 1e-6 for gap in gaps)  # in or out by a rounding
    assert edge or narrow == pytest.approx(wide, abs=1e-6)


@pytest.mark.parametrize("spread", [0.0, -1.0, 1.5, math.nan])
def test_a_spread_that_cant_be_meant_is_refused(spread: float) -> None:
    with pytest.raises(ConfigurationError, match=r"spread is .* expected a number in \(0, 1\]"):
        replace(USE.calibration.families["en"], spread=spread)


def test_the_only_near_prompt_is_served_where_one_of_many_is_not() -> None:
    a, b = "how do i reset my forgotten password", "what must i do to reset a password i forgot"
    alone = USE.judge(a, b, 0.87)
    crowded = USE.judge(a, b, 0.87, rivals=[0.86] * 7)

    assert alone.reason is None
    assert crowded.reason == "below_threshold"


@settings(max_examples=150, deadline=None)
@given(
    a=TEXTS,
    b=TEXTS,
    similarity=st.floats(0.5, 1),
    size=st.integers(SMALLEST, 10 * LARGEST),
    more=st.integers(1, 10 * LARGEST),
)
def test_among_more_stored_prompts_no_match_is_more_probable(
    a: str, b: str, similarity: float, size: int, more: int
) -> None:
    before = ENGLISH.judge(a, b, similarity, size=size)
    after = ENGLISH.judge(a, b, similarity, size=size + more)

    assert (after.probability or 0.0) <= (before.probability or 0.0)
    assert before.reason is None or after.reason is not None


def test_the_size_of_a_scope_counts_within_the_range_in_which_it_was_measured() -> None:
    assert room(None) == room(0) == room(1) == room(NEUTRAL) == 0.0
    assert 0.0 < room(2) < room(3) < room(4) == room(50) == room(SMALLEST) > room(1000) > room(1900) > 0.0
    assert 0.0 > room(4000) > room(LARGEST) == room(10**9) == pytest.approx(math.log(2000 / 8000))


def test_what_is_served_among_hundreds_is_refused_among_thousands_and_alone() -> None:
    a, b = "how do i reset my forgotten password", "what must i do to reset a password i forgot"
    served = {size: ENGLISH.judge(a, b, 0.8, size=size).reason is None for size in (None, 1, 300, 8000)}

    assert served == {None: False, 1: False, 300: True, 8000: False}


def test_a_statement_with_a_question_word_inside_does_not_ask() -> None:
    asks = [analyse(text).asks for text in ASKED]

    assert asks == [True, True, True, True, False, False, True, False]


ASKED = [
    "how do I sort a list",
    "I want to know why the sky is blue",
    "do you sell stamps",
    "The manual names three flags, of which one is new?",
    "The section on loading explains to beginners how tables are saved",
    "put milk on the list",
    "怎么退货",
    "帮我打开便签",
]
