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

Labels: TypeAlias = npt.NDArray[np.uint64]
State: TypeAlias = dict[str, Any]

M = 16  # links of a row on each upper level; twice as many on the lowest
LINK_BYTES = 4 * (2 * M + 1) + 8  # of a row's links on the lowest level, and its label


def labels_of(level0: npt.NDArray[np.uint8], dim: int) -> Labels:
    """Return the labels of the rows in the order in which they lie."""
    at = 4 * (2 * M + 1) + 4 * dim
    return np.ascontiguousarray(level0[:, at : at + 8]).view(np.uint64)[:, 0]


def check_state(dim: int, state: State) -> None:
    """Raise unless every number that hnswlib will follow without looking leads to where it should."""
    count = len(state["keys"])
    level0, levels, links = state["level0"], state["levels"], state["links"]
    _demand(count > 0, "no rows")
    _demand(level0.nbytes == count * (LINK_BYTES + 4 * dim), f"{level0.nbytes} bytes for {count} rows")
    _demand(len(levels) == len(state["expires"]) == count, "as many levels or expiries as there aren't rows")
    top, enter = state["max_level"], state["enterpoint"]
    _demand(0 <= enter < count and 0 <= top < 64, "the entry point is outside")
    _demand(bool((levels >= 0).all() and (levels <= top).all()) and levels[enter] == top, "levels disagree")
    _demand(links.nbytes == int(levels.sum()) * 4 * (M + 1), "upper links disagree with the levels")
    rows = level0.reshape(count, -1)
    words = np.ascontiguousarray(rows[:, : 4 * (2 * M + 1)]).view(np.uint32)
    _check_links(words, 2 * M, np.zeros(count, dtype=np.int32), levels)
    owner = np.repeat(np.arange(count), levels)
    first = np.repeat(np.cumsum(levels) - levels, levels)
    _check_links(links.view(np.uint32).reshape(-1, M + 1), M, np.arange(len(owner)) - first + 1, levels)
    _demand(
        bool((np.sort(labels_of(rows, dim)) == np.arange(count)).all()), "labels aren't those of the keys"
    )
    values = rows[:, 4 * (2 * M + 1) : 4 * (2 * M + 1) + 4 * dim].view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.einsum("ij,ij->i", values, values)
    _demand(bool((np.abs(norms - 1.0) < 3 * NORM_TOLERANCE).all()), "a row isn't a unit vector")


def _check_links(words: npt.NDArray[np.uint32], most: int, level: Any, levels: npt.NDArray[np.int32]) -> None:
    """Check lists of links: a count, then so many rows, each of which must reach the list's level."""
    counts = words[:, 0] & 0xFFFF
    _demand(bool((counts <= most).all()), "a list of links is too long")
    used = np.arange(most)[None, :] < counts[:, None]
    targets = np.where(used, words[:, 1:], 0)
    _demand(bool((targets < len(levels)).all()), "a link leads outside")
    _demand(bool((levels[targets] >= level[:, None])[used].all()), "a link leads to a row that isn't so high")


def _demand(true: bool, otherwise: str) -> None:
    if not true:
        raise ConfigurationError(f"the graph is damaged: {otherwise}")
