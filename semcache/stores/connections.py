"""Sending commands to Redis and reading the replies, within a time limit. Knows nothing of entries.

Single servers (and Sentinel's current master) are spoken to over a connection from redis-py's pool, one
write and the replies in order; a cluster through redis-py's own pipeline. An error reply is returned as
an exception in its place; a connection that failed is closed, never given back with replies on the wire.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    MaxConnectionsError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from semcache.errors import ConfigurationError, SemcacheError, StoreUnavailableError
from semcache.stores.plans import Command, pack, script_by_sha
from semcache.stores.sockets import limit, release

log = logging.getLogger(__name__)

POOL_SIZE = 64
ASIDE = 8  # connections that are kept beside the pool for whoever comes next
ASYNC_POOL_SIZE = 16  # one event loop keeps no more than these busy
LANES = 2  # callers of one event loop that have a round trip of their own; others share the next
_BATCH = 500
_SLOW = frozenset({"XREAD", "XREADGROUP", "WAIT", "WAITAOF"})  # the server may take its time with these
_BROKEN = (RedisError, RedisClusterException, OSError, asyncio.TimeoutError)


class StoreBusyError(StoreUnavailableError):
    """All connections are in use, or the server is loading or runs a script."""


class Connections(Protocol):
    """Sends commands in one round trip."""

    cluster: bool

    def execute(self, commands: Sequence[Command], timeout: float, packed: bytes | None = None) -> list[Any]:
        """Return one reply per command, in order; error replies are exceptions in the list.

        Args:
            packed: The commands as bytes of the protocol, if the caller has them.
        """
        ...

    def client(self) -> Any:
        """Return a redis-py client, for scans and INFO."""
        ...

    def close(self) -> None:
        """Close what this object opened."""
        ...


def unavailable(error: BaseException) -> StoreUnavailableError:
    """Turn an error of redis-py or the socket into ours."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if (
        isinstance(error, MaxConnectionsError | redis.exceptions.BusyLoadingError)
        or "No connection available" in text
    ):
        return StoreBusyError(f"the store is busy ({text})")
    if "DB index" in text:
        return StoreUnavailableError(
            f"the store has no database of that number ({text}); name another in its URL"
        )
    return StoreUnavailableError(f"the store doesn't answer ({text})")


def without_script(command: Command) -> Command | None:
    """Return the EVAL form of an EVALSHA command of ours."""
    found = script_by_sha(command[1]) if command[0] == "EVALSHA" else None
    return None if found is None else ("EVAL", found.text, *command[2:])


def refuse_decoding(settings: dict[str, Any]) -> None:
    """Raise if a client decodes replies: entries hold bytes.

    Raises:
        ConfigurationError: decode_responses is on.
    """
    if settings.get("decode_responses"):
        raise ConfigurationError(
            "the Redis client was made with decode_responses=True, expected one that returns bytes; "
            "make a client of its own for semcache, without that option"
        )


