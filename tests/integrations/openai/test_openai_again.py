"""Withdrawn entries are asked again, with the request that they were stored for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from openai_semcache import ask_again, wrap_openai
from openai_semcache.again import request_of
from openai_semcache.fields import Endpoint
from openai_semcache.requests import parse_request
from semcache import AsyncSemanticCache, ConfigurationError, InvalidRequestError, Policy, SemanticCache
from semcache.refresh import refresh, refresh_async
from semcache.requests import decode_request, encode_request
from semcache.scope import scope_id
from tests.integrations.openai.conftest import RESET, encoder
from tests.upstream import Behaviour, Upstream

BASE = "http://upstream:8000/v1"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "default": None}}}
REQUESTS: dict[str, tuple[Endpoint, dict[str, Any]]] = {
    "plain": ("chat", {"messages": [{"role": "user", "content": "q"}]}),
    "system": (
        "chat",
        {
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}],
            "temperature": 0.5,
        },
    ),
    "conversation": (
        "chat",
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "tool_calls": [{"id": "x1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "x1", "content": "42"},
                {"role": "user", "content": [{"type": "text", "text": "document"}, {"type": "text", "text": "q"}]},
            ],
            "tools": [TOOL],
            "tool_choice": "auto",
        },
    ),
    "tool result last": ("chat", {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "x", "content": "42"}]}),
    "schema": ("chat", {"messages": [{"role": "user", "content": "q"}], "response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": {"const": None}}}}),
    "completions": ("completions", {"prompt": "q", "stop": ["x"]}),
    "responses": ("responses", {"input": "q", "instructions": "Be brief.", "store": False}),
    "responses conversation": (
        "responses",
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
                {"type": "function_call", "id": "f", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "42"},
                {"role": "assistant", "content": "c"},
                {"role": "user", "content": "q"},
            ],
            "store": False,
            "text": {"format": {"type": "json_object"}},
        },
    ),
}  # fmt: skip


def parse(endpoint: Endpoint, body: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
    path = {"chat": "/chat/completions", "completions": "/completions", "responses": "/responses"}[endpoint]
    return parse_request(endpoint, "POST", BASE + path, headers or {}, json.dumps(body).encode()).request


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_asked_again_is_the_same_request(name: str) -> None:
    endpoint, body = REQUESTS[name]
    first = parse(endpoint, {"model": "m", **body}, {"openai-project": "p"})
    kept = decode_request(first.prompt, encode_request(first, keep_all=True))
    kind, path, again, headers = request_of(kept, BASE + "/")
    second = parse(kind, again, headers)

    assert kind == endpoint
    assert second.prompt == first.prompt
    assert scope_id(second, b"k" * 32) == scope_id(first, b"k" * 32)
    assert again["model"] == "m"
    assert path.startswith("/")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"endpoint": "chat https://elsewhere/v1"}, "same host"),
        ({"endpoint": "embeddings " + BASE}, "expected chat"),
        ({"endpoint": ""}, "expected chat"),
        ({"media": ("image:1",)}, "media"),
    ],
)
def test_what_cannot_be_asked_again_is_refused(change: dict[str, Any], words: str) -> None:
    request = replace(parse("chat", {"model": "m", "messages": [{"role": "user", "content": "q"}]}), **change)
    with pytest.raises(InvalidRequestError, match=words):
        request_of(request, BASE)


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        ask_again(object())


SYSTEM: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": RESET}]


def withdraw(client: OpenAI, cache: SemanticCache) -> None:
    for number in range(4):
        headers = client.chat.completions.with_raw_response.create(model="m", messages=SYSTEM).headers
        if number:
            cache.feedback(headers["x-semcache-lookup-id"], -1, rater=f"u-{number}")


@pytest.fixture
def policy() -> Policy:
    return Policy(deadline=5.0, keep_requests=True)


def test_a_withdrawn_answer_is_asked_again_and_served(
    target: str, namespace: str, policy: Policy, upstream: Upstream
) -> None:
    with (
        SemanticCache.open(target, namespace=namespace, encoder=encoder(), policy=policy) as cache,
        wrap_openai(OpenAI(api_key="sk-me", base_url=upstream.url), cache) as client,
    ):
        withdraw(client, cache)
        done = refresh(cache, ask_again(client))
        served = client.chat.completions.with_raw_response.create(model="m", messages=SYSTEM)
        streamed = "".join(
            chunk.choices[0].delta.content or ""
            for chunk in client.chat.completions.create(model="m", messages=SYSTEM, stream=True)
        )

    assert [work.outcome for work in done] == ["changed"]
    assert served.headers["x-semcache-status"] == "hit"
    assert served.parse().choices[0].message.content == streamed == f"Answer 2 to: {RESET}"
    assert upstream.count == 2
    assert upstream.last.body["messages"] == SYSTEM


def test_an_upstream_that_fails_leaves_the_work_for_later(
    target: str, namespace: str, policy: Policy, upstream: Upstream
) -> None:
    with (
        SemanticCache.open(target, namespace=namespace, encoder=encoder(), policy=policy) as cache,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url, max_retries=0), cache) as client,
    ):
        withdraw(client, cache)
        upstream.next(Behaviour(status=500))
        done = refresh(cache, ask_again(client))

    assert [work.outcome for work in done] == ["failed"]


async def test_asynchronous_clients_ask_again(
    target: str, namespace: str, policy: Policy, upstream: Upstream
) -> None:
    cache = await AsyncSemanticCache.open(target, namespace=namespace, encoder=encoder(), policy=policy)
    async with wrap_openai(AsyncOpenAI(api_key="k", base_url=upstream.url), cache) as client:
        for number in range(4):
            raw = await client.responses.with_raw_response.create(model="m", input=RESET, store=False)
            if number:
                await cache.feedback(raw.headers["x-semcache-lookup-id"], -1, rater=f"u-{number}")
        done = await refresh_async(cache, ask_again(client))
        answer = await client.responses.create(model="m", input=RESET, store=False)
    await cache.close()

    assert [work.outcome for work in done] == ["changed"]
    assert answer.output_text == f"Answer 2 to: {RESET}"
