"""The guard for one thing put where another stood: lettuce for the hamster, lettuce for the parrot.

Knows: the span in which two texts differ, which words of it stand for each other, and whether what is
left is an exchange of one thing for another or the same said in other words. Leaves to others: names,
opposites and what is typed (numbers, dates, places), which have guards of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from semcache.guards import analysis as an
from semcache.guards import english as en
from semcache.guards import lexicon
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison, alike
from semcache.guards.english import words
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse, show

LEAST_WEIGHT: Final = {"en": 0.42, "zh": 0.35}  # of each side of a substitution
HEAVY: Final = 0.6  # weight at which one side alone decides
LONG_TEXT: Final = 24  # tokens from which what stands between the same words tells, in a copy
MOST_CHANGED: Final = 0.15  # share of the tokens of a copy that may differ
LONGEST: Final = 5  # tokens of a replaced span
_OPEN: Final = frozenset((an.CONTENT, an.NAME, *an.TYPED))
_NAMED: Final = frozenset((an.NAME, *an.TYPED))
_BEFORE_VERBS: Final = words(
    "to i you we they he she it one who people me us him them let please do does did not"
    " can could should would will shall must may might"
)
_LIGHT: Final = words(
    "i we you they one he she it me us my your our their his her its a an the some any all many much most several few"
    " good better best very so really actually do does did is are was were be been can could should would will shall may might must to"
)
_AND: Final = words("and or vs versus")
_TOLD_APART: Final = (
    words(
        "infant newborn baby toddler preschooler child kid teenager teen adolescent adult senior puppy kitten dog cat"
    ),
    words("lend loan borrow rent lease hire give donate sell"),
    words("couple family group"),
)  # ages, deals, companies: related words, yet a toddler needs something else than a child
_DO: Final = words("do does did")
_BE: Final = words("is are was were been be")
_DETERMINERS: Final = words(
    "a an the my your our his her its their this that these those some any all both each every no another other few several many"
    " much more most lot lots very so too quite really actually even just ever good better best"
)


def spans(a: Analysis, b: Analysis) -> tuple[range, range] | None:
    """Return the one span by which two texts differ, None unless both sides have one.

    Articles don't count.
    """
    return _between(a, b, en.ARTICLES, lambda i, j: a.keys[i] == b.keys[j])


def _between(
    a: Analysis, b: Analysis, skipped: frozenset[str], same: Callable[[int, int], bool]
) -> tuple[range, range] | None:
    """Return the spans between what two texts begin and end with alike, None if either is empty."""
    x = _without_owners([i for i, word in enumerate(a.words) if word not in skipped], a, b)
    y = _without_owners([j for j, word in enumerate(b.words) if word not in skipped], b, a)
    start, most = 0, min(len(x), len(y))
    while start < most and same(x[start], y[start]):
        start += 1
    end = 0
    while end < most - start and same(x[-1 - end], y[-1 - end]):
        end += 1
    mid_a, mid_b = x[start : len(x) - end], y[start : len(y) - end]
    if not mid_a or not mid_b:
        return None
    return range(mid_a[0], mid_a[-1] + 1), range(mid_b[0], mid_b[-1] + 1)


def _without_owners(places: list[int], x: Analysis, y: Analysis) -> list[int]:
    """Leave out a "my" or "their" between two words that stand side by side in the other text: organize (my) photos."""
    if en.POSSESSIVES.isdisjoint(x.words):
        return places
    beside = set(pairwise(y.keys))
    return [
        i
        for n, i in enumerate(places)
        if x.words[i] not in en.POSSESSIVES
        or not 0 < n < len(places) - 1
        or (x.keys[places[n - 1]], x.keys[places[n + 1]]) not in beside
    ]


def substitution(c: Comparison) -> Verdict:
    """Refuse if one span of content was replaced by another and everything else is the same, in order."""
    if not c.left_a and not c.left_b:
        return NOT_APPLICABLE
    if c.a.language == c.b.language == "en":
        things = _things(c)
        if things is not None:
            return _against(c, *things)
    found = spans(c.a, c.b)
    if found is None or max(len(found[0]), len(found[1])) > LONGEST:
        return _in_one_place(c)
    side_a, side_b = found
    alone_a, alone_b = _alone(c.a, side_a, c.b, side_b), _alone(c.b, side_b, c.a, side_a)
    least = LEAST_WEIGHT["zh" if "zh" in (c.a.language, c.b.language) else "en"]
    if _heaviest(c.a, alone_a) < least or _heaviest(c.b, alone_b) < least:
        return _one_word(c, side_a, side_b)
    if c.a.language == c.b.language == "en" and _reworded(c, side_a, side_b, alone_a, alone_b):
        return PASS
    return _against(c, side_a, side_b)


def _in_one_place(c: Comparison) -> Verdict:
    """Refuse if in a long text and a copy of it one thing stands in the other's place, between the same words."""
    shorter = min(len(c.a.keys), len(c.b.keys))
    if shorter < LONG_TEXT or max(len(c.only_a), len(c.only_b)) > MOST_CHANGED * shorter:
        return PASS
    places = {}
    for j in c.left_b:
        if c.b.classes[j] == an.CONTENT and c.b.weights[j] >= LEAST_WEIGHT["en"]:
            places[c.b.keys[j - 1] if j else "", *c.b.keys[j + 1 : j + 2]] = j
    for i in c.left_a if places else ():
        if c.a.classes[i] == an.CONTENT and c.a.weights[i] >= LEAST_WEIGHT["en"]:
            other = places.get((c.a.keys[i - 1] if i else "", *c.a.keys[i + 1 : i + 2]))
            if other is not None and not _stands_for(c.a, i, c.b, other):
                return refuse(f"{c.a.words[i]!r} against {c.b.words[other]!r}, in the same place")
    return PASS


