"""One put: what may be stored, under which fence, with which embedding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from semcache import admission, scope
from semcache.codec import encode_embedding
from semcache.core.arguments import Given
from semcache.core.rows import Rows
from semcache.core.state import Identity, Look
from semcache.errors import (
    EncoderError,
    StoreUnavailableError,
)
from semcache.eviction import tokens_of
from semcache.leases import Lease
from semcache.protocols import Draft, LateEmbedding
from semcache.requests import encode_request
from semcache.steps import Compute, Steps
from semcache.types import (
    CacheRequest,
    Embedding,
    Fence,
    LookupToken,
    Response,
    Stored,
)


class Puts(Rows):
    """Steps of a put."""

    def put(
        self,
        request: CacheRequest,
        response: Response,
        given: Given,
        *,
        fence: Fence | None,
        lease: Lease | None = None,
        stretch: float = 1.0,
    ) -> Steps[Stored]:
        """Store, count, never raise for the store's or the encoder's sake."""
        look = self._look(request)
        hit = self.held(request, fence) if self.trial else None
        if hit is not None and not isinstance(
            admission.storable(request, response, self.policy, given.confidence), str
        ):
            yield from self.compare(hit, response)
            if not hit.stale:  # a cache that serves would have called no model, and put nothing
                self.metrics.count("stored", "shadow")
                return Stored("shadow")
        stored = yield from self._put(look, response, fence, given, lease, stretch)
        self.metrics.count("stored", stored.outcome)
        self.metrics.took("put", self.clock() - look.started)
        return stored

    def _put(
        self,
        look: Look,
        response: Response,
        fence: Fence | None,
        given: Given,
        lease: Lease | None,
        stretch: float,
    ) -> Steps[Stored]:
        request, policy = look.request, self.policy
        if admission.bypass(request, policy) is not None:
            return Stored("policy")
        data = admission.storable(request, response, policy, given.confidence)
        if isinstance(data, str):
            return Stored(data)
        sure = response.confidence if given.confidence is None else given.confidence
        ttl = admission.ttl_of(
            request, response, policy, kind=given.kind, ttl=given.ttl, confidence=sure, stretch=stretch
        )
        if ttl == 0:
            return Stored("no_store")
        given = given._replace(ttl=ttl, confidence=sure)
        if not self.breaker.admits():
            return Stored("breaker_open")
        try:
            identity = look.identity = yield from self._identify(request, look.left)
            if fence is not None and self.server_now() - fence.time_us / 1e6 > policy.fence_ttl:
                return Stored("old_fence")
            embedding: Embedding | None = None
            late = False
            if not self.fingerprint:
                yield Compute(self.meet_encoder)
            if admission.exact_only(request, policy) is None:
                try:
                    embedding, _ = yield from self._embed(look, identity, None, storing=True)
                except TimeoutError:
                    self.metrics.count("failures", "late_embedding")
                    late = True  # it matches exactly now, and semantically as soon as the encoder is done
                except EncoderError as error:
                    self._failure(error, look)  # it can still match exactly
            look = self._look(request)  # the encoder's time is spent; writing has its own
            identity = look.identity = yield from self._identify(request, look.left)
            if not self.epoch:
                yield from self._read(look, (), None)
            for again in (False, True):
                draft = self._draft(identity, request, data, fence, given, embedding, lease, stretch)
                if self.budget is not None:
                    draft = self._budgeted(draft, response, late)
                reply = yield from self._send(identity, draft, embedding)
                if again or fence is not None or reply.outcome != "old_fence":
                    break
                # Our idea of the epoch was old; nothing about the answer is.
                yield from self._read(look, (), None)
                identity = look.identity = yield from self._identify(request, look.left)
        except (StoreUnavailableError, TimeoutError) as error:
            reason = self._failure(error, look)
            return Stored("store_unavailable" if reason == "store_busy" else reason)
        self.breaker.succeeded()
        if lease is not None and self.keeper is not None and identity.entry_id == lease.entry_id:
            self.keeper.ended(lease)
        self.local.drop(identity.entry_id)
        for why in reply.evicted:
            self.metrics.count("evictions", why)
        if reply.outcome not in ("stored", "replaced"):
            return Stored(reply.outcome)
        if late:
            self._attach_later(identity, reply.revision, draft)
        if self.disk is not None:
            self.disk.keep(draft, time_us=reply.time_us, longest=self.policy.tombstone_ttl)
        now = reply.time_us / 1e6
        make = self._token_maker(
            request.tenant, identity.entry_id, reply.revision, "exact", 1.0, identity.digest, now
        )
        return Stored(reply.outcome, identity.entry_id, reply.revision, LookupToken(make))

    def _attach_later(self, identity: Identity, revision: int, draft: Draft) -> None:
        def done(future: Any) -> None:
            if future.cancelled() or future.exception() is not None:
                return
            encoded = future.result()
            if admission.unreadable(encoded.limits, encoded.embedding, self.policy) is None:
                data = encode_embedding(encoded.embedding)
                self.late.append(
                    LateEmbedding(
                        identity.entry_id, revision, identity.scope, self.fingerprint, data, draft.epoch,
                        draft.expires_at,
                    )
                )  # fmt: skip

        self.encoder.submit(identity.text).add_done_callback(done)

    def _draft(
        self,
        identity: Identity,
        request: CacheRequest,
        data: bytes,
        fence: Fence | None,
        given: Given,
        embedding: Embedding | None,
        lease: Lease | None,
        stretch: float,
    ) -> Draft:
        ttl = self._jittered(given.ttl, identity.digest)
        keep = None if ttl is None else ttl + self.policy.stale_while_revalidate
        if self.disk is not None and self.policy.store_ttl is not None:
            keep = self.policy.store_ttl if keep is None else min(keep, self.policy.store_ttl)
        now = self.server_now()
        shared = None
        if embedding is not None:
            from semcache.encoders.caching import quantise

            shared = (identity.digest, quantise(embedding))
        return Draft(
            entry_id=identity.entry_id,
            scope=identity.scope,
            prompt=identity.text,
            response=data,
            tags=given.tags,
            all_tags=scope.entry_generations(identity.generations, request.tenant, given.tags),
            epoch=self.epoch if fence is None else fence.epoch,
            fence_us=None if fence is None else fence.time_us,
            ttl=ttl,
            keep=keep,
            now=now,
            expires_at=None if keep is None else now + keep,
            confidence=given.confidence,
            kind=given.kind,
            embedding=None if embedding is None else encode_embedding(embedding),
            fingerprint=self.fingerprint if embedding is not None else "",
            shared_embedding=shared,
            request=encode_request(request, keep_all=self.policy.keep_requests),
            lease=lease.holder if lease is not None else "",
            stretch=stretch,
        )

    def _budgeted(self, draft: Draft, response: Response, late: bool) -> Draft:
        """Add what the budget's accounts need to know."""
        return replace(
            draft,
            budget=self.budget,
            saves=(tokens_of(response.usage), response.latency_ms),
            spare=len("embedding") + 2 * self.encoder.dim + len(self.fingerprint) if late else 0,
            uses=self.take_uses(),
        )

    def _jittered(self, ttl: float | None, digest: str) -> float | None:
        if ttl is None or not self.policy.ttl_jitter:
            return ttl
        return ttl * (1.0 - self.policy.ttl_jitter * (int(digest[:8], 16) / 0xFFFFFFFF))
