"""Hot entries: how many reads local copies keep off Redis, what counting costs a hit, how copies spread over a cluster.

    python benchmarks/bench_hot_keys.py [--seconds 5] [--rounds 20000] [--json]

Latencies are of whole lookups of one thread; the two caches that are compared take turns, so that the machine's
moods meet both. The cluster has three masters on this machine; what each sends is from its INFO.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import redis

from semcache import CacheRequest, Hit, Policy, SemanticCache
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import HashEncoder

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.servers import cluster

ANSWER = "An answer of a thousand characters. " * 28


def opened(url: str, **policy: Any) -> SemanticCache:
    return SemanticCache.open(
        url, namespace="hot", encoder=HashEncoder(64), policy=Policy(deadline=5.0, **policy)
    )


def kept_off(url: str, seconds: float) -> dict[str, Any]:
    """A thousand lookups a second of one entry; how many of them Redis sees."""
    client = redis.from_url(url)
    with opened(url) as cache:
        cache.put("hot", ANSWER)
        cache.lookup("hot")
        before = int(client.info("commandstats")["cmdstat_hmget"]["calls"])
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            assert isinstance(cache.lookup("hot"), Hit)
            done += 1
            time.sleep(max(0.0, begun + done / 1000 - time.perf_counter()))
        took = time.perf_counter() - begun
        tiers = dict(cache.stats().tiers)
    reads = (
        int(client.info("commandstats")["cmdstat_hmget"]["calls"]) - before
    ) // 2  # entry and generations
    client.close()
    return {"lookups": done, "per_second": round(done / took), "redis_reads": reads, "local_share": round(1 - reads / done, 4), "tiers": tiers}  # fmt: skip


def cost(url: str, rounds: int) -> dict[str, Any]:
    """Median lookup with counting and without, and their ratio."""
    found = {}
    for name, bound in (("local_hit", 3600.0), ("exact_hit", 0.0)):
        with opened(url, local_bound=bound, hot_keys=0) as off, opened(url, local_bound=bound) as on:
            request = CacheRequest("hot", model="m")
            off.put(request, ANSWER)
            times: dict[str, list[float]] = {"off": [], "on": []}
            for _ in range(rounds // 50):
                for label, cache in (("off", off), ("on", on)):
                    for _ in range(50):
                        started = time.perf_counter()
                        cache.lookup(request)
                        times[label].append(time.perf_counter() - started)
        p50 = {label: float(np.percentile(taken, 50)) * 1e6 for label, taken in times.items()}
        found[name] = {label: round(us, 2) for label, us in p50.items()} | {
            "ratio": round(p50["on"] / p50["off"], 3)
        }
    return found


def spread(folder: Path, lookups: int) -> dict[str, Any]:
    """Share of the bytes that each of three nodes sends for one hot entry of 20 KB, without local copies."""
    found = {}
    with cluster(folder, masters=3, replicas=0) as nodes:
        for copies in (0, 6):
            url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
            with opened(url, local_bound=0.0, hot_rate=0.0, hot_copies=copies) as cache:
                cache.put("hot", "x" * 20_000)
                cache.lookup("hot")
                cache.stats()
                before = [int(node.client().info("stats")["total_net_output_bytes"]) for node in nodes]
                for _ in range(lookups):
                    assert isinstance(cache.lookup("hot"), Hit)
                after = [int(node.client().info("stats")["total_net_output_bytes"]) for node in nodes]
            sent = [a - b for a, b in zip(after, before, strict=True)]
            found[f"{copies} copies"] = sorted((round(part / sum(sent), 3) for part in sent), reverse=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    gc.disable()
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.open(Path(folder) / "data") as server:
        report = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "kept_off": kept_off(server.url, options.seconds),
            "cost_us": cost(server.url, options.rounds),
            "spread": spread(Path(folder) / "cluster", 2000),
        }
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name}: {json.dumps(value) if isinstance(value, dict) else value}")


if __name__ == "__main__":
    main()
