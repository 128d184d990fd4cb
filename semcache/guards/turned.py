"""The same words said of other things: whose something is, what is denied, who does it to whom. Pure; English only.

All of this is about texts between which no word that tells differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from semcache.guards import analysis as an
from semcache.guards import english as en
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison
from semcache.guards.english import words
from semcache.guards.people import PEOPLE

_JOINTS: Final = words("and but or nor yet though although while whereas because")
_ASKED: Final = frozenset(("what", "who", "which"))
_DO: Final = words("do does did")
NEAR: Final = 0.8  # overlap from which what comes first is the difference
_MARKERS: Final = ("after", "before")
_STARTS: Final = words("can could should would will do does did is are i you we they he she")  # of a clause
_BE: Final = words("is are was were be been being am")
_LOOSE: Final = words("mean happen look seem cost")  # verbs that are used as questions of either kind


def turned(c: Comparison) -> str:
    """Return what the texts say of other things, an empty string if nothing."""
    if c.a.language == c.b.language == "en" and c.overlap >= NEAR:
        found = _first(c)
        if found:
            return found
    if c.left_a or c.left_b or c.a.language != "en" or c.b.language != "en":
        return ""
    return _owned(c) or _denied(c) or _asked(c)


def _first(c: Comparison) -> str:
    """Return what comes before what in one text and behind it in the other: paint after sanding, sand after painting."""
    if any("before" in x.words and "after" in x.words for x in (c.a, c.b)):
        return ""  # before or after
    for marker in _MARKERS:
        if not c.a.words.count(marker) == c.b.words.count(marker) == 1:
            continue
        mine, theirs = _behind(c.a, marker), _behind(c.b, marker)
        if mine and theirs and _crossed(mine[0], c.a, theirs, c.b) and _crossed(theirs[0], c.b, mine, c.a):
            return f"{marker} {mine[0]!r} in one, {marker} {theirs[0]!r} in the other"
    return ""


def _crossed(key: str, text: Analysis, others: list[str], other: Analysis) -> bool:
    """Tell whether the other text says this elsewhere, and says neither twice."""
    return key in other.keys and key not in others and text.keys.count(key) == 1


def _behind(text: Analysis, marker: str) -> list[str]:
    """Return what tells behind a word, up to the end of its clause."""
    found: list[str] = []
    for i in range(text.words.index(marker) + 1, len(text.keys)):
        if text.classes[i] == an.CONTENT:
            found.append(text.keys[i])
        elif found and (text.classes[i] == an.QUESTION or text.words[i] in _STARTS):
            break
    return found


def _owned(c: Comparison) -> str:
    """Return what is whose in one text and another's in the other: my dog bit your cat, your dog bit my cat."""
    mine, theirs = dict(_owners(c.a)), dict(_owners(c.b))
    for noun, owner in mine.items():
        other = theirs.get(noun, owner)
        if owner != other and {owner, other} <= set(c.a.keys) & set(c.b.keys):
            return f"{noun!r} is of {owner!r} in one and of {other!r} in the other"
    return ""


def _owners(text: Analysis) -> Iterator[tuple[str, str]]:
    return (
        (noun, owner)
        for owner, noun in pairwise(text.keys)
        if (owner in en.POSSESSIVES or owner in PEOPLE) and noun not in en.POSSESSIVES
    )


def _denied(c: Comparison) -> str:
    """Return what one text denies and the other says, where they exchange it: salt and no oil, oil and no salt."""
    if c.a.negations != 1 or c.b.negations != 1:
        return ""
    (said, denied), (claimed, refused) = _beside_negation(c.a), _beside_negation(c.b)
    mine, theirs = (denied - said) & (claimed - refused), (said - denied) & (refused - claimed)
    return f"{min(mine)!r} and {min(theirs)!r} are denied by one of them each" if mine and theirs else ""


def _beside_negation(text: Analysis) -> tuple[set[str], set[str]]:
    """Return the keys of the clause before the one that negates, and of that one."""
    before: set[str] = set()
    clause: set[str] = set()
    negates = False
    for key, word, kind in zip(text.keys, text.words, text.classes, strict=True):
        if word in _JOINTS or kind == an.QUESTION:
            if negates:
                break
            before, clause = clause, set()
        elif word in en.NEGATIONS:
            negates = True
        else:
            clause.add(key)
    return before, clause


def _asked(c: Comparison) -> str:
    """Tell whether one text asks who does something and the other to whom it is done: what eats bees, what do bees eat."""
    if c.a.question != c.b.question or c.a.question not in _ASKED:
        return ""
    if _done_by_another(c.a) == _done_by_another(c.b):
        return ""
    if not _BE.isdisjoint(c.a.words) or not _BE.isdisjoint(c.b.words):
        return ""
    one, other = _said_in_order(c.a), _said_in_order(c.b)
    if sorted(one) != sorted(other) or len(one) < 2 or not _LOOSE.isdisjoint(one) or one == other:
        return ""
    return f"{' '.join(one)!r} and {' '.join(other)!r} ask for opposite sides of it"


def _done_by_another(text: Analysis) -> bool:
    """Tell whether somebody named does what is asked about: what do *bees* eat."""
    return any(
        word in _DO and kind != an.QUESTION and behind != an.QUESTION
        for (word, kind), (_, behind) in pairwise(zip(text.words, text.classes, strict=True))
    )


def _said_in_order(text: Analysis) -> list[str]:
    return [key for key in text.keys if key not in _DO and key not in en.ARTICLES]
