"""From an OpenAI-style answer to a `semcache.types.Response`, and back to an answer for another caller. Pure.

Whether an answer may be stored is the cache's rule; this module only reads what the rule needs.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from typing import Any, Final

from openai_semcache.fields import DEFAULT_OPTIONS, ECHOED, Endpoint, Json, Options
from semcache.structured import Structure
from semcache.types import Response

FINISHED: Final = frozenset({"stop", "length", "content_filter", "tool_calls", "function_call"})
"""Reasons to finish that we know; any other, and none at all, counts as a cut answer."""

_INCOMPLETE: Final = {"max_output_tokens": "length", "content_filter": "content_filter"}
_PLAIN_ITEMS: Final = frozenset({"message", "reasoning"})
# an answer that was streamed without token counts, for callers who rely on there being some
_UNKNOWN_USAGE: Final = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
_ID_PREFIXES: Final[Mapping[Endpoint, str]] = {"responses": "resp_", "completions": "cmpl-"}


def response_of(
    endpoint: Endpoint, body: Any, *, latency_ms: float | None = None, structure: Structure | None = None
) -> Response:
    """Read an answer with status 200.

    Args:
        body: The answer's JSON; of a stream, what `accumulate` made of it.
        latency_ms: What the model took.
        structure: What the text must be; None for any text.
    """
    if not isinstance(body, dict) or body.get("error"):
        return Response("", error=True)
    found = _read_items(body) if endpoint == "responses" else _read_choices(body)
    if found is None:
        return Response("", error=True)
    read, texts = found
    read["malformed"] = not _fits(read, texts, structure)
    if _flagged(body):
        read["finish_reason"] = "content_filter"
    usage = body.get("usage")
    return Response(
        data=_blank(body), usage=usage if isinstance(usage, dict) else None, latency_ms=latency_ms, **read
    )


def whole_of(endpoint: Endpoint, response: Response, model: str) -> Mapping[str, Any] | None:
    """Return a stored answer's JSON; one made around its text if what is stored isn't this endpoint's.

    Args:
        model: Name to give where only the text can be used.

    Returns:
        None if there is no text either.
    """
    data = response.data
    known = "output" if endpoint == "responses" else "choices"
    if isinstance(data, Mapping) and isinstance(data.get(known), list):
        return data
    if not response.text or response.tool_calls:
        return None
    usage = {} if response.usage is None else {"usage": dict(response.usage)}
    if endpoint == "responses":
        part = {"type": "output_text", "text": response.text, "annotations": []}
        item = {
            "id": "msg_",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [part],
        }
        return {
            "object": "response", "status": "completed", "error": None, "incomplete_details": None,
            "instructions": None, "metadata": {}, "model": model, "output": [item], "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], **usage,
        }  # fmt: skip
    choice: dict[str, Json] = {
        "index": 0,
        "logprobs": None,
        "finish_reason": response.finish_reason or "stop",
    }
    if endpoint == "chat":
        choice["message"] = {"role": "assistant", "content": response.text, "refusal": None}
    else:
        choice["text"] = response.text
    kind = "chat.completion" if endpoint == "chat" else "text_completion"
    return {"object": kind, "model": model, "choices": [choice], **usage}


def is_intact(endpoint: Endpoint, data: Mapping[str, Any], structure: Structure | None) -> bool:
    """Return whether a stored answer's JSON is what this caller asks for."""
    if structure is None:
        return True
    found = _read_items(data) if endpoint == "responses" else _read_choices(data)
    return found is not None and _fits(*found, structure)


def for_caller(
    endpoint: Endpoint,
    data: Mapping[str, Any],
    request_body: Mapping[str, Any],
    *,
    now: float,
    options: Options = DEFAULT_OPTIONS,
) -> dict[str, Json]:
    """Return a stored answer as a new one for this caller: fresh ids and times, her own echoed fields.

    Args:
        request_body: The caller's request.
        now: Seconds since the Unix epoch.
    """
    out = dict(data)
    out["id"] = fresh_id(data.get("id"), _ID_PREFIXES.get(endpoint, "chatcmpl-"))
    if endpoint == "responses":
        if isinstance(data.get("completed_at"), int | float):
            out["completed_at"] = int(now)
        out["created_at"] = int(now)
        output = data.get("output")
        if isinstance(output, list):
            out["output"] = [_fresh_item(item) for item in output]
    else:
        out["created"] = int(now)
        if "usage" in out and out["usage"] is None:
            out["usage"] = dict(_UNKNOWN_USAGE)
    for name, default in ECHOED.items():
        if name in out:
            given = request_body.get(name)
            out[name] = default if given is None else given
    if options.usage == "zero" and isinstance(out.get("usage"), dict):
        out["usage"] = _zeroed(out["usage"])
    return out


def fresh_id(source: Any, default: str) -> str:
    """Return a new id with the prefix of `source`, e.g. ``chatcmpl-`` or ``resp_``."""
    prefix = default
    if isinstance(source, str):
        cut = min((at for at in (source.find("-"), source.find("_")) if at > 0), default=-1)
        if 0 < cut <= 16:
            prefix = source[: cut + 1]
    return prefix + uuid.uuid4().hex


