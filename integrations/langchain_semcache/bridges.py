"""One cache where two are needed: the sync one for awaiting callers, the async one for blocking callers.

Neither direction blocks an event loop: a sync cache runs in a thread, an async one on a loop of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Collection, Coroutine
from typing import Any, Protocol, TypeVar

from semcache.types import CacheRequest, Decision, Fence, Invalidated, Response, Stored

T = TypeVar("T")


class SyncCache(Protocol):
    """What the integration uses of `SemanticCache`."""

    def lookup(self, request: CacheRequest) -> Decision: ...

    def put(
        self,
        request: CacheRequest,
        response: Response,
        *,
        fence: Fence | None = None,
        tags: Collection[str] = (),
        ttl: float | None = None,
        kind: str | None = None,
    ) -> Stored: ...

    def invalidate(self, **filters: Any) -> Invalidated: ...


class AsyncCache(Protocol):
    """What the integration uses of `AsyncSemanticCache`."""

    async def lookup(self, request: CacheRequest) -> Decision: ...

    async def put(
        self,
        request: CacheRequest,
        response: Response,
        *,
        fence: Fence | None = None,
        tags: Collection[str] = (),
        ttl: float | None = None,
        kind: str | None = None,
    ) -> Stored: ...

    async def invalidate(self, **filters: Any) -> Invalidated: ...


class ThreadedCache:
    """An async face of a sync cache: each call runs in a thread."""

    def __init__(self, cache: SyncCache) -> None:
        self._cache = cache

    async def lookup(self, request: CacheRequest) -> Decision:
        return await asyncio.to_thread(self._cache.lookup, request)

    async def put(self, request: CacheRequest, response: Response, **options: Any) -> Stored:
        return await asyncio.to_thread(self._cache.put, request, response, **options)

    async def invalidate(self, **filters: Any) -> Invalidated:
        return await asyncio.to_thread(self._cache.invalidate, **filters)


class LoopedCache:
    """A blocking face of an async cache: each call runs on one loop in a thread of its own.

    The thread starts at the first call and ends with the process; a forked child starts its own.
    """

    def __init__(self, cache: AsyncCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def lookup(self, request: CacheRequest) -> Decision:
        return self._run(self._cache.lookup(request))

    def put(self, request: CacheRequest, response: Response, **options: Any) -> Stored:
        return self._run(self._cache.put(request, response, **options))

    def invalidate(self, **filters: Any) -> Invalidated:
        return self._run(self._cache.invalidate(**filters))

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._running_loop()).result()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(
                    target=self._loop.run_forever, name="semcache-langchain", daemon=True
                ).start()
            return self._loop
