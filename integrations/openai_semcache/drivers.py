"""Performs the steps of `flow`, with and without an event loop. Knows the cache's methods and no HTTP library."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from typing import Any, Protocol, TypeAlias

from openai_semcache.exchange import Begin, Call, Finish, Lookup, Put, Reply, Send, Steps
from semcache import Lead
from semcache.errors import ConfigurationError, InvalidRequestError
from semcache.types import Answer, CacheRequest, Decision, Fence, Response, Stored

logger = logging.getLogger(__name__)

_AT_ONCE = 16  # lookups and puts of one batch that are under way together
_EVENTS_AT_ONCE = 16  # events of a replay before other tasks get their turn


class Cache(Protocol):
    """What is used of `semcache.SemanticCache`."""

    def lookup(self, request: CacheRequest | str) -> Decision: ...

    def put(
        self,
        request: CacheRequest | str,
        response: Response | str,
        *,
        fence: Fence | None = None,
        tags: Collection[str] = (),
        ttl: float | None = None,
    ) -> Stored: ...

    def begin(
        self,
        request: CacheRequest | str,
        *,
        tags: Collection[str] = (),
        ttl: float | None = None,
        again: Callable[[CacheRequest], Response | str] | None = None,
    ) -> Answer | Lead: ...

    def finish(self, lead: Lead, response: Response | str) -> Answer: ...


class AsyncCache(Protocol):
    """What is used of `semcache.AsyncSemanticCache`."""

    async def lookup(self, request: CacheRequest | str) -> Decision: ...

    async def put(
        self,
        request: CacheRequest | str,
        response: Response | str,
        *,
        fence: Fence | None = None,
        tags: Collection[str] = (),
        ttl: float | None = None,
    ) -> Stored: ...

    async def begin(
        self,
        request: CacheRequest | str,
        *,
        tags: Collection[str] = (),
        ttl: float | None = None,
        again: Callable[[CacheRequest], Response | str | Awaitable[Response | str]] | None = None,
    ) -> Answer | Lead: ...

    async def finish(self, lead: Lead, response: Response | str) -> Answer: ...


Sender: TypeAlias = Callable[[Call, bool], Reply]
AsyncSender: TypeAlias = Callable[[Call, bool], Awaitable[Reply]]


def is_asynchronous(cache: Any) -> bool:
    """Return whether the cache's methods are awaited.

    Raises:
        ConfigurationError: It isn't a cache.
    """
    lookup = getattr(cache, "lookup", None)
    if lookup is None:
        raise ConfigurationError(
            f"cache is {type(cache).__name__}, expected SemanticCache or AsyncSemanticCache"
        )
    return inspect.iscoroutinefunction(lookup)


def check_cache(cache: Any, *, asynchronous: bool) -> None:
    """Raise unless the cache is one that fits.

    Raises:
        ConfigurationError: It isn't a cache, or one of the other kind.
    """
    if is_asynchronous(cache) is not asynchronous:
        wanted = "AsyncSemanticCache" if asynchronous else "SemanticCache"
        client = "an asynchronous" if asynchronous else "a synchronous"
        raise ConfigurationError(f"cache is {type(cache).__name__}, expected {wanted} for {client} client")


def drive(steps: Steps, cache: Cache, send: Sender) -> Reply:
    """Perform steps synchronously."""
    try:
        step = next(steps)
        while True:
            try:
                result = _perform(step, cache, send)
            except BaseException as error:  # noqa: BLE001 - given to the flow, which names what it catches
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        reply: Reply = stop.value
        return reply


def _perform(step: Any, cache: Cache, send: Sender) -> Any:
    if isinstance(step, Lookup):
        return [cache.lookup(request) for request in step.requests]
    if isinstance(step, Send):
        return send(step.call, step.whole)
    if isinstance(step, Put):
        return put(step, cache)
    if isinstance(step, Begin):
        return cache.begin(step.request, tags=step.tags, ttl=step.ttl, again=_again(step, send))
    end: Finish = step
    return cache.finish(end.lead, end.response)


def _again(step: Begin, send: Sender) -> Callable[[CacheRequest], Response] | None:
    call = step.call
    return None if call is None else lambda _: step.read(send(call, True))


def finish(step: Finish, cache: Cache) -> None:
    """Store what a stream said; what can't be stored never harms the answer."""
    try:
        cache.finish(step.lead, step.response)
    except InvalidRequestError as error:
        _unserialisable(error)


