"""Nothing that happens to the cache reaches the user of a model."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.language_models import FakeListChatModel
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from lc_helpers import HEAP, HOURS, RESET, RESET_AGAIN, Chat, CountingLLM, is_hit, note, overwrite

from langchain_semcache import SemcacheCache
from semcache import AsyncSemanticCache, ConfigurationError, Policy, SemanticCache, StoreUnavailableError
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import FailingEncoder, SlowEncoder, TableEncoder
from tests.upstream import Upstream

POLICY = Policy(threshold=0.9, local_bound=0.0)
NOBODY = "redis://127.0.0.1:1/0"


def test_without_a_server_models_answer_as_if_there_were_no_cache(
    chat: Chat, upstream: Upstream, encoder: TableEncoder
) -> None:
    with SemanticCache.open(NOBODY, encoder=encoder, policy=POLICY) as cache:
        model = chat(cache=SemcacheCache(cache))
        answers = [model.invoke(RESET) for _ in range(3)]

        assert upstream.count == 3
        assert {note(answer)["reason"] for answer in answers} <= {
            "store_unavailable",
            "breaker_open",
            "deadline",
        }
        assert not any(is_hit(answer) for answer in answers)
        assert CountingLLM(cache=SemcacheCache(cache)).invoke(RESET)


async def test_without_a_server_awaited_models_answer_too(
    chat: Chat, upstream: Upstream, encoder: TableEncoder
) -> None:
    async with await AsyncSemanticCache.open(NOBODY, encoder=encoder, policy=POLICY) as cache:
        model = chat(cache=SemcacheCache(async_cache=cache))
        answers = await asyncio.gather(*(model.ainvoke(RESET) for _ in range(8)))

        assert upstream.count == 8
        assert not any(is_hit(answer) for answer in answers)


def test_clearing_without_a_server_says_so(encoder: TableEncoder) -> None:
    with (
        SemanticCache.open(NOBODY, encoder=encoder, policy=POLICY) as cache,
        pytest.raises(StoreUnavailableError),
    ):
        SemcacheCache(cache).clear()


def test_a_server_that_dies_and_comes_back_is_noticed_and_nothing_else(
    tmp_path: Any, chat: Chat, upstream: Upstream, encoder: TableEncoder
) -> None:
    policy = Policy(threshold=0.9, local_bound=0.0, breaker_reset=0.0)
    with EmbeddedServer.open(tmp_path / "a") as server:
        cache = SemanticCache.open(server.url, encoder=encoder, policy=policy)
        model = chat(cache=SemcacheCache(cache))
        model.invoke(RESET)
        assert is_hit(model.invoke(RESET))
    assert not is_hit(model.invoke(RESET))
    assert not is_hit(model.invoke(HOURS))
    cache.close()


def test_a_failing_encoder_leaves_exact_matches(
    redis_url: str, namespace: str, chat: Chat, upstream: Upstream
) -> None:
    failing = FailingEncoder(TableEncoder(HEAP))
    with SemanticCache.open(redis_url, namespace=namespace, encoder=failing, policy=POLICY) as cache:
        model = chat(cache=SemcacheCache(cache))
        model.invoke(RESET)
        assert is_hit(model.invoke(RESET))
        assert not is_hit(model.invoke(RESET_AGAIN))


def test_prompts_that_cannot_be_keys_are_simply_not_cached(
    cache: SemanticCache, caplog: pytest.LogCaptureFixture
) -> None:
    model = CountingLLM(cache=SemcacheCache(cache))
    for prompt in ("", "  \n", "lone \ud800 surrogate"):
        model.invoke(prompt)
        model.invoke(prompt)

    assert len(model.calls) == 6
    assert "surrogate" in caplog.text
    assert "lone" not in caplog.text.replace("lone surrogate", "")


def test_neither_cache_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="cache"):
        SemcacheCache()


def test_no_header_and_no_key_of_the_provider_reaches_the_store_or_a_log(
    redis_url: str, cache: SemanticCache, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="langchain_semcache")
    caplog.set_level("DEBUG", logger="semcache")
    secret, key = "abcdef-tell-nobody", "sk-tell-nobody-either"
    model = chat(
        cache=SemcacheCache(cache),
        api_key=key,
        default_headers={"Authorization": f"Bearer {secret}", "X-Api-Key": secret},
        extra_body={"token": secret},
    )
    model.invoke(RESET)
    assert is_hit(model.invoke(RESET))
    client = redis.from_url(redis_url)
    found = b"".join(
        repr(client.hgetall(name) if client.type(name) == b"hash" else client.dump(name)).encode() + name
        for name in client.scan_iter(count=1000)
    )
    client.close()

    assert b"password" in found
    for word in (secret, key, "Bearer"):
        assert word.encode() not in found
        assert word not in caplog.text


def generation(**fields: Any) -> Any:
    return dumpd(ChatGeneration(message=AIMessage(**{"content": "stored", **fields})))


def evil(kind: str) -> bytes:
    """Return what somebody with access to the store might write in place of a response."""
    payloads: dict[str, Any] = {
        "other class": {"lc": 1, "type": "constructor", "id": ["langchain", "chat_models", "openai", "ChatOpenAI"],
                        "kwargs": {"base_url": "http://127.0.0.1:1"}},
        "secret": {"lc": 1, "type": "secret", "id": ["HOME"]},
        "not implemented": {"lc": 1, "type": "not_implemented", "id": ["a"], "repr": "b"},
        "bad argument": generation(content="x") | {"kwargs": {"message": 7}},
    }  # fmt: skip
    if kind == "pickle":
        return pickle.dumps({"text": "x"})
    if kind == "no json":
        return b"{"
    if kind == "other format":
        return json.dumps({"v": 1, "text": "x", "data": {"format": "langchain/99"}}).encode()
    data = {"format": "langchain/1", "generations": [payloads[kind]]}
    return json.dumps({"v": 1, "text": "x", "data": data}).encode()


@pytest.fixture
def ask(cache: SemanticCache, chat: Chat) -> Callable[[], BaseMessage]:
    """Ask one question, for which an answer is stored."""
    model = chat(cache=SemcacheCache(cache))
    model.invoke(RESET)
    return lambda: model.invoke(RESET)


@pytest.mark.parametrize("kind", ["other class", "secret", "not implemented", "bad argument", "other format"])
def test_a_crafted_payload_is_a_miss_and_makes_room(
    redis_url: str, namespace: str, upstream: Upstream, ask: Callable[[], BaseMessage], kind: str
) -> None:
    overwrite(redis_url, namespace, evil(kind))

    assert not is_hit(ask())
    assert upstream.count == 2
    ask()
    assert is_hit(ask())


@pytest.mark.parametrize("kind", ["pickle", "no json"])
def test_bytes_that_are_no_envelope_are_a_miss(
    redis_url: str, namespace: str, upstream: Upstream, ask: Callable[[], BaseMessage], kind: str
) -> None:
    overwrite(redis_url, namespace, evil(kind))

    assert not is_hit(ask())
    assert upstream.count == 2


def test_an_answer_computed_before_an_invalidation_is_not_stored_after_it(cache: SemanticCache) -> None:
    class Slow(FakeListChatModel):
        """Somebody invalidates while it thinks."""

        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            result = super()._generate(messages, *args, **kwargs)
            if result.generations[0].text == "old":
                cache.invalidate(everything=True)
            return result

    model = Slow(responses=["old", "new"], cache=SemcacheCache(cache))

    old = model.invoke(RESET)
    assert old.content == "old"
    assert note(old)["stored"] == "old_fence"
    assert model.invoke(RESET).content == "new"
    assert model.invoke(RESET).content == "new"


def test_each_of_two_concurrent_callers_keeps_the_time_of_its_own_lookup(cache: SemanticCache) -> None:
    looked, go = threading.Event(), threading.Event()

    class Slow(FakeListChatModel):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            result = super()._generate(messages, *args, **kwargs)
            if result.generations[0].text == "old":
                looked.set()
                go.wait(10)
            return result

    model = Slow(responses=["old", "new"], cache=SemcacheCache(cache))
    answers: list[Any] = []
    early = threading.Thread(target=lambda: answers.append(model.invoke(RESET)))
    early.start()
    assert looked.wait(10)
    cache.invalidate(everything=True)
    late = model.invoke(RESET)
    go.set()
    early.join(10)

    assert note(late)["stored"] == "stored"
    assert note(answers[0])["stored"] == "old_fence"
    assert model.invoke(RESET).content == "new"


def test_an_answer_looked_up_while_the_store_was_away_is_not_stored(
    redis_url: str, namespace: str, encoder: TableEncoder
) -> None:
    with SemanticCache.open(NOBODY, namespace=namespace, encoder=encoder, policy=POLICY) as away:
        ours = SemcacheCache(away)
        model = FakeListChatModel(responses=["a"], cache=ours)

        assert note(model.invoke(RESET))["stored"] in ("store_unavailable", "breaker_open", "deadline")


class _Heart:
    """Measures how late a task wakes up that asks for 5 ms."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def beat(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            self.worst = max(self.worst, time.monotonic() - before - 0.005)


