"""One model call of an agent ⇄ the cache's request and response.

Unlike a cache's two strings, an agent's middleware sees messages, tools and response formats as
objects, so schemas isolate by content. Pure; needs the package `langchain`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.structured_output import (
    AutoStrategy,
    OutputToolBinding,
    ProviderStrategy,
    ProviderStrategyBinding,
    ToolStrategy,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.runnables import RunnableBinding
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_semcache.generations import UNSTORABLE, describe
from langchain_semcache.llm_string import LlmSettings, parse_llm_string
from langchain_semcache.payload import dump, renew, revive
from langchain_semcache.prompts import ParsedPrompt, parse_messages
from semcache.structured import Structure
from semcache.types import JsonValue, Response

FORMAT: Final = "langchain-agent/1"
_RANDOM_NAME: Final = "response_format_"  # LangChain's prefix of made-up names


def prompt_of(request: ModelRequest[Any]) -> ParsedPrompt:
    """Return the call's prompt, taken apart; opaque if a message isn't of LangChain's."""
    messages = [*([request.system_message] if request.system_message else []), *request.messages]
    parsed = parse_messages([dumpd(message) for message in messages])
    if parsed is not None:
        return parsed
    return ParsedPrompt(repr(request.messages), opaque=True, chat=True)


def settings_of(request: ModelRequest[Any], *, ignored: frozenset[str] = frozenset()) -> LlmSettings | None:
    """Return the call's settings; None if the model is chosen later, from what isn't visible here."""
    model: Any = request.model
    bound: dict[str, Any] = {}
    while isinstance(model, RunnableBinding):
        bound = {**model.kwargs, **bound}
        model = model.bound
    if not isinstance(model, BaseChatModel):
        return None
    shown = model._get_llm_string(**{"stop": None, **bound, **request.model_settings})
    settings = parse_llm_string(shown, ignored=ignored)
    own = settings.tools if isinstance(settings.tools, Mapping) else {}
    tools: dict[str, JsonValue] = {**own}
    offered, known = _tools(request.tools)
    if offered:
        tools["tools"] = offered
    if request.tool_choice is not None:
        tools["tool_choice"] = _json(request.tool_choice)
    params = dict(settings.params)
    if request.response_format is not None:
        params["response_format"] = _format(request.response_format)
    return replace(
        settings,
        endpoint=f"agent:{settings.endpoint}",
        tools=tools or None,
        params=params,
        opaque=settings.opaque or not known,
    )


def to_response(answer: ModelResponse[Any], request: ModelRequest[Any]) -> Response:
    """Return what is to be stored of an answer to `request`.

    A tool call that carries the final structured answer ends the agent's turn and runs nothing; it
    doesn't count as a call of tools.
    """
    dumped: list[JsonValue] = []
    for message in answer.result:
        data = dump(message) if isinstance(message, AIMessage | ToolMessage) else None
        if data is None:
            return UNSTORABLE
        dumped.append(data)
    messages = [message for message in answer.result if isinstance(message, AIMessage)]
    if not messages:
        return UNSTORABLE
    structured = answer.structured_response is not None
    response = describe(
        [ChatGeneration(message=message) for message in messages],
        data={"format": FORMAT, "messages": dumped, "structured": structured},
    )
    if not structured:
        return response
    text = response.text if response.text.strip() else str(messages[0].tool_calls)
    reason = "stop" if response.finish_reason == "tool_calls" else response.finish_reason
    malformed = not _fits(answer.structured_response, request.response_format)
    return replace(response, text=text, tool_calls=False, finish_reason=reason, malformed=malformed)


def from_response(response: Response, request: ModelRequest[Any]) -> ModelResponse[Any] | None:
    """Return a fresh answer, or None if the payload isn't ours, is damaged or doesn't fit the asked format."""
    data = response.data
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        return None
    items = data.get("messages")
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        return None
    messages: list[BaseMessage] = []
    for item in items:
        message = revive(item)
        if not isinstance(message, AIMessage | ToolMessage):
            return None
        messages.append(message)
    first = messages[0]
    if not isinstance(first, AIMessage):
        return None
    structured: Any = None
    if data.get("structured"):
        try:
            structured = _parse(request.response_format, first)
        except ValueError:  # pydantic's and LangChain's errors about the answer's form are ValueErrors
            return None
        if structured is None or not _fits(structured, request.response_format):
            return None
    renew(messages)
    return ModelResponse(result=messages, structured_response=structured)


def ends_with_tools(request: ModelRequest[Any]) -> bool:
    """Return whether the model is to go on from a tool's result."""
    return bool(request.messages) and isinstance(request.messages[-1], ToolMessage)


def _tools(tools: Sequence[Any]) -> tuple[list[JsonValue], bool]:
    """Return tool definitions as JSON, and whether all of them could be read."""
    found: list[JsonValue] = []
    known = True
    for tool in tools:
        if isinstance(tool, dict):
            found.append(_json(tool))
            continue
        try:
            found.append(_json(convert_to_openai_tool(tool)))
        except (ValueError, TypeError, AttributeError, NotImplementedError):
            found.append(str(getattr(tool, "name", type(tool).__qualname__)))
            known = False
    return found, known


def _format(wanted: Any) -> JsonValue:
    known = isinstance(wanted, ToolStrategy | ProviderStrategy)
    return {
        "strategy": type(wanted).__name__ if known else "AutoStrategy",
        "schemas": [
            {
                "schema": _json(spec.json_schema),
                "name": None if spec.name.startswith(_RANDOM_NAME) else spec.name,
                "description": spec.description,
                "strict": spec.strict,
            }
            for spec in _specs(wanted)
        ],
    }


def _fits(structured: Any, wanted: Any) -> bool:
    """Return whether a structured answer is of a wanted form; an object of a class was checked by the class."""
    if not isinstance(structured, dict | list):
        return True
    schemas = [spec.json_schema for spec in _specs(wanted)]
    text = json.dumps(structured)
    return any(Structure.of(schema).admits(text) for schema in schemas)


def _specs(wanted: Any) -> list[Any]:
    if isinstance(wanted, ProviderStrategy):
        return [wanted.schema_spec]
    strategy = wanted if isinstance(wanted, ToolStrategy) else ToolStrategy(_auto_schema(wanted))
    return list(strategy.schema_specs)


def _auto_schema(wanted: Any) -> Any:
    return wanted.schema if isinstance(wanted, AutoStrategy) else wanted


def _parse(wanted: Any, message: AIMessage) -> Any:
    """Return the structured answer that the message holds, None if it holds none of the wanted format."""
    if isinstance(wanted, ProviderStrategy) or not message.tool_calls:
        if isinstance(wanted, ToolStrategy) or wanted is None:
            return None
        provider = wanted if isinstance(wanted, ProviderStrategy) else ProviderStrategy(_auto_schema(wanted))
        return ProviderStrategyBinding.from_schema_spec(provider.schema_spec).parse(message)
    if wanted is None:
        return None
    tools = wanted if isinstance(wanted, ToolStrategy) else ToolStrategy(_auto_schema(wanted))
    for call in message.tool_calls:
        for spec in tools.schema_specs:
            if spec.name == call["name"]:
                return OutputToolBinding.from_schema_spec(spec).parse(call["args"])
    return None


def _json(value: Any) -> JsonValue:
    """Return `value` with everything that isn't JSON replaced by its type's name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _json(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_json(member) for member in value]
    return type(value).__qualname__
