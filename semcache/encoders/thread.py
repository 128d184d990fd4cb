"""The one thread that owns an encoder and embeds whatever waits in one batch.

Knows queueing, duplicates, failures, forks and the end of the process. Leaves the embedding itself to
the encoder, and caching and deadlines to the caller, who gets a `concurrent.futures.Future`.

Two locks keep it in order. `_running` is held from before a batch is taken until its last future is
answered, so a fork, which waits for it, never sees half a batch or a model at work. `_changed` guards
the queue and is only held for a moment; it is taken inside `_running`, never the other way round.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from semcache.encoders.blas import BLAS
from semcache.encoders.texts import check_embeddings, checked_texts, has_meaning
from semcache.errors import ConfigurationError, EncoderError
from semcache.protocols import Encoder, TextLimits
from semcache.types import Embedding

_FORK_PATIENCE = 60.0  # seconds that a fork waits for a batch, or for the model that is being loaded
_EXIT_PATIENCE = 2.0  # seconds that the end of the process waits for it
_FAILURES_IN_A_ROW = 3  # texts of a failed batch that are tried on their own before the rest is given up


@dataclass(frozen=True, slots=True, eq=False)
class EncodedText:
    """A text's embedding and what the encoder said about the text.

    Attributes:
        embedding: float32 (dim,), read-only, of unit norm; all zeros for a text that is over the
            window or of which nothing is known, and such a row may be neither stored nor searched.
        limits: Whether the text fits and how much of it is known.
    """

    embedding: Embedding
    limits: TextLimits


class EncoderThread:
    """Owns an encoder: calls it from one thread, one batch after the other.

    The thread starts with the first text and is made anew in a forked child. It holds BLAS to one
    thread while a batch is encoded. It ends with `close`, with the last reference to this object, or
    with the process.

    Args:
        encoder: Called by this object only, from now on.
        max_batch: Most texts for one call of the encoder.
    """

    def __init__(self, encoder: Encoder, *, max_batch: int = 64) -> None:
        if type(max_batch) is not int or max_batch < 1:
            raise ConfigurationError(f"max_batch is {max_batch!r}, expected an int of 1 or more")
        self._worker = _Worker(encoder, max_batch)
        weakref.finalize(self, self._worker.shut).atexit = False  # at exit, `_shut_all` also waits

    @property
    def fingerprint(self) -> str:
        """The encoder's fingerprint."""
        return self._worker.fingerprint

    @property
    def dim(self) -> int:
        """Length of an embedding. Loads the model where the encoder must ask it."""
        return self._worker.dim

    def submit(self, text: str) -> Future[EncodedText]:
        """Ask for one text's embedding.

        Equal texts that wait are encoded once. A future that is cancelled before its batch begins is
        skipped. Callbacks of the future run in the encoder's thread: keep them short.

        Returns:
            A future that raises `EncoderError` if this text could not be encoded.

        Raises:
            InvalidRequestError: `text` isn't a str.
            EncoderError: This object is closed.
        """
        return self.submit_many([text])[0]

    def submit_many(self, texts: Sequence[str]) -> list[Future[EncodedText]]:
        """Ask for many embeddings at once; one future for each text, in their order. See `submit`."""
        return self._worker.submit(checked_texts(texts))

    def encode_now(self, texts: Sequence[str], *, timeout: float | None = None) -> list[EncodedText]:
        """Embed texts and wait for them.

        Args:
            timeout: Seconds to wait for all of them; None waits without end.

        Raises:
            EncoderError: A text could not be encoded, or `timeout` has passed.
        """
        futures = self.submit_many(texts)
        end = None if timeout is None else time.monotonic() + timeout
        try:
            return [future.result(None if end is None else end - time.monotonic()) for future in futures]
        except TimeoutError as error:
            raise EncoderError(f"{len(texts)} texts were not encoded within {timeout} s") from error
        finally:
            for future in futures:
                future.cancel()

    def close(self, timeout: float = 10.0) -> None:
        """End the thread after the batch at hand; texts that wait fail with `EncoderError`.

        Args:
            timeout: Seconds to wait for the batch at hand.
        """
        self._worker.shut()
        self._worker.join(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _Worker:
    """The queue, the thread and the encoder: what the thread knows, so that it doesn't keep its owner alive."""

    def __init__(self, encoder: Encoder, max_batch: int) -> None:
        self._encoder = encoder
        self._max_batch = max_batch
        self._fingerprint: str | None = None
        self._dim: int | None = None
        self._waiting: dict[str, list[Future[EncodedText]]] = {}
        self._closed = False
        self._renew()
        _WORKERS.add(self)

    def _renew(self) -> None:
        self._running = threading.RLock()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._settled = False  # whether this thread's libraries were looked for
        self._forks = 0  # threads about to fork

    # What callers do.

    @property
    def fingerprint(self) -> str:
        if self._fingerprint is None:
            with self._running:
                self._fingerprint = self._encoder.fingerprint
        return self._fingerprint

    @property
    def dim(self) -> int:
        if self._dim is None:
            with self._running:
                self._dim = self._encoder.dim
        return self._dim

    def submit(self, texts: Sequence[str]) -> list[Future[EncodedText]]:
        futures: list[Future[EncodedText]] = [Future() for _ in texts]
        with self._changed:
            if self._closed:
                raise EncoderError("the encoder thread is closed; make another one")
            if futures:
                self._start()
            for text, future in zip(texts, futures, strict=True):
                self._waiting.setdefault(text, []).append(future)
            self._changed.notify_all()
        return futures

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._work, name="semcache-encoder", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise EncoderError(f"the encoder thread can't start: {error}") from error
        self._thread = thread

    def shut(self) -> None:
        """Let nothing more in, and answer what waits."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, {}
            self._changed.notify_all()
        for futures in waiting.values():
            _fail(_live(futures), EncoderError("the encoder thread was closed before this text's turn"))

    def join(self, timeout: float) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    # What the thread does.

    def _work(self) -> None:
        while self._wait():
            with self._running:
                self._turn()

    def _wait(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._waiting and not self._forks))
            return not self._closed

    def _turn(self) -> None:
        batch = self._take()
        if not batch:
            return
        error = self._answer(batch)
        if error is None:
            return
        failures = 0
        for text, futures in batch.items():
            alone: BaseException | None = error
            if len(batch) > 1 and failures < _FAILURES_IN_A_ROW:
                alone = self._answer({text: futures})
            failures = 0 if alone is None else failures + 1
            if alone is not None:
                _fail(futures, alone)

    def _take(self) -> dict[str, list[Future[EncodedText]]]:
        batch: dict[str, list[Future[EncodedText]]] = {}
        with self._changed:
            while self._waiting and len(batch) < self._max_batch:
                text = next(iter(self._waiting))
                futures = _live(self._waiting.pop(text))
                if futures:
                    batch[text] = futures
        return batch

    def _answer(self, batch: dict[str, list[Future[EncodedText]]]) -> BaseException | None:
        """Encode the texts and answer their futures; if that fails, answer none and return why."""
        failure = _Failure()
        with failure:
            encoded = self._encode(list(batch))
        if failure.error is None:
            for futures, result in zip(batch.values(), encoded, strict=True):
                for future in futures:
                    future.set_result(result)
        return failure.error

    def _encode(self, texts: list[str]) -> list[EncodedText]:
        dim = self.dim
        limits = self._encoder.inspect(texts)
        if len(limits) != len(texts):
            raise EncoderError(f"the encoder inspected {len(texts)} texts and told of {len(limits)}")
        embeddings = np.zeros((len(texts), dim), dtype=np.float32)
        rows = [row for row, limit in enumerate(limits) if has_meaning(limit)]
        if rows:
            found = self._on_one_core([texts[row] for row in rows])
            embeddings[rows] = check_embeddings(found, len(rows), dim)
        return [EncodedText(_read_only(row), limit) for row, limit in zip(embeddings, limits, strict=True)]

    def _on_one_core(self, texts: list[str]) -> object:
        if self._settled:
            with BLAS.to(1):
                return self._encoder.encode(texts)
        BLAS.look_again()
        with BLAS.to(1):
            found = self._encoder.encode(texts)
        BLAS.look_again()  # an encoder may load its libraries in the first call
        self._settled = True
        return found

    # What a fork does.

    def before_fork(self) -> bool:
        """Wait until no batch is at work and nobody is at the queue; False if it took too long."""
        with self._changed:
            self._forks += 1
        held = self._running.acquire(timeout=_FORK_PATIENCE)
        self._changed.acquire()
        return held

    def after_fork_in_parent(self, held: bool) -> None:
        self._forks -= 1
        self._changed.notify_all()
        self._changed.release()
        if held:
            self._running.release()

    def after_fork_in_child(self) -> None:
        """Make the locks and the thread anew; texts that waited are for the forking thread, if for anybody."""
        self._renew()
        with self._changed:
            if self._waiting and not self._closed:
                self._start()


class _Failure:
    """Keeps whatever foreign code raised inside it, to be handed to those who wait for its result."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True


def _live(futures: list[Future[EncodedText]]) -> list[Future[EncodedText]]:
    """Return the futures that nobody cancelled; from now on they can't be."""
    return [future for future in futures if future.set_running_or_notify_cancel()]


def _fail(futures: list[Future[EncodedText]], error: BaseException) -> None:
    for future in futures:
        said = str(error) if isinstance(error, EncoderError) else f"{type(error).__name__}: {error}"
        own = EncoderError(said)  # each waits in its own thread, and a traceback grows where it is raised
        own.__cause__ = error
        future.set_exception(own)


def _read_only(row: Embedding) -> Embedding:
    row = row.copy()  # a view would keep the whole batch alive
    row.flags.writeable = False
    return row


_WORKERS: weakref.WeakSet[_Worker] = weakref.WeakSet()
_fork = threading.local()  # .held: what this thread holds while it forks


def _before_fork() -> None:
    _fork.held = [(worker, worker.before_fork()) for worker in list(_WORKERS)]


def _after_fork_in_parent() -> None:
    for worker, held in _fork.held:
        worker.after_fork_in_parent(held)
    _fork.held = []


def _after_fork_in_child() -> None:
    for worker in list(_WORKERS):
        worker.after_fork_in_child()
    _fork.held = []


@atexit.register
def _shut_all() -> None:
    workers = list(_WORKERS)
    for worker in workers:
        worker.shut()
    for worker in workers:
        worker.join(_EXIT_PATIENCE)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
