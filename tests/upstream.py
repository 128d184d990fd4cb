"""An OpenAI-compatible server on loopback that answers as a test tells it to, and counts its calls.

It knows chat completions, completions, responses and embeddings, streamed or not; it has no part of the code under
test in it. By default the n-th call answers with a text that names the question and n, so that an answer given twice
shows that the second one came from a cache.

    upstream.next(Behaviour(status=429), Behaviour(text="Hello"))   # the next two calls
    upstream.always(Behaviour(delay=0.2))                           # all others
    client = OpenAI(base_url=upstream.url, api_key="k")
    assert upstream.count == 1
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Behaviour:
    """How one call is answered.

    Attributes:
        text: The answer; None for one that names the question and the number of the call.
        status: HTTP status; other than 200 gives an error body.
        delay: Seconds before the first byte.
        chunk_delay: Seconds before each further event of a stream.
        cut_after: Events after which a stream's connection is dropped.
        end_after: Events after which a stream ends in good order, without its last events.
        finish: Reason to finish (chat, completions), or what it means in the Responses API.
        refusal: A refusal in place of the text.
        tool_calls: Names and arguments of functions called in place of the text.
        message: More members of the message, e.g. reasoning_content.
        more: More members of the answer.
        body: This body instead, byte for byte.
        events: These events instead, byte for byte, where a stream was asked for.
        headers: More response headers.
        compress: Whether the body is sent as gzip.
        hold: Waits for this event before it answers; the connection is dropped if it doesn't come within 25 s.
        hold_after: Events of a stream that are sent before it waits for `hold`.
    """

    text: str | None = None
    status: int = 200
    delay: float = 0.0
    chunk_delay: float = 0.0
    cut_after: int | None = None
    end_after: int | None = None
    finish: str | None = "stop"
    refusal: str | None = None
    tool_calls: tuple[tuple[str, str], ...] = ()
    message: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    body: bytes | None = None
    events: tuple[bytes, ...] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    compress: bool = False
    hold: threading.Event | None = None
    hold_after: int | None = None


@dataclass(frozen=True)
class Call:
    """One call that arrived."""

    number: int
    method: str
    path: str  # with its query
    headers: dict[str, str]  # names in lower case
    raw: bytes

    @property
    def body(self) -> Any:
        """The body's JSON."""
        return json.loads(self.raw)


