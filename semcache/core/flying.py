"""Serve or call the model: one call for all who ask the same at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semcache import admission, scope
from semcache.core.arguments import Given, as_response, timed
from semcache.core.leading import Cleared
from semcache.core.refreshing import Refreshing
from semcache.errors import (
    OnlyIfCachedError,
    StoreUnavailableError,
)
from semcache.flights import Flight, Lead, waiters_answer
from semcache.reasons import FAILURES, STORE_OUTCOMES
from semcache.steps import Board, CallModel, Steps
from semcache.types import (
    Answer,
    CacheRequest,
    Hit,
    Response,
    Stored,
)


class Flying(Refreshing):
    """Steps of get_or_compute, and of its two halves."""

    def get_or_compute(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        given: Given,
    ) -> Steps[Answer]:
        """Serve, or call the model once for all who ask the same now; after `answer_local`."""
        begun = yield from self.begin(request, given, call_model)
        if isinstance(begun, Answer):
            return begun
        try:
            response = as_response((yield CallModel(call_model, request)))
        except BaseException:
            begun.give_up()
            raise
        return (yield from self.finish(begun, response))

    def answer_local(
        self, request: CacheRequest, given: Given, again: Callable[[CacheRequest], Any] | None
    ) -> Answer | None:
        """Serve from a local copy, before any step is taken; None if there is none that may be."""
        hit = self.serve_local(request)
        return None if hit is None else self._served(request, again, given, hit)

    def begin(
        self, request: CacheRequest, given: Given, again: Callable[[CacheRequest], Any] | None
    ) -> Steps[Answer | Lead]:
        """Serve, or wait for whoever is answering the same, or lead; after `answer_local`.

        Args:
            again: Calls the model behind a hit that is due; None leaves such hits alone.
        """
        if (
            not self.policy.single_flight
            or admission.bypass(request, self.policy) is not None
            or request.no_cache
            or (self.trial and self.watches(request))
        ):
            return (yield from self._take(request, None, given, again))
        admission.check_prompt(request.prompt)
        key = yield from self._flight_key(request)
        for _ in range(2):
            flight, leads = self.flights.join(key)
            if leads:
                return (yield from self._take_off(flight, request, given, again))
            try:
                answer: Answer | None = yield Board(flight, self.policy.flight_timeout)
            except TimeoutError:
                break
            if answer is not None:
                self.metrics.count("waited", "waited")
                return answer
        # Two leaders failed, or one takes too long: ask for ourselves, so that nobody queues behind a failing model.
        return (yield from self._take(request, None, given, again))

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

    def _take_off(
        self,
        flight: Flight,
        request: CacheRequest,
        given: Given,
        again: Callable[[CacheRequest], Any] | None,
    ) -> Steps[Answer | Lead]:
        try:
            begun = yield from self._take(request, flight, given, again)
        except BaseException:
            flight.fail()
            raise
        if isinstance(begun, Answer):
            flight.land(waiters_answer(begun))
        return begun

    def _take(
        self,
        request: CacheRequest,
        flight: Flight | None,
        given: Given,
        again: Callable[[CacheRequest], Any] | None,
    ) -> Steps[Answer | Lead]:
        """Serve what is stored, or lead; without a flight, other processes aren't asked whether they do already."""
        look = self._look(request)
        cleared = Cleared((yield from self._lookup(look)))
        took = self.clock() - look.started
        if self.trial and self.watches(request):
            cleared = Cleared(self.watch(request, cleared.decision))
        elif flight is not None and not request.only_if_cached:
            cleared = yield from self.clear(look, cleared.decision, given.tags)
        decision = cleared.decision
        if cleared.waited and isinstance(decision, Hit):
            self.metrics.count("waited", "waited")
            return Answer(decision.response, decision, waited=True)
        self._count(decision, took)
        if isinstance(decision, Hit):
            return self._served(request, again, given, decision)
        if request.only_if_cached:
            raise OnlyIfCachedError(
                f"nothing stored may be served ({decision.reason}), and only_if_cached was asked for"
            )
        return Lead(
            request,
            decision,
            given,
            started=self.clock(),
            flight=flight,
            lease=cleared.lease,
            keeper=self.keeper,
        )

    def _served(
        self,
        request: CacheRequest,
        again: Callable[[CacheRequest], Any] | None,
        given: Given,
        hit: Hit,
    ) -> Answer:
        share, left = self.policy.refresh_ahead, hit.ttl_left
        if again is not None and (
            hit.stale or (share is not None and left is not None and hit.age >= share * (hit.age + left))
        ):
            self.refresh_behind(request, again, given, hit)
        return Answer(hit.response, hit)

    def finish(self, lead: Lead, response: Response) -> Steps[Answer]:
        """Store the answer, and give it to those who wait whatever became of that."""
        try:
            answer = yield from self._finish(lead, response)
        except BaseException:
            lead.give_up()
            raise
        lead.land(answer)
        return answer

    def _finish(self, lead: Lead, response: Response) -> Steps[Answer]:
        decision, seconds = lead.decision, self.clock() - lead.started
        response = timed(response, seconds)
        self.metrics.took("model", seconds)
        self.metrics.count("calls", "model")
        if decision.fence is None and decision.reason in FAILURES:
            # Without a fence it can't be told what was invalidated while the model was thinking.
            outcome = decision.reason if decision.reason in STORE_OUTCOMES else "store_unavailable"
            self.metrics.count("stored", outcome)
            return Answer(response, decision, Stored(outcome))
        old = yield from self.replaced(lead.request, decision)
        same = None if old is None else (yield from self.agreement(old.response, response))
        stored = yield from self.put(
            lead.request, response, lead.given, fence=decision.fence, lease=lead.lease,
            stretch=self.stretch(old, same),
        )  # fmt: skip
        return Answer(response, decision, stored)
