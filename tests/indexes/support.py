"""Embeddings for the tests of indexes: random ones, and real ones of shared questions."""

from __future__ import annotations

import functools
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from semcache.encoders.bundled import BundledEncoder
from semcache.types import Embeddings

DATA = Path(os.environ.get("SEMCACHE_DATA", Path(__file__).parents[3] / "shared" / "data"))


def random_units(count: int, dim: int = 16, seed: int = 0) -> Embeddings:
    """Return unit rows in random directions."""
    found = np.random.default_rng(seed).standard_normal((count, dim))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def names(count: int, prefix: str = "k") -> list[str]:
    """Return so many keys."""
    return [f"{prefix}{i}" for i in range(count)]


@functools.cache
def real_embeddings() -> Embeddings:
    """Return the bundled encoder's embeddings of 2,500 questions people asked, of all intents."""
    path = DATA / "clusters_intents.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the evaluation data isn't at {DATA}; set SEMCACHE_DATA")
    texts = sorted(set(_texts(path)))
    sample = np.random.default_rng(0).permutation(len(texts))[:2500]
    embeddings = BundledEncoder().encode([texts[i] for i in sample])
    return embeddings[np.linalg.norm(embeddings, axis=1) > 0.5]


def _texts(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"]
