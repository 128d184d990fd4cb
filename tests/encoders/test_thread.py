"""The encoder thread: batches, duplicates, failures, forks, and its end."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from semcache.encoders import BundledEncoder, EncodedText, EncoderThread
from semcache.errors import ConfigurationError, EncoderError, InvalidRequestError
from semcache.protocols import TextLimits
from semcache.testing import FailingEncoder, HashEncoder, TableEncoder
from semcache.types import Embeddings

PATIENCE = 20.0  # seconds; a test that waits longer hangs


class GatedEncoder(HashEncoder):
    """Holds every call of `encode` until the gate opens, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(8)
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.batches: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> Embeddings:
        self.batches.append(list(texts))
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        return super().encode(texts)


class OddEncoder(HashEncoder):
    """Returns what it is told to."""

    def __init__(self, answer: Callable[[Sequence[str]], object]) -> None:
        super().__init__(8)
        self.answer = answer

    def encode(self, texts: Sequence[str]) -> Embeddings:
        return self.answer(texts)  # type: ignore[return-value]


@pytest.fixture
def gated() -> Iterator[tuple[EncoderThread, GatedEncoder]]:
    """An encoder that has begun with the text ``first`` and holds the others back."""
    encoder = GatedEncoder()
    with EncoderThread(encoder) as thread:
        first = thread.submit("first")
        assert encoder.entered.wait(PATIENCE)
        yield thread, encoder
        encoder.gate.set()
        first.result(PATIENCE)


def encoder_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "semcache-encoder"]


def test_a_text_comes_back_as_a_read_only_unit_row_with_its_limits() -> None:
    with EncoderThread(TableEncoder({"a": [3, 4]}, unknown_share={"a": 0.25})) as thread:
        encoded = thread.submit("a").result(PATIENCE)

    assert encoded.embedding.tolist() == pytest.approx([0.6, 0.8])
    assert encoded.embedding.dtype == np.float32
    assert not encoded.embedding.flags.writeable
    assert encoded.embedding.base is None
    assert encoded.limits == TextLimits(over_window=False, unknown_share=0.25)


def test_what_waits_is_encoded_in_one_batch(gated: tuple[EncoderThread, GatedEncoder]) -> None:
    thread, encoder = gated
    futures = [thread.submit(f"text {number}") for number in range(10)]
    encoder.gate.set()
    rows = [future.result(PATIENCE).embedding for future in futures]

    assert encoder.batches == [["first"], [f"text {number}" for number in range(10)]]
    assert np.array_equal(rows, HashEncoder(8).encode([f"text {number}" for number in range(10)]))


def test_equal_texts_that_wait_are_encoded_once(gated: tuple[EncoderThread, GatedEncoder]) -> None:
    thread, encoder = gated
    futures = [*thread.submit_many(["a", "b", "a"]), thread.submit("a")]
    encoder.gate.set()
    results = [future.result(PATIENCE) for future in futures]

    assert encoder.batches[1] == ["a", "b"]
    assert results[0] is results[2] is results[3]


def test_no_batch_is_larger_than_allowed() -> None:
    encoder = TableEncoder({}, default=[1, 0])
    with EncoderThread(encoder, max_batch=3) as thread:
        thread.encode_now([str(number) for number in range(10)])

    assert max(map(len, encoder.batches)) == 3
    assert sum(map(len, encoder.batches)) == 10


def test_a_thousand_callers_of_fifty_texts_cost_few_batches() -> None:
    encoder = GatedEncoder()
    with EncoderThread(encoder) as thread, ThreadPoolExecutor(32) as pool:
        pending = [pool.submit(thread.submit, f"text {number % 50}") for number in range(1000)]
        results = [future.result(PATIENCE) for future in pending]
        encoder.gate.set()
        rows = [future.result(PATIENCE) for future in results]

    assert len(rows) == 1000
    assert len(encoder.batches) == 2  # what had come when the first began, and each of the rest once
    assert len(encoder.batches[1]) <= 50


