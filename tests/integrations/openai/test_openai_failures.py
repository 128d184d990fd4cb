"""The call that the cache serves is never broken by it, and what went wrong is never stored."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from openai_semcache import wrap_openai
from openai_semcache.exchange import Call
from semcache import AsyncSemanticCache, Policy, Response, SemanticCache
from semcache.matching import ThresholdMatcher
from semcache.testing import FailingEncoder
from semcache.types import Embeddings
from tests.facade import waiting, within
from tests.integrations.openai.conftest import RESET, NearEncoder, encoder
from tests.upstream import Behaviour, Upstream

CHAT: Any = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": RESET}]}


def ask(client: OpenAI, *, stream: bool = False, **more: Any) -> str:
    if stream:
        chunks = client.chat.completions.create(**{**CHAT, **more}, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    return client.chat.completions.create(**{**CHAT, **more}).choices[0].message.content or ""


async def ask_async(client: AsyncOpenAI, **more: Any) -> str:
    return (await client.chat.completions.create(**{**CHAT, **more})).choices[0].message.content or ""


def stored(cache: SemanticCache) -> int:
    return len(list(cache.entries()))


# --- upstream fails --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_keeps_its_status_and_is_not_stored(
    status: int,
    error: type[openai.APIStatusError],
    stream: bool,
    client: OpenAI,
    cache: SemanticCache,
    upstream: Upstream,
) -> None:
    upstream.next(Behaviour(status=status, headers={"retry-after": "7"}))
    with pytest.raises(error) as caught:
        ask(client, stream=stream)

    assert caught.value.status_code == status
    assert caught.value.response.headers["retry-after"] == "7"
    assert f"upstream says {status}" in caught.value.message
    assert stored(cache) == 0
    assert ask(client, stream=stream) == f"Answer 2 to: {RESET}"


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "x"}}',
        b'{"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}',
        b'{"id": "x"}',
        b"[]",
    ],
)
def test_a_200_that_is_no_answer_is_passed_on_and_not_stored(
    body: bytes, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(body=body))
    for _ in range(2):
        raw = client.chat.completions.with_raw_response.create(**CHAT)
        assert raw.content == body

    assert upstream.count == 2
    assert stored(cache) == 0


def test_a_body_that_is_not_json_is_passed_on(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.next(Behaviour(body=b"<html>oops</html>", headers={"content-type": "text/html"}))
    response = client.chat.completions.with_raw_response.create(**CHAT)

    assert response.content == b"<html>oops</html>"
    assert stored(cache) == 0


def test_the_sdk_retries_above_the_cache(client: OpenAI, upstream: Upstream) -> None:
    upstream.next(Behaviour(status=500), Behaviour(status=429, headers={"retry-after-ms": "1"}))

    assert ask(client.with_options(max_retries=3)) == f"Answer 3 to: {RESET}"
    assert ask(client) == f"Answer 3 to: {RESET}"
    assert upstream.count == 3


def test_a_timeout_is_the_callers_and_the_next_call_works(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    hold = threading.Event()
    upstream.next(Behaviour(hold=hold))
    with pytest.raises(openai.APITimeoutError):
        ask(client.with_options(timeout=0.1))
    hold.set()

    assert stored(cache) == 0
    assert ask(client) == f"Answer {upstream.count} to: {RESET}"


def test_an_unreachable_upstream_is_a_connection_error(cache: SemanticCache) -> None:
    client = OpenAI(api_key="k", base_url="http://127.0.0.1:1/v1", max_retries=0)
    with wrap_openai(client, cache):
        for stream in (False, True):
            with pytest.raises(openai.APIConnectionError):
                ask(client, stream=stream)
        with pytest.raises(openai.APIConnectionError):
            client.embeddings.create(model="e", input=["a", "b"])


# --- the cache fails -------------------------------------------------------------------------------------------


def test_without_a_store_upstream_answers(namespace: str, upstream: Upstream) -> None:
    with (
        SemanticCache.open("redis://127.0.0.1:1/0", namespace=namespace, encoder=encoder()) as cache,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url), cache) as client,
    ):
        assert [ask(client), ask(client, stream=True)] == [
            f"Answer {number} to: {RESET}" for number in (1, 2)
        ]
        raw = client.chat.completions.with_raw_response.create(**CHAT)
        assert client.embeddings.create(model="e", input=["a", "b"]).data[1].index == 1

    assert raw.headers["x-semcache-status"] == "error"
    assert raw.headers["x-semcache-reason"] in ("store_unavailable", "breaker_open")


async def test_without_a_store_upstream_answers_asynchronous_callers(
    namespace: str, upstream: Upstream
) -> None:
    cache = await AsyncSemanticCache.open("redis://127.0.0.1:1/0", namespace=namespace, encoder=encoder())
    async with wrap_openai(AsyncOpenAI(api_key="k", base_url=upstream.url), cache) as client:
        assert [await ask_async(client), await ask_async(client)] == [
            f"Answer {n} to: {RESET}" for n in (1, 2)
        ]
    await cache.close()


def test_a_failing_encoder_costs_the_neighbours_only(target: str, namespace: str, upstream: Upstream) -> None:
    with (
        SemanticCache.open(target, namespace=namespace, encoder=FailingEncoder(encoder())) as cache,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url), cache) as client,
    ):
        answers = [ask(client), ask(client, stream=True), ask(client)]

    assert answers[0] == f"Answer 1 to: {RESET}"
    assert all(answer.endswith(f"to: {RESET}") for answer in answers)


@pytest.mark.parametrize("stream", [False, True])
def test_an_entry_that_cannot_be_given_back_is_a_miss(
    stream: bool, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text='{"a": 1}'))
    asked: Any = {**CHAT, "response_format": {"type": "json_object"}}
    credentials = (("authorization", "Bearer sk-test"),)
    call = Call("POST", upstream.url + "/chat/completions", credentials, json.dumps(asked).encode())
    request = client._client._transport.flow.parse("chat", call).request  # type: ignore[attr-defined]
    assert cache.put(request, Response("{not JSON", finish_reason="stop"))
    answer = ask(client, stream=stream, response_format=asked["response_format"])

    assert answer == '{"a": 1}'
    assert upstream.count == 1


def test_an_entry_stored_as_text_alone_is_a_whole_answer(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    credentials = (("authorization", "Bearer sk-test"),)
    call = Call("POST", upstream.url + "/chat/completions", credentials, json.dumps(CHAT).encode())
    cache.put(client._client._transport.flow.parse("chat", call).request, "From the handbook.")  # type: ignore[attr-defined]

    assert [ask(client), ask(client, stream=True)] == ["From the handbook."] * 2
    assert upstream.count == 0


def test_odd_requests_are_upstreams_to_judge(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text="ok", body=None))
    post: Callable[..., Any] = client._client.post
    headers = {"authorization": "Bearer k", "content-type": "application/json"}
    bodies = [
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "\ud800"}]}).encode(),
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "  "}]}).encode(),
        json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": "q"}], "x": float("nan")}
        ).encode(),
        json.dumps({"model": "m", "messages": "q", "x": [[[]]] * 100}).encode(),
    ]
    for body in bodies:
        response = post(upstream.url + "/chat/completions", content=body, headers=headers)
        assert response.status_code == 200
        assert upstream.last.raw == body
    assert stored(cache) <= 1


# --- many at once ----------------------------------------------------------------------------------------------


def together(
    count: int,
    call: Callable[[int], Any],
    cache: SemanticCache | None = None,
    let: threading.Event | None = None,
) -> list[Any]:
    """Call from many threads; with a cache, let the first call go on when all others wait for it."""
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        barrier.wait(30)
        try:
            return call(number)
        except openai.APIStatusError as error:
            return error.status_code

    with ThreadPoolExecutor(count) as pool:
        found = pool.map(one, range(count))
        if let is not None:
            assert within(20.0, lambda: waiting(cache) == count - 1), "they share no call"
            let.set()
        return list(found)


def test_concurrent_callers_share_one_call(client: OpenAI, upstream: Upstream) -> None:
    upstream.always(Behaviour(delay=0.3))
    answers = together(16, lambda _: ask(client))

    assert set(answers) == {f"Answer 1 to: {RESET}"}
    assert upstream.count == 1


async def test_concurrent_tasks_share_one_call(async_client: AsyncOpenAI, upstream: Upstream) -> None:
    upstream.always(Behaviour(delay=0.3))
    answers = await asyncio.gather(*(async_client.chat.completions.create(**CHAT) for _ in range(50)))

    assert {answer.choices[0].message.content for answer in answers} == {f"Answer 1 to: {RESET}"}
    assert len({answer.id for answer in answers}) == 50
    assert upstream.count == 1


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(status=500),
        Behaviour(status=429),
        Behaviour(finish="length"),
        Behaviour(tool_calls=(("f", "{}"),)),
        Behaviour(refusal="No."),
    ],
    ids=["500", "429", "length", "tool call", "refusal"],
)
def test_whoever_waits_for_an_answer_that_is_not_stored_shares_it_and_does_not_queue(
    behaviour: Behaviour, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    let = threading.Event()
    upstream.always(replace(behaviour, hold=let))
    outcomes = together(12, lambda _: ask(client), cache, let)

    assert len(set(outcomes)) == 1
    assert upstream.count <= 3, "a herd, or a convoy"
    upstream.always(Behaviour())
    assert ask(client) == f"Answer {upstream.count} to: {RESET}", "the failure was pinned"


def test_an_error_of_the_leaders_credentials_is_not_the_waiters(
    cache: SemanticCache, upstream: Upstream
) -> None:
    let = threading.Event()
    upstream.next(Behaviour(status=401, hold=let))
    clients = [
        wrap_openai(OpenAI(api_key=f"k{n}", base_url=upstream.url, max_retries=0), cache, tenant="acme")
        for n in range(4)
    ]

    def call(number: int) -> Any:
        assert number == 0 or within(20.0, lambda: upstream.count)  # the first leads
        return ask(clients[number])

    outcomes = together(4, call, cache, let)
    for client in clients:
        client.close()

    assert outcomes[0] == 401
    assert all(str(outcome).startswith("Answer") for outcome in outcomes[1:])


async def test_when_the_leader_is_cancelled_another_takes_over(
    async_client: AsyncOpenAI, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    let = threading.Event()
    upstream.always(Behaviour(hold=let))
    leader = asyncio.create_task(ask_async(async_client))
    while upstream.count == 0:
        await asyncio.sleep(0.01)
    waiters = [asyncio.create_task(ask_async(async_client)) for _ in range(50)]
    while waiting(async_cache) < 50:
        await asyncio.sleep(0.01)
    leader.cancel()
    let.set()
    answers = await asyncio.gather(*waiters)

    assert set(answers) == {f"Answer 2 to: {RESET}"}
    assert upstream.count == 2
    with pytest.raises(asyncio.CancelledError):
        await leader


async def test_under_load_and_cancellations_every_answer_belongs_to_its_question(
    async_client: AsyncOpenAI, upstream: Upstream
) -> None:
    wrong: list[str] = []

    async def one(number: int) -> None:
        question = f"nonce {number % 40}"
        messages: Any = [{"role": "user", "content": question}]
        call = ask_async(async_client, messages=messages)
        try:
            answer = await asyncio.wait_for(call, 0.002 * (number % 7) + 0.001 if number % 3 == 0 else 30)
        except (TimeoutError, openai.APIConnectionError):
            return
        if not answer.endswith(f"to: {question}"):
            wrong.append(answer)

    for _ in range(3):
        await asyncio.gather(*(one(number) for number in range(64)))

    assert wrong == []


class GatedEncoder(NearEncoder):
    """Doesn't come back from `encode` until somebody else opens the gate."""

    def __init__(self) -> None:
        super().__init__(64)
        self.inside, self.gate, self.held_up = threading.Event(), threading.Event(), False

    def encode(self, texts: Sequence[str]) -> Embeddings:
        self.inside.set()
        self.held_up |= not self.gate.wait(20)
        return super().encode(texts)