class Direct:
    """One server, through the connection pool of a redis-py client.

    Of a pool of its own it keeps a few connections aside while they are idle: asking a pool and giving back takes
    longer than what a server does with most commands. They stay the pool's, and are closed with it.
    """

    cluster = False

    def __init__(self, client: redis.Redis, *, owned: bool, revive: Callable[[], None] | None = None) -> None:
        refuse_decoding(client.connection_pool.connection_kwargs)
        self._client = client
        self._pool: Any = client.connection_pool
        self._owned = owned
        self._closed = False
        # Sentinel's pool looks at what is given back: it may be a connection to yesterday's master.
        self._keeps = owned and type(self._pool) is redis.BlockingConnectionPool
        self._aside: deque[Any] = deque()
        self._busy: list[None] = []  # one for each caller under way; not a number, so that no lock is needed
        self._revive = _Reviver(revive) if revive else None

    def execute(self, commands: Sequence[Command], timeout: float, packed: bytes | None = None) -> list[Any]:
        end = time.monotonic() + timeout
        if len(commands) > _BATCH:
            replies: list[Any] = []
            for first in range(0, len(commands), _BATCH):
                replies += self.execute(commands[first : first + _BATCH], end - time.monotonic())
            return replies
        self._busy.append(None)
        try:
            return self._carry(commands, end, packed)
        except _BROKEN as error:
            if self._revive is not None:
                self._revive()
            raise unavailable(error) from error
        finally:
            self._busy.pop()

    def _carry(self, commands: Sequence[Command], end: float, packed: bytes | None) -> list[Any]:
        connection = self._take()
        try:
            replies = _exchange(connection, commands, end, packed)
            missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if missing:
                again = [without_script(commands[i]) or commands[i] for i in missing]
                for i, reply in zip(missing, _exchange(connection, again, end), strict=True):
                    replies[i] = reply
        except BaseException:
            connection.disconnect()
            self._pool.release(connection)
            raise
        self._give_back(connection)
        return replies

    def _take(self) -> Any:
        """Return a connection for one caller alone: one that was kept aside if it is still good, else one of the pool's."""
        try:
            connection = self._aside.pop()
        except IndexError:
            return self._pool.get_connection()
        if connection.pid == os.getpid():  # else it is the parent's, and the pool starts anew as well
            try:
                if not connection.can_read():
                    return connection
            except _BROKEN:
                log.debug("the server has closed an idle connection")
            connection.disconnect()
            self._pool.release(connection)
        return self._pool.get_connection()

    def _give_back(self, connection: Any) -> None:
        if self._closed and self._owned:  # meanwhile: what it was for is over, and nobody else will close it
            connection.disconnect()
        elif (
            self._keeps and len(self._aside) < ASIDE and len(self._busy) < POOL_SIZE // 2
        ):  # nobody waits for one
            self._aside.append(connection)
            return
        else:
            try:
                release(connection)
            except OSError:  # somebody has closed it meanwhile; what it carried was answered
                connection.disconnect()
        self._pool.release(connection)

    def client(self) -> redis.Redis:
        return self._client

    def close(self) -> None:
        self._closed = True
        if self._owned:
            self._pool.disconnect()
            for watcher in _sentinels(self._pool):
                watcher.close()


def _exchange(
    connection: Any, commands: Sequence[Command], end: float, packed: bytes | None = None
) -> list[Any]:
    # One time limit for all: the socket's own is per read, so it is set to what is left every few replies.
    limit(connection, end)
    connection.send_packed_command([packed or pack(commands)], check_health=False)
    replies: list[Any] = []
    for number in range(len(commands)):
        if number & 15 == 15:
            limit(connection, end)
        try:
            replies.append(connection.read_response(disable_decoding=True))
        except ResponseError as error:
            replies.append(error)
    return replies


class _Reviver:
    """Runs one revival of the embedded server at a time, beside the requests that fail meanwhile."""

    def __init__(self, revive: Callable[[], None]) -> None:
        self._revive = revive
        self._running = threading.Lock()

    def __call__(self) -> None:
        if self._running.acquire(blocking=False):
            threading.Thread(target=self._run, name="semcache-revive", daemon=True).start()

    def _run(self) -> None:
        try:
            self._revive()
        except SemcacheError as error:
            # It was closed meanwhile, or doesn't start; the next refused request tries again.
            log.info("the embedded server isn't revived: %s", error)
        finally:
            self._running.release()


class Clustered:
    """A cluster, through redis-py's cluster client, which asks the nodes when it is made: at the first use."""

    cluster = True

    def __init__(self, make: Callable[[], Any], *, owned: bool) -> None:
        self._make = make
        self._owned = owned
        self._made: Any = None
        self._lock = threading.Lock()

    def execute(self, commands: Sequence[Command], timeout: float, packed: bytes | None = None) -> list[Any]:
        if timeout <= 0:
            raise StoreUnavailableError("no time left")
        try:
            replies = self._send(commands)
            missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if missing:
                again = self._send([without_script(commands[i]) or commands[i] for i in missing])
                for i, reply in zip(missing, again, strict=True):
                    replies[i] = reply
        except _BROKEN as error:
            raise unavailable(error) from error
        return [_connection_trouble(reply) for reply in replies]

    def _send(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) == 1:
            try:
                return [self.client().execute_command(*commands[0])]
            except ResponseError as error:
                return [error]
        pipeline = self.client().pipeline()
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Any] = pipeline.execute(raise_on_error=False)
        return replies

    def client(self) -> Any:
        """Return the client, made at the first use."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
                refuse_decoding(self._made.nodes_manager.connection_kwargs)
            return self._made

    def close(self) -> None:
        if self._owned and self._made is not None:
            self._made.close()


def _connection_trouble(reply: Any) -> Any:
    if isinstance(reply, _BROKEN) and not isinstance(reply, ResponseError):
        raise unavailable(reply) from reply
    return reply


@dataclass(slots=True, eq=False)
class _Parcel:
    """One caller's commands, waiting to be carried."""

    commands: Sequence[Command]
    packed: bytes
    end: float  # monotonic clock when its caller gives up
    replies: asyncio.Future[list[Any]]

    def expire(self) -> None:
        """Tell the caller that her time is over."""
        if not self.replies.done():
            self.replies.set_exception(TimeoutError())


