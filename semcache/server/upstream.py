"""The way to upstream: one address fixed by configuration, no redirects, no cookies, no proxies from the environment.

Turns calls of the OpenAI integration into httpx requests and the answers into its replies; whatever httpx raises
becomes an `HttpError` here.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from openai_semcache.exchange import Call, Reply
from openai_semcache.headers import HOP_BY_HOP
from semcache.server.errors import HttpError
from semcache.server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

logger = logging.getLogger(__name__)

Pairs = list[tuple[str, str]]
_OF_THE_BODY: Final = frozenset({"content-length", "content-encoding"})
_NOT_UPSTREAM: Final = HOP_BY_HOP | {"host", "content-length", "cookie", "expect"}
_NOT_DOWN: Final = HOP_BY_HOP | {"date", "server"}


class Upstream:
    """Sends calls.

    Args:
        failed: Told the kind of each call that wasn't answered.
    """

    def __init__(self, settings: Settings, failed: Callable[[str], None]) -> None:
        import httpx

        self._failed = failed
        self._timeout = {
            "connect": settings.connect_timeout,
            "read": settings.upstream_timeout,
            "write": settings.upstream_timeout,
            "pool": settings.connect_timeout,
        }
        self._most = settings.max_upload_bytes
        limits = httpx.Limits(
            max_connections=settings.upstream_connections,
            max_keepalive_connections=100,
            keepalive_expiry=30.0,
        )
        self._transport = httpx.AsyncHTTPTransport(
            limits=limits, trust_env=False, proxy=settings.upstream_proxy, retries=1
        )

    async def open(self, method: str, url: bytes, headers: Pairs, content: Any) -> httpx.Response:
        """Send a request and return the answer with its body unread.

        Args:
            url: Absolute, with its path and query as the caller wrote them.
            content: bytes, an asynchronous iterator of bytes, or None.
        """
        import httpx

        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        with self._named():
            request = httpx.Request(
                method, _exact(url), headers=raw, content=content, extensions={"timeout": self._timeout}
            )
            return await self._transport.handle_async_request(request)

    async def send(self, call: Call, whole: bool) -> Reply:
        """Send a call of a cached endpoint; the sender of `openai_semcache.drivers.drive_async`."""
        response = await self.open(call.method, call.url.encode("latin-1"), list(call.headers), call.body)
        headers = downstream(response.headers.raw)
        if not whole and response.status_code == 200:
            if "content-encoding" in response.headers:
                headers = [pair for pair in headers if pair[0].lower() not in _OF_THE_BODY]
            return Reply(
                response.status_code,
                headers,
                chunks=self._chunks(response.aiter_bytes()),
                close=response.aclose,
            )
        raw = await self._read(response)
        return Reply(response.status_code, headers, body=raw, content=_decoded(response, raw))

    async def _read(self, response: httpx.Response) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            with self._named():
                async for part in response.aiter_raw():
                    size += len(part)
                    if size > self._most:
                        raise HttpError(
                            502, f"upstream's answer is larger than {self._most} bytes", "too_large"
                        )
                    parts.append(part)
        finally:
            await response.aclose()
        return b"".join(parts)

    async def _chunks(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        with self._named():
            async for chunk in chunks:
                yield chunk

    def raw_chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """Return the body as it comes, byte for byte."""
        return self._chunks(response.aiter_raw())

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn what httpx raises into answers."""
        import httpx

        try:
            yield
        except httpx.TimeoutException as error:
            self._failed("timeout")
            logger.warning("upstream didn't answer in time: %s", type(error).__name__)
            raise HttpError(504, "upstream didn't answer in time", "upstream_timeout") from error
        except httpx.LocalProtocolError as error:
            raise HttpError(400, "a header can't be sent on", "invalid_header") from error
        except (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL) as error:
            self._failed("unreachable")
            logger.warning("upstream can't be reached: %s", type(error).__name__)
            raise HttpError(502, "upstream can't be reached", "upstream_unreachable") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


def _exact(url: bytes) -> httpx.URL:
    """Return a URL whose path and query are sent as they are."""
    import httpx

    origin, slashes, rest = url.partition(b"://")
    authority, slash, path = rest.partition(b"/")
    return httpx.URL((origin + slashes + authority).decode("ascii")).copy_with(raw_path=slash + path or b"/")


def upstream_headers(headers: Pairs, *, drop: frozenset[str] = frozenset()) -> Pairs:
    """Return the caller's headers that go upstream: none of a connection, none of `drop`.

    Args:
        headers: Names in lower case.
    """
    named: set[str] = set()
    for name, value in headers:
        if name == "connection":
            named |= {part.strip().lower() for part in value.split(",")}
    return [
        pair
        for pair in headers
        if pair[0] not in _NOT_UPSTREAM and pair[0] not in named and pair[0] not in drop
    ]


def downstream(raw: list[tuple[bytes, bytes]]) -> Pairs:
    """Return upstream's headers that go to the caller."""
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw]
    named: set[str] = set()
    for name, value in pairs:
        if name == "connection":
            named |= {part.strip().lower() for part in value.split(",")}
    return [pair for pair in pairs if pair[0] not in _NOT_DOWN and pair[0] not in named]


def _decoded(response: httpx.Response, raw: bytes) -> bytes:
    import httpx

    if "content-encoding" not in response.headers:
        return raw
    try:
        return httpx.Response(response.status_code, headers=response.headers, content=raw).content
    except httpx.DecodingError:
        return raw  # the caller may be able to read it; it isn't JSON, so it isn't stored
