"""Streams through the real SDK: stored while they pass by, replayed faithfully, never stored when cut."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from openai_semcache import Options, wrap_openai
from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.matching import ThresholdMatcher
from tests.integrations.openai.conftest import RESET, encoder
from tests.integrations.openai.sdk_http import library as sdk_http
from tests.upstream import DONE, Behaviour, Upstream

MESSAGES: Any = [{"role": "user", "content": RESET}]
CHAT: Any = {"model": "gpt-4o-mini", "messages": MESSAGES}
RESPONSES: Any = {"model": "gpt-4o-mini", "input": RESET, "store": False}
LONG = Behaviour(text="This is an answer of some length, so that it comes in several pieces.")


def whole(client: OpenAI, endpoint: str) -> str:
    if endpoint == "chat":
        return client.chat.completions.create(**CHAT).choices[0].message.content or ""
    if endpoint == "completions":
        return client.completions.create(model="m", prompt=RESET).choices[0].text
    return client.responses.create(**RESPONSES).output_text


def streamed(client: OpenAI, endpoint: str) -> str:
    if endpoint == "chat":
        chunks = client.chat.completions.create(**CHAT, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    if endpoint == "completions":
        return "".join(
            chunk.choices[0].text for chunk in client.completions.create(model="m", prompt=RESET, stream=True)
        )
    events = client.responses.create(**RESPONSES, stream=True)
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def stored(cache: SemanticCache) -> int:
    return len(list(cache.entries()))


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
@pytest.mark.parametrize("first", [whole, streamed])
@pytest.mark.parametrize("second", [whole, streamed])
def test_a_stored_answer_serves_whoever_streams_and_whoever_does_not(
    first: Any, second: Any, endpoint: str, client: OpenAI, upstream: Upstream
) -> None:
    expected = f"Answer 1 to: {RESET}"

    assert [first(client, endpoint), second(client, endpoint)] == [expected, expected]
    assert upstream.count == 1


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
async def test_asynchronous_streams_are_stored_and_replayed(
    endpoint: str, async_client: AsyncOpenAI, upstream: Upstream
) -> None:
    texts = []
    for _ in range(2):
        if endpoint == "chat":
            chunks = await async_client.chat.completions.create(**CHAT, stream=True)
            texts.append("".join([chunk.choices[0].delta.content or "" async for chunk in chunks]))
        else:
            events = await async_client.responses.create(**RESPONSES, stream=True)
            texts.append(
                "".join([event.delta async for event in events if event.type == "response.output_text.delta"])
            )

    assert texts == [f"Answer 1 to: {RESET}"] * 2
    assert upstream.count == 1


def test_a_hit_over_plain_http_is_an_event_stream(client: OpenAI, upstream: Upstream) -> None:
    whole(client, "chat")
    response = client._client.post(
        upstream.url + "/chat/completions",
        json={**CHAT, "stream": True},
        headers={"authorization": "Bearer sk-test"},
    )
    events = response.content.split(b"\n\n")[:-1]

    assert upstream.count == 1
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-semcache-status"] == "hit"
    assert events[-1] + b"\n\n" == DONE
    assert all(event.startswith(b"data: ") for event in events)
    assert len(events) > 4
    assert json.loads(events[0][6:])["choices"][0]["delta"]["role"] == "assistant"


def test_tool_calls_are_streamed_and_replayed_where_the_policy_stores_them(
    target: str, namespace: str, upstream: Upstream
) -> None:
    upstream.next(Behaviour(tool_calls=(("weather", '{"city": "Paris", "days": 3}'), ("time", "{}"))))
    tools: Any = [
        {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("weather", "time")
    ]
    policy = Policy(store_tool_calls=True, deadline=5.0)
    with (
        SemanticCache.open(
            target, namespace=namespace, encoder=encoder(), policy=policy, matcher=ThresholdMatcher(0.9)
        ) as cache,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url), cache) as client,
    ):
        answers = []
        for _ in range(2):
            with client.chat.completions.stream(**CHAT, tools=tools) as stream:
                for _event in stream:
                    pass
                answers.append(stream.get_final_completion().choices[0])
        answers.append(client.chat.completions.create(**CHAT, tools=tools).choices[0])  # type: ignore[arg-type]
        paraphrase = [{"role": "user", "content": "How can I reset my password?"}]
        client.chat.completions.create(model="gpt-4o-mini", messages=paraphrase, tools=tools)  # type: ignore[arg-type]

    calls = [
        [(call.id, call.function.name, call.function.arguments) for call in answer.message.tool_calls or ()]
        for answer in answers
    ]  # type: ignore[union-attr]
    assert calls[0] == calls[1] == calls[2]
    assert calls[0] == [("call_1_0", "weather", '{"city": "Paris", "days": 3}'), ("call_1_1", "time", "{}")]
    assert {answer.finish_reason for answer in answers} == {"tool_calls"}
    assert upstream.count == 2, "an answer that calls tools is never served to a paraphrase"


async def test_asynchronous_streams_of_tool_calls_are_replayed(
    target: str, namespace: str, upstream: Upstream
) -> None:
    upstream.next(Behaviour(tool_calls=(("weather", '{"city": "Paris"}'),)))
    tools: Any = [{"type": "function", "function": {"name": "weather", "strict": True, "parameters": {}}}]
    cache = await AsyncSemanticCache.open(
        target, namespace=namespace, encoder=encoder(), policy=Policy(store_tool_calls=True, deadline=5.0)
    )
    answers, chunks = [], 0
    async with wrap_openai(AsyncOpenAI(api_key="k", base_url=upstream.url), cache) as client:
        for _ in range(2):
            async with client.chat.completions.stream(**CHAT, tools=tools) as stream:
                chunks = len([event async for event in stream])
                answers.append(
                    (await stream.get_final_completion()).choices[0].message.to_dict(warnings=False)
                )
    await cache.close()

    assert answers[0] == answers[1]
    assert answers[1]["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}'  # type: ignore[index]
    assert chunks > 4
    assert upstream.count == 1


def test_tool_calls_are_not_stored_by_default(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(tool_calls=(("weather", "{}"),)))
    for _ in range(2):
        list(client.chat.completions.create(**CHAT, stream=True))
        client.chat.completions.create(**CHAT)

    assert upstream.count == 4
    assert stored(cache) == 0


def test_reasoning_and_unknown_fields_survive(client: OpenAI, upstream: Upstream) -> None:
    upstream.next(
        Behaviour(
            text="42",
            message={"reasoning_content": "Six times seven is forty-two."},
            more={"citations": ["u"]},
        )
    )
    first = list(client.chat.completions.create(**CHAT, stream=True))
    second = list(client.chat.completions.create(**CHAT, stream=True))
    answer = client.chat.completions.create(**CHAT)

    for chunks in (first, second):
        assert (
            "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks)
            == "Six times seven is forty-two."
        )
        assert chunks[-1].citations == ["u"]  # type: ignore[attr-defined]
    assert answer.choices[0].message.reasoning_content == "Six times seven is forty-two."  # type: ignore[attr-defined]
    assert upstream.count == 1


def test_usage_is_streamed_only_if_asked_for(client: OpenAI, upstream: Upstream) -> None:
    options: Any = {"stream_options": {"include_usage": True}}
    fresh = list(client.chat.completions.create(**CHAT, stream=True, **options))
    hit = list(client.chat.completions.create(**CHAT, stream=True, **options))
    without = list(client.chat.completions.create(**CHAT, stream=True))

    assert fresh[-1].usage == hit[-1].usage
    assert hit[-1].usage is not None
    assert hit[-1].choices == []
    assert all(chunk.usage is None and chunk.choices for chunk in without)
    assert upstream.count == 1


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_an_answer_streamed_without_usage_has_zeros_for_callers_who_rely_on_usage(
    endpoint: str, client: OpenAI, upstream: Upstream
) -> None:
    def ask(**more: Any) -> Any:
        if endpoint == "chat":
            return client.chat.completions.create(**CHAT, **more)
        return client.completions.create(model="m", prompt=RESET, **more)

    first = list(ask(stream=True))
    again = list(ask(stream=True))
    counted = list(ask(stream=True, stream_options={"include_usage": True}))
    answer = ask()

    assert not any(chunk.usage for chunk in first + again)
    assert counted[-1].choices == []
    assert (answer.usage.total_tokens, counted[-1].usage.total_tokens) == (0, 0)
    assert upstream.count == 1


TEXTS = ["a\r\nb\n\nc\rd", "🙂👩‍👩‍👧 data: [DONE]\n\n", "nul\0 \u2028\u2029\u0085", "word " * 20_000]


@pytest.mark.parametrize("text", TEXTS, ids=["line ends", "emoji", "odd characters", "100 kB"])
def test_any_text_comes_back_to_the_byte(text: str, client: OpenAI, upstream: Upstream) -> None:
    upstream.next(Behaviour(text=text))

    assert whole(client, "chat") == streamed(client, "chat") == whole(client, "chat") == text
    assert upstream.count == 1


@pytest.mark.parametrize(("most", "calls"), [(1 << 20, 2), (1 << 22, 1)])
def test_a_megabyte_is_served_where_the_policy_stores_it_and_else_given_to_each(
    most: int, calls: int, target: str, namespace: str, upstream: Upstream
) -> None:
    text = "wörd " * 180_000
    upstream.always(Behaviour(text=text))
    policy = Policy(deadline=5.0, max_response_bytes=most)
    with (
        SemanticCache.open(target, namespace=namespace, encoder=encoder(), policy=policy) as cache,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url), cache) as client,
    ):
        assert whole(client, "chat") == whole(client, "chat") == text
        assert calls == 2 or streamed(client, "chat") == text

    assert upstream.count == calls


def test_a_streamed_hit_is_counted_once(client: OpenAI, cache: SemanticCache) -> None:
    whole(client, "chat")
    raw = client.chat.completions.with_raw_response.create(**CHAT, stream=True)
    list(raw.parse())

    assert raw.headers["x-semcache-match"] == "exact"
    assert raw.headers["x-semcache-entry-id"]
    assert sum(cache.stats().hits.values()) == 1


# --- no delay --------------------------------------------------------------------------------------------------


def test_chunks_are_passed_on_as_they_come(client: OpenAI, upstream: Upstream) -> None:
    let = threading.Event()
    upstream.next(Behaviour(text="x" * 35, hold=let, hold_after=3))  # and drops the stream if it is held back
    arrivals = 0
    for _ in client.chat.completions.create(**CHAT, stream=True):
        arrivals += 1
        if arrivals == 3:
            let.set()

    assert arrivals == 7
    assert whole(client, "chat") == "x" * 35


# --- cut streams -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
@pytest.mark.parametrize(
    "behaviour", [{"cut_after": 5}, {"end_after": 5}, {"cut_after": 1}, {"end_after": 0}]
)
def test_a_cut_stream_is_not_stored(
    endpoint: str, behaviour: dict[str, int], client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.next(Behaviour(text=LONG.text, **behaviour))  # type: ignore[arg-type]
    try:
        streamed(client, endpoint)
    except (sdk_http.RemoteProtocolError, sdk_http.ReadError, openai.APIConnectionError):
        assert "cut_after" in behaviour

    assert stored(cache) == 0
    assert whole(client, endpoint) == f"Answer 2 to: {RESET}"


def test_a_stream_without_its_last_event_is_not_stored(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    client.chat.completions.create(**CHAT, stream=True).close()
    upstream.next(Behaviour(text="abc", end_after=3))  # all but [DONE]
    chunks = list(client.chat.completions.create(**CHAT, stream=True))

    assert chunks[-1].choices[0].finish_reason == "stop"
    assert stored(cache) == 0


@pytest.mark.parametrize("finish", ["length", "content_filter", None, "something_new"])
@pytest.mark.parametrize("ask", [whole, streamed])
def test_an_answer_that_did_not_finish_well_is_not_stored(
    finish: str | None, ask: Any, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text="Half an ans", finish=finish))
    for endpoint in ("chat", "completions", *(("responses",) if finish else ())):
        assert ask(client, endpoint) == "Half an ans"

    assert stored(cache) == 0


@pytest.mark.parametrize("ask", [whole, streamed])
def test_refusals_and_empty_answers_are_not_stored(
    ask: Any, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    for behaviour in (
        Behaviour(refusal="I can't help with that."),
        Behaviour(text=""),
        Behaviour(text="  \n"),
    ):
        upstream.always(behaviour)
        for endpoint in ("chat", "responses"):
            ask(client, endpoint)

    assert stored(cache) == 0


def test_an_error_inside_a_stream_is_not_stored(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    good = b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}\n\n'
    bad = b'data: {"error": {"message": "overloaded"}}\n\n'
    upstream.next(Behaviour(events=(good, bad, DONE)))
    with pytest.raises(openai.APIError, match="overloaded"):
        streamed(client, "chat")

    assert stored(cache) == 0


def test_a_reader_that_leaves_early_stores_nothing_and_frees_upstream(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.next(Behaviour(text="x" * 20_000, chunk_delay=0.02))
    with client.chat.completions.create(**CHAT, stream=True) as stream:
        for _ in zip(range(3), stream, strict=False):
            pass
    deadline = time.monotonic() + 30
    while not upstream.streams_broken and time.monotonic() < deadline:
        time.sleep(0.01)

    assert upstream.streams_broken == 1
    assert stored(cache) == 0
    assert whole(client, "chat") == f"Answer 2 to: {RESET}"


def test_a_reader_that_stops_at_the_last_event_has_it_stored(client: OpenAI, cache: SemanticCache) -> None:
    # the SDK itself stops at [DONE], before the end of the body
    streamed(client, "chat")

    assert stored(cache) == 1


def test_a_stream_that_nobody_reads_stores_nothing(client: OpenAI, cache: SemanticCache) -> None:
    client.chat.completions.create(**CHAT, stream=True).close()
    client.chat.completions.with_raw_response.create(**CHAT, stream=True).http_response.close()

    assert stored(cache) == 0


async def test_a_cancelled_reader_stores_nothing(
    async_client: AsyncOpenAI, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text="x" * 7000, chunk_delay=0.01))
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in await async_client.chat.completions.create(**CHAT, stream=True):
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [entry async for entry in async_cache.entries()] == []


async def test_an_asynchronous_reader_that_leaves_early_stores_nothing(
    async_client: AsyncOpenAI, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text="x" * 700))
    async with await async_client.chat.completions.create(**CHAT, stream=True) as stream:
        async for _ in stream:
            break
    async for _ in await async_client.chat.completions.create(**CHAT, stream=True):
        break
    for _ in range(10):  # the generators of the SDK and ours end one by one
        gc.collect()
        await asyncio.sleep(0.001)

    assert [entry async for entry in async_cache.entries()] == []
    upstream.always(Behaviour(text="short"))
    assert (await async_client.chat.completions.create(**CHAT)).choices[0].message.content == "short"


def test_an_invalidation_during_a_stream_keeps_its_answer_out(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.next(LONG)
    stream = client.chat.completions.create(**CHAT, stream=True)
    next(iter(stream))
    cache.invalidate(everything=True)
    list(stream)

    assert streamed(client, "chat") == f"Answer 2 to: {RESET}"
    assert upstream.count == 2


def test_a_stream_over_the_limit_is_passed_on_and_not_stored(
    cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.next(LONG)
    client = OpenAI(api_key="k", base_url=upstream.url)
    with wrap_openai(client, cache, options=Options(max_stream_bytes=500)):
        assert streamed(client, "chat") == LONG.text

    assert stored(cache) == 0


def test_a_compressed_stream_is_decoded_and_stored(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    import gzip

    event = b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}\n\n'
    packed = gzip.compress(event + DONE)
    upstream.next(Behaviour(events=(packed[:20], packed[20:]), headers={"content-encoding": "gzip"}))

    assert streamed(client, "chat") == whole(client, "chat") == "Hi"
    assert upstream.count == 1


def test_many_readers_at_once_each_get_their_own_answer(client: OpenAI, upstream: Upstream) -> None:
    wrong: list[tuple[str, str]] = []

    def ask(number: int) -> None:
        for round_ in range(4):
            question = f"nonce {number % 8}"
            messages: Any = [{"role": "user", "content": question}]
            if (number + round_) % 2:
                chunks = client.chat.completions.create(model="m", messages=messages, stream=True)
                text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            else:
                text = (
                    client.chat.completions.create(model="m", messages=messages).choices[0].message.content
                    or ""
                )
            if not text.endswith(f"to: {question}"):
                wrong.append((question, text))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert upstream.count < 64
