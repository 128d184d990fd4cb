"""Matchers: decide whether two prompts ask the same, by guards and a calibrated probability.

Knows: the order of the questions (equal normal form, threshold, guards, probability) and how to
explain the outcome. Leaves to others: each rule, and the numbers. Pure; analyses are remembered,
which changes speed only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from semcache.guards import GUARDS, Comparison, analyse, compare
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse
from semcache.protocols import Judgement
from semcache.types import Finding, check_cosine
from semcache.verify import flips
from semcache.verify.calibration import Calibration, FamilyCalibration
from semcache.verify.features import REACH, descents, features

LONG: Final = 9  # tokens from which the near-copy gate applies
NEAR_COPY: Final = 0.65  # overlap from which it does
MOVED: Final = 0.2  # share of shared words in another order that it lets pass


@dataclass(frozen=True, slots=True)
class ThresholdMatcher:
    """Plain cosine: serves whatever is at least as similar as the threshold. The baseline.

    Args:
        threshold: Least cosine similarity of a hit, in [-1, 1], inclusive.
    """

    threshold: float

    def __post_init__(self) -> None:
        check_cosine("threshold", self.threshold)

    @property
    def floor(self) -> float:
        """Similarity below which nothing is accepted."""
        return self.threshold

    def judge(
        self,
        query: str,
        stored: str,
        similarity: float,
        *,
        threshold: float | None = None,
        rivals: Sequence[float] = (),
        size: int | None = None,
        answer_language: str | None = None,
        explain: bool = False,
    ) -> Judgement:
        """Judge one pair by its similarity alone; see `protocols.Matcher.judge`."""
        least = self.threshold if threshold is None else max(threshold, self.threshold)
        passed = similarity >= least
        detail = f"similarity {similarity:.4f}, threshold {least:.4f}"
        findings = (_threshold(similarity, least),) if explain else ()
        return Judgement(None if passed else "below_threshold", findings=findings, detail=detail)


@dataclass(frozen=True, slots=True)
class CalibratedMatcher:
    """Guards, then a calibrated probability.

    Args:
        calibration: Numbers of the encoder whose similarities are judged, see `calibration_for`.
        near_copy_gate: Refuse long texts that share nearly all their words yet aren't equal. For
            corpora of near copies; costs true hits on long prompts.
    """

    calibration: Calibration
    near_copy_gate: bool = False

    @property
    def floor(self) -> float:
        """Similarity below which no pair is worth reading: neither a match, nor the rival of one.

        Equal normal forms are closer than this.
        """
        return min(f.threshold - REACH * f.spread for f in self.calibration.families.values())

    def judge(
        self,
        query: str,
        stored: str,
        similarity: float,
        *,
        threshold: float | None = None,
        rivals: Sequence[float] = (),
        size: int | None = None,
        answer_language: str | None = None,
        explain: bool = False,
    ) -> Judgement:
        """Judge one pair; see `protocols.Matcher.judge`.

        Texts of equal normal form are accepted without regard to the similarity, unless the answer
        is known to be in another language.
        """
        a, b = analyse(query), analyse(stored)
        foreign = answer_language is not None and _foreign(a.language, answer_language)
        if foreign:
            detail = f"the prompt is {a.language}, the stored answer {answer_language}"
            flip = flips.of_guard("language", "refuse", detail)
            findings = (Finding("language", "refuse", detail, flip),) if explain else ()
            return Judgement("guard:language", findings=findings, detail=detail)
        if a.normal == b.normal and a.signs == b.signs:
            findings = (
                (Finding("normal_form", "pass", "equal normal form", "no threshold flips it"),)
                if explain
                else ()
            )
            return Judgement(None, 1.0, findings, "equal normal form")
        family = self._family(a.family, b.family)
        least = family.threshold if threshold is None else max(threshold, family.threshold)
        if not similarity >= least and not explain:  # NaN is refused too
            return Judgement("below_threshold", detail=f"similarity {similarity:.4f}, threshold {least:.4f}")
        comparison = compare(a, b)
        answered = answer_language is not None
        return self._decide(comparison, similarity, least, family, rivals, size, explain, answered)

    def _family(self, a: str, b: str) -> FamilyCalibration:
        families = self.calibration.families
        if a == b:
            return families[a]
        return max(families[a], families[b], key=lambda f: (f.threshold, f.probability))

    def _decide(
        self,
        c: Comparison,
        similarity: float,
        least: float,
        family: FamilyCalibration,
        rivals: Sequence[float],
        size: int | None,
        explain: bool,
        answered: bool,
    ) -> Judgement:
        findings: list[Finding] = []
        first: tuple[str, str] | None = None
        if not similarity >= least:
            first = ("below_threshold", f"similarity {similarity:.4f}, threshold {least:.4f}")
        if explain:
            differs = "the normal forms differ"
            findings.append(
                Finding("normal_form", "not_applicable", differs, "equal ones are served at any cosine")
            )
            findings.append(_threshold(similarity, least))
        for name, guard in GUARDS:
            if answered and name == "language":  # the answer's language was compared instead
                continue
            said = guard(c)
            if said.verdict == "refuse" and first is None:
                first = (f"guard:{name}", said.detail)
                if not explain:
                    break
            if explain:
                findings.append(
                    Finding(name, said.verdict, said.detail, flips.of_guard(name, said.verdict, said.detail))
                )
        if self.near_copy_gate and (explain or first is None):
            said = near_copy(c)
            if said.verdict == "refuse" and first is None:
                first = ("guard:near_copy", said.detail)
            if explain:
                flip = flips.of_guard("near_copy", said.verdict, said.detail)
                findings.append(Finding("near_copy", said.verdict, said.detail, flip))
        if first is not None and not explain:
            return Judgement(first[0], detail=first[1])

        def probable(cosine: float) -> float:
            return family.probability_of(features(c, cosine, rivals, family.spread, size))

        probability = probable(similarity) if math.isfinite(similarity) else 0.0
        enough = probability >= family.probability
        detail = f"match probability {probability:.3f}, least {family.probability:.3f}"
        if explain:
            flip = flips.of_probability(c, similarity, probable, family.probability)
            findings.append(Finding("probability", "pass" if enough else "refuse", detail, flip))
        if first is None and not enough:
            first = ("below_threshold", detail)
        if first is not None:
            return Judgement(first[0], probability, tuple(findings), first[1])
        return Judgement(None, probability, tuple(findings), detail)


def _threshold(similarity: float, least: float) -> Finding:
    verdict: Literal["pass", "refuse"] = "pass" if similarity >= least else "refuse"
    detail = f"similarity {similarity:.4f}, least {least:.4f}"
    return Finding("threshold", verdict, detail, flips.of_threshold(similarity, least))


def _foreign(asked: str, answer: str) -> bool:
    """Tell whether an answer's language (a BCP 47 tag) isn't the prompt's; unknown ones don't object."""
    primary = answer.split("-")[0].lower()
    return asked != "und" and primary not in ("", "und", asked)


def near_copy(c: Comparison) -> Verdict:
    """Refuse long texts that share most words, if much was moved, or some moved and some replaced."""
    shorter = min(len(c.a.keys), len(c.b.keys))
    if shorter < LONG or c.overlap < NEAR_COPY:
        return NOT_APPLICABLE
    moved = descents(c)
    if moved > MOVED:
        return refuse(f"{shorter} tokens or more that overlap by {c.overlap:.2f}, in another order")
    if moved > 0.0 and c.left_a and c.left_b:
        return refuse(
            f"{shorter} tokens or more that overlap by {c.overlap:.2f}, with words moved and replaced"
        )
    return PASS
