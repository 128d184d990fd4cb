"""One cache where two are needed: the sync one for awaiting callers, the async one for blocking callers.

Neither direction blocks an event loop: a sync cache runs in a thread, an async one on a loop of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Protocol, TypeVar

from semcache.errors import ConfigurationError
from semcache.types import Answer, CacheRequest, Decision, Fence, Hit, Invalidated, Response, Stored

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

    def get_or_compute(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Response],
        *,
        tags: Collection[str] = (),
        ttl: float | None = None,
        kind: str | None = None,
    ) -> Answer: ...

    def invalidate(self, **selection: Any) -> Invalidated: ...


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

    async def get_or_compute(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Awaitable[Response]],
        *,
        tags: Collection[str] = (),
        ttl: float | None = None,
        kind: str | None = None,
    ) -> Answer: ...

    async def invalidate(self, **selection: Any) -> Invalidated: ...


def both_caches(cache: SyncCache | None, async_cache: AsyncCache | None) -> tuple[SyncCache, AsyncCache]:
    """Return a blocking and an awaiting cache, one of them made from the other where it is missing.

    Raises:
        ConfigurationError: Neither was given, or one is of the other kind.
    """
    _check("cache", cache, "SemanticCache", awaited=False)
    _check("async_cache", async_cache, "AsyncSemanticCache", awaited=True)
    if cache is not None:
        return cache, ThreadedCache(cache) if async_cache is None else async_cache
    if async_cache is not None:
        return LoopedCache(async_cache), async_cache
    raise ConfigurationError(
        "neither cache nor async_cache is given; pass SemanticCache.open() or an AsyncSemanticCache"
    )


def _check(name: str, cache: object, wanted: str, *, awaited: bool) -> None:
    if cache is None:
        return
    lookup = getattr(cache, "lookup", None)
    if not callable(lookup) or inspect.iscoroutinefunction(lookup) is not awaited:
        raise ConfigurationError(
            f"{name} is {type(cache).__name__}, expected {wanted}; an AsyncSemanticCache is opened with await and "
            "passed as async_cache=, a SemanticCache as cache="
        )


class ThreadedCache:
    """An awaiting face of a blocking cache: each call runs in a thread.

    The model is awaited by its own caller, whose task and context it may need; so callers don't share a call.
    """

    def __init__(self, cache: SyncCache) -> None:
        self._cache = cache

    async def lookup(self, request: CacheRequest) -> Decision:
        return await asyncio.to_thread(self._cache.lookup, request)

    async def put(self, request: CacheRequest, response: Response, **options: Any) -> Stored:
        return await asyncio.to_thread(self._cache.put, request, response, **options)

    async def get_or_compute(
        self, request: CacheRequest, call_model: Callable[[CacheRequest], Awaitable[Response]], **options: Any
    ) -> Answer:
        decision = await self.lookup(request)
        if isinstance(decision, Hit):
            return Answer(decision.response, decision)
        response = await call_model(request)
        return Answer(response, decision, await self.put(request, response, fence=decision.fence, **options))

    async def invalidate(self, **selection: Any) -> Invalidated:
        return await asyncio.to_thread(self._cache.invalidate, **selection)


class LoopedCache:
    """A blocking face of an awaiting cache: each call runs on a loop in a thread of ours.

    The model is called by its own caller, so callers don't share a call.
    """

    def __init__(self, cache: AsyncCache) -> None:
        self._cache = cache

    def lookup(self, request: CacheRequest) -> Decision:
        return self._run(self._cache.lookup(request))

    def put(self, request: CacheRequest, response: Response, **options: Any) -> Stored:
        return self._run(self._cache.put(request, response, **options))

    def get_or_compute(
        self, request: CacheRequest, call_model: Callable[[CacheRequest], Response], **options: Any
    ) -> Answer:
        decision = self.lookup(request)
        if isinstance(decision, Hit):
            return Answer(decision.response, decision)
        response = call_model(request)
        return Answer(response, decision, self.put(request, response, fence=decision.fence, **options))

    def invalidate(self, **selection: Any) -> Invalidated:
        return self._run(self._cache.invalidate(**selection))

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, _loop.running()).result()


class _Loop:
    """One event loop in a thread of its own, for the process; it starts when it is first needed."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: a forked child has the loop but not its thread."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="semcache-langchain", daemon=True
                ).start()
            return self._loop


_loop = _Loop()
os.register_at_fork(after_in_child=_loop.forget)
