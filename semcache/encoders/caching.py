"""Keeps embeddings so that a text is encoded once: in this process, and as bytes for a store.

Knows rows and bytes. Leaves to the caller what a key is (a hash of the text, under the encoder's
fingerprint) and where the bytes go.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from semcache.encoders.texts import NORM_TOLERANCE, unit_rows
from semcache.errors import ConfigurationError
from semcache.types import Embedding

_LEAST_COSINE = 0.999  # of an embedding and what its int8 form says; below, float32 is kept
_SCALE = np.dtype("<f4")


class EmbeddingLRU:
    """The embeddings that were used last, in one block of memory.

    It may be called from many threads, and in a forked child, which keeps what its parent had.

    Args:
        capacity: Most rows; the one that was unused for longest makes room.
        dim: Length of a row.
    """

    def __init__(self, capacity: int, dim: int) -> None:
        for name, value in (("capacity", capacity), ("dim", dim)):
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"{name} is {value!r}, expected an int of 1 or more")
        self._rows = np.empty((capacity, dim), dtype=np.float32)  # pages are taken as they are written
        self._slots: OrderedDict[Hashable, int] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()
        _CACHES.add(self)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def memory_bytes(self) -> int:
        """What the rows in use take, bytes."""
        return len(self._slots) * self._rows.itemsize * self._rows.shape[1]

    def get(self, key: Hashable) -> Embedding | None:
        """Return a copy of the row, None without one."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is None:
                return None
            self._slots.move_to_end(key)
            row: Embedding = self._rows[slot].copy()
        return row

    def put(self, key: Hashable, embedding: Embedding) -> None:
        """Keep a row under a key, in place of the one that was there.

        Args:
            embedding: float32 (dim,), of unit norm.

        Raises:
            ConfigurationError: Wrong shape or dtype, or not a unit vector.
        """
        _check_unit(embedding, self._rows.shape[1])
        with self._lock:
            slot = self._slots.pop(key, None)
            if slot is None:
                full = len(self._slots) == len(self._rows)
                slot = self._slots.popitem(last=False)[1] if full else len(self._slots)
            self._rows[slot] = embedding
            self._slots[key] = slot

    def clear(self) -> None:
        """Forget every row."""
        with self._lock:
            self._slots.clear()


def quantise(embedding: Embedding) -> bytes:
    """Return an embedding in a quarter of its size: a float32 scale, then an int8 for each dimension.

    An embedding that int8 would bend below a cosine of 0.999 (one dimension outweighs hundreds of
    others) is returned as its little-endian float32 values; `dequantise` tells the two by their length.

    Args:
        embedding: float32 (dim,), of unit norm.

    Raises:
        ConfigurationError: Not a float32 unit vector.
    """
    _check_unit(embedding, len(embedding))
    scale = _SCALE.type(np.abs(embedding).max() / 127)
    levels = np.rint(embedding / scale).astype(np.int8)
    cosine = (levels @ embedding) / _norm(levels.astype(np.float32))
    if cosine < _LEAST_COSINE:
        return embedding.astype(_SCALE).tobytes()
    return bytes(scale.tobytes() + levels.tobytes())


def dequantise(data: bytes, dim: int) -> Embedding | None:
    """Return the float32 unit row that `quantise` was given, nearly; None if the bytes aren't one of `dim`."""
    if len(data) == _SCALE.itemsize + dim:
        scale = np.frombuffer(data, _SCALE, count=1)
        values = np.frombuffer(data, np.int8, offset=_SCALE.itemsize).astype(np.float32)
        if not (np.isfinite(scale[0]) and scale[0] > 0):
            return None
    elif len(data) == _SCALE.itemsize * dim:
        values = np.frombuffer(data, _SCALE).astype(np.float32)
        # In float64, whose squares don't overflow for any bytes; NaN compares false.
        if not np.abs(np.linalg.norm(values.astype(np.float64)) - 1.0) < NORM_TOLERANCE:
            return None
    else:
        return None
    if not values.any():
        return None
    row: Embedding = unit_rows(values)[0]
    return row


def _norm(row: Embedding) -> float:
    """Return the L2 norm of one row; numpy's own asks first what it was given, which takes longer."""
    return math.sqrt(row.dot(row))


def _check_unit(embedding: Embedding, dim: int) -> None:
    if embedding.shape != (dim,) or embedding.dtype != np.float32:
        raise ConfigurationError(
            f"the embedding is {embedding.dtype} of shape {embedding.shape}, expected float32 of shape {(dim,)}"
        )
    norm = _norm(embedding)
    if not abs(norm - 1.0) < NORM_TOLERANCE:
        raise ConfigurationError(f"the embedding has L2 norm {norm}, expected 1")


# A fork must not copy a row half written or a lock that a thread of the parent holds: it waits for them.
_CACHES: weakref.WeakSet[EmbeddingLRU] = weakref.WeakSet()
_held = threading.local()


def _before_fork() -> None:
    _held.locks = [cache._lock for cache in sorted(_CACHES, key=id)]
    for lock in _held.locks:
        lock.acquire()


def _after_fork() -> None:
    for lock in _held.locks:
        lock.release()
    _held.locks = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
