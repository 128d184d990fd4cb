"""From an OpenAI-style HTTP request to a `CacheRequest`, or to the reason why there is none. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urlsplit

from openai_semcache import fields
from openai_semcache.controls import BODY_FIELD, NO_CONTROLS, PREFIX, Controls, parse_controls
from openai_semcache.fields import DEFAULT_OPTIONS, Endpoint, Json, Options
from openai_semcache.turns import Turns, digest, split_prompt, split_turns
from semcache.structured import Structure, structure_of
from semcache.types import CacheRequest

_MAX_DEPTH: Final = 100  # of nested JSON; deeper bodies bypass
_NO_TEXT: Final = "(no text)"  # the prompt of a request that bypasses; a blank one can't be looked up


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """What a request is to the cache.

    Attributes:
        endpoint: Which endpoint it is for.
        request: What the cache compares. For embeddings it stands for one
            item: `embeddings.item_requests` makes the items' own.
        bypass: Why it can't be served or stored (one of `semcache.reasons.BYPASSES`), None if it can.
        exact: Why only the same text may match, None if neighbours may.
        detail: The field or rule that decided, for Cache-Status.
        controls: What the caller asked of the cache.
        body: The request's JSON without our controls; None if it isn't an object.
        content: The bytes to send upstream.
        stream: Whether the answer is to be streamed.
        include_usage: Whether the stream is to end with token counts.
        structure: What the answer's text must be; None if it may be any text.
    """

    endpoint: Endpoint
    request: CacheRequest
    bypass: str | None
    exact: str | None
    detail: str
    controls: Controls
    body: dict[str, Json] | None
    content: bytes
    stream: bool
    include_usage: bool
    structure: Structure | None


@dataclass(slots=True)
class _Draft:
    """What has been found so far; the first bypass and the first exact win."""

    bypass: str | None = None
    exact: str | None = None
    detail: str = ""
    params: dict[str, Json] = field(default_factory=dict)
    tools: dict[str, Json] = field(default_factory=dict)

    def bar(self, reason: str, detail: str) -> None:
        if self.bypass is None:
            self.bypass, self.detail = reason, detail

    def pin(self, reason: str, detail: str) -> None:
        if self.exact is None:
            self.exact = reason
            self.detail = self.detail or detail


def parse_request(
    endpoint: Endpoint,
    method: str,
    url: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes | Mapping[str, Any],
    *,
    tenant: str | None = "",
    segment: Mapping[str, str] | None = None,
    options: Options = DEFAULT_OPTIONS,
) -> ParsedRequest:
    """Read one request.

    Args:
        endpoint: From `fields.endpoint_of`.
        url: The address that the request goes to, with its query.
        headers: Request headers, names in any case.
        body: The request's body, as bytes or already read as JSON.
        tenant: From authenticated identity; None derives it from the request's own credentials.
        segment: The application's groups of people alike.

    Raises:
        InvalidRequestError: A control of ours can't be meant; a status 400.
    """
    lower = lower_headers(headers)
    content = body if isinstance(body, bytes) else b""
    value = _load(body) if isinstance(body, bytes) else dict(body)
    if not isinstance(value, dict):
        controls = parse_controls(lower) if options.controls else NO_CONTROLS
        return _unreadable(endpoint, content, controls)
    named = BODY_FIELD in value
    ours = value.pop(BODY_FIELD, None)
    if named or not content:
        content = json.dumps(value, separators=(",", ":")).encode()
    controls = parse_controls(lower, ours) if options.controls else NO_CONTROLS
    draft = _Draft()
    _apply_rules(draft, endpoint, value, options)
    _sort_fields(draft, endpoint, value, lower, options)
    turns = _turns(endpoint, value, options)
    _apply_turns(draft, turns, options)
    _apply_controls(draft, controls)
    address = urlsplit(url)
    model = _model(value, address.path)
    if not model:
        draft.pin("opaque", "model")
    request = CacheRequest(
        turns.prompt if turns.prompt.strip() else _NO_TEXT,
        model=model,
        tenant=tenant_of(lower) if tenant is None else tenant,
        context=turns.context,
        earlier_turns=turns.earlier_turns,
        tools=draft.tools or None,
        params=draft.params,
        endpoint=fields.base_of(address, endpoint),
        media=tuple(turns.media),
        segment=segment or {},
        user=_user(value),
        opaque=draft.exact == "opaque",
        mode="exact" if draft.exact else "semantic",
        bypass=draft.bypass,
        threshold=controls.threshold,
        max_age=controls.max_age,
        no_cache=controls.no_cache,
        no_store=controls.no_store,
        only_if_cached=controls.only_if_cached,
    )
    stream_options = value.get("stream_options")
    return ParsedRequest(
        endpoint=endpoint,
        request=request,
        bypass=draft.bypass,
        exact=draft.exact,
        detail=draft.detail,
        controls=controls,
        body=value,
        content=content,
        stream=bool(value.get("stream")),
        include_usage=isinstance(stream_options, dict) and bool(stream_options.get("include_usage")),
        structure=structure_of(value),
    )


def lower_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name in lower case; values of a repeated one are joined by commas."""
    out: dict[str, str] = {}
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        name = name.lower()
        out[name] = f"{out[name]}, {value}" if name in out else value
    return out