async def test_a_slow_encoder_does_not_block_the_event_loop(
    target: str, namespace: str, upstream: Upstream
) -> None:
    gated = GatedEncoder()
    cache = await AsyncSemanticCache.open(
        target,
        namespace=namespace,
        encoder=gated,
        policy=Policy(deadline=60.0),
        matcher=ThresholdMatcher(0.9),
    )

    async def open_the_gate() -> None:
        while not gated.inside.is_set():
            await asyncio.sleep(0.001)
        gated.gate.set()

    async with wrap_openai(AsyncOpenAI(api_key="k", base_url=upstream.url), cache) as client:
        for round_ in range(2):
            gated.gate.set()
            await asyncio.to_thread(cache._core.encoder.encode_now, ["the last one"])
            gated.inside.clear()
            gated.gate.clear()
            questions = [[{"role": "user", "content": f"question {round_} {number}"}] for number in range(8)]
            await asyncio.gather(
                open_the_gate(), *(ask_async(client, messages=question) for question in questions)
            )
    await cache.close()

    assert not gated.held_up, "only the loop could open the gate"


# --- counting --------------------------------------------------------------------------------------------------


def test_every_request_is_counted_once(client: OpenAI, cache: SemanticCache, upstream: Upstream) -> None:
    upstream.next(Behaviour(), Behaviour(), Behaviour(status=500))
    ask(client)  # a miss
    ask(client)  # a hit
    ask(client, stream=True)  # a streamed hit
    ask(client, extra_headers={"Cache-Control": "no-cache"})  # a refresh
    with pytest.raises(openai.InternalServerError):
        ask(client, seed=1)  # a miss; upstream fails
    ask(client, tools=[{"type": "web_search"}])  # a bypass
    ask(client, store=True)  # a bypass
    stats = cache.stats()

    assert sum(stats.hits.values()) == 2
    assert sum(stats.misses.values()) == 5
    assert stats.misses["bypass:tools"] == 1
    assert (stats.misses["bypass:policy"], stats.misses["no_candidate"]) == (1, 1)
    assert stats.misses["exact_only:policy"] == 1
    assert stats.misses["bypass:no_cache"] == 1


