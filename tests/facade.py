"""One face for both caches, so that a test is written once: the asynchronous cache runs on a loop of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.protocols import Encoder, Matcher


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()


class Facade:
    """The methods of a cache, called synchronously."""

    def __init__(self, cache: Any, loop: Loop | None) -> None:
        self.cache = cache
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.cache, name)
        if self._loop is None:
            return method  # type: ignore[no-any-return]
        loop = self._loop
        return lambda *args, **kwargs: loop.run(method(*args, **kwargs))

    def all_entries(self) -> list[Any]:
        if self._loop is None:
            return list(self.cache.entries())

        async def collect() -> list[Any]:
            return [entry async for entry in self.cache.entries()]

        return self._loop.run(collect())  # type: ignore[no-any-return]


def open_facade(
    kind: str,
    target: Any,
    loop: Loop,
    *,
    encoder: Encoder,
    matcher: Matcher | None = None,
    policy: Policy | None = None,
    **options: Any,
) -> Facade:
    """Open a cache of this kind, ``sync`` or ``async``."""
    policy = policy or Policy(deadline=5.0)
    if kind == "sync":
        return Facade(
            SemanticCache.open(target, encoder=encoder, matcher=matcher, policy=policy, **options), None
        )
    cache = loop.run(
        AsyncSemanticCache.open(target, encoder=encoder, matcher=matcher, policy=policy, **options)
    )
    return Facade(cache, loop)


def waiting(cache: Any) -> int:
    """Return how many callers of a cache wait for another's call to the model."""
    with cache._core.flights.lock:
        flights = list(cache._core.flights._flights.values())
    threads = sum(len(flight.future._condition._waiters) for flight in flights)
    return threads + sum(len(board.seats) for flight in flights for board in flight._boards.values())


def within(seconds: float, ask: Callable[[], Any]) -> Any:
    """Ask until the answer is true; returns the last one."""
    end = time.monotonic() + seconds
    while not (answer := ask()) and time.monotonic() < end:
        time.sleep(0.01)
    return answer
