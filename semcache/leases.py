"""Leases: of all processes, one calls the model for an entry. A thread holds them while the model thinks.

A lease is short, so that a leader's death is noticed soon, and is extended as long as its call lasts, up to
a bound, so that a model that never answers doesn't keep the others waiting. Leases are a courtesy: whether
an answer may be stored is decided by fences, whoever has the lease.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semcache.errors import StoreUnavailableError

if TYPE_CHECKING:
    from semcache.metrics import Metrics
    from semcache.protocols import Store

log = logging.getLogger(__name__)

UNSHARED = 1.0  # seconds for which callers don't wait after an answer wasn't stored
TIMEOUT = 1.0  # seconds that extending or giving back may take


@dataclass(slots=True, eq=False)
class Lease:
    """A lease of this process.

    Attributes:
        began: Monotonic clock when it was taken.
        due: Monotonic clock when it is to be extended.
    """

    entry_id: str
    holder: str
    began: float = field(default_factory=time.monotonic)
    due: float = 0.0


class LeaseKeeper:
    """Extends and gives back one process's leases. Safe to use from many threads; its own starts at the first lease.

    Args:
        store: For this thread alone, or safe to share.
        seconds: Length of a lease.
        bound: Seconds after which a lease isn't extended any more.
    """

    def __init__(self, store: Store, seconds: float, bound: float, metrics: Metrics) -> None:
        self._store = store
        self.seconds = seconds
        self._bound = bound
        self._metrics = metrics
        self._changed = threading.Condition()
        self._held: dict[str, Lease] = {}  # by holder
        self._back: list[tuple[Lease, bool]] = []  # to be given back, and whether nothing was stored
        self._thread: threading.Thread | None = None
        self._closed = False

    def hold(self, entry_id: str, holder: str) -> Lease:
        """Keep a lease that was just taken."""
        lease = Lease(entry_id, holder)
        lease.due = lease.began + self.seconds / 3
        with self._changed:
            self._held[holder] = lease
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="semcache-leases", daemon=True)
                self._thread.start()
        return lease

    def ended(self, lease: Lease) -> None:
        """Take note that a lease ended with a put."""
        with self._changed:
            self._held.pop(lease.holder, None)

    def give_back(self, lease: Lease, *, unshared: bool) -> None:
        """Give a lease back, unless it ended already; the thread does it.

        Args:
            unshared: Whether there is an answer that wasn't stored, so that nobody should wait for the next one.
        """
        with self._changed:
            if self._held.pop(lease.holder, None) is not None:
                self._back.append((lease, unshared))
                self._changed.notify()

    def close(self) -> None:
        """End the thread; what is held ends by itself."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wait()
                back, self._back = self._back, []
                due = self._due()
                if self._closed and not back:
                    return
            for unshared in (False, True):
                leases = [(lease.entry_id, lease.holder) for lease, flag in back if flag is unshared]
                if leases:
                    keep = UNSHARED if unshared else None
                    self._try(lambda n=leases, k=keep: self._store.release(n, unshared=k, timeout=TIMEOUT))  # type: ignore[misc]
            if due:
                self._try(lambda d=due: self._extend(d))  # type: ignore[misc]

    def _wait(self) -> None:
        while not self._closed and not self._back:
            # A lease that is taken meanwhile wakes nobody, so that a miss doesn't pay for it: it is due no earlier.
            now = time.monotonic()
            first = min((lease.due for lease in self._held.values()), default=now + self.seconds / 3)
            if first <= now:
                return
            self._changed.wait(first - now)

    def _due(self) -> list[Lease]:
        now = time.monotonic()
        due = [lease for lease in self._held.values() if lease.due <= now]
        for lease in due:
            lease.due = now + self.seconds / 3
            if now - lease.began > self._bound:
                del self._held[lease.holder]
        return [lease for lease in due if lease.holder in self._held]

    def _extend(self, due: list[Lease]) -> None:
        names = [(lease.entry_id, lease.holder) for lease in due]
        held = self._store.extend(names, self.seconds, timeout=TIMEOUT)
        with self._changed:
            for lease, mine in zip(due, held, strict=True):
                if not mine:
                    self._held.pop(lease.holder, None)

    def _try(self, do: Callable[[], object]) -> None:
        try:
            do()
        except (StoreUnavailableError, TimeoutError) as error:
            self._metrics.count("failures", "lease")
            log.debug("a lease wasn't kept: %s", error)
        except Exception:  # the top of a thread that must go on; at the end connections close under it
            if not self._closed:
                self._metrics.count("failures", "lease")
                log.exception("keeping leases failed")
