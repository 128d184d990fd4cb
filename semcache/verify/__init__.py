"""Deciding whether two prompts ask the same: matchers, their calibration, verifiers."""

from semcache.verify.calibration import Calibration, FamilyCalibration, calibration_for
from semcache.verify.matcher import CalibratedMatcher, ThresholdMatcher

__all__ = ["CalibratedMatcher", "Calibration", "FamilyCalibration", "ThresholdMatcher", "calibration_for"]
