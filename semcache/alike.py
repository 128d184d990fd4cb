"""Which prompts' entries would serve which other prompts: what a replay by meaning needs. Pure but for the encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from semcache.evaluate import BATCH, Vectors
from semcache.evaluate_replay import exact_only
from semcache.protocols import Matcher

_NEAREST: Final = 64  # neighbours of each prompt that are judged
Key = tuple[str, str]


def alike(
    names: Sequence[Key],
    vectors: Vectors,
    matcher: Matcher,
    *,
    watch: Callable[[int], None] = lambda done: None,
) -> dict[Key, list[Key]]:
    """Return for each prompt the others whose entries the matcher would serve for it, closest first.

    Args:
        names: Different (text, context); only equal contexts meet.
        vectors: Embeddings, made as needed.
        watch: Told how many prompts are done.
    """
    texts = [text for text, _ in names]
    embeddings = vectors.of(texts)
    embeddings[exact_only(vectors.encoder, texts)] = 0.0  # neither looks for neighbours nor is one
    floor = max(float(getattr(matcher, "floor", 0.0)), 1e-6)
    found: dict[Key, list[Key]] = {}
    for start in range(0, len(names), BATCH):
        block = embeddings[start : start + BATCH] @ embeddings.T
        for row, similar in enumerate(block, start=start):
            similar[row] = -1.0
            plausible = np.flatnonzero(similar >= floor)
            order = plausible[np.argsort(-similar[plausible], kind="stable")][:_NEAREST]
            found[names[row]] = [
                names[other]
                for other in order.tolist()
                if names[other][1] == names[row][1]
                and matcher.judge(texts[row], texts[other], min(float(similar[other]), 1.0)).reason is None
            ]
        watch(len(found))
    return found
