"""The whole story, for both caches and in another process: a version ends, its successor is warm, people reject an
answer, it is gone everywhere and answered again. And what a warm-up never brings back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from semcache import AsyncSemanticCache, CacheRequest, Hit, Miss, Policy, SemanticCache
from semcache.keys import Keys
from semcache.refresh import refresh, refresh_async
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
from semcache.warm import (
    canary,
    canary_async,
    carry_over,
    carry_over_async,
    logged_questions,
    stored_questions,
    warm,
    warm_async,
)
from tests.facade import Facade, Loop, within

TABLE = {"apple": [1.0, 0.0], "apples": [0.99, 0.141], "pear": [0.0, 1.0], "plum": [-1.0, 0.0]}
OPTIONS: dict[str, Any] = {"policy": Policy(deadline=5.0), "matcher": ThresholdMatcher(0.9)}
ELSEWHERE = """
import json, sys, time
from semcache import CacheRequest, Policy, SemanticCache
from semcache.testing import TableEncoder
from semcache.verify import ThresholdMatcher
url, namespace, table = json.loads(sys.argv[1])
encoder = TableEncoder(table, default=[0.7, 0.714])
with SemanticCache.open(
    url, namespace=namespace, encoder=encoder, policy=Policy(deadline=5.0), matcher=ThresholdMatcher(0.9)
) as cache:
    for line in sys.stdin:
        prompt, version = json.loads(line)
        found = cache.lookup(CacheRequest(prompt, model="m", model_version=version))
        text = getattr(found, "text", None)
        print(json.dumps([text, None if text is None else found.lookup_id]), flush=True)
"""


class Elsewhere:
    """Another process with local copies, which answers what it would serve."""

    def __init__(self, url: str, namespace: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ELSEWHERE, json.dumps([url, namespace, TABLE])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def serves(self, prompt: str, version: str) -> tuple[str | None, str | None]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([prompt, version]), file=self._process.stdin, flush=True)
        text, lookup_id = json.loads(self._process.stdout.readline())
        return text, lookup_id

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


@pytest.fixture
def elsewhere(redis_url: str, namespace: str) -> Iterator[Elsewhere]:
    process = Elsewhere(redis_url, namespace)
    yield process
    process.close()


@pytest.fixture(params=["sync", "async"])
def shop(request: pytest.FixtureRequest, redis_url: str, namespace: str, loop: Loop) -> Iterator[Facade]:
    options = {**OPTIONS, "namespace": namespace, "encoder": TableEncoder(TABLE, default=[0.7, 0.714])}
    facade = (
        Facade(SemanticCache.open(redis_url, **options), None)
        if request.param == "sync"
        else Facade(loop.run(AsyncSemanticCache.open(redis_url, **options)), loop)
    )
    yield facade
    facade.close()


def run(shop: Facade, plain: Any, awaited: Any, *arguments: Any, **options: Any) -> Any:
    """Call the function of this cache's kind."""
    if shop._loop is None:
        return plain(*arguments, **options)
    return shop._loop.run(awaited(*arguments, **options))


def ask(prompt: str, version: str, **fields: Any) -> CacheRequest:
    return CacheRequest(prompt, model="m", model_version=version, **fields)


def gone_within_the_bound(elsewhere: Elsewhere, version: str) -> None:
    """Ask for what was withdrawn until it is gone: who asks after `Policy.local_bound` doesn't get it."""
    withdrawn = asked = time.monotonic()
    while elsewhere.serves("apple", version)[0] is not None:
        assert asked - withdrawn < 1.2
        asked = time.monotonic()


def test_the_story(shop: Facade, elsewhere: Elsewhere) -> None:
    for prompt in ("apple", "pear"):
        shop.put(ask(prompt, "v1"), f"{prompt} is a fruit")
    assert elsewhere.serves("apples", "v1")[0] == "apple is a fruit"

    shop.invalidate(model="m", model_version="v1")
    gone_within_the_bound(elsewhere, "v1")
    assert elsewhere.serves("apples", "v1")[0] is None
    assert elsewhere.serves("apple", "v2")[0] is None

    log = [(float(n), "apple") for n in range(9)] + [(5.0, "pear")]
    questions = logged_questions(log, model="m", version="v2", top=2)
    seen: list[str] = []
    done = run(
        shop, warm, warm_async, shop.cache, questions, lambda request: f"{request.prompt} is a company",
        on_done=lambda one: seen.append(one.outcome),
    )  # fmt: skip
    assert [one.outcome for one in done] == seen == ["warmed", "warmed"]

    actions = []
    for number in range(3):
        text, lookup_id = elsewhere.serves("apple", "v2")
        assert text == "apple is a company"
        actions.append(shop.feedback(lookup_id, -1, rater=f"customer-{number}").action)
    assert actions == ["recorded", "recorded", "withdrawn"]
    assert isinstance(shop.lookup(ask("apple", "v2")), Miss)
    gone_within_the_bound(elsewhere, "v2")

    (again,) = run(shop, refresh, refresh_async, shop.cache, lambda request: "a fruit, and a company")
    assert again.outcome == "changed"
    assert elsewhere.serves("apple", "v2")[0] == "a fruit, and a company"
    assert elsewhere.serves("apples", "v2")[0] == "a fruit, and a company"
    assert [(version.model, version.model_version) for version in shop.versions()] == [
        ("m", "v2"),
        ("m", "v1"),
    ]


