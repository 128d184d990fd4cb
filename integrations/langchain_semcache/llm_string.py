"""What LangChain hands to a cache as `llm_string`: which model, with which settings.

It has two forms, the JSON of a serialisable model followed by ``---`` and the call's arguments, or
the repr of a list of pairs. Both may hold credentials, addresses of objects and classes by name
only. Pure: text in, frozen value out; nothing of the raw text but a digest leaves this module,
apart from an allow-list of sampling fields.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from semcache.structured import Structure, structure_of
from semcache.types import JsonValue

IGNORED: Final = frozenset(
    {
        # how the answer travels
        "stream", "streaming", "stream_options", "stream_usage", "disable_streaming", "stream_chunk_timeout",
        # the client, not the model
        "request_timeout", "timeout", "default_request_timeout", "max_retries", "http_client",
        "http_async_client", "http_socket_options", "client", "async_client", "root_client",
        "root_async_client", "validate_base_url", "rate_limiter", "disabled_params",
        # LangChain's bookkeeping
        "name", "verbose", "cache", "callbacks", "callback_manager", "tags", "metadata", "profile",
        "custom_get_token_ids", "ls_structured_output_format",
        # the provider's bookkeeping
        "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
        "prompt_cache_retention", "idempotency_key",
    }
)  # fmt: skip
"""Fields known not to change the answer. Every other field isolates."""

IGNORED_HEADERS: Final = frozenset(
    {
        "accept", "accept-encoding", "connection", "content-length", "content-type", "idempotency-key",
        "traceparent", "tracestate", "baggage", "user-agent", "x-request-id", "x-correlation-id",
    }
)  # fmt: skip
"""Headers known not to change the answer, and ``x-stainless-*``. Every other one isolates, by digest."""

CLEAR: Final = frozenset(
    {
        "temperature", "top_p", "top_k", "seed", "n", "best_of", "stop", "max_tokens", "max_completion_tokens",
        "max_output_tokens", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs",
        "reasoning_effort", "verbosity", "modalities", "parallel_tool_calls",
    }
)  # fmt: skip
"""Fields that the cache's own rules read; all others reach it as one digest."""

TOOL_FIELDS: Final = ("tools", "tool_choice", "functions", "function_call", "web_search_options")
"""Fields that say which tools the model may call."""

SERVER_STATE: Final = (
    "store",
    "previous_response_id",
    "use_previous_response_id",
    "conversation",
    "background",
)
"""Fields that tie an answer to a record at the provider; a stored answer can't stand for such a record."""

MODEL_FIELDS: Final = (
    "model", "model_name", "model_id", "modelId", "deployment_name", "azure_deployment", "deployment",
    "engine", "engine_id", "repo_id", "model_path", "endpoint_name", "endpoint_id",
)  # fmt: skip
"""Where integrations keep the model's name, in order of precedence."""

_HEADER_FIELDS: Final = frozenset({"default_headers", "extra_headers", "headers"})
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_STRING_OR_OBJECT: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|<", re.DOTALL)
_SEPARATOR: Final = "---"
_OBJECT: Final = "\x00object:"
_UNSET: Final = "\x00unset"


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """A model's identity and settings.

    Attributes:
        model: Name of the model, empty if none was found.
        endpoint: Class path or type of the LangChain class.
        params: Sampling fields in clear, and the digest of every other field that isolates.
        tools: Tool definitions and tool choice, None without any.
        opaque: True if something in it has no stable meaning.
        schemaless: Classes that stand for a response schema and aren't registered.
        server_state: Fields in it that tie the answer to a record at the provider.
        structure: What the answer's text must be; None if it may be any text, or if nobody can tell.
    """

    model: str
    endpoint: str
    params: Mapping[str, JsonValue] = field(default_factory=dict)
    tools: JsonValue = None
    opaque: bool = False
    schemaless: tuple[str, ...] = ()
    server_state: tuple[str, ...] = ()
    structure: Structure | None = None


def parse_llm_string(
    llm_string: str, *, ignored: Iterable[str] = (), schemas: Mapping[str, JsonValue] | None = None
) -> LlmSettings:
    """Take apart the `llm_string` argument of a LangChain cache. Never raises on any text.

    Args:
        ignored: More names of fields and headers that don't change the answer.
        schemas: JSON schema by the repr of a class, e.g. ``"<class 'app.Out'>"``.
    """
    ignored_fields = IGNORED.union(ignored)
    ignored_headers = IGNORED_HEADERS.union(name.lower() for name in ignored)
    split = _split(llm_string)
    if split is None:
        return LlmSettings("", "", {"llm": _digest(_ADDRESS.sub("", llm_string))}, opaque=True)
    endpoint, own, call = split
    fields = _merge(own, call, ignored_fields)
    marks: set[str] = set()
    isolating: dict[str, Any] = {}
    for key, value in fields.items():
        if key in _HEADER_FIELDS and isinstance(value, dict):
            isolating[key] = _headers(value, ignored_headers)
        else:
            isolating[key] = _settle(value, schemas or {}, marks)
    classes = tuple(sorted(mark for mark in marks if mark.startswith("<class ")))
    return LlmSettings(
        _model(isolating),
        endpoint,
        _params(isolating),
        {key: isolating[key] for key in TOOL_FIELDS if isolating.get(key) is not None} or None,
        opaque=len(classes) < len(marks),
        schemaless=classes,
        server_state=tuple(key for key in SERVER_STATE if isolating.get(key) not in (None, False)),
        structure=_structure(fields, schemas or {}),
    )


