"""Streams: whole answers to events, and events to whole answers, as the SDK itself reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState

from openai_semcache.accumulate import Accumulator
from openai_semcache.fields import Endpoint
from openai_semcache.replay import pieces, replay
from openai_semcache.responses import for_caller, response_of
from openai_semcache.sse import DONE, frame
from tests.integrations.openai.sdk_http import library as sdk_http


def completion(message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "gpt-4o-mini-2024-07-18",
        "system_fingerprint": "fp_1",
        "choices": [
            {
                "index": 0,
                "message": message
                or {"role": "assistant", "content": "Open Settings, then choose Reset.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16},
        **more,
    }


def sdk_for(events: list[bytes]) -> OpenAI:
    """An SDK client whose upstream answers with these events."""

    def answer(request: sdk_http.Request) -> sdk_http.Response:
        return sdk_http.Response(200, headers={"content-type": "text/event-stream"}, content=b"".join(events))

    http = sdk_http.Client(transport=sdk_http.MockTransport(answer))
    return OpenAI(api_key="k", base_url="http://upstream/v1", http_client=http, max_retries=0)


def chunks_of(events: list[bytes]) -> list[Any]:
    with sdk_for(events) as client:
        return list(client.chat.completions.create(model="m", messages=[], stream=True))


def accumulated(endpoint: Endpoint, events: list[bytes]) -> Any:
    accumulator = Accumulator(endpoint, max_bytes=1 << 24)
    for event in events:
        accumulator.feed(event)
    return accumulator.result()


def texts_of(answer: dict[str, Any]) -> list[Any]:
    return [choice["message"]["content"] for choice in answer["choices"]]


# --- chat ------------------------------------------------------------------------------------------------------


def test_a_replay_has_the_order_of_a_real_stream() -> None:
    events = list(replay("chat", completion(), include_usage=False))
    chunks = [json.loads(event[6:]) for event in events[:-1]]

    assert events[-1] == DONE
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert chunks[-1]["choices"][0]["delta"] == {}
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    contents = [chunk["choices"][0]["delta"]["content"] for chunk in chunks[1:-1]]
    assert len(contents) >= 2
    assert "".join(contents) == "Open Settings, then choose Reset."
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])
    heads = {
        tuple(chunk[name] for name in ("id", "created", "model", "system_fingerprint", "object"))
        for chunk in chunks
    }
    assert heads == {("chatcmpl-1", 1700000000, "gpt-4o-mini-2024-07-18", "fp_1", "chat.completion.chunk")}
    assert not any("usage" in chunk for chunk in chunks)


def test_the_usage_chunk_comes_last_and_only_if_asked() -> None:
    chunks = [json.loads(event[6:]) for event in list(replay("chat", completion(), include_usage=True))[:-1]]

    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 16
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Paris", "unit": "celsius"}'},
        },
        {"id": "call_2", "type": "function", "function": {"name": "time", "arguments": "{}"}},
    ],
}
MESSAGES = {
    "text": {"role": "assistant", "content": "Open Settings, then choose Reset.", "refusal": None},
    "calls": CALLS,
    "calls and text": {**CALLS, "content": "I will look it up."},
    "refusal": {"role": "assistant", "content": None, "refusal": "I can't help with that."},
    "reasoning": {"role": "assistant", "content": "42", "reasoning_content": "Six times seven is forty-two."},
    "function": {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}},
    "annotations": {"role": "assistant", "content": "See there.", "annotations": [{"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 3}}]},
    "empty": {"role": "assistant", "content": ""},
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_a_replayed_message_is_accumulated_to_itself(name: str) -> None:
    answer = completion(MESSAGES[name])
    events = list(replay("chat", answer, include_usage=True))

    assert accumulated("chat", events) == answer


@pytest.mark.parametrize("name", [name for name in MESSAGES if name != "empty"])
def test_the_sdk_accumulates_a_replayed_message_to_itself(name: str) -> None:
    answer = completion(MESSAGES[name])
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks_of(list(replay("chat", answer, include_usage=True))):
        list(state.handle_chunk(chunk))
    whole = state.get_final_completion().to_dict(exclude_unset=True)

    message = whole["choices"][0]["message"]  # type: ignore[index]
    for call in message.get("tool_calls") or []:
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    expected = answer["choices"][0]["message"]
    assert {key: value for key, value in message.items() if key in expected and value is not None} == {
        key: value for key, value in expected.items() if value is not None
    }
    assert whole["usage"] == answer["usage"]


def test_several_choices_are_replayed_each_with_its_end() -> None:
    choices = [
        {
            "index": at,
            "message": {"role": "assistant", "content": text},
            "logprobs": None,
            "finish_reason": "stop",
        }
        for at, text in enumerate(["one answer", "another answer", "a third"])
    ]
    answer = completion(choices=choices)
    events = list(replay("chat", answer, include_usage=True))

    assert accumulated("chat", events) == answer
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks_of(events):
        list(state.handle_chunk(chunk))
    assert [choice.message.content for choice in state.get_final_completion().choices] == texts_of(answer)


def test_log_probabilities_come_with_their_tokens() -> None:
    tokens = [
        {"token": token, "logprob": -0.1, "bytes": None, "top_logprobs": []} for token in ("Hel", "lo", "!")
    ]
    answer = completion({"role": "assistant", "content": "Hello!"})
    answer["choices"][0]["logprobs"] = {"content": tokens, "refusal": None}
    events = list(replay("chat", answer, include_usage=True))

    chunks = [json.loads(event[6:])["choices"] for event in events[1:4]]
    assert [chunk[0]["logprobs"]["content"] for chunk in chunks] == [[token] for token in tokens]
    assert accumulated("chat", events) == answer
    assert response_of("chat", answer).confidence == pytest.approx(0.9048, abs=1e-3)


NASTY = [
    "line\nline",
    "a\r\nb\rc",
    "🙂🙃👩‍👩‍👧",
    "data: x\n\ndata: [DONE]\n\n",
    "nul\0nul",
    "\u2028\u2029\u0085",
    '"\\"',
    "{}",
    "x" * 5000,
]


@pytest.mark.parametrize("text", [*NASTY, "mega🙂" * 200_000], ids=lambda text: repr(text[:12]))
def test_any_text_is_replayed_to_the_byte(text: str) -> None:
    events = list(replay("chat", completion({"role": "assistant", "content": text}), include_usage=False))
    chunks = chunks_of(events)

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert all(event.count(b"\n\n") == 1 and event.endswith(b"\n\n") for event in events)
    assert 4 <= len(events) <= 300


@given(st.lists(st.sampled_from(["a", "🙂", "\n", "é", "\ud83d"]), max_size=60).map("".join))
def test_pieces_are_several_and_join_to_the_text(text: str) -> None:
    parts = list(pieces(text))

    assert "".join(parts) == text
    assert all(parts)
    assert len(parts) >= min(2, len(text))


# --- what is not whole isn't stored ----------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_stream_cut_anywhere_gives_nothing(endpoint: Endpoint) -> None:
    answer = completion() if endpoint == "chat" else text_completion()
    whole = b"".join(replay(endpoint, answer, include_usage=True))
    end = whole.index(b"[DONE]") + len(b"[DONE]")
    for cut in range(0, end, 7):
        accumulator = Accumulator(endpoint, max_bytes=1 << 20)
        accumulator.feed(whole[:cut])
        accumulator.finish()
        assert accumulator.result() in ("cut", "unreadable"), cut


def test_a_choice_without_its_reason_to_finish_gives_nothing() -> None:
    answer = completion()
    answer["choices"].append(
        {"index": 1, "message": {"role": "assistant", "content": "b"}, "finish_reason": None}
    )

    assert accumulated("chat", list(replay("chat", answer, include_usage=False))) == "cut"


def test_an_error_in_the_stream_gives_nothing() -> None:
    events = list(replay("chat", completion(), include_usage=False))
    events.insert(2, frame({"error": {"message": "overloaded"}}))

    assert accumulated("chat", events) == "error"


def test_a_stream_that_is_too_long_gives_nothing() -> None:
    accumulator = Accumulator("chat", max_bytes=100)
    for event in replay("chat", completion(), include_usage=False):
        accumulator.feed(event)

    assert accumulator.result() == "too_large"


def test_a_last_event_without_its_blank_line_counts_when_the_stream_ended_by_itself() -> None:
    whole = b"".join(replay("chat", completion(), include_usage=True)).removesuffix(b"\n\n")
    accumulator = Accumulator("chat", max_bytes=1 << 20)
    accumulator.feed(whole)

    assert accumulator.result() == "cut"
    accumulator.finish()
    assert accumulator.result() == completion()


def test_a_recorded_stream_of_an_azure_deployment_is_read() -> None:
    head = {
        "id": "chatcmpl-9",
        "object": "chat.completion.chunk",
        "created": 17,
        "model": "gpt-4o",
        "system_fingerprint": "fp",
    }
    safe = {"hate": {"filtered": False, "severity": "safe"}}
    events = [
        frame({**head, "id": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
        frame({**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}),
        b": keep-alive\r\n\r\n",
        frame({**head, "obfuscation": "xyz", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None, "content_filter_results": safe}]}),
        frame({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "content_filter_results": safe}]}),
        DONE,
    ]  # fmt: skip

    assert accumulated("chat", events) == {
        "id": "chatcmpl-9",
        "object": "chat.completion",
        "created": 17,
        "model": "gpt-4o",
        "system_fingerprint": "fp",
        "usage": None,
        "prompt_filter_results": [{"prompt_index": 0}],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi"},
                "finish_reason": "stop",
                "content_filter_results": safe,
            }
        ],
    }


# --- completions -----------------------------------------------------------------------------------------------


def text_completion(**more: Any) -> dict[str, Any]:
    choice = {
        "text": "Once upon a time there was a cache.",
        "index": 0,
        "logprobs": None,
        "finish_reason": "stop",
        **more,
    }
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1700000000,
        "model": "gpt-3.5-turbo-instruct",
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 8, "total_tokens": 9},
    }


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "text": "Hello!",
            "logprobs": {
                "tokens": ["Hel", "lo", "!"],
                "token_logprobs": [-0.1, -0.2, -0.3],
                "text_offset": [0, 3, 5],
            },
        },
    ],
)
def test_a_text_completion_is_replayed_and_accumulated_to_itself(more: dict[str, Any]) -> None:
    answer = text_completion(**more)
    events = list(replay("completions", answer, include_usage=True))
    with sdk_for(events) as client:
        chunks = list(client.completions.create(model="m", prompt="p", stream=True))

    assert accumulated("completions", events) == answer
    assert len(chunks) > 3
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == answer["choices"][0]["text"]
    assert chunks[-1].usage is not None


# --- responses -------------------------------------------------------------------------------------------------


def responses_answer(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [
            {
                "type": "output_text",
                "text": "Open Settings, then choose Reset.",
                "annotations": [],
                "logprobs": [],
            }
        ],
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "completed_at": 1700000002,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": "gpt-4o-mini",
        "output": list(items) or [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {"caller": "a"},
        "user": "a",
        "usage": {"input_tokens": 9, "output_tokens": 7, "total_tokens": 16},
        **more,
    }


ITEMS = {
    "reasoning": {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Six times seven."}], "encrypted_content": "xx"},
    "open reasoning": {"id": "rs_2", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Six times seven."}]},
    "call": {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "w", "arguments": '{"city": "Paris"}', "status": "completed"},
    "custom": {"id": "ct_1", "type": "custom_tool_call", "call_id": "call_2", "name": "sql", "input": "select 1"},
    "refusal": {"id": "msg_2", "type": "message", "status": "completed", "role": "assistant", "content": [{"type": "refusal", "refusal": "I can't help."}]},
    "cited": {
        "id": "msg_3", "type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": "See there, and there.", "annotations": [{"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 3}]}],
    },
    "other": {"id": "x_1", "type": "something_new", "status": "completed"},
}  # fmt: skip


@pytest.mark.parametrize("name", ["message", *ITEMS])
def test_a_response_is_replayed_with_all_its_events_and_accumulated_to_itself(name: str) -> None:
    answer = responses_answer(*([ITEMS[name]] if name in ITEMS else []))
    events = list(replay("responses", answer, include_usage=False))
    values = [json.loads(event.split(b"data: ")[1]) for event in events]

    assert accumulated("responses", events) == answer
    assert [value["sequence_number"] for value in values] == list(range(len(values)))
    assert all(
        event.startswith(b"event: " + value["type"].encode() + b"\n")
        for event, value in zip(events, values, strict=True)
    )
    assert [value["type"] for value in values][:3] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    assert [value["type"] for value in values][-2:] == ["response.output_item.done", "response.completed"]
    assert values[0]["response"]["status"] == "in_progress"
    assert not any(b"[DONE]" in event for event in events)


@pytest.mark.parametrize("name", ["message", *(name for name in ITEMS if name != "other")])
def test_the_sdk_helper_accumulates_a_replayed_response(name: str) -> None:
    answer = responses_answer(*([ITEMS[name]] if name in ITEMS else []))
    events = list(replay("responses", answer, include_usage=False))
    with sdk_for(events) as client, client.responses.stream(model="m", input="q") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()

    assert final.output_text == (response_of("responses", answer).text or "")
    assert final.id == "resp_1"
    if name in ("message", "cited"):
        assert kinds.count("response.output_text.delta") >= 2
        assert kinds.index("response.content_part.added") < kinds.index("response.output_text.delta")
        assert kinds.index("response.output_text.done") < kinds.index("response.content_part.done")


@pytest.mark.parametrize("kind", ["response.failed", "response.incomplete", "error"])
def test_a_response_that_did_not_complete_gives_nothing(kind: str) -> None:
    events = list(replay("responses", responses_answer(), include_usage=False))[:-1]

    assert accumulated("responses", events) == "cut"
    assert (
        accumulated("responses", [*events, frame({"type": kind, "response": responses_answer()}, kind)])
        == "error"
    )


# --- for another caller ----------------------------------------------------------------------------------------


def test_each_hit_has_an_id_and_a_time_of_its_own() -> None:
    one, two = (for_caller("chat", completion(), {}, now=1800000000.7) for _ in range(2))

    assert one["id"] != two["id"] != "chatcmpl-1"
    assert one["id"].startswith("chatcmpl-")
    assert one["created"] == 1800000000
    assert {**one, "id": "", "created": 0} == {**completion(), "id": "", "created": 0}


@pytest.mark.parametrize(
    ("endpoint", "prefix"), [("chat", "chatcmpl-"), ("completions", "cmpl-"), ("responses", "resp_")]
)
@pytest.mark.parametrize("source", [{}, {"id": "x"}, {"id": 7}])
def test_an_id_without_a_prefix_gets_the_one_of_its_kind(
    endpoint: Endpoint, prefix: str, source: dict[str, Any]
) -> None:
    assert for_caller(endpoint, source, {}, now=1.0)["id"].startswith(prefix)


def test_a_replayed_response_has_nothing_of_the_first_caller() -> None:
    stored = response_of(
        "responses", responses_answer(ITEMS["reasoning"], responses_answer()["output"][0])
    ).data
    assert isinstance(stored, dict)
    two = for_caller("responses", stored, {"metadata": {"caller": "b"}}, now=1800000000.0)

    assert "'a'" not in repr(stored)
    assert (two["metadata"], two["user"]) == ({"caller": "b"}, None)
    assert two["id"].startswith("resp_")
    assert two["id"] != "resp_1"
    assert two["created_at"] == two["completed_at"] == 1800000000
    assert [item["id"] == old for item, old in zip(two["output"], ("rs_1", "msg_1"), strict=True)] == [
        True,
        False,
    ]
