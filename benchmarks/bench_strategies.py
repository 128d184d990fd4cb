"""What the strategies cost a plain hit and a miss, and what they gain on the shared traces.

    python benchmarks/bench_strategies.py [--rounds 60] [--against FOLDER] [--parts hits,misses,flights,ageing,shadow]

hits, misses: latencies of whole calls from one thread against an embedded server over its unix socket, in blocks of
200 that take turns among the policies; the median of the blocks' medians. `--against` compares with another checkout,
each in a process of its own, in turns; also by the processor time of the calling thread, which other work on the
machine disturbs less.
flights: 8 processes with 50 callers each ask for one text.
ageing: the traces replayed against a store in memory on a clock of their own, prompts compared exactly. A request every
half second, the model takes 2 s, and one answer in two changes, every 20 minutes to 4 hours, by a hash of its prompt: the
traces don't tell how answers age, so that part is an assumption.
shadow: the first requests of trace_zipf_en with the bundled encoder, watched and served.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from semcache import CacheRequest, Policy, SemanticCache
from semcache.encoders import BundledEncoder
from semcache.evaluate_rows import read_rows
from semcache.steps import drive
from semcache.stores.embedded import EmbeddedServer
from semcache.stores.memory import MemoryStore
from semcache.testing import HashEncoder
from semcache.traffic import read_traffic
from semcache.verify import ThresholdMatcher

DATA = Path(os.environ.get("SEMCACHE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
ANSWER = "An answer of a thousand characters. " * 28
BLOCK = 200
GAP = 0.5  # seconds between two requests of a trace

Act = Callable[[], Any]


def in_turns(acts: dict[str, Act], rounds: int) -> dict[str, float]:
    """Time acts in blocks that take turns; median of the blocks' medians, microseconds."""
    medians: dict[str, list[float]] = {name: [] for name in acts}
    for number in range(rounds):
        names = list(acts)
        for name in names if number % 2 else reversed(names):
            act, times = acts[name], []
            for _ in range(BLOCK):
                started = time.perf_counter()
                act()
                times.append(time.perf_counter() - started)
            medians[name].append(statistics.median(times) * 1e6)
    return {name: round(statistics.median(found), 2) for name, found in medians.items()}


def opened(server: EmbeddedServer, namespace: str, **policy: Any) -> SemanticCache:
    return SemanticCache.open(
        server.url, namespace=namespace, encoder=HashEncoder(512), matcher=ThresholdMatcher(0.9),
        policy=Policy(**{"deadline": 5.0, **policy}),
    )  # fmt: skip


OFF = {"flight_lease": 0.0, "background_refreshes": 0}
ALL = {"refresh_ahead": 0.8, "adaptive_ttl": 4.0, "stale_while_revalidate": 600.0}


def hits(server: EmbeddedServer, rounds: int) -> dict[str, Any]:
    """Plain hits with the strategies off, by default, and all on."""
    found: dict[str, Any] = {}
    for tier, bound in (("local", 1.0), ("store", 0.0)):
        caches = {
            name: opened(server, f"hits-{tier}", local_bound=bound, **options)
            for name, options in (("off", OFF), ("default", {}), ("all on", ALL))
        }
        caches["split"] = opened(server, f"hits-{tier}", local_bound=bound, mode="split", share=1.0)
        request = CacheRequest("How do I reset my password?", model="m", user="ada")
        caches["off"].put(request, ANSWER)
        for call in ("lookup", "get_or_compute"):
            acts = {name: hit_of(cache, request, call) for name, cache in caches.items()}
            row = in_turns(acts, rounds)
            ratios = {f"{name}/off": round(row[name] / row["off"], 3) for name in row if name != "off"}
            found[f"{call} {tier}"] = {"us": row, **ratios}
        for cache in caches.values():
            cache.close()
    return found


def hit_of(cache: SemanticCache, request: CacheRequest, call: str) -> Act:
    """Return what is timed, tried once."""

    def act() -> Any:
        return cache.lookup(request) if call == "lookup" else cache.get_or_compute(request, never)

    assert act()
    return act


def never(request: CacheRequest) -> str:
    raise AssertionError(f"the model was called for {request.prompt!r}")