def is_ours(header: str) -> bool:
    """Return whether a request header is a control of ours, which doesn't go upstream."""
    return header.lower().startswith(PREFIX)


def tenant_of(headers: Mapping[str, str]) -> str:
    """Return a name for whoever the request's credentials belong to, "" without credentials.

    A digest: the credentials themselves are neither kept nor logged.
    """
    found = [headers[name] for name in fields.CREDENTIALS if headers.get(name)]
    if not found:
        return ""
    return (
        "key:"
        + hashlib.blake2b("\n".join(found).encode(), digest_size=16, person=b"semcache tenant").hexdigest()
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} isn't JSON")


def _load(body: bytes) -> Any:
    """Return the body's JSON, None if it isn't JSON that can be a key."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
        if b"\\ud" in body or b"\\uD" in body:
            json.dumps(value, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except (ValueError, RecursionError):
        return None
    deep = body.count(b"{") + body.count(b"[") > _MAX_DEPTH and _depth(value) > _MAX_DEPTH
    return None if deep else value


def _depth(value: Any) -> int:
    deepest, stack = 0, [(value, 1)]
    while stack:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        if isinstance(node, dict | list):
            stack += [(member, depth + 1) for member in (node.values() if isinstance(node, dict) else node)]
    return deepest


def _unreadable(endpoint: Endpoint, content: bytes, controls: Controls) -> ParsedRequest:
    return ParsedRequest(
        endpoint=endpoint,
        request=CacheRequest(_NO_TEXT, bypass="opaque", only_if_cached=controls.only_if_cached),
        bypass="opaque",
        exact=None,
        detail="body",
        controls=controls,
        body=None,
        content=content,
        stream=False,
        include_usage=False,
        structure=None,
    )


def _apply_rules(draft: _Draft, endpoint: Endpoint, body: dict[str, Json], options: Options) -> None:
    for rule in fields.RULES:
        if endpoint not in rule.endpoints or (rule.unless is not None and getattr(options, rule.unless)):
            continue
        value = body.get(rule.field)
        if value is None:
            value = rule.absent
        if value is not None and rule.applies(value):
            (draft.bar if rule.effect == "bypass" else draft.pin)(rule.reason, rule.field)


def _sort_fields(
    draft: _Draft, endpoint: Endpoint, body: dict[str, Json], headers: Mapping[str, str], options: Options
) -> None:
    """Put every field that isn't known not to matter into the scope."""
    turns = fields.TURNS_OF[endpoint]
    for name, value in body.items():
        if value is None or name in (turns, "model"):
            continue
        if name in fields.IGNORED and not (name == "user" and options.user_isolates):
            continue
        into = draft.tools if name in fields.TOOLS else draft.params
        into[name] = _schema_text(value) if name in fields.SCHEMAS else value
    if "temperature" in draft.params and not isinstance(draft.params["temperature"], int | float):
        draft.bar("opaque", "temperature")
    for name in (*fields.HEADERS, *options.isolating_headers):
        if name in headers:
            draft.params[f"header:{name}"] = headers[name]


def _schema_text(value: Json) -> Json:
    return (
        json.dumps(value, sort_keys=True, separators=(",", ":")) if isinstance(value, dict | list) else value
    )


def _turns(endpoint: Endpoint, body: dict[str, Json], options: Options) -> Turns:
    value = body.get(fields.TURNS_OF[endpoint])
    if endpoint == "embeddings":
        return Turns(prompt="embeddings:" + digest(repr(value)), exact="policy")
    if endpoint == "completions":
        return split_prompt(value, split=options.split)
    return split_turns(value, split=options.split)


def _apply_turns(draft: _Draft, turns: Turns, options: Options) -> None:
    if turns.bypass is not None:
        draft.bar(turns.bypass, "messages")
    if turns.exact == "media" or turns.media:
        allowed = options.media == "exact" or (options.media == "images" and turns.only_images)
        if not allowed:
            draft.bar("media", "messages")
    if turns.exact is not None:
        draft.pin(turns.exact, "messages")
    if not turns.prompt.strip():
        draft.bar("opaque", "prompt")


def _apply_controls(draft: _Draft, controls: Controls) -> None:
    if controls.mode == "off":
        draft.bar("policy", "mode")
    if controls.no_cache and controls.no_store:
        draft.bar("no_store", "cache-control")
    if controls.mode == "exact":
        draft.pin("policy", "mode")
    if controls.scope is not None:
        draft.params["cache:scope"] = controls.scope


def _model(body: dict[str, Json], path: str) -> str:
    model = body.get("model")
    if isinstance(model, str):
        return model
    return unquote(fields.deployment_of(path) or "")


def _user(body: dict[str, Json]) -> str | None:
    """Return who asks, as the application says: whoever refused an answer as a match isn't given it again."""
    names = (body.get("safety_identifier"), body.get("user"))
    return next((name for name in names if isinstance(name, str) and name), None)
