"""Guards for what else a changed word can change: name, substitution, qualifier, question, quote, language.

They are vetoes only where the two texts are otherwise the same; a freer rewording is left to the
probability.
"""

from __future__ import annotations

from typing import Final

from semcache.guards import analysis as an
from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import lexicon
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse, show

LEAST_WEIGHT: Final = {"en": 0.42, "zh": 0.35}  # of each side of a substitution
_OPEN: Final = frozenset((an.CONTENT, an.NAME, an.PLACE, an.CODE, an.NUMBER, an.YEAR, an.ORDINAL))


def name(c: Comparison) -> Verdict:
    """Refuse if each text has a name, or a word written as one, that the other lacks."""
    left = [i for i in c.left_a if c.a.classes[i] in (an.NAME, an.PLACE)]
    right = [i for i in c.left_b if c.b.classes[i] in (an.NAME, an.PLACE)]
    if left and right:
        return refuse(f"{show([c.a.words[i] for i in left])} against {show([c.b.words[i] for i in right])}")
    return PASS if an.NAME in c.a.classes or an.NAME in c.b.classes else NOT_APPLICABLE


def quote(c: Comparison) -> Verdict:
    """Refuse if both texts quote and not the same."""
    if not c.a.quotes or not c.b.quotes:
        return NOT_APPLICABLE
    if c.a.quotes & c.b.quotes or not (c.left_a and c.left_b):
        return PASS
    return refuse(f"{show(sorted(c.a.quotes))} against {show(sorted(c.b.quotes))}")


def _span(left: tuple[int, ...], text: Analysis) -> bool:
    """Tell whether the tokens stand together, with at most function words between them."""
    return all(text.weights[k] == 0.0 or k in left for k in range(left[0], left[-1] + 1))


def substitution(c: Comparison) -> Verdict:
    """Refuse if one span of content was replaced by another and everything else that tells is the same."""
    if not c.left_a or not c.left_b:
        return NOT_APPLICABLE
    chinese = c.a.language == "zh" or c.b.language == "zh"
    if len(c.left_a) > 4 or len(c.left_b) > 4 or not _span(c.left_a, c.a) or not _span(c.left_b, c.b):
        return PASS
    least = LEAST_WEIGHT["zh" if chinese else "en"]
    heavy_a = max((c.a.weights[i] for i in c.left_a if c.a.classes[i] in _OPEN), default=0.0)
    heavy_b = max((c.b.weights[i] for i in c.left_b if c.b.classes[i] in _OPEN), default=0.0)
    if heavy_a < least or heavy_b < least:
        return PASS
    return refuse(
        f"{show([c.a.words[i] for i in c.left_a])} against {show([c.b.words[i] for i in c.left_b])}"
    )


def qualifier(c: Comparison) -> Verdict:
    """Refuse if a yes/no question gains a qualifier and nothing else changes: engineer, elite engineer."""
    if bool(c.left_a) == bool(c.left_b) and not _changed_aspect(c):
        return NOT_APPLICABLE
    aspect = _changed_aspect(c)
    if aspect:
        return refuse(f"only one of them says {aspect!r}")
    longer, left, shorter = (c.a, c.left_a, c.b) if c.left_a else (c.b, c.left_b, c.a)
    if longer.question != "yesno" or shorter.question != "yesno" or len(left) != 1:
        return PASS
    i = left[0]
    word = longer.words[i]
    if word in en.MODIFIERS_THAT_ADD_NOTHING or lexicon.lemma(word) in en.MODIFIERS_THAT_ADD_NOTHING:
        return PASS
    parts = lexicon.part_of_speech(longer.keys[i])
    following = longer.classes[i + 1] if i + 1 < len(longer.classes) else ""
    if following in (an.CONTENT, an.NAME) and ("a" in parts or not parts):
        return refuse(f"only one of them says {word!r}")
    return PASS


def _changed_aspect(c: Comparison) -> str:
    """Return `used to`, `becoming` or `simultaneously` if one of two close texts has it and the other hasn't."""
    if c.a.language != "en" or c.overlap < 0.6:
        return ""
    for x, only in ((c.a, c.only_a), (c.b, c.only_b)):
        for i in only:
            word = x.words[i]
            if word in ("becoming", "become") and x.question == "yesno":
                return word
            if (
                word in ("use", "used")
                and i + 1 < len(x.words)
                and x.words[i + 1] == "to"
                and x.question == "yesno"
            ):
                return "used to"
            if (
                word in ("good", "best", "better", "only", "new", "old")
                and x.question == "yesno"
                and i + 1 < len(x.classes)
                and x.classes[i + 1] == an.CONTENT
            ):
                return word
    return ""


_EXPLICIT: Final = frozenset(("why", "when", "where", "who", "how", "yesno"))


def question(c: Comparison) -> Verdict:
    """Refuse if nothing but the kind of question differs: when against where, how against why."""
    x, y = c.a.question, c.b.question
    if not x or not y:
        return NOT_APPLICABLE
    if x == y or c.overlap < 0.999 or c.left_a or c.left_b or c.soft:
        return PASS
    pair = frozenset((x, y))
    if pair <= _EXPLICIT and "yesno" not in pair:
        return refuse(f"{x} against {y}")
    if "why" in pair:
        return refuse(f"{x} against {y}")
    return PASS


def language(c: Comparison) -> Verdict:
    """Refuse if the prompts are in different languages: the answer would be in the wrong one."""
    if "und" in (c.a.language, c.b.language):
        return NOT_APPLICABLE
    if c.a.language == c.b.language:
        return PASS
    if len(c.a.words) < 3 or len(c.b.words) < 3:
        same_script = c.a.family == c.b.family or {c.a.family, c.b.family} <= {"en", "other"}
        if same_script:
            return NOT_APPLICABLE
    return refuse(f"{c.a.language} against {c.b.language}")


def shares_word(x: str, y: str) -> bool:
    """Tell whether two Chinese words share a character."""
    return any(ch in y for ch in x) and (x, y) not in zh.CONTRASTS
