"""Real topologies, with a node killed: versions, TLS, ACL, Sentinel, Cluster, and a Redis that went back in time."""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from semcache import CacheRequest, Hit, Miss, Policy, Response, StoreUnavailableError
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade
from tests.servers import Server, TlsFront, binaries, certificates, cluster, eventually, running, sentinel

pytestmark = [
    pytest.mark.slow,
    # redis-py's cluster and sentinel clients drop the connections of nodes that died without closing them.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
TABLE = {"apple": [1.0, 0.0], "apples": [0.99, 0.141], "pear": [0.0, 1.0], "pears": [0.141, 0.99]}
FOUND = binaries()


@pytest.fixture(autouse=True)
def dropped() -> Iterator[None]:
    """Have dropped connections collected here, where that is no error, and not in a later test."""
    yield
    gc.collect()


def open_cache(kind: str, target: Any, loop: Loop, **options: Any) -> Facade:
    policy = Policy(deadline=5.0, local_bound=0.0, breaker_failures=1000, flight_lease=0.3)
    return open_facade(
        kind, target, loop, encoder=TableEncoder(TABLE, default=[-0.7, 0.714]), matcher=ThresholdMatcher(0.9),
        **{"policy": policy, **options},
    )  # fmt: skip


def everything_works(cache: Facade) -> None:
    """Exact and semantic hits, tags, feedback, withdrawal, restore, regeneration queue."""
    stored = cache.put("apple", "a fruit", tags={"t"})
    assert stored.outcome in ("stored", "replaced")
    assert cache.lookup("apple").match == "exact"
    found = cache.lookup("apples")
    assert found.match == "semantic"
    assert cache.feedback(found.lookup_id, -1, rater="u").action == "blocked"
    told = cache.cache._background.changes(0, count=100, block=0.0)
    assert [change.op for change in told].count("block") == 1
    actions = [cache.feedback(cache.lookup("apple").lookup_id, -1, rater=f"u-{n}").action for n in range(3)]
    assert actions[-1] == "withdrawn"
    assert cache.lookup("apple").reason == "withdrawn"
    (work,) = cache.take_refreshes("w")
    assert work.entry_id == stored.entry_id
    cache.finish_refreshes([work])
    assert [tomb.entry_id for tomb in cache.withdrawn()] == [stored.entry_id]
    assert cache.restore(stored.entry_id)
    assert isinstance(cache.lookup("apple"), Hit)
    cache.invalidate(tags={"t"})
    assert cache.lookup("apple").reason == "stale_tag"
    assert cache.invalidate(everything=True, dry_run=True).matched == 0
    cache.put("apple", "a fruit", tags={"t"})
    assert cache.invalidate(everything=True, dry_run=True).matched == 1
    assert cache.sweep().leader
    assert len(cache.versions()) == 1

    def slow(request: CacheRequest) -> str:
        time.sleep(0.25)  # its lease is extended meanwhile
        return "an answer"

    request = CacheRequest("plum", mode="exact")
    assert cache.get_or_compute(request, slow).stored
    assert cache.get_or_compute(request, slow).hit
    assert (
        cache.get_or_compute("fig", lambda request: Response("", error=True)).stored.outcome
        == "error_response"
    )
    assert {"lease", "store_unavailable"}.isdisjoint(cache.stats().failures)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("name", ["redis-7", "redis-8", "valkey-9"])
def test_every_supported_server(name: str, kind: str, tmp_path: Path, loop: Loop) -> None:
    if name not in FOUND:
        pytest.skip(f"no binary of {name} is installed here")
    with running(Server(FOUND[name], tmp_path)) as (server,):
        cache = open_cache(kind, f"redis://127.0.0.1:{server.port}/1", loop)
        everything_works(cache)
        cache.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_tls_of_the_server(kind: str, tmp_path: Path, loop: Loop) -> None:
    if "redis-7" not in FOUND or shutil.which("openssl") is None:
        pytest.skip("no server with TLS, or no openssl, is installed here; tools/install_old_redis.sh")
    certificates(tmp_path)
    server = Server(FOUND["redis-7"], tmp_path / "data")
    files = {name: str(tmp_path / name) for name in ("server.crt", "server.key", "ca.crt")}
    server.arguments = (
        "--port", "0", "--tls-port", str(server.port), "--tls-cert-file", files["server.crt"],
        "--tls-key-file", files["server.key"], "--tls-ca-cert-file", files["ca.crt"], "--tls-auth-clients", "no",
    )  # fmt: skip
    with running(server):
        works_over_tls(kind, server.port, tmp_path, loop)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_tls_in_front_of_the_server(kind: str, tmp_path: Path, loop: Loop) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl is installed here, to make certificates")
    certificates(tmp_path)
    with running(Server(FOUND["valkey-9"], tmp_path / "data")) as (server,):
        front = TlsFront(tmp_path, server.port)
        works_over_tls(kind, front.port, tmp_path, loop)
        front.close()


def works_over_tls(kind: str, port: int, folder: Path, loop: Loop) -> None:
    url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={folder / 'ca.crt'}"
    probe = redis.Redis.from_url(url)
    assert eventually(probe.ping)
    probe.close()
    cache = open_cache(kind, url, loop)
    everything_works(cache)
    cache.close()
    stranger = open_cache(kind, f"rediss://127.0.0.1:{port}/0", loop)  # doesn't know the CA
    assert isinstance(stranger.lookup("apple"), Miss)
    stranger.close()


def documented_rights() -> list[str]:
    """Return the commands that docs/redis.md allows the cache's user."""
    page = (Path(__file__).parents[2] / "docs" / "redis.md").read_text("utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith("ACL SETUSER"))
    return [word for word in line.split() if word.startswith("+")]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_user_with_least_rights(kind: str, tmp_path: Path, loop: Loop) -> None:
    with running(Server(FOUND["valkey-9"], tmp_path)) as (server,):
        server.client().execute_command(
            "ACL", "SETUSER", "app", "reset", "on", ">secret", "~semcache:shop:*", *documented_rights()
        )
        cache = open_cache(kind, f"redis://app:secret@127.0.0.1:{server.port}/0", loop, namespace="shop")
        everything_works(cache)
        cache.close()
        foreign = open_cache(kind, f"redis://app:secret@127.0.0.1:{server.port}/0", loop, namespace="other")
        assert isinstance(foreign.lookup("apple"), Miss)
        assert foreign.put("apple", "x").outcome == "store_unavailable"
        foreign.close()
        wrong = open_cache(kind, f"redis://app:wrong@127.0.0.1:{server.port}/0", loop, namespace="shop")
        assert wrong.get_or_compute("apple", lambda request: "from the model").text == "from the model"
        wrong.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_user_with_least_rights_in_a_cluster(kind: str, tmp_path: Path, loop: Loop) -> None:
    with cluster(tmp_path, replicas=0) as nodes:
        for node in nodes:
            node.client().execute_command(
                "ACL", "SETUSER", "app", "reset", "on", ">secret", "~semcache:shop:*", *documented_rights(),
                "+cluster|slots",
            )  # fmt: skip
        url = f"redis+cluster://app:secret@127.0.0.1:{nodes[0].port}"
        cache = open_cache(kind, url, loop, namespace="shop")
        everything_works(cache)
        assert cache.stats().failures == {}
        cache.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_sentinel_failover(kind: str, tmp_path: Path, loop: Loop) -> None:
    with sentinel(tmp_path) as (master, replica, watchers):
        hosts = ",".join(f"127.0.0.1:{watcher.port}" for watcher in watchers)
        cache = open_cache(kind, f"redis+sentinel://{hosts}/main/0", loop)
        everything_works(cache)
        cache.put("pear", "another fruit")
        entry_id = cache.put("apple", "a fruit").entry_id
        cache.invalidate(entry_ids=[entry_id])
        assert eventually(
            lambda: (
                replica.client().info("replication")["slave_repl_offset"]
                >= master.client().info("replication")["master_repl_offset"]
            )
        )
        master.kill()
        answer = cache.get_or_compute("plum", lambda request: "from the model")
        found = eventually(lambda: isinstance(cache.lookup("pear"), Hit))
        apple = cache.lookup("apple")
        stored = eventually(lambda: cache.put("fig", "a third"))
        cache.close()

    assert answer.text == "from the model"
    assert found, "the promoted replica serves"
    assert isinstance(apple, Miss), "what was withdrawn before the failover stays withdrawn"
    assert stored


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_cluster_with_a_master_killed_and_slots_moved(kind: str, tmp_path: Path, loop: Loop) -> None:
    with cluster(tmp_path) as nodes:
        cache = open_cache(kind, f"redis+cluster://127.0.0.1:{nodes[0].port}", loop)
        everything_works(cache)
        prompts = [f"prompt {number}" for number in range(60)]
        for prompt in prompts:
            assert cache.put(CacheRequest(prompt, mode="exact"), f"answer to {prompt}")

        stop, failed, wrong = threading.Event(), [], []

        def load() -> None:
            turn = 0
            while not stop.is_set():
                prompt = prompts[turn % len(prompts)]
                turn += 1
                try:
                    found = cache.lookup(CacheRequest(prompt, mode="exact"))
                except Exception as error:  # noqa: BLE001 - any exception is what this test looks for
                    failed.append(error)
                    continue
                if isinstance(found, Hit) and found.text != f"answer to {prompt}":
                    wrong.append((prompt, found.text))

        worker = threading.Thread(target=load)
        worker.start()
        move_slots(nodes[0], nodes[1], range(0, 400))
        after_move = eventually(
            lambda: all(isinstance(cache.lookup(CacheRequest(p, mode="exact")), Hit) for p in prompts)
        )
        nodes[2].kill()
        after_kill = eventually(
            lambda: all(isinstance(cache.lookup(CacheRequest(p, mode="exact")), Hit) for p in prompts), 60.0
        )
        stop.set()
        worker.join()
        eventually(lambda: cache.put("apple", "a fruit", tags={"x"}))
        eventually(lambda: cache.invalidate(tags={"x"}))
        gone = cache.lookup("apple")
        cache.close()

    assert not failed, failed[:3]
    assert not wrong
    assert after_move
    assert after_kill
    assert isinstance(gone, Miss)


def move_slots(source: Server, target: Server, slots: range) -> None:
    """Move slots with their keys while the cluster serves."""
    from_client, to_client = source.client(), target.client()
    from_id, to_id = (c.execute_command("CLUSTER", "MYID").decode() for c in (from_client, to_client))
    for slot in slots:
        to_client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", from_id)
        from_client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", to_id)
        while keys := from_client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            from_client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for client in (to_client, from_client):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", to_id)


def test_a_withdrawal_says_what_was_durable(tmp_path: Path, loop: Loop) -> None:
    plain = Server(FOUND["valkey-9"], tmp_path / "plain", ("--appendonly", "no", "--save", ""))
    synced = Server(FOUND["valkey-9"], tmp_path / "aof", ("--appendonly", "yes", "--appendfsync", "always"))
    replica = Server(FOUND["valkey-9"], tmp_path / "replica", ("--replicaof", "127.0.0.1", str(synced.port)))
    with running(plain, synced, replica):
        assert eventually(lambda: replica.client().info("replication")["master_link_status"] == "up")
        said = {}
        for name, server, durability in (
            ("plain", plain, "local"), ("aof", synced, "local"), ("replica", synced, "replicas"), ("memory", synced, "memory"),
        ):  # fmt: skip
            cache = open_cache(
                "sync",
                f"redis://127.0.0.1:{server.port}",
                loop,
                policy=Policy(deadline=5.0, durability=durability),
            )  # type: ignore[arg-type]
            cache.put("apple", "a fruit")
            said[name] = cache.invalidate(tags={"t"}).durability
            cache.close()

    assert said == {"plain": "memory", "aof": "local", "replica": "replicas:1", "memory": "memory"}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_withdrawals_survive_a_redis_that_went_back_in_time(kind: str, tmp_path: Path, loop: Loop) -> None:
    server = Server(FOUND["valkey-9"], tmp_path, ("--appendonly", "no", "--save", ""))
    with running(server):
        cache = open_cache(kind, f"redis://127.0.0.1:{server.port}", loop)
        by_name = cache.put("apple", "a fruit").entry_id
        cache.put("pear", "another fruit", tags={"t"})
        cache.put("fig", "a third")
        assert isinstance(cache.lookup("apple"), Hit)
        server.client().save()
        cache.invalidate(entry_ids=[by_name])
        cache.invalidate(tags={"t"})
        server.kill()
        with pytest.raises(StoreUnavailableError):
            cache.invalidate(tags={"other"})
        server.start()
        asked = eventually(lambda: isinstance(cache.lookup("fig"), Hit))
        seen = []
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            seen += [p for p in ("apple", "pear") if isinstance(cache.lookup(p), Hit)]
            time.sleep(0.02)
        stats = cache.stats()
        cache.close()

    assert asked
    assert seen == [], "what was withdrawn after the dump isn't served from it"
    assert stats.failures.get("went_back", 0) >= 1
