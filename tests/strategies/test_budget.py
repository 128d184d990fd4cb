"""A budget is kept exactly: by one process, by many at once, in a cluster, and when somebody dies in between."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semcache import CacheRequest, ConfigurationError, Hit, Policy, Response
from semcache.codec import encode_response
from semcache.eviction import EVICTIONS, Eviction, Ranked, weight
from semcache.keys import Keys
from semcache.protocols import Budget, Draft
from semcache.stores.connections import connect
from semcache.stores.drafts import size_of
from semcache.stores.operations import Operations
from semcache.stores.redis import RedisStore
from tests.facade import Facade
from tests.servers import cluster, eventually


def called(name: str) -> str:
    return f"~/~/{hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()}"


def draft(name: str, budget: Budget | None, epoch: str, answer: str = "x", **given: Any) -> Draft:
    return Draft(
        entry_id=called(name), scope="s", prompt=name, response=encode_response(Response(answer)), tags=(), all_tags=(),
        epoch=epoch, fence_us=None, ttl=None, keep=None, now=0.0, expires_at=None, confidence=None, kind=None,
        embedding=None, fingerprint="", budget=budget, **given,
    )  # fmt: skip


@pytest.fixture
def store(redis_url: str, namespace: str) -> Iterator[RedisStore]:
    store = RedisStore(connect(redis_url, 5.0), namespace)
    yield store
    store.close()


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.from_url(redis_url) as client:
        yield client


def held(client: redis.Redis, namespace: str) -> dict[str, int]:
    """Entries that are really there, with the bytes of their fields."""
    found = {}
    for key in client.scan_iter(match=Keys(namespace).prefix + "entry:*", count=1000):
        found[key.decode()] = sum(len(k) + len(v) for k, v in client.hgetall(key).items())
    return found


def test_the_accounts_are_exact(store: RedisStore, client: redis.Redis, namespace: str) -> None:
    epoch = store.read([], [], embedding=None, timeout=5.0).epoch
    budget = Budget(None, 5_000, "lru")
    for number in range(60):
        store.put(draft(f"n{number % 23}", budget, epoch, "é" * (13 * number % 200)), timeout=5.0)

        real = held(client, namespace)
        facts = store.info(timeout=5.0)
        assert int(facts["budget_entries"]) == len(real)
        assert int(facts["budget_bytes"]) == sum(real.values()) <= 5_000
    assert int(facts["budget_evicted"]) > 20


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 300), st.integers(1, 5), st.booleans()),
        min_size=5,
        max_size=40,
    ),
    eviction=st.sampled_from(EVICTIONS),
    most=st.integers(1, 5),
    most_bytes=st.one_of(st.none(), st.integers(600, 2_000)),
)
def test_the_store_evicts_what_the_pure_rule_evicts(
    redis_url: str, steps: list[Any], eviction: Eviction, most: int, most_bytes: int | None
) -> None:
    space = f"test-{uuid.uuid4().hex}"
    store = RedisStore(connect(redis_url, 5.0), space)
    budget = Budget(most, most_bytes, eviction)
    rule: Ranked[str] = Ranked(entries=most, size=most_bytes, eviction=eviction)
    epoch = store.read([], [], embedding=None, timeout=5.0).epoch
    try:
        for which, length, uses, puts in steps:
            name = called(f"n{which}")
            if not puts:
                store.note_uses([(name, uses)], budget, timeout=5.0)
                rule.touch(name, uses)
                continue
            one = draft(f"n{which}", budget, epoch, "x" * length, saves=(float(length + 1), 50.0 * uses))
            size = size_of(one)
            gone = rule.put(
                name, size, weight(eviction, tokens=length + 1, latency_ms=50.0 * uses, size=size)
            )
            reply = store.put(one, timeout=5.0)
            assert reply.outcome == "too_large" if gone is None else len(reply.evicted) == len(gone)
            ids = [called(f"n{n}") for n in range(10)]
            kept = {
                i for i, entry in zip(ids, store.get_many(ids, timeout=5.0), strict=True) if entry is not None
            }
            assert kept == {i for i in ids if i in rule}
    finally:
        store.close()


def test_without_a_budget_there_are_no_accounts(
    store: RedisStore, client: redis.Redis, namespace: str
) -> None:
    epoch = store.read([], [], embedding=None, timeout=5.0).epoch
    store.put(draft("a", None, epoch), timeout=5.0)

    assert not list(client.scan_iter(match=f"semcache:{namespace}:budget:*"))
    assert "budget_entries" not in store.info(timeout=5.0)


def test_a_refused_put_takes_no_room(store: RedisStore, namespace: str) -> None:
    epoch = store.read([], [], embedding=None, timeout=5.0).epoch
    budget = Budget(2, None, "lru")
    store.withdraw([called("gone")], "invalidated", keep=60.0, durability="memory", timeout=5.0)
    refused = draft("gone", budget, epoch)
    reply = store.put(Draft(**{**fields(refused), "fence_us": 1}), timeout=5.0)

    assert reply.outcome == "tombstone"
    assert store.info(timeout=5.0)["budget_entries"] == "0"
    assert store.info(timeout=5.0)["budget_bytes"] == "0"
    store.put(draft("a", budget, epoch, "x" * 100), timeout=5.0)
    before = store.info(timeout=5.0)["budget_bytes"]
    old = store.put(Draft(**{**fields(draft("a", budget, epoch, "y" * 500)), "fence_us": 1}), timeout=5.0)
    assert old.outcome == "old_fence"
    assert store.info(timeout=5.0)["budget_bytes"] == before


def fields(one: Draft) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


def test_what_nobody_confirmed_is_evicted_by_the_next(
    store: RedisStore, client: redis.Redis, namespace: str
) -> None:
    epoch = store.read([], [], embedding=None, timeout=5.0).epoch
    budget = Budget(2, None, "lru")
    for name in "ab":
        store.put(draft(name, budget, epoch), timeout=5.0)
    operations = Operations(namespace)
    (command,) = operations.budget.reserve(draft("c", budget, epoch), budget).commands
    client.execute_command(*command)  # and dies: `a` was chosen and is still there, `c` never comes
    assert len(held(client, namespace)) == 2
    long_ago(client, namespace, "a", "c")

    store.put(draft("d", budget, epoch), timeout=5.0)
    assert len(held(client, namespace)) <= 2
    store.put(draft("e", budget, epoch), timeout=5.0)
    store.put(draft("f", budget, epoch), timeout=5.0)
    assert set(held(client, namespace)) == {operations.keys.entry(called(name)) for name in "ef"}
    assert not client.zcard(operations.keys.budget("leaving"))


def long_ago(client: redis.Redis, namespace: str, *names: str) -> None:
    """Make what is awaited of these entries have been so for longer than anybody waits."""
    for part in ("leaving", "pending"):
        client.zadd(Keys(namespace).budget(part), {called(name): 1.0 for name in names}, xx=True)


def test_an_expired_entry_takes_no_room(store: RedisStore, client: redis.Redis, namespace: str) -> None:
    epoch = store.read([], [], embedding=None, timeout=5.0).epoch
    budget = Budget(2, None, "lru")
    for name in "ab":
        store.put(draft(name, budget, epoch), timeout=5.0)
    client.zadd(Keys(namespace).budget("expiry"), {called("b"): 1.0})
    reply = store.put(draft("c", budget, epoch), timeout=5.0)

    assert reply.evicted == ()
    assert set(held(client, namespace)) == {Keys(namespace).entry(called(name)) for name in "ac"}


def test_an_entry_stored_again_meanwhile_is_not_deleted(
    store: RedisStore, client: redis.Redis, namespace: str
) -> None:
    epoch = store.read([], [], embedding=None, timeout=5.0).epoch
    budget = Budget(4, None, "lru")
    for name in "axyz":
        store.put(draft(name, budget, epoch), timeout=5.0)
    operations = Operations(namespace)
    plan = operations.budget.reserve(draft("b", budget, epoch), budget)
    room = plan.read([client.execute_command(*plan.commands[0])])
    assert room.leaving == ((called("a"), "entries"),)
    assert (
        store.put(draft("a", budget, epoch), timeout=5.0).outcome == "replaced"
    )  # by another process, before the first deletes
    for command in operations.budget.evict(room).commands:
        client.execute_command(*command)

    assert store.get_many([called("a")], timeout=5.0)[0] is not None


def test_a_change_of_eviction_keeps_what_comes_after(
    store: RedisStore, client: redis.Redis, namespace: str
) -> None:
    epoch = store.read([], [], embedding=None, timeout=5.0).epoch
    for eviction in ("lru", "lfu", "lru", "cost"):
        for number in range(6):
            store.put(draft(f"{eviction}{number}", Budget(3, None, eviction), epoch), timeout=5.0)  # type: ignore[arg-type]

        last = {Keys(namespace).entry(called(f"{eviction}{number}")) for number in range(6)}
        assert set(held(client, namespace)) < last


def test_a_sweep_gives_accounts_to_what_was_stored_without(
    store: RedisStore, client: redis.Redis, namespace: str
) -> None:
    epoch = store.read([], [], embedding=None, timeout=5.0).epoch
    for number in range(20):
        store.put(draft(f"n{number}", None, epoch), timeout=5.0)
    store.sweep(lease=0.001, keep=60.0, generations=1000, budget=Budget(8, None, "lfu"), timeout=5.0)

    assert len(held(client, namespace)) == 8
    assert store.info(timeout=5.0)["budget_entries"] == "8"
    assert int(store.info(timeout=5.0)["budget_bytes"]) == sum(held(client, namespace).values())


WORKER = """
import sys, json
from semcache import Policy, SemanticCache, CacheRequest
from semcache.testing import HashEncoder
url, namespace, seed, policy = sys.argv[1:5]
import random
draw = random.Random(int(seed))
cache = SemanticCache.open(url, namespace=namespace, encoder=HashEncoder(64), policy=Policy(deadline=20.0, **json.loads(policy)))
outcomes = {}
for _ in range(250):
    request = CacheRequest(f"prompt {draw.randrange(400)}", model="m")
    answer = cache.get_or_compute(request, lambda r: "an answer " * draw.randrange(1, 40))
    if answer.stored is not None:
        outcomes[answer.stored.outcome] = outcomes.get(answer.stored.outcome, 0) + 1