def test_a_cancelled_future_is_skipped(gated: tuple[EncoderThread, GatedEncoder]) -> None:
    thread, encoder = gated
    kept, cancelled, other = thread.submit_many(["a", "b", "c"])
    shared = thread.submit("a")
    assert cancelled.cancel()
    assert shared.cancel()
    encoder.gate.set()

    assert kept.result(PATIENCE).embedding.any()
    assert other.result(PATIENCE).embedding.any()
    assert encoder.batches[1] == ["a", "c"]
    with pytest.raises(CancelledError):
        cancelled.result(PATIENCE)


def test_when_everybody_cancelled_nothing_is_encoded(gated: tuple[EncoderThread, GatedEncoder]) -> None:
    thread, encoder = gated
    thread.submit("a").cancel()
    encoder.gate.set()
    thread.encode_now(["b"])

    assert ["a"] not in encoder.batches


def test_a_failing_encoder_fails_its_callers_and_the_thread_goes_on() -> None:
    encoder = FailingEncoder(HashEncoder(8), RuntimeError("out of memory"), times=1)
    with EncoderThread(encoder) as thread:
        with pytest.raises(EncoderError, match="RuntimeError: out of memory") as caught:
            thread.encode_now(["a"])
        encoded = thread.encode_now(["a"])

    assert isinstance(caught.value.__cause__, RuntimeError)
    assert encoded[0].embedding.any()


def test_one_poison_text_fails_alone(gated: tuple[EncoderThread, GatedEncoder]) -> None:
    encoder = FailingEncoder(HashEncoder(8), texts={"poison"})
    with EncoderThread(encoder) as thread:
        futures = thread.submit_many(["a", "poison", "b"])

        assert futures[0].result(PATIENCE).embedding.any()
        assert futures[2].result(PATIENCE).embedding.any()
        with pytest.raises(EncoderError):
            futures[1].result(PATIENCE)


def test_an_encoder_that_is_down_is_not_asked_for_each_text_of_a_batch() -> None:
    encoder = FailingEncoder(HashEncoder(8))
    with EncoderThread(encoder) as thread:
        futures = thread.submit_many([str(number) for number in range(60)])
        errors = [future.exception(PATIENCE) for future in futures]

    assert all(isinstance(error, EncoderError) for error in errors)
    assert len({id(error) for error in errors}) == 60
    assert encoder.failures <= 8  # the first text may have been a batch of its own


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda texts: np.ones((len(texts), 8), np.float32), "L2 norm 2.8"),
        (lambda texts: np.full((len(texts), 8), np.nan, np.float32), "L2 norm nan"),
        (lambda texts: np.full((len(texts), 8), np.inf, np.float32), "L2 norm inf"),
        (lambda texts: np.eye(8, dtype=np.float64)[: len(texts)], "float64"),
        (lambda texts: np.eye(8, dtype=np.float32)[: len(texts) - 1], r"shape \(0, 8\)"),
        (lambda texts: np.eye(9, dtype=np.float32)[: len(texts)], r"shape \(1, 9\)"),
        (lambda texts: [[1.0] + [0.0] * 7 for _ in texts], "list"),
        (lambda texts: None, "NoneType"),
    ],
    ids=["norm", "nan", "inf", "dtype", "count", "dim", "list", "none"],
)
def test_what_is_no_embedding_is_an_error(answer: Callable[[Sequence[str]], object], said: str) -> None:
    with EncoderThread(OddEncoder(answer)) as thread, pytest.raises(EncoderError, match=said):
        thread.encode_now(["a"])


def test_a_row_of_zeros_is_an_answer() -> None:
    with EncoderThread(OddEncoder(lambda texts: np.zeros((len(texts), 8), np.float32))) as thread:
        assert not thread.encode_now(["a"])[0].embedding.any()


