"""What happens to one request, as steps that a synchronous and an asynchronous driver perform alike.

Knows the order of things and nothing of any HTTP library: the transports (and a proxy) turn their requests into a
`Call`, drive `Flow.handle`, and turn the `Reply` into what their library wants. Whether something may be served or
stored is the cache's decision.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from openai_semcache import embeddings, headers
from openai_semcache.accumulate import whole_stream
from openai_semcache.exchange import (
    Begin,
    Call,
    Finish,
    Lookup,
    Put,
    Reply,
    Send,
    Steps,
    error_reply,
    only_if_cached_reply,
)
from openai_semcache.fields import DEFAULT_OPTIONS, Endpoint, Options
from openai_semcache.headers import Info, bypass_info, info_of
from openai_semcache.keep import Keep
from openai_semcache.replay import replay
from openai_semcache.requests import ParsedRequest, is_ours, parse_request
from openai_semcache.responses import for_caller, is_intact, response_of, whole_of
from openai_semcache.sources import Segment, Tenant, check_sources, segment_now, tenant_now
from openai_semcache.sse import dump
from semcache import Lead
from semcache.errors import InvalidRequestError
from semcache.types import Answer, Decision, Hit, Miss, Response, Stored

logger = logging.getLogger(__name__)

_NOT_SHARED: Final = frozenset({401, 403})  # the leader's credentials, not the waiter's
_OF_THE_BODY: Final = frozenset({"content-length", "content-encoding", "transfer-encoding"})


class Flow:
    """The rules of the road for one cache and one application.

    Args:
        tenant: Whose answers these are: a name, or a context variable or function that gives it at each call. None
            takes the credentials of each request. Where it isn't set (`LookupError`) nothing is cached.
        segment: The application's groups of people alike, or what gives them at each call.
        options: What the application lifts or adds.
        refreshes: Whether the cache may ask upstream in the background; if not, nothing stale is served.
        clock: Seconds since the Unix epoch.

    Raises:
        ConfigurationError: `tenant` or `segment` is something else.
    """

    def __init__(
        self,
        *,
        tenant: Tenant = None,
        segment: Segment = None,
        options: Options = DEFAULT_OPTIONS,
        refreshes: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_sources(tenant, segment)
        self._warned = False
        self.tenant = tenant
        self.segment = segment
        self.options = options
        self.refreshes = refreshes
        self.clock = clock

    def same_as(self, other: Flow) -> bool:
        """Return whether both have the same settings."""
        mine, others = (self.tenant, self.segment, self.options), (other.tenant, other.segment, other.options)
        return mine == others

    def parse(self, endpoint: Endpoint, call: Call) -> ParsedRequest:
        """Read a call.

        Raises:
            InvalidRequestError: A control of ours can't be meant.
        """
        try:
            tenant, segment, known = tenant_now(self.tenant), segment_now(self.segment), True
        except LookupError:
            self._warn_once()
            tenant, segment, known = "", None, False
        parsed = parse_request(
            endpoint,
            call.method,
            call.url,
            call.headers,
            call.body,
            tenant=tenant,
            segment=segment,
            options=self.options,
        )
        if not known:
            request = replace(parsed.request, bypass="policy")
            parsed = replace(parsed, bypass="policy", detail="tenant", request=request)
        if self.refreshes:
            return parsed
        return replace(parsed, request=replace(parsed.request, stale_while_revalidate=0.0))

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("the tenant or segment isn't set where a call is made; such calls aren't cached")

    def handle(self, endpoint: Endpoint, call: Call) -> Steps:
        """Answer one call."""
        try:
            parsed = self.parse(endpoint, call)
        except InvalidRequestError as error:
            return error_reply(400, str(error), "invalid_request_error")
        upstream = replace(
            call,
            headers=tuple((name, value) for name, value in call.headers if not is_ours(name)),
            body=parsed.content,
        )
        try:
            if parsed.bypass is not None:
                yield Lookup([parsed.request])  # counts it; reads nothing
                return (yield from self._pass_on(parsed, upstream, bypass_info(parsed.bypass, parsed.detail)))
            if endpoint == "embeddings":
                return (yield from self._embeddings(parsed, upstream))
            return (yield from self._answer(parsed, upstream))
        except InvalidRequestError:  # something in the request that can't be a key; it is upstream's to judge
            return (yield from self._pass_on(parsed, upstream, bypass_info("opaque")))

    def _pass_on(self, parsed: ParsedRequest, upstream: Call, info: Info) -> Steps:
        if parsed.controls.only_if_cached:
            return only_if_cached_reply(info)
        reply: Reply = yield Send(upstream, whole=False)
        return self._marked(reply, info)

    # one answer, streamed or not

    def _answer(self, parsed: ParsedRequest, upstream: Call) -> Steps:
        if parsed.controls.only_if_cached:
            return (yield from self._only_stored(parsed))
        begun: Answer | Lead = yield Begin(
            parsed.request,
            parsed.controls.tags,
            parsed.controls.ttl,
            upstream if self.refreshes else None,
            lambda reply: self._read(parsed, reply),
        )
        detail = parsed.detail
        if isinstance(begun, Answer):
            reply = self._served(parsed, begun)
            if reply is not None:
                return reply
            begun, detail = self._lead_after(parsed, begun), "replay"
        try:
            reply = yield Send(upstream, whole=not parsed.stream)
        except BaseException:
            begun.give_up()
            raise
        if reply.content is None:
            return self._passing(parsed, begun, reply, detail)
        response = self._read(parsed, reply)
        try:
            answer: Answer = yield Finish(begun, response)
        except InvalidRequestError:  # paid for, and can't be stored
            return self._marked(reply, bypass_info("opaque"))
        return self._marked(reply, info_of(answer.decision, stored=answer.put, detail=detail))

    def _passing(self, parsed: ParsedRequest, lead: Lead, reply: Reply, detail: str) -> Reply:
        """Return a stream that is copied while it passes; anything else unread passes uncopied."""
        if reply.is_event_stream:
            reply.keep = self._keep(parsed, lead)
        else:
            lead.give_up()
        return self._marked(reply, info_of(lead.decision, detail=detail))

    def _read(self, parsed: ParsedRequest, reply: Reply) -> Response:
        """Return what a whole reply says; of one that is no answer, the reply itself for whoever waits for it."""
        body: Any = None
        if reply.status == 200 and reply.is_event_stream:
            body = whole_stream(parsed.endpoint, reply.content or b"", most=self.options.max_stream_bytes)
        elif reply.status == 200:
            body = _json(reply)
        response = response_of(parsed.endpoint, body, structure=parsed.structure)
        return replace(response, data=cast(Any, _Failed(reply))) if response.error else response

    def _served(self, parsed: ParsedRequest, answer: Answer) -> Reply | None:
        """Return the reply to whoever didn't call upstream; None if she has to."""
        info = info_of(answer.decision, stored=answer.put, collapsed=answer.waited, detail=parsed.detail)
        failed: Any = answer.response.data
        if isinstance(failed, _Failed):
            return None if failed.reply.status in _NOT_SHARED else self._marked(failed.reply, info)
        return self._stored_reply(parsed, answer.response, info, judge=not answer.waited)

    def _lead_after(self, parsed: ParsedRequest, answer: Answer) -> Lead:
        """Return the right to answer for oneself alone, after an answer that couldn't be given."""
        decision = answer.decision
        if isinstance(decision, Hit):
            decision = Miss("undecodable", decision.fence)
        return Lead.alone(parsed.request, decision, tags=parsed.controls.tags, ttl=parsed.controls.ttl)

    def _only_stored(self, parsed: ParsedRequest) -> Steps:
        found: list[Decision] = yield Lookup([parsed.request])
        info = info_of(found[0])
        if isinstance(found[0], Hit):
            reply = self._stored_reply(parsed, found[0].response, info)
            if reply is not None:
                return reply
            info = info_of(Miss("undecodable"))
        return only_if_cached_reply(info)

    def _stored_reply(
        self, parsed: ParsedRequest, response: Response, info: Info, *, judge: bool = True
    ) -> Reply | None:
        """Return a stored answer as a new one; None if it can't be given back.

        Args:
            judge: Whether it must be what the request asks for; what a caller waited for is given as it is.
        """
        data = whole_of(parsed.endpoint, response, parsed.request.model)
        if data is None or (judge and not is_intact(parsed.endpoint, data, parsed.structure)):
            return None
        body = for_caller(parsed.endpoint, data, parsed.body or {}, now=self.clock(), options=self.options)
        if self.options.annotate:
            body["semcache"] = headers.info_json(info)
        out = headers.hit_headers(info, stream=parsed.stream)
        if parsed.stream:
            chunks = replay(parsed.endpoint, body, include_usage=parsed.include_usage)
            return Reply(200, out, chunks=chunks)
        content = dump(body)
        return Reply(200, out, body=content, content=content)

    # embeddings

    def _embeddings(self, parsed: ParsedRequest, upstream: Call) -> Steps:
        batch = embeddings.batch_of(parsed, most=self.options.max_embedding_items)
        if batch is None:
            yield Lookup([replace(parsed.request, bypass="policy")])
            return (yield from self._pass_on(parsed, upstream, bypass_info("policy", "input")))
        keys = list(batch.requests)
        decisions: list[Decision] = yield Lookup([batch.requests[key] for key in keys])
        found: dict[str, embeddings.Item] = {}
        for key, decision in zip(keys, decisions, strict=True):
            if isinstance(decision, Hit):
                item = embeddings.item_of(decision.response, batch.encoding)
                if item is not None:
                    found[key] = item
        missing = [key for key in keys if key not in found]
        if not missing:
            hits = [decision for decision in decisions if isinstance(decision, Hit)]
            info = info_of(max(hits, key=lambda hit: hit.age))
            content = dump(embeddings.answer_of(batch, found, model=parsed.request.model))
            return Reply(200, headers.hit_headers(info, stream=False), body=content, content=content)
        misses = dict(zip(keys, decisions, strict=True))
        first = misses[missing[0]]
        info = replace(
            info_of(first if isinstance(first, Miss) else Miss("undecodable")), partial=bool(found)
        )
        if parsed.controls.only_if_cached:
            return only_if_cached_reply(info)
        return (yield from self._missing_embeddings(parsed, upstream, batch, missing, misses, found, info))

    def _missing_embeddings(
        self,
        parsed: ParsedRequest,
        upstream: Call,
        batch: embeddings.Batch,
        missing: list[str],
        misses: Mapping[str, Decision],
        found: dict[str, embeddings.Item],
        info: Info,
    ) -> Steps:
        """Ask upstream for what is missing, store it, and put the batch together."""
        every = len(missing) == len(batch.keys)  # nothing is stored and nothing comes twice
        body = upstream.body if every else dump(embeddings.missing_body(parsed.body or {}, batch, missing))
        reply: Reply = yield Send(replace(upstream, body=body), whole=True)
        if reply.status != 200:
            return self._marked(reply, info)
        new = embeddings.stored_items(_json(reply), batch, missing)
        if new is None:  # not one row per item
            if not every:
                reply = yield Send(upstream, whole=True)
            return self._marked(reply, replace(info, partial=False))
        items = [(batch.requests[key], new[key], misses[key].fence) for key in missing]
        stored: list[Stored] = yield Put(items, parsed.controls.tags, parsed.controls.ttl)
        info = replace(info, outcome=stored[0].outcome)
        if every:
            return self._marked(reply, info)
        for key in missing:
            item = embeddings.item_of(new[key], batch.encoding)
            if item is None:
                return self._marked((yield Send(upstream, whole=True)), replace(info, partial=False))
            found[key] = item
        content = dump(embeddings.answer_of(batch, found, model=parsed.request.model))
        kept = _without_body_headers(reply.headers)
        return self._marked(replace(reply, headers=kept, body=content, content=content), info)

    def _keep(self, parsed: ParsedRequest, lead: Lead) -> Keep:
        return Keep(parsed, lead, max_bytes=self.options.max_stream_bytes)

    def _marked(self, reply: Reply, info: Info) -> Reply:
        """Return upstream's answer with our headers, and our member where the application asked for it."""
        out = replace(reply, headers=headers.merge_headers(reply.headers, headers.info_headers(info)))
        if self.options.annotate and reply.status == 200 and reply.content is not None:
            value = _json(reply)
            if isinstance(value, dict):
                out.content = out.body = dump({**value, "semcache": headers.info_json(info)})
                out.headers = _without_body_headers(out.headers)
        return out


@dataclass(frozen=True, slots=True)
class _Failed:
    """Stands in a Response for an answer with an error status, so that whoever waited for it gets it too."""

    reply: Reply


def _without_body_headers(given: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return headers without those that describe a body's bytes."""
    return [(name, value) for name, value in given if name.lower() not in _OF_THE_BODY]


def _json(reply: Reply) -> Any:
    try:
        return json.loads(reply.content or b"")
    except (ValueError, RecursionError):
        return None
