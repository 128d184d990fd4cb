"""What a cache under the OpenAI SDK costs and saves, against a stub that answers at once.

The stub is a process of its own on loopback that reads a request and writes bytes made beforehand, so that its time is
the SDK's own and the socket's. Calls with and without the cache take turns in one run: read the ratios, not the times.

    python benchmarks/bench_openai.py [--calls 400] [--callers 100] [--json]

Times are those of the whole SDK call, parsing included; for a stream, up to its first chunk with text. The encoder is a
hash (20 µs), so a miss is "besides the encoder"; the entries live in the embedded server. The event loop's lag is how
much later than asked a 1 ms sleep ends while the callers ask different questions at once and the encoder takes 300 ms;
its processor time is what the loop's thread computed meanwhile, which other work on the machine doesn't change much.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from openai import AsyncOpenAI, OpenAI

from openai_semcache import wrap_openai
from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.testing import HashEncoder, SlowEncoder

ANSWER = "Open Settings, choose Security, then Reset password; a link is sent to your address."
HEAD = {"id": "chatcmpl-1", "created": 1700000000, "model": "m"}
MESSAGE = {"role": "assistant", "content": ANSWER}
USAGE = {"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29}
WHOLE = {
    **HEAD,
    "object": "chat.completion",
    "choices": [{"index": 0, "message": MESSAGE, "logprobs": None, "finish_reason": "stop"}],
    "usage": USAGE,
}


def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    """Return one event of the stub's stream."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return (
        b"data: "
        + json.dumps({**HEAD, "object": "chat.completion.chunk", "choices": [choice]}).encode()
        + b"\n\n"
    )


class Stub(asyncio.Protocol):
    """Answers a request as soon as its last byte is in."""

    body = json.dumps(WHOLE).encode()
    whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )
    events = (
        chunk({"role": "assistant", "content": ""})
        + b"".join(chunk({"content": word + " "}) for word in ANSWER.split())
        + chunk({}, "stop")
        + b"data: [DONE]\n\n"
    )
    stream = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (
        len(events),
        events,
    )

    def __init__(self) -> None:
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, found, rest = self.data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if found and len(rest) >= int(length or 0):
            self.data = b""
            self.transport.write(self.stream if b'"stream":true' in rest else self.whole)


