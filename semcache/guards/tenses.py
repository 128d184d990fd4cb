"""Guard for when something is: what happened against what will happen, who is president against who was.

Knows: English tenses, and of what "is" and "was" ask something else (offices, the weather, what is open). Leaves to
others: dates and times (`quantities`). People who judge pairs take most changes of tense for the same question
("what is", "what was the Great Depression"), so only what surely has another answer is told apart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from semcache.guards import analysis as an
from semcache.guards import english as en
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison
from semcache.guards.english import words
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

NEAR: Final = 0.75  # least overlap at which a tense decides: "in the past" tells something
VERY_NEAR: Final = 0.9  # least overlap at which past against future decides
_IS: Final = words("is are")
_WAS: Final = words("was were")
_DO: Final = words("do does")
_PRESENT: Final = _IS | _DO | {"am"}
_PAST: Final = words("did was were had")
_HAVE: Final = words("has have")
_WAS_OR_DID: Final = words("was were did")
_FUTURE: Final = words("will going")
_ONGOING: Final = words("play perform work live stay study happen sell host serve sing")
_SUPPOSED: Final = words("if would could should might may")  # where tenses are free
_BEFORE_A_WILL: Final = words("a the my his her their your living last of")  # one that is written
_ONCE: Final = words("past originally formerly historically")
_ACTING: Final = words("who what which i we he she they it")  # who opens a text with a verb in the past
_SUBJECT: Final = 3  # most words of who did it: what happened, which team played
_PERFECT: Final = 4  # words behind a "have" in which its participle stands
_PARTICIPLES: Final = words(
    "been become come had done gone got made given found seen told put cut set let won run shut"
)
_DATED: Final = frozenset((an.DATE, an.YEAR, an.ORDINAL, an.TIME))


class _Side(NamedTuple):
    """One text, with the words that the other lacks, and those of them that tell something."""

    text: Analysis
    only: frozenset[str]
    left: frozenset[str]


def tense(c: Comparison) -> Verdict:
    """Refuse if nothing changes but the time that is asked about, and the answer changes with it."""
    if c.overlap < NEAR or not (c.a.language == c.b.language == "en"):
        return NOT_APPLICABLE
    if c.a.question == c.b.question in _BY_FORM and _by_form(c, _BY_FORM[c.a.question]):
        return refuse("present against past")
    x, y = c.a.words, c.b.words
    ones, others = [x[i] for i in c.only_a], [y[j] for j in c.only_b]
    if _FUTURE.isdisjoint(ones) == _FUTURE.isdisjoint(others):
        if _PRESENT.isdisjoint(ones) and _PRESENT.isdisjoint(others):
            return NOT_APPLICABLE
        neither = _WAS_OR_DID.isdisjoint(ones) and _WAS_OR_DID.isdisjoint(others)
        if neither and (_ONGOING.isdisjoint(c.a.said) or _ONGOING.isdisjoint(c.b.said)):
            return NOT_APPLICABLE
    a = _Side(c.a, frozenset(ones), frozenset([x[i] for i in c.left_a]))
    b = _Side(c.b, frozenset(others), frozenset([y[j] for j in c.left_b]))
    for one, other in ((a, b), (b, a)):
        if _will_be(one) and not _will_be(other) and _has_been(other, one.text):
            free = (
                c.overlap < VERY_NEAR or c.a.negations != c.b.negations or not _SUPPOSED.isdisjoint((*x, *y))
            )
            return PASS if free else refuse("past against future")
        if not one.left and _is_no_longer(one, other):
            return refuse("present against past")
    return PASS


def _will_be(x: _Side) -> bool:
    """Tell whether only this text says will, or is going to: not that something won't work, nor "will you help"."""
    said = x.text.words
    if "will" in x.only:
        i = said.index("will")
        before, behind = said[i - 1 : i], said[i + 1 : i + 2]
        return _BEFORE_A_WILL.isdisjoint(before) and behind not in (("not",), ("you",))
    return "going" in x.only and said[said.index("going") + 1 :][:1] == ("to",) and _WAS.isdisjoint(said)


def _has_been(y: _Side, other: Analysis) -> bool:
    """Tell whether only this text says did, was, has done, or has in the past a verb that the other has as it is."""
    if not y.only.isdisjoint(_PAST):
        return True
    if not y.only.isdisjoint(_PRESENT):
        return False
    said, base = y.text.words, other.said
    if "have" not in base and any(
        word in _HAVE and word in y.only and _done(y.text, i) for i, word in enumerate(said)
    ):
        return True
    if "won" in said and "win" in base:
        return True
    first = next(
        (i for i, (word, key) in enumerate(zip(said, y.text.keys, strict=True)) if _is_past(word, key)), 0
    )
    return (
        0 < first < _SUBJECT
        and said[0] in _ACTING
        and said[first] not in other.words
        and y.text.keys[first] in other.words
    )


