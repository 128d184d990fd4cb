"""Values refuse what can't be meant."""

from __future__ import annotations

import math

import pytest

from semcache.errors import ConfigurationError, InvalidRequestError
from semcache.policy import Policy
from semcache.types import CacheRequest, Response


@pytest.mark.parametrize("threshold", [1.01, -1.01, math.nan, math.inf, "0.9", True])
def test_a_threshold_outside_cosine_is_refused(threshold: object) -> None:
    with pytest.raises(ConfigurationError, match=r"\[-1, 1\]"):
        Policy(threshold=threshold)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=r"\[-1, 1\]"):
        CacheRequest("hello", threshold=threshold)  # type: ignore[arg-type]


@pytest.mark.parametrize("threshold", [-1, -1.0, 0, 0.0, 1, 1.0])
def test_zero_and_one_are_thresholds(threshold: float) -> None:
    assert Policy(threshold=threshold).threshold == threshold
    assert CacheRequest("hello", threshold=threshold).threshold == threshold


@pytest.mark.parametrize("ttl", [-1, -0.001, math.nan, "30s", True])
def test_a_ttl_that_is_no_number_of_seconds_is_refused(ttl: object) -> None:
    with pytest.raises(ConfigurationError, match="ttl"):
        Policy(ttl=ttl)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", [None, b"hello", 3, ["hello"]])
def test_a_prompt_that_is_no_text_is_refused(prompt: object) -> None:
    with pytest.raises(InvalidRequestError, match="prompt is"):
        CacheRequest(prompt)  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [-0.1, 1.1, math.nan, "high"])
def test_a_confidence_outside_0_1_is_refused(confidence: object) -> None:
    with pytest.raises(InvalidRequestError, match="confidence"):
        Response("hello", confidence=confidence)  # type: ignore[arg-type]


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="semantic, exact, off"):
        CacheRequest("hello", mode="fuzzy")  # type: ignore[arg-type]


def test_an_unknown_bypass_is_refused() -> None:
    assert CacheRequest("hello", bypass="media").bypass == "media"
    with pytest.raises(InvalidRequestError, match="time_bound"):
        CacheRequest("hello", bypass="weather")
