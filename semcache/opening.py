"""What `open` does: from a URL, a client or nothing to the parts of a cache. The one place with defaults
that start a server and load a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semcache.errors import ConfigurationError
from semcache.policy import Policy


@dataclass(slots=True)
class Opened:
    """A store, a twin of it for background work, and what must be closed with them.

    Attributes:
        store: For requests; synchronous or asynchronous as asked.
        background: Synchronous, for the follower's thread.
        secret: The root secret, None if the store keeps it.
        close: Releases what was opened besides the stores.
        folder: A private folder of this store on this machine, where snapshots may lie; None if there is none.
    """

    store: Any
    background: Any
    secret: bytes | None
    close: Callable[[], None]
    folder: Path | None = None


def _nothing() -> None:
    """Nothing to release."""


def open_store(
    target: Any,
    *,
    namespace: str,
    policy: Policy,
    data_dir: str | os.PathLike[str] | None,
    asynchronous: bool,
) -> Opened:
    """Open the store that `target` names.

    Args:
        target: None for the embedded server, a URL (``redis://`` … or ``memory://``), or a redis-py client
            of the matching kind (synchronous or asyncio).

    Raises:
        ConfigurationError: `target` is none of these, or a client that decodes replies.
        EmbeddedServerError: The embedded server can't run here.
    """
    if target is None:
        return _embedded(namespace, policy, data_dir, asynchronous)
    if data_dir is not None:
        raise ConfigurationError("data_dir is for the embedded server; give it without a URL or client")
    if target == "memory://":
        from semcache.stores.memory import AsyncMemoryStore, MemoryStore

        memory = MemoryStore()
        return Opened(AsyncMemoryStore(memory) if asynchronous else memory, memory, None, _nothing)
    if isinstance(target, str):
        return _url(target, namespace, policy, asynchronous, None, None, _nothing)
    return _client(target, namespace, policy, asynchronous)


def _embedded(
    namespace: str, policy: Policy, data_dir: str | os.PathLike[str] | None, asynchronous: bool
) -> Opened:
    from semcache.stores.embedded import EmbeddedServer, folder_secret

    server = EmbeddedServer.open(data_dir)
    try:
        secret = folder_secret(Path(server.folder))
        opened = _url(server.url, namespace, policy, asynchronous, server.ensure, secret, server.close)
        opened.folder = Path(server.folder) / "snapshots"
        return opened
    except BaseException:
        server.close()
        raise


def _url(
    url: str,
    namespace: str,
    policy: Policy,
    asynchronous: bool,
    revive: Callable[[], None] | None,
    secret: bytes | None,
    close: Callable[[], None],
) -> Opened:
    from semcache.stores.connections import connect, connect_async
    from semcache.stores.redis import AsyncRedisStore, RedisStore

    background = RedisStore(connect(url, policy.deadline, revive=revive), namespace)
    if asynchronous:
        return Opened(
            AsyncRedisStore(connect_async(url, policy.deadline, revive=revive), namespace),
            background,
            secret,
            close,
        )
    store = RedisStore(connect(url, policy.deadline, revive=revive), namespace)
    return Opened(store, background, secret, close)


def _client(client: Any, namespace: str, policy: Policy, asynchronous: bool) -> Opened:
    import redis
    import redis.asyncio

    from semcache.stores.connections import AsyncClustered, AsyncDirect, Clustered, Direct, refuse_decoding
    from semcache.stores.redis import AsyncRedisStore, RedisStore

    if not asynchronous and isinstance(client, redis.Redis):
        store = RedisStore(Direct(client, owned=False), namespace)
        return Opened(store, store, None, _nothing)
    if not asynchronous and isinstance(client, redis.RedisCluster):
        clustered = RedisStore(Clustered(lambda: client, owned=False), namespace)
        return Opened(clustered, clustered, None, _nothing)
    if asynchronous and isinstance(client, redis.asyncio.Redis):
        refuse_decoding(client.connection_pool.connection_kwargs)
        twin = RedisStore(Direct(_sync_twin(client), owned=True), namespace)
        return Opened(
            AsyncRedisStore(AsyncDirect(lambda: client, owned=False), namespace), twin, None, twin.close
        )
    if asynchronous and isinstance(client, redis.asyncio.RedisCluster):
        start = client.get_default_node() or next(iter(client.nodes_manager.startup_nodes.values()))
        host, port = start.host, int(start.port)
        twin = RedisStore(Clustered(lambda: redis.RedisCluster(host=host, port=port), owned=True), namespace)
        return Opened(
            AsyncRedisStore(AsyncClustered(lambda: client, owned=False), namespace), twin, None, twin.close
        )
    kind = "a redis.asyncio client" if asynchronous else "a redis-py client"
    raise ConfigurationError(
        f"the store is {type(client).__module__}.{type(client).__name__}, expected a URL or {kind}"
    )


def _sync_twin(client: Any) -> Any:
    """Make a synchronous client to the same server, for the follower."""
    import redis

    wanted = (
        "host",
        "port",
        "db",
        "username",
        "password",
        "path",
        "ssl_ca_certs",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_cert_reqs",
    )
    settings = {
        k: v for k, v in client.connection_pool.connection_kwargs.items() if k in wanted and v is not None
    }
    if "path" in settings:
        settings["unix_socket_path"] = settings.pop("path")
    connection = client.connection_pool.connection_class
    if issubclass(connection, redis.asyncio.SSLConnection):
        settings["ssl"] = True
    return redis.Redis(**settings)
