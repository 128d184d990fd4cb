"""The rows of one scope, searched exactly.

Scanning holds no lock. What it finds is a list of slots; their keys and similarities are read under
the lock from the rows as they are by then, so a slot that changed hands meanwhile can't lend one
key's similarity to another. Slots of removed rows are used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np

from semcache.indexes.rows import KeyTable, Scored, Times, grown, nearest, similarities
from semcache.types import Embedding, Embeddings

CHUNK = 256  # rows; 512 KB at 512 dimensions
_SMALLEST = 32  # rows of the first chunk, which doubles until it is a whole one
_SLICE = 64  # rows written before the lock is given up for a moment
_SHIFT = CHUNK.bit_length() - 1
_STR = 49  # bytes of a str object beside its characters


class FlatRows:
    """Rows of one scope in chunks of float32."""

    __slots__ = (
        "_chunks",
        "_dim",
        "_expires",
        "_free",
        "_key_bytes",
        "_keys",
        "_lock",
        "_retired",
        "_table",
    )

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._lock = Lock()
        self._chunks: list[Embeddings] = []
        self._keys: list[str | None] = []
        self._expires: Times = np.full(_SMALLEST, -np.inf)
        self._table = KeyTable()
        self._free: list[int] = []
        self._key_bytes = 0
        self._retired = False

    def put(self, keys: Sequence[str], rows: Embeddings, expires: Times) -> bool:
        """Add or replace checked rows. False, and nothing done, if these rows moved elsewhere."""
        for start in range(0, len(keys), _SLICE):
            with self._lock:
                if self._retired:
                    return False
                for i in range(start, min(start + _SLICE, len(keys))):
                    self._put_one(keys[i], rows[i], expires[i])
        return True

    def _put_one(self, key: str, row: Embedding, expires: float) -> None:
        slot = self._table.find(key, self._keys)
        if slot < 0:
            slot = self._free.pop() if self._free else self._append()
            self._keys[slot] = key
            self._table.insert(key, slot, self._keys)
            self._key_bytes += len(key) + _STR
        self._chunks[slot >> _SHIFT][slot & (CHUNK - 1)] = row
        self._expires[slot] = expires

    def _append(self) -> int:
        slot = len(self._keys)
        if slot == len(self._expires):
            self._expires = grown(self._expires, slot + 1)
        if slot < CHUNK:
            self._grow_first(slot)
        elif slot & (CHUNK - 1) == 0:
            self._chunks.append(np.zeros((CHUNK, self._dim), dtype=np.float32))
        self._keys.append(None)
        return slot

    def _grow_first(self, slot: int) -> None:
        have = len(self._chunks[0]) if self._chunks else 0
        if slot < have:
            return
        bigger = np.zeros((max(_SMALLEST, 2 * have), self._dim), dtype=np.float32)
        if have:
            bigger[:have] = self._chunks[0]  # a scan under way keeps the old one
        self._chunks[:1] = [bigger]

    def remove(self, keys: Sequence[str]) -> int:
        """Remove rows; unknown keys are ignored. Returns how many were removed."""
        with self._lock:
            return sum(self._remove_one(key) for key in keys)

    def _remove_one(self, key: str) -> bool:
        slot = self._table.remove(key, self._keys)
        if slot < 0:
            return False
        self._keys[slot] = None
        self._expires[slot] = -np.inf
        self._free.append(slot)
        self._key_bytes -= len(key) + _STR
        return True

    def search(self, query: Embedding, k: int, *, now: float, least: float) -> list[Scored]:
        """Return at least the k best live rows, unordered; ghosts that are met are removed."""
        query64 = query.astype(np.float64)
        while True:
            with self._lock:
                count, chunks, expires = len(self._keys), self._chunks.copy(), self._expires
                free = len(self._free)
            scores = _scan(chunks, count, query)
            dead = expires[:count] <= now  # free slots count as long dead
            if np.count_nonzero(dead):
                scores[dead] = -2.0
            slots = nearest(scores, k).tolist()
            with self._lock:
                if np.count_nonzero(dead) > free:
                    self._expire(np.nonzero(dead)[0].tolist(), now)
                live = [slot for slot in slots if self._expires[slot] > now]
                found = self._scored(live, query64, least)
                if len(live) >= min(k, len(self._table)) or len(live) == len(slots):
                    return found  # else rows were removed during the scan: others may take their place

    def _scored(self, slots: list[int], query64: Times, least: float) -> list[Scored]:
        if not slots:
            return []
        rows = [self._chunks[slot >> _SHIFT][slot & (CHUNK - 1)] for slot in slots]
        found = similarities(rows, query64).tolist()
        return [
            (-similarity, key)
            for similarity, slot in zip(found, slots, strict=True)
            if similarity >= least and (key := self._keys[slot]) is not None
        ]

    def expire(self, now: float) -> int:
        """Remove the rows that expired by `now`. Returns how many."""
        with self._lock:
            return self._expire(np.nonzero(self._expires[: len(self._keys)] <= now)[0].tolist(), now)

    def _expire(self, slots: list[int], now: float) -> int:
        removed = 0
        for slot in slots:
            key = self._keys[slot]
            if key is not None and self._expires[slot] <= now:
                removed += self._remove_one(key)
        return removed

    def contains(self, key: str) -> bool:
        """Whether there is a row for the key."""
        with self._lock:
            return self._table.find(key, self._keys) >= 0

    def rows(self) -> tuple[list[str], Embeddings, Times]:
        """Return a copy of all rows: keys, embeddings, expiries."""
        with self._lock:
            return self._rows()

    def retire(self) -> tuple[list[str], Embeddings, Times]:
        """Return all rows for the last time: from now on `put` refuses, so that no row is lost in a move."""
        with self._lock:
            self._retired = True
            return self._rows()

    def _rows(self) -> tuple[list[str], Embeddings, Times]:
        slots = [slot for slot, key in enumerate(self._keys) if key is not None]
        out = np.empty((len(slots), self._dim), dtype=np.float32)
        for i, slot in enumerate(slots):
            out[i] = self._chunks[slot >> _SHIFT][slot & (CHUNK - 1)]
        return [key for key in self._keys if key is not None], out, self._expires[slots]

    def __len__(self) -> int:
        return len(self._table)

    def memory_bytes(self) -> int:
        """Return what rows, keys and tables take, bytes."""
        rows = sum(chunk.nbytes for chunk in self._chunks)
        return (
            rows + self._expires.nbytes + self._table.memory_bytes() + 8 * len(self._keys) + self._key_bytes
        )


def _scan(
    chunks: list[Embeddings], count: int, query: Embedding
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    scores = np.empty(count, dtype=np.float32)
    for start, chunk in zip(range(0, count, CHUNK), chunks, strict=False):
        stop = min(start + CHUNK, count)
        np.dot(chunk[: stop - start], query, out=scores[start:stop])
    return scores
