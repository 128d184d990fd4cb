"""Nothing that happens to the cache reaches the user of a model."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest
import redis
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from lc_shared import HEAP, HOURS, RESET, RESET_AGAIN, Chat, CountingLLM, is_hit, note, overwrite

from langchain_semcache import SemcacheCache
from semcache import AsyncSemanticCache, ConfigurationError, Policy, SemanticCache, StoreUnavailableError
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import FailingEncoder, HashEncoder, TableEncoder
from semcache.types import Embeddings
from tests.upstream import Upstream

POLICY = Policy(threshold=0.9, deadline=5.0, local_bound=0.0)
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
    policy = Policy(threshold=0.9, deadline=5.0, local_bound=0.0, breaker_reset=0.0)
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


async def test_a_cache_of_the_other_kind_is_refused_at_once(
    cache: SemanticCache, acache: AsyncSemanticCache
) -> None:
    opening = AsyncSemanticCache.open("memory://")
    for wrong in ({"cache": acache}, {"async_cache": cache}, {"cache": object()}, {"async_cache": opening}):
        with pytest.raises(ConfigurationError, match="expected"):
            SemcacheCache(**wrong)  # type: ignore[arg-type]
    opening.close()
    SemcacheCache(cache, async_cache=acache)


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


class GatedEncoder(TableEncoder):
    """Doesn't come back from `encode` until somebody else opens the gate."""

    def __init__(self) -> None:
        super().__init__(HEAP)
        self.waiting, self.gate, self.held_up = threading.Event(), threading.Event(), False

    def encode(self, texts: Sequence[str]) -> Embeddings:
        self.waiting.set()
        self.held_up |= not self.gate.wait(20)
        return super().encode(texts)


@pytest.mark.parametrize("which", ["async cache", "sync cache in threads"])
async def test_a_slow_encoder_never_holds_up_the_event_loop(
    redis_url: str, namespace: str, which: str
) -> None:
    gated = GatedEncoder()
    policy = Policy(threshold=0.9, deadline=60.0, local_bound=0.0)
    sync = SemanticCache.open(redis_url, namespace=namespace, encoder=gated, policy=policy)
    other = await AsyncSemanticCache.open(redis_url, namespace=namespace, encoder=gated, policy=policy)
    caches: dict[str, Any] = {"async_cache": other} if which == "async cache" else {"cache": sync}
    model = FakeListChatModel(responses=["a"], cache=SemcacheCache(**caches, model="m"))

    async def open_the_gate() -> None:
        while not gated.waiting.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)  # others come while it is shut
        gated.gate.set()

    try:
        await asyncio.gather(open_the_gate(), model.ainvoke(RESET))  # its update encodes
        gated.waiting.clear()
        gated.gate.clear()
        questions = [RESET_AGAIN, HOURS] * 5
        await asyncio.gather(open_the_gate(), *(model.ainvoke(question) for question in questions))
    finally:
        gated.gate.set()
        sync.close()
        await other.close()

    assert gated.calls >= 2
    assert not gated.held_up  # only the loop could open the gate


async def test_a_blocking_call_inside_a_running_loop_does_not_wait_for_that_loop(
    acache: AsyncSemanticCache, upstream: Upstream, chat: Chat
) -> None:
    model = chat(cache=SemcacheCache(async_cache=acache))
    await model.ainvoke(RESET)

    assert is_hit(model.invoke(RESET))


class Echo(BaseChatModel):
    """Answers with the question, after a while."""

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(messages[-1].content))])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        await asyncio.sleep(0.002)
        return self._generate(messages)


async def test_nobody_gets_anothers_answer_while_callers_give_up_at_random(
    redis_url: str, namespace: str
) -> None:
    tenant: ContextVar[str] = ContextVar("tenant")
    dice = random.Random(7)
    policy = Policy(deadline=5.0)
    async with await AsyncSemanticCache.open(
        redis_url, namespace=namespace, policy=policy, encoder=HashEncoder()
    ) as cache:
        model = Echo(cache=SemcacheCache(async_cache=cache, tenant=tenant, model="echo"))
        gate = asyncio.Semaphore(32)

        async def ask(number: int) -> None:
            async with gate:
                tenant.set(f"t{number % 7}")
                question = f"What is number {number % 90}?"
                assert (await model.ainvoke(question)).content == question

        tasks = [asyncio.create_task(ask(number)) for number in range(300)]
        for task in dice.sample(tasks, 60):
            asyncio.get_running_loop().call_later(dice.random() * 0.3, task.cancel)
        results = await asyncio.gather(*tasks, return_exceptions=True)

        wrong = [r for r in results if r is not None and not isinstance(r, asyncio.CancelledError)]
        assert wrong == []
        tenant.set("t0")
        assert (await model.ainvoke("What is number 0?")).content == "What is number 0?"


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_scope_is_the_same_in_every_process() -> None:
    code = """
        from langchain_semcache.llm_string import parse_llm_string
        from langchain_semcache.prompts import parse_prompt
        from langchain_semcache.requests import make_request
        text = "[('_type', 'x'), ('model', 'm'), ('things', {'a', 'b', 'c'}), ('o', <O object at 0x%x>), ('t', {'b': 1, 'a': 2})]"
        print(make_request(parse_prompt("Hi"), parse_llm_string(text % id(object()))))
    """
    shown = {run(code, PYTHONHASHSEED=str(seed)) for seed in (0, 1, 2)}

    assert len(shown) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_starts_a_loop_of_its_own() -> None:
    run(
        """
        import asyncio, os, tempfile
        from langchain_core.outputs import Generation
        from langchain_semcache import SemcacheCache
        from semcache import AsyncSemanticCache, Policy
        from semcache.stores.embedded import EmbeddedServer
        from semcache.testing import HashEncoder

        settings = "[('_type', 'x'), ('model', 'm')]"
        with tempfile.TemporaryDirectory() as folder, EmbeddedServer.open(folder) as server:
            cache = asyncio.run(AsyncSemanticCache.open(server.url, encoder=HashEncoder(), policy=Policy(deadline=10.0)))
            ours = SemcacheCache(async_cache=cache)
            ours.update("q", settings, [Generation(text="a")])
            child = os.fork()
            if not child:
                os._exit(0 if ours.lookup("q", settings) == [Generation(text="a")] else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert ours.lookup("q", settings) == [Generation(text="a")]
            asyncio.run(cache.close())
        """
    )


@pytest.mark.parametrize(
    ("absent", "name", "extra"),
    [
        ("langchain_core", "SemcacheCache", "langchain"),
        ("langchain", "SemcacheMiddleware", "langchain-agents"),
    ],
)
def test_without_langchain_the_error_names_the_extra(absent: str, name: str, extra: str) -> None:
    run(
        f"""
        import sys
        sys.modules[{absent!r}] = None
        from semcache import MissingDependencyError
        try:
            from langchain_semcache import {name}
        except MissingDependencyError as error:
            assert "llm-semcache[{extra}]" in str(error), error
        else:
            raise AssertionError("imported")
        """
    )


def test_importing_it_loads_no_redis_no_index_and_no_agents() -> None:
    run(
        """
        import sys
        import langchain_semcache
        assert not {"redis", "hnswlib", "torch", "openai", "langchain", "langgraph"} & set(sys.modules)
        assert set(langchain_semcache.__all__) == {
            "LangChainEncoder", "SemcacheCache", "SemcacheEmbeddings", "SemcacheMiddleware"
        }
        """
    )
