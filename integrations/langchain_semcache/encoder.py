"""`LangChainEncoder`: a LangChain `Embeddings` as the cache's encoder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_semcache.embeddings import model_of, settings_of
from semcache.encoders.texts import check_embeddings, checked_texts, fingerprint, unit_rows
from semcache.errors import ConfigurationError, EncoderError
from semcache.protocols import TextLimits
from semcache.types import Embeddings as Rows


class LangChainEncoder:
    """A LangChain `Embeddings` as the cache's encoder.

    Args:
        embeddings: Makes the embeddings; its blocking methods are used, in the cache's encoder thread.
        dim: Length of an embedding.
        name: Names what makes the embeddings, e.g. ``text-embedding-3-small``; needed where `embeddings` doesn't
            say it itself. Embeddings of two names are never compared.
        max_chars: Longer texts match exactly only: an encoder that silently drops their end would find
            them equal.
        queries: Embed prompts as queries, one by one, instead of as documents, in batches.

    Raises:
        ConfigurationError: No name can be told, or a number is out of range.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        *,
        dim: int,
        name: str = "",
        max_chars: int = 2000,
        queries: bool = False,
    ) -> None:
        for what, value in (("dim", dim), ("max_chars", max_chars)):
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"{what} is {value!r}, expected an int of 1 or more")
        self._embeddings = embeddings
        self._dim, self._max_chars, self._queries = dim, max_chars, queries
        side = "query" if queries else ""
        self._fingerprint = fingerprint(
            "langchain", name or model_of(embeddings), settings_of(embeddings)[:8], str(dim), "l2", side
        )

    @property
    def fingerprint(self) -> str:
        """Name, digest of the settings, dim and normalisation."""
        return self._fingerprint

    @property
    def dim(self) -> int:
        """As given."""
        return self._dim

    def encode(self, texts: Sequence[str]) -> Rows:
        """Embed texts; see `Encoder.encode`."""
        rows: Rows = np.zeros((len(texts), self._dim), dtype=np.float32)
        clean = checked_texts(texts)
        readable = [i for i, text in enumerate(clean) if text.strip() and len(text) <= self._max_chars]
        if not readable:
            return rows
        wanted = [clean[i] for i in readable]
        try:
            if self._queries:
                found = [self._embeddings.embed_query(text) for text in wanted]
            else:
                found = self._embeddings.embed_documents(wanted)
        except Exception as error:  # whatever a provider's SDK raises
            raise EncoderError(f"{type(self._embeddings).__name__} failed: {type(error).__name__}") from error
        try:
            rows[readable] = unit_rows(found)
        except (ValueError, TypeError) as error:
            raise EncoderError(
                f"{type(self._embeddings).__name__} returned something that isn't {len(wanted)} rows of {self._dim} "
                "numbers; check dim"
            ) from error
        return check_embeddings(rows, len(texts), self._dim)

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Report which texts are longer than `max_chars`; what the model knows can't be asked."""
        return [TextLimits(len(text) > self._max_chars, 0.0) for text in checked_texts(texts)]
