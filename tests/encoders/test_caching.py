"""Embeddings kept in the process, and as bytes."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from semcache.encoders import BundledEncoder
from semcache.encoders.caching import EmbeddingLRU, dequantise, quantise
from semcache.encoders.texts import unit_rows
from semcache.errors import ConfigurationError
from semcache.testing import HashEncoder
from semcache.types import Embedding

units = (
    st_numpy.arrays(
        np.float32,
        st.integers(2, 600),
        elements=st.floats(-1, 1, width=32, allow_subnormal=False),
    )
    .filter(lambda values: np.linalg.norm(values) > 1e-3)
    .map(lambda values: unit_rows(values)[0])
)


def unit(number: int, dim: int = 4) -> Embedding:
    row: Embedding = HashEncoder(dim).encode([str(number)])[0]
    return row


@given(units)
def test_what_comes_back_is_a_unit_row_of_nearly_the_same_direction(embedding: Embedding) -> None:
    found = dequantise(quantise(embedding), len(embedding))

    assert found is not None
    assert found.dtype == np.float32
    assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-4)
    assert found @ embedding >= 0.999 - 1e-5


@given(st.integers(8, 1024), st.integers(0, 2**32 - 1))
def test_an_ordinary_embedding_takes_a_byte_for_each_dimension(dim: int, seed: int) -> None:
    embedding = unit_rows(np.random.default_rng(seed).standard_normal(dim))[0]

    assert len(quantise(embedding)) == dim + 4


def test_an_embedding_that_one_dimension_outweighs_is_kept_whole() -> None:
    embedding = unit_rows([1.0] + [0.0038] * 511)[0]

    data = quantise(embedding)

    assert len(data) == 4 * 512
    assert np.array_equal(dequantise(data, 512), unit_rows(embedding)[0])


def test_real_embeddings_lose_next_to_nothing() -> None:
    embeddings = BundledEncoder().encode([f"What is {number} plus {number}?" for number in range(50)])

    found = [dequantise(quantise(embedding), 512) for embedding in embeddings]

    assert min(a @ b for a, b in zip(found, embeddings, strict=True) if a is not None) > 0.9999


@given(st.binary(max_size=80), st.integers(1, 20))
def test_any_bytes_are_a_unit_row_or_nothing(data: bytes, dim: int) -> None:
    found = dequantise(data, dim)

    assert found is None or (
        found.shape == (dim,) and abs(float(np.linalg.norm(found)) - 1.0) < 1e-3 and found.dtype == np.float32
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 12,
        np.float32(np.nan).tobytes() + bytes([1] * 8),
        np.float32(np.inf).tobytes() + bytes([1] * 8),
        np.float32(-1).tobytes() + bytes([1] * 8),
        np.float32(1).tobytes() + bytes(8),
        np.float32(1).tobytes() + bytes([1] * 7),
        np.full(8, np.nan, np.float32).tobytes(),
        np.full(8, 7, np.float32).tobytes(),
    ],
    ids=["empty", "zero scale", "nan", "inf", "negative", "zeros", "short", "nan row", "no unit row"],
)
def test_bytes_that_are_no_embedding_give_nothing(data: bytes) -> None:
    assert dequantise(data, 8) is None


@pytest.mark.parametrize(
    "embedding",
    [
        np.zeros(4, np.float32),
        np.ones(4, np.float32),
        np.full(4, np.nan, np.float32),
        np.array([1, 0], np.float64),
        np.array([[1, 0]], np.float32),
        np.zeros(0, np.float32),
    ],
    ids=["zeros", "norm 2", "nan", "float64", "two axes", "empty"],
)
def test_what_is_no_unit_row_is_refused(embedding: Embedding) -> None:
    with pytest.raises(ConfigurationError):
        quantise(embedding)
    with pytest.raises(ConfigurationError):
        EmbeddingLRU(2, max(embedding.shape[-1], 1)).put("key", embedding)


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"\(3,\)"):
        EmbeddingLRU(2, 3).put("key", unit(1))


def test_a_row_is_found_under_its_key_and_is_the_callers_own() -> None:
    cache = EmbeddingLRU(2, 4)
    cache.put(b"key", unit(1))
    found = cache.get(b"key")
    assert found is not None
    found[:] = 0

    assert np.array_equal(cache.get(b"key"), unit(1))
    assert cache.get(b"other") is None


def test_the_row_unused_for_longest_makes_room() -> None:
    cache = EmbeddingLRU(2, 4)
    cache.put("a", unit(1))
    cache.put("b", unit(2))
    cache.get("a")
    cache.put("c", unit(3))

    assert cache.get("b") is None
    assert np.array_equal(cache.get("a"), unit(1))
    assert np.array_equal(cache.get("c"), unit(3))


def test_a_large_one_takes_memory_only_for_the_rows_in_use() -> None:
    cache = EmbeddingLRU(1_000_000, 512)
    cache.put("a", unit(1, 512))

    assert cache.memory_bytes == 2048


class LruMachine(RuleBasedStateMachine):
    """Holds the cache to a list of keys, the last used at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = EmbeddingLRU(3, 4)
        self.model: dict[int, int] = {}

    @rule(key=st.integers(0, 5), number=st.integers(0, 100))
    def put(self, key: int, number: int) -> None:
        self.cache.put(key, unit(number))
        self.model.pop(key, None)
        self.model[key] = number
        if len(self.model) > 3:
            del self.model[next(iter(self.model))]

    @rule(key=st.integers(0, 5))
    def get(self, key: int) -> None:
        found = self.cache.get(key)
        if key not in self.model:
            assert found is None
            return
        number = self.model.pop(key)
        self.model[key] = number
        assert np.array_equal(found, unit(number))

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.model.clear()

    @invariant()
    def has_as_many(self) -> None:
        assert len(self.cache) == len(self.model)


TestLru = LruMachine.TestCase


def test_threads_never_see_another_keys_row_or_half_of_one() -> None:
    cache = EmbeddingLRU(8, 64)
    rows = {number: unit(number, 64) for number in range(32)}

    def use(seed: int) -> int:
        wrong = 0
        for number in np.random.default_rng(seed).integers(0, 32, 2000).tolist():
            found = cache.get(number)
            if found is None:
                cache.put(number, rows[number])
            elif not np.array_equal(found, rows[number]):
                wrong += 1
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(use, range(4))) == 0
    assert len(cache) == 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_while_threads_use_it_leaves_it_usable() -> None:
    cache = EmbeddingLRU(8, 64)
    cache.put("kept", unit(1, 64))
    stop = threading.Event()

    def use() -> None:
        while not stop.is_set():
            cache.put("busy", unit(2, 64))

    thread = threading.Thread(target=use)
    thread.start()
    codes = []
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            ok = np.array_equal(cache.get("kept"), unit(1, 64))
            os._exit(0 if ok else 2)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    stop.set()
    thread.join()

    assert codes == [0] * 10


def test_bytes_of_huge_numbers_are_no_embedding() -> None:
    assert dequantise(np.full(4, 3e38, dtype="<f4").tobytes(), 4) is None
