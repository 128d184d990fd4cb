"""Where two names are forms of one: DJ and DJs, Dvořák and Dvorak, Britain and British, Python and Pythonic, IterableDataset and its parts. Pure."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from semcache.guards import english as en
from semcache.guards import lexicon

_CACHE_SIZE: Final = 20_000
_SUFFIXES: Final = ("ical", "ic", "ian", "an", "ish", "esque", "like")
_ENDINGS: Final = ("s", "ing", "ed")
_PREFIXES: Final = ("pre", "re", "post", "sub", "multi", "non")
_LEAST_STEM: Final = 4  # letters of a name from which an adjective is made
_COMPOUND: Final = re.compile(r"(?<![A-Za-z])(?:[A-Z][a-z]+){2,}(?![A-Za-z])")
_PART: Final = re.compile(r"[A-Z][a-z]+")
_ADJECTIVES: Final = {  # of places whose spelling doesn't tell
    word: frozenset(line.split("|"))
    for line in """american|us|usa|america|united states
british|uk|britain|great britain|united kingdom
english|england
french|france
spanish|spain
dutch|netherlands|netherland|holland
polish|poland
danish|denmark
finnish|finland
irish|ireland
scottish|scotland
welsh|wales
swiss|switzerland
greek|greece
thai|thailand
filipino|philippines
portuguese|portugal
norwegian|norway
kuwaiti|kuwait
iraqi|iraq""".splitlines()
    for word in line.split("|")[:1]
}


def adjective(words: tuple[str, ...], i: int, place: str) -> bool:
    """Tell whether the word at `i` is the adjective of a place and stands before a noun: British trains, the UK; not "in French", France."""
    return place in _ADJECTIVES.get(words[i], ()) and any(
        "n" in lexicon.part_of_speech(lexicon.lemma(word)) for word in words[i + 1 : i + 2]
    )


def one_name(x: str, y: str) -> bool:
    """Tell whether two different lower-case words that begin alike are forms of one name."""
    shorter, longer = sorted((x, y), key=len)
    if longer.startswith(shorter) and longer[len(shorter) :] in _ENDINGS:
        return not lexicon.part_of_speech(longer)
    if not (x.isascii() and y.isascii()):
        return _unaccented(x) == _unaccented(y)
    return _derived(shorter, longer)


def _unaccented(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


def _derived(name: str, word: str) -> bool:
    """Tell whether a word that no table has is made of a name by a suffix: Pythonic; not Romanian, which has a sense of its own."""
    if len(name) < _LEAST_STEM or lexicon.part_of_speech(word):
        return False
    stems = (name, name[:-1]) if name[-1] in "aeoy" else (name,)
    return any(word == stem + suffix for stem in stems for suffix in _SUFFIXES)


@lru_cache(maxsize=_CACHE_SIZE)
def compounds(plain: str) -> dict[str, tuple[str, ...]]:
    """Return the parts of each name that is written as several words in one: iterabledataset, of IterableDataset."""
    return {
        found.lower(): tuple(part.lower() for part in _PART.findall(found))
        for found in _COMPOUND.findall(plain)
    }


def opens_items(text: str, words: list[re.Match[str]]) -> frozenset[str]:
    """Return known words whose capital only opens an item of a list: Load a file, Preprocess, Evaluate predictions.

    A list is known by two capitals behind a comma or colon, and by two of its items that go on in lower case.

    Args:
        words: All words of the text, in reading order.
    """
    items: set[str] = set()
    starts = cased = 0
    for k, word in enumerate(words):
        if not word[0][0].isupper():
            continue
        plain = word[0].lower().rstrip(".'")
        if not _known(plain):
            continue
        before = text[words[k - 1].end() : word.start()] if k else ""
        begins = not before.isspace() and not before.isalnum() and any(c in ",:;*" for c in before)
        last = bool(k) and starts > 0 and words[k - 1][0].lower() in ("and", "or")
        follows = (
            k + 1 < len(words)
            and text[word.end() : words[k + 1].start()] == " "
            and _goes_on(words[k + 1][0])
        )
        starts += begins
        cased += follows
        if begins or last or follows:
            items.add(plain)
    return frozenset(items) if starts >= 2 and cased >= 2 else frozenset()


def _goes_on(word: str) -> bool:
    """Tell whether a word can go on an item of a list: not "Powell said", "Apple or Google"."""
    if not word.islower() or word in en.YES_NO_OPENERS or word in ("and", "or", "vs", "but"):
        return False
    base = lexicon.lemma(word)
    return base == word or word.endswith(("s", "ing")) or "v" not in lexicon.part_of_speech(base)


def _known(word: str) -> bool:
    """Tell whether a word, or what stands behind its prefix, is in the table: preprocessing."""
    word = word.removesuffix("ing") if not lexicon.part_of_speech(word) else word
    return any(
        lexicon.part_of_speech(base) or lexicon.part_of_speech(lexicon.lemma(base))
        for base in (word, *(word.removeprefix(prefix) for prefix in _PREFIXES if word.startswith(prefix)))
    )
