"""Guards for who does what to whom: order and subject.

They apply where two texts have the same content: swapping the operands of an asymmetric relation, or
actor and object, changes the question without changing a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from semcache.guards import analysis as an
from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import han, lexicon, moves, people, turned
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison, shared_beginning
from semcache.guards.english import words
from semcache.guards.routes import PARTS, route
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse, show

_Parts: TypeAlias = tuple[str, ...]

_PRONOUNS: Final = words("his her him he she their they")
_BEFORE_A_NAME: Final = words("the a an my in at into city of downtown")
LONG: Final = 9  # tokens from which a text counts as long
NEAR: Final = 0.8  # overlap from which two long texts count as near copies
VERY_NEAR: Final = 0.9  # overlap from which the order of names alone decides
_NAMES: Final = frozenset((an.NAME, an.PLACE))
_EDGES: Final = frozenset("^$")
_YEARS: Final = frozenset((an.YEAR,))
_NUMBERS: Final = frozenset((an.NUMBER,))
_FIGURES: Final = _YEARS | _NUMBERS
_MOVABLE: Final = _FIGURES | {an.DATE}
_MEASURED: Final = _MOVABLE | {an.TIME, an.DAY_PART, an.ORDINAL}
_NAMING: Final = _NAMES | _FIGURES
_COMPARES: Final = words("than minus 比")
_BE: Final = words("is was are were be been being")
_GET: Final = words("get gets got getting")


def _content(text: Analysis, skip: frozenset[str]) -> list[str]:
    return [k for k, kind in zip(text.keys, text.classes, strict=True) if kind in PARTS and k not in skip]


def order(c: Comparison) -> Verdict:
    """Refuse if two parts changed places around an asymmetric middle, or swapped contexts in a long near copy."""
    if c.a.keys == c.b.keys:
        return NOT_APPLICABLE
    if c.a.language == c.b.language == "zh":
        texts = c.a.normal.replace(" ", ""), c.b.normal.replace(" ", "")
        compared = (
            han.compared(*texts)
            or han.related(*texts)
            or han.lettered(c.a.plain, c.b.plain)
            or han.exchanged(c.a.plain, c.b.plain)
        )
        if compared is not None:
            return _changed_places(compared[:1], compared[1:])
    found = turned.turned(c)
    if found:
        return refuse(found)
    if not c.left_a and not c.left_b:
        verdict = _same_words(c)
        if verdict.verdict == "refuse":
            return verdict
    if min(len(c.a.keys), len(c.b.keys)) < LONG or c.overlap < NEAR:
        return NOT_APPLICABLE if c.left_a or c.left_b else PASS
    return _swapped_contexts(c)


def _same_words(c: Comparison) -> Verdict:
    found = _exchanged(c.a.keys, c.b.keys, chinese=c.a.language == "zh")
    return PASS if found is None else _judge_exchange(c, *found)


def _exchanged(x: _Parts, y: _Parts, *, chinese: bool) -> tuple[_Parts, _Parts, _Parts] | None:
    """Return L, M and R of the span in which x has L M R and y has R M L; None if there is none with a middle."""
    start = shared_beginning(x, y)
    end = shared_beginning(x[start:][::-1], y[start:][::-1])
    # In Chinese what changed places may begin alike: 我, 我弟.
    for begin in range(start, -1, -1) if chinese else (start,):
        found = _transposed(x[begin : len(x) - end], y[begin : len(y) - end])
        if found is not None and found[1]:
            return found
    if not chinese:
        return None
    bare = [tuple(key for key in keys if key not in zh.FILLERS) for keys in (x, y)]
    return None if bare == [x, y] else _exchanged(bare[0], bare[1], chinese=True)


def _judge_exchange(c: Comparison, left: _Parts, middle: _Parts, right: _Parts) -> Verdict:
    if all(len(side) == 1 and side[0] in zh.PRONOUNS for side in (left, right)):
        return PASS if all(k in zh.SYMMETRIC for k in middle) else _changed_places(left, right)
    classes = dict(zip(c.a.keys, c.a.classes, strict=True))
    if c.a.language == "zh" and _deed(left, middle, right, classes):
        return _changed_places(left, right)
    if not all(any(classes[k] in PARTS for k in side) for side in (left, right)):
        return PASS
    if left[0] != right[0] and left[0] in moves.PREPOSITIONS and right[0] in moves.PREPOSITIONS:
        return PASS  # in Ghent by Tom, by Tom in Ghent
    if middle == ("(",) and all(any(classes[k] in _NAMES for k in side) for side in (left, right)):
        return PASS
    if c.a.language == "zh" and any(k in zh.QUESTION_WORDS for k in (*left, *right)):
        return PASS
    if c.a.language == "zh" and _asymmetric(middle, classes):
        return _changed_places(left, right)
    symmetric = zh.SYMMETRIC if c.a.language == "zh" else en.SYMMETRIC
    said = {w for k, w in zip(c.a.keys, c.a.words, strict=True) if k in middle}.union(middle)
    if not said.isdisjoint(symmetric):
        numeric = all(any(classes[k] in (an.NUMBER, an.YEAR) for k in side) for side in (left, right))
        if not numeric or said.isdisjoint(_COMPARES):
            return PASS
    return _changed_places(left, right)


def _asymmetric(middle: _Parts, classes: Mapping[str, str]) -> bool:
    """Tell whether a Chinese middle makes a difference of its ends whatever else it says: 被, or a verb and no "and"."""
    joints = zh.SYMMETRIC.intersection(middle) - {"是"}
    return "被" in middle or (not joints and any(classes[key] in PARTS for key in middle))


def _deed(left: _Parts, middle: _Parts, right: _Parts, classes: Mapping[str, str]) -> bool:
    """Tell whether a person and somebody else changed places around what one does to the other: 老板骂了我, 我骂了老板."""
    pronouns = [side for side in (left, right) if len(side) == 1 and side[0] in zh.PRONOUNS]
    others = [side for side in (left, right) if side not in pronouns]
    if len(pronouns) != 1 or not any(classes[k] in PARTS for k in others[0]):
        return False
    return zh.SYMMETRIC.isdisjoint(middle) and any(classes[k] in PARTS or k in zh.DONE_BY for k in middle)


def _changed_places(left: _Parts, right: _Parts) -> Verdict:
    return refuse(f"{' '.join(left)!r} and {' '.join(right)!r} changed places")


def _neighbours(text: Analysis) -> tuple[dict[str, str], dict[str, str], dict[str, int]]:
    """Return, for each word that tells and stands once, the one before it, the one behind it, and its place."""
    telling = [i for i, weight in enumerate(text.weights) if weight > 0]
    keys = [text.keys[i] for i in telling]
    once = {key for key in keys if keys.count(key) == 1}
    before = {k: keys[p - 1] if p else "^" for p, k in enumerate(keys) if k in once}
    behind = {k: keys[p + 1] if p + 1 < len(keys) else "$" for p, k in enumerate(keys) if k in once}
    return before, behind, {k: telling[p] for p, k in enumerate(keys) if k in once}


def _swapped_contexts(c: Comparison) -> Verdict:
    """Refuse if x stands in one text where y stands in the other, and the other way round.

    A moved clause keeps its inner neighbours; exchanged names take each other's. Lists may be
    reordered, and a passive may turn a sentence round.
    """
    if _participles(c.a) != _participles(c.b) or _voice_changed(c):
        return PASS
    before_a, behind_a, place_a = _neighbours(c.a)
    before_b, behind_b, place_b = _neighbours(c.b)
    before, behind = (before_a, before_b), (behind_a, behind_b)
    for (mine, theirs), others in ((before, behind), (behind, before)):
        by_neighbour = {neighbour: key for key, neighbour in mine.items()}
        for x, neighbour in theirs.items():
            y = by_neighbour.get(neighbour)
            if y is None or y == x or mine.get(x) in (None, neighbour) or theirs.get(y) != mine[x]:
                continue
            kinds = c.a.classes[place_a[x]], c.a.classes[place_a[y]]
            if (kinds[0] in _MEASURED) != (kinds[1] in _MEASURED):
                continue
            at_edge = not _EDGES.isdisjoint((neighbour, mine[x]))
            if at_edge and c.a.language == "en" and _clause_moved(kinds, x, y, *others):
                continue
            if not moves.free(c.a, c.b, (place_a[x], place_b[x]), (place_a[y], place_b[y])):
                return refuse(f"{x!r} and {y!r} took each other's place")
    return _moved_names(c, place_a, place_b) if c.overlap >= VERY_NEAR else PASS


def _clause_moved(
    kinds: tuple[str, str], x: str, y: str, mine: Mapping[str, str], theirs: Mapping[str, str]
) -> bool:
    """Tell whether two words that stand at the edge of a text say no more than that another clause comes first or last there.

    Args:
        kinds: The classes of the two words.
        mine, theirs: In each text, what stands on the other side of a word.
    """
    return kinds == (an.CONTENT, an.CONTENT) and mine.get(x) != theirs.get(y) and mine.get(y) != theirs.get(x)


def _moved_names(c: Comparison, place_a: dict[str, int], place_b: dict[str, int]) -> Verdict:
    """Refuse if names, places or numbers of two very near copies come in another order, lists apart."""
    ends = route(c.a)
    if all(ends) and ends == route(c.b):  # to B from A
        return PASS
    shared = sorted((k for k in place_a if k in place_b), key=place_a.__getitem__)
    kinds = {k: an.YEAR if moves.year(c.a, place_a[k]) else c.a.classes[place_a[k]] for k in shared}
    for group in (
        (_NAMES, _YEARS, _NUMBERS) if _only_figures_moved(c, shared, place_a, place_b) else (_NAMING,)
    ):
        for x, y in pairwise(k for k in shared if kinds[k] in group):
            if place_b[y] < place_b[x] and not moves.free(
                c.a, c.b, (place_a[x], place_b[x]), (place_a[y], place_b[y])
            ):
                return refuse(f"{x!r} comes before {y!r} in one and behind it in the other")
    return PASS


def _only_figures_moved(
    c: Comparison, shared: Sequence[str], place_a: Mapping[str, int], place_b: Mapping[str, int]
) -> bool:
    """Tell whether nothing moved but years and numbers, each within its clause: opened in Ghent in 1911, in 1911 opened in Ghent.

    Args:
        shared: What both texts have, in the order of the first.
    """
    figures = [k for k in shared if c.a.classes[place_a[k]] in _MOVABLE]
    others = [place_b[k] for k in shared if k not in figures]
    if others != sorted(others):
        return False
    for figure in figures:
        one, other = moves.governing(c.a, place_a[figure]), moves.governing(c.b, place_b[figure])
        if one != other and one in c.b.keys and other in c.a.keys:
            return False
    return True


def _participles(text: Analysis) -> int:
    """Count passives, with or without `by`."""
    count = 0
    for i, word in enumerate(text.words[:-1]):
        if word in _BE:
            after = text.words[i + 1]
            count += after.endswith("ed") or (
                text.keys[i + 1] != after and after.endswith(("en", "wn", "lt", "nt", "ght"))
            )
    return count


def _voice_changed(c: Comparison) -> bool:
    """Tell whether a verb that both texts have is passive in one of them only: used to load X, X can be loaded."""
    mine, theirs = _passives(c.a), _passives(c.b)
    return any(key in c.b.keys for key in mine - theirs) or any(key in c.a.keys for key in theirs - mine)


def _passives(text: Analysis) -> set[str]:
    """Return base forms of participles with a form of "be" at most two words before them."""
    return {
        key
        for i, (key, word) in enumerate(zip(text.keys, text.words, strict=True))
        if not _BE.isdisjoint(text.words[max(0, i - 2) : i])
        and (
            (word != key and word.endswith(("ed", "en", "wn", "lt", "nt", "ght")))
            or "by" in text.words[i + 1 : i + 3]
        )
    }


def _transposed(x: _Parts, y: _Parts) -> tuple[_Parts, _Parts, _Parts] | None:
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
    """Refuse if actor and object are exchanged between active and passive, or it is open or another who is meant."""
    if c.a.language == c.b.language == "zh":
        return _person(c)
    if c.a.language != "en" or c.b.language != "en":
        return NOT_APPLICABLE
    passive_a, passive_b = _passive(c.a), _passive(c.b)
    if passive_a != passive_b and not c.left_a and not c.left_b:
        active, other = (c.b, c.a) if passive_a else (c.a, c.b)
        first = _content(active, frozenset())
        second = _content(other, frozenset())
        if first == second and len(first) >= 2:
            return refuse("passive in one, active in the other, with the same order of actor and object")
        if len(first) == len(second) >= 3:
            return _passive_roles(first, second)
        return PASS
    if people.self_or_other(c):
        return refuse("the one who asks in one, somebody else in the other")
    who = people.another(c)
    if who:
        return refuse(f"only one of them is about {who!r}")
    if people.exchanged(c):
        return refuse("done to one in one, by one in the other")
    return _pronoun(c)


_PERSON: Final = re.compile("[我俺你您他她](?!们)")
_SAME_PERSON: Final = str.maketrans("俺您", "我你")


def _person(c: Comparison) -> Verdict:
    """Refuse if each text speaks of persons and none of them is the same (我妈妈叫什么, 你妈妈叫什么), or they changed places."""
    if _suffered(c):
        return refuse("passive in one, active in the other, with the same order of actor and object")
    kin = han.inserted(c.a.plain, c.b.plain)
    if kin in zh.KIN:
        return refuse(f"only one of them is about {kin!r}")
    changed = han.persons(c.a.plain, c.b.plain)
    if changed is not None:
        return refuse(f"{changed[0]!r} against {changed[1]!r}, in this order")
    mine, theirs = (set("".join(_PERSON.findall(text.normal)).translate(_SAME_PERSON)) for text in (c.a, c.b))
    if not mine or not theirs:
        return NOT_APPLICABLE
    if mine & theirs:
        return PASS
    return refuse(f"{show(sorted(mine))} against {show(sorted(theirs))}")


def _suffered(c: Comparison) -> bool:
    """Tell whether one of two texts with the same content says 被, and who comes first is the same: 谁打败了他, 谁被他打败了."""
    if c.left_a or c.left_b or ("被" in c.a.words) == ("被" in c.b.words):
        return False
    passive, active = (c.a, c.b) if "被" in c.a.words else (c.b, c.a)
    at = passive.words.index("被")
    said = [key for key in active.keys if key not in zh.FILLERS]
    before = [key for key in passive.keys[:at] if key not in zh.FILLERS]
    agent = passive.keys[at + 1 : at + 2]
    return bool(before and agent) and said[: len(before)] == before and agent[0] in said[len(before) + 1 :]


def _passive(text: Analysis) -> bool:
    """Tell whether the text says `is … -ed by`."""
    for i, word in enumerate(text.words):
        if word != "by" or i < 2 or not _agent(text, i + 1):
            continue
        verb, key = text.words[i - 1], text.keys[i - 1]
        if verb.endswith(("ed", "en")) or key != verb or "v" in lexicon.part_of_speech(verb):
            return any(w in _BE or w in _GET for w in text.words[:i])
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


def _agent(text: Analysis, start: int) -> bool:
    """Tell whether somebody that tells stands from `start` on: by the bank; not "by anyone", "is owned by?"."""
    for word, kind in zip(text.words[start : start + 3], text.classes[start : start + 3], strict=True):
        if kind in PARTS:
            return kind not in (an.DATE, an.UNIT)
        if word not in _BEFORE_A_NAME:
            break
    return False


def _pronoun(c: Comparison) -> Verdict:
    """Refuse if one text has a pronoun where the other repeats a name, and two or more names could be meant."""
    for x, only_x, y, only_y in ((c.a, c.only_a, c.b, c.only_b), (c.b, c.only_b, c.a, c.only_a)):
        if not any(x.words[i] in _PRONOUNS for i in only_x):
            continue
        if len([k for k in x.keys if k in x.capitals]) < 2:
            continue
        for j in only_y:
            if (
                y.classes[j] in (an.NAME, an.CONTENT, an.PLACE)
                and y.keys[j] in x.keys
                and y.keys[j] in x.capitals
            ):
                said = y.words[j]
                return refuse(
                    f"a pronoun in one where the other says {said!r}, and more than one could be meant"
                )
    return PASS
