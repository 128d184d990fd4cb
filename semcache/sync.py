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
from collections.abc import Sequence
from typing import Any

from semcache.core import Core
from semcache.errors import StoreUnavailableError
from semcache.protocols import Change
from semcache.steps import Ask, Compute, Steps

log = logging.getLogger(__name__)

BLOCK = 1.0  # seconds that one read waits for news
PAUSE = 0.5  # seconds between attempts while the store is away
BATCH = 1000


class Follower:
    """Applies the log to one core. The steps are performed by a thread or a task."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._position: int | None = None
        self._epoch = ""
        self.applied = 0

    def turn(self) -> Steps[None]:
        """Read what is new, waiting a while for it, and apply it."""
        if self._position is None:
            # Whoever comes first notes the position, before any rows are read: nothing falls in between.
            if self._core.followed is None:
                position = yield Ask("position", (), {"timeout": 1.0})
                self._core.followed = self._core.followed or position
            self._epoch, self._position = self._core.followed
        yield from self._attach_late()
        changes: list[Change] = yield Ask("changes", (self._position,), {"count": BATCH, "block": BLOCK})
        if not changes:
            yield from self._check_position()
            return
        if changes[0].sequence != self._position + 1:
            log.info("the change log skips from %s to %s: forgetting", self._position, changes[0].sequence)
            self._core.metrics.count("failures", "log_gap")
            self._core.forget()
        self._position = changes[-1].sequence
        for change in changes:
            if change.epoch and change.epoch != self._epoch:
                if self._epoch:
                    # Also a stream that began again and has caught up with our position.
                    log.info("the change log speaks of another epoch: forgetting")
                    self._core.metrics.count("failures", "log_reset")
                    self._core.forget()
                self._epoch = change.epoch
        yield from self._apply(changes)

    def _attach_late(self) -> Steps[None]:
        """Write embeddings that weren't ready when their entries were stored."""
        late = self._core.late
        while late:
            yield Ask("attach", (late[0],), {"timeout": 1.0})
            late.popleft()

    def _check_position(self) -> Steps[None]:
        # After a flush or a restore the stream starts again, and waiting on the old position returns nothing.
        epoch, newest = yield Ask("position", (), {"timeout": 1.0})
        if newest < (self._position or 0) or (self._epoch and epoch and epoch != self._epoch):
            log.info("the store went back in time (epoch %s, log at %s): forgetting", epoch, newest)
            self._core.metrics.count("failures", "log_reset")
            self._core.forget()
            self._position = newest
        self._epoch = epoch or self._epoch

    def _apply(self, changes: Sequence[Change]) -> Steps[None]:
        core = self._core
        if any(change.op in ("tag", "clear") for change in changes):
            core.local.drop()
        if any(change.op != "add" for change in changes):
            core.flights.ground()
            yield from core.count_withdrawals()
            core.withdrew(
                (c.entry_id for c in changes if c.op == "withdraw"), (n for c in changes for n in c.names)
            )
        if core.arrivals:
            for change in changes:
                core.arrived(change.entry_id)
        changes = [c for c in changes if c.op != "add" or not core.is_own(c.entry_id)]
        gone = [change.entry_id for change in changes if change.op in ("withdraw", "add")]
        if gone:
            core.local.drop(*gone)  # an add replaces what was copied
        wanted: dict[str, list[tuple[str, float | None]]] = {}
        for change in changes:
            if change.op == "add" and change.fingerprint == core.fingerprint and change.scope in core.loaded:
                wanted.setdefault(change.scope, []).append((change.entry_id, change.expires_at))
        for scope_id, members in wanted.items():
            blobs = yield Ask("embeddings", ([name for name, _ in members],), {"timeout": 5.0})
            yield Compute(lambda s=scope_id, m=members, b=blobs: core.add_rows(s, m, b))  # type: ignore[misc]
        self.applied += len(changes)

    def lost(self) -> None:
        """The connection broke: what happens meanwhile is found out by position."""
        self._core.metrics.count("failures", "follower")


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
        self.pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="semcache-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._drive(self._follower.turn(), self._store)
                self._sweep()
            except (StoreUnavailableError, TimeoutError) as error:
                log.debug("the change log can't be read: %s", error)
                self._pause()
            except Exception:  # the top of a thread that must go on; at the end connections close under it
                if not self._stop.is_set():
                    log.exception("following the change log failed")
                self._pause()

    def _pause(self) -> None:
        if not self._stop.is_set():
            self._follower.lost()
            self._stop.wait(PAUSE)

    def _sweep(self) -> None:
        every = self._core.policy.sweep_every
        if every and time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + every
            self._store.sweep(**self._core.sweeping(), timeout=5.0)

    def stop(self) -> None:
        """Ask the thread to end; it does so within the time that one read waits."""
        self._stop.set()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout)
