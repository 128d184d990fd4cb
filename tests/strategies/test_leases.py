"""Single flight across processes: one text, one call to the model, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

from semcache import AsyncSemanticCache, CacheRequest, Hit, Policy, Response, SemanticCache
from semcache.stores._launch import find_binary
from semcache.stores.connections import connect
from semcache.stores.redis import RedisStore
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, open_facade
from tests.servers import Server, running
from tests.test_round_trips import Counting

ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """A process of its own, with a cache."""

    def __init__(self, kind: str, url: str, namespace: str, calls: Path, **options: Any) -> None:
        arguments = [
            str(options.get(name, default)) for name, default in (("callers", 50), ("seconds", 1.0), ("lease", 5.0))
        ]  # fmt: skip
        command = [sys.executable, "-m", "tests.strategies.flight_worker", kind, url, namespace, str(calls)]
        path = os.pathsep.join([str(ROOT), str(ROOT / "integrations")])
        self.process = subprocess.Popen(
            [*command, *arguments], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def ready(self) -> None:
        assert self.stdout.readline() == "ready\n"

    def ask(self, prompt: str) -> None:
        self.stdin.write(json.dumps(prompt) + "\n")
        self.stdin.flush()

    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout.readline())
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self.stdin.close()
        self.stdout.close()


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def start(redis_url: str, namespace: str, calls: Path) -> Iterator[Callable[..., list[Worker]]]:
    workers: list[Worker] = []

    def some(kind: str, number: int, **options: Any) -> list[Worker]:
        new = [Worker(kind, redis_url, namespace, calls, **options) for _ in range(number)]
        workers.extend(new)
        for worker in new:
            worker.ready()
        return new

    yield some
    for worker in workers:
        worker.end()


def noted(calls: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []


def until(true: Callable[[], Any], seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.005)
    assert found
    return found


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_eight_processes_of_fifty_callers_call_the_model_once(
    start: Callable[..., list[Worker]], calls: Path, kind: str
) -> None:
    workers = start(kind, 8, lease=60.0)
    for worker in workers:
        worker.ask("one text")
    found = [worker.answer() for worker in workers]

    assert len(noted(calls)) == 1
    assert [answer["texts"] for answer in found] == [["answer to one text"]] * 8
    assert max(answer["took"] for answer in found) < 30.0  # they were told: a lease would last longer


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_leader_that_is_killed_costs_one_more_call(
    start: Callable[..., list[Worker]], calls: Path, kind: str
) -> None:
    workers = start(kind, 4, callers=10, lease=4.5, seconds=6.0)
    for worker in workers:
        worker.ask("one text")
    leader = until(lambda: noted(calls))[0]["pid"]
    until(lambda: time.sleep(0.5) or True)  # the others are waiting by now
    (dead,) = (worker for worker in workers if worker.process.pid == leader)
    dead.end()
    found = [worker.answer() for worker in workers if worker is not dead]

    assert len(noted(calls)) == 2  # also: a lease of 4.5 s was extended over a call of 6 s
    assert [answer["texts"] for answer in found] == [["answer to one text"]] * 3


class Model:
    """A model that answers when it is let."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.let = threading.Event()
        self.calls = 0
        self.fails = False

    def __call__(self, request: CacheRequest) -> Response:
        self.calls += 1
        call = self.calls
        self.asked.release()
        assert self.let.wait(30)
        if self.fails:
            raise ValueError("the model fails")
        return Response(f"answer {call}")


