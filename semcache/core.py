"""The cache without its waiting: what is asked of the store, the encoder and the model, in which order.

`SemanticCache` and `AsyncSemanticCache` perform the steps that this yields. What may be served is
decided by pure functions elsewhere (`decision`, `admission`, `guards`, `verify`); this module gathers
what they need, within one time limit, and fails open.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from semcache import admission, scope, secrets
from semcache.breaker import Breaker
from semcache.codec import decode_embedding, encode_embedding
from semcache.decision import Clock, Verdict, decide, freshness, tightened
from semcache.errors import (
    EncoderError,
    InvalidRequestError,
    OnlyIfCachedError,
    RateLimitedError,
    StoreUnavailableError,
    UnknownLookupError,
)
from semcache.feedback import check_verdict, principal_digest
from semcache.flights import Flight, Flights
from semcache.local import Copy, LocalCopies
from semcache.metrics import Metrics
from semcache.policy import Policy
from semcache.protocols import Draft, Judgement, LateEmbedding, Mark, Matcher, PutReply, Verifier, View
from semcache.reasons import FAILURES, STORE_OUTCOMES, docs_anchor
from semcache.requests import encode_request
from semcache.steps import Ask, Await, Board, CallModel, Compute, Steps
from semcache.types import (
    About,
    Answer,
    CacheRequest,
    Candidate,
    CandidateReport,
    Decision,
    Embedding,
    Entry,
    Explanation,
    FeedbackResult,
    Fence,
    Finding,
    Hit,
    Invalidated,
    LookupToken,
    Match,
    Miss,
    ModelVersion,
    Response,
    Stored,
    check_confidence,
)
from semcache.types import (
    Verdict as Vote,
)

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from semcache.encoders.thread import EncoderThread
    from semcache.protocols import VectorIndex

MAX_SCOPES = 200_000
MAX_MIRROR = 100_000
MAX_RECENT = 2_000
MAX_PLAIN = 10_000
MODEL_LOAD_TIMEOUT = 10.0  # seconds that the first put waits for the encoder
WITHDRAWAL_TIMEOUT = 5.0  # seconds; a withdrawal is worth waiting for
VERIFIED = 0.5  # least probability with which a verifier lets a hit pass


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


class Core:
    """State and steps that both caches share."""

    def __init__(
        self,
        *,
        encoder: EncoderThread,
        index: Callable[[int], VectorIndex],
        matcher: Callable[[str], Matcher],
        policy: Policy,
        namespace: str,
        secret: bytes | None,
        verifier: Verifier | None,
        clock: Callable[[], float],
    ) -> None:
        self.policy = policy
        self.namespace = namespace
        self._make_matcher = matcher
        self._matcher: Matcher | None = None
        self.fingerprint = ""
        self.verifier = verifier
        self.encoder = encoder
        self.metrics = Metrics()
        self.clock = clock
        self._make_index = index
        self._given_secret = secret
        self._offer = os.urandom(32)
        self.fresh_start()

    def fresh_start(self) -> None:
        """Set up everything that belongs to one process; also after a fork."""
        policy = self.policy
        self.lock = RLock()
        self.local = LocalCopies(policy.local_entries, policy.local_bound)
        self.flights = Flights()
        self.breaker = Breaker(policy.breaker_failures, policy.breaker_reset, self.clock)
        self.index: VectorIndex | None = None
        self.loaded: OrderedDict[str, bool] = OrderedDict()
        self.own: OrderedDict[str, int] = OrderedDict()
        self.late: deque[LateEmbedding] = deque(maxlen=10_000)  # embeddings to be written by the follower
        self.encoded = False  # whether the encoder has answered in this process
        self.followed: tuple[str, int] | None = None  # (epoch, log position) before the first rows were read
        self.recent: OrderedDict[tuple[str, str], None] = OrderedDict()  # withdrawals, to be said again
        self.withdrawals = 0  # most that the store has counted
        self.counted_at = -math.inf  # monotonic clock when that was learnt
        self.went_back = False
        self._plain_scopes: dict[tuple[bytes, str, str, str, str], tuple[str, str, tuple[str, ...]]] = {}
        self.limited: dict[str, float] = {}  # principal → monotonic clock until which she is refused
        self.epoch = ""
        self._mirror: dict[str, int] = {}
        self._mirror_of: tuple[str, int] = ("", -1)
        self._server_offset: float | None = None  # the store's clock minus this process's monotonic one
        self._secrets = None if self._given_secret is None else secrets.derive(self._given_secret)
        self._agreed = self._given_secret is not None  # whether the secret is the store's, as far as is known
        self._embeddings: Any = None

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

    # identity

    def identify(self, request: CacheRequest) -> Identity | None:
        """Return what the request is called, None while the namespace's secret isn't known."""
        if self._secrets is None:
            return None
        key = self._secrets.scope
        name = (key, self.policy.personal)
        memo: Identity | None = request._memo.get(name)
        if memo is None:
            text = scope.exact_text(request.prompt)
            scope_id, place, generations = self._scope_of(request, key)
            digest = scope.text_digest(text)
            blocked = {digest}
            if request.user is not None:
                blocked.add(f"{digest}@{principal_digest(request.user)}")
            memo = request._memo[name] = Identity(
                text,
                scope_id,
                place + scope.text_id(scope_id, text, key),
                digest,
                generations,
                frozenset(blocked),
            )
        return memo

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

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Ask:
        timeout = options.get("timeout")
        if timeout is not None and timeout <= 0:
            raise TimeoutError
        return Ask(method, arguments, options)

    # lookup

    def serve_local(self, request: CacheRequest) -> Hit | None:
        """Serve an exact match from a local copy inside its bound; None if there is none that may be."""
        if request.no_cache or request.mode == "off":
            return None
        identity = self.identify(request)
        if identity is None:
            return None
        started = self.clock()
        copy = self.local.get(identity.entry_id, started)
        if copy is None or admission.bypass(request, self.policy) is not None:
            return None
        entry = copy.entry
        now = copy.time_us / 1e6 + (started - copy.read_at)
        reason, stale = freshness(entry, request, now, 0.0)
        if (
            reason is not None
            or stale
            or entry.scope != identity.scope
            or not entry.blocked.isdisjoint(identity.blocked)
        ):
            return None
        hit = self._hit(request, identity, Verdict(Candidate(entry, 1.0), None), "exact", now, "local", None)
        self.metrics.hit("exact", "local", self.clock() - started)
        return hit

    def lookup(self, request: CacheRequest) -> Steps[Decision]:
        """Look up, count, never raise for the store's or the encoder's sake."""
        look = self._look(request)
        decision = yield from self._lookup(look)
        self._count(decision, self.clock() - look.started)
        return decision

    def _count(self, decision: Decision, seconds: float) -> None:
        if isinstance(decision, Hit):
            self.metrics.hit(decision.match, decision.tier, seconds)
        else:
            self.metrics.miss(decision.reason, seconds)

    def _look(self, request: CacheRequest, *, explain: bool = False) -> Look:
        admission.check_prompt(request.prompt)
        started, limit = self.clock(), self.policy.deadline
        return Look(
            request, started, lambda: limit - (self.clock() - started), report=[] if explain else None
        )

    def _lookup(self, look: Look) -> Steps[Decision]:
        request = look.request
        reason = admission.bypass(request, self.policy)
        if reason is not None:
            return Miss(reason)
        if not self.breaker.admits():
            return Miss("breaker_open")
        try:
            decision = yield from self._search(look)
        except (StoreUnavailableError, TimeoutError, EncoderError) as error:
            return Miss(self._failure(error, look), look.fence, detail=str(error))
        self.breaker.succeeded()
        return decision

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

    def _search(self, look: Look) -> Steps[Decision]:
        request = look.request
        identity = look.identity = yield from self._identify(request, look.left)
        if not self.fingerprint:
            yield Compute(self.meet_encoder)
        serial, read_at = self.local.serial, self.clock()
        if request.no_cache:
            view = yield from self._read(look, (), None)
            return Miss("bypass:no_cache", look.fence)
        pinned = admission.exact_only(request, self.policy)
        shared: tuple[str, str] | None = None
        if (
            pinned is None
            and self.loaded.get(identity.scope)
            and self._cached_embedding(identity.digest) is None
        ):
            shared = (self.fingerprint, identity.digest)
        view = yield from self._read(look, (identity.entry_id,), shared)
        renewed = yield from self._identify(request, look.left)
        if renewed is not identity:  # the store had lost its memory, and has another secret now
            identity = look.identity = renewed
            serial, read_at = self.local.serial, self.clock()
            view = yield from self._read(look, (identity.entry_id,), None)
        exact, decision = yield from self._exact(look, identity, view, read_at, serial)
        if exact is not None:
            return exact
        if decision is not None and decision.reason in ("withdrawn", "blocked_text"):
            return decision
        if pinned is not None:
            return decision or Miss(pinned, look.fence)
        found = yield from self._semantic(look, identity, view)
        if (
            isinstance(found, Miss)
            and decision is not None
            and found.reason in ("no_candidate", "below_threshold")
        ):
            return replace(decision, best_similarity=found.best_similarity)
        return found

    def _read(self, look: Look, ids: Sequence[str], shared: tuple[str, str] | None) -> Steps[View]:
        identity = look.identity
        names = identity.generations if identity else ()
        sent = self.clock()
        view: View = yield self._ask("read", ids, names, embedding=shared, timeout=look.left())
        self._learn(view, sent)
        if self.went_back:
            yield from self._assert_again(look)
            sent = self.clock()
            view = yield self._ask("read", ids, names, embedding=shared, timeout=look.left())
            self._learn(view, sent)
        if look.fence is None:
            look.fence = Fence(view.epoch, view.time_us)
        for entry_id in view.undecodable:
            self.metrics.count("failures", "undecodable")
            yield from self._set_aside(entry_id, look)
        return view

    def withdrew(self, ids: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """Remember withdrawals, this process's and others', in case the store forgets them."""
        with self.lock:
            for key in (*(("id", i) for i in ids), *(("name", n) for n in names)):
                self.recent[key] = None
                self.recent.move_to_end(key)
            while len(self.recent) > MAX_RECENT:
                self.recent.popitem(last=False)

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

    def _assert_again(self, look: Look) -> Steps[None]:
        """The store went back in time: withdraw again what was withdrawn lately, before anything is served."""
        log.warning(
            "the store counts fewer withdrawals than before: asserting the last %s again", len(self.recent)
        )
        self.metrics.count("failures", "went_back")
        self.forget()
        with self.lock:
            ids = [name for kind, name in self.recent if kind == "id"]
            names = [name for kind, name in self.recent if kind == "name"]
            self.withdrawals = 0
        options = {"durability": self.policy.durability, "timeout": WITHDRAWAL_TIMEOUT}
        if names:
            yield self._ask("raise_generations", names, before=0.0, **options)
        for first in range(0, len(ids), 100):
            chunk = ids[first : first + 100]
            yield self._ask("withdraw", chunk, "asserted again", keep=self.policy.tombstone_ttl, **options)
        self.went_back = False

    def _set_aside(self, entry_id: str, look: Look) -> Steps[None]:
        try:
            yield self._ask("set_aside", entry_id, keep=self.policy.tombstone_ttl, timeout=look.left())
        except (StoreUnavailableError, TimeoutError):
            self.metrics.count("failures", "set_aside")

    def _learn(self, view: View, sent: float) -> None:
        """Take over what a read says about epoch, generations and clock."""
        self._server_offset = view.time_us / 1e6 - sent
        if view.epoch != self.epoch:
            if self.epoch:
                self.forget()
                self._agreed = self._given_secret is not None  # it may have gone with the rest
            self.epoch = view.epoch
            self.withdrawals = 0  # another store, another count; nothing of the old one is served
        if view.withdrawals >= self.withdrawals:
            self.counted(view.withdrawals)
        elif sent > self.counted_at:  # a read from before the last count says nothing
            self.went_back = True
        state = (view.epoch, view.version)
        if state != self._mirror_of:
            self._mirror, self._mirror_of = {}, state
        if len(self._mirror) > MAX_MIRROR:
            self._mirror = {}
        self._mirror.update(view.generations)

    def server_now(self) -> float:
        """Estimate the store's clock, seconds since the Unix epoch."""
        offset = self._server_offset
        return time.time() if offset is None else self.clock() + offset

    def forget(self) -> None:
        """Drop everything that was learnt from the store: copies, rows, scopes."""
        self.local.drop()
        self.flights.ground()
        self.forget_rows()

    def forget_rows(self) -> None:
        """Drop what the index holds; scopes are read anew when they are asked for."""
        with self.lock:
            self.loaded.clear()
            self.own.clear()
            if self.index is not None:
                self.index.clear()

    def _clock_for(
        self, look: Look, view: View, entries: Iterable[Entry]
    ) -> Steps[tuple[Clock, list[tuple[str, ...]]]]:
        """Return a clock that knows all generations of the entries, and each entry's generation names.

        The generations of the entries' own tags aren't known before the entries are read. They are taken
        from a mirror that is as new as this read if no tag was invalidated since, else read again.
        """
        identity = look.identity
        assert identity is not None
        names = [
            (*identity.generations, *scope.tag_generations(look.request.tenant, entry.tags))
            for entry in entries
        ]
        known = dict(view.generations)
        wanted = {name for each in names for name in each} - known.keys()
        epoch, now_us, floor = view.epoch, view.time_us, view.floor_us
        if wanted:
            mirror, mirror_of = self._mirror, self._mirror_of
            if mirror_of == (view.epoch, view.version) and all(name in mirror for name in wanted):
                known.update((name, mirror[name]) for name in wanted)
            else:
                sent = self.clock()
                every = [*identity.generations, *sorted(wanted)]
                again: View = yield self._ask("read", (), every, embedding=None, timeout=look.left())
                self._learn(again, sent)
                known = dict(again.generations)
                epoch, now_us, floor = again.epoch, again.time_us, again.floor_us
        return Clock(epoch, now_us, floor, known), names

    def _exact(
        self, look: Look, identity: Identity, view: View, read_at: float, serial: int
    ) -> Steps[tuple[Hit | None, Miss | None]]:
        """Judge the entry at the request's own id: (hit, why not); (None, None) if there is none."""
        if view.undecodable:
            return None, Miss("undecodable", look.fence)
        entry = view.entries[0]
        if entry is None:
            return None, None
        clock, names = yield from self._clock_for(look, view, [entry])
        candidate = Candidate(entry, 1.0)
        (verdict,) = decide(
            look.request, identity.scope, [candidate], clock, generations=names, blocked=identity.blocked,
            stale_allowed=self._stale_allowed(look.request), judge=None,
        )  # fmt: skip
        if look.report is not None:
            look.report.append(verdict)
        if verdict.reason is not None:
            return None, self._miss(verdict, look)
        if self.clock() - read_at > self.policy.local_bound > 0:
            return None, Miss("deadline", look.fence)
        if not verdict.stale:
            self.local.keep(Copy(entry, read_at, view.time_us), serial)
        return self._hit(
            look.request, identity, verdict, "exact", clock.now_us / 1e6, "store", look.fence
        ), None

    def _stale_allowed(self, request: CacheRequest) -> float:
        if request.stale_while_revalidate is None:
            return self.policy.stale_while_revalidate
        return min(request.stale_while_revalidate, self.policy.stale_while_revalidate)

    def _miss(self, verdict: Verdict, look: Look) -> Miss:
        entry = verdict.candidate.entry
        return Miss(
            verdict.reason or "no_candidate", look.fence, verdict.candidate.similarity, entry.entry_id, entry.prompt,
            verdict.detail,
        )  # fmt: skip

    def _hit(
        self,
        request: CacheRequest,
        identity: Identity,
        verdict: Verdict,
        match: Match,
        now: float,
        tier: Any,
        fence: Fence | None,
    ) -> Hit:
        entry, similarity = verdict.candidate.entry, verdict.candidate.similarity
        age = max(0.0, now - entry.created_at)
        make = self._token_maker(
            request.tenant, entry.entry_id, entry.revision, match, similarity, identity.digest, now
        )
        return Hit(
            entry.response, similarity, match, age, entry.entry_id, entry.prompt,
            None if entry.ttl is None else entry.ttl - age, LookupToken(make), tier, verdict.stale,
            verdict.probability, fence,
        )  # fmt: skip

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

    # neighbours

    def _semantic(self, look: Look, identity: Identity, view: View) -> Steps[Decision]:
        yield from self._load(identity.scope, look)
        index = self.index
        if index is None or not index.count(identity.scope):
            return Miss("no_candidate", look.fence)
        embedding, unreadable = yield from self._embed(look, identity, view.embedding)
        if embedding is None:
            return Miss(unreadable or "unknown_tokens", look.fence)
        look.embedding = embedding
        neighbours = [
            n
            for n in index.search(
                identity.scope, embedding, self.policy.candidates + 1, now=self.server_now()
            )
            if n.key != identity.entry_id
        ][: self.policy.candidates]
        if not neighbours:
            return Miss("no_candidate", look.fence)
        least = getattr(self.matcher, "floor", -1.0)
        plausible = [n for n in neighbours if n.similarity >= least]
        if not plausible and look.report is None:
            best = neighbours[0]
            return Miss("below_threshold", look.fence, best.similarity, best.key)
        found = plausible if look.report is None else neighbours
        reported = len(look.report or ())
        for _ in range(2):
            if look.report is not None:
                del look.report[reported:]  # of a judgement that took too long
            sent = self.clock()
            view = yield from self._read(look, [n.key for n in found], None)
            present = [
                Candidate(entry, n.similarity)
                for n, entry in zip(found, view.entries, strict=True)
                if entry is not None
            ]
            self._drop_ghosts(index, identity.scope, found, view)
            clock, names = yield from self._clock_for(look, view, [c.entry for c in present])
            decision = yield from self._choose(look, identity, present, clock, names)
            if self.clock() - sent <= max(self.policy.local_bound, 0.05):
                return decision
            # Judging took longer than a decision stays true: look at the state again.
        return Miss("deadline", look.fence)

    def _drop_ghosts(self, index: VectorIndex, scope_id: str, found: Sequence[Any], view: View) -> None:
        gone = [n.key for n, entry in zip(found, view.entries, strict=True) if entry is None]
        if gone:
            index.remove(scope_id, gone)

    def _choose(
        self,
        look: Look,
        identity: Identity,
        candidates: list[Candidate],
        clock: Clock,
        names: list[tuple[str, ...]],
    ) -> Steps[Decision]:
        verdicts: list[Verdict] = []
        asked = admission.aged(look.request, self.policy)
        while candidates:
            judged = decide(
                asked, identity.scope, candidates, clock, generations=names, blocked=identity.blocked,
                stale_allowed=self._stale_allowed(look.request), judge=self._judge(look, identity),
                every=look.report is not None,
            )  # fmt: skip
            passed = next((v for v in judged if v.reason is None), None)
            if passed is not None and self.verifier is not None:
                refusal = yield from self._verify(look, identity, passed)
                if refusal is not None:
                    position = judged.index(passed)
                    judged[position] = refusal
                    verdicts += judged[: position + 1]
                    candidates, names = candidates[position + 1 :], names[position + 1 :]
                    continue
            verdicts += judged
            break
        if look.report is not None:
            look.report += verdicts
        winner = next((v for v in verdicts if v.reason is None), None)
        if winner is not None:
            return self._hit(
                look.request, identity, winner, "semantic", clock.now_us / 1e6, "store", look.fence
            )
        return self._miss(verdicts[0], look) if verdicts else Miss("no_candidate", look.fence)

    def _judge(self, look: Look, identity: Identity) -> Callable[[Candidate, float | None], Judgement]:
        request, explain = look.request, look.report is not None

        def judge(candidate: Candidate, runner_up: float | None) -> Judgement:
            threshold = request.threshold
            if candidate.entry.observations:
                least = -1.0 if threshold is None else threshold
                own = tightened(least, candidate.entry.observations)
                threshold = own if own > least else threshold
            return self.matcher.judge(
                identity.text, candidate.entry.prompt, candidate.similarity, threshold=threshold, runner_up=runner_up,
                answer_language=candidate.entry.response.language, explain=explain,
            )  # fmt: skip

        return judge

    def _verify(self, look: Look, identity: Identity, verdict: Verdict) -> Steps[Verdict | None]:
        """Ask the verifier about a candidate that passed; None lets it pass."""
        verifier, entry, left = self.verifier, verdict.candidate.entry, look.left()
        assert verifier is not None
        probability: float | None = None
        detail = "the verifier had no opinion"
        if left > 0:
            try:
                probability = yield Compute(
                    lambda: verifier.verify(identity.text, entry.prompt, entry.response.text, deadline_s=left)
                )
            except (EncoderError, TimeoutError, OSError, RuntimeError, ValueError) as error:
                self.metrics.count("failures", "verifier")
                detail = f"the verifier failed: {type(error).__name__}"
        if probability is not None and not math.isnan(probability) and probability >= VERIFIED:
            return None
        if probability is not None:
            detail = f"the verifier gave {probability:.3f}, needed {VERIFIED}"
        return replace(verdict, reason="verifier", detail=detail)

    def _load(self, scope_id: str, look: Look) -> Steps[None]:
        """Read a scope's rows into the index, once; the change log keeps them current after that."""
        with self.lock:
            if scope_id in self.loaded:
                self.loaded.move_to_end(scope_id)
                return
            self.loaded[scope_id] = False
            while len(self.loaded) > MAX_SCOPES:
                old, _ = self.loaded.popitem(last=False)
                if self.index is not None:
                    self.index.drop_scope(old)
        try:
            if self.followed is None:
                position = yield self._ask("position", timeout=look.left())
                self.followed = self.followed or position
            members = yield self._ask("members", scope_id, self.fingerprint, timeout=look.left())
            if members:
                # Rows are hints worth having for later lookups too: the model shouldn't pay for a slow start.
                blobs = yield self._ask(
                    "embeddings", [name for name, _ in members], timeout=max(look.left(), 5.0)
                )
                yield Compute(lambda: self.add_rows(scope_id, members, blobs))
        except BaseException:
            with self.lock:
                self.loaded.pop(scope_id, None)
            raise
        with self.lock:
            if scope_id in self.loaded:
                self.loaded[scope_id] = True

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
                self.index = self._make_index(dim)
            return self.index

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
        if admission.unreadable(encoded.limits, self.policy) is None and encoded.embedding.any():
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
        unreadable = admission.unreadable(encoded.limits, self.policy)
        if unreadable is None and not encoded.embedding.any():
            unreadable = "unknown_tokens"
        if unreadable is not None:
            return None, unreadable
        self._remember(identity.digest, encoded.embedding)
        return encoded.embedding, None

    # put

    def put(
        self,
        request: CacheRequest,
        response: Response,
        *,
        fence: Fence | None,
        tags: Collection[str],
        ttl: float | None,
        confidence: float | None,
        kind: str | None,
    ) -> Steps[Stored]:
        """Store, count, never raise for the store's or the encoder's sake."""
        check_confidence(confidence)
        _check_ttl(ttl)
        given = scope.given_tags(request, tags)
        look = self._look(request)
        stored = yield from self._put(look, response, fence, given, ttl, confidence, kind or request.kind)
        self.metrics.count("stored", stored.outcome)
        self.metrics.took("put", self.clock() - look.started)
        return stored

    def _put(
        self,
        look: Look,
        response: Response,
        fence: Fence | None,
        tags: tuple[str, ...],
        ttl: float | None,
        confidence: float | None,
        kind: str | None,
    ) -> Steps[Stored]:
        request, policy = look.request, self.policy
        if admission.bypass(request, policy) is not None:
            return Stored("policy")
        data = admission.storable(request, response, policy, confidence)
        if isinstance(data, str):
            return Stored(data)
        sure = response.confidence if confidence is None else confidence
        ttl = admission.ttl_of(request, response, policy, kind=kind, ttl=ttl, confidence=sure)
        if ttl == 0:
            return Stored("no_store")
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
            draft = self._draft(identity, request, data, fence, tags, ttl, sure, kind, embedding)
            self.expect_own(identity.entry_id)
            reply: PutReply = yield self._ask("put", draft, timeout=self.policy.deadline)
            if reply.outcome == "old_fence" and fence is None:
                # Our idea of the epoch was old; nothing about the answer is.
                yield from self._read(look, (), None)
                identity = look.identity = yield from self._identify(request, look.left)
                draft = self._draft(identity, request, data, fence, tags, ttl, sure, kind, embedding)
                self.expect_own(identity.entry_id)
                reply = yield self._ask("put", draft, timeout=self.policy.deadline)
        except (StoreUnavailableError, TimeoutError) as error:
            if look.identity is not None:
                self.is_own(look.identity.entry_id)
            reason = self._failure(error, look)
            return Stored("store_unavailable" if reason == "store_busy" else reason)
        self.breaker.succeeded()
        self.local.drop(identity.entry_id)
        if reply.outcome not in ("stored", "replaced"):
            return Stored(reply.outcome)
        if embedding is not None:
            self._add_own(identity, embedding, draft.expires_at)
        if late:
            self._attach_later(identity, reply.revision, draft)
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
            if admission.unreadable(encoded.limits, self.policy) is None and encoded.embedding.any():
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
        tags: tuple[str, ...],
        ttl: float | None,
        confidence: float | None,
        kind: str | None,
        embedding: Embedding | None,
    ) -> Draft:
        ttl = self._jittered(ttl, identity.digest)
        keep = None if ttl is None else ttl + self.policy.stale_while_revalidate
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
            tags=tags,
            all_tags=(*identity.generations, *scope.tag_generations(request.tenant, tags)),
            epoch=self.epoch if fence is None else fence.epoch,
            fence_us=None if fence is None else fence.time_us,
            ttl=ttl,
            keep=keep,
            now=now,
            expires_at=None if keep is None else now + keep,
            confidence=confidence,
            kind=kind,
            embedding=None if embedding is None else encode_embedding(embedding),
            fingerprint=self.fingerprint if embedding is not None else "",
            shared_embedding=shared,
            request=encode_request(request, keep_all=self.policy.keep_requests),
        )

    def _jittered(self, ttl: float | None, digest: str) -> float | None:
        if ttl is None or not self.policy.ttl_jitter:
            return ttl
        return ttl * (1.0 - self.policy.ttl_jitter * (int(digest[:8], 16) / 0xFFFFFFFF))

    def expect_own(self, entry_id: str) -> None:
        """Note that the log will tell of an entry that this process put itself."""
        with self.lock:
            self.own[entry_id] = self.own.get(entry_id, 0) + 1
            while len(self.own) > 10_000:
                self.own.popitem(last=False)

    def is_own(self, entry_id: str) -> bool:
        """Return whether a record of the log is about this process's own put; asked once per record."""
        with self.lock:
            count = self.own.pop(entry_id, 0)
            if count > 1:
                self.own[entry_id] = count - 1
            return count > 0

    def _add_own(self, identity: Identity, embedding: Embedding, expires_at: float | None) -> None:
        with self.lock:
            if identity.scope not in self.loaded:
                return  # a later lookup will load the whole scope
        self.index_of(len(embedding)).add(
            identity.scope, [identity.entry_id], embedding.reshape(1, -1), [expires_at]
        )

    # get_or_compute

    def get_or_compute(
        self,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        options: Mapping[str, Any],
    ) -> Steps[Answer]:
        """Serve, or call the model once for all who ask the same now."""
        if (
            not self.policy.single_flight
            or admission.bypass(request, self.policy) is not None
            or request.no_cache
        ):
            return (yield from self._lead(request, call_model, options))
        admission.check_prompt(request.prompt)
        hit = self.serve_local(request)
        if hit is not None:
            return Answer(hit.response, hit)
        key = yield from self._flight_key(request)
        for _ in range(2):
            flight, leads = self.flights.join(key)
            if leads:
                return (yield from self._fly(flight, request, call_model, options))
            try:
                answer: Answer | None = yield Board(flight, self.policy.flight_timeout)
            except TimeoutError:
                break
            if answer is not None:
                self.metrics.count("waited", "waited")
                return replace(answer, stored=None, shared=answer.stored or answer.shared, waited=True)
        # Two leaders failed, or one takes too long: ask for ourselves, so that nobody queues behind a failing model.
        return (yield from self._lead(request, call_model, options))

    def _flight_key(self, request: CacheRequest) -> Steps[str]:
        """Return what equal requests share; also while the store, and with it the secret, is away."""
        if self._secrets is None and self.breaker.admits():
            try:
                identity = yield from self._identify(request, lambda: self.policy.deadline)
                return identity.entry_id
            except (StoreUnavailableError, TimeoutError):
                self.metrics.count("failures", "secret")
        known = self.identify(request)
        if known is not None:
            return known.entry_id
        return scope.text_id(
            scope.scope_id(request, self._offer, admission.owner(request, self.policy)),
            scope.exact_text(request.prompt),
            self._offer,
        )

    def _fly(
        self,
        flight: Flight,
        request: CacheRequest,
        call_model: Callable[[CacheRequest], Any],
        options: Mapping[str, Any],
    ) -> Steps[Answer]:
        try:
            answer = yield from self._lead(request, call_model, options)
        except BaseException:
            self.flights.done(flight)
            flight.fail()
            raise
        self.flights.done(flight)
        flight.land(answer)
        return answer

    def _lead(
        self, request: CacheRequest, call_model: Callable[[CacheRequest], Any], options: Mapping[str, Any]
    ) -> Steps[Answer]:
        decision: Decision | None = self.serve_local(request)
        if decision is None:
            decision = yield from self.lookup(request)
        if isinstance(decision, Hit):
            return Answer(decision.response, decision)
        if request.only_if_cached:
            raise OnlyIfCachedError(
                f"nothing stored may be served ({decision.reason}), and only_if_cached was asked for"
            )
        started = self.clock()
        given = yield CallModel(call_model, request)
        response = as_response(given)
        if response.latency_ms is None:
            response = replace(response, latency_ms=round((self.clock() - started) * 1000, 3))
        self.metrics.took("model", self.clock() - started)
        if decision.fence is None and decision.reason in FAILURES:
            # Without a fence it can't be told what was invalidated while the model was thinking.
            outcome = decision.reason if decision.reason in STORE_OUTCOMES else "store_unavailable"
            self.metrics.count("stored", outcome)
            return Answer(response, decision, Stored(outcome))
        stored = yield from self.put(
            request, response, fence=decision.fence, tags=options.get("tags", ()), ttl=options.get("ttl"),
            confidence=options.get("confidence"), kind=options.get("kind"),
        )  # fmt: skip
        return Answer(response, decision, stored)

    # withdrawals

    def invalidate(
        self,
        *,
        entry_ids: Collection[str],
        bases: Sequence[str],
        tenant: str | None,
        older_than: float | None,
    ) -> Steps[Invalidated]:
        """Withdraw entries by name, or raise generations; raises unless the store acknowledged."""
        policy = self.policy
        if entry_ids:
            names = tuple(dict.fromkeys(entry_ids))
            done = yield self._ask(
                "withdraw", names, "invalidated", keep=policy.tombstone_ttl, durability=policy.durability,
                timeout=WITHDRAWAL_TIMEOUT,
            )  # fmt: skip
            self.local.drop(*names)
            self.counted(done.count)
            self.withdrew(ids=names)
            self.flights.ground()
            return Invalidated(len(done.entry_ids), (), done.entry_ids, durability=done.durability)
        raised = scope.raised_generations(bases, tenant)
        done = yield self._ask(
            "raise_generations", raised, before=older_than or 0.0, durability=policy.durability,
            timeout=WITHDRAWAL_TIMEOUT,
        )  # fmt: skip
        self.local.drop()
        self.counted(done.count)
        self.withdrew(names=raised)
        self.flights.ground()
        self._mirror_of = ("", -1)
        return Invalidated(None, tuple(bases), durability=done.durability)

    def feedback(
        self,
        target: str,
        verdict: Vote,
        *,
        rater: str | None,
        about: About | None,
        tenant: str | None,
    ) -> Steps[FeedbackResult]:
        """Record a verdict on a serving (lookup id) or an entry (entry id)."""
        check_verdict(verdict)
        if about not in (None, "answer", "match"):
            raise InvalidRequestError(f"about is {about!r}, expected 'answer', 'match' or None")
        principal = principal_digest(rater)
        if not isinstance(target, str):
            raise InvalidRequestError(f"lookup id is {type(target).__name__}, expected str")
        keys = yield from self._agree(WITHDRAWAL_TIMEOUT)
        if "/" in target:
            scope.split_entry_id(target)
            revision, nonce, digest, similarity, about = None, principal, "-", None, about or "answer"
            entry_id = target
        else:
            serving = secrets.verify(
                target,
                self.namespace,
                keys,
                now=self.server_now(),
                lifetime=self.policy.lookup_id_ttl,
            )
            if tenant is not None and serving.tenant != tenant:
                raise UnknownLookupError("unknown or expired lookup id")
            entry_id, revision, nonce, digest = (
                serving.entry_id,
                serving.revision,
                serving.nonce,
                serving.text,
            )
            similarity = serving.similarity
            about = about or ("answer" if serving.match == "exact" else "match")
        policy = self.policy
        self._check_rate(principal)
        mark = Mark(
            entry_id=entry_id, revision=revision, verdict=verdict, about=about, principal=principal, nonce=nonce,
            text=digest, similarity=similarity, raters=policy.feedback_raters, window=policy.feedback_window,
            keep=policy.tombstone_ttl, rate=policy.feedback_rate, rate_window=policy.feedback_rate_window,
        )  # fmt: skip
        result: FeedbackResult = yield self._ask(
            "feedback", mark, durability=policy.durability, timeout=WITHDRAWAL_TIMEOUT
        )
        if result.action in ("withdrawn", "blocked"):
            self.local.drop(entry_id)
            self.flights.ground()
        if result.action == "withdrawn":
            self.withdrew(ids=[entry_id])
            yield from self.count_withdrawals()
        if result.limited:
            with self.lock:
                self.limited[principal] = self.clock() + policy.feedback_rate_window
        self.metrics.count("feedback", result.action)
        return result

    def _check_rate(self, principal: str) -> None:
        """Refuse a principal who has spoken too often; known to this process since the store said so."""
        with self.lock:
            until = self.limited.get(principal)
            left = 0.0 if until is None else until - self.clock()
            if until is not None and left <= 0:
                del self.limited[principal]
        if left > 0:
            policy = self.policy
            raise RateLimitedError(
                f"more than {policy.feedback_rate} verdicts in {policy.feedback_rate_window:g} s, expected at most "
                f"that; try again in {left:.0f} s",
                retry_after=left,
            )

    def sweeping(self) -> dict[str, Any]:
        """Return what a sweep needs to know."""
        policy = self.policy
        lease = max(policy.sweep_every * 0.9, 1.0)
        return {"lease": lease, "keep": policy.tombstone_ttl, "generations": policy.max_generations}

    def pseudonym(self, text: str) -> Steps[str]:
        """Return what stands for a text in this namespace."""
        keys = yield from self._agree(self.policy.deadline)
        return scope.pseudonym(text, keys.scope)

    def known_id(self, entry_id: str) -> str:
        """Return an entry id, checked.

        Raises:
            InvalidRequestError: It isn't the name of an entry.
        """
        scope.split_entry_id(entry_id)
        return entry_id

    def reachable(self, ask: Callable[[], Mapping[str, str]]) -> Mapping[str, str]:
        """Return what the server says of itself, nothing if it can't be reached."""
        try:
            return ask()
        except StoreUnavailableError:
            self.metrics.count("failures", "info")
            return {}

    async def reachable_async(self, ask: Callable[[], Awaitable[Mapping[str, str]]]) -> Mapping[str, str]:
        """The same, awaited."""
        try:
            return await ask()
        except StoreUnavailableError:
            self.metrics.count("failures", "info")
            return {}

    # explain

    def explain(self, request: CacheRequest) -> Steps[Explanation]:
        """Look up without serving or counting, and report every rule."""
        look = self._look(request, explain=True)
        decision = yield from self._lookup(look)
        report = look.report or []
        candidates = tuple(
            CandidateReport(
                entry_id=v.candidate.entry.entry_id,
                prompt=v.candidate.entry.prompt,
                similarity=v.candidate.similarity,
                reason=v.reason,
                detail=v.detail,
                probability=v.probability,
                findings=v.findings
                or (Finding("state", "pass" if v.reason is None else "refuse", v.reason or "live"),),
            )
            for v in report
        )
        reason = decision.reason if isinstance(decision, Miss) else None
        return Explanation(
            decision=decision,
            candidates=candidates,
            encoder=self.fingerprint,
            docs=docs_anchor(reason) if reason else "",
        )


