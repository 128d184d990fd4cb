"""A service without keys, and one with the keys of two tenants and an operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.served import SECRET, Served, key
from tests.upstream import Upstream

KEYS = (
    key("acme", "acme", "use", "feedback"),
    key("acme-app", "acme", "use", "feedback:trusted"),
    key("acme-admin", "acme", "admin", "feedback:trusted", "use"),
    key("bolt", "bolt", "use", "feedback"),
    key("bolt-admin", "bolt", "admin", "feedback:trusted", "use"),
    key("operator", "*", "admin", "feedback:trusted"),
    key("judge", "acme", "feedback"),
)


@pytest.fixture
def stub(upstream: Upstream) -> Upstream:
    """The stub upstream, as new."""
    upstream.reset()
    return upstream


@pytest.fixture
def served(stub: Upstream) -> Iterator[Served]:
    """A service without keys."""
    with Served(stub.url) as server:
        yield server


@pytest.fixture
def keyed(stub: Upstream) -> Iterator[Served]:
    """A service with keys, named as in `KEYS`."""
    with Served(stub.url, keys=KEYS, secret=SECRET, upstream_key="sk-upstream") as server:
        yield server
