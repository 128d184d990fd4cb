"""Batches of embeddings, item by item."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from openai_semcache.embeddings import Batch, answer_of, batch_of, item_of, missing_body, stored_items
from openai_semcache.requests import parse_request
from semcache.types import Response

URL = "http://upstream/v1/embeddings"


def batch(value: Any, **more: Any) -> Batch:
    body = {"model": "e", "input": value, **more}
    parsed = parse_request("embeddings", "POST", URL, {}, json.dumps(body).encode())
    made = batch_of(parsed, most=100)
    assert made is not None
    return made


def upstream(items: Batch, missing: list[str], tokens: int, encoding: str = "float") -> dict[str, Any]:
    rows = []
    for at, key in enumerate(missing):
        row = [0.5, float(len(str(items.items[key])))]
        embedding: Any = (
            row if encoding == "float" else base64.b64encode(np.asarray(row, "<f4").tobytes()).decode()
        )
        rows.append({"object": "embedding", "index": at, "embedding": embedding})
    return {
        "object": "list",
        "model": "e-1",
        "data": rows[::-1],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def serve(items: Batch, stored: dict[str, Response], encoding: str = "float") -> dict[str, Any]:
    found = {key: item_of(stored[key], encoding) for key in items.requests}
    return answer_of(items, {key: item for key, item in found.items() if item is not None}, model="e")


def test_a_partly_stored_batch_asks_for_the_rest_and_keeps_the_order() -> None:
    items = batch(["bb", "a", "cccc", "a"])
    keys = list(items.requests)
    stored = stored_items(upstream(items, [keys[1]], 1), items, [keys[1]])
    assert stored is not None
    body = missing_body({"model": "e", "input": ["bb", "a", "cccc", "a"]}, items, [keys[0], keys[2]])
    rest = stored_items(upstream(items, [keys[0], keys[2]], 6), items, [keys[0], keys[2]])
    assert rest is not None
    answer = serve(items, {**stored, **rest})

    assert body == {"model": "e", "input": ["bb", "cccc"]}
    assert [(row["index"], row["embedding"][1]) for row in answer["data"]] == [
        (0, 2.0),
        (1, 1.0),
        (2, 4.0),
        (3, 1.0),
    ]
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert answer["model"] == "e-1"


def test_the_encodings_are_made_from_each_other() -> None:
    items = batch(["a"])
    numbers = [0.0023064255, -0.009327292, 1.0]
    packed = base64.b64encode(np.asarray(numbers, "<f4").tobytes()).decode()
    as_float = Response(json.dumps(numbers), data={"form": "float", "tokens": 1})
    as_base64 = Response(packed, data={"form": "base64", "tokens": 1})
    key = next(iter(items.requests))

    assert serve(items, {key: as_float})["data"][0]["embedding"] == numbers
    assert serve(items, {key: as_float}, "base64")["data"][0]["embedding"] == packed
    assert serve(items, {key: as_base64}, "base64")["data"][0]["embedding"] == packed
    assert serve(items, {key: as_base64})["data"][0]["embedding"] == numbers


def test_a_batch_repeated_in_full_has_the_first_usage() -> None:
    items = batch(["one text", "a longer text than that", "x"])
    keys = list(items.requests)
    stored = stored_items(upstream(items, keys, 11), items, keys)
    assert stored is not None

    assert serve(items, stored)["usage"]["prompt_tokens"] == 11


def test_items_are_told_apart_by_their_exact_text_and_kind() -> None:
    different = ["a", " a", "a ", "A", "[1,2]", "é", "e\u0301"]
    items = batch(different)

    assert len(set(items.keys)) == len(different)
    assert batch([1, 2]).keys != batch("[1,2]").keys
    assert batch([1, 2]).keys == batch([[1, 2]]).keys
    assert batch("a").keys == batch(["a"]).keys
    assert all("one text" not in request.prompt for request in batch("one text").requests.values())


def test_dimensions_and_model_isolate_and_the_encoding_does_not() -> None:
    def scope_parts(**more: Any) -> tuple[Any, Any]:
        request = next(iter(batch("a", **more).requests.values()))
        return request.model, dict(request.params)

    assert scope_parts() == scope_parts(encoding_format="base64")
    assert scope_parts() != scope_parts(dimensions=8)
    assert scope_parts() != scope_parts(model="f")


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ([], {}),
        (None, {}),
        (["a", 1], {}),
        ([[]], {}),
        ({"a": 1}, {}),
        ("a", {"encoding_format": "int8"}),
        ([str(n) for n in range(101)], {}),
    ],
)
def test_what_cannot_be_split_goes_upstream_whole(value: Any, more: dict[str, Any]) -> None:
    body = {"model": "e", "input": value, **more}
    parsed = parse_request("embeddings", "POST", URL, {}, json.dumps(body).encode())

    assert batch_of(parsed, most=100) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer.update(error={"message": "x"}),
        lambda answer: answer["data"].pop(),
        lambda answer: answer["data"][0].update(index=7),
        lambda answer: answer["data"][0].update(index=0) or answer["data"][1].update(index=0),
        lambda answer: answer["data"][0].update(embedding=[]),
        lambda answer: answer["data"][0].update(embedding=None),
        lambda answer: answer.update(data=None),
    ],
)
def test_an_answer_that_is_not_one_row_per_item_is_not_stored(change: Any) -> None:
    items = batch(["a", "b"])
    answer = upstream(items, list(items.requests), 2)
    change(answer)

    assert stored_items(answer, items, list(items.requests)) is None


@pytest.mark.parametrize(
    "stored",
    [
        Response("!", data={"form": "base64"}),
        Response("[1,", data={"form": "float"}),
        Response("[]"),
        Response("x", data={"form": "int8"}),
        Response("abcde", data={"form": "base64"}),
    ],
)
def test_a_damaged_item_is_missing(stored: Response) -> None:
    assert item_of(stored, "float") is None