print(json.dumps(outcomes))
cache.close()
"""

COUNT = """
local bytes, keys = 0, redis.call('KEYS', ARGV[1])
for _, key in ipairs(keys) do for _, part in ipairs(redis.call('HGETALL', key)) do bytes = bytes + #part end end
return {#keys, bytes}
"""


@pytest.mark.parametrize("eviction", ["lfu", "cost"])
def test_many_processes_stay_within_it_at_every_moment(
    eviction: str, redis_url: str, client: redis.Redis, namespace: str
) -> None:
    limits = {"budget_entries": 100, "budget_bytes": 60_000, "eviction": eviction}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, redis_url, namespace, str(seed), json.dumps(limits)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(4)
    ]
    peak = [0, 0]
    while any(worker.poll() is None for worker in workers):
        entries, size = client.eval(COUNT, 0, Keys(namespace).prefix + "entry:*")
        peak = [max(peak[0], entries), max(peak[1], size)]
    outcomes = [json.loads(worker.communicate()[0]) for worker in workers]

    assert all(worker.returncode == 0 for worker in workers)
    assert sum(found.get("stored", 0) for found in outcomes) > 200, outcomes
    assert peak[0] <= 100
    assert peak[1] <= 60_000
    assert peak[0] > 90 or peak[1] > 50_000  # it was full
    store = RedisStore(connect(redis_url, 5.0), namespace)
    facts, real = store.info(timeout=5.0), held(client, namespace)
    store.close()
    assert int(facts["budget_entries"]) >= len(real)
    assert int(facts["budget_bytes"]) >= sum(real.values())


@pytest.mark.slow
def test_a_cluster_stays_within_it(tmp_path: Path, namespace: str) -> None:
    with cluster(tmp_path, masters=3, replicas=0) as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        stop, peak = threading.Event(), [0]

        def count() -> None:
            clients = [node.client() for node in nodes]
            while not stop.is_set():
                # Nodes are counted one after the other: what is the same before and after was so at one moment.
                before = [set(c.keys(Keys(namespace).prefix + "entry:*")) for c in clients]
                after = [set(c.keys(Keys(namespace).prefix + "entry:*")) for c in reversed(clients)]
                if before == after[::-1]:
                    peak[0] = max(peak[0], sum(map(len, before)))

        watcher = threading.Thread(target=count)
        watcher.start()
        limits = json.dumps({"budget_entries": 60, "eviction": "lfu"})
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, url, namespace, str(seed), limits], stdout=subprocess.PIPE
            )
            for seed in range(2)
        ]
        outcomes = [json.loads(worker.communicate()[0]) for worker in workers]
        stop.set()
        watcher.join()

        assert sum(found.get("stored", 0) for found in outcomes) > 100, outcomes
        held_now = [list(n.client().scan_iter(match=f"semcache:{namespace}:entry:*")) for n in nodes]
        assert 50 <= sum(map(len, held_now)) <= 60
        assert all(held_now)
        assert 0 < peak[0] <= 60


def test_a_cache_keeps_what_is_used(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=5.0, budget_entries=3, local_bound=0.0))
    cache.put("often", "x")
    for _ in range(5):
        assert isinstance(cache.lookup("often"), Hit)
    for number in range(8):
        cache.put(f"prompt {number}", "x")

    assert isinstance(cache.lookup("often"), Hit)
    assert len([entry for entry in cache.all_entries() if entry.state == "live"]) == 3
    assert cache.stats().evictions == {"entries": 6}


def test_another_process_forgets_the_rows_of_what_was_evicted(make: Callable[..., Facade]) -> None:
    table = {f"prompt {n}": [1.0, n / 100, 0.0] for n in range(6)}
    policy = Policy(deadline=5.0, budget_entries=2, local_bound=0.0)
    cache = make(table, policy=policy)
    cache.put("prompt 0", "x")
    cache.lookup("prompt 1")  # loads the scope
    for number in range(1, 6):
        cache.put(f"prompt {number}", "x")

    assert eventually(lambda: cache.stats().rows <= 2)


def test_a_dear_answer_outlives_cheap_ones(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=5.0, budget_entries=3, eviction="cost"))
    dear = Response("x", usage={"total_tokens": 4000}, latency_ms=9000.0)
    cheap = Response("x", usage={"total_tokens": 10}, latency_ms=100.0)
    cache.put("dear", dear)
    for number in range(6):
        cache.put(f"prompt {number}", cheap)

    assert isinstance(cache.lookup(CacheRequest("dear")), Hit)


def test_an_answer_larger_than_the_budget_is_not_stored(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=5.0, budget_bytes=2_000))

    assert cache.put("large", "x" * 3_000).outcome == "too_large"
    assert cache.put("small", "x").outcome == "stored"


@pytest.mark.parametrize("wrong", [{"budget_entries": 0}, {"budget_bytes": 1.5}, {"eviction": "fifo"}])
def test_a_budget_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Policy(**wrong)
