"""Starting from an index file: many rows are used where the file lies until they have been copied."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semcache.errors import ConfigurationError, UndecodableError
from semcache.indexes import hnsw
from semcache.indexes.adaptive import AdaptiveIndex
from semcache.indexes.arena import ArenaIndex
from semcache.indexes.flat import FlatRows
from semcache.indexes.graph import Graph
from semcache.indexes.hnsw import GraphRows
from semcache.indexes.rows import NEVER, KeyTable, neighbours
from semcache.indexes.sleeping import SleepingGraph
from semcache.indexes.snapshot import SnapshotReader, writing
from semcache.protocols import Neighbour
from tests.indexes.support import names, random_units

DIM = 16
MANY = 10_000
EMBEDDINGS = random_units(MANY + 500, DIM)
FLAT = MANY + 1  # rows from which no graph is built


def index_of(graph_from: int) -> AdaptiveIndex:
    return AdaptiveIndex(DIM, own_from=8, graph_from=graph_from)


def rows_of(index: AdaptiveIndex, scope: str = "s") -> GraphRows:
    own = dict(index._rows.owned())[scope]
    assert isinstance(own, GraphRows)
    return own


@pytest.fixture(scope="module")
def tail_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An index of one large scope without a graph."""
    index = index_of(FLAT)
    index.add("s", names(MANY), EMBEDDINGS[:MANY], [100.0 if i == 7 else None for i in range(MANY)])
    path = tmp_path_factory.mktemp("tail") / "index"
    index.snapshot(path, {})
    return path.read_bytes()


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An index of one large scope in a graph, some of its rows removed."""
    index = index_of(64)
    index.add("s", names(MANY), EMBEDDINGS[:MANY], [100.0 if i == 7 else None for i in range(MANY)])
    assert index.settle(120)
    index.remove("s", ["k3"])
    path = tmp_path_factory.mktemp("graph") / "index"
    index.snapshot(path, {})
    return path.read_bytes()


@pytest.fixture
def long_lull(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is built for as long as a test takes."""
    monkeypatch.setattr(hnsw, "_LULL", 3600.0)


def start(tmp_path: Path, content: bytes, graph_from: int) -> AdaptiveIndex:
    (tmp_path / "index").write_bytes(content)
    index = index_of(graph_from)
    assert index.restore(tmp_path / "index") == {}
    return index


def nearest(index: AdaptiveIndex, row: int, now: float = 0.0) -> list[Neighbour]:
    return index.search("s", EMBEDDINGS[row], 1, now=now, least=0.999)


@given(st.lists(st.booleans(), max_size=700), st.integers(0, 3))
def test_a_table_of_all_keys_at_once_finds_what_one_by_one_finds(there: list[bool], extra: int) -> None:
    keys = [f"k{i}" if present else None for i, present in enumerate(there)]
    table = KeyTable.of(keys)
    for i in range(extra):
        keys.append(f"new{i}")
        table.insert(f"new{i}", len(keys) - 1, keys)

    assert len(table) == sum(there) + extra
    assert all(table.find(key, keys) == slot for slot, key in enumerate(keys) if key is not None)
    assert table.find("another", keys) == -1
    assert [table.remove(key, keys) for key in keys if key is not None] == [
        slot for slot, key in enumerate(keys) if key is not None
    ]
    assert len(table) == 0


