"""Server-sent events: bytes to events, and JSON to bytes. Pure; knows nothing of OpenAI."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its type ("" if not given) and its data lines joined by LF."""

    event: str
    data: str


class Parser:
    """Turns chunks of bytes, cut anywhere, into events as the HTML standard reads them.

    Lines end in LF, CRLF or CR; comments and unknown fields are skipped; a leading byte order mark is dropped.
    """

    __slots__ = ("_begun", "_buffer", "_data", "_event", "_skip_lf")

    def __init__(self) -> None:
        self._buffer = b""
        self._skip_lf = False  # the chunk before ended in CR: an LF now belongs to it
        self._begun = False
        self._event = ""
        self._data: list[str] | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes."""
        if not chunk:
            return []
        if self._skip_lf:
            self._skip_lf = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if chunk[-1:] == b"\r":
            self._skip_lf = True
        buffer = self._buffer + chunk
        if b"\r" in buffer:
            buffer = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = buffer.split(b"\n")
        self._buffer = lines.pop()
        events: list[Event] = []
        for line in lines:
            event = self._line(line)
            if event is not None:
                events.append(event)
        return events

    def close(self) -> Event | None:
        """Return the event that the stream ended in without its blank line, None without one."""
        if self._buffer:
            self._line(self._buffer)
            self._buffer = b""
        return self._line(b"")

    def _line(self, line: bytes) -> Event | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            data, event = self._data, self._event
            self._data, self._event = None, ""
            return None if data is None else Event(event, "\n".join(data))
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            text = value.decode("utf-8", "replace")
            if self._data is None:
                self._data = [text]
            else:
                self._data.append(text)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        return None


def dump(value: Any) -> bytes:
    """Return compact JSON in ASCII, so that no client can take a character inside it for the end of a line."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def frame(value: Any, event: str = "") -> bytes:
    """Return `value` as one event."""
    head = b"event: " + event.encode() + b"\n" if event else b""
    return head + b"data: " + dump(value) + b"\n\n"
