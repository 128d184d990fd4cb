"""The index to use: exact for small scopes, graphs for large ones, bounded in memory.

What lies where is decided in `arena`, how a large scope is searched in `hnsw`; this module decides
how much may lie there at all, runs the background thread and survives a fork.
"""

from __future__ import annotations

import json
import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from semcache.errors import ConfigurationError, UndecodableError
from semcache.indexes.arena import OWN_FROM, ArenaIndex
from semcache.indexes.builder import Builder
from semcache.indexes.hnsw import GRAPH_FROM, GraphRows
from semcache.indexes.persistence import check_header, load, save
from semcache.indexes.snapshot import SnapshotReader, writing
from semcache.protocols import Neighbour
from semcache.types import Embedding, Embeddings

_log = logging.getLogger(__name__)


class AdaptiveIndex:
    """A VectorIndex for scopes of any size.

    Args:
        dim: Length of an embedding.
        graph_from: Rows from which a scope gets a graph.
        own_from: Rows from which a scope leaves the shared arena.
        max_bytes: Memory from which the scopes idle for longest are dropped; None for no bound.
            A single scope may exceed it.
        on_drop: Called with each dropped scope, by the thread that added or the one that builds; the
            caller can rebuild the scope from the store when it is asked for again.
        clock: The time that expiries are compared with when nobody searches, seconds since the Unix epoch.
        reap_every: Seconds between two removals of all expired rows.
    """

    def __init__(
        self,
        dim: int,
        *,
        graph_from: int = GRAPH_FROM,
        own_from: int = OWN_FROM,
        max_bytes: int | None = None,
        on_drop: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
        reap_every: float = 30.0,
    ) -> None:
        for name, value in (("graph_from", graph_from), ("own_from", own_from), ("max_bytes", max_bytes)):
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigurationError(f"{name} is {value!r}, expected an int of 1 or more")
        if not reap_every > 0:
            raise ConfigurationError(f"reap_every is {reap_every!r}, expected seconds above 0")
        self._max_bytes = max_bytes
        self._on_drop = on_drop
        self._clock = clock
        this = weakref.ref(self)  # the thread must not keep the index alive
        builder = Builder(
            lambda: (index := this()) is not None and index._reap(),
            every=reap_every,
            rest=lambda: None if (index := this()) is None else index._hold_bound(recount=True),
        )
        self._builder = builder
        self._own_from = own_from
        self._make = lambda dim: GraphRows(dim, graph_from=graph_from, wake=builder.wake)
        self._rows = ArenaIndex(dim, own_from=own_from, make=self._make)
        self._close = weakref.finalize(self, builder.stop)
        _living.add(self)

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self._rows.dim

    def add(
        self, scope: str, keys: Sequence[str], embeddings: Embeddings, expires_at: Sequence[float | None]
    ) -> None:
        """Add or replace rows; they are searchable when this returns."""
        self._rows.add(scope, keys, embeddings, expires_at)
        if any(expiry is not None for expiry in expires_at):
            self._builder.wake()
        self._hold_bound(recount=False)

    def _hold_bound(self, *, recount: bool) -> None:
        if self._max_bytes is not None and self._rows.exceeds(self._max_bytes, recount=recount):
            for dropped in self._rows.drop_idle(self._max_bytes * 9 // 10):
                if self._on_drop is not None:
                    self._on_drop(dropped)

    def remove(self, scope: str, keys: Sequence[str]) -> int:
        """Remove rows; unknown keys are ignored. Returns how many were removed."""
        return self._rows.remove(scope, keys)

    def search(
        self, scope: str, embedding: Embedding, k: int, *, now: float, least: float = -1.0
    ) -> list[Neighbour]:
        """Return up to k live rows of the scope in descending order of similarity, ties by key."""
        return self._rows.search(scope, embedding, k, now=now, least=least)

    def expire(self, now: float) -> int:
        """Remove the rows that expired by `now`, met or not. Returns how many."""
        return self._rows.expire(now)

    def _reap(self) -> bool:
        self.expire(self._clock())
        return True

    def count(self, scope: str) -> int:
        """Return how many rows the scope has."""
        return self._rows.count(scope)

    def drop_scope(self, scope: str) -> None:
        """Forget a scope's rows."""
        self._rows.drop_scope(scope)

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()

    def scopes(self) -> list[str]:
        """Return the scopes that have rows."""
        return self._rows.scopes()

    def memory_bytes(self) -> int:
        """Return the memory that rows and graphs take, bytes."""
        return self._rows.memory_bytes()

    def snapshot(
        self, path: str | os.PathLike[str], meta: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    ) -> None:
        """Write rows and graphs to a file, which takes the place of an older one whole or not at all.

        Rows added meanwhile may be left out: a position in a log that belongs in `meta` is the one
        before this call. Copying a graph stops other Python threads, for about 0.1 s at 100,000 rows.

        Args:
            meta: JSON values that `restore` returns: encoder fingerprint, epoch, position … A function is
                called after the rows were written; what it raises leaves an older file as it was.

        Raises:
            ConfigurationError: `meta` isn't a mapping of JSON values.
            OSError: The file can't be written.
        """
        with writing(Path(path)) as writer:
            save(self._rows, writer, lambda: _checked_meta(meta() if callable(meta) else meta))

    def restore(
        self, path: str | os.PathLike[str], *, expected: Mapping[str, object] | None = None
    ) -> dict[str, Any] | None:
        """Take rows and graphs from a file instead of those that are here; before other threads come.

        A file that is cut, damaged, forged, of another version or for another dim is refused before
        hnswlib sees it: the reason is logged, and nothing changes. Rows of large scopes are searched where the
        file is mapped until the background thread has copied them: nobody may write into the file meanwhile.

        Args:
            expected: Meta data that the file must have, e.g. the encoder's fingerprint; checked first.

        Returns:
            The file's meta data; None if there is no file, or it was refused.
        """
        fresh = ArenaIndex(self.dim, own_from=self._own_from, make=self._make)
        try:
            with open(path, "rb") as file, SnapshotReader(file) as reader:
                meta = check_header(reader, self.dim)
                for name, value in (expected or {}).items():
                    if meta.get(name) != value:
                        _log.info("the index file %s is not used: its %s is another", path, name)
                        return None
                load(reader, fresh, self._make)
        except FileNotFoundError:
            return None
        except (OSError, UndecodableError, ConfigurationError) as error:
            _log.warning("the index file %s is not used: %s", path, error)
            return None
        except (ValueError, TypeError, LookupError, RecursionError) as error:  # not what we write
            _log.warning("the index file %s is not used: its content is malformed: %r", path, error)
            return None
        self._rows.clear()
        self._rows = fresh
        for _, own in fresh.owned():
            if isinstance(own, GraphRows) and own.work_waits():
                self._builder.wake(own)
        return meta

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until no graph is left to build, at most `timeout` seconds. Returns whether that is so."""
        return self._builder.settle(timeout)

    def close(self) -> None:
        """End the background thread; rows stay searchable."""
        self._close()

    def _before_fork(self) -> None:
        self._rows.stop()

    def _after_fork_in_parent(self) -> None:
        self._rows.start()

    def _after_fork_in_child(self) -> None:
        self._rows.renew()
        self._builder.renew()


def _checked_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(dict(meta))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"meta holds what JSON can't: {error}") from error
    return dict(meta)


_living: weakref.WeakSet[AdaptiveIndex] = weakref.WeakSet()
_forking: list[AdaptiveIndex] = []


def _before_fork() -> None:
    _forking[:] = list(_living)
    for index in _forking:
        index._before_fork()


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop()._after_fork_in_parent()


def _after_fork_in_child() -> None:
    while _forking:
        _forking.pop()._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
