"""Graphs of a large scope: growing hides nothing, garbage is cleared, failures leave it searchable."""

from __future__ import annotations

import numpy as np
import pytest

from semcache.indexes.graph import LARGE, Graph, ef_for
from semcache.indexes.hnsw import GraphRows
from semcache.indexes.rows import NEVER, Scored, neighbours
from semcache.types import Embedding, Embeddings
from tests.indexes.support import names, random_units, real_embeddings


def never(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.full(count, NEVER)


def filled(embeddings: Embeddings, *, graph_from: int = 64, young: int = 128) -> GraphRows:
    rows = GraphRows(embeddings.shape[1], graph_from=graph_from, young=young, quiet=0.0)
    rows.put(names(len(embeddings)), embeddings, never(len(embeddings)))
    return rows


def build(rows: GraphRows) -> None:
    while rows.build():
        pass


def best(rows: GraphRows, query: Embedding, *, k: int = 1, now: float = 0.0) -> list[str]:
    return [n.key for n in neighbours(rows.search(query, k, now=now, least=-1.0), k)]


def test_growing_never_hides_a_row() -> None:
    embeddings = random_units(900)
    rows = filled(embeddings)
    rng = np.random.default_rng(1)
    steps = 0

    while True:
        for i in rng.integers(0, 900, 40):
            assert best(rows, embeddings[i]) == [f"k{i}"]
        if not rows.build():
            break
        steps += 1

    assert steps > 20
    assert len(rows) == 900
    assert [len(graph) for graph in rows._graphs] == [pytest.approx(900, abs=64)]


def test_rows_that_are_removed_or_replaced_while_graphs_grow_stay_so() -> None:
    embeddings, newer = random_units(600), random_units(600, seed=2)
    rows = filled(embeddings)
    rng = np.random.default_rng(3)
    order = rng.permutation(600)
    removed, replaced = order[:200], order[200:400]

    for gone, new in zip(removed.reshape(50, 4), replaced.reshape(50, 4), strict=True):
        rows.remove([f"k{i}" for i in gone])
        rows.put([f"k{i}" for i in new], newer[new], never(4))
        rows.build()
    build(rows)

    assert len(rows) == 400
    for i in order:
        row = newer[i] if i in replaced else embeddings[i]
        found = neighbours(rows.search(row, 1, now=0.0, least=0.99999), 1)
        assert [n.key for n in found] == ([] if i in removed else [f"k{i}"])


def test_recall_is_at_least_99_percent_of_the_flat_index_on_real_embeddings() -> None:
    embeddings = real_embeddings()
    stored, queries = embeddings[:2000], embeddings[2000:]
    rows = filled(stored, graph_from=256, young=512)
    build(rows)
    assert len(rows._graphs) == 1

    found = 0
    for query in queries:
        flat = float((stored.astype(np.float64) @ query.astype(np.float64)).max())
        result = neighbours(rows.search(query, 1, now=0.0, least=-1.0), 1)
        found += abs(result[0].similarity - flat) < 2e-6

    assert found / len(queries) >= 0.99


def test_every_real_row_finds_itself() -> None:
    stored = np.unique(real_embeddings(), axis=0)[:2000]
    rows = filled(stored, graph_from=256, young=512)
    build(rows)

    lost = [i for i, row in enumerate(stored) if best(rows, row) != [f"k{i}"]]

    assert len(lost) <= len(stored) // 100


def test_a_graph_with_much_garbage_is_replaced_by_one_without() -> None:
    embeddings = random_units(800)
    rows = filled(embeddings)
    build(rows)
    before = rows.memory_bytes()

    rows.remove([f"k{i}" for i in range(500)])
    build(rows)

    assert [graph.garbage for graph in rows._graphs] == [pytest.approx(0, abs=64)]
    assert rows.memory_bytes() < before * 0.6
    assert all(best(rows, embeddings[i]) == [f"k{i}"] for i in range(500, 800))


def test_a_scope_that_shrinks_goes_back_to_flat_rows() -> None:
    embeddings = random_units(400)
    rows = filled(embeddings)
    build(rows)
    assert rows._graphs

    rows.remove([f"k{i}" for i in range(380)])
    build(rows)

    assert rows._graphs == ()
    assert len(rows) == 20
    assert all(best(rows, embeddings[i]) == [f"k{i}"] for i in range(380, 400))


def test_when_the_best_rows_of_a_graph_are_ghosts_the_search_looks_further() -> None:
    embeddings = random_units(600)
    query = random_units(1, seed=9)[0]
    order = np.argsort(-(embeddings @ query))
    expires = never(600)
    expires[order[:300]] = 10.0
    rows = GraphRows(16, graph_from=64, young=128)
    rows.put(names(600), embeddings, expires)
    build(rows)

    assert best(rows, query, k=5, now=9.0) == [f"k{i}" for i in order[:5]]
    assert best(rows, query, k=5, now=10.0) == [f"k{i}" for i in order[300:305]]


def test_all_rows_of_a_graph_may_be_ghosts_or_gone() -> None:
    embeddings = random_units(300)
    rows = GraphRows(16, graph_from=64, young=128)
    rows.put(names(300), embeddings, np.full(300, 5.0))
    build(rows)

    assert best(rows, embeddings[0], k=3, now=6.0) == []
    assert rows.expire(6.0) + 300 >= 300
    assert len(rows) == 0


def test_expire_removes_ghosts_that_nobody_meets() -> None:
    rows = GraphRows(16, graph_from=64, young=128)
    rows.put(names(300), random_units(300), np.arange(300, dtype=np.float64))
    build(rows)

    assert rows.expire(99.0) == 100
    assert len(rows) == 200


def test_many_equal_rows_hide_neither_each_other_nor_the_rest() -> None:
    """A graph links equal rows to one another first, which may cut the others off."""
    others = random_units(800)
    same = np.tile(random_units(1, seed=5), (200, 1))
    rows = GraphRows(16, graph_from=64, young=256)
    rows.put(names(200, "same"), same, never(200))
    rows.put(names(800), others, never(800))
    build(rows)

    assert best(rows, same[0], k=4) == ["same0", "same1", "same10", "same100"]
    lost = [i for i, row in enumerate(others) if best(rows, row) != [f"k{i}"]]
    assert len(lost) <= 8


def test_a_scope_whose_graph_cant_be_built_stays_flat_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    embeddings = random_units(200)

    def no_room(dim: int, capacity: int) -> Graph:
        raise MemoryError(f"no room for {capacity} rows of {dim}")

    rows = GraphRows(16, graph_from=64, make=no_room)
    rows.put(names(200), embeddings, never(200))
    rows.build()

    assert "building the graph of a scope of 200 rows failed" in caplog.text
    assert not rows.build()
    assert all(best(rows, embeddings[i]) == [f"k{i}"] for i in range(200))


def test_a_row_added_again_unchanged_only_gets_its_new_expiry() -> None:
    embeddings = random_units(300)
    rows = GraphRows(16, graph_from=64, young=128)
    rows.put(names(300), embeddings, np.full(300, 5.0))
    build(rows)
    tail = len(rows._tail)

    rows.put(names(300), embeddings, np.full(300, 50.0))

    assert len(rows._tail) == tail
    assert [graph.garbage for graph in rows._graphs] == [0]
    assert best(rows, embeddings[0], now=40.0) == ["k0"]
    assert best(rows, embeddings[0], now=50.0) == []


@pytest.mark.parametrize("same", [True, False], ids=["same embedding", "another embedding"])
def test_a_row_replaced_between_tail_and_graph_is_found_all_the_same(same: bool) -> None:
    embeddings = random_units(300)
    newer = embeddings[200] if same else random_units(1, seed=8)[0]

    class Interrupted(Graph):
        """A graph before whose search a row of it is replaced."""

        armed = False

        def search(self, query: Embedding, k: int, *, now: float, least: float) -> list[Scored]:
            if self.armed:
                self.armed = False
                rows.put(["k200"], newer[None, :], never(1))
            return super().search(query, k, now=now, least=least)

    rows = GraphRows(16, graph_from=64, young=512, make=Interrupted)
    rows.put(names(300), embeddings, never(300))
    build(rows)
    rows._graphs[0].armed = True  # type: ignore[attr-defined]

    assert best(rows, newer) == ["k200"]


def test_moves_to_the_large_graph_wait_while_searches_keep_coming_but_not_for_ever() -> None:
    embeddings = random_units(1400)
    rows = GraphRows(16, graph_from=64, young=128, quiet=1e9)
    for start in range(0, 1400, 100):
        rows.put(names(1400)[start : start + 100], embeddings[start : start + 100], never(100))
        rows.search(embeddings[0], 1, now=0.0, least=-1.0)
        build(rows)
        assert len(rows._graphs) <= 4  # more of them are worse than the moves

    assert len(rows._graphs) > 1
    assert all(best(rows, embeddings[i]) == [f"k{i}"] for i in range(0, 1400, 7))
    rows._searched_at = -1e10  # a long time ago
    build(rows)
    assert len(rows._graphs) == 1


def test_large_graphs_look_at_more_candidates() -> None:
    assert [ef_for(rows) for rows in (0, LARGE, LARGE + 1, 10**6)] == [64, 64, 96, 96]


def test_a_graph_is_never_searched_with_the_default_ef() -> None:
    """hnswlib's default is 10, which finds too little."""
    graph = Graph(16, 64)
    assert graph._native.ef == 64
    graph.reserve(1000)
    assert graph._native.ef == 64
    for label, row in zip(graph.insert(random_units(100)), random_units(100), strict=True):
        graph.adopt(label, f"k{label}", row, NEVER)
    assert Graph.from_state(16, graph.state())._native.ef == 64
