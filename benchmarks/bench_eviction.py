"""Hit rates of each eviction policy under a budget, beside a cache without limits: replays of the shared traces.

    python benchmarks/bench_eviction.py [--share 0.3] [--json]

traffic_bing_covid is replayed by popularity (each row stands for so many requests of its day), trace_zipf_en in its
order. ``exact`` serves equal texts only, ``semantic`` what the default encoder and matcher serve. For equal texts there
are two references: ``optimal`` knows the future (Belady 1966); ``all counts`` knows how often each prompt was asked for so
far, evicted or not, and of equally frequent ones keeps what was asked for last. The second shows how far any policy gets
that must go by the past, where requests come in no order.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semcache.alike import alike
from semcache.encoders import default_encoder
from semcache.evaluate import Vectors
from semcache.eviction import EVICTIONS, replay, weight
from semcache.matching import default_matcher
from semcache.policy import Policy
from semcache.traffic import read_traffic

DATA = Path(os.environ.get("SEMCACHE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TRACES = ("traffic_bing_covid", "trace_zipf_en")


def optimal(names: Sequence[Any], entries: int) -> int:
    """Return the hits of the policy that evicts what is asked for again last, and stores nothing that isn't."""
    never = len(names)
    following, last = [never] * len(names), dict[Any, int]()
    for position in range(len(names) - 1, -1, -1):
        following[position] = last.get(names[position], never)
        last[names[position]] = position
    kept: dict[Any, int] = {}
    order: list[tuple[int, int]] = []
    hits = 0
    for position, name in enumerate(names):
        hits += name in kept
        kept.pop(name, None)
        if following[position] == never:
            continue
        while len(kept) >= entries:
            when, who = heapq.heappop(order)
            if kept.get(names[who]) == -when:
                del kept[names[who]]
        kept[name] = following[position]
        heapq.heappush(order, (-following[position], position))
    return hits


def all_counts(names: Sequence[Any], entries: int) -> int:
    """Return the hits of the policy that forgets no count: least frequent out first, then least recently used."""
    counts: Counter[Any] = Counter()
    kept: dict[Any, int] = {}  # name → when it was asked for last
    order: list[tuple[int, int, Any]] = []
    hits = 0
    for position, name in enumerate(names):
        counts[name] += 1
        hits += name in kept
        kept[name] = position
        heapq.heappush(order, (counts[name], position, name))
        while len(kept) > entries:
            _, when, who = heapq.heappop(order)
            if kept.get(who) == when:
                del kept[who]
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.3, help="Of the distinct prompts.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not DATA.is_dir():
        print(f"skipped: no {DATA}; set SEMCACHE_DATA to the folder of the evaluation data")
        return
    encoder = default_encoder()
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "encoder": encoder.fingerprint,
        "share": options.share,
    }
    for trace in TRACES:
        names = [(asked.text, asked.context) for asked in read_traffic(DATA / f"{trace}.jsonl.gz")]
        distinct = list(dict.fromkeys(names))
        entries = round(options.share * len(distinct))
        near = alike(distinct, Vectors(encoder), default_matcher(encoder.fingerprint, Policy()))
        sizes = {name: 1000 + len(name[0].encode()) for name in distinct}
        weights = {n: weight("cost", tokens=len(n[0]) / 4, latency_ms=None, size=sizes[n]) for n in distinct}
        found: dict[str, Any] = {"requests": len(names), "distinct": len(distinct), "entries": entries}
        for how, neighbours in (("exact", None), ("semantic", near.__getitem__)):
            serving = neighbours or (lambda name: ())
            limitless = replay(names, entries=None, near=serving)
            row = {"no limit": round(limitless.hit_rate, 4)}
            for eviction in EVICTIONS:
                given = weights.__getitem__ if eviction == "cost" else (lambda name: 0.0)
                done = replay(names, entries=entries, eviction=eviction, near=serving, weights=given)
                row[eviction] = round(done.hit_rate, 4)
                row[f"{eviction}/no limit"] = round(done.hits / limitless.hits, 4)
            if neighbours is None:
                row["all counts/no limit"] = round(all_counts(names, entries) / limitless.hits, 4)
                row["optimal/no limit"] = round(optimal(names, entries) / limitless.hits, 4)
            found[how] = row
        report[trace] = found
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name}: {json.dumps(value)}")


if __name__ == "__main__":
    main()
