"""Counts what a store holds and what of it may still be served. For operators: it scans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from semcache.decision import Clock, liveness
from semcache.protocols import Store
from semcache.types import Entry

_TIMEOUT = 10.0  # seconds per read


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """What is stored.

    Attributes:
        live: Entries that may be served.
        dead: Entries that are still there and may not, by reason: ``withdrawn``, ``stale_tag``, ``epoch``, ``expired``.
        models: Live entries by model and version.
        scopes: How many scopes the live entries belong to.
        oldest, newest: When live entries were stored, seconds since the Unix epoch; None without any.
    """

    live: int
    dead: Mapping[str, int]
    models: Mapping[str, int]
    scopes: int
    oldest: float | None
    newest: float | None


def judged(store: Store) -> Iterator[list[tuple[Entry, str | None]]]:
    """Walk over all entries in batches, each with the reason why it may not be served, None if it may."""
    for batch in store.scan():
        names = sorted({name for entry in batch for name in entry.obeys})
        view = store.read([], names, embedding=None, timeout=_TIMEOUT)
        clock = Clock(view.epoch, view.time_us, view.floor_us, view.generations)
        yield [(entry, _reason(entry, clock)) for entry in batch]


def _reason(entry: Entry, clock: Clock) -> str | None:
    dead = liveness(entry, clock, entry.obeys)
    if dead is None and entry.ttl is not None and clock.now_us / 1e6 - entry.created_at >= entry.ttl:
        return "expired"
    return dead


def count(store: Store, *, watch: Callable[[int], None] = lambda seen: None) -> Census:
    """Count all entries.

    Args:
        watch: Told after each batch how many entries were seen.
    """
    dead: Counter[str] = Counter()
    models: Counter[str] = Counter()
    scopes: set[str] = set()
    times: list[float] = []
    for batch in judged(store):
        for entry, reason in batch:
            if reason is not None:
                dead[reason] += 1
                continue
            models[model_of(entry.entry_id)] += 1
            scopes.add(entry.scope)
            times.append(entry.created_at)
        watch(len(times) + dead.total())
    return Census(
        live=len(times),
        dead=dict(dead.most_common()),
        models=dict(models.most_common()),
        scopes=len(scopes),
        oldest=min(times, default=None),
        newest=max(times, default=None),
    )


def model_of(entry_id: str) -> str:
    """Return model and version as people write them; nothing for those that weren't named."""
    parts = entry_id.split("/")[:2]
    return " ".join(unquote(part) for part in parts if part != "~")  # "~" stands for an empty part
