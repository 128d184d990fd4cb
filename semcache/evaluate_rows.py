"""Reads evaluation files and users' logs, and recognises what they are. The only I/O is opening the file.

Knows: the schemas of the evaluation data and the log exports of LangSmith, Langfuse and OpenAI-style
APIs. Leaves to others: what is measured on them (`evaluate`).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from semcache.errors import ConfigurationError

Row: TypeAlias = Mapping[str, Any]
Schema: TypeAlias = Literal["pairs", "clusters", "context_pairs", "prompts", "trace", "log"]

_TEXT_KEYS = ("prompt", "question", "query", "input", "text", "user", "request")
_LABEL_KEYS = ("label", "cluster", "intent")


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a trace or log.

    Attributes:
        text: What was asked.
        cluster: Requests of equal cluster may share an answer; None if nobody said.
        context: What must be equal besides, as canonical JSON.
    """

    text: str
    cluster: str | None = None
    context: str = ""


def read_rows(path: Path) -> list[Row]:
    """Read JSON Lines or one JSON array, plain or gzipped.

    Raises:
        ConfigurationError: The file can't be read, or a line isn't a JSON object.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path}: can't be read ({error}); expected JSON Lines in UTF-8, plain or gzip"
        ) from error
    rows: list[Row] = []
    try:
        if text.lstrip().startswith("["):
            rows = json.loads(text)
        else:
            rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{path}: not JSON ({error.msg}: {error.doc[:60]!r})") from error
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise ConfigurationError(
                f"{path}, row {number}: found {type(row).__name__}, expected a JSON object"
            )
    if not rows:
        raise ConfigurationError(f"{path}: no rows; expected at least one JSON object")
    return rows


def schema_of(rows: Sequence[Row]) -> Schema:
    """Recognise the schema by the first row.

    Raises:
        ConfigurationError: No schema fits.
    """
    row = rows[0]
    if {"a", "b", "same"} <= row.keys():
        return "pairs"
    if {"question", "turns_a", "turns_b", "same"} <= row.keys():
        return "context_pairs"
    if {"text", "cluster", "first"} <= row.keys():
        return "trace"
    if {"text", "intent"} <= row.keys():
        return "clusters"
    if {"text", "topic"} <= row.keys():
        return "prompts"
    if request_of(row) is not None:
        return "log"
    raise ConfigurationError(
        f"found fields {', '.join(sorted(map(str, row)))}; expected pairs (a, b, same), clusters (text, intent), context"
        " pairs (question, turns_a, turns_b, same), prompts (text, topic), a trace (text, cluster, first), or a log with"
        " a prompt, messages or input in each row"
    )


def request_of(row: Row) -> Request | None:
    """Read one row of a log: own format, LangSmith, Langfuse, or OpenAI-style requests; None without a prompt."""
    label = next((str(row[k]) for k in _LABEL_KEYS if row.get(k) is not None), None)
    for body in _bodies(row):
        messages = body.get("messages")
        if isinstance(messages, list):
            found = _last_user(messages)
            if found is not None:
                return Request(found[0], label, found[1])
        for key in _TEXT_KEYS:
            value = body.get(key)
            if isinstance(value, str) and value.strip():
                return Request(value, label, _context(body))
            if isinstance(value, list):
                found = _last_user(value)
                if found is not None:
                    return Request(found[0], label, found[1])
    return None


def _context(body: Row) -> str:
    kept = {k: body[k] for k in ("system", "instructions", "model") if isinstance(body.get(k), str)}
    return json.dumps(kept, sort_keys=True) if kept else ""


def _bodies(row: Row) -> list[Row]:
    """Return the objects inside a row that may hold the prompt, the likeliest first."""
    inner = [row.get(key) for key in ("inputs", "body", "request", "input", "data", "kwargs")]
    found = [row, *(value for value in inner if isinstance(value, dict))]
    for value in tuple(found[1:]):
        found.extend(
            v for v in (value.get("body"), value.get("input"), value.get("inputs")) if isinstance(v, dict)
        )
    return found


def _last_user(messages: Sequence[Any]) -> tuple[str, str] | None:
    """Return the last user message's text and what precedes it; LangChain's nested exports are unwrapped."""
    if len(messages) == 1 and isinstance(messages[0], list):
        messages = messages[0]
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not isinstance(message, dict):
            continue
        inner = message.get("kwargs")
        fields: Row = inner if isinstance(inner, dict) else message
        role = str(fields.get("role") or fields.get("type") or message.get("id") or "").lower()
        if "user" in role or "human" in role:
            text = _content(fields.get("content"))
            if text.strip():
                return text, json.dumps(messages[:index], sort_keys=True, ensure_ascii=False) if index else ""
    return None


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (
            p.get("text", "")
            for p in content
            if isinstance(p, dict) and p.get("type") in ("text", "input_text")
        )
        return "\n".join(str(p) for p in parts)
    return ""
