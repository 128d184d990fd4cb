"""The feature cache: what is known of users and things, kept beside the answers, for segments and the like.

A feature is a JSON value under entity, id, name and version. Reads fail open: what can't be read is missing. Writes
and invalidations raise unless the store acknowledged them. A local copy is at most `local_bound` seconds
old; other processes hear of writes and invalidations through a stream, and drop theirs at once.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Self, TypeVar

from semcache.errors import ConfigurationError, StoreUnavailableError
from semcache.featuring import Featuring, Found, Values
from semcache.opening import Opened, open_store
from semcache.policy import Policy
from semcache.steps import Steps, drive, drive_async
from semcache.types import JsonValue

log = logging.getLogger(__name__)

T = TypeVar("T")
_BLOCK = 1.0  # seconds that one read of the stream waits
_PAUSE = 0.5  # seconds between attempts while the store is away


_open_ones: weakref.WeakSet[_Base] = weakref.WeakSet()


class _Base:
    """What both feature caches share."""

    def __init__(
        self, opened: Opened, *, namespace: str, ttl: float | None, local_bound: float, local_entries: int
    ) -> None:
        self._opened = opened
        self._core = Featuring(
            namespace, ttl=ttl, bound=local_bound, entries=local_entries, clock=time.monotonic
        )
        self._stop = threading.Event()
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        _open_ones.add(self)

    def _after_fork(self) -> None:
        self._core.renew()
        self._stop = threading.Event()
        self._thread = None

    def _follow(self) -> None:
        """Listen to the stream, where there are copies to drop and nobody listens in this process yet."""
        if self._core.bound <= 0 or (self._thread is not None and self._pid == os.getpid()):
            return
        with self._core.lock:
            if self._thread is None or self._pid != os.getpid():
                self._core.forget()
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._listen, name="semcache-features", daemon=True)
                self._thread.start()

    def _listen(self) -> None:
        store, position = self._opened.background, "$"
        while not self._stop.is_set():
            try:
                position = drive(self._core.hear(position, _BLOCK), store)
            except (StoreUnavailableError, TimeoutError) as error:
                log.debug("the stream of features can't be read: %s", error)
                self._core.forget()
                position = "$"
                self._stop.wait(_PAUSE)

    def _end(self) -> None:
        """Let the listening thread end, then release what it used."""
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join(_BLOCK + 1.0)
        self._opened.background.close()
        self._opened.close()

    @property
    def failures(self) -> int:
        """Reads that the store didn't answer, and that were taken for misses."""
        return self._core.failures


def _open(target: Any, namespace: str, data_dir: Any, asynchronous: bool) -> Opened:
    if target == "memory://":
        raise ConfigurationError(
            "the feature cache is shared by processes; expected a Redis URL, a client or None, found memory://"
        )
    return open_store(
        target, namespace=namespace, policy=Policy(), data_dir=data_dir, asynchronous=asynchronous
    )


