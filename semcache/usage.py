"""Which entries one process has served since somebody asked, and how often."""

from __future__ import annotations

from typing import NamedTuple

from semcache.types import Response

_MOST = 10_000  # entries between two readings; what is more is left out, the busiest are in by then


class Used(NamedTuple):
    """An entry that was served, how often, and one of the responses."""

    entry_id: str
    uses: int
    response: Response


class Usage:
    """Counts by entry. Noting costs one dictionary access; a count lost between threads doesn't matter."""

    __slots__ = ("_counts", "_responses")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._responses: dict[str, Response] = {}

    def note(self, entry_id: str, response: Response) -> None:
        """Count one use."""
        counts = self._counts
        known = counts.get(entry_id)
        if known is not None:
            counts[entry_id] = known + 1
        elif len(counts) < _MOST:
            self._responses[entry_id] = response
            counts[entry_id] = 1

    def take(self) -> list[Used]:
        """Return the counts, and begin anew."""
        counts, responses = self._counts, self._responses
        self._responses = {}  # before the counts: a use noted meanwhile has its response in one of the two
        self._counts = {}
        return [
            Used(entry_id, count, response)
            for entry_id, count in list(counts.items())
            if (response := responses.get(entry_id)) is not None
        ]
