"""What the LangChain tests share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import redis
from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseLLM
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import Generation, LLMResult
from langchain_openai import ChatOpenAI

Chat = Callable[..., ChatOpenAI]

RESET = "How do I reset my password?"
RESET_AGAIN = "How can I reset my password?"
HOURS = "When does the shop open?"
COLOUR = "Which colour is the sky?"
AGE = "How old is she?"


def _turned(degrees: float) -> tuple[float, float, float, float]:
    return (math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 0.0, 0.0)


HEAP = {
    RESET: _turned(0),
    RESET_AGAIN: _turned(8),  # cosine 0.99
    HOURS: _turned(90),
    COLOUR: (0.0, 0.0, 1.0, 0.0),
    AGE: (0.0, 0.0, 0.0, 1.0),
    "Sample prompt for testing.": (0.0, 0.0, 0.7, 0.7),
    "Nonexistent prompt": (0.0, 0.7, 0.0, 0.7),
}
"""Texts and their places: two paraphrases, and others far from them and from each other."""


class Spy(BaseCache):
    """A cache that never hits and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        self.asked.append((prompt, llm_string))
        return None

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        pass

    def clear(self, **kwargs: Any) -> None:
        self.asked.clear()


class CountingLLM(BaseLLM):
    """A plain LLM: answers each prompt with its number, and counts its calls."""

    calls: list[list[str]] = []  # noqa: RUF012 - pydantic copies it
    model: str = "plain-1"

    @property
    def _llm_type(self) -> str:
        return "counting"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model}

    def _generate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        self.calls.append(list(prompts))
        number = len(self.calls)
        return LLMResult(generations=[[Generation(text=f"{number}: {prompt}")] for prompt in prompts])


def note(message: BaseMessage) -> dict[str, Any]:
    """Return what a message says about where it came from."""
    assert isinstance(message, AIMessage)
    found: dict[str, Any] = message.response_metadata["semcache"]
    return found


def is_hit(message: BaseMessage) -> bool:
    return note(message)["match"] is not None


def overwrite(redis_url: str, namespace: str, response: bytes) -> None:
    """Write bytes in place of the response of the only entry of a namespace."""
    client = redis.from_url(redis_url)
    try:
        [key] = client.scan_iter(match=f"*{namespace}:entry:*")
        client.hset(key, "response", response)
    finally:
        client.close()