def put(step: Put, cache: Cache) -> list[Stored]:
    """Store the items of a step; what can't be stored never harms the answer."""
    return [_put(cache, item, step) for item in step.items]


def _put(cache: Cache, item: tuple[CacheRequest, Response, Fence | None], step: Put) -> Stored:
    request, response, fence = item
    try:
        return cache.put(request, response, fence=fence, tags=step.tags, ttl=step.ttl)
    except InvalidRequestError as error:
        return _unserialisable(error)


def _unserialisable(error: InvalidRequestError) -> Stored:
    logger.warning("an answer can't be stored: %s", error)
    return Stored("unserialisable")


async def drive_async(steps: Steps, cache: AsyncCache, send: AsyncSender) -> Reply:
    """Perform steps without blocking the event loop."""
    try:
        step = next(steps)
        while True:
            try:
                result = await _perform_async(step, cache, send)
            except BaseException as error:  # noqa: BLE001 - given to the flow, which names what it catches
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        reply: Reply = stop.value
        return reply


async def _perform_async(step: Any, cache: AsyncCache, send: AsyncSender) -> Any:
    if isinstance(step, Lookup):
        return await _in_groups([functools.partial(cache.lookup, request) for request in step.requests])
    if isinstance(step, Send):
        return await send(step.call, step.whole)
    if isinstance(step, Put):
        return await put_async(step, cache)
    if isinstance(step, Begin):
        return await cache.begin(step.request, tags=step.tags, ttl=step.ttl, again=_again_async(step, send))
    end: Finish = step
    return await cache.finish(end.lead, end.response)


def _again_async(step: Begin, send: AsyncSender) -> Callable[[CacheRequest], Awaitable[Response]] | None:
    call = step.call
    if call is None:
        return None

    async def again(_: CacheRequest) -> Response:
        return step.read(await send(call, True))

    return again


async def finish_async(step: Finish, cache: AsyncCache) -> None:
    """Store what a stream said, as `finish` does."""
    try:
        await cache.finish(step.lead, step.response)
    except InvalidRequestError as error:
        _unserialisable(error)


async def _in_groups(calls: list[Callable[[], Any]]) -> list[Any]:
    if len(calls) == 1:
        return [await calls[0]()]
    results: list[Any] = []
    for start in range(0, len(calls), _AT_ONCE):
        results += await asyncio.gather(*(call() for call in calls[start : start + _AT_ONCE]))
    return results


async def put_async(step: Put, cache: AsyncCache) -> list[Stored]:
    """Store the items of a step, as `put` does."""
    return await _in_groups([functools.partial(_put_async, cache, item, step) for item in step.items])


async def _put_async(
    cache: AsyncCache, item: tuple[CacheRequest, Response, Fence | None], step: Put
) -> Stored:
    request, response, fence = item
    try:
        return await cache.put(request, response, fence=fence, tags=step.tags, ttl=step.ttl)
    except InvalidRequestError as error:
        return _unserialisable(error)


class Turnstile:
    """Lets tasks that are ready together go on one per turn of the event loop, first come, first served.

    An encoder answers a whole batch at once, and all who waited would run before anybody else is heard.
    """

    def __init__(self) -> None:
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            weakref.WeakKeyDictionary()
        )

    async def wait(self) -> None:
        """Wait for this task's turn."""
        loop = asyncio.get_running_loop()
        lock = self._locks.get(loop)
        if lock is None:
            lock = self._locks[loop] = asyncio.Lock()
        async with lock:
            await asyncio.sleep(0)


async def spread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a replay's events, giving other tasks their turn now and then."""
    for number, chunk in enumerate(chunks, 1):
        yield chunk
        if number % _EVENTS_AT_ONCE == 0:
            await asyncio.sleep(0)
