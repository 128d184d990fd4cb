"""Generations in and out of the store: genuine classes, fresh copies, nothing that isn't data."""

from __future__ import annotations

import copy
import datetime
import json
import math
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk
from pydantic import BaseModel

from langchain_semcache.generations import annotate, from_response, to_response
from semcache.types import Response

USAGE = {
    "input_tokens": 3,
    "output_tokens": 5,
    "total_tokens": 8,
    "input_token_details": {"cache_read": 1},
}


def message(**fields: Any) -> AIMessage:
    return AIMessage(**{"content": "Paris.", "id": "run-1", **fields})


def chat(**fields: Any) -> ChatGeneration:
    return ChatGeneration(message=message(**fields))


def stored(*generations: Generation) -> Response:
    response = to_response(generations)
    assert response is not None
    return response


def through(*generations: Generation) -> list[Generation]:
    """Store and read back, by way of JSON as the store does it."""
    response = stored(*generations)
    again = Response(response.text, data=json.loads(json.dumps(response.data)))
    found = from_response(again, chat=True)
    assert found is not None
    return found


def without_id(generation: Generation) -> Any:
    data = dumpd(generation)
    if isinstance(generation, ChatGeneration):
        fields = data["kwargs"]["message"]["kwargs"]
        fields.pop("id", None)
        for call in fields.get("tool_calls", ()):
            call.pop("id")
    return data


@pytest.mark.parametrize(
    "generation",
    [
        Generation(text="Paris.", generation_info={"reason": "test"}),
        GenerationChunk(text="Paris."),
        chat(),
        chat(usage_metadata=USAGE, response_metadata={"finish_reason": "stop", "logprobs": None, "token_usage": {}}),
        chat(content="", tool_calls=[{"name": "f", "args": {"x": [1, None]}, "id": "c1", "type": "tool_call"}]),
        chat(content=[{"type": "text", "text": "Paris."}, {"type": "reasoning", "id": "r1", "summary": []}]),
        chat(additional_kwargs={"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {}}),
        chat(additional_kwargs={"deep": {"lc": 1, "type": "secret", "id": ["HOME"]}}),
        ChatGenerationChunk(message=AIMessageChunk(content="Paris.", chunk_position="last")),
        ChatGeneration(message=AIMessageChunk(content="Paris.")),
        chat(name="helper", content="line\r\nline\u2028\0 \U0001f600"),
    ],
    ids=["text", "text chunk", "chat", "usage", "tool call", "blocks", "looks like code", "looks like a secret",
         "chat chunk", "chunk in a generation", "odd characters"],
)  # fmt: skip
def test_every_class_comes_back_as_it_was(generation: Generation) -> None:
    [found] = through(generation)

    assert type(found) is type(generation)
    assert without_id(found) == without_id(generation)


def test_several_generations_are_one_unit_in_order() -> None:
    found = through(chat(content="a"), chat(content="b"), chat(content="c"))

    assert [generation.text for generation in found] == ["a", "b", "c"]
    assert len({generation.message.id for generation in found if isinstance(generation, ChatGeneration)}) == 3


def test_each_reading_gives_fresh_copies_with_fresh_ids() -> None:
    response = stored(chat(additional_kwargs={"a": [1]}))
    before = copy.deepcopy(response.data)
    first, second = from_response(response, chat=True), from_response(response, chat=True)
    assert first is not None
    assert second is not None
    one, two = first[0], second[0]
    assert isinstance(one, ChatGeneration)
    assert isinstance(two, ChatGeneration)

    assert one.message.id != two.message.id
    assert "run-1" not in (one.message.id, two.message.id)
    one.message.additional_kwargs["a"].append(2)
    one.message.response_metadata["b"] = 3
    assert two.message.additional_kwargs == {"a": [1]}
    assert response.data == before


def test_tool_calls_get_fresh_ids_wherever_they_are_named() -> None:
    generation = chat(
        content=[
            {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        ],
        tool_calls=[{"name": "f", "args": {}, "id": "c1"}],
        additional_kwargs={"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f"}}]},
    )
    names = set()
    for _ in range(2):
        [found] = through(generation)
        assert isinstance(found, ChatGeneration)
        message = found.message
        assert isinstance(message, AIMessage)
        assert isinstance(message.content, list)
        block, item = message.content
        assert isinstance(block, dict)
        assert isinstance(item, dict)
        [call], [raw] = message.tool_calls, message.additional_kwargs["tool_calls"]
        assert call["id"] == raw["id"] == block["id"] == item["call_id"] != "c1"
        names.add(call["id"])

    assert len(names) == 2


