"""Code-made changes of form: easy positives that say the same in another way."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from training.edits import Edit
from training.words import NUMBERS

_CONTRACTIONS = [
    ("what is", "what's"), ("who is", "who's"), ("where is", "where's"), ("how is", "how's"), ("it is", "it's"),
    ("that is", "that's"), ("i am", "i'm"), ("you are", "you're"), ("do not", "don't"), ("does not", "doesn't"),
    ("did not", "didn't"), ("is not", "isn't"), ("are not", "aren't"), ("can not", "can't"), ("cannot", "can't"),
    ("could not", "couldn't"), ("would not", "wouldn't"), ("should not", "shouldn't"), ("will not", "won't"),
    ("i have", "i've"), ("i would", "i'd"), ("i will", "i'll"), ("there is", "there's"), ("let us", "let's"),
]  # fmt: skip
_BEFORE = ["please ", "hello, ", "hey, ", "ok, ", "can you tell me ", "quick question: ", "hi there, ", "i want to know ",
           "could you tell me ", "i'm wondering, ", "so "]  # fmt: skip
_AFTER = [" please", ", please", " thanks", ", thank you", " thx", " ?", "?", ".", "!", "??"]
_FRAMES = [  # the first group of each is any of these, in any order
    ("how do i ", "how can i ", "how to ", "what is the best way to ", "what's a good way to ", "what are ways to ",
     "how should i ", "how would i go about ", "is there a way to ", "how does one ", "tell me how to ", "how might i "),
    ("how do you ", "how can you ", "how do people ", "how does one ", "how to "),
    ("what is the meaning of ", "what does it mean by ", "what is meant by ", "define "),
    ("why do ", "what makes ", "what is the reason that "),
    ("who is the ", "who's the ", "tell me who the "),
    ("what are the best ", "which are the best ", "what are some good ", "what are the top ", "can you recommend some good "),
    ("what is the best ", "which is the best ", "what's the best "),
    ("what is the difference between ", "how do you differentiate between ", "what's the difference between ",
     "what differences are there between ", "how different are "),
    ("how much does it cost to ", "what does it cost to ", "what is the cost to ", "how expensive is it to "),
    ("how long does it take to ", "how much time does it take to ", "what time is needed to ", "how much time do i need to "),
    ("show me ", "list ", "give me ", "find ", "display ", "i'd like to see ", "i need ", "i want "),
    ("i want to ", "i'd like to ", "i need to ", "i wish to ", "help me to ", "i have to "),
    ("can you ", "could you ", "would you ", "please "),
    ("what is the ", "what's the ", "tell me the ", "i need to know the ", "give me the "),
    ("which ", "what "),
    ("where can i find ", "where do i find ", "where to find ", "where can i get "),
    ("should i ", "is it a good idea to ", "would it be wise to ", "is it advisable to "),
    ("what happens if ", "what would happen if ", "what will happen if ", "what happens when "),
]  # fmt: skip


def frame(text: str, rng: random.Random) -> str | None:
    """The same question in another standing frame: "how do I" for "what is the best way to"."""
    low = text.lower()
    for family in _FRAMES:
        for start in family:
            if low.startswith(start):
                if family[0] in ("what is the ", "which ") and rng.random() < 0.5:
                    return None
                return rng.choice([f for f in family if f != start]) + text[len(start) :]
    return None


def contraction(text: str, rng: random.Random) -> str | None:
    low = text.lower()
    found = [(a, b) for pair in _CONTRACTIONS for a, b in (pair, pair[::-1]) if re.search(rf"\b{a}\b", low)]
    if not found:
        return None
    a, b = rng.choice(found)
    return re.sub(rf"\b{a}\b", b, low, count=1)


def polite(text: str, rng: random.Random) -> str | None:
    if rng.random() < 0.6:
        return rng.choice(_BEFORE) + text
    return text.rstrip("?.! ") + rng.choice(_AFTER)


def punctuation(text: str, rng: random.Random) -> str | None:
    if rng.random() < 0.5:
        return re.sub(r"[?.!,;:'\"]", "", text)
    return text.rstrip("?.! ") + rng.choice(["?", ".", "!", " ?", "...", ""])


def number_format(text: str, rng: random.Random) -> str | None:
    """5/five, 1000/1,000, $5/5 dollars, 5 %/5 percent, 5 pm/5:00 pm/17:00."""
    rules: list[tuple[str, Callable[[re.Match[str]], str]]] = [
        (r"\b(\d{1,2}) ?(am|pm)\b", lambda m: f"{m[1]}:00 {m[2]}"),
        (r"\b(\d{1,2}):00 ?(am|pm)\b", lambda m: f"{m[1]}{m[2]}"),
        (r"\b([1-9]|1[01]) ?pm\b", lambda m: f"{int(m[1]) + 12}:00"),
        (r"\$(\d[\d,]*)", lambda m: f"{m[1]} dollars"),
        (r"\b(\d[\d,]*) dollars\b", lambda m: f"${m[1]}"),
        (r"\b(\d+) ?%", lambda m: f"{m[1]} percent"),
        (r"\b(\d+) percent\b", lambda m: f"{m[1]}%"),
        (r"\b(\d)(\d{3})\b(?! ?(?:bc|ad))", lambda m: m[0] if m[1] in "12" else f"{m[1]},{m[2]}"),
        (r"\b(\d+),(\d{3})\b", lambda m: f"{m[1]}{m[2]}"),
        (r"\b([2-9]|1[0-2])\b(?![:.,\d])", lambda m: NUMBERS[int(m[1])]),
        (rf"\b({'|'.join(NUMBERS[2:])})\b", lambda m: str(NUMBERS.index(m[1].lower()))),
    ]
    found = [(p, f) for p, f in rules if re.search(p, text, re.I)]
    if not found:
        return None
    pattern, write = rng.choice(found)
    return re.sub(pattern, write, text, count=1, flags=re.I)


def typo(text: str, rng: random.Random) -> str | None:
    """Two neighbouring letters of one longer word exchanged, or one letter dropped."""
    words = list(re.finditer(r"\b[a-z]{5,}\b", text))
    if not words:
        return None
    match = rng.choice(words)
    i = match.start() + rng.randint(1, len(match.group()) - 3)
    if rng.random() < 0.5:
        return text[:i] + text[i + 1] + text[i] + text[i + 2 :]
    return text[:i] + text[i + 1 :]


def moved(text: str, rng: random.Random) -> str | None:
    """A leading "In 1990," or "for ...," put last, a trailing one put first, or "A and B" turned round."""
    body, end = (text[:-1], text[-1]) if text[-1:] in ".?!" else (text, "")
    both = re.search(r"\b([\w'-]+) (and|or) ([\w'-]+)$", body)
    lead = re.match(r"((?:in|on|at|for|during|after|before|by|since) [^,]{2,40}), (.+)$", body, re.I)
    tail = re.match(r"(.+[a-z]) ((?:in|on|during|since) (?:the )?[\w'-]+(?: \d{4})?)$", body)
    if lead:
        return f"{lead[2]} {lead[1][:1].lower()}{lead[1][1:]}{end}"
    if both and "between" not in body:
        return f"{body[: both.start()]}{both[3]} {both[2]} {both[1]}{end}"
    if tail and rng.random() < 0.7:
        return f"{tail[2]}, {tail[1]}{end}"
    return None


FORMS: dict[str, tuple[Edit, float]] = {
    "frame": (frame, 5.0),
    "contraction": (contraction, 2.0),
    "polite": (polite, 1.0),
    "punctuation": (punctuation, 0.5),
    "number-format": (number_format, 3.0),
    "moved": (moved, 2.0),
    "typo": (typo, 0.7),
}


def kept(text: str, rng: random.Random) -> tuple[str, str] | None:
    """One change of form that leaves the meaning: (kind, edited text), or None."""
    found = []
    for kind, (edit, weight) in FORMS.items():
        new = edit(text, rng)
        if new is not None and new != text:
            found.append((kind, new, weight))
    if not found:
        return None
    kind, new, _ = rng.choices(found, weights=[weight for *_, weight in found])[0]
    return kind, new
