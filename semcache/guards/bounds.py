"""What bounds a number: at least 7, at most 7, exactly 7.

Knows: the words before a number that say so. Leaves to others: the numbers (`quantities`), more against less
(`polarity`), other words for how many (`quantifiers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from semcache.guards import analysis as an
from semcache.guards import english as en
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison

_BOUND: Final = {  # the words before a number → below which, above which or at which it holds
    bound: kind
    for kind, line in {
        "at least": "at least|no fewer than|no less than|a minimum of",
        "at most": "at most|no more than|up to|a maximum of",
        "exactly": "exactly|precisely",
        "more than": "more than",
        "less than": "less than|fewer than",
    }.items()
    for bound in line.split("|")
}
_BOUNDS_DIFFER: Final = en.pairs(
    "at_least at_most/exactly/less_than|at_most exactly/more_than|exactly more_than/less_than"
)


def other_bounds(c: Comparison) -> tuple[str, str] | None:
    """Return what two texts say of the same number where they bound it otherwise."""
    if an.NUMBER not in c.a.kinds or an.NUMBER not in c.b.kinds:
        return None
    one, another = set(_bounded(c.a)), set(_bounded(c.b))
    return next(
        (
            (bound, other)
            for key, bound in sorted(one - another)
            for number, other in sorted(another - one)
            if key == number and (bound, other) in _BOUNDS_DIFFER
        ),
        None,
    )


def _bounded(text: Analysis) -> Iterator[tuple[str, str]]:
    """Yield each number that has a bound, and the bound."""
    for i, kind in enumerate(text.classes):
        if kind == an.NUMBER:
            for width in (3, 2, 1):
                bound = _BOUND.get(" ".join(text.words[max(0, i - width) : i]))
                if bound is not None:
                    yield text.keys[i], bound
                    break
