"""From a whole answer to the events of the same answer streamed. Pure; one bytes object per event, so that a server
may flush each.

Texts are cut between code points into several pieces, never one; JSON is ASCII, so no client can mistake a character
for the end of a line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from openai_semcache.fields import Endpoint, Json
from openai_semcache.sse import DONE, dump, frame

_PIECE: Final = 24  # characters of a piece, at least
_PIECES: Final = 256  # pieces of a text, at most
_HEAD: Final = ("id", "object", "created", "model", "service_tier", "system_fingerprint")
_LAST: Final = ("choices", "usage")
_MESSAGE: Final = frozenset({"role", "content", "refusal", "tool_calls", "function_call"})


def replay(endpoint: Endpoint, data: Mapping[str, Any], *, include_usage: bool) -> Iterator[bytes]:
    """Yield the events of an answer.

    Args:
        data: The answer's JSON, from `responses.for_caller`.
        include_usage: Whether the caller asked for a last chunk with token counts (not for responses, which always
            have them).
    """
    if endpoint == "responses":
        return _responses(data)
    return _chunks(endpoint, data, include_usage)


def pieces(text: str) -> Iterator[str]:
    """Cut a text between code points: at least two pieces if it has two characters."""
    size = max(min(_PIECE, (len(text) + 1) // 2), -(-len(text) // _PIECES), 1)
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _chunks(endpoint: Endpoint, data: Mapping[str, Any], include_usage: bool) -> Iterator[bytes]:
    head = {name: data[name] for name in _HEAD if name in data}
    head["object"] = "chat.completion.chunk" if endpoint == "chat" else "text_completion"
    tail = {name: value for name, value in data.items() if name not in _HEAD and name not in _LAST}
    before = b"data: " + dump(head)[:-1] + b',"choices":['
    after = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
    deltas = _chat_choice if endpoint == "chat" else _completion_choice
    choices = data.get("choices") or []
    for number, choice in enumerate(choices, 1):
        held = b""
        for part in deltas(choice):
            if held:
                yield before + held + after
            held = part
        if number < len(choices) or not tail:
            yield before + held + after
        else:  # what upstream put beside the choices, e.g. citations: with the very last delta
            yield before + held + b"]," + dump(tail)[1:-1] + after[1:]
    usage = data.get("usage")
    if include_usage and usage is not None:
        yield frame({**head, "choices": [], "usage": usage})
    yield DONE


def _chat_choice(choice: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield one choice's deltas: role, extras such as reasoning, content, refusal, calls, the end."""
    index = int(choice.get("index", 0))
    message: Mapping[str, Any] = choice.get("message") or {}
    content = message.get("content")
    logprobs = choice.get("logprobs")
    role: dict[str, Json] = {"role": message.get("role", "assistant"), "content": "" if content else content}
    if "refusal" in message:
        role["refusal"] = None
    yield _delta(index, role)
    for name, value in message.items():
        if name not in _MESSAGE and value is not None:
            for piece in pieces(value) if isinstance(value, str) else (value,):
                yield _delta(index, {name: piece})
    if isinstance(content, str):
        yield from _texts(index, "content", content, logprobs)
    elif content is not None:
        yield _delta(index, {"content": content})
    if isinstance(message.get("refusal"), str):
        yield from _texts(index, "refusal", message["refusal"], logprobs)
    for number, call in enumerate(message.get("tool_calls") or ()):
        yield from _call(index, number, call)
    function = message.get("function_call")
    if isinstance(function, dict):
        yield _delta(index, {"function_call": {**function, "arguments": ""}})
        for piece in pieces(str(function.get("arguments") or "")):
            yield _delta(index, {"function_call": {"arguments": piece}})
    rest = {name: value for name, value in choice.items() if name not in ("index", "message", "logprobs")}
    end = {
        "index": index,
        "delta": {},
        "logprobs": None,
        **rest,
        "finish_reason": choice.get("finish_reason"),
    }
    yield dump(end)


def _delta(index: int, delta: Mapping[str, Json], logprobs: Json = None) -> bytes:
    return dump({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None})


def _texts(index: int, name: str, text: str, logprobs: Json) -> Iterator[bytes]:
    """Yield a text's deltas; with log-probabilities, one per token."""
    tokens = logprobs.get(name) if isinstance(logprobs, dict) else None
    if not tokens:
        if not text:
            return
        start = f'{{"index":{index},"delta":{{"{name}":'.encode()
        for piece in pieces(text):
            yield start + dump(piece) + b'},"logprobs":null,"finish_reason":null}'
    elif "".join(str(token.get("token", "")) for token in tokens) == text:
        for token in tokens:
            yield _delta(index, {name: token["token"]}, _logprobs(name, [token]))
    else:  # tokens that cut a character in two: the whole list with the first piece
        given: Json = _logprobs(name, tokens)
        for piece in pieces(text):
            yield _delta(index, {name: piece}, given)
            given = None


def _logprobs(name: str, tokens: list[Json]) -> dict[str, Json]:
    return {"content": None, "refusal": None, name: tokens}


