"""Caching transports: they sit below an SDK's HTTP client, so its own code reads what they answer.

For httpx2 (the OpenAI SDK's own library) and legacy httpx alike: the objects of a request's own library are used.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import lru_cache
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from openai_semcache.drivers import (
    AsyncCache,
    Cache,
    Turnstile,
    check_cache,
    drive,
    drive_async,
    spread,
)
from openai_semcache.exchange import Call, Reply
from openai_semcache.fields import DEFAULT_OPTIONS, Options, endpoint_of
from openai_semcache.flow import Flow
from openai_semcache.sources import Segment, Tenant
from openai_semcache.tee import AsyncTee, Tee

if TYPE_CHECKING:
    from httpx2 import AsyncBaseTransport, BaseTransport
else:  # both libraries take any object with the right methods; neither has to be installed
    BaseTransport = AsyncBaseTransport = object

_OF_THE_BODY = frozenset({"content-length", "content-encoding", "transfer-encoding"})


class CachingTransport(BaseTransport):
    """Answers model calls from a cache, and sends everything else on untouched.

    Args:
        transport: The transport that does the sending; closed with this one.
        cache: A `semcache.SemanticCache`.
        tenant: Whose answers these are: a name, or a context variable or function that gives it at each call. None
            takes each request's credentials, so that two API keys never share an answer.
        segment: People alike, e.g. ``{"locale": "de"}``, or what gives them at each call.
        options: What the application lifts or adds.

    Raises:
        ConfigurationError: The cache doesn't fit.
    """

    def __init__(
        self,
        transport: Any,
        cache: Cache,
        *,
        tenant: Tenant = None,
        segment: Segment = None,
        options: Options = DEFAULT_OPTIONS,
    ) -> None:
        check_cache(cache, asynchronous=False)
        self._inner = transport
        self._cache = cache
        self.flow = Flow(tenant=tenant, segment=segment, options=options)

    def handle_request(self, request: Any) -> Any:
        """Answer one request."""
        endpoint = endpoint_of(request.method, request.url.path)
        if endpoint is None:
            return self._inner.handle_request(request)
        lib = _library(request)
        request.read()
        send = self._sender(lib, request)
        reply = drive(self.flow.handle(endpoint, _call_of(request)), self._cache, send)
        chunks: Iterator[bytes]
        if reply.body is not None:
            _with_length(reply, reply.body)
            chunks = iter((reply.body,))
        else:
            chunks = iter(reply.chunks) if reply.keep is None else Tee(reply, self._cache)
        return _response(lib, reply, _stream_class(lib)(chunks, reply.close))

    def _sender(self, lib: ModuleType, request: Any) -> Callable[[Call, bool], Reply]:
        def send(call: Call, whole: bool) -> Reply:
            response = self._inner.handle_request(_request_of(lib, request, call))
            if not whole and response.status_code == 200:
                return _streamed_reply(response, response.iter_bytes(), response.close)
            try:
                raw = b"".join(response.iter_raw())
            finally:
                response.close()
            return _whole_reply(lib, response, raw)

        return send

    def same_as(self, other: Self) -> bool:
        """Return whether both do the same with the same cache."""
        return self._cache is other._cache and self.flow.same_as(other.flow)

    def close(self) -> None:
        """Close the transport below."""
        self._inner.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._inner.__exit__(exc_type, exc_value, traceback)


class AsyncCachingTransport(AsyncBaseTransport):
    """`CachingTransport` for asynchronous clients; takes a `semcache.AsyncSemanticCache`."""

    def __init__(
        self,
        transport: Any,
        cache: AsyncCache,
        *,
        tenant: Tenant = None,
        segment: Segment = None,
        options: Options = DEFAULT_OPTIONS,
    ) -> None:
        check_cache(cache, asynchronous=True)
        self._inner = transport
        self._cache = cache
        self._turnstile = Turnstile()
        self.flow = Flow(tenant=tenant, segment=segment, options=options)

    async def handle_async_request(self, request: Any) -> Any:
        """Answer one request."""
        endpoint = endpoint_of(request.method, request.url.path)
        if endpoint is None:
            return await self._inner.handle_async_request(request)
        lib = _library(request)
        await request.aread()
        await self._turnstile.wait()
        send = self._sender(lib, request)
        reply = await drive_async(self.flow.handle(endpoint, _call_of(request)), self._cache, send)
        chunks: AsyncIterator[bytes]
        if reply.body is not None:
            _with_length(reply, reply.body)
            chunks = spread(iter((reply.body,)))
        elif hasattr(reply.chunks, "__aiter__"):
            chunks = reply.chunks if reply.keep is None else AsyncTee(reply, self._cache)
        else:
            chunks = spread(iter(reply.chunks))
        return _response(lib, reply, _async_stream_class(lib)(chunks, reply.close))

    def _sender(self, lib: ModuleType, request: Any) -> Callable[[Call, bool], Any]:
        async def send(call: Call, whole: bool) -> Reply:
            await self._turnstile.wait()
            response = await self._inner.handle_async_request(_request_of(lib, request, call))
            if not whole and response.status_code == 200:
                return _streamed_reply(response, response.aiter_bytes(), response.aclose)
            try:
                raw = b"".join([chunk async for chunk in response.aiter_raw()])
            finally:
                await response.aclose()
            await self._turnstile.wait()
            return _whole_reply(lib, response, raw)

        return send

    def same_as(self, other: Self) -> bool:
        """Return whether both do the same with the same cache."""
        return self._cache is other._cache and self.flow.same_as(other.flow)

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self._inner.__aexit__(exc_type, exc_value, traceback)


def _library(request: Any) -> ModuleType:
    """Return the library that a request is from: httpx2 or httpx."""
    return sys.modules[type(request).__module__.partition(".")[0]]


def _call_of(request: Any) -> Call:
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw)
    return Call(request.method, str(request.url), headers, request.content)


def _request_of(lib: ModuleType, request: Any, call: Call) -> Any:
    """Return the request to send: the caller's own, unless our controls had to be taken out of it."""
    if call.body == request.content and len(call.headers) == len(request.headers.raw):
        return request
    headers = [(name, value) for name, value in call.headers if name.lower() not in _OF_THE_BODY]
    return lib.Request(
        call.method, request.url, headers=headers, content=call.body, extensions=request.extensions
    )