def _against(c: Comparison, side_a: range, side_b: range) -> Verdict:
    return refuse(f"{show([c.a.words[i] for i in side_a])} against {show([c.b.words[i] for i in side_b])}")


def _things(c: Comparison) -> tuple[range, range] | None:
    """Return where one word, or one thing's name, was replaced and else at most auxiliaries, pronouns and determiners."""
    if not 0 < min(len(c.left_a), len(c.left_b)) <= max(len(c.left_a), len(c.left_b)) <= LONGEST:
        return None
    found = _between(c.a, c.b, _LIGHT, lambda i, j: _same(c.a, i, c.b, j))
    if found is None or max(len(found[0]), len(found[1])) > LONGEST:
        return None
    side_a, side_b = found
    telling_a = _telling(c.a, side_a, c.left_a)
    telling_b = _telling(c.b, side_b, c.left_b) if telling_a else []
    # what is left over on both sides isn't alike
    if not telling_b or any(_related(c.a, i, c.b, j) for i in telling_a for j in telling_b):
        return None
    if max(_reworded_words(c.a, c.only_a, side_a), _reworded_words(c.b, c.only_b, side_b)) > 1:
        return None
    if len(telling_a) == len(telling_b) == 1 or (_ends_as_noun(c.a, side_a) and _ends_as_noun(c.b, side_b)):
        return found
    return None


def _same(x: Analysis, i: int, y: Analysis, j: int) -> bool:
    return x.keys[i] == y.keys[j] or (x.classes[i] == y.classes[j] == an.CONTENT and _stands_for(x, i, y, j))


def _reworded_words(x: Analysis, only: tuple[int, ...], side: range) -> int:
    """Count what tells something outside a span and is put in other words in the other text."""
    return sum(i not in side and x.weights[i] >= LEAST_WEIGHT["en"] for i in only)


def _telling(x: Analysis, side: range, left: tuple[int, ...]) -> list[int]:
    """Return the words of a span that count, none unless each is content that the other text lacks."""
    counted = [i for i in side if x.words[i] not in _LIGHT]
    least = LEAST_WEIGHT["en"]
    for i in counted:
        if x.classes[i] != an.CONTENT or x.weights[i] < least or i not in left:
            return []
    return counted


def _ends_as_noun(x: Analysis, side: range) -> bool:
    """Tell whether a span is a thing's name, with what stands before the noun, behind a function word: of the *couch cushion*."""
    last, first = side[-1], side[0]
    return (
        _part(x, last) == "n"
        and not x.words[last].endswith("ing")
        and first > 0
        and (x.classes[first - 1] == an.FUNCTION or _part(x, first - 1) == "v")
        and x.classes[last + 1 : last + 2] in ((), (an.FUNCTION,))
    )


def _alone(x: Analysis, side_x: range, y: Analysis, side_y: range) -> list[int]:
    """Return the telling tokens of one span that nothing in the other span stands for."""
    return [i for i in side_x if x.classes[i] in _OPEN and not any(_stands_for(x, i, y, j) for j in side_y)]


def _stands_for(x: Analysis, i: int, y: Analysis, j: int) -> bool:
    return x.keys[i] == y.keys[j] or alike(x, i, y, j) or _related(x, i, y, j)


def _related(x: Analysis, i: int, y: Analysis, j: int) -> bool:
    """Tell whether the lexicon relates two words in one of their forms and opposes them in none, or both only praise."""
    if x.language != "en" or y.language != "en" or x.classes[i] in _NAMED or y.classes[j] in _NAMED:
        return False
    ones, others = _forms(x, i), _forms(y, j)
    if any(not kind.isdisjoint(ones) and not kind.isdisjoint(others) for kind in _TOLD_APART):
        return False
    if (en.PRAISE.isdisjoint(ones) or en.PRAISE.isdisjoint(others)) and not any(
        lexicon.related(one, other) and not lexicon.neutral(one, other) for one in ones for other in others
    ):
        return False
    return not any(lexicon.antonyms(one, other) for one in ones for other in others)


