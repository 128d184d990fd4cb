"""Keeping embeddings: an LRU of contiguous rows in the process, and the bytes of the shared cache."""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict

import numpy as np

from semcache.types import Embedding


class EmbeddingLRU:
    """The most recently used embeddings, in one array. Safe to use from many threads.

    Args:
        capacity: Most rows.
        dim: Length of an embedding.
    """

    def __init__(self, capacity: int, dim: int) -> None:
        self._rows = np.empty((capacity, dim), dtype=np.float32)
        self._slots: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: str) -> Embedding | None:
        """Return a copy of the row of a text, by the text's digest."""
        with self._lock:
            slot = self._slots.get(digest)
            if slot is None:
                return None
            self._slots.move_to_end(digest)
            row: Embedding = self._rows[slot].copy()
            return row

    def put(self, digest: str, embedding: Embedding) -> None:
        """Keep a row; the least recently used one makes room."""
        with self._lock:
            slot = self._slots.pop(digest, None)
            if slot is None:
                full = len(self._slots) == len(self._rows)
                slot = self._slots.popitem(last=False)[1] if full else len(self._slots)
            self._slots[digest] = slot
            self._rows[slot] = embedding

    def __len__(self) -> int:
        return len(self._slots)


def quantise(embedding: Embedding) -> bytes:
    """Return a float32 scale, little-endian, and one int8 per dimension."""
    largest = float(np.abs(embedding).max()) or 1.0
    levels = np.rint(embedding * (127.0 / largest)).astype(np.int8)
    packed: bytes = struct.pack("<f", largest / 127.0) + levels.tobytes()
    return packed


def dequantise(data: bytes, dim: int) -> Embedding | None:
    """Read `quantise`'s bytes back as a unit row; None if they aren't an embedding of `dim`."""
    if len(data) != 4 + dim:
        return None
    scale = np.frombuffer(data, dtype="<f4", count=1)[0]
    row = np.frombuffer(data, dtype=np.int8, offset=4).astype(np.float32) * scale
    norm = float(np.linalg.norm(row))
    if not 0.9 < norm < 1.1:  # also false for NaN
        return None
    unit: Embedding = row / np.float32(norm)
    return unit
