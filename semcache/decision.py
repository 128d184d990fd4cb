"""Pure: may this entry be served?

`liveness` asks whether an entry is alive at all, `decide` walks the candidates. The reasons are those
of `reasons.MISS_REASONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from semcache.protocols import Judgement
from semcache.types import CacheRequest, Candidate, Entry, Finding

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    """What the store said about time and generations before the entries were read.

    Attributes:
        epoch: The store's epoch.
        now_us: The store's clock, microseconds since the Unix epoch.
        floor_us: Entries fenced up to this moment are stale, whatever their tags.
        generations: Name → clock of its last raise, microseconds; 0 for never.
    """

    epoch: str
    now_us: int
    floor_us: int
    generations: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one candidate."""

    candidate: Candidate
    reason: str | None  # None: it may be served
    stale: bool = False
    probability: float | None = None
    detail: str = ""
    findings: tuple[Finding, ...] = ()


Judge = Callable[[Candidate, Sequence[float]], Judgement]
"""Judges the wording of a semantic candidate, given the similarities of the other candidates, best first."""


BESIDE = 0.02  # by how much less similar a candidate may be than the first that passes, and take its place


class Choice(Generic[T]):
    """Which of several that may be served is: the most probable one that is nearly as near as the first.

    They are offered in descending order of similarity.
    """

    def __init__(self) -> None:
        self.best: T | None = None
        self._probability = -math.inf
        self._least = -math.inf
        self._stale = False

    def is_over(self, similarity: float) -> bool:
        """Tell whether one of this similarity, and all behind it, come too late to be served."""
        return similarity < self._least

    def offer(self, one: T, similarity: float, probability: float | None, *, stale: bool = False) -> None:
        """Take note of one that passed.

        Args:
            stale: It is past its ttl: it never takes the place of one that isn't.
            probability: Its match probability; None from a matcher that knows none, where the first is served.
        """
        probability = 1.0 if probability is None else probability
        if self.best is None:
            self._least = similarity - BESIDE
        if probability > self._probability and (self.best is None or self._stale or not stale):
            self.best, self._probability, self._stale = one, probability, stale
        if self._probability >= 1.0:  # nothing is more probable
            self._least = math.inf


def liveness(entry: Entry, clock: Clock, generations: Sequence[str]) -> str | None:
    """Return why an entry is dead, None if it is alive. Expiry is judged by `freshness`.

    Args:
        generations: Names of all generations that the entry obeys; one that `clock` doesn't know is never
            taken for "not raised": it makes the entry stale.
    """
    if entry.state != "live":
        return "withdrawn"
    fence = entry.fence
    if fence.epoch != clock.epoch:
        return "epoch"
    if fence.time_us <= clock.floor_us:
        return "stale_tag"
    known = clock.generations
    for name in generations:
        raised = known.get(name)
        if raised is None or fence.time_us <= raised:
            return "stale_tag"
    return None


def freshness(
    entry: Entry, request: CacheRequest, now: float, stale_allowed: float
) -> tuple[str | None, bool]:
    """Return (reason or None, whether it is past its ttl but may be served stale).

    Args:
        now: The store's clock, seconds since the Unix epoch.
        stale_allowed: Seconds past the ttl for which it may still be served.
    """
    age = now - entry.created_at
    if request.max_age is not None and age > request.max_age:
        return "max_age", False
    if entry.ttl is not None and age >= entry.ttl:
        if age < entry.ttl + stale_allowed:
            return None, True
        return "expired", False
    return None, False


