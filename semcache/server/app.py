"""The ASGI application: from a request to the part that answers it, with what holds for all of them.

Everything under `/v1/` goes to the proxy, but for the cache's own API, which FastAPI serves; the page is static.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from semcache._version import __version__
from semcache.errors import SemcacheError
from semcache.server import api, document
from semcache.server.errors import HttpError, error_body, http_error
from semcache.server.messages import (
    ClientGoneError,
    Message,
    Receive,
    Scope,
    Send,
    body_of,
    headers_of,
    send_error,
    send_whole,
)
from semcache.server.service import Service
from semcache.server.settings import Settings
from semcache.server.telemetry import Telemetry, exporting_tracer

if TYPE_CHECKING:
    from semcache.cache import AsyncSemanticCache

logger = logging.getLogger(__name__)

Opener = Callable[[Settings], Awaitable["AsyncSemanticCache"]]
_STATIC: Final = Path(__file__).parent / "static"
_FILES: Final = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_OURS: Final = ("/v1/cache", "/v1/cache/", "/v1/feedback")
_SAFE: Final = (
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
)
_PAGE: Final = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
    ("cache-control", "no-cache"),
    *_SAFE,
)


async def open_cache(settings: Settings) -> AsyncSemanticCache:
    """Open the cache that the settings name."""
    from semcache.cache import AsyncSemanticCache

    return await AsyncSemanticCache.open(
        settings.redis, namespace=settings.namespace, policy=settings.policy, data_dir=settings.data_dir,
        snapshot_dir=settings.snapshot_dir,
    )  # fmt: skip


class Application:
    """The ASGI application.

    Args:
        settings: How it runs.
        opener: Opens the cache at the start; closed at the end.
        folder: Shared with the other workers of the service; None without any.
        telemetry: In place of what the settings say.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        opener: Opener = open_cache,
        folder: str | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.settings = settings
        self._opener = opener
        self._folder = folder
        self._telemetry = telemetry
        self._service: Service | None = None
        self._api = _api()
        self._files = {path: ((_STATIC / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()}

    @property
    def service(self) -> Service:
        """The open service.

        Raises:
            RuntimeError: It isn't open.
        """
        if self._service is None:
            raise RuntimeError("the service isn't open; run the application's lifespan")
        return self._service

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Service]:
        """Open the service, and close it at the end."""
        telemetry, provider = self._telemetry, None
        if telemetry is None and self.settings.otel:
            tracer, provider = exporting_tracer()
            telemetry = Telemetry(tracer)
        cache = await self._opener(self.settings)
        self._service = Service(self.settings, cache, folder=self._folder, telemetry=telemetry)
        try:
            yield self._service
        finally:
            self._service.draining = True
            await self._service.close()
            self._service = None
            if provider is not None:
                await asyncio.to_thread(provider.shutdown)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return self._api.openapi()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:  # no websockets here
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.open():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except (SemcacheError, OSError) as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        service = self.service
        service.meters.under_way.inc()
        try:
            await self._answer(service, scope, receive, noting)
        except ClientGoneError:
            logger.debug("the client went away")
        except HttpError as error:
            if started:  # the answer ends where it is; the client sees that it was cut
                logger.warning("an answer was cut: %s", error.code)
                return
            await send_error(send, error)
        except SemcacheError as error:
            if started:
                raise
            await send_error(send, http_error(error))
        finally:
            service.meters.under_way.dec()

    async def _answer(self, service: Service, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path in self._files and scope["method"] in ("GET", "HEAD"):
            body, kind = self._files[path]
            await send_whole(send, 200, [("content-type", kind), *_PAGE], body)
            return
        if path == "/favicon.ico":
            await send_whole(send, 204, [("cache-control", "max-age=86400"), *_SAFE], b"")
            return
        headers = headers_of(scope)
        lower: dict[str, str] = {}
        for name, value in headers:
            lower[name] = f"{lower[name]}, {value}" if name in lower else value
        if path.startswith("/v1/") and not path.startswith(_OURS[1:]):
            caller = await service.identity.caller(scope, lower)
            await service.proxy.answer(scope, receive, send, caller, headers, lower)
            return
        if path == "/v1/feedback" and (allowed := _cors(service.settings, lower)):
            if scope["method"] == "OPTIONS":
                await send_whole(send, 204, allowed, b"")
                return
            send = _with_headers(send, allowed)
        await self._call_api(service, scope, receive, _with_headers(send, list(_SAFE)), lower)

    async def _call_api(
        self, service: Service, scope: Scope, receive: Receive, send: Send, lower: dict[str, str]
    ) -> None:
        settings = service.settings
        body = b""
        if scope["method"] in ("POST", "PUT", "PATCH", "DELETE"):
            if scope["method"] != "DELETE" and not _is_json(lower.get("content-type", "")):
                raise HttpError(415, "the content type isn't application/json", "content_type")
            body = await body_of(receive, lower, most=settings.max_body_bytes, seconds=settings.body_timeout)
        scope["semcache.service"] = service
        if scope["path"] not in ("/healthz", "/readyz", "/openapi.json"):
            scope["semcache.caller"] = await service.identity.caller(scope, lower)
        else:
            scope["semcache.caller"] = None

        async def again() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await self._api(scope, again, send)


def _cors(settings: Settings, headers: dict[str, str]) -> list[tuple[str, str]]:
    """Return the headers that let a configured page of another origin give feedback; none for any other."""
    origin = headers.get("origin")
    if origin is None or origin not in settings.cors_origins:
        return []
    return [
        ("access-control-allow-origin", origin),
        ("vary", "origin"),
        ("access-control-allow-methods", "POST"),
        ("access-control-allow-headers", "content-type"),
        ("access-control-max-age", "600"),
        ("cross-origin-resource-policy", "cross-origin"),
    ]


def _with_headers(send: Send, headers: list[tuple[str, str]]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            raw = list(message.get("headers", ()))
            have = {name.lower() for name, _ in raw}
            raw += [(n.encode(), v.encode("latin-1")) for n, v in headers if n.encode() not in have]
            message = {**message, "headers": raw}
        await send(message)

    return sending


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _api() -> FastAPI:
    app = FastAPI(
        title="semcache",
        version=__version__,
        summary="A semantic cache in front of an OpenAI-compatible endpoint.",
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(api.router)
    app.openapi = lambda: document.openapi(app)  # type: ignore[method-assign]

    def failed(status: int, message: str, code: str | None, param: str | None = None) -> Response:
        body = error_body(status, message, code=code, param=param)
        return Response(body, status, media_type="application/json", headers={"cache-control": "no-store"})

    async def on_http_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, HttpError)
        response = failed(error.status, error.message, error.code, error.param)
        response.headers.update(dict(error.headers))
        return response

    async def on_semcache_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, SemcacheError)
        return await on_http_error(request, http_error(error))

    async def on_invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0] if error.errors() else {}
        where = ".".join(str(part) for part in first.get("loc", ())[1:])
        return failed(
            400, f"{where or 'body'}: {first.get('msg', 'invalid')}", "invalid_value", where or None
        )

    async def on_unrouted(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = failed(error.status_code, str(error.detail), None)
        response.headers.update(error.headers or {})
        return response

    app.add_exception_handler(HttpError, on_http_error)
    app.add_exception_handler(SemcacheError, on_semcache_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_unrouted)
    return app
