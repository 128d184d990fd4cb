"""The public test encoders do what they say."""

from __future__ import annotations

import time

import numpy as np
import pytest

from semcache.errors import ConfigurationError, EncoderError
from semcache.testing import FailingEncoder, HashEncoder, SlowEncoder, TableEncoder


def test_a_table_states_its_geometry() -> None:
    encoder = TableEncoder({"a": [1, 0], "b": [3, 4]})

    a, b = encoder.encode(["a", "b"])

    assert a @ b == pytest.approx(0.6)
    assert encoder.dim == 2
    assert encoder.fingerprint == "table-2-l2"


def test_a_table_counts_its_calls_and_keeps_their_texts() -> None:
    encoder = TableEncoder({"a": [1, 0], "b": [0, 1]})
    encoder.encode(["a"])
    encoder.encode(["b", "a"])

    assert encoder.calls == 2
    assert encoder.batches == [("a",), ("b", "a")]


def test_a_text_that_is_not_in_the_table_is_an_error_without_a_default() -> None:
    with pytest.raises(EncoderError, match="'c' isn't in the table"):
        TableEncoder({"a": [1, 0]}).encode(["c"])
    assert TableEncoder({"a": [1, 0]}, default=[0, 2]).encode(["c"]).tolist() == [[0, 1]]


def test_a_table_says_what_is_over_the_window_or_unknown() -> None:
    encoder = TableEncoder({"a": [1, 0]}, default=[0, 1], over_window={"long"}, unknown_share={"a": 0.5})

    known, long = encoder.inspect(["a", "long"])

    assert (known.unknown_share, known.over_window) == (0.5, False)
    assert (long.unknown_share, long.over_window) == (0.0, True)
    assert not encoder.encode(["long"]).any()


def test_rows_of_two_lengths_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"\[1, 2\]"):
        TableEncoder({"a": [1, 0], "b": [1]})


def test_hashed_texts_are_far_apart_and_the_same_each_time() -> None:
    texts = [f"text {number}" for number in range(50)]
    rows = HashEncoder(256).encode(texts)

    assert np.array_equal(rows, HashEncoder(256).encode(texts))
    assert np.abs(rows @ rows.T - np.eye(50)).max() < 0.4


def test_a_slow_encoder_takes_its_time_for_each_call() -> None:
    encoder = SlowEncoder(HashEncoder(8), 0.02)
    begin = time.perf_counter()
    encoder.encode(["a", "b"])

    assert time.perf_counter() - begin >= 0.02


def test_a_failing_encoder_fails_as_often_as_told() -> None:
    encoder = FailingEncoder(HashEncoder(8), times=1)

    with pytest.raises(EncoderError):
        encoder.encode(["a"])
    assert encoder.encode(["a"]).shape == (1, 8)
    assert encoder.failures == 1


def test_a_failing_encoder_fails_where_told() -> None:
    encoder = FailingEncoder(HashEncoder(8), RuntimeError("poison"), texts={"bad"})

    assert encoder.encode(["good"]).shape == (1, 8)
    with pytest.raises(RuntimeError, match="poison"):
        encoder.encode(["good", "bad"])