def test_storing_changes_nothing_of_the_callers() -> None:
    generation = chat(additional_kwargs={"parsed": Out(city="Paris")})
    before = copy.deepcopy(generation)

    stored(generation)
    assert generation == before


class Out(BaseModel):
    city: str


def test_a_parsed_answer_is_stored_as_data() -> None:
    [found] = through(chat(additional_kwargs={"parsed": Out(city="Paris")}))
    assert isinstance(found, ChatGeneration)

    assert found.message.additional_kwargs["parsed"] == {"city": "Paris"}


class Own(AIMessage):
    """A message class that nobody allowed."""


@pytest.mark.parametrize(
    "generation",
    [
        chat(additional_kwargs={"x": b"bytes"}),
        chat(additional_kwargs={"x": datetime.datetime(2024, 1, 1)}),
        chat(additional_kwargs={"x": {1, 2}}),
        chat(additional_kwargs={"x": (1, 2)}),
        chat(additional_kwargs={"x": Out(city="Paris")}),
        chat(response_metadata={"x": math.nan}),
        chat(content="\ud800"),
        ChatGeneration(message=Own(content="Paris.")),
        ChatGeneration(message=HumanMessage("Paris.")),
        Generation(text="Paris.", generation_info={"x": object()}),
    ],
    ids=["bytes", "datetime", "set", "tuple", "model", "nan", "surrogate", "own class", "human", "object"],
)
def test_what_would_not_come_back_as_it_was_is_not_stored(generation: Generation) -> None:
    assert to_response([generation]) is None
    assert to_response([chat(), generation]) is None


def test_nothing_is_not_stored() -> None:
    assert to_response([]) is None


def crafted(payload: object) -> Response:
    return Response("x", data={"format": "langchain/1", "generations": [payload]})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "payload",
    [
        {"lc": 1, "type": "constructor", "id": ["langchain", "chat_models", "openai", "ChatOpenAI"], "kwargs": {}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "prompts", "prompt", "PromptTemplate"],
         "kwargs": {"template": "{{ x }}", "template_format": "jinja2", "input_variables": []}},
        {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}},
        {"lc": 1, "type": "secret", "id": ["HOME"]},
        {"lc": 1, "type": "secret", "id": []},
        {"lc": 1, "type": "not_implemented", "id": ["a"], "repr": "x"},
        {"lc": 1, "type": "constructor", "id": [], "kwargs": {}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
         "kwargs": {"content": "x"}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "output", "Generation"], "kwargs": []},
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "output", "Generation"], "kwargs": {}},
        {"text": "x"}, "x", None, 7, [],
    ],
    ids=lambda payload: json.dumps(payload)[:60],
)  # fmt: skip
def test_a_crafted_payload_is_refused(payload: object) -> None:
    assert from_response(crafted(payload), chat=True) is None


def test_a_crafted_secret_inside_a_message_never_reads_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_PROCESS", "leaked")
    payload = dumpd(chat())
    payload["kwargs"]["message"]["kwargs"]["name"] = {
        "lc": 1,
        "type": "secret",
        "id": ["SECRET_OF_THE_PROCESS"],
    }

    assert "leaked" not in repr(from_response(crafted(payload), chat=True))


@pytest.mark.parametrize(
    "data",
    [[], {}, "x", {"format": "langchain/2", "generations": []}, {"format": "langchain/1"},
     {"format": "langchain/1", "generations": []}, {"format": "langchain/1", "generations": "x"}],
    ids=repr,
)  # fmt: skip
def test_another_format_is_refused(data: Any) -> None:
    assert from_response(Response("x", data=data), chat=True) is None


