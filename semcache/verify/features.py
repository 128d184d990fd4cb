"""The few numbers about a pair of texts that the match probability is made of. Pure.

Each is 0 for texts that correspond word by word; the order is that of `calibration.FEATURES`.
"""

from __future__ import annotations

from semcache.guards.analysis import TYPED
from semcache.guards.comparison import Comparison


def features(c: Comparison, similarity: float, runner_up: float | None) -> tuple[float, ...]:
    """Return the features of a pair.

    Args:
        similarity: Cosine of the two embeddings.
        runner_up: Similarity of the next candidate, None without one.
    """
    a, b = c.a, c.b
    low, high = (c.weight_a, c.weight_b) if c.weight_a < c.weight_b else (c.weight_b, c.weight_a)
    typed = sum(a.weights[i] for i in c.left_a if a.classes[i] in TYPED)
    typed += sum(b.weights[i] for i in c.left_b if b.classes[i] in TYPED)
    shorter, longer = sorted((len(a.keys), len(b.keys)))
    return (
        similarity,
        1.0 - c.overlap,
        min(low, 3.0),
        min(high - low, 3.0),
        min(c.soft, 3.0),
        float(min(abs(a.negations - b.negations), 1)),
        float(bool(a.question) and bool(b.question) and a.question != b.question),
        min(typed, 2.0),
        1.0 - shorter / longer if longer else 0.0,
        min(max(similarity - runner_up, 0.0), 0.2) if runner_up is not None else 0.0,
    )
