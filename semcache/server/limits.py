"""How much one address may do. In memory, bounded, per process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

_KEPT = 50_000


class RateLimit:
    """A token bucket for each name.

    Args:
        per_minute: Tokens that come back in a minute, and the most that one name can have.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._rate = per_minute / 60.0
        self._most = float(per_minute)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        now = self._clock()
        left, at = self._buckets.pop(name, (self._most, now))
        left = min(self._most, left + (now - at) * self._rate)
        wait = 0.0 if left >= 1.0 else (1.0 - left) / self._rate
        self._buckets[name] = (left if wait else left - 1.0, now)
        while len(self._buckets) > _KEPT:
            self._buckets.popitem(last=False)
        return wait
