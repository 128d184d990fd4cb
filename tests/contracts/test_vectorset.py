"""What only the index over vector sets has: a server, expiry in attributes, scores that aren't cosines."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import redis

from semcache.errors import ConfigurationError, StoreUnavailableError
from semcache.indexes.vectorset import VectorSetIndex
from semcache.protocols import Neighbour
from tests.indexes.support import names, random_units

DIM = 16


@pytest.fixture
def client(vector_server: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(vector_server) as found:
        yield found


@pytest.fixture
def make(client: redis.Redis) -> Callable[..., VectorSetIndex]:
    prefix = f"semcache:{uuid.uuid4().hex}:"
    return lambda on=client, fingerprint="bundled-1": VectorSetIndex(
        on, DIM, prefix=prefix, fingerprint=fingerprint
    )


def test_similarities_are_cosines_not_the_servers_scores(make: Callable[..., VectorSetIndex]) -> None:
    embeddings = random_units(200, DIM)
    index = make()
    index.add("s", names(200), embeddings, [None] * 200)

    found = index.search("s", embeddings[0], 200, now=0.0)

    assert len(found) == 200
    assert found[-1].similarity < 0
    for neighbour in found:
        true = float(embeddings[int(neighbour.key[1:])].astype(np.float64) @ embeddings[0].astype(np.float64))
        assert neighbour.similarity == pytest.approx(true, abs=2e-6)


def test_another_client_sees_the_same_rows(make: Callable[..., VectorSetIndex], vector_server: str) -> None:
    row = random_units(1, DIM)
    make().add("s", ["a"], row, [None])
    with redis.Redis.from_url(vector_server) as other:
        assert make(other).search("s", row[0], 1, now=0.0) == [Neighbour("a", 1.0)]


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols_are_read(
    make: Callable[..., VectorSetIndex], vector_server: str, protocol: int
) -> None:
    row = random_units(1, DIM)
    with redis.Redis.from_url(vector_server, protocol=protocol) as client:
        index = make(client)
        index.add("s", ["a", "b"], random_units(2, DIM), [5.0, None])

        assert index.search("s", row[0], 2, now=0.0)[0] == Neighbour("a", 1.0)
        assert [n.key for n in index.search("s", row[0], 2, now=6.0)] == ["b"]


def test_embeddings_of_two_encoders_never_meet(make: Callable[..., VectorSetIndex]) -> None:
    row = random_units(1, DIM)
    make(fingerprint="a").add("s", ["a"], row, [None])

    assert make(fingerprint="b").search("s", row[0], 1, now=0.0) == []
    assert make(fingerprint="b").scopes() == []


def test_a_ghost_that_is_met_is_removed_unless_it_was_added_again(
    make: Callable[..., VectorSetIndex], client: redis.Redis
) -> None:
    row = random_units(1, DIM)
    index = make()
    index.add("s", ["a", "b"], np.tile(row, (2, 1)), [5.0, 5.0])
    index.add("s", ["b"], row, [50.0])
    index._expire("s", ["a", "b", "never there"], 6.0)

    assert index.count("s") == 1
    assert index.search("s", row[0], 3, now=6.0) == [Neighbour("b", 1.0)]


def test_a_key_that_holds_something_else_is_an_error_of_the_store(
    make: Callable[..., VectorSetIndex], client: redis.Redis
) -> None:
    index = make()
    client.set(index._key("s"), "text")

    with pytest.raises(StoreUnavailableError, match="WRONGTYPE"):
        index.search("s", random_units(1, DIM)[0], 1, now=0.0)


def test_a_server_without_vector_sets_is_named(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        if client.info("server").get("server_name") != "valkey":
            pytest.skip("the test server may have vector sets")
        index = VectorSetIndex(client, DIM, prefix="semcache:none:", fingerprint="x")

        with pytest.raises(ConfigurationError, match=r"Redis 8\.2"):
            index.add("s", ["a"], random_units(1, DIM), [None])
        with pytest.raises(ConfigurationError, match=r"Redis 8\.2"):
            index.search("s", random_units(1, DIM)[0], 1, now=0.0)


def test_a_server_that_is_away_is_unavailable() -> None:
    with redis.Redis(unix_socket_path="/nonexistent/socket") as client:
        index = VectorSetIndex(client, DIM, prefix="semcache:none:", fingerprint="x")
        for ask in (
            lambda: index.add("s", ["a"], random_units(1, DIM), [None]),
            lambda: index.search("s", random_units(1, DIM)[0], 1, now=0.0),
            lambda: index.remove("s", ["a"]),
            lambda: index.count("s"),
            index.scopes,
            index.clear,
            index.memory_bytes,
        ):
            with pytest.raises(StoreUnavailableError, match="doesn't answer"):
                ask()


def test_a_client_that_decodes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="decode_responses"):
        VectorSetIndex(redis.Redis(decode_responses=True), DIM, prefix="p:", fingerprint="x")


def test_odd_scopes_and_keys_come_back(make: Callable[..., VectorSetIndex]) -> None:
    index = make()
    odd = ["", "é{x}", "报销", "\ud800", "a\0b", "a*b?[c]", "x" * 300]
    for scope in odd:
        index.add(scope, odd, random_units(len(odd), DIM), [None] * len(odd))

    assert sorted(index.scopes()) == sorted(odd)
    assert index.search("\ud800", random_units(7, DIM)[3], 1, now=0.0) == [Neighbour("\ud800", 1.0)]
    index.clear()
    assert index.scopes() == []
