"""The walk over the candidates: who is judged, with which rivals, and when it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache.decision import BESIDE, Choice, Clock, Verdict, decide, winner
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


def judged(told: dict[float, float | None], *, every: bool = False) -> list[Verdict]:
    """Walk over candidates of these similarities, which pass with these probabilities; None refuses."""

    def judge(one: Candidate, rivals: object) -> Judgement:
        probability = told[one.similarity]
        return Judgement("guard:number" if probability is None else None, probability)

    candidates = [candidate(str(similarity), similarity) for similarity in sorted(told, reverse=True)]
    return decide(
        CacheRequest("q"), "s", candidates, Clock("e", 200_000_000, 0, {}), generations=[[]] * len(candidates),
        blocked=frozenset(), stale_allowed=0.0, judge=judge, every=every,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("told", "asked", "served"),
    [
        pytest.param({0.9: 0.7, 0.885: 0.9, 0.87: 0.99}, 2, 0.885, id="a more probable one close behind"),
        pytest.param({0.9: 0.9, 0.89: 0.7, 0.885: None}, 3, 0.9, id="none is more probable"),
        pytest.param({0.9: 0.8, 0.89: 0.8}, 2, 0.9, id="equal ones: the nearer"),
        pytest.param({0.9: 1.0, 0.89: 1.0}, 1, 0.9, id="nothing is more probable than an equal text"),
        pytest.param({0.95: None, 0.9: 0.6, 0.885: 0.7, 0.87: 0.9}, 3, 0.885, id="counted from the first that passes"),
        pytest.param({0.9: None}, 1, None, id="none passes"),
    ],
)  # fmt: skip
def test_the_most_probable_of_those_nearly_as_near_as_the_first_is_served(
    told: dict[float, float | None], asked: int, served: float | None
) -> None:
    verdicts = judged(told)
    best = winner(verdicts)

    assert len(verdicts) == asked
    assert (None if best is None else best.candidate.similarity) == served


@given(told=st.dictionaries(st.floats(0.5, 1.0), st.none() | st.floats(0.5, 1.0), min_size=1, max_size=8))
def test_what_is_judged_for_a_report_alone_changes_nothing(told: dict[float, float | None]) -> None:
    served, reported = winner(judged(told)), winner(judged(told, every=True))

    assert (served and served.candidate.similarity) == (reported and reported.candidate.similarity)


@given(told=st.lists(st.tuples(st.floats(0.5, 1.0), st.floats(0.5, 1.0)), min_size=1, max_size=8))
def test_no_choice_is_farther_behind_than_allowed(told: list[tuple[float, float]]) -> None:
    choice: Choice[float] = Choice()
    nearest = max(similarity for similarity, _ in told)
    for similarity, probability in sorted(told, reverse=True):
        if choice.is_over(similarity):
            break
        choice.offer(similarity, similarity, probability)

    assert choice.best is not None
    assert choice.best >= nearest - BESIDE


@pytest.mark.parametrize(
    ("offered", "served"),
    [
        pytest.param([(0.6, False), (0.9, True)], 0, id="a stale one doesn't take a fresh one's place"),
        pytest.param([(0.6, True), (0.9, True)], 1, id="of stale ones the most probable"),
        pytest.param([(0.6, True), (0.9, False)], 1, id="a fresh one that is more probable"),
        pytest.param([(0.9, True), (0.6, False)], 0, id="a fresh one that is less probable and farther"),
        pytest.param([(0.6, False), (1.0, True), (0.7, False)], 2, id="the walk goes on behind a stale one"),
    ],
)
def test_a_stale_candidate_never_takes_the_place_of_a_fresh_one(
    offered: list[tuple[float, bool]], served: int
) -> None:
    choice: Choice[int] = Choice()
    for place, (probability, stale) in enumerate(offered):
        similarity = 0.9 - place / 1000
        assert not choice.is_over(similarity)
        choice.offer(place, similarity, probability, stale=stale)

    assert choice.best == served
