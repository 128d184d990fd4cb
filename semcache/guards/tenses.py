"""Guard for when something is: what happened against what will happen, who is president against who was.

Knows: English tenses, and of what "is" and "was" ask something else (offices, the weather, what is open). Leaves to
others: dates and times (`quantities`). People who judge pairs take most changes of tense for the same question
("what is", "what was the Great Depression"), so only what surely has another answer is told apart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from semcache.guards import lexicon
from semcache.guards.analysis import Analysis
from semcache.guards.changing import changes, stays
from semcache.guards.comparison import Comparison
from semcache.guards.english import words
from semcache.guards.moments import (
    DATED,
    FUTURE,
    ONGOING,
    PAST,
    PRESENT,
    ahead,
    is_now,
    over,
    says_now,
    was_once,
)
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

NEAR: Final = 0.6  # least overlap at which words beside the tense decide: ago, now, last year
NEARER: Final = 0.75  # least overlap at which present against past decides
FORWARD: Final = 0.7  # least overlap at which past against future decides
_IS: Final = words("is are")
_WAS: Final = words("was were")
_DO: Final = words("do does")
_TODAY: Final = words("day days nowadays currently")
_HAVE: Final = words("has have")
_SUPPOSED: Final = words("if would could might may")  # where tenses are free
_BEFORE_A_WILL: Final = words("a the my his her their your living last of")  # one that is signed
_ONCE: Final = words("past originally formerly historically")
_PERFECT: Final = 7  # words behind a "have" in which its participle stands
_VERB: Final = 4  # words behind a "will" among which is its verb
_CLAUSE: Final = words("when if after before once until because while that who")  # behind these the next verb
_FINISHED: Final = words("die kill extinct born invent discover marry")  # what is done once
_WHEN: Final = frozenset((("when", "do"), ("when", "does"), ("when", "did")))
_AT: Final = words("in at on for with by")  # who is playing at the club
_PARTICIPLES: Final = words(
    "been become come had done gone got made given found seen told put cut set let won run shut"
)


class _Side(NamedTuple):
    """One text, with the words that the other lacks, and those of them that tell something."""

    text: Analysis
    only: frozenset[str]
    left: frozenset[str]


def tense(c: Comparison) -> Verdict:
    """Refuse if the time that is asked about changes, and the answer with it."""
    if c.a.tenses == c.b.tenses:
        verbs = _BY_FORM.get(c.a.question) if c.a.question == c.b.question else None
        return NOT_APPLICABLE if verbs is None or not _by_form(c, verbs) else refuse("present against past")
    if c.overlap < NEAR or not (c.a.language == c.b.language == "en"):
        return NOT_APPLICABLE
    x, y = c.a.words, c.b.words
    a = _Side(c.a, frozenset([x[i] for i in c.only_a]), frozenset([x[i] for i in c.left_a]))
    b = _Side(c.b, frozenset([y[j] for j in c.only_b]), frozenset([y[j] for j in c.left_b]))
    told = "story" in c.a.said and x[0] == y[0] == "write"
    for one, other in ((a, b), (b, a)):
        if ahead(one.text) and over(other.text) and not (over(one.text) or ahead(other.text)):
            return refuse("past against future")
        if _will_be(one) and not _will_be(other) and _has_been(other, one.text):
            free = told or not _SUPPOSED.isdisjoint((*x, *y))
            free = free or c.overlap < FORWARD or c.a.negations != c.b.negations
            return PASS if free else refuse("past against future")
        if is_now(one.text) and _leaves_now(one, other):
            return refuse("present against past")
        if c.overlap >= NEARER and not one.left and _is_no_longer(one, other):
            return refuse("present against past")
    return PASS


def _leaves_now(x: _Side, y: _Side) -> bool:
    """Tell whether a text that tells nothing more is about now, and the other says that it is about the past."""
    if not x.left <= _TODAY or x.text.negations != y.text.negations:
        return False
    asked = x.text.question, y.text.question
    if was_once(y.text):
        return asked[0] == asked[1] or not all(asked) or "yesno" in asked
    dated = says_now(x.text) and not says_now(y.text)
    return asked[0] == asked[1] and dated and not PAST.isdisjoint(y.only)


def _will_be(x: _Side) -> bool:
    """Tell whether only this text says will, or is going to: not that something won't work, nor "will you help"."""
    said = x.text.words
    if "will" in x.only:
        i = said.index("will")
        before, behind = said[i - 1 : i], said[i + 1 : i + 2]
        return (
            _BEFORE_A_WILL.isdisjoint(before)
            and behind != ("you",)
            and "not" not in said[i + 1 : i + 1 + _VERB]
        )
    return "going" in x.only and said[said.index("going") + 1 :][:1] == ("to",) and _WAS.isdisjoint(said)