def misses(server: EmbeddedServer, rounds: int) -> dict[str, Any]:
    """Misses with a model that takes no time: all that is measured is overhead."""
    caches = {
        "no lease": opened(server, "misses", flight_lease=0.0),
        "lease": opened(server, "misses"),
    }
    numbers = iter(range(10**9))
    acts: dict[str, Act] = {
        name: lambda c=cache: c.get_or_compute(  # type: ignore[misc]
            CacheRequest(f"question {next(numbers)}", mode="exact"), lambda r: "a"
        )
        for name, cache in caches.items()
    }
    row = in_turns(acts, max(4, rounds // 4))
    for cache in caches.values():
        cache.close()
    return {"us": row, "more": round(row["lease"] - row["no lease"], 1)}


def child(path: str | None, rounds: int) -> dict[str, float]:
    """Measure hits of the default policy in a process of its own, with another checkout's package or this one's."""
    code = (
        "import json, statistics, sys, tempfile, time; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from semcache import CacheRequest, Policy, SemanticCache\n"
        "from semcache.stores.embedded import EmbeddedServer\n"
        "from semcache.testing import HashEncoder\n"
        "from semcache.verify import ThresholdMatcher\n"
        "request = CacheRequest('How do I reset my password?', model='m')\n"
        "found = {}\n"
        "with tempfile.TemporaryDirectory() as folder, EmbeddedServer.open(Path(folder) / 'd') as server:\n"
        "    for tier, bound in (('local', 1.0), ('store', 0.0)):\n"
        "        with SemanticCache.open(server.url, namespace=tier, encoder=HashEncoder(512),\n"
        "                matcher=ThresholdMatcher(0.9), policy=Policy(deadline=5.0, local_bound=bound)) as cache:\n"
        "            cache.put(request, 'An answer of a thousand characters. ' * 28)\n"
        "            for name, act in (('lookup', lambda: cache.lookup(request)),\n"
        "                    ('get_or_compute', lambda: cache.get_or_compute(request, None))):\n"
        "                act(); blocks, cpu = [], []\n"
        "                for _ in range(int(sys.argv[2])):\n"
        "                    times, before = [], time.thread_time()\n"
        "                    for _ in range(200):\n"
        "                        started = time.perf_counter(); act(); times.append(time.perf_counter() - started)\n"
        "                    cpu.append((time.thread_time() - before) / 200 * 1e6)\n"
        "                    blocks.append(statistics.median(times) * 1e6)\n"
        "                found[f'{name} {tier}'] = statistics.median(blocks)\n"
        "                found[f'{name} {tier}, processor'] = statistics.median(cpu)\n"
        "print(json.dumps(found))\n"
    )
    folder = path or str(Path(__file__).resolve().parents[1])
    run = subprocess.run(
        [sys.executable, "-c", code, folder, str(rounds)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": folder},
    )  # fmt: skip
    found: dict[str, float] = json.loads(run.stdout)
    return found


def against(folder: str, rounds: int) -> dict[str, Any]:
    """Hits of the default policy beside another checkout's, in processes that take turns."""
    runs: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
    for number in range(6):
        for name in ("before", "now") if number % 2 else ("now", "before"):
            runs[name].append(child(folder if name == "before" else None, max(5, rounds // 6)))
    found = {}
    for row in runs["now"][0]:
        before, now = ([round(run[row], 2) for run in runs[name]] for name in ("before", "now"))
        ratio = statistics.median(now) / statistics.median(before)
        found[row] = {"before": before, "now": now, "ratio of medians": round(ratio, 3)}
    return found


def _stampede(url: str, lease: float, calls: Any, ready: Any, results: Any) -> None:
    def model(request: CacheRequest) -> str:
        with calls.get_lock():
            calls.value += 1
        time.sleep(1.0)
        return "answer"

    policy = Policy(deadline=10.0, flight_lease=lease)
    encoder, matcher = HashEncoder(64), ThresholdMatcher(0.9)
    with SemanticCache.open(
        url, namespace=f"flights-{lease}", policy=policy, encoder=encoder, matcher=matcher
    ) as cache:
        cache.lookup("warm up")
        ready.wait(60)
        started = time.perf_counter()
        threads = [threading.Thread(target=cache.get_or_compute, args=("one text", model)) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        results.put(time.perf_counter() - started)


def flights(server: EmbeddedServer) -> dict[str, Any]:
    """8 processes of 50 callers with one text and a model that takes 1 s."""
    context = multiprocessing.get_context("spawn")
    found = {}
    for name, lease in (("no lease", 0.0), ("lease", 5.0)):
        calls, ready, results = context.Value("i", 0), context.Barrier(8), context.Queue()
        processes = [
            context.Process(target=_stampede, args=(server.url, lease, calls, ready, results))
            for _ in range(8)
        ]
        for process in processes:
            process.start()
        took = sorted(results.get(timeout=120) for _ in processes)
        for process in processes:
            process.join(30)
        found[name] = {
            "model calls": calls.value,
            "s until the last answer": round(took[-1], 2),
            "median": round(took[4], 2),
        }
    return found


class World:
    """Answers that age, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def answer(self, prompt: str) -> str:
        """Return what is true now."""
        number = int.from_bytes(blake2b(prompt.encode(), digest_size=8).digest(), "big")
        if number % 2:
            return "always"
        period = 1200.0 * 12.0 ** ((number >> 8) % 1000 / 1000)
        return f"since {(self.now + number % 9973) // period}"


class Behind:
    """Runs a refresh at once: on a clock that stands still meanwhile, that is the background."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def start(self, entry_id: str, make: Callable[[], Any]) -> None:
        drive(make(), self._store)


AGEING: dict[str, dict[str, Any]] = {
    "ttl 600 s": {},
    "ttl 1200 s": {"ttl": 1200.0},
    "stale while revalidate 600 s": {"stale_while_revalidate": 600.0},
    "refresh ahead 0.8": {"refresh_ahead": 0.8},
    "adaptive 4, stale 600 s": {"adaptive_ttl": 4.0, "stale_while_revalidate": 600.0},
    "adaptive 4, refresh ahead 0.8": {"adaptive_ttl": 4.0, "refresh_ahead": 0.8},
}


def ageing(limit: int) -> dict[str, Any]:
    """Replay the traces under each policy."""
    traces: dict[str, list[str]] = {}
    for name in ("trace_zipf_en", "trace_zipf_zh"):
        path = DATA / f"{name}.jsonl.gz"
        traces[name] = [row.text for row in read_traffic(path, limit=limit)]
    bing = read_traffic(DATA / "traffic_bing_covid.jsonl.gz")
    chosen = random.Random(8).sample(range(len(bing)), min(limit, len(bing)))
    traces["traffic_bing_covid"] = [bing[number].text for number in sorted(chosen)]
    return {
        name: {"requests": len(prompts), **{row: aged(prompts, options) for row, options in AGEING.items()}}
        for name, prompts in traces.items()
    }


def aged(prompts: list[str], options: dict[str, Any]) -> dict[str, float]:
    """Replay one trace under one policy: shares of requests in percent, calls of the model per 100 requests."""
    world, calls = World(), [0]
    random.seed(8)
    store = MemoryStore(clock=lambda: world.now)
    policy = Policy(**{"ttl": 600.0, "deadline": 8e4, "local_bound": 0.0, "time_bound": "ignore", "personal": "share",
                       "fence_ttl": 1e6, **options})  # fmt: skip
    cache = SemanticCache(
        store=store, encoder=HashEncoder(8), policy=policy, matcher=ThresholdMatcher(0.99), clock=lambda: world.now
    )  # fmt: skip
    cache._core.refreshes = Behind(store)  # type: ignore[assignment]
    waits = wrong = 0

    def model(request: CacheRequest) -> str:
        calls[0] += 1
        return world.answer(request.prompt)

    for prompt in prompts:
        world.now += GAP
        found = cache.get_or_compute(CacheRequest(prompt, mode="exact"), model)
        waits += not found.hit
        wrong += found.text != world.answer(prompt)
    cache.close()
    count = len(prompts)
    return {
        "hits": round(100 - 100 * waits / count, 2),
        "outdated": round(100 * wrong / count, 2),
        "calls": round(100 * calls[0] / count, 2),
        "mean s": round(2.0 * waits / count, 3),
    }


def shadow(server: EmbeddedServer, limit: int) -> dict[str, Any]:
    """The same requests watched and served; the model answers with the group that a question belongs to."""
    rows = read_rows(DATA / "trace_zipf_en.jsonl.gz")[:limit]
    group = {row["text"]: row["cluster"] for row in rows}
    encoder = BundledEncoder()
    found: dict[str, Any] = {"requests": len(rows)}
    for mode in ("shadow", "serve"):
        policy = Policy(deadline=10.0, mode=mode, time_bound="ignore", personal="share")  # type: ignore[arg-type]
        with SemanticCache.open(
            server.url, namespace=f"trial-{mode}", policy=policy, encoder=encoder
        ) as cache:
            cache.put("warm up", "x")
            cache.lookup("warm up")
            before = cache.stats()
            started = time.perf_counter()
            right = sum(
                cache.get_or_compute(row["text"], lambda r: group[r.prompt]).text == row["cluster"]
                for row in rows
            )
            took = time.perf_counter() - started
            stats = cache.stats()
        now = sum(stats.hits.values()) - sum(before.hits.values())
        found[mode] = {
            "hit rate": round(now / len(rows), 4),
            "would-be hit rate": round((stats.shadow.get("hits", 0) - before.shadow.get("hits", 0)) / len(rows), 4),
            "agreement": None if stats.agreement is None else round(stats.agreement, 4),
            "right answers": round(right / len(rows), 4),
            "ms per request": round(1000 * took / len(rows), 2),
        }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--limit", type=int, default=15_000, help="requests of a trace")
    parser.add_argument("--against", help="folder of another checkout")
    parser.add_argument("--parts", default="hits,misses,flights,ageing,shadow")
    options = parser.parse_args()
    parts = options.parts.split(",")
    print(f"machine: {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    for name, report in reports(parts, options):
        print(f"{name}: {json.dumps(report, indent=1)}", flush=True)


def reports(parts: list[str], options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Measure part by part."""
    if options.against:
        yield "against", against(options.against, options.rounds)
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.open(Path(folder) / "data") as server:
        if "hits" in parts:
            yield "hits", hits(server, options.rounds)
        if "misses" in parts:
            yield "misses", misses(server, options.rounds)
        if "flights" in parts:
            yield "flights", flights(server)
        if "shadow" in parts:
            yield "shadow", shadow(server, min(options.limit, 5000))
    if "ageing" in parts:
        yield "ageing", ageing(options.limit)


if __name__ == "__main__":
    main()
