"""`cached_call`: OpenAI-style functions that don't go through httpx."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from openai_semcache import Options, cached_call
from semcache import (
    AsyncSemanticCache,
    ConfigurationError,
    InvalidRequestError,
    OnlyIfCachedError,
    SemanticCache,
)
from tests.integrations.openai.conftest import RESET, RESET_TOO

REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": RESET}]}


class Model:
    """A function with the shape of many SDKs' `completion`, which counts its calls."""

    def __init__(self, *, objects: bool = False) -> None:
        self.calls: list[dict[str, Any]] = []
        self.objects = objects

    def answer(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": f"Answer {len(self.calls)}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}

    def chunks(self) -> list[dict[str, Any]]:
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        deltas = [
            {"role": "assistant", "content": ""},
            {"content": "Answer "},
            {"content": str(len(self.calls))},
        ]
        out = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        return [*out, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]

    def __call__(self, **request: Any) -> Any:
        self.calls.append(request)
        if request.get("stream"):
            return iter([ChatCompletionChunk(**chunk) if self.objects else chunk for chunk in self.chunks()])
        return ChatCompletion(**self.answer()) if self.objects else self.answer()

    async def asynchronous(self, **request: Any) -> Any:
        given = self(**request)
        if not request.get("stream"):
            return given

        async def chunks() -> AsyncIterator[Any]:
            for chunk in given:
                yield chunk

        return chunks()


def text(value: Any) -> str:
    return str(value["choices"][0]["message"]["content"])


def joined(value: Iterator[Any]) -> str:
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in value)


@pytest.mark.parametrize("objects", [False, True])
def test_the_function_is_called_once_for_the_same_and_for_a_paraphrase(
    objects: bool, cache: SemanticCache
) -> None:
    model = Model(objects=objects)
    miss, hit = (cached_call(model, REQUEST, cache) for _ in range(2))
    near = cached_call(model, {"model": "m", "messages": [{"role": "user", "content": RESET_TOO}]}, cache)

    assert [text(call.value) for call in (miss, hit, near)] == ["Answer 1"] * 3
    assert [call.status for call in (miss, hit, near)] == ["miss", "hit", "hit"]
    assert near.headers["x-semcache-match"] == "semantic"
    assert model.calls == [REQUEST]
    assert type(miss.value) is type(hit.value) is dict


@pytest.mark.parametrize("objects", [False, True])
def test_streams_and_answers_serve_each_other(objects: bool, cache: SemanticCache) -> None:
    model = Model(objects=objects)
    streamed = {**REQUEST, "stream": True}

    assert joined(cached_call(model, streamed, cache).value) == "Answer 1"
    assert joined(cached_call(model, streamed, cache).value) == "Answer 1"
    assert text(cached_call(model, REQUEST, cache).value) == "Answer 1"
    assert len(model.calls) == 1


def test_a_stream_that_is_left_early_is_not_stored(cache: SemanticCache) -> None:
    model = Model()
    value = cached_call(model, {**REQUEST, "stream": True}, cache).value
    next(value)
    value.close()

    assert list(cache.entries()) == []


def test_feedback_withdraws(cache: SemanticCache) -> None:
    model = Model()
    calls = [cached_call(model, REQUEST, cache) for _ in range(4)]
    for number, call in enumerate(calls[1:]):
        cache.feedback(call.lookup_id or "", -1, rater=f"u-{number}")

    assert text(cached_call(model, REQUEST, cache).value) == "Answer 2"


def test_controls_are_in_the_request_and_are_not_given_to_the_function(cache: SemanticCache) -> None:
    model = Model()
    for _ in range(2):
        cached_call(model, {**REQUEST, "cache": {"no_cache": True}}, cache)

    assert model.calls == [REQUEST, REQUEST]
    with pytest.raises(InvalidRequestError, match="30s"):
        cached_call(model, {**REQUEST, "cache": {"ttl": "30s"}}, cache)
    with pytest.raises(OnlyIfCachedError):
        cached_call(model, {**REQUEST, "seed": 1, "cache": {"only_if_cached": True}}, cache)
    with pytest.raises(InvalidRequestError, match="partial"):
        cached_call(model, {**REQUEST, "timeout": object()}, cache)


def test_tenants_and_addresses_isolate(cache: SemanticCache) -> None:
    model = Model()
    answers = [
        text(cached_call(model, REQUEST, cache, **more).value)  # type: ignore[call-overload]
        for more in ({}, {"tenant": "a"}, {"base_url": "https://x/v1"}, {"segment": {"locale": "de"}})
    ]

    assert len(set(answers)) == 4


def test_what_the_function_raises_is_raised(cache: SemanticCache) -> None:
    def fails(**_: Any) -> Any:
        raise ZeroDivisionError

    for request in (REQUEST, {**REQUEST, "stream": True}):
        with pytest.raises(ZeroDivisionError):
            cached_call(fails, request, cache)
    assert list(cache.entries()) == []


