"""Answering again behind a hit: entries that were served stale, or are about to expire, and how their ttl adapts."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection
from typing import Any

from semcache import scope, secrets
from semcache.core.arguments import Given, as_response, timed
from semcache.core.leading import Leading
from semcache.core.puts import Puts
from semcache.core.state import Look
from semcache.errors import StoreUnavailableError
from semcache.freshness import due, own_tags, stretched
from semcache.leases import Lease
from semcache.protocols import Claim, Claimed
from semcache.steps import CallModel, Steps
from semcache.types import CacheRequest, Entry, Fence, Hit, Miss

log = logging.getLogger(__name__)

MARGIN = 0.05  # seconds by which clocks that are compared may be apart; a refresh takes longer


class Refreshing(Leading, Puts):
    """Steps of a refresh, and when one is begun."""

    def refresh_behind(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        given: Given,
        hit: Hit,
    ) -> None:
        """Begin to refresh what a hit was served from, if it is stale or the moment has come."""
        share = self.policy.refresh_ahead
        if not hit.stale and (
            share is None
            or hit.ttl_left is None
            or hit.match != "exact"
            or not due(hit.age, hit.age + hit.ttl_left, share, 1.0 - random.random())
        ):
            return
        identity = self.identify(request)
        if self.refreshes is None or identity is None or request.no_store or request.only_if_cached:
            return
        served_us = int(
            (self.server_now() - hit.age + MARGIN) * 1e6
        )  # an entry that is younger than this is another one
        refusal = self.refreshes.start(
            identity.entry_id, lambda: self._refresh(request, call_model, given, served_us)
        )
        if refusal == "full":
            self.metrics.count("refreshes", "full")

    def _refresh(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        given: Given,
        served_us: int,
    ) -> Steps[None]:
        outcome = "cancelled"
        try:
            outcome = yield from self._answer_again(request, call_model, given, served_us)
        except Exception as error:  # noqa: BLE001 - the model is the caller's, and nobody waits for what it raises
            outcome = "failed"
            log.info("an entry wasn't refreshed: %s", type(error).__name__)
        finally:
            self.metrics.count("refreshes", outcome)

    def _answer_again(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        given: Given,
        served_us: int,
    ) -> Steps[str]:
        """Call the model and store what it says, unless another process does; returns what came of it."""
        look = self._look(request)
        lease, fence = yield from self._claim_refresh(look, given.tags, served_us)
        if fence is None:
            return "elsewhere"
        stored = None
        try:
            assert look.identity is not None
            (old,) = yield self._ask("get_many", [look.identity.entry_id], timeout=self.policy.deadline)
            started = self.clock()
            response = as_response((yield CallModel(call_model, request)))
            seconds = self.clock() - started
            response = timed(response, seconds)
            self.metrics.took("refresh", seconds)
            given = given._replace(
                tags=scope.given_tags(request, (*given.tags, *own_tags(old))),
                kind=given.kind or (old.kind if old is not None else None),
            )
            same = None if old is None else (yield from self.agreement(old.response, response))
            stored = yield from self.put(
                request, response, given, fence=fence, lease=lease, stretch=self.stretch(old, same)
            )
        finally:
            if lease is not None and self.keeper is not None:
                self.keeper.give_back(lease, unshared=False)
        if not stored:
            return "refused"
        return "same" if same else "changed"

    def _claim_refresh(
        self, look: Look, tags: Collection[str], served_us: int
    ) -> Steps[tuple[Lease | None, Fence | None]]:
        """Return (lease, fence of the new answer); no fence if another process is at it, or was."""
        request, keeper = look.request, self.keeper
        identity = look.identity = yield from self._identify(request, look.left)
        if keeper is None:
            yield from self._read(look, (), None)
            return None, look.fence
        holder = secrets.new_nonce()
        names = scope.entry_generations(identity.generations, request.tenant, tags)
        claim = Claim(
            entry_id=identity.entry_id, holder=holder, seconds=keeper.seconds, epoch=self.epoch, fence_us=None,
            since_us=served_us, instead_of="", names=names,
        )  # fmt: skip
        reply: Claimed = yield self._ask("claim", claim, timeout=look.left())
        if reply.state != "taken":
            return None, None
        return keeper.hold(identity.entry_id, holder), Fence(reply.epoch, reply.time_us)

    # how the ttl adapts

    def stretch(self, old: Entry | None, same: bool | None) -> float:
        """Return the factor on the ttl of an answer that replaces another.

        Args:
            same: Whether it says the same; None if that couldn't be told.
        """
        most = self.policy.adaptive_ttl
        if old is None or most == 1.0:
            return 1.0
        if old.state != "live":
            return stretched(old.stretch, False, most)
        if same is None:
            return old.stretch
        lived = 1.0 if not old.ttl else max(0.0, self.server_now() - old.created_at) / old.ttl
        return stretched(old.stretch, same, most, lived=lived)

    def replaced(self, request: CacheRequest, decision: Miss) -> Steps[Entry | None]:
        """Return what a new answer will replace, where that says how long it will hold."""
        identity = self.identify(request)
        if (
            self.policy.adaptive_ttl == 1.0
            or identity is None
            or not (request.no_cache or decision.best_entry_id == identity.entry_id)
        ):
            return None
        try:
            (old,) = yield self._ask("get_many", [identity.entry_id], timeout=self.policy.deadline)
        except (StoreUnavailableError, TimeoutError) as error:
            self._failure(error, self._look(request))
            return None
        return old  # type: ignore[no-any-return]
