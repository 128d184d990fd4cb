"""Which records of the change log are about rows that this process adds itself. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from threading import Condition

MAX_EXPECTED = 10_000  # records; a put that the store never wrote leaves one behind


class OwnPuts:
    """Tells own puts from others'. Safe to use from many threads.

    A put is begun before the store is asked, and ended when its row is in the index or won't be. The log
    may tell of it before or after that.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._expected: OrderedDict[str, int] = OrderedDict()
        self._flying: dict[int, str] = {}
        self._begun = 0

    def begin(self, entry_id: str) -> int:
        """Note that the log will tell of this entry; returns a ticket for `end`."""
        with self._changed:
            self._begun += 1
            self._flying[self._begun] = entry_id
            self._expected[entry_id] = self._expected.get(entry_id, 0) + 1
            while len(self._expected) > MAX_EXPECTED:
                self._expected.popitem(last=False)
            return self._begun

    def end(self, ticket: int, *, added: bool) -> bool:
        """Note that a put is over.

        Args:
            added: Whether its row is in the index, or needn't be.

        Returns:
            Whether its row is missing: it wasn't added, and the log's record of it was passed over.
        """
        with self._changed:
            entry_id = self._flying.pop(ticket)
            self._changed.notify_all()
            return not added and not self._take(entry_id)

    def passes(self, entry_id: str) -> bool:
        """Return whether a record of the log is about an own put, and may be passed over; asked once per record."""
        with self._changed:
            return self._take(entry_id)

    def _take(self, entry_id: str) -> bool:
        count = self._expected.pop(entry_id, 0)
        if count > 1:
            self._expected[entry_id] = count - 1
        return count > 0

    def settle(self, timeout: float) -> bool:
        """Wait until the puts that are under way now are over, at most `timeout` seconds; returns whether they are."""
        with self._changed:
            last = self._begun
            return self._changed.wait_for(
                lambda: all(ticket > last for ticket in self._flying), timeout=timeout
            )