@dataclass(slots=True, eq=False)
class _Lanes:
    """What is under way on one event loop.

    Attributes:
        left: Whether somebody took a lane in this turn of the event loop: who comes in the same turn shares the next.
    """

    busy: int = 0
    left: bool = False
    waiting: deque[_Parcel] = field(default_factory=deque)
    carriers: set[asyncio.Task[None]] = field(default_factory=set)

    def take(self) -> list[_Parcel]:
        """Take what waits, as much as goes in one round trip, without what nobody waits for any more."""
        parcels: list[_Parcel] = []
        commands = 0
        while self.waiting and commands < _BATCH:
            parcel = self.waiting.popleft()
            if not parcel.replies.done():
                parcels.append(parcel)
                commands += len(parcel.commands)
        return parcels


class AsyncDirect:
    """One server, through the connection pool of a redis.asyncio client; one pool per event loop.

    A few callers at a time have a connection each. Whoever comes while they are under way, or in the same turn of
    the event loop as another, shares the next round trip with all who wait: under load that costs a fraction.
    """

    cluster = False

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        owned: bool,
        revive: Callable[[], None] | None = None,
    ) -> None:
        self._make = make
        self._owned = owned
        self._traffic: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Lanes] = (
            weakref.WeakKeyDictionary()
        )
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = weakref.WeakKeyDictionary()
        self._revive = _Reviver(revive) if revive else None

    def client(self) -> Any:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._make()
            refuse_decoding(client.connection_pool.connection_kwargs)
        return client

    async def execute(
        self, commands: Sequence[Command], timeout: float, packed: bytes | None = None
    ) -> list[Any]:
        end = time.monotonic() + timeout
        if len(commands) > _BATCH:
            replies: list[Any] = []
            for first in range(0, len(commands), _BATCH):
                replies += await self.execute(commands[first : first + _BATCH], end - time.monotonic())
            return replies
        if timeout <= 0:
            raise StoreUnavailableError("no time left")
        if any(command[0] in _SLOW for command in commands):
            return await self._send(commands, timeout, packed)
        lanes, loop = self._lanes(), asyncio.get_running_loop()
        if lanes.busy < LANES and not lanes.left:
            lanes.busy += 1
            lanes.left = True
            loop.call_soon(self._next_turn, lanes)
            try:
                return await self._send(commands, timeout, packed)
            finally:
                self._leave(lanes)
        parcel = _Parcel(commands, packed or pack(commands), end, loop.create_future())
        lanes.waiting.append(parcel)
        timer = loop.call_later(timeout, parcel.expire)
        try:
            return await parcel.replies
        except TimeoutError as error:
            raise unavailable(error) from error
        finally:
            timer.cancel()

    def _lanes(self) -> _Lanes:
        loop = asyncio.get_running_loop()
        lanes = self._traffic.get(loop)
        if lanes is None:
            lanes = self._traffic[loop] = _Lanes()
        return lanes

    def _next_turn(self, lanes: _Lanes) -> None:
        """Send what came in the same turn of the event loop as the one who left first."""
        lanes.left = False
        if lanes.waiting and lanes.busy < LANES:
            lanes.busy += 1
            self._leave(lanes)

    def _leave(self, lanes: _Lanes) -> None:
        """Free a lane, or let it carry what has been waiting."""
        if not lanes.waiting:
            lanes.busy -= 1
            return
        task = asyncio.get_running_loop().create_task(self._carry(lanes))
        lanes.carriers.add(task)
        task.add_done_callback(lanes.carriers.discard)

    async def _carry(self, lanes: _Lanes) -> None:
        """Send what waits, all of it in one round trip, until nothing does."""
        try:
            while parcels := lanes.take():
                commands = [command for parcel in parcels for command in parcel.commands]
                left = max(parcel.end for parcel in parcels) - time.monotonic()
                try:
                    if left <= 0:
                        raise StoreUnavailableError("no time left")
                    replies = await self._send(commands, left, b"".join(p.packed for p in parcels))
                except StoreUnavailableError as error:
                    for parcel in parcels:
                        if not parcel.replies.done():
                            parcel.replies.set_exception(type(error)(str(error)))
                    continue
                except BaseException:
                    for parcel in parcels:
                        parcel.replies.cancel()
                    raise
                first = 0
                for parcel in parcels:
                    end = first + len(parcel.commands)
                    if not parcel.replies.done():
                        parcel.replies.set_result(replies[first:end])
                    first = end
        finally:
            lanes.busy -= 1

    async def _send(self, commands: Sequence[Command], timeout: float, packed: bytes | None) -> list[Any]:
        pool = self.client().connection_pool
        try:
            async with asyncio.timeout(timeout):
                connection = await pool.get_connection()
                own_limit = connection.socket_timeout
                connection.socket_timeout = None  # one limit for all of it, not one for each read
                try:
                    return await self._exchange(connection, commands, packed)
                except BaseException:
                    # Also when cancelled: what is still on the wire must not answer somebody else.
                    await connection.disconnect(nowait=True)
                    raise
                finally:
                    connection.socket_timeout = own_limit
                    await pool.release(connection)
        except _BROKEN as error:
            if self._revive is not None:
                self._revive()
            raise unavailable(error) from error

    async def _exchange(
        self, connection: Any, commands: Sequence[Command], packed: bytes | None
    ) -> list[Any]:
        replies = await self._say(connection, commands, packed)
        missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            again = await self._say(connection, [without_script(commands[i]) or commands[i] for i in missing])
            for i, reply in zip(missing, again, strict=True):
                replies[i] = reply
        return replies

    async def _say(
        self, connection: Any, commands: Sequence[Command], packed: bytes | None = None
    ) -> list[Any]:
        await connection.send_packed_command([packed or pack(commands)], check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response(disable_decoding=True))
            except ResponseError as error:
                replies.append(error)
        return replies

    async def close(self) -> None:
        await _close_everywhere(self._clients, self._owned)


