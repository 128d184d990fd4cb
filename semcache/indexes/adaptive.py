"""The index to use: exact for small scopes, bounded in memory.

What lies where is decided in `arena`; this module decides how much may lie there at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from semcache.errors import ConfigurationError
from semcache.indexes.arena import ArenaIndex
from semcache.protocols import Neighbour
from semcache.types import Embedding, Embeddings


class AdaptiveIndex:
    """A VectorIndex for scopes of any size.

    Args:
        dim: Length of an embedding.
        max_bytes: Memory from which the scopes that were idle for longest are dropped; None for no bound.
        on_drop: Called with each dropped scope, from the thread that added; the caller can rebuild
            the scope from the store when it is asked for again.
    """

    def __init__(
        self, dim: int, *, max_bytes: int | None = None, on_drop: Callable[[str], None] | None = None
    ) -> None:
        if max_bytes is not None and (type(max_bytes) is not int or max_bytes < 1):
            raise ConfigurationError(f"max_bytes is {max_bytes!r}, expected an int of 1 or more, or None")
        self._rows = ArenaIndex(dim)
        self._max_bytes = max_bytes
        self._on_drop = on_drop

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self._rows.dim

    def add(
        self, scope: str, keys: Sequence[str], embeddings: Embeddings, expires_at: Sequence[float | None]
    ) -> None:
        """Add or replace rows; they are searchable when this returns."""
        self._rows.add(scope, keys, embeddings, expires_at)
        if self._max_bytes is not None and self._rows.memory_bytes() > self._max_bytes:
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
