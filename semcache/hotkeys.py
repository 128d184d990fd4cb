"""Which entries are asked for most, and which of them more and more: a bounded sketch per process, merged over all.

The sketch is Space-Saving (Metwally, Agrawal, El Abbadi 2005) with weights that fade: an entry that isn't counted yet
takes the place of the least and inherits its count as its possible error, so that whatever is asked for in more than
1 / capacity of the requests is among them. Sketches of several processes add up (Agarwal et al. 2012).
Pure; the caller brings the clock.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

HALF_LIFE: Final = 60.0  # seconds in which what was counted fades by half
FAST: Final = 10.0  # the same, for what growth is measured by
CAPACITY: Final = 512
STALE: Final = 30.0  # seconds after which a process that says nothing is left out


@dataclass(frozen=True, slots=True)
class HotKey:
    """An entry that is asked for often.

    Attributes:
        per_second: Hits a second, over about the last minute.
        growth: Hits a second over about the last ten seconds, divided by that; above 1 where it grows.
        error: Hits a second by which `per_second` may be too high.
    """

    entry_id: str
    per_second: float
    growth: float
    error: float = 0.0


@dataclass(slots=True)
class _Counter:
    slow: float
    fast: float
    error: float


class HotKeys:
    """The sketch of one process.

    Args:
        now: Monotonic clock, seconds.
    """

    def __init__(self, now: float, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._began = self._at = now
        self._counters: dict[str, _Counter] = {}

    def add(self, uses: Iterable[tuple[str, int]], now: float) -> None:
        """Count uses by entry that happened since the last call."""
        self._fade(now)
        counters = self._counters
        least: list[tuple[float, str]] | None = None
        for entry_id, count in uses:
            counter = counters.get(entry_id)
            if counter is not None:
                counter.slow += count
                counter.fast += count
            elif len(counters) < self._capacity:
                counters[entry_id] = _Counter(float(count), float(count), 0.0)
            else:
                if least is None:
                    least = [(c.slow, name) for name, c in counters.items()]
                    heapq.heapify(least)
                floor = self._evict(least)
                counters[entry_id] = _Counter(floor + count, float(count), floor)
                heapq.heappush(least, (floor + count, entry_id))

    def _evict(self, least: list[tuple[float, str]]) -> float:
        while True:
            slow, name = heapq.heappop(least)
            counter = self._counters[name]
            if counter.slow == slow:
                del self._counters[name]
                return slow
            heapq.heappush(least, (counter.slow, name))

    def _fade(self, now: float) -> None:
        passed = max(0.0, now - self._at)
        self._at = max(self._at, now)
        slow, fast = 0.5 ** (passed / HALF_LIFE), 0.5 ** (passed / FAST)
        gone = []
        for name, counter in self._counters.items():
            counter.slow *= slow
            counter.error *= slow
            counter.fast *= fast
            if counter.slow < 0.01:
                gone.append(name)
        for name in gone:
            del self._counters[name]

    def top(self, most: int, now: float) -> list[HotKey]:
        """Return the hottest, hottest first."""
        self._fade(now)
        slow, fast = (_seconds(half, self._at - self._began) for half in (HALF_LIFE, FAST))
        hottest = heapq.nlargest(most, self._counters.items(), key=lambda item: (item[1].slow, item[0]))
        return [
            HotKey(
                name,
                round(counter.slow / slow, 3),
                round(counter.fast / fast / (counter.slow / slow), 3),
                round(counter.error / slow, 3),
            )
            for name, counter in hottest
        ]


def _seconds(half_life: float, running: float) -> float:
    """Return the seconds whose uses a counter holds, if they come evenly: fewer while the sketch is young."""
    running = max(running, 1.0)
    share: float = 1.0 - 0.5 ** (running / half_life)
    return half_life / math.log(2) * share


def merged(reports: Iterable[Sequence[HotKey]], most: int) -> list[HotKey]:
    """Add up what several processes have counted; the hottest first."""
    rates: dict[str, float] = {}
    recent: dict[str, float] = {}
    errors: dict[str, float] = {}
    for report in reports:
        for key in report:
            rates[key.entry_id] = rates.get(key.entry_id, 0.0) + key.per_second
            recent[key.entry_id] = recent.get(key.entry_id, 0.0) + key.per_second * key.growth
            errors[key.entry_id] = errors.get(key.entry_id, 0.0) + key.error
    hottest = heapq.nlargest(most, rates, key=lambda name: (rates[name], name))
    return [
        HotKey(
            name,
            round(rates[name], 3),
            round(recent[name] / rates[name], 3) if rates[name] else 1.0,
            round(errors[name], 3),
        )
        for name in hottest
    ]


def encode_report(keys: Sequence[HotKey], now: float, counts: Mapping[str, float] | None = None) -> str:
    """Return a report of one process as JSON.

    Args:
        now: The store's clock, seconds since the Unix epoch.
        counts: What the process has counted, see `worth`.
    """
    top = [[k.entry_id, k.per_second, k.growth, k.error] for k in keys]
    return json.dumps({"at": now, "top": top, "counts": dict(counts or {})})


def decode_counts(reports: Mapping[str, str], now: float) -> dict[str, Mapping[str, object]]:
    """Read what processes that have reported lately have counted."""
    found: dict[str, Mapping[str, object]] = {}
    for holder in decode_reports(reports, now):
        counts = json.loads(reports[holder]).get("counts")
        if isinstance(counts, dict):
            found[holder] = counts
    return found


def decode_reports(reports: Mapping[str, str], now: float) -> dict[str, list[HotKey]]:
    """Read reports by process; old ones and what isn't a report are left out."""
    found = {}
    for holder, text in reports.items():
        try:
            report: Any = json.loads(text)
            if now - float(report["at"]) <= STALE:
                found[holder] = [
                    HotKey(str(name), *(float(part) for part in rest)) for name, *rest in report["top"]
                ]
        except (ValueError, TypeError, KeyError):
            continue
    return found
