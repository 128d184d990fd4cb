"""Single flight on event loops and threads: who waits gets the result, and leaves alone."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from semcache.flights import Flight, Flights


async def test_everybody_on_one_loop_gets_the_result() -> None:
    flight = Flight("k", Flights())
    seats = [flight.seat(5.0) for _ in range(100)]
    seats[3].cancel()
    flight.land("answer")
    assert await asyncio.gather(*(s for n, s in enumerate(seats) if n != 3)) == ["answer"] * 99
    assert await flight.seat(5.0) == "answer"  # boarded after it landed


async def test_who_waits_gives_up_in_time_and_who_boards_later_waits_anew() -> None:
    flight = Flight("k", Flights())
    with pytest.raises(TimeoutError):
        await flight.seat(0.05)
    later = flight.seat(5.0)
    flight.land("answer")
    assert await later == "answer"


async def test_a_caller_who_is_cancelled_leaves_the_others_waiting() -> None:
    flight = Flight("k", Flights())

    async def wait() -> Any:
        return await flight.seat(5.0)

    tasks = [asyncio.ensure_future(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    flight.land("answer")
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == ["answer", "answer"]


def test_loops_in_several_threads_wait_for_one_flight() -> None:
    flight, found = Flight("k", Flights()), []
    boarded = threading.Barrier(4)

    async def wait() -> None:
        seats = [flight.seat(5.0) for _ in range(10)]
        boarded.wait(5.0)
        found.extend(await asyncio.gather(*seats))

    threads = [threading.Thread(target=lambda: asyncio.run(wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    boarded.wait(5.0)
    flight.land("answer")
    for thread in threads:
        thread.join(10.0)
    assert found == ["answer"] * 30


def test_a_loop_that_was_closed_is_nobodys_trouble() -> None:
    flight = Flight("k", Flights())

    async def board() -> None:
        flight.seat(5.0)

    asyncio.run(board())
    flight.land("answer")
    assert flight.future.result() == "answer"


def test_who_comes_after_an_invalidation_leads_a_flight_of_her_own() -> None:
    flights = Flights()
    first, leads = flights.join("k")
    assert leads
    assert flights.join("k") == (first, False)
    flights.ground()
    second, leads = flights.join("k")
    assert leads
    assert second is not first
    flights.done(first)
    assert flights.join("k") == (second, False)
