"""Says what would turn a rule's verdict round, in words, for explain. Pure.

Knows: which cosine a threshold or the probability asks for, and when each guard refuses. Leaves to
others: the verdicts themselves (`matcher`, the guards).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from semcache.guards.comparison import Comparison
from semcache.guards.verdict import show

WHEN: Final = {
    "language": "the prompts, or the prompt and the stored answer, are in different languages",
    "number": "both name numbers that the other lacks, or count other things with them",
    "date": "both name a date that the other lacks",
    "time": "both name a time of day that the other lacks",
    "currency": "both name a currency that the other lacks",
    "unit": "both name a unit that the other lacks",
    "code": "both have an identifier, a model's name, version or operator that the other lacks",
    "place": "both name a place that the other lacks",
    "antonym": "they differ by an odd number of opposites",
    "negation": "one negates once more and they are otherwise close",
    "quantifier": "nothing changes but how many of the same are meant: all or some, both or either, only or also",
    "tense": "nothing changes but the time that is asked about: what was and what will be, who is in office and who was",
    "name": "both have a name that the other lacks",
    "quote": "both quote, and not the same",
    "substitution": "one span was replaced by another that tells something, and the rest is the same in order",
    "direction": "something is the start in one and the goal in the other, or they are for two people",
    "order": "two parts changed places around an asymmetric middle",
    "subject": "actor and object, or persons, were exchanged, or a pronoun leaves open who is meant",
    "qualifier": "only one has a word that narrows it, and the rest is the same",
    "question": "nothing but the kind of question differs, or who, when, where, why or how many is asked of one thing",
    "context": "both have one passage in common, and what is asked beside it isn't alike",
    "parts": "one asks what the other does, and for something else beside it",
    "near_copy": "both are long and share most words, some of them moved",
}
"""When each guard refuses; it passes otherwise."""

_STEPS: Final = 40  # halvings: the cosine to 1e-12


def up(cosine: float) -> str:
    """Write a cosine that suffices: rounded up to three decimals."""
    near = round(cosine, 3)
    return f"{near if near >= cosine else near + 0.001:.3f}"


def down(cosine: float) -> str:
    """Write a cosine that is reached: rounded down to three decimals."""
    near = round(cosine, 3)
    return f"{near if near <= cosine else near - 0.001:.3f}"


def of_threshold(similarity: float, least: float) -> str:
    """Say which cosine, or which threshold, would turn it round."""
    if similarity >= least:
        return f"refuses at a threshold above {down(similarity)}"
    return f"needs cosine ≥ {up(least)}, has {down(similarity) if math.isfinite(similarity) else 'none'}"


def of_guard(name: str, verdict: str, detail: str = "") -> str:
    """Say what it refuses for, which no similarity changes, or when it would refuse."""
    if verdict == "refuse":
        return f"{detail or WHEN[name]}; no threshold flips it"
    return f"refuses where {WHEN[name]}"


def least_cosine(probability: Callable[[float], float], least: float) -> float | None:
    """Return the least cosine in [-1, 1] whose probability is at least `least`; None if 1.0 isn't enough.

    Args:
        probability: Probability by cosine, other things equal; must not fall as the cosine rises.
    """
    if probability(1.0) < least:
        return None
    low, high = -1.0, 1.0
    if probability(low) >= least:
        return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if probability(middle) >= least else (middle, high)
    return high


def of_probability(
    c: Comparison, similarity: float, probability: Callable[[float], float], least: float
) -> str:
    """Say which cosine these words would need, and what differs between them."""
    if least <= 0.0:
        return "asks for nothing: the threshold decides alone"
    needed = least_cosine(probability, least)
    if math.isfinite(similarity) and probability(similarity) >= least:
        return f"refuses below cosine {up(-1.0 if needed is None else needed)} with these words"
    words = _differences(c)
    if needed is None:
        return f"no cosine is enough with {words}" if words else "no cosine is enough"
    have = down(similarity) if math.isfinite(similarity) else "none"
    return f"needs cosine ≥ {up(needed)}{f' with {words}' if words else ''}, has {have}"


def _differences(c: Comparison) -> str:
    left = [c.a.words[i] for i in c.left_a]
    right = [c.b.words[i] for i in c.left_b]
    if left and right:
        return f"{show(left)} against {show(right)}"
    return f"{show(left or right)} in one of them only" if left or right else ""
