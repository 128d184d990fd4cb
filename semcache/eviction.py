"""Pure: which entry makes room when a namespace is over its budget, and what that costs in hits.

The store keeps one score per entry and evicts the lowest; `stores/lua/reserve.lua` does the same
arithmetic as `Ranked` (a test holds them to each other). Ages are counted in turnovers, not in seconds: one
turnover is the storing of as many new entries (or bytes) as the budget holds.

- ``lru``: the score is the time of the last use.
- ``lfu``: the score is the logarithm of a count of uses in which each use fades by half every `HALF_LIFE` turnovers.
- ``cost``: that, times the tokens and the latency that a hit saves, per byte (after GreedyDual-Size-Frequency,
  Cherkasova 1998, with fading in place of its inflation).

A use that happened at age t counts 2^t, so that scores never have to be aged in place (forward decay, Cormode et
al. 2009). An evicted entry's count is remembered for as many entries as are stored, and it has it back
when it is stored again; a prompt that was asked often isn't a stranger for having been evicted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from semcache.errors import ConfigurationError

Eviction: TypeAlias = Literal["lru", "lfu", "cost"]
EVICTIONS: Final[tuple[Eviction, ...]] = ("lru", "lfu", "cost")
HALF_LIFE: Final = 2.0  # turnovers of the budget in which a use fades by half

K = TypeVar("K", bound=Hashable)


def heavier(count: float | None, age: float, uses: int = 1) -> float:
    """Return log2 of a fading count after more uses.

    Args:
        count: log2 of the count before; None for nothing yet.
        age: The age now, in half-lives.
    """
    new = age + math.log2(uses)
    if count is None:
        return new
    high, low = max(count, new), min(count, new)
    return high + math.log2(1.0 + 2.0 ** (low - high))


def weight(eviction: Eviction, *, tokens: float | None, latency_ms: float | None, size: int) -> float:
    """Return what an entry's count is multiplied by, as log2: tokens × milliseconds that a hit saves, per byte.

    What isn't known counts as 1, so that entries differ by what is known of them. 0 but for ``cost``.
    """
    if eviction != "cost":
        return 0.0
    saved = max(tokens or 1.0, 1.0) * max(latency_ms or 1.0, 1.0)
    return math.log2(saved / max(size, 1))


def tokens_of(usage: Mapping[str, Any] | None) -> float | None:
    """Return the tokens of an answer by its usage, however its provider names them; None if it doesn't tell."""
    if not usage:
        return None
    total = usage.get("total_tokens")
    if total is None:
        parts = (
            usage.get(name)
            for name in ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
        )
        known = [part for part in parts if isinstance(part, int | float)]
        total = sum(known) if known else None
    return float(total) if isinstance(total, int | float) and math.isfinite(total) else None


@dataclass(slots=True)
class _Kept:
    score: float
    count: float
    weight: float
    size: int


