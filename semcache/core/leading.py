"""Single flight across processes: who calls the model for an entry, and how long the others wait for it.

The lease is asked for on a miss only, when the model is about to be called. A caller whose lookup came after
an invalidation doesn't wait for a call that began before it: that answer couldn't be stored.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple

from semcache import scope, secrets
from semcache.core.lookups import Lookups
from semcache.core.state import Look
from semcache.errors import StoreUnavailableError
from semcache.leases import Lease
from semcache.protocols import Claim, Claimed
from semcache.reasons import FAILURES
from semcache.steps import Await, Steps
from semcache.types import Decision, Fence, Hit

AWAY = FAILURES - {"encoder_failed", "undecodable"}  # the store doesn't answer, or not in time
LEADERS = 2  # other processes that are waited for; who comes after them doesn't queue behind a failing model
FIRST_PAUSE, MOST_PAUSE, GROWTH = 0.02, 0.25, 1.5  # seconds between looks at another process's lease


class Cleared(NamedTuple):
    """What came of asking to call the model.

    Attributes:
        decision: A hit if another process stored the answer meanwhile; else a miss, with the fence to put with.
        lease: What keeps the others waiting; None if nothing does.
        waited: Whether another process's call was waited for.
    """

    decision: Decision
    lease: Lease | None = None
    waited: bool = False


class Leading(Lookups):
    """Steps before a call to the model."""

    def clear(self, look: Look, decision: Decision, tags: Collection[str]) -> Steps[Cleared]:
        """Ask to be the one process that calls the model; wait for another that does. Fails open."""
        if (
            self.keeper is None
            or look.identity is None
            or look.fence is None
            or look.request.no_store
            or isinstance(decision, Hit)
            or decision.reason in AWAY
        ):
            return Cleared(decision)
        try:
            return (yield from self._clear(look, decision, tags))
        except (StoreUnavailableError, TimeoutError) as error:
            self._failure(error, self._look(look.request))  # waiting isn't work: its time doesn't count
            return Cleared(decision)

    def _clear(self, look: Look, decision: Decision, tags: Collection[str]) -> Steps[Cleared]:
        keeper, identity, fence = self.keeper, look.identity, look.fence
        assert keeper is not None
        assert identity is not None
        assert fence is not None
        request = look.request
        names = scope.entry_generations(identity.generations, request.tenant, tags)
        entry_id, holder = identity.entry_id, secrets.new_nonce()
        patience = self.clock() + self.policy.flight_timeout
        since_us: int | None = fence.time_us
        fence_us: int | None = fence.time_us
        instead_of, pause = "", FIRST_PAUSE
        holders: set[str] = set()
        timeout = look.left()
        try:
            while True:
                arrival = self.arrival(entry_id) if holders else None
                claim = Claim(
                    entry_id=entry_id, holder=holder, seconds=keeper.seconds, epoch=fence.epoch, fence_us=fence_us,
                    since_us=since_us, instead_of=instead_of, names=names,
                )  # fmt: skip
                reply: Claimed = yield self._ask("claim", claim, timeout=timeout)
                timeout, waited = self.policy.deadline, bool(holders)
                if reply.state == "taken":
                    if waited:  # the model is called after this, not after the lookup
                        decision = replace(decision, fence=Fence(reply.epoch, reply.time_us))
                    return Cleared(decision, keeper.hold(entry_id, holder), waited)
                if reply.state == "stored":
                    again = yield from self._lookup(self._look(request))
                    if isinstance(again, Hit):
                        return Cleared(again, None, waited)
                    since_us = None  # what was stored isn't for this request
                    continue
                if reply.state == "unshared":
                    return Cleared(decision, None, waited)
                if reply.epoch != fence.epoch or reply.fence_us <= reply.raised_us:
                    instead_of = reply.holder  # its answer is stale already
                    continue
                holders.add(reply.holder)
                left = patience - self.clock()
                if left <= 0 or len(holders) > LEADERS:
                    return Cleared(decision, None, waited)
                fence_us = None
                yield from self._pause(
                    arrival or self.arrival(entry_id), min(pause, left, reply.left + FIRST_PAUSE)
                )
                pause = min(pause * GROWTH, MOST_PAUSE)
        finally:
            if holders:
                self.arrived(entry_id)

    def _pause(self, arrival: Future[None], seconds: float) -> Steps[None]:
        """Wait a while for the change log to tell of the entry; it may be late, or lost."""
        try:
            yield Await(arrival, seconds * random.uniform(0.5, 1.0))
        except TimeoutError:
            return
