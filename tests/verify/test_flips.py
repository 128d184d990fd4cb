"""What explain says would turn a verdict round is true."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semcache.decision import flip, state_finding
from semcache.guards import GUARDS
from semcache.reasons import GUARDS as REASONS
from semcache.types import Finding
from semcache.verify import CalibratedMatcher, ThresholdMatcher, calibration_for
from semcache.verify.flips import WHEN, least_cosine, of_threshold

MATCHER = CalibratedMatcher(calibration_for("use-multilingual-3"), near_copy_gate=True)
A, B = "how do I renew my library card", "where can I extend my library card's validity"
SOME = [
    "how",
    "do",
    "i",
    "renew",
    "my",
    "library",
    "card",
    "extend",
    "where",
    "book",
    "shelf",
    "3",
    "4",
    "not",
]
WORDS = st.lists(
    st.sampled_from(SOME),
    min_size=1,
    max_size=9,
).map(" ".join)


def found(a: str, b: str, similarity: float, rule: str, **given: float) -> Finding:
    said = MATCHER.judge(a, b, similarity, explain=True, **given)
    return next(f for f in said.findings if f.rule == rule)


@settings(max_examples=200, deadline=None)
@given(a=WORDS, b=WORDS, similarity=st.floats(0.3, 1.0), rivals=st.lists(st.floats(0.0, 1.0), max_size=7))
def test_the_cosine_that_explain_asks_for_suffices_and_a_little_less_does_not(
    a: str, b: str, similarity: float, rivals: list[float]
) -> None:
    said = MATCHER.judge(a, b, similarity, rivals=rivals, explain=True)
    for finding in said.findings:
        asked = re.match(r"needs cosine ≥ (\d\.\d+)", finding.flip)
        if asked is None:
            continue
        rule, needed = finding.rule, float(asked[1])
        near = MATCHER.judge(a, b, min(needed, 1.0), rivals=rivals, explain=True)
        below = MATCHER.judge(a, b, needed - 0.0011, rivals=rivals, explain=True)

        assert finding.verdict == "refuse"
        assert next(f for f in near.findings if f.rule == rule).verdict == "pass"
        assert next(f for f in below.findings if f.rule == rule).verdict == "refuse"


def test_a_refusal_by_the_cosine_says_how_much_is_missing() -> None:
    assert found(A, B, 0.41, "threshold").flip == "needs cosine ≥ 0.620, has 0.410"
    assert found(A, B, 0.41, "threshold", threshold=0.8).flip == "needs cosine ≥ 0.800, has 0.410"
    assert found(A, B, 0.91, "threshold").flip == "refuses at a threshold above 0.910"


def test_a_refusal_by_the_probability_names_the_cosine_and_the_words() -> None:
    said = found(A, B, 0.7, "probability")

    assert said.verdict == "refuse"
    assert re.fullmatch(r"needs cosine ≥ 0\.\d{3} with .*'renew'.* against .*, has 0\.700", said.flip)


def test_a_refusal_by_a_guard_says_that_no_threshold_flips_it() -> None:
    said = MATCHER.judge("a table for 3 people", "a table for 4 people", 0.99, explain=True)

    assert flip(False, said.findings).startswith("number: '3' against '4'; no threshold flips it")
    assert found("a table for 3", "a chair for 3", 0.9, "number").flip.startswith(
        "refuses where both name numbers"
    )


def test_every_guard_says_when_it_refuses() -> None:
    assert set(WHEN) == set(REASONS) == {name for name, _ in GUARDS} | {"near_copy"}


def test_a_served_candidate_says_how_far_it_is_from_being_refused() -> None:
    said = MATCHER.judge(A, A + " today or so", 0.97, explain=True)

    assert said.reason is None
    assert re.search(
        r"threshold: refuses at a threshold above 0\.970; probability: refuses below cosine 0\.\d{3}",
        flip(True, said.findings),
    )


def test_what_is_out_for_another_reason_than_its_words_says_so() -> None:
    assert "expired" in flip(False, [state_finding("expired")])
    assert flip(True, [state_finding(None)]) == ""


def test_no_cosine_is_promised_where_none_would_do() -> None:
    assert least_cosine(lambda cosine: 0.1 * cosine, 0.5) is None
    assert least_cosine(lambda cosine: 1.0, 0.5) == -1.0
    assert least_cosine(lambda cosine: cosine, 0.5) == pytest.approx(0.5)


def test_plain_cosine_explains_its_threshold_too() -> None:
    said = ThresholdMatcher(0.9).judge("a", "b", 0.85, explain=True)

    assert [f.flip for f in said.findings] == ["needs cosine ≥ 0.900, has 0.850"]
    assert of_threshold(float("nan"), 0.9) == "needs cosine ≥ 0.900, has none"
