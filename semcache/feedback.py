"""Pure: what a verdict does to an entry. The memory store runs this; `put.lua`'s twin is `feedback.lua`.

Distinct raters are the lesser of distinct principals and distinct lookup nonces, so that neither a
thousand names on one lookup id nor one name with a thousand lookup ids counts for more than one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from semcache.errors import InvalidRequestError
from semcache.scope import nfc

MAX_RATER = 1024


@dataclass(frozen=True, slots=True)
class Complaint:
    """One −1 that is still inside the window."""

    about: str
    revision: int
    principal: str
    nonce: str
    text: str


def distinct_raters(complaints: Iterable[Complaint], about: str, text: str | None = None) -> int:
    """Count distinct raters who complained about this; None counts any text."""
    mine = [c for c in complaints if c.about == about and (text is None or c.text == text)]
    return min(len({c.principal for c in mine}), len({c.nonce for c in mine}))


def consequence(
    complaints: Iterable[Complaint], about: str, text: str, needed: int
) -> tuple[Literal["withdrawn", "blocked", "recorded"], int, bool]:
    """Decide what follows from the complaints, the newest included.

    Returns:
        (action, raters, whether the text is blocked for everyone).
    """
    found = list(complaints)
    if about == "answer":
        raters = distinct_raters(found, "answer")
        return ("withdrawn" if raters >= needed else "recorded"), raters, False
    texts = {c.text for c in found if c.about == "match"}
    anybody = distinct_raters(found, "match")
    if len(texts) >= needed and anybody >= needed:
        return "withdrawn", anybody, True
    raters = distinct_raters(found, "match", text)
    return "blocked", raters, raters >= needed


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
