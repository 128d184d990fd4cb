"""The cache underneath frameworks that use the SDK."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import instructor
import langsmith
import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langsmith.run_helpers import tracing_context
from openai import AsyncOpenAI, DefaultAsyncHttpx2Client, DefaultHttpx2Client, OpenAI
from pydantic import BaseModel
from test_openai_client import CHAT, RESPONSES
from test_openai_surface import ANSWER, text_of

from openai_semcache import wrap_openai
from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.matching import ThresholdMatcher
from tests.integrations.openai.conftest import RESET, encoder
from tests.upstream import Behaviour, Upstream


class Steps(BaseModel):
    steps: list[str]


def chat_model(upstream: Upstream, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o-mini", api_key="k", base_url=upstream.url, max_retries=0, **more)


def test_langchain_models_are_served_by_invoke_stream_and_batch(
    cache: SemanticCache, upstream: Upstream
) -> None:
    with wrap_openai(DefaultHttpx2Client(), cache) as http:
        model = chat_model(upstream, http_client=http)
        first = model.invoke(RESET)
        second = model.invoke([HumanMessage(RESET, id="another")])
        streamed = list(model.stream(RESET))
        batch = model.batch([RESET, RESET])

    expected = f"Answer 1 to: {RESET}"
    assert first.content == second.content == "".join(str(chunk.content) for chunk in streamed) == expected
    assert [answer.content for answer in batch] == [expected, expected]
    assert len(streamed) > 3
    assert len({answer.id for answer in (first, second, *batch)}) == 4
    assert upstream.count == 1


async def test_langchain_models_are_served_asynchronously(
    async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    async with wrap_openai(DefaultAsyncHttpx2Client(), async_cache) as http:
        model = chat_model(upstream, http_async_client=http)
        first = await model.ainvoke(RESET)
        streamed = [chunk async for chunk in model.astream(RESET)]

    assert first.content == "".join(str(chunk.content) for chunk in streamed)
    assert upstream.count == 1


def test_structured_output_of_langchain_is_served(cache: SemanticCache, upstream: Upstream) -> None:
    upstream.always(Behaviour(text='{"steps": ["Open Settings"]}'))
    with wrap_openai(DefaultHttpx2Client(), cache) as http:
        model = chat_model(upstream, http_client=http).with_structured_output(Steps, method="json_schema")
        answers = [model.invoke(RESET) for _ in range(2)]

    assert answers == [Steps(steps=["Open Settings"])] * 2
    assert upstream.count == 1


def test_headers_reach_langchain_for_feedback(cache: SemanticCache, upstream: Upstream) -> None:
    with wrap_openai(DefaultHttpx2Client(), cache) as http:
        model = chat_model(upstream, http_client=http, include_response_headers=True)
        served = [model.invoke(RESET).response_metadata["headers"] for _ in range(4)]
        for number, headers in enumerate(served[1:]):
            cache.feedback(headers["x-semcache-lookup-id"], -1, rater=f"u-{number}")
        after = model.invoke(RESET)

    assert after.content == f"Answer 2 to: {RESET}"


def test_langchain_embeddings_are_served(cache: SemanticCache, upstream: Upstream) -> None:
    with wrap_openai(DefaultHttpx2Client(), cache) as http:
        model = OpenAIEmbeddings(
            model="e", api_key="k", base_url=upstream.url, http_client=http, check_embedding_ctx_length=False
        )  # type: ignore[call-arg]
        first, second = model.embed_documents(["a", "b"]), model.embed_documents(["b", "a"])

    assert first == second[::-1]
    assert upstream.count == 1


MODES = {
    instructor.Mode.TOOLS: {"tool_calls": (("Steps", '{"steps": ["a"]}'),)},
    instructor.Mode.JSON: {"text": '{"steps": ["b"]}'},
}


def test_the_modes_of_instructor_do_not_share_answers(
    target: str, namespace: str, upstream: Upstream
) -> None:
    policy = Policy(store_tool_calls=True, deadline=5.0)
    cache = SemanticCache.open(
        target, namespace=namespace, encoder=encoder(), policy=policy, matcher=ThresholdMatcher(0.9)
    )
    answers = {}
    with cache, OpenAI(api_key="k", base_url=upstream.url) as client:
        wrap_openai(client, cache)
        for mode, behaviour in MODES.items():
            upstream.always(Behaviour(**behaviour))  # type: ignore[arg-type]
            with_mode = instructor.from_openai(client, mode=mode)
            messages: Any = [{"role": "user", "content": RESET}]
            answers[mode] = [
                with_mode.chat.completions.create(model="m", messages=messages, response_model=Steps).steps
                for _ in range(2)
            ]

    assert answers == {instructor.Mode.TOOLS: [["a"], ["a"]], instructor.Mode.JSON: [["b"], ["b"]]}
    assert upstream.count == 2


@pytest.fixture
def traced() -> Any:
    """LangSmith's own `wrap_openai`; importing it warns of something of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from langsmith.wrappers import wrap_openai as traced
    return traced


