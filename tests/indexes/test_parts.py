"""The parts that indexes are made of: key table, flat rows, gate."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache.indexes.flat import FlatRows
from semcache.indexes.gate import Gate
from semcache.indexes.rows import NEVER, KeyTable, neighbours
from semcache.protocols import Neighbour
from tests.indexes.support import names, random_units


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40))))
def test_a_key_table_finds_what_a_dict_finds(steps: list[tuple[bool, int]]) -> None:
    table, keys, model = KeyTable(), [], {}
    for adding, number in steps:
        key = f"k{number}"
        if adding and key not in model:
            keys.append(key)
            model[key] = len(keys) - 1
            table.insert(key, model[key], keys)
        elif not adding:
            assert table.remove(key, keys) == model.pop(key, -1)

    assert len(table) == len(model)
    assert [table.find(f"k{i}", keys) for i in range(41)] == [model.get(f"k{i}", -1) for i in range(41)]


def test_a_key_table_takes_a_fraction_of_a_dict() -> None:
    keys = names(100_000)
    table = KeyTable()
    for slot, key in enumerate(keys):
        table.insert(key, slot, keys)

    assert table.memory_bytes() / 100_000 < 16
    assert all(table.find(key, keys) == slot for slot, key in enumerate(keys))


def test_flat_rows_give_room_at_the_end_back() -> None:
    rows = FlatRows(16)
    rows.put(names(5000), random_units(5000), np.full(5000, NEVER))
    full = rows.memory_bytes()

    rows.remove([f"k{i}" for i in range(300, 5000)])

    assert rows.memory_bytes() < full * 0.25
    assert len(rows) == 300


def test_flat_rows_use_free_slots_again() -> None:
    rows = FlatRows(16)
    rows.put(names(1000), random_units(1000), np.full(1000, NEVER))
    full = rows.memory_bytes()
    for turn in range(5):
        rows.remove([f"k{i}" for i in range(0, 1000, 2)])
        fresh = random_units(500, seed=turn)
        rows.put([f"k{i}" for i in range(0, 1000, 2)], fresh, np.full(500, NEVER))

    assert rows.memory_bytes() < full * 1.1
    for i, row in enumerate(fresh):
        assert neighbours(rows.search(row, 1, now=0.0, least=-1.0), 1) == [Neighbour(f"k{2 * i}", 1.0)]


def test_rows_that_were_retired_refuse_more() -> None:
    rows = FlatRows(16)
    rows.put(["a"], random_units(1), np.full(1, NEVER))

    assert rows.retire()[0] == ["a"]
    assert not rows.put(["b"], random_units(1), np.full(1, NEVER))


def test_a_gate_lets_searches_in_together_and_changes_alone() -> None:
    gate = Gate()
    inside = {"search": 0, "change": 0}
    together: list[bool] = []
    wrong: list[str] = []
    both_in = threading.Barrier(2, timeout=30)
    rounds = 200

    def searching() -> None:
        inside["search"] += 1
        if inside["change"]:
            wrong.append("a search during a change")
        inside["search"] -= 1

    def changing() -> None:
        inside["change"] += 1
        if inside["change"] > 1:
            wrong.append("two changes")
        inside["change"] -= 1

    def many_searches() -> None:
        gate.search(lambda: together.append(both_in.wait() >= 0))  # only passes with another one inside
        for _ in range(rounds):
            gate.search(searching)

    def many_changes() -> None:
        for _ in range(rounds):
            gate.change(changing)

    threads = [threading.Thread(target=many_searches) for _ in range(2)]
    for thread in threads:
        thread.start()
    many_changes()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert together == [True, True]


def test_a_gate_opens_again_after_an_error() -> None:
    gate = Gate()

    def fails() -> None:
        raise ValueError("inside")

    for run in (gate.search, gate.change):
        with pytest.raises(ValueError, match="inside"):
            run(fails)
    assert gate.search(lambda: 1) == 1
    assert gate.change(lambda: 2) == 2
