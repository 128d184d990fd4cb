"""Prompts as LangChain serialises them: what is compared, what must match exactly, what is noise."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import dumps
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    ToolMessage,
)

from langchain_semcache.prompts import ParsedPrompt, parse_prompt


def parse(*messages: BaseMessage) -> ParsedPrompt:
    return parse_prompt(dumps(list(messages)))


def scope(parsed: ParsedPrompt) -> tuple[object, ...]:
    return (parsed.context, parsed.earlier_turns, parsed.media, parsed.exact_only, parsed.opaque)


def test_a_plain_string_is_the_compared_text() -> None:
    parsed = parse_prompt("Sample prompt for testing.")

    assert parsed == ParsedPrompt("Sample prompt for testing.")


def test_only_the_last_user_turn_is_compared() -> None:
    parsed = parse(
        SystemMessage("Be brief."), HumanMessage("Hi"), AIMessage("Hello"), HumanMessage("How old?")
    )

    assert parsed.text == "How old?"
    assert parsed.earlier_turns == 1
    assert not parsed.exact_only
    assert not parsed.opaque
    assert parsed.context == [
        {"role": "system", "text": "Be brief."},
        {"role": "user", "text": "Hi"},
        {"role": "assistant", "text": "Hello"},
    ]


def test_a_lone_user_message_has_no_context() -> None:
    assert parse(HumanMessage("How old?")) == ParsedPrompt("How old?", chat=True)


def test_the_same_follow_up_in_two_conversations_has_two_contexts() -> None:
    first = parse(HumanMessage("Who is Ada?"), AIMessage("A poet's child."), HumanMessage("How old is she?"))
    second = parse(HumanMessage("Who is Eve?"), AIMessage("A physicist."), HumanMessage("How old is she?"))

    assert first.text == second.text
    assert scope(first) != scope(second)


def conversation(n: int) -> Sequence[BaseMessage]:
    """One conversation, with ids and bookkeeping that differ from run to run."""
    call = {"name": "age", "args": {"of": "Ada"}, "id": f"call_{n}a", "type": "tool_call"}
    return [
        HumanMessage("Who?", id=f"h{n}", additional_kwargs={"sent_at": n}, response_metadata={"n": n}),
        AIMessage(
            [{"type": "text", "text": "One moment", "id": f"b{n}", "index": n}],
            id=f"run-{n}",
            tool_calls=[call],  # type: ignore[list-item]
            response_metadata={"id": f"chatcmpl-{n}", "created": n, "token_usage": {"total": n}},
            usage_metadata={"input_tokens": n, "output_tokens": n, "total_tokens": 2 * n},
        ),
        ToolMessage("36", tool_call_id=f"call_{n}a", id=f"t{n}", artifact={"n": n}),
        AIMessage("36.", id=f"run-{n}b", additional_kwargs={"logged": n}),
        HumanMessage("And now?", id=f"h{n}b"),
    ]


def test_ids_and_bookkeeping_make_no_difference() -> None:
    assert parse(*conversation(1)) == parse(*conversation(2))


def test_which_call_a_tool_result_answers_makes_a_difference() -> None:
    def turns(first: str, second: str) -> ParsedPrompt:
        calls = [{"name": "f", "args": {}, "id": name, "type": "tool_call"} for name in ("a", "b")]
        return parse(
            HumanMessage("?"),
            AIMessage("", tool_calls=calls),  # type: ignore[arg-type]
            ToolMessage("1", tool_call_id=first),
            ToolMessage("2", tool_call_id=second),
            HumanMessage("So?"),
        )

    assert turns("a", "b") != turns("b", "a")


@pytest.mark.parametrize(
    "other",
    [
        HumanMessage("Who?", name="bob"),
        HumanMessage([{"type": "text", "text": "Who?"}, {"type": "text", "text": ""}]),
        HumanMessage([{"type": "text", "text": "Who?", "language": "de"}]),
        HumanMessage([{"type": "text", "text": "Who?"}, {"type": "custom", "x": 1}]),
        HumanMessage(
            [{"type": "text", "text": "Who?"}, {"type": "image_url", "image_url": {"url": "data:,a"}}]
        ),
    ],
    ids=["name", "two blocks", "unknown key in a block", "unknown block", "image"],
)
def test_whatever_else_the_last_turn_holds_isolates(other: HumanMessage) -> None:
    assert scope(parse(HumanMessage("Who?"))) != scope(parse(other))


def test_a_string_and_one_text_block_are_the_same_prompt() -> None:
    assert parse(HumanMessage("Who?")) == parse(HumanMessage([{"type": "text", "text": "Who?"}]))
    assert parse(HumanMessage("Who?")) == parse(
        HumanMessage([{"type": "text", "text": "Who?", "cache_control": {"type": "ephemeral"}}])
    )


def test_two_images_have_two_digests_and_a_block_id_makes_no_difference() -> None:
    def image(data: str, block_id: str = "x") -> ParsedPrompt:
        block = {"type": "image", "base64": data, "mime_type": "image/png", "id": block_id}
        return parse(HumanMessage([{"type": "text", "text": "What is it?"}, block]))  # type: ignore[list-item]

    assert image("AAAA").text == "What is it?"
    assert image("AAAA").media != image("BBBB").media
    assert image("AAAA", "1") == image("AAAA", "2")


def test_media_in_an_earlier_turn_counts() -> None:
    block = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    parsed = parse(HumanMessage([block]), AIMessage("Yes."), HumanMessage("And?"))  # type: ignore[list-item]

    assert len(parsed.media) == 1


def test_a_turn_of_media_alone_has_a_text() -> None:
    block = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}

    assert parse(HumanMessage([block])).text.strip()  # type: ignore[list-item]


@pytest.mark.parametrize(
    "last",
    [ToolMessage("36", tool_call_id="a"), AIMessage("The answer is"), SystemMessage("Be brief.")],
    ids=["tool result", "prefill", "system"],
)
def test_a_prompt_that_does_not_end_with_the_user_matches_exactly_only(last: BaseMessage) -> None:
    parsed = parse(HumanMessage("Who?"), last)

    assert parsed.exact_only
    assert parsed.text.strip()


def test_an_empty_tool_result_still_has_a_text() -> None:
    assert parse(HumanMessage("Who?"), ToolMessage("", tool_call_id="a")).text.strip()


def test_chunks_and_roles_are_read_like_messages() -> None:
    assert parse(HumanMessageChunk(content="Who?")) == parse(HumanMessage("Who?"))
    assert parse(ChatMessage("Who?", role="user")).text == "Who?"
    assert parse(ChatMessage("Who?", role="user")) == parse(HumanMessage("Who?"))
    assert scope(parse(ChatMessage("a", role="critic"), HumanMessage("?"))) != scope(
        parse(ChatMessage("a", role="author"), HumanMessage("?"))
    )
    assert parse(AIMessageChunk(content="a"), HumanMessage("?")) == parse(AIMessage("a"), HumanMessage("?"))
    assert parse(FunctionMessage("1", name="f"), HumanMessage("?")).context == [
        {"role": "function", "text": "1", "name": "f"}
    ]


def test_a_developer_message_is_not_a_system_message() -> None:
    developer = SystemMessage("Be brief.", additional_kwargs={"__openai_role__": "developer"})

    assert scope(parse(developer, HumanMessage("?"))) != scope(
        parse(SystemMessage("Be brief."), HumanMessage("?"))
    )


def test_a_legacy_function_call_in_the_history_counts() -> None:
    def turn(arguments: str) -> ParsedPrompt:
        extra = {"function_call": {"name": "f", "arguments": arguments}}
        return parse(HumanMessage("a"), AIMessage("", additional_kwargs=extra), HumanMessage("b"))

    assert turn("1") != turn("2")


def test_a_subclass_of_a_message_is_read_by_its_type() -> None:
    class Shouted(HumanMessage):
        volume: int = 1

    assert parse(Shouted("Who?", volume=3)).text == "Who?"
    assert scope(parse(Shouted("Who?", volume=3))) != scope(parse(Shouted("Who?", volume=4)))


@pytest.mark.parametrize(
    "prompt",
    [
        '[{"lc": 1, "type": "constructor", "id": ["app", "Thing"], "kwargs": {"content": "x"}}]',
        '[{"lc": 1, "type": "not_implemented", "id": ["app", "Thing"], "repr": "<Thing at 0x7f>"}]',
        '[{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"]}]',
        '[{"lc": 1, "type": "constructor", "id": 3, "kwargs": {"content": "x", "type": "human"}}]',
        '[{"lc": 1, "type": "constructor", "id": ["a", "HumanMessage"], "kwargs": {"content": 3}}]',
        '[{"lc": 1, "type": "constructor", "id": ["a", "HumanMessage"], "kwargs": {"content": [3]}}]',
    ],
)
def test_a_list_of_unknown_objects_is_opaque(prompt: str) -> None:
    parsed = parse_prompt(prompt)

    assert parsed.opaque
    assert parsed.text == prompt


@pytest.mark.parametrize(
    "prompt", ["[]", "[1, 2]", "[not json", '[{"a": 1}]', "[" * 100_000, "", "{}", "\ud800"]
)
def test_other_text_that_looks_like_json_is_plain_text(prompt: str) -> None:
    assert parse_prompt(prompt) == ParsedPrompt(prompt)


@hypothesis.settings(deadline=None)
@given(st.text())
def test_any_user_text_comes_back_as_it_was(text: str) -> None:
    parsed = parse(SystemMessage("s"), HumanMessage(text))

    assert parsed.text == text
    assert parsed.context == [{"role": "system", "text": "s"}]


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@hypothesis.settings(deadline=None)
@given(st.lists(st.fixed_dictionaries({"lc": st.just(1), "type": st.just("constructor"), "id": json_values,
       "kwargs": st.dictionaries(st.sampled_from(["content", "type", "tool_calls", "additional_kwargs", "name"]),
                                 json_values | st.just("human"))}), min_size=1, max_size=3))  # fmt: skip
def test_no_list_of_constructors_makes_it_raise(items: list[object]) -> None:
    import json

    parse_prompt(json.dumps(items))
