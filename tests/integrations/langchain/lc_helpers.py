"""What the LangChain tests share."""

from __future__ import annotations

from typing import Any

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache


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
