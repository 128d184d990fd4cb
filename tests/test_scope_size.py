"""The matcher is told how many prompts the scope holds, by a cache and by `evaluate` alike."""

from __future__ import annotations

import asyncio
from typing import Any

from semcache import AsyncSemanticCache, CacheRequest, Policy, SemanticCache
from semcache.evaluate import Vectors, replay
from semcache.evaluate_rows import Request
from semcache.protocols import Judgement
from semcache.stores.memory import AsyncMemoryStore, MemoryStore
from semcache.testing import TableEncoder

TABLE = {"a": [1.0, 0.0], "b": [0.9, 0.1], "c": [0.8, 0.2], "d": [0.7, 0.3], "e": [0.6, 0.4]}
PATIENT = Policy(deadline=30.0)


class _Sizes:
    """A matcher that refuses everything and remembers the sizes it was told."""

    def __init__(self) -> None:
        self.told: list[int | None] = []

    def judge(
        self, query: str, stored: str, similarity: float, *, size: int | None = None, **_: Any
    ) -> Judgement:
        self.told.append(size)
        return Judgement("verifier")


def test_a_lookup_tells_how_many_prompts_its_scope_holds() -> None:
    matcher = _Sizes()
    with SemanticCache(
        store=MemoryStore(), encoder=TableEncoder(TABLE), matcher=matcher, policy=PATIENT
    ) as cache:
        for prompt in ("a", "b", "c"):
            cache.put(prompt, "answer")
        cache.put(CacheRequest("e", tenant="another"), "answer")
        cache.lookup("d")

    assert matcher.told == [3, 3, 3]


def test_an_awaited_lookup_tells_the_same() -> None:
    matcher = _Sizes()

    async def main() -> None:
        async with AsyncSemanticCache(
            store=AsyncMemoryStore(), encoder=TableEncoder(TABLE), matcher=matcher, policy=PATIENT
        ) as cache:
            for prompt in ("a", "b"):
                await cache.put(prompt, "answer")
            await cache.lookup("d")

    asyncio.run(main())

    assert matcher.told == [2, 2]


def test_a_replay_tells_how_many_prompts_it_has_stored() -> None:
    matcher = _Sizes()
    replay([Request(text, text) for text in "abca"], Vectors(TableEncoder(TABLE)), matcher)

    assert matcher.told == [1, 2, 2]
