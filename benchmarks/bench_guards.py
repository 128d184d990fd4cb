"""Time what deciding costs: one prompt against five stored candidates, all similar enough to be judged.

Run: python benchmarks/bench_guards.py   (one thread; no encoder, no store)
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

from semcache.guards import analysis
from semcache.verify import CalibratedMatcher, calibration_for

CANDIDATES = 5
ROUNDS = 2000
PAIRS = Path(__file__).parent.parent / "tests" / "guards"


def percentiles(seconds: list[float]) -> str:
    """Write p50, p95 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return "  ".join(f"p{p} {1000 * ordered[len(ordered) * p // 100]:.3f} ms" for p in (50, 95, 99))


def timed(work: Callable[[int], None], before: Callable[[], object] = lambda: None) -> list[float]:
    """Time rounds of `work`; `before` isn't counted."""
    found = []
    for round_ in range(ROUNDS):
        before()
        start = time.perf_counter()
        work(round_)
        found.append(time.perf_counter() - start)
    return found


def main() -> None:
    """Print percentiles for each language, with and without remembered analyses of the stored prompts."""
    matcher = CalibratedMatcher(calibration_for("use-multilingual-3"))
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, {CANDIDATES} candidates"
    )
    for language in ("en", "zh"):
        rows = [
            json.loads(line)
            for line in (PAIRS / f"pairs_{language}.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        texts = [row["a"] for row in rows]

        def lookup(i: int, texts: list[str] = texts) -> None:
            query = texts[i % len(texts)] + " "
            for k in range(1, CANDIDATES + 1):
                matcher.judge(query, texts[(i + k) % len(texts)], 0.97)

        lookup(0)  # loads the tables

        def remember(texts: list[str] = texts) -> None:
            for text in texts:
                analysis.analyse(text)

        remember()
        print(
            f"{language}: stored analyses remembered    {percentiles(timed(lookup))}   (the query's own too, after one pass)"
        )
        print(
            f"{language}: nothing remembered            {percentiles(timed(lookup, analysis.analyse.cache_clear))}"
        )
        fresh = [f"{text} {n}" for n, text in enumerate(texts * (ROUNDS // len(texts) + 1))]

        def new_query(i: int, texts: list[str] = texts, fresh: list[str] = fresh) -> None:
            for k in range(1, CANDIDATES + 1):
                matcher.judge(fresh[i], texts[(i + k) % len(texts)], 0.97)

        print(f"{language}: a new query, stored remembered {percentiles(timed(new_query))}")


if __name__ == "__main__":
    main()
