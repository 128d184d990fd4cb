"""Guards for opposites: negation and antonym.

Two reversals cancel: "more powerless" asks the same as "less powerful", "a fat person" as "a person
who is not thin". Only a negation or more/less can cancel an antonym.
"""

from __future__ import annotations

from typing import Final

from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import lexicon
from semcache.guards.comparison import Comparison
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

NEAR: Final = 0.72  # least overlap at which one more negation decides
_DEGREES: Final = frozenset(("more", "less", "fewer", "most", "least"))


def opposites(c: Comparison) -> list[tuple[str, str]]:
    """Return pairs of opposites of which each text has one and lacks the other, each word used once."""
    found: list[tuple[str, str]] = []
    chinese = c.a.language == "zh"
    used: set[int] = set()
    for i in c.only_a:
        for j in c.only_b:
            if j not in used and _opposite(c, i, j, chinese):
                used.add(j)
                found.append((c.a.words[i], c.b.words[j]))
                break
    return found


def _opposite(c: Comparison, i: int, j: int, chinese: bool) -> bool:
    x, y = c.a.words[i], c.b.words[j]
    if not chinese:
        return lexicon.antonyms(x, y) or lexicon.antonyms(c.a.keys[i], c.b.keys[j])
    if (x, y) in zh.CONTRASTS or (c.a.keys[i], c.b.keys[j]) in zh.CONTRASTS:
        return True
    if len(x) < 2 or len(y) < 2 or (x[0] not in y and x[-1] not in y):
        return False
    left = "".join(ch for ch in x if ch not in y)
    right = "".join(ch for ch in y if ch not in x)
    return (left, right) in zh.CONTRASTS


def antonym(c: Comparison) -> Verdict:
    """Refuse if the texts differ by an odd number of opposites and negations."""
    found = opposites(c)
    if not found:
        return NOT_APPLICABLE
    odd = (c.a.negations - c.b.negations) % 2
    cancels = odd == 1 or any(x in _DEGREES for x, _ in found)
    if cancels and (len(found) + odd) % 2 == 0:
        return PASS
    return refuse("; ".join(f"{x!r} against {y!r}" for x, y in found[:3]))


def negation(c: Comparison) -> Verdict:
    """Refuse if one text negates once more and they are otherwise close."""
    if not c.a.negations and not c.b.negations:
        return NOT_APPLICABLE
    if (c.a.negations - c.b.negations) % 2 == 0 or opposites(c):
        return PASS
    if c.overlap < NEAR:
        return PASS
    side = "stored" if c.b.negations > c.a.negations else "asked"
    return refuse(f"only the prompt {side} negates ({en.NEGATIONS and max(c.a.negations, c.b.negations)})")
