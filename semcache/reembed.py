"""Embedding stored prompts again after a change of encoder, beside the cache's other work.

One process at a time does it, under a lease, no faster than it is told to, and goes on where another one was
killed: what is done already is skipped. Entries that matched exactly only stay so. Embeddings of encoders that
no process uses any more are dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import TYPE_CHECKING

from semcache import admission
from semcache.codec import encode_embedding
from semcache.errors import EncoderError
from semcache.protocols import BackgroundStore, Embedded, EncodersSeen, Foreign, Reembedding

if TYPE_CHECKING:
    from semcache.core import Core

log = logging.getLogger(__name__)

BATCH = 16  # prompts that are embedded at once, between two looks at the rate
LEASE = 30.0  # seconds after which another process takes over from one that was killed
MARGIN = 30.0  # seconds before a pass, in which others may have stored what it didn't see
AGAIN = 300.0  # seconds between two passes of one process while another encoder is still in use
_TIMEOUT = 5.0
_ENCODING = 60.0  # seconds that one batch may take


class _LostError(Exception):
    """Another process has the lease."""


class Reembedder:
    """Embeds again what other encoders embedded, for one core.

    Args:
        stop: Set when the cache is closed.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        core: Core,
        store: BackgroundStore,
        *,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._store = store
        self._stop = stop
        self._clock = clock
        self._running = threading.Lock()
        self._passed: float | None = None  # when this process looked at all entries
        self._forgotten = 0  # what the log had been followed through by then

    def look(self) -> bool:
        """Say that this encoder is in use, take note of how far the work is, and return whether there is some."""
        seen = self._seen()
        return bool(self._core.foreign) or self._behind(seen)

    def _behind(self, seen: EncodersSeen) -> bool:
        """Whether there may be work that the log doesn't tell of."""
        last = seen.progress
        if last is None or last.finished is None or last.started is None:
            return True
        if self._passed is not None and self._clock() - self._passed < AGAIN:
            return False
        since = last.started - MARGIN
        return any(when > since for name, when in seen.seen.items() if name != self._core.fingerprint)

    def _seen(self) -> EncodersSeen:
        seen = self._store.encoders(self._core.fingerprint, timeout=_TIMEOUT)
        self._core.reembedding = seen.progress
        return seen

    def run(
        self,
        *,
        rate: float | None,
        whole: bool = False,
        watch: Callable[[Reembedding], None] = lambda progress: None,
    ) -> Reembedding:
        """Do what there is to do, unless another process is at it.

        Args:
            rate: Most prompts a second; then, at most half of the encoder's time is taken. None for no limit.
            whole: Look at all entries, also where nothing says that there is work.

        Returns:
            How far it came; what another process wrote down if that one leads.

        Raises:
            StoreUnavailableError: The store didn't answer; what was done is done.
        """
        name = f"reembed:{self._core.fingerprint}"
        if not self._running.acquire(blocking=False):
            return self._others_progress()
        try:
            if not self._store.lead(name, LEASE, timeout=_TIMEOUT):
                return self._others_progress()
            try:
                return self._pass(name, rate, whole, watch)
            finally:
                self._store.resign(name, timeout=_TIMEOUT)
        except _LostError:
            return self._others_progress()
        finally:
            self._running.release()

    def _others_progress(self) -> Reembedding:
        return self._seen().progress or Reembedding(fingerprint=self._core.fingerprint)

    def _pass(
        self, lease: str, rate: float | None, whole: bool, watch: Callable[[Reembedding], None]
    ) -> Reembedding:
        core, store, seen = self._core, self._store, self._seen()
        if seen.progress is not None and not (whole or core.foreign or self._behind(seen)):
            return seen.progress  # another process has just done it
        began = self._clock()
        total, batches = self._work(lease, seen, whole)
        progress = Reembedding(fingerprint=core.fingerprint, total=total, started=seen.now, leader=True)
        noted = self._clock()
        for batch in batches:
            for first in range(0, len(batch), BATCH):
                started = self._clock()
                some = batch[first : first + BATCH]
                done = self._embed(some)
                progress = replace(
                    progress, done=progress.done + done, skipped=progress.skipped + len(some) - done
                )
                core.reembedding = progress
                watch(progress)
                if self._clock() - noted >= 1.0:
                    noted = self._clock()
                    store.note_reembedding(progress, timeout=_TIMEOUT)
                    self._hold(lease)
                took = self._clock() - started
                if rate is not None and self._stop.wait(max(len(some) / rate - took, took)):
                    raise _LostError
        ended = seen.now + self._clock() - began
        progress = replace(progress, total=progress.done + progress.skipped, finished=ended)
        # A pass that found nothing to do leaves the numbers of the one that did.
        last = progress if progress.total or seen.progress is None else seen.progress
        core.reembedding = replace(last, started=seen.now, finished=ended)
        store.note_reembedding(core.reembedding, timeout=_TIMEOUT)
        watch(progress)
        if progress.done:
            log.info("embedded %s stored prompts again, left %s", progress.done, progress.skipped)
        return progress

    def _work(self, lease: str, seen: EncodersSeen, whole: bool) -> tuple[int, Iterator[list[Foreign]]]:
        """Return how many prompts there are to look at, and those: all entries, or what the log told of."""
        core, store = self._core, self._store
        listed = [core.foreign.popleft() for _ in range(len(core.foreign))]
        all_told = (
            self._passed is not None
            and self._forgotten == core.forgotten
            and len(listed) < (core.foreign.maxlen or 0)
        )
        if listed and all_told and not whole:
            chunks = (listed[first : first + 500] for first in range(0, len(listed), 500))
            return len(listed), (store.foreign(chunk, core.fingerprint, timeout=_TIMEOUT) for chunk in chunks)
        self._passed, self._forgotten = self._clock(), core.forgotten
        total = sum(len(batch) for batch in self._slowly(store.scan_foreign(core.fingerprint), lease))
        return total, self._slowly(store.scan_foreign(core.fingerprint), lease)

    def _slowly(self, batches: Iterator[list[Foreign]], lease: str) -> Iterator[list[Foreign]]:
        """Walk over entries, leaving the store half of the time to others, and hold the lease."""
        held = started = self._clock()
        for batch in batches:
            took = self._clock() - started
            yield batch
            if self._clock() - held >= LEASE / 3:
                held = self._clock()
                self._hold(lease)
            if self._stop.wait(min(took, 1.0)):
                raise _LostError
            started = self._clock()

    def _hold(self, lease: str) -> None:
        if self._stop.is_set() or not self._store.lead(lease, LEASE, timeout=_TIMEOUT):
            raise _LostError

    def _embed(self, some: Sequence[Foreign]) -> int:
        """Embed a few prompts and write that down; returns how many."""
        core = self._core
        futures = core.encoder.submit_many([one.prompt for one in some])
        given = []
        end = self._clock() + _ENCODING
        for one, future in zip(some, futures, strict=True):
            try:
                encoded = future.result(max(0.0, end - self._clock()))
            except (EncoderError, FutureTimeoutError):
                core.metrics.count("failures", "reembed")
                continue
            if admission.unreadable(encoded.limits, encoded.embedding, core.policy) is None:
                given.append(
                    Embedded(one.entry_id, one.revision, one.scope, encode_embedding(encoded.embedding))
                )
        return self._store.embed(given, core.fingerprint, timeout=_TIMEOUT) if given else 0

    def tidy(self) -> int:
        """Drop the embeddings of encoders that no process has used for `Policy.encoder_ttl`; returns how many."""
        core = self._core
        seen = self._seen()
        if seen.progress is None or seen.progress.finished is None:
            return 0  # they may be needed by those who go back to them
        oldest = seen.now - core.policy.encoder_ttl
        dead = [name for name, when in seen.seen.items() if when < oldest and name != core.fingerprint]
        if not dead:
            return 0
        dropped = self._store.forget_encoders(dead, timeout=_TIMEOUT)
        log.info("dropped %s embeddings of %s", dropped, ", ".join(dead))
        return dropped
