"""Ways of calling the real SDK that give more than an answer: raw and streaming responses of streams, other clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, AzureOpenAI, OpenAI
from test_openai_client import CHAT, JSON_TEXT, RESPONSES, WAYS, Steps, Where, azure_options, without_identity

from openai_semcache import wrap_openai
from semcache import AsyncSemanticCache, SemanticCache
from tests.integrations.openai.conftest import RESET
from tests.integrations.openai.sdk_http import library as sdk_http
from tests.upstream import Behaviour, Upstream

ANSWER = f"Answer 1 to: {RESET}"


def text_of(events: Any) -> str:
    return "".join(_piece(event) for event in events)


def _piece(event: Any) -> str:
    if hasattr(event, "choices"):
        return event.choices[0].delta.content or ""
    return str(event.delta) if event.type == "response.output_text.delta" else ""


CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "chat": (lambda client: client.chat.completions, CHAT),
    "beta": (lambda client: client.beta.chat.completions, CHAT),
    "responses": (lambda client: client.responses, RESPONSES),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_raw_stream_has_headers_a_genuine_response_and_a_parser_on_miss_and_hit(
    call: str, client: OpenAI, upstream: Upstream
) -> None:
    resource, request = CALLS[call]
    seen, kinds = [], set()
    for _ in range(2):
        raw = resource(client).with_raw_response.create(**request, stream=True)
        kinds.add((type(raw), type(raw.http_response)))
        assert raw.http_response.status_code == 200
        assert raw.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert raw.request_id
        with raw.parse() as stream:
            assert isinstance(stream, openai.Stream)
            seen.append((raw.headers["x-semcache-status"], text_of(stream)))

    assert seen == [("miss", ANSWER), ("hit", ANSWER)]
    assert len(kinds) == 1
    assert upstream.count == 1


@pytest.mark.parametrize("call", CALLS)
async def test_an_awaited_raw_stream_has_them_too(
    call: str, async_client: AsyncOpenAI, upstream: Upstream
) -> None:
    resource, request = CALLS[call]
    seen, kinds = [], set()
    for _ in range(2):
        raw = await resource(async_client).with_raw_response.create(**request, stream=True)
        kinds.add((type(raw), type(raw.http_response)))
        stream = raw.parse()
        assert isinstance(stream, openai.AsyncStream)
        seen.append((raw.headers["x-semcache-status"], text_of([event async for event in stream])))

    assert seen == [("miss", ANSWER), ("hit", ANSWER)]
    assert len(kinds) == 1
    assert upstream.count == 1


def _lines(raw: Any) -> str:
    data = [line.removeprefix("data: ") for line in raw.iter_lines() if line.startswith("data: ")]
    events = [json.loads(line) for line in data if line != "[DONE]"]
    if "choices" in events[0]:
        return "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


@pytest.mark.parametrize("read", ["lines", "parse"])
@pytest.mark.parametrize("call", CALLS)
def test_a_streaming_response_of_a_stream_is_read_in_lines_or_as_events(
    call: str, read: str, client: OpenAI, upstream: Upstream
) -> None:
    resource, request = CALLS[call]
    seen = []
    for _ in range(2):
        with resource(client).with_streaming_response.create(**request, stream=True) as raw:
            text = _lines(raw) if read == "lines" else text_of(raw.parse())
            seen.append((raw.headers["x-semcache-status"], text))

    assert seen == [("miss", ANSWER), ("hit", ANSWER)]
    assert upstream.count == 1


@pytest.mark.parametrize("call", CALLS)
async def test_an_awaited_streaming_response_of_a_stream_is_read_in_lines(
    call: str, async_client: AsyncOpenAI, upstream: Upstream
) -> None:
    resource, request = CALLS[call]
    seen = []
    for _ in range(2):
        async with resource(async_client).with_streaming_response.create(**request, stream=True) as raw:
            lines = [line async for line in raw.iter_lines()]
            seen.append((raw.headers["x-semcache-status"], sum("delta" in line for line in lines) > 2))

    assert seen == [("miss", True), ("hit", True)]
    assert upstream.count == 1


def test_a_stream_helper_parses_what_it_streams(client: OpenAI, upstream: Upstream) -> None:
    upstream.always(Behaviour(text=JSON_TEXT))
    parsed: list[Any] = []
    for _ in range(2):
        with client.chat.completions.stream(**CHAT, response_format=Steps) as stream:
            kinds = [event.type for event in stream]
            parsed.append(stream.get_final_completion().choices[0].message.parsed)
        with client.responses.stream(**RESPONSES, text_format=Steps) as events:
            names = [event.type for event in events]
            parsed.append(events.get_final_response().output_parsed)
        assert kinds.count("content.delta") > 1
        assert kinds[-1] in ("content.done", "chunk")
        assert names.count("response.output_text.delta") > 1

    assert parsed == [Steps(steps=["Open Settings"], where=Where(page="Security"))] * 4
    assert upstream.count == 2


@pytest.fixture(params=["azure", "legacy httpx", "another path"])
def other_client(
    request: pytest.FixtureRequest, cache: SemanticCache, upstream: Upstream
) -> Iterator[OpenAI]:
    if request.param == "azure":
        made: OpenAI = AzureOpenAI(**azure_options(upstream), api_version="2025-04-01-preview")
    elif request.param == "another path":
        made = OpenAI(api_key="k", base_url=upstream.origin + "/api/openrouter/v1/", max_retries=0)
    else:
        made = OpenAI(api_key="k", base_url=upstream.url, max_retries=0, http_client=httpx.Client())  # type: ignore[arg-type]
    with made:
        yield wrap_openai(made, cache)


@pytest.mark.parametrize("way", WAYS)
def test_other_clients_are_answered_in_each_way_too(
    way: str, other_client: OpenAI, upstream: Upstream
) -> None:
    kind, call = WAYS[way]
    upstream.always(Behaviour(text=JSON_TEXT))
    first, second = call(other_client), call(other_client)

    assert upstream.count == 1
    assert isinstance(first, kind)
    assert type(second) is type(first)
    assert without_identity(second) == without_identity(first)


def test_clients_made_from_one_another_isolate_what_differs(client: OpenAI, upstream: Upstream) -> None:
    def ask(made: OpenAI) -> str:
        return made.chat.completions.create(**CHAT).choices[0].message.content or ""

    same = [client, client.with_options(timeout=3), client.copy(max_retries=1)]
    other = [
        client.with_options(api_key="another"),
        client.with_options(organization="org-2"),
        client.with_options(project="p-2"),
        client.with_options(base_url=upstream.url + "/lane"),
    ]

    assert {ask(made) for made in same} == {ANSWER}
    assert len({ask(made) for made in other}) == 4
    assert upstream.count == 5


def test_hooks_of_the_http_client_see_misses_and_hits(cache: SemanticCache, upstream: Upstream) -> None:
    seen: list[str] = []
    hooks = {"response": [lambda response: seen.append(response.headers["x-semcache-status"])]}
    http = wrap_openai(sdk_http.Client(event_hooks=hooks), cache)
    with OpenAI(api_key="k", base_url=upstream.url, http_client=http) as client:
        for _ in range(2):
            client.chat.completions.create(**CHAT)

    assert seen == ["miss", "hit"]


@pytest.mark.parametrize("call", CALLS)
async def test_thumbs_down_on_awaited_streams_withdraw_what_they_served(
    call: str, async_client: AsyncOpenAI, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    resource, request = CALLS[call]
    create = resource(async_client).with_raw_response.create
    await create(**request)
    actions = []
    for rater in ("ann", "ben", "cat"):
        raw = await create(**request, stream=True)
        assert text_of([event async for event in raw.parse()]) == ANSWER
        result = await async_cache.feedback(raw.headers["x-semcache-lookup-id"], -1, rater=rater)
        actions.append(result.action)
    after = await create(**request, stream=True)

    assert actions == ["recorded", "recorded", "withdrawn"]
    assert (after.headers["x-semcache-status"], after.headers["x-semcache-reason"]) == ("miss", "withdrawn")
    assert text_of([event async for event in after.parse()]) == ANSWER.replace("1", "2")
    assert upstream.count == 2
