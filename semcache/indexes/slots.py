"""The rows of all small scopes, side by side.

Slots are dense: a removed row's place is taken by the last row. Nothing here locks; `arena` does.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from semcache.indexes.rows import Moved, Scored, Times, grown, similarities, zeros
from semcache.types import Embedding, Embeddings

_CHUNK = 1024  # rows
_SHIFT = _CHUNK.bit_length() - 1
_STR = 49  # bytes of a str object beside its characters
_PLACE = 150  # bytes of the scope's dict entry and value


class Arena:
    """Rows of all small scopes, dense: slots 0 … n-1 are in use. The caller holds a lock."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.scopes: dict[str, int | array[int]] = {}  # one slot, or several
        self._chunks: list[Embeddings] = []
        self._keys: list[str] = []
        self._owners: list[str] = []
        self._expires: Times = np.full(64, -np.inf)
        self._used = np.zeros(64, dtype=np.int64)  # tick of the scope's last use, on its first slot
        self._text_bytes = 0

    def slots(self, scope: str) -> Sequence[int]:
        """Return the slots of a scope's rows."""
        held = self.scopes.get(scope)
        if held is None:
            return ()
        return (held,) if isinstance(held, int) else held

    def touch(self, scope: str, tick: int) -> None:
        """Note that the scope is in use."""
        slots = self.slots(scope)
        if slots:
            self._used[slots[0]] = tick

    def used(self, scope: str) -> int:
        """Return the tick of the scope's last use."""
        return int(self._used[self.slots(scope)[0]])

    def idle_scopes(self, count: int) -> list[tuple[int, str]]:
        """Return at least one and about `count` scopes that have been idle longest, with their ticks."""
        n = len(self._keys)
        if not n:
            return []
        count = min(count, n)
        slots = np.argpartition(self._used[:n], count - 1)[:count].tolist()
        return sorted((self.used(scope), scope) for scope in {self._owners[slot] for slot in slots})

    def row(self, slot: int) -> Embedding:
        """Return a view of one row, valid until the next change."""
        row: Embedding = self._chunks[slot >> _SHIFT][slot & (_CHUNK - 1)]
        return row

    def put(self, scope: str, key: str, row: Embedding, expires: float, tick: int) -> None:
        """Add or replace one row."""
        slots = self.slots(scope)
        slot = next((slot for slot in slots if self._keys[slot] == key), -1)
        if slot < 0:
            slot = self._append(scope, key)
            if not slots:
                self.scopes[scope] = slot
                self._text_bytes += len(scope) + _STR + _PLACE
            else:
                self.scopes[scope] = array("i", (*slots, slot))
        self.row(slot)[:] = row
        self._expires[slot] = expires
        self._used[slot] = tick

    def _append(self, scope: str, key: str) -> int:
        slot = len(self._keys)
        self._make_room(slot + 1)
        self._keys.append(key)
        self._owners.append(scope)
        self._text_bytes += len(key) + _STR
        return slot

    def _make_room(self, slots: int) -> None:
        if slots > len(self._expires):
            had = len(self._expires)
            self._expires = grown(self._expires, slots)
            self._used = np.concatenate([self._used, np.zeros(len(self._expires) - had, dtype=np.int64)])
        have, size = (len(self._chunks[0]), len(self._chunks[0])) if self._chunks else (0, 64)
        while size < min(slots, _CHUNK):
            size *= 2
        if size > have:
            bigger = np.zeros((size, self._dim), dtype=np.float32)
            if have:
                bigger[:have] = self._chunks[0]
            self._chunks[:1] = [bigger]
        while len(self._chunks) << _SHIFT < slots:
            self._chunks.append(zeros(_CHUNK, self._dim))

    def extend(
        self, scopes: Sequence[str], keys: Sequence[str], rows: Embeddings, expires: Times, tick: int
    ) -> None:
        """Add one row to each of many scopes, each of which is new and comes once."""
        start = len(self._keys)
        stop = start + len(keys)
        self._make_room(stop)
        at = start
        while at < stop:
            first = at & (_CHUNK - 1)
            count = min(stop - at, _CHUNK - first)
            self._chunks[at >> _SHIFT][first : first + count] = rows[at - start : at - start + count]
            at += count
        self._expires[start:stop] = expires
        self._used[start:stop] = tick
        self._keys += keys
        self._owners += scopes
        self.scopes.update(zip(scopes, range(start, stop), strict=True))
        texts = sum(map(len, keys)) + sum(map(len, scopes))
        self._text_bytes += texts + (2 * _STR + _PLACE) * len(keys)

    def remove(self, scope: str, key: str) -> bool:
        """Remove one row; the last row of the arena takes its place."""
        for slot in self.slots(scope):
            if self._keys[slot] == key:
                self._release(scope, slot)
                return True
        return False

    def _release(self, scope: str, slot: int) -> None:
        held = self.scopes[scope]
        if isinstance(held, int):
            del self.scopes[scope]
            self._text_bytes -= len(scope) + _STR + _PLACE
        else:
            left = array("i", (other for other in held if other != slot))
            self.scopes[scope] = left if len(left) > 1 else left[0]
        self._text_bytes -= len(self._keys[slot]) + _STR
        last = len(self._keys) - 1
        if slot != last:
            self._move(last, slot)
        self._keys.pop()
        self._owners.pop()
        if len(self._chunks) > 1 and last <= (len(self._chunks) - 2) << _SHIFT:
            self._chunks.pop()  # one spare chunk stays

    def _move(self, source: int, target: int) -> None:
        owner = self._owners[source]
        held = self.scopes[owner]
        if isinstance(held, int):
            self.scopes[owner] = target
        else:
            held[held.index(source)] = target
        self.row(target)[:] = self.row(source)
        self._keys[target], self._owners[target] = self._keys[source], owner
        self._expires[target], self._used[target] = self._expires[source], self._used[source]

    def drop(self, scope: str) -> int:
        """Remove a scope's rows. Returns how many."""
        keys = [self._keys[slot] for slot in self.slots(scope)]
        for key in keys:
            self.remove(scope, key)
        return len(keys)

    def copy(self, scope: str) -> Moved:
        """Return a copy of a scope's rows."""
        slots = list(self.slots(scope))
        rows = np.array([self.row(slot) for slot in slots], dtype=np.float32).reshape(-1, self._dim)
        return [self._keys[slot] for slot in slots], rows, self._expires[slots]

    def slice(self, start: int, stop: int) -> tuple[list[str], Moved]:
        """Return a copy of the rows in some slots, with their scopes."""
        stop = min(stop, len(self._keys))
        rows = np.array([self.row(slot) for slot in range(start, stop)], dtype=np.float32)
        moved = self._keys[start:stop], rows.reshape(-1, self._dim), self._expires[start:stop].copy()
        return self._owners[start:stop], moved

    def search(self, scope: str, query: Embedding, *, now: float, least: float) -> list[Scored]:
        """Return the scope's live rows; ghosts that are met are removed."""
        slots = self.slots(scope)
        ghosts = [self._keys[slot] for slot in slots if self._expires[slot] <= now]
        for key in ghosts:
            self.remove(scope, key)
        if ghosts:
            slots = self.slots(scope)
        if not slots:
            return []
        found = similarities([self.row(slot) for slot in slots], query.astype(np.float64))
        return [
            (-similarity, self._keys[slot])
            for similarity, slot in zip(found, slots, strict=True)
            if similarity >= least
        ]

    def expired(self, now: float, limit: int) -> list[tuple[str, str]]:
        """Return up to `limit` (scope, key) whose rows expired by `now`."""
        slots = np.nonzero(self._expires[: len(self._keys)] <= now)[0][:limit].tolist()
        return [(self._owners[slot], self._keys[slot]) for slot in slots]

    def __len__(self) -> int:
        return len(self._keys)

    def memory_bytes(self) -> int:
        """Return what rows, keys and places take, bytes; rows of the last chunk not yet used aren't there."""
        n = len(self._keys)
        tables = self._expires.nbytes + self._used.nbytes + 16 * n
        return n * self._dim * 4 + tables + self._text_bytes