def _read_choices(body: Mapping[str, Json]) -> tuple[dict[str, Any], list[str]] | None:
    """Return what decides about storing, and each choice's text; None if it is no answer."""
    choices = body.get("choices")
    if (
        not isinstance(choices, list)
        or not choices
        or not all(isinstance(choice, dict) for choice in choices)
    ):
        return None
    texts: list[str] = []
    read: dict[str, Any] = {"refusal": False, "tool_calls": False, "media": False, "partial": False}
    reasons: list[Any] = []
    for choice in choices:
        reasons.append(choice.get("finish_reason"))
        message = choice.get("message")
        if not isinstance(message, dict):
            texts.append(choice["text"] if isinstance(choice.get("text"), str) else "")
            continue
        content = message.get("content")
        texts.append(content if isinstance(content, str) else _text_of_parts(content, read))
        read["refusal"] = read["refusal"] or bool(message.get("refusal"))
        read["tool_calls"] = read["tool_calls"] or bool(
            message.get("tool_calls") or message.get("function_call")
        )
        read["media"] = read["media"] or bool(message.get("audio") or message.get("images"))
        if _filtered(choice):
            reasons.append("content_filter")
    read["text"] = texts[0] if all(text.strip() for text in texts) else ""
    read["finish_reason"] = _worst(reasons)
    read["partial"] = any(reason not in FINISHED for reason in reasons)
    read["confidence"] = _confidence(choices[0])
    return read, texts


def _worst(reasons: list[Any]) -> str | None:
    for reason in ("content_filter", "length", "tool_calls", "function_call"):
        if reason in reasons:
            return reason
    return reasons[0] if isinstance(reasons[0], str) else None


def _text_of_parts(content: Any, read: dict[str, Any]) -> str:
    if not isinstance(content, list):
        return ""
    texts = []
    for part in content:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            read["media"] = True
    return "".join(texts)


def _read_items(body: Mapping[str, Json]) -> tuple[dict[str, Any], list[str]] | None:
    """Return what decides about storing, and each part's text; None if it is no answer."""
    output = body.get("output")
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        return None
    read: dict[str, Any] = {"refusal": False, "tool_calls": False, "media": False}
    texts: list[str] = []
    for item in output:
        kind = item.get("type")
        if kind == "message":
            for part in item.get("content") or []:
                part_kind = part.get("type") if isinstance(part, dict) else None
                if part_kind == "output_text":
                    texts.append(str(part.get("text") or ""))
                elif part_kind == "refusal":
                    read["refusal"] = True
                else:
                    read["media"] = True
        elif kind == "image_generation_call":
            read["media"] = True
        elif kind not in _PLAIN_ITEMS:
            read["tool_calls"] = True
    status, details = body.get("status"), body.get("incomplete_details")
    statuses = [item["status"] for item in output if item.get("status") is not None]
    read["text"] = "".join(texts)
    read["partial"] = status != "completed" or any(value != "completed" for value in statuses)
    read["finish_reason"] = "stop" if status == "completed" else None
    if isinstance(details, dict):
        read["finish_reason"] = _INCOMPLETE.get(str(details.get("reason")), "length")
    if read["finish_reason"] in ("length", "content_filter"):
        read["partial"] = False  # the better-known reason says it
    return read, texts


def _fits(read: Mapping[str, Any], texts: list[str], structure: Structure | None) -> bool:
    """Return whether each text is what is asked for; a call of a tool has a form of its own."""
    if structure is None or read["tool_calls"]:
        return True
    return bool(texts) and all(structure.admits(text) for text in texts)


def _filtered(choice: dict[str, Json]) -> bool:
    results = choice.get("content_filter_results")
    return isinstance(results, dict) and any(
        isinstance(result, dict) and result.get("filtered") is True for result in results.values()
    )


def _flagged(body: dict[str, Json]) -> bool:
    """Return whether a moderation result in the answer flags the request or the answer."""
    stack = [body.get("moderation")]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.get("flagged") is True:
                return True
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return False


def _confidence(choice: dict[str, Json]) -> float | None:
    """Return the geometric mean of the tokens' probabilities, None without log-probabilities."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return None
    tokens = logprobs.get("content")
    values = (
        [token.get("logprob") for token in tokens if isinstance(token, dict)]
        if isinstance(tokens, list)
        else logprobs.get("token_logprobs")
    )
    numbers = [value for value in values or [] if isinstance(value, int | float) and value <= 0.0]
    return math.exp(max(-700.0, sum(numbers) / len(numbers))) if numbers else None


def _blank(body: dict[str, Json]) -> dict[str, Json]:
    """Return the answer without what belongs to this caller alone."""
    return {name: ECHOED.get(name, value) for name, value in body.items() if name != "semcache"}


def _fresh_item(item: Any) -> Any:
    # other items' ids are kept: a reasoning item's belongs to its encrypted content
    if isinstance(item, dict) and item.get("type") == "message":
        return {**item, "id": fresh_id(item.get("id"), "msg_")}
    return item


def _zeroed(usage: dict[str, Json]) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for name, value in usage.items():
        if isinstance(value, dict):
            out[name] = _zeroed(value)
        else:
            out[name] = 0 if isinstance(value, int | float) and not isinstance(value, bool) else value
    return out
