"""Generations of LangChain ⇄ the response that the cache stores.

Translates what decides about storing (how an answer ended, refusals, tool calls, media, usage) into the
cache's words; how objects become data is `payload`'s.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from langchain_semcache.payload import dump, fresh_id, renew, revive
from langchain_semcache.prompts import MEDIA_BLOCKS
from semcache.structured import Structure
from semcache.types import JsonValue, Response

FORMAT: Final = "langchain/1"
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
_WORST_FIRST: Final = ("content_filter", "length", "tool_calls")

UNSTORABLE: Final = Response("(unserialisable)", data=math.nan)
"""Stands for an answer that can't be written as data: a put of it says ``unserialisable``."""


def to_response(
    generations: Sequence[Generation],
    *,
    latency_ms: float | None = None,
    structure: Structure | None = None,
) -> Response | None:
    """Return what is to be stored, or None if it can't be read back as it was.

    Args:
        structure: What each text must be; None for any text.
    """
    if not generations:
        return None
    dumped: list[JsonValue] = []
    for generation in generations:
        data = dump(generation)
        if data is None:
            return None
        dumped.append(data)
    data = {"format": FORMAT, "generations": dumped}
    return describe(generations, data=data, latency_ms=latency_ms, structure=structure)


def describe(
    generations: Sequence[Generation],
    *,
    data: JsonValue,
    latency_ms: float | None = None,
    structure: Structure | None = None,
) -> Response:
    """Return a response that says of the generations what decides about storing them."""
    messages = [generation.message for generation in generations if isinstance(generation, ChatGeneration)]
    ends = [_finish_reason(generation) for generation in generations]
    return Response(
        generations[0].text,
        data=data,
        finish_reason=next((reason for reason in _WORST_FIRST if reason in ends), ends[0]),
        refusal=any(_refused(message) for message in messages) or "refusal" in ends,
        partial=any(_is_partial(message) for message in messages),
        tool_calls=any(calls_tools(message) for message in messages),
        media=any(_has_media(message) for message in messages),
        malformed=not fits(generations, structure),
        usage=_usage(messages),
        latency_ms=latency_ms,
    )


def fits(generations: Sequence[Generation], structure: Structure | None) -> bool:
    """Return whether each text is what is asked for; a call of a tool has a form of its own."""
    if structure is None:
        return True
    return all(
        structure.admits(generation.text)
        for generation in generations
        if not (isinstance(generation, ChatGeneration) and calls_tools(generation.message))
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
    for item in items:
        generation = revive(item)
        if not isinstance(generation, Generation):
            return None
        generations.append(generation)
    renew([generation.message for generation in generations if isinstance(generation, ChatGeneration)])
    return generations


def annotate(generations: Sequence[Generation], note: Mapping[str, Any]) -> None:
    """Write `note` into the ``response_metadata["semcache"]`` of each message, in place."""
    for generation in generations:
        if isinstance(generation, ChatGeneration):
            message = generation.message
            message.response_metadata = {**message.response_metadata, "semcache": dict(note)}


def calls_tools(message: object) -> bool:
    """Return whether a message asks for tools to be run."""
    if not isinstance(message, AIMessage):
        return False
    return bool(
        message.tool_calls or message.invalid_tool_calls or message.additional_kwargs.get("function_call")
    )


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
