"""Fit the weights of a calibration on data that may ship, and compare them with the hand-set ones.

    python tools/fit_calibration.py --out fitted.json

Learns from rows under licences A and B alone: the training file (`train/train_pairs.jsonl.gz` beside the evaluation
data; so many rows per source, language and label), and the questions and requests written for this project
(`training/written`). Fits the weights by penalised logistic regression, without a prior, on pairs that neither an equal
normal form nor a guard decides. Then reads the tenth of the evaluation data that is kept aside and prints, per file, how
well the hand-set and the fitted weights order those pairs, and how many right ones each keeps where both serve as many
wrong ones as the hand-set one. Fixed seed; the same data give the same file.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from semcache.evaluate import Vectors  # noqa: E402
from semcache.evaluate_rows import Row, read_rows  # noqa: E402
from semcache.guards import GUARDS, analyse, compare  # noqa: E402
from semcache.tune import fit_logistic  # noqa: E402
from semcache.verify.calibration import FEATURES, Calibration, calibration_for  # noqa: E402
from semcache.verify.features import features  # noqa: E402
from tools.measure_matching import DATA, is_aside, rows_of  # noqa: E402
from training import grammar, own  # noqa: E402

SEED = 6
STRENGTH = 1.0  # pull of the weights towards 0, in rows
COMPARED = [
    ("pairs_qqp", ""),
    ("pairs_slots", ""),
    ("pairs_adversarial", ""),
    ("pairs_zh", "lcqmc"),
    ("pairs_zh", "oppo-xiaobu"),
]
Floats = NDArray[np.float64]


def shippable(per_source: int) -> list[Row]:
    """Return labelled rows whose text may ship."""
    rng = random.Random(SEED)
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in read_rows(DATA / "train" / "train_pairs.jsonl.gz"):
        groups[str(row["lang"]), str(row["source"]), int(row["same"])].append(row)
    rows = [
        row for key in sorted(groups) for row in rng.sample(groups[key], min(per_source, len(groups[key])))
    ]
    written = own.written_rows(SEED)
    made = grammar.rows(SEED, 4 * per_source)
    for pair in (*written[0], *written[1], *made[0], *made[1]):
        rows.append({"a": pair.a, "b": pair.b, "same": pair.same, "lang": "en", "source": "own"})
    return rows


def undecided(rows: Sequence[Row], vectors: Vectors) -> dict[str, tuple[Floats, Floats]]:
    """Return (features, labels) by family, of pairs that neither an equal normal form nor a guard decides."""
    embeddings = vectors.of([str(row[side]) for row in rows for side in ("a", "b")])
    similarities = np.einsum("ij,ij->i", embeddings[0::2], embeddings[1::2])
    found: dict[str, tuple[list[tuple[float, ...]], list[int]]] = defaultdict(lambda: ([], []))
    for row, similarity in zip(rows, similarities, strict=True):
        a, b = analyse(str(row["b"])), analyse(str(row["a"]))
        if a.normal == b.normal or a.family != b.family or similarity == 0.0:
            continue
        c = compare(a, b)
        if not any(guard(c).verdict == "refuse" for _, guard in GUARDS):
            found[a.family][0].append(features(c, float(similarity), ()))
            found[a.family][1].append(int(row["same"]))
    return {name: (np.array(x), np.array(y, dtype=np.float64)) for name, (x, y) in found.items()}


def auc(scores: Floats, same: Floats) -> float:
    """Return the chance that a pair that asks the same scores above one that doesn't."""
    order = scores.argsort(kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    right = int(same.sum())
    return float((ranks[same == 1].sum() - right * (right + 1) / 2) / (right * (len(same) - right)))


def right_at(scores: Floats, same: Floats, wrong: int) -> float:
    """Return the share of right pairs above a cut that lets `wrong` wrong ones pass."""
    others = np.sort(scores[same == 0])[::-1]
    cut = others[wrong] if wrong < len(others) else -np.inf
    return float((scores[same == 1] > cut).mean())


def fit(rows: Sequence[Row], vectors: Vectors, hand: Calibration) -> Calibration:
    """Fit weights per family; the cut lets as large a share of different pairs pass as the hand-set one does."""
    families = dict(hand.families)
    notes = []
    for name, (x, y) in undecided(rows, vectors).items():
        if name not in ("en", "zh"):
            continue
        weights = fit_logistic(x, y, np.zeros(1 + len(FEATURES)), STRENGTH)
        start = hand.families[name]
        served = np.array([start.probability_of(row) >= start.probability for row in x])
        score = weights[0] + x @ weights[1:]
        others = np.sort(score[y == 0])[::-1]
        cut = float(others[int(served[y == 0].sum())])
        families[name] = replace(
            start, bias=float(weights[0]) - cut, probability=0.5, weights=tuple(float(w) for w in weights[1:])
        )
        notes.append(f"{name} on {len(y)} pairs")
    return replace(hand, families=families, note="fitted by tools/fit_calibration.py: " + ", ".join(notes))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, compare, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the fitted calibration here")
    parser.add_argument("--per-source", type=int, default=400, help="rows per source, language and label")
    given = parser.parse_args(arguments)
    from semcache.encoders.bundled import BundledEncoder

    encoder = BundledEncoder()
    vectors, hand = Vectors(encoder), calibration_for(encoder.fingerprint)
    fitted = fit(shippable(given.per_source), vectors, hand)
    print(fitted.note)
    for name in ("en", "zh"):
        print(name, json.dumps(dict(zip(FEATURES, np.round(fitted.families[name].weights, 2), strict=True))))
    print(
        "\n| kept aside | undecided pairs | AUC hand-set, fitted, cosine | right at the hand-set one's wrong: hand-set, fitted, cosine |\n|---|---|---|---|"
    )
    for file, part in COMPARED:
        rows = [row for row in rows_of(file, part) if is_aside(row)]
        family = "zh" if file == "pairs_zh" else "en"
        x, y = undecided(rows, vectors)[family]
        scores = [
            c.families[family].bias + x @ np.array(c.families[family].weights) for c in (hand, fitted)
        ] + [x[:, 0]]
        least = hand.families[family].probability
        wrong = int((1 / (1 + np.exp(-scores[0][y == 0])) >= least).sum())
        print(
            f"| {file} {part} | {len(y)} | "
            + ", ".join(f"{auc(s, y):.3f}" for s in scores)
            + " | "
            + ", ".join(f"{right_at(s, y, wrong):.3f}" for s in scores)
            + " |",
            flush=True,
        )
    if given.out is not None:
        given.out.write_text(fitted.to_json(), encoding="utf-8")


if __name__ == "__main__":
    main()
