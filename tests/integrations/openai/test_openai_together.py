"""Callers who ask the same at the same time, streamed or not, share one call to upstream."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from openai_semcache import Options, cached_call, wrap_openai
from semcache import AsyncSemanticCache, Policy, SemanticCache
from tests.facade import waiting, within
from tests.integrations.openai.conftest import OTHER, RESET
from tests.upstream import Behaviour, Upstream

TEXT = "Open Settings, choose Security, then Reset password; a link is sent to your address."
SLOWLY = Behaviour(text=TEXT, chunk_delay=0.03)  # 14 events
MANY = 6


def chat(question: str = RESET, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": question}], **more}


def read(chunks: Any) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


async def read_async(chunks: Any) -> str:
    return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])


def ask(client: OpenAI, *, stream: bool, question: str = RESET) -> str:
    if stream:
        return read(client.chat.completions.create(**chat(question), stream=True))
    return client.chat.completions.create(**chat(question)).choices[0].message.content or ""


async def ask_async(client: AsyncOpenAI, *, stream: bool) -> str:
    if stream:
        return await read_async(await client.chat.completions.create(**chat(), stream=True))
    return (await client.chat.completions.create(**chat())).choices[0].message.content or ""


def later(pool: ThreadPoolExecutor, call: Callable[[], Any], upstream: Upstream) -> Future[Any]:
    """Start a call; returns once upstream has it."""
    before = upstream.count
    future = pool.submit(call)
    while upstream.count == before and not future.done():
        threading.Event().wait(0.002)
    return future


def held(text: str | None = TEXT, *, events: int = 1, **more: Any) -> tuple[Behaviour, threading.Event]:
    """Answer, or go on after the first events, when the event is set."""
    let = threading.Event()
    return Behaviour(text=text, hold=let, hold_after=events, **more), let


def let_go(cache: Any, waiters: int, let: threading.Event) -> None:
    """Let a call go on when so many wait for it."""
    assert within(20.0, lambda: waiting(cache) == waiters), f"{waiting(cache)} wait"
    let.set()


def entries(cache: SemanticCache) -> int:
    return len(list(cache.entries()))


@pytest.mark.parametrize("others", [True, False], ids=["others stream", "others don't"])
@pytest.mark.parametrize("first", [True, False], ids=["the first streams", "the first doesn't"])
def test_all_who_ask_at_once_share_one_call(
    first: bool, others: bool, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    behaviour, let = held()
    upstream.next(behaviour)
    with ThreadPoolExecutor(MANY) as pool:
        leader = later(pool, lambda: ask(client, stream=first), upstream)
        followers = [pool.submit(ask, client, stream=others) for _ in range(MANY - 1)]
        let_go(cache, MANY - 1, let)
        texts = [future.result() for future in (leader, *followers)]

    assert texts == [TEXT] * MANY
    assert upstream.count == 1
    assert cache.stats().waited == MANY - 1
    assert entries(cache) == 1


@pytest.mark.parametrize("others", [True, False], ids=["others stream", "others don't"])
@pytest.mark.parametrize("first", [True, False], ids=["the first streams", "the first doesn't"])
async def test_all_who_await_at_once_share_one_call(
    first: bool,
    others: bool,
    async_client: AsyncOpenAI,
    async_cache: AsyncSemanticCache,
    upstream: Upstream,
) -> None:
    behaviour, let = held()
    upstream.next(behaviour)
    _, *texts = await asyncio.gather(
        asyncio.to_thread(let_go, async_cache, MANY - 1, let),
        ask_async(async_client, stream=first),
        *(ask_async(async_client, stream=others) for _ in range(MANY - 1)),
    )

    assert texts == [TEXT] * MANY
    assert upstream.count == 1
    assert (await async_cache.stats()).waited == MANY - 1


def test_a_follower_gets_a_faithful_stream_of_her_own(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    behaviour, let = held()
    upstream.next(behaviour)
    usage = {"stream_options": {"include_usage": True}}

    def follow(**more: Any) -> tuple[list[Any], str]:
        raw = client.chat.completions.with_raw_response.create(**chat(), stream=True, **more)
        return list(raw.parse()), raw.headers["cache-status"]

    with ThreadPoolExecutor(3) as pool:
        later(pool, lambda: follow(**usage), upstream)
        asked, plain = pool.submit(follow, **usage), pool.submit(follow)
        let_go(cache, 2, let)
        with_usage, said = asked.result()
        without, _ = plain.result()

    assert "collapsed" in said.split("; ")
    assert read(with_usage) == read(without) == TEXT
    assert with_usage[0].choices[0].delta.role == "assistant"
    assert len(without) > 3
    assert without[-1].choices[0].finish_reason == "stop"
    assert [bool(chunk.choices) for chunk in with_usage[-2:]] == [True, False]
    assert with_usage[0].id != without[0].id


def test_the_responses_api_shares_too(client: OpenAI, upstream: Upstream) -> None:
    upstream.next(SLOWLY)
    asked: Any = {"model": "m", "input": RESET, "store": False}

    def stream() -> str:
        with client.responses.stream(**asked) as events:
            return events.get_final_response().output_text

    with ThreadPoolExecutor(3) as pool:
        leader = later(pool, stream, upstream)
        others = [pool.submit(stream), pool.submit(lambda: client.responses.create(**asked).output_text)]
        texts = [future.result() for future in (leader, *others)]

    assert texts == [TEXT] * 3
    assert upstream.count == 1


def test_others_do_not_delay_the_one_who_streams(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    behaviour, let = held(events=5)
    upstream.next(behaviour)
    with ThreadPoolExecutor(1) as pool:
        chunks = client.chat.completions.create(**chat(), stream=True)
        first = next(chunks)
        follower = pool.submit(ask, client, stream=True)
        seen = 1
        for _ in chunks:
            seen += 1
            if seen == 5:  # each chunk came when upstream sent it
                let_go(cache, 1, let)
        text = follower.result()

    assert first.choices[0].delta.role == "assistant"
    assert seen > 10
    assert text == TEXT


def test_streams_that_are_opened_first_and_read_later_do_not_wait_for_each_other(
    client: OpenAI, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text=TEXT))
    streams = [client.chat.completions.create(**chat(), stream=True) for _ in range(3)]
    texts = [read(stream) for stream in reversed(streams)]

    assert texts == [TEXT] * 3
    assert upstream.count == 1


async def test_awaited_streams_that_are_opened_first_and_read_later_do_not_either(
    async_client: AsyncOpenAI, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text=TEXT))
    create = async_client.chat.completions.create
    streams: Any = await asyncio.gather(*(create(**chat(), stream=True) for _ in range(3)))
    streams.append(await create(**chat(), stream=True))
    texts = [await read_async(stream) for stream in reversed(streams)]

    assert texts == [TEXT] * 4
    assert upstream.count == 1


def test_a_leader_who_leaves_early_takes_nothing_from_the_others(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    behaviour, let = held(events=4)
    upstream.next(behaviour)
    with ThreadPoolExecutor(3) as pool:
        chunks = client.chat.completions.create(**chat(), stream=True)
        next(chunks)
        followers = [pool.submit(ask, client, stream=stream) for stream in (True, False)]
        assert within(20.0, lambda: waiting(cache) == 2)
        for _ in range(3):
            next(chunks)
        threading.Timer(0.1, let.set).start()  # closing reads on for the others
        chunks.close()
        texts = [future.result() for future in followers]

    assert texts == [TEXT] * 2
    assert upstream.count == 1
    assert entries(cache) == 1


async def test_a_cancelled_leader_takes_nothing_from_the_others(
    async_client: AsyncOpenAI, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    upstream.always(SLOWLY)
    begun = asyncio.Event()

    async def lead() -> None:
        async for _ in await async_client.chat.completions.create(**chat(), stream=True):
            begun.set()

    leader = asyncio.create_task(lead())
    await begun.wait()
    followers = [asyncio.create_task(ask_async(async_client, stream=stream)) for stream in (True, False)]
    await asyncio.sleep(0.1)
    leader.cancel()
    texts = await asyncio.gather(*followers)

    assert texts == [TEXT] * 2
    assert upstream.count <= 2
    assert (await async_cache.stats()).stored == {"stored": 1}


def test_nobody_waits_for_a_leader_who_left_before_they_came(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.next(SLOWLY, Behaviour(text="Anew."))
    chunks = client.chat.completions.create(**chat(), stream=True)
    next(chunks)
    chunks.close()

    assert entries(cache) == 0
    assert ask(client, stream=True) == "Anew."


def test_a_stream_that_is_dropped_keeps_nobody_waiting(client: OpenAI, upstream: Upstream) -> None:
    upstream.next(SLOWLY, Behaviour(text="Anew."))
    chunks = client.chat.completions.create(**chat(), stream=True)
    next(chunks)
    del chunks
    gc.collect()

    assert ask(client, stream=False) == "Anew."


@pytest.mark.parametrize("how", [{"cut_after": 5}, {"end_after": 5}], ids=["cut", "ended early"])
@pytest.mark.parametrize("stream", [True, False])
def test_after_a_stream_that_is_cut_the_next_one_leads(
    stream: bool, how: dict[str, int], client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.next(
        Behaviour(text="Only a part of this.", chunk_delay=0.05, **how),
        Behaviour(text=TEXT, chunk_delay=0.02),
    )

    with ThreadPoolExecutor(4) as pool:
        leader = later(pool, lambda: ask(client, stream=True), upstream)
        followers = [pool.submit(ask, client, stream=stream) for _ in range(3)]
        texts = [future.result() for future in followers]
        broken = leader.exception()

    assert texts == [TEXT] * 3
    assert upstream.count == 2
    assert ("end_after" in how) is (broken is None)
    assert [entry.response.text for entry in cache.entries()] == [TEXT]


@pytest.mark.parametrize("stream", [True, False])
def test_an_error_is_shared_and_not_asked_for_again(
    stream: bool, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    behaviour, let = held(status=429, headers={"retry-after": "7"})
    upstream.next(replace(behaviour, hold_after=None))

    def fail() -> str | None:
        with pytest.raises(openai.RateLimitError) as caught:
            ask(client, stream=stream)
        return caught.value.response.headers["retry-after"]

    with ThreadPoolExecutor(MANY) as pool:
        futures = [later(pool, fail, upstream), *(pool.submit(fail) for _ in range(MANY - 1))]
        let_go(cache, MANY - 1, let)
        waits = [future.result() for future in futures]

    assert waits == ["7"] * MANY
    assert upstream.count == 1
    assert entries(cache) == 0
    assert ask(client, stream=stream) == f"Answer 2 to: {RESET}"


def test_an_answer_that_may_not_be_stored_is_shared_once(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    behaviour, let = held(finish="length")
    upstream.always(behaviour)
    with ThreadPoolExecutor(3) as pool:
        leader = later(pool, lambda: ask(client, stream=True), upstream)
        followers = [pool.submit(ask, client, stream=stream) for stream in (True, False)]
        let_go(cache, 2, let)
        texts = [future.result() for future in (leader, *followers)]

    assert texts == [TEXT] * 3
    assert upstream.count == 1
    assert cache.stats().stored == {"truncated": 1}


def test_another_question_and_another_key_have_calls_of_their_own(
    cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(chunk_delay=0.03))
    clients = [
        wrap_openai(OpenAI(api_key=key, base_url=upstream.url, max_retries=0), cache)
        for key in ("sk-one", "sk-two")
    ]
    with ThreadPoolExecutor(4) as pool:
        futures = [
            pool.submit(ask, client, stream=True, question=question)
            for client in clients
            for question in (RESET, OTHER)
        ]
        texts = [future.result() for future in futures]

    assert len(set(texts)) == upstream.count == 4
    for client in clients:
        client.close()


def test_a_stream_longer_than_its_limit_is_the_callers_alone(
    cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text=TEXT * 20, chunk_delay=0.002))
    client = wrap_openai(
        OpenAI(api_key="k", base_url=upstream.url, max_retries=0),
        cache,
        options=Options(max_stream_bytes=2000),
    )
    with client, ThreadPoolExecutor(3) as pool:
        leader = later(pool, lambda: ask(client, stream=True), upstream)
        followers = [pool.submit(ask, client, stream=True) for _ in range(2)]
        texts = [future.result() for future in (leader, *followers)]

    assert texts == [TEXT * 20] * 3
    assert upstream.count == 3
    assert entries(cache) == 0


def test_without_single_flight_each_stream_is_its_own(namespace: str, upstream: Upstream) -> None:
    upstream.always(SLOWLY)
    policy = Policy(single_flight=False, deadline=5.0)
    with (
        SemanticCache.open("memory://", namespace=namespace, policy=policy) as cache,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url, max_retries=0), cache) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        futures = [
            later(pool, lambda: ask(client, stream=True), upstream),
            pool.submit(ask, client, stream=True),
        ]
        assert [future.result() for future in futures] == [TEXT] * 2

    assert upstream.count == 2


def test_functions_that_stream_share_their_call(cache: SemanticCache) -> None:
    calls: list[str] = []
    going = threading.Event()

    def complete(**request: Any) -> Any:
        calls.append(request["model"])
        for word in TEXT.split(" "):
            going.wait(0.02)
            choice = {"index": 0, "delta": {"content": word + " "}, "finish_reason": None}
            yield {
                "id": "c",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [choice],
            }
        choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
        yield {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    def call() -> str:
        parts = cached_call(complete, chat(stream=True), cache).value
        return "".join(part["choices"][0]["delta"].get("content") or "" for part in parts).strip()

    with ThreadPoolExecutor(3) as pool:
        texts = list(pool.map(lambda _: call(), range(3)))

    assert texts == [TEXT] * 3
    assert calls == ["m"]


def test_calls_of_tools_are_shared_too(client: OpenAI, cache: SemanticCache, upstream: Upstream) -> None:
    behaviour, let = held(None, tool_calls=(("f", '{"city": "Oslo"}'),))
    upstream.always(behaviour)

    def call(stream: bool) -> str:
        tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
        if not stream:
            answer = client.chat.completions.create(**chat(tools=tools))
            return answer.choices[0].message.tool_calls[0].function.arguments  # type: ignore[index,union-attr]
        chunks = client.chat.completions.create(**chat(tools=tools), stream=True)
        deltas = [delta for chunk in chunks for delta in chunk.choices[0].delta.tool_calls or ()]
        return "".join(delta.function.arguments or "" for delta in deltas if delta.function)

    with ThreadPoolExecutor(4) as pool:
        leader = later(pool, lambda: call(True), upstream)
        followers = [pool.submit(call, stream) for stream in (True, False, True)]
        let_go(cache, 3, let)
        arguments = [future.result() for future in (leader, *followers)]

    assert arguments == ['{"city": "Oslo"}'] * 4
    assert upstream.count == 1
    assert cache.stats().stored == {"tool_calls": 1}


async def test_fifty_who_wait_for_a_leader_who_is_killed_cost_one_more_call(
    async_client: AsyncOpenAI, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    behaviour, let = held()
    upstream.always(replace(behaviour, hold_after=None))
    leader = asyncio.create_task(ask_async(async_client, stream=True))
    while upstream.count == 0:
        await asyncio.sleep(0.005)
    followers = [asyncio.create_task(ask_async(async_client, stream=n % 2 == 0)) for n in range(50)]
    while waiting(async_cache) < 50:
        await asyncio.sleep(0.005)
    leader.cancel()
    let.set()

    assert set(await asyncio.gather(*followers)) == {TEXT}
    assert upstream.count == 2


async def test_whoever_leaves_and_whenever_every_answer_belongs_to_its_question(
    async_client: AsyncOpenAI, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(chunk_delay=0.004))
    random = Random(7)

    async def one(number: int) -> tuple[str, str]:
        question = f"What is number {number % 6} of round {number // 60}?"
        if random.random() < 0.5:
            answer = await async_client.chat.completions.create(**chat(question))
            return question, answer.choices[0].message.content or ""
        chunks = await async_client.chat.completions.create(**chat(question), stream=True)
        leaves, text = random.random() < 0.3, ""
        async with chunks:
            async for chunk in chunks:
                text += chunk.choices[0].delta.content or ""
                if leaves and len(text) > 12:
                    return question, ""
        return question, text

    tasks = [asyncio.create_task(one(number)) for number in range(180)]
    for task in random.sample(tasks, 40):
        await asyncio.sleep(random.random() * 0.01)
        task.cancel()
    found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    answers = [pair for pair in found if not isinstance(pair, BaseException)]

    assert all(text.endswith(f"to: {question}") for question, text in answers if text)
    assert {type(error) for error in found if isinstance(error, BaseException)} <= {asyncio.CancelledError}
    assert len([text for _, text in answers if text]) > 80
    kept = [entry async for entry in async_cache.entries()]
    assert all(entry.response.text.endswith(f"to: {entry.prompt}") for entry in kept)


def test_threads_that_leave_whenever_they_like_get_their_own_answers(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(chunk_delay=0.002))
    random = Random(11)

    def one(number: int) -> tuple[str, str]:
        question = f"What is number {number % 5} of round {number // 25}?"
        if random.random() < 0.4:
            return question, ask(client, stream=False, question=question)
        leaves, text = random.random() < 0.4, ""
        with client.chat.completions.create(**chat(question), stream=True) as chunks:
            for chunk in chunks:
                text += chunk.choices[0].delta.content or ""
                if leaves and len(text) > 12:
                    return question, ""
        return question, text

    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(one, range(100)))

    assert all(text.endswith(f"to: {question}") for question, text in found if text)
    assert all(entry.response.text.endswith(f"to: {entry.prompt}") for entry in cache.entries())
    assert upstream.count < 100
