"""Pure: may a row of a disk tier's file be served, also where the store has lost its memory since?

A file hears the change log. A store that was flushed has another *epoch*, and no idea of what was withdrawn before;
the file has, as far as it has heard without a gap. Epochs are numbered as the file met them, since the clock of a
later one may be behind: a moment is (number of the epoch, microseconds of that epoch's clock).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Moment: TypeAlias = tuple[int, int]
Standing: TypeAlias = Literal["served", "waiting", "dead"]


@dataclass(frozen=True, slots=True)
class Heard:
    """How much of the change log a file has heard.

    Attributes:
        epochs: Epoch → its number, in the order in which they were met; the last is the one whose log is heard.
        sequence: Number of the newest record heard; 0 for none.
        mark: Tells that record from another of its number; empty for none.
        since: From when on everything was heard. Rows fenced up to then can't be vouched for once their epoch is over.
        noticed_us: The last epoch's clock when it was noticed, microseconds.
        ready: Whether everybody has had the time to say again, in the last epoch, what was withdrawn shortly before it.
    """

    epochs: Mapping[str, int]
    sequence: int
    mark: str
    since: Moment
    noticed_us: int
    ready: bool

    @property
    def epoch(self) -> str:
        """The epoch whose log is heard."""
        return next(reversed(list(self.epochs)))

    @property
    def number(self) -> int:
        """That epoch's number."""
        return self.epochs[self.epoch]


def standing(
    epoch: str, fence_us: int, *, present: str, heard: Heard | None, gone: Iterable[Moment]
) -> Standing:
    """Return whether a row may be served now, may be later, or never.

    Args:
        epoch, fence_us: The row's fence.
        present: The store's epoch.
        heard: None if the file has heard nothing yet.
        gone: When the row's entry was withdrawn, and when each generation that it obeys was raised, as far as was
            heard. A tie is dead.
    """
    number = None if heard is None else heard.epochs.get(epoch)
    if heard is None or number is None:
        return (
            "served" if epoch == present else "waiting"
        )  # the store knows of its own epoch; of others, nobody
    moment = (number, fence_us)
    if any(moment <= when for when in gone):
        return "dead"
    if present != heard.epoch:
        return "waiting"  # for the file to notice the store's epoch
    if epoch == present:
        return "served"
    if moment <= heard.since:
        return "dead"
    return "served" if heard.ready else "waiting"
