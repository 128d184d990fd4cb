"""What the core asks of the outside: steps that a synchronous and an asynchronous driver perform alike.

The core's operations are generators. Each yields a step and is sent its result, or is thrown what went
wrong; so every rule is written once, and the two drivers hold nothing but the waiting.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from semcache.flights import Flight

T = TypeVar("T")


class Ask(NamedTuple):
    """Call a method of the store."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for a future, at most so many seconds; `TimeoutError` after that."""

    future: Future[Any]
    timeout: float


@dataclass(frozen=True, slots=True)
class Board:
    """Wait for somebody else's flight, at most so many seconds; `TimeoutError` after that."""

    flight: Flight
    timeout: float


@dataclass(frozen=True, slots=True)
class Compute:
    """Run something that takes the processor long enough to hold up an event loop."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class CallModel:
    """Call the user's model."""

    call: Callable[[Any], Any]
    argument: Any


Step: TypeAlias = Ask | Await | Board | Compute | CallModel
Steps: TypeAlias = Generator[Step, Any, T]


def drive(steps: Steps[T], store: Any) -> T:
    """Perform steps synchronously."""
    try:
        step = next(steps)
        while True:
            try:
                result = perform(step, store)
            except BaseException as error:  # noqa: BLE001 - given to the core, which names what it catches
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value


def perform(step: Step, store: Any) -> Any:
    """Perform one step."""
    if isinstance(step, Ask):
        return getattr(store, step.method)(*step.arguments, **step.options)
    if isinstance(step, Await | Board):
        future = step.future if isinstance(step, Await) else step.flight.future
        try:
            return future.result(step.timeout)
        except FutureTimeoutError as error:
            raise TimeoutError from error
    if isinstance(step, Compute):
        return step.work()
    return step.call(step.argument)


async def drive_async(steps: Steps[T], store: Any) -> T:
    """Perform steps without blocking the event loop."""
    try:
        step = next(steps)
        while True:
            try:
                result = await perform_async(step, store)
            except BaseException as error:  # noqa: BLE001 - given to the core, which names what it catches
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value


async def perform_async(step: Step, store: Any) -> Any:
    """Perform one step; a model that isn't a coroutine function runs in a thread."""
    if isinstance(step, Ask):
        return await getattr(store, step.method)(*step.arguments, **step.options)
    if isinstance(step, Await):
        if step.future.done():
            return step.future.result()
        result = await _patiently(asyncio.wrap_future(step.future), step.timeout)
        await _in_turn()
        return result
    if isinstance(step, Board):
        return await step.flight.seat(step.timeout)
    if isinstance(step, Compute):
        return await asyncio.to_thread(step.work)
    if inspect.iscoroutinefunction(step.call):
        return await step.call(step.argument)
    result = await asyncio.to_thread(step.call, step.argument)
    return await result if inspect.isawaitable(result) else result


async def _patiently(future: asyncio.Future[Any], timeout: float) -> Any:
    """Wait without ever cancelling what is waited for: others may wait for it too."""
    if not future.done():
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def wake(_: object = None) -> None:
            if not waiter.done():
                waiter.set_result(None)

        future.add_done_callback(wake)
        timer = loop.call_later(timeout, wake)
        try:
            await waiter
        finally:
            timer.cancel()
        if not future.done():
            future.remove_done_callback(wake)
            future.add_done_callback(_nobody_waits)
            raise TimeoutError
    return future.result()


def _nobody_waits(future: asyncio.Future[Any]) -> None:
    """Take note of what a future that was given up on ended with, so that asyncio doesn't complain."""
    if not future.cancelled():
        future.exception()


HANDFUL = 8  # callers that go on in one turn of the event loop

_turnstiles: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
    weakref.WeakKeyDictionary()
)


async def _in_turn() -> None:
    """Let whoever waited for the same batch go on by handfuls: a hundred at once would hold up the event loop.

    A handful shares its round trips to the store, where each by herself would have her own.
    """
    loop = asyncio.get_running_loop()
    turnstile = _turnstiles.get(loop)
    if turnstile is None:
        turnstile = _turnstiles[loop] = asyncio.Semaphore(HANDFUL)
    async with turnstile:
        await asyncio.sleep(0)
