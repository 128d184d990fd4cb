"""Figures of merit: AUC, share of same pairs kept at a share of wrong pairs served, per set."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from training import edits, forms
from training.data import Row
from training.model import Encoder


def auc(cosines: NDArray[np.float64], same: NDArray[np.bool_]) -> float:
    """Chance that a same pair is closer than a pair that isn't (ties count half)."""
    order = np.argsort(cosines, kind="stable")
    ordered = cosines[order]
    ranks = np.empty(len(cosines))
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(ordered)]
    for start, end in zip(starts, ends, strict=True):
        ranks[order[start:end]] = (start + end + 1) / 2
    positives, negatives = int(same.sum()), int((~same).sum())
    return float((ranks[same].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def right_at(cosines: NDArray[np.float64], same: NDArray[np.bool_], wrong: float) -> float:
    """Share of same pairs kept at the lowest threshold that serves at most `wrong` of the others."""
    negatives = np.sort(cosines[~same])[::-1]
    allowed = int(wrong * len(negatives))
    threshold = negatives[allowed] if allowed < len(negatives) else -1.0
    return float((cosines[same] > threshold).mean())


def aside_sets(
    aside: Sequence[Row], own_aside: Sequence[Row], *, seed: int, edited: bool = True
) -> dict[str, list[Row]]:
    """Sets of rows to judge a model by; none of their texts is trained on.

    Args:
        edited: Whether edits of those texts are judged too; the edits are English.
    """
    rng = random.Random(seed)
    sets: dict[str, list[Row]] = defaultdict(list)
    for row in [*aside, *own_aside]:
        name = {
            "tatoeba-pivot": "tatoeba", "tatoeba-sub": "tatoeba", "webquestions": "facts", "wikisql": "facts",
            "ha-intents": "assistant", "nlpjs": "assistant",
        }.get(row.source, row.source)  # fmt: skip
        sets[name].append(row)
    texts = (
        []
        if not edited
        else sorted({(row.a, row.group_a) for row in aside} | {(row.a, row.group_a) for row in own_aside})
    )
    for text, group in texts:
        form, meaning = forms.kept(text, rng), edits.changed(text, rng)
        if form is not None:
            sets["edits"].append(Row(text, form[1], 1, "edits", group, group))
        if meaning is not None:
            sets["edits"].append(Row(text, meaning[1], 0, "edits", group, meaning[1]))
    chosen = {}
    for name, rows in sorted(sets.items()):
        labels = [row.same for row in rows]
        if min(labels.count(0), labels.count(1)) >= 10:
            chosen[name] = rng.sample(rows, min(len(rows), 240))
    return chosen


def judge(encoder: Encoder, sets: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    """AUC of each set, and their mean under the key "mean"."""
    texts = sorted({text for rows in sets.values() for row in rows for text in (row.a, row.b)})
    place = {text: i for i, text in enumerate(texts)}
    vectors = encoder.encode(texts).astype(np.float64)
    found = {}
    for name, rows in sets.items():
        a, b = vectors[[place[row.a] for row in rows]], vectors[[place[row.b] for row in rows]]
        same = np.array([row.same == 1 for row in rows])
        found[name] = auc((a * b).sum(1), same)
    found["mean"] = float(np.mean(list(found.values())))
    return found


def line(figures: Mapping[str, float]) -> str:
    return " ".join(
        f"{key} {value:.4f}" if key != "step" else f"step {value}" for key, value in figures.items()
    )