def _pairs(response: Any) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]


def _extensions(response: Any) -> dict[str, Any]:
    # the network stream isn't given on: it belongs to a connection that may be in use again
    return {name: value for name, value in response.extensions.items() if name != "network_stream"}


def _streamed_reply(response: Any, chunks: Any, close: Callable[[], Any]) -> Reply:
    """Return a reply whose chunks are decoded as they come."""
    headers = _pairs(response)
    if any(name.lower() == "content-encoding" for name, _ in headers):
        headers = [(name, value) for name, value in headers if name.lower() not in _OF_THE_BODY]
    return Reply(response.status_code, headers, chunks=chunks, close=close, extensions=_extensions(response))


def _whole_reply(lib: ModuleType, response: Any, raw: bytes) -> Reply:
    content = raw
    if "content-encoding" in response.headers:
        content = lib.Response(response.status_code, headers=response.headers, content=raw).content
    return Reply(
        response.status_code, _pairs(response), body=raw, content=content, extensions=_extensions(response)
    )


def _response(lib: ModuleType, reply: Reply, stream: Any) -> Any:
    return lib.Response(reply.status, headers=reply.headers, stream=stream, extensions=dict(reply.extensions))


def _with_length(reply: Reply, body: bytes) -> None:
    """Give a whole body its length, whatever the upstream connection did."""
    headers = [
        (name, value)
        for name, value in reply.headers
        if name.lower() not in ("transfer-encoding", "content-length")
    ]
    reply.headers = [*headers, ("content-length", str(len(body)))]


@lru_cache(maxsize=4)
def _stream_class(lib: ModuleType) -> Callable[..., Any]:
    class Chunks(cast(Any, lib).SyncByteStream):  # type: ignore[misc]
        """A body that comes in chunks; closing it closes what they come from."""

        def __init__(self, chunks: Iterator[bytes], close: Callable[[], None] | None) -> None:
            self._chunks = chunks
            self._close = close

        def __iter__(self) -> Iterator[bytes]:
            yield from self._chunks

        def close(self) -> None:
            try:
                if hasattr(self._chunks, "close"):
                    self._chunks.close()  # what is whole is stored
            finally:
                if self._close is not None:
                    self._close()

    return Chunks


@lru_cache(maxsize=4)
def _async_stream_class(lib: ModuleType) -> Callable[..., Any]:
    class Chunks(cast(Any, lib).AsyncByteStream):  # type: ignore[misc]
        """A body that comes in chunks; closing it closes what they come from."""

        def __init__(self, chunks: AsyncIterator[bytes], close: Callable[[], Any] | None) -> None:
            self._chunks = chunks
            self._close = close

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for chunk in self._chunks:
                    yield chunk
            finally:
                await self._end()

        async def aclose(self) -> None:
            try:
                await self._end()
            finally:
                if self._close is not None:
                    await self._close()

        async def _end(self) -> None:
            if hasattr(self._chunks, "aclose"):
                await self._chunks.aclose()  # what is whole is stored

    return Chunks
