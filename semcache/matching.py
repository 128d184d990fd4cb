"""Which matcher goes with an encoder and a policy; and the plain one, which knows only cosine."""

from __future__ import annotations

from semcache.policy import Policy
from semcache.protocols import Judgement, Matcher
from semcache.types import Finding

STRICT = 0.92
TOLERANCE = 1e-6  # two runs of one encoder differ by this much


class ThresholdMatcher:
    """Cosine similarity against a threshold, and nothing else.

    Args:
        threshold: Least similarity of a hit, in [-1, 1], inclusive.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self.floor = threshold - TOLERANCE

    def judge(
        self,
        query: str,
        stored: str,
        similarity: float,
        *,
        threshold: float | None = None,
        runner_up: float | None = None,
        answer_language: str | None = None,
        explain: bool = False,
    ) -> Judgement:
        """Judge one pair; see `protocols.Matcher`."""
        least = self._threshold if threshold is None else max(threshold, self._threshold)
        passes = similarity >= least - TOLERANCE
        detail = f"similarity {similarity:.4f}, needed {least:.4f}"
        finding = Finding("threshold", "pass" if passes else "refuse", detail)
        return Judgement(None if passes else "below_threshold", None, (finding,) if explain else (), detail)


def default_matcher(fingerprint: str, policy: Policy) -> Matcher:
    """Return the matcher that a policy and an encoder ask for."""
    return ThresholdMatcher(STRICT if policy.threshold is None else policy.threshold)
