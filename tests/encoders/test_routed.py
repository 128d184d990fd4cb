"""English goes one way, everything else another, and the two never meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semcache import CacheRequest, Policy, SemanticCache
from semcache.encoders import BundledEncoder, OnnxEncoder, RoutedEncoder, default_encoder
from semcache.guards import analyse
from semcache.matching import default_matcher
from semcache.testing import HashEncoder
from semcache.verify import CalibratedMatcher, calibration_for

ENGLISH = ["How do I reset my password?", "what is the capital of Peru", "cancel my order"]
OTHERS = ["怎么重置密码？", "Wie setze ich mein Passwort zurück?", "パスワードを忘れました", "", "😀"]


@pytest.fixture(scope="module")
def encoder() -> RoutedEncoder:
    return default_encoder()


def test_english_rows_are_those_of_the_english_encoder(encoder: RoutedEncoder) -> None:
    english, other = encoder._routes
    rows = encoder.encode([*ENGLISH, *OTHERS])

    assert isinstance(english, OnnxEncoder)
    assert isinstance(other, BundledEncoder)
    assert rows.shape == (len(ENGLISH) + len(OTHERS), 512)
    assert np.array_equal(rows[: len(ENGLISH), : english.dim], english.encode(ENGLISH))
    assert not rows[: len(ENGLISH), english.dim :].any()
    assert np.array_equal(rows[len(ENGLISH) :], other.encode(OTHERS))


def test_what_is_said_of_a_text_is_what_its_encoder_says(encoder: RoutedEncoder) -> None:
    english, other = encoder._routes
    texts = [OTHERS[0], ENGLISH[0], "word " * 100, OTHERS[1]]

    assert encoder.inspect(texts) == [
        *other.inspect(texts[:1]),
        *english.inspect(texts[1:3]),
        *other.inspect(texts[3:]),
    ]
    assert encoder.inspect(["word " * 100])[0].over_window


def test_prompts_that_went_different_ways_are_unrelated(encoder: RoutedEncoder) -> None:
    rows = encoder.encode([*ENGLISH, *OTHERS[:3]])

    assert np.abs(rows[: len(ENGLISH)] @ rows[len(ENGLISH) :].T).max() < 0.3


def test_each_family_has_the_numbers_of_its_own_encoder(encoder: RoutedEncoder) -> None:
    english, other = (calibration_for(one.fingerprint) for one in encoder._routes)
    matcher = default_matcher(encoder.fingerprint, Policy())

    assert isinstance(matcher, CalibratedMatcher)
    assert matcher.calibration.calibrated
    assert matcher.calibration.families["en"] == english.families["en"]
    assert matcher.calibration.families["cjk"] == other.families["cjk"]
    assert matcher.calibration.families["other"] == other.families["other"]


def test_a_route_without_a_calibration_is_strict_and_says_so() -> None:
    found = calibration_for(RoutedEncoder(HashEncoder(64), BundledEncoder()).fingerprint)

    assert not found.calibrated
    assert "no calibration" in found.note
    assert found.families["en"] == calibration_for(HashEncoder(64).fingerprint).families["en"]


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=40) | st.sampled_from([*ENGLISH, *OTHERS]), max_size=6))
def test_a_text_is_embedded_alike_whatever_stands_beside_it(texts: list[str]) -> None:
    routed = RoutedEncoder(HashEncoder(32), HashEncoder(48))
    rows = routed.encode(texts)

    assert rows.shape == (len(texts), 48)
    for text, row in zip(texts, rows, strict=True):
        assert np.array_equal(row, routed.encode([text])[0])
        assert analyse(text).family != "en" or not row[32:].any()


def test_a_cache_has_it_unless_it_is_given_another() -> None:
    with SemanticCache.open("memory://") as cache:
        cache.put(CacheRequest("How do I reset my password?", model="m"), "Click on Forgot password.")
        asked = CacheRequest("how can I reset the password", model="m")
        hit = cache.lookup(asked)

        assert cache.explain(asked).encoder == default_encoder().fingerprint
        assert getattr(hit, "match", None) == "semantic", hit
