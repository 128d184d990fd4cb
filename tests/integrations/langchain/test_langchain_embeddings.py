"""LangChain embeddings: remembered by the cache, and as the cache's encoder."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_openai import OpenAIEmbeddings
from lc_shared import HEAP, HOURS, RESET, RESET_AGAIN
from pydantic import BaseModel

from langchain_semcache import LangChainEncoder, SemcacheEmbeddings
from semcache import AsyncSemanticCache, CacheRequest, ConfigurationError, EncoderError, Policy, SemanticCache
from semcache.protocols import Encoder
from semcache.testing import TableEncoder
from tests.upstream import Upstream


class Counting(BaseModel, Embeddings):
    """Gives each text a vector of its own, and notes what it was asked."""

    model: str = "counting-1"
    scale: float = 1.0
    asked: list[list[str]] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        return [[self.scale * len(text), 0.1, -1e-9, float(ord(text[0]) if text else 0)] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.asked.append([f"query {text}"])
        return [float(len(text)), 9.0]


def make(cache: Any, inner: Embeddings | None = None, **options: Any) -> tuple[SemcacheEmbeddings, Counting]:
    counting = Counting() if inner is None else inner
    assert isinstance(counting, Counting)
    counting.asked = []
    return SemcacheEmbeddings(counting, cache, **options), counting


def test_a_batch_asks_for_what_is_missing_and_keeps_its_order(cache: SemanticCache) -> None:
    ours, inner = make(cache)
    first = ours.embed_documents(["a"])
    found = ours.embed_documents(["bb", "a", "ccc", "a", "bb"])

    assert inner.asked == [["a"], ["bb", "ccc"]]
    assert found == Counting().embed_documents(["bb", "a", "ccc", "a", "bb"])
    assert found[1] == first[0]
    found[1].append(7.0)
    assert found[3] == first[0]


def test_vectors_come_back_exactly_as_they_were(cache: SemanticCache) -> None:
    odd = [0.1, 1 / 3, -1e-300, 5e-324, 1e308, 0.0, -0.0]
    short = [float(np.float32(0.1)), 1.5]

    class Odd(Counting):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [odd, short][: len(texts)]

    ours, _ = make(cache, Odd())
    new, again = ours.embed_documents(["a", "b"]), ours.embed_documents(["a", "b"])

    assert new == again == [odd, short]
    assert math.copysign(1, again[0][-1]) == -1


def test_queries_and_documents_are_apart(cache: SemanticCache) -> None:
    ours, inner = make(cache)
    ours.embed_documents(["a"])

    assert ours.embed_query("a") == ours.embed_query("a") == [1.0, 9.0]
    assert inner.asked == [["a"], ["query a"]]


async def test_the_same_awaited(acache: AsyncSemanticCache) -> None:
    ours, inner = make(None, async_cache=acache)
    await ours.aembed_documents(["a"])
    found = await ours.aembed_documents(["bb", "a", "ccc", "a"])
    query = [await ours.aembed_query("a") for _ in range(2)]

    assert inner.asked == [["a"], ["bb", "ccc"], ["query a"]]
    assert found == Counting().embed_documents(["bb", "a", "ccc", "a"])
    assert query == [[1.0, 9.0]] * 2


async def test_either_cache_serves_both_kinds_of_callers(cache: SemanticCache) -> None:
    ours, inner = make(cache)
    ours.embed_documents(["a"])
    await ours.aembed_documents(["a"])

    assert inner.asked == [["a"]]


@pytest.mark.parametrize("other", [{"model": "counting-2"}, {"scale": 2.0}], ids=str)
def test_another_model_or_setting_has_its_own_vectors(cache: SemanticCache, other: dict[str, Any]) -> None:
    ours, _ = make(cache)
    theirs, inner = make(cache, Counting(**other))
    ours.embed_documents(["a"])
    theirs.embed_documents(["a"])

    assert inner.asked == [["a"]]


def test_tenants_share_no_vectors_if_there_are_tenants(cache: SemanticCache) -> None:
    ours, _ = make(cache, tenant="acme")
    theirs, inner = make(cache, tenant=lambda: "globex")
    ours.embed_documents(["a"])
    theirs.embed_documents(["a"])

    assert inner.asked == [["a"]]


def test_texts_are_told_apart_by_every_character(cache: SemanticCache) -> None:
    ours, inner = make(cache)
    texts = ["a", " a", "a ", "A", "\u00e9", "e\u0301", "", "\ud800"]
    ours.embed_documents(texts)
    ours.embed_documents(texts)

    assert inner.asked == [texts]


def test_without_a_server_every_text_is_asked_for() -> None:
    with SemanticCache.open(
        "redis://127.0.0.1:1/0", encoder=TableEncoder(HEAP), policy=Policy(threshold=0.9)
    ) as away:
        ours, inner = make(away)

        assert ours.embed_documents(["a", "a"]) == ours.embed_documents(["a", "a"])
        assert ours.embed_query("a")
        assert inner.asked == [["a"], ["a"], ["query a"]]


def test_an_error_of_the_model_is_the_callers(cache: SemanticCache) -> None:
    class Failing(Counting):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise OSError("no")

    ours, _ = make(cache, Failing())
    with pytest.raises(OSError, match="no"):
        ours.embed_documents(["a"])


def test_a_model_that_gives_too_few_vectors_is_passed_on_as_it_is(cache: SemanticCache) -> None:
    class Lazy(Counting):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return super().embed_documents(texts)[:1]

    ours, _ = make(cache, Lazy())

    assert len(ours.embed_documents(["a", "b"])) == 1
    assert not list(cache.entries())


def test_vectors_that_are_not_numbers_are_not_stored(cache: SemanticCache) -> None:
    class Broken(Counting):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[math.nan]] * len(texts)

    ours, _ = make(cache, Broken())

    assert len(ours.embed_documents(["a", "b"])) == 2
    assert not list(cache.entries())


def test_no_text_reaches_the_store(cache: SemanticCache) -> None:
    ours, _ = make(cache)
    ours.embed_documents(["my secret diary"])
    [entry] = list(cache.entries())

    assert "diary" not in repr(entry)


def test_the_real_sdk_is_asked_for_missing_texts_only(cache: SemanticCache, upstream: Upstream) -> None:
    inner = OpenAIEmbeddings(
        model="text-embedding-3-small", api_key="k", base_url=upstream.url, check_embedding_ctx_length=False  # type: ignore[arg-type]
    )  # fmt: skip
    ours = SemcacheEmbeddings(inner, cache)
    first = ours.embed_documents(["a", "b"])
    second = ours.embed_documents(["b", "c", "a"])

    assert upstream.count == 2
    assert upstream.last.body["input"] == ["c"]
    assert [second[2], second[0]] == first
    assert inner.embed_documents(["b"]) == [second[0]]


def test_embeddings_that_do_not_say_their_model_need_a_name(cache: SemanticCache) -> None:
    nameless = DeterministicFakeEmbedding(size=8)
    with pytest.raises(ConfigurationError, match="model"):
        SemcacheEmbeddings(nameless, cache)
    with pytest.raises(ConfigurationError, match="model"):
        LangChainEncoder(nameless, dim=8)

    assert SemcacheEmbeddings(nameless, cache, model="fake").embed_query("a")


class Table(Embeddings):
    """Vectors that aren't of unit length."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[3.0 * x for x in HEAP[text]] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return list(HEAP[text])


