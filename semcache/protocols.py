"""The shapes that back ends have; a back end doesn't inherit from them.

`tests/contracts/` holds every back end to these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from semcache.types import Embedding, Embeddings, Finding


@dataclass(frozen=True, slots=True)
class TextLimits:
    """What an encoder can tell about a text before encoding it.

    Attributes:
        over_window: True if the text is longer than the encoder reads, or than it can tell apart.
        unknown_share: Share of the text's tokens that the encoder doesn't know, in [0, 1].
    """

    over_window: bool
    unknown_share: float


@runtime_checkable
class Encoder(Protocol):
    """Turns texts into embeddings.

    Constructing one is cheap; the model is loaded at the first `encode`, `inspect` or `dim`.
    An encoder is called by one thread at a time (`encoders.thread.EncoderThread` sees to that).
    """

    @property
    def fingerprint(self) -> str:
        """Name, revision, dim, normalisation and prefix in one short string of [a-z0-9.-].

        Embeddings of two fingerprints are never compared.
        """
        ...

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        ...

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts.

        Returns:
            float32 array of shape (len(texts), dim), C-contiguous; each row has unit L2 norm, so
            that a dot product of two rows is their cosine similarity. A text that has no meaning
            to the encoder gives a row of zeros.

        Raises:
            EncoderError: The encoder failed.
        """
        ...

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Tell for each text whether it fits and how much of it is known. Never truncates silently."""
        ...


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One row that a search found."""

    key: str  # the entry id
    similarity: float  # cosine in [-1, 1]


class VectorIndex(Protocol):
    """Finds the nearest embeddings inside one scope. Safe to call from many threads at once.

    Keys are entry ids, unique within a scope. A row is a hint: the store decides what is served.
    """

    def add(
        self, scope: str, keys: Sequence[str], embeddings: Embeddings, expires_at: Sequence[float | None]
    ) -> None:
        """Add or replace rows.

        Args:
            keys: One per row.
            embeddings: float32 (len(keys), dim), unit rows; zero, NaN and infinite rows are refused.
            expires_at: Seconds since the Unix epoch after which the row is a ghost; None for never.

        Raises:
            ConfigurationError: Wrong shape, dtype, or a row that isn't a unit vector.
        """
        ...

    def remove(self, scope: str, keys: Sequence[str]) -> int:
        """Remove rows; unknown keys are ignored. Returns how many were removed."""
        ...

    def search(
        self, scope: str, embedding: Embedding, k: int, *, now: float, least: float = -1.0
    ) -> list[Neighbour]:
        """Return up to k live rows of the scope in descending order of similarity.

        Ties are broken by key, ascending, so that the answer is deterministic.

        Args:
            embedding: float32 (dim,), unit norm.
            now: Seconds since the Unix epoch; rows that expired by then are not returned.
            least: Rows below this similarity may be left out.
        """
        ...

    def count(self, scope: str) -> int:
        """Return how many rows the scope has."""
        ...

    def drop_scope(self, scope: str) -> None:
        """Forget a scope's rows."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def scopes(self) -> list[str]:
        """Return the scopes that have rows."""
        ...

    def memory_bytes(self) -> int:
        """Return the memory that rows and graphs take, bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the matching rules say about one pair of prompts.

    Attributes:
        reason: None if the pair may share an answer, else ``below_threshold``, ``guard:<name>`` or ``verifier``.
        probability: Calibrated probability that the two ask the same; None if not computed.
        findings: What each rule said, for explain; empty unless asked for.
        detail: What the deciding rule found, in words.
    """

    reason: str | None
    probability: float | None = None
    findings: tuple[Finding, ...] = ()
    detail: str = ""


class Matcher(Protocol):
    """Decides whether two prompts ask the same. Pure: no I/O, no clock, no state that changes the result."""

    def judge(
        self,
        query: str,
        stored: str,
        similarity: float,
        *,
        threshold: float | None = None,
        runner_up: float | None = None,
        answer_language: str | None = None,
        explain: bool = False,
    ) -> Judgement:
        """Judge one pair.

        Args:
            query: The prompt asked now.
            stored: The prompt that the entry was stored for.
            similarity: Cosine of their embeddings.
            threshold: Least similarity of a hit, inclusive; None means the matcher's calibrated default.
                A caller's or an entry's threshold only tightens it.
            runner_up: Similarity of the next candidate, None without one.
            answer_language: Language of the stored answer, None if unknown.
            explain: Run every rule and report it, also after one refused.
        """
        ...


class Verifier(Protocol):
    """A second opinion on pairs in the grey zone; may be slow and may do I/O."""

    def verify(self, query: str, stored: str, response: str, *, deadline_s: float) -> float | None:
        """Return the probability in [0, 1] that the stored answer serves the query; None for no opinion.

        No opinion, an error or NaN is a miss, never a hit.
        """
        ...
