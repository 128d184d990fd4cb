"""Guards for who does what to whom: direction, order and subject.

They apply where two texts have the same content: swapping the ends of a route, the operands of an
asymmetric relation, or actor and object changes the question without changing a word.
"""

from __future__ import annotations

from typing import Final

from semcache.guards import analysis as an
from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import lexicon
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison
from semcache.guards.english import words
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

_PRONOUNS: Final = words("his her him he she their they")
_PARTS: Final = frozenset(
    (an.CONTENT, an.NAME, an.PLACE, an.NUMBER, an.YEAR, an.CODE, an.CURRENCY, an.UNIT, an.TIME)
)


def _ends(text: Analysis) -> tuple[frozenset[str], frozenset[str]]:
    """Return what a text comes from and what it goes to."""
    sources: set[str] = set()
    targets: set[str] = set()
    froms, tos = (
        (zh.FROM_MARKERS, zh.TO_MARKERS) if text.language == "zh" else (en.FROM_MARKERS, en.TO_MARKERS)
    )
    size = len(text.keys)
    for i, word in enumerate(text.words):
        into = (
            sources
            if word in froms or text.keys[i] in froms
            else targets
            if word in tos or text.keys[i] in tos
            else None
        )
        if into is None:
            continue
        for j in range(i + 1, min(size, i + 4)):
            if text.words[j] in froms or text.words[j] in tos:
                break
            if text.classes[j] in _PARTS:
                into.add(text.keys[j])
                if (
                    text.words[i] in ("to", "到")
                    and i
                    and text.classes[i - 1] in (an.PLACE, an.NAME, an.CURRENCY, an.UNIT)
                ):
                    sources.add(text.keys[i - 1])  # boston to denver
                break
    return frozenset(sources - targets), frozenset(targets - sources)


def direction(c: Comparison) -> Verdict:
    """Refuse if something is the start in one text and the goal in the other."""
    from_a, to_a = _ends(c.a)
    from_b, to_b = _ends(c.b)
    if not (from_a or to_a) or not (from_b or to_b):
        return NOT_APPLICABLE
    swapped = (from_a & to_b) | (to_a & from_b)
    return (
        refuse(f"{sorted(swapped)[0]!r} is the start in one and the goal in the other") if swapped else PASS
    )


def _content(text: Analysis, skip: frozenset[str]) -> list[str]:
    return [k for k, kind in zip(text.keys, text.classes, strict=True) if kind in _PARTS and k not in skip]


def order(c: Comparison) -> Verdict:
    """Refuse if the texts have the same words and two parts changed places around an asymmetric middle."""
    if c.left_a or c.left_b or c.a.keys == c.b.keys:
        return NOT_APPLICABLE
    x, y = c.a.keys, c.b.keys
    start = 0
    while start < min(len(x), len(y)) and x[start] == y[start]:
        start += 1
    end = 0
    while end < min(len(x), len(y)) - start and x[-1 - end] == y[-1 - end]:
        end += 1
    mid_x, mid_y = x[start : len(x) - end], y[start : len(y) - end]
    if len(mid_x) != len(mid_y) or sorted(mid_x) != sorted(mid_y) or len(mid_x) < 2:
        return PASS
    found = _transposed(mid_x, mid_y)
    if found is None:
        return PASS
    left, middle, right = found
    classes = dict(zip(c.a.keys, c.a.classes, strict=True))
    if not any(classes[k] in _PARTS for k in left) or not any(classes[k] in _PARTS for k in right):
        return PASS
    symmetric = zh.SYMMETRIC if c.a.language == "zh" else en.SYMMETRIC
    if any(k in symmetric for k in middle):
        numeric = all(any(classes[k] in (an.NUMBER, an.YEAR) for k in side) for side in (left, right))
        if not numeric or not set(middle) & {"than", "minus", "比"}:
            return PASS
    if not middle:
        return PASS
    if any(k in symmetric for k in (*x[:start], *x[len(x) - end :])) and not middle:
        return PASS
    return refuse(f"{' '.join(left)!r} and {' '.join(right)!r} changed places")


def _transposed(
    x: tuple[str, ...], y: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] | None:
    """Write x as L M R and y as R M L; None if that can't be done with short outer parts."""
    size = len(x)
    for width_right in range(1, min(5, size)):
        right = y[:width_right]
        if x[size - width_right :] != right:
            continue
        for width_left in range(1, min(5, size - width_right + 1)):
            left = x[:width_left]
            if (
                y[size - width_left :] == left
                and x[width_left : size - width_right] == y[width_right : size - width_left]
            ):
                return left, x[width_left : size - width_right], right
    return None


def subject(c: Comparison) -> Verdict:
    """Refuse if actor and object are exchanged between active and passive, or a pronoun hides which of two is meant."""
    if c.a.language != "en" or c.b.language != "en":
        return NOT_APPLICABLE
    passive_a, passive_b = _passive(c.a), _passive(c.b)
    if passive_a != passive_b and not c.left_a and not c.left_b:
        active, other = (c.b, c.a) if passive_a else (c.a, c.b)
        first = _content(active, frozenset())
        second = _content(other, frozenset())
        if len(first) == len(second) and len(first) >= 3 and first == second:
            return refuse("passive in one, active in the other, with the same order of actor and object")
        if len(first) == len(second) >= 3:
            return _passive_roles(first, second)
        return PASS
    return _pronoun(c)


def _passive(text: Analysis) -> bool:
    """Tell whether the text says `is … -ed by`."""
    for i, word in enumerate(text.words):
        if (
            word == "by"
            and i >= 2
            and (text.words[i - 1].endswith(("ed", "en")) or text.keys[i - 1] != text.words[i - 1])
        ):
            return any(
                text.keys[j] == "be" or text.words[j] in ("is", "was", "are", "were", "been", "being")
                for j in range(i)
            )
    return False


def _passive_roles(active: list[str], passive: list[str]) -> Verdict:
    """Compare `A verb B` with `B is verbed by A`: the parts around the verb must have changed sides."""
    for verb in active[1:-1]:
        if verb in passive and "v" in lexicon.part_of_speech(verb):
            i, j = active.index(verb), passive.index(verb)
            before = set(active[:i]) & set(passive[:j])
            after = set(active[i + 1 :]) & set(passive[j + 1 :])
            crossed = set(active[:i]) & set(passive[j + 1 :])
            if (before or after) and not crossed:
                return refuse("passive in one, active in the other, with the same order of actor and object")
            return PASS
    return PASS


def _pronoun(c: Comparison) -> Verdict:
    """Refuse if one text has a pronoun where the other repeats a name, and two or more names could be meant."""
    for x, only_x, y, only_y in ((c.a, c.only_a, c.b, c.only_b), (c.b, c.only_b, c.a, c.only_a)):
        if not any(x.words[i] in _PRONOUNS for i in only_x):
            continue
        if len([k for k in x.keys if k in x.capitals]) < 2:
            continue
        for j in only_y:
            if y.classes[j] in (an.NAME, an.CONTENT) and y.keys[j] in x.keys and y.keys[j] in x.capitals:
                said = y.words[j]
                return refuse(
                    f"a pronoun in one where the other says {said!r}, and more than one could be meant"
                )
    return PASS
