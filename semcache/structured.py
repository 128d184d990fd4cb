"""What an answer must be where the request asks for JSON: any JSON, or JSON that a schema admits. Pure.

Schemas come from callers and are judged in their requests' time: no reference in one is ever fetched, and patterns have a
bound on their search. JSON Schema's `format` is a remark there, as the standard has it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NoReturn

from semcache.types import JsonValue

logger = logging.getLogger(__name__)

_SCHEMAS_KEPT: Final = 256
_MOST_BACKTRACKS: Final = 100_000  # of one pattern in one text: a few milliseconds


@dataclass(frozen=True, slots=True)
class Structure:
    """What an answer's text must be.

    Attributes:
        schema: JSON text of the schema that must admit it; None for any JSON.
    """

    schema: str | None = None

    @classmethod
    def of(cls, schema: JsonValue) -> Structure:
        """Return the structure that a schema asks for."""
        return cls(json.dumps(schema, sort_keys=True, separators=(",", ":")))

    def admits(self, text: str) -> bool:
        """Return whether a text is what is asked for; False if the schema itself can't be judged."""
        try:
            value = json.loads(text, parse_constant=_refuse_constant)
            if "\\u" in text or not text.isascii():
                json.dumps(value, ensure_ascii=False).encode()  # refuses half a surrogate pair
        except (ValueError, RecursionError):
            return False
        if self.schema is None:
            return True
        is_valid = _judge(self.schema)
        try:
            return is_valid is not None and is_valid(value)
        except ValueError:  # a number too large for some releases of the library
            return False


def structure_of(fields: Mapping[str, Any]) -> Structure | None:
    """Return what an OpenAI-style request's `response_format`, or `text.format`, asks for; None for any text."""
    text = fields.get("text")
    wanted = text.get("format") if isinstance(text, Mapping) else fields.get("response_format")
    if not isinstance(wanted, Mapping):
        return None
    if wanted.get("type") == "json_object":
        return Structure()
    if wanted.get("type") != "json_schema":
        return None
    named = wanted.get("json_schema", wanted)  # the Responses API has its members side by side
    schema = named.get("schema") if isinstance(named, Mapping) else None
    return Structure() if schema is None else Structure.of(schema)


@lru_cache(_SCHEMAS_KEPT)
def _judge(schema: str) -> Callable[[Any], bool] | None:
    """Return what tells whether a value fits; None for a schema that isn't one."""
    try:
        import jsonschema_rs
    except ImportError:
        logger.warning(
            "structured answers can't be checked and aren't stored: jsonschema-rs is missing; "
            "pip install 'llm-semcache[openai]' or 'llm-semcache[langchain]'"
        )
        return None
    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MOST_BACKTRACKS)
    try:
        validator = jsonschema_rs.validator_for(
            json.loads(schema), validate_formats=False, retriever=_refuse_to_fetch, pattern_options=patterns
        )
    except (ValueError, RecursionError) as error:
        logger.info("a response schema can't be judged, its answers aren't stored: %s", type(error).__name__)
        return None
    return validator.is_valid


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} isn't JSON")


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError(f"{uri:.100} isn't part of the schema")
