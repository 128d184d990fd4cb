"""The walk over the candidates: who is judged, with which rivals, and when it ends."""

from __future__ import annotations

from semcache.decision import Clock, decide
from semcache.protocols import Judgement
from semcache.types import CacheRequest, Candidate, Entry, Fence, Response


def candidate(name: str, similarity: float) -> Candidate:
    entry = Entry(
        entry_id=f"m/v/{name}", prompt=name, response=Response("x"), scope="s", revision=1, created_at=100.0, ttl=None,
        state="live", fence=Fence("e", 10),
    )  # fmt: skip
    return Candidate(entry, similarity)


def test_a_candidate_has_all_others_for_rivals_the_refused_ones_before_it_too() -> None:
    asked: list[tuple[float, list[float]]] = []

    def judge(one: Candidate, rivals: object) -> Judgement:
        asked.append((one.similarity, list(rivals)))  # type: ignore[call-overload]
        return Judgement("guard:number" if one.similarity > 0.85 else None)

    verdicts = decide(
        CacheRequest("q"), "s", [candidate(n, s) for n, s in (("a", 0.95), ("b", 0.9), ("c", 0.8), ("d", 0.7))],
        Clock("e", 200_000_000, 0, {}), generations=[[]] * 4, blocked=frozenset(), stale_allowed=0.0, judge=judge,
    )  # fmt: skip

    assert asked == [(0.95, [0.9, 0.8, 0.7]), (0.9, [0.95, 0.8, 0.7]), (0.8, [0.95, 0.9, 0.7])]
    assert [v.reason for v in verdicts] == ["guard:number", "guard:number", None]
