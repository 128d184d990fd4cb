"""Which entries one process has served since somebody asked, and how often."""

from __future__ import annotations

_MOST = 10_000  # entries between two readings; what is more is left out, the busiest are in by then


class Usage:
    """Counts by entry. Noting costs one dictionary access; a count lost between threads doesn't matter."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def note(self, entry_id: str) -> None:
        """Count one use."""
        counts = self._counts
        known = counts.get(entry_id)
        if known is not None:
            counts[entry_id] = known + 1
        elif len(counts) < _MOST:
            counts[entry_id] = 1

    def take(self, most: int = 1000) -> tuple[tuple[str, int], ...]:
        """Return the counts, and begin anew; what is beyond `most` entries stays for the next time."""
        counts, self._counts = self._counts, {}
        items = list(counts.items())
        for entry_id, count in items[most:]:
            self._counts[entry_id] = self._counts.get(entry_id, 0) + count
        return tuple(items[:most])
