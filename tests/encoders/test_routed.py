"""English goes one way, Chinese another, everything else a third, and they never meet."""

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
CHINESE = ["怎么重置密码？", "花呗怎么还款", "打开卧室的灯"]
OTHERS = ["Wie setze ich mein Passwort zurück?", "パスワードを忘れました", "비밀번호를 잊었어요", "", "😀"]


@pytest.fixture(scope="module")
def encoder() -> RoutedEncoder:
    return default_encoder()


def test_each_language_has_the_rows_of_its_encoder(encoder: RoutedEncoder) -> None:
    english, chinese, other = (encoder._routes[way] for way in ("en", "zh", "other"))
    rows = encoder.encode([*ENGLISH, *CHINESE, *OTHERS])
    en, zh, rest = np.split(rows, [len(ENGLISH), len(ENGLISH) + len(CHINESE)])

    assert isinstance(english, OnnxEncoder)
    assert isinstance(chinese, OnnxEncoder)
    assert isinstance(other, BundledEncoder)
    assert rows.shape == (len(ENGLISH) + len(CHINESE) + len(OTHERS), 512)
    assert np.array_equal(en[:, : english.dim], english.encode(ENGLISH))
    assert np.array_equal(zh[:, : chinese.dim], chinese.encode(CHINESE))
    assert np.array_equal(rest, other.encode(OTHERS))
    assert not en[:, english.dim :].any()
    assert not zh[:, chinese.dim :].any()


def test_what_is_said_of_a_text_is_what_its_encoder_says(encoder: RoutedEncoder) -> None:
    english, chinese, other = (encoder._routes[way] for way in ("en", "zh", "other"))
    texts = [OTHERS[0], ENGLISH[0], "word " * 100, CHINESE[0], OTHERS[1]]

    assert encoder.inspect(texts) == [
        *other.inspect(texts[:1]),
        *english.inspect(texts[1:3]),
        *chinese.inspect(texts[3:4]),
        *other.inspect(texts[4:]),
    ]
    assert not encoder.inspect(["word " * 126])[0].over_window
    assert encoder.inspect(["word " * 127])[0].over_window
    assert encoder.inspect(["密码" * 100])[0].over_window


def test_prompts_that_went_different_ways_are_unrelated(encoder: RoutedEncoder) -> None:
    rows = encoder.encode([*ENGLISH, *CHINESE, *OTHERS[:3]])

    assert np.abs(rows[:3] @ rows[3:].T).max() < 0.5
    assert np.abs(rows[3:6] @ rows[6:].T).max() < 0.5


def test_each_family_has_the_numbers_of_its_own_encoder(encoder: RoutedEncoder) -> None:
    english, chinese, other = (
        calibration_for(encoder._routes[way].fingerprint).families for way in ("en", "zh", "other")
    )
    matcher = default_matcher(encoder.fingerprint, Policy())

    assert isinstance(matcher, CalibratedMatcher)
    assert matcher.calibration.calibrated
    assert matcher.calibration.families == {
        "en": english["en"],
        "zh": chinese["zh"],
        "cjk": other["cjk"],
        "other": other["other"],
    }


def test_without_an_encoder_for_chinese_the_other_has_it() -> None:
    routed = RoutedEncoder(HashEncoder(32), BundledEncoder())

    assert "-zh-" not in routed.fingerprint
    assert np.array_equal(routed.encode(CHINESE), BundledEncoder().encode(CHINESE))
    found = calibration_for(routed.fingerprint)
    assert found.families["zh"] == calibration_for(BundledEncoder().fingerprint).families["zh"]


def test_a_route_without_a_calibration_is_strict_and_says_so() -> None:
    found = calibration_for(RoutedEncoder(HashEncoder(64), BundledEncoder()).fingerprint)

    assert not found.calibrated
    assert "no calibration" in found.note
    assert found.families["en"] == calibration_for(HashEncoder(64).fingerprint).families["en"]


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=40) | st.sampled_from([*ENGLISH, *CHINESE, *OTHERS]), max_size=6))
def test_a_text_is_embedded_alike_whatever_stands_beside_it(texts: list[str]) -> None:
    routed = RoutedEncoder(HashEncoder(32), HashEncoder(48), chinese=HashEncoder(40))
    rows = routed.encode(texts)

    assert rows.shape == (len(texts), 48)
    for text, row in zip(texts, rows, strict=True):
        assert np.array_equal(row, routed.encode([text])[0])
        assert analyse(text).language != "en" or not row[32:].any()
        assert analyse(text).language != "zh" or not row[40:].any()


def test_a_cache_has_it_unless_it_is_given_another() -> None:
    with SemanticCache.open("memory://", policy=Policy(deadline=30.0)) as cache:
        cache.put(CacheRequest("How do I reset my password?", model="m"), "Click on Forgot password.")
        asked = CacheRequest("how can I reset the password", model="m")
        hit = cache.lookup(asked)

        assert cache.explain(asked).encoder == default_encoder().fingerprint
        assert getattr(hit, "match", None) == "semantic", hit


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("Hello, what is a noun?", "what is a noun?"),
        ("小布帮我打开便签", "帮我打开便签"),
        ("你好，请问怎么退货呢？", "怎么退货"),
    ],
)
def test_greetings_and_wake_words_are_not_embedded(encoder: RoutedEncoder, text: str, bare: str) -> None:
    one, other = encoder.encode([text, bare])

    assert np.array_equal(one, other)
    assert encoder.inspect([text]) == encoder.inspect([bare])


def test_a_greeting_alone_is_embedded(encoder: RoutedEncoder) -> None:
    assert encoder.encode(["hello there"]).any()
