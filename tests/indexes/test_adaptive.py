"""AdaptiveIndex: where rows lie, memory, the background thread, forks."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from semcache.errors import ConfigurationError
from semcache.indexes.adaptive import AdaptiveIndex
from semcache.indexes.arena import ArenaIndex
from semcache.protocols import Neighbour
from tests.indexes.support import names, random_units


def test_settings_that_cant_be_meant_are_refused() -> None:
    for bad in ({"graph_from": 0}, {"own_from": -1}, {"max_bytes": 0}, {"max_bytes": 1.5}, {"reap_every": 0}):
        with pytest.raises(ConfigurationError, match=next(iter(bad))):
            AdaptiveIndex(16, **bad)  # type: ignore[arg-type]
    for dim in (0, -1, 1.0, "8", True):
        with pytest.raises(ConfigurationError, match="dim"):
            AdaptiveIndex(dim)  # type: ignore[arg-type]


def test_a_scope_moves_on_as_it_grows_and_back_as_it_shrinks() -> None:
    index = AdaptiveIndex(16, own_from=4, graph_from=64)
    embeddings = random_units(300)
    for i, row in enumerate(embeddings):
        index.add("s", [f"k{i}"], row[None, :], [None])
        if i % 25 == 0:
            assert index.search("s", row, 1, now=0.0) == [Neighbour(f"k{i}", 1.0)]
    assert index.settle(30)
    assert index._rows.owned()[0][1]._graphs  # type: ignore[attr-defined]

    index.remove("s", [f"k{i}" for i in range(298)])

    assert index._rows.owned() == []
    assert index.count("s") == 2
    assert index.search("s", embeddings[299], 1, now=0.0) == [Neighbour("k299", 1.0)]


def test_when_memory_is_full_the_scopes_idle_for_longest_are_dropped_and_named() -> None:
    dropped: list[str] = []
    index = AdaptiveIndex(64, max_bytes=200_000, on_drop=dropped.append)
    embeddings = random_units(2000, 64)
    for i, row in enumerate(embeddings):
        index.add(f"s{i}", ["k"], row[None, :], [None])
        index.search("s0", row, 1, now=0.0)  # s0 is always in use
        assert index.memory_bytes() <= 200_000

    live = index.scopes()
    assert set(live) | set(dropped) == {f"s{i}" for i in range(2000)}
    assert not set(live) & set(dropped)
    assert "s0" in live
    assert live[1:] == [f"s{i}" for i in range(2000 - len(live) + 1, 2000)]


def test_large_scopes_are_dropped_when_idle_as_well() -> None:
    dropped: list[str] = []
    index = AdaptiveIndex(16, max_bytes=700_000, on_drop=dropped.append, own_from=8, graph_from=256)
    for scope in ("old", "newer", "newest"):
        index.add(scope, names(1200), random_units(1200), [None] * 1200)
        index.settle(30)

    assert dropped[0] == "old"
    assert "newest" in index.scopes()
    assert index.memory_bytes() <= 700_000


def test_one_scope_may_exceed_the_bound_alone() -> None:
    index = AdaptiveIndex(16, max_bytes=1000)
    index.add("s", names(500), random_units(500), [None] * 500)

    assert index.count("s") == 500


def test_a_dropped_scope_can_be_filled_again() -> None:
    index = AdaptiveIndex(16, own_from=4, graph_from=32)
    for turn in range(3):
        embeddings = random_units(200, seed=turn)
        index.add("s", names(200), embeddings, [None] * 200)
        assert index.search("s", embeddings[7], 1, now=0.0) == [Neighbour("k7", 1.0)]
        index.drop_scope("s")
        assert index.count("s") == 0


def test_expired_rows_leave_without_traffic() -> None:
    now = [0.0]
    index = AdaptiveIndex(16, clock=lambda: now[0], reap_every=0.01)
    index.add("small", ["a"], random_units(1), [5.0])
    index.add("large", names(1000), random_units(1000), [5.0] * 1000)
    index.add("kept", ["a"], random_units(1), [None])
    now[0] = 6.0

    deadline = time.monotonic() + 30
    while index.scopes() != ["kept"] and time.monotonic() < deadline:
        time.sleep(0.005)

    assert index.scopes() == ["kept"]
    assert index.count("large") == 0
    index.close()


def test_one_scope_of_10_000_rows_takes_at_most_1_3_times_the_rows() -> None:
    index = AdaptiveIndex(512)
    embeddings = random_units(10_000, 512)
    index.add("s", [f"gpt-4o-mini/2024-07-18/{i:032x}" for i in range(10_000)], embeddings, [None] * 10_000)
    flat = index.memory_bytes()

    assert flat <= 1.3 * embeddings.nbytes


MEASURE = """
import sys
import numpy as np
from semcache.indexes.{module} import {name}
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * {page}
rows = np.random.default_rng(0).standard_normal((1, 512))
row = (rows / np.linalg.norm(rows)).astype(np.float32)
index = {name}(512)
index.add("warm", ["k"], row, [None])
index.search("warm", row[0], 1, now=0.0)
before = resident()
for i in range({scopes}):
    index.add(f"{{i:032x}}", [f"gpt-4o-mini/2024-07-18/{{i:032x}}"], row, [None])
