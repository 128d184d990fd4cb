"""Entries whose prompts are close to a text, whatever their scope: for operators who withdraw a subject. It scans."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from semcache import admission, scope
from semcache.codec import decode_embedding
from semcache.errors import EncoderError
from semcache.server import catalogue
from semcache.server.errors import HttpError

if TYPE_CHECKING:
    from semcache.cache import AsyncSemanticCache

_BATCH: Final = 500
_TIMEOUT: Final = 10.0  # seconds, for one batch and for the encoder


async def similar(cache: AsyncSemanticCache, view: str | None, text: str, threshold: float) -> list[str]:
    """Return the names of live entries whose prompt's cosine similarity to a text is at least `threshold`.

    Entries that match exactly only have no embedding; they are found by the very text.

    Args:
        view: The tenant whose entries are looked at; None for every tenant's.
        threshold: In [-1, 1].

    Raises:
        HttpError: 400 if the text can't be told from others by its embedding, 503 if the encoder fails.
    """
    core = cache._core
    try:
        encoded = await asyncio.wait_for(asyncio.wrap_future(core.encoder.submit(text)), _TIMEOUT)
    except (EncoderError, TimeoutError) as error:
        raise HttpError(503, "the encoder doesn't answer", "encoder_failed") from error
    if admission.unreadable(encoded.limits, encoded.embedding, cache.policy) is not None:
        raise HttpError(
            400, "similar_to.text can't be compared by its meaning (too long, or no known words); name ids or tags",
            "invalid_value", "similar_to",
        )  # fmt: skip
    exact = scope.exact_text(text)
    found: list[str] = []
    batch: list[str] = []

    async def look() -> None:
        blobs = await cache._store.embeddings(batch, core.fingerprint, timeout=_TIMEOUT)
        for name, blob in zip(batch, blobs, strict=True):
            row = decode_embedding(blob, core.encoder.dim)
            if row is not None and float(row @ encoded.embedding) >= threshold:
                found.append(name)
        batch.clear()

    async for entry in cache.entries():
        if entry.state != "live" or not catalogue.owns(view, entry):
            continue
        if entry.prompt == exact:
            found.append(entry.entry_id)
            continue
        batch.append(entry.entry_id)
        if len(batch) == _BATCH:
            await look()
    if batch:
        await look()
    return found
