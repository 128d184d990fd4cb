"""Which matcher goes with an encoder and a policy."""

from __future__ import annotations

from dataclasses import replace

from semcache.policy import Policy
from semcache.protocols import Matcher
from semcache.verify import CalibratedMatcher, Calibration, ThresholdMatcher, calibration_for


def default_matcher(fingerprint: str, policy: Policy) -> Matcher:
    """Return the matcher that a policy and an encoder ask for.

    A threshold of the policy's replaces the calibrated one, and the calibrated probability with it; the
    guards stay on unless the policy turns them off.
    """
    calibration = calibration_for(fingerprint)
    if not policy.guards:
        strictest = max(family.threshold for family in calibration.families.values())
        return ThresholdMatcher(strictest if policy.threshold is None else policy.threshold)
    return CalibratedMatcher(
        calibration if policy.threshold is None else at_threshold(calibration, policy.threshold)
    )


def at_threshold(calibration: Calibration, threshold: float) -> Calibration:
    """Return a calibration that asks for this cosine similarity and leaves the rest to the guards."""
    families = {
        name: replace(family, threshold=threshold, probability=0.0)
        for name, family in calibration.families.items()
    }
    return replace(calibration, families=families)
