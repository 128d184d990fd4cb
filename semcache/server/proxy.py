"""The caching proxy: four endpoints answered through the cache, every other one passed through byte for byte.

What a request means to the cache and what is stored of an answer are the OpenAI integration's tables and rules
(`openai_semcache.flow`); here is what HTTP adds: who asks, the way to upstream, and what is noted of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from openai_semcache.controls import PREFIX
from openai_semcache.drivers import drive_async, spread
from openai_semcache.exchange import Call, Reply
from openai_semcache.fields import Endpoint, Options, endpoint_of
from openai_semcache.flow import Flow
from openai_semcache.requests import ParsedRequest
from openai_semcache.tee import AsyncTee
from semcache.flights import Lead
from semcache.server.errors import HttpError
from semcache.server.identity import CREDENTIALS, Caller
from semcache.server.journal import Journal, Seen, cut
from semcache.server.messages import (
    ClientGoneError,
    Receive,
    Scope,
    Send,
    body_of,
    body_parts,
    check_length,
    send_chunks,
    send_whole,
)
from semcache.server.meters import Meters
from semcache.server.settings import Settings
from semcache.server.telemetry import Telemetry
from semcache.server.upstream import Pairs, Upstream, downstream, upstream_headers
from semcache.types import Answer, CacheRequest, Decision, Hit, Response, Stored

if TYPE_CHECKING:
    from semcache.cache import AsyncSemanticCache

logger = logging.getLogger(__name__)

CACHED: Final = ("/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings")
_IDENTITY: Final = ("accept-encoding", "identity")
_caller: ContextVar[Caller] = ContextVar("caller")


class ProxyFlow(Flow):
    """The integration's flow for whoever calls now: her tenant, and her name where a refused match is hers."""

    def __init__(self, options: Options) -> None:
        super().__init__(tenant=lambda: _caller.get().tenant, options=options)

    def parse(self, endpoint: Endpoint, call: Call) -> ParsedRequest:
        """Read a call; see `Flow.parse`."""
        parsed = super().parse(endpoint, call)
        rater = _caller.get().rater(parsed.request.user)
        return replace(parsed, request=replace(parsed.request, user=rater))

    def parse_for(self, caller: Caller, endpoint: Endpoint, call: Call) -> ParsedRequest:
        """Read a call as one of this caller's."""
        token = _caller.set(caller)
        try:
            return self.parse(endpoint, call)
        finally:
            _caller.reset(token)


@dataclass(slots=True)
class Noted:
    """The cache, for one call: does what it is asked, and remembers the decision."""

    cache: AsyncSemanticCache
    request: CacheRequest | None = None
    decision: Decision | None = None
    response: Response | None = None
    stored: Stored | None = None
    waited: bool = False

    async def lookup(self, request: CacheRequest | str) -> Decision:
        """Look up."""
        decision = await self.cache.lookup(request)
        if isinstance(request, CacheRequest) and (self.decision is None or isinstance(self.decision, Hit)):
            self.request, self.decision = request, decision
        if isinstance(decision, Hit):
            self.response = decision.response
        return decision

    async def put(self, request: CacheRequest | str, response: Response | str, **options: Any) -> Stored:
        """Store."""
        self.stored = await self.cache.put(request, response, **options)
        return self.stored

    async def begin(self, request: CacheRequest | str, **options: Any) -> Answer | Lead:
        """Serve, wait or lead."""
        begun = await self.cache.begin(request, **options)
        if isinstance(request, CacheRequest):
            self.request, self.decision = request, begun.decision
        if isinstance(begun, Answer):
            self.waited, self.response, self.stored = begun.waited, begun.response, begun.stored
        return begun

    async def finish(self, lead: Lead, response: Response | str) -> Answer:
        """Store what a lead was given for."""
        answer = await self.cache.finish(lead, response)
        self.response, self.stored = answer.response, answer.stored
        return answer


