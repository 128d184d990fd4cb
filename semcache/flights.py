"""Single flight: concurrent callers with one question wait for one call to the model."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any


class Flight:
    """One call to the model that others may wait for."""

    __slots__ = ("_boards", "future", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self.future: Future[Any] = Future()
        self._boards: dict[asyncio.AbstractEventLoop, _Board] = {}

    def seat(self, timeout: float) -> asyncio.Future[Any]:
        """Return a future of one caller's own on the running event loop; she may cancel it.

        It ends in `TimeoutError` at the latest after so many seconds: everybody on one event loop waits for
        one timer, that of who boarded first.
        """
        loop = asyncio.get_running_loop()
        board = self._boards.get(loop)
        if board is None or board.closed:
            board = self._boards[loop] = _Board(loop, self.future, timeout)
        seat = loop.create_future()
        board.seats.append(seat)
        return seat

    def land(self, result: Any) -> None:
        """Give the result to whoever waits."""
        self.future.set_result(result)

    def fail(self) -> None:
        """Tell whoever waits that there is no result; it isn't theirs to raise."""
        self.future.set_result(None)


class _Board:
    """Who waits for a flight on one event loop."""

    __slots__ = ("_loop", "_timer", "closed", "seats")

    def __init__(self, loop: asyncio.AbstractEventLoop, flight: Future[Any], timeout: float) -> None:
        self.seats: list[asyncio.Future[Any]] = []
        self.closed = False
        self._loop = loop
        self._timer = loop.call_later(timeout, self._give_up)
        flight.add_done_callback(self._arrived)

    def _arrived(self, flight: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits there
            self._loop.call_soon_threadsafe(self._land, flight)

    def _land(self, flight: Future[Any]) -> None:
        self._timer.cancel()
        self.closed = True
        result = flight.result()
        for seat in self.seats:
            if not seat.done():
                seat.set_result(result)
        self.seats.clear()

    def _give_up(self) -> None:
        self.closed = True
        for seat in self.seats:
            if not seat.done():
                seat.set_exception(TimeoutError())
        self.seats.clear()


class Flights:
    """The flights of one process. A flight that began before an invalidation isn't joined after it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[str, Flight] = {}

    def join(self, key: str) -> tuple[Flight, bool]:
        """Return (flight, whether the caller leads it)."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                return flight, False
            flight = self._flights[key] = Flight(key)
            return flight, True

    def done(self, flight: Flight) -> None:
        """Take a flight off the board; call it before landing or failing it."""
        with self._lock:
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]

    def ground(self) -> None:
        """After an invalidation: whoever comes now starts a flight of her own."""
        with self._lock:
            self._flights.clear()