def test_a_text_over_the_window_is_not_encoded() -> None:
    encoder = TableEncoder({"a": [1, 0]}, over_window={"long"})
    with EncoderThread(encoder) as thread:
        a, long = thread.encode_now(["a", "long"])

    assert encoder.batches == [("a",)]
    assert a.embedding.any()
    assert long.limits.over_window
    assert not long.embedding.any()


def test_a_text_of_which_nothing_is_known_is_not_encoded() -> None:
    encoder = TableEncoder({}, default=[1, 0], unknown_share={"囧": 1.0})
    with EncoderThread(encoder) as thread:
        (encoded,) = thread.encode_now(["囧"])

    assert encoder.calls == 0
    assert not encoded.embedding.any()


def test_what_is_no_text_is_refused_at_the_door() -> None:
    with EncoderThread(HashEncoder(8)) as thread:
        with pytest.raises(InvalidRequestError, match="int"):
            thread.submit(7)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError, match=r"pass \[text\]"):
            thread.submit_many("text")
    with pytest.raises(ConfigurationError, match="max_batch"):
        EncoderThread(HashEncoder(8), max_batch=0)


def test_waiting_has_a_limit_and_gives_the_text_up(gated: tuple[EncoderThread, GatedEncoder]) -> None:
    thread, encoder = gated
    with pytest.raises(EncoderError, match=r"not encoded within 0\.01 s"):
        thread.encode_now(["late"], timeout=0.01)
    encoder.gate.set()
    thread.encode_now(["b"])

    assert ["late"] not in encoder.batches


def test_no_texts_start_no_thread() -> None:
    thread = EncoderThread(HashEncoder(8))

    assert thread.encode_now([]) == []
    assert thread.fingerprint == "hash-8-l2"
    assert thread.dim == 8
    assert thread._worker._thread is None


def test_after_close_nothing_gets_in_and_what_waited_fails() -> None:
    encoder = GatedEncoder()
    thread = EncoderThread(encoder)
    begun = thread.submit("a")
    assert encoder.entered.wait(PATIENCE)
    waiting = thread.submit("b")
    closing = threading.Thread(target=thread.close)
    closing.start()
    with pytest.raises(EncoderError, match="closed before"):
        waiting.result(PATIENCE)
    encoder.gate.set()
    closing.join(PATIENCE)

    assert begun.result(PATIENCE).embedding.any()
    with pytest.raises(EncoderError, match="closed"):
        thread.submit("c")
    thread.close()


def test_a_forgotten_one_ends_its_thread() -> None:
    thread = EncoderThread(HashEncoder(8))
    thread.encode_now(["a"])
    worker = thread._worker._thread
    assert worker is not None
    del thread
    gc.collect()
    worker.join(PATIENCE)

    assert not worker.is_alive()


def test_an_idle_thread_keeps_no_result_alive() -> None:
    with EncoderThread(HashEncoder(8)) as thread:
        future = thread.submit("a")
        future.result(PATIENCE)
        gone = weakref.ref(future)
        del future
        thread.encode_now(["b"])  # the first batch is over for certain
        gc.collect()

        assert gone() is None


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_arithmetic_has_one_thread_in_a_batch_and_as_many_as_before_outside() -> None:
    seen: list[int] = []

    def look(texts: Sequence[str]) -> object:
        seen.extend(pool["num_threads"] for pool in threadpool_info())
        return HashEncoder(8).encode(texts)

    before = blas_threads()
    with EncoderThread(OddEncoder(look)) as thread:
        for number in range(5):
            thread.encode_now([str(number)])

    assert set(seen) == {1}
    assert blas_threads() == before


def test_two_encoders_at_work_leave_as_many_threads_as_they_found() -> None:
    before = blas_threads()
    with EncoderThread(BundledEncoder()) as one, EncoderThread(BundledEncoder()) as two:
        for number in range(50):
            for future in [one.submit(f"question {number}"), two.submit(f"question {number}")]:
                future.result(PATIENCE)

    assert blas_threads() == before


