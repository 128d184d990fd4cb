"""How long does a process take to find by meaning: from a snapshot, and from Redis?

    python benchmarks/bench_restart.py [--entries 100000] [--dim 512] [--runs 3] [--flat] [--keep FOLDER] [--json]

All entries lie in one scope of an embedded server on this machine. Each start is a process of its own, and is
timed from opening the cache to the first semantic hit, and on to the moment when all rows lie in a graph
again. Imports and the server's start are left out. Embeddings are made of hashes: as long as an encoder's, at
no cost, so that the times are the index's and the store's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import semcache.indexes.adaptive
import semcache.indexes.hnsw
import semcache.snapshots
import semcache.sync  # noqa: F401 - all of them now, not while a start is timed
from semcache import CacheRequest, Hit, Policy, Response, SemanticCache
from semcache.codec import encode_embedding, encode_response
from semcache.protocols import Draft
from semcache.stores.embedded import EmbeddedServer
from semcache.stores.redis import RedisStore
from semcache.testing import HashEncoder
from semcache.types import Embeddings
from semcache.verify import ThresholdMatcher

AGAIN = " again"
POLICY = Policy(deadline=300.0, local_bound=0.0, snapshot_every=0.0, sweep_every=0.0)


class Rewording(HashEncoder):
    """A text and the same with " again" behind it mean the same."""

    def encode(self, texts: Any) -> Embeddings:
        return super().encode([text.removesuffix(AGAIN) for text in texts])


def open_cache(url: str, dim: int, folder: Path | None) -> SemanticCache:
    return SemanticCache.open(
        url, encoder=Rewording(dim), matcher=ThresholdMatcher(0.9), policy=POLICY, snapshot_dir=folder
    )


def fill(url: str, entries: int, dim: int) -> float:
    """Store entries, many in one round trip; returns the seconds it took."""
    started = time.perf_counter()
    with open_cache(url, dim, None) as cache:
        assert cache.put("question 0", "an answer").outcome == "stored"
        core, store, encoder = cache._core, cache._store, Rewording(dim)
        data = encode_response(Response("an answer"))
        assert isinstance(store, RedisStore)
        for first in range(1, entries, 500):
            texts = [f"question {number}" for number in range(first, min(first + 500, entries))]
            commands = []
            for text, row in zip(texts, encoder.encode(texts), strict=True):
                request = CacheRequest(text)
                identity = core.identify(request)
                assert identity is not None
                draft = Draft(
                    entry_id=identity.entry_id, scope=identity.scope, prompt=text, response=data, tags=(),
                    all_tags=identity.generations, epoch=core.epoch, fence_us=None, ttl=None, keep=None,
                    now=core.server_now(), expires_at=None, confidence=None, kind=None,
                    embedding=encode_embedding(row), fingerprint=core.fingerprint,
                )  # fmt: skip
                commands += store._operations.plans.put(draft).commands
            replies = store._connections.execute(commands, 60.0)
            assert not any(isinstance(reply, Exception) for reply in replies)
    return time.perf_counter() - started


def start(url: str, entries: int, dim: int, folder: Path | None, *, build: bool, graph: bool) -> None:
    """Open, find by meaning, and print the seconds that took; with `build` leave a snapshot."""
    started = time.perf_counter()
    cache = open_cache(url, dim, folder)
    found = cache.lookup(f"question {entries // 2}{AGAIN}")
    figures = {"first_hit_s": round(time.perf_counter() - started, 3)}
    assert isinstance(found, Hit), found
    assert found.match == "semantic"
    index: Any = cache._core.index
    if graph and (build or folder is not None):
        assert index.settle(600)
        figures["graph_s"] = round(time.perf_counter() - started, 2)
    assert cache.stats().rows >= entries  # a row that is being moved may count twice
    if build:
        assert cache._core.snapshots is not None
        follower = cache._follower
        while follower is None or (at := follower._follower.at) is None or not at.mark:
            time.sleep(0.05)
        started = time.perf_counter()
        assert cache._core.snapshots.write(cache._core, at)
        figures["writing_s"] = round(time.perf_counter() - started, 2)
    os.write(1, json.dumps(figures).encode())
    os._exit(0)  # leaving no other snapshot


def timed(
    url: str, given: argparse.Namespace, folder: Path | None, *, build: bool = False
) -> dict[str, float]:
    """Start in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--entries",
        str(given.entries),
        "--dim",
        str(given.dim),
        "--start",
        url,
    ]
    command += ["--flat"] if given.flat else []
    command += [*(["--folder", str(folder)] if folder else []), *(["--build"] if build else [])]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(found.stdout)
    if not given.json:
        print("from the snapshot" if folder and not build else "from Redis", figures, flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--flat", action="store_true", help="don't wait for graphs; they take minutes")
    parser.add_argument("--keep", type=Path, help="keep server and snapshot here, and use what is here")
    parser.add_argument("--start", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--build", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.start:
        start(given.start, given.entries, given.dim, given.folder, build=given.build, graph=not given.flat)
    with tempfile.TemporaryDirectory(prefix="semcache-bench-") as made:
        place = given.keep or Path(made)
        folder, fresh = place / "snapshots", not (place / "data").exists()
        with EmbeddedServer.open(place / "data") as server:
            built = None
            if fresh:
                filled = fill(server.url, given.entries, given.dim)
                print(f"stored {given.entries:,} entries in {filled:.0f} s", file=sys.stderr)
            if not folder.exists():
                built = timed(server.url, given, folder, build=True)
            size = sum(path.stat().st_size for path in folder.iterdir())
            redis = [timed(server.url, given, None) for _ in range(given.runs)]
            snapshot = [timed(server.url, given, folder) for _ in range(given.runs)]
    ratio = median(run["first_hit_s"] for run in redis) / median(run["first_hit_s"] for run in snapshot)
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load": os.getloadavg()[0],
        "entries": given.entries, "dim": given.dim, "snapshot_mb": round(size / 1e6, 1),
        "from_redis_to_graph": built, "from_redis": redis, "from_snapshot": snapshot,
        "times_faster_to_first_hit": round(ratio, 1),
    }  # fmt: skip
    if built is not None and "graph_s" in built:
        to_graph = built["graph_s"] / median(run["graph_s"] for run in snapshot)
        report["times_faster_to_graph"] = round(to_graph, 1)
    if given.json:
        print(json.dumps(report, indent=2))
        return
    for name, value in report.items():
        print(f"{name:<26} {value}")


if __name__ == "__main__":
    main()
