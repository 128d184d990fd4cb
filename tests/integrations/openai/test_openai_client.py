"""The real SDK over a cache: every way of calling it, synchronous and asynchronous."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context
from typing import Any, Generic, TypeVar
from unittest.mock import patch

import httpx
import openai
import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ParsedChatCompletion
from openai.types.responses import ParsedResponse, Response
from pydantic import BaseModel

from openai_semcache import AsyncCachingTransport, CachingTransport, Options, wrap_openai
from semcache import AsyncSemanticCache, ConfigurationError, Policy, SemanticCache
from tests.integrations.openai.conftest import OTHER, RESET, RESET_TOO, encoder
from tests.integrations.openai.sdk_http import DefaultAsyncClient, DefaultClient
from tests.integrations.openai.sdk_http import library as sdk_http
from tests.upstream import Behaviour, Upstream

MESSAGES: Any = [{"role": "user", "content": RESET}]
CHAT: Any = {"model": "gpt-4o-mini", "messages": MESSAGES}
RESPONSES: Any = {"model": "gpt-4o-mini", "input": RESET, "store": False}
JSON_TEXT = '{"steps": ["Open Settings"], "where": {"page": "Security"}}'


class Where(BaseModel):
    page: str


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T]


class Steps(BaseModel):
    steps: list[str]
    where: Where


def chat(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(**{**CHAT, **more})


def content_of(answer: ChatCompletion) -> str:
    return answer.choices[0].message.content or ""


def counted(cache: SemanticCache | AsyncSemanticCache) -> int:
    metrics = cache._core.metrics
    return sum(metrics.counts("hits").values()) + sum(metrics.counts("misses").values())


# --- every way of calling it -----------------------------------------------------------------------------------


def _raw(resource: Any, **request: Any) -> Any:
    raw = resource.with_raw_response.create(**request)
    assert raw.headers["x-semcache-status"] in ("hit", "miss")
    assert raw.http_response.status_code == 200
    return raw.parse()


def _streaming(resource: Any, **request: Any) -> Any:
    with resource.with_streaming_response.create(**request) as raw:
        assert raw.headers["x-semcache-status"] in ("hit", "miss")
        return raw.parse()


def _helper(client: Any) -> Any:
    with client.chat.completions.stream(**CHAT) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def _response_helper(client: Any) -> Any:
    with client.responses.stream(**RESPONSES) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


WAYS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "create": (ChatCompletion, chat),
    "parse": (ParsedChatCompletion, lambda c: c.chat.completions.parse(**CHAT, response_format=Steps)),
    "beta parse": (ParsedChatCompletion, lambda c: c.beta.chat.completions.parse(**CHAT, response_format=Steps)),
    "stream helper": (ParsedChatCompletion, _helper),
    "with_options": (ChatCompletion, lambda c: chat(c.with_options(timeout=9.0))),
    "copy": (ChatCompletion, lambda c: chat(c.copy())),
    "raw": (ChatCompletion, lambda c: _raw(c.chat.completions, **CHAT)),
    "streaming response": (ChatCompletion, lambda c: _streaming(c.chat.completions, **CHAT)),
    "completions": (Completion, lambda c: c.completions.create(model="m", prompt=RESET)),
    "responses": (Response, lambda c: c.responses.create(**RESPONSES)),
    "responses raw": (Response, lambda c: _raw(c.responses, **RESPONSES)),
    "responses parse": (ParsedResponse, lambda c: c.responses.parse(**RESPONSES, text_format=Steps)),
    "responses helper": (ParsedResponse, _response_helper),
    "embeddings": (CreateEmbeddingResponse, lambda c: c.embeddings.create(model="e", input=RESET)),
}  # fmt: skip


def without_identity(answer: Any) -> dict[str, Any]:
    data: dict[str, Any] = answer.to_dict(warnings=False)
    for name in ("id", "created", "created_at"):
        data.pop(name, None)
    for item in data.get("output", ()):
        item.pop("id")
    return data


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_calling_is_answered_once_from_upstream_and_then_from_the_cache(
    way: str, client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    kind, call = WAYS[way]
    upstream.always(Behaviour(text=JSON_TEXT))
    first, second = call(client), call(client)

    assert upstream.count == 1
    assert counted(cache) == 2
    assert isinstance(first, kind)
    assert type(second) is type(first)
    assert without_identity(second) == without_identity(first)
    if hasattr(first, "id"):
        assert first.id != second.id


PLAIN_WAYS = [
    way for way in WAYS if not any(word in way for word in ("parse", "raw", "streaming"))
]  # they look at our headers


@pytest.mark.parametrize("way", PLAIN_WAYS)
def test_what_a_plain_client_gets_is_what_a_wrapped_one_gets(
    way: str, client: OpenAI, upstream: Upstream
) -> None:
    kind, call = WAYS[way]
    upstream.always(Behaviour(text=JSON_TEXT))
    call(client)
    hit = call(client)
    with OpenAI(api_key="sk-test", base_url=upstream.url) as plain:
        fresh = call(plain)

    assert without_identity(hit) == without_identity(fresh)
    assert isinstance(fresh, kind)


def test_parsed_objects_are_parsed_again_on_a_hit(client: OpenAI, upstream: Upstream) -> None:
    upstream.always(Behaviour(text=JSON_TEXT))
    for _ in range(2):
        parsed = client.chat.completions.parse(**CHAT, response_format=Steps).choices[0].message.parsed
        responded = client.responses.parse(**RESPONSES, text_format=Steps).output_parsed
        assert parsed == responded == Steps(steps=["Open Settings"], where=Where(page="Security"))

    assert upstream.count == 2


def test_generic_models_are_parsed_again_on_a_hit_each_as_its_own(client: OpenAI, upstream: Upstream) -> None:
    upstream.next(Behaviour(text='{"items": [1, 2]}'), Behaviour(text='{"items": ["one"]}'))

    def ask(kind: type) -> Any:
        made = client.chat.completions.parse(**CHAT, response_format=Page[kind])  # type: ignore[valid-type]
        return made.choices[0].message.parsed

    assert [ask(int), ask(str), ask(int), ask(str)] == [
        Page[int](items=[1, 2]), Page[str](items=["one"]), Page[int](items=[1, 2]), Page[str](items=["one"])
    ]  # fmt: skip
    assert upstream.count == 2


def test_local_classes_of_the_same_name_do_not_share_answers(client: OpenAI, upstream: Upstream) -> None:
    def ask(of: type) -> Any:
        class Out(BaseModel):
            value: of  # type: ignore[valid-type]

        parsed = client.chat.completions.parse(**CHAT, response_format=Out).choices[0].message.parsed
        return parsed.value if parsed else None

    upstream.next(Behaviour(text='{"value": 1}'), Behaviour(text='{"value": "one"}'))

    assert (ask(int), ask(str), ask(int), ask(str)) == (1, "one", 1, "one")
    assert upstream.count == 2


def test_raw_responses_that_were_touched_before_wrapping_are_covered(
    cache: SemanticCache, upstream: Upstream
) -> None:
    with OpenAI(api_key="k", base_url=upstream.url) as client:
        raw = client.chat.completions.with_raw_response
        wrap_openai(client, cache)
        raw.create(**CHAT)
        second = raw.create(**CHAT)

    assert second.headers["x-semcache-status"] == "hit"
    assert upstream.count == 1


def test_a_raw_hit_is_a_genuine_object_of_the_sdk(client: OpenAI, upstream: Upstream) -> None:
    miss, hit = (client.chat.completions.with_raw_response.create(**CHAT) for _ in range(2))

    assert type(hit) is type(miss)
    assert type(hit.http_response) is type(miss.http_response)
    assert hit.request_id
    assert hit.request_id != miss.request_id
    assert hit.elapsed.total_seconds() >= 0
    assert hit.http_version == "HTTP/1.1"
    assert hit.parse()._request_id == hit.request_id
    assert hit.headers["content-type"] == "application/json"
    unwanted = {"set-cookie", "x-ratelimit-remaining-requests", "openai-processing-ms", "transfer-encoding"}
    assert not unwanted & set(hit.headers)
    assert "x-ratelimit-remaining-requests" in miss.headers


def test_raw_streams_are_genuine_objects_of_the_sdk(client: OpenAI, upstream: Upstream) -> None:
    texts = []
    for _ in range(2):
        raw = client.chat.completions.with_raw_response.create(**CHAT, stream=True)
        with raw.parse() as stream:
            assert isinstance(stream, openai.Stream)
            texts.append("".join(chunk.choices[0].delta.content or "" for chunk in stream))
    for _ in range(2):
        raw_responses = client.responses.with_raw_response.create(**RESPONSES, stream=True)
        texts.append("".join(getattr(event, "delta", "") for event in raw_responses.parse()))

    assert texts == [f"Answer 1 to: {RESET}"] * 2 + [f"Answer 2 to: {RESET}"] * 2
    assert upstream.count == 2


def test_bytes_of_a_miss_are_upstreams_to_the_byte(client: OpenAI, upstream: Upstream) -> None:
    body = '{ "id":"x", "object":"chat.completion","created":1,"model":"m","odd": 1.50, "choices":[{"index":0,"message":{"role":"assistant","content":"é"},"finish_reason":"stop"}]}'.encode()
    for compress in (False, True):
        upstream.next(Behaviour(body=body, compress=compress))
        prompt = [{"role": "user", "content": f"{compress}"}]
        raw = client.chat.completions.with_raw_response.create(model="m", messages=prompt)  # type: ignore[arg-type]
        assert raw.content == body
        with client.chat.completions.with_streaming_response.create(model="m", messages=prompt) as again:  # type: ignore[arg-type]
            assert again.headers["x-semcache-status"] == "hit"
            assert json.loads(b"".join(again.iter_bytes()))["choices"] == json.loads(body)["choices"]
    assert upstream.count == 2


# --- other clients ---------------------------------------------------------------------------------------------


def azure_options(upstream: Upstream) -> dict[str, Any]:
    return {"api_key": "k", "azure_endpoint": upstream.origin, "max_retries": 0}


def test_azure_deployments_and_versions_do_not_share_answers(
    cache: SemanticCache, upstream: Upstream
) -> None:
    def ask(version: str, model: str) -> str:
        with wrap_openai(AzureOpenAI(**azure_options(upstream), api_version=version), cache) as client:
            return content_of(chat(client, model=model))

    answers = [ask("2024-10-21", "prod-a"), ask("2024-10-21", "prod-b"), ask("2025-01-01", "prod-a")]

    assert len(set(answers)) == 3
    assert ask("2024-10-21", "prod-a") == answers[0]
    assert upstream.count == 3
    assert upstream.calls[0].path == "/openai/deployments/prod-a/chat/completions?api-version=2024-10-21"


def test_a_deployment_of_the_client_isolates(cache: SemanticCache, upstream: Upstream) -> None:
    def ask(deployment: str) -> str:
        options = azure_options(upstream)
        client = AzureOpenAI(**options, api_version="2024-10-21", azure_deployment=deployment)
        with wrap_openai(client, cache):
            return content_of(chat(client, model="gpt-4o"))

    assert ask("one") != ask("two")
    assert ask("one") == f"Answer 1 to: {RESET}"


def test_legacy_httpx_clients_are_covered(cache: SemanticCache, upstream: Upstream) -> None:
    with (
        httpx.Client(timeout=9) as http,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url, http_client=http), cache) as client,  # type: ignore[arg-type]
    ):
        first, second = chat(client), chat(client)
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chat(client, stream=True))
        raw = client.chat.completions.with_raw_response.create(**CHAT)

    assert content_of(first) == content_of(second) == streamed
    assert isinstance(raw.http_response, httpx.Response)
    assert upstream.count == 1


async def test_asynchronous_legacy_httpx_clients_are_covered(
    async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    async with httpx.AsyncClient() as http:
        client = wrap_openai(AsyncOpenAI(api_key="k", base_url=upstream.url, http_client=http), async_cache)  # type: ignore[arg-type]
        first, second = await chat(client), await chat(client)
        streamed = [chunk.choices[0].delta.content or "" async for chunk in await chat(client, stream=True)]

    assert content_of(first) == content_of(second) == "".join(streamed)
    assert upstream.count == 1


def test_a_transport_can_be_given_to_an_http_client(cache: SemanticCache, upstream: Upstream) -> None:
    transport = CachingTransport(sdk_http.HTTPTransport(), cache, tenant="acme")
    with DefaultClient(transport=transport) as http:
        client = OpenAI(api_key="k", base_url=upstream.url, http_client=http)
        assert content_of(chat(client)) == content_of(chat(client))

    assert upstream.count == 1


def test_wrapping_keeps_proxies_timeouts_and_limits(cache: SemanticCache, upstream: Upstream) -> None:
    with patch.dict(os.environ, {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}):
        client = OpenAI(api_key="k", base_url=upstream.url)
    before = dict(client._client._mounts)
    wrap_openai(client, cache)
    after = client._client._mounts

    assert before.keys() == after.keys()
    assert any(inner is not None for inner in before.values())
    for pattern, inner in before.items():
        wrapped = after[pattern]
        assert wrapped is None if inner is None else wrapped._inner is inner  # type: ignore[union-attr]
    assert client._client.timeout == openai.DEFAULT_TIMEOUT
    assert content_of(chat(client)) == content_of(chat(client))
    client.close()


def test_wrapping_twice_changes_nothing_and_another_cache_is_refused(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    transport = client._client._transport

    assert wrap_openai(client, cache) is client
    assert wrap_openai(client.with_options(timeout=1), cache)._client._transport is transport
    for options in ({"tenant": "other"}, {"options": Options(annotate=True)}):
        with pytest.raises(ConfigurationError, match="already has a cache"):
            wrap_openai(client, cache, **options)  # type: ignore[arg-type]
    chat(client)
    chat(client)
    assert counted(cache) == 2
    assert upstream.count == 1


def test_what_is_no_client_or_the_wrong_cache_is_refused(
    cache: SemanticCache, async_cache: AsyncSemanticCache
) -> None:
    with OpenAI(api_key="k") as client:
        for wrong in (async_cache, object()):
            with pytest.raises(ConfigurationError):
                wrap_openai(client, wrong)  # type: ignore[arg-type]
        assert not isinstance(client._client._transport, CachingTransport)
    with pytest.raises(ConfigurationError, match="AsyncSemanticCache"):
        wrap_openai(AsyncOpenAI(api_key="k"), cache)
    for nothing in (object(), "client", None):
        with pytest.raises(ConfigurationError):
            wrap_openai(nothing, cache)


def test_older_clients_with_a_transport_attribute_of_their_own_are_wrapped_below_it(
    cache: SemanticCache, upstream: Upstream
) -> None:
    with OpenAI(api_key="k", base_url=upstream.url) as client:
        client._transport = None  # type: ignore[attr-defined]
        wrap_openai(client, cache)
        assert content_of(chat(client)) == content_of(chat(client))

    assert upstream.count == 1


def test_closing_the_client_closes_the_transport_below(cache: SemanticCache) -> None:
    closed = []

    class Inner(sdk_http.HTTPTransport):
        def close(self) -> None:
            closed.append(True)
            super().close()

    wrap_openai(OpenAI(api_key="k", http_client=sdk_http.Client(transport=Inner())), cache).close()

    assert closed == [True]


async def test_closing_an_asynchronous_client_closes_the_transport_below(
    async_cache: AsyncSemanticCache,
) -> None:
    closed = []

    class Inner(sdk_http.AsyncHTTPTransport):
        async def aclose(self) -> None:
            closed.append(True)
            await super().aclose()

    http = sdk_http.AsyncClient(transport=Inner())
    await wrap_openai(AsyncOpenAI(api_key="k", http_client=http), async_cache).close()

    assert closed == [True]


def test_another_tracer_may_sit_on_either_side(cache: SemanticCache, upstream: Upstream) -> None:
    class Tracer(sdk_http.BaseTransport):
        def __init__(self, inner: Any) -> None:
            self.inner, self.seen = inner, 0

        def handle_request(self, request: sdk_http.Request) -> sdk_http.Response:
            self.seen += 1
            response: sdk_http.Response = self.inner.handle_request(request)
            return response

        def close(self) -> None:
            self.inner.close()

    below = Tracer(sdk_http.HTTPTransport())
    above = Tracer(CachingTransport(below, cache))
    with OpenAI(api_key="k", base_url=upstream.url, http_client=sdk_http.Client(transport=above)) as client:
        for _ in range(2):
            raw = client.responses.with_raw_response.create(**RESPONSES, stream=True)
            assert "".join(getattr(event, "delta", "") for event in raw.parse()) == f"Answer 1 to: {RESET}"

    assert (above.seen, below.seen) == (2, 1)


# --- other calls pass through ----------------------------------------------------------------------------------


def test_other_calls_pass_untouched(client: OpenAI, cache: SemanticCache, upstream: Upstream) -> None:
    assert [model.id for model in client.models.list()] == ["m"]
    uploaded = client.files.create(file=b"data\0", purpose="batch")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.retrieve("chatcmpl-1")

    assert uploaded.id == "file-1"
    assert b"data\0" in upstream.calls[1].raw
    assert counted(cache) == 0


# --- scope and matching ----------------------------------------------------------------------------------------


def test_a_paraphrase_is_a_semantic_hit(client: OpenAI, upstream: Upstream) -> None:
    chat(client)
    raw = client.chat.completions.with_raw_response.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": RESET_TOO}]
    )

    assert upstream.count == 1
    assert raw.headers["x-semcache-match"] == "semantic"
    assert raw.headers["x-semcache-similarity"] == "0.98"
    assert content_of(raw.parse()) == f"Answer 1 to: {RESET}"


@pytest.mark.parametrize(
    ("more", "other"),
    [
        ({"max_tokens": 5}, {"max_tokens": 500}),
        ({"temperature": 0}, {}),
        ({"seed": 1}, {"seed": 2}),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, {}),
        ({"extra_body": {"repetition_penalty": 1.1}}, {}),
        ({"extra_query": {"lane": "b"}}, {}),
        ({"extra_headers": {"OpenAI-Project": "p"}}, {}),
        ({"extra_headers": {"Authorization": "Bearer another"}}, {}),
        ({"model": "gpt-4o"}, {}),
    ],
)
def test_requests_that_differ_do_not_share_an_answer(
    more: dict[str, Any], other: dict[str, Any], client: OpenAI, upstream: Upstream
) -> None:
    one, two, three = (content_of(chat(client, **options)) for options in (more, other, more))

    assert one != two
    assert one == three
    assert upstream.count == 2


@pytest.mark.parametrize(("more", "calls"), [({}, 2), ({"temperature": None}, 2), ({"temperature": 0}, 1)])
def test_a_missing_temperature_counts_as_the_providers_default(
    more: dict[str, Any], calls: int, target: str, namespace: str, upstream: Upstream
) -> None:
    policy = Policy(deadline=5.0, max_temperature=0.5)
    with (
        SemanticCache.open(target, namespace=namespace, encoder=encoder(), policy=policy) as cache,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url), cache) as client,
    ):
        for _ in range(2):
            chat(client, **more)
            client.embeddings.create(model="e", input=RESET)

    assert upstream.count == calls + 1, "embeddings have no temperature"


def test_two_api_keys_do_not_share_an_answer_unless_they_are_one_tenant(
    cache: SemanticCache, upstream: Upstream
) -> None:
    def ask(key: str, tenant: str | None = None) -> str:
        with wrap_openai(OpenAI(api_key=key, base_url=upstream.url), cache, tenant=tenant) as client:
            return content_of(chat(client))

    assert ask("sk-a") != ask("sk-b")
    assert ask("sk-a", "acme") == ask("sk-b", "acme")
    assert "sk-a" not in repr(list(cache.entries()))


def test_tenant_and_segment_may_be_told_at_each_call(cache: SemanticCache, upstream: Upstream) -> None:
    now = {"tenant": "", "locale": ""}
    client = OpenAI(api_key="k", base_url=upstream.url)
    wrap_openai(client, cache, tenant=lambda: now["tenant"], segment=lambda: {"locale": now["locale"]})
    answers = []
    with client:
        for tenant, locale in (("a", "de"), ("b", "de"), ("a", "fr"), ("a", "de")):
            now.update(tenant=tenant, locale=locale)
            answers.append(content_of(chat(client)))

    assert answers[0] == answers[3]
    assert len(set(answers)) == 3


def test_a_context_variable_names_the_tenant_and_unset_it_turns_the_cache_off(
    cache: SemanticCache, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    tenant: ContextVar[str] = ContextVar("tenant")
    answers = []
    with wrap_openai(
        OpenAI(api_key="k", base_url=upstream.url, max_retries=0), cache, tenant=tenant
    ) as client:
        for name in (None, None, "acme", "globex", "acme"):
            run = copy_context()
            if name is not None:
                run.run(tenant.set, name)
            raw = run.run(client.chat.completions.with_raw_response.create, **CHAT)
            answers.append((raw.headers["x-semcache-status"], raw.headers.get("x-semcache-reason")))

    bypass = ("bypass", "bypass:policy")
    assert answers == [bypass, bypass, ("miss", "no_candidate"), ("miss", "no_candidate"), ("hit", None)]
    assert [record.levelname for record in caplog.records if "isn't set" in record.message] == ["WARNING"]
    assert upstream.count == 4


async def test_a_tenant_that_is_not_set_costs_an_awaiting_caller_the_cache_only(
    async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    tenant: ContextVar[str] = ContextVar("tenant")
    segment: ContextVar[dict[str, str]] = ContextVar("segment")
    made = AsyncOpenAI(api_key="k", base_url=upstream.url, max_retries=0)
    async with wrap_openai(made, async_cache, tenant=tenant, segment=segment) as client:  # type: ignore[arg-type]
        tenant.set("acme")
        first, second = await chat(client), await chat(client)
        segment.set({"locale": "de"})
        stream = await chat(client, stream=True)
        third = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        fourth = await chat(client)

    assert content_of(first) != content_of(second)
    assert third == content_of(fourth)
    assert upstream.count == 3


@pytest.mark.parametrize("wrong", [{"tenant": 7}, {"segment": "de"}, {"segment": 7}])
def test_a_tenant_or_segment_that_cannot_be_one_is_refused_at_once(
    wrong: dict[str, Any], cache: SemanticCache
) -> None:
    with OpenAI(api_key="k") as client, pytest.raises(ConfigurationError, match=next(iter(wrong))):
        wrap_openai(client, cache, **wrong)


def test_the_same_question_in_two_conversations_is_answered_twice(client: OpenAI, upstream: Upstream) -> None:
    def follow_up(subject: str) -> Any:
        return [
            {"role": "user", "content": f"Who is {subject}?"},
            {"role": "assistant", "content": "A person."},
            {"role": "user", "content": "How old is he?"},
        ]

    one, two = (content_of(chat(client, messages=follow_up(subject))) for subject in ("Alan", "Bob"))

    assert one != two
    assert content_of(chat(client, messages=follow_up("Alan"))) == one


def test_responses_take_a_text_and_a_list_for_the_same(client: OpenAI, upstream: Upstream) -> None:
    client.responses.create(**RESPONSES)
    again = client.responses.create(**{**RESPONSES, "input": [{"role": "user", "content": RESET}]})

    assert again.output_text == f"Answer 1 to: {RESET}"
    assert upstream.count == 1


TURNS = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": RESET},
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("more", "reason", "detail"),
    [
        ({"messages": TURNS}, "exact_only:turns", "exact_only:turns"),
        ({"messages": [*TURNS, {"role": "assistant", "content": "Well,"}]}, "exact_only:turns", "exact_only:turns/messages"),
        ({"tools": [TOOL]}, "exact_only:tools", "exact_only:tools"),
        ({"tools": [TOOL], "tool_choice": "required"}, "exact_only:tools", "exact_only:tools/tool_choice"),
        ({"seed": 7}, "exact_only:policy", "exact_only:policy/seed"),
        ({"n": 2}, "exact_only:policy", "exact_only:policy/n"),
        ({"logprobs": True}, "exact_only:policy", "exact_only:policy/logprobs"),
        ({"model": ""}, "exact_only:opaque", "exact_only:opaque/model"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": RESET}, PIXEL]}]}, "exact_only:media", "exact_only:media/messages"),
        ({"prediction": {"type": "content", "content": "x"}}, "no_candidate", "no_candidate/prediction"),
        ({"extra_headers": {"x-semcache-mode": "exact"}}, "no_candidate", "no_candidate/mode"),
    ],
)  # fmt: skip
def test_a_request_that_matches_exactly_only_was_looked_up_and_says_so(
    more: Any, reason: str, detail: str, stream: bool, client: OpenAI, upstream: Upstream
) -> None:
    said = []
    for _ in range(2):
        raw = client.chat.completions.with_raw_response.create(**{**CHAT, "stream": stream, **more})
        raw.http_response.read()
        said.append(raw.headers)
    miss, hit = said

    assert (miss["x-semcache-status"], miss["x-semcache-reason"]) == ("miss", reason)
    assert miss["cache-status"].split("; ")[1] == "fwd=miss"
    assert miss["cache-status"].endswith(f"detail={detail}")
    assert hit["x-semcache-status"] == "hit"


def test_responses_that_the_provider_keeps_bypass_with_a_reason(client: OpenAI, upstream: Upstream) -> None:
    raw = [client.responses.with_raw_response.create(model="m", input=RESET) for _ in range(2)]

    assert upstream.count == 2
    assert raw[1].headers["x-semcache-status"] == "bypass"
    assert raw[1].headers["cache-status"] == "semcache; fwd=bypass; detail=bypass:policy/store"


def test_a_hit_of_the_responses_api_echoes_this_callers_metadata(client: OpenAI, upstream: Upstream) -> None:
    client.responses.create(**RESPONSES, metadata={"caller": "a"}, user="a")
    second = client.responses.create(**RESPONSES, metadata={"caller": "b"})

    assert upstream.count == 1
    assert (second.metadata, second.user) == ({"caller": "b"}, None)


def test_ids_in_a_history_do_not_isolate(client: OpenAI, upstream: Upstream) -> None:
    def history(prefix: str) -> Any:
        call = {"id": prefix, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        return [
            {"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": prefix, "content": "42"},
        ]

    assert content_of(chat(client, messages=history("x"))) == content_of(chat(client, messages=history("y")))
    assert upstream.count == 1


@pytest.mark.parametrize("model", ["name-q6:latest", "openai/gpt-4o", "a.b-c_d", "ünïcode", "m" * 300])
def test_model_names_of_any_shape_hit_exactly_and_by_meaning(
    model: str, client: OpenAI, upstream: Upstream
) -> None:
    near: Any = [{"role": "user", "content": RESET_TOO}]
    answers = [content_of(chat(client, model=model, **more)) for more in ({}, {}, {"messages": near})]

    assert set(answers) == {f"Answer 1 to: {RESET}"}
    assert upstream.count == 1


# --- feedback --------------------------------------------------------------------------------------------------


def test_a_thumbs_down_by_lookup_id_makes_the_next_call_a_miss(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    served = [client.chat.completions.with_raw_response.create(**CHAT).headers for _ in range(4)]
    assert upstream.count == 1
    for number, headers in enumerate(served[1:]):
        result = cache.feedback(headers["x-semcache-lookup-id"], -1, rater=f"u-{number}")

    assert result.action == "withdrawn"
    assert content_of(chat(client)) == f"Answer 2 to: {RESET}"


def test_the_lookup_id_of_a_miss_names_the_entry_just_stored(client: OpenAI, cache: SemanticCache) -> None:
    miss = client.chat.completions.with_raw_response.create(**CHAT).headers
    hit = client.chat.completions.with_raw_response.create(**CHAT).headers

    assert miss["x-semcache-status"] == "miss"
    assert miss["x-semcache-entry-id"] == hit["x-semcache-entry-id"]
    assert cache.feedback(miss["x-semcache-lookup-id"], 1, rater="u").action in ("recorded", "none")


def test_annotated_answers_carry_their_lookup_id(cache: SemanticCache, upstream: Upstream) -> None:
    client = OpenAI(api_key="k", base_url=upstream.url)
    with wrap_openai(client, cache, options=Options(annotate=True, usage="zero")):
        miss, hit = chat(client), chat(client)
        chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))

    assert miss.semcache["status"] == "miss"
    assert hit.semcache["status"] == "hit"
    assert cache.feedback(hit.semcache["lookup_id"], -1, rater="u").entry_id == miss.semcache["entry_id"]
    assert (miss.usage.total_tokens, hit.usage.total_tokens) == (13, 0)
    assert chunks[-2].semcache["match"] == "exact"
    assert chunks[-2].choices[0].finish_reason == "stop"


# --- asynchronous ----------------------------------------------------------------------------------------------


async def _araw(resource: Any, **request: Any) -> Any:
    raw = await resource.with_raw_response.create(**request)
    assert raw.headers["x-semcache-status"] in ("hit", "miss")
    return raw.parse()


async def _astreaming(resource: Any, **request: Any) -> Any:
    async with resource.with_streaming_response.create(**request) as raw:
        return await raw.parse()


async def _ahelper(client: Any) -> Any:
    async with client.chat.completions.stream(**CHAT) as stream:
        async for _ in stream:
            pass
        return await stream.get_final_completion()


async def _aresponse_helper(client: Any) -> Any:
    async with client.responses.stream(**RESPONSES) as stream:
        async for _ in stream:
            pass
        return await stream.get_final_response()


ASYNC_WAYS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "raw": lambda c: _araw(c.chat.completions, **CHAT),
    "streaming response": lambda c: _astreaming(c.chat.completions, **CHAT),
    "stream helper": _ahelper,
    "responses raw": lambda c: _araw(c.responses, **RESPONSES),
    "responses helper": _aresponse_helper,
    **{
        way: call
        for way, (_, call) in WAYS.items()
        if "raw" not in way and "helper" not in way and "streaming" not in way
    },
}


@pytest.mark.parametrize("way", ASYNC_WAYS)
async def test_each_asynchronous_way_is_answered_once_from_upstream_and_then_from_the_cache(
    way: str, async_client: AsyncOpenAI, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text=JSON_TEXT))
    first, second = await ASYNC_WAYS[way](async_client), await ASYNC_WAYS[way](async_client)

    assert upstream.count == 1
    assert counted(async_cache) == 2
    assert type(second) is type(first)
    assert without_identity(second) == without_identity(first)


def test_every_synchronous_way_has_its_asynchronous_twin() -> None:
    assert ASYNC_WAYS.keys() == WAYS.keys()


@pytest.mark.parametrize("above", [False, True])
async def test_asynchronous_raw_streams_work_with_a_tracer_on_either_side(
    above: bool, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    class Tracer(sdk_http.AsyncBaseTransport):
        def __init__(self, inner: Any) -> None:
            self.inner, self.seen = inner, 0

        async def handle_async_request(self, request: sdk_http.Request) -> sdk_http.Response:
            self.seen += 1
            response: sdk_http.Response = await self.inner.handle_async_request(request)
            return response

        async def aclose(self) -> None:
            await self.inner.aclose()

    plain = sdk_http.AsyncHTTPTransport()
    tracer = Tracer(AsyncCachingTransport(plain, async_cache) if above else plain)
    transport = tracer if above else AsyncCachingTransport(tracer, async_cache)
    http = sdk_http.AsyncClient(transport=transport)
    async with AsyncOpenAI(api_key="k", base_url=upstream.url, http_client=http) as client:
        for _ in range(2):
            raw = await client.responses.with_raw_response.create(**RESPONSES, stream=True)
            text = "".join([getattr(event, "delta", "") async for event in raw.parse()])
            assert text == f"Answer 1 to: {RESET}"

    assert tracer.seen == (2 if above else 1)


async def test_asynchronous_azure_is_covered(async_cache: AsyncSemanticCache, upstream: Upstream) -> None:
    client = AsyncAzureOpenAI(**azure_options(upstream), api_version="2024-10-21")
    async with wrap_openai(client, async_cache):
        first, second = await chat(client), await chat(client)

    assert content_of(first) == content_of(second)
    assert upstream.count == 1


async def test_an_asynchronous_transport_can_be_given(
    async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    transport = AsyncCachingTransport(sdk_http.AsyncHTTPTransport(), async_cache)
    async with DefaultAsyncClient(transport=transport) as http:
        client = AsyncOpenAI(api_key="k", base_url=upstream.url, http_client=http)
        assert content_of(await chat(client)) == content_of(await chat(client))

    assert upstream.count == 1


def test_two_questions_are_two_answers(client: OpenAI) -> None:
    assert content_of(chat(client)) != content_of(chat(client, messages=[{"role": "user", "content": OTHER}]))