def _split(llm_string: str) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
    """Return (endpoint, the model's own fields, the call's fields); None if it has neither form."""
    if llm_string.startswith("["):
        fields = _pairs(llm_string)
        if fields is None:
            return None
        kind = fields.pop("_type", "")
        return str(kind), fields, {}
    try:
        head, end = json.JSONDecoder().raw_decode(llm_string)
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or not llm_string.startswith(_SEPARATOR, end):
        return None
    path, own = head.get("id"), head.get("kwargs")
    call = _pairs(llm_string[end + len(_SEPARATOR) :])
    if not isinstance(path, list) or call is None:
        return None
    return ".".join(map(str, path)), own if isinstance(own, dict) else {_OBJECT: _mark("no kwargs")}, call


def _merge(own: dict[str, Any], call: dict[str, Any], ignored: frozenset[str]) -> dict[str, Any]:
    """Lay the call's fields over the model's own, as LangChain's integrations do."""
    fields = dict(own)
    nested = fields.pop("model_kwargs", None)
    if isinstance(nested, dict):
        fields |= nested
    elif nested is not None:
        fields["model_kwargs"] = nested
    for key, value in call.items():
        if value is not None:
            fields[key] = value
        elif key != "stop" and fields.get(key) is not None:
            fields[key] = None
            fields.setdefault(_UNSET, []).append(key)
    return {key: value for key, value in fields.items() if key not in ignored}


def _pairs(text: str) -> dict[str, Any] | None:
    """Read the repr of a list of (name, value); a value that isn't a literal becomes a mark."""
    try:
        body = ast.parse(_mark_objects(text), mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(body, ast.List):
        return None
    found: dict[str, Any] = {}
    for item in body.elts:
        if not isinstance(item, ast.Tuple) or len(item.elts) != 2:
            return None
        name, value = item.elts
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            return None
        try:
            found[name.value] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            found[name.value] = _mark(ast.unparse(value))
    return found


def _mark(text: str) -> str:
    return _OBJECT + _ADDRESS.sub("", text)


def _mark_objects(text: str) -> str:
    """Replace each ``<…>`` outside a string literal by a literal that marks it."""
    pieces: list[str] = []
    for start, end, is_object in _spans(text):
        pieces.append(repr(_mark(text[start:end])) if is_object else text[start:end])
    return "".join(pieces)


def _spans(text: str) -> Iterator[tuple[int, int, bool]]:
    done = 0
    while (found := _STRING_OR_OBJECT.search(text, done)) is not None:
        if found.group() != "<":
            yield done, found.end(), False
            done = found.end()
            continue
        depth, end = 1, found.end()
        while depth and end < len(text):
            depth += {"<": 1, ">": -1}.get(text[end], 0)
            end += 1
        yield done, found.start(), False
        yield found.start(), end, True
        done = end
    yield done, len(text), False


def _settle(value: Any, schemas: Mapping[str, JsonValue], marks: set[str]) -> JsonValue:
    """Return `value` as JSON; collect in `marks` what has no stable meaning."""
    if isinstance(value, str) and value.startswith(_OBJECT):
        name = value.removeprefix(_OBJECT)
        if name in schemas:
            return {"schema": schemas[name]}
        marks.add(name)
        return name
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        if value.get("lc") == 1 and value.get("type") == "secret":
            return None  # a placeholder; the credential itself isn't in it
        if value.get("lc") == 1 and value.get("type") == "not_implemented":
            marks.add(".".join(map(str, value.get("id") or ["object"])))
        return {
            str(key): settled
            for key, member in value.items()
            if (settled := _settle(member, schemas, marks)) is not None
        }
    if isinstance(value, list | tuple):
        return [_settle(member, schemas, marks) for member in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_settle(member, schemas, marks), sort_keys=True) for member in value)
    return repr(value)  # bytes, complex, Ellipsis


def _structure(fields: Mapping[str, Any], schemas: Mapping[str, JsonValue]) -> Structure | None:
    wanted = fields.get("response_format")
    if isinstance(wanted, str) and wanted.startswith(_OBJECT):
        schema = schemas.get(wanted.removeprefix(_OBJECT))
        return None if schema is None else Structure.of(schema)
    return structure_of(fields)


def _headers(headers: dict[str, Any], ignored: frozenset[str]) -> JsonValue:
    return {
        name: _digest(str(value))
        for name, value in ((str(key).lower(), value) for key, value in headers.items())
        if name not in ignored and not name.startswith("x-stainless-")
    } or None


def _model(fields: Mapping[str, Any]) -> str:
    return next((fields[key] for key in MODEL_FIELDS if isinstance(fields.get(key), str) and fields[key]), "")


def _params(fields: Mapping[str, Any]) -> dict[str, JsonValue]:
    params: dict[str, JsonValue] = {
        key: value for key, value in fields.items() if key in CLEAR and value is not None
    }
    rest = {
        key: value
        for key, value in fields.items()
        if value is not None and key not in CLEAR and key not in TOOL_FIELDS
    }
    if rest:
        params["settings"] = _digest(json.dumps(rest, sort_keys=True, separators=(",", ":")))
    return params


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