Steps = list[tuple[str, int]]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 700),
    st.sets(st.integers(0, 699), max_size=40),
    st.lists(st.tuples(st.sampled_from(["put", "remove", "own"]), st.integers(0, 899)), max_size=30),
)
def test_rows_taken_at_once_are_those_put_one_by_one(count: int, gone: set[int], steps: Steps) -> None:
    rows, fresh = EMBEDDINGS[:count].copy(), random_units(900, DIM, seed=1)
    before = rows.copy()
    expires = np.array([-np.inf if i in gone else NEVER for i in range(count)])
    keys = [None if i in gone else f"k{i}" for i in range(count)]
    taken, put = FlatRows(DIM), FlatRows(DIM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("semcache.indexes.flat._MANY", 300)
        taken.fill(keys, rows, expires)
    live = [i for i in range(count) if i not in gone]
    put.put([f"k{i}" for i in live], before[live], np.full(len(live), NEVER))
    for what, number in steps:
        if what == "own":
            taken.own(1)
            continue
        for flat in (taken, put):
            if what == "remove":
                flat.remove([f"k{number}"])
            else:
                flat.put([f"k{number}"], fresh[number : number + 1], np.full(1, NEVER))
    taken.own(10)

    assert not taken.borrowed
    assert len(taken) == len(put)
    found, expected = (dict(zip(r[0], r[1].tolist(), strict=True)) for r in (taken.rows(), put.rows()))
    assert found == expected
    for query in fresh[:3]:
        results = [flat.search(query, 5, now=0.0, least=-1.0) for flat in (taken, put)]
        assert neighbours(results[0], 5) == neighbours(results[1], 5)


def test_many_rows_are_searched_where_they_lie_and_copied_later(tmp_path: Path, tail_file: bytes) -> None:
    index = start(tmp_path, tail_file, FLAT)
    tail = rows_of(index)._tail
    lay = tail.borrowed
    first = nearest(index, 5000)
    assert index.settle(60)
    own = not tail.borrowed
    os.truncate(tmp_path / "index", 0)  # nobody reads it any more

    assert lay
    assert own
    assert first == nearest(index, 5000) == [Neighbour("k5000", 1.0)]
    assert nearest(index, 7, now=200.0) == []
    assert index.count("s") == MANY - 1


def test_rows_that_lie_in_a_file_can_be_replaced_and_the_file_stays(
    tmp_path: Path, tail_file: bytes, long_lull: None
) -> None:
    index = start(tmp_path, tail_file, FLAT)
    index.add("s", ["k5000"], EMBEDDINGS[MANY : MANY + 1], [None])
    index.add("s", ["new"], EMBEDDINGS[MANY + 1 : MANY + 2], [None])
    index.remove("s", ["k1"])

    assert rows_of(index)._tail.borrowed
    assert nearest(index, 5000) == []
    assert nearest(index, 1) == []
    assert nearest(index, MANY) == [Neighbour("k5000", 1.0)]
    assert nearest(index, MANY + 1) == [Neighbour("new", 1.0)]
    assert (tmp_path / "index").read_bytes() == tail_file


@pytest.mark.parametrize("name", ["tail_file", "graph_file"])
def test_one_flipped_bit_among_many_rows_is_seen_wherever_it_is(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    content = request.getfixturevalue(name)
    for at in np.random.default_rng(0).integers(0, len(content), 40).tolist():
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(at % 8)
        (tmp_path / "index").write_bytes(damaged)
        caplog.clear()

        assert index_of(64).restore(tmp_path / "index") is None, at
        assert "is not used" in caplog.text


def test_a_large_graph_is_searched_exactly_until_it_has_woken(
    tmp_path: Path, graph_file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hnsw, "_LULL", 1.0)
    index = start(tmp_path, graph_file, 64)
    rows = rows_of(index)
    queries = random_units(50, DIM, seed=5)
    exact = FlatRows(DIM)
    exact.put(names(MANY), EMBEDDINGS[:MANY], np.full(MANY, NEVER))
    exact.remove(["k3"])
    assert rows._sleeping
    asleep = [index.search("s", query, 3, now=0.0) for query in queries]
    assert rows._sleeping
    assert index.settle(60)

    assert asleep == [neighbours(exact.search(query, 3, now=0.0, least=-1.0), 3) for query in queries]
    assert not rows._sleeping
    assert rows._graphs
    assert [nearest(index, row) for row in range(20, 70)] == [
        [Neighbour(f"k{row}", 1.0)] for row in range(20, 70)
    ]


Act = Callable[[AdaptiveIndex], Any]
ACTS: dict[str, tuple[Act, int, list[Neighbour]]] = {
    "removed": (lambda index: index.remove("s", ["k5"]), 5, []),
    "replaced": (lambda index: index.add("s", ["k5"], EMBEDDINGS[MANY : MANY + 1], [None]), 5, []),
    "moved": (
        lambda index: index.add("s", ["k5"], EMBEDDINGS[MANY : MANY + 1], [None]),
        MANY,
        [Neighbour("k5", 1.0)],
    ),
    "added": (
        lambda index: index.add("s", ["new"], EMBEDDINGS[MANY : MANY + 1], [None]),
        MANY,
        [Neighbour("new", 1.0)],
    ),
    "expired": (lambda index: index.expire(150.0), 7, []),
    "met as a ghost": (lambda index: index.search("s", EMBEDDINGS[7], 3, now=150.0), 7, []),
    "untouched": (lambda index: None, 8, [Neighbour("k8", 1.0)]),
}


@pytest.mark.parametrize(("act", "row", "expected"), ACTS.values(), ids=ACTS.keys())
def test_what_changes_while_a_graph_sleeps_stays_changed(
    tmp_path: Path, graph_file: bytes, monkeypatch: pytest.MonkeyPatch, act: Act, row: int, expected: Any
) -> None:
    monkeypatch.setattr(hnsw, "_LULL", 3600.0)
    index = start(tmp_path, graph_file, 64)
    rows = rows_of(index)
    act(index)
    asleep = nearest(index, row, now=150.0)
    count = index.count("s")
    rows._lull_until = 0.0
    rows._wake(rows)
    assert index.settle(60)

    assert not rows._sleeping
    assert asleep == nearest(index, row, now=150.0) == expected
    assert index.count("s") == count


def test_a_snapshot_of_an_index_whose_graph_sleeps_is_whole(
    tmp_path: Path, graph_file: bytes, long_lull: None
) -> None:
    index = start(tmp_path, graph_file, 64)
    index.remove("s", ["k9"])
    index.snapshot(tmp_path / "again", {})
    again = index_of(64)

    assert again.restore(tmp_path / "again") == {}
    assert again.count("s") == index.count("s") == MANY - 2
    assert nearest(again, 9) == []
    assert nearest(again, 10) == [Neighbour("k10", 1.0)]


def test_a_graph_is_woken_though_searches_keep_coming(
    tmp_path: Path, graph_file: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hnsw, "_LULL", 0.0)
    monkeypatch.setattr(hnsw, "_PATIENCE", 0.3)
    index = start(tmp_path, graph_file, 64)
    rows = rows_of(index)
    searches = 0
    while rows._sleeping:
        nearest(index, 8)
        searches += 1

    assert searches > 10  # it waited for a better moment first
    assert nearest(index, 8) == [Neighbour("k8", 1.0)]


def test_a_sleeping_graph_whose_labels_are_mixed_up_lends_no_row_to_another_key() -> None:
    graph = Graph(DIM, 64)
    for label in graph.insert(EMBEDDINGS[:50]):
        graph.adopt(label, f"k{label}", EMBEDDINGS[label], np.inf)
    state = graph.state()
    level0 = state["level0"].reshape(50, -1).copy()
    level0[:, -8:] = level0[::-1, -8:]  # labels, from the last to the first
    sleeping = SleepingGraph(DIM, {**state, "level0": level0})

    for row in range(50):
        found = neighbours(sleeping.search(EMBEDDINGS[row], 1, now=0.0, least=-1.0), 1)
        assert found == [Neighbour(f"k{49 - row}", 1.0)]


@given(st.lists(st.text(st.characters(codec=None), max_size=5), max_size=5))
def test_texts_of_any_kind_come_back(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with writing(Path(folder) / "file") as writer:
            writer.header({"texts": writer.texts(texts)})
        with open(Path(folder) / "file", "rb") as file, SnapshotReader(file) as reader:
            found = reader.texts(reader.header["texts"])

    assert found == texts


@pytest.mark.parametrize("texts", [b"[1]", b'{"a": 1}', b"\n\xff", b"null", b""], ids=repr)
def test_texts_that_are_none_are_refused(tmp_path: Path, texts: bytes) -> None:
    with writing(tmp_path / "file") as writer:
        writer.header({"texts": writer.part(texts)})
    with open(tmp_path / "file", "rb") as file:
        reader = SnapshotReader(file)
        with pytest.raises((UndecodableError, ValueError)):
            reader.texts(reader.header["texts"])


def refuse_negative(rows: Any) -> None:
    if (rows < 0).any():
        raise ConfigurationError("a number is negative")


def test_rows_come_back_where_the_file_is_mapped(tmp_path: Path) -> None:
    table = np.arange(3_000_000, dtype="<f4").reshape(-1, 3)
    with writing(tmp_path / "file") as writer:
        writer.json("an odd length")
        parts = writer.rows(table)
        none = writer.rows(table[:0])
        writer.header({"parts": parts, "none": none})
    with open(tmp_path / "file", "rb") as file, SnapshotReader(file) as reader:
        found = reader.rows(reader.header["parts"], "<f4", 3, refuse_negative)
        empty = reader.rows(reader.header["none"], "<f4", 3, refuse_negative)
        reader.settle()

    assert len(parts) > 4
    assert empty.shape == (0, 3)
    assert np.array_equal(found, table)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda parts: [parts[0], *parts[:0:-1]], "side by side"),
        (lambda parts: [parts[0], [parts[1][0] + 12, parts[1][1] - 12, 0]], "odd place"),
        (lambda parts: [parts[0], [*parts[1][:2], parts[1][2] ^ 1], *parts[2:]], "checksum"),
        (lambda parts: [*parts[:-1], [*parts[-1][:2], parts[-1][2] ^ 1]], "checksum"),
        (lambda parts: [[*parts[0][:2], 1], *parts[1:]], "checksum"),
        (lambda parts: [parts[0], [parts[1][0], 10**15, 0]], "outside"),
    ],
    ids=["not in order", "elsewhere", "first sum", "last sum", "sum of the gap", "outside"],
)
def test_rows_that_arent_what_the_header_says_are_refused(
    tmp_path: Path, change: Callable[[list[Any]], list[Any]], error: str
) -> None:
    table = np.ones((1_000_000, 3), dtype="<f4")
    with writing(tmp_path / "file") as writer:
        writer.header({"parts": change(writer.rows(table))})
    with open(tmp_path / "file", "rb") as file, SnapshotReader(file) as reader:

        def read() -> None:
            reader.rows(reader.header["parts"], "<f4", 3, refuse_negative)
            reader.settle()

        with pytest.raises(UndecodableError, match=error):
            read()


