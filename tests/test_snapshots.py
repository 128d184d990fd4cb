"""Starting from a snapshot: what fits is taken over, what doesn't is read anew, and nothing wrong is ever served."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from semcache import CacheRequest, ConfigurationError, Hit, Miss, Policy, SemanticCache
from semcache.core.own import OwnPuts
from semcache.indexes.adaptive import AdaptiveIndex
from semcache.stores.memory import MemoryStore
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade, within

ROOT = Path(__file__).parents[1]
TABLE = {"apple": [1.0, 0.0], "apples": [0.99, 0.141], "pear": [0.0, 1.0], "pears": [0.141, 0.99]}


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(redis_url)
    yield client
    client.close()


@pytest.fixture(params=["sync", "async"])
def make(
    request: pytest.FixtureRequest, loop: Loop, redis_url: str, namespace: str, tmp_path: Path
) -> Iterator[Callable[..., Facade]]:
    opened: list[Facade] = []

    def one(**options: Any) -> Facade:
        options.setdefault("policy", Policy(deadline=5.0))
        options.setdefault("snapshot_dir", tmp_path / "kept")
        cache = open_facade(
            request.param, redis_url, loop, encoder=options.pop("encoder", TableEncoder(TABLE, default=[-1.0, 0.0])),
            matcher=ThresholdMatcher(0.9), namespace=namespace, **options,
        )  # fmt: skip
        opened.append(cache)
        return cache

    yield one
    for cache in opened:
        cache.close()


def fill(cache: Facade) -> None:
    """Store an apple, and have its row in the index, where the follower has come by."""
    assert isinstance(cache.lookup("pears"), Miss)
    cache.put("apple", "a fruit")
    assert isinstance(cache.lookup("apples"), Hit)
    assert within(30.0, lambda: (at := cache.cache._follower._follower.at) and at.sequence >= 1 and at.mark)


def kept(tmp_path: Path) -> Path:
    """Return the only snapshot."""
    (path,) = (tmp_path / "kept").glob("*.snapshot")
    return path


def lose_members(client: redis.Redis, namespace: str) -> None:
    """Take the list away from which an index is read anew: what is found after this came from a snapshot."""
    for key in client.scan_iter(f"semcache:{namespace}:members:*"):
        client.delete(key)


def test_the_next_process_finds_by_meaning_what_the_last_one_had(
    make: Callable[..., Facade], client: redis.Redis, namespace: str
) -> None:
    first = make()
    fill(first)
    first.close()
    lose_members(client, namespace)
    second = make()

    assert isinstance(second.lookup("apples"), Hit)
    assert second.stats().failures == {}


def test_what_was_added_since_is_read_from_the_log_before_anything_is_searched(
    make: Callable[..., Facade], client: redis.Redis, namespace: str
) -> None:
    first = make()
    fill(first)
    first.close()
    other = make(snapshot_dir=None)
    other.put("pear", "another fruit")
    lose_members(client, namespace)
    second = make()

    assert isinstance(second.lookup("pears"), Hit)
    assert isinstance(second.lookup("apples"), Hit)


def test_without_a_folder_nothing_is_written_and_nothing_found(
    make: Callable[..., Facade], client: redis.Redis, namespace: str, tmp_path: Path
) -> None:
    first = make(snapshot_dir=None)
    fill(first)
    first.close()
    lose_members(client, namespace)

    assert isinstance(make(snapshot_dir=None).lookup("apples"), Miss)
    assert not (tmp_path / "kept").exists()


def test_an_embedded_server_keeps_it_in_its_data_folder(tmp_path: Path) -> None:
    def open_one() -> SemanticCache:
        return SemanticCache.open(
            data_dir=tmp_path / "data", encoder=TableEncoder(TABLE), matcher=ThresholdMatcher(0.9),
            policy=Policy(deadline=5.0),
        )  # fmt: skip

    with open_one() as cache:
        fill(Facade(cache, None))
    with open_one() as cache:
        found = cache.lookup("apples")
        failures = cache.stats().failures

    assert [path.suffix for path in (tmp_path / "data" / "snapshots").iterdir()] == [".snapshot"]
    assert isinstance(found, Hit)
    assert failures == {}


def flushed(client: redis.Redis, namespace: str, path: Path) -> None:
    for key in client.scan_iter(f"semcache:{namespace}:*"):
        client.delete(key)


def another_epoch(client: redis.Redis, namespace: str, path: Path) -> None:
    client.delete(f"semcache:{namespace}:gens")


def trimmed(client: redis.Redis, namespace: str, path: Path) -> None:
    client.xadd(f"semcache:{namespace}:log", {"op": "other"}, id="70-0")
    client.xtrim(f"semcache:{namespace}:log", maxlen=1, approximate=False)


def went_back(client: redis.Redis, namespace: str, path: Path) -> None:
    client.delete(f"semcache:{namespace}:log")


def went_back_and_caught_up(client: redis.Redis, namespace: str, path: Path) -> None:
    went_back(client, namespace, path)
    for number in range(1, 10):
        client.xadd(f"semcache:{namespace}:log", {"op": "other", "at": "1"}, id=f"{number}-0")


def cut(client: redis.Redis, namespace: str, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def damaged(client: redis.Redis, namespace: str, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def emptied(client: redis.Redis, namespace: str, path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "happening",
    [flushed, another_epoch, trimmed, went_back, went_back_and_caught_up, cut, damaged, emptied],
    ids=lambda happening: happening.__name__,
)
def test_a_snapshot_that_doesnt_fit_is_refused_and_everything_read_anew(
    make: Callable[..., Facade],
    client: redis.Redis,
    namespace: str,
    tmp_path: Path,
    happening: Callable[[redis.Redis, str, Path], None],
) -> None:
    first = make()
    fill(first)
    first.close()
    happening(client, namespace, kept(tmp_path))
    other = make(snapshot_dir=None)
    other.put("pear", "another fruit")
    second = make()
    found = second.lookup("pears")
    old = second.lookup("apples")
    failures = second.stats().failures

    assert isinstance(found, Hit)
    assert found.text == "another fruit"
    assert isinstance(old, Miss) == (happening in (flushed, another_epoch))
    assert failures["snapshot"] == 1
    second.close()
    third = make()
    assert isinstance(third.lookup("pears"), Hit)  # the next snapshot fits
    assert "snapshot" not in third.stats().failures


def test_another_encoders_snapshot_is_refused_even_under_the_name_of_this_ones(
    make: Callable[..., Facade], tmp_path: Path
) -> None:
    first = make()
    fill(first)
    first.close()
    path = kept(tmp_path)
    turned = TableEncoder({"apple": [0.0, 1.0], "pears": [0.0, 1.0]}, default=[-1.0, 0.0], name="turned")
    path.rename(path.with_name(path.name.replace("table-2-l2", turned.fingerprint)))
    second = make(encoder=turned)

    assert isinstance(second.lookup("pears"), Miss)  # its embedding is that of the row that would be there
    assert second.stats().failures["snapshot"] == 1


def test_a_process_that_read_rows_itself_doesnt_take_the_snapshot_as_well(
    make: Callable[..., Facade], client: redis.Redis, namespace: str
) -> None:
    first = make()
    fill(first)
    first.close()
    second = make()
    core = second.cache._core
    core.starting = None  # as if the store had been away when the follower looked
    core.loaded["elsewhere"] = 1

    assert isinstance(second.lookup("apples"), Hit)
    assert within(30.0, lambda: core.followed is not None)
    assert "elsewhere" in core.loaded


def test_a_folder_that_cant_be_written_is_counted_and_closing_goes_on(
    make: Callable[..., Facade], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    cache = make(snapshot_dir=tmp_path / "file" / "below")
    fill(cache)
    cache.close()

    assert cache.cache._core.metrics.counts("failures") == {"snapshot_write": 1}


def test_a_folder_that_is_none_is_refused(make: Callable[..., Facade], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="no folder"):
        make(snapshot_dir=tmp_path / "file")
    with pytest.raises(ConfigurationError, match="background"):
        SemanticCache(store=MemoryStore(), encoder=TableEncoder(TABLE), snapshot_dir=tmp_path)


def test_a_process_that_changed_little_leaves_the_snapshot_as_it_is(
    make: Callable[..., Facade], tmp_path: Path
) -> None:
    first = make()
    fill(first)
    for number in range(300):
        first.put(f"prompt {number}", "x")
    assert within(30.0, lambda: first.cache._follower._follower.at.sequence == 301)
    first.close()
    written = kept(tmp_path).stat()
    second = make()
    assert isinstance(second.lookup("apples"), Hit)
    second.lookup(CacheRequest("apples", tenant="another"))  # one more scope, with nothing in it
    second.put("pear", "another fruit")
    assert within(30.0, lambda: second.cache._follower._follower.at.sequence == 302)
    second.close()
    unchanged = kept(tmp_path).stat()
    third = make()
    for number in range(300, 310):
        third.put(f"prompt {number}", "x")
    assert isinstance(third.lookup("pears"), Hit)
    assert within(30.0, lambda: third.cache._follower._follower.at.sequence == 312)
    third.close()

    assert unchanged.st_ino == written.st_ino
    assert kept(tmp_path).stat().st_ino != written.st_ino


def test_a_snapshot_is_written_from_time_to_time(make: Callable[..., Facade], tmp_path: Path) -> None:
    cache = make(policy=Policy(deadline=5.0, snapshot_every=0.2))
    fill(cache)

    assert within(30.0, lambda: list((tmp_path / "kept").glob("*.snapshot")))


class LettingGo(AdaptiveIndex):
    """Something happens while it writes its snapshot, after the rows were read."""

    happens: Callable[[LettingGo], None]

    def snapshot(self, path: Any, meta: Any) -> None:
        def late() -> Any:
            self.happens()  # type: ignore[call-arg]
            return meta()

        super().snapshot(path, late)


def test_what_leaves_the_index_while_it_is_written_isnt_taken_for_whole(redis_url: str, namespace: str, tmp_path: Path) -> None:  # fmt: skip
    with SemanticCache.open(
        redis_url, encoder=TableEncoder(TABLE, default=[-1.0, 0.0]), matcher=ThresholdMatcher(0.9),
        namespace=namespace, policy=Policy(deadline=5.0), snapshot_dir=tmp_path,
    ) as cache:  # fmt: skip
        core = cache._core
        index = core.index = LettingGo(2, on_drop=core.scope_dropped)
        fill(Facade(cache, None))
        (scope,) = index.scopes()
        path = core.snapshots.path(core.fingerprint)  # type: ignore[union-attr]
        follower = cache._follower
        assert follower is not None
        index.happens = lambda: None  # type: ignore[misc, assignment]
        follower.keep()
        whole = AdaptiveIndex(2).restore(path)
        cache.put("pear", "another fruit")
        assert within(30.0, lambda: follower._follower.at.sequence == 2)  # type: ignore[union-attr]
        index.happens = lambda: core.scope_dropped(scope)  # type: ignore[misc, assignment]
        follower.keep()
        dropped = AdaptiveIndex(2).restore(path)
        assert isinstance(cache.lookup("pears"), Hit)
        cache.put("pear", "yet another fruit")
        assert within(30.0, lambda: follower._follower.at.sequence == 3)  # type: ignore[union-attr]
        index.happens = core.forget  # type: ignore[misc, assignment]
        follower.keep()

        assert whole is not None
        assert whole["whole"] == [scope]
        assert dropped is not None
        assert scope not in dropped["whole"]
        assert AdaptiveIndex(2).restore(path) == dropped  # the last one wasn't written


WRITER = """
import sys
from semcache import CacheRequest, Policy, SemanticCache
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
import numpy as np