def _forms(x: Analysis, i: int) -> set[str]:
    return {x.keys[i], x.words[i], lexicon.degree_base(x.words[i])}


def _heaviest(x: Analysis, tokens: list[int]) -> float:
    return max((x.weights[i] for i in tokens), default=0.0)


def _reworded(c: Comparison, side_a: range, side_b: range, alone_a: list[int], alone_b: list[int]) -> bool:
    """Tell whether two spans say one thing in two ways rather than two things in one way.

    So they do if they share a word that stands elsewhere in each ("pronunciation of English", "English
    speaking"), or if one verb or adjective was replaced together with the words around it ("supports",
    "can be used for"): not if one word was put in another's place ("bake", "fry"), one noun for another,
    a name, an opposite, or if another question is asked.
    """
    if an.question_words(c.a) != an.question_words(c.b):
        return False
    if any(x.classes[i] in _NAMED for x, alone in ((c.a, alone_a), (c.b, alone_b)) for i in alone):
        return False
    if any(lexicon.antonyms(c.a.keys[i], c.b.keys[j]) for i in alone_a for j in alone_b):
        return False
    if _shared(c.a, side_a, alone_a) or _shared(c.b, side_b, alone_b):
        if _listed(c.a, side_a) and _listed(c.b, side_b):
            return False
        firsts = side_a[0], side_b[0]
        if (alone_a, alone_b) == ([firsts[0]], [firsts[1]]) and _part(c.a, firsts[0]) == _part(
            c.b, firsts[1]
        ) == "v":
            return False  # add salt to the soup, keep salt out of the soup
        return not _parallel(c, side_a, side_b, alone_a, alone_b)
    frames = _frame(c.a, side_a), _frame(c.b, side_b)
    if len(alone_a) > 1 or len(alone_b) > 1 or frames[0] == frames[1] or len(frames[0] + frames[1]) < 2:
        return False
    parts = frozenset((_part(c.a, alone_a[0]), _part(c.b, alone_b[0])))
    if parts == {"v"} and (_turned(*frames) or _turned(*frames[::-1])):
        return False
    return parts != {"n"} and ("v" in parts or frozenset(map(tuple, frames)) != {("from",), ("to",)})


def _listed(x: Analysis, side: range) -> bool:
    """Tell whether a span is a list: a fox and a wolf."""
    return any(x.words[i] in _AND for i in side[1:-1])


def _turned(one: list[str], other: list[str]) -> bool:
    """Tell whether one frame asks what something did, the other what was done to it: how did it end, how was it ended."""
    return not _DO.isdisjoint(one) and not _BE.isdisjoint(other)


def _shared(x: Analysis, side: range, alone: list[int]) -> bool:
    return sum(x.classes[i] in _OPEN for i in side) > len(alone)


def _parallel(c: Comparison, side_a: range, side_b: range, alone_a: list[int], alone_b: list[int]) -> bool:
    """Tell whether two spans have their common words at the same places: *paint* the bathroom *floor*, *tile* the bathroom *ceiling*."""
    ones = [i for i in side_a if c.a.words[i] not in _LIGHT]
    others = [j for j in side_b if c.b.words[j] not in _LIGHT]
    return len(ones) == len(others) and all(
        _stands_for(c.a, i, c.b, j) or (i in alone_a and j in alone_b)
        for i, j in zip(ones, others, strict=True)
    )


def _frame(x: Analysis, side: range) -> list[str]:
    """Return the words of a span that hold it together: neither content nor determiners."""
    return [
        x.keys[i]
        for i in side
        if x.classes[i] not in _OPEN and x.words[i] not in _DETERMINERS and x.words[i] != "-"
    ]


def _part(x: Analysis, i: int) -> str:
    """Guess whether a word is a noun, verb or something else (n, v, a) where it stands."""
    word = x.words[i]
    parts = lexicon.part_of_speech(word) or lexicon.part_of_speech(x.keys[i])
    if "v" in parts and (not i or x.words[i - 1] in _BEFORE_VERBS):
        return "v"
    if "n" in parts:
        narrows = "a" in parts and x.classes[i + 1 : i + 2] in ((an.CONTENT,), (an.NAME,))
        return "a" if narrows else "n"
    return "v" if "v" in parts else "a" if parts else "n"


def _one_word(c: Comparison, side_a: range, side_b: range) -> Verdict:
    """Refuse if a word that tells was replaced by one of another kind: a 4, a one; hawaii, hi."""
    if "zh" in (c.a.language, c.b.language) or len(side_a) != 1 or len(side_b) != 1:
        return PASS
    i, j = side_a[0], side_b[0]
    weights = c.a.weights[i], c.b.weights[j]
    if max(weights) < HEAVY or (i not in c.left_a and j not in c.left_b):
        return PASS
    if _stands_for(c.a, i, c.b, j):
        return PASS
    return refuse(f"{c.a.words[i]!r} against {c.b.words[j]!r}")
