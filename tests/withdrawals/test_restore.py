"""What an operator brings back, and what stays gone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from semcache import Hit, Miss, StoreUnavailableError
from semcache.refresh import question_of
from tests.facade import Facade


def test_only_what_is_withdrawn_is_restored_and_once(cache: Facade) -> None:
    entry_id = cache.put("apple", "x").entry_id
    live = cache.restore(entry_id)
    cache.invalidate(entry_ids=[entry_id])
    first, second = cache.restore(entry_id), cache.restore(entry_id)
    nothing = cache.restore("m/v/" + "0" * 32)

    assert (live, first, second, nothing) == (False, True, False, False)
    assert isinstance(cache.lookup("apple"), Hit)


def test_a_restored_entry_is_found_by_meaning_again(cache: Facade) -> None:
    entry_id = cache.put("apple", "x").entry_id
    cache.invalidate(entry_ids=[entry_id])
    cache.restore(entry_id)

    assert cache.lookup("apples").match == "semantic"


@pytest.mark.parametrize("first", ["tag", "name"])
def test_what_was_invalidated_by_tag_isnt_restored(cache: Facade, first: str) -> None:
    entry_id = cache.put("apple", "x", tags={"t"}).entry_id
    for step in ("tag", "name") if first == "tag" else ("name", "tag"):
        cache.invalidate(**({"tags": {"t"}} if step == "tag" else {"entry_ids": [entry_id]}))
    restored = cache.restore(entry_id)

    assert not restored
    assert isinstance(cache.lookup("apple"), Miss)
    assert [tomb.entry_id for tomb in cache.withdrawn()] == [entry_id]


def test_a_tag_invalidated_after_the_restoration_ends_it(cache: Facade) -> None:
    entry_id = cache.put("apple", "x", tags={"t"}).entry_id
    cache.invalidate(entry_ids=[entry_id])
    restored = cache.restore(entry_id)
    cache.invalidate(tags={"t"})

    assert restored
    assert cache.lookup("apple").reason == "stale_tag"


def test_a_restored_entry_keeps_its_age(cache: Facade) -> None:
    entry_id = cache.put("apple", "x", ttl=3600).entry_id
    (before,) = cache.get([entry_id])
    cache.invalidate(entry_ids=[entry_id])
    cache.restore(entry_id)
    (after,) = cache.get([entry_id])

    assert after.created_at == before.created_at
    assert after.fence == before.fence
    assert after.revision > before.revision
    assert cache.lookup("apple").ttl_left <= 3600


def test_what_has_expired_meanwhile_isnt_restored(cache: Facade) -> None:
    entry_id = cache.put("apple", "x", ttl=0.05).entry_id
    cache.invalidate(entry_ids=[entry_id])
    time.sleep(0.06)

    assert not cache.restore(entry_id)
    assert isinstance(cache.lookup("apple"), Miss)


def test_complaints_from_before_dont_count_after_a_restoration(cache: Facade) -> None:
    cache.put("apple", "x")
    old = [cache.lookup("apple").lookup_id for _ in range(6)]
    for number in range(3):
        action = cache.feedback(old[number], -1, rater=str(number)).action
    entry_id = cache.lookup("apple").best_entry_id
    cache.restore(entry_id)
    late = [cache.feedback(old[number], -1, rater=str(number)).action for number in range(3, 6)]

    assert action == "withdrawn"
    assert late == ["none", "none", "none"]
    assert isinstance(cache.lookup("apple"), Hit)


def test_what_was_restored_isnt_answered_again(cache: Facade) -> None:
    entry_id = cache.put("apple", "x").entry_id
    cache.invalidate(entry_ids=[entry_id])
    (work,) = cache.take_refreshes("w")
    time.sleep(0.002)  # tickets are stamped in milliseconds
    cache.restore(entry_id)
    (entry,) = cache.get([entry_id])

    assert question_of(work, entry) == "live"


def test_a_closed_cache_serves_nothing_and_acknowledges_nothing(make: Callable[..., Facade]) -> None:
    cache = make()
    entry_id = cache.put("apple", "x").entry_id
    lookup_id = cache.lookup("apple").lookup_id
    cache.close()
    cache.close()
    missed = cache.lookup("apple")
    stored = cache.put("apple", "y")
    answer = cache.get_or_compute("apple", lambda request: "computed")

    assert (missed.reason, stored.outcome) == ("store_unavailable", "store_unavailable")
    assert "this cache was closed" in missed.detail
    assert (answer.text, answer.hit) == ("computed", False)
    assert cache.stats().server == {}
    for refused in (
        lambda: cache.invalidate(everything=True),
        lambda: cache.invalidate(everything=True, dry_run=True),
        lambda: cache.invalidate(entry_ids=[entry_id]),
        lambda: cache.feedback(lookup_id, -1),
        lambda: cache.restore(entry_id),
        lambda: cache.withdrawn(),
        lambda: cache.get([entry_id]),
        lambda: cache.all_entries(),
        lambda: cache.versions(),
        lambda: cache.queue_refresh([entry_id]),
        lambda: cache.take_refreshes("w"),
        lambda: cache.sweep(),
    ):
        with pytest.raises(StoreUnavailableError, match="this cache was closed"):
            refused()