@pytest.mark.parametrize("stream", [False, True])
def test_whoever_waits_for_anothers_call_is_counted_once_too(
    stream: bool, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(delay=0.3))
    together(8, lambda _: ask(client, stream=stream))
    ask(client, stream=stream)
    stats = cache.stats()

    assert upstream.count == 1
    assert sum(stats.hits.values()) + sum(stats.misses.values()) + stats.waited == 9
    assert sum(stats.misses.values()) == 1


# --- stale answers ---------------------------------------------------------------------------------------------

STORED_ONLY = {"cache-control": "only-if-cached"}  # starts no refresh


@pytest.mark.parametrize("outcome", [200, 500])
@pytest.mark.parametrize("stream", [False, True])
def test_a_stale_answer_is_served_and_refreshed_once_with_the_callers_own_identity(
    outcome: int, stream: bool, target: str, namespace: str, upstream: Upstream
) -> None:
    policy = Policy(deadline=5.0, stale_while_revalidate=1000.0, ttl=0.2)
    with (
        SemanticCache.open(target, namespace=namespace, encoder=encoder(), policy=policy) as cache,
        wrap_openai(OpenAI(api_key="sk-me", base_url=upstream.url, max_retries=0), cache) as client,
    ):
        ask(client)
        time.sleep(0.3)
        both_asked = threading.Event()
        upstream.always(Behaviour(status=outcome, hold=both_asked))
        first, second = ask(client, stream=stream), ask(client, stream=stream)
        both_asked.set()
        deadline = time.monotonic() + 30
        while (upstream.count < 2 or cache._refreshes._threads) and time.monotonic() < deadline:
            time.sleep(0.01)
        third = ask(client, extra_headers=STORED_ONLY)

    assert first == second == f"Answer 1 to: {RESET}"
    assert upstream.calls[1].headers["authorization"] == "Bearer sk-me"
    if outcome == 200:
        assert third == f"Answer 2 to: {RESET}"
    else:
        assert third == f"Answer 1 to: {RESET}", "the error took the place of the old answer"


async def test_a_stale_answer_is_refreshed_for_asynchronous_callers(
    target: str, namespace: str, upstream: Upstream
) -> None:
    policy = Policy(deadline=5.0, stale_while_revalidate=1000.0, ttl=0.2)
    cache = await AsyncSemanticCache.open(target, namespace=namespace, encoder=encoder(), policy=policy)
    async with wrap_openai(AsyncOpenAI(api_key="k", base_url=upstream.url), cache) as client:
        await ask_async(client)
        await asyncio.sleep(0.3)
        both_asked = threading.Event()
        upstream.always(Behaviour(hold=both_asked))
        assert await ask_async(client) == await ask_async(client) == f"Answer 1 to: {RESET}"
        both_asked.set()
        await asyncio.gather(*cache._refreshes._tasks)  # type: ignore[union-attr]
        assert await ask_async(client, extra_headers=STORED_ONLY) == f"Answer 2 to: {RESET}"
    await cache.close()
