"""What explain reports when judging is slow."""

from __future__ import annotations

from typing import Any

from semcache import Policy, SemanticCache
from semcache.protocols import Judgement
from semcache.stores.memory import MemoryStore
from semcache.testing import TableEncoder


class _SlowAtFirst:
    """A matcher that takes ten seconds once, as one that loads its tables does."""

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock
        self.judged = 0

    def judge(self, query: str, stored: str, similarity: float, **_: Any) -> Judgement:
        self.judged += 1
        if self.judged == 1:
            self._clock[0] += 10.0
        return Judgement("verifier")


def test_a_candidate_that_had_to_be_judged_again_is_reported_once() -> None:
    clock = [100.0]
    matcher = _SlowAtFirst(clock)
    encoder = TableEncoder({"a": [1.0, 0.0], "b": [0.9, 0.1]})
    policy = Policy(deadline=60.0)
    with SemanticCache(
        store=MemoryStore(), encoder=encoder, matcher=matcher, policy=policy, clock=lambda: clock[0]
    ) as cache:
        cache.put("a", "answer")
        explanation = cache.explain("b")

    assert matcher.judged == 2
    assert [candidate.prompt for candidate in explanation.candidates] == ["a"]
