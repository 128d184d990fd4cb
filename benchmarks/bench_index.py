"""What the index costs: searching alone and while it grows, memory, recall, snapshots.

    python benchmarks/bench_index.py [--sizes 20000 100000] [--embeddings FILE.npy] [--seconds 10] [--json]

Embeddings are the bundled encoder's, of different questions people asked (files of SEMCACHE_DATA);
encoding 100,000 takes some minutes, so FILE.npy keeps them from one run to the next. Times include all
of a search but the encoder. Another thread adds in two ways: as fast as single texts can be encoded
("putting"), and as the encoder's batches come ("bulk"). One core for BLAS. A machine that does other
work as well shows it in the yardstick: a loop of one matrix product, which no lock can delay.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from semcache.encoders.bundled import BundledEncoder
from semcache.indexes.adaptive import AdaptiveIndex
from semcache.indexes.flat import FlatRows
from semcache.indexes.graph import EF, EF_CONSTRUCTION, EF_LARGE, Graph
from semcache.indexes.hnsw import GRAPH_FROM
from semcache.indexes.integrity import M
from semcache.indexes.rows import NEVER

Rows = npt.NDArray[np.float32]
Figures = dict[str, Any]

DATA = Path(os.environ.get("SEMCACHE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
FILES = ("clusters_intents", "pairs_qqp", "pairs_zh", "pairs_multilingual", "clusters_components")
QUERIES = 2000
LEAST = 10_000  # rows that the comparisons beside --sizes need
SCOPES = 100_000
K = 8


def texts() -> Iterator[str]:
    """Yield questions of the shared data."""
    for name in FILES:
        path = DATA / f"{name}.jsonl.gz"
        if not path.exists():
            sys.exit(f"{path} isn't there; set SEMCACHE_DATA to the folder of the evaluation data")
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                yield from (row[field] for field in ("text", "a", "b") if field in row)


def embed(count: int, kept: Path) -> tuple[float, float]:
    """Keep so many embeddings of different questions; return rows a second of single texts and of batches."""
    different = sorted(set(texts()))
    order = np.random.default_rng(0).permutation(len(different))[: count + count // 20]
    sample = [different[i] for i in order]
    encoder = BundledEncoder()
    encoder.encode(sample[:64])
    start = time.perf_counter()
    encoder.encode(sample[:2048])
    batches = 2048 / (time.perf_counter() - start)
    singles = 1e3 / percentiles(lambda i: encoder.encode([sample[i]]), count=500)["p50_ms"]
    if not kept.exists():
        parts = [encoder.encode(sample[i : i + 256]) for i in range(0, len(sample), 256)]
        np.save(kept, np.concatenate(parts))
    return singles, batches


def yardstick() -> Figures:
    """Return percentiles of a loop that only the machine can delay."""
    matrix = np.ones((2048, 512), dtype=np.float32)
    return percentiles(lambda _: np.dot(matrix, matrix[0]), count=5000)


def load(count: int, kept: Path) -> Rows:
    """Return so many different embeddings."""
    rows: Rows = np.load(kept)
    rows = rows[np.linalg.norm(rows, axis=1) > 0.5]
    rows = rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])]
    if len(rows) < count:
        sys.exit(
            f"{kept} holds {len(rows)} different embeddings, expected {count}: remove it, or ask for fewer"
        )
    return rows[:count].copy()


def percentiles(run: Callable[[int], object], *, count: int = 0, seconds: float = 0.0) -> Figures:
    """Return percentiles in ms of `count` runs, or of as many as fit into `seconds`."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < count or time.perf_counter() < end:
        start = time.perf_counter()
        run(len(times))
        times.append((time.perf_counter() - start) * 1e3)
    p50, p99 = np.percentile(times, [50, 99])
    return {
        "p50_ms": round(p50, 3),
        "p99_ms": round(p99, 3),
        "max_ms": round(max(times), 2),
        "searches": len(times),
    }


def keys(stop: int, *, start: int = 0) -> list[str]:
    """Return entry ids as the cache makes them."""
    return [f"gpt-4o-mini/2024-07-18/{i:032x}" for i in range(start, stop)]


