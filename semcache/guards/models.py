"""Names of models: A72 and K72, 14 and 14T, 4070 and 4070 Ti, Model Y and Model S are different things.

By characters, in any language: a token holds the figures alone. Pure; what was found in a text is remembered.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from semcache.guards import analysis as an
from semcache.guards import english as en
from semcache.guards.analysis import CACHE_SIZE
from semcache.guards.comparison import Comparison

_NAME: Final = re.compile(
    r"(?<![a-z\d.,:/])((?:[a-z]{1,3}-)?[a-z]*\d+[a-z\d]*(?:-\d+[a-z\d]*)?)"
    r"(?: ?(pro|plus|max|ultra|mini|lite|se|ti|xt|super)(?![a-z\d]))?(?![.,:/%]?\d)"
)
_FIGURES: Final = re.compile(r"\d+")
_LETTERED: Final = re.compile(
    r"\b(series|model|class|type|grade|vitamin|hepatitis|plan|part|option|group|appendix|exhibit|schedule|form|tier|team|terminal|gate|block)"
    r" ([a-z])(?![a-z\d'])"
)
_LONG: Final = 4  # figures behind which a single letter is no unit
_UNITS: Final = frozenset(  # units, ordinals and the like, which may be said or not
    (*en.UNITS, *en.CURRENCIES, *en.words("st nd rd th am pm k h v x p s in lb c f kw kwh mwh hp bn"))
)
_DECADE: Final = re.compile(r"(?<=\d0)'s\b")  # 1970's


class _Letters(NamedTuple):
    before: str
    behind: str


@lru_cache(maxsize=CACHE_SIZE)
def _models(
    plain: str, english: bool, figures: bool
) -> tuple[frozenset[tuple[str, str]], dict[str, _Letters]]:
    """Return letters that name a model (Model Y), and for figures in a name (a72, 14T, 4070 Ti) the letters around them.

    Args:
        figures: Whether the text has figures that are tokens of their own.
    """
    plain = _DECADE.sub("s", plain.lower())
    lettered = frozenset(_LETTERED.findall(plain)) if english else frozenset()
    found: dict[str, _Letters] = {}
    for name, word in _NAME.findall(plain) if figures else ():
        at = _FIGURES.search(name)
        assert at is not None
        before, behind = name[: at.start()].strip("-"), _FIGURES.sub("", name[at.start() :]).replace("-", "")
        key = "-".join(_FIGURES.findall(name))
        found[key] = _Letters("?", "?") if key in found else _Letters(before, behind + word)
    return lettered, found


def _other(figures: str, one: _Letters, other: _Letters) -> bool:
    """Tell whether the same figures are part of two names."""
    if "?" in (one.before, other.before):  # the figures stand there more than once
        return False
    if one.behind != other.behind:
        if one.before or other.before:
            return True
        said = {one.behind, other.behind} - {""}
        return not any(word in _UNITS and (len(word) > 1 or len(figures) < _LONG) for word in said)
    short, long = sorted((one.before, other.before), key=len)
    return not long.endswith(short)  # oppoa79, a79


def other_models(c: Comparison) -> tuple[list[str], list[str]]:
    """Return what the texts name differently in letters: of each text one name; empty if nothing."""
    (mine, named), (theirs, others) = (
        _models(text.plain, text.language == "en", an.NUMBER in text.kinds) for text in (c.a, c.b)
    )
    for figures, one in named.items():
        other = others.get(figures, one)
        if _other(figures, one, other):
            return [one.before + figures + one.behind], [other.before + figures + other.behind]
    nouns = {noun for noun, _ in mine} & {noun for noun, _ in theirs}
    left = sorted(f"{noun} {letter}" for noun, letter in mine - theirs if noun in nouns)
    right = sorted(f"{noun} {letter}" for noun, letter in theirs - mine if noun in nouns)
    return left, right
