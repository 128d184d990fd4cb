"""Says a stored answer as a model would, so that whoever listens to an agent hears it come in pieces.

Callbacks, `stream_mode="messages"` and `astream_events` listen to models, and behind a hit no model is called.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables.config import ensure_config, get_callback_manager_for_config

_PIECE: Final = 24  # characters of a piece, at least
_PIECES: Final = 256  # pieces of a text, at most


class StoredAnswer(BaseChatModel):
    """A chat model that knows one answer.

    It reports no tokens, since none were paid for: what counts usage by callbacks doesn't count them twice.
    """

    message: AIMessage
    cache: Any = False

    @property
    def _llm_type(self) -> str:
        return "semcache"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        said = self.message.model_copy(update={"usage_metadata": None})
        return ChatResult(generations=[ChatGeneration(message=said)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in chunks_of(self.message):
            yield ChatGenerationChunk(message=chunk)


def say(message: AIMessage, asked: list[BaseMessage]) -> None:
    """Let the listeners of this run hear a message; `asked` is what it answers."""
    if _is_heard():
        StoredAnswer(message=message).invoke(asked)


async def asay(message: AIMessage, asked: list[BaseMessage]) -> None:
    """Let the listeners of this run hear a message, as `say` does."""
    if _is_heard():
        await StoredAnswer(message=message).ainvoke(asked)


def _is_heard() -> bool:
    """Return whether anybody listens to this run: its callbacks, a tracer, a stream."""
    return bool(get_callback_manager_for_config(ensure_config()).handlers)


def chunks_of(message: AIMessage) -> Iterator[AIMessageChunk]:
    """Yield a message in pieces of one id: several of a text, then its calls of tools, then what was said of it."""
    content = message.content
    if isinstance(content, str):
        for start in _starts(content):
            yield AIMessageChunk(content=content[start : start + _size(content)], id=message.id)
    else:
        yield AIMessageChunk(content=content, id=message.id)
    for number, call in enumerate(message.tool_calls):
        named = tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=number)
        yield AIMessageChunk(content="", id=message.id, tool_call_chunks=[named])
    yield AIMessageChunk(
        content="",
        id=message.id,
        additional_kwargs={k: v for k, v in message.additional_kwargs.items() if k != "tool_calls"},
        response_metadata=message.response_metadata,
        chunk_position="last",
    )


def _size(text: str) -> int:
    return max(_PIECE, -(-len(text) // _PIECES))


def _starts(text: str) -> range:
    return range(0, len(text), _size(text))
