"""Asks a stored request again: what `semcache.refresh` calls for entries that were withdrawn.

The inverse of `requests` and `turns`, as far as there is one: ids are those that `turns` gave, and media, of which only
the digest is kept, can't be asked again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from openai_semcache.fields import SCHEMAS, Endpoint, Json
from openai_semcache.responses import response_of
from openai_semcache.turns import PROMPT
from semcache.errors import ConfigurationError, InvalidRequestError
from semcache.structured import structure_of
from semcache.types import CacheRequest, Response

_PATHS: Final[Mapping[str, tuple[Endpoint, str]]] = {
    "chat": ("chat", "/chat/completions"),
    "completions": ("completions", "/completions"),
    "responses": ("responses", "/responses"),
}
_BYPASS: Final = {"cache-control": "no-cache, no-store"}  # the client may have a cache itself


def ask_again(client: Any) -> Callable[[CacheRequest], Any]:
    """Return a function that asks a stored request again, for `refresh` (or `refresh_async`).

    Requests with a system prompt, earlier turns, tools or parameters can be asked again only if they were kept:
    `Policy(keep_requests=True)`.

    Args:
        client: `OpenAI` and its like; the function is to be awaited for an asynchronous one.

    Returns:
        A function from a `CacheRequest` to a `Response`. It raises `InvalidRequestError` for what can't be asked again
        and never sends a request to another host than it was first sent to.

    Raises:
        ConfigurationError: It isn't such a client.
    """
    if not hasattr(client, "base_url") or not hasattr(client, "post"):
        raise ConfigurationError(f"client is {type(client).__name__}, expected an OpenAI client")
    if hasattr(getattr(client, "_client", None), "aclose"):
        return _asynchronous(client)

    def ask(request: CacheRequest) -> Response:
        endpoint, path, body, headers = request_of(request, str(client.base_url))
        started = time.monotonic()
        answer = client.post(path, cast_to=object, body=body, options={"headers": {**headers, **_BYPASS}})
        return _read(endpoint, body, answer, started)

    return ask


def _asynchronous(client: Any) -> Callable[[CacheRequest], Awaitable[Response]]:
    async def ask(request: CacheRequest) -> Response:
        endpoint, path, body, headers = request_of(request, str(client.base_url))
        started = time.monotonic()
        answer = await client.post(
            path, cast_to=object, body=body, options={"headers": {**headers, **_BYPASS}}
        )
        return _read(endpoint, body, answer, started)

    return ask


def _read(endpoint: Endpoint, body: dict[str, Json], answer: Any, started: float) -> Response:
    latency_ms = (time.monotonic() - started) * 1000
    return response_of(endpoint, answer, latency_ms=latency_ms, structure=structure_of(body))


def request_of(request: CacheRequest, base_url: str) -> tuple[Endpoint, str, dict[str, Json], dict[str, str]]:
    """Return endpoint, path, body and headers of a stored request.

    Args:
        base_url: Where the client sends its requests.

    Raises:
        InvalidRequestError: It isn't an OpenAI-style request, holds media, or was sent to another host.
    """
    kind, _, address = request.endpoint.partition(" ")
    if kind not in _PATHS:
        raise InvalidRequestError(
            f"endpoint is {request.endpoint!r}, expected chat, completions or responses and its address"
        )
    there, here = urlsplit(address), urlsplit(base_url)
    if (there.scheme, there.hostname, there.port) != (here.scheme, here.hostname, here.port):
        raise InvalidRequestError(
            f"the request was first sent to {there.hostname}, and the client sends to {here.hostname}; "
            "use a client for the same host"
        )
    if request.media:
        raise InvalidRequestError("the request holds media, of which only digests were kept")
    endpoint, path = _PATHS[kind]
    body: dict[str, Json] = {"model": request.model}
    headers: dict[str, str] = {}
    tools = request.tools if isinstance(request.tools, Mapping) else {}
    for name, value in {**request.params, **tools}.items():
        if name.startswith("header:"):
            headers[name.removeprefix("header:")] = str(value)
        elif not name.startswith("cache:"):
            body[name] = json.loads(value) if name in SCHEMAS and isinstance(value, str) else value
    body.update(_turns_of(endpoint, request))
    if endpoint == "responses":
        body["store"] = False
    return endpoint, path, body, headers


def _turns_of(endpoint: Endpoint, request: CacheRequest) -> dict[str, Json]:
    context: Any = request.context or []
    if endpoint == "completions":
        if request.prompt.startswith("prompts:"):
            raise InvalidRequestError("the request holds several prompts, of which only a digest was kept")
        return {"prompt": "".join([*context, request.prompt])}
    items = [_item(endpoint, item, request.prompt) for item in context]
    if not any(_holds_prompt(item) for item in context):
        items.append({"role": "user", "content": request.prompt})
    return {"messages" if endpoint == "chat" else "input": items}


def _holds_prompt(item: Any) -> bool:
    held = [item.get("content"), item.get("output")]
    return any(value == PROMPT or (isinstance(value, list) and PROMPT in value) for value in held)


def _item(endpoint: Endpoint, item: Any, prompt: str) -> dict[str, Json]:
    out = dict(item)
    text = (
        "text" if endpoint == "chat" else "output_text" if item.get("role") == "assistant" else "input_text"
    )
    for name in ("content", "output"):
        value = out.get(name)
        if value == PROMPT:
            out[name] = prompt
        elif isinstance(value, list):
            parts = [prompt if part == PROMPT else part for part in value]
            out[name] = [{"type": text, "text": part} if isinstance(part, str) else part for part in parts]
    return out
