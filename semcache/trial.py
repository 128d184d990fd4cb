"""Pure: who is served while a cache is on trial, and what a trial found."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b


def serves(namespace: str, name: str, share: float) -> bool:
    """Return whether a user, or a text without one, is in the share that is served; always the same for a name.

    A larger share holds everybody whom a smaller one holds.

    Args:
        namespace: Another one draws anew.
        name: ``user:<user>`` or ``text:<entry id>``.
        share: In [0, 1].
    """
    digest = blake2b(f"{namespace}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def hit_rate(shadow: Mapping[str, int]) -> float:
    """Return would-be hits per watched lookup, in [0, 1]; 0 if there was none."""
    hits = shadow.get("hits", 0)
    watched = hits + shadow.get("misses", 0)
    return hits / watched if watched else 0.0


def agreement(shadow: Mapping[str, int]) -> float | None:
    """Return the share of compared answers that said the same, in [0, 1]; None if none was compared."""
    agreed = shadow.get("agreed", 0)
    compared = agreed + shadow.get("differed", 0)
    return agreed / compared if compared else None
