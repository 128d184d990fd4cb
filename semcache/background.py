"""Refreshes in the background: bounded, each entry once at a time, in threads or as tasks of an event loop.

Knows when not to start one and how to end them; what a refresh does is in `core.refreshing`.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

from semcache.steps import Steps, drive, drive_async
from semcache.stores.closed import ClosedStore

Refusal = Literal["busy", "full", "closed"]

PAUSE = 5.0  # seconds after a refresh was begun before the same entry's next one, however it ended
MAX_TRIED = 10_000
CLOSE_WAIT = 5.0  # seconds that closing waits for threads, which can't be cancelled


class Refreshes:
    """Counts refreshes under way and remembers which were begun lately. Safe to use from many threads.

    Args:
        most: How many run at once.
        clock: Monotonic seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._begun: OrderedDict[str, float] = OrderedDict()
        self._closed = False

    def begin(self, entry_id: str) -> Refusal | None:
        """Reserve a place; returns why there is none."""
        with self._lock:
            if self._closed:
                return "closed"
            begun = self._begun.get(entry_id)
            if entry_id in self._running or (begun is not None and self._clock() - begun < PAUSE):
                return "busy"
            if len(self._running) >= self._most:
                return "full"
            self._running.add(entry_id)
            self._begun[entry_id] = self._clock()
            self._begun.move_to_end(entry_id)
            while len(self._begun) > MAX_TRIED:
                self._begun.popitem(last=False)
            return None

    def end(self, entry_id: str) -> None:
        """Free the place."""
        with self._lock:
            self._running.discard(entry_id)

    def shut(self) -> None:
        """Begin none any more."""
        with self._lock:
            self._closed = True


class _Switch:
    """A store that can be taken away from threads that outlive their cache."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class RefreshThreads:
    """Runs refreshes in daemon threads.

    Args:
        wait: Seconds that closing waits for them.
    """

    def __init__(self, store: Any, most: int, wait: float = CLOSE_WAIT) -> None:
        self._store = _Switch(store)
        self._places = Refreshes(most)
        self._wait = wait
        self._threads: set[threading.Thread] = set()

    def start(self, entry_id: str, make: Callable[[], Steps[None]]) -> Refusal | None:
        """Refresh an entry in a thread, in the caller's context; returns why not."""
        refusal = self._places.begin(entry_id)
        if refusal is not None:
            return refusal
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(self._run, entry_id, make), name="semcache-refresh", daemon=True
        )
        self._threads.add(thread)
        thread.start()
        return None

    def _run(self, entry_id: str, make: Callable[[], Steps[None]]) -> None:
        try:
            drive(make(), self._store)
        finally:
            self._places.end(entry_id)
            self._threads.discard(threading.current_thread())

    def close(self) -> None:
        """Begin none any more, and wait a while for those under way; what comes later isn't stored."""
        self._places.shut()
        end = time.monotonic() + self._wait
        for thread in list(self._threads):
            thread.join(max(0.0, end - time.monotonic()))
        self._store.store = ClosedStore()


class RefreshTasks:
    """Runs refreshes as tasks of the caller's event loop."""

    def __init__(self, store: Any, most: int) -> None:
        self._store = store
        self._places = Refreshes(most)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, entry_id: str, make: Callable[[], Steps[None]]) -> Refusal | None:
        """Refresh an entry in a task; returns why not."""
        refusal = self._places.begin(entry_id)
        if refusal is not None:
            return refusal
        task = asyncio.get_running_loop().create_task(drive_async(make(), self._store))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:  # also of a task that was cancelled before it began
            self._tasks.discard(task)
            self._places.end(entry_id)

        task.add_done_callback(ended)
        return None

    async def close(self) -> None:
        """Begin none any more, and cancel those under way."""
        self._places.shut()
        here = asyncio.get_running_loop()
        mine = [task for task in list(self._tasks) if task.get_loop() is here]
        for task in list(self._tasks):
            loop = task.get_loop()
            if loop is here:
                task.cancel()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)
        if mine:
            await asyncio.gather(*mine, return_exceptions=True)
