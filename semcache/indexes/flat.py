"""The rows of one scope, searched exactly.

Scanning holds no lock. What it finds is a list of slots; their keys and similarities are read under
the lock from the rows as they are by then, so a slot that changed hands meanwhile can't lend one
key's similarity to another. Slots of removed rows are used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from semcache.indexes.rows import KeyTable, Moved, Scored, Times, grown, nearest, similarities, zeros
from semcache.types import Embedding, Embeddings

CHUNK = 256  # rows; 512 KB at 512 dimensions
_SMALLEST = 32  # rows of the first chunk, which doubles until it is a whole one
_SLICE = 64  # rows written before the lock is given up for a moment
_SHIFT = CHUNK.bit_length() - 1
_GHOSTS = 1024  # removed in one search at most
_MANY = 8192  # rows that aren't copied at once
_STR = 49  # bytes of a str object beside its characters
_UNCACHED = 4096  # rows that a processor's cache doesn't hold: reading them one by one is twice as fast
_by_rows: Any = getattr(np, "vecdot", np.dot)  # numpy has it from 2.0


class FlatRows:
    """Rows of one scope in chunks of float32."""

    __slots__ = (
        "_borrowed",
        "_chunks",
        "_count",
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
        self._borrowed = 0  # chunks, the first ones, that lie in somebody else's memory
        self._keys: list[str | None] = []
        self._expires: Times = np.full(_SMALLEST, -np.inf)
        self._count = 0  # live rows
        self._table: KeyTable | None = KeyTable()  # None if it is made when it is needed
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

    def fill(self, keys: list[str | None], rows: Embeddings, expires: Times) -> None:
        """Take checked rows as they lie, where there are none yet; None is for a row that was removed.

        Many of them stay where they are until `own` has copied them.

        Args:
            keys: Each once; it becomes the rows' own.
            rows: May lie apart, as in a graph's memory.
            expires: -inf where there is no key; it becomes the rows' own.
        """
        with self._lock:
            count = len(keys)
            self._chunks = [rows[start : start + CHUNK] for start in range(0, count, CHUNK)]
            self._borrowed = len(self._chunks)
            while self._borrowed and (count < _MANY or self._borrowed > count >> _SHIFT):
                self._own_last()  # the last one needs room for more
            self._keys, self._expires, self._table = keys, grown(expires, count + 1), None
            if None in keys:
                self._free = [slot for slot, key in enumerate(keys) if key is None]
            self._count = count - len(self._free)
            self._key_bytes = sum(map(len, filter(None, keys))) + _STR * self._count

    def _own_last(self) -> None:
        self._borrowed -= 1
        found = self._chunks[self._borrowed]
        smallest = max(_SMALLEST, 1 << (len(found) - 1).bit_length())
        own = zeros(CHUNK if self._borrowed else smallest, self._dim)
        own[: len(found)] = found
        self._chunks[self._borrowed] = own

    @property
    def borrowed(self) -> bool:
        """Whether some rows lie in memory that isn't their own."""
        return self._borrowed > 0

    def own(self, chunks: int) -> None:
        """Copy up to so many chunks from where they lie, once keys can be found."""
        with self._lock:
            self._by_key()
        for _ in range(chunks):
            with self._lock:
                if self._borrowed:
                    self._own_last()

    def _by_key(self) -> KeyTable:
        """Return the table; the lock is held."""
        if self._table is None:
            self._table = KeyTable.of(self._keys)
        return self._table

    def _put_one(self, key: str, row: Embedding, expires: float) -> None:
        slot = self._by_key().find(key, self._keys)
        if slot < 0:
            slot = self._free_slot()
            self._keys[slot] = key
            self._by_key().insert(key, slot, self._keys)
            self._count += 1
            self._key_bytes += len(key) + _STR
        self._chunks[slot >> _SHIFT][slot & (CHUNK - 1)] = row
        self._expires[slot] = expires

    def _free_slot(self) -> int:
        while self._free:
            slot = self._free.pop()
            if slot < len(self._keys) and self._keys[slot] is None:  # else the end was cut off since
                return slot
        return self._append()

    def _append(self) -> int:
        slot = len(self._keys)
        if slot == len(self._expires):
            self._expires = grown(self._expires, slot + 1)
        if slot < CHUNK:
            self._grow_first(slot)
        elif slot & (CHUNK - 1) == 0:
            self._chunks.append(zeros(CHUNK, self._dim))
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
        slot = self._by_key().remove(key, self._keys)
        if slot < 0:
            return False
        self._keys[slot] = None
        self._count -= 1
        self._expires[slot] = -np.inf
        self._free.append(slot)
        self._key_bytes -= len(key) + _STR
        if slot == len(self._keys) - 1:
            self._cut()
        return True

    def _cut(self) -> None:
        """Give the room of free slots at the end back."""
        keys = self._keys
        while keys and keys[-1] is None:
            keys.pop()
        del self._chunks[max(1, (len(keys) + CHUNK - 1) >> _SHIFT) :]
        self._borrowed = min(self._borrowed, len(self._chunks))
        if len(self._free) > 2 * len(keys) + CHUNK:
            self._free = [slot for slot, key in enumerate(keys) if key is None]

    def search(self, query: Embedding, k: int, *, now: float, least: float) -> list[Scored]:
        """Return at least the k best live rows, unordered; ghosts that are met are removed."""
        query64 = query.astype(np.float64)
        while True:
            with self._lock:
                count, chunks, expires = len(self._keys), self._chunks.copy(), self._expires
                free = count - self._count
            scores = _scan(chunks, count, query)
            dead = expires[:count] <= now  # free slots count as long dead
            if np.count_nonzero(dead):
                scores[dead] = -2.0
            slots = nearest(scores, k).tolist()
            with self._lock:
                if np.count_nonzero(dead) > free:
                    self._expire(np.nonzero(dead)[0].tolist(), now, _GHOSTS)
                live = [slot for slot in slots if self._expires[slot] > now]
                found = self._scored(live, query64, least)
                if len(live) >= min(k, self._count) or len(live) == len(slots):
                    return found  # else rows were removed during the scan: others may take their place

    def _scored(self, slots: list[int], query64: Times, least: float) -> list[Scored]:
        if not slots:
            return []
        found = similarities([self._row(slot) for slot in slots], query64)
        return [
            (-similarity, key)
            for similarity, slot in zip(found, slots, strict=True)
            if similarity >= least and (key := self._keys[slot]) is not None
        ]

    def expire(self, now: float) -> int:
        """Remove the rows that expired by `now`. Returns how many."""
        with self._lock:
            return self._expire(np.nonzero(self._expires[: len(self._keys)] <= now)[0].tolist(), now)

    def _expire(self, slots: list[int], now: float, limit: int | None = None) -> int:
        removed = 0
        for slot in slots:
            key = self._keys[slot] if slot < len(self._keys) else None
            if key is not None and self._expires[slot] <= now:
                removed += self._remove_one(key)
                if removed == limit:
                    break
        return removed

    def last(self, limit: int) -> Moved:
        """Return a copy of up to `limit` rows from the end: keys, embeddings, expiries."""
        with self._lock:
            slots: list[int] = []
            slot = len(self._keys) - 1
            while slot >= 0 and len(slots) < limit:
                if self._keys[slot] is not None:
                    slots.append(slot)
                slot -= 1
            return self._copy(slots)

    def holds(self, key: str, row: Embedding, expires: float) -> bool:
        """Whether the key's row is still this one."""
        with self._lock:
            slot = self._by_key().find(key, self._keys)
            return slot >= 0 and self._expires[slot] == expires and np.array_equal(self._row(slot), row)

    def rows(self) -> Moved:
        """Return a copy of all rows: keys, embeddings, expiries."""
        with self._lock:
            return self._all()

    def retire(self) -> Moved:
        """Return all rows for the last time: from now on `put` refuses, so that no row is lost in a move."""
        with self._lock:
            self._retired = True
            return self._all()

    def _all(self) -> Moved:
        live = np.array([key is not None for key in self._keys], dtype=bool)
        out = np.empty((self._count, self._dim), dtype=np.float32)
        first = 0
        for start, chunk in zip(range(0, len(live), CHUNK), self._chunks, strict=False):
            here = live[start : start + CHUNK]
            last = first + int(np.count_nonzero(here))
            out[first:last] = chunk[: len(here)] if last - first == len(here) else chunk[: len(here)][here]
            first = last
        return [key for key in self._keys if key is not None], out, self._expires[: len(live)][live]

    def _copy(self, slots: list[int]) -> Moved:
        out = np.empty((len(slots), self._dim), dtype=np.float32)
        for i, slot in enumerate(slots):
            out[i] = self._row(slot)
        keys = [key for slot in slots if (key := self._keys[slot]) is not None]
        return keys, out, self._expires[slots]

    def _row(self, slot: int) -> Embedding:
        row: Embedding = self._chunks[slot >> _SHIFT][slot & (CHUNK - 1)]
        return row

    def abandon(self) -> None:
        """Refuse further rows: nobody will search here again."""
        self._retired = True

    def stop(self) -> None:
        """Let nobody in: before a fork."""
        self._lock.acquire()

    def start(self) -> None:
        """Let everybody in again: after a fork, in the parent."""
        self._lock.release()

    def renew(self) -> None:
        """Make the lock anew: after a fork, in the child."""
        self._lock = Lock()

    def __len__(self) -> int:
        return self._count

    def memory_bytes(self) -> int:
        """Return what rows, keys and tables take, bytes."""
        rows = 0
        if self._chunks:
            rows = self._chunks[0].nbytes + (len(self._chunks) - 1) * CHUNK * self._dim * 4
        table = 0 if self._table is None else self._table.memory_bytes()
        return rows + self._expires.nbytes + table + 8 * len(self._keys) + self._key_bytes


def _scan(
    chunks: list[Embeddings], count: int, query: Embedding
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    scores = np.empty(count, dtype=np.float32)
    multiply = _by_rows if count > _UNCACHED else np.dot
    for start, chunk in zip(range(0, count, CHUNK), chunks, strict=False):
        stop = min(start + CHUNK, count)
        multiply(chunk[: stop - start], query, out=scores[start:stop])
    return scores
