"""Exact search for scopes of any number: small ones share an arena, larger ones have rows of their own.

Most scopes are tiny. One array, one lock and one dict for each of them would cost more than the
rows, so their rows lie side by side in one dense arena: removing a row moves the last one into its
place, under the lock that searches hold as well. A scope that outgrows `own_from` rows moves to
rows of its own (`FlatRows`, or whatever `make` makes), where searching holds no lock.

How much memory is too much, and graphs, are `adaptive`'s business.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol, TypeAlias

import numpy as np

from semcache.indexes.flat import FlatRows
from semcache.indexes.rows import (
    Scored,
    Times,
    check_dim,
    check_query,
    check_rows,
    grown,
    neighbours,
    similarities,
)
from semcache.protocols import Neighbour
from semcache.types import Embedding, Embeddings

OWN_FROM = 32
"""Rows from which a scope has storage of its own."""

_CHUNK = 1024  # rows
_SHIFT = _CHUNK.bit_length() - 1
_SLICE = 64  # rows written before the lock is given up for a moment
_STR = 49  # bytes of a str object beside its characters
_PLACE = 150  # bytes of the scope's dict entry and value

Moved: TypeAlias = tuple[list[str], Embeddings, Times]  # keys, rows, expiries


class ScopeRows(Protocol):
    """The rows of one large scope; safe to call from many threads."""

    def put(self, keys: Sequence[str], rows: Embeddings, expires: Times) -> bool: ...
    def remove(self, keys: Sequence[str]) -> int: ...
    def search(self, query: Embedding, k: int, *, now: float, least: float) -> list[Scored]: ...
    def expire(self, now: float) -> int: ...
    def rows(self) -> Moved: ...
    def retire(self) -> Moved: ...
    def __len__(self) -> int: ...
    def memory_bytes(self) -> int: ...


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
        self._used = np.zeros(64, dtype=np.uint32)  # tick of the scope's last use, on its first slot
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
        if slot == len(self._expires):
            self._expires = grown(self._expires, slot + 1)
            self._used = np.concatenate([self._used, np.zeros(len(self._expires) - slot, dtype=np.uint32)])
        if slot >> _SHIFT == len(self._chunks):
            self._chunks.append(np.zeros((_CHUNK if slot else 64, self._dim), dtype=np.float32))
        elif slot < _CHUNK and slot == len(self._chunks[0]):
            bigger = np.zeros((2 * slot, self._dim), dtype=np.float32)
            bigger[:slot] = self._chunks[0]
            self._chunks[0] = bigger
        self._keys.append(key)
        self._owners.append(scope)
        self._text_bytes += len(key) + _STR
        return slot

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
        found = similarities([self.row(slot) for slot in slots], query.astype(np.float64)).tolist()
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


class ArenaIndex:
    """A VectorIndex that is always exact.

    Args:
        dim: Length of an embedding.
        own_from: Rows from which a scope has storage of its own.
        make: Makes that storage from the dim; `FlatRows` by default.
    """

    def __init__(
        self, dim: int, *, own_from: int = OWN_FROM, make: Callable[[int], ScopeRows] = FlatRows
    ) -> None:
        self.dim = check_dim(dim)
        self._own_from = own_from
        self._make = make
        self._lock = Lock()
        self._arena = Arena(dim)
        self._own: dict[str, ScopeRows] = {}
        self._own_used: dict[str, int] = {}
        self._tick = 0

    def add(
        self, scope: str, keys: Sequence[str], embeddings: Embeddings, expires_at: Sequence[float | None]
    ) -> None:
        """Add or replace rows; they are searchable when this returns."""
        rows, expires = check_rows(self.dim, keys, embeddings, expires_at)
        start = 0
        while start < len(keys):
            with self._lock:
                own = self._own.get(scope)
                if own is None:
                    stop = min(start + _SLICE, len(keys))
                    start = self._add_small(scope, keys, rows, expires, start, stop)
                else:
                    self._own_used[scope] = self._next_tick()
            if own is not None and own.put(keys[start:], rows[start:], expires[start:]):
                return  # False: the scope moved just now; look again

    def _add_small(
        self, scope: str, keys: Sequence[str], rows: Embeddings, expires: Times, start: int, stop: int
    ) -> int:
        tick = self._next_tick()
        for i in range(start, stop):
            self._arena.put(scope, keys[i], rows[i], float(expires[i]), tick)
            if len(self._arena.slots(scope)) > self._own_from:
                self._give_own(scope, tick)
                return i + 1
        return stop

    def _give_own(self, scope: str, tick: int) -> None:
        own = self._make(self.dim)
        own.put(*self._arena.copy(scope))
        self._own[scope] = own
        self._own_used[scope] = tick
        self._arena.drop(scope)

    def _take_back(self, scope: str, own: ScopeRows) -> None:
        """Move a scope that shrank back into the arena; the lock is held."""
        if self._own.get(scope) is not own or len(own) > self._own_from // 2:
            return
        tick = self._own_used[scope]
        self._forget_own(scope)
        for key, row, expires in zip(*own.retire(), strict=True):
            self._arena.put(scope, key, row, float(expires), tick)

    def _forget_own(self, scope: str) -> None:
        del self._own[scope]
        del self._own_used[scope]

    def _next_tick(self) -> int:
        self._tick = (self._tick + 1) & 0xFFFFFFFF
        return self._tick

    def remove(self, scope: str, keys: Sequence[str]) -> int:
        """Remove rows; unknown keys are ignored. Returns how many were removed."""
        with self._lock:
            own = self._own.get(scope)
            if own is None:
                return sum(self._arena.remove(scope, key) for key in keys)
            removed = own.remove(keys)
            self._take_back(scope, own)
            return removed

    def search(
        self, scope: str, embedding: Embedding, k: int, *, now: float, least: float = -1.0
    ) -> list[Neighbour]:
        """Return up to k live rows of the scope in descending order of similarity, ties by key."""
        query = check_query(self.dim, embedding, k)
        if k == 0:
            return []
        with self._lock:
            own = self._own.get(scope)
            if own is None:
                self._arena.touch(scope, self._next_tick())
                return neighbours(self._arena.search(scope, query, now=now, least=least), k)
            self._own_used[scope] = self._next_tick()
        return neighbours(own.search(query, k, now=now, least=least), k)

    def expire(self, now: float) -> int:
        """Remove the rows that expired by `now`, met or not. Returns how many."""
        removed = 0
        while True:
            with self._lock:
                gone = self._arena.expired(now, _SLICE)
                removed += sum(self._arena.remove(scope, key) for scope, key in gone)
            if not gone:
                break
        for scope, own in self._owned():
            gone_here = own.expire(now)
            removed += gone_here
            if gone_here:
                with self._lock:
                    self._take_back(scope, own)
        return removed

    def _owned(self) -> list[tuple[str, ScopeRows]]:
        with self._lock:
            return list(self._own.items())

    def count(self, scope: str) -> int:
        """Return how many rows the scope has."""
        with self._lock:
            own = self._own.get(scope)
            return len(self._arena.slots(scope)) if own is None else len(own)

    def drop_scope(self, scope: str) -> None:
        """Forget a scope's rows."""
        with self._lock:
            self._drop(scope)

    def _drop(self, scope: str) -> None:
        if scope in self._own:
            self._forget_own(scope)
        else:
            self._arena.drop(scope)

    def drop_idle(self, spare: int) -> list[str]:
        """Forget the scopes idle for longest until at most `spare` bytes are in use; returns them.

        The scope that was used last stays.
        """
        dropped: list[str] = []
        with self._lock:
            while (over := self._memory_bytes() - spare) > 0:
                row_bytes = (
                    self._memory_bytes() // max(1, len(self._arena)) if not self._own else 4 * self.dim
                )
                idle = self._arena.idle_scopes(1 + over // row_bytes)
                idle += [(tick, scope) for scope, tick in self._own_used.items()]
                if len(idle) < 2:
                    break
                for _, scope in sorted(idle)[:-1]:
                    self._drop(scope)
                    dropped.append(scope)
                    if self._memory_bytes() <= spare:
                        break
        return dropped

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._arena.clear()
            self._own.clear()
            self._own_used.clear()

    def scopes(self) -> list[str]:
        """Return the scopes that have rows."""
        with self._lock:
            return [*self._arena.scopes, *(scope for scope, own in self._own.items() if len(own))]

    def rows(self, scope: str) -> Moved:
        """Return a copy of a scope's rows: keys, embeddings, expiries (infinity for never)."""
        with self._lock:
            own = self._own.get(scope)
            return self._arena.copy(scope) if own is None else own.rows()

    def memory_bytes(self) -> int:
        """Return the memory that rows and their tables take, bytes."""
        with self._lock:
            return self._memory_bytes()

    def _memory_bytes(self) -> int:
        return self._arena.memory_bytes() + sum(own.memory_bytes() for own in self._own.values())
