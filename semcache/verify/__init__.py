"""Deciding whether two prompts ask the same: matchers, their calibration, verifiers."""

from semcache.verify.calibration import Calibration, FamilyCalibration, calibration_for
from semcache.verify.matcher import CalibratedMatcher, ThresholdMatcher
from semcache.verify.verifiers import CrossEncoderVerifier, LLMJudgeVerifier

__all__ = [
    "CalibratedMatcher",
    "Calibration",
    "CrossEncoderVerifier",
    "FamilyCalibration",
    "LLMJudgeVerifier",
    "ThresholdMatcher",
    "calibration_for",
]
