"""Prometheus metrics. Labels are words of closed lists: no tenant, no model, no text."""

from __future__ import annotations

import os
from typing import Any

from semcache.metrics import Stats

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_HOT = 10
_WORTH = {
    "effective_hit_ratio": "Hits that weren't stale, less those estimated wrong, per attempted lookup.",
    "fresh_ratio": "Share of the hits that were inside their ttl.",
    "mean_seconds": "Mean seconds of a lookup, and of the model where it had to be called.",
}
_STORE = {
    "memory_bytes": ("Memory of the store's server.", ("used_memory",)),
    "cpu_seconds": ("CPU of the store's server, user and system.", ("used_cpu_user", "used_cpu_sys")),
    "evicted_keys": ("Keys that the store's server evicted by itself.", ("evicted_keys",)),
    "entries": ("Entries of the namespace, where it has a budget.", ("budget_entries",)),
    "entry_bytes": ("Bytes of the namespace's entries, where it has a budget.", ("budget_bytes",)),
}


class Meters:
    """The metrics of one process; with several workers, prometheus_client adds them up over its folder."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "semcache_requests", "Calls of the cached endpoints.", ("endpoint", "status", "match", "reason"),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "semcache_answer_seconds", "Seconds until the answer began.", ("endpoint", "status"), buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self._passed = Counter(
            "semcache_passed_through", "Calls of other endpoints.", ("status",), registry=registry
        )
        self._stored = Counter(
            "semcache_stored", "What became of new answers.", ("outcome",), registry=registry
        )
        self._verdicts = Counter(
            "semcache_feedback", "Verdicts, by what they did.", ("verdict", "action"), registry=registry
        )
        self._tokens = Counter("semcache_tokens_saved", "Tokens that hits have saved.", registry=registry)
        self._usd = Counter(
            "semcache_usd_saved",
            "US dollars that hits have saved, at the configured prices.",
            registry=registry,
        )
        self._upstream = Counter(
            "semcache_upstream_errors", "Calls that upstream didn't answer.", ("kind",), registry=registry
        )
        self.under_way = Gauge(
            "semcache_under_way", "Calls being answered.", registry=registry, multiprocess_mode="livesum"
        )
        self._rows = Gauge(
            "semcache_index_rows", "Rows of the index.", registry=registry, multiprocess_mode="livemax"
        )
        self._bytes = Gauge(
            "semcache_index_bytes", "Memory of the index.", registry=registry, multiprocess_mode="livesum"
        )
        self._failures = Gauge(
            "semcache_failures", "Failures that were swallowed, by kind.", ("kind",), registry=registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self._shadow = Gauge(
            "semcache_shadow", "What was watched and not served: hits, misses, agreement, tokens and milliseconds.",
            ("what",), registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._worth = {
            name: Gauge(f"semcache_{name}", text, registry=registry, multiprocess_mode="livemostrecent")
            for name, text in _WORTH.items()
        }
        self._tiers = Gauge(
            "semcache_tier_seconds", "Seconds of the cache's hits by tier.", ("tier", "quantile"), registry=registry,
            multiprocess_mode="livemax",
        )  # fmt: skip
        self._evictions = Gauge(
            "semcache_evictions", "Entries evicted by this budget.", ("budget",), registry=registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self._store = {
            name: Gauge(f"semcache_store_{name}", text, registry=registry, multiprocess_mode="livemax")
            for name, (text, _) in _STORE.items()
        }
        self._hot = Gauge(
            "semcache_hot_per_second", "Hits a second of the hottest entries, by place.", ("place",), registry=registry,
            multiprocess_mode="livemax",
        )  # fmt: skip
        self._children: dict[tuple[str, ...], tuple[Any, Any]] = {}

    def answered(self, endpoint: str, status: str, match: str, reason: str, seconds: float) -> None:
        """Count a call of a cached endpoint."""
        key = (endpoint, status, match, reason)
        children = self._children.get(key)
        if children is None:
            children = (self._requests.labels(*key), self._seconds.labels(endpoint, status))
            self._children[key] = children
        children[0].inc()
        children[1].observe(seconds)

    def saved(self, tokens: int, usd: float) -> None:
        """Count what a hit saved."""
        if tokens:
            self._tokens.inc(tokens)
        if usd:
            self._usd.inc(usd)

    def passed(self, status: int) -> None:
        """Count a call that was passed through."""
        self._passed.labels(f"{status // 100}xx").inc()

    def stored(self, outcome: str) -> None:
        """Count what became of a new answer."""
        self._stored.labels(outcome).inc()

    def judged(self, verdict: int, action: str) -> None:
        """Count a verdict."""
        self._verdicts.labels(str(verdict), action).inc()

    def upstream_failed(self, kind: str) -> None:
        """Count a call that upstream didn't answer."""
        self._upstream.labels(kind).inc()

    def _set_worth(self, stats: Stats) -> None:
        worth = stats.worth
        self._worth["effective_hit_ratio"].set(worth.effective_hit_rate)
        self._worth["fresh_ratio"].set(worth.fresh_share)
        self._worth["mean_seconds"].set((worth.mean_ms or 0.0) / 1000)
        for tier, times in stats.tiers_ms.items():
            for quantile, milliseconds in times.items():
                self._tiers.labels(tier, f"0.{quantile[1:]}").set(milliseconds / 1000)
        for budget, number in stats.evictions.items():
            self._evictions.labels(budget).set(number)
        for name, (_, facts) in _STORE.items():
            if any(fact in stats.server for fact in facts):
                self._store[name].set(sum(float(stats.server.get(fact, 0)) for fact in facts))
        for place in range(_HOT):
            rate = stats.hot[place].per_second if place < len(stats.hot) else 0.0
            self._hot.labels(str(place + 1)).set(rate)

    def render(self, stats: Stats) -> bytes:
        """Return all metrics as text."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        self._rows.set(stats.rows)
        self._bytes.set(stats.index_bytes)
        for kind, number in stats.failures.items():
            self._failures.labels(kind).set(number)
        for what, number in stats.shadow.items():
            self._shadow.labels(what).set(number)
        self._set_worth(stats)
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)
