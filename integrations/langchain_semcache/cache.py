"""`SemcacheCache`: LangChain's cache interface over semcache.

Translates and passes on; what may be served or stored is decided by semcache. Whatever fails here is
logged and becomes a miss, since LangChain lets an exception of its cache end the user's call.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.outputs import Generation

from langchain_semcache.bridges import AsyncCache, SyncCache, both_caches
from langchain_semcache.generations import UNSTORABLE, annotate, fits, from_response, to_response
from langchain_semcache.llm_string import LlmSettings, parse_llm_string
from langchain_semcache.notes import hit_note, miss_note
from langchain_semcache.pending import Pending, PendingLookups
from langchain_semcache.prompts import parse_prompt
from langchain_semcache.requests import SplitPrompt, make_request, schemas_by_repr
from langchain_semcache.sources import Source, read
from semcache.errors import SemcacheError
from semcache.reasons import FAILURES, STORE_OUTCOMES
from semcache.structured import Structure
from semcache.types import CacheRequest, Decision, Miss, Response, Stored

logger = logging.getLogger(__name__)

_SETTINGS_KEPT: Final = 256
_last_lookup_id: ContextVar[str | None] = ContextVar("semcache_last_lookup_id", default=None)


class SemcacheCache(BaseCache):
    """A semantic cache for LangChain's models.

    Give it to one model (``ChatOpenAI(cache=…)``) or to all (``set_llm_cache(…)``). Of a prompt, only the
    last user turn is compared by meaning; the model, its settings, the tools and everything before that
    turn must match exactly. Every message that comes from it has
    ``response_metadata["semcache"]`` with the `lookup_id` that feedback asks for.

    Args:
        cache: Serves blocking calls; and awaiting ones, in a thread, without `async_cache`.
        async_cache: Serves awaiting calls; and blocking ones, on a loop of its own, without `cache`.
        tenant: The customer, from authenticated identity; a value, a context variable or a function.
            A context variable that isn't set, or a function that raises `LookupError`, turns the cache
            off for that call.
        segment: Which people share answers, e.g. ``{"locale": "zh-CN"}``.
        subject: The user or object whose data the answers may hold.
        user: Who asks: answers that this user has refused as a match aren't served to her again.
        tags: Tags of every entry that is stored.
        ttl: Seconds an entry lives; None means what the policy says.
        kind: Freshness class, a key of `Policy.kinds`.
        threshold: Least cosine similarity of a semantic hit; may only tighten the policy's.
        model, model_version: The model's identity where LangChain doesn't show it. Without any, only exact
            matches are served.
        schemas: Classes given to ``with_structured_output(…, method="json_schema")``. LangChain shows a
            cache only their names; calls with a class that isn't here bypass the cache.
        ignored: Names of more settings and headers that don't change the answer.
        split_prompt: Takes a user turn apart into (question, what it is about), for prompts that carry
            documents; the second part must match exactly.

    Raises:
        ConfigurationError: Neither cache was given, or two schemas share one name.
    """

    def __init__(
        self,
        cache: SyncCache | None = None,
        *,
        async_cache: AsyncCache | None = None,
        tenant: Source[str] = "",
        segment: Source[Mapping[str, str]] | None = None,
        subject: Source[str] | None = None,
        user: Source[str] | None = None,
        tags: Collection[str] = (),
        ttl: float | None = None,
        kind: str | None = None,
        threshold: float | None = None,
        model: str = "",
        model_version: str = "",
        schemas: Collection[type] = (),
        ignored: Collection[str] = (),
        split_prompt: SplitPrompt | None = None,
    ) -> None:
        self._sync, self._async = both_caches(cache, async_cache)
        self._tenant, self._segment, self._subject, self._user = tenant, segment, subject, user
        self._model, self._model_version = model, model_version
        self._kind, self._threshold, self._split_prompt = kind, threshold, split_prompt
        self._options: dict[str, Any] = {"tags": tuple(tags), "ttl": ttl, "kind": kind}
        self._pending = PendingLookups()
        self._warned: set[str] = set()
        parse = functools.partial(
            parse_llm_string, ignored=frozenset(ignored), schemas=schemas_by_repr(schemas)
        )
        self._parse_settings: Callable[[str], LlmSettings] = functools.lru_cache(_SETTINGS_KEPT)(parse)

    def __deepcopy__(self, memo: dict[int, Any]) -> SemcacheCache:
        """Return itself: a copy of a model asks the same cache."""
        return self

    @property
    def last_lookup_id(self) -> str | None:
        """Lookup id of this thread's or task's last hit or put; for LLMs, whose text can't carry one."""
        return _last_lookup_id.get()

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """Return stored generations that may be served, as fresh copies, else None. Never raises."""
        asked = self._ask(prompt, llm_string)
        if asked is None:
            return None
        try:
            found = self._open(asked, self._sync.lookup(asked.request))
            if isinstance(found, _Damaged):
                self._sync.invalidate(entry_ids=[found.entry_id])
        except SemcacheError as error:
            self._failed("lookup", error)
            return None
        return found if isinstance(found, list) else None

    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """Return stored generations that may be served, as fresh copies, else None. Never raises."""
        asked = self._ask(prompt, llm_string)
        if asked is None:
            return None
        try:
            found = self._open(asked, await self._async.lookup(asked.request))
            if isinstance(found, _Damaged):
                await self._async.invalidate(entry_ids=[found.entry_id])
        except SemcacheError as error:
            self._failed("lookup", error)
            return None
        return found if isinstance(found, list) else None

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Store generations if they may be stored. Never raises."""
        new = self._prepare(prompt, llm_string, return_val)
        if new is None:
            return
        try:
            stored = self._sync.put(new.request, new.response, fence=new.pending.fence, **self._options)
        except SemcacheError as error:
            self._failed("update", error)
            return
        self._note(return_val, new.pending, stored)

    async def aupdate(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Store generations if they may be stored. Never raises."""
        new = self._prepare(prompt, llm_string, return_val)
        if new is None:
            return
        try:
            stored = await self._async.put(
                new.request, new.response, fence=new.pending.fence, **self._options
            )
        except SemcacheError as error:
            self._failed("update", error)
            return
        self._note(return_val, new.pending, stored)

    def clear(self, **kwargs: Any) -> None:
        """Withdraw every entry of this tenant, or of all if there is none.

        Args:
            **kwargs: A selection as `SemanticCache.invalidate` takes it, e.g. ``model="gpt-4o"``, instead of
                everything.

        Raises:
            StoreUnavailableError: The store didn't acknowledge.
            LookupError: The tenant isn't set here.
        """
        self._sync.invalidate(**self._selection(kwargs))

    async def aclear(self, **kwargs: Any) -> None:
        """Withdraw entries, as `clear` does."""
        await self._async.invalidate(**self._selection(kwargs))

    def _selection(self, given: Mapping[str, Any]) -> dict[str, Any]:
        tenant = read(self._tenant)
        if tenant and "entry_ids" not in given:
            return {"tenant": tenant, **given}
        return dict(given) or {"everything": True}

    def _ask(self, prompt: str, llm_string: str) -> _Asked | None:
        try:
            tenant = read(self._tenant)
            segment = None if self._segment is None else read(self._segment)
            subject = None if self._subject is None else read(self._subject)
            user = None if self._user is None else read(self._user)
        except LookupError:
            self._warn_once(
                "tenant", "the tenant, segment, subject or user isn't set here; this call isn't cached"
            )
            return None
        parsed = parse_prompt(prompt)
        settings = self._parse_settings(llm_string)
        self._warn_about(settings)
        try:
            request = make_request(
                parsed,
                settings,
                tenant=tenant,
                model=self._model,
                model_version=self._model_version,
                segment=segment,
                subject=subject,
                user=user,
                kind=self._kind,
                threshold=self._threshold,
                split_prompt=self._split_prompt,
            )
        except SemcacheError as error:
            self._failed("request", error)
            return None
        key = hashlib.blake2b(digest_size=16)
        for part in (prompt, llm_string, tenant):
            data = part.encode("utf-8", "surrogatepass")
            key.update(len(data).to_bytes(8, "big") + data)
        return _Asked(request, key.digest(), parsed.chat, settings.structure)

    def _open(self, asked: _Asked, decision: Decision) -> list[Generation] | _Damaged | None:
        if isinstance(decision, Miss):
            self._pending.remember(asked.key, Pending(decision.fence, decision.reason, time.monotonic()))
            return None
        generations = from_response(decision.response, chat=asked.chat)
        if generations is None or not fits(generations, asked.structure):
            logger.warning(
                "entry %s doesn't hold what this LangChain call asks for; withdrawn", decision.entry_id
            )
            self._pending.remember(asked.key, Pending(decision.fence, "undecodable", time.monotonic()))
            return _Damaged(decision.entry_id)
        lookup_id = decision.lookup_id
        _last_lookup_id.set(lookup_id)
        annotate(generations, hit_note(decision))
        return generations

    def _prepare(self, prompt: str, llm_string: str, generations: Sequence[Generation]) -> _New | None:
        asked = self._ask(prompt, llm_string)
        if asked is None:
            return None
        pending = self._pending.take(asked.key) or Pending(None, "no_candidate", None)
        if pending.fence is None and pending.reason in FAILURES:
            # Without the time of its lookup, an answer could outlive an invalidation that came since.
            outcome = pending.reason if pending.reason in STORE_OUTCOMES else "store_unavailable"
            self._note(generations, pending, Stored(outcome))
            return None
        latency = None if pending.started is None else (time.monotonic() - pending.started) * 1000.0
        response = to_response(generations, latency_ms=latency, structure=asked.structure)
        return _New(asked.request, response or UNSTORABLE, pending)

    def _note(self, generations: Sequence[Generation], pending: Pending, stored: Stored) -> None:
        lookup_id = stored.lookup_id
        _last_lookup_id.set(lookup_id)
        annotate(generations, miss_note(pending.reason, stored))

    def _failed(self, what: str, error: SemcacheError) -> None:
        logger.warning("%s failed, the model is called: %s: %s", what, type(error).__name__, error)

    def _warn_about(self, settings: LlmSettings) -> None:
        if not settings.model and not self._model:
            self._warn_once(
                f"model {settings.endpoint}",
                f"no model name in the settings of {settings.endpoint or 'this model'}: only exact matches are "
                "served; pass model=… to SemcacheCache",
            )
        for name in settings.schemaless:
            self._warn_once(
                name,
                f"LangChain shows the response schema {name} by name only: these calls aren't cached; "
                "pass schemas=[…] to SemcacheCache",
            )

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            logger.warning(message)


@dataclass(frozen=True, slots=True)
class _Asked:
    request: CacheRequest
    key: bytes
    chat: bool
    structure: Structure | None


@dataclass(frozen=True, slots=True)
class _Damaged:
    entry_id: str


@dataclass(frozen=True, slots=True)
class _New:
    request: CacheRequest
    response: Response
    pending: Pending
