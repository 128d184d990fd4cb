"""Hard negatives by mining: texts that the base model takes for near, and that aren't linked."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training.data import Row
from training.model import Encoder

SOURCES = frozenset({"tatoeba-pivot", "webquestions", "paraqa", "written"})
NEAREST = 4  # ranks that a negative may have
MOST = 6_000  # texts of a source that are looked at
CEILING = 0.80  # a closer text may well be an unlinked paraphrase


def mined(rows: Sequence[Row], encoder: Encoder, count: int, seed: int, cache: Path) -> list[Row]:
    """At most `count` same=0 rows between texts of one source, near by the base model.

    Args:
        cache: JSON file that holds the rows between runs; a run with other rows needs another.
    """
    if count == 0:
        return []
    if cache.exists():
        return [Row(*fields) for fields in json.loads(cache.read_text(encoding="utf-8"))]
    rng = random.Random(seed)
    made: list[Row] = []
    for source in sorted(SOURCES):
        groups = {row.a: row.group_a for row in rows if row.source == source and row.same == 1}
        groups |= {row.b: row.group_b for row in rows if row.source == source and row.same == 1}
        texts = sorted(groups)
        if len(texts) > MOST:
            texts = sorted(rng.sample(texts, MOST))
        if not texts:
            continue
        vectors = encoder.encode(texts)
        for start in range(0, len(texts), 512):
            cosines = vectors[start : start + 512] @ vectors.T
            order = np.argsort(-cosines, axis=1)[:, : NEAREST + 8]
            for i, ranked in enumerate(order, start=start):
                own = groups[texts[i]]
                near = [j for j in ranked if groups[texts[j]] != own and cosines[i - start, j] <= CEILING][
                    :NEAREST
                ]
                if near:
                    j = rng.choice(near)
                    made.append(Row(texts[i], texts[j], 0, "mined", own, groups[texts[j]]))
    chosen = rng.sample(made, min(count, len(made)))
    fields = [[r.a, r.b, r.same, r.source, r.group_a, r.group_b] for r in chosen]
    cache.write_text(json.dumps(fields, ensure_ascii=False), encoding="utf-8")
    return chosen