def _recording() -> Any:
    """Let LangSmith trace without sending anything."""
    here = langsmith.Client(api_url="http://127.0.0.1:1", api_key="k", auto_batch_tracing=False)
    return tracing_context(enabled="local", client=here)


@pytest.mark.parametrize("below", [False, True], ids=["wrapped above", "wrapped below"])
def test_the_tracer_of_langsmith_may_be_put_on_before_or_after(
    below: bool, traced: Any, cache: SemanticCache, upstream: Upstream
) -> None:
    client = OpenAI(api_key="k", base_url=upstream.url, max_retries=0)
    client = wrap_openai(traced(client), cache) if below else traced(wrap_openai(client, cache))
    texts = []
    with client, _recording():
        for _ in range(2):
            texts.append(client.chat.completions.create(**CHAT).choices[0].message.content)
            texts.append(text_of(client.chat.completions.create(**CHAT, stream=True)))
            raw = client.responses.with_raw_response.create(**RESPONSES, stream=True)
            texts.append(text_of(raw.parse()))

    assert texts == [ANSWER, ANSWER, ANSWER.replace("1", "2")] * 2
    assert upstream.count == 2


@pytest.mark.parametrize("below", [False, True], ids=["wrapped above", "wrapped below"])
async def test_the_tracer_of_langsmith_may_be_put_on_an_awaited_client(
    below: bool, traced: Any, async_cache: AsyncSemanticCache, upstream: Upstream
) -> None:
    client = AsyncOpenAI(api_key="k", base_url=upstream.url, max_retries=0)
    client = wrap_openai(traced(client), async_cache) if below else traced(wrap_openai(client, async_cache))
    texts = []
    async with client:
        with _recording():
            for _ in range(2):
                texts.append((await client.chat.completions.create(**CHAT)).choices[0].message.content)
                raw = await client.responses.with_raw_response.create(**RESPONSES, stream=True)
                texts.append(text_of([event async for event in raw.parse()]))

    assert texts == [ANSWER, ANSWER.replace("1", "2")] * 2
    assert upstream.count == 2


@pytest.mark.parametrize("missing", ["httpx2", "httpx", "langchain_core", "openai"])
def test_the_package_imports_without_the_libraries_that_it_does_not_need(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; import openai_semcache; print(openai_semcache.__all__)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_no_sdk_and_no_redis() -> None:
    code = (
        "import sys, openai_semcache;"
        "print([name for name in ('openai', 'httpx', 'httpx2', 'redis', 'hnswlib', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_all_public_names_exist() -> None:
    import openai_semcache

    assert sorted(openai_semcache.__all__) == openai_semcache.__all__
    assert all(hasattr(openai_semcache, name) for name in openai_semcache.__all__)
