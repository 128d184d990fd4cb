"""Whoever listens to an agent hears a stored answer as a model would say it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from lc_shared import HEAP, HOURS, RESET, Chat, is_hit, note

from langchain_semcache import SemcacheMiddleware
from langchain_semcache.playback import chunks_of
from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.testing import TableEncoder
from tests.upstream import Behaviour, Upstream

LONG = "Open Settings, choose Security, and then choose Reset password; a letter with a link comes at once."
QUESTION: Any = {"messages": [HumanMessage(RESET)]}


@pytest.fixture
def assistant(cache: SemanticCache, chat: Chat) -> Any:
    return create_agent(chat(), tools=[], middleware=[SemcacheMiddleware(cache)])


@pytest.fixture
def awaited(acache: AsyncSemanticCache, chat: Chat) -> Any:
    return create_agent(chat(), tools=[], middleware=[SemcacheMiddleware(async_cache=acache)])


def test_a_streamed_hit_comes_in_chunks_of_one_message(assistant: Any, upstream: Upstream) -> None:
    upstream.always(Behaviour(text=LONG))
    runs = [[m for m, _ in assistant.stream(QUESTION, stream_mode="messages")] for _ in range(2)]
    state = assistant.invoke(QUESTION)["messages"]

    for run in runs:
        chunks = [m for m in run if isinstance(m, AIMessageChunk)]
        assert len(chunks) == len(run) > 3, "the whole message came once more"
        assert "".join(str(m.content) for m in chunks) == LONG
        assert len({m.id for m in chunks}) == 1
    assert state[-1].content == LONG
    assert type(state[-1]) is AIMessage
    assert upstream.count == 1


async def test_events_of_an_agent_are_the_same_from_a_hit(awaited: Any, upstream: Upstream) -> None:
    upstream.always(Behaviour(text=LONG))
    runs = []
    for _ in range(2):
        events = [event async for event in awaited.astream_events(QUESTION, version="v2")]
        pieces = [e["data"]["chunk"].content for e in events if e["event"] == "on_chat_model_stream"]
        runs.append((list(dict.fromkeys(e["event"] for e in events)), "".join(pieces), len(pieces) > 3))

    assert runs[0] == runs[1]
    assert runs[1][1:] == (LONG, True)
    assert upstream.count == 1


async def test_an_awaited_streamed_hit_comes_in_chunks_of_one_message(
    awaited: Any, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text=LONG))
    for _ in range(2):
        run = [m async for m, _ in awaited.astream(QUESTION, stream_mode="messages")]
        assert all(isinstance(m, AIMessageChunk) for m in run)
        assert "".join(str(m.content) for m in run) == LONG
        assert len({m.id for m in run}) == 1

    assert upstream.count == 1


def test_callbacks_hear_a_start_and_an_end_and_count_no_tokens(assistant: Any, upstream: Upstream) -> None:
    heard: list[str] = []

    class Handler(BaseCallbackHandler):
        def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
            heard.append("start")

        def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
            heard.append("end")

    with get_usage_metadata_callback() as usage:
        answers = [assistant.invoke(QUESTION, {"callbacks": [Handler()]})["messages"][-1] for _ in range(2)]

    assert heard == ["start", "end"] * 2
    assert [counted["total_tokens"] for counted in usage.usage_metadata.values()] == [13]
    assert [answer.usage_metadata["total_tokens"] for answer in answers] == [13, 13]
    assert is_hit(answers[1])


def test_calls_of_tools_are_heard_and_run(
    redis_url: str, namespace: str, chat: Chat, upstream: Upstream
) -> None:
    def opening_hours(day: str) -> str:
        """Return when the shop opens."""
        return f"9 on {day}"

    policy = Policy(threshold=0.9, deadline=5.0, store_tool_calls=True)
    with SemanticCache.open(
        redis_url, namespace=namespace, policy=policy, encoder=TableEncoder(HEAP)
    ) as storing:
        middleware = SemcacheMiddleware(storing, tool_turns=True)
        agent = create_agent(chat(), tools=[opening_hours], middleware=[middleware])
        call = Behaviour(tool_calls=(("opening_hours", '{"day": "Monday"}'),))
        upstream.next(call, Behaviour(text="At 9."))
        asked: Any = {"messages": [HumanMessage(HOURS)]}
        runs = [[m for m, _ in agent.stream(asked, stream_mode="messages")] for _ in range(2)]

    calls = [
        [c for m in run if isinstance(m, AIMessageChunk) for c in m.tool_call_chunks if c["name"]]
        for run in runs
    ]
    assert [[c["name"] for c in run] for run in calls] == [["opening_hours"]] * 2
    assert calls[0][0]["id"] != calls[1][0]["id"]
    for run in runs:
        assert [m.content for m in run if m.type == "tool"] == ["9 on Monday"]
        assert "".join(str(m.content) for m in run if isinstance(m, AIMessageChunk)) == "At 9."
    assert upstream.count == 2


async def test_three_raters_withdraw_the_answer_of_an_awaited_agent(
    awaited: Any, acache: AsyncSemanticCache, upstream: Upstream
) -> None:
    actions = []
    for rater in ("ann", "ben", "cat"):
        message = (await awaited.ainvoke(QUESTION))["messages"][-1]
        result = await acache.feedback(note(message)["lookup_id"], -1, rater=rater)
        actions.append(result.action)
    new = (await awaited.ainvoke(QUESTION))["messages"][-1]

    assert actions == ["recorded", "recorded", "withdrawn"]
    assert (note(new)["match"], note(new)["reason"]) == (None, "withdrawn")
    assert upstream.count == 2


def merged(message: AIMessage) -> AIMessageChunk:
    chunks = list(chunks_of(message))
    total = chunks[0]
    for chunk in chunks[1:]:
        total = total + chunk
    return total


@given(st.text(max_size=9000))
def test_the_pieces_of_a_text_make_it_whole(text: str) -> None:
    whole = merged(AIMessage(text, id="a", response_metadata={"finish_reason": "stop"}))

    assert (whole.content, whole.id) == (text, "a")
    assert whole.response_metadata["finish_reason"] == "stop"
    assert len(list(chunks_of(AIMessage(text)))) <= 258


def test_blocks_and_calls_make_their_message_whole() -> None:
    blocks: list[Any] = [
        {"type": "text", "text": "One."},
        {"type": "text", "text": "Two.", "annotations": []},
    ]
    calls: Any = [
        {"name": "f", "args": {"day": "Monday"}, "id": "c1", "type": "tool_call"},
        {"name": "g", "args": {}, "id": "c2", "type": "tool_call"},
    ]
    raw = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = AIMessage(blocks, tool_calls=calls, additional_kwargs={"tool_calls": raw, "x": 1})
    whole = merged(message)

    assert whole.content == blocks
    assert whole.tool_calls == calls
    assert whole.additional_kwargs == {"x": 1}
