"""Following the change log: how a process learns of other processes' adds and withdrawals.

The log is a stream of hints. Nothing is served on its word, and nothing breaks when it is lost: entries
are judged by the store's state, and a local copy is never older than its bound. A gap, another epoch or
a log that went back in time makes the follower forget what it knows; scopes are then read anew.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from semcache.core import Core
from semcache.errors import EncoderError, StoreUnavailableError
from semcache.hearing import BATCH, Hearing
from semcache.protocols import Change, Position, Reembedding
from semcache.reembed import Reembedder
from semcache.steps import Ask, Compute, Steps

log = logging.getLogger(__name__)

BLOCK = 1.0  # seconds that one read waits for news
PAUSE = 0.5  # seconds between attempts while the store is away
LOOK = 10.0  # seconds between two looks for entries of another encoder
GATHER = 0.01  # seconds; a busy log is read in handfuls, not record by record


class Follower:
    """Applies the log to one core. The steps are performed by a thread or a task.

    Attributes:
        at: Up to where the log is applied; None before the first turn.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.at: Position | None = None
        self._doubted = False  # whether the store may have gone back in time unseen
        self._hearing = Hearing(core)
        self._behind = 0  # the record up to which the log must be applied before rows are searched

    def turn(self) -> Steps[bool]:
        """Read what is new, waiting a while for it, and apply it; returns whether there was any."""
        sent, at = self._core.clock(), self.at
        if at is None:
            at = yield from self._begin()
            yield from self._beside(at, (), sent)
        elif self._doubted:
            at = yield from self._check_position(at)
            self._doubted = False
            yield from self._beside(at, (), sent)
        yield from self._attach_late()
        yield from self._queue_stale()
        yield from self._core.report()
        yield from self._core.note_uses()
        sent = self._core.clock()
        changes: list[Change] = yield Ask("changes", (at.sequence,), {"count": BATCH, "block": BLOCK})
        if not changes:
            at = yield from self._check_position(at)
            self._core.started()
            yield from self._beside(at, (), sent)
            return False
        if changes[0].sequence != at.sequence + 1:
            log.info("the change log skips from %s to %s: forgetting", at.sequence, changes[0].sequence)
            self._core.metrics.count("failures", "log_gap")
            self._core.forget()
        epoch = at.epoch
        for change in changes:
            if change.epoch and change.epoch != epoch:
                if epoch:
                    # Also a stream that began again and has caught up with our position.
                    log.info("the change log speaks of another epoch: forgetting")
                    self._core.metrics.count("failures", "log_reset")
                    self._core.forget()
                epoch = change.epoch
        yield from self._apply(changes, epoch)
        self.at = Position(
            epoch, changes[-1].sequence, changes[-1].mark
        )  # now, so that a failure repeats them
        if self.at.sequence >= self._behind:
            self._core.started()
        yield from self._beside(self.at, changes, sent)
        return True

    def _beside(self, at: Position, changes: Sequence[Change], sent: float) -> Steps[None]:
        """Tell a store that has lost its memory what mustn't be lost, also where nobody looks anything up; then listen.

        Args:
            changes: What was read of the log.
            sent: Monotonic clock when it was asked for.
        """
        core = self._core
        if at.epoch and at.epoch != core.epoch:
            yield from core.count_withdrawals()  # and learn the epoch
        if core.recent.unsaid:
            yield from core.say_again()
        yield from core.offer_again()
        yield from self._hearing.turn(changes, sent)

    def _begin(self) -> Steps[Position]:
        """Take over what was kept from the last run, or note where the log is before any rows are read."""
        core = self._core
        if core.snapshots is not None and core.followed is None:
            self._behind = yield from core.snapshots.restore(core)
        if core.followed is None:
            # Whoever comes first notes the position, before any rows are read: nothing falls in between.
            newest = yield Ask("position", (), {"timeout": 1.0})
            with core.lock:
                core.followed = core.followed or newest
        self.at = core.followed
        if self.at.sequence >= self._behind:
            core.started()
        return self.at

    def _attach_late(self) -> Steps[None]:
        """Write embeddings that weren't ready when their entries were stored."""
        late = self._core.late
        while late:
            yield Ask("attach", (late[0],), {"timeout": 1.0})
            late.popleft()

    def _queue_stale(self) -> Steps[None]:
        """Queue for regeneration what lookups found stale."""
        stale = self._core.stale
        while stale:
            batch = [stale[place] for place in range(min(len(stale), BATCH))]
            yield Ask("queue_refresh", (batch,), {"timeout": 1.0})
            for _ in batch:
                stale.popleft()

    def _check_position(self, at: Position) -> Steps[Position]:
        # After a flush or a restore the stream starts again, and waiting on the old position returns nothing;
        # or it has caught up meanwhile, and the record at our position is another.
        found: Position = yield Ask("position", (at.sequence,), {"timeout": 1.0})
        if (
            found.sequence < at.sequence
            or (at.epoch and found.epoch and found.epoch != at.epoch)
            or (at.mark and found.mark and found.mark != at.mark)
        ):
            log.info(
                "the store went back in time (epoch %s, log at %s): forgetting", found.epoch, found.sequence
            )
            self._core.metrics.count("failures", "log_reset")
            self._core.forget()
            self.at = replace(found, epoch=found.epoch or at.epoch, mark="")
        else:
            self.at = Position(found.epoch or at.epoch, at.sequence, found.mark or at.mark)
        return self.at

    def _apply(self, changes: Sequence[Change], epoch: str) -> Steps[None]:
        core = self._core
        if any(change.op in ("tag", "clear") for change in changes):
            core.local.drop()
        changes = self._drop_evicted(changes)
        if any(change.op != "add" for change in changes):
            core.flights.ground()
            core.heard(changes, epoch)
            yield from core.count_withdrawals()
        if core.arrivals:
            for change in changes:
                core.arrived(change.entry_id)
        changes = [c for c in changes if c.op != "add" or not core.own.passes(c.entry_id)]
        gone = [change.entry_id for change in changes if change.op in ("withdraw", "block", "add")]
        if core.disk is not None:
            # What is said again is judged by its time when it is looked for.
            core.disk.drop(c.entry_id for c in changes if c.op == "withdraw" and not c.again)
        if gone:
            core.local.drop(*gone)  # an add replaces what was copied
        core.foreign.extend(
            c.entry_id
            for c in changes
            if c.op == "add" and c.fingerprint and core.fingerprint and c.fingerprint != core.fingerprint
        )
        wanted: dict[str, list[tuple[str, float | None]]] = {}
        for change in changes:
            if change.op == "add" and change.fingerprint == core.fingerprint and change.scope in core.loaded:
                wanted.setdefault(change.scope, []).append((change.entry_id, change.expires_at))
        for scope_id, members in wanted.items():
            names = [name for name, _ in members]
            blobs = yield Ask("embeddings", (names, core.fingerprint), {"timeout": 5.0})
            yield Compute(lambda s=scope_id, m=members, b=blobs: core.add_rows(s, m, b))  # type: ignore[misc]

    def _drop_evicted(self, changes: Sequence[Change]) -> list[Change]:
        """Forget the rows of what made room; returns the other changes."""
        index = self._core.index
        for change in changes:
            if change.op == "evict" and index is not None:
                index.remove(change.scope, [change.entry_id])
        return [change for change in changes if change.op != "evict"]

    def lost(self) -> None:
        """The connection broke: what happens meanwhile is found out by position."""
        self._doubted = self.at is not None
        self._core.metrics.count("failures", "follower")
        self._core.started()  # lookups read for themselves what they need

    def confused(self) -> None:
        """Something failed that can't: go on from where the log ends, and read everything anew."""
        self._core.forget()
        with self._core.lock:
            self.at = self._core.followed = None


