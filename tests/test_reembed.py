"""After a change of encoder stored prompts are embedded again: once, resumably, and never confused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from semcache import CacheRequest, ConfigurationError, Hit, Miss, Policy, SemanticCache
from semcache.codec import encode_embedding
from semcache.keys import Keys
from semcache.protocols import Embedded, Reembedding
from semcache.reembed import Reembedder
from semcache.stores.connections import connect
from semcache.stores.memory import MemoryStore
from semcache.stores.redis import RedisStore
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade, within

ROOT = Path(__file__).parents[1]
OLD = {"apple": [1.0, 0.0], "apples": [0.99, 0.141], "pear": [0.0, 1.0], "pears": [0.141, 0.99]}
NEW = {
    "apple": [0.0, 1.0],
    "apples": [0.141, 0.99],
    "pear": [1.0, 0.0],
    "pears": [0.99, 0.141],
}  # the other way round


def old_encoder() -> TableEncoder:
    return TableEncoder(OLD, default=[-1.0, 0.0], name="old")


def new_encoder() -> TableEncoder:
    return TableEncoder(NEW, default=[-1.0, 0.0], name="new")


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(redis_url)
    yield client
    client.close()


@pytest.fixture(params=["sync", "async"])
def make(
    request: pytest.FixtureRequest, loop: Loop, redis_url: str, namespace: str
) -> Iterator[Callable[..., Facade]]:
    opened: list[Facade] = []

    def one(encoder: TableEncoder, **policy: Any) -> Facade:
        cache = open_facade(
            request.param, redis_url, loop, encoder=encoder, matcher=ThresholdMatcher(0.9), namespace=namespace,
            policy=Policy(**{"deadline": 5.0, **policy}),
        )  # fmt: skip
        opened.append(cache)
        return cache

    yield one
    for cache in opened:
        cache.close()


def look_now(cache: Facade) -> None:
    """Have the follower look for entries of other encoders at its next turn."""
    cache.cache._follower._next_look = 0.0


def text_of(found: Any) -> str | None:
    return found.text if isinstance(found, Hit) and found.match == "semantic" else None


def test_semantic_hits_come_back_without_new_puts(make: Callable[..., Facade]) -> None:
    before = make(old_encoder())
    before.put("apple", "about apples")
    before.put("pear", "about pears")
    after = make(new_encoder())

    assert within(30.0, lambda: text_of(after.lookup("apples")) == "about apples")
    assert within(30.0, lambda: text_of(after.lookup("pears")) == "about pears")
    assert text_of(before.lookup("apples")) == "about apples"  # who still has the old one finds as before
    assert text_of(make(old_encoder()).lookup("pears")) == "about pears"
    assert within(30.0, lambda: (p := after.stats().reembedding) and p.finished and p.done == 2)


def test_embeddings_of_two_encoders_of_one_length_are_never_compared(make: Callable[..., Facade]) -> None:
    before, after = make(old_encoder(), reembed_rate=0.0), make(new_encoder(), reembed_rate=0.0)
    before.put("apple", "about apples")
    after.put("pear", "about pears")  # both rows are [1, 0]

    assert isinstance(after.lookup("apples"), Miss)
    assert isinstance(before.lookup("pears"), Miss)
    assert text_of(before.lookup("apples")) == "about apples"
    after.put("apple", "from the new one")  # the entry has the new embedding alone, and the old list names it
    fresh = make(old_encoder(), reembed_rate=0.0)
    assert isinstance(fresh.lookup("pears"), Miss)
    assert isinstance(fresh.lookup("apples"), Miss)


def test_what_matched_exactly_only_stays_so(
    make: Callable[..., Facade], client: redis.Redis, namespace: str
) -> None:
    before = make(old_encoder(), max_unknown_share=0.2)
    before.put("apple", "about apples")
    before.put(CacheRequest("pear", params={"seed": 7}), "exact only")
    long = TableEncoder(NEW, default=[-1.0, 0.0], name="new", over_window=["apple"])
    after = make(long)
    done = after.reembed()
    while not done.leader:
        done = after.reembed()
    fields = {
        client.hget(key, "prompt"): client.hkeys(key)
        for key in client.scan_iter(f"semcache:{namespace}:entry:*")
    }

    assert isinstance(after.lookup("apples"), Miss)
    assert not any(name.startswith(b"embedding:") for names in fields.values() for name in names)
    assert done.finished is not None


def test_two_processes_share_the_work(make: Callable[..., Facade]) -> None:
    before = make(old_encoder())
    for number in range(100):
        before.put(f"prompt {number}", "x")
    one, other = new_encoder(), new_encoder()
    first, second = make(one, reembed_rate=100_000.0), make(other, reembed_rate=100_000.0)
    first.lookup("prompt 0")
    second.lookup("prompt 0")

    assert within(
        20.0,
        lambda: (
            look_now(first)
            or look_now(second)
            or ((p := second.stats().reembedding) and p.finished and p.done == 100)
        ),
    )
    texts = [text for encoder in (one, other) for batch in encoder.batches for text in batch]
    assert sum(text.startswith("prompt") for text in texts) == 100


def test_what_an_older_process_puts_later_is_embedded_too(make: Callable[..., Facade]) -> None:
    before, after = make(old_encoder()), make(new_encoder())
    assert isinstance(after.lookup("apples"), Miss)
    assert within(30.0, lambda: (p := after.stats().reembedding) and p.finished)
    before.put("apple", "about apples")
    assert within(30.0, lambda: after.cache._core.foreign)
    look_now(after)

    assert within(30.0, lambda: text_of(after.lookup("apples")) == "about apples")


HALF = """
import sys
from semcache import Policy, SemanticCache
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher

