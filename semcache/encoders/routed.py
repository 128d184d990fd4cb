"""Several encoders in one space: one for English prompts, one for Chinese, one for all others.

Knows which texts go where, and how the encoders' rows are kept apart. Leaves to others: what language
a text is (`guards.analysis`, the same verdict that picks the thresholds), and the encoders themselves.

The best small English encoder says nothing about Chinese, and the best small multilingual one is behind
one for each in both; docs/matching.md has the figures. What is embedded is the prompt without greetings, politeness and the name
of an assistant around it (`guards.normal.strip_shells`): they move a short prompt far, and say nothing. Shorter rows are filled up with zeros, so
the cosine of two texts that went the same way is that of their encoder. Rows that went different ways
are as good as unrelated: their cosine is near zero, and prompts in two languages don't share an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import numpy as np

from semcache.encoders.bundled import BundledEncoder
from semcache.encoders.onnx import OnnxEncoder
from semcache.encoders.texts import CHARS_PER_TOKEN, checked_texts, fingerprint
from semcache.guards import analyse
from semcache.protocols import Encoder, TextLimits
from semcache.types import Embeddings

ENGLISH_TOKENS = 126  # with marks the 128 that the model takes; the guards tell prompts of several parts apart up to there: docs/matching.md
_READ = ENGLISH_TOKENS * CHARS_PER_TOKEN  # characters of a text that tell its language


class RoutedEncoder:
    """Sends English to one encoder, Chinese to another if there is one, and everything else to a third.

    Args:
        english: Embeds texts whose language is English.
        other: Embeds all others.
        chinese: Embeds texts whose language is Chinese; None leaves them to `other`.

    The calibration of each language is that of its encoder.
    """

    def __init__(self, english: Encoder, other: Encoder, *, chinese: Encoder | None = None) -> None:
        self._routes: dict[str, Encoder] = {"en": english}
        if chinese is not None:
            self._routes["zh"] = chinese
        self._routes["other"] = other

    @property
    def fingerprint(self) -> str:
        """``bare-en-<fingerprint of english>-zh-<of chinese>-other-<of other>``; without the middle if there is no `chinese`."""
        return fingerprint(
            "bare", *(part for way, one in self._routes.items() for part in (way, one.fingerprint))
        )

    @property
    def dim(self) -> int:
        """Length of the longest embedding of them."""
        return max(encoder.dim for encoder in self._routes.values())

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts; see `Encoder.encode`."""
        texts = checked_texts(texts)
        embeddings = np.zeros((len(texts), self.dim), dtype=np.float32)
        for encoder, rows in self._routed(texts):
            embeddings[rows, : encoder.dim] = encoder.encode([_bare(texts[row]) for row in rows])
        return embeddings

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Tell for each text what the encoder that it goes to says; see `Encoder.inspect`."""
        texts = checked_texts(texts)
        found: dict[int, TextLimits] = {}
        for encoder, rows in self._routed(texts):
            found.update(zip(rows, encoder.inspect([_bare(texts[row]) for row in rows]), strict=True))
        return [found[row] for row in range(len(texts))]

    def _routed(self, texts: Sequence[str]) -> list[tuple[Encoder, list[int]]]:
        """Return for each way that something goes its encoder, and the places of its texts."""
        ways: dict[str, list[int]] = {}
        for row, text in enumerate(texts):
            language = analyse(text[:_READ]).language
            ways.setdefault(language if language in self._routes else "other", []).append(row)
        return [(self._routes[way], rows) for way, rows in ways.items()]


def _bare(text: str) -> str:
    """Return a prompt without its shells; a text too long to be embedded stays as it is."""
    return analyse(text).plain if len(text) <= _READ else text


def default_encoder() -> RoutedEncoder:
    """Return the encoder that a cache has unless it is given another: `docs/encoder-card.md`.

    English and Chinese each go to a small model trained for caching (int8, 384 dimensions), all other languages to
    Universal Sentence Encoder multilingual. The weights are on disk already; nothing is downloaded.
    """
    data = resources.files("semcache.data")
    return RoutedEncoder(
        OnnxEncoder(str(data / "encoder_en"), max_tokens=ENGLISH_TOKENS),
        BundledEncoder(),
        chinese=OnnxEncoder(str(data / "encoder_zh")),
    )
