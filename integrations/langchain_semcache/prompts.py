"""What LangChain hands to a cache as `prompt`: which text is compared, and what must match exactly.

A chat model's prompt is a JSON list of serialised messages; it is read here field by field and never
instantiated. An LLM's prompt is plain text. Pure: no I/O, no LangChain import.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from semcache.types import JsonValue

ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "chat": "chat",
}
"""Message types of LangChain → our role words; a message of another type makes the prompt opaque."""

MEDIA_BLOCKS: Final = frozenset(
    {
        "image",
        "image_url",
        "input_image",
        "image_file",
        "audio",
        "input_audio",
        "video",
        "video_url",
        "file",
        "input_file",
        "document",
        "media",
    }
)
"""Content blocks that hold or point to media."""

_TEXT_BLOCKS: Final = frozenset({"text", "input_text", "output_text"})
# known not to reach the model, or to differ between two runs of the same conversation
_IGNORED: Final = frozenset(
    {
        "id",
        "type",
        "content",
        "additional_kwargs",
        "response_metadata",
        "usage_metadata",
        "artifact",
        "example",
        "tool_calls",
        "invalid_tool_calls",
        "tool_call_id",
        "tool_call_chunks",
        "chunk_position",
    }
)
# the parts of additional_kwargs that providers are sent; the rest is where applications put timestamps
_KEPT_EXTRAS: Final = ("name", "function_call", "reasoning_content", "refusal", "__openai_role__")
_BLOCK_NOISE: Final = frozenset({"index", "cache_control"})
_CALL_BLOCKS: Final = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "function_call", "server_tool_use"}
)
_CALL_ID_KEYS: Final = frozenset({"tool_call_id", "tool_use_id", "call_id"})


@dataclass(frozen=True, slots=True)
class ParsedPrompt:
    """A prompt taken apart.

    Attributes:
        text: The last user turn.
        context: Everything else that the model reads, None if there is nothing.
        earlier_turns: User turns before the last one.
        media: Digests of the images, audio and files in any turn.
        exact_only: True if the last message isn't the user's, so that no text can be varied.
        opaque: True if the prompt couldn't be taken apart; `text` is then all of it.
        chat: True if it was a list of messages.
    """

    text: str
    context: JsonValue = None
    earlier_turns: int = 0
    media: tuple[str, ...] = ()
    exact_only: bool = False
    opaque: bool = False
    chat: bool = False


def parse_prompt(prompt: str) -> ParsedPrompt:
    """Take apart the `prompt` argument of a LangChain cache. Never raises on any text."""
    if not prompt.startswith("["):
        return ParsedPrompt(prompt)
    try:
        items = json.loads(prompt)
    except (ValueError, RecursionError):
        return ParsedPrompt(prompt)
    if not isinstance(items, list) or not any(_is_constructor(item) for item in items):
        return ParsedPrompt(prompt)
    parsed = parse_messages(items)
    return ParsedPrompt(prompt, opaque=True, chat=True) if parsed is None else parsed


def parse_messages(items: Sequence[Any]) -> ParsedPrompt | None:
    """Take apart serialised messages (`dumpd` of each); None if one of them isn't a message that we know."""
    conversation = _Conversation()
    messages: list[_Message] = []
    for item in items:
        message = conversation.read(item)
        if message is None:
            return None
        messages.append(message)
    if not messages:
        return None
    last = messages[-1]
    turns = sum(message.role == "user" for message in messages)
    media = tuple(conversation.media)
    if last.role != "user":
        return ParsedPrompt(
            last.text if last.text.strip() else f"({last.role})",
            context=[message.canonical() for message in messages],
            earlier_turns=turns,
            media=media,
            exact_only=True,
            chat=True,
        )
    context: list[JsonValue] = [message.canonical() for message in messages[:-1]]
    if last.rest:
        context.append({"last": last.rest})
    text = last.text if last.text.strip() or not media else "(media)"
    return ParsedPrompt(text, context=context or None, earlier_turns=turns - 1, media=media, chat=True)


def _is_constructor(item: object) -> bool:
    return (
        isinstance(item, dict)
        and item.get("lc") == 1
        and item.get("type") in ("constructor", "not_implemented")
    )


