"""Agents with the middleware: blocking, awaiting and streaming, with tools, tenants and structured answers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain.chat_models import init_chat_model
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from lc_shared import COLOUR, HEAP, HOURS, RESET, RESET_AGAIN, Chat, is_hit, note, overwrite
from pydantic import BaseModel

from langchain_semcache import SemcacheCache, SemcacheMiddleware
from langchain_semcache.agent_calls import FORMAT
from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.testing import TableEncoder
from tests.graphs import State, graph_of
from tests.upstream import Behaviour, Upstream

POLICY = Policy(threshold=0.9, deadline=5.0, local_bound=0.0)


@dataclass
class Context:
    tenant: str


class City(BaseModel):
    """Where it is."""

    name: str


def opening_hours(day: str) -> str:
    """Return when the shop opens."""
    return f"9 on {day}"


def ask(agent: Any, question: str = RESET, **options: Any) -> AIMessage:
    message = agent.invoke({"messages": [HumanMessage(question)]}, **options)["messages"][-1]
    assert isinstance(message, AIMessage)
    return message


async def aask(agent: Any, question: str = RESET, **options: Any) -> AIMessage:
    message = (await agent.ainvoke({"messages": [HumanMessage(question)]}, **options))["messages"][-1]
    assert isinstance(message, AIMessage)
    return message


Make = Callable[..., Any]


@pytest.fixture
def agent(cache: SemanticCache, chat: Chat) -> Make:
    def make(
        *, middleware: Any = None, tools: Any = (), model: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        return create_agent(
            chat(**(model or {})),
            tools=list(tools),
            middleware=[middleware or SemcacheMiddleware(cache)],
            **options,
        )

    return make


def test_the_second_call_of_an_agent_is_not_sent(agent: Make, upstream: Upstream) -> None:
    assistant = agent(system_prompt="Be brief.")
    first, second, third = ask(assistant), ask(assistant), ask(assistant, RESET_AGAIN)

    assert upstream.count == 1
    assert first.content == second.content == third.content
    assert [note(message)["match"] for message in (first, second, third)] == [None, "exact", "semantic"]
    assert len({first.id, second.id, third.id}) == 3
    assert note(second).keys() == {"lookup_id", "similarity", "match", "entry_id", "age"}


async def test_the_same_awaited(acache: AsyncSemanticCache, agent: Make, upstream: Upstream) -> None:
    assistant = agent(middleware=SemcacheMiddleware(async_cache=acache))
    first, second = await aask(assistant), await aask(assistant)

    assert upstream.count == 1
    assert second.content == first.content
    assert is_hit(second)


async def test_either_cache_serves_both_kinds_of_agents(
    cache: SemanticCache, acache: AsyncSemanticCache, agent: Make, upstream: Upstream
) -> None:
    from_sync, from_async = (
        agent(middleware=SemcacheMiddleware(cache)),
        agent(middleware=SemcacheMiddleware(async_cache=acache)),
    )
    await aask(from_sync)
    assert is_hit(await aask(from_sync))
    assert is_hit(await asyncio.to_thread(ask, from_async))
    await asyncio.to_thread(ask, from_async, HOURS)
    assert is_hit(await aask(from_async, HOURS))
    assert upstream.count == 2


@pytest.mark.parametrize(
    "other",
    [
        {"system_prompt": "Be long."},
        {"tools": [opening_hours]},
        {"model": {"model": "gpt-4o"}},
        {"model": {"temperature": 0.1}},
        {"response_format": ToolStrategy(City)},
        {"middleware": "tenant"},
        {"middleware": "segment"},
    ],
    ids=str,
)
def test_whatever_the_model_is_given_isolates(
    cache: SemanticCache, agent: Make, upstream: Upstream, other: dict[str, Any]
) -> None:
    if other.get("middleware") == "tenant":
        other = {"middleware": SemcacheMiddleware(cache, tenant="globex")}
    elif other.get("middleware") == "segment":
        other = {"middleware": SemcacheMiddleware(cache, segment={"tier": "gold"})}
    upstream.next(
        Behaviour(), Behaviour(tool_calls=(("City", '{"name": "Paris"}'),) * ("response_format" in other))
    )
    ask(agent())
    agent(**other).invoke({"messages": [HumanMessage(RESET)]})

    assert upstream.count == 2
    assert is_hit(ask(agent()))


def test_the_tenant_comes_from_the_runs_context(
    cache: SemanticCache, agent: Make, upstream: Upstream
) -> None:
    middleware = SemcacheMiddleware(cache, tenant=lambda run: run.context.tenant)
    assistant = agent(middleware=middleware, context_schema=Context)
    ask(assistant, context=Context("acme"))

    assert not is_hit(ask(assistant, context=Context("globex")))
    assert is_hit(ask(assistant, context=Context("acme")))
    assert upstream.count == 2


def test_without_the_tenant_that_is_expected_nothing_is_cached(
    cache: SemanticCache, agent: Make, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    unset: ContextVar[str] = ContextVar("unset")
    by_key = SemcacheMiddleware(cache, tenant=lambda run: run.context["tenant"])
    for assistant, options in (
        (agent(middleware=SemcacheMiddleware(cache, tenant=unset)), {}),
        (agent(middleware=by_key), {"context": {"user": "x"}}),
    ):
        ask(assistant, **options)
        ask(assistant, **options)

    assert upstream.count == 4
    assert "isn't set" in caplog.text


def test_a_tool_runs_each_time_and_turns_with_tools_are_not_cached(agent: Make, upstream: Upstream) -> None:
    runs: list[str] = []

    def opening(day: str) -> str:
        """Return when the shop opens."""
        runs.append(day)
        return f"9 on {day}"

    assistant = agent(tools=[opening])
    for _ in range(2):
        upstream.next(Behaviour(tool_calls=(("opening", '{"day": "Monday"}'),)), Behaviour(text="At 9."))
        assert ask(assistant, HOURS).content == "At 9."

    assert runs == ["Monday", "Monday"]
    assert upstream.count == 4


def test_an_answer_without_a_tool_is_served_to_the_same_words_only(agent: Make, upstream: Upstream) -> None:
    assistant = agent(tools=[opening_hours])
    ask(assistant)

    assert is_hit(ask(assistant))
    assert not is_hit(ask(assistant, RESET_AGAIN))
    assert upstream.count == 2


def test_turns_with_tools_are_cached_on_request_for_exact_matches(
    redis_url: str, namespace: str, agent: Make, upstream: Upstream
) -> None:
    policy = Policy(threshold=0.9, deadline=5.0, store_tool_calls=True)
    with SemanticCache.open(
        redis_url, namespace=namespace, policy=policy, encoder=TableEncoder(HEAP)
    ) as storing:
        assistant = agent(tools=[opening_hours], middleware=SemcacheMiddleware(storing, tool_turns=True))
        upstream.next(
            Behaviour(tool_calls=(("opening_hours", '{"day": "Monday"}'),)), Behaviour(text="At 9.")
        )
        results = [assistant.invoke({"messages": [HumanMessage(HOURS)]})["messages"] for _ in range(2)]

        assert upstream.count == 2
        assert [message.content for message in results[1]] == [message.content for message in results[0]]
        assert [is_hit(message) for message in results[1] if isinstance(message, AIMessage)] == [True, True]
        assert results[0][1].tool_calls[0]["id"] != results[1][1].tool_calls[0]["id"]


def test_a_streaming_agent_is_served_too(agent: Make, upstream: Upstream) -> None:
    assistant = agent()
    question = {"messages": [HumanMessage(RESET)]}
    new = [message for message, _ in assistant.stream(question, stream_mode="messages")]
    served = [message for message, _ in assistant.stream(question, stream_mode="messages")]

    assert upstream.count == 1
    assert "".join(str(m.content) for m in new) == "".join(str(m.content) for m in served) != ""
    assert len(new) > 1
    updates = list(assistant.stream(question, stream_mode="updates"))
    assert is_hit(updates[0]["model"]["messages"][-1])


async def test_an_awaited_stream_is_served_too(
    acache: AsyncSemanticCache, agent: Make, upstream: Upstream
) -> None:
    assistant = agent(middleware=SemcacheMiddleware(async_cache=acache))
    question = {"messages": [HumanMessage(RESET)]}
    texts = []
    for _ in range(2):
        pieces = [message async for message, _ in assistant.astream(question, stream_mode="messages")]
        texts.append("".join(str(piece.content) for piece in pieces))

    assert upstream.count == 1
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize("strategy", ["provider", "tool", "automatic"])
def test_a_structured_answer_is_served_as_the_class_it_was(
    agent: Make, upstream: Upstream, strategy: str
) -> None:
    by_tool = Behaviour(tool_calls=(("City", '{"name": "Paris"}'),))
    upstream.always(by_tool if strategy == "tool" else Behaviour(text='{"name": "Paris"}'))
    wanted = {"provider": ProviderStrategy(City), "tool": ToolStrategy(City), "automatic": City}[strategy]
    assistant = agent(response_format=wanted)
    results = [assistant.invoke({"messages": [HumanMessage(RESET)]}) for _ in range(3)]

    assert [result["structured_response"] for result in results] == [City(name="Paris")] * 3
    assert upstream.count == 1
    assert [len(result["messages"]) for result in results] == [len(results[0]["messages"])] * 3
    last = [message for message in results[2]["messages"] if isinstance(message, AIMessage)]
    assert is_hit(last[-1])


@pytest.mark.parametrize("strategy", ["provider", "tool"])
def test_a_structured_answer_that_does_not_fit_its_schema_is_given_and_not_stored(
    strategy: str, agent: Make, upstream: Upstream
) -> None:
    schema = {"title": "City", **City.model_json_schema()}
    wanted: Any = ProviderStrategy(schema) if strategy == "provider" else ToolStrategy(schema)
    answers = ['{"name": 1}', '{"name": "Paris"}']
    upstream.next(
        *(
            Behaviour(text=a) if strategy == "provider" else Behaviour(tool_calls=(("City", a),))
            for a in answers
        )
    )
    assistant = agent(response_format=wanted)
    results = [assistant.invoke({"messages": [HumanMessage(RESET)]}) for _ in range(3)]

    assert [r["structured_response"] for r in results] == [{"name": 1}, {"name": "Paris"}, {"name": "Paris"}]
    assert upstream.count == 2
    said = [next(m for m in r["messages"] if isinstance(m, AIMessage)) for r in results]
    assert [note(message).get("stored") for message in said] == ["schema_mismatch", "stored", None]


def crafted(text: str, *, structured: bool = True) -> bytes:
    """Return what somebody with access to the store might write in place of an agent's answer."""
    data = {"format": FORMAT, "messages": [dumpd(AIMessage(text))], "structured": structured}
    return json.dumps({"v": 1, "text": "x", "data": data}).encode()