cache = SemanticCache.open(
    sys.argv[1], namespace=sys.argv[2], encoder=TableEncoder({"apple": [0.0, 1.0]}, default=[-1.0, 0.0], name="new"),
    matcher=ThresholdMatcher(0.9), policy=Policy(deadline=5.0, reembed_rate=0.0),
)
cache.reembed(rate=60.0, watch=lambda progress: print(progress.done, flush=True))
"""


def test_killed_half_way_another_process_goes_on_where_it_was(
    make: Callable[..., Facade], client: redis.Redis, redis_url: str, namespace: str
) -> None:
    before = make(old_encoder())
    before.put("apple", "about apples")
    for number in range(150):
        before.put(f"prompt {number}", "x")
    process = subprocess.Popen(
        [sys.executable, "-c", HALF, redis_url, namespace], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(3):
        done = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()
    leases = list(client.scan_iter(f"semcache:{namespace}:leader:reembed*"))
    held = make(new_encoder(), reembed_rate=0.0).reembed()
    client.delete(*leases)  # it would expire
    after = make(new_encoder(), reembed_rate=0.0)
    rest = after.reembed()

    assert 0 < done < 151
    assert len(leases) == 1
    assert not held.leader
    assert rest.leader
    assert 0 < rest.done <= 151 - done
    assert text_of(after.lookup("apples")) == "about apples"
    assert after.reembed().done == 0


def test_a_cache_that_closes_amid_its_work_leaves_the_lease_to_others(
    make: Callable[..., Facade], client: redis.Redis, namespace: str
) -> None:
    before = make(old_encoder(), reembed_rate=0.0)
    for word in ("apple", "pear", "plum", "fig"):
        before.put(word, f"about {word}s")
    after = make(new_encoder(), reembed_rate=0.5)  # waits for seconds after each batch
    assert isinstance(after.lookup("cherries"), Miss)  # its follower is there
    assert within(30.0, lambda: client.exists(Keys(namespace).named("leader", "reembed:new-2-l2")) == 1)
    after.close()

    assert client.exists(Keys(namespace).named("leader", "reembed:new-2-l2")) == 0
    assert make(new_encoder(), reembed_rate=0.0).reembed().leader


def test_encoders_that_nobody_uses_leave_nothing_behind(
    make: Callable[..., Facade], client: redis.Redis, namespace: str
) -> None:
    before = make(old_encoder())
    before.put("apple", "about apples")
    assert isinstance(before.lookup("pears"), Miss)  # its follower is there
    assert within(30.0, lambda: client.zcard(Keys(namespace).encoders) == 1)
    before.close()
    after = make(new_encoder(), encoder_ttl=0.0, reembed_rate=0.0)
    follower_of = after.cache._core
    assert isinstance(after.lookup("pears"), Miss)
    assert after.reembed().done == 1
    tidied = Reembedder(follower_of, after.cache._background, stop=threading.Event()).tidy()
    (entry,) = client.scan_iter(f"semcache:{namespace}:entry:*")

    assert tidied == 1
    assert not client.hexists(entry, "embedding")
    assert [key for key in client.scan_iter(f"semcache:{namespace}:members:*") if b"old" in key] == []
    assert text_of(after.lookup("apples")) == "about apples"
    back = make(old_encoder(), reembed_rate=0.0)  # somebody goes back
    assert isinstance(back.lookup("apples"), Miss)
    assert back.reembed().done == 1
    assert within(30.0, lambda: text_of(back.lookup("apples")) == "about apples")
    assert client.hexists(entry, "embedding")


class Clock:
    """Time that passes only where somebody waits, or encodes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return False

    def is_set(self) -> bool:
        return False


