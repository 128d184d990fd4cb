"""What must be true of a graph's memory before hnswlib may have it.

hnswlib follows counts and links without looking. A file's checksum says that it is what somebody wrote,
not that it is a graph; so every number that would be followed is looked at here. Knows how hnswlib
0.8 lays a graph out: a row of the lowest level is a count, 2 M links, the floats and the label; the
upper levels of a row follow one another, each a count and M links.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semcache.errors import ConfigurationError
from semcache.indexes.rows import NORM_TOLERANCE
from semcache.types import Embeddings

Labels: TypeAlias = npt.NDArray[np.uint64]
State: TypeAlias = dict[str, Any]

M = 16  # links of a row on each upper level; twice as many on the lowest
LINK_BYTES = 4 * (2 * M + 1) + 8  # of a row's links on the lowest level, and its label


_LINKS = 4 * (2 * M + 1)  # bytes of a row's links on the lowest level


def labels_of(level0: npt.NDArray[np.uint8], dim: int) -> Labels:
    """Return the labels of the rows in the order in which they lie."""
    at = _LINKS + 4 * dim
    return np.ascontiguousarray(level0[:, at : at + 8]).view(np.uint64)[:, 0]


def rows_of(level0: npt.NDArray[np.uint8], dim: int) -> Embeddings:
    """Return the embeddings of the rows where they lie."""
    rows: Embeddings = level0[:, _LINKS : _LINKS + 4 * dim].view(np.float32)
    return rows


def check_state(dim: int, state: State) -> None:
    """Raise unless every number that hnswlib will follow without looking leads to where it should."""
    count = len(state["keys"])
    _demand(count > 0, "no rows")
    size = state["level0"].nbytes
    _demand(size == count * (LINK_BYTES + 4 * dim), f"{size} bytes for {count} rows")
    check_lowest(state["level0"].reshape(count, -1), dim, count)
    check_rest(dim, state)


def check_lowest(level0: npt.NDArray[np.uint8], dim: int, count: int) -> None:
    """Check links and embeddings of some rows of the lowest level, of `count` rows in all."""
    words = np.ascontiguousarray(level0[:, :_LINKS]).view(np.uint32)
    _check_links(words, 2 * M, count)
    rows = rows_of(level0, dim)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.einsum("ij,ij->i", rows, rows)
    _demand(bool((np.abs(norms - 1.0) < 3 * NORM_TOLERANCE).all()), "a row isn't a unit vector")


def check_rest(dim: int, state: State) -> None:
    """Check all of a state but what `check_lowest` checks."""
    count = len(state["keys"])
    levels, links = state["levels"], state["links"]
    _demand(len(state["level0"]) == count or state["level0"].ndim == 1, "as many rows as there aren't keys")
    _demand(len(levels) == len(state["expires"]) == count, "as many levels or expiries as there aren't rows")
    top, enter = state["max_level"], state["enterpoint"]
    _demand(0 <= enter < count and 0 <= top < 64, "the entry point is outside")
    _demand(bool((levels >= 0).all() and (levels <= top).all()) and levels[enter] == top, "levels disagree")
    _demand(links.nbytes == int(levels.sum()) * 4 * (M + 1), "upper links disagree with the levels")
    owner = np.repeat(np.arange(count), levels)
    first = np.repeat(np.cumsum(levels) - levels, levels)
    words = links.view(np.uint32).reshape(-1, M + 1)
    targets, used = _check_links(words, M, count)
    level = np.arange(len(owner)) - first + 1
    high = levels[targets] >= level[:, None]
    _demand(bool(high[used].all()), "a link leads to a row that isn't so high")
    labels = np.sort(labels_of(state["level0"].reshape(count, -1), dim))
    _demand(bool((labels == np.arange(count)).all()), "labels aren't those of the keys")


def _check_links(
    words: npt.NDArray[np.uint32], most: int, count: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """Check lists of links, each a count and then so many rows; return the links, and which of them count."""
    counts = words[:, 0] & 0xFFFF
    _demand(bool((counts <= most).all()), "a list of links is too long")
    used = np.arange(most, dtype=np.uint32)[None, :] < counts[:, None]
    targets = np.where(used, words[:, 1:], np.uint32(0))
    _demand(bool((targets < count).all()), "a link leads outside")
    return targets, used


def _demand(true: bool, otherwise: str) -> None:
    if not true:
        raise ConfigurationError(f"the graph is damaged: {otherwise}")