def as_request(request: CacheRequest | str) -> CacheRequest:
    """Return a request; a plain text is one with nothing but a prompt.

    Raises:
        InvalidRequestError: It is neither.
    """
    if isinstance(request, CacheRequest):
        return request
    if isinstance(request, str):
        return CacheRequest(request)
    raise InvalidRequestError(f"request is {type(request).__name__}, expected CacheRequest or str")


def as_response(response: Response | str) -> Response:
    """Return a response; a plain text is one with nothing but text.

    Raises:
        InvalidRequestError: It is neither.
    """
    if isinstance(response, Response):
        return response
    if isinstance(response, str):
        return Response(response)
    raise InvalidRequestError(f"response is {type(response).__name__}, expected Response or str")


def as_versions(found: Sequence[tuple[str, float]]) -> list[ModelVersion]:
    """Read model versions from the names that entries have."""
    parts = [(name.split("/"), last_put) for name, last_put in found]
    return [ModelVersion(_plain(model), _plain(version), last_put) for (model, version), last_put in parts]


def _plain(part: str) -> str:
    return "" if part == "~" else unquote(part)


def selection(
    *,
    entry_ids: Collection[str],
    tags: Collection[str],
    model: str | None,
    model_version: str | None,
    segment: Mapping[str, str] | None,
    subject: str | None,
    tenant: str | None,
    older_than: float | None,
    everything: bool,
) -> list[str]:
    """Return the generations that an invalidation names; empty if it names entries.

    Raises:
        InvalidRequestError: Nothing was named, or two kinds of selector at once.
    """
    for name, value in (("entry_ids", entry_ids), ("tags", tags)):
        if isinstance(value, str):
            raise InvalidRequestError(f"{name} is the text {value!r:.60}, expected a collection of texts")
    bases: list[str] = []
    kinds = 0
    if entry_ids:
        kinds += 1
        for entry_id in entry_ids:
            scope.split_entry_id(entry_id)
        if older_than is not None or tenant is not None:
            raise InvalidRequestError("entry_ids name entries; give neither older_than nor tenant with them")
    if tags:
        kinds += 1
        bases += [f"tag:{tag}" for tag in tags]
    if model_version is not None and model is None:
        raise InvalidRequestError("model_version without model; name the model too")
    if model is not None:
        kinds += 1
        bases.append(f"model:{model}" if model_version is None else f"version:{model}/{model_version}")
    if segment:
        kinds += 1
        bases += [f"segment:{key}={value}" for key, value in segment.items()]
    if subject is not None:
        kinds += 1
        bases.append(f"tag:subject:{subject}")
    if everything or (not kinds and (tenant is not None or older_than is not None)):
        kinds += 1
        bases.append("all")
    _check_older(older_than)
    if kinds != 1:
        found = "nothing" if not kinds else "several kinds of selector at once"
        raise InvalidRequestError(
            f"invalidate was given {found}, expected one of entry_ids, tags, model (with model_version), segment, "
            "subject, tenant, older_than or everything=True"
        )
    return bases


def _check_older(older_than: float | None) -> None:
    if older_than is not None and not (isinstance(older_than, int | float) and older_than >= 0):
        raise InvalidRequestError(f"older_than is {older_than!r}, expected seconds, 0 or more")


def _check_ttl(ttl: float | None) -> None:
    if ttl is not None and (
        isinstance(ttl, bool) or not isinstance(ttl, int | float) or not ttl >= 0 or math.isinf(ttl)
    ):
        raise InvalidRequestError(f"ttl is {ttl!r}, expected a finite number of seconds, 0 or more, or None")


def matches(
    entry: Entry,
    bases: Sequence[str],
    entry_ids: Collection[str],
    tenant: str | None,
    older_than: float | None,
    now: float,
) -> bool:
    """Return whether an invalidation would reach this entry.

    Args:
        now: The store's clock, seconds since the Unix epoch.
    """
    if entry.state != "live":
        return False
    if entry_ids:
        return entry.entry_id in entry_ids
    if older_than is not None and entry.fence.time_us / 1e6 > now - older_than:
        return False
    return not set(scope.raised_generations(bases, tenant)).isdisjoint(entry.obeys)
