"""Reads the shipped word tables and answers questions about single words. No I/O after the first use.

Knows: how common an English or Chinese word is, an English word's base form, synonyms, antonyms,
places, and how to cut Chinese text into words. Leaves to others: what follows from it.

The tables are made by `tools/build_lexicon.py`. Each is read when first needed and stays in memory
(English about 10 MB, Chinese about 10 MB).
"""

from __future__ import annotations

import gzip
import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

from semcache.guards import chinese, english
from semcache.guards.english import words

_IRREGULAR: Final = {
    form: line.split()[0]
    for line in """
    be am is are was were been being
    have has had having
    do does did done doing
    go goes went gone going
    get got gotten getting
    make made
    take took taken
    give gave given
    come came
    see saw seen
    know knew known
    think thought
    say said
    tell told
    find found
    buy bought
    sell sold
    send sent
    spend spent
    lend lent
    bring brought
    teach taught
    catch caught
    fight fought
    leave left
    lose lost
    win won
    keep kept
    sleep slept
    feel felt
    meet met
    pay paid
    lay laid
    hold held
    stand stood
    understand understood
    write wrote written
    break broke broken
    speak spoke spoken
    steal stole stolen
    choose chose chosen
    drive drove driven
    ride rode ridden
    eat ate eaten
    fall fell fallen
    forget forgot forgotten
    forgive forgave forgiven
    begin began begun
    drink drank drunk
    sing sang sung
    swim swam swum
    run ran
    become became
    grow grew grown
    throw threw thrown
    draw drew drawn
    fly flew flown
    wear wore worn
    hear heard
    build built
    mean meant
    sit sat
    shoot shot
    hide hid hidden
    bite bit bitten
    beat beaten
    freeze froze frozen
    wake woke woken
    rise rose risen
    shake shook shaken
    hang hung
    feed fed
    lead led
    bind bound
    seek sought
    dig dug
    stick stuck
    strike struck
    swear swore sworn
    tear tore torn
    man men
    woman women
    child children
    person people persons
    foot feet
    tooth teeth
    mouse mice
    goose geese
    wife wives
    life lives
    knife knives
    leaf leaves
    half halves
    thief thieves
    analysis analyses
    criterion criteria
    phenomenon phenomena
    datum data
    medium media
    die died dying dies
    lie lied lying lies
    tie tied tying ties
    good
    well
    bad
    """.strip().splitlines()
    for form in line.split()
}
_KEEP: Final = words(
    "this his its has was is as us news bus gas yes less always perhaps series species physics mathematics maths"
    " politics economics windows james paris texas during nothing something anything everything morning evening"
    " thing king ring spring string bring sing wing red bed need feed speed seed hundred"
)
_DEGREE: Final = re.compile(r"(\w{2,}?)(?:(?<=(\w))\2)?(?:er|est)$")


def _lines(name: str) -> list[str]:
    return gzip.decompress((files("semcache.data") / name).read_bytes()).decode().splitlines()


@cache
def _english() -> tuple[dict[str, int], dict[str, str], dict[str, str]]:
    """Return rarity 0..99, sense numbers and parts of speech by word.

    Nothing but text, so that the garbage collector has nothing to look through.
    """
    rarity: dict[str, int] = {}
    senses: dict[str, str] = {}
    parts: dict[str, str] = {}
    for line in _lines("english.tsv.gz"):
        word, rank, part, codes = line.split("\t")
        rarity[word] = int(rank)
        parts[word] = part
        if codes:
            senses[word] = codes
    return rarity, senses, parts


@cache
def _chinese() -> dict[str, int]:
    return {word: int(rank) for word, rank, _ in (line.split("\t") for line in _lines("chinese.tsv.gz"))}


@cache
def _places() -> frozenset[str]:
    return frozenset(_lines("places.tsv.gz"))


@cache
def _antonyms() -> frozenset[tuple[str, str]]:
    found = {(a, b) for a, b in (line.split("\t") for line in _lines("antonyms.tsv.gz"))}
    return frozenset(found | {(b, a) for a, b in found}) | english.CONTRASTS