@dataclass(frozen=True, slots=True)
class _Message:
    role: str
    text: str
    rest: dict[str, JsonValue]  # what else the model reads of it

    def canonical(self) -> JsonValue:
        return {"role": self.role, "text": self.text, **self.rest}


class _Conversation:
    """Numbers the tool calls of one conversation in their order, and collects its media."""

    def __init__(self) -> None:
        self.media: list[str] = []
        self._calls: dict[str, str] = {}

    def read(self, item: object) -> _Message | None:
        if not isinstance(item, dict) or item.get("lc") != 1 or item.get("type") != "constructor":
            return None
        fields, path = item.get("kwargs"), item.get("id")
        if not isinstance(fields, dict) or not isinstance(path, list):
            return None
        role = ROLES.get(_message_type(fields, path))
        if role is None:
            return None
        if role == "chat" and str(fields.get("role", "")).lower() in ("user", "human"):
            role, fields = "user", {**fields, "role": None}
        text, rest = self._content(fields.get("content"))
        if text is None:
            return None
        rest |= self._rest(fields)
        return _Message(role, text, rest)

    def _content(self, content: object) -> tuple[str | None, dict[str, JsonValue]]:
        if content is None:
            return "", {}
        if isinstance(content, str):
            return content, {}
        if not isinstance(content, list):
            return None, {}
        texts: list[str] = []
        others: list[JsonValue] = []
        for block in content:
            if isinstance(block, str):
                texts.append(block)
            elif not isinstance(block, dict):
                return None, {}
            elif block.get("type") in _TEXT_BLOCKS and isinstance(block.get("text"), str):
                texts.append(block["text"])
                extra = _without(block, {"type", "text", "id", *_BLOCK_NOISE})
                if extra:
                    others.append({"text": len(texts) - 1, **extra})
            elif block.get("type") in MEDIA_BLOCKS:
                self.media.append(_digest(self._block(block)))
                others.append({"media": len(self.media) - 1, "after": len(texts)})
            else:
                others.append(self._block(block))
        rest: dict[str, JsonValue] = {"blocks": others} if others else {}
        if len(texts) > 1:
            rest["texts"] = len(texts)  # the blocks "a", "b" aren't the text "a\nb"
        return "\n".join(texts), rest

    def _block(self, block: Mapping[str, Any]) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {}
        for key, value in block.items():
            if key in _BLOCK_NOISE or value is None:
                continue
            if key in _CALL_ID_KEYS or (key == "id" and block.get("type") in _CALL_BLOCKS):
                found[key] = self._call(value)
            elif key != "id":
                found[key] = value
        return found

    def _rest(self, fields: Mapping[str, Any]) -> dict[str, JsonValue]:
        rest: dict[str, JsonValue] = _without(fields, _IGNORED)
        for key in ("tool_calls", "invalid_tool_calls"):
            calls = fields.get(key)
            if calls:
                rest[key] = [self._tool_call(call) for call in calls] if isinstance(calls, list) else calls
        if fields.get("tool_call_id") is not None:
            rest["tool_call_id"] = self._call(fields["tool_call_id"])
        extras = fields.get("additional_kwargs")
        if isinstance(extras, dict):
            kept: dict[str, JsonValue] = {
                key: extras[key] for key in _KEPT_EXTRAS if extras.get(key) is not None
            }
            if extras.get("audio") is not None:
                self.media.append(_digest(extras["audio"]))
            if kept:
                rest["extra"] = kept
        return rest

    def _tool_call(self, call: object) -> JsonValue:
        if not isinstance(call, dict):
            return str(call)
        found: dict[str, JsonValue] = _without(call, {"id", "type", "index"})
        if call.get("id") is not None:
            found["id"] = self._call(call["id"])
        return found

    def _call(self, call_id: object) -> str:
        return self._calls.setdefault(str(call_id), f"call_{len(self._calls)}")


def _message_type(fields: Mapping[str, Any], path: Sequence[Any]) -> str:
    kind = fields.get("type")
    if isinstance(kind, str):
        return kind.removesuffix("MessageChunk").lower()
    name = str(path[-1]) if path else ""
    return name.removesuffix("Chunk").removesuffix("Message").lower()


def _without(fields: Mapping[str, Any], names: set[str] | frozenset[str]) -> dict[str, JsonValue]:
    return {
        key: value
        for key, value in fields.items()
        if key not in names and value is not None and value != [] and value != {}
    }


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
