"""A model of what may be served, against the cache: whatever is done in whatever order, nothing else is served."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from semcache import CacheRequest, Hit, Policy, SemanticCache
from semcache.stores.memory import MemoryStore
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher

PROMPTS = {"apple": [1.0, 0.0], "apples": [0.99, 0.141], "pear": [0.0, 1.0], "pears": [0.141, 0.99]}
prompts = st.sampled_from(list(PROMPTS))
tenants = st.sampled_from(["acme", "globex"])
places = st.integers(0, 7)
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
        self.ended: dict[str, tuple[str, str]] = {}  # withdrawn, and ended by a tag or by time since
        self.texts = (f"answer {number}" for number in itertools.count())
        self.fences: list[Any] = []

    def make(self) -> SemanticCache:
        return SemanticCache(
            store=self.store, encoder=TableEncoder(PROMPTS), matcher=ThresholdMatcher(0.9), clock=lambda: self.now,
            policy=Policy(deadline=30.0, local_bound=0.0, feedback_raters=2, breaker_failures=1000),
        )  # fmt: skip

    def request(self, prompt: str, tenant: str) -> CacheRequest:
        return CacheRequest(prompt, tenant=tenant, model="m")

    @initialize(given_tags=st.lists(tags, min_size=8, max_size=8))
    def fill(self, given_tags: list[set[str]]) -> None:
        """Begin with an answer to everything: what is withdrawn must have been there."""
        for number, (tenant, prompt) in enumerate(itertools.product(("acme", "globex"), PROMPTS)):
            self.put(prompt, tenant, given_tags[number], None, number % 2)

    def one_alive(self, place: int) -> tuple[str, str] | None:
        """Pick (tenant, prompt) of an entry that may be served."""
        return sorted(self.alive)[place % len(self.alive)] if self.alive else None

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
            for entry_id in [i for i, (key, _) in self.gone.items() if key == (tenant, prompt)]:
                del self.gone[entry_id]
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
        self.end(lambda key, entry: not stays(key, entry))
        self.fences.clear()

    @rule(who=st.integers(0, 1))
    def invalidate_everything_and_put_late(self, who: int) -> None:
        self.caches[who].invalidate(everything=True)
        self.alive.clear()
        self.end(lambda key, entry: True)
        for prompt, tenant, fence in self.fences:
            assert not self.caches[who].put(self.request(prompt, tenant), "late", fence=fence)
        self.fences.clear()

    @rule(place=places, who=st.integers(0, 1))
    def withdraw_by_name(self, place: int, who: int) -> None:
        key = self.one_alive(place)
        if key is not None:
            found = self.caches[who].lookup(self.request(key[1], key[0]))
            assert isinstance(found, Hit)
            self.caches[who].invalidate(entry_ids=[found.entry_id])
            self.gone[found.entry_id] = (key, self.alive.pop(key))

    def end(self, ended: Callable[[tuple[str, str], dict[str, Any]], bool]) -> None:
        """Note which of the withdrawn entries can't be restored any more."""
        for entry_id in [i for i, (key, entry) in self.gone.items() if ended(key, entry)]:
            self.ended[entry_id] = self.gone.pop(entry_id)[0]

    @rule(who=st.integers(0, 1), place=places)
    def restore(self, who: int, place: int) -> None:
        """What was withdrawn comes back once, unless its tag or its time has ended it meanwhile."""
        names = {entry_id: key for entry_id, (key, _) in self.gone.items()} | self.ended
        known = sorted(names, key=lambda entry_id: names[entry_id])  # by name: ids differ from run to run
        if known:
            entry_id = known[place % len(known)]
            key, entry = self.gone.pop(entry_id, (None, None))
            restored = self.caches[who].restore(entry_id)
            assert restored == (key is not None)
            if key is not None and entry is not None:
                self.alive[key] = {**entry, "raters": set()}

    @rule(place=places, rater=st.sampled_from("abc"), who=st.integers(0, 1))
    def reject(self, place: int, rater: str, who: int) -> None:
        key = self.one_alive(place % 2)  # of two, so that verdicts meet
        if key is not None:
            found = self.caches[who].lookup(self.request(key[1], key[0]))
            assert isinstance(found, Hit)
            entry = self.alive[key]
            entry["raters"].add(rater)
            result = self.caches[who].feedback(found.lookup_id, -1, rater=rater, about="answer")
            assert (result.action == "withdrawn") == (len(entry["raters"]) >= 2)
            if result.action == "withdrawn":
                self.gone[found.entry_id] = (key, self.alive.pop(key))

    @rule(seconds=st.sampled_from([1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.alive = {key: entry for key, entry in self.alive.items() if entry["until"] > self.now}
        self.end(lambda key, entry: entry["until"] <= self.now)
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
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestWorld = World.TestCase
