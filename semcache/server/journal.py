"""What the page shows of the past: latest decisions and verdicts, numbers over a day, hot prompts. Bounded, in memory.

One journal belongs to one process. With several workers each writes a copy into a folder that they share (`Exchange`),
and whoever answers adds them up.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from semcache.server.settings import EVERY_TENANT

BUCKET: Final = 300  # seconds
BUCKETS: Final = 288  # a day
TENANTS: Final = 256
HOT: Final = 512
SHOWN: Final = 2000  # characters of a prompt
BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000)
_COUNTS: Final = ("exact", "semantic", "miss", "bypass", "refresh", "error", "waited", "right", "wrong")


@dataclass(frozen=True, slots=True)
class Seen:
    """One decision.

    Attributes:
        at: Seconds since the Unix epoch.
        stored_prompt: The prompt of the entry that was served, or of the closest candidate.
        ms: Milliseconds until the answer began.
        tokens: Tokens that a hit saved.
    """

    at: float
    tenant: str
    endpoint: str
    model: str
    status: str
    prompt: str
    match: str | None = None
    similarity: float | None = None
    reason: str | None = None
    detail: str = ""
    stored_prompt: str | None = None
    entry_id: str | None = None
    lookup_id: str | None = None
    ms: float = 0.0
    tokens: int = 0
    usd: float = 0.0
    waited: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """One verdict, and what it did."""

    at: float
    tenant: str
    entry_id: str
    verdict: int
    about: str | None
    action: str
    principal: str
    comment: str = ""


@dataclass(slots=True)
class Bucket:
    """Numbers of five minutes."""

    start: int
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    tokens: int = 0
    usd: float = 0.0
    hit_ms: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    other_ms: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))

    def add(self, other: Bucket) -> None:
        """Add another's numbers to these."""
        for name, number in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + number
        self.tokens += other.tokens
        self.usd += other.usd
        self.hit_ms = [a + b for a, b in zip(self.hit_ms, other.hit_ms, strict=True)]
        self.other_ms = [a + b for a, b in zip(self.other_ms, other.other_ms, strict=True)]


class Hot:
    """The most frequent keys of a stream, by the space-saving algorithm (Metwally, Agrawal, El Abbadi 2005).

    A count is too high by at most the smallest count that is held.
    """

    def __init__(self, size: int = HOT) -> None:
        self._size = size
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, tenant: str, prompt: str) -> None:
        """Count one."""
        key = (tenant, prompt)
        counts = self._counts
        known = counts.get(key)
        if known is None and len(counts) >= self._size:
            least = min(counts, key=counts.__getitem__)
            known = counts.pop(least)
        counts[key] = (known or 0) + 1

    def items(self) -> list[tuple[str, str, int]]:
        """Return (tenant, prompt, count), in no order."""
        return [(tenant, prompt, count) for (tenant, prompt), count in self._counts.items()]


class Journal:
    """What one process remembers."""

    def __init__(self, clock: Callable[[], float], *, recent: int) -> None:
        self._clock = clock
        self.seen: deque[Seen] = deque(maxlen=recent)
        self.judged: deque[Judged] = deque(maxlen=recent)
        self.hot = Hot()
        self.series: OrderedDict[str, deque[Bucket]] = OrderedDict()
        self.changes = 0

    def note(self, seen: Seen) -> None:
        """Remember a decision."""
        self.changes += 1
        self.seen.append(seen)
        if seen.status == "hit":
            self.hot.add(seen.tenant, seen.prompt[:200])
        name = (seen.match or "exact") if seen.status == "hit" else seen.status
        place = bisect_left(BOUNDS_MS, seen.ms)
        for bucket in self._buckets(seen.tenant):
            bucket.counts["waited" if seen.waited else name] += 1
            bucket.tokens += seen.tokens
            bucket.usd += seen.usd
            (bucket.hit_ms if seen.status == "hit" else bucket.other_ms)[place] += 1

    def judge(self, judged: Judged) -> None:
        """Remember a verdict."""
        self.changes += 1
        self.judged.append(judged)
        if judged.verdict:
            for bucket in self._buckets(judged.tenant):
                bucket.counts["right" if judged.verdict > 0 else "wrong"] += 1

    def _buckets(self, tenant: str) -> Iterable[Bucket]:
        start = int(self._clock()) // BUCKET * BUCKET
        for name in (EVERY_TENANT, tenant):
            series = self.series.get(name)
            if series is None:
                series = self.series[name] = deque(maxlen=BUCKETS)
                while len(self.series) > TENANTS:
                    self.series.popitem(last=False)
            self.series.move_to_end(name)
            if not series or series[-1].start != start:
                series.append(Bucket(start))
            yield series[-1]

    def dump(self) -> dict[str, Any]:
        """Return everything as JSON, for another process."""
        return {
            "seen": [asdict(seen) for seen in self.seen],
            "judged": [asdict(judged) for judged in self.judged],
            "hot": self.hot.items(),
            "series": {name: [asdict(bucket) for bucket in series] for name, series in self.series.items()},
        }


