"""What a message says about where it came from: ``response_metadata["semcache"]``."""

from __future__ import annotations

from typing import Any

from semcache.types import Hit, Stored


def hit_note(hit: Hit) -> dict[str, Any]:
    """Return the note of a served message; `lookup_id` is what feedback asks for."""
    return {
        "lookup_id": hit.lookup_id,
        "similarity": hit.similarity,
        "match": hit.match,
        "entry_id": hit.entry_id,
        "age": hit.age,
    }


def miss_note(reason: str, stored: Stored | None) -> dict[str, Any]:
    """Return the note of a new message: the same fields without a match, why it missed, what became of it."""
    return {
        "lookup_id": None if stored is None else stored.lookup_id,
        "similarity": None,
        "match": None,
        "entry_id": None if stored is None else stored.entry_id,
        "age": 0.0,
        "reason": reason,
        "stored": None if stored is None else stored.outcome,
    }
