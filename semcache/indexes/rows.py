"""What every index needs: checked rows, a compact key table, one way to rank.

Nothing here holds rows, locks or a clock.
"""

from __future__ import annotations

import math
import mmap
from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from semcache.errors import ConfigurationError
from semcache.protocols import Neighbour
from semcache.types import Embedding, Embeddings

Times: TypeAlias = npt.NDArray[np.float64]  # (n,), seconds since the Unix epoch; inf for never
Moved: TypeAlias = tuple[list[str], Embeddings, Times]  # keys, rows, expiries
Scored: TypeAlias = tuple[float, str]  # (minus the similarity, key): sorts as results are ranked

DECIMALS = 6
"""Similarities are rounded to this: what float32 rows are good for, so that equal rows tie wherever they lie."""

NORM_TOLERANCE = 1e-3  # float16 and int8 copies of unit rows are this close
_EXACT_TOLERANCE = 1e-6  # closer than this a row is kept bit for bit
_MAPPED = 1 << 17  # bytes; smaller blocks aren't worth a mapping
_MANY = 256  # keys from which a table is filled by arrays
NEVER = math.inf


def check_dim(dim: object) -> int:
    """Raise unless `dim` can be the length of an embedding."""
    if type(dim) is not int or not 1 <= dim <= 65536:
        raise ConfigurationError(f"dim is {dim!r}, expected an int in [1, 65536]")
    return dim


def check_rows(
    dim: int, keys: Sequence[str], embeddings: Embeddings, expires_at: Sequence[float | None]
) -> tuple[Embeddings, Times]:
    """Return the rows C-contiguous with unit norm, and their expiries; raise for rows that can't be meant."""
    if not isinstance(embeddings, np.ndarray) or embeddings.dtype != np.float32:
        found = getattr(embeddings, "dtype", type(embeddings).__name__)
        raise ConfigurationError(f"embeddings are {found}, expected a float32 array")
    if embeddings.shape != (len(keys), dim):
        raise ConfigurationError(
            f"embeddings have shape {embeddings.shape}, expected ({len(keys)}, {dim}): one row a key"
        )
    if len(expires_at) != len(keys):
        raise ConfigurationError(f"expires_at has {len(expires_at)} values, expected {len(keys)}: one a key")
    for key in keys:
        if not isinstance(key, str):
            raise ConfigurationError(f"key is {type(key).__name__}, expected str")
    expires = np.array([_expiry(value) for value in expires_at], dtype=np.float64)
    return _unit(np.ascontiguousarray(embeddings)), expires


def _expiry(value: float | None) -> float:
    if value is None:
        return NEVER
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ConfigurationError(
            f"expires_at holds {value!r}, expected seconds since the Unix epoch, or None for never"
        )
    return float(value)


def _unit(rows: Embeddings) -> Embeddings:
    squares, off = _squares(rows)
    if not len(off) or off.max() <= _EXACT_TOLERANCE:  # NaN compares false
        return rows
    _demand_units(squares, off)
    exact: Embeddings = (rows / np.sqrt(squares.astype(np.float64))[:, None]).astype(np.float32)
    return exact


def check_units(rows: Embeddings) -> None:
    """Raise unless the rows have unit norm, or nearly."""
    _demand_units(*_squares(rows))


def _squares(rows: Embeddings) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return squared norms, and how far they are from 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
        return squares, np.abs(squares - np.float32(1.0))


def _demand_units(squares: npt.NDArray[np.float32], off: npt.NDArray[np.float32]) -> None:
    bad = ~(off <= 2 * NORM_TOLERANCE)
    if bad.any():
        at = int(np.argmax(bad))
        raise ConfigurationError(
            f"row {at} of the embeddings has squared norm {float(squares[at]):g}, expected a unit vector: "
            "a row of zeros, NaN or infinity has no neighbours; don't add it"
        )


def check_query(dim: int, embedding: Embedding, k: object) -> Embedding:
    """Return the embedding C-contiguous with unit norm; raise for one that can't be meant."""
    if type(k) is not int or k < 0:
        raise ConfigurationError(f"k is {k!r}, expected an int of 0 or more")
    if not isinstance(embedding, np.ndarray) or embedding.dtype != np.float32:
        found = getattr(embedding, "dtype", type(embedding).__name__)
        raise ConfigurationError(f"embedding is {found}, expected a float32 array")
    if embedding.shape != (dim,):
        raise ConfigurationError(f"embedding has shape {embedding.shape}, expected ({dim},)")
    query = np.ascontiguousarray(embedding)
    square = float(np.vdot(query, query))
    if abs(square - 1.0) <= _EXACT_TOLERANCE:  # NaN compares false
        return query
    exact: Embedding = _unit(query[None, :])[0]
    return exact


def similarities(rows: Sequence[Embedding], query: Times) -> list[float]:
    """Return the cosine of each row with the query, worked out in float64."""
    return [cosine(value) for value in np.dot(np.array(rows, dtype=np.float64), query).tolist()]