def resident() -> int:
    """Return the memory of this process, bytes; 0 where that can't be read."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def crossing(rows: Rows) -> list[Figures]:
    """Compare scanning with a graph at growing sizes: that's where GRAPH_FROM comes from."""
    found = []
    for count in (256, 512, 1024, 1536, 2048, 3072, 4096):
        flat, graph = FlatRows(rows.shape[1]), Graph(rows.shape[1], count)
        flat.put(keys(count), rows[:count], np.full(count, NEVER))
        for label, key in zip(graph.insert(rows[:count]), keys(count), strict=True):
            graph.adopt(label, key, rows[label], NEVER)
        times = [
            percentiles(lambda i, part=part: part.search(rows[-i - 1], K, now=0.0, least=-1.0), count=500)
            for part in (flat, graph)
        ]
        found.append({"rows": count, "flat_ms": times[0]["p50_ms"], "graph_ms": times[1]["p50_ms"]})
    return found


def at_size(rows: Rows, queries: Rows, singles: float, batches: float, seconds: float) -> Figures:
    """Measure one scope of so many rows."""
    count = len(rows)
    warm = AdaptiveIndex(
        rows.shape[1], graph_from=64
    )  # what imports and the first thread take isn't the rows'
    warm.add("s", keys(200), rows[:200], [None] * 200)
    warm.settle()
    warm.close()
    del warm
    before = resident()
    index = AdaptiveIndex(rows.shape[1])
    start = time.perf_counter()
    for i in range(0, count, 64):
        part = keys(min(i + 64, count), start=i)
        index.add("s", part, rows[i : i + 64], [None] * len(part))
    added = time.perf_counter() - start
    flat = percentiles(lambda i: index.search("s", queries[i % QUERIES], K, now=0.0), count=20)
    index.settle()
    built = time.perf_counter() - start
    figures: Figures = {
        "rows": count,
        "added_per_s": round(count / added),
        "added_to_encoder_rate": round(count / added / batches, 1),
        "graph_built_s": round(built, 1),
        "just_added": flat,
        "memory_to_rows": round(index.memory_bytes() / rows.nbytes, 3),
        "resident_to_rows": round((resident() - before) / rows.nbytes, 3),
        "alone": percentiles(lambda i: index.search("s", queries[i % QUERIES], K, now=0.0), count=QUERIES),
        "recall_at_1": recall(index, rows, queries),
    }
    figures["yardstick"] = yardstick()
    figures["while_putting"] = while_adding(index, queries, 1, singles, seconds)
    index.settle()
    figures["while_bulk"] = while_adding(index, queries, 64, batches, seconds)
    index.settle()
    return {**figures, "snapshot": snapshots(index, figures["graph_built_s"])}


def recall(index: AdaptiveIndex, rows: Rows, queries: Rows) -> float:
    """Return the share of queries whose best similarity is that of an exact search."""
    exact = np.concatenate([(queries[i : i + 100] @ rows.T).max(axis=1) for i in range(0, len(queries), 100)])
    best = [index.search("s", query, 1, now=0.0)[0].similarity for query in queries]
    return float(np.mean(np.abs(np.array(best) - exact) < 3e-6))


def while_adding(index: AdaptiveIndex, queries: Rows, batch: int, rate: float, seconds: float) -> Figures:
    """Search while another thread adds `rate` rows a second, `batch` at a time."""
    stop, added = threading.Event(), [0]

    def add() -> None:
        start = time.perf_counter()
        while not stop.is_set():
            rows = queries[np.arange(added[0], added[0] + batch) % QUERIES]
            names = [f"gpt-4o-mini/2024-07-18/new{i:029x}" for i in range(added[0], added[0] + batch)]
            index.add("s", names, rows, [None] * batch)
            added[0] += batch
            stop.wait(max(0.0, start + added[0] / rate - time.perf_counter()))

    thread = threading.Thread(target=add)
    thread.start()
    try:
        found = percentiles(lambda i: index.search("s", queries[i % QUERIES], K, now=0.0), seconds=seconds)
    finally:
        stop.set()
        thread.join()
    return {**found, "added": added[0], "added_per_s": round(added[0] / seconds)}


def scopes_of_1000(rows: Rows, queries: Rows) -> Figures:
    """Compare ten scopes of 1,000 rows with one of 10,000."""
    one, ten = AdaptiveIndex(rows.shape[1]), AdaptiveIndex(rows.shape[1])
    one.add("s", keys(10_000), rows[:10_000], [None] * 10_000)
    for i in range(10):
        ten.add(f"s{i}", keys(1000), rows[i * 1000 : i * 1000 + 1000], [None] * 1000)
    one.settle()
    ten.settle()
    alone = percentiles(lambda i: one.search("s", queries[i % QUERIES], K, now=0.0), count=QUERIES)
    spread = percentiles(lambda i: ten.search(f"s{i % 10}", queries[i % QUERIES], K, now=0.0), count=QUERIES)
    return {
        "one_of_10000": alone,
        "ten_of_1000": spread,
        "ratio": round(spread["p50_ms"] / alone["p50_ms"], 2),
    }


