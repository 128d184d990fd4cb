"""Two encoders in one space: one for English prompts, one for all others.

Knows which texts go where, and how two encoders' rows are kept apart. Leaves to others: what language
a text is (`guards.analysis`, the same verdict that picks the thresholds), and the encoders themselves.

The best small English encoder says nothing about Chinese, and the best small multilingual one is behind
it in English; docs/matching.md has the figures. The shorter of the two rows is filled up with zeros, so
the cosine of two texts that went the same way is that of their encoder. Rows that went different ways
are as good as unrelated: their cosine is near zero, and prompts in two languages don't share an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import numpy as np

from semcache.encoders.bundled import BundledEncoder
from semcache.encoders.onnx import OnnxEncoder
from semcache.encoders.texts import CHARS_PER_TOKEN, MAX_TOKENS, checked_texts, fingerprint
from semcache.guards import analyse
from semcache.protocols import Encoder, TextLimits
from semcache.types import Embeddings

_READ = MAX_TOKENS * CHARS_PER_TOKEN  # characters of a text that tell its language


class RoutedEncoder:
    """Sends English to one encoder and everything else to another.

    Args:
        english: Embeds texts whose language is English.
        other: Embeds all others.

    The calibration is that of `english` for English and that of `other` for the rest.
    """

    def __init__(self, english: Encoder, other: Encoder) -> None:
        self._routes = (english, other)

    @property
    def fingerprint(self) -> str:
        """``en-<fingerprint of english>-other-<fingerprint of other>``."""
        english, other = self._routes
        return fingerprint("en", english.fingerprint, "other", other.fingerprint)

    @property
    def dim(self) -> int:
        """Length of the longer embedding of the two."""
        return max(encoder.dim for encoder in self._routes)

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts; see `Encoder.encode`."""
        texts = checked_texts(texts)
        embeddings = np.zeros((len(texts), self.dim), dtype=np.float32)
        for encoder, rows in self._routed(texts):
            embeddings[rows, : encoder.dim] = encoder.encode([texts[row] for row in rows])
        return embeddings

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Tell for each text what the encoder that it goes to says; see `Encoder.inspect`."""
        texts = checked_texts(texts)
        found: dict[int, TextLimits] = {}
        for encoder, rows in self._routed(texts):
            found.update(zip(rows, encoder.inspect([texts[row] for row in rows]), strict=True))
        return [found[row] for row in range(len(texts))]

    def _routed(self, texts: Sequence[str]) -> list[tuple[Encoder, list[int]]]:
        """Return for each encoder that has something to do the places of its texts."""
        english = [analyse(text[:_READ]).family == "en" for text in texts]
        routes = zip(self._routes, (True, False), strict=True)
        found = [
            (encoder, [row for row, is_en in enumerate(english) if is_en is way]) for encoder, way in routes
        ]
        return [(encoder, rows) for encoder, rows in found if rows]


def default_encoder() -> RoutedEncoder:
    """Return the encoder that a cache has unless it is given another: `docs/encoder-card.md`.

    English goes to a MiniLM trained for caching (int8, 384 dimensions), all other languages to Universal
    Sentence Encoder multilingual. The weights of both are on disk already; nothing is downloaded.
    """
    return RoutedEncoder(OnnxEncoder(str(resources.files("semcache.data") / "encoder_en")), BundledEncoder())
