"""The few numbers about a pair of texts that the match probability is made of. Pure.

The order is that of `calibration.FEATURES`. Requests and statements are told from questions: two
requests that share all that tells ask the same at a lower cosine than two questions, whose sense
also hangs on their small words. Rivals and the size of the scope count apart for questions, for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from semcache.guards.analysis import NAME, TYPED, Analysis
from semcache.guards.comparison import Comparison

ANCHORS = frozenset((*TYPED, NAME))
NEARLY_ALL = 0.4  # missing share below which requests count as saying the same
REACH = 0.3  # how far behind a candidate its rivals still count
NEAR = 0.12  # ... and by how much less similar a rival counts for 1/e
SMALLEST, LARGEST = 500, 8000  # stored prompts: beyond these the size of a scope says no more
NEUTRAL = 2000  # ... and at which it says nothing
MOST_MISSING = 0.3  # missing share beyond which questions aren't told apart further


def features(
    c: Comparison,
    similarity: float,
    rivals: Sequence[float],
    spread: float = 1.0,
    size: int | None = None,
) -> tuple[float, ...]:
    """Return the features of a pair.

    Args:
        similarity: Cosine of the two embeddings.
        rivals: Similarities of the other candidates, in any order.
        spread: See `FamilyCalibration`.
        size: Number of prompts stored in the scope, None if unknown.
    """
    a, b = c.a, c.b
    most_a = max((a.weights[i] for i in c.left_a), default=0.0)
    most_b = max((b.weights[i] for i in c.left_b), default=0.0)
    low, high = (most_a, most_b) if most_a < most_b else (most_b, most_a)
    few = max(len(c.left_a), len(c.left_b), 1)
    typed = sum(a.weights[i] for i in c.left_a if a.classes[i] in TYPED)
    typed += sum(b.weights[i] for i in c.left_b if b.classes[i] in TYPED)
    shorter, longer = sorted((len(a.keys), len(b.keys)))
    missing = 1.0 - c.overlap
    crowded = crowding(similarity, rivals, spread)
    free = room(size)
    both_ask = a.asks and b.asks
    return (
        similarity,
        missing,
        low / few,
        high - low,
        min(c.soft, 3.0),
        float(min(abs(a.negations - b.negations), 1)),
        float(both_ask and a.question != b.question),
        min(typed, 2.0),
        descents(c),
        1.0 - shorter / longer if longer else 0.0,
        anchors(c),
        min(longer, 24) / 24.0,
        crowded,
        0.0 if both_ask else max(0.0, 1.0 - missing / NEARLY_ALL),
        min(missing, MOST_MISSING) if both_ask else 0.0,
        crowded if both_ask else 0.0,
        free,
        free if both_ask else 0.0,
    )


def crowding(similarity: float, rivals: Sequence[float], spread: float = 1.0) -> float:
    """Return the log of how many candidates there are, this one included, each counted by how near it comes.

    0 for one that stands alone. With the weight -1 the odds are those of a softmax over the candidates: where many
    stored prompts are about as near, being the nearest of them says little. The more a scope holds, the more chances
    there are to be near by accident, and this is what keeps the wrong hits from growing with it.
    """
    gaps = (max(0.0, similarity - rival) for rival in rivals)
    near, reach = NEAR * spread, REACH * spread
    return math.log1p(sum(math.exp(-gap / near) for gap in gaps if gap <= reach))


def room(size: int | None) -> float:
    """Return how much a similarity means in a scope of that many prompts, in nats, in [ln(2000/8000), ln(2000/500)].

    Each stored prompt is one more chance to be near by accident: the odds that the nearest one is the right one fall
    with their number, so this is ln(2000 / size) from 500 to 8,000 prompts, the range in which it was measured
    (docs/matching.md). Being the nearest of a few says nothing, so it starts at 0 for one prompt, as for an unknown
    size, and grows as ln(size).
    """
    if size is None or size < 1:
        return 0.0
    return min(math.log(size), math.log(NEUTRAL / min(max(size, SMALLEST), LARGEST)))


def anchors(c: Comparison) -> float:
    """Return the share of shared weight, in both texts, that is numbers, dates, places, names and code, in [0, 1]."""
    if ANCHORS.isdisjoint(c.a.kinds) and ANCHORS.isdisjoint(c.b.kinds):
        return 0.0
    (shared_a, typed_a), (shared_b, typed_b) = _shared(c.a, c.only_a), _shared(c.b, c.only_b)
    shared = shared_a + shared_b
    return (typed_a + typed_b) / shared if shared else 0.0


def _shared(text: Analysis, only: Sequence[int]) -> tuple[float, float]:
    """Return the weight of what stands in the other text too, and of that the weight that anchors have."""
    shared = typed = 0.0
    missing = set(only)
    for i, weight in enumerate(text.weights):
        if weight > 0 and i not in missing:
            shared += weight
            if text.classes[i] in ANCHORS:
                typed += weight
    return shared, typed


def descents(c: Comparison) -> float:
    """Return the share of neighbouring shared words of either text that come in another order in the other one, in [0, 1]."""
    place_a, place_b = _places(c.a), _places(c.b)
    return (_descents(c.a, place_b) + _descents(c.b, place_a)) / 2


def _places(text: Analysis) -> dict[str, int]:
    """Return where each word that tells stands, the last time."""
    return {key: i for i, (key, weight) in enumerate(zip(text.keys, text.weights, strict=True)) if weight > 0}


def _descents(text: Analysis, place: Mapping[str, int]) -> float:
    found = [
        place[key] for key, weight in zip(text.keys, text.weights, strict=True) if weight > 0 and key in place
    ]
    if len(found) < 2:
        return 0.0
    return sum(y < x for x, y in pairwise(found)) / (len(found) - 1)
