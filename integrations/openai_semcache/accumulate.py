"""From a streamed answer, chunk by chunk, to the JSON that the same call without a stream would have given. Pure.

The result exists only once the stream's last event has arrived and every choice has its reason to finish.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, TypeAlias

from openai_semcache.fields import Endpoint, Json
from openai_semcache.sse import Event, Parser

Incomplete: TypeAlias = Literal["cut", "error", "too_large", "unreadable"]

_REPLACED: Final = frozenset({"id", "index", "type", "role", "object"})
_OBJECTS: Final = {"chat": "chat.completion", "completions": "text_completion"}
_NOT_KEPT: Final = frozenset({"choices", "object", "obfuscation"})


class Accumulator:
    """Takes the bytes of one streamed answer.

    Args:
        endpoint: Which endpoint streams.
        max_bytes: A longer stream is given up.
    """

    def __init__(self, endpoint: Endpoint, *, max_bytes: int) -> None:
        self._endpoint = endpoint
        self._room = max_bytes
        self._parser = Parser()
        self._answer: dict[str, Json] = {}
        self._choices: dict[int, dict[str, Json]] = {}
        self._final: dict[str, Json] | None = None
        self._ended = False
        self._failed: Incomplete | None = None

    @property
    def ended(self) -> bool:
        """Whether the stream's last event has arrived."""
        return self._ended

    @property
    def failed(self) -> bool:
        """Whether there will be no result, whatever comes."""
        return self._failed is not None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        if self._failed is not None or self._ended:
            return
        self._room -= len(chunk)
        if self._room < 0:
            self._failed = "too_large"
            return
        for event in self._parser.feed(chunk):
            self._take(event)

    def finish(self) -> None:
        """Say that the stream ended by itself, so that an event without its blank line counts."""
        if self._failed is None and not self._ended:
            event = self._parser.close()
            if event is not None:
                self._take(event)

    def result(self) -> dict[str, Json] | Incomplete:
        """Return the whole answer, or why there is none."""
        if self._failed is not None:
            return self._failed
        if not self._ended:
            return "cut"
        if self._endpoint == "responses":
            return "error" if self._final is None else self._final
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not choices or any(choice.get("finish_reason") is None for choice in choices):
            return "cut"
        answer = {"object": _OBJECTS.get(self._endpoint, ""), **self._answer}
        answer["choices"] = [_whole(choice) for choice in choices] if self._endpoint == "chat" else choices
        answer.setdefault("usage", None)  # a stream says it only to who asks for it
        return answer

    def _take(self, event: Event) -> None:
        if self._ended or self._failed is not None:
            return
        if event.data.startswith("[DONE]"):
            self._ended = self._endpoint != "responses"
            return
        try:
            value = json.loads(event.data)
        except (ValueError, RecursionError):
            self._failed = "unreadable"
            return
        if not isinstance(value, dict):
            self._failed = "unreadable"
        elif value.get("error") or event.event == "error":
            self._failed = "error"
        elif self._endpoint == "responses":
            self._take_response_event(value)
        else:
            self._take_chunk(value)

    def _take_response_event(self, value: dict[str, Json]) -> None:
        kind = value.get("type")
        if kind == "response.completed":
            self._ended = True
            response = value.get("response")
            self._final = response if isinstance(response, dict) else None
        elif kind in ("response.failed", "response.incomplete", "error"):
            self._failed = "error"

    def _take_chunk(self, value: dict[str, Json]) -> None:
        for name, member in value.items():
            if name not in _NOT_KEPT and member not in (None, ""):
                self._answer[name] = member
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            index = choice.get("index", 0) if isinstance(choice, dict) else None
            if type(index) is not int:
                self._failed = "unreadable"
                return
            so_far = self._choices.setdefault(index, {"index": index})
            for name, member in choice.items():
                self._take_member(so_far, name, member)

    def _take_member(self, choice: dict[str, Json], name: str, member: Any) -> None:
        if name == "delta":
            if isinstance(member, dict):
                _add(choice.setdefault("message", {}), member)
        elif name == "text" and isinstance(member, str):
            choice["text"] = choice.get("text", "") + member
        elif name == "logprobs":
            if isinstance(member, dict):
                so_far = choice.get("logprobs")
                choice["logprobs"] = so_far if isinstance(so_far, dict) else {}
                _add(choice["logprobs"], member)
            else:
                choice.setdefault("logprobs", None)
        elif member is not None or name not in choice:
            choice[name] = member


def whole_stream(endpoint: Endpoint, content: bytes, *, most: int) -> dict[str, Json] | None:
    """Return what a whole stream's bytes say; None if it was cut, or is longer than `most`."""
    accumulator = Accumulator(endpoint, max_bytes=most)
    accumulator.feed(content)
    accumulator.finish()
    answer = accumulator.result()
    return answer if isinstance(answer, dict) else None


def _add(whole: dict[str, Json], delta: dict[str, Json]) -> None:
    """Add one delta: texts are joined, lists extended or merged by `index`, mappings merged."""
    for name, value in delta.items():
        before = whole.get(name)
        if before is None or name in _REPLACED:
            if value is not None or name not in whole:
                whole[name] = _by_index([], value) if isinstance(value, list) else value
        elif isinstance(before, str) and isinstance(value, str):
            whole[name] = before + value
        elif isinstance(before, dict) and isinstance(value, dict):
            _add(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            _by_index(before, value)
        elif value is not None:
            whole[name] = value


def _by_index(whole: list[Json], items: list[Json]) -> list[Json]:
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        same = next((old for old in whole if isinstance(old, dict) and old.get("index") == index), None)
        if index is None or same is None:
            whole.append(dict(item) if isinstance(item, dict) else item)
        else:
            _add(same, item)
    return whole


def _whole(choice: dict[str, Json]) -> dict[str, Json]:
    """Return a choice as an answer without a stream has it."""
    message = {"role": "assistant", "content": None, **choice.get("message", {})}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        ordered = sorted(calls, key=lambda call: call.get("index", 0) if isinstance(call, dict) else 0)
        message["tool_calls"] = [
            {name: value for name, value in call.items() if name != "index"}
            if isinstance(call, dict)
            else call
            for call in ordered
        ]
    return {**choice, "message": message}
