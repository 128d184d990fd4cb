"""Guards for what is counted and when: number, date, time, unit, currency, code and place.

Each refuses if both texts name one and they name different ones, in any order and notation. A text
that names none is no contradiction; what it leaves out counts in the probability instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semcache.guards import analysis as an
from semcache.guards import codes, han, sums
from semcache.guards.comparison import Comparison
from semcache.guards.english import CURRENCIES, words
from semcache.guards.models import other_models
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Guard, Verdict, refuse, show

NEAR: Final = 0.6  # overlap from which operators decide
_THINGS: Final = frozenset((an.CONTENT, an.NAME, an.PLACE, an.UNIT, an.CURRENCY, an.DAY_PART))
_NUMERIC: Final = frozenset((an.NUMBER, an.ORDINAL, an.YEAR))
_UNITS: Final = frozenset((an.UNIT, an.CURRENCY))
_JOINED: Final = words("a an the and or to of out vs versus & - / 和 或 到 至 与")
_PARTS_OF_DAY: Final = {
    "morning": range(4, 12), "noon": range(11, 14), "afternoon": range(12, 18), "evening": range(17, 24), "night": (*range(19, 24), *range(4)),
}  # fmt: skip
_SAME_DAY: Final = (
    frozenset(("today", "tonight")),
    frozenset(("今天", "今晚", "今早")),
    frozenset(("明天", "明晚", "明早")),
    frozenset(("昨天", "昨晚")),
)
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


def _unmatched(c: Comparison, classes: frozenset[str]) -> tuple[list[str], list[str]]:
    """Return words of these classes that the other side lacks, without pairs that can be meant alike."""
    a, b = c.a, c.b
    left = [a.words[i] for i in c.left_a if a.classes[i] in classes]
    right = [b.words[i] for i in c.left_b if b.classes[i] in classes]
    if left and right:
        for one in left[:]:
            other = next((w for w in right if _meant_alike(one, w)), None)
            if other is not None:
                left.remove(one)
                right.remove(other)
    return left, right


def _meant_alike(one: str, other: str) -> bool:
    """Tell whether one is the other said less exactly: January, January 1st; today, tonight."""
    if one == other or (one.startswith(other + "-") or other.startswith(one + "-")):
        return True
    if one == other + "th" or other == one + "th":  # the 2nd world war, world war 2
        return True
    return (
        _in_part(one, other) or _in_part(other, one) or any(one in day and other in day for day in _SAME_DAY)
    )


def _in_part(clock: str, part: str) -> bool:
    """Tell whether a time of day lies in a part of the day: 6:00, morning."""
    hours = _PARTS_OF_DAY.get(part)
    return (
        hours is not None
        and clock.partition(":")[0].isdigit()
        and ":" in clock
        and int(clock.partition(":")[0]) in hours
    )


def _typed(name: str, classes: frozenset[str]) -> Guard:
    def guard(c: Comparison) -> Verdict:
        mine, theirs = not classes.isdisjoint(c.a.kinds), not classes.isdisjoint(c.b.kinds)
        if mine and theirs and c.left_a and c.left_b:
            left, right = _unmatched(c, classes)
            if left and right:
                return refuse(f"{show(left)} against {show(right)}")
        return PASS if mine or theirs else NOT_APPLICABLE

    guard.__name__ = guard.__qualname__ = name
    guard.__doc__ = f"Refuse if both texts name a {name} and they differ."
    return guard


def number(c: Comparison) -> Verdict:
    """Refuse if both texts have numbers, ordinals or years and they differ, or count other things."""
    if _NUMERIC.isdisjoint(c.a.kinds) and _NUMERIC.isdisjoint(c.b.kinds):
        return NOT_APPLICABLE
    left, right = _unmatched(c, _NUMERIC)
    if left and right:
        left, right = _but_articles(left, c.b), _but_articles(right, c.a)
    if left and right:
        return refuse(f"{show(left)} against {show(right)}")
    if left or right:
        several = _several(c)
        if several:
            return refuse(f"one in one text, {several!r} in the other")
        if sums.calculates(c.a) or sums.calculates(c.b):
            return refuse(f"only one of two calculations has {show(left or right)}")
        if min(_figures(c.a), _figures(c.b)) > 1 and not (c.left_b if left else c.left_a):
            return refuse(f"several numbers, and only one text has {show(left or right)}")
        return PASS
    if sums.calculates(c.a) and sums.calculates(c.b):
        done = sums.operations(c.a) ^ sums.operations(c.b)
        if done:
            return refuse(f"only one of two calculations has {show(sorted(done))}")
    mine = _counted(c.a)
    if not mine:
        return NOT_APPLICABLE
    if len(mine) > 1:
        other = _other_units(mine, _counted(c.b))
        if other:
            return refuse(f"the same numbers count other things: {show(other)}")
        exchanged = _exchanged(c.a, c.b)
        if exchanged:
            return refuse(f"the numbers count each other's things: {show(exchanged)}")
    return PASS


def _several(c: Comparison) -> str:
    """Return how many of a thing one text wants, where the other wants a single one: write a haiku, write five haikus."""
    for x, left, y in ((c.a, c.left_a, c.b), (c.b, c.left_b, c.a)):
        for i in left:
            if x.classes[i] != an.NUMBER or x.words[i] == "1" or i + 1 >= len(x.keys):
                continue
            thing, word = x.keys[i + 1], x.words[i + 1]
            single = (j for j in range(1, len(y.keys)) if y.words[j - 1] in ("a", "an"))
            if any(y.keys[j] == thing or y.words[j] + "s" == word for j in single):
                return f"{x.words[i]} {x.words[i + 1]}"
    return ""


def _figures(text: an.Analysis) -> int:
    return sum(kind in _NUMERIC for kind in text.classes)


def _exchanged(a: an.Analysis, b: an.Analysis) -> list[str]:
    """Return two numbers that changed places: twelve circles and three squares, three circles and twelve squares."""
    mine, theirs = _things(a), _things(b)
    for number, thing in mine.items():
        other = theirs.get(number)
        if other is None or other == thing:
            continue
        for second, its in mine.items():
            if its == other and theirs.get(second) == thing:
                return [number, second]
    return []


def _things(text: an.Analysis) -> dict[str, str]:
    """Return what stands right behind each number, where that is a word that tells."""
    return {
        text.keys[i]: text.keys[i + 1]
        for i, kind in enumerate(text.classes[:-1])
        if kind in _NUMERIC and text.classes[i + 1] in _THINGS
    }


def _but_articles(left: list[str], other: an.Analysis) -> list[str]:
    """Leave out a "one" that the other text says too, but as an article: two methods ... One method is, one way is."""
    return [figure for figure in left if figure != "1" or "one" not in other.words]


def _counted(text: an.Analysis) -> dict[str, set[str]]:
    """Return each number with what it counts, where that is a unit or currency: behind it, before it (Rs 500), or said once for several."""
    places = [i for i, kind in enumerate(text.classes) if kind in _NUMERIC]
    units = [_unit_at(text, i) for i in places]
    if len(places) > 1:
        _share(text, places, units)
    found: dict[str, set[str]] = {}
    for i, unit in zip(places, units, strict=True):
        found.setdefault(text.words[i], set()).update({unit} - {""})
    return found


def _unit_at(text: an.Analysis, i: int) -> str:
    if i + 1 < len(text.keys) and text.classes[i + 1] in _UNITS:
        return text.keys[i + 1]
    return CURRENCIES.get(text.words[i - 1], "") if i else ""


def _share(text: an.Analysis, places: list[int], units: list[str]) -> None:
    """Give the unit of one number to those that are joined to it: 5 or 6 mm, 5 stars out of 6."""
    for n in range(len(places) - 1, 0, -1):
        i, j = places[n - 1], places[n]
        if {text.classes[i], text.classes[j]} != {an.NUMBER}:
            continue
        between = [k for k in range(i + 1, j) if text.classes[k] not in _UNITS]
        if not between or any(text.words[k] not in _JOINED for k in between):
            continue
        if text.words[between[-1]] == "of" and "percent" in units[n - 1 : n + 1]:  # 20 percent of 50
            continue
        counts_more = j + 1 < len(text.keys) and text.classes[j + 1] in _THINGS
        if not units[n - 1]:
            units[n - 1] = units[n]
        elif not units[n] and (not counts_more or text.words[between[-1]] == "of"):
            units[n] = units[n - 1]


def _other_units(mine: Mapping[str, set[str]], theirs: Mapping[str, set[str]]) -> list[str]:
    """Return numbers that both texts have with different units, or whose unit went from one to another of them."""
    shared = [figure for figure in mine if figure in theirs]
    found = []
    for figure in shared:
        one, other = mine[figure], theirs[figure]
        if one and other:
            differ = not (one <= other or other <= one)
        else:
            differ = one != other and "percent" in one | other  # 7 percent isn't 7
            differ |= any(
                (x[more] & y[figure]) - y[more]
                for x, y in ((mine, theirs), (theirs, mine))
                for more in shared
                if more != figure and not x[figure]
            )
        if differ:
            found.append(figure)
    return found


def match_places(left: list[str], right: list[str]) -> None:
    """Remove from both lists names that can mean one place: usa, america; washington, washington dc."""
    for one in left[:]:
        for other in right:
            if (
                f" {one} " in f" {other} "
                or f" {other} " in f" {one} "
                or any(one in g and other in g for g in _SAME_PLACE)
            ):
                left.remove(one)
                right.remove(other)
                break


_SIDES: Final = frozenset("东南西北")


def place(c: Comparison) -> Verdict:
    """Refuse if both texts name a place that the other doesn't."""
    if c.a.language == c.b.language == "zh" and han.inserted(c.a.plain, c.b.plain) in _SIDES:
        return refuse("only one of them names a side of a place")
    mine, theirs = an.PLACE in c.a.kinds, an.PLACE in c.b.kinds
    if mine and theirs:
        left = [c.a.keys[i] for i in c.left_a if c.a.classes[i] == an.PLACE]
        right = [c.b.keys[i] for i in c.left_b if c.b.classes[i] == an.PLACE]
        match_places(left, right)
        if left and right:
            return refuse(f"{show(left)} against {show(right)}")
    return PASS if mine or theirs else NOT_APPLICABLE


