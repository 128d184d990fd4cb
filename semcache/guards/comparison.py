"""Compares two analyses: what each side has that the other lacks. Symmetric and pure.

Knows: which tokens correspond, by equality, synonymy, spelling or derivation. Leaves to others: which
difference matters (the guards) and how much (the calibration).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from semcache.guards import analysis as an
from semcache.guards import chinese as zh
from semcache.guards import codes, lexicon, names
from semcache.guards.analysis import Analysis

_EITHER = frozenset(("and", "or", "vs", "versus", "with"))  # between two things, not parts of one
_COMPOUND = 6  # letters of two words in one
_SOFT = frozenset((an.CONTENT, an.CARRIER, an.NAME, an.PLACE))


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two texts.

    Attributes:
        a, b: The two analyses, in the order of the call.
        only_a, only_b: Indexes of tokens without an equal on the other side, in reading order.
        left_a, left_b: Those that tell something and have no synonym, respelling or derivation there either.
        soft: Sum of the weights of tokens that were matched by less than equality.
        weight_a, weight_b: Sums of the weights of `left_a` and `left_b`.
        overlap: Weighted share of both texts that corresponds, in [0, 1].
    """

    a: Analysis
    b: Analysis
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]
    left_a: tuple[int, ...]
    left_b: tuple[int, ...]
    soft: float
    weight_a: float
    weight_b: float
    overlap: float


def compare(a: Analysis, b: Analysis) -> Comparison:
    """Find what differs; swapping the arguments swaps the sides of the result."""
    only_a = _missing(a, b)
    only_b = _missing(b, a)
    left_a = [i for i in only_a if a.weights[i] > 0]
    left_b = [i for i in only_b if b.weights[i] > 0]
    soft = 0.0
    if left_a or left_b:
        if a.letters == b.letters:  # a space moved: "ac oncentration"
            left_a, left_b = [], []
        else:
            codes.reconcile(a, left_a, b, left_b)
            soft = _reconcile(a, b, left_a, left_b) if left_a and left_b else 0.0
            _misspelt_function_words(a, left_a, b, only_b)
            _misspelt_function_words(b, left_b, a, only_a)
    weight_a = sum(a.weights[i] for i in left_a)
    weight_b = sum(b.weights[i] for i in left_b)
    whole = a.total + b.total
    return Comparison(
        a=a,
        b=b,
        only_a=tuple(only_a),
        only_b=tuple(only_b),
        left_a=tuple(left_a),
        left_b=tuple(left_b),
        soft=soft,
        weight_a=weight_a,
        weight_b=weight_b,
        overlap=1.0 - (weight_a + weight_b) / whole if whole else float(a.keys == b.keys),
    )


def shared_beginning(x: Sequence[str], y: Sequence[str]) -> int:
    """Return how many items two sequences have in common from the first on."""
    return next(
        (i for i, (one, other) in enumerate(zip(x, y, strict=False)) if one != other), min(len(x), len(y))
    )


def _missing(x: Analysis, y: Analysis) -> list[int]:
    """Return indexes of tokens beyond those that the other text has as often; the last ones of a repeated key."""
    if len(x.said) == len(x.keys):  # none is repeated
        said = y.said
        return [index for index, key in enumerate(x.keys) if key not in said]
    stock: dict[str, int] = {}
    for key in y.keys:
        stock[key] = stock.get(key, 0) + 1
    missing: list[int] = []
    for index, key in enumerate(x.keys):
        count = stock.get(key, 0)
        if count:
            stock[key] = count - 1
        else:
            missing.append(index)
    return missing


def _reconcile(a: Analysis, b: Analysis, left_a: list[int], left_b: list[int]) -> float:
    """Remove corresponding tokens from both lists; return the sum of their weights."""
    soft = 0.0
    for i in left_a[:]:
        if a.classes[i] not in _SOFT:
            continue
        for j in left_b:
            if b.classes[j] in _SOFT and alike(a, i, b, j):
                soft += (a.weights[i] + b.weights[j]) / 2
                left_a.remove(i)
                left_b.remove(j)
                break
    for x, left_x, y, left_y in ((a, left_a, b, left_b), (b, left_b, a, left_a)):
        if not left_y:  # _parts and _apart need one
            continue
        for i in left_x[:]:
            word = x.words[i]
            if len(word) > 3 and x.classes[i] in _SOFT:
                joined = (_parts(word, y, left_y) if word in y.letters else ()) or _apart(x, i, y, left_y)
                if joined:
                    left_x.remove(i)
                    for j in joined:
                        left_y.remove(j)
                    soft += x.weights[i]
    return soft


def _misspelt_function_words(a: Analysis, left: list[int], b: Analysis, only: Sequence[int]) -> None:
    """Remove unknown words that are a slip of the pen for a function word on the other side: hte, the."""
    for i in left[:]:
        word = a.words[i]
        if (
            a.classes[i] == an.CONTENT
            and word.isalpha()
            and word.isascii()
            and not lexicon.part_of_speech(word)
        ):
            for j in only:
                if b.weights[j] == 0.0 and (
                    transposed(word, b.words[j]) or (len(word) > 3 and _near(word, b.words[j]))
                ):
                    left.remove(i)
                    break


def _parts(word: str, other: Analysis, left: list[int]) -> tuple[int, ...]:
    """Find two neighbouring tokens that make up `word`: girl friend, girlfriend."""
    for j in left:
        for pair in ((j, j + 1), (j - 1, j)):
            if (
                pair[0] >= 0
                and pair[1] < len(other.words)
                and other.words[pair[0]] + other.words[pair[1]] == word
            ):
                return tuple(k for k in pair if k in left)
    return ()


