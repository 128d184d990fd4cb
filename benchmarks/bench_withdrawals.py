"""How soon is a withdrawn answer gone in another process, and what do feedback and invalidations cost in memory?

    python benchmarks/bench_withdrawals.py [--trials 100] [--events 1000000] [--tags 100000] [--json]

The other process keeps local copies (bound 1 s) and asks without pause. What is measured is the time from
the return of the deciding call to the start of the last lookup that was still served.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import redis

from semcache import Hit, Policy, SemanticCache
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import HashEncoder

NAMESPACE = "withdrawals"


def open_cache(url: str, **policy: Any) -> SemanticCache:
    settings = {"deadline": 5.0, "feedback_rate": 10**9, **policy}
    return SemanticCache.open(url, namespace=NAMESPACE, encoder=HashEncoder(32), policy=Policy(**settings))


def ask_all_the_time(url: str, pipe: Connection) -> None:
    """Serve one prompt until it is gone; send the time of the last lookup that was served."""
    with open_cache(url) as cache:
        while (prompt := pipe.recv()) is not None:
            while not isinstance(cache.lookup(prompt), Hit):
                time.sleep(0.001)
            pipe.send("serving")
            served = time.monotonic()
            while True:
                started = time.monotonic()
                if not isinstance(cache.lookup(prompt), Hit):
                    break
                served = started
            pipe.send(served)


def delays(url: str, trials: int) -> dict[str, Any]:
    """Withdraw in this process by the third thumbs-down; look in another."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    other = multiprocessing.get_context("spawn").Process(
        target=ask_all_the_time, args=(url, there), daemon=True
    )
    other.start()
    measured = []
    with open_cache(url) as cache:
        for number in range(trials):
            prompt = f"question {number}"
            cache.put(prompt, "an answer")
            here.send(prompt)
            here.recv()
            time.sleep(0.01 * (number % 30))  # so that the copy's age varies
            for rater in range(3):
                found = cache.lookup(prompt)
                assert isinstance(found, Hit)
                cache.feedback(found.lookup_id, -1, rater=str(rater))
            returned = time.monotonic()
            measured.append(1000 * max(0.0, here.recv() - returned))
        here.send(None)
    other.join(10)
    row = {f"p{p}": round(float(np.percentile(measured, p)), 2) for p in (50, 90, 99)}
    return {"trials": trials, "ms": {**row, "max": round(max(measured), 2)}}


def memory(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


def feedback_memory(url: str, events: int) -> dict[str, Any]:
    """Many verdicts on 1,000 entries, by 1,000 raters who never suffice to withdraw."""
    client = redis.Redis.from_url(url)
    with open_cache(url, feedback_raters=10**6) as cache:
        ids = [cache.put(f"entry {n}", "x").entry_id for n in range(1000)]
        before, started, largest = memory(client), time.perf_counter(), 0
        for number in range(events):
            cache.feedback(str(ids[number % 1000]), -1, rater=f"u-{(number * 7919) % 100_003}")
            if number % 50_000 == 0:
                largest = max(largest, memory(client) - before)
        took = time.perf_counter() - started
        largest = max(largest, memory(client) - before)
        marks = max(client.zcard(key) for key in client.scan_iter(f"semcache:{NAMESPACE}:downs:*"))
    client.close()
    return {
        "events": events,
        "per_s": round(events / took),
        "most_MB": round(largest / 1e6, 1),
        "most_marks": marks,
    }


def tag_memory(url: str, tags: int) -> dict[str, Any]:
    """Many different tags, each invalidated once."""
    client = redis.Redis.from_url(url)
    with open_cache(url) as cache:
        before, started = memory(client), time.perf_counter()
        for number in range(tags):
            cache.invalidate(tags={f"object:{number}"})
        took = time.perf_counter() - started
        grown = memory(client) - before
        cache.put("still", "x")
        alive = isinstance(cache.lookup("still"), Hit)
    client.close()
    return {
        "tags": tags,
        "per_s": round(tags / took),
        "MB": round(grown / 1e6, 1),
        "a_new_entry_is_served": alive,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--tags", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.open(Path(folder) / "data") as server:
        report = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "last_serve_after_withdrawal": delays(server.url, options.trials),
            "tags": tag_memory(server.url, options.tags),
            "feedback": feedback_memory(server.url, options.events),
        }
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name}: {json.dumps(value) if isinstance(value, dict) else value}")


if __name__ == "__main__":
    main()