def test_what_a_check_finds_is_raised_wherever_it_ran(tmp_path: Path) -> None:
    table = np.ones((1_000_000, 3), dtype="<f4")
    table[700_000, 1] = -1.0
    with writing(tmp_path / "file") as writer:
        writer.header({"parts": writer.rows(table)})
    with open(tmp_path / "file", "rb") as file, SnapshotReader(file) as reader:
        reader.rows(reader.header["parts"], "<f4", 3, refuse_negative)
        with pytest.raises(ConfigurationError, match="negative"):
            reader.settle()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_rows_whose_check_failed_in_an_unforeseen_way_arent_believed(tmp_path: Path) -> None:
    def unforeseen(rows: Any) -> None:
        raise RecursionError("of all things")

    with writing(tmp_path / "file") as writer:
        writer.header({"parts": writer.rows(np.ones((10, 3), dtype="<f4"))})
    with open(tmp_path / "file", "rb") as file, SnapshotReader(file) as reader:
        reader.rows(reader.header["parts"], "<f4", 3, unforeseen)
        with pytest.raises((UndecodableError, RecursionError)):
            reader.settle()


@pytest.mark.parametrize("what", ["keys", "rows", "nan"])
def test_a_tail_that_a_forger_changed_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    keys, rows, expires = names(100), EMBEDDINGS[:100].copy(), np.full(100, NEVER)
    if what == "keys":
        keys[3] = keys[4]
    elif what == "rows":
        rows[5] = 0.0
    else:
        expires[6] = np.nan
    with writing(tmp_path / "index") as writer:
        tail = {"keys": writer.texts(keys), "rows": writer.rows(rows), "expires": writer.part(expires)}
        large = [{"scope": "s", "tail": tail, "graphs": []}]
        writer.header({"dim": DIM, "graph": [16, 200], "meta": {}, "small": [], "large": large})

    assert index_of(64).restore(tmp_path / "index") is None
    assert "is not used" in caplog.text


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=1200), st.integers(0, 3))
def test_small_scopes_taken_at_once_are_those_added_one_by_one(
    rows: list[tuple[int, int]], parts: int
) -> None:
    taken, added = ArenaIndex(DIM, own_from=4), ArenaIndex(DIM, own_from=4)
    named = [(f"s{scope}" if scope < 9 else f"alone{at}", f"k{key}") for at, (scope, key) in enumerate(rows)]
    for start in range(0, len(named), max(1, len(named) // (parts + 1))):
        part = named[start : start + max(1, len(named) // (parts + 1))]
        embeddings, expires = EMBEDDINGS[start : start + len(part)], np.full(len(part), NEVER)
        taken.fill([scope for scope, _ in part], ([key for _, key in part], embeddings, expires))
        for at, (scope, key) in enumerate(part):
            added.add(scope, [key], embeddings[at : at + 1], [None])

    assert sorted(taken.scopes()) == sorted(added.scopes())
    for scope in added.scopes():
        assert taken.count(scope) == added.count(scope)
        results = [index.search(scope, EMBEDDINGS[0], 9, now=0.0) for index in (taken, added)]
        assert results[0] == results[1]
    for scope in added.scopes()[::3]:
        assert taken.remove(scope, ["k0", "k1"]) == added.remove(scope, ["k0", "k1"])
    assert sum(taken.count(scope) for scope in taken.scopes()) == sum(
        added.count(scope) for scope in added.scopes()
    )
    assert taken.memory_bytes() == pytest.approx(added.memory_bytes(), rel=0.3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this platform")
def test_a_forked_child_searches_what_sleeps_and_wakes_it(tmp_path: Path, graph_file: bytes) -> None:
    index = start(tmp_path, graph_file, 64)
    child = os.fork()
    if child == 0:
        good = (
            nearest(index, 8) == [Neighbour("k8", 1.0)]
            and index.settle(60)
            and not rows_of(index)._sleeping
            and nearest(index, 8) == [Neighbour("k8", 1.0)]
        )
        os._exit(0 if good else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert index.settle(60)
    assert nearest(index, 8) == [Neighbour("k8", 1.0)]