class FollowerThread:
    """Performs a follower's steps on a store of its own."""

    def __init__(self, core: Core, store: Any) -> None:
        from semcache.steps import drive

        self._follower = Follower(core)
        self._store = store
        self._drive = drive
        self._stop = threading.Event()
        self._core = core
        self._next_sweep = time.monotonic() + core.policy.sweep_every
        self._reembedder = Reembedder(core, store, stop=self._stop)
        self._next_look = 0.0
        self._reembedding = threading.Thread(target=self._embed_again, name="semcache-reembed", daemon=True)
        self._next_snapshot = time.monotonic() + core.policy.snapshot_every
        self._snapshot = threading.Thread(target=self.keep, name="semcache-snapshot", daemon=True)
        self.pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="semcache-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._drive(self._follower.turn(), self._store):
                    self._stop.wait(GATHER)
                self._sweep()
                self._keep_now_and_then()
                self._look_for_foreign()
            except (StoreUnavailableError, TimeoutError) as error:
                log.debug("the change log can't be read: %s", error)
                self._pause()
            except Exception:  # the top of a thread that must go on; at the end connections close under it
                if not self._stop.is_set():
                    log.exception("following the change log failed")
                    self._follower.confused()
                self._pause()

    def _pause(self) -> None:
        if not self._stop.is_set():
            self._follower.lost()
            self._stop.wait(PAUSE)

    def _sweep(self) -> None:
        every = self._core.policy.sweep_every
        if every and time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + every
            done = self._store.sweep(**self._core.sweeping(), timeout=5.0)
            if done.leader and self._core.fingerprint:
                self._reembedder.tidy()

    def _look_for_foreign(self) -> None:
        core = self._core
        if not core.fingerprint or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK
        if self._reembedder.look() and core.policy.reembed_rate and not self._reembedding.is_alive():
            self._reembedding = threading.Thread(
                target=self._embed_again, name="semcache-reembed", daemon=True
            )
            self._reembedding.start()

    def _embed_again(self) -> None:
        try:
            self._reembedder.run(rate=self._core.policy.reembed_rate)
        except (StoreUnavailableError, TimeoutError, EncoderError) as error:
            log.debug("embedding again stopped: %s", error)
            if not self._stop.is_set():  # at the end connections close under it
                self._core.metrics.count("failures", "reembed")
        except Exception:  # the top of a thread
            if not self._stop.is_set():
                log.exception("embedding again failed")

    def reembed(self, rate: float | None, watch: Callable[[Reembedding], None]) -> Reembedding:
        """Embed all stored prompts again that this encoder hasn't, now and in this thread."""
        return self._reembedder.run(rate=rate, whole=True, watch=watch)

    def _keep_now_and_then(self) -> None:
        every = self._core.policy.snapshot_every
        if self._core.snapshots is None or not every or time.monotonic() < self._next_snapshot:
            return
        self._next_snapshot = time.monotonic() + every
        if not self._snapshot.is_alive():  # beside the log, which goes on being followed
            self._snapshot = threading.Thread(target=self.keep, name="semcache-snapshot", daemon=True)
            self._snapshot.start()

    def keep(self) -> None:
        """Write a snapshot where there is a place for it."""
        if self._core.snapshots is not None and self._follower.at is not None:
            self._core.snapshots.write(self._core, self._follower.at)

    def stop(self) -> None:
        """Ask the thread to end; it does so within the time that one read waits."""
        self._stop.set()

    def let_go(self, timeout: float) -> None:
        """Wait for the pass that embeds again, after `stop`: it gives its lease back while its connection is open."""
        if self._reembedding.is_alive():
            self._reembedding.join(timeout)

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout)
