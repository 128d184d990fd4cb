"""Guards for opposites: negation and antonym.

Two reversals cancel: "more powerless" asks the same as "less powerful", "a fat person" as "a person
who is not thin". Only a negation or more/less can cancel an antonym.
"""

from __future__ import annotations

from typing import Final

from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import han, lexicon
from semcache.guards.comparison import Comparison, alike
from semcache.guards.english import words
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

NEAR: Final = 0.8  # least overlap at which one more negation decides
VERY_NEAR: Final = 0.9  # least overlap at which a weak contrast (and, or) decides
_ZH_NOT: Final = words("不 没 没有 未 非 无")
_SIDED: Final = words("- hand hands handed foot feet side arm leg eye ear knee shoulder wrist turn lane")
_DEGREES: Final = words("more less fewer most least")


def opposites(c: Comparison) -> list[tuple[str, str]]:
    """Return pairs of opposites of which each text has one and lacks the other, each word used once."""
    found: list[tuple[str, str]] = []
    chinese = c.a.language == "zh"
    used: set[int] = set()
    for i in c.only_a:
        for j in c.only_b:
            if j not in used and _opposite(c, i, j, chinese) and not _hedged(c, i, j):
                used.add(j)
                found.append((c.a.words[i], c.b.words[j]))
                break
    return found


def _opposite(c: Comparison, i: int, j: int, chinese: bool) -> bool:
    x, y = c.a.words[i], c.b.words[j]
    if chinese:
        return _opposite_han(x, y) or (c.a.keys[i], c.b.keys[j]) in zh.CONTRASTS
    if x in en.FUNCTION or y in en.FUNCTION:
        opposite = (x, y) in en.CONTRASTS
    else:
        opposite = lexicon.antonyms(x, y) or lexicon.antonyms(c.a.keys[i], c.b.keys[j])
    if not opposite or (x, y) not in en.WEAK_CONTRASTS or c.overlap >= VERY_NEAR or _sided(c, i, j):
        return opposite
    return {x, y} == {"and", "or"} and c.a.question == c.b.question == "yesno" and c.overlap >= 0.6


def _sided(c: Comparison, i: int, j: int) -> bool:
    """Tell whether both words say of which side something is: left-handed, right foot."""
    return all(
        text.words[k] in ("left", "right") and (text.words[k + 1 : k + 2] or ("",))[0] in _SIDED
        for text, k in ((c.a, i), (c.b, j))
    )


def _opposite_han(x: str, y: str) -> bool:
    if (x, y) in zh.CONTRASTS:
        return True
    if len(x) < 2 or len(y) < 2 or (x[0] not in y and x[-1] not in y):
        return False
    left = "".join(ch for ch in x if ch not in y)
    right = "".join(ch for ch in y if ch not in x)
    return (left, right) in zh.CONTRASTS


def _hedged(c: Comparison, i: int, j: int) -> bool:
    """Tell whether a text has both ends of the scale: "bigger or smaller" against "larger"."""
    return any(k != i and alike(c.a, k, c.b, j) for k in c.only_a) or any(
        k != j and alike(c.a, i, c.b, k) for k in c.only_b
    )


def _undone(c: Comparison, found: list[tuple[str, str]]) -> int:
    """Count opposites by prefix (trust, untrust) where the other text says the same in two words (remove trust)."""
    count = 0
    for x, y in found:
        plain, other = (x, c.a) if y.endswith(x) else (y, c.b)
        if x != y and (y.endswith(plain) and x.endswith(plain)) and not en.REVERSERS.isdisjoint(other.keys):
            count += 1
    return count


def _negates(word: str) -> bool:
    return word in en.NEGATIONS or not set(word).isdisjoint("不没无未")


def antonym(c: Comparison) -> Verdict:
    """Refuse if the texts differ by an odd number of opposites and negations."""
    if not c.only_a or not c.only_b:
        return NOT_APPLICABLE
    found = opposites(c)
    if not found and c.a.language == c.b.language == "zh":
        turned = han.turned(c.a.plain, c.b.plain)
        if turned in zh.CONTRASTS:
            return refuse(f"{turned[0]!r} against {turned[1]!r}")
    if not found:
        return NOT_APPLICABLE
    counted = sum(_negates(x) for x, _ in found) - sum(_negates(y) for _, y in found)
    odd = (c.a.negations - c.b.negations - counted) % 2  # a negation that is itself an opposite counts once
    odd += _undone(c, found)
    cancels = odd > 0 or any(x in _DEGREES for x, _ in found)
    if cancels and (len(found) + odd) % 2 == 0:
        return PASS
    return refuse("; ".join(f"{x!r} against {y!r}" for x, y in found[:3]))


def negation(c: Comparison) -> Verdict:
    """Refuse if one text negates once more and they are otherwise close."""
    if c.a.language == c.b.language == "zh":
        inserted = han.inserted(c.a.plain, c.b.plain)
        if inserted in _ZH_NOT:
            return refuse(f"only one of them says {inserted!r}")
    if not c.a.negations and not c.b.negations:
        return NOT_APPLICABLE
    if (c.a.negations - c.b.negations) % 2 == 0 or c.overlap < NEAR or opposites(c):
        return PASS
    side = "stored" if c.b.negations > c.a.negations else "asked"
    return refuse(f"only the prompt {side} negates")
