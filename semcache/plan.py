"""Pure: from a log of requests to the size that a cache needs and what it would save.

Knows: what the table says. Leaves to others: reading (`traffic`), curves (`curve`), eviction (`eviction`), and
measuring what an entry takes (`footprint`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Final

from semcache.curve import Curve, hit_rate_with_ttl, miss_ratio_curve, sampled
from semcache.eviction import EVICTIONS, Eviction, replay
from semcache.traffic import Asked

SHARES: Final = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0)
"""Sizes that are shown, as shares of the distinct prompts; 20 to 40 % is where most of the gain is had."""
TTLS: Final = (60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0, 30 * 86400.0, None)
TTL_SHARES: Final = (0.2, 0.3, 0.4, 1.0)
MONTH: Final = 30 * 86400.0
MOST: Final = 200_000  # requests that a curve looks at

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What one entry takes, measured.

    Attributes:
        redis_bytes: In Redis with everything that belongs to it: members, log, shared embedding.
        row_bytes: In each process, for the row of the index.
        measured: How, in words.
    """

    redis_bytes: float
    row_bytes: float
    measured: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a call of the model costs; None for what isn't known.

    Attributes:
        latency_ms: Of a call, where the log doesn't tell.
        hit_ms: Of a hit.
        tokens_in, tokens_out: Of a call, where the log doesn't tell.
        usd_in, usd_out: US dollars per million tokens.
    """

    latency_ms: float | None = None
    hit_ms: float = 1.0
    tokens_in: float | None = None
    tokens_out: float | None = None
    usd_in: float | None = None
    usd_out: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a cache of one size would do on this log.

    Attributes:
        share: Of the distinct prompts.
        hit_rate: By eviction.
        redis_bytes, process_bytes: At that size.
        hours: Waiting saved over the log, with the best eviction; None if latency isn't known.
        usd: Money saved over the log, with the best eviction; None if tokens or prices aren't known.
    """

    share: float
    entries: int
    hit_rate: Mapping[Eviction, float]
    redis_bytes: float
    process_bytes: float
    hours: float | None
    usd: float | None

    @property
    def best(self) -> float:
        """The hit rate of the best eviction."""
        return max(self.hit_rate.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole plan.

    Attributes:
        requests, distinct: Of the log.
        served: Distinct prompts that need an entry of their own; fewer than `distinct` where meaning was compared.
        seconds: From the first to the last request; None if the log has no times.
        unbounded: Hit rate of a cache without limits.
        sizes: By share of the distinct prompts.
        ttls: Hit rate by (ttl, share); empty without times.
        curve: LRU hit rate against size.
        rate: Share of the prompts that was looked at.
        latency_ms: Median of a call; None if not known.
        usd_per_call: Mean; None if not known.
    """

    requests: int
    distinct: int
    served: int
    seconds: float | None
    unbounded: float
    sizes: tuple[Size, ...]
    ttls: tuple[tuple[float | None, float, float], ...]
    curve: Curve
    rate: float
    latency_ms: float | None
    usd_per_call: float | None
    footprint: Footprint

    @property
    def recommended(self) -> Size:
        """The smallest size from 20 to 40 % of the distinct prompts with 95 % of the unbounded hits, else the largest."""
        fit = [size for size in self.sizes if 0.2 <= size.share <= 0.4]
        return next((size for size in fit if size.best >= 0.95 * self.unbounded), fit[-1])


def plan(
    log: Sequence[Asked],
    footprint: Footprint,
    prices: Prices,
    *,
    near: Callable[[Key], Sequence[Key]] | None = None,
    most: int = MOST,
) -> Plan:
    """Work out hit rates, memory and saving by size and ttl.

    Args:
        log: At least one request, in order of time.
        near: Prompts whose entries would serve a prompt too, best first; None compares texts exactly.
        most: Requests that are looked at; a longer log is sampled by prompt.
    """
    asked_for = [(asked.text, asked.context) for asked in log]
    distinct = len(set(asked_for))
    names = asked_for if near is None else folded(asked_for, near)
    positions, rate = sampled(names, most)
    # A sample of prompts isn't closed under likeness; there the prompts that serve stand for those they serve.
    replayed = [names[p] for p in positions] if rate < 1.0 else asked_for
    serving = near if rate == 1.0 else None
    curve = miss_ratio_curve(names, most=most)
    served = len(set(names))
    unbounded = 1.0 - served / len(names)
    latency, usd = _latency(log, prices), _usd(log, prices)
    sizes = []
    for share in SHARES:
        entries = max(1, round(share * distinct))
        rates: dict[Eviction, float] = {
            e: _replayed(replayed, entries * rate, e, serving, len(log) * rate)
            for e in EVICTIONS
            if e != "cost"
        }
        hits = max(rates.values()) * len(log)
        sizes.append(
            Size(
                share=share,
                entries=entries,
                hit_rate=rates,
                redis_bytes=entries * footprint.redis_bytes,
                process_bytes=entries * footprint.row_bytes,
                hours=None if latency is None else hits * max(0.0, latency - prices.hit_ms) / 3.6e6,
                usd=None if usd is None else hits * usd,
            )
        )
    times = [asked.time for asked in log if asked.time is not None]
    seconds, ttls = None, []
    if len(times) == len(log) and times[-1] > times[0]:
        seconds = times[-1] - times[0]
        for ttl in TTLS:
            for share in TTL_SHARES:
                room = None if share == 1.0 else share * distinct
                ttls.append((ttl, share, hit_rate_with_ttl(names, times, entries=room, ttl=ttl, most=most)))
    return Plan(
        requests=len(log),
        distinct=distinct,
        served=served,
        seconds=seconds,
        unbounded=unbounded,
        sizes=tuple(sizes),
        ttls=tuple(ttls),
        curve=curve,
        rate=rate,
        latency_ms=latency,
        usd_per_call=usd,
        footprint=footprint,
    )


def _replayed(
    names: Sequence[Key],
    entries: float,
    eviction: Eviction,
    near: Callable[[Key], Sequence[Key]] | None,
    expected: float,
) -> float:
    """Return the hit rate; requests by which a sample is short or over are put right as in `miss_ratio_curve`."""
    done = replay(names, entries=max(1, round(entries)), eviction=eviction, near=near or (lambda name: ()))
    return max(0.0, min(1.0, (done.hits + expected - done.requests) / expected))


def folded(names: Sequence[Key], near: Callable[[Key], Sequence[Key]]) -> list[Key]:
    """Return for each request the prompt whose entry would serve it in a cache without limits."""
    stored: set[Key] = set()
    served = []
    for name in names:
        found = name if name in stored else next((other for other in near(name) if other in stored), None)
        if found is None:
            stored.add(name)
        served.append(found or name)
    return served


def _latency(log: Sequence[Asked], prices: Prices) -> float | None:
    known = [asked.latency_ms for asked in log if asked.latency_ms is not None]
    return median(known) if known else prices.latency_ms


def _usd(log: Sequence[Asked], prices: Prices) -> float | None:
    """Return what a call costs on the mean; None if a price or a number of tokens isn't known."""
    total, known = 0.0, False
    for price, logged, assumed in (
        (prices.usd_in, [a.tokens_in for a in log if a.tokens_in is not None], prices.tokens_in),
        (prices.usd_out, [a.tokens_out for a in log if a.tokens_out is not None], prices.tokens_out),
    ):
        tokens = mean(logged) if logged else assumed
        if price is not None and tokens is not None:
            total += price * tokens / 1e6
            known = True
    return total if known else None
