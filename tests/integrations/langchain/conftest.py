"""A cache over a real server, and an OpenAI-compatible server that counts its calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from lc_shared import HEAP, Chat

from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.testing import TableEncoder
from tests.upstream import Upstream

POLICY = Policy(threshold=0.9, deadline=5.0, local_bound=0.0)


@pytest.fixture
def encoder() -> TableEncoder:
    return TableEncoder(HEAP)


@pytest.fixture
def cache(redis_url: str, namespace: str, encoder: TableEncoder) -> Iterator[SemanticCache]:
    with SemanticCache.open(redis_url, namespace=namespace, policy=POLICY, encoder=encoder) as cache:
        yield cache


@pytest.fixture
async def acache(redis_url: str, namespace: str, encoder: TableEncoder) -> AsyncIterator[AsyncSemanticCache]:
    async with await AsyncSemanticCache.open(
        redis_url, namespace=namespace, policy=POLICY, encoder=encoder
    ) as cache:
        yield cache


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(keep_alive=False) as server:
        yield server


@pytest.fixture
def chat(upstream: Upstream) -> Chat:
    """Makes chat models of the real SDK against the local server."""

    def make(**fields: Any) -> ChatOpenAI:
        settings = {"model": "gpt-4o-mini", "api_key": "sk-none", "base_url": upstream.url, "max_retries": 0}
        return ChatOpenAI(**{**settings, **fields})

    return make