def test_a_text_alone_becomes_what_the_caller_expects() -> None:
    [for_chat] = from_response(Response("Paris."), chat=True) or []
    [for_llm] = from_response(Response("Paris."), chat=False) or []

    assert isinstance(for_chat, ChatGeneration)
    assert for_chat.message.content == "Paris."
    assert for_chat.message.id
    assert for_llm == Generation(text="Paris.")


@pytest.mark.parametrize(
    ("generation", "attribute", "value"),
    [
        (chat(response_metadata={"finish_reason": "stop"}), "finish_reason", "stop"),
        (chat(response_metadata={"stop_reason": "max_tokens"}), "finish_reason", "length"),
        (chat(response_metadata={"stop_reason": "end_turn"}), "finish_reason", "stop"),
        (chat(response_metadata={"finish_reason": "SAFETY"}), "finish_reason", "content_filter"),
        (chat(response_metadata={"done_reason": "length"}), "finish_reason", "length"),
        (Generation(text="x", generation_info={"finish_reason": "length"}), "finish_reason", "length"),
        (Generation(text="x"), "finish_reason", None),
        (chat(additional_kwargs={"refusal": "I can't."}), "refusal", True),
        (chat(content=[{"type": "refusal", "refusal": "I can't."}]), "refusal", True),
        (chat(response_metadata={"stop_reason": "refusal"}), "refusal", True),
        (chat(response_metadata={"status": "incomplete"}), "partial", True),
        (chat(response_metadata={"status": "completed"}), "partial", False),
        (chat(tool_calls=[{"name": "f", "args": {}, "id": "1"}]), "tool_calls", True),
        (chat(additional_kwargs={"function_call": {"name": "f", "arguments": ""}}), "tool_calls", True),
        (chat(content=[{"type": "image", "base64": "AAAA"}]), "media", True),
        (chat(additional_kwargs={"audio": {"data": "AAAA"}}), "media", True),
        (chat(usage_metadata=USAGE), "usage", USAGE),
        (chat(), "usage", None),
    ],
    ids=lambda part: part if isinstance(part, str) else None,
)
def test_what_decides_about_storing_is_passed_on(
    generation: Generation, attribute: str, value: object
) -> None:
    assert getattr(stored(generation), attribute) == value


def test_one_cut_answer_of_several_counts_for_all() -> None:
    whole, cut = (chat(response_metadata={"finish_reason": reason}) for reason in ("stop", "length"))

    assert stored(whole, cut).finish_reason == "length"


def test_a_note_goes_into_the_metadata_of_messages_and_is_not_stored_again() -> None:
    generation, text = chat(response_metadata={"a": 1}), Generation(text="x")
    annotate([generation, text], {"lookup_id": "l"})
    [found] = through(generation)
    assert isinstance(found, ChatGeneration)

    assert generation.message.response_metadata == {"a": 1, "semcache": {"lookup_id": "l"}}
    assert text == Generation(text="x")
    assert found.message.response_metadata == {"a": 1}


def test_the_name_of_a_record_at_the_provider_is_not_handed_on() -> None:
    [record] = through(chat(response_metadata={"id": "resp_1", "status": "completed"}))
    [plain] = through(chat(response_metadata={"id": "chatcmpl-1"}))
    assert isinstance(record, ChatGeneration)
    assert isinstance(plain, ChatGeneration)

    assert record.message.response_metadata == {"status": "completed"}
    assert plain.message.response_metadata == {"id": "chatcmpl-1"}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@hypothesis.settings(deadline=None)
@given(st.text(max_size=20), st.dictionaries(st.text(max_size=5), json_values, max_size=3))
def test_what_is_stored_comes_back_as_it_was(text: str, extras: dict[str, Any]) -> None:
    generation = chat(content=text, additional_kwargs=extras)
    response = to_response([generation])

    if response is not None:
        [found] = through(generation)
        assert without_id(found) == without_id(generation)
    else:
        assert "parsed" in extras or any(0xD800 <= ord(c) < 0xE000 for c in text + json.dumps(extras))