def decide(
    request: CacheRequest,
    scope: str,
    candidates: Sequence[Candidate],
    clock: Clock,
    *,
    generations: Sequence[Sequence[str]],
    blocked: frozenset[str],
    stale_allowed: float,
    judge: Judge | None,
    every: bool = False,
    beside: Sequence[float] = (),
) -> list[Verdict]:
    """Judge candidates in order until one may be served, and those that come nearly as near as that one.

    Args:
        scope: The request's scope; a candidate of another scope is never served.
        candidates: In descending order of similarity; an exact match first, with similarity 1.0.
        generations: For each candidate the names of the generations that it obeys.
        blocked: Names under which this text may be blocked for an entry: its digest, and the digest
            bound to the principal who asks.
        stale_allowed: Seconds past the ttl for which an entry may still be served.
        judge: Judges the wording of semantic candidates; None where all candidates are exact.
        every: Judge all, also after one passed (for explain).
        beside: Similarities of candidates that were judged before; they aren't judged again, but stay rivals.

    Returns:
        One verdict per candidate judged; `winner` tells which of them is to be served.
    """
    verdicts: list[Verdict] = []
    choice: Choice[Verdict] = Choice()
    for position, candidate in enumerate(candidates):
        if choice.is_over(candidate.similarity) and not every:
            break
        verdict = _why_dead(request, scope, candidate, clock, generations[position], blocked, stale_allowed)
        if verdict.reason is None and judge is not None:
            rivals = [rival.similarity for place, rival in enumerate(candidates) if place != position]
            rivals += beside
            judgement = judge(candidate, rivals)
            verdict = Verdict(
                candidate,
                judgement.reason,
                verdict.stale,
                judgement.probability,
                judgement.detail,
                judgement.findings,
            )
        verdicts.append(verdict)
        if verdict.reason is None:
            choice.offer(verdict, candidate.similarity, verdict.probability, stale=verdict.stale)
    return verdicts


def winner(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the verdict to be served, None if there is none; more may have been judged than a lookup judges."""
    choice: Choice[Verdict] = Choice()
    for verdict in verdicts:
        if choice.is_over(verdict.candidate.similarity):
            break
        if verdict.reason is None:
            choice.offer(verdict, verdict.candidate.similarity, verdict.probability, stale=verdict.stale)
    return choice.best


def _why_dead(
    request: CacheRequest,
    scope: str,
    candidate: Candidate,
    clock: Clock,
    generations: Sequence[str],
    blocked: frozenset[str],
    stale_allowed: float,
) -> Verdict:
    entry = candidate.entry
    if entry.scope != scope:
        return Verdict(candidate, "no_candidate", detail="the entry belongs to another scope")
    reason = liveness(entry, clock, generations)
    if reason is not None:
        return Verdict(candidate, reason)
    reason, stale = freshness(entry, request, clock.now_us / 1e6, stale_allowed)
    if reason is None and blocked and not entry.blocked.isdisjoint(blocked):
        reason = "blocked_text"
    return Verdict(candidate, reason, stale)


def tightened(threshold: float, observations: Sequence[tuple[float, bool]]) -> float:
    """Return an entry's own threshold: above every similarity at which it was found wrong.

    A later right verdict at the same or a lower similarity takes that back.

    Args:
        threshold: The threshold before.
        observations: (similarity, right), oldest first.
    """
    own = threshold
    for position, (similarity, right) in enumerate(observations):
        if right or any(r and s <= similarity for s, r in observations[position + 1 :]):
            continue
        own = max(own, min(1.0, similarity + 1e-3))
    return own


def state_finding(reason: str | None) -> Finding:
    """Report whether an entry is alive, where its words weren't judged: an exact match, or a dead entry."""
    if reason is None:
        return Finding("state", "pass", "live")
    return Finding("state", "refuse", reason, f"no threshold flips it: the entry itself is out ({reason})")


def flip(served: bool, findings: Sequence[Finding]) -> str:
    """Say what would turn a candidate's verdict round: all that refuses it, or which bounds it keeps."""
    if not served:
        return "; ".join(f"{f.rule}: {f.flip or f.detail}" for f in findings if f.verdict == "refuse")
    bounds = (f for f in findings if f.verdict == "pass" and f.rule in ("threshold", "probability"))
    return "; ".join(f"{f.rule}: {f.flip}" for f in bounds if f.flip)
