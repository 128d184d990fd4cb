"""Whether a prompt does sums, and which: an operation or a figure more is another question. Pure."""

from __future__ import annotations

from typing import Final

from semcache.guards import analysis as an

_OPERATIONS: Final = {
    word: line.split()[0]
    for line in """
    plus add adding added sum total 加
    minus subtract subtracted subtracting less 减
    times multiplied multiply multiplying product 乘 乘以
    divided 除 除以
    factorial
    mod
    average mean
    squared
    cubed
    halved
    doubled
    tripled
    sqrt
    """.strip().splitlines()
    for word in line.split()
}
_BEFORE_FIGURES: Final = frozenset(["add", "total", "average", "mean"])  # sums where a figure follows
_ALWAYS: Final = frozenset(_OPERATIONS) - _BEFORE_FIGURES - frozenset(["times", "adding", "added", "less"])
_SIGNS: Final = {"+": "plus", "-": "minus", "*": "times", "x": "times", "/": "divided", "over": "divided"}
_BETWEEN_FIGURES: Final = frozenset((*_SIGNS, "times"))


def calculates(text: an.Analysis) -> bool:
    """Tell whether a text does sums: it has a figure and names an operation, or an operator stands between two figures."""
    if an.NUMBER not in text.kinds:
        return False
    if not _ALWAYS.isdisjoint(text.words):
        return True
    figures = [kind == an.NUMBER for kind in text.classes]
    if "+" in text.words and sum(figures) > 1:  # also with units between: 5 km + 3 km
        return True
    return any(
        any(figures[i + 1 : i + 3])
        if word in _BEFORE_FIGURES
        else word in _BETWEEN_FIGURES and any(figures[max(0, i - 1) : i]) and any(figures[i + 1 : i + 2])
        for i, word in enumerate(text.words)
    )


def operations(text: an.Analysis) -> set[str]:
    """Return the operations that a text names, each by one name."""
    found = {_OPERATIONS[word] for word in text.words if word in _OPERATIONS}
    between = (text.words[i] for i in range(1, len(text.words) - 1) if text.classes[i - 1] == an.NUMBER)
    return found | {_SIGNS[word] for word in between if word in _SIGNS}
