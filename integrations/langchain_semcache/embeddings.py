"""`SemcacheEmbeddings`: the vectors of a LangChain `Embeddings`, remembered by semcache as they were."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from langchain_core.embeddings import Embeddings
from pydantic import BaseModel

from langchain_semcache.bridges import AsyncCache, SyncCache, both_caches
from langchain_semcache.sources import Source, read
from semcache.errors import ConfigurationError, SemcacheError
from semcache.types import CacheRequest, Decision, Fence, Hit, JsonValue, Response

logger = logging.getLogger(__name__)

FORMAT: Final = "embedding/1"
_AT_ONCE: Final = 16  # lookups that wait for the store together
_MODEL_FIELDS: Final = ("model", "model_name", "model_id", "deployment", "azure_deployment")
# how texts travel, not what becomes of them
_IDLE: Final = frozenset(
    {"chunk_size", "max_retries", "request_timeout", "timeout", "show_progress_bar", "show_progress",
     "retry_min_seconds", "retry_max_seconds", "cache_folder", "multi_process"}
)  # fmt: skip


class SemcacheEmbeddings(Embeddings):
    """Remembers the vectors of another `Embeddings`: exact texts only, each text once, documents and queries apart.

    A batch asks for the missing texts only, duplicates once. A cache that is away means that every text is asked for.

    Args:
        embeddings: Makes the vectors.
        cache, async_cache: As in `SemcacheCache`; either serves both kinds of callers.
        model: Names what makes the vectors; needed where `embeddings` doesn't say it itself.
        tenant: The customer, if vectors aren't to be shared among customers.
        tags, ttl: Of every vector that is stored.

    Raises:
        ConfigurationError: Neither cache was given, or no model can be told.
    """

    def __init__(
        self,
        embeddings: Embeddings,
        cache: SyncCache | None = None,
        *,
        async_cache: AsyncCache | None = None,
        model: str = "",
        tenant: Source[str] = "",
        tags: Collection[str] = (),
        ttl: float | None = None,
    ) -> None:
        self._embeddings = embeddings
        self._sync, self._async = both_caches(cache, async_cache)
        self._model = model or model_of(embeddings)
        self._settings = settings_of(embeddings)
        self._tenant = tenant
        self._options: dict[str, Any] = {"tags": tuple(tags), "ttl": ttl}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text, stored or new."""
        asked = self._requests(texts, "document")
        if asked is None:
            return self._embeddings.embed_documents(texts)
        known = _Known({text: self._lookup(request) for text, request in asked.items()})
        if known.missing:
            new = self._embeddings.embed_documents(known.missing)
            for text, response, fence in known.learn(new):
                self._put(asked[text], response, fence)
        return known.in_order(texts) or self._embeddings.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query, stored or new."""
        asked = self._requests([text], "query")
        if asked is None:
            return self._embeddings.embed_query(text)
        known = _Known({text: self._lookup(asked[text])})
        if known.missing:
            new = self._embeddings.embed_query(text)
            for _, response, fence in known.learn([new]):
                self._put(asked[text], response, fence)
            return new
        return known.vectors[text]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text, stored or new."""
        asked = self._requests(texts, "document")
        if asked is None:
            return await self._embeddings.aembed_documents(texts)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def lookup(request: CacheRequest) -> Decision | None:
            async with gate:
                return await self._alookup(request)

        decisions = await asyncio.gather(*(lookup(request) for request in asked.values()))
        known = _Known(dict(zip(asked, decisions, strict=True)))
        if known.missing:
            new = await self._embeddings.aembed_documents(known.missing)
            for text, response, fence in known.learn(new):
                await self._aput(asked[text], response, fence)
        return known.in_order(texts) or await self._embeddings.aembed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Return the vector of a query, stored or new."""
        asked = self._requests([text], "query")
        if asked is None:
            return await self._embeddings.aembed_query(text)
        known = _Known({text: await self._alookup(asked[text])})
        if known.missing:
            new = await self._embeddings.aembed_query(text)
            for _, response, fence in known.learn([new]):
                await self._aput(asked[text], response, fence)
            return new
        return known.vectors[text]

    def _requests(self, texts: Sequence[str], side: str) -> dict[str, CacheRequest] | None:
        try:
            tenant = read(self._tenant)
        except LookupError:
            logger.warning("the tenant isn't set here; these embeddings aren't cached")
            return None
        return {
            text: CacheRequest(
                f"{side} {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}",
                model=self._model,
                tenant=tenant,
                endpoint=f"langchain-embeddings:{side}",
                params={"settings": self._settings},
                mode="exact",
            )
            for text in texts
        }

    def _lookup(self, request: CacheRequest) -> Decision | None:
        try:
            return self._sync.lookup(request)
        except SemcacheError as error:
            _failed(error)
            return None

    async def _alookup(self, request: CacheRequest) -> Decision | None:
        try:
            return await self._async.lookup(request)
        except SemcacheError as error:
            _failed(error)
            return None

    def _put(self, request: CacheRequest, response: Response, fence: Fence) -> None:
        try:
            self._sync.put(request, response, fence=fence, **self._options)
        except SemcacheError as error:
            _failed(error)

    async def _aput(self, request: CacheRequest, response: Response, fence: Fence) -> None:
        try:
            await self._async.put(request, response, fence=fence, **self._options)
        except SemcacheError as error:
            _failed(error)


class _Known:
    """Which vectors of a batch are there, and which are missing."""

    def __init__(self, decisions: Mapping[str, Decision | None]) -> None:
        self.vectors: dict[str, list[float]] = {}
        self.missing: list[str] = []
        self._fences: dict[str, Fence | None] = {}
        for text, decision in decisions.items():
            vector = _vector(decision.response) if isinstance(decision, Hit) else None
            if vector is None:
                self.missing.append(text)
                self._fences[text] = None if decision is None else decision.fence
            else:
                self.vectors[text] = vector

    def learn(self, new: Sequence[Sequence[float]]) -> list[tuple[str, Response, Fence]]:
        """Take over the vectors of the missing texts; return what is to be stored."""
        if len(new) != len(self.missing):
            return []
        to_store: list[tuple[str, Response, Fence]] = []
        for text, vector in zip(self.missing, new, strict=True):
            self.vectors[text] = list(vector)
            response, fence = _response(vector), self._fences[text]
            if response is not None and fence is not None:
                to_store.append((text, response, fence))
        return to_store

    def in_order(self, texts: Sequence[str]) -> list[list[float]] | None:
        """Return a vector for each text; None if one isn't known, since the other side gave too few or too many."""
        if any(text not in self.vectors for text in texts):
            return None
        return [list(self.vectors[text]) for text in texts]


