"""What users of LangChain do with a model over the cache: chains, every kind of structured output, events, callbacks."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import FakeListChatModel, FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField
from langchain_openai import OpenAI as PlainOpenAI
from lc_shared import COLOUR, HEAP, HOURS, RESET, RESET_AGAIN, Chat, is_hit, note
from pydantic import BaseModel

from langchain_semcache import SemcacheCache
from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.testing import TableEncoder
from tests.graphs import State, graph_of
from tests.upstream import Behaviour, Upstream


class City(BaseModel):
    """A city."""

    name: str


class CityDict(TypedDict):
    """A city."""

    name: str


SCHEMA = {"title": "City", "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
          "additionalProperties": False}  # fmt: skip


@pytest.fixture
def everywhere(cache: SemanticCache) -> Iterator[SemcacheCache]:
    """The cache of every model."""
    ours = SemcacheCache(cache)
    set_llm_cache(ours)
    yield ours
    set_llm_cache(None)


@pytest.mark.parametrize("schema", [City, CityDict, SCHEMA], ids=["class", "typed dict", "schema"])
@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
async def test_structured_output_is_served_in_every_method(
    method: Any, schema: Any, redis_url: str, namespace: str, chat: Chat, upstream: Upstream
) -> None:
    text = '{"name": "Paris"}'
    name = schema.__name__ if isinstance(schema, type) else "City"
    by_tool = method == "function_calling"
    upstream.always(Behaviour(tool_calls=((name, text),)) if by_tool else Behaviour(text=text))
    policy = Policy(threshold=0.9, deadline=5.0, store_tool_calls=True)
    answers: list[Any] = []
    with SemanticCache.open(
        redis_url, namespace=namespace, policy=policy, encoder=TableEncoder(HEAP)
    ) as cache:
        model = chat(cache=SemcacheCache(cache, schemas=[City]))
        asked = model.with_structured_output(schema, method=method, include_raw=True)
        for _ in range(2):
            answers += [asked.invoke(RESET + " JSON."), await asked.ainvoke(RESET + " JSON.")]

    expected = City(name="Paris") if schema is City else {"name": "Paris"}
    assert [answer["parsed"] for answer in answers] == [expected] * 4
    assert [answer["parsing_error"] for answer in answers] == [None] * 4
    assert [is_hit(answer["raw"]) for answer in answers] == [False, True, True, True]
    assert len({answer["raw"].id for answer in answers}) == 4
    if by_tool:
        assert len({answer["raw"].tool_calls[0]["id"] for answer in answers}) == 4
    assert upstream.count == 1


async def test_events_of_a_served_call_are_its_start_and_its_end(
    acache: AsyncSemanticCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=SemcacheCache(async_cache=acache), disable_streaming=True)
    chain = ChatPromptTemplate.from_template("{question}") | model | StrOutputParser()
    runs = []
    for _ in range(2):
        events = [event async for event in chain.astream_events({"question": RESET}, version="v2")]
        runs.append([event["data"]["output"] for event in events if event["event"] == "on_chat_model_end"])

    assert [len(ends) for ends in runs] == [1, 1]
    assert runs[0][0].content == runs[1][0].content
    assert is_hit(runs[1][0])
    assert upstream.count == 1


def test_callbacks_hear_of_a_hit_and_count_what_was_paid_once(
    everywhere: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    heard: list[str] = []

    class Handler(BaseCallbackHandler):
        def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
            heard.append("start")

        def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
            heard.append("end")

    model = chat()
    with get_usage_metadata_callback() as usage:
        for _ in range(2):
            model.invoke(RESET, config={"callbacks": [Handler()], "tags": ["a"], "metadata": {"run": "x"}})

    assert heard == ["start", "end"] * 2
    assert next(iter(usage.usage_metadata.values()))["total_tokens"] in (13, 26)
    assert upstream.count == 1


async def test_the_global_cache_serves_chains_and_models_of_every_kind(
    everywhere: SemcacheCache, upstream: Upstream, chat: Chat
) -> None:
    chain = ChatPromptTemplate.from_messages([("system", "Be {how}."), ("user", "{q}")]) | chat()
    asked = {"how": "brief", "q": RESET}
    first, second = chain.invoke(asked), await chain.ainvoke(asked)
    near = chain.invoke({"how": "brief", "q": RESET_AGAIN})
    other = chain.invoke({"how": "long", "q": RESET})
    plain = PlainOpenAI(model="gpt-3.5-turbo-instruct", api_key="k", base_url=upstream.url)

    assert [is_hit(message) for message in (first, second, near, other)] == [False, True, True, False]
    assert plain.invoke(HOURS) == await plain.ainvoke(HOURS) == plain.batch([HOURS, HOURS])[1]
    one_by_one = {"max_concurrency": 1}
    assert FakeListLLM(responses=["a", "b"]).batch([COLOUR, COLOUR], config=one_by_one) == ["a", "a"]  # type: ignore[arg-type]
    assert upstream.count == 3


async def test_fakes_are_served_for_equal_texts(everywhere: SemcacheCache) -> None:
    lists = FakeListChatModel(responses=["one", "two", "three"])
    llm = FakeListLLM(responses=["one", "two", "three"])
    generic = GenericFakeChatModel(messages=iter([AIMessage("one"), AIMessage("two")]))

    assert [lists.invoke(RESET).content, (await lists.ainvoke(RESET)).content] == ["one", "one"]
    assert [llm.invoke(RESET), await llm.ainvoke(RESET), llm.invoke(HOURS)] == ["one", "one", "two"]
    assert "".join(str(chunk.content) for chunk in lists.stream(HOURS)) == "two"
    assert [generic.invoke(COLOUR).content, generic.invoke(COLOUR).content] == ["one", "one"]


@pytest.mark.parametrize("version", ["v0", "responses/v1", "v1"])
def test_the_responses_api_is_served_in_each_output_version(
    version: str, everywhere: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(use_responses_api=True, output_version=version)
    answers = [model.invoke(RESET) for _ in range(3)]
    answers.append(model.invoke([HumanMessage(RESET), answers[0], HumanMessage(HOURS)]))
    answers.append(model.invoke([HumanMessage(RESET), answers[2], HumanMessage(HOURS)]))

    assert [answer.text for answer in answers[:3]] == [answers[0].text] * 3
    assert answers[4].text == answers[3].text, "a served answer makes the same history as a new one"
    assert len({answer.id for answer in answers}) == 5
    assert upstream.count == 2


def test_a_model_made_by_name_or_configured_at_run_time_keeps_its_cache(
    cache: SemanticCache, upstream: Upstream, chat: Chat
) -> None:
    named = init_chat_model(
        "openai:gpt-4o-mini", api_key="k", base_url=upstream.url, cache=SemcacheCache(cache)
    )
    configured = chat(cache=SemcacheCache(cache)).configurable_fields(
        temperature=ConfigurableField(id="temperature")
    )
    assert not is_hit(named.invoke(RESET))
    assert is_hit(named.invoke(RESET))
    warm = {"configurable": {"temperature": 0.5}}
    answers = [configured.invoke(HOURS, warm), configured.invoke(HOURS), configured.invoke(HOURS, warm)]

    assert [is_hit(answer) for answer in answers] == [False, False, True]


def test_a_copy_of_a_model_asks_the_same_cache(cache: SemanticCache) -> None:
    model = FakeListChatModel(responses=["one", "two"], cache=SemcacheCache(cache))
    model.invoke(RESET)

    for other in (copy.deepcopy(model), model.model_copy(deep=True), model.model_copy()):
        assert other.invoke(RESET).content == "one"
        assert other.cache is model.cache


def test_fallbacks_and_retries_are_served(cache: SemanticCache, upstream: Upstream, chat: Chat) -> None:
    ours = SemcacheCache(cache)
    model = chat(cache=ours, model="broken").with_fallbacks([chat(cache=ours)])
    upstream.next(Behaviour(status=500))
    first = model.invoke(RESET)
    upstream.next(Behaviour(status=500))
    second = model.invoke(RESET)
    retried = chat(cache=ours, model="shaky").with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
    upstream.next(Behaviour(status=500))
    retried.invoke(HOURS)

    assert second.content == first.content
    assert is_hit(second)
    assert is_hit(retried.invoke(HOURS))


async def test_a_graph_over_a_models_cache_keeps_every_turn(
    cache: SemanticCache, upstream: Upstream, chat: Chat
) -> None:
    model = chat(cache=SemcacheCache(cache), disable_streaming=True)

    async def answer(state: State) -> dict[str, Any]:
        return {"messages": [await model.ainvoke([state["messages"][-1]])]}

    app = graph_of(answer)
    config: Any = {"configurable": {"thread_id": "t"}}
    for _ in range(3):
        question: Any = {"messages": [HumanMessage(RESET)]}
        streamed = [m async for m, _ in app.astream(question, config, stream_mode="messages")]
        assert any(isinstance(m, AIMessage) and m.content for m in streamed)
    messages = app.get_state(config).values["messages"]

    assert [type(message) for message in messages] == [HumanMessage, AIMessage] * 3
    assert len({message.id for message in messages}) == 6
    assert [note(message)["match"] for message in messages[1::2]] == [None, "exact", "exact"]
    assert upstream.count == 1


async def test_a_model_that_always_streams_is_served(
    cache: SemanticCache, upstream: Upstream, chat: Chat
) -> None:
    model = chat(cache=SemcacheCache(cache), streaming=True)
    first, second, third = model.invoke(RESET), model.invoke(RESET), await model.ainvoke(RESET_AGAIN)

    assert [is_hit(message) for message in (first, second, third)] == [False, True, True]
    assert first.content == second.content == third.content
    assert type(second) is AIMessage
    assert upstream.count == 1


def test_a_model_with_tools_is_served_for_equal_texts_and_its_calls_are_not_stored(
    cache: SemanticCache, upstream: Upstream, chat: Chat
) -> None:
    def opening_hours(day: str) -> str:
        """Return when the shop opens."""
        return day

    model = chat(cache=SemcacheCache(cache)).bind_tools([opening_hours])
    upstream.next(*[Behaviour(tool_calls=(("opening_hours", '{"day": "Monday"}'),))] * 2)
    calls = [model.invoke(HOURS).tool_calls[0]["args"] for _ in range(2)]
    texts = [model.invoke(question) for question in (RESET, RESET, RESET_AGAIN)]

    assert calls == [{"day": "Monday"}] * 2
    assert [is_hit(message) for message in texts] == [False, True, False]
    assert upstream.count == 4


def test_a_question_about_an_image_is_served_for_the_same_image_only(
    cache: SemanticCache, upstream: Upstream, chat: Chat
) -> None:
    model = chat(cache=SemcacheCache(cache))

    def ask(data: str, text: str = RESET) -> AIMessage:
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return model.invoke([HumanMessage([{"type": "text", "text": text}, image])])

    answers = [ask("AAAA"), ask("AAAA"), ask("BBBB"), ask("AAAA", RESET_AGAIN)]

    assert [is_hit(answer) for answer in answers] == [False, True, False, False]
    assert upstream.count == 3
