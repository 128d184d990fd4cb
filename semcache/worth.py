"""Pure: what serving from the cache was worth, from counts that add up over processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from semcache.eviction import tokens_of
from semcache.types import Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Counts and sums of one process, or of several.

    Attributes:
        hits: Lookups that were served.
        attempted: Lookups that might have been: hits and misses, bypasses left out.
        stale: Hits past their ttl.
        right, wrong: Verdicts on what was served.
        hit_ms, miss_ms: Milliseconds that hits and attempted misses took in all, by the mean of the last 4,096 of each.
        calls, model_ms: Calls of the model that get_or_compute made, and milliseconds they took, likewise.
        tokens: Tokens that hits have saved, as the models counted them when they answered.
        saved_ms: Milliseconds of the model that hits have saved.
        usd: US dollars that hits have saved, where `Policy.usd_in` and `usd_out` say what a token costs.
    """

    hits: float = 0
    attempted: float = 0
    stale: float = 0
    right: float = 0
    wrong: float = 0
    hit_ms: float = 0
    miss_ms: float = 0
    calls: float = 0
    model_ms: float = 0
    tokens: float = 0
    saved_ms: float = 0
    usd: float = 0

    @property
    def hit_rate(self) -> float:
        """Hits per attempted lookup, in [0, 1]; 0 without any."""
        return self.hits / self.attempted if self.attempted > 0 else 0.0

    @property
    def wrong_share(self) -> float | None:
        """Share of the verdicts that said wrong, in [0, 1]; None without any.

        An estimate of the hits that are wrong, and rather too high: who is content says nothing.
        """
        judged = self.right + self.wrong
        return self.wrong / judged if judged else None

    @property
    def fresh_share(self) -> float:
        """Share of the hits that were inside their ttl, in [0, 1]: how well freshness was satisfied; 1 without hits."""
        return 1.0 - self.stale / self.hits if self.hits else 1.0

    @property
    def effective_hit_rate(self) -> float:
        """Hits that weren't stale, less the share that is estimated wrong, per attempted lookup; in [0, 1].

        Without verdicts nothing is known to be wrong.
        """
        return self.hit_rate * self.fresh_share * (1.0 - (self.wrong_share or 0.0))

    @property
    def mean_ms(self) -> float | None:
        """Mean latency of a request: hit rate × a hit's + (1 − hit rate) × (a miss's + the model's); None without any.

        The model's is known of the calls that get_or_compute made, else counts as 0.
        """
        if self.attempted <= 0:
            return None
        misses = self.attempted - self.hits
        hit = self.hit_ms / self.hits if self.hits else 0.0
        miss = self.miss_ms / misses if misses else 0.0
        model = self.model_ms / self.calls if self.calls else 0.0
        return self.hit_rate * hit + (1.0 - self.hit_rate) * (miss + model)


def summed(parts: Iterable[Worth]) -> Worth:
    """Add up what several processes have counted."""
    known = list(parts)
    return Worth(**{field.name: sum(getattr(part, field.name) for part in known) for field in fields(Worth)})


def as_counts(worth: Worth) -> dict[str, float]:
    """Return the counts that aren't 0, rounded, for a report."""
    values = {field.name: round(getattr(worth, field.name), 6) for field in fields(Worth)}
    return {name: value for name, value in values.items() if value}


def from_counts(counts: Mapping[str, object]) -> Worth:
    """Read `as_counts`; what isn't a count is left out."""
    names = {field.name for field in fields(Worth)}
    return Worth(**{k: float(v) for k, v in counts.items() if k in names and isinstance(v, int | float)})


def cost_of(response: Response, usd_in: float | None, usd_out: float | None) -> tuple[float, float, float]:
    """Return what serving a response again saves: tokens, milliseconds, US dollars.

    Args:
        usd_in, usd_out: US dollars per million tokens read and written.
    """
    usage = response.usage or {}

    def count(*names: str) -> float:
        found = (usage.get(name) for name in names)
        return next((float(n) for n in found if isinstance(n, int | float) and not isinstance(n, bool)), 0.0)

    usd = (usd_in or 0.0) * count("prompt_tokens", "input_tokens")
    usd += (usd_out or 0.0) * count("completion_tokens", "output_tokens")
    return tokens_of(usage) or 0.0, response.latency_ms or 0.0, usd / 1e6
