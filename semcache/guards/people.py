"""Whom an English prompt is about, where it says so by "my": me, or my wife; and who of the two does it to the other. Pure."""

from __future__ import annotations

from typing import Final

from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison
from semcache.guards.english import words

LEAST_OVERLAP: Final = 0.5  # from which another person is the difference

_OURS: Final = words("my our")
_SELF: Final = words("i me my we us our")
_TELL: Final = words(
    "help tell give show let teach remind send make want get allow bring"
)  # me: who is answered
_OTHERS: Final = words("he she him her his hers")
_FORMS: Final = words("am is was are were have has had do does did be been being")
_LET: Final = words("rent hire lease lend loan")
PEOPLE: Final = words("""
    wife husband spouse son daughter toddler baby kid child mother father mom mum dad parent brother sister sibling friend boss manager tenant
    landlord boyfriend girlfriend partner dog cat puppy kitten horse grandmother grandfather grandma grandpa grandson granddaughter uncle aunt
    cousin neighbor neighbour colleague coworker roommate flatmate employee employer niece nephew teenager teacher student client customer
""")


def another(c: Comparison) -> str:
    """Return who is spoken of in one text where the other speaks of oneself, else an empty string: I snore, my wife snores."""
    if c.overlap < LEAST_OVERLAP or (_OURS.isdisjoint(c.a.words) and _OURS.isdisjoint(c.b.words)):
        return ""
    mine, theirs = _people(c.a), _people(c.b)
    if bool(mine) == bool(theirs):
        return ""
    who, x, left, y = (mine, c.a, c.left_a, c.b) if mine else (theirs, c.b, c.left_b, c.a)
    if any(key in y.keys for key in who) or _SELF.isdisjoint(y.words):
        return ""
    return "" if any(x.keys[i] not in who for i in left) else sorted(who)[0]


def _people(text: Analysis) -> frozenset[str]:
    return frozenset(
        text.keys[i + 1]
        for i, word in enumerate(text.words[:-1])
        if word in _OURS and (text.words[i + 1] in PEOPLE or text.keys[i + 1] in PEOPLE)
    )


def self_or_other(c: Comparison) -> bool:
    """Tell whether nothing differs but that one text speaks of oneself and the other of him or her: I forgot, he forgot."""
    if c.left_a or c.left_b or not c.only_a or not c.only_b:
        return False
    mine, theirs = ({text.words[i] for i in only} for text, only in ((c.a, c.only_a), (c.b, c.only_b)))
    return any(
        x <= _SELF | _FORMS and x & _SELF and y <= _OTHERS | _FORMS and y & _OTHERS
        for x, y in ((mine, theirs), (theirs, mine))
    )


def given(c: Comparison) -> str:
    """Return the verb if one text lets something out and the other takes it: rent out a flat, rent a flat."""
    if "out" not in c.a.words and "out" not in c.b.words:
        return ""
    mine, theirs = (
        {text.keys[i] for i, word in enumerate(text.words[1:]) if word == "out" and text.keys[i] in _LET}
        for text in (c.a, c.b)
    )
    only = mine ^ theirs
    return next((verb for verb in sorted(only) if verb in c.a.keys and verb in c.b.keys), "")


def exchanged(c: Comparison) -> bool:
    """Tell whether the same is done to me in one text, and by me in the other: my boss owes me, I owe my boss."""
    if c.left_a or c.left_b:
        return False
    done_to = _suffers(c.a) - _suffers(c.b)
    done_by = c.a.words.count("i") - c.b.words.count("i")
    return done_to * done_by < 0


def _suffers(text: Analysis) -> int:
    """Count "me", but for those who are only told or helped."""
    return sum(
        word == "me" and (not i or (text.words[i - 1] not in _TELL and text.keys[i - 1] not in _TELL))
        for i, word in enumerate(text.words)
    )
