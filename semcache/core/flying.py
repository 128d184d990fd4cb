"""Serve or call the model: one call for all who ask the same at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from semcache import admission, scope
from semcache.core.arguments import Given, as_response
from semcache.core.leading import Cleared
from semcache.core.refreshing import Refreshing
from semcache.errors import (
    OnlyIfCachedError,
    StoreUnavailableError,
)
from semcache.flights import Flight
from semcache.leases import Lease
from semcache.reasons import FAILURES, STORE_OUTCOMES
from semcache.steps import Board, CallModel, Steps
from semcache.types import (
    Answer,
    CacheRequest,
    Hit,
    Miss,
    Stored,
)


class Flying(Refreshing):
    """Steps of get_or_compute."""

    def get_or_compute(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        given: Given,
    ) -> Steps[Answer]:
        """Serve, or call the model once for all who ask the same now."""
        if (
            not self.policy.single_flight
            or admission.bypass(request, self.policy) is not None
            or request.no_cache
            or (self.trial and self.watches(request))
        ):
            return (yield from self._lead(request, call_model, given))
        admission.check_prompt(request.prompt)
        hit = self.serve_local(request)
        if hit is not None:
            return self._served(request, call_model, given, hit)
        key = yield from self._flight_key(request)
        for _ in range(2):
            flight, leads = self.flights.join(key)
            if leads:
                return (yield from self._fly(flight, request, call_model, given))
            try:
                answer: Answer | None = yield Board(flight, self.policy.flight_timeout)
            except TimeoutError:
                break
            if answer is not None:
                self.metrics.count("waited", "waited")
                return answer
        # Two leaders failed, or one takes too long: ask for ourselves, so that nobody queues behind a failing model.
        return (yield from self._lead(request, call_model, given))

    def _flight_key(self, request: CacheRequest) -> Steps[str]:
        """Return what equal requests share; also while the store, and with it the secret, is away."""
        if self._secrets is None and self.breaker.admits():
            try:
                identity = yield from self._identify(request, lambda: self.policy.deadline)
                return identity.entry_id
            except (StoreUnavailableError, TimeoutError):
                self.metrics.count("failures", "secret")
        known = self.identify(request)
        if known is not None:
            return known.entry_id
        return scope.text_id(
            scope.scope_id(request, self._offer, admission.owner(request, self.policy)),
            scope.exact_text(request.prompt),
            self._offer,
        )

    def _fly(
        self,
        flight: Flight,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        given: Given,
    ) -> Steps[Answer]:
        try:
            answer = yield from self._lead(request, call_model, given, alone=False)
        except BaseException:
            self.flights.done(flight)
            flight.fail()
            raise
        self.flights.done(flight)
        flight.land(replace(answer, stored=None, shared=answer.put, waited=True))
        return answer

    def _lead(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        given: Given,
        *,
        alone: bool = True,
    ) -> Steps[Answer]:
        """Serve, or call the model and store.

        Args:
            alone: Whether other processes aren't asked whether they call it already.
        """
        hit = self.serve_local(request)
        if hit is not None:
            return self._served(request, call_model, given, hit)
        look = self._look(request)
        cleared = Cleared((yield from self._lookup(look)))
        took = self.clock() - look.started
        if self.trial and self.watches(request):
            cleared = Cleared(self.watch(request, cleared.decision))
        elif not alone and not request.only_if_cached:
            cleared = yield from self.clear(look, cleared.decision, given.tags)
        decision = cleared.decision
        if cleared.waited and isinstance(decision, Hit):
            self.metrics.count("waited", "waited")
            return Answer(decision.response, decision, waited=True)
        self._count(decision, took)
        if isinstance(decision, Hit):
            return self._served(request, call_model, given, decision)
        if request.only_if_cached:
            raise OnlyIfCachedError(
                f"nothing stored may be served ({decision.reason}), and only_if_cached was asked for"
            )
        answer: Answer | None = None
        try:
            answer = yield from self._compute(request, call_model, given, decision, cleared.lease)
        finally:
            if cleared.lease is not None and self.keeper is not None:
                self.keeper.give_back(cleared.lease, unshared=answer is not None)
        return answer

    def _served(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        given: Given,
        hit: Hit,
    ) -> Answer:
        if hit.stale or self.policy.refresh_ahead is not None:
            self.refresh_behind(request, call_model, given, hit)
        return Answer(hit.response, hit)

    def _compute(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        given: Given,
        decision: Miss,
        lease: Lease | None,
    ) -> Steps[Answer]:
        started = self.clock()
        said = yield CallModel(call_model, request)
        response = as_response(said)
        if response.latency_ms is None:
            response = replace(response, latency_ms=round((self.clock() - started) * 1000, 3))
        self.metrics.took("model", self.clock() - started)
        if decision.fence is None and decision.reason in FAILURES:
            # Without a fence it can't be told what was invalidated while the model was thinking.
            outcome = decision.reason if decision.reason in STORE_OUTCOMES else "store_unavailable"
            self.metrics.count("stored", outcome)
            return Answer(response, decision, Stored(outcome))
        old = yield from self.replaced(request, decision)
        same = None if old is None else (yield from self.agreement(old.response, response))
        stored = yield from self.put(
            request, response, given, fence=decision.fence, lease=lease, stretch=self.stretch(old, same)
        )
        return Answer(response, decision, stored)
