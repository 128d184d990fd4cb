"""Every index keeps the promises of `protocols.VectorIndex`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from semcache.errors import ConfigurationError
from semcache.indexes.adaptive import AdaptiveIndex
from semcache.indexes.arena import ArenaIndex
from semcache.indexes.vectorset import VectorSetIndex
from semcache.protocols import Neighbour, VectorIndex
from semcache.types import Embedding, Embeddings

DIM = 8


class DictIndex:
    """The contract in its plainest form: a dict per scope and a loop."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.rows: dict[str, dict[str, tuple[Embedding, float]]] = {}

    def add(
        self, scope: str, keys: Sequence[str], embeddings: Embeddings, expires_at: Sequence[float | None]
    ) -> None:
        if not isinstance(embeddings, np.ndarray) or embeddings.dtype != np.float32:
            raise ConfigurationError("dtype")
        if embeddings.shape != (len(keys), self.dim) or len(expires_at) != len(keys):
            raise ConfigurationError("shape")
        norms = (embeddings.astype(np.float64) ** 2).sum(axis=1)
        if not (abs(norms - 1) < 1e-3).all():
            raise ConfigurationError("norm")
        if any(expiry is not None and expiry != expiry for expiry in expires_at):
            raise ConfigurationError("expiry")
        held = self.rows.setdefault(scope, {})
        for key, row, expiry in zip(keys, embeddings, expires_at, strict=True):
            held[key] = (row.copy(), np.inf if expiry is None else float(expiry))

    def remove(self, scope: str, keys: Sequence[str]) -> int:
        held = self.rows.get(scope, {})
        return sum(held.pop(key, None) is not None for key in keys)

    def search(
        self, scope: str, embedding: Embedding, k: int, *, now: float, least: float = -1.0
    ) -> list[Neighbour]:
        if not isinstance(embedding, np.ndarray) or embedding.dtype != np.float32:
            raise ConfigurationError("dtype")
        query = embedding.astype(np.float64)
        if embedding.shape != (self.dim,) or not abs(float(query @ query) - 1) < 1e-3 or k < 0:
            raise ConfigurationError("query")
        held = self.rows.get(scope, {})
        for key in [key for key, (_, expiry) in held.items() if expiry <= now]:
            del held[key]
        found = [
            Neighbour(key, min(1.0, max(-1.0, round(float(row.astype(np.float64) @ query), 6))))
            for key, (row, _) in held.items()
        ]
        found = [neighbour for neighbour in found if neighbour.similarity >= least]
        return sorted(found, key=lambda neighbour: (-neighbour.similarity, neighbour.key))[:k]

    def count(self, scope: str) -> int:
        return len(self.rows.get(scope, {}))

    def drop_scope(self, scope: str) -> None:
        self.rows.pop(scope, None)

    def clear(self) -> None:
        self.rows.clear()

    def scopes(self) -> list[str]:
        return [scope for scope, held in self.rows.items() if held]

    def memory_bytes(self) -> int:
        return sum(len(held) for held in self.rows.values()) * self.dim * 4


BACK_ENDS: dict[str, Callable[[int], VectorIndex]] = {
    "dict": DictIndex,
    "arena": ArenaIndex,
    "arena-own-storage-early": lambda dim: ArenaIndex(dim, own_from=3),
    "adaptive": AdaptiveIndex,
    "hnsw": lambda dim: AdaptiveIndex(dim, graph_from=8, own_from=2),
}


@pytest.fixture(params=[*sorted(BACK_ENDS), "vectorset"])
def make(request: pytest.FixtureRequest) -> Callable[[int], VectorIndex]:
    if request.param != "vectorset":
        return BACK_ENDS[request.param]
    url = request.getfixturevalue("vector_server")
    return lambda dim: VectorSetIndex(
        redis.Redis.from_url(url), dim, prefix=f"semcache:{uuid.uuid4().hex}:", fingerprint="test-1"
    )


@pytest.fixture
def index(make: Callable[[int], VectorIndex]) -> VectorIndex:
    return make(DIM)


