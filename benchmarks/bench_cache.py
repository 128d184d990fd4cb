"""What the cache costs beside a bare GET and beside the encoder: ratios in one run.

    python benchmarks/bench_cache.py [--rounds 2000] [--entries 20000] [--only semantic] [--redis URL] [--json]

Everything runs against an embedded server over its unix socket. Latencies are of whole calls as an
application makes them, from one thread, unless a row says otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import redis

from semcache import AsyncSemanticCache, CacheRequest, Hit, Policy, SemanticCache
from semcache.encoders import default_encoder
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import HashEncoder
from semcache.verify import ThresholdMatcher

DATA = Path(os.environ.get("SEMCACHE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
DIM = 512
ANSWER = "An answer of a thousand characters. " * 28
SYSTEM = [{"role": "system", "content": "You are the help desk of a shop. " * 32}]  # about 1 KB


PARTS = ("exact", "semantic", "scopes", "stampede", "invalidation")


def percentiles(act: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Time `act`; microseconds."""
    times = np.empty(rounds)
    for number in range(rounds):
        started = time.perf_counter()
        act()
        times[number] = time.perf_counter() - started
    return {f"p{p}": round(float(np.percentile(times, p)) * 1e6, 1) for p in (50, 95, 99)}


def in_turns(acts: dict[str, Callable[[], Any]], rounds: int, turn: int = 20) -> dict[str, dict[str, float]]:
    """Time several acts by turns of some calls each, so that all meet the same moods of the machine; microseconds.

    How long a server takes to wake differs by the minute on a virtual machine, and with it a round trip. A
    turn's first call, which meets caches that the other acts have emptied, isn't counted.
    """
    times: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(max(1, rounds // turn)):
        for name, act in acts.items():
            act()
            for _ in range(turn):
                started = time.perf_counter()
                act()
                times[name].append(time.perf_counter() - started)
    return {
        name: {f"p{p}": round(float(np.percentile(taken, p)) * 1e6, 1) for p in (50, 95, 99)}
        for name, taken in times.items()
    }


def settle(cache: SemanticCache) -> None:
    """Wait until the graphs are built: until then a search scans the rows that have none, beside the builder."""
    index: Any = cache._core.index
    assert index.settle(600)


class NearEncoder:
    """Unit vectors by text; "near <text>" is close to <text>. Free, so that what is left is the cache's own cost."""

    def __init__(self) -> None:
        self._inner = HashEncoder(DIM)

    @property
    def fingerprint(self) -> str:
        return "near-1"

    @property
    def dim(self) -> int:
        return DIM

    def encode(self, texts: Any) -> Any:
        base = self._inner.encode([text.removeprefix("near ") for text in texts])
        noise = self._inner.encode([f"noise {text}" for text in texts])
        near = np.array([[0.2 if text.startswith("near ") else 0.0] for text in texts], dtype=np.float32)
        rows = base + near * noise
        return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)

    def inspect(self, texts: Any) -> Any:
        return self._inner.inspect(texts)


def open_cache(where: EmbeddedServer | str, namespace: str, **options: Any) -> SemanticCache:
    settings = {"encoder": NearEncoder(), "matcher": ThresholdMatcher(0.9), **options}
    url = where if isinstance(where, str) else where.url
    return SemanticCache.open(url, namespace=namespace, **settings)


def exact_hits(url: str, rounds: int) -> dict[str, Any]:
    """Exact hits from Redis and from the local copy beside a bare GET of the same value."""
    bare = redis.Redis.from_url(url, protocol=2)
    stored = open_cache(url, "exact", policy=Policy(local_bound=0.0, deadline=5.0))
    local = open_cache(url, "exact", policy=Policy(deadline=5.0))
    request = CacheRequest("How do I reset my password?", model="m", context=SYSTEM)
    stored.put(request, ANSWER)
    bare.set("bare", ANSWER)

    def new() -> None:
        local.lookup(CacheRequest("How do I reset my password?", model="m", context=SYSTEM))

    found = stored.lookup(request)
    assert isinstance(found, Hit)
    lookup_id = found.lookup_id
    free = open_cache(url, "exact", policy=Policy(deadline=5.0, feedback_rate=10**9))
    acts: dict[str, Callable[[], Any]] = {
        "get": lambda: bare.get("bare"),
        "exact_hit": lambda: stored.lookup(request),
        "local_hit": lambda: local.lookup(request),
        "local_hit_new_request": new,
        "feedback": lambda: free.feedback(lookup_id, -1, rater="u"),
    }
    for act in acts.values():
        act()
    rows = in_turns(acts, rounds)
    base = rows["get"]["p50"]
    ratios = {f"{name}/get": round(row["p50"] / base, 2) for name, row in rows.items() if name != "get"}
    for one in (stored, local, free):
        one.close()
    bare.close()
    return {"us": rows, "ratios": ratios}


def random_questions(entries: int) -> tuple[dict[str, Any], list[str], list[str]]:
    """Vectors without any structure: the hardest case for a graph, and no encoder."""
    settings = {"encoder": NearEncoder(), "matcher": ThresholdMatcher(0.9)}
    return settings, [f"question {n}" for n in range(entries)], [f"near question {n}" for n in range(64)]


def real_questions(entries: int) -> tuple[dict[str, Any], list[str], list[str]] | None:
    """Questions that people asked, by the default encoder and its matcher; None without the evaluation data."""
    if not (DATA / "pairs_qqp.jsonl.gz").exists():
        return None
    stored: dict[str, None] = {}
    asked = []
    with gzip.open(DATA / "pairs_qqp.jsonl.gz", "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row["same"] and row["a"] not in stored:
                asked.append(row["b"])
            stored[row["a"]] = None
            if len(stored) == entries:
                break
    return {"encoder": default_encoder()}, list(stored), asked


def semantic_hits(server: EmbeddedServer, rounds: int, entries: int) -> dict[str, Any]:
    """Everything of a semantic hit but the encoder: the text's embedding is in the process already."""
    found = {}
    for name, made in (("random", random_questions(entries)), ("real", real_questions(entries))):
        if made is None:
            found[name] = f"not measured: {DATA} isn't there; set SEMCACHE_DATA"
            continue
        settings, stored, asked = made
        policy = Policy(local_bound=0.0, deadline=30.0)
        cache = open_cache(server, f"semantic-{name}", policy=policy, **settings)
        started = time.perf_counter()
        for text in stored:
            cache.put(CacheRequest(text, model="m"), ANSWER)
        filled = time.perf_counter() - started
        requests = [CacheRequest(text, model="m") for text in asked[:400]]
        requests = [r for r in requests if isinstance(h := cache.lookup(r), Hit) and h.match == "semantic"][
            :64
        ]
        turn = iter(range(10**9))
        early = percentiles(
            lambda c=cache, r=requests, t=turn: c.lookup(r[next(t) % len(r)]),  # type: ignore[misc]
            200,
        )
        started = time.perf_counter()
        settle(cache)
        settled = time.perf_counter() - started
        hits = [isinstance(cache.lookup(request), Hit) for request in requests]
        row = percentiles(
            lambda c=cache, r=requests, t=turn: c.lookup(r[next(t) % len(r)]),  # type: ignore[misc]
            rounds,
        )
        cache.close()
        found[name] = {
            "us": row,
            "us_right_after_the_puts": early,
            "entries": len(stored),
            "puts_per_s": round(len(stored) / filled),
            "settled_after_s": round(settled, 1),
            "hits": f"{sum(hits)}/{len(hits)}",
        }
    return found


def many_scopes(server: EmbeddedServer, rounds: int) -> dict[str, Any]:
    """10 scopes of 1,000 entries beside one of 10,000."""
    found = {}
    for name, scopes, size in (("ten_of_1000", 10, 1000), ("one_of_10000", 1, 10_000)):
        cache = open_cache(server, name, policy=Policy(local_bound=0.0, deadline=30.0))
        for scope in range(scopes):
            for number in range(size):
                cache.put(CacheRequest(f"question {number}", model=f"m{scope}"), ANSWER)
        requests = [CacheRequest(f"near question {n}", model=f"m{n % scopes}") for n in range(60)]
        for request in requests:
            cache.lookup(request)
        settle(cache)
        turn = iter(range(10**9))
        found[name] = percentiles(lambda r=requests, t=turn, c=cache: c.lookup(r[next(t) % 60]), rounds)  # type: ignore[misc]
        cache.close()
    return {"us": found, "ratio": round(found["ten_of_1000"]["p50"] / found["one_of_10000"]["p50"], 2)}


def invalidation(server: EmbeddedServer, entries: int) -> dict[str, Any]:
    """Invalidating a tag that many entries carry."""
    cache = open_cache(server, "tags", policy=Policy(deadline=30.0))
    for number in range(entries):
        cache.put(CacheRequest(f"question {number}", model="m", mode="exact"), "x", tags={"season:autumn"})
    times = []
    for _ in range(20):
        started = time.perf_counter()
        cache.invalidate(tags={"season:autumn"})
        times.append((time.perf_counter() - started) * 1000)
    gone = not any(
        cache.lookup(CacheRequest(f"question {n}", model="m", mode="exact")) for n in range(0, entries, 997)
    )
    cache.close()
    return {
        "entries": entries,
        "ms_p50": round(float(np.median(times)), 3),
        "ms_max": round(max(times), 3),
        "final": gone,
    }


async def stampede(server: EmbeddedServer) -> dict[str, Any]:
    """1,000 concurrent callers with 50 distinct texts."""
    texts = [f"question number {number} about something else" for number in range(50)]
    encoder = default_encoder()
    encoder.encode(texts)
    started = time.perf_counter()
    encoder.encode(texts)
    batch = time.perf_counter() - started
    calls: list[str] = []

    async def model(request: CacheRequest) -> str:
        calls.append(request.prompt)
        await asyncio.sleep(0.2)
        return "answer"

    policy = Policy(deadline=5.0)
    async with await AsyncSemanticCache.open(server.url, namespace="stampede", policy=policy) as cache:
        await cache.lookup("warm up")
        await cache.put("warm up", "x")
        started = time.perf_counter()
        await asyncio.gather(*(cache.get_or_compute(texts[n % 50], model) for n in range(1000)))
        took = time.perf_counter() - started
    return {
        "model_calls": len(calls), "took_s": round(took, 3), "batch_of_50_s": round(batch, 3), "model_s": 0.2,
        "ratio": round((took - 0.2) / batch, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--redis", metavar="URL", help="part `exact`: this Redis instead, such as one over TCP"
    )
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--tagged", type=int, default=100_000)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this; may be repeated")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    gc.disable()
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.open(Path(folder) / "data") as server:
        parts: dict[str, Callable[[], Any]] = {
            "exact": lambda: exact_hits(options.redis or server.url, options.rounds),
            "semantic": lambda: semantic_hits(server, options.rounds, options.entries),
            "scopes": lambda: many_scopes(server, options.rounds),
            "stampede": lambda: asyncio.run(stampede(server)),
            "invalidation": lambda: invalidation(server, options.tagged),
        }
        report = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "sizes": f"answer {len(ANSWER)} characters, system prompt {len(SYSTEM[0]['content'])}, dim {DIM}",
            **{name: parts[name]() for name in options.only or PARTS},
        }
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name}: {json.dumps(value) if isinstance(value, dict) else value}")


if __name__ == "__main__":
    main()
