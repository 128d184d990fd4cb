"""A disk tier's file hears the change log, so that it knows what was withdrawn when the store has forgotten it.

The file has a place in the log of its own. A turn follows each of the follower's: it checks that the store is still
the one whose log was heard, notes what came since, and so was *in touch*. When the store is found with another epoch
shortly after that, what lies in the file is carried over: it may be served again once every process has had the time
to say again what it had withdrawn in between. Whatever can't be vouched for isn't carried.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from semcache.errors import SemcacheError
from semcache.protocols import Change, Position, View
from semcache.steps import Ask, Compute, Steps
from semcache.stores.disk_record import readable, tells

if TYPE_CHECKING:
    from semcache.core import Core
    from semcache.stores.carrying import Heard
    from semcache.stores.disk_record import Record

log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH = 1000  # records of one read of the log
GRACE = 5.0  # seconds: whoever withdrew in between and can't say it again any more isn't heard
QUARANTINE = 2.0  # seconds: twice what a follower's read waits for news
TIMEOUT = 1.0  # seconds
WRITTEN = 1.0  # seconds between two notes of the place where nothing is withdrawn
MOST_READS = 20  # of the log in one turn


class _FileError(SemcacheError):
    """The file can't be used just now."""


class _Touch(NamedTuple):
    """When everything that the log of an epoch told was heard."""

    epoch: str
    clock: float  # monotonic
    time: float  # seconds since the Unix epoch: some monotonic clocks stop while a machine sleeps


class Hearing:
    """Keeps the record of one process's disk tier, by the steps of its follower."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._heard: Heard | None = None  # as the file has it, or a little ahead
        self._written = 0.0  # monotonic clock of the last note of the place
        self._touch: _Touch | None = None
        self._met: tuple[str, float] = ("", 0.0)  # the epoch, and the monotonic clock when it was met

    def turn(self, changes: Sequence[Change], sent: float) -> Steps[None]:
        """Hear what is new.

        Args:
            changes: What the follower has read, up to the end of the log if they are fewer than `BATCH`.
            sent: Monotonic clock when it asked.
        """
        disk = self._core.disk
        if disk is None or disk.closed:
            return
        try:
            yield from self._hear(disk.record, changes, sent)
        except _FileError as error:
            if not disk.closed:
                log.debug("the disk tier hears nothing: %s", error)
                self._core.metrics.count("failures", "disk")
            self._heard = None  # what is in the file counts

    def _hear(self, record: Record, changes: Sequence[Change], sent: float) -> Steps[None]:
        heard = self._heard
        if heard is None:
            heard = yield from _in_file(record.heard)
            changes = ()  # they may follow on what was heard before, in a log that is no more
        gap = False
        for _ in range(MOST_READS):
            asked = self._stamp()
            found: Position = yield Ask("position", (heard.sequence if heard else 0,), {"timeout": TIMEOUT})
            if not found.epoch:
                yield from self._view()  # which gives a store without an epoch one
                continue
            if heard is None or gap or not _goes_on(heard, found):
                self._heard = heard = yield from self._stand_anew(record, heard, found)
                if heard is None or heard.epoch != found.epoch:
                    return
                changes, gap = (), False
                continue
            # What was read before this answer is of the same log, since that still has the record it followed on.
            follows = bool(changes) and changes[0].sequence <= heard.sequence + 1
            if follows and not all(readable(change) for change in changes):
                gap = True
                continue
            if follows:
                self._heard = heard = yield from self._note(record, heard, changes)
                if heard is None or heard.epoch != found.epoch:
                    return
            if found.sequence <= heard.sequence or (follows and len(changes) < BATCH):
                touch = asked if not follows else self._stamp(sent)
                yield from self._in_touch(record, heard, touch._replace(epoch=heard.epoch))
                return
            sent = self._core.clock()
            changes = yield Ask("changes", (heard.sequence,), {"count": BATCH, "block": 0.0})
            gap = not changes or changes[0].sequence != heard.sequence + 1

    def _note(self, record: Record, heard: Heard, changes: Sequence[Change]) -> Steps[Heard | None]:
        newest, now = changes[-1], self._core.clock()
        if now - self._written < WRITTEN and not any(tells(change) for change in changes):
            # The file may lag behind: from there on it is heard again.
            if newest.sequence > heard.sequence:
                heard = replace(heard, sequence=newest.sequence, mark=newest.mark)
            return heard
        self._written = now
        noted = yield from _in_file(lambda: record.hear(changes, heard.epoch))
        return noted

    def _in_touch(self, record: Record, heard: Heard, touch: _Touch) -> Steps[None]:
        """Note when everything was heard, and let carried rows be served when the quarantine is over."""
        self._touch, self._heard = touch, heard
        if self._met[0] != heard.epoch:
            self._met = (heard.epoch, self._core.clock())
        if not heard.ready and touch.clock >= self._met[1] + QUARANTINE:
            self._heard = yield from _in_file(lambda: record.make_ready(heard.epoch))
            log.info("what the disk tier had kept may be served again, in epoch %s", heard.epoch)

    def _stand_anew(self, record: Record, heard: Heard | None, found: Position) -> Steps[Heard | None]:
        """The log that was heard is another's or has a gap: carry over what may be, else begin anew.

        Returns:
            What the file stands on; None to look again later.
        """
        if heard is not None and found.epoch != heard.epoch and found.epoch not in heard.epochs:
            if self._was_in_touch(heard.epoch):
                view = yield from self._view()
                if view.epoch != found.epoch:
                    return heard
                self._met = (view.epoch, self._core.clock())
                log.info(
                    "the store lost its memory; what the disk tier has kept is carried into epoch %s",
                    view.epoch,
                )
                carried = yield from _in_file(lambda: record.carry(heard, view.epoch, view.time_us))
                return carried
            if self._touch is None and self._since_met(found.epoch) <= GRACE:
                return None  # another process that shares the file may have been in touch
        newest: Position = yield Ask("position", (), {"timeout": TIMEOUT})
        view = yield from self._view()
        if not newest.epoch or newest.epoch != view.epoch:
            return None
        if heard is not None:
            log.info("the disk tier can't vouch for what it kept before %s", view.time_us)
            self._core.metrics.count("failures", "disk_gap")
        begun = yield from _in_file(lambda: record.begin(heard, newest, view.time_us))
        return begun

    def _since_met(self, epoch: str) -> float:
        if self._met[0] != epoch:
            self._met = (epoch, self._core.clock())
        return self._core.clock() - self._met[1]

    def _was_in_touch(self, epoch: str) -> bool:
        touch, now = self._touch, self._stamp()
        return (
            touch is not None
            and touch.epoch == epoch
            and max(now.clock - touch.clock, now.time - touch.time) <= GRACE
        )

    def _stamp(self, clock: float | None = None) -> _Touch:
        now = self._core.clock()
        past = 0.0 if clock is None else now - clock
        return _Touch("", now - past, time.time() - past)

    def _view(self) -> Steps[View]:
        view: View = yield Ask("read", ((), ()), {"embedding": None, "timeout": TIMEOUT})
        return view


def _goes_on(heard: Heard, found: Position) -> bool:
    """Whether the log still has the record that was heard last."""
    return (
        found.epoch == heard.epoch
        and found.sequence >= heard.sequence
        and (not heard.mark or found.mark == heard.mark)
    )


def _in_file(work: Callable[[], T]) -> Steps[T]:
    """Do something with the file."""
    try:
        done: T = yield Compute(work)
    except (sqlite3.Error, OSError) as error:
        raise _FileError(str(error)) from error
    return done