_date = _typed("date", frozenset((an.DATE,)))


def date(c: Comparison) -> Verdict:
    """Refuse if both texts name a date and they differ; in Chinese also by weekdays and months that are cut otherwise."""
    if c.a.language == c.b.language == "zh":
        days = han.days(c.a.plain, c.b.plain)
        if days is not None:
            return refuse(f"{days[0]} against {days[1]}")
    return _date(c)


time = _typed("time", frozenset((an.TIME, an.DAY_PART)))
currency = _typed("currency", frozenset((an.CURRENCY,)))
unit = _typed("unit", frozenset((an.UNIT, an.CURRENCY)))  # pounds against kilograms
_code = _typed("code", frozenset((an.CODE,)))
_OPERATOR: Final = frozenset("=<>!+-*/%&|^~:()[]{}#@$\\")


def code(c: Comparison) -> Verdict:
    """Refuse if both texts have an identifier, a model's name, version or operator that the other lacks."""
    if c.a.signs != c.b.signs and (
        c.a.normal == c.b.normal or (c.a.signs and c.b.signs and c.overlap >= NEAR)
    ):
        return refuse(f"{show(c.a.signs)} against {show(c.b.signs)}")
    if c.a.language == c.b.language == "zh":
        latin = han.latin(c.a.plain, c.b.plain)
        if latin is not None:
            return refuse(f"{latin[0]!r} against {latin[1]!r}")
    verdict = _code(c)
    if verdict.verdict != "refuse" and c.a.plain != c.b.plain:
        left, right = other_models(c)
        if left and right:
            return refuse(f"{show(left)} against {show(right)}")
    if verdict.verdict == "refuse" or c.overlap < NEAR:
        return verdict
    if an.SYMBOL not in c.a.kinds or an.SYMBOL not in c.b.kinds:
        return verdict
    left = [
        c.a.words[i] for i in c.left_a if c.a.classes[i] == an.SYMBOL and _OPERATOR.issuperset(c.a.words[i])
    ]
    right = [
        c.b.words[i] for i in c.left_b if c.b.classes[i] == an.SYMBOL and _OPERATOR.issuperset(c.b.words[i])
    ]
    if left and right and (codes.operators(c.a, left) or codes.operators(c.b, right)):
        return refuse(f"{show(left)} against {show(right)}")
    return verdict