def unit(*values: float) -> Embedding:
    row = np.zeros(DIM, dtype=np.float64)
    row[: len(values)] = values
    return (row / np.linalg.norm(row)).astype(np.float32)


def rows(*embeddings: Embedding) -> Embeddings:
    return np.stack(embeddings)


def random_units(count: int, dim: int = DIM, seed: int = 0) -> Embeddings:
    found = np.random.default_rng(seed).standard_normal((count, dim))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


A, B, C = unit(1), unit(0, 1), unit(0, 0, 1)


def test_a_row_is_found_as_soon_as_add_returns(index: VectorIndex) -> None:
    index.add("s", ["a"], rows(A), [None])

    assert index.search("s", A, 5, now=0.0) == [Neighbour("a", 1.0)]


def test_an_unknown_scope_has_no_neighbours(index: VectorIndex) -> None:
    assert index.search("nowhere", A, 5, now=0.0) == []
    assert index.count("nowhere") == 0
    assert index.remove("nowhere", ["a"]) == 0


@pytest.mark.parametrize("live", [0, 1, 2])
def test_fewer_rows_than_k_are_all_that_comes_back(index: VectorIndex, live: int) -> None:
    index.add("s", ["a", "b", "c"], rows(A, B, C), [None] * 3)
    index.remove("s", ["a", "b", "c"][live:])

    assert len(index.search("s", A, 5, now=0.0)) == live


def test_the_k_best_come_in_descending_order(index: VectorIndex) -> None:
    embeddings = random_units(500)
    keys = [f"k{i}" for i in range(500)]
    index.add("s", keys, embeddings, [None] * 500)

    found = index.search("s", embeddings[7], 10, now=0.0)

    expected = np.argsort(-(embeddings.astype(np.float64) @ embeddings[7].astype(np.float64)))[:10]
    assert [neighbour.key for neighbour in found] == [keys[i] for i in expected]
    assert found[0] == Neighbour("k7", 1.0)


def test_ties_are_broken_by_key(index: VectorIndex) -> None:
    keys = [f"k{i:03d}" for i in np.random.default_rng(1).permutation(300)]
    index.add("s", keys, np.tile(unit(1, 2, 3, 4, 5), (300, 1)), [None] * 300)

    found = index.search("s", unit(5, 4, 3, 2, 1), 4, now=0.0)

    assert [neighbour.key for neighbour in found] == ["k000", "k001", "k002", "k003"]


def test_another_scope_is_never_seen(index: VectorIndex) -> None:
    index.add("s", ["a"], rows(A), [None])
    index.add("t", ["b"], rows(A), [None])

    assert [n.key for n in index.search("s", A, 9, now=0.0)] == ["a"]
    assert [n.key for n in index.search("t", A, 9, now=0.0)] == ["b"]


def test_the_same_key_in_two_scopes_is_two_rows(index: VectorIndex) -> None:
    index.add("s", ["a"], rows(A), [None])
    index.add("t", ["a"], rows(B), [None])
    index.remove("s", ["a"])

    assert index.search("s", A, 1, now=0.0) == []
    assert index.search("t", B, 1, now=0.0) == [Neighbour("a", 1.0)]


def test_a_key_added_again_is_replaced(index: VectorIndex) -> None:
    index.add("s", ["a"], rows(A), [None])
    index.add("s", ["a"], rows(B), [None])

    assert index.count("s") == 1
    assert index.search("s", B, 5, now=0.0) == [Neighbour("a", 1.0)]
    assert index.search("s", A, 5, now=0.0, least=0.5) == []


def test_a_key_twice_in_one_call_keeps_the_last_row(index: VectorIndex) -> None:
    index.add("s", ["a", "a"], rows(A, B), [None, None])

    assert index.count("s") == 1
    assert index.search("s", B, 5, now=0.0) == [Neighbour("a", 1.0)]


