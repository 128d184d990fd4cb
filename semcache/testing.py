"""Encoders for tests: small, deterministic, and open about their geometry.

They meet `protocols.Encoder`, need no model and no patching.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b

import numpy as np

from semcache.encoders.texts import checked_texts, fingerprint, has_meaning, unit_rows
from semcache.errors import ConfigurationError, EncoderError
from semcache.protocols import Encoder, TextLimits
from semcache.types import Embedding, Embeddings

__all__ = ["FailingEncoder", "HashEncoder", "SlowEncoder", "TableEncoder"]


class TableEncoder:
    """Looks embeddings up in a table: ``TableEncoder({"a": [1, 0], "b": [0.99, 0.14]})``.

    Args:
        table: Text to row; rows are scaled to unit norm, a row of zeros stays as it is.
        default: Row of every text that isn't in the table; None makes such a text an `EncoderError`.
        over_window: Texts that count as longer than the encoder reads; they have a row of zeros.
        unknown_share: Text to share of unknown tokens, in [0, 1]; 0 for the others.
        name: First part of the fingerprint.

    Attributes:
        batches: The texts of each call of `encode`, oldest first.
    """

    def __init__(
        self,
        table: Mapping[str, Sequence[float]],
        *,
        default: Sequence[float] | None = None,
        over_window: Collection[str] = (),
        unknown_share: Mapping[str, float] | None = None,
        name: str = "table",
    ) -> None:
        rows = [*table.values(), *([] if default is None else [default])]
        lengths = {len(row) for row in rows}
        if len(lengths) != 1 or 0 in lengths:
            raise ConfigurationError(
                f"the rows have lengths {sorted(lengths)}, expected one length of 1 or more"
            )
        self._table: dict[str, Embedding] = {text: unit_rows(row)[0] for text, row in table.items()}
        self._default = None if default is None else unit_rows(default)[0]
        self._dim = lengths.pop()
        self._over_window = frozenset(over_window)
        self._unknown_share = dict(unknown_share or {})
        self._name = name
        self.batches: list[tuple[str, ...]] = []

    @property
    def calls(self) -> int:
        """How often `encode` was called."""
        return len(self.batches)

    @property
    def fingerprint(self) -> str:
        """Name and dim."""
        return fingerprint(self._name, str(self._dim), "l2")

    @property
    def dim(self) -> int:
        """Length of the table's rows."""
        return self._dim

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Look the texts up; see `Encoder.encode`."""
        checked_texts(texts)
        self.batches.append(tuple(texts))
        embeddings = np.zeros((len(texts), self._dim), dtype=np.float32)
        for row, (text, limits) in enumerate(zip(texts, self.inspect(texts), strict=True)):
            if has_meaning(limits):
                embeddings[row] = self._row(text)
        return embeddings

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Return what was said at construction."""
        return [TextLimits(text in self._over_window, self._unknown_share.get(text, 0.0)) for text in texts]

    def _row(self, text: str) -> Embedding:
        row = self._table.get(text, self._default)
        if row is None:
            raise EncoderError(
                f"{text!r} isn't in the table, which has {sorted(self._table)}; give a default"
            )
        return row


class HashEncoder:
    """Gives every text a pseudo-random unit vector of its own, the same in every process.

    Two texts have a cosine near 0 (standard deviation 1/√dim), so nothing but an equal text is near.
    """

    def __init__(self, dim: int = 64, *, name: str = "hash") -> None:
        if type(dim) is not int or dim < 1:
            raise ConfigurationError(f"dim is {dim!r}, expected an int of 1 or more")
        self._dim = dim
        self._name = name

    @property
    def fingerprint(self) -> str:
        """Name and dim."""
        return fingerprint(self._name, str(self._dim), "l2")

    @property
    def dim(self) -> int:
        """As given."""
        return self._dim

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Draw a row for each text; see `Encoder.encode`."""
        rows = np.zeros((len(texts), self._dim), dtype=np.float32)
        for row, text in zip(rows, checked_texts(texts), strict=True):
            seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
            row[:] = np.random.default_rng(seed).standard_normal(self._dim)
        return unit_rows(rows)

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Report that every text fits and is known."""
        return [TextLimits(over_window=False, unknown_share=0.0) for _ in checked_texts(texts)]


class SlowEncoder:
    """Takes `seconds` for each call of `encode` on top of what the encoder that it wraps takes."""

    def __init__(self, encoder: Encoder, seconds: float) -> None:
        self._encoder = encoder
        self._seconds = seconds

    @property
    def fingerprint(self) -> str:
        """As the wrapped encoder's."""
        return self._encoder.fingerprint

    @property
    def dim(self) -> int:
        """As the wrapped encoder's."""
        return self._encoder.dim

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Wait, then embed."""
        time.sleep(self._seconds)
        return self._encoder.encode(texts)

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Ask the wrapped encoder."""
        return self._encoder.inspect(texts)


class FailingEncoder:
    """Raises in `encode`, always or where told, and else does what the encoder that it wraps does.

    Args:
        encoder: Answers where this one doesn't fail.
        error: What to raise; None means an `EncoderError`.
        times: Fail this many calls, then work; None means without end.
        texts: Fail only when one of these is among the texts; None means any.

    Attributes:
        failures: How many calls failed.
    """

    def __init__(
        self,
        encoder: Encoder,
        error: Exception | None = None,
        *,
        times: int | None = None,
        texts: Collection[str] | None = None,
    ) -> None:
        self._encoder = encoder
        self._error = EncoderError("this encoder was made to fail") if error is None else error
        self._times = times
        self._texts = None if texts is None else frozenset(texts)
        self.failures = 0

    @property
    def fingerprint(self) -> str:
        """As the wrapped encoder's."""
        return self._encoder.fingerprint

    @property
    def dim(self) -> int:
        """As the wrapped encoder's."""
        return self._encoder.dim

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Raise or embed."""
        due = self._times is None or self.failures < self._times
        if due and (self._texts is None or not self._texts.isdisjoint(texts)):
            self.failures += 1
            raise self._error
        return self._encoder.encode(texts)

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Ask the wrapped encoder."""
        return self._encoder.inspect(texts)