def _has_been(y: _Side, other: Analysis) -> bool:
    """Tell whether only this text says did, was, has done, or has in the past a verb that the other has as it is."""
    if not y.only.isdisjoint(PAST):
        return "was going to" not in y.text.normal
    if not y.only.isdisjoint(PRESENT):
        return False
    said, base = y.text.words, other.said
    promised = _promised(other)
    if "have" not in base and any(
        word in _HAVE and word in y.only and _done(y.text, i, promised) for i, word in enumerate(said)
    ):
        return True
    if "won" in said and "win" in base:
        return True
    return any(
        key in promised
        and _is_past(word, key)
        and word not in other.words
        and _NOT_PAST.isdisjoint(said[max(0, i - 3) : i])
        for i, (word, key) in enumerate(zip(said, y.text.keys, strict=True))
    )


def _promised(text: Analysis) -> tuple[str, ...]:
    """Return the words soon behind a will or going to, among which is its verb."""
    i = next((i for i, word in enumerate(text.words) if word in FUTURE), len(text.words))
    behind = text.keys[i + 1 : i + 1 + _VERB]
    return behind[: next((k for k, key in enumerate(behind) if k and key in _CLAUSE), _VERB)]


_NOT_PAST: Final = words("is are be been being to")  # before a participle


def _done(text: Analysis, have: int, promised: tuple[str, ...]) -> bool:
    """Tell whether the participle of a promised verb stands soon behind a "have": have died out, has it come."""
    end = have + 1 + _PERFECT
    found = list(zip(text.words[have + 1 : end], text.keys[have + 1 : end], strict=True))
    return found[:1] != [("to", "to")] and any(
        (word in _PARTICIPLES or _is_past(word, key)) and (key in promised or lexicon.lemma(word) in promised)
        for word, key in found
    )


def _is_past(word: str, key: str) -> bool:
    return word != key and not word.endswith(("s", "ing", "er", "est")) and "v" in lexicon.part_of_speech(key)


def _is_no_longer(x: _Side, y: _Side) -> bool:
    """Tell whether one text asks how something is that changes, and the other how it was."""
    if not x.only.isdisjoint(_IS):
        if not y.only.isdisjoint(_WAS) and not y.left and changes(x.text, y.text):
            return True
        if not y.left and y.only.isdisjoint(_IS | _DO) and _goes_on(x.text, y):
            return True
        return not y.only.isdisjoint(_WAS) and _once(y)
    if x.only.isdisjoint(_DO) or "did" not in y.only:
        return False
    return _once(y) or (not y.left and _changes_when_done(x.text) and _changes_when_done(y.text))


def _once(y: _Side) -> bool:
    """Tell whether all that a text says beyond the other is that it asks about the past."""
    return bool(y.left) and y.left <= _ONCE


def _changes_when_done(text: Analysis) -> bool:
    """Tell whether a text asks what something costs, or when it happens; not what is done but once."""
    if not (DATED.isdisjoint(text.kinds) and _FINISHED.isdisjoint(text.said)) or stays(text):
        return False
    if text.question == "when":
        return any(pair in _WHEN for pair in zip(text.words, text.words[1:], strict=False))
    return text.question == "how" and text.words[-1] == "cost"


_HOLD: Final = words("own lead run rule govern manage head chair coach captain represent control")
_PRACTISE: Final = words("speak live use work own believe follow")
_BY_FORM: Final = {"who": _HOLD, "how": _PRACTISE}  # question word → verbs


def _by_form(c: Comparison, verbs: frozenset[str]) -> bool:
    """Tell whether a verb alone says now or once: who owns the club, who owned it; how many people speak it, spoke it."""
    if c.left_a or c.left_b or verbs.isdisjoint(c.a.said) or not DATED.isdisjoint(c.a.kinds):
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
    if x.question == "yesno":
        return (
            x.words[1] != "there"
            and not y.only.isdisjoint(_HAVE)
            and any(
                word.endswith("ing") and key != word and key in y.text.said and word not in y.text.words
                for word, key in zip(x.words, x.keys, strict=True)
            )
        )
    if x.question not in ("who", "what", "which", "where") or not DATED.isdisjoint(x.kinds) or stays(x):
        return False
    i = next((k for k, key in enumerate(x.keys) if key in ONGOING and x.words[k].endswith("ing")), None)
    if i is None or x.keys[i] not in y.text.said:
        return False
    if x.question == "who" and not _AT.issuperset(x.words[i + 1 : i + 2]):
        return False  # who is playing Macbeth, the flute: a role
    word = y.text.words[y.text.keys.index(x.keys[i])]
    if word.endswith("ing"):
        return not y.only.isdisjoint(_WAS)
    return not y.only.isdisjoint(PAST | _HAVE) or _is_past(word, x.keys[i])
