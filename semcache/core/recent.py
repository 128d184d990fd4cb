"""Which withdrawals a process remembers, and whether they must be said again to a store that forgot them. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from threading import Lock

from semcache.protocols import Former
from semcache.types import Fence

MOST = 2_000  # withdrawals


class Recent:
    """A process's own withdrawals and those that it heard of, the last `MOST`. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._former: OrderedDict[tuple[str, str], Former] = OrderedDict()
        self._wanted, self._said = 0, 0  # how often they had to be said again, and up to which time they were

    def __contains__(self, key: tuple[str, str]) -> bool:
        """Whether a withdrawal of this kind and name is remembered."""
        return key in self._former

    def add(self, former: Iterable[Former]) -> None:
        """Remember withdrawals; of two of one name the later time counts."""
        with self._lock:
            for one in former:
                key = (one.kind, one.name)
                known = self._former.pop(key, one)
                at = Fence(one.at.epoch, max(one.at.time_us, known.at.time_us))
                self._former[key] = replace(one, at=at)
            while len(self._former) > MOST:
                self._former.popitem(last=False)

    def drop(self, kind: str, name: str) -> None:
        """Forget a withdrawal that was taken back."""
        with self._lock:
            self._former.pop((kind, name), None)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._former.clear()

    def foreign_to(self, epoch: str) -> bool:
        """Return whether any is of another epoch."""
        with self._lock:
            return any(one.at.epoch != epoch for one in self._former.values())

    @property
    def unsaid(self) -> bool:
        """Whether they must be said again, before anything is served."""
        return self._said < self._wanted

    def want(self) -> None:
        """Note that the store may have forgotten them."""
        with self._lock:
            self._wanted += 1

    def begin(self) -> tuple[int, list[Former]]:
        """Return a ticket for `said`, and what is to be said."""
        with self._lock:
            return self._wanted, list(self._former.values())

    def said(self, ticket: int) -> None:
        """Note that what `begin` returned was said."""
        with self._lock:
            self._said = max(self._said, ticket)
