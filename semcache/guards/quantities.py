"""Guards for what is counted and when: number, date, time, unit, currency, code and place.

Each refuses if both texts name one and they name different ones, in any order and notation. A text
that names none is no contradiction; what it leaves out counts in the probability instead.
"""

from __future__ import annotations

from typing import Final

from semcache.guards import analysis as an
from semcache.guards.comparison import Comparison
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Guard, Verdict, refuse, show

_NUMERIC: Final = frozenset((an.NUMBER, an.ORDINAL, an.YEAR))
_SAME_PLACE: Final = tuple(
    frozenset(line.split("|"))
    for line in """usa|us|united states|america|united states of america|states
uk|united kingdom|britain|great britain|england
new york|new york city|nyc
los angeles|la
san francisco|sf
washington|washington dc
india|bharat
uae|united arab emirates
st louis|saint louis""".splitlines()
)


def _typed(name: str, classes: frozenset[str]) -> Guard:
    def guard(c: Comparison) -> Verdict:
        left = [i for i in c.left_a if c.a.classes[i] in classes]
        right = [i for i in c.left_b if c.b.classes[i] in classes]
        if left and right:
            return refuse(
                f"{show([c.a.words[i] for i in left])} against {show([c.b.words[i] for i in right])}"
            )
        if left or right:
            return PASS
        named = any(k in classes for k in c.a.classes) or any(k in classes for k in c.b.classes)
        return PASS if named else NOT_APPLICABLE

    guard.__name__ = guard.__qualname__ = name
    guard.__doc__ = f"Refuse if both texts name a {name} and they differ."
    return guard


def number(c: Comparison) -> Verdict:
    """Refuse if both texts have numbers, ordinals or years and they differ, or the same ones swap roles."""
    left = [i for i in c.left_a if c.a.classes[i] in _NUMERIC]
    right = [i for i in c.left_b if c.b.classes[i] in _NUMERIC]
    if left and right:
        return refuse(f"{show([c.a.words[i] for i in left])} against {show([c.b.words[i] for i in right])}")
    if left or right:
        return PASS
    mine = [(c.a.words[i], _after(c.a, i)) for i, k in enumerate(c.a.classes) if k in _NUMERIC]
    if not mine:
        return NOT_APPLICABLE
    theirs = [(c.b.words[i], _after(c.b, i)) for i, k in enumerate(c.b.classes) if k in _NUMERIC]
    if len(mine) > 1 and [m[0] for m in mine] != [t[0] for t in theirs] and sorted(mine) != sorted(theirs):
        return refuse(f"the same numbers in other places: {show([m[0] for m in mine])}")
    return PASS


def _after(text: an.Analysis, i: int) -> str:
    return (
        text.keys[i + 1]
        if i + 1 < len(text.keys) and text.classes[i + 1] in (an.UNIT, an.CURRENCY, an.CONTENT)
        else ""
    )


def place(c: Comparison) -> Verdict:
    """Refuse if both texts name a place that the other doesn't."""
    left = [c.a.keys[i] for i in c.left_a if c.a.classes[i] == an.PLACE]
    right = [c.b.keys[i] for i in c.left_b if c.b.classes[i] == an.PLACE]
    for one in left[:]:
        for other in right:
            if one in other or other in one or any(one in group and other in group for group in _SAME_PLACE):
                left.remove(one)
                right.remove(other)
                break
    if left and right:
        return refuse(f"{show(left)} against {show(right)}")
    return PASS if an.PLACE in c.a.classes or an.PLACE in c.b.classes else NOT_APPLICABLE


date = _typed("date", frozenset((an.DATE,)))
time = _typed("time", frozenset((an.TIME, an.DAY_PART)))
unit = _typed("unit", frozenset((an.UNIT,)))
currency = _typed("currency", frozenset((an.CURRENCY,)))
code = _typed("code", frozenset((an.CODE,)))
