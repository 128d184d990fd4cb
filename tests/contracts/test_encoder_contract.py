"""What every encoder promises, whichever it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from semcache.encoders import BundledEncoder, OnnxEncoder, SentenceTransformerEncoder, default_encoder
from semcache.errors import InvalidRequestError
from semcache.protocols import Encoder
from semcache.testing import HashEncoder, TableEncoder
from tests.encoder_models import NEEDS_EXPORT, NEEDS_MINILM, QUIET, exported_folder, minilm_folder

pytestmark = QUIET

QUESTIONS = [
    "How do I reset my password?",
    "What is the capital of France?",
    "How do I change my delivery address?",
    "Why is the sky blue?",
]
LONG = "Tell me about the history of the railways of Europe. " * 200
TABLE = dict(zip(QUESTIONS, np.eye(4).tolist(), strict=True))

MAKERS: dict[str, Callable[[], Encoder]] = {
    "table": lambda: TableEncoder(TABLE, default=[1, 1, 1, 1]),
    "hash": lambda: HashEncoder(96),
    "bundled": BundledEncoder,
    "sentence-transformers": lambda: SentenceTransformerEncoder(minilm_folder()),
    "default": default_encoder,
    "onnx-int8": lambda: OnnxEncoder(exported_folder()),
}
NEEDS = {"sentence-transformers": [NEEDS_MINILM], "onnx-int8": [NEEDS_EXPORT]}
ALL = [pytest.param(name, marks=NEEDS.get(name, [])) for name in MAKERS]
MODELS = ALL[2:]  # they have a window and a vocabulary


@cache
def made(name: str) -> Encoder:
    return MAKERS[name]()


@pytest.fixture(params=ALL)
def encoder(request: pytest.FixtureRequest) -> Encoder:
    return made(request.param)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Encoder:
    return made(request.param)


def test_it_has_the_shape_of_an_encoder(encoder: Encoder) -> None:
    assert isinstance(encoder, Encoder)


def test_rows_are_contiguous_float32_unit_vectors_in_the_order_of_the_texts(encoder: Encoder) -> None:
    embeddings = encoder.encode(QUESTIONS)
    backwards = encoder.encode(QUESTIONS[::-1])

    assert embeddings.shape == (len(QUESTIONS), encoder.dim)
    assert embeddings.dtype == np.float32
    assert embeddings.flags.c_contiguous
    assert np.linalg.norm(embeddings, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert (embeddings[::-1] * backwards).sum(axis=1) == pytest.approx(1.0, abs=1e-3)


def test_no_texts_give_an_empty_array_of_the_right_width(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, encoder.dim)
    assert encoder.encode([]).dtype == np.float32
    assert encoder.inspect([]) == []


def test_a_text_has_the_same_embedding_alone_and_in_a_batch(encoder: Encoder) -> None:
    alone = np.concatenate([encoder.encode([text]) for text in QUESTIONS])

    assert (alone * encoder.encode(QUESTIONS)).sum(axis=1) == pytest.approx(1.0, abs=1e-3)


def test_equal_texts_have_equal_rows(encoder: Encoder) -> None:
    first, second = encoder.encode([QUESTIONS[0], QUESTIONS[0]])

    assert first @ second == pytest.approx(1.0, abs=1e-5)


def test_the_caller_owns_the_rows(encoder: Encoder) -> None:
    embeddings = encoder.encode(QUESTIONS[:1])
    before = embeddings.copy()
    embeddings[:] = 7.0

    assert encoder.encode(QUESTIONS[:1])[0] @ before[0] == pytest.approx(1.0, abs=1e-3)


def test_the_fingerprint_is_one_short_safe_string_that_names_the_dim(encoder: Encoder) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]{3,127}", encoder.fingerprint)
    assert str(encoder.dim) in encoder.fingerprint.split("-")


def test_a_single_string_in_place_of_a_list_is_refused(encoder: Encoder) -> None:
    with pytest.raises(InvalidRequestError, match=r"pass \[text\]"):
        encoder.encode("How do I reset my password?")


def test_something_that_is_no_text_is_refused(encoder: Encoder) -> None:
    with pytest.raises(InvalidRequestError, match="NoneType"):
        encoder.encode([None])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "a\x00b",
        "\ud800",
        "pay \udcff now",
        "שלום",
        "😀",
        "é" * 40,
        "\u202eright to left",
        "<s> [CLS]",
    ],
    ids=ascii,
)
def test_odd_text_has_a_unit_row_or_a_row_of_zeros(encoder: Encoder, text: str) -> None:
    (norm,) = np.linalg.norm(encoder.encode([text]), axis=1)
    (limits,) = encoder.inspect([text])

    assert norm == pytest.approx(1.0, abs=1e-3) or norm == 0.0
    assert 0.0 <= limits.unknown_share <= 1.0


def test_an_ordinary_question_fits_and_is_known(encoder: Encoder) -> None:
    for limits in encoder.inspect(QUESTIONS):
        assert not limits.over_window
        assert limits.unknown_share == 0.0


@pytest.mark.parametrize("text", ["", " ", "\n\t "], ids=ascii)
def test_a_blank_text_has_a_row_of_zeros(model: Encoder, text: str) -> None:
    assert not model.encode([text]).any()
    assert model.inspect([text])[0].unknown_share == 1.0


def test_a_text_over_the_window_is_reported_and_never_cut(model: Encoder) -> None:
    (limits,) = model.inspect([LONG])

    assert limits.over_window
    assert not model.encode([LONG]).any()


def test_a_megabyte_is_a_text_over_the_window(model: Encoder) -> None:
    assert model.inspect(["how now brown cow " * 60_000])[0].over_window


def test_a_paraphrase_is_nearer_than_another_question(model: Encoder) -> None:
    asked, paraphrase, other = model.encode(
        ["How do I reset my password?", "I forgot my password, how can I reset it?", "Why is the sky blue?"]
    )

    assert asked @ paraphrase > 0.6
    assert asked @ other < 0.4