@pytest.mark.parametrize("count", [3, 40, 700])
def test_survivors_of_removals_and_replacements_keep_their_own_rows(index: VectorIndex, count: int) -> None:
    embeddings, newer = random_units(count, seed=2), random_units(count, seed=3)
    keys = [f"k{i}" for i in range(count)]
    index.add("s", keys, embeddings, [None] * count)
    index.remove("s", keys[::3])
    index.add("s", keys[1::3], newer[1::3], [None] * len(keys[1::3]))
    index.add("s", [f"new{i}" for i in range(len(keys[::3]))], newer[::3], [None] * len(keys[::3]))

    for i in range(count):
        row, key = {0: (newer[i], f"new{i // 3}"), 1: (newer[i], keys[i]), 2: (embeddings[i], keys[i])}[i % 3]
        assert index.search("s", row, 1, now=0.0) == [Neighbour(key, 1.0)]


def test_survivors_of_removals_in_other_scopes_keep_their_own_rows(index: VectorIndex) -> None:
    embeddings = random_units(300, seed=4)
    for i, row in enumerate(embeddings):
        index.add(f"s{i % 100}", [f"k{i}"], row[None, :], [None])
    for i in range(0, 300, 7):
        index.remove(f"s{i % 100}", [f"k{i}"])
    for i in range(0, 100, 9):
        index.drop_scope(f"s{i}")

    for i, row in enumerate(embeddings):
        gone = i % 7 == 0 or (i % 100) % 9 == 0
        best = index.search(f"s{i % 100}", row, 1, now=0.0, least=0.999999)
        assert best == ([] if gone else [Neighbour(f"k{i}", 1.0)])


def test_remove_says_how_many_it_removed(index: VectorIndex) -> None:
    index.add("s", ["a", "b"], rows(A, B), [None, None])

    assert index.remove("s", ["a", "z", "a"]) == 1
    assert index.remove("s", []) == 0
    assert index.count("s") == 1


def test_expired_rows_are_not_returned_and_others_take_their_place(index: VectorIndex) -> None:
    embeddings = random_units(400, seed=5)
    order = np.argsort(-(embeddings @ A))
    expiry = np.full(400, 1e9)
    expiry[order[:350]] = 10.0  # the best 350 are ghosts at 10
    index.add("s", [f"k{i}" for i in range(400)], embeddings, expiry.tolist())

    assert [n.key for n in index.search("s", A, 3, now=9.9)] == [f"k{i}" for i in order[:3]]
    assert [n.key for n in index.search("s", A, 3, now=10.0)] == [f"k{i}" for i in order[350:353]]


def test_a_scope_whose_rows_all_expired_is_empty(index: VectorIndex) -> None:
    index.add("s", ["a", "b"], rows(A, B), [5.0, 5.0])

    assert index.search("s", A, 3, now=6.0) == []


def test_least_leaves_out_what_is_below_it_and_keeps_what_is_on_it(index: VectorIndex) -> None:
    index.add("s", ["a", "b", "c"], rows(A, unit(3, 4), B), [None] * 3)

    found = index.search("s", A, 9, now=0.0, least=0.6)

    assert [n.key for n in found] == ["a", "b"]
    assert found[1].similarity == pytest.approx(0.6)


def test_similarity_is_a_cosine_inside_its_bounds(index: VectorIndex) -> None:
    index.add("s", ["a", "b"], rows(A, -A), [None, None])

    assert [(n.key, n.similarity) for n in index.search("s", A, 9, now=0.0)] == [("a", 1.0), ("b", -1.0)]


def test_a_row_is_a_copy_of_the_callers(index: VectorIndex) -> None:
    mine = rows(A)
    index.add("s", ["a"], mine, [None])
    mine[:] = B

    assert index.search("s", A, 1, now=0.0) == [Neighbour("a", 1.0)]