@pytest.mark.parametrize(
    "stored",
    [crafted("no JSON"), crafted('{"number": 1}'), crafted("x").replace(b"AIMessage", b"HumanMessage"),
     crafted("x").replace(b"langchain-agent/1", b"langchain-agent/9")],
    ids=["no JSON", "another schema", "another class", "another format"],
)  # fmt: skip
def test_a_stored_answer_that_this_agent_cannot_use_makes_room(
    redis_url: str, namespace: str, agent: Make, upstream: Upstream, stored: bytes
) -> None:
    upstream.always(Behaviour(text='{"name": "Paris"}'))
    assistant = agent(response_format=ProviderStrategy(City))
    question = {"messages": [HumanMessage(RESET)]}
    assistant.invoke(question)
    overwrite(redis_url, namespace, stored)

    assert assistant.invoke(question)["structured_response"] == City(name="Paris")
    assert upstream.count == 2
    assistant.invoke(question)
    assert is_hit(assistant.invoke(question)["messages"][-1])


def test_an_error_of_the_model_is_the_callers_and_is_not_stored(agent: Make, upstream: Upstream) -> None:
    assistant = agent()
    upstream.next(Behaviour(status=500))
    with pytest.raises(openai.InternalServerError):
        ask(assistant)

    assert not is_hit(ask(assistant))
    assert upstream.count == 2


