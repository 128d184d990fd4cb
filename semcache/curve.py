"""Pure: hit rate against cache size and ttl, from the order in which prompts were asked.

Size: exact LRU stack distances (Mattson et al. 1970) counted with a Fenwick tree (Fenwick 1994; Bennett and Kruskal
1975 for the use), O(n log n). Long logs are sampled by prompt (SHARDS: Waldspurger et al., FAST 2015): a
prompt is either in the sample with all its requests or not at all, distances are scaled up by the rate, and
the difference between the requests that were expected and those that were drawn is put right at distance 0.

Ttl: an entry is stored at its miss and isn't renewed by hits, so that its life isn't a question of recency.
Size and ttl together are replayed cell by cell, on the same sample with a scaled size (Waldspurger et al.,
ATC 2017, "miniature simulations").
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Curve:
    """Hits that an LRU cache of each size would have.

    Attributes:
        requests: Requests of the whole log.
        distances: LRU stack distances at which the hits grow, ascending: a cache of at least so many entries.
        hits: Hits of a cache of that size, cumulated.
        rate: Share of the prompts that was looked at, in (0, 1].
    """

    requests: int
    distances: tuple[float, ...]
    hits: tuple[float, ...]
    rate: float

    def hit_rate(self, entries: float) -> float:
        """Return the hit rate with room for so many entries, in [0, 1]."""
        at = bisect_right(self.distances, entries)
        return max(0.0, min(1.0, self.hits[at - 1] / self.requests)) if at and self.requests else 0.0


def sampled(names: Sequence[K], most: int) -> tuple[list[int], float]:
    """Choose prompts by a hash of their name until about `most` requests are left.

    Returns:
        Positions of the chosen requests in order, and the share of the prompts that was drawn.
    """
    if len(names) <= most:
        return list(range(len(names))), 1.0
    rate = most / len(names)
    limit = int(rate * 2**64)
    chosen: dict[K, bool] = {}
    positions = []
    for position, name in enumerate(names):
        taken = chosen.get(name)
        if taken is None:
            digest = hashlib.blake2b(repr(name).encode("utf-8", "surrogatepass"), digest_size=8).digest()
            taken = chosen[name] = int.from_bytes(digest) < limit
        if taken:
            positions.append(position)
    return positions, rate


def stack_distances(names: Sequence[K]) -> list[int]:
    """Return for each request how many different prompts were asked since this one was last, itself included.

    0 for a first request. A request is a hit of an LRU cache of at least that many entries.
    """
    count = len(names)
    tree = [0] * (count + 1)  # Fenwick tree over positions: 1 where a prompt's latest request is
    last: dict[K, int] = {}
    distances = []
    for position, name in enumerate(names, start=1):
        before = last.get(name)
        if before is None:
            distances.append(0)
        else:
            later = len(last)  # all marks, less those up to the last request of this prompt
            index = before
            while index:
                later -= tree[index]
                index &= index - 1
            distances.append(later + 1)
            index = before
            while index <= count:
                tree[index] -= 1
                index += index & -index
        last[name] = index = position
        while index <= count:
            tree[index] += 1
            index += index & -index
    return distances


def miss_ratio_curve(names: Sequence[K], *, most: int = 200_000) -> Curve:
    """Return the curve of an LRU cache without expiry.

    Args:
        names: One per request in order of arrival; equal names are the same prompt.
        most: Requests that are looked at; a longer log is sampled.
    """
    positions, rate = sampled(names, most)
    counts = Counter(d for d in stack_distances([names[p] for p in positions]) if d)
    distances = sorted(counts)
    missing = len(names) - len(positions) / rate  # by which the sample is short of requests, SHARDS-adj
    cumulated = accumulate((counts[d] / rate for d in distances), initial=missing if rate < 1.0 else 0.0)
    scaled = (0.0, *(d / rate if rate < 1.0 else float(d) for d in distances))
    return Curve(len(names), scaled, tuple(cumulated), rate)


def hit_rate_with_ttl(
    names: Sequence[K],
    times: Sequence[float],
    *,
    entries: float | None,
    ttl: float | None,
    most: int = 200_000,
) -> float:
    """Return the hit rate of an LRU cache whose entries live `ttl` seconds from their storing.

    Args:
        times: Seconds, ascending, one per request.
        entries: Room; None for no limit.
        ttl: None for ever.
    """
    if not names:
        return 0.0
    positions, rate = sampled(names, most)
    room = None if entries is None else max(1, round(entries * rate))
    stored: OrderedDict[K, float] = OrderedDict()
    hits = 0
    for position in positions:
        name, now = names[position], times[position]
        born = stored.get(name)
        if born is not None and (ttl is None or now - born < ttl):
            hits += 1
            stored.move_to_end(name)
            continue
        stored[name] = now
        stored.move_to_end(name)
        if room is not None and len(stored) > room:
            stored.popitem(last=False)
    expected = len(names) * rate
    return (
        max(0.0, min(1.0, (hits + expected - len(positions)) / expected)) if rate < 1.0 else hits / len(names)
    )
