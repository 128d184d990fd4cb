"""Counters and latencies of one cache in one process. Nothing is sent anywhere."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from semcache import trial
from semcache.hotkeys import HotKey
from semcache.protocols import Reembedding
from semcache.worth import Worth

_KEPT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What one process's cache has done since it was opened.

    Attributes:
        hits: By match (`exact`, `semantic`).
        tiers: Hits by tier (`local`, `store`, `disk`).
        misses: By reason.
        stored: Puts by outcome.
        waited: Callers of get_or_compute whom another caller's call answered; neither hit nor miss.
        evictions: Entries that this process's puts evicted, by the budget that was full (`entries`, `bytes`).
        failures: Failures that were swallowed, by kind.
        refreshes: Refreshes in the background by outcome: ``same`` or ``changed`` (answered again), ``elsewhere`` (another
            process is at it), ``refused`` (not stored), ``failed``, ``cancelled``, ``full`` (too many at once: not begun).
        shadow: What was watched and not served (`Policy.mode`): would-be ``hits``, ``misses``, answers that ``agreed`` with
            the model's or ``differed`` (``unjudged`` where the measure failed), and the ``tokens`` and ``model_ms``
            that the hits would have saved.
        latency_ms: Percentiles (p50, p95, p99) by what was done, over the last 4,096 each.
        scopes, rows, index_bytes: What the index of this process holds.
        scopes_dropped: Scopes that left it because its memory is bounded (`Policy.max_index_bytes`).
        local_entries: Local copies held.
        encoder: Fingerprint of the encoder.
        hot: What is asked for most, over all processes, hottest first.
        reembedding: How far embedding stored prompts again with this encoder has come, in whichever process does
            it; None if that isn't known.
        tiers_ms: Percentiles of hits by tier, milliseconds, over the last 4,096 each.
        worth: What serving was worth: effective hit rate, freshness, mean latency, tokens, time and money saved.
        server: Facts about the store's server, empty if it wasn't reached.
    """

    hits: Mapping[str, int] = field(default_factory=dict)
    tiers: Mapping[str, int] = field(default_factory=dict)
    misses: Mapping[str, int] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)
    waited: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    evictions: Mapping[str, int] = field(default_factory=dict)
    feedback: Mapping[str, int] = field(default_factory=dict)
    refreshes: Mapping[str, int] = field(default_factory=dict)
    shadow: Mapping[str, int] = field(default_factory=dict)
    latency_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    scopes: int = 0
    rows: int = 0
    index_bytes: int = 0
    scopes_dropped: int = 0
    local_entries: int = 0
    encoder: str = ""
    hot: Sequence[HotKey] = ()
    reembedding: Reembedding | None = None
    tiers_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    worth: Worth = Worth()  # noqa: RUF009 - frozen
    server: Mapping[str, str] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """Lookups, whatever came of them."""
        return sum(self.hits.values()) + sum(self.misses.values())

    @property
    def hit_rate(self) -> float:
        """Hits per lookup that might have been served, bypasses and watched ones left out; in [0, 1], 0 without any."""
        hits = sum(self.hits.values())
        attempted = hits + sum(n for reason, n in self.misses.items() if not reason.startswith("bypass:"))
        attempted -= self.shadow.get("misses", 0)
        return hits / attempted if attempted > 0 else 0.0

    @property
    def shadow_hit_rate(self) -> float:
        """Would-be hits per watched lookup, in [0, 1]; 0 if there was none."""
        return trial.hit_rate(self.shadow)

    @property
    def agreement(self) -> float | None:
        """Share of watched hits whose answer said the same as the model's, in [0, 1]; None if none was compared."""
        return trial.agreement(self.shadow)


def by_tier(latencies: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    """Return the percentiles of hits by tier."""
    named = {what.removesuffix(" tier"): times for what, times in latencies.items() if what.endswith(" tier")}
    return {"local": latencies["local hit"], **named} if "local hit" in latencies else named


class Metrics:
    """Counts. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._times: dict[str, deque[float]] = {}

    def count(self, what: str, label: str, number: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[(what, label)] += number

    def hit(self, match: str, tier: str, seconds: float) -> None:
        """Count a hit."""
        with self._lock:
            counts = self._counts
            counts["hits", match] += 1
            counts["tiers", tier] += 1
            if tier == "local":
                self._took("local hit", seconds)
            else:
                self._took(match + " hit", seconds)
                self._took(tier + " tier", seconds)

    def miss(self, reason: str, seconds: float) -> None:
        """Count a miss."""
        with self._lock:
            self._counts["misses", reason] += 1
            self._took("bypass" if reason.startswith("bypass:") else "miss", seconds)

    def verdict(self, verdict: int, action: str) -> None:
        """Count a verdict and what came of it."""
        with self._lock:
            self._counts["feedback", action] += 1
            if verdict:
                self._counts["verdicts", "right" if verdict > 0 else "wrong"] += 1

    def took(self, what: str, seconds: float) -> None:
        """Note how long something took."""
        with self._lock:
            self._took(what, seconds)

    def _took(self, what: str, seconds: float) -> None:
        times = self._times.get(what)
        if times is None:
            times = self._times[what] = deque(maxlen=_KEPT)
        times.append(seconds)

    def counts(self, what: str) -> dict[str, int]:
        """Return a counter by label."""
        with self._lock:
            return {label: number for (name, label), number in self._counts.items() if name == what}

    def means(self) -> dict[str, float]:
        """Return the mean of the last 4,096 times of each thing that was done, in milliseconds."""
        with self._lock:
            return {what: 1000 * sum(times) / len(times) for what, times in self._times.items() if times}

    def latencies(self) -> dict[str, dict[str, float]]:
        """Return percentiles in milliseconds."""
        with self._lock:
            kept = {what: sorted(times) for what, times in self._times.items()}
        return {
            what: {
                f"p{p}": round(1000 * times[min(len(times) - 1, len(times) * p // 100)], 4)
                for p in (50, 95, 99)
            }
            for what, times in kept.items()
            if times
        }

    def reset(self) -> None:
        """Start from nought, in a forked child."""
        self.__init__()  # type: ignore[misc]
