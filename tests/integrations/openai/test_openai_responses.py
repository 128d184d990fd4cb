"""What an answer tells the cache's admission."""

from __future__ import annotations

from typing import Any

import pytest

from openai_semcache.fields import Endpoint, Options
from openai_semcache.responses import for_caller, is_intact, response_of, whole_of
from semcache.structured import Structure
from semcache.types import Response


def chat(message: dict[str, Any] | None = None, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    message = (
        {"role": "assistant", "content": "Yes."} if message is None else {"role": "assistant", **message}
    )
    return {
        "id": "c",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"total_tokens": 3},
        **more,
    }


def responses(*content: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    item = {"type": "message", "role": "assistant", "status": "completed", "content": list(content)}
    return {"id": "r", "status": status, "output": [item], **more}


TEXT = {"type": "output_text", "text": "Yes.", "annotations": []}


def test_a_good_answer_has_nothing_against_it() -> None:
    expected = Response("Yes.", data=chat(), finish_reason="stop", usage={"total_tokens": 3}, latency_ms=12.0)

    assert response_of("chat", chat(), latency_ms=12.0) == expected
    assert response_of("responses", responses(TEXT)).text == "Yes."
    assert response_of("responses", responses(TEXT)).finish_reason == "stop"
    assert (
        response_of("completions", {"choices": [{"text": "Yes.", "index": 0, "finish_reason": "stop"}]}).text
        == "Yes."
    )


@pytest.mark.parametrize(
    ("endpoint", "body", "against"),
    [
        ("chat", {"error": {"message": "x"}}, {"error": True}),
        ("chat", chat(error={"message": "x"}), {"error": True}),
        ("chat", chat(choices=[]), {"error": True}),
        ("chat", {}, {"error": True}),
        ("chat", [], {"error": True}),
        ("chat", "<html>", {"error": True}),
        ("chat", chat(finish="length"), {"finish_reason": "length"}),
        ("chat", chat(finish="content_filter"), {"finish_reason": "content_filter"}),
        ("chat", chat(finish=None), {"partial": True}),
        ("chat", chat(finish="insufficient_system_resource"), {"partial": True}),
        ("chat", chat({"content": None, "refusal": "No."}), {"refusal": True, "text": ""}),
        ("chat", chat({"content": None, "tool_calls": [{"id": "1"}]}, "tool_calls"), {"tool_calls": True}),
        ("chat", chat({"content": None, "function_call": {"name": "f"}}, "function_call"), {"tool_calls": True}),
        ("chat", chat({"content": "x", "tool_calls": [{"id": "1"}]}, "stop"), {"tool_calls": True}),
        ("chat", chat({"content": None, "audio": {"id": "a"}}), {"media": True}),
        ("chat", chat({"content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}), {"media": True, "text": "a"}),
        ("chat", chat({"content": ""}), {"text": ""}),
        ("chat", chat({"content": None}), {"text": ""}),
        ("chat", chat(moderation={"input": {"results": [{"flagged": True}]}}), {"finish_reason": "content_filter"}),
        ("chat", chat(moderation={"input": {"results": [{"flagged": False}]}}), {"finish_reason": "stop"}),
        ("responses", responses(TEXT, status="incomplete", incomplete_details={"reason": "max_output_tokens"}), {"finish_reason": "length"}),
        ("responses", responses(TEXT, status="incomplete", incomplete_details={"reason": "content_filter"}), {"finish_reason": "content_filter"}),
        ("responses", responses(TEXT, status="failed", error={"code": "server_error"}), {"error": True}),
        ("responses", responses(TEXT, status="in_progress"), {"partial": True}),
        ("responses", responses(TEXT, status="queued"), {"partial": True}),
        ("responses", responses({"type": "refusal", "refusal": "No."}), {"refusal": True}),
        ("responses", {"status": "completed", "output": [{"type": "function_call", "status": "completed"}]}, {"tool_calls": True}),
        ("responses", {"status": "completed", "output": [{"type": "web_search_call", "status": "completed"}]}, {"tool_calls": True}),
        ("responses", {"status": "completed", "output": [{"type": "image_generation_call"}]}, {"media": True}),
        ("responses", {"status": "completed", "output": [{"type": "message", "status": "incomplete", "content": [TEXT]}]}, {"partial": True}),
        ("responses", {"status": "completed", "output": []}, {"text": ""}),
        ("responses", {"status": "completed"}, {"error": True}),
        ("completions", {"choices": [{"text": "a", "index": 0, "finish_reason": "length"}]}, {"finish_reason": "length"}),
    ],
)  # fmt: skip
def test_what_speaks_against_an_answer_is_seen(
    endpoint: Endpoint, body: Any, against: dict[str, Any]
) -> None:
    response = response_of(endpoint, body)

    assert {name: getattr(response, name) for name in against} == against


def test_a_filtered_choice_of_azure_is_seen() -> None:
    body = chat()
    body["choices"][0]["content_filter_results"] = {"hate": {"filtered": True}}

    assert response_of("chat", body).finish_reason == "content_filter"


def test_the_worst_of_several_choices_counts() -> None:
    body = chat()
    body["choices"].append({"index": 1, "message": {"content": "And"}, "finish_reason": "length"})

    assert response_of("chat", body).finish_reason == "length"
    body["choices"][1] = {"index": 1, "message": {"content": ""}, "finish_reason": "stop"}
    assert response_of("chat", body).text == ""


def test_an_answer_that_is_not_the_json_asked_for_is_malformed() -> None:
    good, bad, other = (chat({"content": text}) for text in ('{"a": 1}', '{"a": ', '{"b": 1}'))
    wanted = Structure.of({"type": "object", "required": ["a"]})

    for structure, fitting in ((Structure(), [good, other]), (wanted, [good]), (None, [good, bad, other])):
        for body in (good, bad, other):
            assert response_of("chat", body, structure=structure).malformed is (body not in fitting)
            assert is_intact("chat", body, structure) is (body in fitting)


def test_every_choice_and_every_part_must_be_what_is_asked_for() -> None:
    several = chat({"content": '{"a": 1}'})
    several["choices"].append({"index": 1, "message": {"content": "Sure!"}, "finish_reason": "stop"})
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in ('{"a": 1}', '{"a": 2}')]

    assert response_of("chat", several, structure=Structure()).malformed
    assert not response_of("responses", responses(*parts), structure=Structure()).malformed
    parts[1]["text"] = "Sure!"
    assert response_of("responses", responses(*parts), structure=Structure()).malformed
    assert not is_intact("responses", responses(*parts), Structure())
    assert response_of("responses", {"status": "completed", "output": []}, structure=Structure()).malformed


def test_a_refusal_and_a_call_of_a_tool_are_not_malformed() -> None:
    refused = response_of("chat", chat({"content": None, "refusal": "No."}), structure=Structure())
    calls = response_of(
        "chat", chat({"content": None, "tool_calls": [{}]}, "tool_calls"), structure=Structure()
    )

    assert refused.refusal
    assert not refused.error
    assert not calls.malformed


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
def test_an_answer_stored_as_text_alone_is_given_as_a_whole_one(endpoint: Endpoint) -> None:
    made = whole_of(endpoint, Response("Yes."), "m")
    assert made is not None
    again = response_of(endpoint, for_caller(endpoint, made, {}, now=0.0))

    assert (again.text, again.finish_reason, again.partial, again.error) == ("Yes.", "stop", False, False)
    assert whole_of(endpoint, Response(""), "m") is None
    assert whole_of(endpoint, Response("Yes.", data={"form": "float"}), "m") == made
    assert whole_of(endpoint, Response("Yes.", tool_calls=True), "m") is None


def test_usage_on_a_hit_is_as_stored_or_zero() -> None:
    usage = {
        "prompt_tokens": 9,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 4},
        "cost": None,
    }
    stored = chat(usage=usage)

    assert for_caller("chat", stored, {}, now=0.0)["usage"] == usage
    zero = for_caller("chat", stored, {}, now=0.0, options=Options(usage="zero"))["usage"]
    assert zero == {
        "prompt_tokens": 0,
        "total_tokens": 0,
        "prompt_tokens_details": {"cached_tokens": 0},
        "cost": None,
    }
