"""An index as a file and back: which parts there are and what they mean.

Small scopes lie in slices of the arena, each large one has a tail and graphs. `snapshot` vouches for
the bytes; what they say is checked here and in `integrity`, since a checksum is no signature.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from semcache.errors import UndecodableError
from semcache.indexes.arena import ArenaIndex
from semcache.indexes.graph import EF_CONSTRUCTION
from semcache.indexes.hnsw import GraphRows
from semcache.indexes.integrity import LINK_BYTES, M, State, check_lowest, check_rest
from semcache.indexes.rows import Moved, check_units
from semcache.indexes.snapshot import SnapshotReader, SnapshotWriter

_ARRAYS = {"levels": "<i4", "links": "u1"}


def save(index: ArenaIndex, writer: SnapshotWriter, meta: Callable[[], dict[str, Any]]) -> None:
    """Write an index, and then what `meta` says; rows that are added meanwhile may be left out."""
    small = []
    for owners, moved in index.slices():
        small.append({"owners": writer.texts(owners), **_save_rows(writer, moved)})
    large = []
    for scope, own in index.owned():
        assert isinstance(own, GraphRows)
        state = own.state()
        graphs = [_save_graph(writer, graph) for graph in state["graphs"]]
        large.append({"scope": scope, "tail": _save_rows(writer, state["tail"]), "graphs": graphs})
    writer.header(
        {"dim": index.dim, "graph": [M, EF_CONSTRUCTION], "meta": meta(), "small": small, "large": large}
    )


def _save_rows(writer: SnapshotWriter, moved: Moved) -> dict[str, Any]:
    keys, rows, expires = moved
    return {
        "keys": writer.texts(keys),
        "rows": writer.rows(rows.astype("<f4", copy=False)),
        "expires": writer.part(expires.astype("<f8", copy=False)),
    }


def _save_graph(writer: SnapshotWriter, state: State) -> dict[str, Any]:
    return {
        "keys": writer.json(state["keys"]),
        "expires": writer.part(state["expires"].astype("<f8", copy=False)),
        "max_level": state["max_level"],
        "enterpoint": state["enterpoint"],
        "level0": writer.rows(state["level0"].reshape(len(state["keys"]), -1)),
        **{name: writer.part(state[name].astype(dtype, copy=False)) for name, dtype in _ARRAYS.items()},
    }


def check_header(reader: SnapshotReader, dim: int) -> dict[str, Any]:
    """Return the meta data of a file for embeddings of `dim`; raise for another."""
    header = reader.header
    _demand(header["dim"] == dim, f"its embeddings have {header['dim']} dimensions, expected {dim}")
    _demand(header["graph"] == [M, EF_CONSTRUCTION], "its graphs have other parameters")
    meta = header["meta"]
    _demand(isinstance(meta, dict), "its meta data is no mapping")
    return dict(meta)


def load(reader: SnapshotReader, index: ArenaIndex, make: Callable[[int], GraphRows]) -> None:
    """Fill a new index from a file whose header was checked; it may be used once this has returned.

    Raises:
        UndecodableError: Something in it isn't what it should be.
        ConfigurationError: As well.
    """
    for piece in reader.header["small"]:
        moved = _load_rows(reader, index.dim, piece)
        owners = reader.texts(piece["owners"])
        _demand(len(owners) == len(moved[0]), "as many scopes as there aren't rows")
        index.fill(owners, moved)
    large: list[tuple[GraphRows, list[State]]] = []
    for piece in reader.header["large"]:
        _demand(isinstance(piece["scope"], str), "a scope is no text")
        states = [_load_graph(reader, index.dim, graph) for graph in piece["graphs"]]
        tail = _load_rows(reader, index.dim, piece["tail"])
        _demand(len(set(tail[0])) == len(tail[0]), "a key is there twice")
        large.append((make(index.dim), states))
        large[-1][0].restore(tail, states)
        index.give(piece["scope"], large[-1][0])
    reader.settle()
    for own, states in large:
        for state in states:
            check_rest(index.dim, state)
        own.restored()


def _load_rows(reader: SnapshotReader, dim: int, piece: dict[str, Any]) -> Moved:
    rows = reader.rows(piece["rows"], "<f4", dim, check_units)  # first: they are checked meanwhile
    keys = reader.texts(piece["keys"])
    expires = reader.array(piece["expires"], "<f8").astype(np.float64)
    _demand(len(rows) == len(keys) == len(expires), "as many rows or expiries as there aren't keys")
    _demand(not np.isnan(expires).any(), "an expiry is no number")
    return keys, rows.astype(np.float32, copy=False), expires


def _load_graph(reader: SnapshotReader, dim: int, piece: dict[str, Any]) -> State:
    state: State = {"expires": reader.array(piece["expires"], "<f8").astype(np.float64)}
    count = len(state["expires"])
    check = partial(check_lowest, dim=dim, count=count)
    state["level0"] = reader.rows(piece["level0"], "u1", LINK_BYTES + 4 * dim, check)
    state["keys"] = reader.json(piece["keys"])
    named = [key for key in state["keys"] if key is not None]
    _demand(set(map(type, named)) <= {str}, "a key is no text")
    _demand(len(set(named)) == len(named), "a key is there twice")
    _demand(len(state["level0"]) == len(state["keys"]) == count > 0, "as many rows as there aren't keys")
    state |= {name: reader.array(piece[name], dtype) for name, dtype in _ARRAYS.items()}
    state["levels"] = state["levels"].astype(np.int32, copy=False)
    for name in ("max_level", "enterpoint"):
        state[name] = piece[name]
        _demand(type(piece[name]) is int, f"its {name} is no number")
    return state


def _demand(true: bool, otherwise: str) -> None:
    if not true:
        raise UndecodableError(f"the index file is refused: {otherwise}")
