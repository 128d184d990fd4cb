"""A model of what may be served, against the cache: whatever is done in whatever order, nothing else is served."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from semcache import CacheRequest, Hit, Policy, SemanticCache
from semcache.stores.memory import MemoryStore
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher

PROMPTS = {"apple": [1.0, 0.0], "apples": [0.99, 0.141], "pear": [0.0, 1.0], "pears": [0.141, 0.99]}
prompts = st.sampled_from(list(PROMPTS))
tenants = st.sampled_from(["acme", "globex"])
tags = st.sets(st.sampled_from(["red", "green"]), max_size=2)


class World(RuleBasedStateMachine):
    """Two caches over one store with a clock of its own; `alive` is what the model says may be served."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000.0
        self.store = MemoryStore(clock=lambda: self.now)
        self.caches = [self.make(), self.make()]
        self.alive: dict[tuple[str, str], dict[str, Any]] = {}
        self.gone: dict[str, tuple[tuple[str, str], dict[str, Any]]] = {}  # withdrawn, and could be restored
        self.texts = (f"answer {number}" for number in itertools.count())
        self.fences: list[Any] = []

    def make(self) -> SemanticCache:
        return SemanticCache(
            store=self.store, encoder=TableEncoder(PROMPTS), matcher=ThresholdMatcher(0.9), clock=lambda: self.now,
            policy=Policy(deadline=30.0, local_bound=0.0, feedback_raters=2, breaker_failures=1000),
        )  # fmt: skip

    def request(self, prompt: str, tenant: str) -> CacheRequest:
        return CacheRequest(prompt, tenant=tenant, model="m")

    @rule(
        prompt=prompts,
        tenant=tenants,
        given_tags=tags,
        ttl=st.sampled_from([None, 5.0]),
        who=st.integers(0, 1),
    )
    def put(self, prompt: str, tenant: str, given_tags: set[str], ttl: float | None, who: int) -> None:
        text = next(self.texts)
        if self.caches[who].put(self.request(prompt, tenant), text, tags=given_tags, ttl=ttl):
            lives = 7 * 86400.0 if ttl is None else ttl
            self.gone = {i: (key, e) for i, (key, e) in self.gone.items() if key != (tenant, prompt)}
            self.alive[(tenant, prompt)] = {
                "text": text,
                "tags": given_tags,
                "until": self.now + lives,
                "raters": set(),
            }

    @rule(prompt=prompts, tenant=tenants)
    def note_a_fence(self, prompt: str, tenant: str) -> None:
        found = self.caches[0].lookup(self.request(prompt, tenant))
        if not isinstance(found, Hit):
            self.fences.append((prompt, tenant, found.fence))

    @rule(
        tag=st.sampled_from(["red", "green"]),
        tenant=st.sampled_from([None, "acme", "globex"]),
        who=st.integers(0, 1),
    )
    def invalidate_a_tag(self, tag: str, tenant: str | None, who: int) -> None:
        self.caches[who].invalidate(tags={tag}, tenant=tenant)

        def stays(key: tuple[str, str], entry: dict[str, Any]) -> bool:
            return tag not in entry["tags"] or (tenant is not None and key[0] != tenant)

        self.alive = {key: entry for key, entry in self.alive.items() if stays(key, entry)}
        self.gone = {i: (key, entry) for i, (key, entry) in self.gone.items() if stays(key, entry)}
        self.fences.clear()

    @rule(who=st.integers(0, 1))
    def invalidate_everything_and_put_late(self, who: int) -> None:
        self.caches[who].invalidate(everything=True)
        self.alive.clear()
        self.gone.clear()
        for prompt, tenant, fence in self.fences:
            assert not self.caches[who].put(self.request(prompt, tenant), "late", fence=fence)
        self.fences.clear()

    @rule(prompt=prompts, tenant=tenants, who=st.integers(0, 1))
    def withdraw_by_name(self, prompt: str, tenant: str, who: int) -> None:
        found = self.caches[who].lookup(self.request(prompt, tenant))
        if isinstance(found, Hit):
            self.caches[who].invalidate(entry_ids=[found.entry_id])
            self.gone[found.entry_id] = ((tenant, found.prompt), self.alive.pop((tenant, found.prompt)))

    @rule(who=st.integers(0, 1), prompt=prompts, tenant=tenants)
    def restore(self, who: int, prompt: str, tenant: str) -> None:
        """What was withdrawn comes back once, unless its tag or its time has ended it meanwhile."""
        found = self.caches[who].lookup(self.request(prompt, tenant))
        entry_id = found.entry_id if isinstance(found, Hit) else found.best_entry_id
        if entry_id is not None:
            key, entry = self.gone.pop(entry_id, (None, None))
            restored = self.caches[who].restore(entry_id)
            assert restored == (key is not None)
            if key is not None and entry is not None:
                self.alive[key] = {**entry, "raters": set()}

    @rule(prompt=prompts, tenant=tenants, rater=st.sampled_from("abc"), who=st.integers(0, 1))
    def reject(self, prompt: str, tenant: str, rater: str, who: int) -> None:
        found = self.caches[who].lookup(self.request(prompt, tenant))
        if isinstance(found, Hit) and found.match == "exact":
            entry = self.alive[(tenant, prompt)]
            entry["raters"].add(rater)
            result = self.caches[who].feedback(found.lookup_id, -1, rater=rater, about="answer")
            assert (result.action == "withdrawn") == (len(entry["raters"]) >= 2)
            if result.action == "withdrawn":
                self.gone[found.entry_id] = ((tenant, prompt), self.alive.pop((tenant, prompt)))

    @rule(seconds=st.sampled_from([1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.alive = {key: entry for key, entry in self.alive.items() if entry["until"] > self.now}
        self.gone = {i: (key, entry) for i, (key, entry) in self.gone.items() if entry["until"] > self.now}
        for entry in self.alive.values():
            entry["raters"] = set(entry["raters"])

    @rule(who=st.integers(0, 1))
    def restart(self, who: int) -> None:
        self.caches[who]._core.encoder.close()
        self.caches[who] = self.make()

    @invariant()
    def nothing_else_is_served(self) -> None:
        for cache in self.caches:
            for tenant in ("acme", "globex"):
                for prompt in PROMPTS:
                    found = cache.lookup(self.request(prompt, tenant))
                    entry = self.alive.get((tenant, prompt))
                    if entry is not None:
                        assert isinstance(found, Hit)
                        assert found.text == entry["text"]
                    elif isinstance(found, Hit):
                        served = self.alive.get((tenant, found.prompt))
                        assert served is not None
                        assert served["text"] == found.text

    def teardown(self) -> None:
        for cache in self.caches:
            cache.close()


World.TestCase.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestWorld = World.TestCase
