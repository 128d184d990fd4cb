"""Keeps an encoder's arithmetic on few threads.

On a busy machine a small matrix product on several threads waits for the slowest of them: one prompt
took 2 ms on one BLAS thread and 14 ms on two. Knows the thread pools that numpy and torch bring;
leaves to others when to hold them back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController


class BlasLimit:
    """The number of BLAS threads, which belongs to the whole process, while one encoder is at work."""

    def __init__(self) -> None:
        self._pools = ThreadpoolController().select(user_api="blas")
        self.renew()

    def renew(self) -> None:
        """Forget who is inside: in a forked child, nobody."""
        self._lock = threading.Lock()
        self._taken = False

    @contextmanager
    def to(self, threads: int) -> Iterator[None]:
        """Give BLAS so many threads, and what it had before when done.

        One at a time: who enters while another is inside goes by the other's limit, because the number
        that it would find, and restore when it leaves, isn't the process's own.
        """
        with self._lock:
            first = not self._taken
            self._taken = True
        if not first:
            yield
            return
        try:
            with self._pools.limit(limits=threads):
                yield
        finally:
            self._taken = False

    def look_again(self) -> None:
        """Look for libraries that were loaded meanwhile.

        OpenMP and MKL count threads for each calling thread: this one has a single one from now on.
        """
        pools = ThreadpoolController()
        pools.select(user_api="openmp", internal_api="mkl").limit(limits=1)
        self._pools = pools.select(user_api="blas")


BLAS = BlasLimit()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=BLAS.renew)
