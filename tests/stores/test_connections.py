"""What a synchronous store keeps open between two round trips, and what it does when that has gone bad."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from semcache.errors import StoreUnavailableError
from semcache.stores.connections import ASIDE, POOL_SIZE, Direct, connect
from semcache.stores.embedded import EmbeddedServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer.open(tmp_path / "data") as server:
        yield server


@pytest.fixture
def other(server: EmbeddedServer) -> Iterator[redis.Redis]:
    """Somebody else's client."""
    with redis.Redis(unix_socket_path=server.socket_path) as client:
        yield client


@pytest.fixture
def connections(server: EmbeddedServer) -> Iterator[Direct]:
    made = connect(server.url, 5.0)
    assert isinstance(made, Direct)
    yield made
    made.close()


def client_id(connections: Direct) -> int:
    """Return the server's number of the connection that is used now."""
    return int(connections.execute([("CLIENT", "ID")], 5.0)[0])


def sockets(connections: Direct) -> list[Any]:
    """Return the open sockets of a pool."""
    made = connections._pool._connections
    return [connection for connection in made if getattr(connection, "_sock", None) is not None]


def test_one_caller_after_another_has_the_same_connection(connections: Direct) -> None:
    assert len({client_id(connections) for _ in range(20)}) == 1


def test_a_connection_that_the_server_has_closed_is_made_anew(
    connections: Direct, other: redis.Redis
) -> None:
    before = client_id(connections)
    other.client_kill_filter(_id=str(before))

    assert client_id(connections) != before
    assert len(sockets(connections)) == 1


def test_a_reply_that_nobody_asked_for_is_given_to_nobody(connections: Direct) -> None:
    before = client_id(connections)
    (connection,) = connections._aside
    connection.send_command("ECHO", "somebody else's")
    assert connection.can_read(5.0)

    assert connections.execute([("ECHO", "mine")], 5.0) == [b"mine"]
    assert client_id(connections) != before


def test_nothing_is_open_after_the_close(server: EmbeddedServer, other: redis.Redis) -> None:
    connections = connect(server.url, 5.0)
    assert isinstance(connections, Direct)
    client_id(connections)
    connections.close()
    assert not sockets(connections)

    client_id(connections)  # of whoever comes late
    assert not sockets(connections)


def test_a_call_that_ends_after_the_close_leaves_nothing_open(
    server: EmbeddedServer, other: redis.Redis
) -> None:
    connections = connect(server.url, 5.0)
    assert isinstance(connections, Direct)
    ended: list[BaseException | list[Any]] = []

    def call() -> None:
        try:
            ended.append(connections.execute([("BLPOP", "nothing", 0.2)], 5.0))
        except StoreUnavailableError as error:
            ended.append(error)

    waiting = threading.Thread(target=call)
    waiting.start()
    while not any(one["cmd"] == "blpop" for one in other.client_list()):
        pass
    connections.close()
    waiting.join(10.0)

    assert len(ended) == 1
    assert not sockets(connections)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(connections: Direct) -> None:
    before = client_id(connections)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        found = [client_id(connections) for _ in range(3)]
        os.write(write, " ".join(map(str, found)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = {int(word) for word in os.read(read, 1000).split()}
    os.close(read)
    os.close(write)

    assert len(theirs) == 1
    assert before not in theirs
    assert client_id(connections) == before


def test_more_callers_than_connections_are_all_served(connections: Direct) -> None:
    callers, each = 2 * POOL_SIZE, 20
    wrong: list[object] = []

    def call(number: int) -> None:
        for turn in range(each):
            text = f"{number}-{turn}".encode()
            replies = connections.execute([("ECHO", text), ("PING",)], 30.0)
            if replies != [text, b"PONG"]:
                wrong.append(replies)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)

    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert len(connections._aside) <= ASIDE
    assert connections._busy == []


def test_a_clients_own_pool_gets_its_connections_back(server: EmbeddedServer) -> None:
    pool = redis.BlockingConnectionPool.from_url(server.url, max_connections=1, timeout=1.0)
    client = redis.Redis(connection_pool=pool)
    connections = Direct(client, owned=False)
    connections.execute([("PING",)], 5.0)

    assert client.ping()
    client.close()
    pool.disconnect()
