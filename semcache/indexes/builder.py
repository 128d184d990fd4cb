"""The background thread of an index: it builds graphs and reaps rows that nobody meets any more.

It starts when there is something to do, and again in a forked child. What a step of building is,
`hnsw` knows.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from threading import Condition, Thread, current_thread
from typing import Protocol

_TURN = 0.02  # seconds of building before others have their turn
_LATER = 0.02  # seconds after which to look again for a better moment


class Buildable(Protocol):
    """Something that is built in small steps."""

    def build(self) -> bool:
        """Do one step. Returns whether it did something and more waits that it would do now."""
        ...

    def work_waits(self) -> bool:
        """Whether `build` has anything to do; takes no lock."""
        ...


class Builder:
    """Runs steps of building, taking turns among those that wait, and `reap` from time to time.

    Args:
        reap: Called about every `every` seconds; returns False to end the thread.
        every: Seconds; on a monotonic clock.
        rest: Called when nothing waits any more, or for a better moment only.
    """

    def __init__(self, reap: Callable[[], bool], *, every: float, rest: Callable[[], None]) -> None:
        self._reap = reap
        self._rest = rest
        self._every = every
        self._waiting: dict[int, tuple[Buildable, float]] = {}  # with the time from which it may be built
        self._stopped = False
        self.renew()

    def renew(self) -> None:
        """Forget the thread, which isn't there in a forked child; what waits still waits."""
        self._changed = Condition()
        self._thread: Thread | None = None
        self._busy = False
        if self._waiting and not self._stopped:
            self._start()

    def _start(self) -> None:
        self._thread = Thread(target=self._run, name="semcache-index", daemon=True)
        self._thread.start()

    def wake(self, buildable: Buildable | None = None) -> None:
        """Make sure the thread runs, and that it comes to `buildable`."""
        with self._changed:
            if buildable is not None:
                self._waiting[id(buildable)] = (buildable, 0.0)
                self._changed.notify_all()
            if not self._stopped and (self._thread is None or not self._thread.is_alive()):
                self._start()

    def stop(self) -> None:
        """End the thread after its current step, and wait for that."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not current_thread():
            thread.join()

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to build, at most `timeout` seconds. Returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def _run(self) -> None:
        next_reap = time.monotonic() + self._every
        while True:
            buildable = self._next(next_reap)
            if self._stopped:
                return
            if buildable is not None:
                self._step(buildable)
            if time.monotonic() >= next_reap:
                if not self._reap():
                    return
                next_reap = time.monotonic() + self._every

    def _next(self, next_reap: float) -> Buildable | None:
        """Wait for what comes next; None if that is to stop or to reap."""
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                soonest = next_reap
                for buildable, due in self._waiting.values():
                    if due <= now:
                        self._busy = True
                        return buildable  # left in place: a forked child must find it
                    soonest = min(soonest, due)
                if next_reap <= now:
                    return None
                self._changed.wait(soonest - now)
        return None

    def _step(self, buildable: Buildable) -> None:
        until = time.monotonic() + _TURN
        more = True
        while more and not self._stopped and time.monotonic() < until:
            more = buildable.build()
        with self._changed:
            del self._waiting[id(buildable)]
            if buildable.work_waits():  # behind the others
                due = 0.0 if more else time.monotonic() + _LATER
                self._waiting[id(buildable)] = (buildable, due)
            done = not self._waiting
        if not more:
            self._rest()
        if done:
            _give_back()
        with self._changed:
            self._busy = False
            self._changed.notify_all()


def _give_back() -> None:
    """Return freed memory to the system, which glibc keeps otherwise: a tail or graph that was moved."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # another libc
            trim(0)
