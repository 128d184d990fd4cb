"""Pure: what a verdict does to an entry. The memory store runs this; its twin is `feedback.lua`.

Distinct raters are the lesser of distinct principals and distinct lookup nonces, so that neither a
thousand names on one lookup id nor one name with a thousand lookup ids counts for more than one. Where a
policy gives raters weights, it is the lesser of what the principals and what the nonces weigh, each as
its heaviest mark.

A +1 takes the rater's own −1 back, and is trust: an entry that many called right needs more raters against
it. Others' +1 never take a −1 back.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from semcache.errors import InvalidRequestError
from semcache.scope import nfc

MAX_RATER = 1024
MAX_OWN = 16  # complaints of one rater about one entry, so that she can't crowd out the others'
EPSILON = 1e-9  # three thirds are one


@dataclass(frozen=True, slots=True)
class Complaint:
    """One −1 that is still inside the window."""

    about: str
    revision: int
    principal: str
    nonce: str
    text: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Praise:
    """One +1 that is still inside the window of trust."""

    revision: int
    principal: str
    nonce: str
    weight: float = 1.0


def distinct_raters(marks: Iterable[Complaint | Praise]) -> tuple[int, float]:
    """Return how many distinct raters these are, and what they weigh; those without weight don't count."""
    principals, nonces = dict[str, float](), dict[str, float]()
    for mark in marks:
        if mark.weight > 0:
            for heaviest, name in ((principals, mark.principal), (nonces, mark.nonce)):
                heaviest[name] = max(heaviest.get(name, 0.0), mark.weight)
    return min(len(principals), len(nonces)), min(sum(principals.values()), sum(nonces.values()))


def crowded(complaints: Iterable[Complaint], new: Complaint) -> list[Complaint]:
    """Return the complaints that a rater's new one takes the place of: her last about this text, her oldest of many.

    Args:
        complaints: Oldest first.
    """
    own = [c for c in complaints if c.principal == new.principal]
    same = [c for c in own if (c.about, c.text) == (new.about, new.text)]
    others = [c for c in own if (c.about, c.text) != (new.about, new.text)]
    return same + others[: max(0, len(others) - (MAX_OWN - 1))]


def raised(raters: int, step: int, praise: Iterable[Praise]) -> int:
    """Return the weight that withdraws an entry: more for one that many called right, at most twice `raters`.

    Args:
        raters: The policy's number, N.
        step: Weight of distinct raters for the answer that raises it by one; 0 if nothing does.
    """
    if not step:
        return raters
    _, trust = distinct_raters(praise)
    return raters + min(raters, math.floor(trust / step + EPSILON))


def consequence(
    complaints: Iterable[Complaint], about: str, text: str, raters: int, needed: int
) -> tuple[Literal["withdrawn", "blocked", "recorded"], int, float, bool]:
    """Decide what follows from the complaints, the newest included.

    Args:
        raters: The policy's number, N.
        needed: The weight that withdraws this entry, see `raised`.

    Returns:
        (action, raters, their weight, whether the text is blocked for everyone).
    """
    found = list(complaints)
    if about == "answer":
        count, weight = distinct_raters(c for c in found if c.about == "answer")
        return ("withdrawn" if weight >= needed - EPSILON else "recorded"), count, weight, False
    matches = [c for c in found if c.about == "match"]
    count, weight = distinct_raters(c for c in matches if c.text == text)
    everyone = weight >= raters - EPSILON
    anybody, together = distinct_raters(matches)
    if len({c.text for c in matches if c.weight > 0}) >= raters and together >= needed - EPSILON:
        return "withdrawn", anybody, together, everyone
    return "blocked", count, weight, everyone


def weight_of(rater: str | None, weights: Mapping[str, float]) -> float:
    """Return what a rater counts as: by her name, else by the longest beginning of it that is listed, else 1.

    Args:
        weights: Name, or the beginning of names followed by ``*`` → weight.
    """
    if rater is None or not weights:
        return 1.0
    names = {nfc(name): weight for name, weight in weights.items()}
    rater = nfc(rater)
    if rater in names:
        return names[rater]
    beginnings = [name for name in names if name.endswith("*") and rater.startswith(name[:-1])]
    return names[max(beginnings, key=len)] if beginnings else 1.0


def principal_digest(rater: str | None) -> str:
    """Return the digest under which a rater is counted; anonymous raters are one person.

    Raises:
        InvalidRequestError: The rater isn't Unicode text of 1 to 1,024 bytes.
    """
    if rater is None:
        return "anonymous"
    if not isinstance(rater, str):
        raise InvalidRequestError(f"rater is {type(rater).__name__}, expected str")
    try:
        data = nfc(rater).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"rater has a lone surrogate at character {error.start}, expected Unicode text"
        ) from error
    if not 0 < len(data) <= MAX_RATER:
        raise InvalidRequestError(f"rater has {len(data)} bytes, expected 1 to {MAX_RATER}")
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def check_verdict(verdict: object) -> None:
    """Raise unless the verdict is −1, 0 or 1."""
    if isinstance(verdict, bool) or verdict not in (-1, 0, 1) or not isinstance(verdict, int):
        raise InvalidRequestError(f"verdict is {verdict!r}, expected -1, 0 or 1")