def test_it_keeps_to_its_rate() -> None:
    store, clock = MemoryStore(), Clock()
    # However busy the machine is, all prompts are stored with their embeddings.
    patient = Policy(deadline=30.0)
    with SemanticCache(
        store=store, encoder=old_encoder(), matcher=ThresholdMatcher(0.9), policy=patient
    ) as before:
        for number in range(100):
            before.put(f"prompt {number}", "x")
    with SemanticCache(
        store=store, encoder=new_encoder(), matcher=ThresholdMatcher(0.9), policy=patient
    ) as after:
        after.lookup("apple")
        work = Reembedder(after._core, store, stop=clock, clock=clock)  # type: ignore[arg-type]
        seen: list[Reembedding] = []
        done = work.run(rate=20.0, watch=seen.append)

    assert done.done == 100
    assert clock.now == pytest.approx(100 / 20.0)
    assert [progress.done for progress in seen] == [16, 32, 48, 64, 80, 96, 100, 100]
    assert {progress.total for progress in seen} == {100}
    assert done.leader
    assert done.finished is not None


def test_a_rate_of_nothing_and_a_cache_without_background_are_refused() -> None:
    with SemanticCache(store=MemoryStore(), encoder=old_encoder(), matcher=ThresholdMatcher(0.9)) as cache:
        with pytest.raises(ConfigurationError, match="rate"):
            cache.reembed(rate=0.0)
        with pytest.raises(ConfigurationError, match="background"):
            cache.reembed()


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_stores_keep_an_embedding_for_each_encoder(kind: str, redis_url: str, namespace: str) -> None:
    store: Any = MemoryStore() if kind == "memory" else RedisStore(connect(redis_url, 5.0), namespace)
    with SemanticCache(
        store=store, encoder=old_encoder(), matcher=ThresholdMatcher(0.9), namespace=namespace,
        policy=Policy(deadline=5.0),
    ) as cache:  # fmt: skip
        entry_id = cache.put("apple", "x", ttl=60.0).entry_id
        cache.put("pear", "y")
        gone = cache.put("plum", "z").entry_id
        cache.invalidate(entry_ids=[gone])
        (own,) = store.embeddings([entry_id], "old-2-l2", timeout=30.0)
        (found,) = store.foreign([entry_id], "other", timeout=30.0)
        more = encode_embedding(new_encoder().encode(["apple"])[0])
        stale = store.embed([Embedded(entry_id, 1, found.scope, more)], "other", timeout=30.0)
        done = store.embed([Embedded(entry_id, found.revision, found.scope, more)], "other", timeout=30.0)
        members = store.members(found.scope, "other", timeout=30.0)
        left = [one.prompt for batch in store.scan_foreign("other") for one in batch]
        both = [store.embeddings([entry_id], name, timeout=30.0) for name in ("old-2-l2", "other", "third")]
        dropped = store.forget_encoders(["other"], timeout=30.0)
        after = [store.embeddings([entry_id], name, timeout=30.0) for name in ("old-2-l2", "other")]

        assert (found.prompt, stale, done) == ("apple", 0, 1)
        assert [name for name, _ in members] == [entry_id]
        assert members[0][1] == pytest.approx(time.time() + 60.0, abs=5.0)
        assert left == ["pear"]
        assert both == [[own], [more], [None]]
        assert dropped == 1
        assert after == [[own], [None]]
        assert store.foreign([entry_id], "old-2-l2", timeout=30.0) == []
        assert store.foreign([gone, "m/v/" + "0" * 32], "other", timeout=30.0) == []


def test_the_command_embeds_again(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    options: dict[str, Any] = {"matcher": ThresholdMatcher(0.9), "policy": Policy(deadline=30.0)}
    with SemanticCache.open(data_dir=folder, encoder=old_encoder(), **options) as cache:
        cache.put("apple", "about apples")
    command = [sys.executable, "-m", "semcache.cli", "reembed", "--data-dir", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    first = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True, env=environment)
    again = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)

    assert json.loads(first.stdout)["done"] == 1
    assert again.stdout.startswith("0 prompts embedded with ")
    assert first.stderr == again.stderr == ""