class Upstream:
    """The server. `close` it, or use it as a context manager.

    Args:
        keep_alive: Whether connections stay open after an answer. Where each test has an event loop and clients that
            nobody closes, as LangChain's are, none may be left open when the loop ends.
    """

    def __init__(self, *, keep_alive: bool = True) -> None:
        self.keep_alive = keep_alive
        self._lock = threading.Lock()
        self._queue: deque[Behaviour] = deque()
        self._default = Behaviour()
        self.calls: list[Call] = []
        self.streams_broken = 0
        """Streams whose reader went away before the end."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.upstream = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    @property
    def origin(self) -> str:
        """``http://127.0.0.1:<port>``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The base URL for an SDK."""
        return self.origin + "/v1"

    @property
    def count(self) -> int:
        """How many calls arrived since the last reset."""
        return len(self.calls)

    @property
    def last(self) -> Call:
        """The last call."""
        return self.calls[-1]

    def next(self, *behaviours: Behaviour) -> None:
        """Answer the next calls in these ways."""
        self._queue.extend(behaviours)

    def always(self, behaviour: Behaviour) -> None:
        """Answer all calls that have no way of their own in this one."""
        self._default = behaviour

    def reset(self) -> None:
        """Forget calls and behaviours."""
        with self._lock:
            self.calls.clear()
            self._queue.clear()
            self._default = Behaviour()
            self.streams_broken = 0

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def __enter__(self) -> Upstream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _arrived(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> tuple[Call, Behaviour]:
        with self._lock:
            call = Call(len(self.calls) + 1, method, path, headers, raw)
            self.calls.append(call)
            return call, self._queue.popleft() if self._queue else self._default


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    upstream: Upstream


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True
    wbufsize = -1  # one write per flush

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        call, how = self.server.upstream._arrived(method, self.path, headers, raw)
        if how.hold_after is None or not call.body.get("stream"):
            _wait(how.hold)
        if how.delay:
            time.sleep(how.delay)
        path = urlsplit(self.path).path
        if how.status != 200:
            self._send(how, how.status, how.body or error_body(how.status))
        elif how.body is not None:
            self._send(how, 200, how.body)
        elif method == "POST" and path.endswith("/embeddings"):
            self._send(how, 200, _dump(embeddings_answer(call, how)))
        elif method == "POST" and path.endswith(("/completions", "/responses")):
            kind = (
                "responses"
                if path.endswith("/responses")
                else "chat"
                if path.endswith("/chat/completions")
                else "text"
            )
            if call.body.get("stream"):
                events = how.events if how.events is not None else tuple(stream_events(kind, call, how))
                self._stream(how, events)
            else:
                self._send(how, 200, _dump(whole_answer(kind, call, how)))
        elif path.endswith("/models"):
            self._send(
                how,
                200,
                _dump(
                    {
                        "object": "list",
                        "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "us"}],
                    }
                ),
            )
        elif path.endswith("/files"):
            self._send(
                how,
                200,
                _dump(
                    {
                        "id": "file-1",
                        "object": "file",
                        "bytes": len(raw),
                        "created_at": 1,
                        "filename": "f",
                        "purpose": "batch",
                        "status": "processed",
                    }
                ),
            )
        else:
            self._send(how, 404, error_body(404))

    def _send(self, how: Behaviour, status: int, body: bytes) -> None:
        if how.compress:
            body = gzip.compress(body)
        self.send_response(status)
        self._headers(how, "application/json")
        if how.compress:
            self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _headers(self, how: Behaviour, kind: str) -> None:
        given = {name.lower() for name in how.headers}
        for name, value in (
            ("content-type", kind),
            ("x-request-id", f"req_{self.server.upstream.count}"),
            ("x-ratelimit-remaining-requests", "99"),
            ("set-cookie", "session=1; Path=/"),
            ("openai-processing-ms", "7"),
        ):
            if name not in given:
                self.send_header(name, value)
        for name, value in how.headers.items():
            self.send_header(name, value)
        if not self.server.upstream.keep_alive:
            self.send_header("connection", "close")  # this also ends the handler

    def _stream(self, how: Behaviour, events: tuple[bytes, ...]) -> None:
        self.send_response(200)
        self._headers(how, "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for number, event in enumerate(events):
                if number == how.cut_after:
                    self.wfile.flush()
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.shutdown(socket.SHUT_WR)
                    self.close_connection = True
                    return
                if number == how.end_after:
                    break
                if number == how.hold_after:
                    _wait(how.hold)
                if number and how.chunk_delay:
                    time.sleep(how.chunk_delay)
                self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except ConnectionError:
            self.server.upstream.streams_broken += 1
            self.close_connection = True


def _wait(hold: threading.Event | None) -> None:
    if hold is not None and not hold.wait(25):
        raise ConnectionAbortedError("nobody let the call go on")


def error_body(status: int) -> bytes:
    """Return an error in the OpenAI shape."""
    return _dump(
        {
            "error": {
                "message": f"upstream says {status}",
                "type": "upstream_error",
                "param": None,
                "code": None,
            }
        }
    )


def question_of(body: dict[str, Any]) -> str:
    """Return the text that a request asks."""
    turns = body.get("messages") or body.get("input") or body.get("prompt")
    if isinstance(turns, list) and turns and isinstance(turns[-1], dict):
        content = turns[-1].get("content")
        if isinstance(content, list):
            return " ".join(str(part.get("text", "")) for part in content)
        return str(content)
    return str(turns)


def text_of(call: Call, how: Behaviour) -> str:
    """Return the answer's text."""
    return f"Answer {call.number} to: {question_of(call.body)}" if how.text is None else how.text


def whole_answer(kind: str, call: Call, how: Behaviour) -> dict[str, Any]:
    """Return the answer to a call without a stream; `kind` is chat, text or responses."""
    body, text = call.body, text_of(call, how)
    if kind == "responses":
        return _response(call, how, text)
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    head = {
        "id": f"chatcmpl-up{call.number}",
        "created": 1700000000 + call.number,
        "model": (body.get("model") or "m") + "-2024-07-18",
    }
    if kind == "text":
        choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": None, "finish_reason": how.finish}
        return {**head, "object": "text_completion", "choices": [choice], "usage": usage, **how.more}
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, **how.message}
    finish = how.finish
    if how.refusal is not None:
        message.update(content=None, refusal=how.refusal)
    if how.tool_calls:
        message["content"] = None
        message["tool_calls"] = [
            {
                "id": f"call_{call.number}_{at}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for at, (name, arguments) in enumerate(how.tool_calls)
        ]
        finish = "tool_calls"
    choices = [
        {"index": at, "message": message, "logprobs": None, "finish_reason": finish}
        for at in range(body.get("n") or 1)
    ]
    return {
        **head,
        "object": "chat.completion",
        "choices": choices,
        "usage": usage,
        "system_fingerprint": "fp_1",
        **how.more,
    }


def _response(call: Call, how: Behaviour, text: str) -> dict[str, Any]:
    body = call.body
    part = (
        {"type": "refusal", "refusal": how.refusal}
        if how.refusal is not None
        else {"type": "output_text", "text": text, "annotations": []}
    )
    whole = how.finish == "stop"
    output: list[dict[str, Any]] = [
        {
            "id": f"msg_up{call.number}",
            "type": "message",
            "status": "completed" if whole else "incomplete",
            "role": "assistant",
            "content": [part],
        }
    ]
    if how.tool_calls:
        output = [
            {
                "id": f"fc_{call.number}_{at}",
                "type": "function_call",
                "call_id": f"call_{call.number}_{at}",
                "name": name,
                "arguments": arguments,
                "status": "completed",
            }
            for at, (name, arguments) in enumerate(how.tool_calls)
        ]
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    return {
        "id": f"resp_up{call.number}", "object": "response", "created_at": 1700000000 + call.number, "model": body.get("model", "m"),
        "status": "completed" if whole else "incomplete", "error": None,
        "incomplete_details": None if whole else {"reason": reasons.get(how.finish or "", "max_output_tokens")},
        "instructions": body.get("instructions"), "metadata": body.get("metadata") or {}, "output": output,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": body.get("tools") or [], "store": body.get("store", True),
        "user": body.get("user"), "usage": {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13},
        **how.more,
    }  # fmt: skip


def _words(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)] or [""]


def stream_events(kind: str, call: Call, how: Behaviour) -> Iterator[bytes]:
    """Yield the events of a streamed answer."""
    whole = whole_answer(kind, call, how)
    if kind == "responses":
        yield from _response_events(whole, how)
        return
    usage = whole.pop("usage")
    asked = (call.body.get("stream_options") or {}).get("include_usage")
    choices = whole.pop("choices")
    head = {
        **whole,
        "object": "chat.completion.chunk" if kind == "chat" else "text_completion",
        **({"usage": None} if asked else {}),
    }
    for choice in choices:
        index = choice["index"]
        if kind == "text":
            for word in _words(choice["text"]):
                yield _event(
                    {
                        **head,
                        "choices": [{"index": index, "text": word, "logprobs": None, "finish_reason": None}],
                    }
                )
            yield _event(
                {
                    **head,
                    "choices": [
                        {
                            "index": index,
                            "text": "",
                            "logprobs": None,
                            "finish_reason": choice["finish_reason"],
                        }
                    ],
                }
            )
            continue
        for delta in _deltas(choice["message"]):
            yield _event(
                {
                    **head,
                    "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}],
                }
            )
        yield _event(
            {
                **head,
                "choices": [
                    {"index": index, "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}
                ],
            }
        )
    if asked:
        yield _event({**head, "choices": [], "usage": usage})
    yield DONE


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": "" if message.get("content") else None, "refusal": None}
    for name, value in message.items():
        if name not in ("role", "tool_calls") and isinstance(value, str):
            for word in _words(value):
                yield {name: word}
    for at, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": at, "function": {"name": function["name"], "arguments": ""}}]}
        for word in _words(function["arguments"]):
            yield {"tool_calls": [{"index": at, "function": {"arguments": word}}]}


def _response_events(whole: dict[str, Any], how: Behaviour) -> Iterator[bytes]:
    number = -1

    def event(kind: str, **members: Any) -> bytes:
        nonlocal number
        number += 1
        return f"event: {kind}\n".encode() + _event({"type": kind, "sequence_number": number, **members})

    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for at, item in enumerate(whole["output"]):
        place = {"item_id": item["id"], "output_index": at}
        if item["type"] == "function_call":
            yield event(
                "response.output_item.added",
                output_index=at,
                item={**item, "arguments": "", "status": "in_progress"},
            )
            for word in _words(item["arguments"]):
                yield event("response.function_call_arguments.delta", **place, delta=word)
            yield event(
                "response.function_call_arguments.done",
                **place,
                name=item["name"],
                arguments=item["arguments"],
            )
        else:
            yield event(
                "response.output_item.added",
                output_index=at,
                item={**item, "content": [], "status": "in_progress"},
            )
            (part,) = item["content"]
            name = "refusal" if part["type"] == "refusal" else "text"
            kind = "response.refusal" if name == "refusal" else "response.output_text"
            yield event("response.content_part.added", **place, content_index=0, part={**part, name: ""})
            for word in _words(part[name]):
                yield event(f"{kind}.delta", **place, content_index=0, delta=word, logprobs=[])
            yield event(f"{kind}.done", **place, content_index=0, **{name: part[name]}, logprobs=[])
            yield event("response.content_part.done", **place, content_index=0, part=part)
        yield event("response.output_item.done", output_index=at, item=item)
    yield event(f"response.{whole['status']}", response=whole)


def embedding_of(item: Any) -> list[float]:
    """Return the embedding that the server gives for a text or a list of tokens: 8 float32 numbers."""
    seed = hashlib.sha256(json.dumps(item).encode()).digest()
    return [float(f"{number / 65536 - 0.5:.7g}") for number in struct.unpack("<8H", seed[:16])]


def embeddings_answer(call: Call, how: Behaviour) -> dict[str, Any]:
    """Return the answer to an embeddings call; a text costs one token per five bytes, rounded up."""
    body = call.body
    given = body["input"]
    items = given if isinstance(given, list) and given and not isinstance(given[0], int) else [given]
    tokens = sum(-(-len(item.encode()) // 5) if isinstance(item, str) else len(item) for item in items)
    rows = []
    for at, item in enumerate(items):
        numbers = embedding_of(item)
        packed = base64.b64encode(struct.pack("<8f", *numbers)).decode()
        rows.append(
            {
                "object": "embedding",
                "index": at,
                "embedding": packed if body.get("encoding_format") == "base64" else numbers,
            }
        )
    return {
        "object": "list", "data": rows, "model": body.get("model", "e") + "-v1",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens}, **how.more,
    }  # fmt: skip


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + _dump(value) + b"\n\n"


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
