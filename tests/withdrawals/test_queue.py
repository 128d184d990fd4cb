"""The regeneration queue holds an entry once, and what lookups find stale gets there by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from semcache import CacheRequest, Hit, Miss, Policy, SemanticCache
from semcache.protocols import Refresh
from semcache.refresh import refresh
from semcache.stores import plans
from semcache.testing import TableEncoder
from tests.facade import Facade


def taken(cache: Facade, patience: float = 30.0) -> list[Refresh]:
    """Wait for work: the follower puts it there."""
    until = time.monotonic() + patience
    while not (found := cache.take_refreshes("w")) and time.monotonic() < until:
        time.sleep(0.01)
    return list(found)


def test_an_entry_is_queued_once(cache: Facade) -> None:
    entry_id = cache.put("apple", "x").entry_id
    added = [cache.queue_refresh([entry_id, entry_id]), cache.queue_refresh([entry_id], why="again")]
    works = cache.take_refreshes("w")
    cache.finish_refreshes(works)

    assert added == [1, 0]
    assert [(work.entry_id, work.why) for work in works] == [(entry_id, "asked")]
    assert cache.take_refreshes("w", idle=0.0) == []
    assert cache.queue_refresh([entry_id]) == 1


def test_an_unknown_entry_isnt_queued(cache: Facade) -> None:
    entry_id = cache.put("apple", "x").entry_id

    assert cache.queue_refresh(["m/v/" + "0" * 32]) == 0
    assert cache.queue_refresh(["m/v/" + "0" * 32, entry_id]) == 1
    assert cache.queue_refresh([]) == 0
    assert [work.entry_id for work in cache.take_refreshes("w")] == [entry_id]


def test_a_full_queue_takes_no_more(cache: Facade, monkeypatch: pytest.MonkeyPatch) -> None:
    from semcache.stores import memory

    for module in (plans, memory):
        monkeypatch.setattr(module, "MAX_QUEUED", 2)
    ids = [cache.put(prompt, "x").entry_id for prompt in ("a", "b", "c")]
    full = cache.queue_refresh(ids)
    cache.finish_refreshes(cache.take_refreshes("w", count=1))

    assert full == 2
    assert cache.queue_refresh(ids) == 1


def test_what_is_withdrawn_while_it_is_answered_again_is_answered_once_more(cache: Facade) -> None:
    entry_id = cache.put("apple", "x").entry_id
    cache.invalidate(entry_ids=[entry_id])
    works = taken(cache)
    cache.put("apple", "new, and wrong again")
    cache.invalidate(entry_ids=[entry_id])
    cache.finish_refreshes(works)
    again = taken(cache)
    cache.finish_refreshes(again)

    assert [work.why for work in (*works, *again)] == ["invalidated", "again"]
    assert cache.take_refreshes("w", idle=0.0) == []


def test_a_rejected_and_a_withdrawn_answer_are_queued_by_themselves(cache: Facade) -> None:
    rejected, named = cache.put("apple", "x").entry_id, cache.put("pear", "y").entry_id
    for number in range(3):
        cache.feedback(cache.lookup("apple").lookup_id, -1, rater=str(number), about="answer")
    cache.invalidate(entry_ids=[named, "m/v/" + "0" * 32])
    works = cache.take_refreshes("w")

    assert [(work.entry_id, work.why) for work in works] == [(rejected, "feedback"), (named, "invalidated")]


def test_what_a_lookup_finds_stale_by_its_tag_is_queued_once(cache: Facade) -> None:
    entry_id = cache.put("apple", "x", tags={"t"}).entry_id
    cache.put("pear", "y", tags={"t"})
    cache.invalidate(tags={"t"})
    explained = cache.explain("apple").decision.reason
    missed = [cache.lookup("apple").reason for _ in range(5)]
    works = taken(cache)
    (entry,) = cache.get([entry_id])

    assert {explained, *missed} == {"stale_tag"}
    assert [(work.entry_id, work.why, work.revision) for work in works] == [
        (entry_id, "stale_tag", entry.revision)
    ], "what nobody asked for isn't queued"


@pytest.mark.parametrize("selector", [{"model": "m"}, {"everything": True}, {"tenant": "acme"}], ids=str)
def test_what_a_whole_model_or_tenant_lost_isnt_wanted_back(cache: Facade, selector: dict[str, Any]) -> None:
    request = CacheRequest("apple", model="m", tenant="acme")
    cache.put(request, "x", tags={"t"})
    cache.invalidate(**selector)
    cache.invalidate(tags={"t"})

    assert cache.lookup(request).reason == "stale_tag"
    assert len(cache.cache._core.stale) == 0


def test_what_is_served_stale_is_queued(make: Callable[..., Facade]) -> None:
    cache = make(policy=Policy(deadline=5.0, stale_while_revalidate=60.0))
    entry_id = cache.put("apple", "x", ttl=0.02).entry_id
    time.sleep(0.03)
    served = cache.lookup("apple")
    (work,) = taken(cache)

    assert isinstance(served, Hit)
    assert served.stale
    assert (work.entry_id, work.why) == (entry_id, "expired")


def test_an_answer_put_since_it_was_found_stale_is_left_alone(redis_url: str, namespace: str) -> None:
    """The caller who met the stale entry asks the model herself; the ticket comes later than her put."""
    encoder = TableEncoder({}, default=[1.0, 0.0])
    policy = Policy(deadline=5.0)
    with SemanticCache.open(redis_url, encoder=encoder, namespace=namespace, policy=policy) as cache:
        cache.put("apple", "x", tags={"t"})
        cache.invalidate(tags={"t"})
        answer = cache.get_or_compute("apple", lambda request: "new", tags={"t"})
        until = time.monotonic() + 30.0
        while (
            not (done := refresh(cache, lambda request: pytest.fail("called"))) and time.monotonic() < until
        ):
            time.sleep(0.01)

        assert not answer.hit
        assert [one.outcome for one in done] == ["live"]
        assert cache.lookup("apple").text == "new"  # type: ignore[union-attr]


def test_a_stale_answer_is_regenerated_with_its_tags(redis_url: str, namespace: str) -> None:
    encoder = TableEncoder({}, default=[1.0, 0.0])
    policy = Policy(deadline=5.0)
    with SemanticCache.open(redis_url, encoder=encoder, namespace=namespace, policy=policy) as cache:
        cache.put("apple", "autumn", tags={"season:autumn"})
        cache.invalidate(tags={"season:autumn"})
        assert isinstance(cache.lookup("apple"), Miss)
        until = time.monotonic() + 30.0
        while not (done := refresh(cache, lambda request: "winter")) and time.monotonic() < until:
            time.sleep(0.01)
        found = cache.lookup("apple")
        cache.invalidate(tags={"season:autumn"})

        assert [one.outcome for one in done] == ["changed"]
        assert isinstance(found, Hit)
        assert found.text == "winter"
        assert isinstance(cache.lookup("apple"), Miss)


def test_a_process_queues_a_stale_entry_again_only_after_a_while(namespace: str) -> None:
    now = [0.0]
    from semcache.stores.memory import MemoryStore

    store = MemoryStore()
    with SemanticCache(
        store=store, background=store, encoder=TableEncoder({}, default=[1.0, 0.0]), clock=lambda: now[0]
    ) as cache:
        cache._stop()  # no follower takes from the list
        cache.put("apple", "x", tags={"t"})
        cache.invalidate(tags={"t"})
        lengths = []
        for seconds in (0.0, 599.0, 1.0, 1.0):
            now[0] += seconds
            cache.lookup("apple")
            lengths.append(len(cache._core.stale))

    assert lengths == [1, 1, 2, 2]


def test_a_lost_queue_begins_anew(redis_url: str, namespace: str) -> None:
    import redis

    options: dict[str, Any] = {"namespace": namespace, "policy": Policy(deadline=5.0)}
    with SemanticCache.open(redis_url, encoder=TableEncoder({}, default=[1.0]), **options) as cache:
        entry_id = str(cache.put("apple", "x").entry_id)
        first = cache.queue_refresh([entry_id])
        client = redis.Redis.from_url(redis_url)
        client.delete(f"semcache:{namespace}:refresh")
        client.close()

        assert (first, cache.queue_refresh([entry_id])) == (1, 1)
        assert len(cache.take_refreshes("w")) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "add", "entry": "m/v/0", "expires": "soon"},
        {"op": "tag", "names": "[[["},
        {"op": b"\xff\xfe"},
        {"op": "something newer"},
        {"nonsense": "x"},
    ],
    ids=str,
)
def test_a_record_that_cant_be_read_doesnt_stop_the_follower(
    redis_url: str, namespace: str, fields: dict[str, Any]
) -> None:
    import redis

    options: dict[str, Any] = {"namespace": namespace, "policy": Policy(deadline=5.0, local_bound=60.0)}
    with (
        SemanticCache.open(redis_url, encoder=TableEncoder({}, default=[1.0]), **options) as here,
        SemanticCache.open(redis_url, encoder=TableEncoder({}, default=[1.0]), **options) as there,
        redis.Redis.from_url(redis_url) as client,
    ):
        entry_id = str(here.put("apple", "x").entry_id)
        assert [there.lookup("apple").tier for _ in range(2)] == ["store", "local"]  # type: ignore[union-attr]
        (newest,) = client.xrevrange(f"semcache:{namespace}:log", count=1)
        client.xadd(f"semcache:{namespace}:log", fields, id=f"{int(newest[0].split(b'-')[0]) + 1}-0")  # type: ignore[arg-type]
        until = time.monotonic() + 30.0
        while len(there._core.local) and time.monotonic() < until:
            time.sleep(0.01)
        assert len(there._core.local) == 0, "it may have told of this entry"
        assert isinstance(there.lookup("apple"), Hit)
        here.invalidate(entry_ids=[entry_id])
        while isinstance(there.lookup("apple"), Hit) and time.monotonic() < until:
            time.sleep(0.01)
        assert isinstance(there.lookup("apple"), Miss), "what comes after it is heard of"


def test_copies_are_kept_only_once_the_log_is_followed(redis_url: str, namespace: str) -> None:
    encoder = TableEncoder({}, default=[1.0, 0.0])
    with SemanticCache.open(
        redis_url, encoder=encoder, namespace=namespace, policy=Policy(deadline=5.0, local_bound=60.0)
    ) as cache:
        cache.put("apple", "x")
        before = cache._core.followed
        tiers = [cache.lookup("apple").tier for _ in range(2)]  # type: ignore[union-attr]

        assert before is None or cache._follower is not None
        assert cache._core.followed is not None
        assert tiers == ["store", "local"]
