"""Guard for how many of something are meant: all or some, both or either, none or plenty, at least or exactly.

Knows: English quantifiers, what they count, and where they make no difference. Leaves to others: all against one beside
the same word, least against most (`polarity`), numbers (`quantities`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from semcache.guards import analysis as an
from semcache.guards import english as en
from semcache.guards.analysis import Analysis
from semcache.guards.bounds import other_bounds
from semcache.guards.comparison import Comparison
from semcache.guards.english import words
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

NEAR: Final = 0.5  # least overlap: a quantifier may tell as much as what it stands before
NEARER: Final = 0.75  # least overlap of all but the quantifiers at which some, many or also decide
_DIFFER: Final = en.pairs("""
    all some/exists/part/half/few/most/many/one/number/only/except/no
    most exists|few many/most/some|no some/few/many/most/half/one/both|each all/both|both either
    only also/any|full partly/half|always sometimes
    """)
_MOOD: Final = en.pairs("all most/many|always sometimes")  # why does everyone, why do most people
_LOOSE: Final = words("only also always sometimes full partly")  # wherever they stand
_WEAK: Final = _LOOSE | words("some few many most")  # of which a text may say several
_HEADS: Final = {
    word: (head,)
    for head, line in {
        "person": "everyone everybody someone somebody anyone anybody nobody",
        "thing": "everything something anything",
        "place": "everywhere somewhere",
    }.items()
    for word in line.split()
}
_OFTEN: Final = words("time day night morning evening afternoon week weekend month year hour minute moment")
_OF_TWO: Final = words("side end way hand case direction")  # on either side, on both sides
_FIXED: Final = words("at after above of not or what almost nearly")  # not all, at all, best of all
_DETERMINERS: Final = words(
    "the at a an my your his her its our their"
)  # the most, at most; a few; the three
_EXCEPT: Final = words("except excluding besides")
_EXCEPT_FOR: Final = ("apart from", "aside from", "other than")
_NO_THING: Final = en.NEGATIONS | words(
    "still yet so it i we now why how"
)  # behind a "but": no thing is left out
_MEASURED: Final = words("much many long")
_LINKS: Final = words("is are was were be there the a of you your my know have")
_GIVE: Final = words("give tell suggest recommend share send get")
_TELL: Final = words("list name explain describe show write down need want")
_OPEN: Final = words("""
    idea tip way method advice hint trick suggestion recommendation example benefit advantage disadvantage drawback
    reason effect recipe
    """)  # lists without an end: "all ideas" are as many as come to mind
_PICK: Final = words(
    "show list print get extract select find filter keep return display fetch match read grep"
)
_LISTED: Final = frozenset(("what", "which", "who", "where"))
_SAMPLE: Final = words("some few many most exists any")
_DEPENDS: Final = words("whether if as once")  # check whether any, as soon as any
_REVERSERS: Final = en.REVERSERS - en.NEGATIONS  # lose all, have no
_POSSIBLE: Final = words("can could may might should will would shall")
_NO_ONE: Final = _POSSIBLE | words("no which this that any every each the but do does must")  # can one do it


class _Amount(NamedTuple):
    """A quantifier: where it stands, how many it says, and the first words behind it that tell."""

    at: int
    kind: str
    heads: tuple[str, ...]


def quantifier(c: Comparison) -> Verdict:
    """Refuse if two texts mean more or fewer of the same: all lights, some of the lights."""
    if c.a.quantifiers == c.b.quantifiers or c.overlap < NEAR:
        return NOT_APPLICABLE
    if not (_counts(c.a) and _counts(c.b) and c.a.language == c.b.language == "en"):
        return NOT_APPLICABLE
    bounds = other_bounds(c)
    if bounds is not None:
        return refuse(f"{bounds[0]} against {bounds[1]}")
    ones, others = list(_amounts(c.a)), list(_amounts(c.b))
    rest = _rest(c)
    common = {(x.kind, head) for x in ones for head in x.heads} & {
        (y.kind, head) for y in others for head in y.heads
    }
    for x in ones:
        for y in others:
            if _differ(c, x, y, rest) and all(
                common.isdisjoint((z.kind, head) for head in z.heads) for z in (x, y)
            ):
                return refuse(f"{c.a.words[x.at]!r} against {c.b.words[y.at]!r}")
    return PASS


def _counts(text: Analysis) -> bool:
    return bool(text.quantifiers) or an.NUMBER in text.kinds or an.ORDINAL in text.kinds


def _amounts(text: Analysis) -> Iterator[_Amount]:
    """Yield what a text says of how many."""
    for i, (key, sort) in enumerate(zip(text.keys, text.classes, strict=True)):
        if en.QUANTIFIERS.get(key) or sort in (an.NUMBER, an.ORDINAL):
            kind = _kind(text, i)
            if kind:
                heads = _HEADS.get(text.words[i]) or _heads(text, i)
                yield _Amount(i, kind, (*heads, "") if kind in _LOOSE else heads)


def _kind(text: Analysis, i: int) -> str:
    """Return how many a word says, or an empty string where it says something else: at all, the most, how many."""
    word, before = text.words[i], text.words[i - 1] if i else ""
    after = text.words[i + 1] if i + 1 < len(text.words) else ""
    kind = en.QUANTIFIERS.get(text.keys[i], "")
    match kind:
        case "":
            if text.classes[i] == an.ORDINAL or word == "1":
                return "one"
            return "number" if after == "of" else ""
        case "all" if after == "but" or (word, after) == ("every", "other") or _leaves_out(text, i):
            return "except"
        case "all" if (
            word in ("each", "every") and text.question == "how" and not _MEASURED.isdisjoint(text.words[:3])
        ):
            return "each"
        case "some" | "any" if _whether(text, i):
            return "exists"
        case "few" if before in _DETERMINERS:
            return "some"
        case "one" if before == "least":
            return "exists"
        case "all" if (before, word) == ("for", "each"):
            return ""
        case "no" if (word == "none" and after != "of") or after == "other":
            return ""
    return kind if _fits(kind, text.words[:i], word, after) else ""


def _fits(kind: str, said: tuple[str, ...], word: str, after: str) -> bool:
    """Tell whether a word behind `said` and before `after` counts: not "at all", "the most", "how many"."""
    before = said[-1] if said else ""
    match kind:
        case "all":
            return (
                before not in _FIXED
                and "not" not in said
                and after not in ("other", "right", "over", "about")
            )
        case "sometimes":
            return before != "how"
        case "most":
            return before not in _DETERMINERS and after not in ("likely", "probably")
        case "many":
            return before not in ("how", "as", "too", "to", "very", "so", "have", "not")
        case "one" if word == "one":
            return before not in _NO_ONE
        case "one":
            return before != "to" and after != "few"
        case "few":
            return before not in ("last", "next", "first", "past")
        case "part":
            return after == "of"
        case "either":
            return before not in ("not", "n't") and after != ""
        case "only":
            return before not in ("not", "if", "the") and after != "one"
        case "also":
            return before != "not" and after not in ("many", "much", "though", "if")
        case "no":
            return before != "or" and after not in ("longer", "matter")
    return True


def _leaves_out(text: Analysis, i: int) -> bool:
    """Tell whether a text says what an "all" leaves out: except the last, but mine; not "but still slow"."""
    if not _EXCEPT.isdisjoint(text.words) or any(phrase in text.normal for phrase in _EXCEPT_FOR):
        return True
    if "but" not in text.words[max(i + 1, len(text.words) - 3) : -1]:
        return False
    left_out = text.words[text.words.index("but", i) + 1 :]
    return _NO_THING.isdisjoint(left_out) and not left_out[-1].endswith(("ly", "ed"))


def _whether(text: Analysis, i: int) -> bool:
    """Tell whether it is asked, or depends on it, whether there are any: does any, check whether any; not may I take any."""
    before = text.words[:i]
    if before[-2:] in (("you", "have"), ("you", "know"), ("i", "have")):
        return False
    return not _DEPENDS.isdisjoint(before) or (_asks_whether(text) and text.words[0] not in _POSSIBLE)


def _asks_whether(text: Analysis) -> bool:
    return text.words[0] in en.YES_NO_OPENERS


def _heads(text: Analysis, i: int) -> tuple[str, ...]:
    """Return key and form of each of the next two words that tell: what is counted, or how it is called."""
    found = (
        (text.keys[k], text.words[k])
        for k in range(i + 1, len(text.keys))
        if text.weights[k] > 0 and text.keys[k] not in en.QUANTIFIERS
    )
    return tuple([form for forms in islice(found, 2) for form in forms])


def _differ(c: Comparison, x: _Amount, y: _Amount, rest: float) -> bool:
    pair = x.kind, y.kind
    if pair not in _DIFFER or (pair in _MOOD and "why" in (c.a.question, c.b.question)):
        return False
    if not _WEAK.isdisjoint(pair) and rest < NEARER:
        return False
    if {"all", "only"} == {*pair} and _picks(c.a, x) and _picks(c.b, y) and x.heads[1:2] == y.heads[1:2]:
        return False
    if "exists" in pair and _asks_whether(c.a) != _asks_whether(c.b):
        return False
    if "no" in pair and not _denies(c):
        return False
    wide = [z for z in (x, y) if z.kind == "all"] or [x, y]  # only female newts, all newts
    heads = {head for z in wide for head in z.heads[:2]} & {*x.heads} & {*y.heads}
    if not heads or ("either" in pair and not heads.isdisjoint(_OF_TWO)):
        return False
    if "except" not in pair and not heads.isdisjoint(_OFTEN):
        return False
    return _SAMPLE.isdisjoint(pair) or not (_lists(c.a, x) or _lists(c.b, y))


def _denies(c: Comparison) -> bool:
    """Tell whether a "no" is all that denies: not "lose all" and "have no", "everyone does", "nobody goes without"."""
    asked = c.a.question, c.b.question
    return (
        _REVERSERS.isdisjoint(c.a.keys)
        and _REVERSERS.isdisjoint(c.b.keys)
        and abs(c.a.negations - c.b.negations) < 2
        and (asked[0] == asked[1] or not all(asked))
    )


def _rest(c: Comparison) -> float:
    """Return the overlap of two texts if their quantifiers were the same."""
    left = sum(
        text.weights[i]
        for text, side in ((c.a, c.left_a), (c.b, c.left_b))
        for i in side
        if text.keys[i] not in en.QUANTIFIERS
    )
    whole = c.a.total + c.b.total
    return 1.0 - left / whole if whole else 1.0


def _picks(text: Analysis, x: _Amount) -> bool:
    """Tell whether what is counted is picked out, where "only" and "all" pick the same: print only, print all lines that match."""
    return text.question in ("", "how") and not _PICK.isdisjoint(text.words[max(0, x.at - 1) : x.at])


def _lists(text: Analysis, x: _Amount) -> bool:
    """Tell whether a quantifier only asks for a list: what are some ways, what are all the ways, give me some tips."""
    before = text.words[: x.at]
    if text.question in _LISTED:
        start = next((k for k, kind in enumerate(text.classes) if kind == an.QUESTION), x.at)
        return start + 1 < x.at and _LINKS.issuperset(before[start + 1 :])
    if text.question == "yesno" and text.words[0] not in _POSSIBLE:
        return False
    if not before:
        return False
    if before[-1] in _TELL and not _OPEN.isdisjoint(x.heads):
        return True
    return before[-1] in _GIVE or (before[-1] in ("me", "us") and before[-2:-1] != ("of",))
