"""`SemcacheMiddleware`: answers model calls of a LangChain agent from the cache.

Unlike a model's cache it also serves agents that stream, and it sees the run's context, so the tenant
can come from there. Needs the package `langchain`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage
from langgraph.runtime import Runtime

from langchain_semcache.agent_calls import (
    ends_with_tools,
    from_response,
    prompt_of,
    settings_of,
    to_response,
)
from langchain_semcache.bridges import AsyncCache, SyncCache, both_caches
from langchain_semcache.notes import hit_note, miss_note
from langchain_semcache.playback import asay, say
from langchain_semcache.requests import SplitPrompt, make_request
from semcache.errors import SemcacheError
from semcache.types import Answer, CacheRequest, Hit, Miss, Response

logger = logging.getLogger(__name__)

T = TypeVar("T")
RunSource: TypeAlias = T | ContextVar[T] | Callable[[Runtime[Any]], T]
"""A value, a context variable, or a function of the run (whose ``context`` the application gave)."""


class SemcacheMiddleware(AgentMiddleware[Any, Any, Any]):
    """Serves an agent's model calls from a semantic cache.

    Put it last, so that it sees what the model would see. Calls that go on from a tool's result and answers
    that call tools aren't cached, unless asked for; then they match exactly only.

    Args:
        cache: Serves blocking agents; and awaiting ones, in a thread, without `async_cache`.
        async_cache: Serves awaiting agents; and blocking ones, on a loop of its own, without `cache`.
        tenant: The customer, e.g. ``lambda run: run.context.tenant``; a value, a context variable or a
            function. What raises `LookupError` turns the cache off for that call.
        segment: Which people share answers.
        subject: The user or object whose data the answers may hold.
        user: Who asks: answers that this user has refused as a match aren't served to her again.
        tags, ttl, kind, threshold: As in `SemcacheCache`.
        model, model_version: The model's identity where LangChain doesn't show it.
        ignored: Names of more settings and headers that don't change the answer.
        split_prompt: Takes a user turn apart into (question, what it is about).
        tool_turns: Also cache calls that go on from a tool's result, for exact matches.

    Raises:
        ConfigurationError: Neither cache was given.
    """

    def __init__(
        self,
        cache: SyncCache | None = None,
        *,
        async_cache: AsyncCache | None = None,
        tenant: RunSource[str] = "",
        segment: RunSource[Mapping[str, str]] | None = None,
        subject: RunSource[str] | None = None,
        user: RunSource[str] | None = None,
        tags: Collection[str] = (),
        ttl: float | None = None,
        kind: str | None = None,
        threshold: float | None = None,
        model: str = "",
        model_version: str = "",
        ignored: Collection[str] = (),
        split_prompt: SplitPrompt | None = None,
        tool_turns: bool = False,
    ) -> None:
        super().__init__()
        self._sync, self._async = both_caches(cache, async_cache)
        self._tenant, self._segment, self._subject, self._user = tenant, segment, subject, user
        self._model, self._model_version = model, model_version
        self._kind, self._threshold, self._split_prompt = kind, threshold, split_prompt
        self._ignored = frozenset(ignored)
        self._tool_turns = tool_turns
        self._options: dict[str, Any] = {"tags": tuple(tags), "ttl": ttl, "kind": kind}
        self._warned: set[str] = set()

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Serve the call from the cache, or let the model answer and store what it says."""
        asked = self._ask(request)
        if asked is None:
            return handler(request)
        call = _Call()

        def call_model(_: CacheRequest) -> Response:
            call.begun = True
            call.answer = handler(request)
            return to_response(call.answer, request)

        try:
            found = self._sync.get_or_compute(asked, call_model, **self._options)
        except SemcacheError as error:
            return call.rescue(error) or handler(request)
        served = self._served(found, call, request)
        if served is not None:
            if served is not call.answer:
                say(_message(served), list(request.messages))
            return served
        if isinstance(found.decision, Hit):
            try:
                self._sync.invalidate(entry_ids=[found.decision.entry_id])
            except SemcacheError as error:
                logger.warning("an entry couldn't be withdrawn: %s: %s", type(error).__name__, error)
        return handler(request)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Serve the call from the cache, or let the model answer and store what it says."""
        asked = self._ask(request)
        if asked is None:
            return await handler(request)
        call = _Call()

        async def call_model(_: CacheRequest) -> Response:
            call.begun = True
            call.answer = await handler(request)
            return to_response(call.answer, request)

        try:
            found = await self._async.get_or_compute(asked, call_model, **self._options)
        except SemcacheError as error:
            return call.rescue(error) or await handler(request)
        served = self._served(found, call, request)
        if served is not None:
            if served is not call.answer:
                await asay(_message(served), list(request.messages))
            return served
        if isinstance(found.decision, Hit):
            try:
                await self._async.invalidate(entry_ids=[found.decision.entry_id])
            except SemcacheError as error:
                logger.warning("an entry couldn't be withdrawn: %s: %s", type(error).__name__, error)
        return await handler(request)

    def _ask(self, request: ModelRequest[Any]) -> CacheRequest | None:
        run = request.runtime
        settings = settings_of(request, ignored=self._ignored)
        if settings is None:
            self._warn_once(f"the model {type(request.model).__qualname__} is chosen at run time")
            return None
        if not settings.model and not self._model:
            self._warn_once(
                f"no model name in the settings of {settings.endpoint} (only exact matches are served; pass "
                "model=… to SemcacheMiddleware)"
            )
        try:
            asked = make_request(
                prompt_of(request),
                settings,
                tenant=_read(self._tenant, run),
                model=self._model,
                model_version=self._model_version,
                segment=None if self._segment is None else _read(self._segment, run),
                subject=None if self._subject is None else _read(self._subject, run),
                user=None if self._user is None else _read(self._user, run),
                kind=self._kind,
                threshold=self._threshold,
                split_prompt=self._split_prompt,
            )
        except LookupError:
            self._warn_once("the tenant, segment, subject or user isn't set (such calls aren't cached)")
            return None
        except SemcacheError as error:
            logger.warning("request refused, the model is called: %s: %s", type(error).__name__, error)
            return None
        return replace(asked, bypass="tools") if ends_with_tools(request) and not self._tool_turns else asked

    def _served(self, found: Answer, call: _Call, request: ModelRequest[Any]) -> ModelResponse[Any] | None:
        """Return the answer with its note; None if the stored one can't be used."""
        if call.answer is not None and isinstance(found.decision, Miss):  # behind a hit it is a refresh's
            _annotate(call.answer, miss_note(found.decision.reason, found.put))
            return call.answer
        answer = from_response(found.response, request)
        hit = found.decision if isinstance(found.decision, Hit) else None
        if answer is None:
            if hit is not None:
                logger.warning(
                    "entry %s doesn't hold an answer that this agent can use; withdrawn", hit.entry_id
                )
            return None
        if hit is not None:
            _annotate(answer, hit_note(hit))
        else:
            reason = found.decision.reason if isinstance(found.decision, Miss) else ""
            _annotate(answer, miss_note(reason, found.put))
        return answer

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning("%s", message)


class _Call:
    """Whether the model was called, and what it said."""

    def __init__(self) -> None:
        self.begun = False
        self.answer: ModelResponse[Any] | None = None

    def rescue(self, error: SemcacheError) -> ModelResponse[Any] | None:
        """Return the model's answer in spite of our error; None if the model wasn't called."""
        if self.begun and self.answer is None:
            raise error  # the model's own
        logger.warning("the cache failed: %s: %s", type(error).__name__, error)
        return self.answer


def _message(answer: ModelResponse[Any]) -> AIMessage:
    return next(message for message in answer.result if isinstance(message, AIMessage))


def _annotate(answer: ModelResponse[Any], note: Mapping[str, Any]) -> None:
    for message in answer.result:
        if isinstance(message, AIMessage):
            message.response_metadata = {**message.response_metadata, "semcache": dict(note)}


def _read(source: RunSource[T], run: Runtime[Any]) -> T:
    if isinstance(source, ContextVar):
        return source.get()
    return source(run) if callable(source) else source