def test_a_broken_warm_up_is_resumed(shop: Facade) -> None:
    requests = [ask(prompt, "v2") for prompt in ("apple", "pear", "plum")]
    calls: list[str] = []

    def model(request: CacheRequest) -> str:
        calls.append(request.prompt)
        if len(calls) == 2:
            raise RuntimeError("down")
        return "x"

    first = run(shop, warm, warm_async, shop.cache, requests, model, concurrency=1)
    second = run(shop, warm, warm_async, shop.cache, requests, model, concurrency=2, per_second=1000.0)

    assert [one.outcome for one in first] == ["warmed", "failed", "warmed"]
    assert [one.outcome for one in second] == ["there", "warmed", "there"]
    assert calls == ["apple", "pear", "plum", "pear"]


def test_a_warm_up_asks_no_more_at_once_than_it_may(shop: Facade) -> None:
    import threading

    lock, now, most, together = threading.Lock(), [0], [0], threading.Event()

    def model(request: CacheRequest) -> str:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            if now[0] > 1:
                together.set()
        together.wait(20)
        time.sleep(0.01)
        with lock:
            now[0] -= 1
        return "x"

    requests = [ask(f"question {number}", "v2") for number in range(12)]
    run(shop, warm, warm_async, shop.cache, requests, model, concurrency=3)

    assert 1 < most[0] <= 3


def test_what_was_withdrawn_isnt_carried_over(shop: Facade, redis_url: str, namespace: str) -> None:
    shop.put(ask("apple", "v1"), "stands", tags={"kept"})
    shop.put(ask("pear", "v1"), "ends by its tag", tags={"season:autumn"})
    gone = shop.put(ask("plum", "v1"), "ends by name").entry_id
    old = shop.put(ask("fig", "v1"), "ends by time", ttl=3600.0).entry_id
    shop.put(ask("kiwi", "v1"), "is replaced")
    entries = shop.all_entries()
    questions = stored_questions(entries, model="m", from_version="v1", to_version="v2")
    shop.invalidate(tags={"season:autumn"})
    shop.invalidate(entry_ids=[gone])
    shop.put(ask("kiwi", "v1"), "the new answer")
    with redis.Redis.from_url(redis_url) as client:
        client.pexpire(Keys(namespace).entry(old), 1)  # the server's clock can't be moved
        assert within(30.0, lambda: not client.exists(Keys(namespace).entry(old)))
    report = run(shop, canary, canary_async, questions, lambda request: "stands")
    done = run(shop, carry_over, carry_over_async, shop.cache, questions)
    outcome = {one.request.prompt: one.outcome for one in done}
    served = [prompt for prompt in ("apple", "pear", "plum", "fig", "kiwi") if shop.lookup(ask(prompt, "v2"))]

    assert (report.asked, report.held) == (5, 1)
    assert outcome == dict.fromkeys(("pear", "plum", "fig", "kiwi"), "refused") | {"apple": "warmed"}
    assert served == ["apple"]
    shop.invalidate(tags={"kept"})
    assert isinstance(shop.lookup(ask("apple", "v2")), Miss), "with its tags"


def test_a_version_that_was_ended_isnt_carried_over(shop: Facade) -> None:
    shop.put(ask("apple", "v1"), "x")
    questions = stored_questions(shop.all_entries(), model="m", from_version="v1", to_version="v2")
    shop.invalidate(model="m", model_version="v1")

    assert [one.outcome for one in run(shop, carry_over, carry_over_async, shop.cache, questions)] == [
        "refused"
    ]
    assert not isinstance(shop.lookup(ask("apple", "v2")), Hit)


async def test_an_asynchronous_model_answers_the_canary() -> None:
    from semcache.types import Entry, Fence, Response

    entry = Entry(
        entry_id="m/v/0",
        scope="s",
        prompt="apple",
        response=Response("x"),
        fence=Fence("e", 1),
        revision=1,
        created_at=1.0,
    )

    async def model(request: CacheRequest) -> str:
        return "X "

    report = await canary_async([(entry, ask("apple", "v2"))], model)

    assert (report.asked, report.held) == (1, 1)
