"""What the core knows of one namespace, its store's clock and its secret; everything else stands on this."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from semcache import admission, scope, secrets
from semcache.breaker import Breaker
from semcache.core.own import OwnPuts
from semcache.core.recent import Recent
from semcache.decision import Verdict
from semcache.errors import (
    EncoderError,
    StoreUnavailableError,
)
from semcache.feedback import principal_digest
from semcache.flights import Flights
from semcache.hotkeys import HotKeys
from semcache.local import LocalCopies
from semcache.metrics import Metrics
from semcache.policy import Policy
from semcache.protocols import (
    Budget,
    Change,
    FeedbackRules,
    Former,
    LateEmbedding,
    Matcher,
    Position,
    Reembedding,
    Stale,
    Verifier,
    View,
)
from semcache.steps import Ask, Steps
from semcache.types import (
    CacheRequest,
    Embedding,
    Entry,
    Fence,
    Hit,
    Match,
)
from semcache.usage import Usage

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from semcache.background import RefreshTasks, RefreshThreads
    from semcache.encoders.thread import EncoderThread
    from semcache.leases import LeaseKeeper
    from semcache.protocols import VectorIndex
    from semcache.snapshots import Snapshots
    from semcache.stores.disk import DiskTier

MAX_MIRROR = 100_000
MAX_PLAIN = 10_000
MAX_REMEMBERED = 1_000  # characters of a prompt whose names are remembered
MAX_MET = 10_000
QUEUED_FOR = 600.0  # seconds for which a process doesn't queue an entry that it has queued
MAX_FOREIGN = 10_000
SAID_AT_ONCE = 500
WITHDRAWAL_TIMEOUT = 5.0  # seconds; a withdrawal is worth waiting for


class Identity(NamedTuple):
    """What a request is called in one namespace."""

    text: str
    scope: str
    entry_id: str
    digest: str
    generations: tuple[str, ...]
    blocked: frozenset[str]


@dataclass(slots=True)
class Look:
    """What one lookup knows so far."""

    request: CacheRequest
    started: float
    left: Callable[[], float]
    identity: Identity | None = None
    fence: Fence | None = None
    embedding: Embedding | None = None
    encoded_us: float = 0.0
    report: list[Verdict] | None = None  # explain: every verdict
    threshold: float | None = None
    size: int | None = None  # prompts in the scope


class State:
    """What one process knows, and how it learns from the store's replies."""

    def __init__(
        self,
        *,
        encoder: EncoderThread,
        index: Callable[[int], VectorIndex] | None,
        matcher: Callable[[str], Matcher],
        policy: Policy,
        namespace: str,
        secret: bytes | None,
        verifier: Verifier | None,
        clock: Callable[[], float],
        snapshots: Snapshots | None = None,
    ) -> None:
        self.policy = policy
        self.trial = policy.mode != "serve"  # whether requests may be watched only
        self.trial_key = object()  # under which a request remembers whether it is
        self.namespace = namespace
        self._make_matcher = matcher
        self._matcher: Matcher | None = None
        self.fingerprint = ""
        self.has_follower = False  # whether something reads the change log for this core
        self.verifier = verifier
        self.encoder = encoder
        self.metrics = Metrics()
        self.clock = clock
        self._make_index = index
        self.snapshots = snapshots
        self.rules = FeedbackRules(
            raters=policy.feedback_raters, window=policy.feedback_window, keep=self.keep, rate=policy.feedback_rate,
            rate_window=policy.feedback_rate_window, trust=policy.feedback_trust, trust_window=policy.feedback_trust_window,
        )  # fmt: skip
        self._given_secret = secret
        self._offer = os.urandom(32)
        self.fresh_start()

    def fresh_start(self) -> None:
        """Set up everything that belongs to one process; also after a fork."""
        policy = self.policy
        self.lock = RLock()
        self.local = LocalCopies(policy.local_entries, policy.local_bound)
        self.flights = Flights()
        self.refreshes: RefreshThreads | RefreshTasks | None = None
        self.kept_back: OrderedDict[tuple[str, Fence], Hit] = (
            OrderedDict()
        )  # by own entry id and fence of the lookup
        self.reported: Counter[str] = Counter()  # what the namespace's totals of the trial know already
        self.keeper: LeaseKeeper | None = None  # of leases on calling the model; None where there are none
        self.arrivals: dict[str, Future[None]] = {}  # entry id → wakes who waits for another process's answer
        limited = policy.budget_entries is not None or policy.budget_bytes is not None
        self.budget = Budget(policy.budget_entries, policy.budget_bytes, policy.eviction) if limited else None
        self.disk: DiskTier | None = None
        if policy.disk is not None:
            from semcache.stores.disk import DiskTier

            self.disk = DiskTier(
                policy.disk, self.namespace, most_bytes=policy.disk_bytes, keep=self.keep,
                on_failure=lambda: self.metrics.count("failures", "disk"),
            )  # fmt: skip
        self.usage = Usage()
        self.saved = (0.0, 0.0, 0.0)  # tokens, milliseconds and US dollars that hits have saved
        self.untold: list[tuple[str, int]] = []  # uses that the budget's accounts haven't been told of
        self.hot = HotKeys(self.clock())
        self.holder = os.urandom(8).hex()
        self.told_hot = -math.inf  # monotonic clock when the store was told what is hot here
        self.copied: frozenset[str] = frozenset()  # entries whose response is read from copies
        self.breaker = Breaker(policy.breaker_failures, policy.breaker_reset, self.clock)
        self.index: VectorIndex | None = None
        self.loaded: OrderedDict[str, int] = OrderedDict()  # scope → which load it was, 0 while it goes on
        self.loads = 0
        self.forgotten = 0  # how often everything was
        self.own = OwnPuts()
        self.foreign: deque[str] = deque(
            maxlen=MAX_FOREIGN
        )  # entries that the log told of with another encoder's embedding
        self.reembedding: Reembedding | None = None  # how far embedding again has come, in whichever process
        self.starting: Future[None] | None = None if self.snapshots is None else Future()
        self.late: deque[LateEmbedding] = deque(maxlen=10_000)  # embeddings to be written by the follower
        self.met: OrderedDict[str, float] = (
            OrderedDict()
        )  # stale entry → monotonic clock of its next queueing
        self.stale: deque[Stale] = deque(maxlen=10_000)  # stale entries to be queued by the follower
        self.encoded = False  # whether the encoder has answered in this process
        self.followed: Position | None = None  # in the log, before the first rows were read
        self.recent = Recent()
        self.withdrawals = 0  # most that the store has counted
        self.counted_at = -math.inf  # monotonic clock when that was learnt
        self._plain_scopes: dict[tuple[bytes, str, str, str, str], tuple[str, str, tuple[str, ...]]] = {}
        self._identities: dict[tuple[str, str], Identity] = {}
        self.limited: dict[str, float] = {}  # principal → monotonic clock until which she is refused
        self.epoch = ""
        self._mirror: dict[str, int] = {}
        self._mirror_of: tuple[str, int] = ("", -1)
        self._server_offset: float | None = None  # the store's clock minus this process's monotonic one
        self._secrets = None if self._given_secret is None else secrets.derive(self._given_secret)
        self._agreed = self._given_secret is not None  # whether the secret is the store's, as far as is known
        self._embeddings: Any = None

    @property
    def keep(self) -> float:
        """Seconds that a withdrawal is remembered: no answer with an older fence may come after that."""
        return max(self.policy.tombstone_ttl, self.policy.fence_ttl)

    def meet_encoder(self) -> None:
        """Learn the encoder's fingerprint and make the matcher that goes with it; may load the model."""
        if not self.fingerprint:
            fingerprint = self.encoder.fingerprint
            self._matcher = self._make_matcher(fingerprint)
            self.fingerprint = fingerprint

    @property
    def matcher(self) -> Matcher:
        """The matcher; known once the encoder was met."""
        assert self._matcher is not None
        return self._matcher

    def identify(self, request: CacheRequest) -> Identity | None:
        """Return what the request is called, None while the namespace's secret isn't known."""
        if self._secrets is None:
            return None
        key = self._secrets.scope
        name = (key, self.policy.personal)
        memo: Identity | None = request._memo.get(name)
        if memo is None:
            memo = request._memo[name] = self._named(request, key)
        return memo

    def _named(self, request: CacheRequest, key: bytes) -> Identity:
        """Return what a request is called; remembered by its prompt where no user is named."""
        scope_id, place, generations = self._scope_of(request, key)
        known = self._identities.get((scope_id, request.prompt)) if request.user is None else None
        if known is not None:
            return known
        text = scope.exact_text(request.prompt)
        digest = scope.text_digest(text)
        blocked = {digest}
        if request.user is not None:
            blocked.add(f"{digest}@{principal_digest(request.user)}")
        found = Identity(
            text,
            scope_id,
            place + scope.text_id(scope_id, text, key),
            digest,
            generations,
            frozenset(blocked),
        )
        if request.user is None and len(text) <= MAX_REMEMBERED:
            if len(self._identities) > MAX_PLAIN:
                self._identities.clear()
            self._identities[scope_id, request.prompt] = found
        return found

    def _scope_of(self, request: CacheRequest, key: bytes) -> tuple[str, str, tuple[str, ...]]:
        """Return scope, beginning of the entry id, and generations; remembered for requests without a context."""
        plain = None
        owner = admission.owner(request, self.policy)
        if (
            owner is None
            and request.context is None
            and request.tools is None
            and not (request.params or request.media or request.segment or request.earlier_turns)
        ):
            plain = (key, request.tenant, request.model, request.model_version, request.endpoint)
            known = self._plain_scopes.get(plain)
            if known is not None:
                return known
        found = (
            scope.scope_id(request, key, owner),
            scope.entry_id(request.model, request.model_version, ""),
            scope.scope_generations(request),
        )
        if plain is not None:
            if len(self._plain_scopes) > MAX_PLAIN:
                self._plain_scopes.clear()
            self._plain_scopes[plain] = found
        return found

    def _identify(self, request: CacheRequest, left: Callable[[], float]) -> Steps[Identity]:
        if not self._agreed:
            yield from self._agree(left())
        identity = self.identify(request)
        assert identity is not None
        return identity

    def _agree(self, timeout: float) -> Steps[secrets.Secrets]:
        """Adopt the namespace's secret; a store that lost it is offered the one that was used so far."""
        if not self._agreed or self._secrets is None:
            self._offer = yield self._ask("secret", self._offer, timeout=timeout)
            self._secrets = secrets.derive(self._offer)
            self._agreed = True
        return self._secrets

    def offer_again(self) -> Steps[None]:
        """Offer the secret that was used so far to a store that may have lost it, before anybody offers another."""
        if not self._agreed and self._secrets is not None:
            yield from self._agree(self.policy.deadline)

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Ask:
        timeout = options.get("timeout")
        if timeout is not None and timeout <= 0:
            raise TimeoutError
        return Ask(method, arguments, options)

    def _look(self, request: CacheRequest, *, explain: bool = False) -> Look:
        admission.check_prompt(request.prompt)
        started, limit = self.clock(), self.policy.deadline
        return Look(
            request, started, lambda: limit - (self.clock() - started), report=[] if explain else None
        )

    def _failure(self, error: Exception, look: Look) -> str:
        """Name and count a failure; the breaker counts only the store's."""
        if isinstance(error, EncoderError):
            reason = "encoder_failed"
        elif isinstance(error, TimeoutError) or look.left() <= 0:
            reason = "deadline"
        else:
            reason = "store_busy" if type(error).__name__ == "StoreBusyError" else "store_unavailable"
            self.breaker.failed()
        self.metrics.count("failures", reason)
        return reason

    def _read(self, look: Look, ids: Sequence[str], shared: tuple[str, str] | None) -> Steps[View]:
        identity = look.identity
        names = identity.generations if identity else ()
        sent = self.clock()
        if self.copied and len(ids) == 1 and ids[0] in self.copied:
            copies = self.policy.hot_copies
            view: View = yield self._ask(
                "read", ids, names, embedding=shared, copies=copies, timeout=look.left()
            )
        else:
            view = yield self._ask("read", ids, names, embedding=shared, timeout=look.left())
        self._learn(view, sent)
        if self.recent.unsaid:
            yield from self.say_again()
            sent = self.clock()
            view = yield self._ask("read", ids, names, embedding=shared, timeout=look.left())
            self._learn(view, sent)
        if look.fence is None:
            look.fence = Fence(view.epoch, view.time_us)
        for entry_id in view.undecodable:
            self.metrics.count("failures", "undecodable")
            yield from self._set_aside(entry_id, look)
        return view

    def _learn(self, view: View, sent: float) -> None:
        """Take over what a read says about epoch, generations and clock."""
        self._server_offset = view.time_us / 1e6 - sent
        if view.epoch != self.epoch:
            if self.epoch:
                self.forget()
                self._agreed = self._given_secret is not None  # it may have gone with the rest
            with self.lock:
                self.epoch = view.epoch
                self.withdrawals = 0  # another store, another count; nothing of the old one is served
            if self.recent.foreign_to(view.epoch):
                self.recent.want()  # a disk tier may still have what they were about
        if view.withdrawals >= self.withdrawals:
            self.counted(view.withdrawals)
        elif (
            sent > self.counted_at and not self.recent.unsaid
        ):  # a read from before the last count says nothing
            log.warning("the store counts fewer withdrawals than before: it went back in time")
            self.metrics.count("failures", "went_back")
            self.forget()
            self.recent.want()
        state = (view.epoch, view.version)
        if state != self._mirror_of:
            self._mirror, self._mirror_of = {}, state
        if len(self._mirror) > MAX_MIRROR:
            self._mirror = {}
        self._mirror.update(view.generations)

    def _set_aside(self, entry_id: str, look: Look) -> Steps[None]:
        try:
            yield self._ask("set_aside", entry_id, keep=self.policy.tombstone_ttl, timeout=look.left())
        except (StoreUnavailableError, TimeoutError):
            self.metrics.count("failures", "set_aside")

    def met_stale(self, entry: Entry, why: str) -> None:
        """Note that somebody asked for what is stale: the follower puts it on the regeneration queue."""
        now = self.clock()
        with self.lock:
            if not self.has_follower or self.met.get(entry.entry_id, now) > now:
                return
            self.met[entry.entry_id] = now + QUEUED_FOR
            self.met.move_to_end(entry.entry_id)
            while len(self.met) > MAX_MET:
                self.met.popitem(last=False)
            self.stale.append(Stale(entry.entry_id, why, entry.revision))

    def withdrew(self, former: Iterable[Former], epoch: str) -> None:
        """Remember withdrawals, this process's and others', in case the store forgets them.

        Args:
            epoch: Of the store when it acknowledged them.
        """
        self.recent.add(former)
        if self.epoch and epoch != self.epoch:
            self.recent.want()  # it may have forgotten them since

    def heard(self, changes: Iterable[Change], epoch: str) -> None:
        """Remember the withdrawals that the log of an epoch tells of."""
        found, epoch = [], epoch or self.epoch
        for change in changes:
            at = change.until or Fence("", round(self.server_now() * 1e6))
            at = at if at.epoch else Fence(epoch, at.time_us)
            # What somebody says again is what is known here already, or older.
            found += [
                former
                for former in replace(change, until=at).told()
                if not (change.again and (former.kind, former.name) in self.recent)
            ]
        if found:
            self.withdrew(found, epoch)

    def arrival(self, entry_id: str) -> Future[None]:
        """Return what is done when the change log tells of an entry."""
        with self.lock:
            return self.arrivals.setdefault(entry_id, Future())

    def arrived(self, entry_id: str) -> None:
        """Wake whoever waits for an entry, or let nobody wait any more."""
        with self.lock:
            waiting = self.arrivals.pop(entry_id, None)
        if waiting is not None and waiting.set_running_or_notify_cancel():
            waiting.set_result(None)

    def counted(self, withdrawals: int) -> None:
        """Note how many withdrawals the store has counted by now."""
        with self.lock:
            if withdrawals > self.withdrawals:
                self.withdrawals, self.counted_at = withdrawals, self.clock()

    def count_withdrawals(self) -> Steps[None]:
        """Learn how many withdrawals the store has counted, so that fewer later on are noticed."""
        sent = self.clock()
        try:
            view = yield self._ask("read", (), (), embedding=None, timeout=self.policy.deadline)
        except (StoreUnavailableError, TimeoutError):
            self.metrics.count("failures", "count_withdrawals")
        else:
            self._learn(view, sent)

    def say_again(self) -> Steps[None]:
        """Withdraw again what was withdrawn lately: the store may have forgotten it."""
        ticket, former = self.recent.begin()
        with self.lock:
            self.withdrawals = 0
        if former:
            log.info("the store may have forgotten withdrawals: saying the last %s again", len(former))
        for first in range(0, len(former), SAID_AT_ONCE):
            done = yield self._ask(
                "withdraw_again", former[first : first + SAID_AT_ONCE], keep=self.keep,
                durability=self.policy.durability, timeout=WITHDRAWAL_TIMEOUT,
            )  # fmt: skip
            self.counted(done.count)
        self.recent.said(ticket)

    def server_now(self) -> float:
        """Estimate the store's clock, seconds since the Unix epoch."""
        offset = self._server_offset
        return time.time() if offset is None else self.clock() + offset

    def started(self) -> None:
        """Let those go on who wait for what was kept from the last run."""
        starting = self.starting
        if starting is not None and not starting.done():
            starting.set_result(None)

    def forget(self) -> None:
        """Drop everything that was learnt from the store: copies, rows, scopes."""
        self.local.drop()
        self.flights.ground()
        self.forget_rows()

    def forget_rows(self) -> None:
        """Drop what the index holds; scopes are read anew when they are asked for."""
        with self.lock:
            self.forgotten += 1
            self.loaded.clear()
            if self.index is not None:
                self.index.clear()

    def _token_maker(
        self,
        tenant: str,
        entry_id: str,
        revision: int,
        match: Match,
        similarity: float,
        digest: str,
        now: float,
    ) -> Callable[[], str]:
        def make() -> str:
            assert self._secrets is not None
            serving = secrets.Serving(
                tenant=tenant, entry_id=entry_id, revision=revision, match=match, similarity=similarity,
                text=digest, nonce=secrets.new_nonce(), time=now,
            )  # fmt: skip
            return secrets.sign(serving, self.namespace, self._secrets)

        return make

    def pseudonym(self, text: str) -> Steps[str]:
        """Return what stands for a text in this namespace."""
        keys = yield from self._agree(self.policy.deadline)
        return scope.pseudonym(text, keys.scope)
