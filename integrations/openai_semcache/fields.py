"""What each field of an OpenAI-style request means to a cache: one table, used by the wrapper and the proxy.

A field that isn't in the table isolates: two requests that differ in it never share an answer. Pure data and
predicates; `requests` applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import SplitResult

Endpoint: TypeAlias = Literal["chat", "completions", "responses", "embeddings"]
Json: TypeAlias = Any  # what json.loads returns

PATHS: Final[tuple[tuple[str, Endpoint], ...]] = (
    ("/chat/completions", "chat"),  # before /completions, which is its suffix
    ("/completions", "completions"),
    ("/responses", "responses"),
    ("/embeddings", "embeddings"),
)

TURNS_OF: Final[Mapping[Endpoint, str]] = {
    "chat": "messages",
    "completions": "prompt",
    "responses": "input",
    "embeddings": "input",
}
"""The field that holds the conversation or the texts."""

IGNORED: Final = frozenset(
    {
        "stream",
        "stream_options",
        "metadata",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "user",
        "timeout",
        "store",  # `RULES` bypasses it where it asks for a record on the server
        "background",  # likewise
        "cache",  # our own controls
    }
)
"""Fields that don't change what the model says. Everything else isolates, known or not."""

TOOLS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"})
"""Fields that go into `CacheRequest.tools`: they isolate, and a request that has tools matches exactly only."""

SCHEMAS: Final = frozenset({"response_format", "text", "tools", "functions"})
"""Fields that hold a JSON schema, where null differs from absent: they isolate by their JSON text."""

HEADERS: Final = (
    "openai-organization", "openai-project", "openai-beta", "anthropic-beta", "anthropic-version",
    # those by which gateways choose who answers
    "helicone-target-url", "x-portkey-config", "x-portkey-custom-host", "x-portkey-provider",
)  # fmt: skip
"""Request headers that isolate; `Options.isolating_headers` names more."""

CREDENTIALS: Final = (
    "authorization", "api-key", "x-api-key", "cf-aig-authorization", "helicone-auth", "x-goog-api-key",
    "x-portkey-api-key", "x-portkey-virtual-key",
)  # fmt: skip
"""Request headers that say whose request it is, where the application doesn't name a tenant."""

ECHOED: Final[Mapping[str, Json]] = {
    "metadata": {},
    "user": None,
    "safety_identifier": None,
    "prompt_cache_key": None,
    "prompt_cache_options": None,
    "prompt_cache_retention": None,
    "store": None,
    "background": None,
}
"""Ignored fields that a server repeats in its answer, and their value when the caller gave none.

They belong to one caller: blanked before an answer is stored, and filled in for whoever gets it.
"""

PLAIN_TOOLS: Final = frozenset({"function", "custom"})
"""Tool types that the caller runs; all others run on the server and bypass."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A field whose value bars the cache, or neighbours.

    Attributes:
        field: Name of the body's field.
        applies: Whether the value is one that the rule is about.
        effect: ``bypass`` (neither read nor stored) or ``exact`` (no neighbours).
        reason: One of `semcache.reasons.BYPASSES`.
        endpoints: Where the rule holds.
        unless: Name of the `Options` field that lifts it.
        absent: What the provider takes an absent or null field for; None means that the rule doesn't apply then.
    """

    field: str
    applies: Callable[[Json], bool]
    effect: Literal["bypass", "exact"]
    reason: str
    endpoints: tuple[Endpoint, ...] = ("chat", "completions", "responses", "embeddings")
    unless: str | None = None
    absent: Json = None


def _truthy(value: Json) -> bool:
    return bool(value)


def _present(value: Json) -> bool:
    return True


def _given(value: Json) -> bool:
    return value is not False


def _several(value: Json) -> bool:
    return bool(value != 1)


def _server_tools(value: Json) -> bool:
    if not isinstance(value, list):
        return True
    return any(
        not isinstance(tool, dict) or tool.get("type", "function") not in PLAIN_TOOLS for tool in value
    )


def _wants_logprobs(value: Json) -> bool:
    return isinstance(value, list) and "message.output_text.logprobs" in value


def _not_text(value: Json) -> bool:
    return bool(value != ["text"])


def _forces_a_call(value: Json) -> bool:
    return value not in ("none", "auto")


RULES: Final = (
    Rule("tools", _server_tools, "bypass", "tools"),
    Rule("web_search_options", _present, "bypass", "tools"),
    Rule("audio", _present, "bypass", "media", ("chat",)),
    Rule("modalities", _not_text, "bypass", "media", ("chat",)),
    Rule("image", _present, "bypass", "media", ("responses",)),
    Rule("previous_response_id", _present, "bypass", "opaque", ("responses",)),
    Rule("conversation", _present, "bypass", "opaque", ("responses",)),
    Rule("background", _truthy, "bypass", "policy", ("responses",)),
    Rule("store", _truthy, "bypass", "policy", ("chat", "completions"), unless="stored_responses"),
    Rule("store", _truthy, "bypass", "policy", ("responses",), unless="stored_responses", absent=True),
    Rule("n", _several, "exact", "policy"),
    Rule("best_of", _several, "exact", "policy", ("completions",)),
    Rule("seed", _present, "exact", "policy"),
    Rule("logprobs", _given, "exact", "policy"),
    Rule("top_logprobs", _present, "exact", "policy"),
    Rule("include", _wants_logprobs, "exact", "policy", ("responses",)),
    Rule("tool_choice", _forces_a_call, "exact", "tools"),
    Rule("prediction", _present, "exact", "policy", ("chat",)),
    Rule("suffix", _present, "exact", "policy", ("completions",)),
)