def later(do: Callable[[], Any]) -> Callable[[], Any]:
    """Run in a thread; returns what waits for the result."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(do())
        except ValueError as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> Any:
        thread.join(30)
        return result[0]

    return wait


@pytest.fixture(params=["sync", "async"])
def pair(
    request: pytest.FixtureRequest, loop: Any, redis_url: str, namespace: str
) -> Iterator[Callable[..., tuple[Facade, Facade]]]:
    opened: list[Facade] = []

    def two(**policy: Any) -> tuple[Facade, Facade]:
        for _ in range(2):
            opened.append(
                open_facade(
                    request.param, redis_url, loop, encoder=TableEncoder({}, default=[1.0, 0.0]),
                    matcher=ThresholdMatcher(0.9), namespace=namespace, policy=Policy(**{"deadline": 5.0, "flight_lease": 60.0, **policy}),
                )
            )  # fmt: skip
        return opened[-2], opened[-1]

    yield two
    for cache in opened:
        cache.close()


Pair = Callable[..., tuple[Facade, Facade]]


def waits(cache: Facade) -> bool:
    return bool(cache.cache._core.arrivals)


def test_another_process_waits_for_the_answer(pair: Pair) -> None:
    one, other = pair()
    model = Model()
    first = later(lambda: one.get_or_compute("q", model))
    assert model.asked.acquire(timeout=10)
    second = later(lambda: other.get_or_compute("q", model))
    until(lambda: waits(other))
    model.let.set()
    found = second()

    assert first().stored
    assert (found.text, found.waited) == ("answer 1", True)
    assert other.stats().waited == 1
    assert other.stats().requests == 0  # neither hit nor miss


@pytest.mark.parametrize("how", ["everything", "tag", "entry"])
def test_who_comes_after_an_invalidation_doesnt_wait_for_a_call_from_before_it(pair: Pair, how: str) -> None:
    one, other = pair()
    model, new = Model(), Model()
    new.let.set()
    entry_id = one.put("q", "old", tags={"t"}).entry_id
    one.invalidate(entry_ids=[entry_id])
    first = later(lambda: one.get_or_compute("q", model, tags={"t"}))
    assert model.asked.acquire(timeout=10)
    other.invalidate(
        **{"everything": {"everything": True}, "tag": {"tags": {"t"}}, "entry": {"entry_ids": [entry_id]}}[
            how
        ]
    )
    found = other.get_or_compute("q", new, tags={"t"})
    model.let.set()

    assert new.calls == 1
    assert found.stored
    assert not found.waited
    assert first().stored.outcome in ("old_fence", "tombstone")
    assert other.get_or_compute("q", new).hit


def test_an_invalidation_of_something_else_doesnt_disturb_a_flight(pair: Pair) -> None:
    one, other = pair()
    model = Model()
    first = later(lambda: one.get_or_compute("q", model, tags={"t"}))
    assert model.asked.acquire(timeout=10)
    other.invalidate(tags={"something else"})
    second = later(lambda: other.get_or_compute("q", model, tags={"t"}))
    until(lambda: waits(other) or model.calls == 2)
    model.let.set()

    assert first().stored
    assert second().waited
    assert model.calls == 1


def test_a_leader_that_fails_is_followed_by_the_next(pair: Pair) -> None:
    one, other = pair()
    failing, model = Model(), Model()
    failing.fails = True
    model.let.set()
    first = later(lambda: one.get_or_compute("q", failing))
    assert failing.asked.acquire(timeout=10)
    second = later(lambda: other.get_or_compute("q", model))
    until(lambda: waits(other))
    started = time.monotonic()
    failing.let.set()

    assert isinstance(first(), ValueError)
    assert second().stored
    assert time.monotonic() - started < 15.0  # it was told: a lease of 60 s is looked after every 20 s


def test_nobody_queues_for_answers_that_arent_stored(pair: Pair) -> None:
    one, other = pair()
    model = Model()

    def cut(request: CacheRequest) -> Response:
        return Response(model(request).text, finish_reason="length")

    def held(request: CacheRequest) -> Response:
        return Response(together(request).text, finish_reason="length")

    third, together = pair()[0], Model()
    first = later(lambda: one.get_or_compute("q", cut))
    assert model.asked.acquire(timeout=10)
    others = [later(lambda c=cache: c.get_or_compute("q", held)) for cache in (other, third)]  # type: ignore[misc]
    until(lambda: waits(other) and waits(third))
    model.let.set()
    asked = [together.asked.acquire(timeout=20) for _ in others]  # both at once, neither after the other
    together.let.set()

    assert asked == [True, True]
    assert first().stored.outcome == "truncated"
    assert {found().stored.outcome for found in others} == {"truncated"}


def test_a_caller_waits_no_longer_than_it_wants_to(pair: Pair) -> None:
    one, other = pair(flight_timeout=0.3)
    model, quick = Model(), Model()
    quick.let.set()
    first = later(lambda: one.get_or_compute("q", model))
    assert model.asked.acquire(timeout=10)
    started = time.monotonic()
    found = other.get_or_compute("q", quick)
    took = time.monotonic() - started
    model.let.set()
    first()

    assert quick.calls == 1
    assert not found.hit
    assert 0.25 < took < 20.0


def test_a_lease_is_given_back_by_the_put_and_left_alone_by_hits(
    pair: Pair, redis_url: str, namespace: str
) -> None:
    one, _ = pair()
    model = Model()
    model.let.set()
    client = redis.Redis.from_url(redis_url)
    first = one.get_or_compute(
        "q", lambda r: len(list(client.scan_iter(f"semcache:{namespace}:lease:*"))) and "a"
    )
    one.get_or_compute("q", model)
    left = list(client.scan_iter(f"semcache:{namespace}:lease:*"))
    client.close()

    assert first.text == "a"  # there was a lease during the call
    assert left == []
    assert model.calls == 0


def test_without_leases_each_process_calls(pair: Pair) -> None:
    one, other = pair(flight_lease=0.0)
    model = Model()
    first = later(lambda: one.get_or_compute("q", model))
    assert model.asked.acquire(timeout=10)
    second = later(lambda: other.get_or_compute("q", model))
    assert model.asked.acquire(timeout=10)
    model.let.set()

    assert not first().waited
    assert not second().waited


def test_a_request_that_isnt_stored_keeps_nobody_waiting(pair: Pair) -> None:
    one, other = pair()
    model, quick = Model(), Model()
    quick.let.set()
    first = later(lambda: one.get_or_compute(CacheRequest("q", no_store=True), model))
    assert model.asked.acquire(timeout=10)

    assert other.get_or_compute("q", quick).stored
    model.let.set()
    first()


def test_a_miss_costs_one_round_trip_more_and_a_hit_none(redis_url: str, namespace: str) -> None:
    connection = connect(redis_url, 5.0)
    counting = Counting(connection)  # type: ignore[arg-type]
    counts = {}
    for lease in (0.0, 5.0):
        with SemanticCache(
            store=RedisStore(counting, namespace),  # type: ignore[arg-type]
            background=RedisStore(connect(redis_url, 5.0), namespace),
            encoder=TableEncoder({}, default=[1.0, 0.0]), namespace=namespace, matcher=ThresholdMatcher(0.9),
            policy=Policy(deadline=5.0, local_bound=0.0, flight_lease=lease),
        ) as cache:  # fmt: skip
            cache.get_or_compute("warm up", lambda r: "a")
            cache.lookup(f"other {lease}")
            trips = [counting.trips]
            cache.get_or_compute(CacheRequest(f"q {lease}", mode="exact"), lambda r: "a")
            trips.append(counting.trips)
            assert isinstance(cache.get_or_compute(f"q {lease}", lambda r: "b").decision, Hit)
            trips.append(counting.trips)
            counts[lease] = [after - before for before, after in pairwise(trips)]

    assert counts == {0.0: [2, 1], 5.0: [3, 1]}


async def test_a_leader_that_is_cancelled_gives_its_lease_back(redis_url: str, namespace: str) -> None:
    options: dict[str, Any] = {
        "namespace": namespace, "policy": Policy(deadline=5.0, flight_lease=60.0), "matcher": ThresholdMatcher(0.9),
        "encoder": TableEncoder({}, default=[1.0, 0.0]),
    }  # fmt: skip
    asked = asyncio.Event()

    async def hangs(request: CacheRequest) -> str:
        asked.set()
        await asyncio.sleep(60)
        return "never"

    async def answers(request: CacheRequest) -> str:
        return "answer"

    async with (
        await AsyncSemanticCache.open(redis_url, **options) as one,
        await AsyncSemanticCache.open(redis_url, **options) as other,
    ):
        first = asyncio.create_task(one.get_or_compute("q", hangs))
        await asyncio.wait_for(asked.wait(), 10)
        second = asyncio.create_task(other.get_or_compute("q", answers))
        while not other._core.arrivals:
            await asyncio.sleep(0.01)
        first.cancel()
        found = await asyncio.wait_for(second, 15)  # it was told: a lease of 60 s is looked after every 20 s

        assert found.text == "answer"
        with pytest.raises(asyncio.CancelledError):
            await first


def test_a_store_that_dies_lets_those_who_wait_go(tmp_path: Path, namespace: str) -> None:
    with running(Server(find_binary(), tmp_path)) as (server,):
        url = f"redis://127.0.0.1:{server.port}/0"
        caches = [
            SemanticCache.open(
                url, namespace=namespace, policy=Policy(deadline=5.0), encoder=TableEncoder({}, default=[1.0, 0.0]),
                matcher=ThresholdMatcher(0.9),
            )
            for _ in range(2)
        ]  # fmt: skip
        model, quick = Model(), Model()
        quick.let.set()
        first = later(lambda: caches[0].get_or_compute("q", model))
        assert model.asked.acquire(timeout=10)
        second = later(lambda: caches[1].get_or_compute("q", quick))
        until(lambda: caches[1]._core.arrivals)
        server.kill()
        found = second()
        model.let.set()

        assert found.text == "answer 1"
        assert quick.calls == 1
        assert first().text == "answer 1"
        for cache in caches:
            cache.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_has_no_lease_and_can_take_one(redis_url: str, namespace: str) -> None:
    with SemanticCache.open(
        redis_url, namespace=namespace, policy=Policy(deadline=5.0), matcher=ThresholdMatcher(0.9),
        encoder=TableEncoder({}, default=[1.0, 0.0]),
    ) as cache:  # fmt: skip
        cache.get_or_compute("parent", lambda request: "a")
        child = os.fork()
        if child == 0:
            request = CacheRequest("child", mode="exact")
            found = cache.get_or_compute(request, lambda request: "b")
            again = cache.get_or_compute(request, lambda request: "c")
            os._exit(0 if found.stored and again.hit else 1)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0


def test_a_later_lease_is_extended_too(pair: Pair, redis_url: str, namespace: str) -> None:
    one, other = pair(flight_lease=4.5)
    one.get_or_compute("warm up", lambda request: "a")
    time.sleep(0.4)  # the thread that extends leases has nothing to do by now
    model = Model()
    first = later(lambda: one.get_or_compute(CacheRequest("q", mode="exact"), model))
    assert model.asked.acquire(timeout=10)
    second = later(lambda: other.get_or_compute(CacheRequest("q", mode="exact"), model))
    until(lambda: waits(other))
    with redis.Redis.from_url(redis_url) as client:
        (lease,) = client.scan_iter(f"semcache:{namespace}:lease:*")
        left = [client.pttl(lease)]
        until(lambda: left.append(client.pttl(lease)) or left[-1] > left[-2])
    model.let.set()

    assert first().stored
    assert second().waited
    assert model.calls == 1