def overview(
    dumps: Iterable[Mapping[str, Any]], view: str | None, *, now: float, top: int, recent: int
) -> Any:
    """Add up the journals of all processes, for one tenant or (None) for all.

    Returns:
        JSON: totals, series, latest decisions and verdicts, hot prompts.
    """
    seen: list[dict[str, Any]] = []
    judged: list[dict[str, Any]] = []
    hot: dict[str, int] = {}
    buckets: dict[int, Bucket] = {}
    for dump in dumps:
        seen += [row for row in dump["seen"] if view is None or row["tenant"] == view]
        judged += [row for row in dump["judged"] if view is None or row["tenant"] == view]
        for tenant, prompt, count in dump["hot"]:
            if view is None or tenant == view:
                hot[prompt] = hot.get(prompt, 0) + count
        for row in dump["series"].get(EVERY_TENANT if view is None else view, ()):
            bucket = Bucket(**{item.name: row[item.name] for item in fields(Bucket)})
            if now - bucket.start > BUCKET * BUCKETS:
                continue
            known = buckets.get(bucket.start)
            if known is None:
                buckets[bucket.start] = Bucket(bucket.start)
                known = buckets[bucket.start]
            known.add(bucket)
    total = Bucket(0)
    for bucket in buckets.values():
        total.add(bucket)
    return {
        "since": min(buckets, default=int(now)),
        "total": _numbers(total),
        "series": [{"start": start, **_numbers(buckets[start])} for start in sorted(buckets)],
        "decisions": sorted(seen, key=lambda row: -row["at"])[:recent],
        "verdicts": sorted(judged, key=lambda row: -row["at"])[:recent],
        "hot": [
            {"prompt": prompt, "hits": count}
            for prompt, count in sorted(hot.items(), key=lambda item: (-item[1], item[0]))[:top]
        ],
    }


def _numbers(bucket: Bucket) -> dict[str, Any]:
    counts = bucket.counts
    hits = counts["exact"] + counts["semantic"]
    asked = hits + counts["miss"] + counts["error"] + counts["waited"]
    judged = counts["right"] + counts["wrong"]
    low, high = wilson(counts["wrong"], judged)
    return {
        **counts,
        "requests": asked + counts["bypass"] + counts["refresh"],
        "hit_rate": hits / asked if asked else None,
        "wrong_share": counts["wrong"] / judged if judged else None,
        "wrong_low": low,
        "wrong_high": high,
        "judged": judged,
        "tokens_saved": bucket.tokens,
        "usd_saved": round(bucket.usd, 6),
        "hit_p50_ms": percentile(bucket.hit_ms, 0.5),
        "hit_p95_ms": percentile(bucket.hit_ms, 0.95),
        "other_p50_ms": percentile(bucket.other_ms, 0.5),
        "other_p95_ms": percentile(bucket.other_ms, 0.95),
    }


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float | None, float | None]:
    """Return the Wilson score interval of a share (Wilson 1927); (None, None) without trials."""
    if not trials:
        return None, None
    share = successes / trials
    denominator = 1 + z * z / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, (centre - spread) / denominator), min(1.0, (centre + spread) / denominator)


def percentile(histogram: list[int], share: float) -> float | None:
    """Return the upper bound of the bucket in which a percentile lies, milliseconds; None without data."""
    total = sum(histogram)
    if not total:
        return None
    needed, so_far = share * total, 0
    for bound, number in zip((*BOUNDS_MS, math.inf), histogram, strict=True):
        so_far += number
        if so_far >= needed and number:
            return float(bound) if math.isfinite(bound) else float(BOUNDS_MS[-1])
    return float(BOUNDS_MS[-1])


def cut(seen: Seen) -> Seen:
    """Return a decision whose texts are short enough to be kept."""
    stored = seen.stored_prompt
    if len(seen.prompt) <= SHOWN and (stored is None or len(stored) <= SHOWN):
        return seen
    return replace(seen, prompt=seen.prompt[:SHOWN], stored_prompt=None if stored is None else stored[:SHOWN])