class AsyncClustered:
    """A cluster, through redis.asyncio's cluster client."""

    cluster = True

    def __init__(self, make: Callable[[], Any], *, owned: bool) -> None:
        self._make = make
        self._owned = owned
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = weakref.WeakKeyDictionary()

    def client(self) -> Any:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._make()
        return client

    async def execute(
        self, commands: Sequence[Command], timeout: float, packed: bytes | None = None
    ) -> list[Any]:
        if timeout <= 0:
            raise StoreUnavailableError("no time left")
        try:
            async with asyncio.timeout(timeout):
                replies = await self._send(commands)
                missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
                if missing:
                    again = await self._send([without_script(commands[i]) or commands[i] for i in missing])
                    for i, reply in zip(missing, again, strict=True):
                        replies[i] = reply
        except _BROKEN as error:
            raise unavailable(error) from error
        return [_connection_trouble(reply) for reply in replies]

    async def _send(self, commands: Sequence[Command]) -> list[Any]:
        client = self.client()
        if len(commands) == 1:
            try:
                return [await client.execute_command(*commands[0])]
            except ResponseError as error:
                return [error]
        pipeline = client.pipeline()
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies

    async def close(self) -> None:
        await _close_everywhere(self._clients, self._owned)


async def _close_everywhere(
    clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any], owned: bool
) -> None:
    """Close the client of each event loop, on its own loop; one whose loop has stopped can't be closed."""
    here = asyncio.get_running_loop()
    known = list(clients.items()) if owned else []
    clients.clear()
    for loop, client in known:
        if loop is here:
            await _close_client(client)
        elif loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_close_client(client), loop))


async def _close_client(client: Any) -> None:
    await client.aclose()
    pool = getattr(client, "connection_pool", None)  # a cluster's client has none
    if pool is not None:
        await pool.disconnect()
        for watcher in _sentinels(pool):
            await watcher.aclose()


def _sentinels(pool: Any) -> list[Any]:
    """Return the clients that look for the master; none if the pool isn't Sentinel's."""
    manager = getattr(pool, "sentinel_manager", None)
    return [] if manager is None else list(manager.sentinels)


def connect(url: str, deadline: float, *, revive: Callable[[], None] | None = None) -> Direct | Clustered:
    """Open connections to a URL; nothing is sent yet, except to a cluster, whose nodes are asked for.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://``, ``redis+cluster://host:port`` or
            ``redis+sentinel://host:port,host:port/<service>/<db>``.
        deadline: Seconds for connecting and for each answer.
        revive: Called when a server of our own refuses connections.
    """
    kind, rest = _scheme(url)
    settings = _settings(deadline)
    if kind == "cluster":
        return Clustered(
            lambda: redis.cluster.RedisCluster.from_url(rest, **_cluster_settings(deadline)), owned=True
        )
    if kind == "sentinel":
        hosts, service, options = _sentinel(rest)
        sentinel: Any = redis.sentinel.Sentinel
        manager = sentinel(hosts, sentinel_kwargs=dict(settings), **{**settings, **options})
        return Direct(manager.master_for(service), owned=True, revive=revive)
    pool = redis.BlockingConnectionPool.from_url(
        rest, max_connections=POOL_SIZE, timeout=deadline, **settings
    )
    return Direct(redis.Redis(connection_pool=pool), owned=True, revive=revive)


