"""Looking through entries on behalf of a caller: whose they are, a page of them, one of them. For operators: it scans."""

from __future__ import annotations

import base64
import binascii
import heapq
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from semcache.errors import InvalidRequestError
from semcache.scope import raised_generations
from semcache.server.errors import UNKNOWN_ID, HttpError
from semcache.server.identity import Caller
from semcache.server.models import EntryDetail, EntrySummary
from semcache.types import Entry

if TYPE_CHECKING:
    from semcache.cache import AsyncSemanticCache

_TEXT = 300  # characters of an answer in a list


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a listing is asked for.

    Attributes:
        text: Part of a prompt or an answer, in any case.
        after: The last entry of the page before, as (created_at, entry id).
    """

    text: str | None = None
    tag: str | None = None
    model: str | None = None
    state: str | None = None
    limit: int = 50
    after: tuple[float, str] | None = None


def owns(view: str | None, entry: Entry) -> bool:
    """Return whether an entry is this tenant's; None stands for every tenant."""
    return view is None or raised_generations(["all"], view)[0] in entry.obeys


async def owned(cache: AsyncSemanticCache, caller: Caller, entry_id: str) -> Entry:
    """Return an entry of the caller's.

    Raises:
        HttpError: 404 if there is none; another tenant's looks the same.
    """
    try:
        (entry,) = await cache.get([entry_id])
    except InvalidRequestError as error:
        raise HttpError(404, UNKNOWN_ID, "unknown_id") from error
    if entry is None or not owns(caller.view, entry):
        raise HttpError(404, UNKNOWN_ID, "unknown_id")
    return entry


async def page(
    cache: AsyncSemanticCache, view: str | None, query: Query
) -> tuple[list[Entry], tuple[float, str] | None]:
    """Return a page of entries, newest first, and where the next one begins (None at the end).

    Walks over all entries of the namespace; holds no more than a page.
    """
    best: list[tuple[float, str, Entry]] = []
    async for entry in cache.entries():
        place = (entry.created_at, entry.entry_id)
        if not owns(view, entry) or not _asked(entry, query):
            continue
        if query.after is not None and place >= query.after:
            continue
        item = (*place, entry)
        if len(best) <= query.limit:
            heapq.heappush(best, item)
        elif place > best[0][:2]:
            heapq.heapreplace(best, item)
    best.sort(key=lambda item: item[:2], reverse=True)
    more = len(best) > query.limit
    found = [entry for _, _, entry in best[: query.limit]]
    return found, (found[-1].created_at, found[-1].entry_id) if more and found else None


def _asked(entry: Entry, query: Query) -> bool:
    if query.state is not None and entry.state != query.state:
        return False
    if query.tag is not None and query.tag not in entry.tags:
        return False
    if query.model is not None and _model(entry)[0] != query.model:
        return False
    wanted = (query.text or "").casefold()
    return not wanted or wanted in entry.prompt.casefold() or wanted in entry.response.text.casefold()


def cursor(place: tuple[float, str]) -> str:
    """Return a place in a listing as text."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place_of(text: str) -> tuple[float, str]:
    """Read a place in a listing.

    Raises:
        HttpError: 400.
    """
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        created_at, entry_id = json.loads(data)
        return float(created_at), str(entry_id)
    except (ValueError, TypeError, binascii.Error, RecursionError) as error:
        raise HttpError(400, "after isn't a `next` of this listing", "invalid_value", "after") from error


def summary(entry: Entry) -> EntrySummary:
    """Return an entry for a list."""
    return EntrySummary(**_common(entry, entry.response.text[:_TEXT]))


def detail(entry: Entry, *, now: float, response: object) -> EntryDetail:
    """Return an entry in full.

    Args:
        now: Seconds since the Unix epoch.
    """
    age = max(0.0, now - entry.created_at)
    usage = entry.response.usage
    return EntryDetail(
        **_common(entry, entry.response.text),
        tenant=next((_plain(name[7:]) for name in entry.obeys if name.startswith("tenant:")), None),
        version=_model(entry)[1],
        age=age,
        ttl_left=None if entry.ttl is None else entry.ttl - age,
        confidence=entry.confidence,
        kind=entry.kind,
        finish_reason=entry.response.finish_reason,
        usage=None if usage is None else dict(usage),
        blocked=len(entry.blocked),
        observations=list(entry.observations),
        response=response,
    )


def _common(entry: Entry, text: str) -> dict[str, Any]:
    return {
        "entry_id": entry.entry_id,
        "model": _model(entry)[0],
        "prompt": entry.prompt,
        "text": text,
        "state": entry.state,
        "tags": list(entry.tags),
        "created_at": entry.created_at,
        "ttl": entry.ttl,
        "revision": entry.revision,
    }


def _model(entry: Entry) -> tuple[str, str]:
    model, version, _ = entry.entry_id.split("/")
    return _plain(model), _plain(version)


def _plain(part: str) -> str:
    return "" if part == "~" else unquote(part)