class Proxy:
    """Answers `/v1/*`, but for the cache's own API."""

    def __init__(
        self,
        settings: Settings,
        cache: AsyncSemanticCache,
        upstream: Upstream,
        journal: Journal,
        meters: Meters,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._cache = cache
        self._upstream = upstream
        self._journal = journal
        self._meters = meters
        self._telemetry = telemetry
        self._clock = clock
        self.flow = ProxyFlow(Options(annotate=settings.annotate))

    async def answer(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        caller: Caller,
        headers: Pairs,
        lower: dict[str, str],
    ) -> None:
        """Answer one call.

        Args:
            headers: Names in lower case; `lower` is the same by name.

        Raises:
            HttpError: Upstream can't be reached, or the call can't be sent on.
            ClientGoneError: There is nobody to answer.
        """
        caller.need("use")
        path: bytes = scope.get("raw_path") or scope["path"].encode("latin-1", "replace")
        path = path.partition(b"?")[0]
        _check_path(path)
        query: bytes = scope.get("query_string", b"")
        url = self.settings.base.encode() + path.removeprefix(b"/v1") + (b"?" + query if query else b"")
        if scope["path"] in CACHED and (endpoint := endpoint_of(scope["method"], scope["path"])) is not None:
            await self._cached(endpoint, url, receive, send, caller, headers, lower)
        else:
            await self._pass_through(scope["method"], url, receive, send, caller, headers, lower)

    # cached endpoints

    async def _cached(
        self,
        endpoint: Endpoint,
        url: bytes,
        receive: Receive,
        send: Send,
        caller: Caller,
        headers: Pairs,
        lower: dict[str, str],
    ) -> None:
        started = time.perf_counter()
        settings = self.settings
        body = await body_of(receive, lower, most=settings.max_body_bytes, seconds=settings.body_timeout)
        out = [*upstream_headers(headers, drop=self._dropped(caller) | {"accept-encoding"}), _IDENTITY]
        call = Call("POST", url.decode("latin-1"), tuple(self._with_key(out, caller)), body)
        _caller.set(caller)
        noted = Noted(self._cache)
        with self._telemetry.call(endpoint, lower) as span:
            reply = await drive_async(self.flow.handle(endpoint, call), noted, self._upstream.send)
            seconds = time.perf_counter() - started
            seen = self._note(endpoint, caller, noted, reply, seconds)
            span.answered(noted, reply, seen)
            if reply.body is not None:
                await send_whole(send, reply.status, reply.headers, reply.body)
                return
            await self._send_stream(send, receive, reply, noted)

    async def _send_stream(self, send: Send, receive: Receive, reply: Reply, noted: Noted) -> None:
        chunks: AsyncIterator[bytes]
        if not hasattr(reply.chunks, "__aiter__"):
            chunks = spread(iter(reply.chunks))
        elif reply.keep is not None:
            chunks = AsyncTee(reply, noted)
        else:
            chunks = reply.chunks
        try:
            await send_chunks(
                send, receive, reply.status, reply.headers, chunks, seconds=self.settings.write_timeout
            )
        finally:
            # A stream that was cut ends here; what is whole is stored, nothing else.
            await asyncio.shield(_finish(chunks, reply))
            if reply.keep is not None and noted.stored is not None:
                self._meters.stored(noted.stored.outcome)

    def _note(
        self, endpoint: Endpoint, caller: Caller, noted: Noted, reply: Reply, seconds: float
    ) -> Seen | None:
        ours = {name: value for name, value in reply.headers if name.startswith(PREFIX)}
        status = ours.get(PREFIX + "status", "error")
        match, reason = ours.get(PREFIX + "match", ""), ours.get(PREFIX + "reason", "")
        self._meters.answered(endpoint, status, match, reason, seconds)
        if noted.stored is not None:
            self._meters.stored(noted.stored.outcome)
        request, decision = noted.request, noted.decision
        if request is None or decision is None:
            return None
        hit = decision if isinstance(decision, Hit) else None
        tokens, usd = (0, 0.0)
        if (status == "hit" or noted.waited) and noted.response is not None:
            tokens, usd = saved(noted.response, request.model, self.settings)
            self._meters.saved(tokens, usd)
        seen = cut(
            Seen(
                at=self._clock(),
                tenant=caller.tenant,
                endpoint=endpoint,
                model=request.model,
                status=status,
                prompt=request.prompt,
                match=match or None,
                similarity=hit.similarity if hit is not None else getattr(decision, "best_similarity", None),
                reason=reason or None,
                detail="" if hit is not None else getattr(decision, "detail", ""),
                stored_prompt=hit.prompt if hit is not None else getattr(decision, "best_prompt", None),
                entry_id=ours.get(PREFIX + "entry-id") or getattr(decision, "best_entry_id", None),
                lookup_id=ours.get(PREFIX + "lookup-id"),
                ms=round(seconds * 1000, 3),
                tokens=tokens,
                usd=usd,
                waited=noted.waited,
            )
        )
        self._journal.note(seen)
        if logger.isEnabledFor(logging.INFO):
            logger.info(
                "answered endpoint=%s http=%d status=%s match=%s reason=%s similarity=%s entry=%s ms=%.1f",
                endpoint, reply.status, status, match, reason, ours.get(PREFIX + "similarity", ""),
                seen.entry_id or "", seen.ms,
            )  # fmt: skip
        return seen

    # other endpoints

    async def _pass_through(
        self,
        method: str,
        url: bytes,
        receive: Receive,
        send: Send,
        caller: Caller,
        headers: Pairs,
        lower: dict[str, str],
    ) -> None:
        settings = self.settings
        check_length(lower, settings.max_upload_bytes)
        out = upstream_headers(headers, drop=self._dropped(caller))
        content: Any = None
        if "transfer-encoding" in lower or lower.get("content-length", "0") != "0":
            content = body_parts(
                receive, lower, most=settings.max_upload_bytes, seconds=settings.body_timeout
            )
            if "content-length" in lower:
                out.append(("content-length", lower["content-length"]))
        response = await self._upstream.open(method, url, self._with_key(out, caller), content)
        self._meters.passed(response.status_code)
        logger.info("passed through method=%s http=%d", method, response.status_code)
        try:
            await send_chunks(
                send, receive, response.status_code, downstream(response.headers.raw),
                self._upstream.raw_chunks(response), seconds=settings.write_timeout,
            )  # fmt: skip
        finally:
            await asyncio.shield(response.aclose())

    def _dropped(self, caller: Caller) -> frozenset[str]:
        """Return the caller's headers that aren't upstream's business."""
        dropped = {self.settings.tenant_header.lower()} - {""}
        if self.settings.keys:
            dropped |= set(CREDENTIALS)
        return frozenset(dropped)

    def _with_key(self, headers: Pairs, caller: Caller) -> Pairs:
        """Add the service's own key for upstream, for callers who have one of ours or are the local user."""
        key = self.settings.upstream_key
        if key is None or not (self.settings.keys or caller.principal == "local"):
            return headers
        return [*headers, ("authorization", f"Bearer {key}")]


async def _finish(chunks: Any, reply: Reply) -> None:
    try:
        if hasattr(chunks, "aclose"):
            await chunks.aclose()
    finally:
        if reply.close is not None:
            await reply.close()


def _check_path(path: bytes) -> None:
    """Refuse a path that could leave upstream's base path.

    Raises:
        HttpError: 400.
    """
    plain = unquote_to_bytes(path)
    segments = plain.replace(b"\\", b"/").split(b"/")
    if b".." in segments or b"." in segments or any(c < 32 or c == 127 for c in plain):
        raise HttpError(400, "the path has dot segments or control characters", "invalid_path")


def saved(response: Response, model: str, settings: Settings) -> tuple[int, float]:
    """Return the tokens and US dollars that an answer from the cache saved."""
    usage = response.usage or {}
    into = _count(usage, "prompt_tokens", "input_tokens")
    out = _count(usage, "completion_tokens", "output_tokens")
    total = _count(usage, "total_tokens") or into + out
    price = settings.prices.get(model)
    return total, 0.0 if price is None else (into * price.input + out * price.output) / 1e6


def _count(usage: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(0, value)
    return 0


__all__ = ["CACHED", "ClientGoneError", "Noted", "Proxy", "ProxyFlow", "saved"]
