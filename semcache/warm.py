"""Warming a new model version: the questions that mattered are answered before anybody asks them again.

They come from the old version's entries, or from a query log. What is stored under the new version
already is left alone, so a run that was broken off is resumed by starting it again.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from semcache.cache import AsyncSemanticCache, SemanticCache
from semcache.errors import ConfigurationError, UndecodableError
from semcache.freshness import own_tags, same_answer
from semcache.refresh import Pace
from semcache.requests import decode_request
from semcache.steps import drive, drive_async
from semcache.types import Answer, CacheRequest, Entry, Hit, Response, Stored

CallModel = Callable[[CacheRequest], "Response | str"]


@dataclass(frozen=True, slots=True)
class Warmed:
    """What became of one question.

    Attributes:
        outcome: ``warmed``, ``there`` (answered under the new version already), ``refused`` (the answer
            wasn't stored) or ``failed`` (the model failed).
    """

    request: CacheRequest
    outcome: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Canary:
    """How many of a sample of stored answers the new version gives again.

    Attributes:
        asked: Questions that were answered again.
        held: Those whose stored answer still holds.
        low, high: Wilson's 95 % interval of the share that holds.
        changed: (prompt, old answer, new answer) of those that don't.
    """

    asked: int
    held: int
    low: float
    high: float
    changed: tuple[tuple[str, str, str], ...]


def stored_questions(
    entries: Iterable[Entry], *, model: str, from_version: str, to_version: str
) -> list[tuple[Entry, CacheRequest]]:
    """Return the live entries of a version with the requests to ask under the new one, newest first.

    Entries whose request wasn't kept (`Policy.keep_requests`) can't be asked again and are left out.
    """
    found = []
    for entry in entries:
        if entry.state != "live" or not entry.request:
            continue
        try:
            request = decode_request(entry.prompt, entry.request)
        except UndecodableError:
            continue
        if (request.model, request.model_version) == (model, from_version):
            found.append((entry, replace(request, model_version=to_version)))
    return sorted(found, key=lambda pair: -pair[0].created_at)


def logged_questions(
    log: Sequence[tuple[float, str]], *, model: str, version: str, tenant: str = "", top: int | None = None
) -> list[CacheRequest]:
    """Return the questions of a query log that are worth most: by frequency times growth.

    Args:
        log: (time in seconds, prompt) in any order. Growth is the share of a prompt's occurrences in the
            later half of the log's time, doubled: 1 for steady, 2 for new, 0 for one that died out.
        top: Most questions; None for all.
    """
    if not log:
        return []
    middle = (min(when for when, _ in log) + max(when for when, _ in log)) / 2
    total = Counter(prompt for _, prompt in log)
    late = Counter(prompt for when, prompt in log if when >= middle)
    worth = {prompt: count * (2 * late[prompt] / count) for prompt, count in total.items()}
    ranked = sorted(total, key=lambda prompt: (-worth[prompt], -total[prompt], prompt))
    return [
        CacheRequest(prompt, model=model, model_version=version, tenant=tenant) for prompt in ranked[:top]
    ]


def warm(
    cache: SemanticCache,
    requests: Sequence[CacheRequest],
    call_model: CallModel,
    *,
    concurrency: int = 4,
    per_second: float | None = None,
    on_done: Callable[[Warmed], None] | None = None,
) -> list[Warmed]:
    """Ask the model for whatever isn't stored yet.

    Args:
        requests: Most valuable first; they are begun in this order.
        concurrency: Most calls of the model at once.
        per_second: Most calls of the model a second; None for no limit.
        on_done: Called after each question, from the thread that asked it.
    """
    _check_concurrency(concurrency)
    pace = Pace(per_second)

    def one(request: CacheRequest) -> Warmed:
        result = _warm_one(cache, request, call_model, pace)
        if on_done is not None:
            on_done(result)
        return result

    with ThreadPoolExecutor(concurrency, thread_name_prefix="semcache-warm") as pool:
        return list(pool.map(one, requests))


def _warm_one(cache: SemanticCache, request: CacheRequest, call_model: CallModel, pace: Pace) -> Warmed:
    if isinstance(cache.lookup(replace(request, mode="exact")), Hit):
        return Warmed(request, "there")
    time.sleep(pace.wait())
    try:
        answer = cache.get_or_compute(replace(request, no_cache=True), call_model)
    except Exception as error:  # noqa: BLE001 - the model is the caller's; one failure doesn't end the run
        return Warmed(request, "failed", f"{type(error).__name__}: {error}")
    return _answered(request, answer)


async def warm_async(
    cache: AsyncSemanticCache,
    requests: Sequence[CacheRequest],
    call_model: Callable[[CacheRequest], Response | str | Awaitable[Response | str]],
    *,
    concurrency: int = 4,
    per_second: float | None = None,
    on_done: Callable[[Warmed], None] | None = None,
) -> list[Warmed]:
    """Ask the model for whatever isn't stored yet, as `warm` does."""
    _check_concurrency(concurrency)
    pace, results = Pace(per_second), dict[int, Warmed]()
    waiting = iter(enumerate(requests))

    async def work() -> None:
        for number, request in waiting:  # shared: each question is taken once
            results[number] = await _warm_one_async(cache, request, call_model, pace)
            if on_done is not None:
                on_done(results[number])

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return [results[number] for number in range(len(requests))]


async def _warm_one_async(
    cache: AsyncSemanticCache,
    request: CacheRequest,
    call_model: Callable[[CacheRequest], Response | str | Awaitable[Response | str]],
    pace: Pace,
) -> Warmed:
    if isinstance(await cache.lookup(replace(request, mode="exact")), Hit):
        return Warmed(request, "there")
    await asyncio.sleep(pace.wait())
    try:
        answer = await cache.get_or_compute(replace(request, no_cache=True), call_model)
    except Exception as error:  # noqa: BLE001 - the model is the caller's; one failure doesn't end the run
        return Warmed(request, "failed", f"{type(error).__name__}: {error}")
    return _answered(request, answer)


def _check_concurrency(concurrency: int) -> None:
    if type(concurrency) is not int or concurrency < 1:
        raise ConfigurationError(f"concurrency is {concurrency!r}, expected an int of 1 or more")


def _answered(request: CacheRequest, answer: Answer) -> Warmed:
    if answer.stored:
        return Warmed(request, "warmed")
    return Warmed(request, "refused", answer.stored.outcome if answer.stored is not None else "")


def canary(
    questions: Sequence[tuple[Entry, CacheRequest]],
    call_model: CallModel,
    *,
    sample: int = 30,
    holds: Callable[[str, str], bool] = same_answer,
    on_done: Callable[[], None] | None = None,
) -> Canary:
    """Answer a sample again under the new version, store nothing, and count the stored answers that still hold.

    Args:
        questions: From `stored_questions`; the sample is spread evenly over them.
        holds: Tells whether an old answer holds in the light of the new one.
    """
    chosen = list(_spread(questions, sample))
    changed = []
    for entry, request in chosen:
        given = call_model(request)
        text = given if isinstance(given, str) else given.text
        if not holds(entry.response.text, text):
            changed.append((entry.prompt, entry.response.text, text))
        if on_done is not None:
            on_done()
    low, high = wilson(len(chosen) - len(changed), len(chosen))
    return Canary(len(chosen), len(chosen) - len(changed), low, high, tuple(changed))


async def canary_async(
    questions: Sequence[tuple[Entry, CacheRequest]],
    call_model: Callable[[CacheRequest], Response | str | Awaitable[Response | str]],
    *,
    sample: int = 30,
    holds: Callable[[str, str], bool] = same_answer,
    on_done: Callable[[], None] | None = None,
) -> Canary:
    """Answer a sample again under the new version, as `canary` does; a model that isn't asynchronous runs in a thread."""
    answers: dict[int, Response | str] = {}
    for _, request in _spread(questions, sample):
        answers[id(request)] = await _called(call_model, request)
    return canary(
        questions, lambda request: answers[id(request)], sample=sample, holds=holds, on_done=on_done
    )


def carry_over(
    cache: SemanticCache,
    questions: Sequence[tuple[Entry, CacheRequest]],
    *,
    on_done: Callable[[Warmed], None] | None = None,
) -> list[Warmed]:
    """Store the old answers under the new version, without asking the model: for answers that a canary found to hold.

    What was withdrawn, invalidated, replaced or has expired since isn't carried over.

    Raises:
        StoreUnavailableError: The store doesn't answer.
    """
    results = []
    for entry, request in questions:
        if isinstance(cache.lookup(replace(request, mode="exact")), Hit):
            result = Warmed(request, "there")
        else:
            fence = drive(cache._core.standing(entry), cache._store)
            stored = None
            if fence is not None:
                stored = cache.put(
                    request, entry.response, fence=fence, tags=own_tags(entry), ttl=entry.ttl, kind=entry.kind
                )
            result = _carried(request, stored)
        results.append(result)
        if on_done is not None:
            on_done(result)
    return results


async def carry_over_async(
    cache: AsyncSemanticCache,
    questions: Sequence[tuple[Entry, CacheRequest]],
    *,
    on_done: Callable[[Warmed], None] | None = None,
) -> list[Warmed]:
    """Store the old answers under the new version, as `carry_over` does."""
    results = []
    for entry, request in questions:
        if isinstance(await cache.lookup(replace(request, mode="exact")), Hit):
            result = Warmed(request, "there")
        else:
            fence = await drive_async(cache._core.standing(entry), cache._store)
            stored = None
            if fence is not None:
                stored = await cache.put(
                    request, entry.response, fence=fence, tags=own_tags(entry), ttl=entry.ttl, kind=entry.kind
                )
            result = _carried(request, stored)
        results.append(result)
        if on_done is not None:
            on_done(result)
    return results


def _carried(request: CacheRequest, stored: Stored | None) -> Warmed:
    if stored is None:
        return Warmed(request, "refused", "the old answer isn't alive any more")
    return Warmed(request, "warmed" if stored else "refused", stored.outcome)


async def _called(
    call_model: Callable[[CacheRequest], Response | str | Awaitable[Response | str]], request: CacheRequest
) -> Response | str:
    if inspect.iscoroutinefunction(call_model):
        given: Response | str = await call_model(request)
        return given
    said = await asyncio.to_thread(call_model, request)
    return await said if inspect.isawaitable(said) else said


def _spread(
    questions: Sequence[tuple[Entry, CacheRequest]], sample: int
) -> Iterator[tuple[Entry, CacheRequest]]:
    count = min(sample, len(questions))
    for number in range(count):
        yield questions[number * len(questions) // count]


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's score interval of a share (Wilson 1927); (0, 1) without trials."""
    if not trials:
        return 0.0, 1.0
    share = successes / trials
    middle = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
