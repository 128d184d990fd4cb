"""What two requests have in common, and what keeps them apart."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.resources.chat.completions import Completions as Chat
from openai.resources.completions import Completions
from openai.resources.embeddings import Embeddings
from openai.resources.responses import Responses

from openai_semcache import fields
from openai_semcache.fields import Endpoint, Options
from openai_semcache.requests import ParsedRequest, parse_request
from semcache.errors import InvalidRequestError
from semcache.scope import scope_id

URL = "https://api.openai.com/v1"
PATHS = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "responses": "/responses",
    "embeddings": "/embeddings",
}


def parse(
    body: Any,
    endpoint: Endpoint = "chat",
    headers: dict[str, str] | None = None,
    url: str = URL,
    **options: Any,
) -> ParsedRequest:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    more = {"tenant": options.pop("tenant", ""), "segment": options.pop("segment", None)}
    return parse_request(
        endpoint, "POST", url + PATHS[endpoint], headers or {}, content, options=Options(**options), **more
    )


def chat(text: Any = "How do I reset my password?", **more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}], **more}


def scope(parsed: ParsedRequest) -> str:
    return scope_id(parsed.request, b"k" * 32)


# --- the table -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endpoint", "create"),
    [
        ("chat", Chat.create),
        ("completions", Completions.create),
        ("responses", Responses.create),
        ("embeddings", Embeddings.create),
    ],
)
def test_every_parameter_of_the_sdk_is_classified(endpoint: Endpoint, create: Any) -> None:
    ours_alone = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
    parameters = set(inspect.signature(create).parameters) - ours_alone
    known = fields.IGNORED | fields.TOOLS | fields.ISOLATED[endpoint] | {fields.TURNS_OF[endpoint]}

    assert parameters - known == set()
    assert not fields.IGNORED & fields.ISOLATED[endpoint]


@pytest.mark.parametrize("endpoint", list(PATHS))
def test_every_isolating_field_isolates(endpoint: Endpoint) -> None:
    turns = {
        fields.TURNS_OF[endpoint]: "hello" if endpoint != "chat" else [{"role": "user", "content": "hello"}]
    }
    plain = scope(parse({"model": "m", **turns}, endpoint))
    isolating = fields.ISOLATED[endpoint] | (fields.TOOLS if endpoint in ("chat", "responses") else set())

    for name in isolating:
        other = parse({"model": "m", **turns, name: "other" if name == "model" else 0.25}, endpoint)
        barred = other.bypass is not None
        assert barred or scope(other) != plain, name


@pytest.mark.parametrize(
    "name", sorted(fields.IGNORED - {"store", "background", "cache"})
)  # those have rules
def test_an_ignored_field_does_not_isolate(name: str) -> None:
    value = {"include_usage": True} if name == "stream_options" else "x"

    assert scope(parse(chat(**{name: value}))) == scope(parse(chat()))


def test_what_is_ignored_is_the_list_that_was_agreed_on() -> None:
    assert {
        "stream", "stream_options", "metadata", "service_tier", "prompt_cache_key", "prompt_cache_options",
        "prompt_cache_retention", "safety_identifier", "timeout", "user", "store", "background", "cache",
    } == fields.IGNORED  # fmt: skip


def test_an_unknown_field_isolates() -> None:
    assert scope(parse(chat(some_new_knob=1))) != scope(parse(chat()))
    assert scope(parse(chat(some_new_knob=1))) != scope(parse(chat(some_new_knob=2)))


@pytest.mark.parametrize(
    ("field", "one", "two"),
    [
        ("max_tokens", 10, 20),
        ("logit_bias", {"50256": -100}, {"50256": 1}),
        ("seed", 1, 2),
        ("stop", "a", ["b"]),
        ("top_p", 0.1, 0.2),
    ],
)
def test_limits_and_sampling_are_part_of_the_scope(field: str, one: Any, two: Any) -> None:
    assert scope(parse(chat(**{field: one}))) != scope(parse(chat(**{field: two})))
    assert scope(parse(chat(**{field: one}))) != scope(parse(chat()))


def test_a_missing_temperature_is_not_zero() -> None:
    missing, null = parse(chat()), parse(chat(temperature=None))
    zero, zero_float, one = (parse(chat(temperature=value)) for value in (0, 0.0, 1))

    assert scope(missing) == scope(null)
    assert scope(zero) == scope(zero_float)
    assert len({scope(missing), scope(zero), scope(one)}) == 3
    assert "temperature" not in missing.request.params
    assert zero.request.params["temperature"] == 0


SCHEMA_A = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
SCHEMA_B = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}


def _format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "Out", "schema": schema}}


def test_schemas_of_the_same_name_isolate_by_content() -> None:
    assert scope(parse(chat(response_format=_format(SCHEMA_A)))) != scope(
        parse(chat(response_format=_format(SCHEMA_B)))
    )
    constants = [_format({**SCHEMA_A, "default": None}), _format(SCHEMA_A)]
    assert len({scope(parse(chat(response_format=value))) for value in constants}) == 2


TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA_A}}


def test_tools_and_tool_choice_isolate() -> None:
    requests = [
        chat(),
        chat(tools=[TOOL]),
        chat(tools=[TOOL], tool_choice="none"),
        chat(tools=[TOOL], tool_choice="auto"),
        chat(tools=[TOOL], tool_choice="required"),
        chat(tools=[TOOL, TOOL]),
        chat(functions=[TOOL["function"]]),
    ]

    assert len({scope(parse(request)) for request in requests}) == len(requests)


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _reversed(value[name]) for name in reversed(list(value))}
    return [_reversed(member) for member in value] if isinstance(value, list) else value


def test_the_order_of_members_does_not_matter_and_the_order_of_tools_does() -> None:
    other = {"type": "function", "function": {"name": "time", "parameters": SCHEMA_B}}
    body = chat(tools=[TOOL, other], logit_bias={"1": 2, "3": 4})

    assert scope(parse(body)) == scope(parse(_reversed(body)))
    assert scope(parse(body)) != scope(parse({**body, "tools": [other, TOOL]}))


def test_the_scope_is_the_same_in_every_process() -> None:
    code = (
        "import json, sys; from openai_semcache.requests import parse_request; from semcache.scope import scope_id;"
        "body = json.loads(sys.argv[1]);"
        "scopes = {scope_id(parse_request('chat', 'POST', 'http://h/v1/chat/completions?b=1&a=2', {}, body).request, b'k' * 32)"
        " for _ in range(300)};"
        "print(*scopes)"
    )
    other = {"type": "function", "function": {"name": "time", "parameters": SCHEMA_B}}
    bodies = [chat(tools=[TOOL, other], logit_bias={"1": 2, "3": 4}, x={"b": 1, "a": [1.0, None]})]
    bodies.append(_reversed(bodies[0]))
    printed = set()
    for seed, body in (("0", bodies[0]), ("1", bodies[1]), ("2", bodies[0])):
        command = [sys.executable, "-c", code, json.dumps(body)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        printed.add(done.stdout.strip())

    assert len(printed) == 1
    assert len(printed.pop()) == 32


# --- address, identity, headers --------------------------------------------------------------------------------


def test_a_deployment_and_an_api_version_in_the_address_isolate() -> None:
    base = "https://x.openai.azure.com/openai/deployments"
    one = parse(chat(), url=f"{base}/prod-4o")
    two = parse(chat(), url=f"{base}/prod-mini")
    without_model = parse({"messages": chat()["messages"]}, url=f"{base}/prod%204o")
    dated = parse_request(
        "chat",
        "POST",
        f"{base}/prod-4o/chat/completions?api-version=2024-10-21",
        {},
        json.dumps(chat()).encode(),
    )

    assert len({scope(one), scope(two), scope(dated)}) == 3
    assert without_model.request.model == "prod 4o"
    assert without_model.exact is None


def test_kind_and_base_url_isolate() -> None:
    bases = [
        "https://api.openai.com/v1",
        "http://localhost:8000/v1",
        "http://localhost:8001/v1",
        "http://localhost/v1",
        "https://localhost/v1",
        "http://localhost:443/v1",
    ]
    scopes = {scope(parse(chat(), url=url)) for url in bases}

    assert len(scopes) == len(bases)
    assert scope(parse(chat(), url="HTTPS://API.openai.com:443/v1")) == scope(parse(chat()))
    assert scope(parse({"model": "m", "prompt": "p"}, "completions")) != scope(
        parse({"model": "m", "input": "p"}, "responses")
    )


@pytest.mark.parametrize("model", ["name-q6:latest", "openai/gpt-4o", "a.b-c", "m" * 300])
def test_model_names_of_any_shape_isolate(model: str) -> None:
    assert parse(chat(model=model)).request.model == model
    assert scope(parse(chat(model=model))) != scope(parse(chat(model=model + "x")))


def test_a_request_without_a_model_matches_exactly_only() -> None:
    assert parse({"messages": chat()["messages"]}).exact == "opaque"


def test_organisation_and_project_isolate_and_noise_headers_do_not() -> None:
    plain = scope(
        parse(chat(), headers={"X-Stainless-Retry-Count": "1", "User-Agent": "a", "Idempotency-Key": "k"})
    )

    assert plain == scope(parse(chat()))
    assert plain != scope(parse(chat(), headers={"OpenAI-Organization": "org-1"}))
    assert plain != scope(parse(chat(), headers={"OpenAI-Project": "p"}))
    assert plain != scope(parse(chat(), headers={"x-lane": "b"}, isolating_headers=("x-lane",)))


@pytest.mark.parametrize("name", fields.HEADERS)
def test_a_header_that_chooses_who_answers_isolates(name: str) -> None:
    plain, one, two = (parse(chat(), headers=headers) for headers in ({}, {name.title(): "a"}, {name: "b"}))

    assert len({scope(plain), scope(one), scope(two)}) == 3


@pytest.mark.parametrize("name", fields.CREDENTIALS)
def test_each_kind_of_credentials_is_a_tenant_of_its_own_and_is_not_shown(name: str) -> None:
    headers: list[dict[str, str]] = [{}, {name.title(): "sk-one"}, {name: "sk-two"}]
    parsed = [parse(chat(), headers=given, tenant=None) for given in headers]

    assert len({scope(one) for one in parsed}) == 3
    assert "sk-" not in repr([one.request for one in parsed])


def test_a_tenant_derived_from_credentials_isolates_and_does_not_show_them() -> None:
    one = parse(chat(), headers={"Authorization": "Bearer sk-one"}, tenant=None)
    two = parse(chat(), headers={"Authorization": "Bearer sk-two"}, tenant=None)
    azure = parse(chat(), headers={"api-key": "sk-one"}, tenant=None)

    assert len({scope(one), scope(two), scope(azure)}) == 3
    assert "sk-one" not in one.request.tenant
    assert parse(chat(), headers={"Authorization": "Bearer sk-one"}, tenant="acme").request.tenant == "acme"


def test_the_user_field_isolates_only_where_the_application_says_so() -> None:
    assert scope(parse(chat(user="a"))) == scope(parse(chat(user="b")))
    assert scope(parse(chat(user="a"), user_isolates=True)) != scope(
        parse(chat(user="b"), user_isolates=True)
    )


# --- turns -----------------------------------------------------------------------------------------------------


def test_the_scope_leaves_out_the_text_being_compared() -> None:
    assert scope(parse(chat("one"))) == scope(parse(chat("another")))
    assert parse(chat("one")).request.prompt == "one"


def test_a_text_and_a_list_of_one_text_part_are_the_same() -> None:
    plain, parts = parse(chat("hi")), parse(chat([{"type": "text", "text": "hi"}]))
    responses = [
        parse({"model": "m", "input": value}, "responses", stored_responses=True)
        for value in (
            "hi",
            [{"role": "user", "content": "hi"}],
            [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        )
    ]

    assert (plain.request.prompt, scope(plain)) == (parts.request.prompt, scope(parts))
    assert {item.request.prompt for item in responses} == {"hi"}
    assert len({scope(item) for item in responses}) == 1


def test_earlier_turns_are_part_of_the_scope() -> None:
    def follow_up(subject: str) -> ParsedRequest:
        messages = [
            {"role": "user", "content": f"Who is {subject}?"},
            {"role": "assistant", "content": f"{subject} is a person."},
            {"role": "user", "content": "How old is he?"},
        ]
        return parse({"model": "m", "messages": messages})

    one, two = follow_up("Alan"), follow_up("Bob")

    assert one.request.prompt == two.request.prompt == "How old is he?"
    assert scope(one) != scope(two)
    assert one.request.earlier_turns == 1


def _agent_turns(prefix: str) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?", "id": prefix + "u1"},
        {
            "role": "assistant",
            "content": None,
            "id": prefix + "a1",
            "tool_calls": [
                {"id": prefix + "c1", "type": "function", "function": {"name": "w", "arguments": "{}"}},
                {"id": prefix + "c2", "type": "function", "function": {"name": "w", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": prefix + "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": prefix + "c2", "content": "sun"},
        {"role": "assistant", "content": "Mixed."},
        {"role": "user", "content": "And tomorrow?"},
    ]


def test_fresh_ids_in_the_same_conversation_do_not_isolate() -> None:
    one = parse({"model": "m", "messages": _agent_turns("x")})
    two = parse({"model": "m", "messages": _agent_turns("y")})
    swapped = _agent_turns("x")
    swapped[3]["tool_call_id"], swapped[4]["tool_call_id"] = "xc2", "xc1"

    assert scope(one) == scope(two)
    assert scope(one) != scope(parse({"model": "m", "messages": swapped}))


def test_fresh_ids_in_a_responses_conversation_do_not_isolate() -> None:
    def conversation(prefix: str) -> ParsedRequest:
        items = [
            {"role": "user", "content": "Weather?"},
            {"type": "reasoning", "id": prefix + "r", "summary": []},
            {
                "type": "function_call",
                "id": prefix + "f",
                "call_id": prefix + "c",
                "name": "w",
                "arguments": "{}",
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": prefix + "c", "output": "rain"},
            {
                "type": "message",
                "id": prefix + "m",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Rain.", "annotations": []}],
            },
            {"role": "user", "content": "And tomorrow?"},
        ]
        return parse({"model": "m", "input": items, "store": False}, "responses")

    assert scope(conversation("x")) == scope(conversation("y"))
    assert conversation("x").bypass is None


@pytest.mark.parametrize(
    "last",
    [
        {"role": "tool", "tool_call_id": "c", "content": "42"},
        {"role": "assistant", "content": "The answer is"},
    ],
)
def test_a_conversation_that_does_not_end_with_the_user_matches_exactly_only(last: dict[str, Any]) -> None:
    parsed = parse({"model": "m", "messages": [{"role": "user", "content": "q"}, last]})

    assert parsed.exact == "turns"
    assert parsed.request.prompt == last["content"]


def test_an_instruction_after_the_user_is_context() -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "system", "content": "Answer in French."}]
    parsed = parse({"model": "m", "messages": messages})

    assert parsed.request.prompt == "q"
    assert parsed.exact is None
    assert scope(parsed) != scope(parse(chat("q", model="m")))
    assert scope(parsed) != scope(parse({"model": "m", "messages": messages[::-1]}))


def test_names_of_speakers_isolate() -> None:
    named = {"model": "m", "messages": [{"role": "user", "content": "q", "name": "ada"}]}

    assert scope(parse(named)) != scope(parse(chat("q", model="m")))


def test_documents_in_earlier_parts_are_context_and_the_last_part_is_compared() -> None:
    one = parse(
        chat([{"type": "text", "text": "document " * 400}, {"type": "text", "text": "Who wrote it?"}])
    )
    two = parse(
        chat([{"type": "text", "text": "document " * 400}, {"type": "text", "text": "When was it written?"}])
    )
    other = parse(
        chat([{"type": "text", "text": "another " * 400}, {"type": "text", "text": "Who wrote it?"}])
    )

    assert one.request.prompt == "Who wrote it?"
    assert scope(one) == scope(two)
    assert scope(one) != scope(other)


def test_a_template_can_be_split_into_context_and_question() -> None:
    def split(text: str) -> tuple[str, str]:
        context, _, question = text.rpartition("Question: ")
        return context, question

    one, two = (
        parse(chat(f"{'document ' * 300}Question: {question}"), split=split) for question in ("Who?", "When?")
    )
    other = parse(chat("another document. Question: Who?"), split=split)

    assert one.request.prompt == "Who?"
    assert scope(one) == scope(two)
    assert scope(one) != scope(other)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}


def _with_image(url: str) -> dict[str, Any]:
    return chat([{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}])


def test_inline_images_isolate_by_digest_and_match_exactly_only() -> None:
    one, two = (
        parse(_with_image("data:image/png;base64,AAAA")),
        parse(_with_image("data:image/png;base64,BBBB")),
    )

    assert one.exact == "media"
    assert one.bypass is None
    assert scope(one) != scope(two)
    assert "AAAA" not in json.dumps(one.request.context)
    assert len(one.request.media) == 1


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.org/live.png"}},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "hologram", "shape": "cube"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}},
    ],
)
def test_other_media_bypass(part: dict[str, Any]) -> None:
    assert parse(chat([{"type": "text", "text": "What is this?"}, part])).bypass == "media"


def test_inline_audio_and_files_match_exactly_where_the_application_says_so() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    parsed = parse(chat([{"type": "text", "text": "What is this?"}, part]), media="exact")

    assert (parsed.bypass, parsed.exact) == (None, "media")
    assert parse(chat([IMAGE, {"type": "text", "text": "What is this?"}]), media="bypass").bypass == "media"


# --- what may not be cached ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "endpoint", "reason"),
    [
        (chat(tools=[{"type": "web_search"}]), "chat", "tools"),
        (chat(web_search_options={}), "chat", "tools"),
        (chat(modalities=["text", "audio"]), "chat", "media"),
        (chat(audio={"voice": "alloy", "format": "wav"}), "chat", "media"),
        (chat(store=True), "chat", "policy"),
        ({"model": "m", "input": "q"}, "responses", "policy"),
        ({"model": "m", "input": "q", "store": None}, "responses", "policy"),
        ({"model": "m", "input": "q", "store": False, "previous_response_id": "resp_1"}, "responses", "opaque"),
        ({"model": "m", "input": "q", "store": False, "conversation": "conv_1"}, "responses", "opaque"),
        ({"model": "m", "input": "q", "store": False, "background": True}, "responses", "policy"),
        ({"model": "m", "input": "q", "store": False, "tools": [{"type": "mcp", "server_url": "u"}]}, "responses", "tools"),
        ({"model": "m", "input": [{"type": "item_reference", "id": "x"}, {"role": "user", "content": "q"}], "store": False}, "responses", "opaque"),
        (chat(temperature="hot"), "chat", "opaque"),
        (chat("  "), "chat", "opaque"),
        ({"model": "m", "messages": []}, "chat", "opaque"),
        ({"model": "m", "messages": ["q"]}, "chat", "opaque"),
        (b"[1, 2]", "chat", "opaque"),
        (b'{"model": "m", ', "chat", "opaque"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "q"}], "temperature": NaN}', "chat", "opaque"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}', "chat", "opaque"),
        (b'{"a":' + b"[" * 400 + b"]" * 400 + b"}", "chat", "opaque"),
        (b"[" * 100_000, "chat", "opaque"),
    ],
)  # fmt: skip
def test_it_bypasses(body: Any, endpoint: Endpoint, reason: str) -> None:
    parsed = parse(body, endpoint)

    assert parsed.bypass == parsed.request.bypass == reason


SERVER_TOOLS = [
    "web_search", "web_search_preview", "file_search", "code_interpreter", "mcp", "computer", "computer_use_preview",
    "image_generation", "local_shell", "shell", "apply_patch", "something_new",
]  # fmt: skip


@pytest.mark.parametrize("kind", SERVER_TOOLS)
def test_a_tool_that_runs_elsewhere_bypasses_and_one_that_the_caller_runs_does_not(kind: str) -> None:
    body = {"model": "m", "input": "q", "store": False, "tools": [{"type": "function", "name": "f"}]}

    assert parse(body, "responses").bypass is None
    assert parse({**body, "tools": [*body["tools"], {"type": kind}]}, "responses").bypass == "tools"  # type: ignore[misc]


def test_the_application_may_cache_responses_that_the_provider_keeps() -> None:
    assert parse({"model": "m", "input": "q"}, "responses", stored_responses=True).bypass is None
    assert parse({"model": "m", "input": "q", "store": False}, "responses").bypass is None


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2},
        {"seed": 0},
        {"logprobs": True},
        {"top_logprobs": 2},
        {"tools": [TOOL], "tool_choice": "required"},
    ],
)
def test_it_matches_exactly_only(more: dict[str, Any]) -> None:
    parsed = parse(chat(**more))

    assert parsed.exact is not None
    assert parsed.request.mode == "exact"
    assert parse(chat(n=1, logprobs=False)).exact is None


def test_prompts_of_many_texts_or_tokens_match_exactly_only() -> None:
    def prompt(value: Any) -> ParsedRequest:
        return parse({"model": "m", "prompt": value}, "completions")

    assert prompt("a").request.prompt == prompt(["a"]).request.prompt == "a"
    several = [prompt(value) for value in (["a", "b"], ["ab"], [1, 2], [[1], [2]], [12])]
    assert len({item.request.prompt for item in several}) == 5
    assert {item.exact for item in several} == {"policy", None}


def test_our_controls_do_not_go_upstream() -> None:
    parsed = parse(chat(cache={"ttl": 60}))
    untouched = json.dumps(chat(), indent=1).encode()

    assert json.loads(parsed.content) == chat()
    assert parsed.controls.ttl == 60
    assert scope(parsed) == scope(parse(chat()))
    assert parse(untouched).content == untouched
    assert "cache" not in json.loads(parse(chat(cache=None)).content)


def test_controls_can_be_turned_off_for_callers_who_may_not_use_them() -> None:
    parsed = parse(chat(cache={"ttl": "nonsense"}), headers={"x-semcache-mode": "off"}, controls=False)

    assert parsed.bypass is None
    assert "cache" not in json.loads(parsed.content)


words = st.sampled_from(
    ["", "a", "text", "type", "role", "user", "content", "data:x", "id", "tools", "\u00e9", "\ud800"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 1e300]) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
field_names = st.sampled_from(
    sorted(
        {*fields.ISOLATED["chat"], *fields.TOOLS, *fields.IGNORED, *fields.TURNS_OF.values(), "x"} - {"cache"}
    )
)


@given(st.dictionaries(field_names, json_values, max_size=6), st.sampled_from(list(PATHS)))
def test_no_body_makes_it_fail(body: dict[str, Any], endpoint: Endpoint) -> None:
    parsed = parse(body, endpoint)

    assert parsed.bypass is not None or scope(parsed)


def test_the_paths_of_other_calls_are_not_ours() -> None:
    assert fields.endpoint_of("POST", "/v1/chat/completions") == "chat"
    assert fields.endpoint_of("POST", "/openai/deployments/x/embeddings/") == "embeddings"
    assert fields.endpoint_of("GET", "/v1/chat/completions") is None
    for path in (
        "/v1/chat/completions/chatcmpl-1",
        "/v1/responses/resp_1/cancel",
        "/v1/models",
        "/v1/audio/speech",
    ):
        assert fields.endpoint_of("POST", path) is None


def test_a_bad_control_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="30s"):
        parse(chat(), headers={"X-Semcache-TTL": "30s"})
