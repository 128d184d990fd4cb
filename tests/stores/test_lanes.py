"""Many callers of one event loop share round trips; each gets her own replies, within her own limit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from semcache.errors import StoreUnavailableError
from semcache.stores.connections import LANES, AsyncDirect, connect_async
from semcache.stores.connections import connect as connections_to
from semcache.stores.embedded import EmbeddedServer
from tests.faults.proxy import Proxy


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer.open(tmp_path / "data") as server:
        yield server


@pytest.fixture
def proxy(server: EmbeddedServer) -> Iterator[Proxy]:
    proxy = Proxy(server.socket_path)
    yield proxy
    proxy.close()


def connect(url: str) -> AsyncDirect:
    connections = connect_async(url, 1.0)
    assert isinstance(connections, AsyncDirect)
    return connections


async def processed(connections: AsyncDirect) -> int:
    """Return how many connections the server has accepted so far."""
    return int((await connections.client().info())["total_connections_received"])


async def test_each_caller_gets_her_own_replies(server: EmbeddedServer) -> None:
    connections = connect(server.url)
    await asyncio.gather(*(connections.execute([("SET", f"k{n}", f"v{n}")], 5.0) for n in range(300)))

    async def read(number: int) -> list[object]:
        commands = [("GET", f"k{number}"), ("INCR", f"k{number}"), ("GET", "absent")]
        return await connections.execute(commands, 5.0)

    for number, (value, wrong, absent) in enumerate(await asyncio.gather(*(read(n) for n in range(300)))):
        assert value == f"v{number}".encode()
        assert isinstance(wrong, Exception)
        assert absent is None
    await connections.close()


async def test_callers_share_round_trips_and_few_connections(server: EmbeddedServer) -> None:
    connections = connect(server.url)
    before = await processed(connections)
    sent: list[int] = []
    true = connections._send

    async def send(commands: object, timeout: float, packed: bytes | None) -> list[object]:
        sent.append(1)
        return await true(commands, timeout, packed)  # type: ignore[arg-type]

    connections._send = send  # type: ignore[method-assign]
    await asyncio.gather(*(connections.execute([("PING",)], 5.0) for _ in range(200)))
    assert len(sent) <= 2 * LANES
    assert await processed(connections) - before <= LANES
    await connections.close()


async def test_who_comes_in_one_turn_of_the_event_loop_shares_a_round_trip(server: EmbeddedServer) -> None:
    connections = connect(server.url)
    sent: list[int] = []
    true = connections._send

    async def send(commands: list[object], timeout: float, packed: bytes | None) -> list[object]:
        sent.append(len(commands))
        return await true(commands, timeout, packed)  # type: ignore[arg-type]

    connections._send = send  # type: ignore[method-assign,assignment]
    for _ in range(3):
        await connections.execute([("PING",)], 5.0)
    await asyncio.gather(*(connections.execute([("PING",)], 5.0) for _ in range(50)))
    await connections.close()

    assert sent == [1, 1, 1, 1, 49]


async def test_a_script_that_the_server_doesnt_know_is_sent_whole(server: EmbeddedServer) -> None:
    from semcache.stores.plans import call, new_epoch

    connections = connect(server.url)
    commands = [call("generations", ["gens"], new_epoch(), "all"), ("PING",)]
    found = await asyncio.gather(*(connections.execute(commands, 5.0) for _ in range(50)))
    assert len({reply[0][2] for reply in found}) == 1
    assert all(reply[1] == b"PONG" for reply in found)
    await connections.close()


async def test_a_caller_who_leaves_disturbs_nobody(server: EmbeddedServer) -> None:
    connections = connect(server.url)
    tasks = [asyncio.ensure_future(connections.execute([("ECHO", str(n))], 5.0)) for n in range(100)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    for number, reply in enumerate(found):
        if number % 3:
            assert reply == [str(number).encode()]
        else:
            assert isinstance(reply, asyncio.CancelledError)
    assert await connections.execute([("ECHO", "after")], 5.0) == [b"after"]
    await connections.close()


async def test_a_server_that_hangs_holds_nobody_longer_than_her_limit(proxy: Proxy) -> None:
    connections = connect_async(proxy.url, 100.0)
    await connections.execute([("PING",)], 5.0)
    proxy.set("hang")

    async def wait(limit: float) -> float:
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            await connections.execute([("PING",)], limit)
        return time.monotonic() - started

    patient = [asyncio.ensure_future(wait(100.0)) for _ in range(20)]
    limits = [0.2 + 0.01 * (n % 30) for n in range(60)]
    hasty = [asyncio.ensure_future(wait(limit)) for limit in limits]
    patient += [asyncio.ensure_future(wait(100.0)) for _ in range(20)]
    took = await asyncio.gather(*hasty)
    assert all(limit - 0.01 <= spent < 30.0 for spent, limit in zip(took, limits, strict=True))
    assert not any(one.done() for one in patient)
    proxy.set("pass")
    proxy.cut_all()
    await asyncio.gather(*patient)
    assert await connections.execute([("PING",)], 5.0) == [b"PONG"]
    await connections.close()


async def test_a_connection_that_is_cut_is_everybodys_error_and_nobodys_tomorrow(proxy: Proxy) -> None:
    connections = connect(proxy.url)
    proxy.set("hang")
    tasks = [asyncio.ensure_future(connections.execute([("PING",)], 3.0)) for _ in range(40)]
    await asyncio.sleep(0.1)
    proxy.cut_all()
    proxy.set("pass")
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(reply == [b"PONG"] or isinstance(reply, StoreUnavailableError) for reply in found)
    assert await connections.execute([("PING",)], 5.0) == [b"PONG"]
    await connections.close()


async def test_waiting_commands_hold_nobody_up(server: EmbeddedServer) -> None:
    connections = connect(server.url)
    waiting = [
        asyncio.ensure_future(
            connections.execute([("XREAD", "COUNT", 1, "BLOCK", 90_000, "STREAMS", "news", "0-0")], 100.0)
        )
        for _ in range(LANES + 2)
    ]
    while int((await connections.client().info())["blocked_clients"]) < len(waiting):
        await asyncio.sleep(0.01)
    await asyncio.gather(*(connections.execute([("PING",)], 30.0) for _ in range(50)))
    assert not any(one.done() for one in waiting)
    await connections.execute([("XADD", "news", "*", "a", "b")], 30.0)
    await asyncio.gather(*waiting)
    await connections.close()


def test_a_thread_that_was_busy_at_the_close_leaves_no_connection_open(server: EmbeddedServer) -> None:
    connections = connections_to(server.url, 1.0)
    watcher = redis.Redis(unix_socket_path=server.socket_path, protocol=2)
    before = len(watcher.client_list())

    def wait() -> None:
        for _ in range(3):
            try:
                connections.execute([("XREAD", "BLOCK", 300, "STREAMS", "nothing", "0-0")], 5.0)
            except StoreUnavailableError:
                continue

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    connections.close()
    for thread in threads:
        thread.join(30.0)
    assert connections.execute([("PING",)], 1.0) == [b"PONG"]  # a last word, on a connection of its own
    until = time.monotonic() + 30.0
    while len(watcher.client_list()) > before and time.monotonic() < until:
        time.sleep(0.02)
    assert len(watcher.client_list()) == before
    watcher.close()
