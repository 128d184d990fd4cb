"""A circuit breaker: after some failures in a row the store is left alone for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Breaker:
    """Opens after `failures` failures in a row; after `reset` seconds one caller may try again.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, failures: int, reset: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._reset = reset
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._open_until: float | None = None

    def admits(self) -> bool:
        """Return whether a call may be made; while open, one caller per `reset` seconds may."""
        if self._open_until is None:
            return True
        with self._lock:
            if self._open_until is None:
                return True
            now = self._clock()
            if now < self._open_until:
                return False
            self._open_until = now + self._reset
            return True

    def succeeded(self) -> None:
        """Note that a call succeeded."""
        if self._failed:
            with self._lock:
                self._failed = 0
                self._open_until = None

    def failed(self) -> None:
        """Note that a call failed."""
        with self._lock:
            self._failed += 1
            if self._failed >= self._limit and self._open_until is None:
                self._open_until = self._clock() + self._reset

    @property
    def is_open(self) -> bool:
        """True while calls are held back."""
        return self._open_until is not None
