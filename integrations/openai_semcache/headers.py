"""The headers that tell a caller what the cache did, and which of upstream's may be sent on. Pure."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from openai_semcache.controls import PREFIX
from semcache.reasons import Status, status_of
from semcache.types import Decision, Hit, Miss, Stored

JSON_TYPE: Final = "application/json"
SSE_TYPE: Final = "text/event-stream; charset=utf-8"
HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_STALE: Final = frozenset({"expired", "max_age", "stale_tag", "withdrawn", "epoch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """What the cache did with one request, as headers and annotations say it.

    Attributes:
        status: ``hit``, ``miss``, ``bypass``, ``refresh`` or ``error``.
        match: ``exact`` or ``semantic`` on a hit.
        similarity: Cosine similarity on a hit.
        reason: Why it wasn't a hit, one of `semcache.reasons.MISS_REASONS`.
        entry_id: The entry served or just stored.
        lookup_id: Signed token for feedback.
        age: Seconds since the served entry was stored.
        ttl_left: Seconds it has left; None for ever.
        outcome: What became of the new answer, one of `semcache.reasons.STORE_OUTCOMES`.
        collapsed: Whether another caller's call answered this one.
        source_id: Id of the stored answer, which got a new one.
        detail: More on the reason, for Cache-Status.
        partial: Whether some items of a batch came from the cache, some from upstream.
    """

    status: Status
    match: str | None = None
    similarity: float | None = None
    reason: str | None = None
    entry_id: str | None = None
    lookup_id: str | None = None
    age: float | None = None
    ttl_left: float | None = None
    outcome: str | None = None
    collapsed: bool = False
    source_id: str | None = None
    detail: str = ""
    partial: bool = False


def info_of(
    decision: Decision, *, stored: Stored | None = None, collapsed: bool = False, detail: str = ""
) -> Info:
    """Describe a lookup, and the put that followed it."""
    if isinstance(decision, Hit):
        data = decision.response.data
        source = data.get("id") if isinstance(data, Mapping) else None
        return Info(
            status="hit",
            match=decision.match,
            similarity=decision.similarity,
            entry_id=decision.entry_id,
            lookup_id=decision.lookup_id,
            age=decision.age,
            ttl_left=decision.ttl_left,
            source_id=source if isinstance(source, str) else None,
        )
    return Info(
        status=status_of(decision.reason),
        reason=decision.reason,
        entry_id=None if stored is None else stored.entry_id,
        lookup_id=None if stored is None else stored.lookup_id,
        outcome=None if stored is None else stored.outcome,
        collapsed=collapsed,
        detail=detail,
    )


def bypass_info(reason: str, detail: str = "") -> Info:
    """Describe a request that the cache had no part in.

    Args:
        reason: One of `semcache.reasons.BYPASSES`.
    """
    return Info(status="bypass", reason=Miss(f"bypass:{reason}").reason, detail=detail)


def info_headers(info: Info) -> list[tuple[str, str]]:
    """Return the headers of an answer, names in lower case."""
    headers: list[tuple[str, str]] = [(PREFIX + "status", info.status)]
    if info.match is not None:
        headers.append((PREFIX + "match", info.match))
    if info.similarity is not None:
        headers.append((PREFIX + "similarity", f"{info.similarity:.4f}".rstrip("0").rstrip(".")))
    for name, value in (
        ("reason", info.reason),
        ("stored", info.outcome),
        ("entry-id", info.entry_id),
        ("lookup-id", info.lookup_id),
        ("source-id", info.source_id),
    ):
        if value is not None:
            headers.append((PREFIX + name, _visible(value)))
    if info.age is not None:
        headers.append(("age", str(max(0, math.floor(info.age)))))
    headers.append(("cache-status", _cache_status(info)))
    return headers


def info_json(info: Info) -> dict[str, Any]:
    """Return the object that `Options.annotate` adds to an answer."""
    members = {
        "status": info.status,
        "match": info.match,
        "similarity": info.similarity,
        "reason": info.reason,
        "stored": info.outcome,
        "entry_id": info.entry_id,
        "lookup_id": info.lookup_id,
        "age": info.age,
    }
    return {name: value for name, value in members.items() if value is not None}


def hit_headers(info: Info, *, stream: bool) -> list[tuple[str, str]]:
    """Return all headers of an answer from the cache: content type, a fresh request id, ours; none of upstream's."""
    headers = [
        ("content-type", SSE_TYPE if stream else JSON_TYPE),
        ("x-request-id", "req_semcache_" + uuid.uuid4().hex),
    ]
    if stream:
        headers.append(("cache-control", "no-cache"))
    return headers + info_headers(info)


def merge_headers(
    upstream: Iterable[tuple[str, str]], ours: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return upstream's headers with ours in place of any of the same name that would speak for us."""
    ours = list(ours)
    names = {name for name, _ in ours} - {"cache-status"}  # caches along the way each add theirs
    kept = [
        (name, value)
        for name, value in upstream
        if name.lower() not in names and not name.lower().startswith(PREFIX)
    ]
    return kept + ours


def _cache_status(info: Info) -> str:
    """Return the RFC 9211 header: `semcache; hit; ttl=…` or `semcache; fwd=…`."""
    parts = ["semcache"]
    if info.status == "hit":
        parts.append("hit")
        if info.ttl_left is not None:
            parts.append(f"ttl={math.floor(info.ttl_left)}")
        parts.append(f"detail={info.match}")
        return "; ".join(parts)
    reason = info.reason or ""
    if info.partial:
        parts.append("fwd=partial")
    elif info.status == "refresh":
        parts.append("fwd=request")
    elif info.status == "bypass":
        parts.append("fwd=bypass")
    else:
        parts.append("fwd=stale" if reason in _STALE else "fwd=miss")
    if info.outcome in ("stored", "replaced"):
        parts.append("stored")
    if info.collapsed:
        parts.append("collapsed")
    detail = "/".join(part for part in (reason, info.detail) if part)
    if detail:
        parts.append(f"detail={_token(detail)}")
    return "; ".join(parts)


def _token(text: str) -> str:
    """Return `text` as a structured-field token, or as a string where it can't be one."""
    good = all(character.isalnum() or character in "!#$%&'*+-.^_`|~:/" for character in text)
    if good and text.isascii() and text[:1].isalpha():
        return text
    return '"' + _visible(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _visible(text: str) -> str:
    """Return `text` fit for a header: visible ASCII, no line ends."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if 32 <= ord(character) < 127 else "?" for character in text)
