"""llm_strings as LangChain's models write them: identity, settings, what isolates and what must not show."""

from __future__ import annotations

import json
from typing import Any

import httpx
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.caches import BaseCache
from langchain_core.language_models import BaseChatModel, FakeListChatModel, FakeListLLM
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_openai import AzureChatOpenAI, ChatOpenAI, OpenAI
from lc_shared import Spy
from pydantic import BaseModel

from langchain_semcache.llm_string import LlmSettings, parse_llm_string
from langchain_semcache.prompts import parse_prompt
from langchain_semcache.requests import make_request, schemas_by_repr
from semcache.errors import ConfigurationError
from semcache.types import CacheRequest


class Out(BaseModel):
    """An answer."""

    answer: str


class Asked(Exception):
    """Raised instead of calling a model."""


class Stop(Spy):
    def lookup(self, prompt: str, llm_string: str) -> None:
        super().lookup(prompt, llm_string)
        raise Asked


def llm_string(make: Any, bind: Any = None) -> str:
    """Return the llm_string that a model shows its cache; `make` takes the cache."""
    cache = Stop()
    model: Runnable[Any, Any] = make(cache)
    with pytest.raises(Asked):
        (model if bind is None else bind(model)).invoke("Hi")
    return cache.asked[0][1]


def chat(**fields: Any) -> Any:
    fields = {"model": "gpt-4o-mini", "api_key": "sk-none", **fields}
    return lambda cache: ChatOpenAI(cache=cache, **fields)


def settings(make: Any, bind: Any = None, **options: Any) -> LlmSettings:
    return parse_llm_string(llm_string(make, bind), **options)


def request(found: LlmSettings) -> CacheRequest:
    return make_request(parse_prompt("Hi"), found)


def test_a_chat_model_shows_its_name_its_class_and_its_settings() -> None:
    found = settings(chat(temperature=0.2, seed=7, max_tokens=50), lambda model: model.bind(stop=["\n"]))

    assert found.model == "gpt-4o-mini"
    assert found.endpoint == "langchain.chat_models.openai.ChatOpenAI"
    assert {**found.params, "settings": ""} == {
        "temperature": 0.2,
        "seed": 7,
        "max_tokens": 50,
        "stop": ["\n"],
        "settings": "",
    }
    assert not found.opaque


def test_an_absent_temperature_is_not_zero() -> None:
    assert "temperature" not in settings(chat()).params
    assert settings(chat(temperature=0)).params["temperature"] == 0
    assert settings(chat()) != settings(chat(temperature=0))
    assert settings(chat(temperature=0)) == settings(chat(temperature=0.0))
    assert settings(chat(temperature=None)) == settings(chat())