def cosine(value: float) -> float:
    """Return a dot product of unit rows rounded to `DECIMALS`, in [-1, 1]."""
    return min(1.0, max(-1.0, round(value, DECIMALS)))


def nearest(scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.intp]:
    """Return the positions that can be among the k best once float32 noise is taken away, unordered.

    Scores below -1.5 mark rows that aren't there.
    """
    if len(scores) <= k:
        return np.nonzero(scores > -1.5)[0]
    worst = np.partition(scores, len(scores) - k)[len(scores) - k]
    return np.nonzero(scores >= max(worst - 1e-5, -1.5))[0]


def neighbours(found: Iterable[Scored], k: int) -> list[Neighbour]:
    """Return the k best, in descending order of similarity, ties by key; a key counts once."""
    best: dict[str, float] = {}
    for minus, key in sorted(found):
        if key not in best:
            if len(best) == k:
                break
            best[key] = minus
    return [Neighbour(key, -minus) for key, minus in best.items()]


def grown(values: Times, least: int) -> Times:
    """Return a copy of at least `least` places, at least half as many again as before."""
    bigger = np.full(max(least, len(values) * 3 // 2), -np.inf)
    bigger[: len(values)] = values
    return bigger


def zeros(rows: int, dim: int) -> Embeddings:
    """Return rows of zeros in memory that goes back to the system once it is freed.

    An allocator keeps much of what a large tail took, since small blocks lie behind it.
    """
    size = rows * dim * 4
    if size < _MAPPED or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros((rows, dim), dtype=np.float32)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, dtype=np.float32).reshape(rows, dim)


class KeyTable:
    """Finds a key's slot in a list of keys that somebody else holds.

    Open addressing with linear probing: 6 to 12 bytes a key, where a dict with its int objects takes
    about 100. The list must still hold a key while it is removed here.
    """

    __slots__ = ("_mask", "_table", "_taken", "_used")

    _EMPTY = -1
    _GONE = -2

    def __init__(self) -> None:
        self._reset(8)

    def _reset(self, size: int) -> None:
        self._table = array("i", [self._EMPTY]) * size
        self._mask = size - 1
        self._used = 0  # live keys
        self._taken = 0  # live keys and gone ones

    def find(self, key: str, keys: Sequence[str | None]) -> int:
        """Return the key's slot, -1 if it isn't there."""
        table, mask = self._table, self._mask
        at = hash(key) & mask
        while (slot := table[at]) != self._EMPTY:
            if slot >= 0 and keys[slot] == key:
                return slot
            at = (at + 1) & mask
        return -1

    def insert(self, key: str, slot: int, keys: Sequence[str | None]) -> None:
        """Note the slot of a key that isn't there; `keys` must already hold it."""
        if (self._taken + 1) * 3 > len(self._table) * 2:
            self._rehash(keys)
        self._place(key, slot)
        self._used += 1
        self._taken += 1

    def _place(self, key: str, slot: int) -> None:
        table, mask = self._table, self._mask
        at = hash(key) & mask
        while table[at] != self._EMPTY:
            at = (at + 1) & mask
        table[at] = slot

    def _rehash(self, keys: Sequence[str | None]) -> None:
        self._fill([slot for slot in self._table if slot >= 0], keys)

    @classmethod
    def of(cls, keys: Sequence[str | None]) -> KeyTable:
        """Return a table of the keys that are there, each of which is there once."""
        table = cls()
        gone = None in keys
        table._fill(
            [at for at, key in enumerate(keys) if key is not None] if gone else range(len(keys)), keys
        )
        return table

    def _fill(self, slots: Sequence[int], keys: Sequence[str | None]) -> None:
        size = 8
        while size < 2 * (len(slots) + 1):
            size *= 2
        self._reset(size)
        self._used = self._taken = len(slots)
        if len(slots) < _MANY:
            for slot in slots:
                key = keys[slot]
                assert key is not None  # a live slot has a key
                self._place(key, slot)
            return
        table = np.frombuffer(self._table, dtype=np.intc)  # lets go of it before it can grow
        waiting = np.array(slots, dtype=np.intc)
        named = keys if isinstance(slots, range) else [keys[slot] for slot in slots]
        at = np.fromiter(map(hash, named), dtype=np.int64, count=len(slots)) & self._mask
        while len(waiting):  # all keys at once take a step, until each has a place
            free = table[at] == self._EMPTY
            table[at[free]] = waiting[free]  # of those that meet at one place, the last gets it
            left = table[at] != waiting
            waiting, at = waiting[left], (at[left] + 1) & self._mask

    def remove(self, key: str, keys: Sequence[str | None]) -> int:
        """Forget the key; return the slot it had, -1 if it isn't there."""
        table, mask = self._table, self._mask
        at = hash(key) & mask
        while (slot := table[at]) != self._EMPTY:
            if slot >= 0 and keys[slot] == key:
                table[at] = self._GONE
                self._used -= 1
                return slot
            at = (at + 1) & mask
        return -1

    def __len__(self) -> int:
        return self._used

    def memory_bytes(self) -> int:
        """Return what the table takes, bytes."""
        return len(self._table) * self._table.itemsize
