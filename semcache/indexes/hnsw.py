"""The rows of one large scope: a flat tail that is searchable at once, and graphs built behind it.

Growing never stops searching. New rows go to the tail. `build`, called by a background thread, moves
them to a young graph, where inserting is cheap, and from there to the large one; a row is found in
its old place until it can be found in the new one. Graphs with too much garbage are moved to new
ones the same way. What a graph does is `graph`'s business, what a tail does `flat`'s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

import numpy as np

from semcache.indexes.flat import FlatRows
from semcache.indexes.graph import Graph, fingerprint
from semcache.indexes.integrity import State
from semcache.indexes.rows import Moved, Scored, Times
from semcache.indexes.sleeping import SleepingGraph
from semcache.types import Embedding, Embeddings

GRAPH_FROM = 1024
"""Rows from which a scope gets a graph. Scanning costs as much as a graph's search at about 700 rows
(bench_index, 512 dimensions); a graph costs memory and time to build as well."""

YOUNG = 8192  # rows of a young graph; inserting into it is several times cheaper than into 100,000
TAIL = 512  # rows beside a graph from which the tail is moved
_REST = 64  # rows down to which it is moved then
_SLICE = 64  # rows per lock
_MOVED = 16  # rows moved at a time
_MAPPED = 33 << 20  # bytes; blocks of this size go back to the system once freed, glibc keeps smaller ones
_QUIET = 0.02  # seconds without a search after which rows move to the large graph
_RETRY = 60.0  # seconds after which building is tried again once it failed
_LULL = 0.25  # seconds after a start in which nothing is built: somebody waits for a first search
_PATIENCE = 2.0  # seconds after a start for which a graph sleeps on while searches keep coming
_ASLEEP_FROM = 8192  # rows of a scope whose graphs aren't copied before they are searched
_OWNED = 2  # chunks copied at a time

_log = logging.getLogger(__name__)


class _Place(Protocol):
    """Where rows are: the tail, or a graph."""

    def remove(self, keys: Sequence[str]) -> int: ...
    def rows(self) -> Moved: ...
    def __len__(self) -> int: ...
    def memory_bytes(self) -> int: ...
    def stop(self) -> None: ...
    def start(self) -> None: ...
    def renew(self) -> None: ...


class GraphRows:
    """Rows of one scope; see `arena.ScopeRows`.

    Args:
        dim: Length of an embedding.
        graph_from: Rows from which there is a graph; back below half of it there is none.
        young: Rows of a young graph.
        quiet: Seconds without a search for which moves to the large graph wait, while searches keep coming:
            each would make some of them wait for about as long as they take.
        wake: Called when there is something to build.
        make: Makes a graph of a dim and a capacity in rows.
    """

    def __init__(
        self,
        dim: int,
        *,
        graph_from: int = GRAPH_FROM,
        young: int = YOUNG,
        quiet: float = _QUIET,
        wake: Callable[[GraphRows], None] = lambda _: None,
        make: Callable[[int, int], Graph] = Graph,
    ) -> None:
        self._dim = dim
        self._graph_from = graph_from
        self._young = young
        self._quiet = quiet
        self._wake = wake
        self._make = make
        self._lock = Lock()  # puts, removals and the last step of a move
        self._building = Lock()  # one builder, or a snapshot
        self._tail = FlatRows(dim)
        self._graphs: tuple[Graph, ...] = ()  # in the order in which rows move and searches look
        self._sleeping: tuple[SleepingGraph, ...] = ()  # will be graphs, in their order
        self._returned = 0  # how often rows of a graph came back to the tail
        self._draining = False
        self._retired = False
        self._retry_at = 0.0  # monotonic seconds
        self._searched_at = 0.0  # monotonic seconds
        self._lull_until = 0.0  # monotonic seconds

    def _places(self) -> tuple[_Place, ...]:
        return (self._tail, *self._sleeping, *self._graphs)

    def put(self, keys: Sequence[str], rows: Embeddings, expires: Times) -> bool:
        """Add or replace checked rows. False, and nothing more done, if the scope moved elsewhere."""
        for start in range(0, len(keys), _SLICE):
            part = slice(start, start + _SLICE)
            with self._lock:
                if self._retired:
                    return False
                self._put(keys[part], rows[part], expires[part])
        if self.work_waits():
            self._wake(self)
        return True

    def _put(self, keys: Sequence[str], rows: Embeddings, expires: Times) -> None:
        graphs = self._graphs
        if graphs:  # what a graph has already, as after most puts of a text that expired, needs no new place
            new = [i for i, key in enumerate(keys) if not self._refresh(key, rows[i], float(expires[i]))]
            keys, rows, expires = [keys[i] for i in new], rows[new], expires[new]
        self._tail.put(keys, rows, expires)
        if sum(place.remove(keys) for place in self._places()[1:]):
            self._returned += 1

    def _refresh(self, key: str, row: Embedding, expires: float) -> bool:
        printed = fingerprint(row)
        return any(graph.refresh(key, printed, expires) for graph in self._graphs)

    def remove(self, keys: Sequence[str]) -> int:
        """Remove rows; unknown keys are ignored. Returns how many were removed."""
        with self._lock:
            removed = sum(place.remove(keys) for place in self._places())
        if removed and self.work_waits():
            self._wake(self)
        return removed

    def search(self, query: Embedding, k: int, *, now: float, least: float) -> list[Scored]:
        """Return at least the k best live rows, unordered; a row on its way may be there twice."""
        self._searched_at = time.monotonic()
        returned = self._returned
        found = self._tail.search(query, k, now=now, least=least)
        for sleeping in self._sleeping:  # before the graphs: rows are there before they leave here
            found += sleeping.search(query, k, now=now, least=least)
        looked: tuple[Graph, ...] = ()
        while (graphs := self._graphs) != looked:  # a graph that is new may have rows of the others
            for graph in graphs:
                if graph not in looked:
                    found += graph.search(query, k, now=now, least=least)
            looked = graphs
        if returned != self._returned:  # rows may have left a graph for the tail before they were met
            found += self._tail.search(query, k, now=now, least=least)
        return found

    def expire(self, now: float) -> int:
        """Remove the rows that expired by `now`. Returns how many."""
        removed = self._tail.expire(now) + sum(graph.expire(now) for graph in self._sleeping)
        for graph in self._graphs:
            while gone := graph.expire(now, _SLICE):
                removed += gone
        if removed and self.work_waits():
            self._wake(self)
        return removed

    def retire(self) -> Moved:
        """Return all rows for the last time: from now on `put` refuses, so that no row is lost in a move."""
        with self._building, self._lock:
            self._retired = True
            parts = [place.rows() for place in self._places()]
        keys = [key for part in parts for key in part[0]]
        return keys, np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])

    def abandon(self) -> None:
        """Refuse further rows: nobody will search here again."""
        self._retired = True

    def __len__(self) -> int:
        return sum(map(len, self._places()))

    def memory_bytes(self) -> int:
        """Return what tail and graphs take, bytes."""
        return sum(place.memory_bytes() for place in self._places())

    # --- building: one background thread ---

    def work_waits(self) -> bool:
        """Whether `build` has anything to do."""
        if self._retired or (self._retry_at and time.monotonic() < self._retry_at):
            return False
        if self._sleeping or self._tail.borrowed:
            return True
        graphs = self._graphs
        if not graphs:
            return len(self._tail) > self._graph_from
        if len(graphs) > 1 or graphs[0].to_mark >= _SLICE or self._worn(graphs[0]):
            return True
        return self._tail_waits() or len(self) < self._graph_from // 2

    def _tail_waits(self) -> bool:
        if not self._graphs:
            return len(self._tail) > self._graph_from
        return len(self._tail) > min(_REST if self._draining else TAIL, self._graph_from)

    @staticmethod
    def _worn(graph: Graph) -> bool:
        return graph.garbage > 64 and graph.garbage > len(graph) // 2

    def build(self) -> bool:
        """Do a small part of what there is to do. Returns whether it did, and more waits."""
        with self._building:
            if not self.work_waits() or time.monotonic() < self._lull_until:
                return False
            try:
                done = self._build()
            except (RuntimeError, MemoryError) as error:
                self._retry_at = time.monotonic() + _RETRY
                _log.error("building the graph of a scope of %d rows failed: %s", len(self), error)
                return False
            return done and self.work_waits()

    def _build(self) -> bool:
        if self._sleeping:
            return self._wake_up()
        if self._tail.borrowed:
            self._tail.own(_OWNED)
            return True
        for graph in self._graphs:
            if graph.to_mark >= _SLICE:
                graph.mark()
        self._graphs = tuple(graph for graph in self._graphs if len(graph) or graph is self._graphs[-1])
        if len(self) < self._graph_from // 2:
            self._flatten()
            return True
        self._draining = self._tail_waits()
        if self._draining:
            self._move_tail(self._graphs[0] if self._has_young() else self._add_young())
        elif self._graphs and self._worn(self._graphs[-1]):
            self._graphs = (*self._graphs, self._make(self._dim, max(64, len(self) * 5 // 4)))
        elif len(self._graphs) > 1:
            if self._better_later():
                return False
            self._move(self._graphs[0], self._graphs[-1])
        return True

    def _better_later(self) -> bool:
        """Whether moving rows to the large graph can wait for a moment without searches."""
        if len(self._graphs) > 3 or any(g.used > self._young and self._worn(g) for g in self._graphs):
            return False
        return self._searched_lately()

    def _wake_up(self, *, now: bool = False) -> bool:
        """Make the first of the sleeping graphs one; False if that can wait for a moment without searches."""
        patient = time.monotonic() < self._lull_until + _PATIENCE
        if not now and patient and self._searched_lately():
            return False
        sleeping = self._sleeping[0]
        graph = sleeping.wake()
        with self._lock:
            graph.remove(sleeping.removed)
            self._graphs = (*self._graphs, graph)
            self._sleeping = self._sleeping[1:]
        return True

    def _searched_lately(self) -> bool:
        return time.monotonic() - self._searched_at < self._quiet

    def _has_young(self) -> bool:
        return bool(self._graphs) and self._graphs[0].used < self._young

    def _add_young(self) -> Graph:
        capacity = min(self._young, max(64, len(self._tail) * 5 // 4))
        if self._graphs or capacity == self._young:
            capacity = max(capacity, _MAPPED // (4 * self._dim))
        graph = self._make(self._dim, capacity)
        self._graphs = (graph, *self._graphs)
        return graph

    def _move_tail(self, target: Graph) -> None:
        keys, rows, expires = self._tail.last(min(_MOVED, self._young - target.used))
        if not keys:
            return
        labels = target.insert(rows)
        with self._lock:
            for label, key, row, expiry in zip(labels, keys, rows, expires.tolist(), strict=True):
                if not self._retired and self._tail.holds(key, row, expiry):
                    target.adopt(label, key, row, expiry)
                    self._tail.remove([key])
                else:
                    target.discard(label)

    def _move(self, source: Graph, target: Graph) -> None:
        sources, keys, rows, expires = source.next_rows(_MOVED)
        if not keys:
            return
        labels = target.insert(rows)
        with self._lock:
            for old, label, key, row, expiry in zip(
                sources, labels, keys, rows, expires.tolist(), strict=True
            ):
                if not self._retired and source.holds(old, key):
                    target.adopt(label, key, row, expiry)
                    source.remove([key])
                else:
                    target.discard(label)

    def _flatten(self) -> None:
        """Move everything back to the tail: the scope has shrunk."""
        with self._lock:
            if self._retired:
                return
            for graph in self._graphs:
                self._tail.put(*graph.rows())
            self._graphs = ()
            self._returned += 1

    def state(self) -> State:
        """Return a copy of everything, for a snapshot; building waits meanwhile."""
        with self._building:
            while self._sleeping:
                self._wake_up(now=True)
            for graph in self._graphs:
                graph.mark()
            with self._lock:
                return {
                    "tail": self._tail.rows(),
                    "graphs": [graph.state() for graph in self._graphs if graph.used],
                }

    def restore(self, tail: Moved, graphs: Sequence[State]) -> None:
        """Take the place of what was there, in rows nobody knows yet: rows and states as they lie in a file."""
        keys, rows, expires = tail
        self._tail.fill(list(keys), rows, expires)
        self._sleeping = tuple(SleepingGraph(self._dim, state) for state in graphs)

    def restored(self) -> None:
        """Note that everything in the file was checked; what isn't large is made what it was at once."""
        while self._sleeping and len(self) < _ASLEEP_FROM:
            self._wake_up(now=True)
        if self._sleeping or self._tail.borrowed:
            self._lull_until = time.monotonic() + _LULL

    def stop(self) -> None:
        """Wait until nothing is under way, and let nobody in: before a fork."""
        self._building.acquire()
        self._lock.acquire()
        for place in self._places():
            place.stop()

    def start(self) -> None:
        """Let everybody in again: after a fork, in the parent."""
        for place in self._places():
            place.start()
        self._lock.release()
        self._building.release()

    def renew(self) -> None:
        """Make locks anew: after a fork, in the child."""
        self._lock = Lock()
        self._building = Lock()
        for place in self._places():
            place.renew()
