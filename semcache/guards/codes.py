"""Where code and signs differ in writing only: quoted or not, a capital that opens a sentence, punctuation of prose. Pure."""

from __future__ import annotations

import re
from typing import Final

from semcache.guards import analysis as an
from semcache.guards.analysis import Analysis, analyse

MOST: Final = 16  # pieces of code that are looked at
_LETTER: Final = r"[^\W\d_]"
_PROSE: Final = re.compile(
    rf"""(?<![\w)\]])\(?(?:\d{{1,2}}|[A-Za-z]|[ivx]{{2,4}})\)(?!\w)  # 1) (a) iv)
  | (?<!\S)\({_LETTER}{{2}}(?:[^()\d=<>+*/%^&|-]|(?<=\w)-(?=\w))*\)(?!\w)  # words in brackets
  | (?<={_LETTER}{_LETTER})(?:[/-]|--)(?={_LETTER})|(?<={_LETTER})[/-](?={_LETTER}{{2}})  # and/or, two-way
  | (?<={_LETTER}\s)--(?=\s{_LETTER}) | (?<=\w\w\s)&(?=\s\w\w)""",
    re.VERBOSE,
)
_SENTENCE_END: Final = re.compile(r"(?:^|[.!?:]\s+)[\"'`(]*$")


def reconcile(a: Analysis, left_a: list[int], b: Analysis, left_b: list[int]) -> None:
    """Remove from both lists code that is the same but for quotation marks, or for a capital that says nothing."""
    if an.CODE not in a.kinds and an.CODE not in b.kinds:
        return
    mine, theirs = ([i for i in left if x.classes[i] == an.CODE] for x, left in ((a, left_a), (b, left_b)))
    if max(len(mine), len(theirs)) > MOST:
        return
    _same_but_case(a, left_a, b, left_b)
    _unquoted(a, left_a, b, left_b)
    _unquoted(b, left_b, a, left_a)


def _unquoted(x: Analysis, left_x: list[int], y: Analysis, left_y: list[int]) -> None:
    """Match quoted code with the same words where they stand without quotes."""
    for i in left_x[:]:
        if x.classes[i] != an.CODE:
            continue
        inner = analyse(x.words[i]).words
        for start in range(len(y.words) - len(inner) + 1):
            run = range(start, start + len(inner))
            if y.words[start : run.stop] == inner and any(j in run for j in left_y):
                left_x.remove(i)
                left_y[:] = [j for j in left_y if j not in run]
                break


def _same_but_case(a: Analysis, left_a: list[int], b: Analysis, left_b: list[int]) -> None:
    for i in left_a[:]:
        for j in left_b if a.classes[i] == an.CODE else ():
            if b.classes[j] == an.CODE and (
                _capital(a, a.keys[i], b.keys[j])
                or _capital(b, b.keys[j], a.keys[i])
                or _typed_low(a, a.keys[i], b, b.keys[j])
                or _typed_low(b, b.keys[j], a, a.keys[i])
            ):
                left_a.remove(i)
                left_b.remove(j)
                break


def _capital(x: Analysis, key: str, other: str) -> bool:
    """Tell whether a name is written with a capital only because it opens a sentence: Load_image(), load_image()."""
    return (
        key[1:] == other[1:]
        and key[:1] == other[:1].upper() != other[:1]
        and _SENTENCE_END.search(x.plain[: x.plain.find(key)]) is not None
    )


def _typed_low(x: Analysis, key: str, y: Analysis, other: str) -> bool:
    """Tell whether two names differ in case only, where one text is typed without capitals and the other isn't."""
    return key == other.lower() and x.plain.islower() and not y.plain.replace(other, "").islower()


def operators(text: Analysis, words: list[str]) -> list[str]:
    """Return those signs that stand in a text as more than the punctuation of prose: not 1), (words), and/or, two-way."""
    rest = _PROSE.sub(" ", text.plain)
    return [word for word in words if word in rest]
