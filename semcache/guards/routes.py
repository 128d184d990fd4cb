"""The guard for directions: what a text comes from and what it goes to. Pure.

Two texts that share a thing which is the start in one and the goal in the other ask for different routes,
conversions or senders, unless another verb or noun governs each preposition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from semcache.guards import analysis as an
from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import han, lexicon, people
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison
from semcache.guards.english import words
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

_Ends: TypeAlias = dict[
    str, set[str]
]  # what is an end → keys of the words that govern its prepositions; "" for none

PARTS: Final = frozenset(
    (
        an.CONTENT, an.NAME, an.PLACE, an.NUMBER, an.ORDINAL, an.YEAR, an.CODE, an.CURRENCY, an.UNIT, an.TIME, an.DATE,
    )
)  # fmt: skip
_BETWEEN_MARKER_AND_END: Final = words(
    "the a an my your his her its our their in at into city of downtown either both"
)
_ENDS: Final = frozenset((an.PLACE, an.NAME, an.CURRENCY, an.UNIT))
_ALWAYS_ENDS: Final = frozenset((an.PLACE, an.CURRENCY, an.UNIT))  # whatever governs the preposition
_TO: Final = words("to 到 去 至")
_PREPOSITIONS: Final = words("from to into onto toward towards of")
_NOT_MOVED: Final = {  # prepositions of several words, and adjectives whose preposition is no direction
    "from": words("apart aside different differ differs distinct"),
    "to": words(
        "addition according due thanks owing prior regard regards respect compared comparable similar equal equivalent opposed contrary relative related"
    ),
}
_BEFORE_INFINITIVES: Final = words(
    "want wants need needs have has had how going used able like ought try order what where when which whether is are was were"
)
_EITHER: Final = words("either both")


def route(text: Analysis) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys of what a text comes from and of what it goes to; what is both is neither."""
    sources, targets = _ends(text)
    return frozenset(sources), frozenset(targets)


def _ends(text: Analysis) -> tuple[_Ends, _Ends]:
    sources: _Ends = {}
    targets: _Ends = {}
    governors: dict[int, str] = {}
    chinese = text.language == "zh"
    froms, tos = (zh.FROM_MARKERS, zh.TO_MARKERS) if chinese else (en.FROM_MARKERS, en.TO_MARKERS)
    for i, word in enumerate(text.words):
        key = text.keys[i]
        if word == "between":
            _between(text, i, sources, targets)
        elif word in froms or key in froms or (word == "of" and "out" in text.words[max(0, i - 1) : i]):
            _add_end(text, i, sources, governors)
        elif word in tos or key in tos:
            found = _add_end(text, i, targets, governors)
            if found and i and word in _TO and text.classes[i - 1] in _ENDS:
                sources.setdefault(text.keys[i - 1], set()).add("")  # boston to denver
    for end in sources.keys() & targets.keys():
        del sources[end], targets[end]
    return sources, targets


def _add_end(text: Analysis, marker: int, into: _Ends, governors: dict[int, str]) -> bool:
    """Add what stands behind a marker; tell whether there was something.

    Args:
        governors: By place of a start, what its preposition belongs to, and that of the goal behind it: a note from Ann to Bob.
    """
    before = text.words[marker - 1] if marker else ""
    if before in _NOT_MOVED.get(text.words[marker], ()):
        return False
    for j in range(marker + 1, min(len(text.keys), marker + 4)):
        if text.classes[j] in PARTS and text.words[j] not in _EITHER:
            if before in _BEFORE_INFINITIVES and text.words[marker] == "to" and _verb(text, j):
                return False
            governor = _governor(text, marker, governors)
            if text.words[marker] == "from":
                governors[j] = governor
            into.setdefault(text.keys[j], set()).add(governor)
            return True
        if text.words[j] not in _BETWEEN_MARKER_AND_END:
            return False
    return False


def _verb(text: Analysis, i: int) -> bool:
    return text.classes[i] == an.CONTENT and "v" in lexicon.part_of_speech(text.words[i])


def _governor(text: Analysis, marker: int, governors: Mapping[int, str]) -> str:
    """Return the key of the word that an English preposition belongs to: connection to, created from."""
    if text.language == "zh" or text.words[marker] not in _PREPOSITIONS:
        return ""
    place = next((k for k in range(marker - 1, -1, -1) if text.classes[k] in PARTS), None)
    if place is None:
        return ""
    start = place  # of a name of several words: from Google Drive to
    while start > 0 and start not in governors and text.classes[start - 1] in PARTS:
        start -= 1
    return governors.get(start, text.keys[place])


def _between(text: Analysis, marker: int, sources: _Ends, targets: _Ends) -> None:
    """Read "between A and B" as from A to B; the other way round may be another answer."""
    ends = [j for j in range(marker + 1, min(len(text.keys), marker + 5)) if text.classes[j] in _ENDS]
    if len(ends) == 2 and "and" in text.words[ends[0] : ends[1]]:
        sources.setdefault(text.keys[ends[0]], set()).add("")
        targets.setdefault(text.keys[ends[1]], set()).add("")


def direction(c: Comparison) -> Verdict:
    """Refuse if something is the start in one text and the goal in the other, or they call or write to two people."""
    if c.a.language == c.b.language == "zh":
        called = han.called(c.a.plain, c.b.plain)
        if called is not None:
            return refuse(f"to {called[0]!r} in one and to {called[1]!r} in the other")
    given = people.given(c)
    if given:
        return refuse(f"only one of them is to {given} out")
    from_a, to_a = _ends(c.a)
    from_b, to_b = _ends(c.b)
    if not (from_a or to_a) or not (from_b or to_b):
        return NOT_APPLICABLE
    left, came = from_a.keys() & to_b.keys(), to_a.keys() & from_b.keys()
    swapped = sorted(
        end
        for ends, one, other in ((left, from_a, to_b), (came, to_a, from_b))
        for end in ends
        if (left and came) or _comparable(c.a, end, one[end], other[end])
    )
    return refuse(f"{swapped[0]!r} is the start in one and the goal in the other") if swapped else PASS


_MESSAGES: Final = words(
    "letter email mail message note reply answer response complaint call invoice memo request postcard card offer gift"
)  # which one sends and another gets


def _comparable(text: Analysis, end: str, one: set[str], other: set[str]) -> bool:
    """Tell whether two prepositions before the same end belong to words that say the same, or to none."""
    if text.classes[text.keys.index(end)] in _ALWAYS_ENDS or "" in one or "" in other:
        return True
    if not _MESSAGES.isdisjoint(one) and not _MESSAGES.isdisjoint(other):
        return True
    return any(x == y or lexicon.synonyms(x, y) or lexicon.antonyms(x, y) for x in one for y in other)
