"""Generations of LangChain ⇄ the response that the cache stores.

Each generation is dumped by itself, as data, and only if reading it back gives an equal one. Reading
allows the six generation and AI message classes and nothing else, never looks into the environment,
and gives every message a new id, since reducers take two messages with one id for one message.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.load import dumps, load
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk
from pydantic import BaseModel, ValidationError

from langchain_semcache.prompts import MEDIA_BLOCKS
from semcache.types import JsonValue, Response

FORMAT: Final = "langchain/1"
CLASSES: Final = (Generation, GenerationChunk, ChatGeneration, ChatGenerationChunk, AIMessage, AIMessageChunk)
"""All that a stored payload may be made of."""

FINISH_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "STOP": "stop",
    "eos_token": "stop",
    "COMPLETE": "stop",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
"""Other providers' words for how an answer ended → OpenAI's."""

_FINISH_FIELDS: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason")
_PARTIAL_STATES: Final = frozenset({"incomplete", "in_progress", "queued", "cancelled", "failed"})
_SERVER_ID: Final = "resp_"
_WORST_FIRST: Final = ("content_filter", "length", "tool_calls")

# what `load` raises on a payload that isn't ours: unknown class or namespace, a kwarg that a class
# refuses, a missing module or name, an object without serialisation
_UNLOADABLE: Final = (
    ValueError, TypeError, KeyError, AttributeError, ImportError, NotImplementedError, RecursionError,
    IndexError,
)  # fmt: skip


def to_response(generations: Sequence[Generation], *, latency_ms: float | None = None) -> Response | None:
    """Return what is to be stored, or None if it can't be read back as it was."""
    if not generations:
        return None
    dumped: list[JsonValue] = []
    for generation in generations:
        data = _dump(generation)
        if data is None:
            return None
        dumped.append(data)
    messages = [generation.message for generation in generations if isinstance(generation, ChatGeneration)]
    ends = [_finish_reason(generation) for generation in generations]
    return Response(
        generations[0].text,
        data={"format": FORMAT, "generations": dumped},
        finish_reason=next((reason for reason in _WORST_FIRST if reason in ends), ends[0]),
        refusal=any(_refused(message) for message in messages) or "refusal" in ends,
        partial=any(_is_partial(message) for message in messages),
        tool_calls=any(calls_tools(message) for message in messages),
        media=any(_has_media(message) for message in messages),
        usage=_usage(messages),
        latency_ms=latency_ms,
    )


def from_response(response: Response, *, chat: bool) -> list[Generation] | None:
    """Return fresh generations with fresh message ids, or None if the payload isn't ours or is damaged.

    Args:
        chat: Whether the caller expects chat generations; only matters for an entry that holds text alone,
            because somebody put it there without LangChain.
    """
    data = response.data
    if data is None:
        if not chat:
            return [Generation(text=response.text)]
        return [ChatGeneration(message=AIMessage(content=response.text, id=fresh_id()))]
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        return None
    items = data.get("generations")
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        return None
    generations: list[Generation] = []
    for number, item in enumerate(items):
        generation = _load(item)
        if generation is None:
            return None
        if isinstance(generation, ChatGeneration):
            _renew(generation, number)
        generations.append(generation)
    return generations


def annotate(generations: Sequence[Generation], note: Mapping[str, Any]) -> None:
    """Write `note` into the ``response_metadata["semcache"]`` of each message, in place."""
    for generation in generations:
        if isinstance(generation, ChatGeneration):
            message = generation.message
            message.response_metadata = {**message.response_metadata, "semcache": dict(note)}


def fresh_id(number: int = 0) -> str:
    """Return a message id in LangChain's form that no other message has."""
    return f"lc_run--{uuid.uuid4()}-{number}"


def calls_tools(message: object) -> bool:
    """Return whether a message asks for tools to be run."""
    if not isinstance(message, AIMessage):
        return False
    return bool(
        message.tool_calls or message.invalid_tool_calls or message.additional_kwargs.get("function_call")
    )


def _dump(generation: Generation) -> JsonValue:
    plain = _plain(generation)
    if type(plain) not in CLASSES:
        return None
    try:
        text = dumps(plain)
        data: JsonValue = json.loads(text)
        json.dumps(data, ensure_ascii=False).encode()  # a lone surrogate can't be stored
    except (ValueError, TypeError, RecursionError):
        return None
    return data if _load(data) == plain else None


def _plain(generation: Generation) -> Generation:
    """Return a copy without the message's id, and with a parsed answer as data."""
    if not isinstance(generation, ChatGeneration):
        return generation
    extras = generation.message.additional_kwargs
    parsed = extras.get("parsed")
    if isinstance(parsed, BaseModel):
        extras = {**extras, "parsed": parsed.model_dump(mode="json")}
    metadata = {
        key: value for key, value in generation.message.response_metadata.items() if key != "semcache"
    }
    message = generation.message.model_copy(
        update={"id": None, "additional_kwargs": extras, "response_metadata": metadata}
    )
    return generation.model_copy(update={"message": message})


def _load(data: object) -> Generation | None:
    try:
        generation = load(data, allowed_objects=CLASSES, secrets_from_env=False)
    except (*_UNLOADABLE, ValidationError):
        return None
    if not isinstance(generation, Generation):
        return None
    if isinstance(generation, ChatGeneration) and not isinstance(generation.message, AIMessage):
        return None
    return generation


def _renew(generation: ChatGeneration, number: int) -> None:
    message = generation.message
    message.id = fresh_id(number)
    if str(message.response_metadata.get("id", "")).startswith(_SERVER_ID):
        # the name of somebody's record at the provider: the next call must not be chained to it
        del message.response_metadata["id"]


def _finish_reason(generation: Generation) -> str | None:
    places: list[Mapping[str, Any]] = [generation.generation_info or {}]
    if isinstance(generation, ChatGeneration):
        places.append(generation.message.response_metadata)
    for place in places:
        for name in _FINISH_FIELDS:
            reason = place.get(name)
            if isinstance(reason, str):
                return FINISH_REASONS.get(reason, reason)
    return None


def _blocks(message: object) -> list[Mapping[str, Any]]:
    content = message.content if isinstance(message, AIMessage) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _refused(message: object) -> bool:
    if not isinstance(message, AIMessage):
        return False
    return bool(message.additional_kwargs.get("refusal")) or any(
        block.get("type") == "refusal" for block in _blocks(message)
    )


def _is_partial(message: object) -> bool:
    if not isinstance(message, AIMessage):
        return False
    metadata = message.response_metadata
    return metadata.get("status") in _PARTIAL_STATES or bool(metadata.get("incomplete_details"))


def _has_media(message: object) -> bool:
    if not isinstance(message, AIMessage):
        return False
    return bool(message.additional_kwargs.get("audio")) or any(
        block.get("type") in MEDIA_BLOCKS or block.get("type") == "image_generation_call"
        for block in _blocks(message)
    )


def _usage(messages: Sequence[object]) -> Mapping[str, JsonValue] | None:
    for message in messages:
        if isinstance(message, AIMessage) and message.usage_metadata:
            usage: dict[str, JsonValue] = json.loads(json.dumps(message.usage_metadata, default=str))
            return usage
    return None
