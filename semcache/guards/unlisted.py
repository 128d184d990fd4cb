"""Names that are written small and stand in no table: a vimeo video, a youtube video. Pure.

A word that no table has is a name, a slip of the pen, or a form of another word. Where each text has one such word that the other lacks,
neither is a slip or a form, and both stand in the same place of the sentence, the texts are about two things.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from semcache.guards import analysis as an
from semcache.guards import english as en
from semcache.guards import lexicon
from semcache.guards.analysis import CACHE_SIZE, Analysis
from semcache.guards.comparison import Comparison
from semcache.guards.english import words

LEAST_LETTERS: Final = 4  # fewer are often initials: diy, app
MOST_LETTERS: Final = 20  # more are no name
COMMON: Final = 0.5  # rarity up to which a word may be meant by a misspelling
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_PRONOUNS: Final = words(
    "everyone everybody everything everywhere nobody anyone anybody anything anywhere someone somebody something somewhere whoever whatever"
)
_ENDINGS: Final = words("s es ed ing er ers or est y ly ish ism ist able less ness ity al ally ical ous")
_PREFIXES: Final = words("pre re un non sub multi post over under anti inter co micro super bio")
_BEFORE: Final = en.ARTICLES | en.POSSESSIVES | words("any some this that")
_GOVERNING: Final = {
    word: line
    for line in (
        "in within inside on at",
        "via through using by with",
        "from of",
        "to into onto",
        "for",
        "about",
    )
    for word in line.split()
}


class _Place(NamedTuple):
    """Where a word stands: the sense of the preposition before it, the noun that it is part of, the noun before that preposition."""

    governed: str
    head: str
    noun: str


def two_names(c: Comparison) -> tuple[str, str] | None:
    """Return the one name of each text that no table has, if they stand in the same place, else None."""
    if c.a.language != "en" or c.b.language != "en" or not c.left_a or not c.left_b:
        return None
    i, j = _only(c.a, c.left_a), _only(c.b, c.left_b)
    if i is None or j is None:
        return None
    x, y = c.a.words[i], c.b.words[j]
    if _forms(x, y) or not _beside(_place(c.a, i), _place(c.b, j)):
        return None
    if any(_meant(word) - set(text.words) - set(text.keys) for word, text in ((x, c.a), (y, c.b))):
        return None
    return x, y


def _only(text: Analysis, left: tuple[int, ...]) -> int | None:
    """Return the place of the one word left over that no table has, None if there are none or several."""
    found = [i for i in left if text.classes[i] in (an.CONTENT, an.NAME) and _unlisted(text.words[i])]
    return found[0] if len(found) == 1 else None


@lru_cache(maxsize=CACHE_SIZE)
def _unlisted(word: str) -> bool:
    """Tell whether no table has a word, nor what is left of it without a prefix or an ending."""
    if (
        not LEAST_LETTERS <= len(word) <= MOST_LETTERS
        or not (word.isascii() and word.isalpha())
        or word in _PRONOUNS
    ):
        return False
    stems = [word, lexicon.lemma(word), lexicon.degree_base(word)]
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2:
            stems += [stem, stem + "e", stem[:-1] + "y" if stem[-1] == "i" else stem]
            stems.append(stem[:-1] if stem[-1] == stem[-2] else stem)
    stems += [lexicon.lemma(word.removeprefix(prefix)) for prefix in _PREFIXES if word.startswith(prefix)]
    return not any(len(stem) > 2 and lexicon.part_of_speech(stem) for stem in stems)


def _forms(x: str, y: str) -> bool:
    """Tell whether two words may be one, spelt or formed otherwise: insta, instagram; spotify, spotifi."""
    shorter, longer = sorted((x, y), key=len)
    if x[:LEAST_LETTERS] == y[:LEAST_LETTERS]:
        return True
    letters = iter(longer)
    if shorter[0] == longer[0] and all(letter in letters for letter in shorter):
        return True
    return _distance(x, y) <= 2


def _distance(x: str, y: str) -> int:
    """Return how many letters must be put, dropped or changed to turn x into y."""
    before = list(range(len(y) + 1))
    for i, c in enumerate(x, start=1):
        now = [i]
        for j, d in enumerate(y):
            now.append(min(before[j] + (c != d), before[j + 1] + 1, now[j] + 1))
        before = now
    return before[-1]


@lru_cache(maxsize=CACHE_SIZE)
def _meant(word: str) -> frozenset[str]:
    """Return the common words of which a word may be a misspelling by one letter, or by two exchanged ones."""
    parts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    near = {head + tail[1:] for head, tail in parts if tail}
    near |= {head + tail[1] + tail[0] + tail[2:] for head, tail in parts if len(tail) > 1}
    near |= {head + letter + tail[cut:] for head, tail in parts for letter in _LETTERS for cut in (0, 1)}
    return frozenset(
        w
        for w in near
        if len(w) >= LEAST_LETTERS and lexicon.part_of_speech(w) and lexicon.rarity(w) <= COMMON
    )


def _place(text: Analysis, i: int) -> _Place:
    k = i - 1
    while k >= 0 and text.words[k] in _BEFORE:
        k -= 1
    governed = _GOVERNING.get(text.words[k], "") if k >= 0 else ""
    return _Place(
        governed=governed,
        head=_telling(text, i + 1),
        noun=_telling(text, k - 1) if governed else "",
    )


def _telling(text: Analysis, i: int) -> str:
    return text.keys[i] if 0 <= i < len(text.keys) and text.weights[i] > 0 else ""


def _beside(x: _Place, y: _Place) -> bool:
    """Tell whether two places are one: a vimeo video, a youtube video; a video on vimeo, a youtube video; via paypal, through venmo."""
    return (
        (x.head != "" and x.head in (y.head, y.noun))
        or (y.head != "" and y.head == x.noun)
        or (x.governed != "" and x.governed == y.governed)
    )
