"""Instructor over a wrapped client: its modes, partial answers, and its own retries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import instructor
import pytest
from instructor import Mode
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, field_validator

from openai_semcache import Options, wrap_openai
from semcache import AsyncSemanticCache, Policy, SemanticCache
from semcache.matching import ThresholdMatcher
from tests.integrations.openai.conftest import RESET, encoder
from tests.upstream import Behaviour, Upstream

ASKED: Any = {"model": "m", "messages": [{"role": "user", "content": RESET}]}
LONG = "Open Settings, then Security, then Reset."


class Steps(BaseModel):
    steps: list[str]


class SomeSteps(BaseModel):
    steps: list[str]

    @field_validator("steps")
    @classmethod
    def are_some(cls, steps: list[str]) -> list[str]:
        if not steps:
            raise ValueError("no steps")
        return steps


@pytest.fixture
def storing(target: str, namespace: str) -> Iterator[SemanticCache]:
    policy, matcher = Policy(store_tool_calls=True, deadline=5.0), ThresholdMatcher(0.9)
    with SemanticCache.open(
        target, namespace=namespace, policy=policy, encoder=encoder(), matcher=matcher
    ) as cache:
        yield cache


def answers_with(mode: Mode, text: str) -> Behaviour:
    return Behaviour(tool_calls=(("Steps", text),)) if "tool" in mode.value else Behaviour(text=text)


@pytest.mark.parametrize(
    "mode", [Mode.TOOLS, Mode.JSON, Mode.MD_JSON, Mode.JSON_SCHEMA, Mode.RESPONSES_TOOLS]
)
async def test_awaited_answers_are_served_in_each_mode(
    mode: Mode, target: str, namespace: str, upstream: Upstream
) -> None:
    policy = Policy(store_tool_calls=True, deadline=5.0)
    cache = await AsyncSemanticCache.open(target, namespace=namespace, policy=policy, encoder=encoder())
    upstream.always(answers_with(mode, '{"steps": ["Open Settings"]}'))
    async with cache, AsyncOpenAI(api_key="k", base_url=upstream.url) as client:
        asking = instructor.from_openai(wrap_openai(client, cache), mode=mode)
        create: Any = asking.responses.create if "responses" in mode.value else asking.chat.completions.create
        more = {"store": False} if "responses" in mode.value else {}
        answers = [await create(**ASKED, **more, response_model=Steps) for _ in range(3)]

    assert [answer.steps for answer in answers] == [["Open Settings"]] * 3
    assert upstream.count == 1


@pytest.mark.parametrize("mode", [Mode.TOOLS, Mode.JSON])
def test_partial_answers_come_in_pieces_from_a_hit_too(
    mode: Mode, storing: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(answers_with(mode, f'{{"steps": ["{LONG}"]}}'))
    with OpenAI(api_key="k", base_url=upstream.url) as client:
        asking = instructor.from_openai(wrap_openai(client, storing), mode=mode)
        runs: list[list[Any]] = [
            list(asking.chat.completions.create_partial(**ASKED, response_model=Steps)) for _ in range(2)
        ]

    assert [run[-1].steps for run in runs] == [[LONG], [LONG]]
    assert len(runs[1]) > 2
    assert upstream.count == 1


def test_calls_of_tools_are_not_stored_unless_the_policy_says_so(
    cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.always(answers_with(Mode.TOOLS, '{"steps": ["Open Settings"]}'))
    with OpenAI(api_key="k", base_url=upstream.url) as client:
        asking = instructor.from_openai(wrap_openai(client, cache))
        for _ in range(2):
            assert asking.chat.completions.create(**ASKED, response_model=Steps).steps == ["Open Settings"]

    assert upstream.count == 2


def test_an_answer_that_instructor_sends_back_is_corrected_the_same_way_again(
    cache: SemanticCache, upstream: Upstream
) -> None:
    upstream.next(Behaviour(text='{"steps": []}'), Behaviour(text='{"steps": ["Open Settings"]}'))
    with OpenAI(api_key="k", base_url=upstream.url) as client:
        asking = instructor.from_openai(wrap_openai(client, cache), mode=Mode.JSON)
        answers = [
            asking.chat.completions.create(**ASKED, response_model=SomeSteps, max_retries=2) for _ in range(3)
        ]

    assert [answer.steps for answer in answers] == [["Open Settings"]] * 3
    assert upstream.count == 2


def test_the_completion_beside_an_answer_has_the_lookup_id(cache: SemanticCache, upstream: Upstream) -> None:
    upstream.always(Behaviour(text='{"steps": ["Open Settings"]}'))
    with OpenAI(api_key="k", base_url=upstream.url) as client:
        asking = instructor.from_openai(
            wrap_openai(client, cache, options=Options(annotate=True)), mode=Mode.JSON
        )
        create = asking.chat.completions.create_with_completion
        for rater in ("ann", "ben", "cat"):
            _, completion = create(**ASKED, response_model=Steps)
            result = cache.feedback(completion.semcache["lookup_id"], -1, rater=rater)
        create(**ASKED, response_model=Steps)

    assert result.action == "withdrawn"
    assert upstream.count == 2
