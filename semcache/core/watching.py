"""Shadow and split: requests that are only watched, and whether what would have been served agrees with the model."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from semcache import trial
from semcache.core.state import State
from semcache.errors import StoreUnavailableError
from semcache.eviction import tokens_of
from semcache.freshness import agree, same_answer
from semcache.steps import Compute, Steps
from semcache.types import CacheRequest, Decision, Fence, Hit, Miss, Response

log = logging.getLogger(__name__)

MAX_KEPT = 1000  # hits that are kept back and wait for the model's answer


class Watching(State):
    """What is done with requests that the policy's mode keeps from being served."""

    def watches(self, request: CacheRequest) -> bool:
        """Return whether a request is watched only; ask after `self.trial`."""
        known: bool | None = request._memo.get(self.trial_key)
        if known is not None:
            return known
        watched = self.policy.mode == "shadow"
        if not watched:
            identity = self.identify(request)
            if request.user is None and identity is None:
                return True  # nothing is served before the namespace's secret is known
            name = (
                f"text:{identity.entry_id}" if request.user is None and identity else f"user:{request.user}"
            )
            watched = not trial.serves(self.namespace, name, self.policy.share)
        request._memo[self.trial_key] = watched
        return watched

    def watch(self, request: CacheRequest, decision: Decision) -> Decision:
        """Keep a hit back, and remember it for the comparison with the model's answer."""
        if isinstance(decision, Miss):
            if not decision.reason.startswith("bypass:"):
                self.metrics.count("shadow", "misses")
            return decision
        self.metrics.count("shadow", "hits")
        identity = self.identify(request)
        if identity is not None and decision.fence is not None:
            with self.lock:
                self.kept_back[identity.entry_id, decision.fence] = decision
                while len(self.kept_back) > MAX_KEPT:
                    self.kept_back.popitem(last=False)
        return Miss(
            "bypass:shadow", decision.fence, decision.similarity, decision.entry_id, decision.prompt,
            "an answer was found, and the policy's mode keeps it from being served",
        )  # fmt: skip

    def held(self, request: CacheRequest, fence: Fence | None) -> Hit | None:
        """Return, once, the hit that the lookup with this fence kept back."""
        identity = self.identify(request)
        if identity is None or fence is None:
            return None
        with self.lock:
            return self.kept_back.pop((identity.entry_id, fence), None)

    def compare(self, hit: Hit, response: Response) -> Steps[None]:
        """Count whether the answer that was kept back agrees with the model's, and what it would have saved."""
        same = yield from self.agreement(hit.response, response)
        self.metrics.count("shadow", "unjudged" if same is None else "agreed" if same else "differed")
        tokens = tokens_of(response.usage) or tokens_of(hit.response.usage) or 0.0
        self.metrics.count("shadow", "tokens", round(tokens))
        self.metrics.count("shadow", "model_ms", round(response.latency_ms or hit.response.latency_ms or 0.0))

    def agreement(self, old: Response, new: Response) -> Steps[bool | None]:
        """Return whether two answers say the same, by the policy's measure; None if that fails."""
        measure = self.policy.same_answer
        if measure is same_answer:
            return agree(old, new, measure)
        try:
            found: bool = yield Compute(lambda: agree(old, new, measure))
        except Exception as error:  # noqa: BLE001 - the measure is the caller's, and an answer was paid for
            self.metrics.count("failures", "same_answer")
            log.warning("Policy.same_answer failed: %s", type(error).__name__)
            return None
        return found

    def report(self) -> Steps[None]:
        """Add what was watched since the last time to the namespace's totals."""
        if not self.trial:
            return
        news = self._news()
        if not news:
            return
        try:
            yield self._ask("tally", news, timeout=1.0)
        except (StoreUnavailableError, TimeoutError):
            self.metrics.count("failures", "shadow")
            with self.lock:
                for label, number in news.items():
                    self.reported[label] -= number

    def _news(self) -> Mapping[str, int]:
        with self.lock:
            counts = self.metrics.counts("shadow")
            news = {
                label: n - self.reported[label] for label, n in counts.items() if n > self.reported[label]
            }
            for label, number in news.items():
                self.reported[label] += number
            return news
