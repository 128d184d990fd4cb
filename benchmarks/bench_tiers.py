"""What each tier adds: one trace replayed through the store alone, with local copies, and with the disk tier.

    python benchmarks/bench_tiers.py [--requests 6000] [--json]

trace_zipf_en in its order, equal texts only (no encoder run), answers of 1,000 characters, room for 30 % of the distinct
prompts in the store, which is an embedded server over its unix socket. Latencies are of whole lookups of one thread.
The first requests of the trace, so that its rates are below those of the whole.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from semcache import CacheRequest, Hit, Policy, SemanticCache
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import HashEncoder
from semcache.traffic import read_traffic

DATA = Path(os.environ.get("SEMCACHE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
ANSWER = "An answer of a thousand characters. " * 28


def replay(url: str, name: str, texts: Sequence[str], **policy: Any) -> dict[str, Any]:
    client = redis.from_url(url)
    hits = 0
    settings = Policy(deadline=5.0, personal="share", time_bound="ignore", **policy)
    with SemanticCache.open(url, namespace=name, encoder=HashEncoder(8), policy=settings) as cache:
        cache.put(CacheRequest("warm up", mode="exact"), ANSWER)
        before = int(client.info("stats")["total_net_output_bytes"])
        started = time.perf_counter()
        for text in texts:
            request = CacheRequest(text, mode="exact")
            if isinstance(cache.lookup(request), Hit):
                hits += 1
            else:
                cache.put(request, ANSWER)
        took = time.perf_counter() - started
        stats = cache.stats()
        sent = int(client.info("stats")["total_net_output_bytes"]) - before
    client.close()
    return {
        "hit_rate": round(hits / len(texts), 4), "tiers": dict(stats.tiers), "p50_p95_p99_ms": {t: list(v.values()) for t, v in stats.tiers_ms.items()},
        "miss_ms": list(stats.latency_ms.get("miss", {}).values()), "redis_mb_sent": round(sent / 1e6, 2), "seconds": round(took, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not DATA.is_dir():
        print(f"skipped: no {DATA}; set SEMCACHE_DATA to the folder of the evaluation data")
        return
    texts = [asked.text for asked in read_traffic(DATA / "trace_zipf_en.jsonl.gz")][: options.requests]
    room = round(0.3 * len(set(texts)))
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "requests": len(texts),
        "distinct": len(set(texts)),
        "budget_entries": room,
        "no_limit": round(1 - len(set(texts)) / len(texts), 4),
    }
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.open(Path(folder) / "data") as server:
        url, disk = server.url, str(Path(folder) / "disk.db")
        report["store"] = replay(url, "store", texts, budget_entries=room, local_bound=0.0)
        report["store, local"] = replay(url, "local", texts, budget_entries=room)
        report["store, local, disk"] = replay(url, "disk", texts, budget_entries=room, disk=disk)
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name}: {json.dumps(value) if isinstance(value, dict) else value}")


if __name__ == "__main__":
    main()