def test_scopes_and_counts_follow_what_is_there(index: VectorIndex) -> None:
    index.add("s", [f"k{i}" for i in range(50)], random_units(50), [None] * 50)
    index.add("t", ["a"], rows(A), [None])
    assert sorted(index.scopes()) == ["s", "t"]
    assert index.count("s") == 50
    assert index.memory_bytes() >= 51 * DIM * 4

    index.drop_scope("s")
    index.drop_scope("never there")
    assert index.scopes() == ["t"]
    index.remove("t", ["a"])
    assert index.scopes() == []
    index.add("t", ["a"], rows(A), [None])
    index.clear()
    assert index.scopes() == []
    assert index.count("t") == 0


BAD_ROWS = {
    "zeros": np.zeros((1, DIM), dtype=np.float32),
    "tiny": np.full((1, DIM), 1e-12, dtype=np.float32),
    "not unit": np.full((1, DIM), 2.0, dtype=np.float32),
    "nan": np.full((1, DIM), np.nan, dtype=np.float32),
    "one nan": np.array([[1, np.nan, 0, 0, 0, 0, 0, 0]], dtype=np.float32),
    "inf": np.array([[np.inf, 0, 0, 0, 0, 0, 0, 0]], dtype=np.float32),
    "huge": np.full((1, DIM), 3e38, dtype=np.float32),
    "float64": A[None, :].astype(np.float64),
    "float16": A[None, :].astype(np.float16),
    "int": np.eye(1, DIM, dtype=np.int32),
    "wrong dim": np.eye(1, DIM + 1, dtype=np.float32),
    "shorter": np.eye(1, DIM - 1, dtype=np.float32),
    "no rows": np.zeros((0, DIM), dtype=np.float32),
    "two rows": rows(A, B),
    "flat": A,
    "list": [[1.0] + [0.0] * (DIM - 1)],
}


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_a_row_that_is_no_embedding_is_refused_and_nothing_is_written(
    index: VectorIndex, bad: object
) -> None:
    with pytest.raises(ConfigurationError):
        index.add("s", ["a"], bad, [None])  # type: ignore[arg-type]

    assert index.count("s") == 0
    assert index.search("s", A, 1, now=0.0) == []


def test_one_bad_row_refuses_the_whole_call(index: VectorIndex) -> None:
    with pytest.raises(ConfigurationError):
        index.add("s", ["a", "b"], np.stack([A, np.zeros(DIM, dtype=np.float32)]), [None, None])

    assert index.count("s") == 0


BAD_QUERIES = {name: bad for name, bad in BAD_ROWS.items() if name not in ("flat", "two rows")}


@pytest.mark.parametrize("bad", BAD_QUERIES.values(), ids=BAD_QUERIES.keys())
def test_a_query_that_is_no_embedding_is_refused(index: VectorIndex, bad: object) -> None:
    index.add("s", ["a"], rows(A), [None])
    query = bad[0] if len(bad) else bad  # type: ignore[index, arg-type]

    with pytest.raises(ConfigurationError):
        index.search("s", query, 1, now=0.0)


def test_expiries_must_be_as_many_as_keys_and_numbers(index: VectorIndex) -> None:
    with pytest.raises(ConfigurationError):
        index.add("s", ["a", "b"], rows(A, B), [None])
    with pytest.raises(ConfigurationError):
        index.add("s", ["a"], rows(A), [float("nan")])


def test_k_of_zero_finds_nothing_and_a_negative_one_is_refused(index: VectorIndex) -> None:
    index.add("s", ["a"], rows(A), [None])

    assert index.search("s", A, 0, now=0.0) == []
    with pytest.raises(ConfigurationError):
        index.search("s", A, -1, now=0.0)


