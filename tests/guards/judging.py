"""Judges pairs with the default encoder's cosines and the defaults."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semcache.encoders import default_encoder
from semcache.verify import CalibratedMatcher, calibration_for

ENCODER = default_encoder()
MATCHER = CalibratedMatcher(calibration_for(ENCODER.fingerprint))


def similarities(pairs: list[tuple[str, str]]) -> NDArray[np.float32]:
    """Return the cosine of each pair, in [-1, 1]."""
    stored, asked = (ENCODER.encode([pair[side] for pair in pairs]) for side in (0, 1))
    found: NDArray[np.float32] = np.clip(np.einsum("ij,ij->i", stored, asked), -1.0, 1.0)
    return found


def served(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those pairs (stored, asked) of which the second is served the first one's answer."""
    judged = zip(pairs, similarities(pairs), strict=True)
    return [pair for pair, s in judged if MATCHER.judge(pair[1], pair[0], float(s)).reason is None]
