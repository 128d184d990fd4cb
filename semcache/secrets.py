"""Keys and signed lookup ids. Pure, but for the random bytes of a nonce.

One root secret gives two keys: `scope` for ids (never rotated: another one is a cold cache) and `token`
for lookup ids. A lookup id is self-contained: nothing is written when a hit is served.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from semcache.errors import UnknownLookupError
from semcache.types import Match

_decode = json.JSONDecoder().raw_decode  # made once: making one takes as long as using it
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_UNKNOWN = "unknown or expired lookup id"
_URL = bytes.maketrans(b"+/", b"-_")
_PLAIN = bytes.maketrans(b"-_", b"+/")


@dataclass(frozen=True, slots=True)
class Secrets:
    """Keys derived from one root secret.

    Attributes:
        scope: Key of scopes and entry ids.
        tokens: Key id → key of lookup ids; the first signs, all are accepted.
    """

    scope: bytes
    tokens: tuple[tuple[str, bytes], ...]


def digest(key: bytes, data: bytes) -> bytes:
    """Return the HMAC-SHA-256 of some data, cut to 16 bytes."""
    made = _keyed(key).copy()
    made.update(data)
    return made.digest()[:16]


@lru_cache(maxsize=64)  # making one costs several times as much as copying one
def _keyed(key: bytes) -> hmac.HMAC:
    return hmac.new(key, digestmod="sha256")


def _signature(key: bytes, data: bytes) -> str:
    """Return the keyed BLAKE2b of some data (RFC 7693), 16 bytes as text; it takes half as long as an HMAC."""
    return _b64(hashlib.blake2b(data, key=key, digest_size=16).digest())


def derive(root: bytes, *, generation: int = 0) -> Secrets:
    """Derive the keys of a root secret.

    Args:
        generation: Number of the token key in use; its predecessor is accepted too.
    """
    numbers = (generation, generation - 1) if generation else (0,)
    tokens = tuple((str(n), hmac.digest(root, f"semcache token {n}".encode(), "sha256")) for n in numbers)
    return Secrets(hmac.digest(root, b"semcache scope", "sha256"), tokens)


class Serving(NamedTuple):
    """What a lookup id says: which entry served which text, to whom, when.

    Attributes:
        tenant: The tenant that was served.
        entry_id: The entry.
        revision: The entry's revision at that time.
        match: How it matched.
        similarity: Cosine similarity, 1.0 for an exact match.
        text: Digest of the text that was asked.
        nonce: Makes each serving one of its own.
        time: The store's clock, seconds since the Unix epoch.
    """

    tenant: str
    entry_id: str
    revision: int
    match: Match
    similarity: float
    text: str
    nonce: str
    time: float


def sign(serving: Serving, namespace: str, secrets: Secrets) -> str:
    """Return the lookup id of a serving."""
    key_id, key = secrets.tokens[0]
    fields = [key_id, namespace, serving.tenant, serving.entry_id, serving.revision, serving.match[0],
              round(serving.similarity, 4), serving.text, serving.nonce, round(serving.time, 3)]  # fmt: skip
    head = _b64(_encode(fields).encode())
    return head + "." + _signature(key, head.encode())


def verify(lookup_id: str, namespace: str, secrets: Secrets, *, now: float, lifetime: float) -> Serving:
    """Read a lookup id back.

    Args:
        now: The store's clock, seconds since the Unix epoch.
        lifetime: Seconds for which it is accepted.

    Raises:
        UnknownLookupError: Forged, of another namespace, too old, or no lookup id at all; which, isn't said.
    """
    try:
        head, _, tail = lookup_id.partition(".")
        fields, _ = _decode(_unb64(head).decode())  # all of it is signed, also what may follow
        key = dict(secrets.tokens).get(fields[0], b"")
        # The letters are signed, not the bytes they stand for: one serving has one name.
        good = hmac.compare_digest(tail, _signature(key or b"no key", head.encode()))
        if not (good and key) or fields[1] != namespace:
            raise UnknownLookupError(_UNKNOWN)
        _, _, tenant, entry_id, revision, match, similarity, text, nonce, time = fields
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
        binascii.Error,
    ) as error:
        raise UnknownLookupError(_UNKNOWN) from error
    if now - time > lifetime:
        raise UnknownLookupError(_UNKNOWN)
    return Serving(
        tenant=tenant,
        entry_id=entry_id,
        revision=revision,
        match="exact" if match == "e" else "semantic",
        similarity=similarity,
        text=text,
        nonce=nonce,
        time=time,
    )


def new_nonce() -> str:
    """Return 12 random bytes as text."""
    return _b64(os.urandom(12))


def _b64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).translate(_URL).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return binascii.a2b_base64(
        text.encode("ascii").translate(_PLAIN) + b"=" * (-len(text) % 4), strict_mode=True
    )