@pytest.mark.parametrize(
    ("fields", "call"),
    [
        ({"temperature": 0.5}, {}),
        ({"max_tokens": 5}, {}),
        ({"base_url": "http://other/v1"}, {}),
        ({"organization": "org"}, {}),
        ({"default_headers": {"X-Route": "eu"}}, {}),
        ({"default_headers": {"Authorization": "Bearer a"}}, {}),
        ({"default_query": {"a": "b"}}, {}),
        ({"extra_body": {"top_k": 3}}, {}),
        ({"model_kwargs": {"logit_shift": {"7": 1}}}, {}),
        ({"use_responses_api": True}, {}),
        ({"output_version": "v1"}, {}),
        ({"reasoning_effort": "low"}, {}),
        ({}, {"stop": ["\n"]}),
        ({}, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        ({}, {"tool_choice": "none"}),
        ({}, {"parallel_tool_calls": False}),
        ({}, {"response_format": {"type": "json_object"}}),
        ({}, {"unheard_of": 1}),
        ({}, {"extra_headers": {"X-Route": "eu"}}),
        ({}, {"model": "gpt-4o"}),
    ],
    ids=str,
)
def test_every_setting_that_is_not_known_to_be_idle_isolates(
    fields: dict[str, Any], call: dict[str, Any]
) -> None:
    plain, other = (
        request(settings(chat())),
        request(settings(chat(**fields), lambda model: model.bind(**call))),
    )

    assert plain != other


@pytest.mark.parametrize(
    ("fields", "call"),
    [
        ({"timeout": 3, "max_retries": 9}, {}),
        ({"streaming": True}, {}),
        ({"stream_usage": True}, {}),
        ({"name": "helper", "tags": ["a"], "metadata": {"b": 1}, "verbose": True}, {}),
        ({"default_headers": {"X-Request-ID": "1", "traceparent": "2", "x-stainless-lang": "py"}}, {}),
        ({}, {"user": "joe"}),
        ({}, {"service_tier": "flex"}),
        ({}, {"prompt_cache_key": "k", "safety_identifier": "s"}),
        ({"api_key": "sk-other"}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_settings_known_to_be_idle_make_no_difference(fields: dict[str, Any], call: dict[str, Any]) -> None:
    assert settings(chat()) == settings(chat(**fields), lambda model: model.bind(**call))


def test_the_client_makes_no_difference() -> None:
    with httpx.Client() as client:
        assert settings(chat()) == settings(chat(http_client=client))


def test_the_application_may_name_more_idle_settings_and_headers() -> None:
    noisy = chat(default_headers={"X-Trace": "1"}, extra_body={"session": 5})

    assert settings(noisy) != settings(chat())
    assert settings(noisy, ignored=["x-trace", "extra_body"]).params.keys() == settings(chat()).params.keys()


def test_a_bound_argument_counts_more_than_the_models_own() -> None:
    found = settings(
        chat(temperature=0.2, model_kwargs={"top_k": 5}), lambda model: model.bind(temperature=0.9)
    )

    assert found.params["temperature"] == 0.9
    assert found.params["top_k"] == 5


def test_an_argument_bound_to_none_is_not_the_models_own() -> None:
    found = settings(chat(temperature=0.2), lambda model: model.bind(temperature=None))

    assert "temperature" not in found.params
    assert found != settings(chat(temperature=0.2))
    assert found != settings(chat())


def test_azure_deployments_and_versions_isolate() -> None:
    def azure(deployment: str, version: str) -> CacheRequest:
        return request(
            settings(
                lambda cache: AzureChatOpenAI(
                    azure_deployment=deployment,
                    azure_endpoint="https://x.openai.azure.com",
                    api_version=version,
                    api_key="k",  # type: ignore[arg-type]
                    cache=cache,
                )
            )
        )

    assert azure("a", "2024-10-01").model == "a"
    assert azure("a", "2024-10-01") == azure("a", "2024-10-01")
    assert len({repr(azure(d, v)) for d in "ab" for v in ("2024-10-01", "2025-01-01")}) == 4


def test_an_llm_shows_its_settings_as_pairs() -> None:
    found = settings(
        lambda cache: OpenAI(model="gpt-3.5-turbo-instruct", api_key="k", temperature=0.7, cache=cache)
    )  # type: ignore[arg-type]

    assert found.model == "gpt-3.5-turbo-instruct"
    assert found.endpoint == "openai"
    assert found.params["temperature"] == 0.7
    assert found.params["n"] == 1
    assert not found.opaque


def test_a_model_without_a_name_is_opaque_to_the_cache() -> None:
    for make in (FakeListChatModel, FakeListLLM):
        found = settings(lambda cache, make=make: make(responses=["a"], cache=cache))

        assert found.model == ""
        assert request(found).opaque
        assert not make_request(parse_prompt("Hi"), found, model="fake").opaque


def test_two_fakes_with_different_answers_do_not_share() -> None:
    def fake(answer: str) -> LlmSettings:
        return settings(lambda cache: FakeListChatModel(responses=[answer], cache=cache))

    assert fake("a") != fake("b")


@pytest.mark.parametrize(
    "text",
    ["Sample LLM string configuration.", "", "{}", "[", '{"id": 1}---[]', '{"id": ["a"]}---oops', "[(1, 2)]", "[1]",
     "{" * 100_000, "[" * 100_000, '{"id": ["a"], "kwargs": {}}', "\ud800", "[('a', 1)] or [('b', 2)]"],
)  # fmt: skip
def test_text_of_neither_form_isolates_as_a_whole_and_is_opaque(text: str) -> None:
    found = parse_llm_string(text)

    assert found.opaque
    assert found != parse_llm_string(text + "x")


@hypothesis.settings(deadline=None)
@given(st.text() | st.text(alphabet="[]()'\"<>,{}:\\ ab1-x"))
def test_no_text_makes_it_raise(text: str) -> None:
    parse_llm_string(text)
    parse_llm_string(f"[('a', {text})]")
    parse_llm_string('{"id": ["a"], "kwargs": {"b": 1}}---' + text)


def test_a_separator_inside_a_value_does_not_confuse_it() -> None:
    found = settings(chat(model="a---b"), lambda model: model.bind(stop=["---[('x', 1)]"]))

    assert found.model == "a---b"
    assert found.params["stop"] == ["---[('x', 1)]"]


SECRET = "Bearer abcdef-123456"


@pytest.mark.parametrize(
    "text",
    [
        llm_string(chat(default_headers={"Authorization": SECRET})),
        llm_string(chat(), lambda model: model.bind(extra_headers={"Authorization": SECRET})),
        llm_string(chat(model_kwargs={"extra_headers": {"Authorization": SECRET}})),
        llm_string(chat(extra_body={"token": SECRET})),
        f"[('_type', 'x'), ('api_key', '{SECRET}')]",
        f"[('_type', 'x'), ('client', Client(headers={{'Authorization': '{SECRET}'}}))]",
        f"[('_type', 'x'), ('thing', Thing(headers={{'Authorization': '{SECRET}'}}))]",
        f"unreadable {SECRET}",
    ],
)
def test_nothing_secret_is_left_in_the_request(text: str) -> None:
    shown = repr(request(parse_llm_string(text)))

    assert "abcdef" not in shown
    assert "123456" not in shown


class Thing:
    pass


def test_addresses_of_objects_make_no_difference() -> None:
    def with_thing() -> LlmSettings:
        return settings(chat(), lambda model: model.bind(thing=Thing(), stop=["a"]))

    first, second = with_thing(), with_thing()

    assert first == second
    assert first.opaque
    assert first.model == "gpt-4o-mini"
    assert first.params["stop"] == ["a"]


def test_an_object_in_an_idle_setting_does_not_make_it_opaque() -> None:
    found = parse_llm_string("[('_type', 'x'), ('client', <Client object at 0x7f01>), ('model', 'm')]")

    assert not found.opaque
    assert found.model == "m"


@pytest.mark.parametrize(
    "value",
    ["<Color.RED: 1>", "<bound method X.f of <X object at 0x1>>", "Thing(x=<Y at 0x1>)", "inf", "f()",
     "[1, <Y at 0x7f>]", "{'a': <Y>}"],
)  # fmt: skip
def test_a_value_that_is_not_data_is_opaque_but_keeps_its_neighbours(value: str) -> None:
    found = parse_llm_string(f"[('_type', 'x'), ('model', 'm'), ('thing', {value}), ('top_p', 0.5)]")

    assert found.opaque
    assert (found.model, found.params["top_p"]) == ("m", 0.5)
    assert found != parse_llm_string("[('_type', 'x'), ('model', 'm'), ('thing', <Other>), ('top_p', 0.5)]")


def test_angle_brackets_inside_text_are_text() -> None:
    text = "[('_type', 'x'), ('model', 'm'), ('stop', ['<a>', \"it's <b> at 0x1\", '\\'<c>'])]"
    found = parse_llm_string(text)

    assert not found.opaque
    assert found.params["stop"] == ["<a>", "it's <b> at 0x1", "'<c>"]


def test_an_object_that_cannot_be_serialised_is_opaque() -> None:
    head = {
        "id": ["a", "B"],
        "kwargs": {"model": "m", "x": {"lc": 1, "type": "not_implemented", "id": ["c"]}},
    }

    assert parse_llm_string(json.dumps(head) + "---[('stop', None)]").opaque


def structured(method: str, schema: Any = Out) -> LlmSettings:
    return settings(chat(), lambda model: model.with_structured_output(schema, method=method))


def test_a_response_schema_known_by_name_only_turns_the_cache_off() -> None:
    found = structured("json_schema")

    assert found.schemaless == (repr(Out),)
    assert request(found).mode == "off"


def test_a_registered_response_schema_isolates_by_content() -> None:
    class Old(BaseModel):
        x: int

    class New(BaseModel):
        x: str

    text = llm_string(chat(), lambda model: model.with_structured_output(Old, method="json_schema"))
    schemas: dict[str, Any] = dict(schemas_by_repr([Old]))
    found = parse_llm_string(text, schemas=schemas)
    changed = parse_llm_string(text, schemas={repr(Old): next(iter(schemas_by_repr([New]).values()))})

    assert not found.opaque
    assert not found.schemaless
    assert request(found).mode == "semantic"
    assert found != changed


def test_schemas_given_as_tools_or_as_json_need_no_registration() -> None:
    called, written = structured("function_calling"), structured("json_mode")

    assert not called.opaque
    assert called.tools is not None
    assert not written.opaque
    assert called != written
    assert structured("json_schema", Out.model_json_schema()).schemaless == ()


def test_two_tool_schemas_isolate() -> None:
    class Other(BaseModel):
        """An answer."""

        answer: int

    Other.__name__ = "Out"

    assert structured("function_calling") != structured("function_calling", Other)


def test_two_classes_of_one_name_are_refused() -> None:
    def make(kind: type) -> type[BaseModel]:
        class Local(BaseModel):
            x: kind  # type: ignore[valid-type]

        return Local

    with pytest.raises(ConfigurationError, match="two classes named"):
        schemas_by_repr([make(int), make(str)])
    with pytest.raises(ConfigurationError, match="Pydantic model"):
        schemas_by_repr([Thing])


@pytest.mark.parametrize(
    ("fields", "call"),
    [
        ({"store": True}, {}),
        ({}, {"store": True}),
        ({}, {"previous_response_id": "resp_1"}),
        ({"use_previous_response_id": True}, {}),
        ({}, {"background": True}),
        ({}, {"tools": [{"type": "web_search"}]}),
        ({}, {"web_search_options": {}}),
        ({}, {"tools": [{"google_search": {}}]}),
        ({}, {"tools": [{"type": "mcp", "server_label": "x"}]}),
    ],
    ids=str,
)
def test_state_and_tools_at_the_provider_turn_the_cache_off(
    fields: dict[str, Any], call: dict[str, Any]
) -> None:
    assert request(settings(chat(**fields), lambda model: model.bind(**call))).mode == "off"


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "f", "parameters": {}}},
        {"type": "function", "name": "f"},
        {"name": "f", "input_schema": {}},
        {"type": "custom", "name": "f"},
        {"toolSpec": {"name": "f"}},
        {"function_declarations": []},
    ],
    ids=str,
)
def test_tools_that_the_application_runs_do_not(tool: dict[str, Any]) -> None:
    assert request(settings(chat(), lambda model: model.bind(tools=[tool]))).mode == "semantic"
    assert request(settings(chat(), lambda model: model.bind(store=False))).mode == "semantic"


def test_the_order_of_keys_makes_no_difference() -> None:
    def tools(*keys: str) -> LlmSettings:
        function = {key: {"name": "f", "description": "d", "parameters": {}}[key] for key in keys}
        return settings(chat(), lambda model: model.bind(x={"function": function}))

    assert tools("name", "description", "parameters") == tools("parameters", "name", "description")


class Nameless(BaseChatModel):
    """A model whose identity isn't among its identifying parameters."""

    hidden: str = ""

    @property
    def _llm_type(self) -> str:
        return "nameless"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.hidden))])


def test_a_model_that_hides_its_name_needs_one_from_the_application() -> None:
    found = settings(lambda cache: Nameless(hidden="a", cache=cache))

    assert request(found).opaque
    assert make_request(parse_prompt("Hi"), found, model="a") != make_request(
        parse_prompt("Hi"), found, model="b"
    )


def test_the_spy_is_a_cache() -> None:
    assert isinstance(Spy(), BaseCache)
