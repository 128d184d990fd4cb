"""Guards for opposites: negation and antonym.

Two reversals cancel: "more powerless" asks the same as "less powerful", "a fat person" as "a person
who is not thin". Only a negation or more/less can cancel an antonym.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from semcache.guards import analysis as an
from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import han, lexicon
from semcache.guards.analysis import Analysis
from semcache.guards.comparison import Comparison, alike
from semcache.guards.english import words
from semcache.guards.routes import route
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

NEAR: Final = 0.8  # least overlap at which one more negation decides
SHARED: Final = 0.7  # least overlap at which an exception decides
VERY_NEAR: Final = 0.9  # least overlap at which a weak contrast (and, or) decides
REACH: Final = 6  # words in which what belongs to a "with" is said
_ZH_NOT: Final = words("不 没 没有 未 非 无")
_SIDED: Final = words("- hand hands handed foot feet side arm leg eye ear knee shoulder wrist turn lane")
_DEGREES: Final = words("more less fewer most least")
_LESS: Final = words("less least lesser")
_HOW_MUCH: Final = words("much little many few")
_SEEK: Final = words("seek get find want need obtain receive")
_TAKEN_AWAY: Final = words("remove delete erase exclude omit drop discard strip disable revoke withdraw")
_ALL_OR_ONE: Final = en.pairs("all/both/every one/single")
_FOR_OR_AGAINST: Final = en.pairs("for against")
_STANDS: Final = words(
    "argue argument vote voter speak speech case essay evidence reason campaign lobby rule decide stand petition protest rally debate point bet"
)  # for something, or against it
_EXCEPTED: Final = words("except excepting excluding")
_CONVERSE: Final = en.pairs("learn teach|receive/get send|receive/get give|borrow lend")
_BE: Final = words("is was are were be been being am get got gets")
_WHEN: Final = frozenset((an.TIME, an.DAY_PART, an.DATE, an.ORDINAL))
_AUXILIARIES: Final = _BE | words(
    "will would shall should can could may might must have has had do does did not n't to"
)


_CONTRASTED: Final = frozenset(
    word for pair in en.CONTRASTS | en.KEPT_OR_NOT | _FOR_OR_AGAINST | _ALL_OR_ONE for word in pair
)


def opposites(c: Comparison) -> list[tuple[str, str]]:
    """Return pairs of opposites of which each text has one and lacks the other, each word used once."""
    found: list[tuple[str, str]] = []
    chinese = "zh" in (c.a.language, c.b.language)
    ones, others = (
        side if chinese else [i for i in side if _may_be_opposed(text.words[i])]
        for text, side in ((c.a, c.only_a), (c.b, c.only_b))
    )
    opposite = _opposite_han if chinese else _opposite
    used: set[int] = set()
    for i in ones:
        for j in others:
            if (
                j not in used
                and opposite(c, i, j)
                and not _hedged(c, i, j)
                and not _converse(c, i, j)
                and not _ends_of_one_route(c, i, j)
            ):
                used.add(j)
                found.append((c.a.words[i], c.b.words[j]))
                break
    return found


def _said_of_one(c: Comparison, i: int, j: int) -> bool:
    """Tell whether two words are opposites beside the same word: a speech for it, a speech against it; all pods, one pod."""
    pair = c.a.words[i], c.b.words[j]
    if pair in _ALL_OR_ONE:
        return _neighbour(c.a, i, 1) == _neighbour(c.b, j, 1) != ""
    return pair in _FOR_OR_AGAINST and i > 0 < j and c.a.keys[i - 1] == c.b.keys[j - 1] in _STANDS


def _may_be_opposed(word: str) -> bool:
    return word not in en.FUNCTION or word in _CONTRASTED


def _opposite(c: Comparison, i: int, j: int) -> bool:
    x, y = c.a.words[i], c.b.words[j]
    if (c.a.keys[i], c.b.keys[j]) in en.KEPT_OR_NOT and _object(c.a, i) == _object(c.b, j) != "":
        return True
    if x in en.FUNCTION or y in en.FUNCTION:
        opposite = (x, y) in en.CONTRASTS or _said_of_one(c, i, j)
    else:
        key, other = c.a.keys[i], c.b.keys[j]
        opposite = lexicon.antonyms(x, y) or ((key != x or other != y) and lexicon.antonyms(key, other))
    if not opposite or _sided(c, i, j):
        return opposite
    if (x, y) in en.WEAK_CONTRASTS:
        if any(t.words[k] == "or" and "not" in t.words[k + 1 : k + 3] for t, k in ((c.a, i), (c.b, j))):
            return False  # why or why not
        both = {x, y} == {"and", "or"} and c.a.question == c.b.question == "yesno" and c.overlap >= 0.6
        return both or _rest(c, i, j) >= VERY_NEAR
    if _sought(c.a, i) or _sought(c.b, j):
        return False
    if (c.a.keys[i], c.b.keys[j]) in en.WEAK_CONTRASTS:
        return _rest(c, i, j) >= NEAR and _comparable(c, i, j)
    return not (x in _HOW_MUCH and y in _HOW_MUCH) or _comparable(c, i, j)


def _sought(text: Analysis, i: int) -> bool:
    """Tell whether a word is an answer that is sought: who seeks answers asks."""
    return text.keys[i] == "answer" and i > 0 and text.keys[i - 1] in _SEEK


def _rest(c: Comparison, i: int, j: int) -> float:
    """Return the overlap of two texts without the two words."""
    left = c.weight_a + c.weight_b - (c.a.weights[i] * (i in c.left_a) + c.b.weights[j] * (j in c.left_b))
    whole = c.a.total + c.b.total - c.a.weights[i] - c.b.weights[j]
    return 1.0 - left / whole if whole > 0 else 1.0


def _comparable(c: Comparison, i: int, j: int) -> bool:
    """Tell whether two words stand beside the same word that tells, or at the same end."""
    return any(_neighbour(c.a, i, step) == _neighbour(c.b, j, step) for step in (-1, 1))


def _neighbour(text: Analysis, i: int, step: int) -> str:
    """Return the key of the next word that tells, or an empty string."""
    i += step
    while 0 <= i < len(text.keys):
        if text.weights[i] > 0:
            return text.keys[i]
        i += step
    return ""


def _converse(c: Comparison, i: int, j: int) -> bool:
    """Tell whether two verbs say the same of one who does it in one text and has it done in the other: you learn, you are taught."""
    if (c.a.keys[i], c.b.keys[j]) not in _CONVERSE:
        return False
    (one, passive), (other, turned) = _done_to(c.a, i), _done_to(c.b, j)
    return passive != turned and one == other != ""


def _ends_of_one_route(c: Comparison, i: int, j: int) -> bool:
    """Tell whether leaving and arriving are of one route, and nothing says when: leaving A for B, from A arriving in B."""
    ends = {c.a.keys[i], c.a.words[i]}, {c.b.keys[j], c.b.words[j]}
    if not any(x & en.FROM_MARKERS and y & en.TO_MARKERS for x, y in (ends, ends[::-1])):
        return False
    if any(
        not _WHEN.isdisjoint(text.kinds) or any(w.endswith("est") for w in text.words) for text in (c.a, c.b)
    ):
        return False
    (start, goal), other = route(c.a), route(c.b)
    return bool(start and goal) and (start, goal) == other


def _done_to(text: Analysis, verb: int) -> tuple[str, bool]:
    """Return the word before a verb and its auxiliaries, and whether it is a passive."""
    start = verb
    while start and text.words[start - 1] in _AUXILIARIES:
        start -= 1
    passive = text.words[verb] != text.keys[verb] and not _BE.isdisjoint(text.words[start:verb])
    return text.words[start - 1] if start else "", passive


def _object(text: Analysis, verb: int) -> str:
    """Return the key of the word that a verb acts on, or an empty string."""
    _, passive = _done_to(text, verb)
    return _neighbour(text, verb, -1 if passive else 1)


def _sided(c: Comparison, i: int, j: int) -> bool:
    """Tell whether both words say of which side something is: left-handed, right foot."""
    return all(
        text.words[k] in ("left", "right") and (text.words[k + 1 : k + 2] or ("",))[0] in _SIDED
        for text, k in ((c.a, i), (c.b, j))
    )


def _opposite_han(c: Comparison, i: int, j: int) -> bool:
    x, y = c.a.words[i], c.b.words[j]
    if (x, y) in zh.CONTRASTS or (c.a.keys[i], c.b.keys[j]) in zh.CONTRASTS:
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
        prefix = max(x, y, key=len).removesuffix(plain)
        if (
            prefix in _UNDOING
            and x.endswith(plain)
            and y.endswith(plain)
            and not _REVERSERS.isdisjoint(other.keys)
        ):
            count += 1
    return count


_REVERSERS: Final = en.REVERSERS - en.NEGATIONS  # negations are counted as such


def _cancelled(c: Comparison, found: list[tuple[str, str]]) -> int:
    """Count opposites that their surroundings turn back: less painful, painless; with X removed, without X; A cheaper than B, B dearer than A."""
    count = _undone(c, found)
    degrees = any(x in _DEGREES for x, _ in found)
    for x, y in found:
        for text, word in ((c.a, x), (c.b, y)):
            i = text.words.index(word)
            count += not degrees and i > 0 and text.words[i - 1] in _LESS
        if {x, y} == {"with", "without"}:
            count += _without(*((c.a, c.b) if x == "with" else (c.b, c.a)))
    return count + (len(found) == 1 and _compared_crosswise(c, *found[0]))


def _without(text: Analysis, other: Analysis) -> bool:
    """Tell whether only one text says that something is taken away: with the lid removed."""
    i = text.words.index("with")
    return any(
        key in _TAKEN_AWAY and key != word and word not in other.words
        for key, word in zip(text.keys[i + 2 : i + REACH], text.words[i + 2 : i + REACH], strict=True)
    )


def _compared_crosswise(c: Comparison, x: str, y: str) -> bool:
    """Tell whether what is compared changed sides along with the opposite: tea is cheaper than coffee, coffee is dearer than tea."""
    if "than" not in c.a.words or "than" not in c.b.words:
        return False
    (before, behind), (first, last) = _sides(c.a, x), _sides(c.b, y)
    return bool((before & last) - first) and bool((behind & first) - before)


def _sides(text: Analysis, degree: str) -> tuple[set[str], set[str]]:
    """Return the keys that tell before a comparative and behind its "than"."""
    i, than = text.words.index(degree), text.words.index("than")
    telling = [k for k, weight in enumerate(text.weights) if weight > 0]
    return {text.keys[k] for k in telling if k < i < than}, {text.keys[k] for k in telling if i < than < k}


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
    odd += 0 if c.a.language == "zh" else _cancelled(c, found)
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
    if c.overlap >= SHARED and c.a.negations == c.b.negations and _excepts(c.a) != _excepts(c.b):
        return refuse("only one of them makes an exception")
    if not c.a.negations and not c.b.negations:
        return NOT_APPLICABLE
    if (c.a.negations - c.b.negations) % 2 == 0 or c.overlap < NEAR or opposites(c):
        return PASS
    if c.a.language == "en" and _said_otherwise(
        *((c.a, c.b, c.only_b) if c.a.negations > c.b.negations else (c.b, c.a, c.only_a))
    ):
        return PASS
    side = "stored" if c.b.negations > c.a.negations else "asked"
    return refuse(f"only the prompt {side} negates")


def _excepts(text: Analysis) -> bool:
    return not _EXCEPTED.isdisjoint(text.words)


_FAILS: Final = words("fail refuse decline neglect")  # to do something
_ALIKE: Final = words("same like alike equal identical")
_UNLIKE: Final = words("different differ differs differently difference differences unlike")
_OWN: Final = words("my mine our ours your yours his her hers their theirs own")
_PREFIXES: Final = ("un", "in", "im", "il", "ir", "dis", "non")
_UNDOING: Final = frozenset((*_PREFIXES, "de", "un-", "de-", "non-"))
_BEHIND: Final = 4  # words behind a negation that it is about


def _said_otherwise(x: Analysis, y: Analysis, only: Sequence[int]) -> bool:
    """Tell whether a text says by other means what the other one negates: fails to start, sugar-free, seedless, different, somebody else's, instead of."""
    for k, word in enumerate(x.words):
        if word not in en.NEGATIONS:
            continue
        about = frozenset(x.words[k + 1 : k + 1 + _BEHIND])
        if not _ALIKE.isdisjoint(about) and any(y.words[i] in _UNLIKE for i in only):
            return True
        if not _OWN.isdisjoint(about) and any(y.words[i] == "else" for i in only):
            return True
        if any(_denies(y, i, about | frozenset(x.keys[k + 1 : k + 1 + _BEHIND])) for i in only):
            return True
    return False


def _denies(text: Analysis, i: int, about: frozenset[str]) -> bool:
    """Tell whether a word denies one of some words: fails to start, sugar-free, seedless, untreated, instead of butter."""
    word, behind = text.words[i], text.words[i + 1 : i + 3]
    if text.keys[i] in _FAILS:
        return behind[:1] == ("to",) and not about.isdisjoint(behind[1:])
    if word == "free":
        return (
            i > 1 and text.words[i - 1] == "-" and not about.isdisjoint((text.keys[i - 2], text.words[i - 2]))
        )
    if (word, behind[:1]) in (("instead", ("of",)), ("rather", ("than",))):
        return not about.isdisjoint(behind[1:])
    if word.endswith("less"):
        return not about.isdisjoint((word[:-4], word[:-4] + "s"))
    bare = (word[len(prefix) :] for prefix in _PREFIXES if word.startswith(prefix))
    return any(not about.isdisjoint((rest, lexicon.lemma(rest))) for rest in bare if len(rest) > 2)
