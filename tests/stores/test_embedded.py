"""The embedded server under every fault that DESIGN promises to survive; each is caused for real."""

from __future__ import annotations

from pathlib import Path

import redis

from semcache.stores.embedded import EmbeddedServer


def test_data_survives_close_and_reopen(tmp_path: Path) -> None:
    with EmbeddedServer.open(tmp_path) as server, redis.from_url(server.url) as client:
        client.set("answer", "42")

    with EmbeddedServer.open(tmp_path) as server, redis.from_url(server.url) as client:
        assert client.get("answer") == b"42"


def test_the_shared_fixture_is_a_server_that_answers(redis_url: str, namespace: str) -> None:
    with redis.from_url(redis_url) as client:
        assert client.set(f"semcache:{namespace}:x", "1", ex=60)
