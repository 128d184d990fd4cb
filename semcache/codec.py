"""Entry <-> the fields of a Redis hash: JSON and raw bytes, never pickle.

What can't be read raises `UndecodableError`; the cache counts it and treats it as a miss.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np

from semcache.errors import UndecodableError
from semcache.types import Embedding, Entry, Fence, Response

SCHEMA: Final = 1

FIELDS: Final = (
    "id", "scope", "prompt", "response", "tags", "epoch", "fence", "revision", "created", "ttl",
    "confidence", "kind", "state", "blocked", "seen",
)  # fmt: skip
"""Fields that a read asks for, in this order; the embedding is read apart."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode  # made once
_decode = json.JSONDecoder().decode  # json.loads guesses the encoding of bytes first; ours are UTF-8

_RESPONSE_FIELDS: Final = tuple(f.name for f in fields(Response) if f.name != "text")
_RESPONSE_DEFAULTS: Final = {f.name: f.default for f in fields(Response)}


def encode_response(response: Response) -> bytes:
    """Return the JSON envelope of a response.

    Raises:
        UndecodableError: It holds something that isn't JSON, or a lone surrogate.
    """
    envelope: dict[str, Any] = {"v": SCHEMA, "text": response.text}
    for name in _RESPONSE_FIELDS:
        value = getattr(response, name)
        if value != _RESPONSE_DEFAULTS[name] or type(value) is not type(_RESPONSE_DEFAULTS[name]):
            envelope[name] = value
    try:
        data = _encode(envelope).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UndecodableError(f"response can't be written as JSON: {error}") from error
    return data


def decode_response(data: bytes) -> Response:
    """Read a response back.

    Raises:
        UndecodableError: It isn't an envelope of this schema.
    """
    try:
        envelope = _decode(data.decode())
        if not isinstance(envelope, dict) or envelope.pop("v", None) != SCHEMA:
            raise UndecodableError("response isn't an envelope of schema 1")
        return Response(**envelope)
    except (ValueError, TypeError, RecursionError) as error:
        raise UndecodableError(f"response can't be read: {error}") from error


def encode_tags(tags: Sequence[str]) -> str:
    """Return tags as JSON."""
    return _encode(list(tags)) if tags else "[]"


def decode_entry(entry_id: str, values: Sequence[Any]) -> Entry | None:
    """Build an entry from the values of `FIELDS`; None if there is none.

    Raises:
        UndecodableError: The values aren't an entry, or another entry's.
    """
    if values[0] is None and values[3] is None:
        return None
    try:
        (id_, scope, prompt, response, tags, epoch, fence, revision, created, ttl, confidence, kind, state,
         blocked, seen) = values  # fmt: skip
        if id_.decode() != entry_id:
            raise UndecodableError(f"found entry {id_.decode():.100} under the key of {entry_id}")
        return Entry(
            entry_id=entry_id,
            scope=scope.decode(),
            prompt=prompt.decode(),
            response=decode_response(response),
            tags=tuple(json.loads(tags)) if len(tags) > 2 else (),
            fence=Fence(epoch.decode(), int(fence)),
            revision=int(revision),
            created_at=int(created) / 1e6,
            ttl=float(ttl) / 1e3 if ttl else None,
            confidence=float(confidence) if confidence else None,
            kind=kind.decode() if kind else None,
            state="live" if state == b"live" else "withdrawn",
            blocked=frozenset(blocked.decode().split()) if blocked else frozenset(),
            observations=decode_observations(seen),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise UndecodableError(f"entry {entry_id} can't be read: {error}") from error


def decode_observations(seen: bytes | None) -> tuple[tuple[float, bool], ...]:
    """Read ``0.91+ 0.88-`` as observations (similarity, right)."""
    if not seen:
        return ()
    return tuple((float(word[:-1]), word[-1] == "+") for word in seen.decode().split())


def encode_embedding(embedding: Embedding) -> bytes:
    """Return an embedding as float16, little-endian."""
    return embedding.astype("<f2").tobytes()


def decode_embedding(data: bytes | None, dim: int) -> Embedding | None:
    """Read an embedding back as a float32 unit row; None if it is missing or isn't one of `dim`."""
    if data is None or len(data) != 2 * dim:
        return None
    row = np.frombuffer(data, dtype="<f2").astype(np.float32)
    norm = math.sqrt(row.dot(row))
    if not 0.9 < norm < 1.1:  # also false for NaN
        return None
    unit: Embedding = row / np.float32(norm)
    return unit


def entry_fields(
    *,
    entry_id: str,
    scope: str,
    prompt: str,
    response: bytes,
    tags: Sequence[str],
    confidence: float | None,
    kind: str | None,
    embedding: bytes | None,
    fingerprint: str,
    obeys: Sequence[str],
    extra: Mapping[str, str] | None = None,
) -> list[str | bytes]:
    """Return field names and values of an entry, alternating; the put script adds what it decides."""
    pairs: list[str | bytes] = [
        "id", entry_id, "scope", scope, "prompt", prompt, "response", response, "tags", encode_tags(tags),
        "confidence", "" if confidence is None else repr(float(confidence)), "kind", kind or "",
        "fingerprint", fingerprint, "obeys", encode_tags(obeys),
    ]  # fmt: skip
    if embedding is not None:
        pairs += ["embedding", embedding]
    for name, value in (extra or {}).items():
        pairs += [name, value]
    return pairs
