"""What callers may pass, checked before anything is asked of the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import unquote

from semcache import scope
from semcache.errors import (
    InvalidRequestError,
)
from semcache.policy import MAX_SECONDS
from semcache.protocols import Refresh, Stale
from semcache.types import (
    CacheRequest,
    Fence,
    ModelVersion,
    Response,
    check_confidence,
)

MAX_LISTED = 100_000
MAX_TAKEN = 1_000
_EXACT = 2**53  # whole numbers that a script of the store can tell apart


def as_request(request: CacheRequest | str) -> CacheRequest:
    """Return a request; a plain text is one with nothing but a prompt.

    Raises:
        InvalidRequestError: It is neither.
    """
    if isinstance(request, CacheRequest):
        return request
    if isinstance(request, str):
        return CacheRequest(request)
    raise InvalidRequestError(f"request is {type(request).__name__}, expected CacheRequest or str")


def as_response(response: Response | str) -> Response:
    """Return a response; a plain text is one with nothing but text.

    Raises:
        InvalidRequestError: It is neither.
    """
    if isinstance(response, Response):
        return response
    if isinstance(response, str):
        return Response(response)
    raise InvalidRequestError(f"response is {type(response).__name__}, expected Response or str")


def timed(response: Response, seconds: float) -> Response:
    """Return a response with what the model took, where it doesn't say that itself."""
    if response.latency_ms is not None:
        return response
    return replace(response, latency_ms=round(seconds * 1000, 3))


def as_versions(found: Sequence[tuple[str, float]]) -> list[ModelVersion]:
    """Read model versions from the names that entries have."""
    parts = [(name.split("/"), last_put) for name, last_put in found]
    return [ModelVersion(_plain(model), _plain(version), last_put) for (model, version), last_put in parts]


def _plain(part: str) -> str:
    return "" if part == "~" else unquote(part)


class Given(NamedTuple):
    """What a caller says of an answer besides the answer.

    Attributes:
        tags: In NFC, sorted, the subject's among them.
    """

    tags: tuple[str, ...]
    ttl: float | None
    confidence: float | None
    kind: str | None


NOTHING_SAID: Final = Given((), None, None, None)


def given(
    request: CacheRequest,
    *,
    tags: Collection[str],
    ttl: float | None,
    confidence: float | None,
    kind: str | None,
) -> Given:
    """Check what is said of an answer; before the model is asked for it.

    Raises:
        InvalidRequestError: Something in it can't be meant.
    """
    if not tags and ttl is confidence is None and kind is request.kind is request.subject is None:
        return NOTHING_SAID
    check_confidence(confidence)
    check_seconds("ttl", ttl, none=True)
    ttl, confidence = (None if value is None else float(value) for value in (ttl, confidence))
    for name in (kind, request.kind):
        if name is not None:
            scope.checked_name("kind", name)
    return Given(scope.given_tags(request, tags), ttl, confidence, kind or request.kind)


def check_fence(fence: Fence | None) -> None:
    """Raise unless a fence can have come from a lookup.

    Raises:
        InvalidRequestError: It isn't a fence, or holds what no store says.
    """
    if fence is None:
        return
    if not isinstance(fence, Fence):
        raise InvalidRequestError(f"fence is {type(fence).__name__}, expected the fence of a Miss, or None")
    if (
        not isinstance(fence.epoch, str)
        or not fence.epoch
        or not fence.epoch.isascii()
        or len(fence.epoch) > 64
    ):
        raise InvalidRequestError(f"fence has the epoch {fence.epoch!r:.60}, expected a store's, from a Miss")
    if type(fence.time_us) is not int or not 0 < fence.time_us < _EXACT:
        raise InvalidRequestError(
            f"fence has the time {fence.time_us!r:.60}, expected whole microseconds of the store's clock, from a Miss"
        )


def check_seconds(name: str, value: object, *, none: bool = False) -> None:
    """Raise unless a value is a number of seconds.

    Args:
        none: Whether None may stand for no limit.

    Raises:
        InvalidRequestError: It isn't, or no clock would live to see it.
    """
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        expected = f"a finite number of seconds from 0 to {MAX_SECONDS:.0e}" + (", or None" if none else "")
        raise InvalidRequestError(f"{name} is {value!r:.60}, expected {expected}")


def check_count(name: str, value: object, most: int) -> int:
    """Return a number of things.

    Raises:
        InvalidRequestError: It isn't a whole number of 1 to `most`.
    """
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidRequestError(f"{name} is {value!r:.60}, expected a whole number from 1 to {most}")
    return value


def check_flag(name: str, value: object) -> None:
    """Raise unless a value is True or False: what is merely truthy may be a mistake.

    Raises:
        InvalidRequestError: It is neither.
    """
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name} is {value!r:.60}, expected True or False")


def entry_names(entry_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the names of entries, in the order given.

    Raises:
        InvalidRequestError: They aren't a collection of texts, or one isn't the name of an entry.
    """
    if isinstance(entry_ids, str | bytes) or not isinstance(entry_ids, Iterable):
        raise InvalidRequestError(f"entry_ids is {entry_ids!r:.60}, expected a collection of texts")
    names = tuple(entry_ids)
    for name in names:
        scope.split_entry_id(name)
    return names


def stale_entries(entry_ids: Collection[str], why: str) -> list[Stale]:
    """Return what to queue for regeneration, each entry once.

    Raises:
        InvalidRequestError: One isn't the name of an entry, or `why` isn't a short text.
    """
    scope.checked_name("why", why)
    return [Stale(name, why) for name in dict.fromkeys(entry_names(entry_ids))]


def check_taking(consumer: object, count: object, idle: object) -> None:
    """Raise unless a worker's wish can be granted.

    Raises:
        InvalidRequestError: The name isn't text, or a number is out of range.
    """
    if not scope.checked_name("consumer", consumer):
        raise InvalidRequestError("consumer is empty, expected the name of this worker")
    check_count("count", count, MAX_TAKEN)
    check_seconds("idle", idle)


def check_works(done: Iterable[Refresh]) -> list[Refresh]:
    """Return finished pieces of work.

    Raises:
        InvalidRequestError: One isn't what `take_refreshes` gave.
    """
    works = list(done)
    for work in works:
        if not isinstance(work, Refresh):
            raise InvalidRequestError(
                f"found {work!r:.60} as work that is done, expected what take_refreshes gave"
            )
    return works
