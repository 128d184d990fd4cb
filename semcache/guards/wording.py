"""Guards for what else a changed word can change: name, qualifier, question, quote, language.

They are vetoes only where the two texts are otherwise the same; a freer rewording is left to the
probability.
"""

from __future__ import annotations

from typing import Final

from semcache.guards import analysis as an
from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import han, lexicon
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison
from semcache.guards.english import words
from semcache.guards.quantities import match_places
from semcache.guards.unlisted import two_names
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse, show

LEAST_WEIGHT: Final = 0.42  # of an English word that tells something
_NAMES: Final = frozenset((an.NAME, an.PLACE))
_DEGREES: Final = words("good best better only new old bad worst great")


def name(c: Comparison) -> Verdict:
    """Refuse if each text has a name, or a word written as one, that the other lacks."""
    if "de" in (c.a.language, c.b.language):  # where every noun is capitalised
        return NOT_APPLICABLE
    if c.a.language == c.b.language == "zh":
        brands = han.brands(c.a.plain, c.b.plain)
        if brands is not None:
            return refuse(f"{brands[0]} against {brands[1]}")
    named = an.NAME in c.a.kinds or an.NAME in c.b.kinds
    if named:
        left = [c.a.keys[i] for i in c.left_a if c.a.classes[i] in _NAMES]
        right = [c.b.keys[i] for i in c.left_b if c.b.classes[i] in _NAMES]
        if left and right:
            match_places(left, right)
            left = [word for word in left if not _initials(word, c.b)]
            right = [word for word in right if not _initials(word, c.a)]
            if left and right:
                return refuse(f"{show(left)} against {show(right)}")
    unlisted = two_names(c)
    if unlisted is not None:
        return refuse(f"{unlisted[0]!r} against {unlisted[1]!r}")
    return PASS if named else NOT_APPLICABLE


def _initials(word: str, text: Analysis) -> bool:
    """Tell whether a short name is the initials of words that stand together in a text, or one of those words."""
    initials = "".join(key[0] for key in text.words if key)
    return 2 <= len(word) <= 5 and word in initials


def quote(c: Comparison) -> Verdict:
    """Refuse if both texts quote and not the same."""
    if not c.a.quotes or not c.b.quotes:
        return NOT_APPLICABLE
    if c.a.quotes & c.b.quotes or not (c.only_a and c.only_b):
        return PASS
    return refuse(f"{show(sorted(c.a.quotes))} against {show(sorted(c.b.quotes))}")


def qualifier(c: Comparison) -> Verdict:
    """Refuse if one text gains a word that narrows it and nothing else changes: lasagne, vegan lasagne; engineer, elite engineer."""
    if c.a.language == c.b.language == "zh":
        inserted = han.inserted(c.a.plain, c.b.plain)
        return refuse(f"only one of them says {inserted!r}") if inserted in zh.NARROWING else NOT_APPLICABLE
    if c.a.language != "en" or c.b.language != "en":
        return NOT_APPLICABLE
    narrowed = _narrowed(c)
    if narrowed:
        return refuse(f"only one of them says {narrowed!r}")
    if c.a.question != "yesno" or c.b.question != "yesno":
        return NOT_APPLICABLE
    if c.left_a and c.left_b:
        return NOT_APPLICABLE
    aspect = _changed_aspect(c)
    if aspect:
        return refuse(f"only one of them says {aspect!r}")
    if not c.left_a and not c.left_b:
        return PASS
    longer, left = (c.a, c.left_a) if c.left_a else (c.b, c.left_b)
    if len(left) != 1:
        return PASS
    i = left[0]
    word = longer.words[i]
    if word in en.MODIFIERS_THAT_ADD_NOTHING or not i or longer.words[i - 1] not in ("a", "an"):
        return PASS
    parts = lexicon.part_of_speech(word) + lexicon.part_of_speech(longer.keys[i])
    following = longer.classes[i + 1] if i + 1 < len(longer.classes) else ""
    if following in (an.CONTENT, an.NAME) and ("a" in parts or not parts):
        return refuse(f"only one of them says {word!r}")
    return PASS


def _narrowed(c: Comparison) -> str:
    """Return the one word that stands before a noun in one text and not in the other, where all else is the same, in order."""
    if bool(c.left_a) == bool(c.left_b):
        return ""
    x, left, y = (c.a, c.left_a, c.b) if c.left_a else (c.b, c.left_b, c.a)
    i = left[0]
    word, behind = x.words[i], x.classes[i + 1 : i + 2]
    if (
        len(left) != 1
        or x.classes[i] not in (an.CONTENT, an.NAME, an.ORDINAL)
        or x.weights[i] < LEAST_WEIGHT
        or word in en.MODIFIERS_THAT_ADD_NOTHING
        or word in en.VAGUE
        or not behind
        or behind[0] not in (an.CONTENT, an.NAME, an.CARRIER)
    ):
        return ""
    parts = lexicon.part_of_speech(word)
    if parts and "a" not in parts and word not in en.NARROWING:
        return ""
    rest = [key for j, key in enumerate(x.keys) if j != i and key not in en.ARTICLES]
    return word if rest == [key for key in y.keys if key not in en.ARTICLES] else ""


def _changed_aspect(c: Comparison) -> str:
    """Return what only one of two close yes/no questions says of time or degree, else an empty string."""
    if c.overlap < 0.6:
        return ""
    for x, only, y in ((c.a, c.only_a, c.b), (c.b, c.only_b, c.a)):
        for i in only:
            word = x.words[i]
            after = x.words[i + 1] if i + 1 < len(x.words) else ""
            if word == "becoming" and "become" not in y.keys:
                return word
            if word in ("use", "used") and after == "to" and x.question == "yesno":
                return "used to"
            if (
                word in _DEGREES
                and i
                and x.words[i - 1] in ("a", "an", "the")
                and x.classes[i + 1 : i + 2] == (an.CONTENT,)
            ):
                return word
    return ""


