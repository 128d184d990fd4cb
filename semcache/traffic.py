"""Reads requests with their time, latency and tokens out of logs, for capacity planning. Pure but for the file.

Knows: the fields under which logs keep these. Leaves to others: which fields hold the prompt (`evaluate_rows`)
and what is planned from it (`plan`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from semcache.errors import ConfigurationError
from semcache.evaluate_rows import Row, read_rows, request_of
from semcache.scope import exact_text

_TIMES: Final = (
    "timestamp", "time", "ts", "created_at", "start_time", "startTime", "created", "date",
)  # fmt: skip
_RESPONSES: Final = ("response", "answer", "output", "completion", "outputs")
_DAY: Final = 86400.0
_MOST: Final = 5_000_000  # requests that a log may stand for


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a log.

    Attributes:
        text: The prompt as the cache compares it.
        context: What must be equal besides, as canonical JSON.
        time: Seconds since the Unix epoch; None if the log doesn't tell.
        latency_ms: What the model took; None if unknown.
        tokens_in, tokens_out: What the model read and wrote; None if unknown.
        response: The answer; None if the log has none.
    """

    text: str
    context: str = ""
    time: float | None = None
    latency_ms: float | None = None
    tokens_in: float | None = None
    tokens_out: float | None = None
    response: str | None = None


def read_traffic(path: Path, *, limit: int | None = None, seed: int = 0) -> list[Asked]:
    """Read a log in order of time; rows without a prompt are left out.

    A row with ``popularity`` (or ``count``) stands for that many requests, spread at random over its day.

    Args:
        limit: Use the first so many rows.
        seed: Of the spreading.

    Raises:
        ConfigurationError: The file can't be read, or no row has a prompt.
    """
    found: list[Asked] = []
    draw = random.Random(seed)
    rows = read_rows(path)[:limit]
    for row in rows:
        asked = asked_of(row)
        if asked is None:
            continue
        repeats = next((n for k in ("popularity", "count") if (n := _number(row.get(k))) is not None), None)
        if len(found) + int(repeats or 1) > _MOST:
            raise ConfigurationError(
                f"{path}: stands for more than {_MOST:,} requests by its popularity or count; expected fewer: give"
                " --limit, or divide them all by the same number"
            )
        if repeats is None or asked.time is None:
            found.extend([asked] * max(1, int(repeats or 1)))
            continue
        whole_day = isinstance(row.get("date"), str) and len(row["date"]) == 10
        for _ in range(max(1, int(repeats))):
            found.append(_at(asked, asked.time + draw.random() * _DAY) if whole_day else asked)
    if not found:
        raise ConfigurationError(
            f"{path}: no row has a prompt; found fields {', '.join(sorted(map(str, rows[0])))}, expected prompt,"
            " messages, input, query or text"
        )
    if all(asked.time is not None for asked in found):
        found.sort(key=lambda asked: asked.time or 0.0)
    return found


def _at(asked: Asked, time: float) -> Asked:
    return Asked(
        asked.text, asked.context, time, asked.latency_ms, asked.tokens_in, asked.tokens_out, asked.response
    )


def asked_of(row: Row) -> Asked | None:
    """Read one row; None without a prompt."""
    request = request_of(row)
    text = "" if request is None else exact_text(request.text)
    if request is None or not text:
        return None
    tokens_in, tokens_out = _tokens(row)
    return Asked(
        text,
        request.context,
        next((t for k in _TIMES if (t := _time(row.get(k))) is not None), None),
        _latency(row),
        tokens_in,
        tokens_out,
        next((a for k in _RESPONSES if (a := _answer(row.get(k))) is not None), None),
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def _time(value: object) -> float | None:
    """Read seconds, milliseconds (from 1e11 on) or an ISO 8601 text; without a zone it is UTC."""
    number = _number(value)
    if number is not None:
        return number / 1000.0 if number >= 1e11 else number
    if isinstance(value, str):
        try:
            read = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    return None


def _latency(row: Row) -> float | None:
    for key, scale in (("latency_ms", 1.0), ("duration_ms", 1.0), ("latency", 1000.0), ("duration", 1000.0)):
        value = _number(row.get(key))
        if value is not None:
            return value * scale
    start, end = (
        _time(row.get("start_time") or row.get("startTime")),
        _time(row.get("end_time") or row.get("endTime")),
    )
    return (end - start) * 1000.0 if start is not None and end is not None and end >= start else None


def _tokens(row: Row) -> tuple[float | None, float | None]:
    for body in (row.get("usage"), (row.get("response") or row.get("outputs")), row):
        inner = body.get("usage", body) if isinstance(body, Mapping) else None
        if not isinstance(inner, Mapping):
            continue
        given = next((n for k in ("prompt_tokens", "input_tokens", "tokens_in") if (n := _number(inner.get(k))) is not None), None)  # fmt: skip
        made = next((n for k in ("completion_tokens", "output_tokens", "tokens_out") if (n := _number(inner.get(k))) is not None), None)  # fmt: skip
        if given is not None or made is not None:
            return given, made
        total = next(
            (n for k in ("total_tokens", "tokens") if (n := _number(inner.get(k))) is not None), None
        )
        if total is not None:
            return None, total
    return None, None


def _answer(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        return None
    choices = value.get("choices")
    if isinstance(choices, Sequence) and choices and isinstance(choices[0], Mapping):
        message: Any = choices[0].get("message")
        value = message if isinstance(message, Mapping) else choices[0]
    return next((t for k in ("content", "text", "output") if isinstance(t := value.get(k), str)), None)
