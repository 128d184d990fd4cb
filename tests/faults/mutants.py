"""Ways to make the cache wrong on purpose, applied from outside, in a worker process only.

Each takes one safeguard away. The checker of `history` must turn red on every one of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from semcache import decision
from semcache.core import Core
from semcache.decision import Clock
from semcache.local import Copy, LocalCopies
from semcache.stores.redis import RedisStore
from semcache.types import CacheRequest, Entry, Fence

VARIABLE = "SEMCACHE_TEST_MUTANT"


def _skip_generations() -> None:
    """Entries don't obey what was invalidated after them."""
    true = decision.liveness

    def liveness(entry: Entry, clock: Clock, generations: Sequence[str]) -> str | None:
        return true(entry, clock, ())

    decision.liveness = liveness


def _age_from_reply() -> None:
    """A local copy is as old as the reply that brought it, not as the read that was sent."""
    true = LocalCopies.keep

    def keep(self: LocalCopies, copy: Copy, serial: int) -> None:
        true(self, replace(copy, read_at=time.monotonic()), serial)

    LocalCopies.keep = keep  # type: ignore[method-assign]


def _generations_at_put() -> None:
    """An answer is judged by what was invalidated when it is stored, not when its lookup looked."""
    true = Core.put

    def put(self: Core, *answer: Any, fence: Fence | None, **options: Any) -> Any:
        return true(self, *answer, fence=None, **options)

    Core.put = put  # type: ignore[method-assign]


def _ignore_epoch() -> None:
    """Entries outlive the store's memory of what was withdrawn."""
    true = decision.liveness

    def liveness(entry: Entry, clock: Clock, generations: Sequence[str]) -> str | None:
        return true(replace(entry, fence=replace(entry.fence, epoch=clock.epoch)), clock, generations)

    decision.liveness = liveness


def _ignore_blocks() -> None:
    """A text is served an entry that it was said not to match."""
    true = Core.identify

    def identify(self: Core, request: CacheRequest) -> Any:
        found = true(self, request)
        return None if found is None else found._replace(blocked=frozenset())

    Core.identify = identify  # type: ignore[method-assign]


def _spare_too_much() -> None:
    """An invalidation of what is older than some seconds spares more than it should."""
    true = RedisStore.raise_generations

    def raise_generations(
        self: RedisStore, names: Sequence[str], *, before: float = 0.0, **options: Any
    ) -> Any:
        return true(self, names, before=before * 10 + 5.0 if before else 0.0, **options)

    RedisStore.raise_generations = raise_generations  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    "skip_generations": _skip_generations,
    "age_from_reply": _age_from_reply,
    "generations_at_put": _generations_at_put,
    "ignore_epoch": _ignore_epoch,
    "ignore_blocks": _ignore_blocks,
    "spare_too_much": _spare_too_much,
}