def apart(*arguments: object) -> Figures:
    """Return the figures of a part that runs in a process of its own, for its memory."""
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def scopes_of_one(dim: int) -> Figures:
    """Fill and search 100,000 scopes."""
    row = np.zeros((1, dim), dtype=np.float32)
    row[0, 0] = 1.0
    index = AdaptiveIndex(dim)
    index.add("warm", ["k"], row, [None])
    index.search("warm", row[0], K, now=0.0)
    names = [f"{i:032x}" for i in range(SCOPES)]
    before = resident()
    add = percentiles(
        lambda i: index.add(names[i], [f"gpt-4o-mini/2024-07-18/{i:032x}"], row, [None]), count=SCOPES
    )
    taken = resident() - before + sum(map(sys.getsizeof, names))  # the index holds the names as well
    search = percentiles(lambda i: index.search(names[i * 37 % SCOPES], row[0], K, now=0.0), count=SCOPES)
    raw = SCOPES * dim * 4
    return {
        "scopes": SCOPES,
        "resident_to_rows": round(taken / raw, 3),
        "memory_to_rows": round(index.memory_bytes() / raw, 3),
        "add": add,
        "search": search,
    }


def snapshots(index: AdaptiveIndex, built_s: float) -> Figures:
    """Compare starting from a file with adding all rows and building the graph again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        start = time.perf_counter()
        index.snapshot(path, {"position": "0-0"})
        written = time.perf_counter() - start
        again = AdaptiveIndex(index.dim)
        start = time.perf_counter()
        if again.restore(path) is None:
            sys.exit("the snapshot was refused")
        read = time.perf_counter() - start
        if again.count("s") != index.count("s"):
            sys.exit("the snapshot lost rows")
        return {
            "rows": again.count("s"),
            "file_mb": round(path.stat().st_size / 1e6, 1),
            "written_s": round(written, 2),
            "restored_s": round(read, 2),
            "rebuilt_to_restored": round(built_s / read, 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--embeddings", type=Path, help="file that keeps the embeddings")
    parser.add_argument("--seconds", type=float, default=10.0, help="of searching while rows are added")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with threadpool_limits(1, user_api="blas"):
        if options.part:
            print(json.dumps(part(*options.part)))
        elif options.embeddings is not None:
            everything(options, options.embeddings)
        else:
            with tempfile.TemporaryDirectory() as folder:
                everything(options, Path(folder) / "embeddings.npy")


def part(name: str, *arguments: str) -> Figures:
    """Measure one part, in a process of its own."""
    if name == "scopes":
        return scopes_of_one(int(arguments[0]))
    size, kept = int(arguments[0]), Path(arguments[1])
    rows = load(size + QUERIES, kept)
    return at_size(rows[:-QUERIES], rows[-QUERIES:], *map(float, arguments[2:]))


def everything(options: argparse.Namespace, kept: Path) -> None:
    """Measure, and say each part as it comes."""

    def say(name: str, figures: object) -> None:
        report[name] = figures
        if not options.json:
            print(f"{name}: {json.dumps(figures)}", flush=True)

    report: Figures = {}
    singles, batches = embed(max(LEAST, *options.sizes) + QUERIES, kept)
    rows = load(LEAST + QUERIES, kept)
    dim = rows.shape[1]
    say(
        "setting",
        {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
            "python": platform.python_version(),
            "numpy": np.__version__,
            "hnswlib": version("hnswlib"),
            "graph": {
                "M": M,
                "ef_construction": EF_CONSTRUCTION,
                "ef": [EF, EF_LARGE],
                "from_rows": GRAPH_FROM,
            },
            "dim": dim,
            "k": K,
            "encoder_rows_per_s": {"single": round(singles), "batches": round(batches)},
        },
    )
    say("flat_or_graph", crossing(rows))
    say("ten_scopes_or_one", scopes_of_1000(rows[:-QUERIES], rows[-QUERIES:]))
    del rows
    say("scopes_of_one_row", apart("--part", "scopes", dim))
    for size in options.sizes:
        say(f"one_scope_of_{size}", apart("--part", "size", size, kept, singles, batches, options.seconds))
    if options.json:
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