class Ranked(Generic[K]):
    """The entries of one namespace under a budget, by name, size and score.

    Args:
        entries: Most entries; None for no limit.
        size: Most bytes; None for no limit.

    Ties are broken by name, the lowest first, as in a sorted set.
    """

    def __init__(
        self,
        *,
        entries: int | None,
        size: int | None = None,
        eviction: Eviction,
        half_life: float = HALF_LIFE,
    ) -> None:
        if eviction not in EVICTIONS:
            raise ConfigurationError(f"eviction is {eviction!r}, expected one of {', '.join(EVICTIONS)}")
        self._most, self._most_size = entries, size
        self._eviction: Eviction = eviction
        self._half_life = half_life
        self._kept: dict[K, _Kept] = {}
        self._past: dict[K, float] = {}
        self._order: list[tuple[float, Any]] = []
        self._past_order: list[tuple[float, Any]] = []
        self._now = 0
        self.age = 0.0  # in half-lives
        self.size = 0
        self.evicted = 0

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def touch(self, name: K, uses: int = 1) -> None:
        """Count uses of an entry; what isn't kept any more is left alone."""
        kept = self._kept.get(name)
        if kept is not None:
            self._use(name, kept, uses)

    def drop(self, name: K) -> None:
        """Forget an entry that went by itself, but for how often it was used."""
        kept = self._kept.pop(name, None)
        if kept is not None:
            self.size -= kept.size
            self._remember(name, kept.count)

    def limit(self, entries: int | None, size: int | None) -> None:
        """Set the budget anew; the next put makes the room."""
        self._most, self._most_size = entries, size

    def _use(self, name: K, kept: _Kept, uses: int) -> None:
        self._now += 1
        kept.count = heavier(kept.count, self.age, uses)
        kept.score = float(self._now) if self._eviction == "lru" else kept.count + kept.weight
        heapq.heappush(self._order, (kept.score, name))

    def put(self, name: K, size: int = 1, weight: float = 0.0) -> list[K] | None:
        """Store an entry; returns what was evicted for it, None if it is larger than the budget."""
        if self._most_size is not None and size > self._most_size:
            return None
        kept = self._kept.get(name)
        gone: list[K] = []
        if kept is None:
            self._grow_old(size)
            gone = self._make_room(1, size, keep=None)
            kept = self._kept[name] = _Kept(0.0, self._past.pop(name, -math.inf), weight, size)
        else:
            gone = self._make_room(0, size - kept.size, keep=name)
            self.size -= kept.size
            kept.size, kept.weight = size, weight
        self.size += size
        self._use(name, kept, 1)
        return gone

    def _grow_old(self, size: int) -> None:
        shares = []
        if self._most is not None:
            shares.append(1.0 / self._most)
        if self._most_size is not None:
            shares.append(size / self._most_size)
        self.age += max(shares, default=0.0) / self._half_life

    def _make_room(self, more: int, size: int, keep: K | None) -> list[K]:
        gone: list[K] = []
        held: list[tuple[float, Any]] = []
        while (self._most is not None and len(self._kept) + more > self._most) or (
            self._most_size is not None and self.size + size > self._most_size
        ):
            score, name = heapq.heappop(self._order)
            kept = self._kept.get(name)
            if kept is None or kept.score != score:
                continue  # an older score of an entry that was used since
            if name == keep:
                held.append((score, name))
                continue
            del self._kept[name]
            self.size -= kept.size
            self.evicted += 1
            gone.append(name)
            self._remember(name, kept.count)
        for pair in held:
            heapq.heappush(self._order, pair)
        return gone

    def _remember(self, name: K, count: float) -> None:
        self._past[name] = count
        heapq.heappush(self._past_order, (count, name))
        most = max(len(self._kept), 1)
        while len(self._past) > most:
            count, old = heapq.heappop(self._past_order)
            if self._past.get(old) == count:
                del self._past[old]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay.

    Attributes:
        requests: How many were replayed.
        hits: How many a stored entry served.
        stored: Entries that were put.
        evicted: Entries that made room.
        peak: Most entries at any time.
    """

    requests: int
    hits: int
    stored: int
    evicted: int
    peak: int

    @property
    def hit_rate(self) -> float:
        """Hits per request, in [0, 1]."""
        return self.hits / self.requests if self.requests else 0.0


def replay(
    names: Sequence[K],
    *,
    entries: int | None,
    size: int | None = None,
    eviction: Eviction = "lru",
    near: Callable[[K], Sequence[K]] = lambda name: (),
    sizes: Callable[[K], int] = lambda name: 1,
    weights: Callable[[K], float] = lambda name: 0.0,
) -> Replayed:
    """Replay requests in order: look up, on a miss put, evict what is over the budget. No expiry.

    Args:
        names: One per request; equal names are the same prompt.
        entries, size: The budget; None for no limit.
        near: Prompts whose entries would serve this one too, best first.
        sizes: Bytes of a prompt's entry.
        weights: From `weight`.
    """
    ranked: Ranked[K] = Ranked(entries=entries, size=size, eviction=eviction)
    hits = stored = peak = 0
    for name in names:
        found = name if name in ranked else next((other for other in near(name) if other in ranked), None)
        if found is not None:
            hits += 1
            ranked.touch(found)
        elif ranked.put(name, sizes(name), weights(name)) is not None:
            stored += 1
            peak = max(peak, len(ranked))
    return Replayed(len(names), hits, stored, ranked.evicted, peak)