_DEGREE: Final = {  # how many, how long: a question of its own each
    word: kind
    for kind, line in {
        "how many": "many much", "how long": "long", "how far": "far", "how old": "old", "how often": "often frequently", "how big": "big large",
        "how tall": "tall high", "how fast": "fast quickly", "how heavy": "heavy", "how deep": "deep", "how hot": "hot", "how wide": "wide",
    }.items()
    for word in line.split()
}  # fmt: skip
_KIND: Final = words("type types kind kinds sort brand model size color colour")
_JUDGED: Final = words(
    "legal illegal allowed safe dangerous worth healthy unhealthy normal haram halal ethical rude"
)
_TIME: Final = words("seconds minutes hours days nights weeks months years")
_OF_TIME: Final = frozenset(("how long", "when", "how often"))
_TELLING: Final = frozenset(("who", "when", "where", "why", "what kind", *_DEGREE.values()))
_BESIDE_WHAT: Final = (frozenset(("what", "where")), frozenset(("what", "when")))
_PROVIDERS: Final = frozenset(("who", "where"))
_SOUGHT: Final = words("best good better cheap cheapest top nearest closest find get buy")
_SAME_THING: Final = 0.5  # overlap from which two questions are about one thing


def _asked(text: Analysis) -> str:
    """Return what the first question word asks for: who, when, how many; `how` and `what` may ask for anything."""
    for i, kind in enumerate(text.classes):
        if kind != an.QUESTION:
            continue
        after, of = (*text.words[i + 1 : i + 3], "", "")[:2]
        if text.keys[i] == "how":
            return "how long" if after == "many" and of in _TIME else _DEGREE.get(after, "how")
        return "what kind" if text.keys[i] in ("what", "which") and after in _KIND else text.keys[i]
    return ""


def _telling(text: Analysis, left: tuple[int, ...]) -> list[str]:
    return [text.words[i] for i in left if text.weights[i] >= LEAST_WEIGHT]


def _other_question(c: Comparison) -> str:
    """Say which two things are asked of one thing, else an empty string: who, when; legal to, how to."""
    kinds = _asked(c.a), _asked(c.b)
    told = frozenset(kinds)
    sought = told == _PROVIDERS and not _SOUGHT.isdisjoint(c.a.words)
    if len(told) == 2 and told <= _TELLING and not told <= _OF_TIME and not sought:
        return " against ".join(kinds)
    for x, left, mine, theirs in ((c.a, c.left_a, *kinds), (c.b, c.left_b, *kinds[::-1])):
        alone = _telling(x, left)
        if "whether" in x.words and theirs in _TELLING:
            return f"whether against {theirs}"
        if mine == "who" and theirs == "what" and alone and f"who {alone[0]} " in x.normal:
            return f"who {alone[0]} against what"
        if x.question == "yesno" and theirs == "how":
            if not _JUDGED.isdisjoint(alone):
                return f"whether {alone[0]} against how"
            if x.words[0] == "should" and not _telling(c.a, c.left_a) and not _telling(c.b, c.left_b):
                return "whether one should against how"
    return ""


_EXPLICIT: Final = frozenset(("why", "when", "where", "who", "how", "yesno"))


def question(c: Comparison) -> Verdict:
    """Refuse if nothing but the kind of question differs: when against where, how against why.

    In Chinese also if one asks what something is like, or how to use it, and the other how to do something with it.
    """
    said = _question(c)
    if (
        said.verdict == "refuse"
        and len(an.question_words(c.a)) > 1
        and an.question_words(c.a) == an.question_words(c.b)
    ):
        return PASS  # both ask both
    return said


def _question(c: Comparison) -> Verdict:
    if c.a.language == c.b.language == "zh":
        manner = han.manner(c.a.plain, c.b.plain)
        if manner is not None:
            return refuse(f"{manner[0]} against {manner[1]}")
    x, y = c.a.question, c.b.question
    whether = ("whether" in c.a.words) != ("whether" in c.b.words)
    if not ((x and y) or whether):
        return NOT_APPLICABLE
    asking = whether or (c.a.asks and c.b.asks)
    if c.a.language == c.b.language == "en" and asking and c.overlap >= _SAME_THING:
        differ = _other_question(c)
        if differ:
            return refuse(differ)
    if not x or not y or x == y or c.left_a or c.left_b or c.soft or len(c.only_a) > 2 or len(c.only_b) > 2:
        return PASS
    pair = frozenset((x, y))
    if pair == _PROVIDERS and not _SOUGHT.isdisjoint(c.a.words):  # who, or where, is the best baker in town?
        return PASS
    if pair <= _EXPLICIT and "yesno" not in pair:
        return refuse(f"{x} against {y}")
    if "why" in pair or (pair in _BESIDE_WHAT and _SOUGHT.isdisjoint(c.a.words)):
        return refuse(f"{x} against {y}")
    return PASS


def language(c: Comparison) -> Verdict:
    """Refuse if the prompts are in different languages, or in Chinese name different ones: the answer would be in the wrong one."""
    if "und" in (c.a.language, c.b.language):
        return NOT_APPLICABLE
    if c.a.language == c.b.language:
        wanted = han.languages(c.a.plain, c.b.plain) if c.a.language == "zh" else None
        return PASS if wanted is None else refuse(f"{wanted[0]} against {wanted[1]}")
    if min(len(c.a.words), len(c.b.words)) < 3 and (
        c.a.family == c.b.family or set(c.a.keys) & set(c.b.keys)
    ):
        return NOT_APPLICABLE
    return refuse(f"{c.a.language} against {c.b.language}")
