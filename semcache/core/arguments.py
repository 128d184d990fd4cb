"""What callers may pass, checked before anything is asked of the store."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import unquote

from semcache import scope
from semcache.errors import (
    InvalidRequestError,
)
from semcache.types import (
    CacheRequest,
    Entry,
    ModelVersion,
    Response,
)


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


def as_versions(found: Sequence[tuple[str, float]]) -> list[ModelVersion]:
    """Read model versions from the names that entries have."""
    parts = [(name.split("/"), last_put) for name, last_put in found]
    return [ModelVersion(_plain(model), _plain(version), last_put) for (model, version), last_put in parts]


def _plain(part: str) -> str:
    return "" if part == "~" else unquote(part)


def selection(
    *,
    entry_ids: Collection[str],
    tags: Collection[str],
    model: str | None,
    model_version: str | None,
    segment: Mapping[str, str] | None,
    subject: str | None,
    tenant: str | None,
    older_than: float | None,
    everything: bool,
) -> list[str]:
    """Return the generations that an invalidation names; empty if it names entries.

    Raises:
        InvalidRequestError: Nothing was named, or two kinds of selector at once.
    """
    for name, value in (("entry_ids", entry_ids), ("tags", tags)):
        if isinstance(value, str):
            raise InvalidRequestError(f"{name} is the text {value!r:.60}, expected a collection of texts")
    bases: list[str] = []
    kinds = 0
    if entry_ids:
        kinds += 1
        for entry_id in entry_ids:
            scope.split_entry_id(entry_id)
        if older_than is not None or tenant is not None:
            raise InvalidRequestError("entry_ids name entries; give neither older_than nor tenant with them")
    if tags:
        kinds += 1
        bases += [f"tag:{tag}" for tag in tags]
    if model_version is not None and model is None:
        raise InvalidRequestError("model_version without model; name the model too")
    if model is not None:
        kinds += 1
        bases.append(f"model:{model}" if model_version is None else f"version:{model}/{model_version}")
    if segment:
        kinds += 1
        bases += [f"segment:{key}={value}" for key, value in segment.items()]
    if subject is not None:
        kinds += 1
        bases.append(f"tag:subject:{subject}")
    if everything or (not kinds and (tenant is not None or older_than is not None)):
        kinds += 1
        bases.append("all")
    _check_older(older_than)
    if kinds != 1:
        found = "nothing" if not kinds else "several kinds of selector at once"
        raise InvalidRequestError(
            f"invalidate was given {found}, expected one of entry_ids, tags, model (with model_version), segment, "
            "subject, tenant, older_than or everything=True"
        )
    return bases


def _check_older(older_than: float | None) -> None:
    if older_than is not None and not (isinstance(older_than, int | float) and older_than >= 0):
        raise InvalidRequestError(f"older_than is {older_than!r}, expected seconds, 0 or more")


def check_ttl(ttl: float | None) -> None:
    if ttl is not None and (
        isinstance(ttl, bool) or not isinstance(ttl, int | float) or not ttl >= 0 or math.isinf(ttl)
    ):
        raise InvalidRequestError(f"ttl is {ttl!r}, expected a finite number of seconds, 0 or more, or None")


def matches(
    entry: Entry,
    bases: Sequence[str],
    entry_ids: Collection[str],
    tenant: str | None,
    older_than: float | None,
    now: float,
) -> bool:
    """Return whether an invalidation would reach this entry.

    Args:
        now: The store's clock, seconds since the Unix epoch.
    """
    if entry.state != "live":
        return False
    if entry_ids:
        return entry.entry_id in entry_ids
    if older_than is not None and entry.fence.time_us / 1e6 > now - older_than:
        return False
    return not set(scope.raised_generations(bases, tenant)).isdisjoint(entry.obeys)
