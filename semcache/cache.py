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
from typing import TYPE_CHECKING, Any, Self, cast

from semcache.core import Core
from semcache.core.arguments import (
    MAX_LISTED,
    as_request,
    as_response,
    as_versions,
    check_count,
    check_fence,
    check_taking,
    check_works,
    entry_names,
    given,
    stale_entries,
)
from semcache.core.selectors import select
from semcache.errors import ConfigurationError
from semcache.flights import Lead
from semcache.matching import default_matcher
from semcache.metrics import Stats, by_tier
from semcache.policy import Policy
from semcache.protocols import (
    AsyncStore,
    BackgroundStore,
    Encoder,
    Matcher,
    Reembedding,
    Refresh,
    Store,
    Swept,
    Tombstone,
    VectorIndex,
    Verifier,
)
from semcache.steps import drive, drive_async
from semcache.stores.closed import AsyncClosedStore, ClosedStore
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
        background: BackgroundStore | None,
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
        self._core.has_follower = background is not None
        self._background = background
        self._follower: FollowerThread | None = None
        self._keep_leases()
        self._release: Callable[[], None] = lambda: None
        self._closed = False
        _caches.add(self)

    @staticmethod
    def _snapshots(
        folder: str | os.PathLike[str] | None, namespace: str, background: BackgroundStore | None
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

    def _let_go(self) -> None:
        """Wait for the threads that give leases back: their connection is closed next."""
        if self._core.keeper is not None:
            self._core.keeper.join(2.0)
        if self._follower is not None:
            self._follower.let_go(2.0)

    def _warm_up(self) -> Future[Any]:
        """Load the model beside the first requests; the future is done when it is there."""
        self._core.meet_encoder()
        return self._core.encoder.submit("warm up")

    def _stop(self) -> None:
        self._closed = True
        self._core.local.drop()
        if self._follower is not None:
            self._follower.stop()
        if self._core.keeper is not None:
            self._core.keeper.close()
        if self._core.disk is not None:
            self._core.disk.close()

    def _keep(self) -> None:
        """Write a snapshot for the next process, if that is wanted."""
        if self._follower is not None:
            self._follower.keep()

    def _reembed(self, rate: float | None, watch: Callable[[Reembedding], None]) -> Reembedding:
        if rate is not None and not rate > 0:
            raise ConfigurationError(f"rate is {rate!r}, expected prompts a second above 0, or None")
        self._core.meet_encoder()
        self._follow()
        if self._follower is None:
            raise ConfigurationError(
                "this cache has no store for background work; give background when it is made"
            )
        return self._follower.reembed(rate, watch)

    def _after_fork(self) -> None:
        self._follower = None
        if self._core.snapshots is not None:
            self._core.snapshots.renew()
        self._core.fresh_start()
        self._core.metrics.reset()
        self._keep_leases()
        self._refresh()

    def _local_stats(self, server: Mapping[str, str], reports: Mapping[str, str]) -> Stats:
        core = self._core
        index = core.index
        scopes = index.scopes() if index else []
        core.count_uses()
        latencies = core.metrics.latencies()
        return Stats(
            hits=core.metrics.counts("hits"),
            tiers=core.metrics.counts("tiers"),
            misses=core.metrics.counts("misses"),
            stored=core.metrics.counts("stored"),
            waited=core.metrics.counts("waited").get("waited", 0),
            failures=core.metrics.counts("failures"),
            evictions=core.metrics.counts("evictions"),
            feedback=core.metrics.counts("feedback"),
            refreshes=core.metrics.counts("refreshes"),
            shadow=core.metrics.counts("shadow"),
            latency_ms={what: times for what, times in latencies.items() if not what.endswith(" tier")},
            tiers_ms=by_tier(latencies),
            worth=core.worth(),
            scopes=len(scopes),
            rows=sum(index.count(s) for s in scopes) if index else 0,
            index_bytes=index.memory_bytes() if index else 0,
            scopes_dropped=core.metrics.counts("index").get("dropped", 0),
            local_entries=len(core.local),
            encoder=core.fingerprint,
            hot=core.hottest(reports),
            reembedding=core.reembedding,
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
        background: BackgroundStore | None = None,
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
        """Open a cache; without arguments, over an embedded server with the default encoder.

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
        from semcache.encoders import default_encoder
        from semcache.opening import open_store
        from semcache.snapshots import checked_folder

        if snapshot_dir is not None:
            checked_folder(snapshot_dir)
        opened = open_store(target, namespace=namespace, policy=policy, data_dir=data_dir, asynchronous=False)
        cache = cls(
            store=opened.store, encoder=encoder or default_encoder(), policy=policy, namespace=namespace,
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
                answer is the truth as of now. One from the future counts as now.
            tags: Names under which it can be invalidated: at most 64, of 1 to 512 characters, equal under NFC.
            ttl: Seconds, at most 1e10; None for the kind's or the policy's.
            confidence: In [0, 1].
            kind: A key of `Policy.kinds`.

        Raises:
            InvalidRequestError: The prompt is blank, or an argument can't be meant.
        """
        request, response = as_request(request), as_response(response)
        check_fence(fence)
        said = given(request, tags=tags, ttl=ttl, confidence=confidence, kind=kind)
        self._follow()
        return drive(self._core.put(request, response, said, fence=fence), self._store)

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
        caller; the store and the encoder raise nothing.

        Args:
            tags, ttl, confidence, kind: Of the answer if it is new, as in `put`; checked before the model is called.

        Raises:
            InvalidRequestError: The prompt is blank, an argument can't be meant, or the model returned neither
                text nor a `Response`. All but the last are raised before the model is called.
            OnlyIfCachedError: It was a miss, and the request asked for stored responses only.
        """
        request = as_request(request)
        said = given(request, tags=tags, ttl=ttl, confidence=confidence, kind=kind)
        answer = self._core.answer_local(request, said, call_model)
        if answer is not None:
            return answer
        self._follow()
        return drive(self._core.get_or_compute(request, call_model, said), self._store)

    def begin(
        self,
        request: CacheRequest | str,
        *,
        tags: Collection[str] = (),
        ttl: float | None = None,
        kind: str | None = None,
        again: Callable[[CacheRequest], Response | str] | None = None,
    ) -> Answer | Lead:
        """Serve a stored response, or wait for whoever is answering the same request, or lead.

        With `finish` it is `get_or_compute` for answers that come in pieces: whoever is given a `Lead` asks the
        model, and ends with `finish` or `Lead.give_up`. Others with the same request wait for that.

        Args:
            tags, ttl, kind: Of the answer, as for `put`.
            again: Calls the model, in the background, to answer again what was served stale or is about to expire.

        Raises:
            InvalidRequestError: The prompt is blank, or an argument can't be meant.
            OnlyIfCachedError: It was a miss, and the request asked for stored responses only.
        """
        request = as_request(request)
        said = given(request, tags=tags, ttl=ttl, confidence=None, kind=kind)
        answer = self._core.answer_local(request, said, again)
        if answer is not None:
            return answer
        self._follow()
        return drive(self._core.begin(request, said, again), self._store)

    def finish(self, lead: Lead, response: Response | str) -> Answer:
        """Store the answer that a `Lead` was given for, and give it to those who wait."""
        return drive(self._core.finish(lead, as_response(response)), self._store)

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

        Distinct raters of the policy's number, or weight, who say -1 within its window withdraw the answer. Her own 1
        or 0 takes a rater's -1 back; a 1 also builds trust: many of them raise what withdraws the answer.

        Args:
            target: A lookup id of a serving, or an entry id. An entry id carries no serving, so that each name is
                one rater: give it only for callers who are trusted not to make names up.
            rater: Who says so, 1 to 1,024 bytes, equal under NFC; the application names its users, and is believed.
                None counts as one anonymous person.
            about: ``answer`` (the default for an exact hit) or ``match`` (the default for a semantic one).
            tenant: If given, the serving must have been this tenant's.

        Raises:
            InvalidRequestError: The verdict, `about` or the rater can't be meant.
            UnknownLookupError: Unknown, foreign, forged or expired id.
            RateLimitedError: This rater has spoken too often.
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

        Give one kind of selector; `tenant` and `older_than` narrow the others. Several tags or entry ids are a
        union.

        Args:
            tenant: By itself all of a tenant; an empty one, the tenant of requests that name none, only beside
                another selector.
            older_than: Only answers whose lookup is at least so many seconds ago. By itself more than 0: what
                reaches everything must say so.
            everything: All entries, of `tenant` or of all; True, not merely something that isn't false.
            dry_run: Count what would be withdrawn, by a scan, and withdraw nothing. Entries that are dead already
                aren't counted.

        Raises:
            InvalidRequestError: No selector, several kinds, or one that can't be meant.
            StoreUnavailableError: The store didn't acknowledge.
        """
        selection = select(
            entry_ids=entry_ids, tags=tags, model=model, model_version=model_version, segment=segment, subject=subject,
            tenant=tenant, older_than=older_than, everything=everything, dry_run=dry_run,
        )  # fmt: skip
        if dry_run:
            matched = sum(
                drive(self._core.reached(selection, batch), self._store) for batch in self._store.scan()
            )
            return Invalidated(matched, selection.bases, selection.entry_ids, dry_run=True)
        return drive(self._core.invalidate(selection), self._store)

    def restore(self, entry_id: str) -> bool:
        """Bring a withdrawn entry back, with the age it has.

        Returns:
            False if there is nothing to bring back: it isn't withdrawn, or what was invalidated since, or its ttl, has
            ended it all the same.

        Raises:
            InvalidRequestError: It isn't the name of an entry.
            StoreUnavailableError: The store didn't acknowledge.
        """
        return drive(self._core.restore(entry_id), self._store)

    def withdrawn(self, *, limit: int = 100) -> list[Tombstone]:
        """List withdrawn entries, newest first.

        Args:
            limit: 1 to 100,000.
        """
        check_count("limit", limit, MAX_LISTED)
        return self._store.tombstones(limit=limit, timeout=_READ_TIMEOUT)

    def entries(self) -> Iterator[Entry]:
        """Walk over all entries of the namespace, withdrawn ones included; for operators, by a scan."""
        for batch in self._store.scan():
            yield from batch

    def get(self, entry_ids: Collection[str]) -> list[Entry | None]:
        """Return entries by name, whatever their state; for operators. Order as asked, None where there is none."""
        names = entry_names(entry_ids)
        return self._store.get_many(names, timeout=_READ_TIMEOUT)

    def versions(self) -> list[ModelVersion]:
        """List the model versions that have been stored, the one put last first."""
        return as_versions(self._store.versions(timeout=_READ_TIMEOUT))

    def queue_refresh(self, entry_ids: Collection[str], *, why: str = "asked") -> int:
        """Ask for entries to be answered again by whoever works on the regeneration queue.

        The queue holds an entry once, and 100,000 entries; what it has no room for is left out.

        Args:
            why: A word for whoever reads the queue.

        Returns:
            How many are new on the queue. Names under which nothing is stored aren't queued.

        Raises:
            InvalidRequestError: One isn't the name of an entry.
            StoreUnavailableError: The store didn't acknowledge.
        """
        stale = stale_entries(entry_ids, why)
        return self._store.queue_refresh(stale, timeout=_READ_TIMEOUT) if stale else 0

    def take_refreshes(self, consumer: str, *, count: int = 10, idle: float = 60.0) -> list[Refresh]:
        """Claim entries that were withdrawn or went stale, to answer them again.

        Args:
            consumer: Name of this worker, 1 to 512 characters.
            count: Most pieces of work, 1 to 1,000.
            idle: Seconds after which another worker's unfinished claim is taken over.
        """
        check_taking(consumer, count, idle)
        return self._store.take_refreshes(consumer, count=count, idle=idle, timeout=_READ_TIMEOUT)

    def finish_refreshes(self, done: Collection[Refresh]) -> None:
        """Take finished work off the regeneration queue; what went bad again meanwhile is queued anew."""
        if done:
            self._store.finish_refreshes(check_works(done), timeout=_READ_TIMEOUT)

    def sweep(self) -> Swept:
        """Clean up now: fold old generations, forget old tombstones, announce what a crashed writer left."""
        return self._store.sweep(**self._core.sweeping(), timeout=_READ_TIMEOUT)

    def reembed(
        self, *, rate: float | None = None, watch: Callable[[Reembedding], None] = lambda progress: None
    ) -> Reembedding:
        """Embed all stored prompts that this cache's encoder hasn't embedded yet, and wait for it.

        An open cache does this by itself after a change of encoder, at `Policy.reembed_rate`. Only one process
        at a time does; if another one is at it, this returns at once how far that has come (`leader` is False).

        Args:
            rate: Most prompts a second, in at most half of the encoder's time; None for no limit.
            watch: Told how far it is, after each batch.

        Raises:
            StoreUnavailableError: The store didn't answer; what was done is done.
            ConfigurationError: This cache has no store for background work.
        """
        return self._reembed(rate, watch)

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
        server = self._core.reachable(lambda: self._store.info(timeout=_READ_TIMEOUT))
        reports = self._core.reachable(lambda: self._store.report_hot("", "", timeout=_READ_TIMEOUT))
        return self._local_stats(server, reports)

    def close(self) -> None:
        """Release threads and connections; the embedded server ends with its last user.

        After that, lookup, put and get_or_compute fail open as they do while a store is away
        (``store_unavailable``), and what must be acknowledged raises `StoreUnavailableError`.
        """
        if self._closed:
            return
        if self._refreshes is not None:
            self._refreshes.close()
        drive(self._core.report(), self._store)
        self._stop()
        self._let_go()
        self._keep()
        self._core.encoder.close()
        store, self._store = self._store, cast("Store", ClosedStore())
        store.close()
        if self._background is not None and self._background is not store:
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
        background: BackgroundStore | None = None,
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

        from semcache.encoders import default_encoder
        from semcache.opening import open_store
        from semcache.snapshots import checked_folder

        if snapshot_dir is not None:
            checked_folder(snapshot_dir)
        opened = await asyncio.to_thread(
            open_store, target, namespace=namespace, policy=policy, data_dir=data_dir, asynchronous=True
        )
        cache = cls(
            store=opened.store, encoder=encoder or default_encoder(), policy=policy, namespace=namespace,
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
        request, response = as_request(request), as_response(response)
        check_fence(fence)
        said = given(request, tags=tags, ttl=ttl, confidence=confidence, kind=kind)
        self._follow()
        return await drive_async(self._core.put(request, response, said, fence=fence), self._store)

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
        request = as_request(request)
        said = given(request, tags=tags, ttl=ttl, confidence=confidence, kind=kind)
        answer = self._core.answer_local(request, said, call_model)
        if answer is not None:
            return answer
        self._follow()
        return await drive_async(self._core.get_or_compute(request, call_model, said), self._store)

    async def begin(
        self,
        request: CacheRequest | str,
        *,
        tags: Collection[str] = (),
        ttl: float | None = None,
        kind: str | None = None,
        again: Callable[[CacheRequest], Response | str | Awaitable[Response | str]] | None = None,
    ) -> Answer | Lead:
        """Serve a stored response, or wait, or lead, as `SemanticCache.begin` does."""
        request = as_request(request)
        said = given(request, tags=tags, ttl=ttl, confidence=None, kind=kind)
        answer = self._core.answer_local(request, said, again)
        if answer is not None:
            return answer
        self._follow()
        return await drive_async(self._core.begin(request, said, again), self._store)

    async def finish(self, lead: Lead, response: Response | str) -> Answer:
        """Store the answer that a `Lead` was given for, as `SemanticCache.finish` does."""
        return await drive_async(self._core.finish(lead, as_response(response)), self._store)

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
        selection = select(
            entry_ids=entry_ids, tags=tags, model=model, model_version=model_version, segment=segment, subject=subject,
            tenant=tenant, older_than=older_than, everything=everything, dry_run=dry_run,
        )  # fmt: skip
        if dry_run:
            matched = 0
            async for batch in self._store.scan():
                matched += await drive_async(self._core.reached(selection, batch), self._store)
            return Invalidated(matched, selection.bases, selection.entry_ids, dry_run=True)
        return await drive_async(self._core.invalidate(selection), self._store)

    async def restore(self, entry_id: str) -> bool:
        """Bring a withdrawn entry back; False if there is nothing to bring back."""
        return await drive_async(self._core.restore(entry_id), self._store)

    async def withdrawn(self, *, limit: int = 100) -> list[Tombstone]:
        """List withdrawn entries, newest first.

        Args:
            limit: 1 to 100,000.
        """
        check_count("limit", limit, MAX_LISTED)
        return await self._store.tombstones(limit=limit, timeout=_READ_TIMEOUT)

    async def entries(self) -> AsyncIterator[Entry]:
        """Walk over all entries of the namespace, withdrawn ones included; for operators, by a scan."""
        async for batch in self._store.scan():
            for entry in batch:
                yield entry

    async def get(self, entry_ids: Collection[str]) -> list[Entry | None]:
        """Return entries by name, whatever their state; for operators. Order as asked, None where there is none."""
        names = entry_names(entry_ids)
        return await self._store.get_many(names, timeout=_READ_TIMEOUT)

    async def versions(self) -> list[ModelVersion]:
        """List the model versions that have been stored, the one put last first."""
        return as_versions(await self._store.versions(timeout=_READ_TIMEOUT))

    async def queue_refresh(self, entry_ids: Collection[str], *, why: str = "asked") -> int:
        """Ask for entries to be answered again by whoever works on the regeneration queue.

        The queue holds an entry once, and 100,000 entries; what it has no room for is left out.

        Args:
            why: A word for whoever reads the queue.

        Returns:
            How many are new on the queue. Names under which nothing is stored aren't queued.

        Raises:
            InvalidRequestError: One isn't the name of an entry.
            StoreUnavailableError: The store didn't acknowledge.
        """
        stale = stale_entries(entry_ids, why)
        return await self._store.queue_refresh(stale, timeout=_READ_TIMEOUT) if stale else 0

    async def take_refreshes(self, consumer: str, *, count: int = 10, idle: float = 60.0) -> list[Refresh]:
        """Claim entries that were withdrawn or went stale, to answer them again.

        Args:
            consumer: Name of this worker, 1 to 512 characters.
            count: Most pieces of work, 1 to 1,000.
            idle: Seconds after which another worker's unfinished claim is taken over.
        """
        check_taking(consumer, count, idle)
        return await self._store.take_refreshes(consumer, count=count, idle=idle, timeout=_READ_TIMEOUT)

    async def finish_refreshes(self, done: Collection[Refresh]) -> None:
        """Take finished work off the regeneration queue; what went bad again meanwhile is queued anew."""
        if done:
            await self._store.finish_refreshes(check_works(done), timeout=_READ_TIMEOUT)

    async def sweep(self) -> Swept:
        """Clean up now: fold old generations, forget old tombstones, announce what a crashed writer left."""
        return await self._store.sweep(**self._core.sweeping(), timeout=_READ_TIMEOUT)

    async def reembed(
        self, *, rate: float | None = None, watch: Callable[[Reembedding], None] = lambda progress: None
    ) -> Reembedding:
        """Embed all stored prompts that this cache's encoder hasn't embedded yet, as `SemanticCache.reembed` does.

        `watch` is called in another thread.
        """
        import asyncio

        return await asyncio.to_thread(self._reembed, rate, watch)

    async def pseudonym(self, text: str) -> str:
        """Return a keyed digest that stands for a text, as `SemanticCache.pseudonym` does."""
        return await drive_async(self._core.pseudonym(text), self._store)

    async def explain(self, request: CacheRequest | str) -> Explanation:
        """Say what a lookup would do, and what each rule finds. Serves and counts nothing."""
        self._follow()
        return await drive_async(self._core.explain(as_request(request)), self._store)

    async def stats(self) -> Stats:
        """Return this process's counters, and the server's facts where it can be reached."""
        server = await self._core.reachable_async(lambda: self._store.info(timeout=_READ_TIMEOUT))
        reports = await self._core.reachable_async(
            lambda: self._store.report_hot("", "", timeout=_READ_TIMEOUT)
        )
        return self._local_stats(server, reports)

    async def close(self) -> None:
        """Release threads and connections; the embedded server ends with its last user.

        After that, lookup, put and get_or_compute fail open as they do while a store is away
        (``store_unavailable``), and what must be acknowledged raises `StoreUnavailableError`.
        """
        import asyncio

        if self._closed:
            return
        if self._refreshes is not None:
            await self._refreshes.close()
        await drive_async(self._core.report(), self._store)
        self._stop()
        store, self._store = self._store, cast("AsyncStore", AsyncClosedStore())
        await store.close()
        await asyncio.to_thread(self._close_rest)

    def _close_rest(self) -> None:
        self._let_go()
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
