"""What each tier adds: one trace replayed through the store alone, with local copies, and with the disk tier.

    python benchmarks/bench_tiers.py [--requests 6000] [--semantic] [--json]

trace_zipf_en in its order, equal texts only (no encoder run) or, with ``--semantic``, what the default encoder and matcher
serve. Answers of 1,000 characters, room for 30 % of the distinct prompts in the store, which is an embedded server over its
unix socket. Latencies are of whole lookups of one thread. The first requests of the trace, so that its rates are below
those of the whole; 0 means all.
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
from semcache.encoders import default_encoder
from semcache.protocols import Encoder
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import HashEncoder
from semcache.traffic import read_traffic
from semcache.types import Mode

DATA = Path(os.environ.get("SEMCACHE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
ANSWER = "An answer of a thousand characters. " * 28


def replay(
    url: str, name: str, texts: Sequence[str], encoder: Encoder | None, **policy: Any
) -> dict[str, Any]:
    client = redis.from_url(url)
    mode: Mode = "exact" if encoder is None else "semantic"
    hits = 0
    settings = Policy(deadline=5.0, personal="share", time_bound="ignore", **policy)
    with SemanticCache.open(url, namespace=name, encoder=encoder or HashEncoder(8), policy=settings) as cache:
        cache.put(CacheRequest("warm up", mode="exact"), ANSWER)
        before = int(client.info("stats")["total_net_output_bytes"])
        started = time.perf_counter()
        for text in texts:
            request = CacheRequest(text, mode=mode)
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
    parser.add_argument("--semantic", action="store_true", help="by meaning, with the default encoder")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not DATA.is_dir():
        print(f"skipped: no {DATA}; set SEMCACHE_DATA to the folder of the evaluation data")
        return
    texts = [asked.text for asked in read_traffic(DATA / "trace_zipf_en.jsonl.gz")][
        : options.requests or None
    ]
    encoder = default_encoder() if options.semantic else None
    room = round(0.3 * len(set(texts)))
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "requests": len(texts),
        "distinct": len(set(texts)),
        "budget_entries": room,
        "no_limit_equal_texts": round(1 - len(set(texts)) / len(texts), 4),
    }
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.open(Path(folder) / "data") as server:
        url, disk = server.url, str(Path(folder) / "disk.db")
        if encoder is not None:
            report["no limit"] = replay(url, "free", texts, encoder, local_bound=0.0)
        report["store"] = replay(url, "store", texts, encoder, budget_entries=room, local_bound=0.0)
        report["store, local"] = replay(url, "local", texts, encoder, budget_entries=room)
        report["store, local, disk"] = replay(url, "disk", texts, encoder, budget_entries=room, disk=disk)
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name}: {json.dumps(value) if isinstance(value, dict) else value}")


if __name__ == "__main__":
    main()