url, namespace, folder = sys.argv[1:]
rows = np.random.default_rng(0).normal(size=(3000, 64)).astype("float32")
cache = SemanticCache.open(
    url, namespace=namespace, encoder=TableEncoder({"apple": rows[0].tolist(), "apples": rows[0].tolist()}),
    matcher=ThresholdMatcher(0.9), policy=Policy(deadline=5.0), snapshot_dir=folder,
)
cache.lookup("apples")
cache.put("apple", "a fruit")
core, scope = cache._core, next(iter(cache._core.loaded))
rows /= np.linalg.norm(rows, axis=1, keepdims=True)
core.index.add(scope, [f"m/v/{i:032x}" for i in range(3000)], rows, [None] * 3000)
while (at := cache._follower._follower.at) is None or not at.mark:
    pass
print("ready", flush=True)
while True:
    core.snapshots._written = None
    assert core.snapshots.write(core, at)
    print("written", flush=True)
"""


def test_killed_in_the_middle_of_writing_a_whole_snapshot_or_none_is_left(
    redis_url: str, namespace: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    folder = tmp_path / "kept"
    first = {"apple": np.random.default_rng(0).normal(size=(3000, 64)).astype("float32")[0].tolist()}
    taken = 0
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, redis_url, namespace, str(folder)], stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert process.stdout.readline() == b"written\n"
        time.sleep(chance.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()
        with SemanticCache.open(
            redis_url, namespace=namespace, encoder=TableEncoder(first | {"apples": first["apple"]}),
            matcher=ThresholdMatcher(0.9), policy=Policy(deadline=5.0), snapshot_dir=folder,
        ) as cache:  # fmt: skip
            assert isinstance(cache.lookup("apples"), Hit)
            taken += cache.stats().rows >= 3000
            assert "snapshot" not in cache.stats().failures

    assert taken == 6


def test_when_memory_is_full_idle_scopes_leave_and_are_read_anew(make: Callable[..., Facade]) -> None:
    bound = 40_000
    cache = make(policy=Policy(deadline=5.0, max_index_bytes=bound, local_bound=0.0), snapshot_dir=None)
    tenants = [f"tenant {number}" for number in range(300)]
    for tenant in tenants:
        cache.lookup(CacheRequest("apples", tenant=tenant))
        cache.put(CacheRequest("apple", tenant=tenant), tenant)
    full = cache.stats()
    found = [cache.lookup(CacheRequest("apples", tenant=tenant)) for tenant in tenants]

    assert full.scopes_dropped > 0
    assert full.scopes < len(tenants)
    assert full.index_bytes <= bound
    assert [one.text for one in found] == tenants


def test_a_put_that_is_given_up_leaves_no_row_missing() -> None:
    own = OwnPuts()
    passed = own.begin("a")
    assert own.passes("a")
    assert own.end(passed, added=False)  # the log told of it, and nobody added it
    unseen = own.begin("a")

    assert not own.end(unseen, added=False)
    assert not own.passes("a")  # now the log's record is for the follower to add


def test_puts_under_way_are_waited_for() -> None:
    own = OwnPuts()
    ticket = own.begin("a")
    assert not own.settle(0.01)
    done = threading.Timer(0.05, lambda: own.end(ticket, added=True))
    done.start()

    assert own.settle(5.0)
    done.join()
    own.begin("b")
    assert own.passes("a")


def test_a_snapshot_holds_no_prompt_and_no_answer(make: Callable[..., Facade], tmp_path: Path) -> None:
    cache = make()
    fill(cache)
    cache.put("pear", "SECRETANSWER")
    assert isinstance(cache.lookup("pears"), Hit)
    cache.close()
    content = kept(tmp_path).read_bytes()

    assert b"SECRETANSWER" not in content
    assert b"pear" not in content
    assert b"table-2-l2" in content


async def test_the_service_keeps_its_index_where_it_is_told_to(
    redis_url: str, namespace: str, tmp_path: Path
) -> None:
    from semcache.server.app import open_cache
    from semcache.server.settings import load_settings

    environment = {
        "SEMCACHE_UPSTREAM": "http://127.0.0.1:1/v1", "SEMCACHE_REDIS": redis_url, "SEMCACHE_NAMESPACE": namespace,
        "SEMCACHE_SNAPSHOT_DIR": str(tmp_path),
    }  # fmt: skip
    cache = await open_cache(load_settings(None, environment=environment))
    await cache.lookup("How do I reset my password?")
    await cache.put("How do I reset my password?", "Open Settings.")
    assert within(30.0, lambda: (at := cache._follower._follower.at) and at.mark)  # type: ignore[union-attr]
    await cache.close()

    assert [path.suffix for path in tmp_path.iterdir()] == [".snapshot"]
