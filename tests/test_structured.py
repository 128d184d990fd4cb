"""What a request's schema admits, and that a caller's schema can't hold up or mislead whoever judges by it."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache import structured
from semcache.structured import Structure, structure_of

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "friend": {"$ref": "#"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('{"name": "Ann", "age": 3}', True),
        ('{"name": "Ann", "age": 3.0, "friend": {"name": "Bob", "age": 4}}', True),
        ('{"name": "Ann", "age": "3"}', False),
        ('{"name": "Ann"}', False),
        ('{"name": "Ann", "age": 3, "more": 1}', False),
        ('{"name": "Ann", "age": 3, "friend": {}}', False),
        ('{"name": "Ann", "age": 3', False),
        ('```json\n{"name": "Ann", "age": 3}\n```', False),
        ('{"name": "\\ud800", "age": 3}', False),
        ("[" * 100_000, False),
        ("", False),
    ],
)
def test_a_schema_admits_what_it_describes(text: str, fits: bool) -> None:
    assert Structure.of(PERSON).admits(text) is fits


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "[NaN]", "nul", "'a'", '"\ud800"'])
def test_what_is_not_json_is_never_admitted(text: str) -> None:
    assert not Structure().admits(text)
    assert not Structure.of({}).admits(text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"$ref": "#/$defs/nowhere"},
        {"$schema": "https://example.com/mine", "type": "object"},
        {"pattern": "("},
        [],
        "object",
    ],
)
def test_a_schema_that_cannot_be_judged_admits_nothing_and_fetches_nothing(schema: Any) -> None:
    assert not Structure.of(schema).admits("{}")


@pytest.mark.parametrize("pattern", ["^(a+)+$", r"^(a|a)*\1$", "^(a|aa)+(?<!b)$", r"^(?=(a+)+b)"])
def test_a_pattern_that_searches_for_ever_is_given_up(pattern: str) -> None:
    structure = Structure.of({"type": "string", "pattern": pattern})
    structure.admits('"a"')
    started = time.perf_counter()

    assert not structure.admits(json.dumps("a" * 60 + "!"))
    assert time.perf_counter() - started < 30.0  # and not for years


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    )
)
def test_a_schema_of_one_value_admits_that_value_and_no_other(value: Any) -> None:
    structure = Structure.of({"const": value})

    assert structure.admits(json.dumps(value))
    assert structure.admits(json.dumps(value, ensure_ascii=False))
    assert not structure.admits(json.dumps([value]))


def test_the_order_of_a_schemas_keys_makes_no_difference() -> None:
    assert Structure.of(PERSON) == Structure.of(dict(reversed(PERSON.items())))


@pytest.mark.parametrize(
    ("fields", "structure"),
    [
        ({}, None),
        ({"response_format": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Structure()),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "P"}}}, Structure()),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "P", "schema": PERSON}}}, Structure.of(PERSON)),
        ({"text": {"format": {"type": "json_schema", "name": "P", "schema": PERSON}}}, Structure.of(PERSON)),
        ({"text": {"format": {"type": "json_object"}}}, Structure()),
        ({"text": {"verbosity": "low"}}, None),
        ({"text": "x"}, None),
    ],
)  # fmt: skip
def test_what_a_request_asks_for_is_read_from_either_api(
    fields: dict[str, Any], structure: Structure | None
) -> None:
    assert structure_of(fields) == structure


def test_without_the_library_schemas_admit_nothing_and_the_log_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    structured._judge.cache_clear()
    schema = Structure.of({"title": "without the library"})

    assert not schema.admits("{}")
    assert not schema.admits("{}")
    assert Structure().admits("{}")
    assert caplog.text.count("llm-semcache[openai]") == 1
    structured._judge.cache_clear()
