"""Remembers, between a lookup that missed and the update that follows it, when the lookup looked.

LangChain's cache interface has two calls and nothing that ties them together. An answer may only be
stored with the fence of its own lookup, or an invalidation in between would be undone; where it can't
be told which lookup an update belongs to, the oldest one counts, which may refuse an answer but never
revives one.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from semcache.types import Fence

CAPACITY: Final = 8192


@dataclass(frozen=True, slots=True)
class Pending:
    """A lookup that missed.

    Attributes:
        fence: When it looked, None if the store wasn't reached.
        reason: Why it missed.
        started: Monotonic seconds at which it missed, None if not known.
    """

    fence: Fence | None
    reason: str
    started: float | None


class PendingLookups:
    """A bounded map from (question, caller) to the last miss. Safe to use from threads and tasks.

    Args:
        capacity: Lookups without an update that are remembered.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._by_question: dict[bytes, dict[int, Pending]] = {}
        self._order: OrderedDict[tuple[bytes, int], None] = OrderedDict()
        self._forgotten: Fence | None = None

    def remember(self, question: bytes, pending: Pending) -> None:
        """Note that this thread or task missed; replaces its earlier miss of the same question."""
        caller = _callers.current()
        with self._lock:
            self._by_question.setdefault(question, {})[caller] = pending
            self._order[question, caller] = None
            self._order.move_to_end((question, caller))
            if len(self._order) > self._capacity:
                self._forget()

    def take(self, question: bytes) -> Pending | None:
        """Return and drop this thread's or task's miss, else the oldest of anyone's, else None."""
        caller = _callers.current()
        with self._lock:
            callers = self._by_question.get(question)
            if not callers:
                if self._forgotten is None:
                    return None
                return Pending(self._forgotten, "no_candidate", None)
            if caller not in callers:
                caller = min(callers, key=lambda name: _age(callers[name]))
            return self._drop(question, caller)

    def __len__(self) -> int:
        return len(self._order)

    def _forget(self) -> None:
        question, caller = next(iter(self._order))
        fence = self._drop(question, caller).fence
        if fence is not None and (self._forgotten is None or fence.time_us < self._forgotten.time_us):
            self._forgotten = fence

    def _drop(self, question: bytes, caller: int) -> Pending:
        callers = self._by_question[question]
        pending = callers.pop(caller)
        if not callers:
            del self._by_question[question]
        del self._order[question, caller]
        return pending


def _age(pending: Pending) -> int:
    return -1 if pending.fence is None else pending.fence.time_us


class _Callers(threading.local):
    """Numbers threads and tasks; unlike idents and ids, a number is never used twice."""

    def __init__(self) -> None:
        self.thread = next(_numbers)
        self.tasks: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()

    def current(self) -> int:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no running loop in this thread
            task = None
        if task is None:
            return self.thread
        number = self.tasks.get(task)
        if number is None:
            number = self.tasks[task] = next(_numbers)
        return number


_numbers = itertools.count()
_callers = _Callers()