def test_a_callback_may_ask_for_the_next_text() -> None:
    chained: Future[Future[EncodedText]] = Future()
    with EncoderThread(HashEncoder(8)) as thread:
        thread.submit("a").add_done_callback(lambda _: chained.set_result(thread.submit("b")))

        assert chained.result(PATIENCE).result(PATIENCE).embedding.any()


async def test_tasks_can_wait_for_it_without_blocking_the_loop() -> None:
    encoder = GatedEncoder()
    with EncoderThread(encoder) as thread:
        waiting = asyncio.gather(*(asyncio.wrap_future(thread.submit(f"{n % 50}")) for n in range(1000)))
        await asyncio.sleep(0)
        assert not waiting.done()
        encoder.gate.set()
        results = await waiting

    assert len(results) == 1000
    assert len(encoder.batches) <= 2


def in_child(check: Callable[[], bool]) -> int:
    """Fork, run the check in the child, and return its exit code: 0 if the check held."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if check() else 2
        finally:
            os._exit(code)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
# Python 3.12 warns of any fork beside a thread; that is the very case under test.
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@needs_fork
@forks
def test_it_works_in_a_forked_child_and_on_in_the_parent() -> None:
    with EncoderThread(BundledEncoder()) as thread:
        wanted = thread.encode_now(["Why is the sky blue?"])[0].embedding

        def same() -> bool:
            (found,) = thread.encode_now(["Why is the sky blue?"], timeout=10)
            return float(found.embedding @ wanted) > 0.999 and len(encoder_threads()) == 1

        assert [in_child(same), in_child(same)] == [0, 0]
        assert thread.encode_now(["Why is the sky blue?"])[0].embedding @ wanted > 0.999


@needs_fork
@forks
def test_texts_that_waited_at_the_fork_are_answered_in_both_processes() -> None:
    encoder = GatedEncoder()
    with EncoderThread(encoder) as thread:
        running = thread.submit("first")
        assert encoder.entered.wait(PATIENCE)
        waiting = thread.submit("waiting")
        threading.Timer(0.05, encoder.gate.set).start()  # the fork waits for the batch at work

        code = in_child(lambda: running.done() and waiting.result(10).embedding.any())

        assert code == 0
        assert waiting.result(PATIENCE).embedding.any()


@needs_fork
@forks
def test_forks_under_full_load_neither_hang_nor_lose_a_text() -> None:
    with EncoderThread(HashEncoder(8), max_batch=4) as thread:
        stop = threading.Event()

        def load() -> int:
            count = 0
            while not stop.is_set():
                thread.encode_now([f"{threading.get_ident()} {count}"], timeout=PATIENCE)
                count += 1
            return count

        with ThreadPoolExecutor(4) as pool:
            counts = [pool.submit(load) for _ in range(4)]
            codes = [in_child(lambda: len(thread.encode_now(["child"], timeout=10)) == 1) for _ in range(10)]
            stop.set()

            assert codes == [0] * 10
            assert all(count.result(PATIENCE) > 0 for count in counts)


@needs_fork
@forks
def test_a_closed_one_stays_closed_in_the_child() -> None:
    thread = EncoderThread(HashEncoder(8))
    thread.encode_now(["a"])
    thread.close()

    def refused() -> bool:
        with pytest.raises(EncoderError):
            thread.submit("b")
        return not encoder_threads()

    assert in_child(refused) == 0


def test_the_process_ends_at_once_with_texts_waiting_and_nothing_on_stderr() -> None:
    code = (
        "import time\n"
        "from semcache.encoders import BundledEncoder, EncoderThread\n"
        "thread = EncoderThread(BundledEncoder(), max_batch=2)\n"
        "futures = thread.submit_many([f'question number {n}' for n in range(5000)])\n"
        "futures[0].result()\n"
    )
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stderr == ""
    assert time.monotonic() - begin < 20