class FeatureCache(_Base):
    """Features for synchronous callers. Safe to use from many threads, and after a fork."""

    @classmethod
    def open(
        cls,
        target: Any = None,
        *,
        namespace: str = "default",
        ttl: float | None = 3600.0,
        local_bound: float = 1.0,
        local_entries: int = 10_000,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Open a feature cache; without a target, over the embedded server.

        Args:
            target: As for `SemanticCache.open`.
            ttl: Seconds that a feature lives, where put doesn't say; None for ever.
            local_bound: Seconds that a local copy may be served; 0 for no local copies.
            local_entries: Most local copies.

        Raises:
            ConfigurationError: Something can't be meant.
        """
        opened = _open(target, namespace, data_dir, asynchronous=False)
        return cls(opened, namespace=namespace, ttl=ttl, local_bound=local_bound, local_entries=local_entries)

    def _drive(self, steps: Steps[T]) -> T:
        self._follow()
        return drive(steps, self._opened.store)

    def get(self, entity: str, id: str, features: Collection[str], *, version: str = "1") -> Values:
        """Return those of one thing's features that are known."""
        return self.get_many(entity, [id], features, version=version).get(id, {})

    def get_many(
        self, entity: str, ids: Iterable[str], features: Collection[str], *, version: str = "1"
    ) -> dict[str, Values]:
        """Return by id those features that are known; ids of which nothing is known are left out. Never raises for the store's sake."""
        return self._drive(self._core.get(entity, list(ids), features, version)).values

    def put(
        self, entity: str, id: str, values: Values, *, version: str = "1", ttl: float | None = None
    ) -> None:
        """Store features of one thing.

        Raises:
            StoreUnavailableError: The store didn't acknowledge.
        """
        self.put_many(entity, {id: values}, version=version, ttl=ttl)

    def put_many(
        self, entity: str, values: Mapping[str, Values], *, version: str = "1", ttl: float | None = None
    ) -> None:
        """Store features of several things; other processes drop their copies.

        Raises:
            StoreUnavailableError: The store didn't acknowledge.
            InvalidRequestError: A value isn't JSON.
        """
        self._drive(self._core.put(entity, values, version, ttl, None))

    def write_through(
        self,
        entity: str,
        id: str,
        values: Values,
        save: Callable[[str, Values], object],
        *,
        version: str = "1",
        ttl: float | None = None,
    ) -> None:
        """Save to the source, then store. What `save` raises is raised, and nothing is stored.

        Features are invalidated before and stored after, so that nobody keeps what was true before.
        """
        self.invalidate(entity, [id], values.keys(), version=version)
        save(id, values)
        self.put(entity, id, values, version=version, ttl=ttl)

    def get_or_load(
        self,
        entity: str,
        ids: Iterable[str],
        features: Collection[str],
        load: Callable[[list[str]], Mapping[str, Values]],
        *,
        version: str = "1",
        ttl: float | None = None,
    ) -> dict[str, Values]:
        """Cache-aside: return features, loading for the ids of which one is missing and storing what was loaded.

        A feature that was invalidated while it was loaded is returned but not stored. What `load` raises is raised;
        a store that is away isn't: everything is loaded then.

        Args:
            load: Given the ids, returns their features; what it leaves out doesn't exist.
        """
        names = list(ids)
        found: Found = self._drive(self._core.get(entity, names, features, version))
        missing = found.missing(names, features)
        if not missing:
            return found.values
        loaded = load(missing)
        self._drive(self._core.fill(entity, loaded, version, ttl, found.fences))
        return found.with_loaded(loaded)

    def invalidate(
        self, entity: str, ids: Iterable[str], features: Collection[str], *, version: str = "1"
    ) -> None:
        """Drop features everywhere; what is being loaded right now isn't stored either.

        Raises:
            StoreUnavailableError: The store didn't acknowledge.
        """
        self._drive(self._core.invalidate(entity, list(ids), features, version))

    def close(self) -> None:
        """Release threads and connections."""
        self._stop.set()
        self._opened.store.close()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncFeatureCache(_Base):
    """Features for asynchronous callers: the same operations, awaited."""

    @classmethod
    async def open(
        cls,
        target: Any = None,
        *,
        namespace: str = "default",
        ttl: float | None = 3600.0,
        local_bound: float = 1.0,
        local_entries: int = 10_000,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Open a feature cache, as `FeatureCache.open` does."""
        import asyncio

        opened = await asyncio.to_thread(_open, target, namespace, data_dir, True)
        return cls(opened, namespace=namespace, ttl=ttl, local_bound=local_bound, local_entries=local_entries)

    async def _drive(self, steps: Steps[T]) -> T:
        self._follow()
        return await drive_async(steps, self._opened.store)

    async def get(self, entity: str, id: str, features: Collection[str], *, version: str = "1") -> Values:
        """Return those of one thing's features that are known."""
        return (await self.get_many(entity, [id], features, version=version)).get(id, {})

    async def get_many(
        self, entity: str, ids: Iterable[str], features: Collection[str], *, version: str = "1"
    ) -> dict[str, Values]:
        """Return by id those features that are known, as `FeatureCache.get_many` does."""
        return (await self._drive(self._core.get(entity, list(ids), features, version))).values

    async def put(
        self, entity: str, id: str, values: Values, *, version: str = "1", ttl: float | None = None
    ) -> None:
        """Store features of one thing, as `FeatureCache.put` does."""
        await self.put_many(entity, {id: values}, version=version, ttl=ttl)

    async def put_many(
        self, entity: str, values: Mapping[str, Values], *, version: str = "1", ttl: float | None = None
    ) -> None:
        """Store features of several things, as `FeatureCache.put_many` does."""
        await self._drive(self._core.put(entity, values, version, ttl, None))

    async def write_through(
        self,
        entity: str,
        id: str,
        values: Values,
        save: Callable[[str, Values], Awaitable[object]],
        *,
        version: str = "1",
        ttl: float | None = None,
    ) -> None:
        """Save to the source, then store, as `FeatureCache.write_through` does."""
        await self.invalidate(entity, [id], values.keys(), version=version)
        await save(id, values)
        await self.put(entity, id, values, version=version, ttl=ttl)

    async def get_or_load(
        self,
        entity: str,
        ids: Iterable[str],
        features: Collection[str],
        load: Callable[[list[str]], Awaitable[Mapping[str, Values]]],
        *,
        version: str = "1",
        ttl: float | None = None,
    ) -> dict[str, Values]:
        """Cache-aside, as `FeatureCache.get_or_load`."""
        names = list(ids)
        found: Found = await self._drive(self._core.get(entity, names, features, version))
        missing = found.missing(names, features)
        if not missing:
            return found.values
        loaded = await load(missing)
        await self._drive(self._core.fill(entity, loaded, version, ttl, found.fences))
        return found.with_loaded(loaded)

    async def invalidate(
        self, entity: str, ids: Iterable[str], features: Collection[str], *, version: str = "1"
    ) -> None:
        """Drop features everywhere, as `FeatureCache.invalidate` does."""
        await self._drive(self._core.invalidate(entity, list(ids), features, version))

    async def close(self) -> None:
        """Release threads and connections."""
        import asyncio

        self._stop.set()
        await self._opened.store.close()
        await asyncio.to_thread(self._end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _renew_after_fork() -> None:
    for one in list(_open_ones):
        one._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)

__all__ = ["AsyncFeatureCache", "FeatureCache", "JsonValue", "Values"]
