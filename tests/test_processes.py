"""Several caches over one store: what one does, the others see."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import redis

from semcache import Hit, Miss, Policy
from semcache.protocols import Position
from semcache.testing import TableEncoder
from semcache.types import Embeddings
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade, within

TABLE = {"apple": [1.0, 0.0], "apples": [0.99, 0.141], "pear": [0.0, 1.0], "pears": [0.141, 0.99]}


@pytest.fixture(params=["sync", "async"])
def make(
    request: pytest.FixtureRequest, loop: Loop, redis_url: str, namespace: str
) -> Iterator[Callable[..., Facade]]:
    opened: list[Facade] = []

    def one(**options: Any) -> Facade:
        options.setdefault("policy", Policy(deadline=5.0))
        cache = open_facade(
            request.param, redis_url, loop, encoder=options.pop("encoder", TableEncoder(TABLE, default=[-1.0, 0.0])),
            matcher=ThresholdMatcher(0.9), namespace=namespace, **options,
        )  # fmt: skip
        opened.append(cache)
        return cache

    yield one
    for cache in opened:
        cache.close()


def test_what_one_process_adds_another_finds_by_meaning(make: Callable[..., Facade]) -> None:
    writer, reader = make(), make()
    assert isinstance(reader.lookup("apples"), Miss)  # its scope is loaded, and empty
    writer.put("apple", "a fruit")

    assert within(30.0, lambda: isinstance(reader.lookup("apples"), Hit))


def test_a_process_that_starts_later_finds_what_is_there(make: Callable[..., Facade]) -> None:
    make().put("apple", "a fruit")

    assert isinstance(make().lookup("apples"), Hit)


def test_a_withdrawal_elsewhere_drops_the_local_copy(make: Callable[..., Facade]) -> None:
    writer, reader = make(), make(policy=Policy(deadline=5.0, local_bound=60.0))
    entry_id = writer.put("apple", "a fruit", tags={"t"}).entry_id
    reader.lookup("apple")
    assert reader.lookup("apple").tier == "local"
    # Until its follower has noted a position, a process relies on the bound alone.
    assert within(30.0, lambda: reader.cache._core.followed is not None)
    writer.invalidate(entry_ids=[entry_id])
    by_name = within(30.0, lambda: isinstance(reader.lookup("apple"), Miss))
    writer.restore(entry_id)
    assert within(30.0, lambda: isinstance(reader.lookup("apple"), Hit))
    reader.lookup("apple")
    writer.invalidate(tags={"t"})

    assert by_name
    assert within(30.0, lambda: isinstance(reader.lookup("apple"), Miss))


def test_without_a_log_a_withdrawn_entry_is_gone_after_the_bound(make: Callable[..., Facade]) -> None:
    writer, reader = make(), make(policy=Policy(deadline=5.0, local_bound=0.3))
    entry_id = writer.put("apple", "a fruit").entry_id
    reader.lookup("apple")
    reader.cache._follower.stop()  # its follower hears nothing any more
    time.sleep(1.2)
    reader.lookup("apple")
    writer.invalidate(entry_ids=[entry_id])
    end = asked = time.monotonic() + 0.3
    while isinstance(reader.lookup("apple"), Hit):
        assert asked <= end  # who asks after the bound doesn't get it
        asked = time.monotonic()
        time.sleep(0.002)


def test_a_flushed_store_is_noticed_and_filled_again(
    make: Callable[..., Facade], redis_url: str, namespace: str
) -> None:
    writer, reader = make(), make()
    writer.put("apple", "a fruit")
    reader.lookup("apples")
    client = redis.Redis.from_url(redis_url)
    for key in client.scan_iter(f"semcache:{namespace}:*"):
        client.delete(key)
    client.close()
    missed = within(
        30.0, lambda: isinstance(reader.lookup("apples"), Miss) and isinstance(reader.lookup("apple"), Miss)
    )
    writer.put("pear", "another fruit")
    found = within(30.0, lambda: isinstance(reader.lookup("pears"), Hit))

    assert missed
    assert found
    assert isinstance(reader.lookup("apple"), Miss)


@pytest.mark.parametrize("first", ["one that was there", "one that starts"])
def test_after_a_flush_all_processes_go_by_one_secret(
    make: Callable[..., Facade], redis_url: str, namespace: str, first: str
) -> None:
    old, idle = make(), make()
    before = old.put("apple", "a fruit").entry_id
    assert isinstance(idle.lookup("apple"), Hit)
    client = redis.Redis.from_url(redis_url)
    for key in client.scan_iter(f"semcache:{namespace}:*"):
        client.delete(key)
    client.close()
    if first == "one that was there":
        assert within(
            30.0, lambda: old.lookup("pear").fence.epoch != "" and isinstance(old.lookup("pear"), Miss)
        )
    new = make()
    stored = new.put("apple", "a fruit, again")
    found = [
        within(30.0, lambda c=cache: (f := c.lookup("apple")) and f.text == "a fruit, again" and f)  # type: ignore[misc]
        for cache in (old, idle)
    ]
    put_back = old.put("pear", "another fruit")

    assert all(found)
    assert new.feedback(found[0].lookup_id, 1, rater="u").action == "recorded"
    assert put_back.outcome == "stored"
    assert new.lookup("pear").entry_id == put_back.entry_id
    assert (stored.entry_id == before) == (first == "one that was there")


def test_an_answer_from_before_a_flush_takes_nothing_from_what_was_stored_after_it(
    make: Callable[..., Facade], redis_url: str, namespace: str
) -> None:
    slow, quick = make(), make()
    before = slow.lookup("apple").fence
    client = redis.Redis.from_url(redis_url)
    client.delete(f"semcache:{namespace}:gens")
    client.close()
    stored = quick.put("apple", "from after")
    late = slow.put("apple", "from before", fence=before)

    assert stored.outcome == "stored"
    assert late.outcome == "old_fence"
    assert quick.lookup("apple").text == "from after"


def test_an_entry_of_another_epoch_is_dead(
    make: Callable[..., Facade], redis_url: str, namespace: str
) -> None:
    cache = make(policy=Policy(deadline=5.0, local_bound=0.0))
    cache.put("apple", "a fruit")
    client = redis.Redis.from_url(redis_url)
    client.delete(f"semcache:{namespace}:gens")  # evicted, or restored from an older file
    client.close()

    assert cache.lookup("apple").reason == "epoch"
    assert cache.put("apple", "a fruit").outcome in ("stored", "replaced")
    assert isinstance(cache.lookup("apple"), Hit)


def test_lost_log_records_are_noticed(make: Callable[..., Facade], redis_url: str, namespace: str) -> None:
    writer, reader = make(), make()
    reader.lookup("apple")
    client = redis.Redis.from_url(redis_url)
    reader.cache._core.followed = reader.cache._core.followed or Position("", 0)
    for number in range(5):
        writer.put(f"prompt {number}", "x")
    within(30.0, lambda: (at := reader.cache._follower._follower.at) and at.sequence == 5)
    client.xadd(f"semcache:{namespace}:log", {"op": "tag"}, id="50-0")  # 6 to 49 were trimmed away
    client.close()

    assert within(30.0, lambda: reader.stats().failures.get("log_gap") == 1)
    writer.put("apple", "a fruit")
    assert within(30.0, lambda: isinstance(reader.lookup("apples"), Hit))


@pytest.mark.parametrize("expiry", [0.5])
def test_an_expired_entry_is_never_served(make: Callable[..., Facade], expiry: float) -> None:
    cache = make(policy=Policy(deadline=5.0, local_bound=60.0))
    took = expiry
    while took >= expiry:  # on a machine that stood still it may have expired before it was read
        started = time.monotonic()
        cache.put("apple", "a fruit", ttl=expiry)
        hits = [cache.lookup("apple"), cache.lookup("apple")]
        took = time.monotonic() - started
    time.sleep(expiry)

    assert all(isinstance(hit, Hit) for hit in hits)
    assert isinstance(cache.lookup("apple"), Miss)
    assert isinstance(cache.lookup("apples"), Miss)


class HeldEncoder(TableEncoder):
    """Embeds when it is let."""

    def __init__(self, *table: Any, **options: Any) -> None:
        super().__init__(*table, **options)
        self.let = threading.Event()

    def encode(self, texts: Sequence[str]) -> Embeddings:
        assert self.let.wait(60)
        return super().encode(texts)


def test_an_embedding_that_came_late_is_attached(make: Callable[..., Facade]) -> None:
    encoder = HeldEncoder(TABLE, default=[-1.0, 0.0])
    writer, reader = make(encoder=encoder, policy=Policy(deadline=0.2)), make()
    writer.cache._core.encoded = True  # it isn't the first one, for which a put would wait
    assert isinstance(reader.lookup("apples"), Miss)
    stored = within(
        30.0, lambda: writer.put("apple", "a fruit")
    )  # writing may be late too, and isn't the subject
    encoder.let.set()

    assert stored.outcome == "stored"
    assert writer.stats().failures["late_embedding"] >= 1
    assert within(30.0, lambda: isinstance(reader.lookup("apples"), Hit))
    assert within(30.0, lambda: isinstance(writer.lookup("apples"), Hit))


def test_an_unreadable_entrys_place_can_be_filled_again(
    make: Callable[..., Facade], redis_url: str, namespace: str
) -> None:
    cache = make(policy=Policy(deadline=5.0, local_bound=0.0))
    cache.put("apple", "a fruit")
    client = redis.Redis.from_url(redis_url)
    (key,) = client.keys(f"semcache:{namespace}:entry:*")
    client.hset(key, "response", b"\x80\x04pickle")
    missed = cache.lookup("apple")
    answer = cache.get_or_compute("apple", lambda request: "a fruit again")
    aside = client.keys(f"semcache:{namespace}:aside:*")
    client.close()

    assert missed.reason == "undecodable"
    assert answer.stored.outcome == "stored"
    assert cache.lookup("apple").text == "a fruit again"
    assert len(aside) == 1


def test_an_answer_without_a_fence_isnt_stored(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=0.0))
    answer = cache.get_or_compute("apple", lambda request: "from the model")

    assert answer.text == "from the model"
    assert answer.stored.outcome in ("deadline", "store_unavailable")
    assert cache.all_entries() == []
