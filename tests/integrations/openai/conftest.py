"""Caches and SDK clients over the server of `tests.upstream`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import numpy as np
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAI

from openai_semcache import wrap_openai
from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.matching import ThresholdMatcher
from semcache.testing import HashEncoder
from semcache.types import Embeddings
from tests.upstream import Upstream

RESET = "How do I reset my password?"
RESET_TOO = "How can I reset my password?"  # similarity 0.98 to RESET
OTHER = "Where is my invoice?"


class NearEncoder(HashEncoder):
    """As `HashEncoder`, but RESET_TOO has similarity 0.98 to RESET; all other texts are far from each other."""

    def encode(self, texts: Sequence[str]) -> Embeddings:
        rows = super().encode(texts)
        for at, text in enumerate(texts):
            if text == RESET_TOO:
                near = super().encode([RESET])[0]
                away = rows[at] - (rows[at] @ near) * near
                rows[at] = 0.98 * near + 0.199 * away / np.linalg.norm(away)
                rows[at] /= np.linalg.norm(rows[at])
        return rows


def encoder() -> NearEncoder:
    return NearEncoder(64)


@pytest.fixture(autouse=True)
def fresh_upstream(upstream: Upstream) -> None:
    upstream.reset()


@pytest.fixture(params=["memory", "redis"])
def target(request: pytest.FixtureRequest) -> str:
    """Where the cache's entries live."""
    return "memory://" if request.param == "memory" else str(request.getfixturevalue("redis_url"))


@pytest.fixture
def cache(target: str, namespace: str) -> Iterator[SemanticCache]:
    policy, matcher = Policy(deadline=5.0), ThresholdMatcher(0.9)
    with SemanticCache.open(
        target, namespace=namespace, policy=policy, encoder=encoder(), matcher=matcher
    ) as cache:
        yield cache


@pytest_asyncio.fixture
async def async_cache(target: str, namespace: str) -> AsyncIterator[AsyncSemanticCache]:
    policy, matcher = Policy(deadline=5.0), ThresholdMatcher(0.9)
    cache = await AsyncSemanticCache.open(
        target, namespace=namespace, policy=policy, encoder=encoder(), matcher=matcher
    )
    yield cache
    await cache.close()


@pytest.fixture
def client(upstream: Upstream, cache: SemanticCache) -> Iterator[OpenAI]:
    """An SDK client with a cache."""
    with OpenAI(api_key="sk-test", base_url=upstream.url, max_retries=0) as client:
        yield wrap_openai(client, cache)


@pytest_asyncio.fixture
async def async_client(upstream: Upstream, async_cache: AsyncSemanticCache) -> AsyncIterator[AsyncOpenAI]:
    """An asynchronous SDK client with a cache."""
    async with AsyncOpenAI(api_key="sk-test", base_url=upstream.url, max_retries=0) as client:
        yield wrap_openai(client, async_cache)
