"""What must match exactly, in a canonical form, and the ids made from it.

Pure: values in, values out. `cache` holds the keys; this module only uses them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from semcache.errors import InvalidRequestError
from semcache.secrets import digest
from semcache.types import CacheRequest, JsonValue

_SEPARATOR = b"\x1f"
_ENCODED = re.compile(r"(?:[A-Za-z0-9\-._~]|%[0-9A-F]{2}){1,120}")
MAX_TAG = 512  # characters
_ID = re.compile("[0-9a-f]{32}")
_encode = json.JSONEncoder(  # made once
    sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
).encode
_CUT = re.compile(r"%.?$")


def exact_text(text: str) -> str:
    """Return the form of a prompt under which two prompts are the same text.

    NFC, CRLF and CR to LF, outer white space stripped; nothing else, since inner white space
    matters in code.
    """
    if text.isascii():
        return text.replace("\r\n", "\n").replace("\r", "\n").strip() if "\r" in text else text.strip()
    return unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").strip()


def nfc(text: str) -> str:
    """Return a text in NFC, the form under which names are equal."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def canonical(value: JsonValue) -> JsonValue:
    """Return `value` in a form in which equal meanings are equal JSON.

    Mappings lose their null members and are sorted when dumped, whole floats become ints (0 == 0.0),
    text becomes NFC.

    Raises:
        InvalidRequestError: Something in it isn't JSON.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return nfc(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequestError(f"{value!r} in the scope, expected a finite number")
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        pairs: dict[str, JsonValue] = {}
        for key, member in value.items():
            if not isinstance(key, str):
                raise InvalidRequestError(f"key {key!r} in the scope, expected str")
            if member is not None:
                pairs[nfc(key)] = canonical(member)
        return pairs
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [canonical(member) for member in value]
    raise InvalidRequestError(
        f"{type(value).__name__} in the scope, expected JSON (str, number, bool, list, mapping)"
    )


def scope_fields(request: CacheRequest) -> dict[str, JsonValue]:
    """Return the fields that two requests must have in common to share an answer."""
    return {
        "tenant": request.tenant,
        "model": request.model,
        "model_version": request.model_version,
        "context": request.context,
        "earlier_turns": request.earlier_turns,
        "tools": request.tools,
        "params": request.params,
        "endpoint": request.endpoint,
        "media": request.media,
        "segment": request.segment,
    }


def scope_id(request: CacheRequest, scope_key: bytes, owner: tuple[str, str] | None = None) -> str:
    """Return the keyed digest of the request's scope, 32 hex digits.

    Args:
        owner: (user, subject) whose alone the answer is; None if people share it.

    Raises:
        InvalidRequestError: A field holds something that isn't JSON, or a lone surrogate.
    """
    fields = canonical(scope_fields(request))
    if owner is not None:
        fields = [fields, owner]
    text = _encode(fields)
    return digest(scope_key, b"scope" + _SEPARATOR + _bytes(text)).hex()


def text_id(scope: str, text: str, scope_key: bytes) -> str:
    """Return the keyed digest of an exact text inside a scope, 32 hex digits."""
    data = b"entry" + _SEPARATOR + scope.encode() + _SEPARATOR + _bytes(text)
    return digest(scope_key, data).hex()


def text_digest(text: str) -> str:
    """Return the digest that names a text in the embedding cache and in blocked lists, 32 hex digits."""
    return hashlib.blake2b(_bytes(text), digest_size=16).hexdigest()


def pseudonym(text: str, scope_key: bytes) -> str:
    """Return a keyed digest that stands for a text, e.g. a credential, without giving it away; 32 hex digits."""
    return digest(scope_key, b"pseudonym" + _SEPARATOR + _bytes(text)).hex()


def entry_id(model: str, version: str, id_: str) -> str:
    """Return the public name of an entry, ``<model>/<version>/<id>``, percent-encoded."""
    return f"{_part(model)}/{_part(version)}/{id_}"


def split_entry_id(name: str) -> tuple[str, str, str]:
    """Return (model, version, id), the first two still encoded.

    Raises:
        InvalidRequestError: It isn't the name of an entry.
    """
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 3 or not _ID.fullmatch(parts[2]):
        raise InvalidRequestError(f"entry id {name!r:.100}, expected <model>/<version>/<32 hex digits>")
    if not (_ENCODED.fullmatch(parts[0]) and _ENCODED.fullmatch(parts[1])):
        raise InvalidRequestError(f"entry id {name!r:.100} isn't percent-encoded as semcache writes it")
    return parts[0], parts[1], parts[2]


def scope_generations(request: CacheRequest) -> tuple[str, ...]:
    """Return the names of the generations that every entry of the request's scope obeys."""
    bases = [model_generation(request.model, None), model_generation(request.model, request.model_version)]
    bases += [segment_generation(key, value) for key, value in sorted(request.segment.items())]
    mine = _part(request.tenant)
    return ("all", f"tenant:{mine}", *bases, *(f"{mine}|{base}" for base in bases))


