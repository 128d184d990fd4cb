"""A graph as it lies in a file: its rows are searched one by one until hnswlib has taken it over.

hnswlib copies a graph into memory of its own, and holds every Python thread up meanwhile: a third of a second
at 100,000 rows. A process that starts needn't wait for that. Like the lock, what moves where is `hnsw`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from semcache.indexes.flat import FlatRows
from semcache.indexes.graph import Graph
from semcache.indexes.integrity import LINK_BYTES, State, labels_of, rows_of
from semcache.indexes.rows import Moved, Scored
from semcache.types import Embedding


class SleepingGraph:
    """Rows of a checked state of a graph. Nothing is added here any more."""

    def __init__(self, dim: int, state: State) -> None:
        self._dim = dim
        self._state = state
        self._removed: list[str] = []
        level0 = state["level0"].reshape(len(state["keys"]), -1)
        places = labels_of(level0, dim).astype(np.intp)  # label by place; labels are the places, as a rule
        keys, expires = state["keys"].copy(), state["expires"].copy()
        if (places != np.arange(len(places))).any():
            keys, expires = [keys[label] for label in places.tolist()], expires[places]
        self._rows = FlatRows(dim)
        self._rows.fill(keys, rows_of(level0, dim), expires)

    def wake(self) -> Graph:
        """Return the graph; what is removed from now on must be removed from it as well: see `removed`."""
        return Graph.from_checked(self._dim, self._state)

    @property
    def removed(self) -> list[str]:
        """Keys that were removed here, ghosts that a search met apart."""
        return self._removed

    def search(self, query: Embedding, k: int, *, now: float, least: float) -> list[Scored]:
        """Return at least the k best live rows, unordered."""
        return self._rows.search(query, k, now=now, least=least)

    def remove(self, keys: Sequence[str]) -> int:
        """Remove rows; unknown keys are ignored. Returns how many were removed."""
        removed = self._rows.remove(keys)
        if removed:
            self._removed += keys
        return removed

    def expire(self, now: float) -> int:
        """Remove the rows that expired by `now`. Returns how many."""
        return self._rows.expire(now)

    def rows(self) -> Moved:
        """Return a copy of all rows: keys, embeddings, expiries."""
        return self._rows.rows()

    def __len__(self) -> int:
        return len(self._rows)

    def memory_bytes(self) -> int:
        """Return what rows, links, keys and tables take, bytes."""
        return self._rows.memory_bytes() + len(self._state["keys"]) * LINK_BYTES

    def stop(self) -> None:
        """Let nobody in: before a fork."""
        self._rows.stop()

    def start(self) -> None:
        """Let everybody in again: after a fork, in the parent."""
        self._rows.start()

    def renew(self) -> None:
        """Make the lock anew: after a fork, in the child."""
        self._rows.renew()
