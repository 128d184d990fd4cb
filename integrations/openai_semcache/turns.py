"""Splits a conversation into the text being compared and what must match exactly. Pure.

Ids are dropped and call ids renumbered in order of appearance, so that the same conversation with fresh ids is the
same; a text given as a string and as a list of one text part is the same; media are named by digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from openai_semcache.fields import Json

_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})
_CALL_IDS: Final = ("tool_call_id", "call_id")
PROMPT: Final = {"type": "prompt"}  # stands where the compared text was
_AFTERPROMPT: Final = frozenset({"system", "developer"})


@dataclass(slots=True)
class Turns:
    """A conversation, split.

    Attributes:
        prompt: Text of the last user turn; of its last text part, if it has several.
        context: Everything else in canonical form, None if there is nothing else.
        earlier_turns: User turns before the last one.
        media: Digests of inline media.
        exact: Why only the same text may match (one of `reasons.BYPASSES`), None if neighbours may.
        bypass: Why the cache can't be used, None if it can.
    """

    prompt: str = ""
    context: list[Json] | None = None
    earlier_turns: int = 0
    media: list[str] = field(default_factory=list)
    exact: str | None = None
    bypass: str | None = None
    only_images: bool = True


class _Unreadable(Exception):
    """The conversation isn't of a known shape."""


def split_turns(messages: Any, *, split: Callable[[str], tuple[str, str]] | None = None) -> Turns:
    """Split chat messages, or the input of a Responses request (text or items).

    Args:
        split: Splits the last user text into (context, question).
    """
    turns = Turns()
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        turns.bypass = "opaque"
        return turns
    users = [at for at, item in enumerate(messages) if item.get("role") == "user"]
    turns.earlier_turns = max(0, len(users) - 1)
    compared = users[-1] if users else len(messages) - 1
    if not users or any(_role(item) not in _AFTERPROMPT for item in messages[compared + 1 :]):
        turns.exact = "turns"  # a tool's result or a begun answer comes last
        turns.earlier_turns = len(users)
        compared = len(messages) - 1
    reader = _Reader(turns)
    try:
        context = [reader.item(item, compare=at == compared, split=split) for at, item in enumerate(messages)]
    except _Unreadable:
        turns.bypass = "opaque"
        return turns
    if context[-1] == {"role": "user", "content": PROMPT}:
        context.pop()  # the plain case: nothing but the text
    turns.context = context or None
    return turns


def split_prompt(prompt: Any, *, split: Callable[[str], tuple[str, str]] | None = None) -> Turns:
    """Split the prompt of a completions request: a text, texts, tokens, or lists of tokens."""
    turns = Turns()
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        turns.prompt = prompt
        if split is not None:
            before, turns.prompt = split(prompt)
            turns.context = [before] if before else None
        return turns
    if not isinstance(prompt, list) or not prompt:
        turns.bypass = "opaque"
        return turns
    turns.exact = "policy"
    turns.prompt = "prompts:" + digest(repr(prompt))
    return turns


def digest(text: str) -> str:
    """Return a digest that names a text or a medium, 32 hex digits."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _role(item: dict[str, Json]) -> Json:
    return item.get("role", item.get("type"))


class _Reader:
    """Reads items in order; remembers which call ids it has met."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._calls: dict[str, str] = {}

    def item(
        self, item: dict[str, Json], *, compare: bool, split: Callable[[str], tuple[str, str]] | None
    ) -> dict[str, Json]:
        kind = item.get("type")
        if kind == "item_reference":
            self._turns.bypass = "opaque"  # what it says is on the server
        out: dict[str, Json] = {}
        for name, value in item.items():
            if value is None or name == "id" or (name == "type" and value == "message"):
                continue
            if name == "status" and kind is not None:
                continue
            if name in _CALL_IDS:
                out[name] = self._call(value)
            elif name == "tool_calls":
                out[name] = self._tool_calls(value)
            elif name == "content":
                out[name] = value if isinstance(value, str) else self._parts(value)
            elif name == "output" and isinstance(value, list):
                out[name] = self._parts(value)  # a function's output may hold images
            elif name == "audio" and "role" in item:
                self._turns.bypass = "opaque"  # an id of audio that is on the server
            else:
                out[name] = value
        if compare:
            self._take_prompt(out, split)
        return out

    def _take_prompt(self, item: dict[str, Json], split: Callable[[str], tuple[str, str]] | None) -> None:
        """Move the compared text from `item` into the result, leaving a mark where it was."""
        name = "content" if "content" in item else "output"
        content = item.get(name)
        if isinstance(content, str):
            text, before, after = content, [], []
        elif isinstance(content, list):
            texts = [at for at, part in enumerate(content) if isinstance(part, str)]
            if not texts:
                self._turns.bypass = self._turns.bypass or "media"
                return
            last = texts[-1]
            text, before, after = content[last], content[:last], content[last + 1 :]
        else:
            self._turns.bypass = self._turns.bypass or "opaque"
            return
        if split is not None:
            template, text = split(text)
            before = [*before, template] if template else before
        self._turns.prompt = text
        item[name] = [*before, PROMPT, *after] if before or after else PROMPT

    def _parts(self, value: Json) -> Json:
        """Return content parts: texts as strings, media by digest; a list of one text is that text."""
        if not isinstance(value, list):
            raise _Unreadable
        parts = [self._part(part) for part in value]
        return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts

    def _part(self, part: Json) -> Json:
        if isinstance(part, str):
            return part
        if not isinstance(part, dict):
            raise _Unreadable
        kind = part.get("type")
        if kind in _TEXT_PARTS and isinstance(part.get("text"), str):
            if all(name in ("type", "text") or not value for name, value in part.items()):
                return part["text"]
            return {name: value for name, value in part.items() if value is not None}
        if kind in ("refusal", "summary_text", "reasoning_text"):
            return part
        return self._medium(part, str(kind))

    def _medium(self, part: dict[str, Json], kind: str) -> dict[str, Json]:
        self._turns.exact = self._turns.exact or "media"
        if "image" not in kind:
            self._turns.only_images = False
        found: list[str] = []
        out = _inline(part, found)
        if not found:  # named by URL or file id, or of an unknown kind: what it holds isn't in the request
            self._turns.bypass = self._turns.bypass or "media"
        self._turns.media += found
        return {**out, "type": kind}

    def _tool_calls(self, value: Json) -> Json:
        if not isinstance(value, list):
            raise _Unreadable
        calls = []
        for call in value:
            if not isinstance(call, dict):
                raise _Unreadable
            calls.append(
                {name: self._call(member) if name == "id" else member for name, member in call.items()}
            )
        return calls

    def _call(self, value: Json) -> Json:
        if not isinstance(value, str):
            return value
        return self._calls.setdefault(value, f"call:{len(self._calls)}")


def _inline(part: dict[str, Json], found: list[str]) -> dict[str, Json]:
    """Return `part` with inline data replaced by its digest, which is added to `found`."""
    out: dict[str, Json] = {}
    for name, value in part.items():
        if isinstance(value, dict):
            out[name] = _inline(value, found)
        elif isinstance(value, str) and (name in ("data", "file_data") or value.startswith("data:")):
            out[name] = digest(value)
            found.append(f"{part.get('type', name)}:{out[name]}")
        else:
            out[name] = value
    return out