def test_threads_that_add_remove_and_search_meet_no_error_and_no_foreign_key(index: VectorIndex) -> None:
    """A key that came with another's similarity would show: every key's true row is known."""
    if isinstance(index, DictIndex):
        pytest.skip("the reference isn't made for threads")
    names = [f"{scope}-{i}" for scope in ("s", "t", "small") for i in range(900)]
    embedding = dict(zip(names, random_units(len(names), seed=6), strict=True))
    failures: list[object] = []
    done = threading.Event()

    def write(scope: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        span = 20 if scope == "small" else 900
        for _ in range(150):
            keys = [f"{scope}-{i}" for i in rng.choice(span, size=12, replace=False)]
            index.add(scope, keys, np.stack([embedding[key] for key in keys]), [None] * len(keys))
            index.remove(scope, keys[:6])

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not done.is_set():
            scope = ("s", "t", "small")[int(rng.integers(3))]
            query = embedding[f"{scope}-{rng.integers(20)}"]
            for found in index.search(scope, query, 8, now=0.0):
                true = float(embedding[found.key].astype(np.float64) @ query.astype(np.float64))
                if not found.key.startswith(scope + "-") or abs(true - found.similarity) > 2e-6:
                    failures.append((scope, found, true))

    def guarded(run: Callable[..., None], *args: object) -> None:
        try:
            run(*args)
        except (ConfigurationError, RuntimeError, LookupError, ValueError, TypeError) as error:
            failures.append(error)

    writers = [
        threading.Thread(target=guarded, args=(write, scope, seed))
        for seed, scope in enumerate(("s", "s", "t", "small"))
    ]
    readers = [threading.Thread(target=guarded, args=(read, 50 + seed)) for seed in range(3)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()

    assert failures == []
    for scope in ("s", "t", "small"):
        for i in range(900):
            best = index.search(scope, embedding[f"{scope}-{i}"], 1, now=0.0, least=0.999999)
            assert best in ([], [Neighbour(f"{scope}-{i}", 1.0)])


class IndexMachine(RuleBasedStateMachine):
    """Any sequence of changes gives the answers of the reference."""

    make: Callable[[int], VectorIndex]
    scopes = st.sampled_from(["s", "t"])
    keys = st.lists(st.integers(0, 30).map("k{}".format), min_size=1, max_size=12)

    @initialize()
    def start(self) -> None:
        self.model = DictIndex(DIM)
        self.index = type(self).make(DIM)
        self.now = 0.0

    @rule(scope=scopes, keys=keys, seed=st.integers(0, 10_000), ttl=st.none() | st.integers(1, 20))
    def add(self, scope: str, keys: list[str], seed: int, ttl: int | None) -> None:
        # few distinct rows, so that ties are common
        embeddings = random_units(40, seed=9)[np.random.default_rng(seed).integers(0, 40, len(keys))]
        expiry = [None if ttl is None else self.now + ttl] * len(keys)
        for index in (self.model, self.index):
            index.add(scope, keys, embeddings, expiry)

    @rule(scope=scopes, keys=keys)
    def remove(self, scope: str, keys: list[str]) -> None:
        self.index.remove(scope, keys)
        self.model.remove(scope, keys)

    @rule(scope=scopes)
    def drop(self, scope: str) -> None:
        self.index.drop_scope(scope)
        self.model.drop_scope(scope)

    @rule(seconds=st.integers(1, 15))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(
        scope=scopes, seed=st.integers(0, 39), k=st.integers(1, 40), least=st.sampled_from([-1.0, 0.0, 0.5])
    )
    def search(self, scope: str, seed: int, k: int, least: float) -> None:
        query = random_units(40, seed=9)[seed]
        found = self.index.search(scope, query, k, now=self.now, least=least)
        assert found == self.model.search(scope, query, k, now=self.now, least=least)
        assert self.index.count(scope) == self.model.count(scope)

    @invariant()
    def live_scopes_are_listed(self) -> None:
        if hasattr(self, "model"):
            assert set(self.index.scopes()) >= {
                scope
                for scope, held in self.model.rows.items()
                if any(expiry > self.now for _, expiry in held.values())
            }


def _case(name: str) -> type:
    machine = type(f"Machine_{name}", (IndexMachine,), {"make": staticmethod(BACK_ENDS[name])})
    case: type = machine.TestCase
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=60,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return case


TestArenaAgainstTheReference = _case("arena")
TestArenaOwnStorageAgainstTheReference = _case("arena-own-storage-early")
TestAdaptiveAgainstTheReference = _case("adaptive")
