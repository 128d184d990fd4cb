"""One process of a stampede: opens a cache, says so, and on each line it reads asks one question many times at once.

    python -m tests.strategies.flight_worker sync|async URL NAMESPACE CALLS_FILE CALLERS SECONDS LEASE

Each line is JSON with the prompt; the answer to it is a line of JSON. Each call of the model writes a line to CALLS_FILE.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from semcache import AsyncSemanticCache, CacheRequest, Policy, SemanticCache
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher


def main() -> None:
    kind, url, namespace, calls, callers, seconds, lease = sys.argv[1:8]
    file = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    number = int(callers)
    options: dict[str, Any] = {
        "namespace": namespace, "policy": Policy(deadline=10.0, flight_lease=float(lease)),
        "encoder": TableEncoder({}, default=[1.0, 0.0]), "matcher": ThresholdMatcher(0.9),
    }  # fmt: skip

    def called(request: CacheRequest) -> str:
        os.write(file, (json.dumps({"pid": os.getpid(), "prompt": request.prompt}) + "\n").encode())
        return f"answer to {request.prompt}"

    def say(found: list[Any], started: float) -> None:
        texts, waited = {answer.text for answer in found}, sum(answer.waited for answer in found)
        took = time.monotonic() - started
        print(json.dumps({"texts": sorted(texts), "waited": waited, "took": took}), flush=True)

    def synchronous() -> None:
        def model(request: CacheRequest) -> str:
            answer = called(request)
            time.sleep(float(seconds))
            return answer

        with SemanticCache.open(url, **options) as cache, ThreadPoolExecutor(number) as pool:
            cache.lookup("warm up")
            print("ready", flush=True)
            for line in sys.stdin:
                started = time.monotonic()
                futures = [pool.submit(cache.get_or_compute, json.loads(line), model) for _ in range(number)]
                say([future.result() for future in futures], started)

    async def asynchronous() -> None:
        async def model(request: CacheRequest) -> str:
            answer = called(request)
            await asyncio.sleep(float(seconds))
            return answer

        async with await AsyncSemanticCache.open(url, **options) as cache:
            await cache.lookup("warm up")
            print("ready", flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                started = time.monotonic()
                prompt = json.loads(line)
                say(
                    await asyncio.gather(*(cache.get_or_compute(prompt, model) for _ in range(number))),
                    started,
                )

    synchronous() if kind == "sync" else asyncio.run(asynchronous())


if __name__ == "__main__":
    main()
