"""What many callers, forked processes and namespaces of one server share, and what they mustn't."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from semcache import AsyncSemanticCache, CacheRequest, Hit, Miss, Policy, SemanticCache
from semcache.testing import HashEncoder, TableEncoder
from semcache.types import Embeddings
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade

ROOT = Path(__file__).parents[2]
TABLE = {"apple": [1.0, 0.0], "apples": [0.99, 0.141]}


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest, loop: Loop, redis_url: str) -> Iterator[Callable[..., Facade]]:
    opened: list[Facade] = []

    def one(namespace: str, **options: Any) -> Facade:
        options.setdefault("encoder", TableEncoder(TABLE, default=[-1.0, 0.0]))
        cache = open_facade(
            request.param, redis_url, loop, matcher=ThresholdMatcher(0.9), namespace=namespace, **options
        )
        opened.append(cache)
        return cache

    yield one
    for cache in opened:
        cache.close()


def test_two_namespaces_of_one_server_never_meet(make: Callable[..., Facade], namespace: str) -> None:
    one, other = make(namespace), make(namespace + "-2")
    stored = one.put("apple", "of the first", tags={"t"})
    missed = [other.lookup("apple"), other.lookup("apples")]
    other.put("apple", "of the second", tags={"t"})
    other.invalidate(everything=True)
    other.invalidate(tags={"t"})

    assert all(isinstance(found, Miss) for found in missed)
    assert one.lookup("apple").text == "of the first"
    assert one.lookup("apples").text == "of the first"
    assert [entry.entry_id for entry in one.all_entries()] == [stored.entry_id]
    assert other.lookup("apple").reason == "stale_tag"


class Wavering(HashEncoder):
    """Gives the same text slightly other floats in batches of another size, as matrix products do."""

    def encode(self, texts: Sequence[str]) -> Embeddings:
        rows = super().encode(texts)
        rows[:, 0] += 1e-4 * len(texts)
        unit: Embeddings = rows / (rows**2).sum(axis=1, keepdims=True) ** 0.5
        return unit


def test_the_same_text_is_found_by_its_text_whatever_its_floats_are(
    make: Callable[..., Facade], namespace: str
) -> None:
    cache = make(namespace, encoder=Wavering(8), policy=Policy(deadline=5.0, local_bound=0.0, threshold=1.0))
    cache.put("apple", "a fruit")
    found = cache.lookup(CacheRequest("apple", threshold=1.0))

    assert (found.match, found.similarity) == ("exact", 1.0)


def test_a_hundred_callers_of_two_connections_wait_or_miss_and_none_fails(
    redis_url: str, namespace: str
) -> None:
    client = redis.Redis.from_url(redis_url, max_connections=2)
    with SemanticCache.open(
        client, encoder=HashEncoder(), namespace=namespace, policy=Policy(deadline=5.0, local_bound=0.0, sweep_every=0.0)
    ) as cache:  # fmt: skip
        cache.put("apple", "a fruit")
        with ThreadPoolExecutor(100) as pool:
            found = list(pool.map(lambda _: cache.lookup("apple"), range(100)))
            answers = list(
                pool.map(lambda n: cache.get_or_compute(f"q {n}", lambda r: "from the model"), range(100))
            )
    client.close()

    assert {one.text for one in found if isinstance(one, Hit)} == {"a fruit"}
    assert {one.reason for one in found if isinstance(one, Miss)} <= {"store_busy", "store_unavailable", "breaker_open", "deadline"}  # fmt: skip
    assert [answer.text for answer in answers] == ["from the model"] * 100


async def test_a_hundred_tasks_of_two_connections_wait_or_miss_and_none_fails(
    redis_url: str, namespace: str
) -> None:
    client = redis.asyncio.Redis.from_url(redis_url, max_connections=2)
    cache = await AsyncSemanticCache.open(
        client, encoder=HashEncoder(), namespace=namespace, policy=Policy(deadline=5.0, local_bound=0.0, sweep_every=0.0)
    )  # fmt: skip
    await cache.put("apple", "a fruit")
    found = await asyncio.gather(*(cache.lookup("apple") for _ in range(100)))
    answers = await asyncio.gather(
        *(cache.get_or_compute(f"q {n}", lambda r: "from the model") for n in range(100))
    )
    await cache.close()
    await client.aclose()

    assert {one.text for one in found if isinstance(one, Hit)} == {"a fruit"}
    assert {one.reason for one in found if isinstance(one, Miss)} <= {"store_busy", "store_unavailable", "breaker_open", "deadline"}  # fmt: skip
    assert [answer.text for answer in answers] == ["from the model"] * 100


FORKING = """
import os, sys, time
from semcache import Hit, Policy, SemanticCache

url, namespace, folder = sys.argv[1:]
cache = SemanticCache.open(url, namespace=namespace, policy=Policy(deadline=10.0), snapshot_dir=folder)
cache.put("How do I reset my password?", "Open Settings.")
assert isinstance(cache.lookup("How can I reset my password?"), Hit)  # the model is loaded, the follower is there
children = []
for number in range(2):
    child = os.fork()
    if child == 0:
        found = cache.lookup("How can I reset my password?")
        assert isinstance(found, Hit) and found.text == "Open Settings.", found
        assert cache.put(f"How do I close account {number}?", str(number)).outcome == "stored"
        # The brother's answer comes by the change log, to whom its follower reads it.
        end = time.monotonic() + 20.0
        while not cache.lookup(f"How do I close account {1 - number}?") and time.monotonic() < end:
            time.sleep(0.05)
        assert cache.lookup(f"How do I close account {1 - number}?").text == str(1 - number)
        assert cache.stats().failures == {}, cache.stats().failures
        cache.close()
        os._exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert isinstance(cache.lookup("How can I reset my password?"), Hit)
cache.close()
print(codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_cache_of_a_master_works_in_its_forked_workers_and_on_in_the_master(
    redis_url: str, namespace: str, tmp_path: Path
) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, redis_url, namespace, str(tmp_path)],
        capture_output=True, text=True, timeout=110, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert done.stdout == "[0, 0]\n", done.stderr
    assert done.stderr == ""
    assert time.monotonic() - started < 100.0


def test_a_sweep_takes_expired_entries_off_the_lists_of_scopes(
    make: Callable[..., Facade], redis_url: str, namespace: str
) -> None:
    cache = make(namespace, policy=Policy(deadline=5.0, sweep_every=0.0))
    cache.put("apple", "a fruit", ttl=60.0)
    client = redis.Redis.from_url(redis_url)
    (members,) = client.scan_iter(f"semcache:{namespace}:members:*")
    (name,) = client.zrange(members, 0, -1)
    client.zadd(members, {name: time.time() - 100.0})  # long ago
    swept = cache.sweep()
    left = client.exists(members)
    client.close()

    assert swept.members == 1
    assert not left