ISOLATED: Final[Mapping[Endpoint, frozenset[str]]] = {
    "chat": frozenset(
        {
            "model",
            "response_format",
            "modalities",
            "audio",
            "stop",
            "max_tokens",
            "max_completion_tokens",
            "n",
            "logit_bias",
            "logprobs",
            "top_logprobs",
            "temperature",
            "top_p",
            "frequency_penalty",
            "presence_penalty",
            "seed",
            "reasoning_effort",
            "verbosity",
            "prediction",
            "moderation",
            "web_search_options",
        }
    ),
    "completions": frozenset(
        {
            "model",
            "best_of",
            "echo",
            "frequency_penalty",
            "logit_bias",
            "logprobs",
            "max_tokens",
            "n",
            "presence_penalty",
            "seed",
            "stop",
            "suffix",
            "temperature",
            "top_p",
        }
    ),
    "responses": frozenset(
        {
            "model",
            "instructions",
            "reasoning",
            "text",
            "truncation",
            "max_output_tokens",
            "max_tool_calls",
            "include",
            "prompt",
            "context_management",
            "image",
            "access_programs",
            "moderation",
            "temperature",
            "top_p",
            "top_logprobs",
            "previous_response_id",
            "conversation",
            "background_options",
        }
    ),
    "embeddings": frozenset({"model", "dimensions", "encoding_format"}),
}
"""Fields known to isolate. Nothing reads it to decide (whatever isn't ignored isolates); a test compares it with
the SDK's parameters, so that a new one is noticed and classified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an application may lift or add.

    Attributes:
        stored_responses: Cache requests whose answer the provider keeps (`store`, on by default in the Responses
            API). The id in a replayed answer is a new one that the provider doesn't know.
        media: ``exact`` caches requests with inline audio, files and media by their digests; ``images`` (the
            default) inline images only; ``bypass`` none. Media named by URL or file id always bypass.
        user_isolates: Whether the `user` field isolates.
        isolating_headers: More request headers that isolate, lower case.
        usage: Token counts on a hit: ``stored``, as the model reported them, or ``zero``.
        annotate: Whether a member `semcache` with status, entry id and lookup id is added to the answer's JSON.
        controls: Whether per-call controls are honoured; if not, they are stripped and ignored.
        split: Splits a user's text into (context, question), for templates that carry documents: the context must
            match exactly, the question is compared. None compares the whole text.
        max_embedding_items: Batches of more texts go upstream whole.
        max_stream_bytes: Streams longer than this aren't stored.
    """

    stored_responses: bool = False
    media: Literal["images", "exact", "bypass"] = "images"
    user_isolates: bool = False
    isolating_headers: tuple[str, ...] = ()
    usage: Literal["stored", "zero"] = "stored"
    annotate: bool = False
    controls: bool = True
    split: Callable[[str], tuple[str, str]] | None = None
    max_embedding_items: int = 256
    max_stream_bytes: int = 8 * 1024 * 1024


DEFAULT_OPTIONS: Final = Options()


def endpoint_of(method: str, path: str) -> Endpoint | None:
    """Return which cached endpoint a request is for, by the end of its path; None for any other."""
    if method.upper() != "POST":
        return None
    path = path.rstrip("/")
    for suffix, endpoint in PATHS:
        if path.endswith(suffix):
            return endpoint
    return None


def deployment_of(path: str) -> str | None:
    """Return the deployment that an Azure path names (`/openai/deployments/<name>/…`), None without one."""
    before, found, rest = path.partition("/deployments/")
    if not found or not before.endswith("/openai"):
        return None
    return rest.partition("/")[0] or None


@lru_cache(maxsize=1024)
def base_of(url: SplitResult, endpoint: Endpoint) -> str:
    """Return what of the address isolates: kind, host, base path or deployment, and query."""
    host = (url.hostname or "").lower()
    scheme = url.scheme.lower()
    port = "" if url.port in (None, {"http": 80, "https": 443}.get(scheme)) else f":{url.port}"
    path = url.path.rstrip("/")
    for suffix, name in PATHS:
        if name == endpoint:
            path = path.removesuffix(suffix)
    query = "&".join(sorted(url.query.split("&"))) if url.query else ""
    return f"{endpoint} {scheme}://{host}{port}{path}" + (f"?{query}" if query else "")