def test_without_a_server_agents_answer_as_if_there_were_no_cache(agent: Make, upstream: Upstream) -> None:
    with SemanticCache.open(
        "redis://127.0.0.1:1/0", encoder=TableEncoder(HEAP), policy=Policy(threshold=0.9)
    ) as away:
        assistant = agent(middleware=SemcacheMiddleware(away))

        assert [ask(assistant).content for _ in range(2)]
        assert upstream.count == 2


def test_a_prompt_that_cannot_be_a_key_is_simply_not_cached(agent: Make, upstream: Upstream) -> None:
    assistant = agent()

    assert ask(assistant, " ").content
    assert upstream.count == 1


def test_concurrent_agents_share_one_call(agent: Make, upstream: Upstream) -> None:
    go = threading.Event()
    upstream.always(Behaviour(hold=go))
    assistant = agent()
    answers: list[AIMessage] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(assistant))) for _ in range(4)]
    for thread in threads:
        thread.start()
    while upstream.count == 0:
        threading.Event().wait(0.01)
    threading.Event().wait(0.3)  # time for the others to arrive; were they late, they would still hit
    go.set()
    for thread in threads:
        thread.join(10)

    assert upstream.count == 1
    assert len({answer.content for answer in answers}) == 1
    assert len({answer.id for answer in answers}) == 4