def model_of(embeddings: Embeddings) -> str:
    """Return the name of the model that makes the vectors.

    Raises:
        ConfigurationError: It doesn't say.
    """
    for field in _MODEL_FIELDS:
        value = getattr(embeddings, field, None)
        if isinstance(value, str) and value:
            return value
    raise ConfigurationError(
        f"{type(embeddings).__name__} doesn't say which model it uses; name it, so that vectors of two models "
        "never meet"
    )


def settings_of(embeddings: Embeddings) -> str:
    """Return a digest of everything about it that may change a vector."""
    fields: dict[str, str] = {}
    if isinstance(embeddings, BaseModel):
        for name in type(embeddings).model_fields:
            if name not in _IDLE:
                plain = _plain(getattr(embeddings, name))
                if plain is not None:
                    fields[name] = plain
    kind = f"{type(embeddings).__module__}.{type(embeddings).__qualname__}"
    return hashlib.sha256(repr((kind, sorted(fields.items()))).encode("utf-8", "replace")).hexdigest()


def _plain(value: object) -> str | None:
    """Return the repr of plain data, None for anything else (secrets, clients, functions)."""
    if isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, list | tuple):
        return repr([_plain(member) for member in value])
    if isinstance(value, dict):
        return repr(sorted((str(key), _plain(member)) for key, member in value.items()))
    return None


def _response(vector: Sequence[float]) -> Response | None:
    """Return a vector as it is stored: float32 if that is what it is, else float64, in base64."""
    exact = np.asarray(vector, dtype="<f8")
    if exact.ndim != 1 or not len(exact) or not np.isfinite(exact).all():
        return None
    with np.errstate(over="ignore", under="ignore"):
        short = exact.astype("<f4")
    form = "<f4" if (short.astype("<f8") == exact).all() else "<f8"
    data = short if form == "<f4" else exact
    text = base64.b64encode(data.tobytes()).decode()
    envelope: dict[str, JsonValue] = {"format": FORMAT, "form": form, "dim": len(exact)}
    return Response(text, data=envelope)


def _vector(response: Response) -> list[float] | None:
    """Return the vector that `_response` stored; None for anything else."""
    data = response.data
    if (
        not isinstance(data, Mapping)
        or data.get("format") != FORMAT
        or data.get("form") not in ("<f4", "<f8")
    ):
        return None
    try:
        row = np.frombuffer(base64.b64decode(response.text, validate=True), dtype=str(data["form"]))
    except ValueError:
        return None
    vector: list[float] = row.tolist()
    return vector if len(vector) == data.get("dim") and all(map(math.isfinite, vector)) else None


def _failed(error: SemcacheError) -> None:
    logger.warning("the cache failed: %s: %s", type(error).__name__, error)
