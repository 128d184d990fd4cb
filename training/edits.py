"""Code-made changes of meaning: hard negatives that differ from a text in one respect.

Each edit takes a text and a random generator and returns the edited text, or None where it
doesn't apply. `changed` picks one applicable edit. Changes of form are in forms.py.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from training.words import (
    ANTONYMS,
    CURRENCIES,
    DATES,
    NUMBERS,
    QUALIFIERS,
    SIBLINGS,
    UNITS,
    invented,
    person,
    place_set,
    places,
)

Edit = Callable[[str, random.Random], str | None]


def _like(new: str, old: str) -> str:
    """`new` in the case of `old`."""
    if old.isupper() and len(old) > 1:
        return new.upper()
    return new.title() if old[:1].isupper() else new


def _swap(table: dict[str, tuple[str, ...]], text: str, rng: random.Random) -> str | None:
    words = [
        (m, table[m.group().lower()]) for m in re.finditer(r"[\w+-]+", text) if m.group().lower() in table
    ]
    if not words:
        return None
    match, others = rng.choice(words)
    return text[: match.start()] + _like(rng.choice(others), match.group()) + text[match.end() :]


def number(text: str, rng: random.Random) -> str | None:
    """Another number or year in place of one."""
    found = list(re.finditer(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\d])", text))
    words = [m for m in re.finditer(r"[a-z]+", text.lower()) if m.group() in NUMBERS[2:]]
    if not found and not words:
        return None
    match = rng.choice([*found, *words])
    old = match.group()
    if old in NUMBERS:
        new = rng.choice([w for w in NUMBERS[1:] if w != old])
    else:
        value = int(float(old.replace(",", "").rstrip(".")))
        if 1900 <= value <= 2100:
            new = str(value + rng.choice([-10, -5, -4, -3, -2, -1, 1, 2, 3, 5]))
        else:
            step = max(1, value // 10)
            other = value + rng.choice([-5 * step, -2 * step, -step, step, 2 * step, 5 * step, 9 * value + 1])
            new = str(abs(other) if other != value else value + 1)
        if new == old:
            return None
    return text[: match.start()] + new + text[match.end() :]


def currency(text: str, rng: random.Random) -> str | None:
    found = [i for i, char in enumerate(text) if char in CURRENCIES]
    if not found:
        return None
    i = rng.choice(found)
    return text[:i] + rng.choice(CURRENCIES[text[i]]) + text[i + 1 :]


def antonym(text: str, rng: random.Random) -> str | None:
    return _swap(ANTONYMS, text, rng)


def sibling(text: str, rng: random.Random) -> str | None:
    return _swap(SIBLINGS, text, rng)


def unit(text: str, rng: random.Random) -> str | None:
    return _swap(UNITS, text, rng)


def date(text: str, rng: random.Random) -> str | None:
    return _swap(DATES, text, rng)


def half_day(text: str, rng: random.Random) -> str | None:
    """am for pm and the other way round, or another hour."""
    match = re.search(r"\b(\d{1,2})(:\d\d)? ?(am|pm|a\.m\.|p\.m\.)", text, re.I)
    if match is None:
        return None
    if rng.random() < 0.5:
        half = match.group(3)
        return (
            text[: match.start(3)]
            + half.replace("a", "\0").replace("p", "a").replace("\0", "p")
            + text[match.end(3) :]
        )
    hour = rng.choice([h for h in range(1, 13) if h != int(match.group(1))])
    return text[: match.start(1)] + str(hour) + text[match.end(1) :]


def place(text: str, rng: random.Random) -> str | None:
    """Another place in place of one."""
    words = list(re.finditer(r"[A-Za-z'-]+", text))
    known = place_set()
    spans = [
        (words[i].start(), words[j].end())
        for i in range(len(words))
        for j in range(i, min(i + 3, len(words)))
    ]
    spans = [(s, e) for s, e in spans if text[s:e].lower() in known]
    if not spans:
        return None
    start, end = rng.choice(spans)
    new = rng.choice(places())
    return text[:start] + _like(new, text[start:end]) + text[end:] if new != text[start:end].lower() else None


def name(text: str, rng: random.Random) -> str | None:
    """Another name in place of a capitalised run that doesn't begin the sentence."""
    found = [
        m
        for m in re.finditer(r"(?<=[a-z,] )[A-Z][\w'&.-]*(?: [A-Z][\w'&.-]*)*", text)
        if len(m.group()) > 2 and not m.group().startswith("I'")
    ]
    if not found:
        return None
    match = rng.choice(found)
    old = match.group().rstrip(".")
    new = rng.choice([person(rng), invented(rng), rng.choice(places())]).title()
    if " " in old and rng.random() < 0.5:  # one part of a longer name only
        parts = old.split(" ")
        parts[rng.randrange(len(parts))] = new.split(" ")[0]
        new = " ".join(parts)
    return text[: match.start()] + new + text[match.start() + len(old) :]