def test_a_bypass_calls_the_function(cache: SemanticCache) -> None:
    model = Model()
    calls = [cached_call(model, {**REQUEST, "store": True}, cache) for _ in range(2)]

    assert [call.status for call in calls] == ["bypass", "bypass"]
    assert len(model.calls) == 2
    assert (
        cached_call(model, {**REQUEST, "store": True}, cache, options=Options(stored_responses=True)).status
        == "miss"
    )


async def test_asynchronous_functions_are_awaited(async_cache: AsyncSemanticCache) -> None:
    model = Model()
    miss = await cached_call(model.asynchronous, REQUEST, async_cache)
    hit = await cached_call(model.asynchronous, REQUEST, async_cache)
    streamed = await cached_call(model.asynchronous, {**REQUEST, "stream": True}, async_cache)
    chunks = [chunk async for chunk in streamed.value]
    fresh = await cached_call(model.asynchronous, {**REQUEST, "stream": True, "seed": 1}, async_cache)
    new = [chunk async for chunk in fresh.value]
    again = await cached_call(model.asynchronous, {**REQUEST, "seed": 1}, async_cache)

    assert text(miss.value) == text(hit.value) == joined(iter(chunks)) == "Answer 1"
    assert joined(iter(new)) == text(again.value) == "Answer 2"
    assert len(model.calls) == 2


SORRY = "Sorry, something went wrong."


def apologising(end: str | None) -> Any:
    """A streaming function that catches its own error and apologises."""

    def function(**request: Any) -> Iterator[dict[str, Any]]:
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        yield {**head, "choices": [{"index": 0, "delta": {"content": "Open Sett"}, "finish_reason": None}]}
        try:
            raise ConnectionResetError("upstream went away")
        except ConnectionResetError:
            yield {**head, "choices": [{"index": 0, "delta": {"content": SORRY}, "finish_reason": None}]}
        if end is not None:
            yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]}

    return function


@pytest.mark.parametrize("end", [None, "error", "length", "content_filter"])
def test_an_apology_that_ends_a_stream_badly_is_given_and_not_stored(
    end: str | None, cache: SemanticCache
) -> None:
    streamed = {**REQUEST, "stream": True}
    assert joined(cached_call(apologising(end), streamed, cache).value).endswith(SORRY)

    assert list(cache.entries()) == []
    assert joined(cached_call(Model(), streamed, cache).value) == "Answer 1"


def test_an_apology_that_looks_like_an_answer_is_gone_for_all_who_are_near_once_three_said_so(
    cache: SemanticCache,
) -> None:
    near = {"model": "m", "messages": [{"role": "user", "content": RESET_TOO}]}
    assert joined(cached_call(apologising("stop"), {**REQUEST, "stream": True}, cache).value).endswith(SORRY)
    for rater in "abc":
        served = cached_call(Model(), REQUEST, cache)
        assert served.status == "hit"
        cache.feedback(served.headers["x-semcache-lookup-id"], -1, rater=rater)

    assert text(cached_call(Model(), near, cache).value) == "Answer 1"


@pytest.mark.parametrize("given", [None, "text", 7, [{"choices": []}]])
def test_what_is_no_answer_is_refused_and_not_taken_for_a_stream(given: Any, cache: SemanticCache) -> None:
    calls: list[Any] = []

    def function(**request: Any) -> Any:
        calls.append(request)
        return given

    with pytest.raises(ConfigurationError, match=f"gave {type(given).__name__}"):
        cached_call(function, REQUEST, cache)
    assert len(calls) == 1
    for nothing in (None, "text", 7):
        with pytest.raises(ConfigurationError, match="expected chunks"):
            cached_call(lambda nothing=nothing, **_: nothing, {**REQUEST, "stream": True}, cache)
    with pytest.raises(ConfigurationError, match="endpoint"):
        cached_call(function, REQUEST, cache, endpoint="chats")  # type: ignore[call-overload]


async def test_a_function_of_the_other_kind_is_refused(
    cache: SemanticCache, async_cache: AsyncSemanticCache
) -> None:
    model = Model()
    with pytest.raises(ConfigurationError, match="asynchronous"):
        cached_call(model.asynchronous, REQUEST, cache)
    with pytest.raises(ConfigurationError, match="synchronous"):
        await cached_call(model, REQUEST, async_cache)

    assert text(cached_call(model, REQUEST, cache).value).startswith("Answer")


async def test_an_asynchronous_generator_streams(async_cache: AsyncSemanticCache) -> None:
    calls: list[Any] = []

    async def function(**request: Any) -> AsyncIterator[dict[str, Any]]:
        calls.append(request)
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        for piece in ("Hel", "lo"):
            yield {**head, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    texts = []
    for _ in range(2):
        call = await cached_call(function, {**REQUEST, "stream": True}, async_cache)
        texts.append(joined(iter([chunk async for chunk in call.value])))

    assert texts == ["Hello", "Hello"]
    assert len(calls) == 1
