"""Prometheus metrics. Labels are words of closed lists: no tenant, no model, no text."""

from __future__ import annotations

import os
from typing import Any

from semcache.metrics import Stats

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


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
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)
