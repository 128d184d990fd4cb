"""Guard for how many of something are meant: all or some, both or either, only or also, at least or exactly.

Knows: English quantifiers and where they make no difference. Leaves to others: all against one, least against most
(`polarity`), numbers (`quantities`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from semcache.guards import analysis as an
from semcache.guards import english as en
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison
from semcache.guards.english import words
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

NEAR: Final = 0.5  # least overlap: a quantifier may tell as much as what it stands before
_KIND: Final = {  # word → how many it says; alike are those of one line
    word: kind
    for kind, line in {
        "all": "all every each whole entire everyone everybody everything everywhere",
        "some": "some few several someone somebody something somewhere couple",
        "any": "any anyone anybody anything",
        "most": "most",
        "many": "many much lot lots",
        "half": "half",
        "part": "part portion",
        "one": "one single last latest newest oldest",
        "both": "both",
        "either": "either",
        "only": "only solely exclusively",
        "also": "also even",
        "full": "full complete total fully completely entirely totally wholly",
        "partly": "partial partly partially",
        "always": "always",
        "sometimes": "sometimes sometime often usually occasionally rarely seldom",
    }.items()
    for word in line.split()
}
_WORDS: Final = frozenset(_KIND)
_NUMBERS: Final = {an.NUMBER: "number", an.ORDINAL: "one"}
_DIFFER: Final = en.pairs(
    "all some/part/half/few/most/many/one/number/only|both either|few some/many/most|only also/any|full partly/half|always sometimes"
)
_DIFFER_WHETHER: Final = en.pairs("all any|most some/any")
"""Where it is asked whether; "delete any" and "delete all" are alike, and "show some" and "show most" nearly."""
_MOOD: Final = en.pairs(
    "all most/many|always sometimes"
)  # why does everyone, why do most people: said with feeling
_ADVERBS: Final = en.pairs("only also|always sometimes|full partly")  # wherever they stand
_PERSONS: Final = words("everyone everybody someone somebody anyone anybody")
_THINGS: Final = words("everything something anything")
_PLACES: Final = words("everywhere somewhere")
_PEOPLE: Final = words("people person")
_OFTEN: Final = words("time day night morning evening afternoon week weekend month year hour minute moment")
_OF_TWO: Final = words("side end way hand case direction")  # on either side, on both sides
_FIXED: Final = words("at after above of not almost nearly or n't")  # not all, at all, best of all
_NO_SHARE: Final = words("the at a an my your his her its our their")  # the most, at most
_SO: Final = words("so very too")
_LINKS: Final = words("is are was were be there the a of you your my know have")
_GIVE: Final = words("give tell suggest recommend share send get")
_POSSIBLE: Final = words("can could may might should will would shall")
_LISTED: Final = frozenset(("what", "which", "who", "where"))


def quantifier(c: Comparison) -> Verdict:
    """Refuse if nothing changes but how many of the same are meant: all lights, some of the lights."""
    if c.overlap < NEAR or not (c.a.language == c.b.language == "en"):
        return NOT_APPLICABLE
    if an.NUMBER in c.a.kinds and an.NUMBER in c.b.kinds:
        bounds = _bounds(c)
        if bounds is not None:
            return refuse(f"{bounds[0]} against {bounds[1]}")
    if not c.only_a or not c.only_b:
        return NOT_APPLICABLE
    x, y = c.a.keys, c.b.keys
    if _WORDS.isdisjoint([x[i] for i in c.only_a]) and _WORDS.isdisjoint([y[j] for j in c.only_b]):
        return NOT_APPLICABLE
    ones = [(i, kind) for i in c.only_a if (kind := _kind(c.a, i))]
    others = [(j, kind) for j in c.only_b if (kind := _kind(c.b, j))] if ones else []
    if not others:
        return NOT_APPLICABLE
    if not _nothing_else(c.a, c.left_a) or not _nothing_else(c.b, c.left_b):
        return PASS
    for i, one in ones:
        for j, other in others:
            if _differ(c, i, one, j, other):
                return refuse(f"{c.a.words[i]!r} against {c.b.words[j]!r}")
    return PASS


def _nothing_else(text: Analysis, left: tuple[int, ...]) -> bool:
    return all(text.keys[i] in _WORDS or text.keys[i] in _PEOPLE or text.classes[i] in _NUMBERS for i in left)


def _kind(text: Analysis, i: int) -> str:
    """Return how many a word says, or an empty string where it says something else: at all, the most, how many."""
    kind = _KIND.get(text.keys[i], "")
    if not kind:
        return _NUMBERS.get(text.classes[i], "")
    before = text.words[i - 1] if i else ""
    after = text.words[i + 1] if i + 1 < len(text.words) else ""
    if kind == "some" and text.words[i] == "few" and before in _SO:
        return "few"
    known = _FITS.get(kind)
    return kind if known is None or known(before, after) else ""


_FITS: Final[dict[str, Callable[[str, str], bool]]] = {  # by the words before and behind
    "all": lambda before, after: before not in _FIXED and after not in ("other", "right", "over", "about"),
    "sometimes": lambda before, after: before != "how",
    "most": lambda before, after: before not in _NO_SHARE and after not in ("likely", "probably"),
    "many": lambda before, after: before not in ("how", "as", "too", "very"),
    "one": lambda before, after: before not in ("no", "which", "this", "that", "any", "every", "each"),
    "part": lambda before, after: after == "of",
    "either": lambda before, after: before not in ("not", "n't") and after != "",
    "only": lambda before, after: before not in ("not", "if", "the") and after != "one",
    "also": lambda before, after: before != "not" and after not in ("many", "much", "though", "if"),
}


def _differ(c: Comparison, i: int, one: str, j: int, other: str) -> bool:
    pair = one, other
    if pair in _DIFFER_WHETHER:
        if not _whether(c.a, i) or not _whether(c.b, j):
            return False
    elif pair not in _DIFFER or (pair in _MOOD and "why" in (c.a.question, c.b.question)):
        return False
    if pair in _ADVERBS:
        return True
    head = _head(c.a, i)
    if head != _head(c.b, j) or head in _OFTEN or ("either" in pair and head in _OF_TWO):
        return False
    return not _lists(c.a, i) and not _lists(c.b, j)


def _head(text: Analysis, i: int) -> str:
    """Return the key of what is counted: the next word that tells, "person" of everyone."""
    if text.words[i] in _PERSONS:
        return "person"
    if text.words[i] in _THINGS:
        return "thing"
    if text.words[i] in _PLACES:
        return "place"
    return next(
        (
            text.keys[k]
            for k in range(i + 1, len(text.keys))
            if text.weights[k] > 0 and text.keys[k] not in _WORDS
        ),
        "",
    )


def _lists(text: Analysis, i: int) -> bool:
    """Tell whether a quantifier only asks for a list: what are some ways, what are all the ways, give me some tips."""
    before = text.words[:i]
    if text.question in _LISTED:
        start = next((k for k, kind in enumerate(text.classes) if kind == an.QUESTION), i)
        return start < i and _LINKS.issuperset(before[start + 1 :])
    return bool(before) and (before[-1] in _GIVE or (before[-1] in ("me", "us") and before[-2:-1] != ("of",)))


def _whether(text: Analysis, i: int) -> bool:
    """Tell whether it is asked, or depends on it, whether: does any, check whether any; not may I take any."""
    before = text.words[:i]
    if "whether" in before or "if" in before:
        return True
    return (
        text.question == "yesno"
        and text.words[0] not in _POSSIBLE
        and text.words[1:3] not in (("you", "have"), ("you", "know"))
    )


_BOUND: Final = {  # the words before a number → below which, above which or at which it holds
    bound: kind
    for kind, line in {
        "at least": "at least|no fewer than|no less than|a minimum of",
        "at most": "at most|no more than|up to|a maximum of",
        "exactly": "exactly|precisely",
        "more than": "more than",
        "less than": "less than|fewer than",
    }.items()
    for bound in line.split("|")
}
_BOUND_ENDS: Final = frozenset(bound.split()[-1] for bound in _BOUND)
_BOUNDS_DIFFER: Final = frozenset(
    pair
    for one, others in {
        "at least": ("at most", "exactly", "less than"),
        "at most": ("exactly", "more than"),
        "exactly": ("more than", "less than"),
        "more than": ("less than",),
    }.items()
    for other in others
    for pair in ((one, other), (other, one))
)


def _bounds(c: Comparison) -> tuple[str, str] | None:
    """Return what two texts say of the same number where they bound it otherwise and nothing else differs."""
    if _BOUND_ENDS.isdisjoint(c.a.words) or _BOUND_ENDS.isdisjoint(c.b.words):
        return None
    sides = (c.a, c.left_a), (c.b, c.left_b)
    if not all(text.words[i] in _BOUND_WORDS for text, left in sides for i in left):
        return None
    return next(
        (
            (bound, other)
            for key, bound in _bounded(c.a)
            for number, other in _bounded(c.b)
            if key == number and (bound, other) in _BOUNDS_DIFFER
        ),
        None,
    )


_BOUND_WORDS: Final = frozenset(word for bound in _BOUND for word in bound.split())


def _bounded(text: Analysis) -> Iterator[tuple[str, str]]:
    """Yield each number that has a bound, and the bound."""
    for i, kind in enumerate(text.classes):
        if kind == an.NUMBER and i and text.words[i - 1] in _BOUND_ENDS:
            for width in (3, 2, 1):
                bound = _BOUND.get(" ".join(text.words[max(0, i - width) : i]))
                if bound is not None:
                    yield text.keys[i], bound
                    break
