"""Steps performed on an event loop leave room for what else runs there."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import Future

import pytest

from semcache.steps import HANDFUL, Await, perform_async


async def test_who_waited_for_one_batch_go_on_by_handfuls() -> None:
    loop, callers = asyncio.get_running_loop(), 10 * HANDFUL
    batch: Future[str] = Future()
    turn, went_on = 0, Counter[int]()

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        if went_on.total() < callers:
            loop.call_soon(count_turns)

    async def caller() -> None:
        assert await perform_async(Await(batch, 5.0), None) == "embedding"
        went_on[turn] += 1

    waiting = [asyncio.create_task(caller()) for _ in range(callers)]
    await asyncio.sleep(0)
    count_turns()
    batch.set_result("embedding")
    await asyncio.gather(*waiting)

    assert went_on.total() == callers
    assert max(went_on.values()) <= HANDFUL


async def test_a_caller_who_gives_up_in_the_queue_holds_up_nobody() -> None:
    batch: Future[str] = Future()
    waiting = [asyncio.create_task(perform_async(Await(batch, 5.0), None)) for _ in range(4 * HANDFUL)]
    await asyncio.sleep(0)
    batch.set_result("embedding")
    await asyncio.sleep(0)
    for task in waiting[::2]:
        task.cancel()

    told = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(one == "embedding" for one in told[1::2])
    assert all(one == "embedding" or isinstance(one, asyncio.CancelledError) for one in told[::2])
    with pytest.raises(TimeoutError):
        await perform_async(Await(Future(), 0.01), None)
