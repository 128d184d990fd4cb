"""What changes with time: who holds an office, the weather, whether something is open.

Knows: the words for it, and how texts ask about it. Leaves to others: whether two texts ask about two times (`tenses`).
"""

from __future__ import annotations

from typing import Final

from semcache.guards import analysis as an
from semcache.guards import english as en
from semcache.guards import lexicon
from semcache.guards.analysis import Analysis
from semcache.guards.english import words
from semcache.guards.moments import DATED

_OFFICES: Final = words("""
    president minister premier chancellor king queen emperor pope prince sultan monarch ruler governor senator mayor
    speaker secretary ambassador ceo cfo cto chairman chairwoman chairperson chair chief head leader manager
    boss principal dean headmaster captain coach skipper goalkeeper champion holder treasurer commissioner
    commander owner landlord host
    """)
_CHANGING: Final = words("weather temperature forecast traffic humidity price rate score balance mood")
_FELT: Final = words("hot cold warm windy humid much")
_STATES: Final = words("""
    down up open closed shut online offline available unavailable busy full empty on off running working ready awake
    asleep home late delayed locked unlocked connected charging cancelled crowded vacant occupied sick ill alive married
    pregnant frozen flooded outside inside here there out
    """)
_SKY: Final = words("raining snowing hailing sunny cloudy windy foggy stormy freezing")
_PREPOSITIONS: Final = words("of for in at on by with")
_BEHIND: Final = _PREPOSITIONS | words("now currently right like outside there here")
_OPENERS: Final = words("who what which how is was are were")
_FOR_EVER: Final = words(
    "during when before after until while since ever history time all-time ago once most last final former really real historical evidence mistake error"
)
_STORIES: Final = words(
    "film movie story tale book novel play poem episode chapter season series scene act game"
)
_AGES: Final = words("revolution empire dynasty reich soviet ancient medieval crusade wwi wwii ww1 ww2")
_PRAISE: Final = en.PRAISE | words("worst favorite favourite")


def changes(x: Analysis, y: Analysis) -> bool:
    """Tell whether the answer to what both ask changes with time: an office, the weather, what is open."""
    if not DATED.isdisjoint(x.kinds) or not _PRAISE.isdisjoint(x.said) or x.words[0] not in _OPENERS:
        return False
    if stays(x) or any(not _FOR_EVER.isdisjoint(text.said) or _has_superlative(text) for text in (x, y)):
        return False  # the greatest king is so for ever
    if not _OFFICES.isdisjoint(x.said):
        return _asks_for(_OFFICES, x) and _asks_for(_OFFICES, y)
    if x.question == "yesno":
        return (
            x.words[-1] == y.words[-1] in _STATES
            or not _SKY.isdisjoint(x.words)
            or x.words[1:2] == y.words[1:2] == ("there",)
        )
    if x.words[0] == "how" and x.words[1] in _FELT:
        if x.words[1] == "much":  # how much is the ferry: not 5 plus 7, a mile in km
            return x.words[2] in ("is", "are") and x.classes[-1] != an.NUMBER and x.words[-1] not in en.UNITS
        return "it" in x.said
    return x.question in ("what", "how") and _asks_for(_CHANGING, x) and _asks_for(_CHANGING, y)


def _has_superlative(text: Analysis) -> bool:
    """Tell whether a text has a word like "greatest": not Budapest, forest, guest."""
    return any(
        word.endswith("est") and kind != an.PLACE and "n" not in lexicon.part_of_speech(word)
        for word, kind in zip(text.words, text.classes, strict=True)
    )


def stays(text: Analysis) -> bool:
    """Tell whether a text is about what is told in a story or long over, which people ask about in any tense."""
    told = any(
        word == "in" and not _STORIES.isdisjoint(text.keys[i + 1 : i + 4])
        for i, word in enumerate(text.words)
    )
    return (
        told
        or not _AGES.isdisjoint(text.said)
        or "world war" in text.normal
        or "at the end of" in text.normal
    )


def _asks_for(things: frozenset[str], text: Analysis) -> bool:
    """Tell whether one of some things is what is asked for: the king of Spain, not King Lear, the king's wife or the son of the king."""
    i = next((k for k, key in enumerate(text.keys) if key in things), None)
    if i is None or "who" in text.words[1:] or "that" in text.words or "which" in text.words[1:]:
        return False
    before, behind = text.words[:i], text.words[i + 1 : i + 2]
    if behind and behind[0] not in _BEHIND:
        return False
    if text.question == "yesno" and "the" not in before:
        return False
    return _PREPOSITIONS.isdisjoint(before) or before[-3:-1] == ("name", "of")
