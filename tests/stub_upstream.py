"""A small OpenAI-compatible endpoint of the tests' own, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Upstream:
    """What was asked, and how to answer.

    Attributes:
        reply: Makes (status, body) from the request's JSON.
        asked: The JSON of each request.
        headers: The headers of each request, names in lower case.
    """

    reply: Callable[[dict[str, Any]], tuple[int, Any]]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


def completion(text: str, **message: Any) -> dict[str, Any]:
    """Return a chat completion."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
    }


def echo(body: dict[str, Any]) -> tuple[int, Any]:
    """Answer with the question."""
    return 200, completion(f"You asked: {body['messages'][-1]['content']}")


@contextmanager
def upstream(reply: Callable[[dict[str, Any]], tuple[int, Any]] = echo) -> Iterator[Upstream]:
    """Serve on a free port until the block ends."""
    state = Upstream(reply)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.asked.append(body)
            state.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, answer = (404, {}) if self.path != "/v1/chat/completions" else state.reply(body)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
