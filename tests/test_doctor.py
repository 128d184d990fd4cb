"""What doctor says of facts, and of real servers."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from semcache import Policy, SemanticCache
from semcache.doctor import (
    Rows,
    check_clock,
    check_encoder,
    check_epoch,
    check_eviction,
    check_index,
    check_memory,
    check_persistence,
    check_version,
    examine,
    read_rows,
)
from semcache.encoders import BundledEncoder
from semcache.keys import Keys
from semcache.opening import open_store
from semcache.protocols import Encoder, Store
from semcache.testing import TableEncoder

TABLE = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.6, 0.8]}


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({"redis_version": "7.0.15"}, "ok"),
        ({"redis_version": "6.2.0"}, "ok"),
        ({"redis_version": "6.0.16"}, "fail"),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.0"}, "fail"),
        ({"redis_version": "unstable"}, "warn"),
        ({}, "warn"),
    ],
)
def test_versions_are_judged_by_product(facts: dict[str, str], status: str) -> None:
    assert check_version(facts).status == status


@pytest.mark.parametrize(
    ("facts", "status"), [({"aof_enabled": "1"}, "ok"), ({"aof_enabled": "0"}, "fail"), ({}, "warn")]
)
def test_a_server_without_the_append_only_file_fails(facts: dict[str, str], status: str) -> None:
    assert check_persistence(facts).status == status


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        ("noeviction", "ok"),
        ("volatile-lru", "ok"),
        ("volatile-ttl", "ok"),
        ("allkeys-lru", "fail"),
        (None, "warn"),
    ],
)
def test_a_policy_that_may_evict_the_record_fails(policy: str | None, status: str) -> None:
    assert check_eviction({} if policy is None else {"maxmemory_policy": policy}).status == status


@pytest.mark.parametrize(
    ("used", "limit", "evicted", "policy", "status"),
    [
        ("100", "0", "0", "noeviction", "ok"),
        ("100", "1000", "0", "noeviction", "ok"),
        ("850", "1000", "0", "noeviction", "warn"),
        ("990", "1000", "0", "noeviction", "fail"),
        ("990", "1000", "0", "volatile-lru", "warn"),
        ("100", "1000", "7", "volatile-lru", "warn"),
    ],
)
def test_a_full_server_is_told(used: str, limit: str, evicted: str, policy: str, status: str) -> None:
    facts = {"used_memory": used, "maxmemory": limit, "evicted_keys": evicted, "maxmemory_policy": policy}

    assert check_memory(facts).status == status


@pytest.mark.parametrize(
    ("skew", "uncertainty", "status"),
    [(0.2, 0.01, "ok"), (-2.0, 0.01, "warn"), (2.0, 1.5, "ok"), (3600.0, 0.01, "fail"), (-61.0, 0.1, "fail")],
)
def test_clocks_that_differ_are_told(skew: float, uncertainty: float, status: str) -> None:
    assert check_clock(skew, uncertainty).status == status


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        (Rows(), "ok"),
        (Rows(entries=5, listed=5, loaded=5), "ok"),
        (Rows(entries=5, listed=5, loaded=5, ghosts=2), "ok"),
        (Rows(entries=5, listed=4, loaded=4), "warn"),
        (Rows(entries=5, listed=5, loaded=4), "fail"),
        (Rows(entries=5, listed=5, loaded=5, ghosts=400), "warn"),
    ],
    ids=["empty", "whole", "few-ghosts", "unlisted", "damaged", "many-ghosts"],
)
def test_an_index_that_lacks_rows_is_told(rows: Rows, status: str) -> None:
    assert check_index(rows).status == status


def test_every_check_that_objects_says_what_to_do_and_where_to_read() -> None:
    docs = (Path(__file__).resolve().parent.parent / "docs" / "doctor.md").read_text(encoding="utf-8")
    checks = [
        check_version({}), check_persistence({}), check_eviction({}), check_memory({"evicted_keys": "1"}),
        check_clock(9.0, 0.0), check_index(Rows(entries=1)), check_epoch("", 0), check_encoder(TableEncoder({"": [1.0]})),
    ]  # fmt: skip

    assert {check.status for check in checks} == {"ok", "warn", "fail"}
    for check in checks:
        assert (check.status == "ok") == (check.todo == "")
        assert f"\n## {check.docs.partition('#')[2]}\n" in docs


def test_an_encoder_that_fails_is_told() -> None:
    check = check_encoder(TableEncoder({"a": [1.0, 0.0]}))

    assert check.status == "fail"
    assert "only exact hits" in check.todo


def test_the_bundled_encoder_is_timed() -> None:
    check = check_encoder(BundledEncoder())

    assert check.status in ("ok", "warn")  # warn on a busy machine
    assert "512 dimensions" in check.found


@pytest.fixture
def encoder() -> Encoder:
    return TableEncoder(TABLE, default=[0.5, 0.5])


@pytest.fixture
def store(redis_url: str, namespace: str, encoder: Encoder) -> Iterator[Store]:
    """A store with three entries, one of them withdrawn."""
    policy = Policy(deadline=30.0)
    with SemanticCache.open(redis_url, namespace=namespace, encoder=encoder, policy=policy) as cache:
        for text in TABLE:
            assert cache.put(text, f"answer to {text}")
        found = cache.lookup("c")
        assert found
        cache.invalidate(entry_ids=[found.entry_id])
    opened = open_store(
        redis_url, namespace=namespace, policy=Policy(deadline=10.0), data_dir=None, asynchronous=False
    )
    yield opened.store
    opened.store.close()
    opened.background.close()


def test_a_healthy_deployment_passes(store: Store, encoder: Encoder) -> None:
    checks = {check.name: check for check in examine(store, encoder)}

    assert list(checks) == [
        "encoder",
        "server",
        "persistence",
        "eviction",
        "memory",
        "epoch",
        "clock",
        "index",
    ]
    assert [check for check in checks.values() if check.status == "fail"] == []
    assert checks["index"].found == "2 entries with an embedding, 2 listed, 2 loaded"


def test_a_clock_that_is_off_is_seen(store: Store, encoder: Encoder) -> None:
    checks = {check.name: check for check in examine(store, encoder, wall=lambda: time.time() - 500.0)}

    assert checks["clock"].status == "fail"
    assert "ahead by 500" in checks["clock"].found


def _is_live(client: redis.Redis, namespace: str, name: str) -> bool:
    return client.hget(Keys(namespace).entry(name), "state") == b"live"


def test_a_row_that_was_lost_from_the_list_is_seen(
    store: Store, encoder: Encoder, redis_url: str, namespace: str
) -> None:
    with redis.from_url(redis_url) as client:
        (members,) = client.scan_iter(match=f"semcache:{namespace}:members:*")
        live = [name for name in client.zrange(members, 0, -1) if _is_live(client, namespace, name.decode())]
        client.zrem(members, live[0])

    rows = read_rows(store, encoder)

    assert (rows.entries, rows.listed, rows.loaded) == (2, 1, 1)


def test_a_row_whose_entry_is_gone_is_a_ghost(
    store: Store, encoder: Encoder, redis_url: str, namespace: str
) -> None:
    with redis.from_url(redis_url) as client:
        live = [
            key
            for key in client.scan_iter(match=f"semcache:{namespace}:entry:*")
            if client.hget(key, "state") == b"live"
        ]
        client.delete(live[0])

    rows = read_rows(store, encoder)

    assert (rows.entries, rows.listed, rows.loaded, rows.ghosts) == (1, 1, 1, 2)


def test_a_damaged_embedding_is_seen(store: Store, encoder: Encoder, redis_url: str, namespace: str) -> None:
    with redis.from_url(redis_url) as client:
        live = [
            key
            for key in client.scan_iter(match=f"semcache:{namespace}:entry:*")
            if client.hget(key, "state") == b"live"
        ]
        client.hset(live[0], "embedding", b"\xff\xff\xff")

    rows = read_rows(store, encoder)

    assert (rows.entries, rows.listed, rows.loaded) == (2, 2, 1)
    assert check_index(rows).status == "fail"


def test_entries_of_another_encoder_are_told(store: Store) -> None:
    rows = read_rows(store, TableEncoder(TABLE, name="other"))

    assert (rows.entries, rows.listed, rows.loaded) == (2, 0, 0)


def test_only_so_many_entries_are_looked_at(store: Store, encoder: Encoder) -> None:
    assert read_rows(store, encoder, limit=1).partial


def test_a_real_server_without_the_append_only_file_fails(tmp_path: Path, encoder: Encoder) -> None:
    from semcache.stores.embedded import EmbeddedServer

    with EmbeddedServer.open(tmp_path / "kept") as kept:
        with redis.from_url(kept.url) as client:
            binary = client.info("server")["executable"]
        path = tmp_path / "s.sock"
        server = subprocess.Popen(
            [
                binary,
                "--port",
                "0",
                "--unixsocket",
                str(path),
                "--appendonly",
                "no",
                "--maxmemory-policy",
                "allkeys-lru",
            ],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
        )
    try:
        _wait_for(path)
        opened = open_store(
            f"unix://{path}", namespace="n", policy=Policy(deadline=10.0), data_dir=None, asynchronous=False
        )
        checks = {check.name: check.status for check in examine(opened.store, encoder)}
        opened.store.close()
        opened.background.close()
    finally:
        server.terminate()
        server.wait(30)

    assert (checks["persistence"], checks["eviction"]) == ("fail", "fail")


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20.0
    while not os.path.exists(path):
        assert time.monotonic() < deadline, f"no server at {path}"
        time.sleep(0.01)
