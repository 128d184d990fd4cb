"""SemanticCache and AsyncSemanticCache: the same operations, performed with and without an event loop.

All rules and the order of things are in `core`; here are the drivers, opening and closing.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from semcache.core import Core
from semcache.core.arguments import as_request, as_response, as_versions, matches, selection
from semcache.errors import ConfigurationError
from semcache.matching import default_matcher
from semcache.metrics import Stats
from semcache.policy import Policy
from semcache.protocols import (
    AsyncStore,
    Encoder,
    Matcher,
    Refresh,
    Store,
    Swept,
    Tombstone,
    VectorIndex,
    Verifier,
)
from semcache.steps import drive, drive_async
from semcache.types import (
    About,
    Answer,
    CacheRequest,
    Decision,
    Entry,
    Explanation,
    FeedbackResult,
    Fence,
    Invalidated,
    ModelVersion,
    Response,
    Stored,
    Verdict,
)

if TYPE_CHECKING:
    from semcache.background import RefreshTasks, RefreshThreads
    from semcache.snapshots import Snapshots
    from semcache.sync import FollowerThread

_READ_TIMEOUT = 5.0  # seconds, for operators' reads
_caches: weakref.WeakSet[_Base] = weakref.WeakSet()


class _Base:
    """Construction, identity and background work of both caches."""

    def __init__(
        self,
        *,
        encoder: Encoder,
        policy: Policy,
        namespace: str,
        secret: bytes | None,
        matcher: Matcher | None,
        verifier: Verifier | None,
        index: Callable[[int], VectorIndex] | None,
        background: Store | None,
        clock: Callable[[], float],
        snapshot_dir: str | os.PathLike[str] | None,
    ) -> None:
        from semcache.encoders.thread import EncoderThread
        from semcache.keys import Keys

        if not isinstance(policy, Policy):
            raise ConfigurationError(f"policy is {type(policy).__name__}, expected Policy")
        if secret is not None and (not isinstance(secret, bytes) or len(secret) < 16):
            raise ConfigurationError("secret must be at least 16 bytes")
        Keys(namespace)  # refuses a namespace that can't be a key
        self._core = Core(
            encoder=encoder if isinstance(encoder, EncoderThread) else EncoderThread(encoder),
            index=index,
            matcher=(lambda _: matcher)
            if matcher is not None
            else (lambda name: default_matcher(name, policy)),
            policy=policy,
            namespace=namespace,
            secret=secret,
            verifier=verifier,
            clock=clock,
            snapshots=self._snapshots(snapshot_dir, namespace, background),
        )
        self._background = background
        self._follower: FollowerThread | None = None
        self._keep_leases()
        self._release: Callable[[], None] = lambda: None
        self._closed = False
        _caches.add(self)

    @staticmethod
    def _snapshots(
        folder: str | os.PathLike[str] | None, namespace: str, background: Store | None
    ) -> Snapshots | None:
        if folder is None:
            return None
        from semcache.snapshots import Snapshots

        if background is None:
            raise ConfigurationError(
                "snapshot_dir needs a change log to be followed; give background as well"
            )
        return Snapshots(folder, namespace)

    @property
    def policy(self) -> Policy:
        """The policy this cache was made with."""
        return self._core.policy

    @property
    def namespace(self) -> str:
        """The deployment whose keys this cache uses."""
        return self._core.namespace

    def _follow(self) -> None:
        """Start the follower where there is none in this process."""
        if self._follower is None and self._background is not None and not self._closed:
            from semcache.sync import FollowerThread

            with self._core.lock:
                if self._follower is None:
                    self._follower = FollowerThread(self._core, self._background)

    def _refresh(self) -> None:
        """Make what runs refreshes in the background."""

    def _keep_leases(self) -> None:
        """Share flights with other processes, if there is a store to do that with beside the calls."""
        policy = self._core.policy
        if self._background is not None and policy.single_flight and policy.flight_lease > 0:
            from semcache.leases import LeaseKeeper

            self._core.keeper = LeaseKeeper(
                self._background, policy.flight_lease, policy.flight_timeout, self._core.metrics
            )

    def _warm_up(self) -> Future[Any]:
        """Load the model beside the first requests; the future is done when it is there."""
        self._core.meet_encoder()
        return self._core.encoder.submit("warm up")

    def _stop(self) -> None:
        self._closed = True
        if self._follower is not None:
            self._follower.stop()
        if self._core.keeper is not None:
            self._core.keeper.close()

    def _keep(self) -> None:
        """Write a snapshot for the next process, if that is wanted."""
        if self._follower is not None:
            self._follower.keep()

    def _after_fork(self) -> None:
        self._follower = None
        if self._core.snapshots is not None:
            self._core.snapshots.renew()
        self._core.fresh_start()
        self._core.metrics.reset()
        self._keep_leases()
        self._refresh()

    def _local_stats(self, server: Mapping[str, str]) -> Stats:
        core = self._core
        index = core.index
        scopes = index.scopes() if index else []
        return Stats(
            hits=core.metrics.counts("hits"),
            tiers=core.metrics.counts("tiers"),
            misses=core.metrics.counts("misses"),
            stored=core.metrics.counts("stored"),
            waited=core.metrics.counts("waited").get("waited", 0),
            failures=core.metrics.counts("failures"),
            feedback=core.metrics.counts("feedback"),
            refreshes=core.metrics.counts("refreshes"),
            latency_ms=core.metrics.latencies(),
            scopes=len(scopes),
            rows=sum(index.count(s) for s in scopes) if index else 0,
            index_bytes=index.memory_bytes() if index else 0,
            scopes_dropped=core.metrics.counts("index").get("dropped", 0),
            local_entries=len(core.local),
            encoder=core.fingerprint,
            server=server,
        )


class SemanticCache(_Base):
    """A semantic cache for synchronous callers. Safe to use from many threads, and after a fork.

    Args:
        store: Where entries live.
        encoder: Turns prompts into embeddings; owned by one thread of this cache.
        policy: What may be served and stored.
        namespace: One deployment: its keys, its change log.
        secret: Root secret of ids and lookup ids, at least 16 bytes; None lets the store keep one.
        matcher: Decides whether two prompts ask the same; None for the encoder's calibrated one.
        verifier: A second opinion on semantic hits.
        index: Makes the index from the embedding's length; None for the default.
        background: A store for the change log's follower; None for none (one process only).
        clock: Monotonic seconds.
        snapshot_dir: Folder in which the index is kept from one run to the next; None for nowhere.
    """

    def __init__(
        self,
        *,
        store: Store,
        encoder: Encoder,
        policy: Policy = Policy(),  # noqa: B008 - frozen
        namespace: str = "default",
        secret: bytes | None = None,
        matcher: Matcher | None = None,
        verifier: Verifier | None = None,
        index: Callable[[int], VectorIndex] | None = None,
        background: Store | None = None,
        clock: Callable[[], float] = time.monotonic,
        snapshot_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            encoder=encoder, policy=policy, namespace=namespace, secret=secret, matcher=matcher, verifier=verifier,
            index=index, background=background, clock=clock, snapshot_dir=snapshot_dir,
        )  # fmt: skip
        self._store = store
        self._refreshes: RefreshThreads | None = None
        self._refresh()

    def _refresh(self) -> None:
        if self.policy.background_refreshes:
            from semcache.background import RefreshThreads

            self._refreshes = RefreshThreads(self._store, self.policy.background_refreshes)
            self._core.refreshes = self._refreshes

    @classmethod
    def open(
        cls,
        target: Any = None,
        *,
        namespace: str = "default",
        policy: Policy = Policy(),  # noqa: B008 - frozen
        encoder: Encoder | None = None,
        secret: bytes | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        snapshot_dir: str | os.PathLike[str] | None = None,
        matcher: Matcher | None = None,
        verifier: Verifier | None = None,
    ) -> Self:
        """Open a cache; without arguments, over an embedded server with the bundled encoder.

        A Redis that is away doesn't matter: the cache misses until it is back.

        Args:
            target: None, a URL (``redis://``, ``rediss://``, ``unix://``, ``redis+cluster://``,
                ``redis+sentinel://``, ``memory://``) or a redis-py client.
            data_dir: Folder of the embedded server; None for the user's data folder.
            snapshot_dir: Folder in which the index is kept from one run to the next, so that a process needn't read
                it from the store; None for the data folder of an embedded server, and for nowhere with any other.

        Raises:
            ConfigurationError: Something can't be meant.
            EmbeddedServerError: The embedded server can't run here.
        """
        from semcache.encoders import BundledEncoder
        from semcache.opening import open_store
        from semcache.snapshots import checked_folder

        if snapshot_dir is not None:
            checked_folder(snapshot_dir)
        opened = open_store(target, namespace=namespace, policy=policy, data_dir=data_dir, asynchronous=False)
        cache = cls(
            store=opened.store, encoder=encoder or BundledEncoder(), policy=policy, namespace=namespace,
            secret=secret or opened.secret, matcher=matcher, verifier=verifier, background=opened.background,
            snapshot_dir=opened.folder if snapshot_dir is None else snapshot_dir,
        )  # fmt: skip
        cache._release = opened.close
        cache._warm_up()
        return cache

    def lookup(self, request: CacheRequest | str) -> Decision:
        """Return a stored response that may be served, or why there is none. Never raises for the store's sake."""
        request = as_request(request)
        hit = self._core.serve_local(request)
        if hit is not None:
            return hit
        self._follow()
        return drive(self._core.lookup(request), self._store)

    def put(
        self,
        request: CacheRequest | str,
        response: Response | str,
        *,
        fence: Fence | None = None,
        tags: Collection[str] = (),
        ttl: float | None = None,
        confidence: float | None = None,
        kind: str | None = None,
    ) -> Stored:
        """Store a response. Never raises for the store's sake; `Stored.outcome` says what became of it.

        Args:
            fence: From the Miss that led to this answer: what was invalidated since refuses it. None if the
                answer is the truth as of now.
            tags: Names under which it can be invalidated.
            ttl: Seconds; None for the kind's or the policy's.
            confidence: In [0, 1].
            kind: A key of `Policy.kinds`.
        """
        self._follow()
        steps = self._core.put(
            as_request(request),
            as_response(response),
            fence=fence,
            tags=tags,
            ttl=ttl,
            confidence=confidence,
            kind=kind,
        )
        return drive(steps, self._store)

    def get_or_compute(
        self,
        request: CacheRequest | str,
        call_model: Callable[[CacheRequest], Response | str],
        *,
        tags: Collection[str] = (),
        ttl: float | None = None,
        confidence: float | None = None,
        kind: str | None = None,
    ) -> Answer:
        """Serve a stored response, or call the model and store what it says.

        Concurrent callers with the same request share one call. What the model raises is raised to its
        caller; nothing else is.

        Raises:
            OnlyIfCachedError: It was a miss, and the request asked for stored responses only.
        """
        self._follow()
        options = {"tags": tags, "ttl": ttl, "confidence": confidence, "kind": kind}
        return drive(self._core.get_or_compute(as_request(request), call_model, options), self._store)

    def feedback(
        self,
        target: str,
        verdict: Verdict,
        *,
        rater: str | None = None,
        about: About | None = None,
        tenant: str | None = None,
    ) -> FeedbackResult:
        """Say whether a served answer was right (1), wrong (-1) or neither (0).

        Args:
            target: A lookup id of a serving, or an entry id.
            rater: Who says so; the application names its users. None counts as one anonymous person.
            about: ``answer`` (the default for an exact hit) or ``match`` (the default for a semantic one).
            tenant: If given, the serving must have been this tenant's.

        Raises:
            UnknownLookupError: Unknown, foreign, forged or expired id.
            StoreUnavailableError: The store didn't acknowledge.
        """
        return drive(
            self._core.feedback(target, verdict, rater=rater, about=about, tenant=tenant), self._store
        )

    def invalidate(
        self,
        *,
        entry_ids: Collection[str] = (),
        tags: Collection[str] = (),
        model: str | None = None,
        model_version: str | None = None,
        segment: Mapping[str, str] | None = None,
        subject: str | None = None,
        tenant: str | None = None,
        older_than: float | None = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> Invalidated:
        """Withdraw entries everywhere. When this returns, they are served nowhere later than the local bound.

        Give one kind of selector; `tenant` and `older_than` (seconds) narrow the others. Several tags or
        entry ids are a union.

        Args:
            dry_run: Count what would be withdrawn, by a scan, and withdraw nothing.

        Raises:
            InvalidRequestError: No selector, or several kinds.
            StoreUnavailableError: The store didn't acknowledge.
        """
        bases = selection(
            entry_ids=entry_ids, tags=tags, model=model, model_version=model_version, segment=segment, subject=subject,
            tenant=tenant, older_than=older_than, everything=everything,
        )  # fmt: skip
        if dry_run:
            now = self._core.server_now()
            matched = sum(
                matches(entry, bases, entry_ids, tenant, older_than, now) for entry in self.entries()
            )
            return Invalidated(matched, tuple(bases), tuple(entry_ids), dry_run=True)
        steps = self._core.invalidate(entry_ids=entry_ids, bases=bases, tenant=tenant, older_than=older_than)
        return drive(steps, self._store)

    def restore(self, entry_id: str) -> bool:
        """Bring a withdrawn entry back; False if there is nothing to bring back.

        Raises:
            StoreUnavailableError: The store didn't acknowledge.
        """
        done = self._store.restore(self._core.known_id(entry_id), timeout=_READ_TIMEOUT)
        self._core.local.drop(entry_id)
        return done

    def withdrawn(self, *, limit: int = 100) -> list[Tombstone]:
        """List withdrawn entries, newest first."""
        return self._store.tombstones(limit=limit, timeout=_READ_TIMEOUT)

    def entries(self) -> Iterator[Entry]:
        """Walk over all entries of the namespace, withdrawn ones included; for operators, by a scan."""
        for batch in self._store.scan():
            yield from batch

    def get(self, entry_ids: Collection[str]) -> list[Entry | None]:
        """Return entries by name, whatever their state; for operators. Order as asked, None where there is none."""
        names = [self._core.known_id(entry_id) for entry_id in entry_ids]
        return self._store.get_many(names, timeout=_READ_TIMEOUT)

    def versions(self) -> list[ModelVersion]:
        """List the model versions that have been stored, the one put last first."""
        return as_versions(self._store.versions(timeout=_READ_TIMEOUT))

    def queue_refresh(self, entry_ids: Collection[str], *, why: str = "asked") -> None:
        """Ask for entries to be answered again by whoever works on the regeneration queue.

        Raises:
            StoreUnavailableError: The store didn't acknowledge.
        """
        self._store.queue_refresh([self._core.known_id(i) for i in entry_ids], why, timeout=_READ_TIMEOUT)

    def take_refreshes(self, consumer: str, *, count: int = 10, idle: float = 60.0) -> list[Refresh]:
        """Claim entries that were withdrawn or went stale, to answer them again.

        Args:
            consumer: Name of this worker.
            idle: Seconds after which another worker's unfinished claim is taken over.
        """
        return self._store.take_refreshes(consumer, count=count, idle=idle, timeout=_READ_TIMEOUT)

    def finish_refreshes(self, done: Collection[Refresh]) -> None:
        """Take finished work off the regeneration queue."""
        if done:
            self._store.finish_refreshes([work.ticket for work in done], timeout=_READ_TIMEOUT)

    def sweep(self) -> Swept:
        """Clean up now: fold old generations, forget old tombstones, announce what a crashed writer left."""
        return self._store.sweep(**self._core.sweeping(), timeout=_READ_TIMEOUT)

    def pseudonym(self, text: str) -> str:
        """Return a keyed digest that stands for a text in this namespace, the same in every process.

        For tenants and raters that are known by something that mustn't be stored, e.g. a credential.

        Raises:
            StoreUnavailableError: The namespace's secret isn't known yet, and the store doesn't answer.
        """
        return drive(self._core.pseudonym(text), self._store)

    def explain(self, request: CacheRequest | str) -> Explanation:
        """Say what a lookup would do, what each rule finds, and what would flip it. Serves and counts nothing."""
        self._follow()
        return drive(self._core.explain(as_request(request)), self._store)

    def stats(self) -> Stats:
        """Return this process's counters, and the server's facts where it can be reached."""
        return self._local_stats(self._core.reachable(lambda: self._store.info(timeout=_READ_TIMEOUT)))

    def close(self) -> None:
        """Release threads and connections; the embedded server ends with its last user."""
        if self._closed:
            return
        if self._refreshes is not None:
            self._refreshes.close()
        self._stop()
        self._keep()
        self._core.encoder.close()
        self._store.close()
        if self._background is not None and self._background is not self._store:
            self._background.close()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncSemanticCache(_Base):
    """A semantic cache for asyncio. The methods are those of `SemanticCache`, awaited.

    The event loop is never blocked: encoding happens in a thread, and so does a model that isn't a
    coroutine function.
    """

    def __init__(
        self,
        *,
        store: AsyncStore,
        encoder: Encoder,
        policy: Policy = Policy(),  # noqa: B008 - frozen
        namespace: str = "default",
        secret: bytes | None = None,
        matcher: Matcher | None = None,
        verifier: Verifier | None = None,
        index: Callable[[int], VectorIndex] | None = None,
        background: Store | None = None,
        clock: Callable[[], float] = time.monotonic,
        snapshot_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            encoder=encoder, policy=policy, namespace=namespace, secret=secret, matcher=matcher, verifier=verifier,
            index=index, background=background, clock=clock, snapshot_dir=snapshot_dir,
        )  # fmt: skip
        self._store = store
        self._refreshes: RefreshTasks | None = None
        self._refresh()

    def _refresh(self) -> None:
        if self.policy.background_refreshes:
            from semcache.background import RefreshTasks

            self._refreshes = RefreshTasks(self._store, self.policy.background_refreshes)
            self._core.refreshes = self._refreshes

    @classmethod
    async def open(
        cls,
        target: Any = None,
        *,
        namespace: str = "default",
        policy: Policy = Policy(),  # noqa: B008 - frozen
        encoder: Encoder | None = None,
        secret: bytes | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        snapshot_dir: str | os.PathLike[str] | None = None,
        matcher: Matcher | None = None,
        verifier: Verifier | None = None,
    ) -> Self:
        """Open a cache, as `SemanticCache.open` does; a client must be one of redis.asyncio."""
        import asyncio

        from semcache.encoders import BundledEncoder
        from semcache.opening import open_store
        from semcache.snapshots import checked_folder

        if snapshot_dir is not None:
            checked_folder(snapshot_dir)
        opened = await asyncio.to_thread(
            open_store, target, namespace=namespace, policy=policy, data_dir=data_dir, asynchronous=True
        )
        cache = cls(
            store=opened.store, encoder=encoder or BundledEncoder(), policy=policy, namespace=namespace,
            secret=secret or opened.secret, matcher=matcher, verifier=verifier, background=opened.background,
            snapshot_dir=opened.folder if snapshot_dir is None else snapshot_dir,
        )  # fmt: skip
        cache._release = opened.close
        await asyncio.to_thread(cache._warm_up)
        return cache

    async def lookup(self, request: CacheRequest | str) -> Decision:
        """Return a stored response that may be served, or why there is none. Never raises for the store's sake."""
        request = as_request(request)
        hit = self._core.serve_local(request)
        if hit is not None:
            return hit
        self._follow()
        return await drive_async(self._core.lookup(request), self._store)

    async def put(
        self,
        request: CacheRequest | str,
        response: Response | str,
        *,
        fence: Fence | None = None,
        tags: Collection[str] = (),
        ttl: float | None = None,
        confidence: float | None = None,
        kind: str | None = None,
    ) -> Stored:
        """Store a response, as `SemanticCache.put` does."""
        self._follow()
        steps = self._core.put(
            as_request(request),
            as_response(response),
            fence=fence,
            tags=tags,
            ttl=ttl,
            confidence=confidence,
            kind=kind,
        )
        return await drive_async(steps, self._store)

    async def get_or_compute(
        self,
        request: CacheRequest | str,
        call_model: Callable[[CacheRequest], Response | str | Awaitable[Response | str]],
        *,
        tags: Collection[str] = (),
        ttl: float | None = None,
        confidence: float | None = None,
        kind: str | None = None,
    ) -> Answer:
        """Serve a stored response, or call the model and store what it says, as `SemanticCache.get_or_compute` does."""
        self._follow()
        options = {"tags": tags, "ttl": ttl, "confidence": confidence, "kind": kind}
        return await drive_async(
            self._core.get_or_compute(as_request(request), call_model, options), self._store
        )

    async def feedback(
        self,
        target: str,
        verdict: Verdict,
        *,
        rater: str | None = None,
        about: About | None = None,
        tenant: str | None = None,
    ) -> FeedbackResult:
        """Say whether a served answer was right, as `SemanticCache.feedback` does."""
        return await drive_async(
            self._core.feedback(target, verdict, rater=rater, about=about, tenant=tenant), self._store
        )

    async def invalidate(
        self,
        *,
        entry_ids: Collection[str] = (),
        tags: Collection[str] = (),
        model: str | None = None,
        model_version: str | None = None,
        segment: Mapping[str, str] | None = None,
        subject: str | None = None,
        tenant: str | None = None,
        older_than: float | None = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> Invalidated:
        """Withdraw entries everywhere, as `SemanticCache.invalidate` does."""
        bases = selection(
            entry_ids=entry_ids, tags=tags, model=model, model_version=model_version, segment=segment, subject=subject,
            tenant=tenant, older_than=older_than, everything=everything,
        )  # fmt: skip
        if dry_run:
            now = self._core.server_now()
            matched = 0
            async for entry in self.entries():
                matched += matches(entry, bases, entry_ids, tenant, older_than, now)
            return Invalidated(matched, tuple(bases), tuple(entry_ids), dry_run=True)
        steps = self._core.invalidate(entry_ids=entry_ids, bases=bases, tenant=tenant, older_than=older_than)
        return await drive_async(steps, self._store)

    async def restore(self, entry_id: str) -> bool:
        """Bring a withdrawn entry back; False if there is nothing to bring back."""
        done = await self._store.restore(self._core.known_id(entry_id), timeout=_READ_TIMEOUT)
        self._core.local.drop(entry_id)
        return done

    async def withdrawn(self, *, limit: int = 100) -> list[Tombstone]:
        """List withdrawn entries, newest first."""
        return await self._store.tombstones(limit=limit, timeout=_READ_TIMEOUT)

    async def entries(self) -> AsyncIterator[Entry]:
        """Walk over all entries of the namespace, withdrawn ones included; for operators, by a scan."""
        async for batch in self._store.scan():
            for entry in batch:
                yield entry

    async def get(self, entry_ids: Collection[str]) -> list[Entry | None]:
        """Return entries by name, whatever their state; for operators. Order as asked, None where there is none."""
        names = [self._core.known_id(entry_id) for entry_id in entry_ids]
        return await self._store.get_many(names, timeout=_READ_TIMEOUT)

    async def versions(self) -> list[ModelVersion]:
        """List the model versions that have been stored, the one put last first."""
        return as_versions(await self._store.versions(timeout=_READ_TIMEOUT))

    async def queue_refresh(self, entry_ids: Collection[str], *, why: str = "asked") -> None:
        """Ask for entries to be answered again by whoever works on the regeneration queue.

        Raises:
            StoreUnavailableError: The store didn't acknowledge.
        """
        await self._store.queue_refresh(
            [self._core.known_id(i) for i in entry_ids], why, timeout=_READ_TIMEOUT
        )

    async def take_refreshes(self, consumer: str, *, count: int = 10, idle: float = 60.0) -> list[Refresh]:
        """Claim entries that were withdrawn or went stale, to answer them again.

        Args:
            consumer: Name of this worker.
            idle: Seconds after which another worker's unfinished claim is taken over.
        """
        return await self._store.take_refreshes(consumer, count=count, idle=idle, timeout=_READ_TIMEOUT)

    async def finish_refreshes(self, done: Collection[Refresh]) -> None:
        """Take finished work off the regeneration queue."""
        if done:
            await self._store.finish_refreshes([work.ticket for work in done], timeout=_READ_TIMEOUT)

    async def sweep(self) -> Swept:
        """Clean up now: fold old generations, forget old tombstones, announce what a crashed writer left."""
        return await self._store.sweep(**self._core.sweeping(), timeout=_READ_TIMEOUT)

    async def pseudonym(self, text: str) -> str:
        """Return a keyed digest that stands for a text, as `SemanticCache.pseudonym` does."""
        return await drive_async(self._core.pseudonym(text), self._store)

    async def explain(self, request: CacheRequest | str) -> Explanation:
        """Say what a lookup would do, and what each rule finds. Serves and counts nothing."""
        self._follow()
        return await drive_async(self._core.explain(as_request(request)), self._store)

    async def stats(self) -> Stats:
        """Return this process's counters, and the server's facts where it can be reached."""
        return self._local_stats(
            await self._core.reachable_async(lambda: self._store.info(timeout=_READ_TIMEOUT))
        )

    async def close(self) -> None:
        """Release threads and connections; the embedded server ends with its last user."""
        import asyncio

        if self._closed:
            return
        if self._refreshes is not None:
            await self._refreshes.close()
        self._stop()
        await self._store.close()
        await asyncio.to_thread(self._close_rest)

    def _close_rest(self) -> None:
        self._keep()
        self._core.encoder.close()
        if self._background is not None:
            self._background.close()
        self._release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _renew_after_fork() -> None:
    for cache in list(_caches):
        cache._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
