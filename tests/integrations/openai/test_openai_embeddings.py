"""Embeddings through the real SDK: per item, exact, misses only upstream."""

from __future__ import annotations

import base64
import struct
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from openai_semcache import Options, wrap_openai
from semcache import SemanticCache
from tests.upstream import Behaviour, Upstream, embedding_of


def embed(client: OpenAI, value: Any, **more: Any) -> Any:
    return client.embeddings.create(model="e", input=value, **more)


def same_rows(answer: Any, *items: Any) -> bool:
    """Whether the answer has the items' embeddings in their order, up to the precision of float32."""
    rows = sorted(answer.data, key=lambda row: row.index)
    return [row.index for row in answer.data] == list(range(len(items))) and all(
        row.embedding == pytest.approx(embedding_of(item), abs=1e-6)
        for row, item in zip(rows, items, strict=True)
    )


def test_a_partly_stored_batch_asks_upstream_for_the_rest(client: OpenAI, upstream: Upstream) -> None:
    embed(client, "a")
    answer = embed(client, ["b", "a", "c", "a"])
    again = client.embeddings.with_raw_response.create(model="e", input=["a", "c", "b"])

    assert upstream.count == 2
    assert upstream.last.body["input"] == ["b", "c"]
    assert same_rows(answer, "b", "a", "c", "a")
    assert same_rows(again.parse(), "a", "c", "b")
    assert again.headers["x-semcache-status"] == "hit"


def test_duplicates_are_sent_once(client: OpenAI, upstream: Upstream) -> None:
    assert same_rows(embed(client, ["x", "x", "y", "x"]), "x", "x", "y", "x")
    assert upstream.last.body["input"] == ["x", "y"]


def test_usage_on_a_hit_is_what_was_paid(client: OpenAI, upstream: Upstream) -> None:
    batch = ["one text", "a longer text than the first one", "x"]
    first, hit = embed(client, batch), embed(client, batch)

    assert first.usage == hit.usage
    assert embed(client, "a single text").usage == embed(client, "a single text").usage
    assert upstream.count == 2


@pytest.mark.parametrize("first", [None, "float", "base64"])
@pytest.mark.parametrize("second", [None, "float", "base64"])
def test_an_embedding_is_given_in_the_encoding_asked_for(
    first: Any, second: Any, client: OpenAI, upstream: Upstream
) -> None:
    def ask(encoding: str | None) -> Any:
        more: Any = {} if encoding is None else {"encoding_format": encoding}
        value = embed(client, ["a", "b"], **more).data[1].embedding
        return list(struct.unpack("<8f", base64.b64decode(value))) if isinstance(value, str) else value

    one, two = ask(first), ask(second)

    assert one == pytest.approx(two, abs=1e-6)
    assert two == pytest.approx(embedding_of("b"), abs=1e-6)
    if second == "float":
        assert two == embedding_of("b")
    assert upstream.count == 1


def test_white_space_and_kind_tell_texts_apart(client: OpenAI, upstream: Upstream) -> None:
    values: list[Any] = ["a", " a", "a\n", [1, 2], "[1, 2]"]
    for value in values * 2:
        assert same_rows(embed(client, value), value)

    assert upstream.count == len(values)


def test_tokens_are_items_too(client: OpenAI, upstream: Upstream) -> None:
    embed(client, [1, 2, 3])
    assert same_rows(embed(client, [[4, 5], [1, 2, 3]]), [4, 5], [1, 2, 3])
    assert upstream.last.body["input"] == [[4, 5]]


def test_dimensions_and_models_isolate(client: OpenAI, upstream: Upstream) -> None:
    embed(client, "a")
    embed(client, "a", dimensions=4)
    client.embeddings.create(model="f", input="a")

    assert upstream.count == 3


def test_time_bound_texts_are_embedded_from_the_cache_all_the_same(
    client: OpenAI, upstream: Upstream
) -> None:
    for _ in range(2):
        embed(client, "What is the weather today?")

    assert upstream.count == 1


def test_an_error_for_the_rest_is_the_callers(client: OpenAI, upstream: Upstream) -> None:
    embed(client, "a")
    upstream.next(Behaviour(status=429))
    with pytest.raises(openai.RateLimitError):
        embed(client, ["a", "b"])

    assert same_rows(embed(client, ["a", "b"]), "a", "b")


def test_an_upstream_that_does_not_answer_row_by_row_is_asked_for_the_whole(
    client: OpenAI, cache: SemanticCache, upstream: Upstream
) -> None:
    embed(client, "a")
    upstream.next(Behaviour(more={"data": []}))

    assert same_rows(embed(client, ["a", "b"]), "a", "b")
    assert [call.body["input"] for call in upstream.calls] == ["a", ["b"], ["a", "b"]]
    assert len(list(cache.entries())) == 1


def test_large_batches_go_upstream_whole(cache: SemanticCache, upstream: Upstream) -> None:
    with wrap_openai(
        OpenAI(api_key="k", base_url=upstream.url), cache, options=Options(max_embedding_items=2)
    ) as client:
        for _ in range(2):
            raw = client.embeddings.with_raw_response.create(model="e", input=["a", "b", "c"])
        embed(client, ["a", "b", "a"])

    assert raw.headers["x-semcache-status"] == "bypass"
    assert upstream.count == 3


def test_a_batch_with_the_longest_stored_item_tells_its_age_and_the_rest_its_reason(client: OpenAI) -> None:
    embed(client, "a")
    raw = client.embeddings.with_raw_response.create(model="e", input=["a", "b"])

    assert raw.headers["x-semcache-status"] == "miss"
    assert raw.headers["cache-status"] == "semcache; fwd=partial; stored; detail=no_candidate"


async def test_asynchronous_batches_work_alike(async_client: AsyncOpenAI, upstream: Upstream) -> None:
    items = [f"text {number}" for number in range(40)]
    await async_client.embeddings.create(model="e", input=items[:20])
    answer = await async_client.embeddings.create(model="e", input=items)

    assert same_rows(answer, *items)
    assert upstream.last.body["input"] == items[20:]
