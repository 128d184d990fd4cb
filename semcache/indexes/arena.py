"""Exact search for scopes of any number: small ones share an arena, larger ones have rows of their own.

Most scopes are tiny. One array, one lock and one dict for each of them would cost more than the
rows, so their rows lie side by side in one dense arena: removing a row moves the last one into its
place, under the lock that searches hold as well. A scope that outgrows `own_from` rows moves to
rows of its own (`FlatRows`, or whatever `make` makes), where searching holds no lock.

How much memory is too much, and graphs, are `adaptive`'s business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Protocol

import numpy as np

from semcache.indexes.flat import FlatRows
from semcache.indexes.rows import (
    Moved,
    Scored,
    Times,
    check_dim,
    check_query,
    check_rows,
    neighbours,
)
from semcache.indexes.slots import Arena
from semcache.protocols import Neighbour
from semcache.types import Embedding, Embeddings

OWN_FROM = 32
"""Rows from which a scope has storage of its own."""

_SLICE = 64  # rows written before the lock is given up for a moment
_COPIED = 4096  # rows copied before the lock is given up for a moment
_GRAPH = 500  # bytes a row may take in a graph beside itself


class ScopeRows(Protocol):
    """The rows of one large scope; safe to call from many threads."""

    def put(self, keys: Sequence[str], rows: Embeddings, expires: Times) -> bool: ...
    def remove(self, keys: Sequence[str]) -> int: ...
    def search(self, query: Embedding, k: int, *, now: float, least: float) -> list[Scored]: ...
    def expire(self, now: float) -> int: ...
    def retire(self) -> Moved: ...
    def __len__(self) -> int: ...
    def memory_bytes(self) -> int: ...
    def abandon(self) -> None: ...
    def stop(self) -> None: ...
    def start(self) -> None: ...
    def renew(self) -> None: ...


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
        self._own_bytes = 0  # what they may take by now, at most
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
                    self._own_bytes += (len(keys) - start) * (4 * self.dim + _GRAPH)
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
        self._own_bytes += own.memory_bytes()
        self._arena.drop(scope)

    def _take_back(self, scope: str, own: ScopeRows) -> None:
        """Move a scope that shrank back into the arena; the lock is held."""
        if self._own.get(scope) is not own or len(own) > self._own_from // 2:
            return
        tick = self._own_used[scope]
        moved = own.retire()
        self._forget_own(scope)
        for key, row, expires in zip(*moved, strict=True):
            self._arena.put(scope, key, row, float(expires), tick)

    def _forget_own(self, scope: str) -> None:
        own = self._own.pop(scope)
        del self._own_used[scope]
        own.abandon()

    def _next_tick(self) -> int:
        self._tick += 1
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
        for scope, own in self.owned():
            gone_here = own.expire(now)
            removed += gone_here
            if gone_here:
                with self._lock:
                    self._take_back(scope, own)
        return removed

    def owned(self) -> list[tuple[str, ScopeRows]]:
        """Return the scopes that have rows of their own, and those."""
        with self._lock:
            return list(self._own.items())

    def slices(self) -> Iterator[tuple[list[str], Moved]]:
        """Yield copies of the arena's rows with their scopes, slice by slice, from the end.

        A removal moves a row to a slice that is still to come: none is missed, one may come twice.
        """
        with self._lock:
            stop = len(self._arena)
        while stop > 0:
            start = max(0, stop - _COPIED)
            with self._lock:
                found = self._arena.slice(start, stop)
            yield found
            stop = start

    def fill(self, owners: Sequence[str], moved: Moved) -> None:
        """Add checked rows of small scopes: what `slices` gave; while nobody else is here."""
        keys, rows, expires = moved
        times = Counter(owners)
        with self._lock:
            known = (self._arena.scopes, self._own)
            new = [owner not in known[0] and owner not in known[1] and times[owner] == 1 for owner in owners]
            alone = np.array(new, dtype=bool)
            for i in np.nonzero(~alone)[0].tolist():
                self._add_small(owners[i], keys, rows, expires, i, i + 1)
            at = np.nonzero(alone)[0].tolist()
            scopes, names = [owners[i] for i in at], [keys[i] for i in at]
            self._arena.extend(scopes, names, rows[alone], expires[alone], self._next_tick())

    def give(self, scope: str, own: ScopeRows) -> None:
        """Give a scope rows of its own that were made elsewhere."""
        with self._lock:
            self._arena.drop(scope)
            self._own[scope] = own
            self._own_used[scope] = self._next_tick()
            self._own_bytes += own.memory_bytes()

    def count(self, scope: str) -> int:
        """Return how many rows the scope has."""
        with self._lock:
            own = self._own.get(scope)
            return len(self._arena.slots(scope)) if own is None else len(own)

    def drop_scope(self, scope: str) -> None:
        """Forget a scope's rows."""
        with self._lock:
            self._drop(scope)

    def _drop(self, scope: str) -> int:
        """Forget a scope's rows; returns about how many bytes they took."""
        own = self._own.get(scope)
        if own is None:
            return self._arena.drop(scope) * 4 * self.dim
        self._forget_own(scope)
        return own.memory_bytes()

    def drop_idle(self, spare: int) -> list[str]:
        """Forget the scopes idle for longest until at most `spare` bytes are in use; returns them.

        The scope that was used last stays.
        """
        dropped: list[str] = []
        with self._lock:
            while (over := self._memory_bytes() - spare) > 0:
                idle = self._arena.idle_scopes(2 + over // (4 * self.dim))
                idle += [(tick, scope) for scope, tick in self._own_used.items()]
                if len(idle) < 2:
                    break
                for _, scope in sorted(idle)[:-1]:
                    over -= self._drop(scope)
                    dropped.append(scope)
                    if over <= 0:
                        break
        return dropped

    def exceeds(self, bound: int, *, recount: bool) -> bool:
        """Whether more than `bound` bytes are in use.

        Args:
            recount: Look at every scope, since graphs have grown; else only if it may be so.
        """
        with self._lock:
            if not recount and self._arena.memory_bytes() + self._own_bytes <= bound:
                return False
            self._own_bytes = sum(own.memory_bytes() for own in self._own.values())
            return self._arena.memory_bytes() + self._own_bytes > bound

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._arena.clear()
            for scope in list(self._own):
                self._forget_own(scope)
            self._own_bytes = 0

    def scopes(self) -> list[str]:
        """Return the scopes that have rows."""
        with self._lock:
            return [*self._arena.scopes, *(scope for scope, own in self._own.items() if len(own))]

    def memory_bytes(self) -> int:
        """Return the memory that rows and their tables take, bytes."""
        with self._lock:
            return self._memory_bytes()

    def _memory_bytes(self) -> int:
        return self._arena.memory_bytes() + sum(own.memory_bytes() for own in self._own.values())

    def stop(self) -> None:
        """Let nobody in: before a fork."""
        self._lock.acquire()
        for own in self._own.values():
            own.stop()

    def start(self) -> None:
        """Let everybody in again: after a fork, in the parent."""
        for own in self._own.values():
            own.start()
        self._lock.release()

    def renew(self) -> None:
        """Make locks anew: after a fork, in the child, where those who wait for them are gone."""
        self._lock = Lock()
        for own in self._own.values():
            own.renew()
