"""The fence of a lookup reaches its own update, whoever else asks the same in between."""

from __future__ import annotations

import asyncio
import threading

from langchain_semcache.pending import Pending, PendingLookups
from semcache.types import Fence


def miss(time_us: int) -> Pending:
    return Pending(Fence("e", time_us), "no_candidate", float(time_us))


def test_an_update_takes_the_fence_of_its_lookup_once() -> None:
    lookups = PendingLookups()
    lookups.remember(b"q", miss(1))

    assert lookups.take(b"other") is None
    assert lookups.take(b"q") == miss(1)
    assert lookups.take(b"q") is None
    assert len(lookups) == 0


def test_a_second_lookup_of_one_caller_replaces_the_first() -> None:
    lookups = PendingLookups()
    lookups.remember(b"q", miss(1))
    lookups.remember(b"q", miss(2))

    assert lookups.take(b"q") == miss(2)
    assert len(lookups) == 0


async def test_two_tasks_keep_their_own_fences_in_whatever_order_they_end() -> None:
    lookups = PendingLookups()
    asked, go = asyncio.Event(), asyncio.Event()

    async def first() -> Pending | None:
        lookups.remember(b"q", miss(1))
        asked.set()
        await go.wait()
        return lookups.take(b"q")

    async def second() -> Pending | None:
        await asked.wait()
        lookups.remember(b"q", miss(2))
        found = lookups.take(b"q")
        go.set()
        return found

    assert await asyncio.gather(first(), second()) == [miss(1), miss(2)]


def test_two_threads_keep_their_own_fences() -> None:
    lookups = PendingLookups()
    barrier = threading.Barrier(2)
    found: dict[int, Pending | None] = {}

    def ask(number: int) -> None:
        lookups.remember(b"q", miss(number))
        barrier.wait()
        found[number] = lookups.take(b"q")

    threads = [threading.Thread(target=ask, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == {1: miss(1), 2: miss(2)}


def test_an_update_from_elsewhere_takes_the_oldest_fence() -> None:
    lookups = PendingLookups()
    for number in (2, 1, 3):
        thread = threading.Thread(target=lookups.remember, args=(b"q", miss(number)))
        thread.start()
        thread.join()

    assert [lookups.take(b"q") for _ in range(3)] == [miss(1), miss(2), miss(3)]


def test_memory_is_bounded_and_a_forgotten_fence_is_never_replaced_by_a_newer_one() -> None:
    lookups = PendingLookups(capacity=3)
    for number in range(10):
        lookups.remember(str(number).encode(), miss(number))

    assert len(lookups) == 3
    taken = lookups.take(b"5")
    assert taken is not None
    assert taken.fence == Fence("e", 0)
    assert taken.started is None
