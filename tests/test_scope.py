"""What must match exactly: canonical forms, ids, tags."""

from __future__ import annotations

import hmac
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semcache.errors import ConfigurationError, InvalidRequestError
from semcache.keys import Keys
from semcache.scope import (
    canonical,
    entry_id,
    exact_text,
    given_tags,
    pseudonym,
    raised_generations,
    scope_generations,
    scope_id,
    split_entry_id,
    tag_generations,
    text_id,
)
from semcache.secrets import digest
from semcache.types import CacheRequest

KEY = b"k" * 32
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(texts)
def test_the_exact_text_is_its_own_exact_text(text: str) -> None:
    assert exact_text(exact_text(text)) == exact_text(text)


def test_inner_white_space_matters_and_outer_doesnt() -> None:
    assert exact_text("  if x:\r\n    y\r\n") == "if x:\n    y"
    assert exact_text("a  b") != exact_text("a b")
    assert exact_text("cafe\u0301") == exact_text("caf\u00e9")


@given(json_values)
def test_canonical_is_stable(value: Any) -> None:
    once = canonical(value)

    assert canonical(once) == once
    assert json.loads(json.dumps(once)) is not ...


@given(st.dictionaries(texts, json_values, max_size=5))
def test_the_order_of_keys_doesnt_matter(params: dict[str, Any]) -> None:
    backwards = dict(reversed(list(params.items())))

    assert scope_id(CacheRequest("x", params=params), KEY) == scope_id(
        CacheRequest("y", params=backwards), KEY
    )


def test_null_is_absent_and_zero_is_zero_whatever_its_type() -> None:
    base = scope_id(CacheRequest("x", params={"temperature": 0}), KEY)

    assert scope_id(CacheRequest("x", params={"temperature": 0.0, "top_p": None}), KEY) == base
    assert scope_id(CacheRequest("x"), KEY) != base
    assert scope_id(CacheRequest("x", params={"temperature": False}), KEY) != base


@given(json_values, json_values)
def test_different_values_are_different_scopes(a: Any, b: Any) -> None:
    same = json.dumps(canonical(a), sort_keys=True) == json.dumps(canonical(b), sort_keys=True)
    ids = [scope_id(CacheRequest("x", context=value), KEY) for value in (a, b)]

    assert (ids[0] == ids[1]) == same


@pytest.mark.parametrize("value", [{1: "x"}, {"x": {1, 2}}, [b"x"], float("nan"), float("inf"), object()])
def test_what_isnt_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="in the scope, expected"):
        canonical(value)


def test_fields_cant_run_into_each_other() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("a\x1fb", "c"), ("a", "b\x1fc"), ("", "abc"), ("abc", "")]
    ids = {scope_id(CacheRequest("x", tenant=tenant, model=model), KEY) for tenant, model in pairs}

    assert len(ids) == len(pairs)


def test_ids_are_the_same_in_every_process() -> None:
    code = (
        "from semcache.scope import scope_id, text_id; from semcache.types import CacheRequest; "
        "r = CacheRequest('x', params={'b': 1, 'a': {'d': 1, 'c': 2}}, tools=[{'z': 1, 'y': 2}]); "
        "s = scope_id(r, b'k' * 32); print(s, text_id(s, 'x', b'k' * 32))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }

    assert len(seen) == 1


@given(texts, texts)
def test_entry_ids_split_into_what_they_were_made_of(model: str, version: str) -> None:
    id_ = text_id("s", "t", KEY)
    name = entry_id(model, version, id_)
    parts = split_entry_id(name)

    assert parts[2] == id_
    assert entry_id(model, version, id_) == "/".join(parts)
    assert Keys("n").entry_id(Keys("n").entry(name)) == name


@pytest.mark.parametrize(
    "model", ["name-q6:latest", "openai/gpt-4o", "gpt-4.1", "a" * 400, "{x}", "模型", "a b", ""]
)
def test_odd_model_names_make_good_keys(model: str) -> None:
    name = entry_id(model, "v1", "0" * 32)
    key = Keys("my space:{x}").entry(name)

    assert name.count("/") == 2
    assert key.count("{") == key.count("}") == 1
    assert len(key) < 400


@pytest.mark.parametrize(
    "name", ["", "a/b", "a/b/c", "a/b/" + "0" * 31, "a b/c/" + "0" * 32, "a/b/c/" + "0" * 32, 7]
)
def test_what_isnt_an_entry_id_is_refused(name: Any) -> None:
    with pytest.raises(InvalidRequestError, match="entry id"):
        split_entry_id(name)


@pytest.mark.parametrize("namespace", ["", "x" * 300, None, 7])
def test_what_cant_be_a_namespace_is_refused(namespace: Any) -> None:
    with pytest.raises(ConfigurationError, match="namespace"):
        Keys(namespace)


@pytest.mark.parametrize("tags", ["season", [""], ["x" * 513], [7], [str(n) for n in range(65)]])
def test_odd_tags_are_refused(tags: Any) -> None:
    with pytest.raises(InvalidRequestError, match="tag"):
        given_tags(CacheRequest("x"), tags)


@given(st.sets(texts.filter(bool), max_size=4), texts)
def test_raising_a_tag_reaches_every_entry_that_carries_it(tags: set[str], tenant: str) -> None:
    obeyed = set(tag_generations(tenant, tags)) | set(scope_generations(CacheRequest("x", tenant=tenant)))
    for tag in tags:
        assert set(raised_generations([f"tag:{tag}"], None)) <= obeyed
        assert set(raised_generations([f"tag:{tag}"], tenant)) <= obeyed
    assert set(raised_generations(["all"], tenant)) <= obeyed


@example("", "~", {"x"})
@given(texts, texts, st.sets(texts.filter(bool), min_size=1, max_size=3))
def test_raising_in_one_tenant_reaches_no_other(mine: str, other: str, tags: set[str]) -> None:
    if mine == other:
        return
    theirs = CacheRequest("x", tenant=other, model="m", segment={"a": "b"})
    obeyed = set(tag_generations(other, tags)) | set(scope_generations(theirs))
    bases = ["all", "model:m", "segment:a=b", *(f"tag:{tag}" for tag in tags)]

    assert obeyed.isdisjoint(raised_generations(bases, mine))


def test_a_pseudonym_is_the_same_in_every_process_of_a_namespace_and_says_nothing() -> None:
    first, second = b"k" * 32, b"l" * 32

    assert pseudonym("sk-1", first) == pseudonym("sk-1", first)
    assert pseudonym("sk-1", first) != pseudonym("sk-1", second)
    assert pseudonym("sk-1", first) != pseudonym("sk-2", first)
    assert "sk-1" not in pseudonym("sk-1", first)


@given(st.binary(min_size=1, max_size=80), st.binary(max_size=300))
def test_digests_are_hmacs_cut_to_sixteen_bytes(key: bytes, data: bytes) -> None:
    assert digest(key, data) == hmac.digest(key, data, "sha256")[:16]
