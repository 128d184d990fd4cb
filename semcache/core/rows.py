"""Embeddings and index rows: reading a scope in, encoding a text once, telling own puts from others'."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from semcache import admission
from semcache.codec import decode_embedding
from semcache.core.state import Identity, Look
from semcache.core.uses import Uses
from semcache.core.watching import Watching
from semcache.protocols import Draft, PutReply
from semcache.steps import Await, Compute, Steps
from semcache.types import (
    Embedding,
)

if TYPE_CHECKING:
    from semcache.protocols import VectorIndex

MAX_SCOPES = 200_000
MODEL_LOAD_TIMEOUT = 10.0  # seconds that the first put waits for the encoder


class Rows(Watching, Uses):
    """Steps around embeddings and the index."""

    def _load(self, scope_id: str, look: Look) -> Steps[None]:
        """Read a scope's rows into the index, once; the change log keeps them current after that."""
        if (
            self.starting is not None
        ):  # a snapshot is being read and brought up to date, and may hold this scope
            yield Await(self.starting, max(look.left(), 0.0))
            self.starting = None
        with self.lock:
            if scope_id in self.loaded:
                self.loaded.move_to_end(scope_id)
                return
            self.loaded[scope_id] = 0
            while len(self.loaded) > MAX_SCOPES:
                old, _ = self.loaded.popitem(last=False)
                if self.index is not None:
                    self.index.drop_scope(old)
        try:
            yield from self._note_position(look)
            members = yield self._ask("members", scope_id, self.fingerprint, timeout=look.left())
            if members:
                # Rows are hints worth having for later lookups too: the model shouldn't pay for a slow start.
                blobs = yield self._ask(
                    "embeddings", [n for n, _ in members], self.fingerprint, timeout=max(look.left(), 5.0)
                )
                yield Compute(lambda: self.add_rows(scope_id, members, blobs))
        except BaseException:
            with self.lock:
                self.loaded.pop(scope_id, None)
            raise
        with self.lock:
            if scope_id in self.loaded:
                self.loads += 1
                self.loaded[scope_id] = self.loads

    def _note_position(self, look: Look) -> Steps[None]:
        """Note where the change log stands, before anything is read that it may speak of later."""
        if self.followed is None:
            position = yield self._ask("position", timeout=look.left())
            with self.lock:
                self.followed = self.followed or position

    def add_rows(
        self, scope_id: str, members: Sequence[tuple[str, float | None]], blobs: Sequence[bytes | None]
    ) -> None:
        """Add stored embeddings to the index; what isn't one of this encoder's is left out."""
        import numpy as np

        dim = self.encoder.dim
        rows = [
            (m, row)
            for m, blob in zip(members, blobs, strict=True)
            if (row := decode_embedding(blob, dim)) is not None
        ]
        if rows:
            self.index_of(dim).add(
                scope_id, [m[0] for m, _ in rows], np.stack([row for _, row in rows]), [m[1] for m, _ in rows]
            )

    def index_of(self, dim: int) -> VectorIndex:
        """Return the index, made at the first row."""
        with self.lock:
            if self.index is None:
                self.index = self.new_index(dim)
            return self.index

    def new_index(self, dim: int) -> VectorIndex:
        """Make an index."""
        if self._make_index is not None:
            return self._make_index(dim)
        from semcache.indexes.adaptive import AdaptiveIndex

        return AdaptiveIndex(dim, max_bytes=self.policy.max_index_bytes, on_drop=self.scope_dropped)

    def _cached_embedding(self, digest: str) -> Embedding | None:
        if self._embeddings is None:
            return None
        row: Embedding | None = self._embeddings.get(digest)
        return row

    def _remember(self, digest: str, embedding: Embedding) -> None:
        if self._embeddings is None:
            from semcache.encoders.caching import EmbeddingLRU

            with self.lock:
                if self._embeddings is None:
                    self._embeddings = EmbeddingLRU(8192, len(embedding))
        self._embeddings.put(digest, embedding)

    def _remember_late(self, digest: str, done: Future[Any]) -> None:
        """Keep what came too late for one lookup: the next one with this text has it."""
        if done.cancelled() or done.exception() is not None:
            return
        encoded = done.result()
        if admission.unreadable(encoded.limits, encoded.embedding, self.policy) is None:
            self._remember(digest, encoded.embedding)

    def _embed(
        self, look: Look, identity: Identity, shared: bytes | None, *, storing: bool = False
    ) -> Steps[tuple[Embedding | None, str | None]]:
        """Return (embedding, None), or (None, why this text can't be judged by its embedding)."""
        row = self._cached_embedding(identity.digest)
        if row is not None:
            return row, None
        if shared is not None:
            from semcache.encoders.caching import dequantise

            row = dequantise(shared, self.encoder.dim)
            if row is not None:
                self._remember(identity.digest, row)
                return row, None
        started = self.clock()
        limit = max(look.left(), 0.0)
        if storing and not self.encoded:
            limit = MODEL_LOAD_TIMEOUT  # once: the model is still being loaded
        future = self.encoder.submit(identity.text)
        try:
            encoded = yield Await(future, limit)
        except TimeoutError:
            future.add_done_callback(lambda done: self._remember_late(identity.digest, done))
            raise
        self.encoded = True
        self.metrics.took("encode", self.clock() - started)
        unreadable = admission.unreadable(encoded.limits, encoded.embedding, self.policy)
        if unreadable is not None:
            return None, unreadable
        self._remember(identity.digest, encoded.embedding)
        return encoded.embedding, None

    def _add_own(self, identity: Identity, embedding: Embedding, expires_at: float | None) -> None:
        """Add the row of an own put; if its scope isn't here, the row will be read with it when it is asked for."""
        with self.lock:
            if identity.scope not in self.loaded:
                return
        self.index_of(len(embedding)).add(
            identity.scope, [identity.entry_id], embedding.reshape(1, -1), [expires_at]
        )

    def scope_dropped(self, scope_id: str) -> None:
        """Note that the index let a scope go for want of memory: it is read anew when it is asked for."""
        with self.lock:
            self.loaded.pop(scope_id, None)
        self.metrics.count("index", "dropped")

    def _send(self, identity: Identity, draft: Draft, embedding: Embedding | None) -> Steps[PutReply]:
        """Write, and add the row to this process's index; the change log's record of it is passed over."""
        ticket, added = self.own.begin(draft.entry_id), embedding is None
        try:
            reply: PutReply = yield self._ask("put", draft, timeout=self.policy.deadline)
            if embedding is not None and reply.outcome in ("stored", "replaced"):
                self._add_own(identity, embedding, draft.expires_at)
                added = True
        finally:  # also when a task is cancelled
            if self.own.end(ticket, added=added):
                with self.lock:
                    self.loaded.pop(identity.scope, None)
        return reply
