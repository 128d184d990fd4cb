"""LangChain's models over a cached HTTP client: everything that LangChain's own cache interface can't serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypedDict

import pytest
import pytest_asyncio
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from langchain_openai import OpenAI as PlainOpenAI
from openai import DefaultAsyncHttpx2Client, DefaultHttpx2Client
from pydantic import BaseModel

from openai_semcache import wrap_openai
from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.matching import ThresholdMatcher
from tests.graphs import State, graph_of
from tests.integrations.openai.conftest import RESET, encoder
from tests.upstream import Behaviour, Upstream

ANSWER = f"Answer 1 to: {RESET}"


class Steps(BaseModel):
    """The steps."""

    steps: list[str]


class StepsDict(TypedDict):
    """The steps."""

    steps: list[str]


SCHEMA = {"title": "Steps", "type": "object", "properties": {"steps": {"type": "array", "items": {"type": "string"}}},
          "required": ["steps"], "additionalProperties": False}  # fmt: skip


@pytest.fixture
def storing(target: str, namespace: str) -> Iterator[SemanticCache]:
    """A cache that also stores answers that call tools."""
    policy = Policy(store_tool_calls=True, deadline=5.0)
    with SemanticCache.open(
        target, namespace=namespace, policy=policy, encoder=encoder(), matcher=ThresholdMatcher(0.9)
    ) as cache:
        yield cache


@pytest.fixture
def http(cache: SemanticCache) -> Iterator[Any]:
    with wrap_openai(DefaultHttpx2Client(), cache) as client:
        yield client


@pytest_asyncio.fixture
async def async_http(async_cache: AsyncSemanticCache) -> AsyncIterator[Any]:
    async with wrap_openai(DefaultAsyncHttpx2Client(), async_cache) as client:
        yield client


def model_of(upstream: Upstream, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o-mini", api_key="k", base_url=upstream.url, max_retries=0, **more)


@pytest.mark.parametrize("schema", [Steps, StepsDict, SCHEMA], ids=["class", "typed dict", "schema"])
@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
def test_structured_output_is_served_in_every_method(
    method: Any, schema: Any, storing: SemanticCache, upstream: Upstream
) -> None:
    text = '{"steps": ["Open Settings"]}'
    upstream.always(
        Behaviour(tool_calls=(("Steps" if schema is not StepsDict else "StepsDict", text),))
        if method == "function_calling"
        else Behaviour(text=text)
    )
    with wrap_openai(DefaultHttpx2Client(), storing) as http:
        asked = model_of(upstream, http_client=http).with_structured_output(
            schema, method=method, include_raw=True
        )
        answers: list[Any] = [asked.invoke(RESET + " Answer in JSON.") for _ in range(3)]

    expected = Steps(steps=["Open Settings"]) if schema is Steps else {"steps": ["Open Settings"]}
    assert [answer["parsed"] for answer in answers] == [expected] * 3
    assert [answer["parsing_error"] for answer in answers] == [None] * 3
    assert len({answer["raw"].id for answer in answers}) == 3
    assert upstream.count == 1


@pytest.mark.filterwarnings("ignore:Pydantic serializer:UserWarning")  # of langchain-openai itself
@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
async def test_structured_output_is_streamed_from_a_hit(
    method: Any, async_http: Any, upstream: Upstream
) -> None:
    text = '{"steps": ["Open Settings", "Choose Security"]}'
    upstream.always(
        Behaviour(tool_calls=(("Steps", text),)) if method == "function_calling" else Behaviour(text=text)
    )
    asked = model_of(upstream, http_async_client=async_http).with_structured_output(Steps, method=method)
    answers = []
    for _ in range(2):
        answers.append([piece async for piece in asked.astream(RESET + " Answer in JSON.")][-1])

    assert answers == [Steps(steps=["Open Settings", "Choose Security"])] * 2
    assert upstream.count == (2 if method == "function_calling" else 1)  # calls of tools aren't stored


async def test_events_of_a_stream_are_those_of_a_new_answer(async_http: Any, upstream: Upstream) -> None:
    chain = (
        ChatPromptTemplate.from_messages([("system", "Be {how}."), ("user", "{question}")])
        | model_of(upstream, http_async_client=async_http)
        | StrOutputParser()
    )
    runs = []
    for _ in range(2):
        events = [
            event async for event in chain.astream_events({"how": "brief", "question": RESET}, version="v2")
        ]
        tokens = [e["data"]["chunk"].content for e in events if e["event"] == "on_chat_model_stream"]
        runs.append((list(dict.fromkeys(e["event"] for e in events)), "".join(tokens), len(tokens)))

    assert runs[0][:2] == runs[1][:2]
    assert runs[1][1] == ANSWER
    assert runs[1][2] > 3
    assert upstream.count == 1


def test_usage_is_streamed_from_a_hit_where_langchain_asks_for_it(http: Any, upstream: Upstream) -> None:
    model = model_of(upstream, http_client=http, stream_usage=True)
    sums: list[Any] = []
    for _ in range(2):
        total: AIMessageChunk | None = None
        for chunk in model.stream(RESET):
            assert isinstance(chunk, AIMessageChunk)
            total = chunk if total is None else total + chunk
        sums.append(total)

    assert [message.content for message in sums] == [ANSWER, ANSWER]
    assert [message.usage_metadata["total_tokens"] for message in sums] == [13, 13]
    assert upstream.count == 1


def test_several_choices_and_batches_are_served(http: Any, upstream: Upstream) -> None:
    model = model_of(upstream, http_client=http, n=2, temperature=1.0)
    results = [model.generate([[HumanMessage(RESET)]]).generations[0] for _ in range(2)]

    assert [choice.text for choice in results[0]] == [choice.text for choice in results[1]] == [ANSWER] * 2
    assert upstream.count == 1


async def test_concurrent_batches_share_their_calls(async_http: Any, upstream: Upstream) -> None:
    upstream.always(Behaviour(delay=0.05))
    model = model_of(upstream, http_async_client=async_http)
    batch, *streams = await asyncio.gather(
        model.abatch([RESET] * 4), *(_text(model.astream(RESET)) for _ in range(3))
    )

    assert {answer.content for answer in batch} == set(streams) == {ANSWER}
    assert upstream.count == 1


async def _text(stream: AsyncIterator[Any]) -> str:
    return "".join([str(chunk.content) async for chunk in stream])


@pytest.mark.parametrize("version", ["v0", "responses/v1", "v1"])
def test_the_responses_api_is_served_in_each_output_version(
    version: str, http: Any, upstream: Upstream
) -> None:
    model = model_of(upstream, http_client=http, use_responses_api=True, output_version=version, store=False)
    answers = [model.invoke(RESET) for _ in range(2)]
    streamed = "".join(chunk.text for chunk in model.stream(RESET))

    assert [answer.text for answer in answers] == [ANSWER, ANSWER]
    assert streamed == ANSWER
    assert answers[0].response_metadata["id"] != answers[1].response_metadata["id"]
    assert upstream.count == 1


def test_azure_deployments_of_langchain_do_not_share(http: Any, upstream: Upstream) -> None:
    def ask(deployment: str) -> str:
        model = AzureChatOpenAI(
            azure_deployment=deployment,
            azure_endpoint=upstream.origin,
            api_version="2024-10-21",
            api_key="k",
            http_client=http,
        )
        return str(model.invoke(RESET).content)

    assert [ask(name) for name in ("a", "b", "a")] == [ANSWER, ANSWER.replace("1", "2"), ANSWER]


def test_a_plain_llm_of_langchain_is_served_by_invoke_and_stream(http: Any, upstream: Upstream) -> None:
    model = PlainOpenAI(model="gpt-3.5-turbo-instruct", api_key="k", base_url=upstream.url, http_client=http)

    assert model.invoke(RESET) == model.invoke(RESET) == "".join(model.stream(RESET))
    assert upstream.count == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_graph_keeps_every_turn_that_is_served(
    stream: bool, cache: SemanticCache, upstream: Upstream
) -> None:
    with wrap_openai(DefaultHttpx2Client(), cache) as http:
        model = model_of(upstream, http_client=http)

        def answer(state: State) -> dict[str, Any]:
            return {"messages": [model.invoke([state["messages"][-1]])]}

        app = graph_of(answer)
        config: Any = {"configurable": {"thread_id": "t"}}
        for _ in range(3):
            question: Any = {"messages": [HumanMessage(RESET)]}
            if stream:
                pieces = [m for m, _ in app.stream(question, config, stream_mode="messages")]
                assert "".join(str(m.content) for m in pieces if isinstance(m, AIMessageChunk)) == ANSWER
            else:
                app.invoke(question, config)
        messages = app.get_state(config).values["messages"]

    assert [type(message) for message in messages] == [HumanMessage, AIMessage] * 3
    assert len({message.id for message in messages}) == 6
    assert upstream.count == 1
