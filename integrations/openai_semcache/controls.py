"""Per-call controls: `Cache-Control`, `x-semcache-*` headers and the body's `cache` member. Pure.

A header wins over the body; a value that can't be meant is an error, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from semcache.errors import InvalidRequestError
from semcache.types import MODES, Mode

PREFIX: Final = "x-semcache-"
BODY_FIELD: Final = "cache"
MAX_TAGS: Final = 32
MAX_TEXT: Final = 256  # characters of a tag or a scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What one caller asks of the cache; None means that she didn't say.

    Attributes:
        mode: ``semantic``, ``exact`` or ``off``.
        ttl: Seconds that the new entry lives; 0 is a ttl.
        max_age: Accept entries up to this age, seconds.
        threshold: Least cosine similarity of a semantic hit, in [-1, 1]; may only tighten.
        scope: One more thing that must match exactly.
        tags: Tags of the new entry.
        no_cache: Don't read, but store the new answer.
        no_store: Don't store.
        only_if_cached: Don't call the model; a miss is a 504.
    """

    mode: Mode | None = None
    ttl: float | None = None
    max_age: float | None = None
    threshold: float | None = None
    scope: str | None = None
    tags: tuple[str, ...] = ()
    no_cache: bool = False
    no_store: bool = False
    only_if_cached: bool = False


NO_CONTROLS: Final = Controls()


def parse_controls(headers: Mapping[str, str], body: Any = None) -> Controls:
    """Read a call's controls.

    Args:
        headers: Request headers, names in lower case.
        body: Value of the body's `cache` member, None without one.

    Raises:
        InvalidRequestError: A value, or a name of ours, that can't be meant.
    """
    controls = NO_CONTROLS if body is None else _from_body(body)
    cache_control = headers.get("cache-control")
    if cache_control:
        controls = _from_cache_control(cache_control, controls)
    changes: dict[str, Any] = {}
    for name, value in headers.items():
        if name.startswith(PREFIX):
            field = name.removeprefix(PREFIX).replace("-", "_")
            if field not in _READERS or field in _FLAGS:
                raise InvalidRequestError(f"unknown request header {name}, expected one of {_header_names()}")
            changes[field] = _READERS[field](name, value)
    return replace(controls, **changes) if changes else controls


def _from_body(body: Any) -> Controls:
    if not isinstance(body, Mapping):
        raise InvalidRequestError(f'cache is {type(body).__name__}, expected an object such as {{"ttl": 60}}')
    changes: dict[str, Any] = {}
    for name, value in body.items():
        field = str(name).replace("-", "_")
        field = "max_age" if field == "s_maxage" else field
        if field not in _READERS:
            raise InvalidRequestError(f"unknown member cache.{name}, expected one of {', '.join(_READERS)}")
        if value is not None:
            changes[field] = _READERS[field](f"cache.{name}", value)
    return Controls(**changes)


def _from_cache_control(text: str, controls: Controls) -> Controls:
    """Apply RFC 9111 request directives; those that mean nothing to us are skipped, as it asks."""
    changes: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        name = name.strip().lower()
        if name in ("no-cache", "no-store", "only-if-cached"):
            changes[name.replace("-", "_")] = True
        elif name == "max-age":
            seconds = value.strip().strip('"') if equals else ""
            if not (seconds.isascii() and seconds.isdigit()):
                raise InvalidRequestError(
                    f"Cache-Control: max-age is {seconds!r}, expected seconds, e.g. max-age=60"
                )
            changes["max_age"] = _seconds("Cache-Control: max-age", seconds)
    return replace(controls, **changes) if changes else controls


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidRequestError(f"{name} is {type(value).__name__}, expected a number")
    try:
        number = float(value.replace("_", "x") if isinstance(value, str) else value)
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(f"{name} is {value!r:.50}, expected a number without a unit") from error
    if not math.isfinite(number):
        raise InvalidRequestError(f"{name} is {value!r:.50}, expected a finite number")
    return number


def _seconds(name: str, value: Any) -> float:
    number = _number(name, value)
    if number < 0:
        raise InvalidRequestError(f"{name} is {number:g} seconds, expected 0 or more")
    return number


def _threshold(name: str, value: Any) -> float:
    number = _number(name, value)
    if not -1.0 <= number <= 1.0:
        raise InvalidRequestError(f"{name} is {number:g}, expected a cosine similarity in [-1, 1]")
    return number


def _mode(name: str, value: Any) -> str:
    if value not in MODES:
        raise InvalidRequestError(f"{name} is {value!r:.50}, expected one of {', '.join(MODES)}")
    return str(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequestError(f"{name} is {value!r:.50}, expected some text")
    text = value.strip()
    if len(text) > MAX_TEXT:
        raise InvalidRequestError(f"{name} has {len(text)} characters, expected {MAX_TEXT} or fewer")
    if any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in text):
        raise InvalidRequestError(f"{name} holds a control character or half a surrogate pair, expected text")
    return text


def _tags(name: str, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise InvalidRequestError(
            f"{name} is {type(value).__name__}, expected tags as a list or separated by commas"
        )
    if len(parts) > MAX_TAGS:
        raise InvalidRequestError(f"{name} holds {len(parts)} tags, expected {MAX_TAGS} or fewer")
    return tuple(dict.fromkeys(_text(name, part) for part in parts))


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name} is {value!r:.50}, expected true or false")
    return value


_READERS: Final = {
    "mode": _mode,
    "ttl": _seconds,
    "max_age": _seconds,
    "threshold": _threshold,
    "scope": _text,
    "tags": _tags,
    "no_cache": _flag,
    "no_store": _flag,
    "only_if_cached": _flag,
}
_FLAGS: Final = (
    "no_cache",
    "no_store",
    "only_if_cached",
    "max_age",
)  # Cache-Control's, where headers are meant


def _header_names() -> str:
    return ", ".join(PREFIX + field.replace("_", "-") for field in _READERS if field not in _FLAGS)
