"""Many searches at once, or one change: a lock that is fair to both by turns.

A search that arrives while a change is under way or waiting waits for that one change only; it is
let in before the next. A change waits for the searches that are in by then.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Lock
from typing import TypeVar

T = TypeVar("T")


class Gate:
    """Lets searches in together and changes alone. One thread at a time makes changes."""

    __slots__ = ("_closed", "_emptied", "_lock", "_opened", "_searching", "_turn", "_waiting")

    def __init__(self) -> None:
        self._lock = Lock()
        self._opened = Condition(self._lock)
        self._emptied = Condition(self._lock)
        self._closed = False  # a change is under way or waits
        self._searching = 0
        self._waiting = 0  # searches that wait for the change
        self._turn = 0  # changes so far

    def search(self, run: Callable[[], T]) -> T:
        """Run a search, together with others, and return its result."""
        self._begin_search()
        try:
            return run()
        finally:
            with self._lock:
                self._searching -= 1
                if self._closed and not self._searching:
                    self._emptied.notify()

    def _begin_search(self) -> None:
        with self._lock:
            if not self._closed:
                self._searching += 1
                return
            turn = self._turn
            self._waiting += 1
            try:
                while turn == self._turn:
                    self._opened.wait()  # whoever ends the change counts us in
            except BaseException:
                if turn == self._turn:
                    self._waiting -= 1
                else:
                    self._searching -= 1
                raise

    def begin_change(self) -> None:
        """Wait until no search is in, and keep new ones out."""
        with self._lock:
            self._closed = True
            while self._searching:
                self._emptied.wait()

    def end_change(self) -> None:
        """Let the searches in that waited."""
        with self._lock:
            self._closed = False
            self._turn += 1
            self._searching += self._waiting
            self._waiting = 0
            self._opened.notify_all()

    def change(self, run: Callable[[], T]) -> T:
        """Run a change, alone, and return its result."""
        self.begin_change()
        try:
            return run()
        finally:
            self.end_change()
