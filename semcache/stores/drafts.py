"""What is written of a draft, and how many bytes that is."""

from __future__ import annotations

from typing import Final

from semcache.codec import entry_fields
from semcache.protocols import Draft

# What the put script adds: epoch, fence, revision, created, ttl, state, announced; 16 digits of microseconds.
_ADDED: Final = (
    len("epoch") + len("fence") + len("revision") + len("created") + 3 * 16
    + len("ttl") + len("state") + len("live") + len("announced") + 1
)  # fmt: skip


def fields_of(draft: Draft) -> list[str | bytes]:
    """Return the fields of a draft's entry, names and values alternating, without what the script adds."""
    return entry_fields(
        entry_id=draft.entry_id,
        scope=draft.scope,
        prompt=draft.prompt,
        response=draft.response,
        tags=draft.tags,
        confidence=draft.confidence,
        kind=draft.kind,
        embedding=draft.embedding,
        fingerprint=draft.fingerprint,
        obeys=draft.all_tags,
        extra={
            **({"request": draft.request} if draft.request else {}),
            **({"created": str(draft.created_us)} if draft.created_us is not None else {}),
            **({"stretch": repr(draft.stretch)} if draft.stretch != 1.0 else {}),
        },
    )


def size_of(draft: Draft) -> int:
    """Return the bytes of an entry: names and values of its fields, and an embedding that is to come.

    What feedback adds later isn't in it.
    """
    written = sum(len(part if isinstance(part, bytes) else part.encode()) for part in fields_of(draft))
    ttl = 0 if draft.ttl is None else len(str(max(1, round(draft.ttl * 1000))))
    return (
        written
        + _ADDED
        + len(draft.epoch)
        + ttl
        + draft.spare
        - (0 if draft.created_us is None else len("created") + 16)
    )
