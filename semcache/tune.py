"""Fits a calibration for one encoder on labelled pairs. Pure but for reading the files.

Knows: how to fit the few weights near those of a prior, and how to choose the least probability and
similarity under a bound on wrong hits. Leaves to others: features, guards, and measuring the result.

The weights are fitted by penalised logistic regression (Newton's method), drawn towards the prior, so
that few pairs change little. Pairs that a guard refuses take no part: it decides without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semcache.errors import ConfigurationError
from semcache.evaluate import Vectors
from semcache.evaluate_rows import Row, read_rows, schema_of
from semcache.guards import GUARDS, analyse, compare
from semcache.protocols import Encoder
from semcache.verify.calibration import FAMILIES, FEATURES, Calibration, FamilyCalibration, calibration_for
from semcache.verify.features import features

LEAST_ROWS: Final = 50  # of each label, below which a family keeps the prior
STRENGTH: Final = 20.0  # pull towards the prior's weights, in rows
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of one family that neither an equal normal form nor a guard decided."""

    features: Floats  # (n, len(FEATURES))
    same: Floats  # (n,), 0 or 1
    right_without: int  # same=1 rows that an equal normal form decided
    refused_wrong: int  # same=0 rows that a guard decided


def tune(
    paths: Sequence[Path | str], encoder: Encoder, *, most_wrong: float = 0.02, fit_weights: bool = True
) -> Calibration:
    """Fit a calibration on files of labelled pairs.

    Args:
        most_wrong: Greatest share of same=0 pairs that may be served, in [0, 1].
        fit_weights: Whether to fit the weights too, or only where to cut.

    Returns:
        A calibration for this encoder; families with too few pairs keep the prior's numbers.

    Raises:
        ConfigurationError: A file holds no labelled pairs, or `most_wrong` is out of range.
    """
    if not 0.0 <= most_wrong <= 1.0:
        raise ConfigurationError(f"most_wrong is {most_wrong!r}, expected a share in [0, 1]")
    rows: list[Row] = []
    for path in map(Path, paths):
        found = read_rows(path)
        if schema_of(found) != "pairs":
            raise ConfigurationError(
                f"{path}: found {schema_of(found)}, expected labelled pairs (a, b, same)"
            )
        rows += found
    prior = calibration_for(encoder.fingerprint)
    families = {}
    fitted = []
    for name, pairs in _by_family(rows, Vectors(encoder)).items():
        start = prior.families[name]
        if min(pairs.same.sum(), (1 - pairs.same).sum()) < LEAST_ROWS:
            families[name] = start
            continue
        families[name] = _fit(pairs, start, most_wrong, fit_weights)
        fitted.append(f"{name} on {len(pairs.same)} pairs")
    return Calibration(
        fingerprint=encoder.fingerprint,
        families=families,
        calibrated=prior.calibrated or bool(fitted),
        note=f"tuned for at most {most_wrong:g} wrong: "
        + (", ".join(fitted) or "too few pairs, nothing changed"),
    )


def _by_family(rows: Sequence[Row], vectors: Vectors) -> dict[str, _Pairs]:
    embeddings = vectors.of([str(row[side]) for row in rows for side in ("a", "b")])
    similarities = np.einsum("ij,ij->i", embeddings[0::2], embeddings[1::2])
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in FAMILIES}
    labels: dict[str, list[int]] = {name: [] for name in FAMILIES}
    right, refused = dict.fromkeys(FAMILIES, 0), dict.fromkeys(FAMILIES, 0)
    for row, similarity in zip(rows, similarities, strict=True):
        a, b = analyse(str(row["a"])), analyse(str(row["b"]))
        if a.family != b.family:
            continue
        same = int(row["same"])
        if a.normal == b.normal:
            right[a.family] += same
            continue
        comparison = compare(a, b)
        if any(guard(comparison).verdict == "refuse" for _, guard in GUARDS):
            refused[a.family] += 1 - same
            continue
        found[a.family].append(features(comparison, float(similarity), ()))
        labels[a.family].append(same)
    return {
        name: _Pairs(
            np.array(found[name], dtype=np.float64).reshape(-1, len(FEATURES)),
            np.array(labels[name], dtype=np.float64),
            right[name],
            refused[name],
        )
        for name in FAMILIES
    }


def _fit(pairs: _Pairs, prior: FamilyCalibration, most_wrong: float, fit_weights: bool) -> FamilyCalibration:
    weights = np.array([prior.bias, *prior.weights])
    if fit_weights:
        weights = fit_logistic(pairs.features, pairs.same, weights, STRENGTH)
    probability = 1.0 / (1.0 + np.exp(-(weights[0] + pairs.features @ weights[1:])))
    wrong = np.sort(probability[pairs.same == 0])[::-1]
    allowed = int(most_wrong * (len(wrong) + pairs.refused_wrong))
    cut = 0.0 if allowed >= len(wrong) else float(np.nextafter(wrong[allowed], 1.0))
    kept = pairs.features[(pairs.same == 1) & (probability >= cut), 0]
    floor = float(np.floor(100 * kept.min()) / 100) if len(kept) else prior.threshold
    return replace(
        prior,
        threshold=max(-1.0, min(1.0, floor)),
        probability=min(1.0, cut),
        bias=float(weights[0]),
        weights=tuple(float(w) for w in weights[1:]),
    )


def fit_logistic(x: Floats, y: Floats, prior: Floats, strength: float, *, steps: int = 50) -> Floats:
    """Return weights (bias first) that maximise the likelihood less `strength`/2 times the squared distance to `prior`.

    The bias is free. A weight whose feature never varies stays at the prior.
    """
    design = np.column_stack([np.ones(len(x)), x])
    pull = np.full(design.shape[1], strength)
    pull[0] = 1e-6
    weights = prior.astype(np.float64).copy()
    for _ in range(steps):
        p = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -30, 30)))
        gradient = design.T @ (y - p) - pull * (weights - prior)
        curvature = (design * (p * (1 - p))[:, None]).T @ design + np.diag(pull)
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-8:
            break
    return weights