print((resident() - before) / ({scopes} * 2048), index.memory_bytes() / ({scopes} * 2048))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
@pytest.mark.parametrize(("module", "name"), [("arena", "ArenaIndex"), ("adaptive", "AdaptiveIndex")])
def test_100_000_scopes_of_one_row_take_at_most_1_6_times_the_rows(module: str, name: str) -> None:
    code = MEASURE.format(module=module, name=name, scopes=100_000, page=os.sysconf("SC_PAGE_SIZE"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    resident, said = map(float, done.stdout.split())

    assert resident <= 1.6
    assert said == pytest.approx(resident, rel=0.15)  # what memory_bytes says is what the process takes


def test_an_index_nobody_holds_ends_its_thread() -> None:
    index = AdaptiveIndex(16, own_from=2, graph_from=8)
    index.add("s", names(100), random_units(100), [None] * 100)
    index.settle(30)
    thread = index._builder._thread
    gone = weakref.ref(index)
    del index
    gc.collect()

    assert gone() is None
    assert thread is not None
    thread.join(30)
    assert not thread.is_alive()


def test_closing_twice_is_no_error_and_rows_stay_searchable() -> None:
    index = AdaptiveIndex(16)
    row = random_units(1)
    index.add("s", ["a"], row, [9.0])
    index.close()
    index.close()
    index.add("s", ["b"], random_units(1, seed=1), [None])

    assert index.search("s", row[0], 1, now=0.0) == [Neighbour("a", 1.0)]


EXIT = """
import numpy as np
from semcache.indexes.adaptive import AdaptiveIndex
rows = np.random.default_rng(0).standard_normal((6000, 64)).astype(np.float32)
rows /= np.linalg.norm(rows, axis=1, keepdims=True)
index = AdaptiveIndex(64)
index.add("s", [str(i) for i in range(6000)], rows, [None] * 6000)
print(index.settle(0.0))
"""


def test_a_process_that_ends_while_a_graph_is_built_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "False", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_searches_adds_and_builds_on_its_own() -> None:
    index = AdaptiveIndex(16, own_from=4, graph_from=64)
    embeddings = random_units(2000)
    index.add("s", names(1000), embeddings[:1000], [None] * 1000)
    stop = threading.Event()

    def busy() -> None:
        rng = np.random.default_rng(1)
        while not stop.is_set():
            i = int(rng.integers(1000, 2000))
            index.add("s", [f"k{i}"], embeddings[i : i + 1], [None])
            index.search("s", embeddings[i], 3, now=0.0)
            index.remove("s", [f"k{i}"])

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                os._exit(_child(index, embeddings))
            assert _exit_code(child) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert index.settle(30)
    assert index.search("s", embeddings[5], 1, now=0.0) == [Neighbour("k5", 1.0)]


def _child(index: AdaptiveIndex, embeddings: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> int:
    """Use the index in a forked child; 0 if all was well."""
    if index.search("s", embeddings[5], 1, now=0.0) != [Neighbour("k5", 1.0)]:
        return 1
    index.add("t", names(200), embeddings[:200], [None] * 200)
    if not index.settle(20):
        return 2
    if index.search("t", embeddings[7], 1, now=0.0) != [Neighbour("k7", 1.0)]:
        return 3
    graphs = dict(index._rows.owned())["t"]._graphs  # type: ignore[attr-defined]
    return 0 if graphs else 4


def _exit_code(child: int) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


def test_ten_scopes_of_100_cost_no_more_to_search_than_one_of_1000() -> None:
    embeddings = random_units(1000, 512)
    one, ten = ArenaIndex(512), ArenaIndex(512)
    one.add("s", names(1000), embeddings, [None] * 1000)
    for scope in range(10):
        ten.add(f"s{scope}", names(100), embeddings[scope * 100 :][:100], [None] * 100)

    def took(index: ArenaIndex, scope: str, turn: int) -> float:
        start = time.perf_counter()
        index.search(scope, embeddings[turn], 8, now=0.0)
        return time.perf_counter() - start

    # By turns, since the machine may be slower for a while.
    times = [(took(ten, f"s{turn % 10}", turn), took(one, "s", turn)) for turn in range(200)]
    of_ten, of_one = (sorted(column)[20] for column in zip(*times, strict=True))

    assert of_ten <= of_one
