"""Which changes of word order change nothing: lists, appositions, attributes before or behind their noun. Pure.

Knows: where two words stand in two texts that both have them. Leaves to others: which words to ask about (`roles`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from semcache.guards import analysis as an
from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import lexicon
from semcache.guards.analysis import Analysis
from semcache.guards.english import words

_JOINTS: Final = words("and or nor a an the &")
_NAMES: Final = frozenset((an.NAME, an.PLACE))
_ATTRIBUTES: Final = words("of for in from at on by")
PREPOSITIONS: Final = words(
    "in on at by with for from to about into through during until since after before near under over against without via"
)
_CLAUSES: Final = words("and but or then when while where which who that")
_WITH: Final = words("through via using")
_USED: Final = frozenset((("used", "to"), ("used", "for"), ("serves", "to")))
_NEAR: Final = 4  # words from a means to what says so
_LONGEST: Final = 5  # words of a noun with what belongs to it


def free(a: Analysis, b: Analysis, i: tuple[int, int], j: tuple[int, int]) -> bool:
    """Tell whether two words may stand in either order.

    Args:
        a, b: The two texts.
        i, j: The place of each word in `a` and in `b`.
    """
    return (
        ((_listed(a, i[0], j[0]) or _listed(b, i[1], j[1])) and not _titled(a, b, i, j))
        or (_apposed(a, i[0], j[0], b.capitals) and _apposed(b, i[1], j[1], a.capitals))
        or _attributed(a, i[0], j[0], b, i[1], j[1])
        or _attributed(b, i[1], j[1], a, i[0], j[0])
        or _carried(a, b, i, j)
        or any(_means(a, one) and _means(b, other) for one, other in (i, j))
    )


def _listed(text: Analysis, i: int, j: int) -> bool:
    """Tell whether nothing but list items and joints stand between two words, or one of them is a symbol."""
    if an.SYMBOL in (text.classes[i], text.classes[j]):
        return True
    between = range(min(i, j) + 1, max(i, j))
    joint = zh.SYMMETRIC if text.language == "zh" else _JOINTS
    kinds = _NAMES if text.classes[i] in _NAMES else frozenset((text.classes[i],))
    return all(text.keys[k] in joint or (text.weights[k] > 0 and text.classes[k] in kinds) for k in between)


def _titled(a: Analysis, b: Analysis, i: tuple[int, int], j: tuple[int, int]) -> bool:
    """Tell whether one noun stands before the first item in both texts, and is said of that item alone: champion Ann, Bob and Cleo."""
    first = min(i[0], j[0]) - 1, min(i[1], j[1]) - 1
    if (
        min(first) < 0
        or a.keys[first[0]] != b.keys[first[1]]
        or a.classes[first[0]] not in (an.CONTENT, an.NAME)
    ):
        return False
    word, last = a.words[first[0]], max(i[0], j[0])
    return word == a.keys[first[0]] != a.keys[last - 1] and "n" in lexicon.part_of_speech(word)


def _apposed(text: Analysis, i: int, j: int, names: frozenset[str]) -> bool:
    """Tell whether one name stands in brackets behind the other: Ana Duarte (Rosa Melo).

    Args:
        names: What the other text writes as names; the first word of a sentence doesn't show it.
    """
    i, j = min(i, j), max(i, j)
    inside = text.words[i:j]
    return inside.count("(") == 1 and all(
        text.classes[k] in _NAMES or text.keys[k] in names for k in range(i, j + 1) if text.words[k] != "("
    )


def _attributed(x: Analysis, i: int, j: int, y: Analysis, k: int, m: int) -> bool:
    """Tell whether one text says `noun of attribute` and the other `attribute noun`: a museum in Porto, a Porto museum.

    Args:
        i, j: Places of noun and attribute in `x`.
        k, m: Their places in `y`.
    """
    if i > j:
        i, j, k, m = j, i, m, k
    between = x.words[i + 1 : j]
    if not between or k <= m or k - m > _LONGEST:
        return False
    if between[0] not in _ATTRIBUTES or any(w not in en.ARTICLES for w in between[1:]):
        return False
    noun = y.keys[m + 1 : k + 1]
    return x.keys[i + 1 - len(noun) : i + 1] == noun


def _carried(a: Analysis, b: Analysis, i: tuple[int, int], j: tuple[int, int]) -> bool:
    """Tell whether each of two words keeps a preposition of its own: in Ghent by Tom, by Tom in Ghent."""
    one, other = _preposition(a, i[0]), _preposition(a, j[0])
    return (
        bool(one and other)
        and one != other
        and (one, other) == (_preposition(b, i[1]), _preposition(b, j[1]))
    )


def _preposition(text: Analysis, i: int) -> str:
    """Return the preposition right before a word, articles apart, or an empty string."""
    i -= 1
    while i > 0 and text.words[i] in en.ARTICLES:
        i -= 1
    return text.words[i] if i >= 0 and text.words[i] in PREPOSITIONS else ""


def _means(text: Analysis, i: int) -> bool:
    """Tell whether a word is what something is done with: the sieve is used to ..., through the sieve."""
    behind = text.words[i + 1 : i + 1 + _NEAR]
    return not _WITH.isdisjoint(text.words[max(0, i - _NEAR) : i]) or any(
        pair in _USED for pair in pairwise(behind)
    )


def governing(text: Analysis, i: int) -> str:
    """Return the key of the verb in the past or participle that a year or number belongs to, or an empty string.

    That is the one before it, but the one behind it where the figure opens a clause: and in 1946 he played.
    """
    start = i
    while start and (text.words[start - 1] in PREPOSITIONS or text.classes[start - 1] == an.DATE):
        start -= 1
    opens = not start or text.words[start - 1] in _CLAUSES
    places = range(i + 1, len(text.keys)) if opens else range(i - 1, -1, -1)
    return next((text.keys[k] for k in places if _past(text, k)), "")


def year(text: Analysis, i: int) -> bool:
    """Tell whether a number is a year of any century: in 1871, on 3 May 1871."""
    return (
        text.classes[i] == an.NUMBER
        and len(text.words[i]) == 4
        and i > 0
        and (text.classes[i - 1] == an.DATE or text.words[i - 1] in PREPOSITIONS)
    )


def _past(text: Analysis, i: int) -> bool:
    word, key = text.words[i], text.keys[i]
    return word != key and not word.endswith(("s", "ing")) and "v" in lexicon.part_of_speech(key)