def reversed_direction(text: str, rng: random.Random) -> str | None:
    """A and B exchanged in "from A to B", "A to B", "A than B", "A by B"."""
    match = re.search(r"\b(from|between) ([\w'-]+(?: [\w'-]+)?) (to|and|into) ([\w'-]+)", text)
    if match is None or match.group(2).lower() == match.group(4).lower() or match.group(1) == "between":
        return None
    a, b = match.group(2), match.group(4)
    return text[: match.start(2)] + b + text[match.end(2) : match.start(4)] + a + text[match.end(4) :]


def exchanged(text: str, rng: random.Random) -> str | None:
    """Two names, or two noun-like words, in each other's place: who does what to whom."""
    names = [m for m in re.finditer(r"(?<![\w'])[A-Z][\w'-]+(?: [A-Z][\w'-]+)*", text) if m.start() > 0]
    words = list(re.finditer(r"(?<=\b(?:the|his|her|our|its) )[a-z]{4,}\b|(?<=\bof )[a-z]{4,}\b", text))
    runs = names if len(names) >= 2 else words
    if len(runs) < 2:
        return None
    i = rng.randrange(len(runs) - 1)
    first, second = runs[i], runs[rng.randrange(i + 1, len(runs))]
    between = text[first.end() : second.start()]
    if first.group().lower() == second.group().lower() or re.fullmatch(r",? (and|or|&) |, |/|-", between):
        return None  # "A and B" is "B and A"
    return text[: first.start()] + second.group() + between + first.group() + text[second.end() :]


def negated(text: str, rng: random.Random) -> str | None:
    """ "not" put in or taken out."""
    out = re.search(
        r"\b(is|are|was|were|can|could|should|would|will|do|does|did|has|have)(n't| not)\b", text, re.I
    )
    if out:
        return text[: out.start(2)] + text[out.end(2) :]
    put = re.search(
        r"\b(i|you|we|they|he|she|it|people|one|there) (is|are|was|were|can|could|should|would|will)\b",
        text,
        re.I,
    )
    if put:
        return text[: put.end()] + " not" + text[put.end() :]
    put = re.search(
        r"\b(can|could|should|would|will|do|does|did) (i|you|we|they|he|she|it|people|one)\b", text, re.I
    )
    if put:
        return text[: put.end()] + " not" + text[put.end() :]
    put = re.search(r"\b(is|are|was|were|can|should|will)\b (?!there|it|he|she|they|you)", text[1:], re.I)
    if put:
        at = put.end(1) + 1
        return text[:at] + " not" + text[at:]
    return None


def qualifier(text: str, rng: random.Random) -> str | None:
    """A narrowing adjective put before a noun that follows "the", "a" or "my"."""
    found = list(re.finditer(r"\b(the|my|any|some|of) (?=[a-z]{3,}\b)", text))
    if not found:
        return None
    match = rng.choice(found)
    return text[: match.end()] + rng.choice(QUALIFIERS) + " " + text[match.end() :]


_WH = {
    "how": ("why", "when", "where"),
    "why": ("how", "when", "where"),
    "when": ("where", "why", "how"),
    "where": ("when", "why", "how"),
    "who": ("when", "why"),
}


def question_word(text: str, rng: random.Random) -> str | None:
    """Another question asked about the same thing."""
    match = re.match(r"(how|why|when|where) (do|does|did|can|is|are|was|were|should)\b", text, re.I)
    if match is None:
        return None
    return _like(rng.choice(_WH[match.group(1).lower()]), match.group(1)) + text[match.end(1) :]


CHANGES: dict[str, tuple[Edit, float]] = {  # edit, weight of the draw
    "number": (number, 2.0),
    "currency": (currency, 3.0),
    "antonym": (antonym, 2.0),
    "sibling": (sibling, 2.0),
    "unit": (unit, 3.0),
    "date": (date, 3.0),
    "place": (place, 2.0),
    "name": (name, 1.5),
    "half-day": (half_day, 3.0),
    "direction": (reversed_direction, 3.0),
    "exchanged": (exchanged, 2.5),
    "negated": (negated, 0.5),
    "qualifier": (qualifier, 0.5),
    "question-word": (question_word, 0.5),
}


def changed(text: str, rng: random.Random) -> tuple[str, str] | None:
    """One change of meaning: (kind, edited text), or None where no edit applies."""
    found = []
    for kind, (edit, weight) in CHANGES.items():
        new = edit(text, rng)
        if new is not None and new.lower() != text.lower():
            found.append((kind, new, weight))
    if not found:
        return None
    kind, new, _ = rng.choices(found, weights=[weight for *_, weight in found])[0]
    return kind, new
