"""Single flight: concurrent callers with one question wait for one call to the model."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semcache.types import Answer, CacheRequest, Miss

if TYPE_CHECKING:
    from semcache.core.arguments import Given
    from semcache.leases import Lease, LeaseKeeper


class Flight:
    """One call to the model that others may wait for."""

    __slots__ = ("_attend", "_awaited", "_boards", "_flights", "future", "key")

    def __init__(self, key: str, flights: Flights) -> None:
        self.key = key
        self.future: Future[Any] = Future()
        self._boards: dict[asyncio.AbstractEventLoop, _Board] = {}
        self._flights = flights
        self._awaited = False
        self._attend: Callable[[], object] | None = None

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

    def board(self) -> None:
        """Note that somebody is going to wait."""
        if self._awaited:  # that was noted, and doesn't change any more
            return
        with self._flights.lock:
            call, self._attend, self._awaited = self._attend, None, True
        if call is not None:
            call()

    def attend(self, call: Callable[[], object]) -> None:
        """Call this once when somebody waits; at once if somebody does."""
        with self._flights.lock:
            if not self._awaited:
                self._attend = call
                return
        call()

    def land(self, result: Any) -> None:
        """Give the result to whoever waits; who comes now starts a flight of her own."""
        self._flights.done(self)
        self.future.set_result(result)

    def fail(self) -> None:
        """Tell whoever waits that there is no result; it isn't theirs to raise."""
        self._flights.done(self)
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
        self.lock = threading.RLock()  # a lead that is dropped fails its flight wherever that happens
        self._flights: dict[str, Flight] = {}

    def join(self, key: str) -> tuple[Flight, bool]:
        """Return (flight, whether the caller leads it)."""
        with self.lock:
            flight = self._flights.get(key)
            if flight is None:
                flight = self._flights[key] = Flight(key, self)
                return flight, True
        flight.board()
        return flight, False

    def done(self, flight: Flight) -> None:
        """Take a flight off the board."""
        with self.lock:
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]

    def ground(self) -> None:
        """After an invalidation: whoever comes now starts a flight of her own."""
        with self.lock:
            self._flights.clear()


class Lead:
    """The right to answer a request, for oneself and for all who ask the same meanwhile.

    Give it to `finish` together with the answer, or give it up. Whoever drops it has given it up.

    Attributes:
        request: What was asked.
        decision: Why nothing stored could be served.
        given: What is said of the answer besides the answer.
        started: Monotonic seconds at which the model's turn began.
        lease: What keeps other processes waiting, if anything does.
    """

    __slots__ = ("_flight", "_keeper", "decision", "given", "lease", "request", "started")

    def __init__(
        self,
        request: CacheRequest,
        decision: Miss,
        given: Given,
        *,
        started: float | None = None,
        flight: Flight | None = None,
        lease: Lease | None = None,
        keeper: LeaseKeeper | None = None,
    ) -> None:
        self.request = request
        self.decision = decision
        self.given = given
        self.started = time.monotonic() if started is None else started
        self.lease = lease
        self._flight = flight
        self._keeper = keeper

    @classmethod
    def alone(
        cls, request: CacheRequest, decision: Miss, *, tags: Collection[str] = (), ttl: float | None = None
    ) -> Lead:
        """Return a lead that nobody waits for, e.g. after a stored answer that turned out to be of no use.

        Raises:
            InvalidRequestError: A tag or the ttl can't be meant.
        """
        from semcache.core.arguments import given

        said = given(request, tags=tags, ttl=ttl, confidence=None, kind=None)
        return cls(request, decision, said)

    def attend(self, call: Callable[[], object]) -> None:
        """Call this once when somebody waits for the answer; at once if somebody does. It must not raise."""
        if self._flight is not None:
            self._flight.attend(call)

    def give_up(self) -> None:
        """There will be no answer: of those who wait, the next one leads. Nothing happens the second time."""
        self._give_back(unshared=False)
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.fail()

    def land(self, answer: Answer) -> None:
        """Give the answer to those who wait; `finish` does it."""
        self._give_back(unshared=True)
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.land(waiters_answer(answer))

    def _give_back(self, *, unshared: bool) -> None:
        if self.lease is not None and self._keeper is not None:
            self._keeper.give_back(self.lease, unshared=unshared)
        self.lease = None

    def __del__(self) -> None:
        self.give_up()


def waiters_answer(answer: Answer) -> Answer:
    """Return an answer as those who waited for it get it."""
    return replace(answer, stored=None, shared=answer.put, waited=True)
