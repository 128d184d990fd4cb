"""Measures what an entry takes: real entries are stored in a server of their own, which is asked before and after."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from semcache.plan import Footprint
from semcache.protocols import Encoder

if TYPE_CHECKING:
    from semcache.cache import SemanticCache

ENTRIES: Final = 300
_ROWS: Final = 4096  # enough for the index to build its graph


def measure(pairs: Sequence[tuple[str, str]], encoder: Encoder) -> Footprint:
    """Store (prompt, answer) pairs and weigh them.

    In Redis: the growth of ``used_memory`` per entry, with all that belongs to one (the entry, its place in the
    members, the shared embedding, the record of the log). In a process: the index of 4,096 rows, its graph built.

    Args:
        pairs: Different prompts; the first 300 are used.

    Raises:
        EmbeddedServerError: No server can be started here.
    """
    from semcache.cache import SemanticCache
    from semcache.policy import Policy
    from semcache.stores.embedded import EmbeddedServer
    from semcache.types import CacheRequest

    policy = Policy(deadline=30.0, personal="share", time_bound="ignore")
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.open(Path(folder) / "data") as server:
        namespace = f"plan-{uuid.uuid4().hex}"
        with SemanticCache.open(server.url, namespace=namespace, policy=policy, encoder=encoder) as cache:
            cache.put(CacheRequest("a first entry, so that what exists once isn't counted", model="m"), "x")
            before = _used(cache)
            stored = [
                cache.put(CacheRequest(prompt, model="m"), answer) for prompt, answer in pairs[:ENTRIES]
            ]
            after = _used(cache)
    count = sum(map(bool, stored))
    return Footprint(
        redis_bytes=(after - before) / max(count, 1),
        row_bytes=row_bytes(encoder.dim),
        measured=f"growth of used_memory over {count} entries of this log in an embedded server, and an index of"
        f" {_ROWS:,} rows with its graph",
    )


def _used(cache: SemanticCache) -> float:
    return float(cache.stats().server["used_memory"])


def row_bytes(dim: int) -> float:
    """Return what one row takes in the index of a process, bytes, graph and all."""
    from semcache.indexes.adaptive import AdaptiveIndex

    rows = np.random.default_rng(0).standard_normal((_ROWS, dim)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    index = AdaptiveIndex(dim)
    try:
        index.add("scope", [f"~/~/{number:022d}" for number in range(_ROWS)], rows, [None] * _ROWS)
        index.settle()
        return index.memory_bytes() / _ROWS
    finally:
        index.close()
