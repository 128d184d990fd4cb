"""Regeneration: entries that were withdrawn or went stale are answered again.

Work is claimed from the queue, so several workers share it and a crashed one's work is taken over. Doing
a piece of work twice does no harm: an entry that is live again and newer than its ticket is left alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from semcache.cache import AsyncSemanticCache, SemanticCache
from semcache.errors import ConfigurationError, UndecodableError
from semcache.freshness import agree, own_tags
from semcache.policy import Policy
from semcache.protocols import Refresh
from semcache.requests import decode_request
from semcache.types import Answer, CacheRequest, Entry, Response

MAX_TRIES = 5
TICKET_STEP = 1e-3  # seconds; tickets are stamped in whole milliseconds


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What became of one piece of work.

    Attributes:
        outcome: ``changed`` or ``same`` (answered again), ``live`` (nothing to do), ``unknown`` (the request
            wasn't kept, or the entry is gone), ``refused`` (the new answer wasn't stored), ``failed``
            (the model failed; it will be tried again), ``given up`` (it failed too often).
        old, new: The two answers; empty where there is none.
    """

    work: Refresh
    outcome: str
    old: str = ""
    new: str = ""


def question_of(work: Refresh, entry: Entry | None) -> CacheRequest | str:
    """Return the request to ask again, or the outcome that says why not."""
    if entry is None:
        return "unknown"
    if entry.state == "live" and _newer(entry, work):
        return "live"
    if not entry.request:
        return "unknown"
    try:
        request = decode_request(entry.prompt, entry.request)
    except UndecodableError:
        return "unknown"
    return replace(request, no_cache=True)


def _newer(entry: Entry, work: Refresh) -> bool:
    """Return whether an entry was put or restored since it was found bad; a revision is the store's clock in us."""
    if work.revision is not None:
        return entry.revision > work.revision
    return entry.revision / 1e6 > work.queued_at + TICKET_STEP


class Pace:
    """Spreads calls evenly.

    Args:
        per_second: Most calls a second; None for no limit.
    """

    def __init__(self, per_second: float | None) -> None:
        if per_second is not None and not per_second > 0:
            raise ConfigurationError(f"per_second is {per_second!r}, expected more than 0, or None")
        self._gap = 0.0 if per_second is None else 1.0 / per_second
        self._next = time.monotonic()

    def wait(self) -> float:
        """Return the seconds to wait before the next call, and count it."""
        now = time.monotonic()
        start = max(now, self._next)
        self._next = start + self._gap
        return start - now


def refresh(
    cache: SemanticCache,
    call_model: Callable[[CacheRequest], Response | str],
    *,
    consumer: str = "refresh",
    limit: int | None = None,
    per_second: float | None = None,
    idle: float = 60.0,
    on_done: Callable[[Refreshed], None] | None = None,
) -> list[Refreshed]:
    """Work on the regeneration queue until it is empty.

    What the model raises is caught as a failure of that piece of work, which stays claimed and is tried
    again by whoever takes it over; after 5 tries it is given up.

    Args:
        consumer: Name of this worker.
        limit: Most pieces of work; None for all.
        per_second: Most calls of the model a second.
        idle: Seconds after which another worker's unfinished claim is taken over.
        on_done: Called after each piece of work, e.g. to move a progress bar.

    Raises:
        StoreUnavailableError: The store doesn't answer.
    """
    pace, results = Pace(per_second), list[Refreshed]()
    while limit is None or len(results) < limit:
        batch = cache.take_refreshes(consumer, count=min(10, (limit or 10**9) - len(results)), idle=idle)
        if not batch:
            break
        for work in batch:
            (entry,) = cache.get([work.entry_id])
            result = _refresh_one(cache, call_model, work, entry, pace)
            if result.outcome != "failed":
                cache.finish_refreshes([work])
            results.append(result)
            if on_done is not None:
                on_done(result)
    return results


def _refresh_one(
    cache: SemanticCache,
    call_model: Callable[[CacheRequest], Response | str],
    work: Refresh,
    entry: Entry | None,
    pace: Pace,
) -> Refreshed:
    request = question_of(work, entry)
    if isinstance(request, str) or entry is None:
        return Refreshed(work, str(request))
    time.sleep(pace.wait())
    try:
        answer = cache.get_or_compute(request, call_model, tags=own_tags(entry), kind=entry.kind)
    except Exception as error:  # noqa: BLE001 - the model is the caller's; whatever it raises is a failed try
        return _failed(work, entry, error)
    return _compared(work, entry, answer, cache.policy)


async def refresh_async(
    cache: AsyncSemanticCache,
    call_model: Callable[[CacheRequest], Response | str | Awaitable[Response | str]],
    *,
    consumer: str = "refresh",
    limit: int | None = None,
    per_second: float | None = None,
    idle: float = 60.0,
    on_done: Callable[[Refreshed], None] | None = None,
) -> list[Refreshed]:
    """Work on the regeneration queue until it is empty, as `refresh` does."""
    pace, results = Pace(per_second), list[Refreshed]()
    while limit is None or len(results) < limit:
        batch = await cache.take_refreshes(
            consumer, count=min(10, (limit or 10**9) - len(results)), idle=idle
        )
        if not batch:
            break
        for work in batch:
            (entry,) = await cache.get([work.entry_id])
            result = await _refresh_one_async(cache, call_model, work, entry, pace)
            if result.outcome != "failed":
                await cache.finish_refreshes([work])
            results.append(result)
            if on_done is not None:
                on_done(result)
    return results


async def _refresh_one_async(
    cache: AsyncSemanticCache,
    call_model: Callable[[CacheRequest], Response | str | Awaitable[Response | str]],
    work: Refresh,
    entry: Entry | None,
    pace: Pace,
) -> Refreshed:
    request = question_of(work, entry)
    if isinstance(request, str) or entry is None:
        return Refreshed(work, str(request))
    await asyncio.sleep(pace.wait())
    try:
        answer = await cache.get_or_compute(request, call_model, tags=own_tags(entry), kind=entry.kind)
    except Exception as error:  # noqa: BLE001 - the model is the caller's; whatever it raises is a failed try
        return _failed(work, entry, error)
    return _compared(work, entry, answer, cache.policy)


def _failed(work: Refresh, entry: Entry, error: Exception) -> Refreshed:
    outcome = "given up" if work.tries >= MAX_TRIES else "failed"
    return Refreshed(work, outcome, entry.response.text, f"{type(error).__name__}: {error}")


def _compared(work: Refresh, entry: Entry, answer: Answer, policy: Policy) -> Refreshed:
    if not answer.stored:
        return Refreshed(work, "refused", entry.response.text, answer.text)
    outcome = "same" if agree(entry.response, answer.response, policy.same_answer) else "changed"
    return Refreshed(work, outcome, entry.response.text, answer.text)
