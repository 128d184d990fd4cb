"""Local copies: entries that this process read from the store less than a bound ago."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from semcache.types import Entry


@dataclass(slots=True)
class Copy:
    """A live entry as it was read.

    Attributes:
        read_at: Monotonic clock before the read was sent; the copy's age counts from here.
        time_us: The store's clock at that read.
    """

    entry: Entry
    read_at: float
    time_us: int


class LocalCopies:
    """A bounded, least-recently-stored-first table of copies. Safe to use from many threads."""

    def __init__(self, capacity: int, bound: float) -> None:
        self._capacity = capacity
        self.bound = bound
        self._lock = threading.Lock()
        self._copies: OrderedDict[str, Copy] = OrderedDict()
        self._serial = 0
        self.pinned: frozenset[str] = frozenset()  # not dropped to make room

    def get(self, entry_id: str, now: float) -> Copy | None:
        """Return a copy that is inside its bound at monotonic time `now`."""
        copy = self._copies.get(entry_id)
        if copy is None:
            return None
        if now - copy.read_at >= self.bound:
            with self._lock:
                if self._copies.get(entry_id) is copy:
                    del self._copies[entry_id]
            return None
        return copy

    @property
    def serial(self) -> int:
        """Counts drops; read it before the store is read, and give it to `keep`."""
        return self._serial

    def keep(self, copy: Copy, serial: int) -> None:
        """Keep a copy, unless something was dropped since `serial`: it may have been this entry."""
        if not self._capacity or self.bound <= 0:
            return
        with self._lock:
            if serial != self._serial:
                return
            self._copies[copy.entry.entry_id] = copy
            self._copies.move_to_end(copy.entry.entry_id)
            while len(self._copies) > self._capacity:
                oldest = next(
                    (name for name in self._copies if name not in self.pinned), next(iter(self._copies))
                )
                del self._copies[oldest]

    def drop(self, *entry_ids: str) -> None:
        """Drop copies by name, everything without names."""
        with self._lock:
            self._serial += 1
            if not entry_ids:
                self._copies.clear()
            for entry_id in entry_ids:
                self._copies.pop(entry_id, None)

    def __len__(self) -> int:
        return len(self._copies)