@pytest.mark.parametrize("which", ["async cache", "sync cache in threads"])
async def test_a_slow_encoder_never_holds_up_the_event_loop(
    redis_url: str, namespace: str, which: str, upstream: Upstream
) -> None:
    slow = SlowEncoder(TableEncoder(HEAP), 0.3)
    policy = Policy(threshold=0.9, deadline=5.0, local_bound=0.0)
    sync = SemanticCache.open(redis_url, namespace=namespace, encoder=slow, policy=policy)
    other = await AsyncSemanticCache.open(redis_url, namespace=namespace, encoder=slow, policy=policy)
    ours = SemcacheCache(async_cache=other) if which == "async cache" else SemcacheCache(sync)
    model = FakeListChatModel(responses=["a"], cache=SemcacheCache(sync, model="m"))
    model.invoke(RESET)  # a scope that isn't empty, so that lookups encode
    model = FakeListChatModel(responses=["a"], cache=ours)
    ours._model = "m"
    heart = _Heart()
    task = asyncio.create_task(heart.beat())
    try:
        await asyncio.sleep(0.05)
        await asyncio.gather(*(model.ainvoke(question) for question in [RESET_AGAIN, HOURS] * 10))
    finally:
        task.cancel()
        sync.close()
        await other.close()

    assert heart.worst < 0.2  # an encoder on the loop would hold it up for 0.3 s
