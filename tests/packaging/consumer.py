"""Not run: mypy checks this against the installed wheel. What a program would rely on, each with its type."""

from __future__ import annotations

from typing import assert_type

from semcache import (
    Answer,
    AsyncSemanticCache,
    CacheRequest,
    FeedbackResult,
    Fence,
    Hit,
    Miss,
    Policy,
    Response,
    SemanticCache,
    Stored,
)
from semcache.stores.embedded import EmbeddedServer


def call_model(request: CacheRequest) -> str:
    return f"an answer to {request.prompt}"


async def call_model_later(request: CacheRequest) -> Response:
    return Response(f"an answer to {request.prompt}", confidence=0.9)


def synchronous() -> None:
    with SemanticCache.open("memory://", policy=Policy(threshold=0.9)) as cache:
        assert_type(cache, SemanticCache)
        found = cache.lookup("How?")
        assert_type(found, Hit | Miss)
        if isinstance(found, Hit):
            assert_type(found.response, Response)
            assert_type(found.lookup_id, str)
            assert_type(cache.feedback(found.lookup_id, -1, rater="ann"), FeedbackResult)
        else:
            assert_type(found.reason, str)
            assert_type(found.fence, Fence | None)
            assert_type(cache.put("How?", "So.", fence=found.fence, tags={"season:autumn"}), Stored)
        answer = cache.get_or_compute(CacheRequest("How?", model="m"), call_model)
        assert_type(answer, Answer)
        assert_type(answer.text, str)


async def asynchronous() -> None:
    async with await AsyncSemanticCache.open("memory://") as cache:
        assert_type(cache, AsyncSemanticCache)
        assert_type(await cache.lookup("How?"), Hit | Miss)
        assert_type(await cache.get_or_compute("How?", call_model_later), Answer)
        async for entry in cache.entries():
            assert_type(entry.prompt, str)


def parts(server: EmbeddedServer) -> None:
    assert_type(server.url, str)