def model_generation(model: str, version: str | None) -> str:
    """Return the name of the generation of a model, or of one of its versions."""
    return f"model:{nfc(model)}" if version is None else f"version:{nfc(model)}/{nfc(version)}"


def segment_generation(key: str, value: JsonValue) -> str:
    """Return the name of the generation of one part of a segment."""
    return f"segment:{nfc(key)}={canonical(value)}"


def tag_generations(tenant: str, tags: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the generations that tags obey: everybody's and the tenant's own."""
    mine = _part(tenant)
    return tuple(name for tag in tags for name in (f"tag:{tag}", f"{mine}|tag:{tag}"))


def entry_generations(generations: Iterable[str], tenant: str, tags: Iterable[str]) -> tuple[str, ...]:
    """Return the names of all generations that an entry obeys.

    Args:
        generations: Its scope's, from `scope_generations`.
        tags: Its own, checked.
    """
    return (*generations, *tag_generations(tenant, tags))


def raised_generations(bases: Iterable[str], tenant: str | None) -> tuple[str, ...]:
    """Return the names to raise for an invalidation: in every tenant (None), or in one.

    Args:
        bases: ``all``, ``model:…``, ``version:…``, ``segment:…`` or ``tag:…``.
    """
    if tenant is None:
        return tuple(bases)
    mine = _part(tenant)
    return tuple(f"tenant:{mine}" if base == "all" else f"{mine}|{base}" for base in bases)


def given_tags(request: CacheRequest, tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags that are stored with an entry: the caller's and the subject's, in NFC, sorted.

    Raises:
        InvalidRequestError: A tag isn't text of 1 to 512 characters, or there are more than 64.
    """
    if not tags and request.subject is None:
        return ()
    found = set(checked_tags(tags))
    if request.subject is not None:
        found.add(checked_tag(f"subject:{request.subject}"))
    if len(found) > 64:
        raise InvalidRequestError(f"{len(found)} tags, expected at most 64")
    return tuple(sorted(found))


def checked_tags(tags: Iterable[object]) -> tuple[str, ...]:
    """Return tags in NFC, in the order given.

    Raises:
        InvalidRequestError: They aren't a collection of texts, or one isn't text of 1 to 512 characters.
    """
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise InvalidRequestError(f"tags is {tags!r:.60}, expected a collection of texts")
    return tuple(dict.fromkeys(checked_tag(tag) for tag in tags))


def checked_tag(tag: object) -> str:
    """Return a tag in NFC.

    Raises:
        InvalidRequestError: It isn't Unicode text of 1 to 512 characters.
    """
    if not isinstance(tag, str) or not 0 < len(tag) <= MAX_TAG:
        raise InvalidRequestError(f"tag {tag!r:.60}, expected text of 1 to {MAX_TAG} characters")
    _bytes(tag)
    return nfc(tag)


def checked_name(what: str, value: object) -> str:
    """Return a text that can be part of a key: what a tenant, model, kind or worker is called.

    Raises:
        InvalidRequestError: It isn't Unicode text of at most 512 characters.
    """
    if not isinstance(value, str) or len(value) > MAX_TAG:
        raise InvalidRequestError(f"{what} is {value!r:.60}, expected text of at most {MAX_TAG} characters")
    _bytes(value)
    return value


def _part(text: str) -> str:
    text = nfc(text)
    encoded = quote(text, safe="-._~")
    if len(encoded) > 120:
        return _CUT.sub("", encoded[:80]) + "~" + hashlib.blake2b(_bytes(text), digest_size=8).hexdigest()
    return {"": "~", "~": "%7E"}.get(encoded, encoded)  # a part that is called ~ isn't an empty one


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"lone surrogate at character {error.start}, expected Unicode text"
        ) from error
