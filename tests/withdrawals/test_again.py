"""Withdrawals of before are said again, as of then, to a store that may have forgotten them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from semcache import CacheRequest, Hit, Miss, Policy
from semcache.core.recent import Recent
from semcache.keys import Keys
from semcache.protocols import Former
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import HashEncoder
from semcache.types import Fence
from tests.facade import Facade, Loop, open_facade, within


def say(cache: Facade, *former: Former) -> tuple[str, ...]:
    done = cache.cache._background.withdraw_again(former, keep=60.0, durability="memory", timeout=5.0)
    return tuple(done.entry_ids)


def clock_of(cache: Facade) -> int:
    view = cache.cache._background.read((), (), embedding=None, timeout=5.0)
    return int(view.time_us)


def test_what_is_older_goes_and_what_is_newer_stays(cache: Facade) -> None:
    ids = {name: cache.put(name, name, tags={name}).entry_id for name in ("apple", "pear")}
    then = Fence("before", clock_of(cache))
    for name in ("fig", "plum"):
        ids[name] = cache.put(name, name, tags={name}).entry_id
    former = [Former("id", ids["apple"], then), Former("name", "tag:pear", then)]
    former += [Former("id", ids["fig"], then), Former("name", "tag:plum", then)]
    forgotten = say(cache, *former)

    assert sorted(forgotten) == sorted([ids["apple"], "tag:pear", ids["fig"], "tag:plum"])
    assert [getattr(cache.lookup(name), "text", None) == name for name in ids] == [False, False, True, True]


def test_what_the_store_remembers_is_left_alone_and_told_nobody(cache: Facade) -> None:
    ids = [cache.put(name, "x", tags={"t"}).entry_id for name in ("apple", "pear")]
    then = Fence("before", clock_of(cache))
    cache.invalidate(entry_ids=ids[:1])
    cache.invalidate(tags={"t"})
    before = cache.cache._background.position(timeout=5.0).sequence
    former = (Former("id", ids[0], then), Former("name", "tag:t", then))

    assert say(cache, *former) == ()
    assert cache.cache._background.position(timeout=5.0).sequence == before


def test_an_answer_from_before_cannot_be_stored_after_it(cache: Facade) -> None:
    missed = cache.lookup(CacheRequest("apple"))
    entry_id = cache.put("apple", "x").entry_id
    then = Fence("before", clock_of(cache))
    cache.cache._background.set_aside(entry_id, keep=60.0, timeout=5.0)  # as if it had never been there
    say(cache, Former("id", entry_id, then))

    assert cache.put("apple", "x", fence=missed.fence).outcome == "tombstone"
    assert cache.put("apple", "y").outcome in ("stored", "replaced")


def test_a_clock_that_runs_ahead_reaches_no_further_than_now(cache: Facade) -> None:
    ids = [cache.put(name, "x", tags={name}).entry_id for name in ("apple", "pear")]
    ahead = Fence("before", clock_of(cache) + 3_600_000_000)
    say(cache, Former("id", ids[0], ahead), Former("name", "tag:pear", ahead))
    gone = [isinstance(cache.lookup(name), Miss) for name in ("apple", "pear")]
    for name in ("apple", "pear"):
        cache.put(name, "y", tags={name})

    assert gone == [True, True]
    assert [cache.lookup(name).text for name in ("apple", "pear")] == ["y", "y"]


def test_the_log_says_when_it_was_withdrawn_first(cache: Facade) -> None:
    store, then = cache.cache._background, Fence("before", 1_000_000)
    entry_id = cache.put("apple", "x").entry_id
    start = store.position(timeout=5.0).sequence
    say(cache, Former("id", entry_id, then), Former("name", "tag:t", then))
    cache.invalidate(tags={"t"}, older_than=100.0)
    cache.invalidate(entry_ids=[entry_id])
    now = clock_of(cache)
    found = store.changes(start, count=10, block=0.0)

    again = {(c.op, c.entry_id, c.names, c.until) for c in found if c.again}
    assert again == {("withdraw", entry_id, (), then), ("tag", "", ("tag:t",), then)}
    (raised, withdrawn) = [c.until for c in found if not c.again]
    assert raised.epoch == withdrawn.epoch == ""
    assert now - 110_000_000 < raised.time_us <= now - 100_000_000
    assert now - 10_000_000 < withdrawn.time_us <= now


def test_the_log_tells_of_a_refused_text(cache: Facade) -> None:
    entry_id = cache.put("apple", "x").entry_id
    start = cache.cache._background.position(timeout=5.0).sequence
    found = cache.lookup("apples")
    first = cache.feedback(found.lookup_id, -1, rater="u").action
    cache.feedback(found.lookup_id, 1, rater="u")
    told = cache.cache._background.changes(start, count=10, block=0.0)

    assert first == "blocked"
    assert [(c.op, c.entry_id, c.sequence) for c in told] == [("block", entry_id, start + 1)]
    assert told[0].until is not None
    assert abs(told[0].until.time_us - clock_of(cache)) < 10_000_000


def test_an_entry_whose_refused_text_was_forgotten_is_withdrawn(cache: Facade) -> None:
    ids = [cache.put("apple", "x").entry_id, cache.put("pear", "y").entry_id]
    cache.feedback(cache.lookup("apples").lookup_id, -1, rater="u")
    then = Fence("before", clock_of(cache))

    assert say(cache, *(Former("block", entry_id, then) for entry_id in ids)) == (ids[1],)
    assert isinstance(cache.lookup("apple"), Hit)
    assert isinstance(cache.lookup("pear"), Miss)


@pytest.fixture(params=["sync", "async"])
def two(request: pytest.FixtureRequest, loop: Loop, tmp_path: Path) -> Any:
    """A server of its own, and a function that opens caches on it."""
    opened: list[Facade] = []
    with EmbeddedServer.open(tmp_path / "data") as server:

        def open_one() -> Facade:
            policy = Policy(deadline=5.0, local_bound=0.0)
            facade = open_facade(
                request.param, server.url, loop, encoder=HashEncoder(8), policy=policy, namespace="n"
            )
            opened.append(facade)
            return facade

        with redis.from_url(server.url) as client:
            yield open_one, client
        for facade in opened:
            facade.close()


def test_a_flushed_store_is_told_though_nobody_looks_anything_up(two: Any) -> None:
    open_one, client = two
    cache: Facade = open_one()
    entry_id = cache.put("question", "x").entry_id
    cache.invalidate(entry_ids=[entry_id])
    cache.invalidate(tags={"t"})
    client.flushall()
    client.hset(Keys("n").gens, "#epoch", "another")

    told = within(30.0, lambda: client.exists(Keys("n").beside("tomb", entry_id)))
    assert told
    assert within(30.0, lambda: client.hget(Keys("n").gens, "=tag:t"))
    assert within(30.0, lambda: client.get(Keys("n").secret))  # is offered after that


def test_a_withdrawal_that_raced_with_a_flush_is_told_too(two: Any) -> None:
    open_one, client = two
    cache: Facade = open_one()
    cache.put("question", "x")
    core = cache.cache._core
    known = core.epoch
    client.flushall()
    cache.lookup("another")  # learns the new epoch, before what follows is noted
    core.withdrew([Former("name", "tag:t", Fence(known, clock_of(cache)))], known)
    cache.lookup("another")

    assert client.hget(Keys("n").gens, "=tag:t")


def test_what_others_withdrew_is_told_by_those_who_heard_of_it(two: Any) -> None:
    open_one, client = two
    one, other = open_one(), open_one()
    entry_id = one.put("question", "x").entry_id
    other.lookup("question")
    one.invalidate(entry_ids=[entry_id])
    assert within(30.0, lambda: ("id", entry_id) in other.cache._core.recent)
    one.close()
    client.flushall()
    other.lookup("question")

    assert client.exists(Keys("n").beside("tomb", entry_id))


def test_answers_since_a_withdrawal_outlive_its_being_said_again(two: Any) -> None:
    open_one, client = two
    cache: Facade = open_one()
    entry_id = cache.put("question", "x", tags={"t"}).entry_id
    cache.invalidate(everything=True)
    cache.invalidate(entry_ids=[entry_id])
    client.flushall()
    cache.lookup("another")
    cache.put("question", "y", tags={"t"})
    late: Facade = open_one()
    late.cache._core.recent.add(cache.cache._core.recent.begin()[1])
    late.cache._core.recent.want()

    assert late.lookup("question").text == "y"
    assert not late.cache._core.recent.unsaid


def test_what_somebody_says_again_is_not_said_again_by_all(two: Any) -> None:
    open_one, client = two
    caches: list[Facade] = [open_one(), open_one()]
    for cache in caches:
        cache.lookup("question")
    ahead = Fence("before", clock_of(caches[0]) + 3_600_000_000)
    assert say(caches[0], Former("name", "tag:t", ahead)) == ("tag:t",)
    at = client.hget(Keys("n").gens, "=tag:t")
    for cache in caches:
        assert within(30.0, lambda c=cache: ("name", "tag:t") in c.cache._core.recent)
        cache.lookup("question")

    assert not any(cache.cache._core.recent.unsaid for cache in caches)
    assert client.hget(Keys("n").gens, "=tag:t") == at


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 9))))
def test_of_two_withdrawals_of_one_name_the_later_counts(said: list[tuple[str, str, int]]) -> None:
    recent = Recent()
    for epoch, name, time_us in said:
        recent.add([Former("name", name, Fence(epoch, time_us))])
    remembered = {one.name: one.at for one in recent.begin()[1]}

    for name in "xyz":
        mine = [(epoch, time_us) for epoch, of, time_us in said if of == name]
        if mine:
            assert remembered[name] == Fence(mine[-1][0], max(time_us for _, time_us in mine))
    assert set(remembered) == {name for _, name, _ in said}


def test_what_was_wanted_while_it_was_said_is_said_once_more() -> None:
    recent = Recent()
    recent.want()
    ticket, _ = recent.begin()
    recent.want()
    recent.said(ticket)
    still = recent.unsaid
    recent.said(recent.begin()[0])

    assert still
    assert not recent.unsaid


def test_only_the_last_withdrawals_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semcache.core.recent.MOST", 2)
    recent = Recent()
    recent.add(Former("id", name, Fence("e", 1)) for name in "abac")

    assert [one.name for one in recent.begin()[1]] == ["a", "c"]