def test_three_raters_withdraw_an_agents_answer(
    agent: Make, cache: SemanticCache, upstream: Upstream
) -> None:
    assistant = agent()
    answers = [ask(assistant) for _ in range(3)]
    actions = [
        cache.feedback(note(answer)["lookup_id"], -1, rater=f"u-{n}").action
        for n, answer in enumerate(answers)
    ]

    assert actions == ["recorded", "recorded", "withdrawn"]
    assert not is_hit(ask(assistant))


def test_an_agents_history_keeps_every_turn(agent: Make, upstream: Upstream) -> None:
    assistant = agent(checkpointer=InMemorySaver())
    for thread in ("1", "2"):
        for question in (RESET, COLOUR, RESET):
            history = assistant.invoke(
                {"messages": [HumanMessage(question)]}, {"configurable": {"thread_id": thread}}
            )["messages"]

    assert upstream.count == 3  # the second thread is the first one again, message ids apart
    assert len({message.id for message in history}) == 6


def test_a_graph_keeps_both_turns_of_the_same_question(
    cache: SemanticCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=SemcacheCache(cache))

    def answer(state: State) -> dict[str, list[BaseMessage]]:
        return {"messages": [model.invoke(state["messages"][-1:])]}

    thread = graph_of(answer)
    config: Any = {"configurable": {"thread_id": "1"}}
    for _ in range(3):
        history = thread.invoke({"messages": [HumanMessage(RESET)]}, config)["messages"]

    assert upstream.count == 1
    assert len(history) == 6
    assert len({message.id for message in history}) == 6


def test_another_middleware_before_ours_may_change_the_question(
    agent: Make, cache: SemanticCache, chat: Chat, upstream: Upstream
) -> None:
    @wrap_model_call
    def in_french(request: Any, handler: Any) -> Any:
        return handler(request.override(system_prompt="Answer in French."))

    plain = agent()
    french = create_agent(chat(), tools=[], middleware=[in_french, SemcacheMiddleware(cache)])
    ask(plain)

    assert not is_hit(ask(french))
    assert is_hit(ask(french))


def test_what_is_bound_to_a_model_isolates(cache: SemanticCache, chat: Chat, upstream: Upstream) -> None:
    def answer(**bound: Any) -> AIMessage:
        model: Any = chat().bind(**bound) if bound else chat()
        return ask(create_agent(model, tools=[], middleware=[SemcacheMiddleware(cache)]))

    kinds: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"temperature": 0.5}, {"stop": ["x"]}]
    first = [answer(**bound) for bound in kinds]
    second = [answer(**bound) for bound in kinds]

    assert [is_hit(message) for message in first] == [False] * 4
    assert [message.content for message in second] == [message.content for message in first]
    assert upstream.count == 4


def test_a_model_chosen_at_run_time_is_not_cached(
    cache: SemanticCache, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    model = init_chat_model(
        configurable_fields=("model",),
        model_provider="openai",
        api_key="k",
        base_url=upstream.url,
        max_retries=0,
    )
    assistant = create_agent(model, tools=[], middleware=[SemcacheMiddleware(cache)])
    for name in ("a", "b", "a"):
        ask(assistant, config={"configurable": {"model": name}})

    assert upstream.count == 3
    assert "run time" in caplog.text
