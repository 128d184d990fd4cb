"""A FastAPI application over the asynchronous cache: POST /ask, POST /feedback, GET /stats.

pip install 'llm-semcache[server]'
uvicorn --app-dir examples fastapi_app:app          # with SEMCACHE_REDIS=redis://… for a shared cache
curl -s localhost:8000/ask -H 'content-type: application/json' -d '{"question": "When do you open?"}'
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Literal

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from semcache import (
    AsyncSemanticCache,
    CacheRequest,
    RateLimitedError,
    StoreUnavailableError,
    UnknownLookupError,
)
from semcache.encoders import BundledEncoder


class Question(BaseModel):
    question: str


class Thumb(BaseModel):
    lookup_id: str
    verdict: Literal[-1, 0, 1]
    user: str  # from your own authentication, once there is one, never from the body


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    encoder = BundledEncoder()
    # Loaded before the first request, which waits 0.25 s for the cache at most.
    await asyncio.to_thread(encoder.encode, ["warm up"])
    target = os.environ.get("SEMCACHE_REDIS")  # None: an embedded server
    opened = AsyncSemanticCache.open(target, namespace="fastapi-example", encoder=encoder)
    async with await opened as app.state.cache:
        yield


app = FastAPI(title="semcache example", lifespan=lifespan)


async def ask_model(request: CacheRequest) -> str:
    """Answer slowly; stands for your model. Concurrent equal questions share one call."""
    await asyncio.sleep(0.2)
    return f"An answer to: {request.prompt}"


@app.post("/ask")
async def ask(body: Question) -> dict[str, object]:
    answer = await app.state.cache.get_or_compute(CacheRequest(body.question, model="gpt-4o-mini"), ask_model)
    status = "hit" if answer.hit else f"miss: {answer.decision.reason}"
    return {"answer": answer.text, "status": status, "lookup_id": answer.lookup_id}


@app.post("/feedback")
async def feedback(body: Thumb) -> dict[str, object]:
    try:
        result = await app.state.cache.feedback(body.lookup_id, body.verdict, rater=body.user)
    except UnknownLookupError as error:
        raise HTTPException(404, "unknown lookup id") from error
    except RateLimitedError as error:
        raise HTTPException(429, "too many") from error
    except StoreUnavailableError as error:
        raise HTTPException(503, "not recorded, try again") from error
    return {"action": result.action}


@app.get("/stats")
async def stats() -> dict[str, object]:
    return asdict(await app.state.cache.stats())
