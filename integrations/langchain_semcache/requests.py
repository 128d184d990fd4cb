"""From LangChain's two strings to the request that the cache understands.

Joins what `prompts` and `llm_string` found with what the application said (tenant, segment, …).
Pure: whoever calls it resolves tenants and logs warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from pydantic import TypeAdapter

from langchain_semcache.llm_string import LlmSettings
from langchain_semcache.prompts import ParsedPrompt
from semcache.errors import ConfigurationError
from semcache.types import CacheRequest, JsonValue, Mode

SplitPrompt: TypeAlias = Callable[[str], tuple[str, str]]
"""Takes the last user turn, returns (question, what it is about); the second must match exactly."""

_CLIENT_TOOL_KEYS: Final = (
    "function",
    "input_schema",
    "inputSchema",
    "parameters",
    "toolSpec",
    "function_declarations",
    "functionDeclarations",
)


def make_request(
    prompt: ParsedPrompt,
    settings: LlmSettings,
    *,
    tenant: str = "",
    model: str = "",
    model_version: str = "",
    segment: Mapping[str, str] | None = None,
    subject: str | None = None,
    user: str | None = None,
    kind: str | None = None,
    threshold: float | None = None,
    split_prompt: SplitPrompt | None = None,
) -> CacheRequest:
    """Return the request for one lookup or update.

    Args:
        model, model_version: The model's identity as the application knows it; `model` counts where
            the settings have none.
        split_prompt: Takes templates and pasted documents out of the compared text.
    """
    text, context = prompt.text, prompt.context
    if split_prompt is not None and not prompt.opaque and not prompt.exact_only:
        text, about = split_prompt(text)
        if about:
            context = {"messages": context, "about": about}
    name = settings.model or model
    return CacheRequest(
        text,
        model=name,
        model_version=model_version,
        tenant=tenant,
        context=context,
        earlier_turns=prompt.earlier_turns,
        tools=settings.tools,
        params=settings.params,
        endpoint=f"langchain:{settings.endpoint}",
        media=prompt.media,
        segment=segment or {},
        opaque=prompt.opaque or settings.opaque or not name,
        subject=subject,
        user=user,
        kind=kind,
        mode=_mode(prompt, settings),
        threshold=threshold,
    )


def _mode(prompt: ParsedPrompt, settings: LlmSettings) -> Mode:
    if settings.schemaless or settings.server_state or _provider_runs_tools(settings.tools):
        return "off"
    return "exact" if prompt.exact_only else "semantic"


def _provider_runs_tools(tools: JsonValue) -> bool:
    """Whether the provider itself looks things up (web search, files, code): such answers are of the moment."""
    if not isinstance(tools, Mapping):
        return False
    if tools.get("web_search_options") is not None:
        return True
    offered = tools.get("tools")
    if not isinstance(offered, Sequence) or isinstance(offered, str):
        return False
    return any(isinstance(tool, Mapping) and not _is_client_tool(tool) for tool in offered)


def _is_client_tool(tool: Mapping[str, JsonValue]) -> bool:
    return tool.get("type") in ("function", "custom") or any(key in tool for key in _CLIENT_TOOL_KEYS)


def schemas_by_repr(classes: Iterable[type]) -> dict[str, JsonValue]:
    """Return the JSON schema of each class by its repr, which is all that an llm_string shows of it.

    Raises:
        ConfigurationError: Two of them have one name, or one has no JSON schema.
    """
    found: dict[str, JsonValue] = {}
    for cls in classes:
        try:
            schema = TypeAdapter(cls).json_schema()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigurationError(
                f"schemas has {cls!r}, expected a Pydantic model; typed dicts and dicts needn't be named"
            ) from error
        if found.setdefault(repr(cls), schema) != schema:
            raise ConfigurationError(
                f"schemas has two classes named {cls!r} with different fields; LangChain shows a cache "
                "only the name, so rename one of them"
            )
    return found
