"""A measure of whether two answers say the same, by their embeddings; for `Policy(same_answer=…)`."""

from __future__ import annotations

import threading

from semcache.errors import ConfigurationError
from semcache.freshness import same_answer
from semcache.protocols import Encoder


class EmbeddingAgreement:
    """Says that two answers agree if their embeddings are near each other. Safe to call from many threads.

    It hears tone and topic better than facts: two answers that differ in one number are near each other. What
    the encoder can't read (too long, without meaning to it) must be equal.

    Args:
        encoder: One of its own, or one that may be called from any thread.
        least: Cosine similarity from which two answers agree, in [-1, 1].
    """

    def __init__(self, encoder: Encoder, least: float = 0.8) -> None:
        if isinstance(least, bool) or not isinstance(least, int | float) or not -1.0 <= least <= 1.0:
            raise ConfigurationError(f"least is {least!r}, expected a cosine similarity in [-1, 1]")
        self._encoder = encoder
        self._least = least
        self._lock = threading.Lock()

    def __call__(self, old: str, new: str) -> bool:
        """Compare two texts."""
        if same_answer(old, new):
            return True
        with self._lock:
            if any(limits.over_window for limits in self._encoder.inspect([old, new])):
                return False
            first, second = self._encoder.encode([old, new])
        return bool(first.any() and second.any() and float(first @ second) >= self._least)