def _call(index: int, number: int, call: Mapping[str, Any]) -> Iterator[bytes]:
    kind = "custom" if call.get("type") == "custom" else "function"
    text = "input" if kind == "custom" else "arguments"
    body = call.get(kind)
    inner: Mapping[str, Any] = body if isinstance(body, dict) else {}
    yield _delta(index, {"tool_calls": [{"index": number, **call, kind: {**inner, text: ""}}]})
    for piece in pieces(str(inner.get(text) or "")):
        yield _delta(index, {"tool_calls": [{"index": number, kind: {text: piece}}]})


def _completion_choice(choice: Mapping[str, Any]) -> Iterator[bytes]:
    index = int(choice.get("index", 0))
    text = str(choice.get("text") or "")
    logprobs = choice.get("logprobs")
    tokens = logprobs.get("tokens") if isinstance(logprobs, dict) else None
    if isinstance(logprobs, dict) and tokens and "".join(map(str, tokens)) == text:
        for at, token in enumerate(tokens):
            one = {name: values[at : at + 1] for name, values in logprobs.items() if isinstance(values, list)}
            yield dump({"index": index, "text": token, "logprobs": one, "finish_reason": None})
    else:
        given = logprobs
        for piece in pieces(text):
            yield dump({"index": index, "text": piece, "logprobs": given, "finish_reason": None})
            given = None
    rest = {name: value for name, value in choice.items() if name not in ("index", "text", "logprobs")}
    yield dump({"index": index, "text": "", "logprobs": None, **rest})


def _responses(data: Mapping[str, Any]) -> Iterator[bytes]:
    numbers = itertools.count()

    def event(kind: str, **members: Any) -> bytes:
        return frame({"type": kind, "sequence_number": next(numbers), **members}, kind)

    begun = {**data, "status": "in_progress", "output": []}
    for name in ("usage", "completed_at"):
        if name in begun:
            begun[name] = None
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for at, item in enumerate(data.get("output") or ()):
        place = {"item_id": item.get("id"), "output_index": at}
        yield event("response.output_item.added", output_index=at, item=_begun_item(item))
        for kind, members in _item_events(item):
            yield event(kind, **place, **members)
        yield event("response.output_item.done", output_index=at, item=item)
    yield event("response.completed", response=data)


def _begun_item(item: Mapping[str, Any]) -> dict[str, Json]:
    out = dict(item)
    if "status" in out:
        out["status"] = "in_progress"
    empty: dict[str, dict[str, Json]] = {
        "message": {"content": []},
        "reasoning": {"summary": []} if item.get("content") is None else {"summary": [], "content": []},
        "function_call": {"arguments": ""},
        "custom_tool_call": {"input": ""},
    }
    return {**out, **empty.get(str(item.get("type")), {})}


def _item_events(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Json]]]:
    kind = item.get("type")
    if kind == "message":
        for at, part in enumerate(item.get("content") or ()):
            yield from _part_events(at, part)
    elif kind == "reasoning":
        for at, part in enumerate(item.get("summary") or ()):
            yield from _summary_events(at, part)
        for at, part in enumerate(item.get("content") or ()):
            yield from _part_events(at, part)
    elif kind == "function_call":
        text = str(item.get("arguments") or "")
        for piece in pieces(text):
            yield "response.function_call_arguments.delta", {"delta": piece}
        yield "response.function_call_arguments.done", {"name": item.get("name"), "arguments": text}
    elif kind == "custom_tool_call":
        text = str(item.get("input") or "")
        for piece in pieces(text):
            yield "response.custom_tool_call_input.delta", {"delta": piece}
        yield "response.custom_tool_call_input.done", {"input": text}


def _part_events(at: int, part: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Json]]]:
    kind = part.get("type")
    name = "refusal" if kind == "refusal" else "text"
    text = str(part.get(name) or "")
    place: dict[str, Json] = {"content_index": at}
    empty: dict[str, Json] = {**part, name: ""}
    if kind == "output_text":
        empty["annotations"] = []
        if "logprobs" in part:
            empty["logprobs"] = []
    yield "response.content_part.added", {**place, "part": empty}
    if kind == "output_text":
        logprobs = part.get("logprobs") or []
        given = logprobs
        for piece in pieces(text):
            yield "response.output_text.delta", {**place, "delta": piece, "logprobs": given}
            given = []
        for number, annotation in enumerate(part.get("annotations") or ()):
            members = {**place, "annotation_index": number, "annotation": annotation}
            yield "response.output_text.annotation.added", members
        yield "response.output_text.done", {**place, "text": text, "logprobs": logprobs}
    elif kind in ("refusal", "reasoning_text"):
        for piece in pieces(text):
            yield f"response.{kind}.delta", {**place, "delta": piece}
        yield f"response.{kind}.done", {**place, name: text}
    yield "response.content_part.done", {**place, "part": part}


def _summary_events(at: int, part: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Json]]]:
    text = str(part.get("text") or "")
    place: dict[str, Json] = {"summary_index": at}
    yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
    for piece in pieces(text):
        yield "response.reasoning_summary_text.delta", {**place, "delta": piece}
    yield "response.reasoning_summary_text.done", {**place, "text": text}
    yield "response.reasoning_summary_part.done", {**place, "part": part}
