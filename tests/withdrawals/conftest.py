"""Caches of both kinds over both stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(params=["sync-memory", "async-memory", "sync-redis", "async-redis"])
def make(request: pytest.FixtureRequest, loop: Loop, namespace: str) -> Iterator[Callable[..., Facade]]:
    """Opens caches of one kind over one store; several share a Redis store's entries."""
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


@pytest.fixture
def cache(make: Callable[..., Facade]) -> Facade:
    """One with two neighbours."""
    return make({"apple": [1.0, 0.0, 0.0], "apples": [0.99, 0.141, 0.0]})
