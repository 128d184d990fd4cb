"""`cached_call`: the same cache for OpenAI-style calls that don't go through httpx."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, overload

from openai_semcache.controls import PREFIX
from openai_semcache.drivers import (
    AsyncCache,
    Cache,
    drive,
    drive_async,
    is_asynchronous,
    spread,
)
from openai_semcache.exchange import Call, Reply
from openai_semcache.fields import DEFAULT_OPTIONS, PATHS, Endpoint, Options
from openai_semcache.flow import Flow
from openai_semcache.headers import JSON_TYPE, SSE_TYPE
from openai_semcache.sse import DONE, Parser, dump, frame
from openai_semcache.tee import AsyncTee, Tee
from semcache.errors import ConfigurationError, InvalidRequestError, OnlyIfCachedError

_PATHS: Final = {endpoint: path for path, endpoint in PATHS}


@dataclass(frozen=True, slots=True)
class CachedCall:
    """What `cached_call` gives back.

    Attributes:
        value: The answer as JSON (dicts and lists), the same from the cache and from the function; for a streamed
            call an iterator of its chunks.
        status: ``hit``, ``miss``, ``bypass``, ``refresh`` or ``error``.
        lookup_id: For `cache.feedback`; on a miss it names the entry just stored, None if there is none.
        headers: Everything said about it, by the names of the HTTP headers.
    """

    value: Any
    status: str
    lookup_id: str | None
    headers: Mapping[str, str] = field(repr=False)


@overload
def cached_call(
    fn: Callable[..., Any],
    request: Mapping[str, Any],
    cache: Cache,
    *,
    endpoint: Endpoint = ...,
    base_url: str = ...,
    tenant: str = ...,
    segment: Mapping[str, str] | None = ...,
    options: Options = ...,
) -> CachedCall: ...


@overload
def cached_call(
    fn: Callable[..., Awaitable[Any]] | Callable[..., AsyncIterable[Any]],
    request: Mapping[str, Any],
    cache: AsyncCache,
    *,
    endpoint: Endpoint = ...,
    base_url: str = ...,
    tenant: str = ...,
    segment: Mapping[str, str] | None = ...,
    options: Options = ...,
) -> Awaitable[CachedCall]: ...


def cached_call(
    fn: Callable[..., Any],
    request: Mapping[str, Any],
    cache: Any,
    *,
    endpoint: Endpoint = "chat",
    base_url: str = "",
    tenant: str = "",
    segment: Mapping[str, str] | None = None,
    options: Options = DEFAULT_OPTIONS,
) -> Any:
    """Call `fn(**request)` unless the cache has its answer.

    Args:
        fn: Takes an OpenAI-style request as keywords and gives an OpenAI-style answer: a mapping or an object with
            `model_dump`; with ``stream=True`` an iterable of such chunks. Asynchronous with an `AsyncSemanticCache`.
            Give it what isn't part of the request (timeouts, keys) with `functools.partial`.
        request: The request as JSON; a member `cache` holds per-call controls and isn't given to `fn`.
        cache: `SemanticCache` or `AsyncSemanticCache`.
        endpoint: Kind of the request.
        base_url: Where it goes; isolates.
        tenant: Whose answers these are.
        segment: People alike.
        options: What the application lifts or adds.

    Raises:
        ConfigurationError: The function is of the other kind than the cache, or gives what is no answer.
        InvalidRequestError: A control can't be meant, or the request isn't JSON.
        OnlyIfCachedError: `only_if_cached` was asked for, and nothing stored may be served.
    """
    try:
        body = json.dumps(dict(request), separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"the request isn't JSON ({error}); give what isn't part of it to the function with functools.partial"
        ) from error
    if endpoint not in _PATHS:
        raise ConfigurationError(f"endpoint is {endpoint!r}, expected one of {', '.join(_PATHS)}")
    flow = Flow(tenant=tenant, segment=segment, options=options, refreshes=False)
    call = Call("POST", base_url.rstrip("/") + _PATHS[endpoint], (), body)
    if is_asynchronous(cache):
        return _call_async(flow, endpoint, call, cache, fn)
    return _call(flow, endpoint, call, cache, fn)


def _call(flow: Flow, endpoint: Endpoint, call: Call, cache: Cache, fn: Callable[..., Any]) -> CachedCall:
    def send(sent: Call, whole: bool) -> Reply:
        asked = json.loads(sent.body)
        given = fn(**asked)
        if inspect.isawaitable(given):
            if inspect.iscoroutine(given):
                given.close()
            raise ConfigurationError(
                "the function is asynchronous, expected a SemanticCache's to be synchronous"
            )
        if _is_answer(given):
            return _whole(given)
        _check_stream(given, asked, Iterable)
        return _streamed(_framed(given))

    reply = drive(flow.handle(endpoint, call), cache, send)
    if reply.body is not None:
        return _result(reply, _value(reply))
    chunks: Iterator[bytes] = iter(reply.chunks) if reply.keep is None else Tee(reply, cache)
    return _result(reply, _parsed(chunks))


async def _call_async(
    flow: Flow, endpoint: Endpoint, call: Call, cache: AsyncCache, fn: Callable[..., Any]
) -> CachedCall:
    async def send(sent: Call, whole: bool) -> Reply:
        asked = json.loads(sent.body)
        given = fn(**asked)
        if inspect.isawaitable(given):
            given = await given
        elif not isinstance(given, AsyncIterable):
            raise ConfigurationError(
                "the function is synchronous, expected an AsyncSemanticCache's to be asynchronous"
            )
        if _is_answer(given):
            return _whole(given)
        _check_stream(given, asked, AsyncIterable)
        return _streamed(_framed_async(given))

    reply = await drive_async(flow.handle(endpoint, call), cache, send)
    if reply.body is not None:
        return _result(reply, _value(reply))
    if not hasattr(reply.chunks, "__aiter__"):
        return _result(reply, _parsed_async(spread(iter(reply.chunks))))
    chunks: AsyncIterator[bytes] = reply.chunks if reply.keep is None else AsyncTee(reply, cache)
    return _result(reply, _parsed_async(chunks))


def _check_stream(given: Any, asked: Mapping[str, Any], kind: Any) -> None:
    if not asked.get("stream") or not isinstance(given, kind) or isinstance(given, str | bytes):
        wanted = "chunks" if asked.get("stream") else "a mapping or an object with model_dump"
        raise ConfigurationError(f"the function gave {type(given).__name__}, expected {wanted}")


def _is_answer(given: Any) -> bool:
    return isinstance(given, Mapping) or hasattr(given, "model_dump")


def _plain(given: Any) -> Any:
    """Return an answer or a chunk as JSON."""
    return given if isinstance(given, Mapping) else given.model_dump(mode="json", exclude_unset=True)


def _whole(given: Any) -> Reply:
    content = dump(_plain(given))
    return Reply(200, [("content-type", JSON_TYPE)], body=content, content=content)


def _streamed(chunks: Any) -> Reply:
    return Reply(200, [("content-type", SSE_TYPE)], chunks=chunks)


def _frame(chunk: Any) -> bytes:
    value = _plain(chunk)
    return frame(value, str(value.get("type") or ""))


def _framed(chunks: Iterable[Any]) -> Iterator[bytes]:
    for chunk in chunks:
        yield _frame(chunk)
    yield DONE


async def _framed_async(chunks: AsyncIterable[Any]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield _frame(chunk)
    yield DONE


def _parsed(chunks: Iterator[bytes]) -> Iterator[Any]:
    parser = Parser()
    try:
        for chunk in chunks:
            for event in parser.feed(chunk):
                if event.data != "[DONE]":
                    yield json.loads(event.data)
    finally:
        if hasattr(chunks, "close"):
            chunks.close()


async def _parsed_async(chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    parser = Parser()
    try:
        async for chunk in chunks:
            for event in parser.feed(chunk):
                if event.data != "[DONE]":
                    yield json.loads(event.data)
    finally:
        if hasattr(chunks, "aclose"):
            await chunks.aclose()


def _value(reply: Reply) -> Any:
    value = json.loads(reply.content or b"null")
    if reply.status == 400:
        raise InvalidRequestError(value["error"]["message"])
    if reply.status == 504:
        raise OnlyIfCachedError(value["error"]["message"])
    return value


def _result(reply: Reply, value: Any) -> CachedCall:
    said = {
        name: text
        for name, text in reply.headers
        if name.startswith(PREFIX) or name in ("age", "cache-status")
    }
    return CachedCall(value, said[PREFIX + "status"], said.get(PREFIX + "lookup-id"), said)
