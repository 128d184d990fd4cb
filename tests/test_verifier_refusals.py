"""What a verifier refuses stays a rival of the others, in a lookup as in its report."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from semcache import AsyncSemanticCache, Hit, Miss, SemanticCache
from semcache.protocols import Judgement
from semcache.stores.memory import AsyncMemoryStore, MemoryStore
from semcache.testing import TableEncoder

TABLE = {"asked": [1.0, 0.0], "near": [0.995, 0.1], "nearer": [0.999, 0.045], "behind": [0.9, 0.436]}


class _Crowded:
    """A matcher that accepts what has at most `most` rivals, the later stored prompt more probably."""

    def __init__(self, most: int) -> None:
        self.most = most

    def judge(
        self, query: str, stored: str, similarity: float, *, rivals: Sequence[float] = (), **_: Any
    ) -> Judgement:
        probability = {"nearer": 0.6, "near": 0.9, "behind": 0.7}[stored]
        allowed = self.most if stored == "behind" else 9
        return Judgement(None if len(rivals) <= allowed else "below_threshold", probability)


class _Refuses:
    """A verifier that refuses these prompts."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.asked: list[str] = []

    def verify(self, query: str, stored: str, response: str, *, deadline_s: float) -> float:
        self.asked.append(stored)
        return 0.0 if stored in self.refused else 1.0


@pytest.mark.parametrize(
    ("most", "refused", "served"),
    [
        pytest.param(9, (), "near", id="the most probable"),
        pytest.param(9, ("near",), "nearer", id="the next probable"),
        pytest.param(9, ("near", "nearer"), "behind", id="the one behind"),
        pytest.param(1, ("near", "nearer"), None, id="the one behind, too crowded"),
        pytest.param(9, ("near", "nearer", "behind"), None, id="none"),
    ],
)
def test_what_a_verifier_refused_remains_a_rival(
    most: int, refused: tuple[str, ...], served: str | None
) -> None:
    def open_cache(kind: Any, store: Any) -> Any:
        return kind(
            store=store, encoder=TableEncoder(TABLE), matcher=_Crowded(most), verifier=_Refuses(*refused)
        )

    async def awaited() -> Any:
        async with open_cache(AsyncSemanticCache, AsyncMemoryStore()) as cache:
            for prompt in ("near", "nearer", "behind"):
                await cache.put(prompt, prompt)
            return await cache.lookup("asked"), await cache.explain("asked")

    with open_cache(SemanticCache, MemoryStore()) as cache:
        for prompt in ("near", "nearer", "behind"):
            cache.put(prompt, prompt)
        found = (cache.lookup("asked"), cache.explain("asked"))

    for decision, report in (found, asyncio.run(awaited())):
        for said in (decision, report.decision):
            assert (said.text if isinstance(said, Hit) else None) == served
            if isinstance(said, Miss):
                assert said.best_prompt == "nearer"
        assert [c.prompt for c in report.candidates] == ["nearer", "near", "behind"]
