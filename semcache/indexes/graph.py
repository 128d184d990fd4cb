"""One hnswlib graph with its keys: what must be true before each native call, and the call.

hnswlib overruns its heap for a query of another dimension, dies when searched while it is resized,
and loads damaged data without a word. So shapes are checked before a row comes here, changes and
searches take turns at a gate, and nothing but `state` and `from_state` (which checks every link)
moves a graph in or out.

A label is given out once and never again: a search that still holds it meets its own key or none.
Removed rows are marked, and the room is won back when `hnsw` moves the rest to a new graph; writing a
row over a marked one (hnswlib's `replace_deleted`) costs nine times an insertion and the gate with it.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from semcache.errors import ConfigurationError
from semcache.indexes.gate import Gate
from semcache.indexes.integrity import LINK_BYTES, M, State, check_state, labels_of
from semcache.indexes.rows import KeyTable, Moved, Scored, Times, cosine, grown
from semcache.types import Embedding, Embeddings

EF_CONSTRUCTION = 200
EF = 64  # hnswlib's own default is 10 and isn't saved with a graph
EF_LARGE = 96  # recall@1 of 100,000 questions: 0.990 with 64, 0.995 with 96
LARGE = 32_768  # rows

_SPARE = 8  # more rows than asked for, so that a few ghosts don't cost a second search
_TIES = 1024  # rows fetched at most to settle a tie at the k-th place
_HOLD = 0.001  # seconds a change may hold the gate, if a single row doesn't take longer
_STR = 49  # bytes of a str object beside its characters
_LOOKUP = 50  # bytes of a row's place in the label table, and its share of the upper levels
_PLACE = 54  # bytes of a row's mutex, level, pointer and visit mark, used or not


class Graph:
    """Rows of one scope in an hnswlib graph.

    Searching is for any thread, removing as well; `insert`, `adopt`, `mark` and `reserve` are for
    the one thread that builds.
    """

    def __init__(self, dim: int, capacity: int) -> None:
        self._dim = dim
        self._native = _new_native(dim)
        self._native.init_index(capacity, ef_construction=EF_CONSTRUCTION, M=M)
        self._prepare([], np.full(64, -np.inf), capacity)

    def _prepare(self, keys: list[str | None], expires: Times, capacity: int) -> None:
        self._gate = Gate()
        self._lock = Lock()
        self._keys = keys
        self._expires = expires
        self._table = KeyTable.of(keys)
        self._prints = array("q", bytes(8 * len(keys)))  # by label; 0 for not known
        self._key_bytes = sum(map(len, filter(None, keys))) + _STR * len(self._table)
        self._to_mark: list[int] = []
        self._marked = 0
        self._cursor = 0
        self._row_seconds = 0.0
        self._native.set_ef(ef_for(len(keys)))
        self.capacity = capacity

    def __len__(self) -> int:
        return len(self._table)

    @property
    def used(self) -> int:
        """Rows that take room, removed ones included."""
        return len(self._keys)

    @property
    def garbage(self) -> int:
        """Removed rows that still take room."""
        return len(self._keys) - len(self._table)

    def search(self, query: Embedding, k: int, *, now: float, least: float) -> list[Scored]:
        """Return the k best live rows as far as the graph finds them, perhaps more, unordered.

        Ghosts that are met are removed; if fewer than k rows are left, twice as many are asked for.
        """
        want = k + _SPARE
        while len(self._table):
            labels, cosines = self._query(query, want)
            found, ghosts = self._judge(labels, cosines, now, least)
            if ghosts:
                self.remove(ghosts)
            if len(labels) < want or cosines[-1] < least:
                return found  # there is no more, or nothing that counts
            if len(found) >= k and (want >= _TIES or -cosines[-1] > sorted(found)[k - 1][0]):
                return found
            want *= 2
        return []

    def _query(self, query: Embedding, want: int) -> tuple[list[int], list[float]]:
        def run() -> tuple[list[int], list[float]]:
            n = min(want, self._native.get_current_count() - self._marked)
            while n > 0:
                try:
                    labels, distances = self._native.knn_query(query, k=n, num_threads=1)
                except RuntimeError:  # fewer than n rows can be reached
                    n //= 2
                else:
                    return labels[0].tolist(), distances[0].tolist()
            return [], []

        labels, distances = self._gate.search(run)
        return labels, [cosine(1.0 - distance) for distance in distances]

    def _judge(
        self, labels: list[int], cosines: list[float], now: float, least: float
    ) -> tuple[list[Scored], list[str]]:
        found: list[Scored] = []
        ghosts: list[str] = []
        for label, similarity in zip(labels, cosines, strict=True):
            key = self._keys[label]
            if key is None:
                continue
            if self._expires[label] <= now:
                ghosts.append(key)
            elif similarity >= least:
                found.append((-similarity, key))
        return found, ghosts

    def reserve(self, rows: int) -> None:
        """Make room for so many more rows; searches wait for some milliseconds."""
        need = len(self._keys) + rows
        if need > self.capacity:
            capacity = max(need, self.capacity * 3 // 2)
            self._gate.change(lambda: self._native.resize_index(capacity))
            self.capacity = capacity

    def insert(self, rows: Embeddings) -> range:
        """Insert checked rows that nobody can find yet; returns their labels for `adopt` or `discard`.

        Searches are let in between about every millisecond's worth of rows.
        """
        _check_shape(rows, self._dim)
        self.reserve(len(rows))
        labels = range(len(self._keys), len(self._keys) + len(rows))
        with self._lock:
            if labels.stop > len(self._expires):
                self._expires = grown(self._expires, labels.stop)
            self._keys.extend([None] * len(rows))
            self._prints.extend([0] * len(rows))
        done = 0
        while done < len(rows):
            part = rows[done : done + self._at_once()]
            self._gate.change(partial(self._insert, part, labels.start + done))
            done += len(part)
        return labels

    def _at_once(self) -> int:
        """Return how many rows to insert while searches wait."""
        return max(1, min(64, int(_HOLD / self._row_seconds))) if self._row_seconds else 8

    def _insert(self, rows: Embeddings, first: int) -> None:
        start = time.perf_counter()
        self._native.add_items(rows, np.arange(first, first + len(rows)), num_threads=1)
        self._native.set_ef(ef_for(first + len(rows)))
        seconds = (time.perf_counter() - start) / len(rows)
        self._row_seconds = 0.8 * (self._row_seconds or seconds) + 0.2 * seconds

    def adopt(self, label: int, key: str, row: Embedding, expires: float) -> None:
        """Give an inserted row its key: from now on it is found."""
        with self._lock:
            self._prints[label] = fingerprint(row)
            self._expires[label] = expires
            self._keys[label] = key
            self._table.insert(key, label, self._keys)
            self._key_bytes += len(key) + _STR

    def refresh(self, key: str, printed: int, expires: float) -> bool:
        """Set the key's expiry if its row has this fingerprint. Returns whether it has."""
        with self._lock:
            label = self._table.find(key, self._keys)
            if label < 0 or self._prints[label] != printed:
                return False
            self._expires[label] = expires
            return True

    def discard(self, label: int) -> None:
        """Forget an inserted row that was removed meanwhile."""
        with self._lock:
            self._to_mark.append(label)

    def holds(self, label: int, key: str) -> bool:
        """Whether the row at the label is still the key's."""
        return self._keys[label] == key

    def remove(self, keys: Sequence[str]) -> int:
        """Remove rows; unknown keys are ignored. Returns how many were removed."""
        removed = 0
        with self._lock:
            for key in keys:
                label = self._table.remove(key, self._keys)
                if label >= 0:
                    self._keys[label] = None
                    self._expires[label] = -np.inf
                    self._key_bytes -= len(key) + _STR
                    self._to_mark.append(label)
                    removed += 1
        return removed

    def expire(self, now: float, limit: int) -> int:
        """Remove up to `limit` rows that expired by `now`. Returns how many."""
        expires = self._expires[: len(self._keys)]
        gone = np.nonzero((expires <= now) & (expires > -np.inf))[0][:limit].tolist()
        return self.remove([key for label in gone if (key := self._keys[label]) is not None])

    @property
    def to_mark(self) -> int:
        """Removed rows that searches still walk into."""
        return len(self._to_mark)

    def mark(self) -> None:
        """Tell hnswlib about removed rows, so that they take no place among results."""
        with self._lock:
            labels, self._to_mark = self._to_mark, []

        def run() -> None:
            for label in labels:
                self._native.mark_deleted(label)
            self._marked += len(labels)

        self._gate.change(run)

    def next_rows(self, limit: int) -> tuple[list[int], list[str], Embeddings, Times]:
        """Return up to `limit` live rows, others at each call: labels, keys, rows, expiries."""
        labels: list[int] = []
        keys: list[str] = []
        with self._lock:
            while self._cursor < len(self._keys) and len(labels) < limit:
                key = self._keys[self._cursor]
                if key is not None:
                    labels.append(self._cursor)
                    keys.append(key)
                self._cursor += 1
            if not labels:
                self._cursor = 0  # what was left behind, after a failure, gets another turn
            expires = self._expires[labels]
        return labels, keys, self._get(labels), expires

    def rows(self) -> Moved:
        """Return a copy of all live rows: keys, embeddings, expiries."""
        with self._lock:
            labels = [label for label, key in enumerate(self._keys) if key is not None]
            keys = [key for key in self._keys if key is not None]
            expires = self._expires[labels]
        return keys, self._get(labels), expires

    def _get(self, labels: list[int]) -> Embeddings:
        if not labels:
            return np.empty((0, self._dim), dtype=np.float32)
        found: Embeddings = np.asarray(self._native.get_items(labels), dtype=np.float32)
        return found

    def state(self) -> State:
        """Return a copy of keys, rows and links; only while nothing is built."""
        with self._lock:
            keys, expires = self._keys.copy(), self._expires[: len(self._keys)].copy()
        native = self._native.__getstate__()[0]
        count = native["cur_element_count"]
        return {
            "keys": keys,
            "expires": expires,
            "max_level": native["max_level"],
            "enterpoint": native["enterpoint_node"],
            "level0": native["data_level0"].view(np.uint8),
            "levels": native["element_levels"][:count].astype(np.int32),
            "links": native["link_lists"].view(np.uint8),
        }

    @classmethod
    def from_state(cls, dim: int, state: State) -> Graph:
        """Make a graph from a state of unknown origin.

        Raises:
            ConfigurationError: A number in it would lead hnswlib astray.
        """
        check_state(dim, state)
        return cls.from_checked(dim, state)

    @classmethod
    def from_checked(cls, dim: int, state: State) -> Graph:
        """Make a graph from a state that was checked; holds up every Python thread while hnswlib copies it."""
        graph = cls.__new__(cls)
        graph._dim = dim
        count = len(state["keys"])
        capacity = max(64, count * 5 // 4)
        empty = _new_native(dim)
        empty.init_index(1, ef_construction=EF_CONSTRUCTION, M=M)
        level0 = state["level0"].reshape(count, -1)
        params = {
            **empty.__getstate__()[0],
            "ep_added": count > 0,
            "ef": ef_for(count),
            "max_elements": capacity,
            "cur_element_count": count,
            "max_level": int(state["max_level"]),
            "enterpoint_node": int(state["enterpoint"]),
            "has_deletions": True,
            "label_lookup_external": labels_of(level0, dim),
            "label_lookup_internal": np.arange(count, dtype=np.uint32),
            "element_levels": state["levels"],
            "data_level0": level0.reshape(-1).view(np.int8),
            "link_lists": state["links"].view(np.int8),
        }
        graph._native = _new_native_from(params)
        graph._prepare(state["keys"], grown(state["expires"], count + 1), capacity)
        marked = (level0[:, 2] & 1).astype(bool)  # by place, not by label
        graph._marked = int(np.count_nonzero(marked))
        unmarked = labels_of(level0, dim)[~marked].tolist()
        graph._to_mark = [label for label in unmarked if graph._keys[label] is None]
        return graph

    def stop(self) -> None:
        """Wait until no native call is under way, and let nobody in: before a fork."""
        self._gate.begin_change()
        self._lock.acquire()

    def start(self) -> None:
        """Let everybody in again: after a fork, in the parent."""
        self._lock.release()
        self._gate.end_change()

    def renew(self) -> None:
        """Make lock and gate anew: after a fork, in the child, where no search is under way."""
        self._lock = Lock()
        self._gate = Gate()

    def memory_bytes(self) -> int:
        """Return what rows, links, keys and tables take, bytes; room never used isn't there."""
        row = 4 * self._dim + LINK_BYTES + _LOOKUP + 16  # the last for key and fingerprint
        tables = self._expires.nbytes + self._table.memory_bytes()
        return len(self._keys) * row + self.capacity * _PLACE + tables + self._key_bytes


def fingerprint(row: Embedding) -> int:
    """Return a number that no other row has, as far as this process can meet; never 0."""
    return hash(row.tobytes()) or 1


def ef_for(rows: int) -> int:
    """Return the length of hnswlib's list of candidates for a graph of so many rows."""
    return EF_LARGE if rows > LARGE else EF


def _check_shape(rows: Embeddings, dim: int) -> None:
    if rows.ndim != 2 or rows.shape[1] != dim or rows.dtype != np.float32 or not len(rows):
        raise ConfigurationError(f"rows are {rows.dtype}{rows.shape}, expected float32 (n, {dim})")


def _new_native(dim: int) -> Any:
    import hnswlib

    return hnswlib.Index(space="ip", dim=dim)


def _new_native_from(params: State) -> Any:
    import hnswlib

    return hnswlib.Index(params=params)
