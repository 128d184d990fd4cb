"""LangChain objects ⇄ JSON: data only, an explicit list of classes, checked when it is written.

An object is dumped by itself and only if reading it back gives an equal one. Reading never looks into
the environment. What is read gets new message ids and new tool call ids, since reducers and providers
take two things with one id for one thing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any, Final

from langchain_core.load import dumps, load
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk
from pydantic import BaseModel, ValidationError

from semcache.types import JsonValue

CLASSES: Final = (
    Generation,
    GenerationChunk,
    ChatGeneration,
    ChatGenerationChunk,
    AIMessage,
    AIMessageChunk,
    ToolMessage,
)
"""All that a stored payload may be made of."""

# what `load` raises on a payload that isn't ours: an unknown class or namespace, an argument that a
# class refuses, a missing module or name, an object without serialisation
_UNLOADABLE: Final = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, ImportError, NotImplementedError,
    RecursionError, ValidationError,
)  # fmt: skip
_SERVER_ID: Final = "resp_"
_CALL_BLOCKS: Final = frozenset({"tool_use", "tool_call", "tool_call_chunk"})


def dump(value: Generation | BaseMessage) -> JsonValue:
    """Return an object as JSON, None if it wouldn't come back as it was."""
    plain = _plain(value)
    if type(plain) not in CLASSES:
        return None
    try:
        data: JsonValue = json.loads(dumps(plain))
        json.dumps(data, ensure_ascii=False).encode()  # a lone surrogate can't be stored
    except (ValueError, TypeError, RecursionError):
        return None
    return data if revive(data) == plain else None


def revive(data: object) -> Any:
    """Return the object that `dump` wrote; None for anything else."""
    try:
        value = load(data, allowed_objects=CLASSES, secrets_from_env=False)
    except _UNLOADABLE:
        return None
    if isinstance(value, ChatGeneration):
        return value if isinstance(value.message, AIMessage) else None
    return value if type(value) in CLASSES else None


def fresh_id(number: int = 0) -> str:
    """Return a message id in LangChain's form that no other message has."""
    return f"lc_run--{uuid.uuid4()}-{number}"


def renew(messages: Sequence[BaseMessage]) -> None:
    """Give messages new ids and their tool calls new ids, in place; results stay with their calls."""
    calls: dict[str | None, str] = {}
    for number, message in enumerate(messages):
        message.id = fresh_id(number)
        if str(message.response_metadata.get("id", "")).startswith(_SERVER_ID):
            # the name of somebody's record at the provider: the next call must not be chained to it
            del message.response_metadata["id"]
        if isinstance(message, AIMessage):
            _renew_calls(message, calls)
        elif isinstance(message, ToolMessage):
            message.tool_call_id = calls.get(message.tool_call_id, message.tool_call_id)


def _renew_calls(message: AIMessage, calls: dict[str | None, str]) -> None:
    for call in (*message.tool_calls, *message.invalid_tool_calls):
        if call["id"] is not None:
            call["id"] = calls.setdefault(call["id"], f"call_{uuid.uuid4().hex[:24]}")
    if not calls:
        return
    raw: list[Any] = list(message.additional_kwargs.get("tool_calls") or ())
    if isinstance(message.content, list):
        raw += [b for b in message.content if isinstance(b, dict) and b.get("type") in _CALL_BLOCKS]
        for block in message.content:
            if isinstance(block, dict) and block.get("call_id") in calls:
                block["call_id"] = calls[block["call_id"]]
    if isinstance(message, AIMessageChunk):
        raw += message.tool_call_chunks
    for call in raw:
        if isinstance(call, dict) and call.get("id") in calls:
            call["id"] = calls[call["id"]]


def _plain(value: Generation | BaseMessage) -> Any:
    """Return a copy without the message's id and our note, and with a parsed answer as data."""
    if isinstance(value, ChatGeneration):
        return value.model_copy(update={"message": _plain(value.message)})
    if not isinstance(value, BaseMessage):
        return value
    extras = value.additional_kwargs
    parsed = extras.get("parsed")
    if isinstance(parsed, BaseModel):
        extras = {**extras, "parsed": parsed.model_dump(mode="json")}
    metadata = {key: item for key, item in value.response_metadata.items() if key != "semcache"}
    return value.model_copy(update={"id": None, "additional_kwargs": extras, "response_metadata": metadata})
