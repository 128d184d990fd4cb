"""CacheRequest <-> JSON, so that an entry can be asked for again: by regeneration and by warm-up.

A request that is nothing but a prompt, a model, a tenant and a segment is always kept with its entry. Its
context, tools and parameters are kept only where `Policy.keep_requests` says so: they may hold what the
application doesn't want in the store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from semcache.errors import UndecodableError
from semcache.types import CacheRequest

_PLAIN: Final = ("model", "model_version", "tenant", "endpoint", "segment", "subject", "kind")
_PRIVATE: Final = ("context", "earlier_turns", "tools", "params", "media")
MAX_BYTES: Final = 64 * 1024


def encode_request(request: CacheRequest, *, keep_all: bool) -> str:
    """Return the request without its prompt, as JSON; empty if it may not or can't be kept."""
    private = {name: getattr(request, name) for name in _PRIVATE}
    if any(private.values()) and not keep_all:
        return ""
    if request.opaque:
        return ""
    kept = {name: value for name in (*_PLAIN, *_PRIVATE) if (value := getattr(request, name))}
    text = _encode(kept)
    return text if len(text.encode()) <= MAX_BYTES else ""


def decode_request(prompt: str, data: str) -> CacheRequest:
    """Read a request back.

    Raises:
        UndecodableError: It isn't a request.
    """
    known = {field.name for field in fields(CacheRequest)}
    try:
        kept: Any = json.loads(data)
        kept = {name: value for name, value in kept.items() if name in known and not name.startswith("_")}
        kept["media"] = tuple(kept.get("media", ()))
        return CacheRequest(prompt, **kept)
    except (ValueError, TypeError, AttributeError) as error:
        raise UndecodableError(f"request can't be read: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode  # made once