def connect_async(
    url: str, deadline: float, *, revive: Callable[[], None] | None = None
) -> AsyncDirect | AsyncClustered:
    """The same for asyncio; connections are made inside the event loop that uses them."""
    kind, rest = _scheme(url)
    settings = _settings(deadline, asynchronous=True)
    if kind == "cluster":
        cluster = redis.asyncio.RedisCluster
        return AsyncClustered(lambda: cluster.from_url(rest, **_cluster_settings(deadline)), owned=True)
    if kind == "sentinel":
        hosts, service, options = _sentinel(rest)

        def master() -> Any:
            sentinel: Any = redis.asyncio.sentinel.Sentinel
            manager = sentinel(hosts, sentinel_kwargs=dict(settings), **{**settings, **options})
            return manager.master_for(service)

        return AsyncDirect(master, owned=True, revive=revive)

    def client() -> Any:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            rest, max_connections=ASYNC_POOL_SIZE, timeout=deadline, **settings
        )
        return redis.asyncio.Redis(connection_pool=pool)

    client_check = urlsplit(rest)
    refuse_decoding(dict(parse_qsl(client_check.query)))
    return AsyncDirect(client, owned=True, revive=revive)


def _settings(deadline: float, *, asynchronous: bool = False) -> dict[str, Any]:
    # redis-py's default retries make a refused socket take seconds.
    retry: Any = redis.asyncio.retry.Retry(NoBackoff(), 0) if asynchronous else Retry(NoBackoff(), 0)
    limit = max(deadline, 0.05)
    return {
        "socket_timeout": limit,
        "socket_connect_timeout": limit,
        "retry": retry,
        "protocol": 2,
        **_driver(),
    }


@cache
def _driver() -> dict[str, Any]:
    """Say once which library this is: redis-py would read its own package data for every connection."""
    try:
        from redis.driver_info import DriverInfo
    except ImportError:  # older than 7
        return {}
    return {"driver_info": DriverInfo(lib_version=redis.__version__)}


def _cluster_settings(deadline: float) -> dict[str, Any]:
    limit = max(deadline, 0.05)
    return {"socket_timeout": limit, "socket_connect_timeout": limit, "protocol": 2}


def _scheme(url: str) -> tuple[str, str]:
    if not isinstance(url, str):
        raise ConfigurationError(f"the store is {type(url).__name__}, expected a URL or a redis-py client")
    scheme, separator, rest = url.partition("://")
    if scheme in ("redis+cluster", "rediss+cluster"):
        return "cluster", _readable(f"{scheme.removesuffix('+cluster')}://{rest}")
    if scheme == "redis+sentinel":
        return "sentinel", rest
    if separator and scheme in ("redis", "rediss", "unix"):
        return "direct", _readable(url)
    raise ConfigurationError(
        f"store URL {url!r:.80}, expected redis://, rediss://, unix://, redis+cluster://, redis+sentinel:// or memory://"
    )


def _readable(url: str) -> str:
    """Return a URL that redis-py reads as it was meant; it takes a database that isn't a number for none."""
    try:
        redis.ConnectionPool.from_url(url)
        parts = urlsplit(url)
        database = "" if parts.scheme == "unix" else parts.path.strip("/")
        if database:
            int(database)
    except ValueError as error:
        raise ConfigurationError(
            f"the store's URL can't be read: {error}; expected redis://host:port/db"
        ) from error
    return url


def _sentinel(rest: str) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    hosts, _, path = rest.partition("/")
    service, _, database = path.partition("/")
    if not hosts or not service:
        raise ConfigurationError("expected redis+sentinel://host:port,host:port/<service>[/<db>]")
    parts = [host.rpartition(":") for host in hosts.split(",")]
    try:
        found = [(name, int(port)) for name, _, port in parts]
        options = {"db": int(database)} if database else {}
    except ValueError as error:
        raise ConfigurationError(f"{hosts!r:.80} in a Sentinel URL, expected host:port,host:port") from error
    return found, service, options