def test_langchain_embeddings_are_an_encoder() -> None:
    encoder = LangChainEncoder(Table(), dim=4, name="table", max_chars=50)
    rows = encoder.encode([RESET, "", HOURS, "x" * 51])

    assert isinstance(encoder, Encoder)
    assert rows.dtype == np.float32
    assert rows.shape == (4, 4)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(rows[0], HEAP[RESET], atol=1e-6)
    assert [limits.over_window for limits in encoder.inspect(["x" * 50, "x" * 51])] == [False, True]
    assert encoder.encode([]).shape == (0, 4)
    np.testing.assert_allclose(
        LangChainEncoder(Table(), dim=4, name="table", queries=True).encode([RESET]), rows[:1], atol=1e-6
    )


def test_what_changes_an_embedding_changes_the_fingerprint() -> None:
    prints = {
        LangChainEncoder(Counting(), dim=4).fingerprint,
        LangChainEncoder(Counting(model="counting-2"), dim=4).fingerprint,
        LangChainEncoder(Counting(scale=2.0), dim=4).fingerprint,
        LangChainEncoder(Counting(), dim=3).fingerprint,
        LangChainEncoder(Counting(), dim=4, queries=True).fingerprint,
        LangChainEncoder(Counting(), dim=4, name="other").fingerprint,
    }

    assert len(prints) == 6
    assert all(set(p) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-") for p in prints)
    assert LangChainEncoder(Counting(), dim=4).fingerprint in prints


def test_what_is_wrong_with_embeddings_is_an_encoder_error() -> None:
    class Failing(Table):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise OSError("no")

    class Ragged(Table):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[1.0] * (n + 1) for n, _ in enumerate(texts)]

    class Broken(Table):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[math.nan] * 4 for _ in texts]

    for inner, dim in ((Failing(), 4), (Ragged(), 4), (Broken(), 4), (Table(), 5)):
        with pytest.raises(EncoderError):
            LangChainEncoder(inner, dim=dim, name="x").encode([RESET, HOURS])
    with pytest.raises(ConfigurationError, match="dim"):
        LangChainEncoder(Table(), dim=0, name="x")


def test_the_cache_finds_paraphrases_with_langchain_embeddings(redis_url: str, namespace: str) -> None:
    encoder = LangChainEncoder(Table(), dim=4, name="table")
    policy = Policy(threshold=0.9, deadline=5.0)
    with SemanticCache.open(redis_url, namespace=namespace, policy=policy, encoder=encoder) as cache:
        cache.put(CacheRequest(RESET, model="m"), "Open Settings.")
        found = cache.lookup(CacheRequest(RESET_AGAIN, model="m"))

        assert found
        assert not cache.lookup(CacheRequest(HOURS, model="m"))