def _apart(x: Analysis, i: int, y: Analysis, left: list[int]) -> tuple[int, ...]:
    """Find what a name that is several words in one stands for, if all its parts are there: IterableDataset, a Dataset that is iterable."""
    word = x.words[i]
    if len(word) < _COMPOUND or not left or lexicon.part_of_speech(word):
        return ()
    parts = names.compounds(x.plain).get(word)
    if parts is None:
        return ()
    found: list[int] = []
    said = set(y.words)
    for j in sorted(left):
        inner = names.compounds(y.plain).get(y.words[j], (y.words[j],))
        said.update(inner)
        if not set(inner).isdisjoint(parts) or y.keys[j] in parts:
            found.append(j)
    if not found or not said.issuperset(parts) or not _EITHER.isdisjoint(y.words[found[0] : found[-1]]):
        return ()
    return tuple(found)


def alike(a: Analysis, i: int, b: Analysis, j: int) -> bool:
    """Tell whether two different tokens may stand for each other."""
    x, y = a.keys[i], b.keys[j]
    kind, other = a.classes[i], b.classes[j]
    if a.language == "zh" or b.language == "zh":
        return kind != an.PLACE != other and _alike_han(x, y)
    if kind == an.PLACE or other == an.PLACE:
        found = kind != other and (
            (x[:4] == y[:4] and respelt(x, y)) or _adjective(a, i, b, j)  # India, Indian; Britain, British
        )
    elif kind == an.NAME or other == an.NAME:
        found = _one_word(a, i, b, j) or _adjective(a, i, b, j)
    else:
        found = lexicon.synonyms(x, y) or _one_word(a, i, b, j)
    return found and not lexicon.antonyms(x, y)


def _one_word(a: Analysis, i: int, b: Analysis, j: int) -> bool:
    """Tell whether two tokens are forms or spellings of one word."""
    x, y = a.keys[i], b.keys[j]
    if x[0] == y[0] and names.one_name(x, y):
        return True
    if len(x) < 4 or len(y) < 4:
        return transposed(x, y)
    word, other = a.words[i], b.words[j]
    return respelt(x, y) or ((word != x or other != y) and respelt(word, other))


def _adjective(a: Analysis, i: int, b: Analysis, j: int) -> bool:
    """Tell whether one is the adjective of the place that the other names: British trains, the UK."""
    return names.adjective(a.words, i, b.keys[j]) or names.adjective(b.words, j, a.keys[i])


def _alike_han(x: str, y: str) -> bool:
    if len(x) < 2 or len(y) < 2:
        return (
            (x in y or y in x) and len(x) + len(y) > 2 and (x, y) not in zh.CONTRASTS and not _negates(x, y)
        )
    shared = sum([c in y for c in x])
    if not shared or (x, y) in zh.CONTRASTS:
        return False
    shared = max(shared, sum([c in x for c in y]))  # a character may be repeated
    if len(x) == len(y) == 2 and x[0] != y[0]:  # a common last character is a kind: 火车, 汽车
        return x == y[::-1]
    return 2 * shared >= max(len(x), len(y)) and not _contrast_inside(x, y)


def _negates(x: str, y: str) -> bool:
    return any((c in x) != (c in y) for c in "不没无未非免反")


def _contrast_inside(x: str, y: str) -> bool:
    """Tell whether the characters in which two words differ are opposites: 上班, 下班."""
    left = "".join(c for c in x if c not in y)
    right = "".join(c for c in y if c not in x)
    return (left, right) in zh.CONTRASTS


def respelt(x: str, y: str) -> bool:
    """Tell whether two words are forms of one word, or one is a misspelling of the other."""
    if x[:1] != y[:1] and x[-1:] != y[-1:] and len(x) + len(y) > 4:
        return False
    if x[:3] != y[:3] and x[-3:] != y[-3:] and not _near(x, y):
        return False
    shorter, longer = sorted((x, y), key=len)
    prefix = 0
    for c, d in zip(x, y, strict=False):
        if c != d:
            break
        prefix += 1
    known = bool(lexicon.part_of_speech(x)), bool(lexicon.part_of_speech(y))
    if all(known):  # two real words: derivation only (marry, marriage), never a typo (form, from)
        tail = longer[prefix:]
        return (
            prefix >= 4
            and prefix >= len(shorter) - 2
            and len(longer) - prefix <= 5
            and not tail.startswith("less")
            and tail not in ("free",)
        )
    return (len(shorter) >= 5 or not any(known) or x[0] == y[0]) and _near(x, y)


def transposed(x: str, y: str) -> bool:
    """Tell whether two short words differ by two exchanged letters: hte, the."""
    return (
        len(x) == len(y) > 1
        and sorted(x) == sorted(y)
        and sum(c != d for c, d in zip(x, y, strict=True)) == 2
        and not (lexicon.part_of_speech(x) and lexicon.part_of_speech(y))
    )


def _near(x: str, y: str) -> bool:
    """Tell whether one edit (or one exchange of neighbours, or two edits in long words) turns x into y."""
    if abs(len(x) - len(y)) > 1:
        return False
    while x and y and x[0] == y[0]:
        x, y = x[1:], y[1:]
    while x and y and x[-1] == y[-1]:
        x, y = x[:-1], y[:-1]
    return len(x) + len(y) <= 2 or (len(x) == len(y) == 2 and x == y[::-1])
