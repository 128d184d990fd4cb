"""What every test may ask for: a real server, and a namespace nobody else uses."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings

from semcache.stores.embedded import EmbeddedServer
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade
from tests.upstream import Upstream

# How long an example takes says how busy the machine is.
settings.register_profile("semcache", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("semcache")


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis-compatible server: $SEMCACHE_TEST_REDIS_URL, else an embedded one."""
    chosen = os.environ.get("SEMCACHE_TEST_REDIS_URL")
    if chosen is None:
        with EmbeddedServer.open(tmp_path_factory.mktemp("redis")) as server:
            yield server.url
        return
    client = redis.from_url(chosen, socket_connect_timeout=5.0)
    try:
        client.ping()
    except redis.RedisError as error:
        pytest.fail(f"SEMCACHE_TEST_REDIS_URL is set to {chosen}, which can't be reached: {error}")
    finally:
        client.close()
    yield chosen


@pytest.fixture
def namespace() -> str:
    """A namespace of this test alone, so that tests share a server without meeting."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    """An event loop for asynchronous caches behind a `Facade`."""
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(params=["sync-memory", "async-memory", "sync-redis", "async-redis"])
def make(request: pytest.FixtureRequest, loop: Loop, namespace: str) -> Iterator[Callable[..., Facade]]:
    """Opens caches of one kind over one store; several share a Redis store's entries. Some tests have their own."""
    kind, store = request.param.split("-")
    target = "memory://" if store == "memory" else request.getfixturevalue("redis_url")
    opened: list[Facade] = []

    def open_one(table: dict[str, list[float]] | None = None, **options: Any) -> Facade:
        encoder = TableEncoder(table or {}, default=[0.0, 0.0, 1.0])
        facade = open_facade(
            kind, target, loop, encoder=encoder, matcher=ThresholdMatcher(0.9), namespace=namespace, **options
        )
        opened.append(facade)
        return facade

    yield open_one
    for facade in opened:
        facade.close()


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    """An OpenAI-compatible server on loopback; a test that uses it resets it first."""
    with Upstream() as server:
        yield server