def _done(text: Analysis, have: int) -> bool:
    """Tell whether a participle stands soon behind a "have": have died out, has it come."""
    end = have + 1 + _PERFECT
    found = list(zip(text.words[have + 1 : end], text.keys[have + 1 : end], strict=True))
    return found[:1] != [("to", "to")] and any(
        word in _PARTICIPLES or _is_past(word, key) for word, key in found
    )


def _is_past(word: str, key: str) -> bool:
    return word != key and not word.endswith(("s", "ing", "er", "est"))


def _is_no_longer(x: _Side, y: _Side) -> bool:
    """Tell whether one text asks how something is that changes, and the other how it was."""
    if not x.only.isdisjoint(_IS):
        if not y.only.isdisjoint(_WAS) and not y.left and _changes(x.text, y.text):
            return True
        if not y.left and y.only.isdisjoint(_PRESENT) and _goes_on(x.text, y):
            return True
        return not y.only.isdisjoint(_WAS) and _once(y)
    if x.only.isdisjoint(_DO) or "did" not in y.only:
        return False
    if "use" in y.only and not y.left:
        return "use to" in y.text.normal
    return _once(y) or (not y.left and _costs(x.text) and _costs(y.text))


def _once(y: _Side) -> bool:
    """Tell whether all that a text says beyond the other is that it asks about the past."""
    return bool(y.left) and y.left <= _ONCE


def _costs(text: Analysis) -> bool:
    return text.question == "how" and text.words[-1] == "cost" and _DATED.isdisjoint(text.kinds)


_HOLD: Final = words("own lead run rule govern manage head chair coach captain represent control")
_LAST: Final = words("speak live use work own believe follow")
_BY_FORM: Final = {"who": _HOLD, "how": _LAST}  # question word → verbs


def _by_form(c: Comparison, verbs: frozenset[str]) -> bool:
    """Tell whether a verb alone says now or once: who owns the club, who owned it; how many people speak it, spoke it."""
    if c.left_a or c.left_b or verbs.isdisjoint(c.a.said) or not _DATED.isdisjoint(c.a.kinds):
        return False
    (i, key), (j, other) = (
        next(((k, key) for k, key in enumerate(text.keys) if key in verbs), (0, "")) for text in (c.a, c.b)
    )
    one, another = c.a.words[i], c.b.words[j]
    if key != other or one == another or one.endswith("ing") or another.endswith("ing"):
        return False
    if _is_past(one, key) == _is_past(another, key):
        return False
    if c.a.question == "who":
        return i == j == 1
    return c.a.words[1:2] == c.b.words[1:2] and c.a.words[1:2] in (("many",), ("much",))


def _goes_on(x: Analysis, y: _Side) -> bool:
    """Tell whether something still goes on in one text and is over in the other: what is happening, what happened."""
    if x.question not in ("who", "what", "which", "where") or not _DATED.isdisjoint(x.kinds):
        return False
    i = next((k for k, key in enumerate(x.keys) if key in _ONGOING and x.words[k].endswith("ing")), None)
    if i is None or x.keys[i] not in y.text.said:
        return False
    word = y.text.words[y.text.keys.index(x.keys[i])]
    if word.endswith("ing"):
        return not y.only.isdisjoint(_WAS)
    return not y.only.isdisjoint(_PAST | _HAVE) or _is_past(word, x.keys[i])


_OFFICES: Final = words("""
    president minister premier chancellor king queen emperor pope prince sultan monarch ruler governor senator mayor
    speaker secretary ambassador ceo cfo cto chairman chairwoman chairperson chair chief head leader director manager
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
    "during when before after until while since ever history time all-time ago once most"
)
_PRAISE: Final = en.PRAISE | words("worst favorite favourite")


def _changes(x: Analysis, y: Analysis) -> bool:
    """Tell whether the answer to what both ask changes with time: an office, the weather, what is open."""
    if not _DATED.isdisjoint(x.kinds) or not _PRAISE.isdisjoint(x.said) or x.words[0] not in _OPENERS:
        return False
    if any(
        not _FOR_EVER.isdisjoint(text.said) or any(w.endswith("est") for w in text.words) for text in (x, y)
    ):
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
        return x.words[1] == "much" or "it" in x.said
    return x.question in ("what", "how") and _asks_for(_CHANGING, x) and _asks_for(_CHANGING, y)


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