async def serve_stub() -> None:
    """Serve until the standard input closes; say the port first."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stub, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def stub_process() -> Iterator[str]:
    """Run the stub; yields its base URL."""
    command = [sys.executable, __file__, "--stub"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        process.stdin.close()


def request(question: str) -> dict[str, Any]:
    """Return a chat request."""
    return {"model": "m", "messages": [{"role": "user", "content": question}]}


def whole(client: OpenAI, question: str) -> None:
    """Ask, and read the whole answer."""
    assert client.chat.completions.create(**request(question)).choices[0].message.content == ANSWER


def first_chunk(client: OpenAI, question: str) -> None:
    """Ask for a stream, and read up to the first chunk with text."""
    with client.chat.completions.create(**request(question), stream=True) as stream:
        for part in stream:
            if part.choices[0].delta.content:
                return


def in_turns(calls: int, **kinds: Callable[[int], None]) -> dict[str, dict[str, float]]:
    """Measure the kinds in turns; returns milliseconds by kind."""
    wall: dict[str, list[float]] = {name: [] for name in kinds}
    processor = dict.fromkeys(kinds, 0.0)
    for number in range(calls):
        for name, call in kinds.items():
            used, started = time.process_time(), time.perf_counter()
            call(number)
            wall[name].append((time.perf_counter() - started) * 1000)
            processor[name] += (time.process_time() - used) * 1000
    return {
        name: {
            **{f"p{q}": float(np.percentile(row, q)) for q in (50, 90, 99)},
            "cpu": processor[name] / calls,
        }
        for name, row in wall.items()
    }


def measure_calls(url: str, folder: str, calls: int) -> dict[str, dict[str, float]]:
    """Measure hits, misses and streams against the plain client."""
    policy = Policy(deadline=5.0)
    with (
        SemanticCache.open(data_dir=folder, encoder=HashEncoder(), policy=policy) as cache,
        OpenAI(api_key="k", base_url=url) as plain,
        wrap_openai(OpenAI(api_key="k", base_url=url), cache) as cached,
    ):
        for warm in range(20):
            whole(plain, f"warm {warm}")
            whole(cached, f"warm {warm}")
            first_chunk(plain, f"warm {warm}")
            first_chunk(cached, f"warm {warm}")
        return in_turns(
            calls,
            stub=lambda n: whole(plain, "warm 0"),
            exact_hit=lambda n: whole(cached, "warm 0"),
            miss=lambda n: whole(cached, f"question {n}"),
            stub_first_chunk=lambda n: first_chunk(plain, "warm 0"),
            hit_first_chunk=lambda n: first_chunk(cached, "warm 0"),
            miss_first_chunk=lambda n: first_chunk(cached, f"streamed question {n}"),
        )


async def measure_lag(url: str, folder: str, callers: int) -> dict[str, dict[str, float]]:
    """Measure the event loop's lag with and without the cache, the callers asking all at once."""

    async def during(client: AsyncOpenAI) -> dict[str, float]:
        wall: list[float] = []
        processor: list[float] = []

        async def heartbeat() -> None:
            while True:
                used, started = time.thread_time(), time.perf_counter()
                await asyncio.sleep(0.001)
                wall.append((time.perf_counter() - started) * 1000 - 1)
                processor.append((time.thread_time() - used) * 1000)

        await client.chat.completions.create(**request("warm"))
        beat = asyncio.create_task(heartbeat())
        for number in range(5):
            questions = [f"question {number} of {caller}" for caller in range(callers)]
            await asyncio.gather(*(client.chat.completions.create(**request(text)) for text in questions))
        beat.cancel()
        return {
            "p50": _percentile(wall, 50),
            "p99": _percentile(wall, 99),
            "cpu_p99": _percentile(processor, 99),
        }

    encoder = SlowEncoder(HashEncoder(), 0.3)
    cache = await AsyncSemanticCache.open(
        data_dir=folder, encoder=encoder, policy=Policy(deadline=5.0), namespace="lag"
    )
    async with AsyncOpenAI(api_key="k", base_url=url) as plain:
        without = await during(plain)
    async with wrap_openai(AsyncOpenAI(api_key="k", base_url=url), cache) as client:
        with_cache = await during(client)
    await cache.close()
    return {"lag_without_cache": without, "lag_with_cache": with_cache}


def _percentile(values: list[float], q: float) -> float:
    return float(np.percentile(values, q))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--callers", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--stub", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stub:
        asyncio.run(serve_stub())
        return
    with stub_process() as url, tempfile.TemporaryDirectory() as folder:
        times = measure_calls(url, folder, arguments.calls)
        lag = asyncio.run(measure_lag(url, folder, arguments.callers))
    figures = {
        "exact hit / stub, p50": times["exact_hit"]["p50"] / times["stub"]["p50"],
        "first chunk of a hit / of the stub, p50": times["hit_first_chunk"]["p50"]
        / times["stub_first_chunk"]["p50"],
        "overhead on a miss, ms p50": times["miss"]["p50"] - times["stub"]["p50"],
        "overhead on a miss, ms of processor time": times["miss"]["cpu"] - times["stub"]["cpu"],
        "overhead on a miss's first chunk, ms p50": times["miss_first_chunk"]["p50"]
        - times["stub_first_chunk"]["p50"],
        "lag with the cache, ms p99": lag["lag_with_cache"]["p99"],
        "lag with the cache, ms p99 of the loop's processor time": lag["lag_with_cache"]["cpu_p99"],
    }
    if arguments.json:
        print(json.dumps({"times_ms": times, "lag_ms": lag, "figures": figures}))
        return
    print(
        f"{platform.platform()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print(
        f"{arguments.calls} calls each, {arguments.callers} callers at once, hash encoder of 64, embedded server"
    )
    for name, row in {**times, **lag}.items():
        print(f"{name:18}" + "".join(f"  {q} {value:7.2f} ms" for q, value in row.items()))
    for name, value in figures.items():
        print(f"{value:7.2f}  {name}")


if __name__ == "__main__":
    main()