@lru_cache(maxsize=50_000)
def lemma(word: str) -> str:
    """Return the base form of a lower-case English word; unknown words lose regular plural endings only."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) < 4 or word in _KEEP or not word.isascii():
        return word
    known = _english()[2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        for end, put in (("ies", "y"), ("es", ""), ("s", "")):
            if word.endswith(end):
                stem = word[: -len(end)] + put
                hisses = end != "es" or stem.endswith(
                    ("s", "x", "z", "ch", "sh", "o")
                )  # boxes; but planes, bees
                if end == "s" or (hisses and known.get(stem)):
                    return stem
    if word.endswith(("ed", "ing")):
        stem = word[:-2] if word.endswith("ed") else word[:-3]
        if len(stem) >= 3 and stem[-1] == stem[-2] and "v" in known.get(stem[:-1], ""):
            return stem[:-1]
        for candidate in (stem + "e", stem) if len(stem) > 2 else ():
            if "v" in known.get(candidate, ""):
                return candidate
        if word.endswith("ied") and "v" in known.get(word[:-3] + "y", ""):
            return word[:-3] + "y"
    return word


@lru_cache(maxsize=50_000)
def degree_base(word: str) -> str:
    """Return the positive form of a comparative or superlative, else the word."""
    found = _DEGREE.match(word)
    if found is None:
        return word
    known = _english()[2]
    for candidate in (
        found[1],
        found[1] + "e",
        found[1].removesuffix("i") + "y",
        found[1] + (found[2] or ""),
    ):
        if "a" in known.get(candidate, ""):
            return candidate
    return word


@lru_cache(maxsize=50_000)
def rarity(word: str) -> float:
    """Return how much an English word tells, in [0, 1]: 0 for the commonest, 1 for unknown ones."""
    rank = _english()[0].get(word)
    return 1.0 if rank is None else min(1.0, max(0.0, (rank - 38) / 37))


@lru_cache(maxsize=50_000)
def chinese_rarity(word: str) -> float:
    """Return how much a Chinese word tells, in [0, 1]; a single character counts as fairly common."""
    rank = _chinese().get(word)
    if rank is None:
        return 0.45 if len(word) == 1 else 1.0
    return min(1.0, max(0.15, (rank - 25) / 30))


@cache
def place_beginnings() -> frozenset[str]:
    """Return the first words of places whose names have several words."""
    return frozenset(name.partition(" ")[0] for name in _places() if " " in name)


def is_place(name: str) -> bool:
    """Tell whether a lower-case name is a country, a state of the USA or a city of some size."""
    return name in _places()


@lru_cache(maxsize=50_000)
def synonyms(a: str, b: str) -> bool:
    """Tell whether two English base forms share a frequent sense."""
    group = english.SAME.get(a)
    if group is not None and group == english.SAME.get(b):
        return True
    senses = _english()[1]
    left, right = senses.get(a), senses.get(b)
    return left is not None and right is not None and not set(left.split()).isdisjoint(right.split())


@cache
def _relatives() -> dict[str, str]:
    return {word: f" {others} " for word, others in (line.split("\t") for line in _lines("related.tsv.gz"))}


@lru_cache(maxsize=50_000)
def related(a: str, b: str) -> bool:
    """Tell whether one English word may be put for another: synonyms in any frequent sense, the more general word, the derived one."""
    first, second = (a, b) if a < b else (b, a)
    return f" {second} " in _relatives().get(first, "") or synonyms(a, b)


@lru_cache(maxsize=50_000)
def antonyms(a: str, b: str) -> bool:
    """Tell whether two English words are opposites, in any inflection that the table has."""
    table = _antonyms()
    if (a, b) in table:
        return True
    for x, y in ((lemma(a), lemma(b)), (degree_base(a), degree_base(b))):
        if (x, y) in table:
            return True
    for x, y in ((a, b), (b, a)):  # un-lock, dis-like, in-correct, non-smoking
        for prefix in ("un", "dis", "in", "im", "il", "ir", "non", "non-", "de", "anti", "anti-", "mis"):
            if y == prefix + x and len(x) > 3 and x in _english()[2]:
                return True
    return ((a.endswith("less") and b.endswith("ful")) or (b.endswith("less") and a.endswith("ful"))) and a[
        :-4
    ] == b[:-3]


@lru_cache(maxsize=50_000)
def neutral(a: str, b: str) -> bool:
    """Tell whether one of two related words is as much related to an opposite of the other: change, for increase and decrease."""
    found = _opposites()
    return any(
        related(opposite, other) for one, other in ((a, b), (b, a)) for opposite in found.get(lemma(one), ())
    )


@lru_cache(maxsize=1)
def _opposites() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for a, b in _antonyms():
        found.setdefault(a, []).append(b)
    return found


@lru_cache(maxsize=50_000)
def part_of_speech(word: str) -> str:
    """Return letters out of `anrv` (adjective, noun, adverb, verb); empty if unknown."""
    return _english()[2].get(word, "")


@cache
def _chinese_extra() -> frozenset[str]:
    """Return words of our closed classes, which are cut out before others."""
    closed = (chinese.CANONICAL, chinese.WHEN, chinese.DAY_PARTS, chinese.UNITS, chinese.CURRENCY_WORDS)
    opposites = {word for pair in chinese.CONTRASTS for word in pair}
    return frozenset(
        word for word in (*(w for c in closed for w in c), *opposites, *chinese.COUNTRIES) if len(word) > 1
    )


@lru_cache(maxsize=20_000)
def cut(text: str) -> tuple[str, ...]:
    """Cut a run of Chinese characters into words by the least sum of costs (a unigram model)."""
    table, extra = _chinese(), _chinese_extra()
    size = len(text)
    best = [0.0] * (size + 1)
    step = [1] * (size + 1)
    for start in range(size - 1, -1, -1):
        cost, width = best[start + 1] + 52.0, 1
        for end in range(start + 2, min(size, start + 6) + 1):
            word = text[start:end]
            rank = 30 if word in extra else table.get(word) if end - start < 5 else None
            if rank is None:
                continue
            other = best[end] + rank + 8
            if other < cost:
                cost, width = other, end - start
        best[start], step[start] = cost, width
    words: list[str] = []
    start = 0
    while start < size:
        words.append(text[start : start + step[start]])
        start += step[start]
    return tuple(words)
