"""Answers to requests with a schema: only what fits is stored, and served only to whom it fits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from openai_semcache import cached_call
from openai_semcache.exchange import Call
from semcache import AsyncSemanticCache, Policy, Response, SemanticCache
from tests.integrations.openai.conftest import RESET
from tests.upstream import Behaviour, Upstream

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"steps": {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1}},
    "required": ["steps"],
    "additionalProperties": False,
    "$defs": {"step": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
}
FITS = '{"steps": [{"text": "Open Settings."}]}'
MISFITS = (
    '{"steps": []}',
    '{"steps": [{"text": 1}]}',
    '{"steps": [{"text": "x"}], "more": 1}',
    '{"steps": [{"text": "x"}',
    '"steps"',
    "Sure! " + FITS,
)


def request(api: str, **more: Any) -> dict[str, Any]:
    """Return a request for JSON of SCHEMA in either API."""
    if api == "responses":
        text = {"format": {"type": "json_schema", "name": "steps", "schema": SCHEMA, "strict": True}}
        return {"model": "m", "input": RESET, "text": text, "store": False, **more}
    wanted = {"type": "json_schema", "json_schema": {"name": "steps", "schema": SCHEMA, "strict": True}}
    return {
        "model": "m",
        "messages": [{"role": "user", "content": RESET}],
        "response_format": wanted,
        **more,
    }


def text_of(client: OpenAI, api: str, stream: bool) -> str:
    """Ask, and return the whole text."""
    if api == "responses":
        if stream:
            events = client.responses.create(**request(api), stream=True)
            return "".join(e.delta for e in events if e.type == "response.output_text.delta")
        return client.responses.create(**request(api)).output_text
    if stream:
        chunks = client.chat.completions.create(**request(api), stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return client.chat.completions.create(**request(api)).choices[0].message.content or ""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("misfit", MISFITS)
def test_an_answer_that_does_not_fit_is_given_and_not_stored(
    misfit: str, api: str, stream: bool, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.next(Behaviour(text=misfit), Behaviour(text=FITS))
    texts = [text_of(client, api, stream) for _ in range(3)]

    assert texts == [misfit, FITS, FITS]
    assert upstream.count == 2
    assert cache.stats().stored == {"schema_mismatch": 1, "stored": 1}


async def test_an_awaited_answer_that_does_not_fit_is_given_and_not_stored(
    async_client: AsyncOpenAI, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    upstream.next(Behaviour(text=MISFITS[0]), Behaviour(text=FITS))
    texts = []
    for _ in range(3):
        answer = await async_client.chat.completions.create(**request("chat"))
        texts.append(answer.choices[0].message.content)

    assert texts == [MISFITS[0], FITS, FITS]
    assert (await async_cache.stats()).stored == {"schema_mismatch": 1, "stored": 1}


def test_the_answer_says_why_it_was_not_stored(client: OpenAI, upstream: Upstream) -> None:
    upstream.next(Behaviour(text=MISFITS[0]))
    said = client.chat.completions.with_raw_response.create(**request("chat")).headers

    assert said["x-semcache-status"] == "miss"
    assert said["x-semcache-stored"] == "schema_mismatch"
    assert "stored" not in said["cache-status"]
    assert "x-semcache-lookup-id" not in said


@pytest.mark.parametrize("misfit", [1, 0])
def test_one_choice_that_does_not_fit_keeps_all_from_being_stored(
    misfit: int, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    texts = [FITS, FITS]
    texts[misfit] = MISFITS[1]
    choices = [
        {"index": at, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for at, text in enumerate(texts)
    ]
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    upstream.always(Behaviour(body=json.dumps(body).encode()))
    answer = client.chat.completions.create(**request("chat", n=2))

    assert [choice.message.content for choice in answer.choices] == texts
    assert cache.stats().stored == {"schema_mismatch": 1}


def test_a_refusal_is_a_refusal_and_a_cut_answer_is_cut(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.next(Behaviour(refusal="I can't."), Behaviour(text='{"steps": [', finish="length"))
    for _ in range(2):
        client.chat.completions.create(**request("chat"))

    assert cache.stats().stored == {"refusal": 1, "truncated": 1}


def test_a_schema_that_cannot_be_judged_breaks_no_call(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text=FITS))
    asked = request("chat")
    asked["response_format"]["json_schema"]["schema"] = {"$ref": "https://example.com/steps.json"}
    for _ in range(2):
        assert client.chat.completions.create(**asked).choices[0].message.content == FITS

    assert upstream.count == 2
    assert cache.stats().stored == {"schema_mismatch": 2}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_stored_answer_is_judged_again_before_it_is_served(
    api: str, stream: bool, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text=FITS))
    credentials = (("authorization", "Bearer sk-test"),)
    path = "/responses" if api == "responses" else "/chat/completions"
    call = Call("POST", upstream.url + path, credentials, json.dumps(request(api)).encode())
    flow: Any = client._client._transport.flow  # type: ignore[attr-defined]
    endpoint: Any = "responses" if api == "responses" else "chat"
    assert cache.put(flow.parse(endpoint, call).request, Response(MISFITS[1], finish_reason="stop"))

    assert text_of(client, api, stream) == FITS
    assert upstream.count == 1


def test_calls_of_tools_have_a_form_of_their_own(upstream: Upstream, namespace: str) -> None:
    with SemanticCache.open(
        "memory://", namespace=namespace, policy=Policy(store_tool_calls=True, deadline=5.0)
    ) as cache:
        answer = {
            "id": "c",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                        ],
                    },
                }
            ],
        }
        tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
        calls = [cached_call(lambda **_: answer, request("chat", tools=tools), cache) for _ in range(2)]

        assert [call.status for call in calls][1] == "hit"
        assert calls[0].headers["x-semcache-stored"] == "stored"
