"""A cache in shadow mode behind the SDK: upstream answers every time, and the two are compared."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from test_openai_failures import ask, ask_async

from openai_semcache import wrap_openai
from semcache import AsyncSemanticCache, Policy, SemanticCache
from tests.integrations.openai.conftest import encoder
from tests.upstream import Upstream

SHADOW = Policy(deadline=5.0, mode="shadow")


@pytest.mark.parametrize("stream", [False, True])
def test_a_shadow_lets_upstream_answer_and_compares(
    stream: bool, target: str, namespace: str, upstream: Upstream
) -> None:
    with (
        SemanticCache.open(target, namespace=namespace, encoder=encoder(), policy=SHADOW) as cache,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url, max_retries=0), cache) as client,
    ):
        answers = [ask(client, stream=stream) for _ in range(3)]
        stats = cache.stats()

    assert upstream.count == 3
    assert len(set(answers)) == 3  # upstream numbers its answers
    assert (stats.shadow["misses"], stats.shadow["hits"], stats.shadow["differed"]) == (1, 2, 2)
    assert stats.hits == {}


async def test_a_shadow_does_so_for_asynchronous_callers(
    target: str, namespace: str, upstream: Upstream
) -> None:
    cache = await AsyncSemanticCache.open(target, namespace=namespace, encoder=encoder(), policy=SHADOW)
    async with wrap_openai(AsyncOpenAI(api_key="k", base_url=upstream.url), cache) as client:
        raw: Any = client.chat.completions.with_raw_response
        await ask_async(client)
        answer = await raw.create(model="m", messages=[{"role": "user", "content": "another"}])
        again = await raw.create(model="m", messages=[{"role": "user", "content": "another"}])
    stats = await cache.stats()
    await cache.close()

    assert answer.headers["x-semcache-status"] == "miss"
    assert again.headers["x-semcache-status"] == "bypass"
    assert again.headers["x-semcache-reason"] == "bypass:shadow"
    assert stats.shadow["hits"] == 1
