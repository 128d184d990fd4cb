"""Single flight: concurrent callers with one question wait for one call to the model."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any


class Flight:
    """One call to the model that others may wait for."""

    __slots__ = ("_on_loops", "future", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self.future: Future[Any] = Future()
        self._on_loops: dict[asyncio.AbstractEventLoop, asyncio.Future[Any]] = {}

    def on_this_loop(self) -> asyncio.Future[Any]:
        """Return the flight's future for the running event loop, one for all who wait there."""
        loop = asyncio.get_running_loop()
        future = self._on_loops.get(loop)
        if future is None:
            future = self._on_loops[loop] = asyncio.wrap_future(self.future, loop=loop)
        return future

    def land(self, result: Any) -> None:
        """Give the result to whoever waits."""
        self.future.set_result(result)

    def fail(self) -> None:
        """Tell whoever waits that there is no result; it isn't theirs to raise."""
        self.future.set_result(None)


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
