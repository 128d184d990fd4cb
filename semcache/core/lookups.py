"""One lookup: admission, the exact tier, neighbours, the decision; and the report of it."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semcache import admission, scope
from semcache.codec import decode_embedding
from semcache.core.rows import Rows
from semcache.core.state import Identity, Look
from semcache.decision import (
    Clock,
    Verdict,
    decide,
    flip,
    freshness,
    liveness,
    state_finding,
    tightened,
    winner,
)
from semcache.errors import (
    EncoderError,
    StoreUnavailableError,
)
from semcache.local import Copy
from semcache.protocols import Judgement, View
from semcache.reasons import docs_anchor
from semcache.steps import Compute, Steps
from semcache.types import (
    CacheRequest,
    Candidate,
    CandidateReport,
    Decision,
    Entry,
    Explanation,
    Fence,
    Finding,
    Hit,
    LookupToken,
    Match,
    Miss,
)

if TYPE_CHECKING:
    from semcache.protocols import VectorIndex
    from semcache.stores.disk import Kept

VERIFIED = 0.5  # least probability with which a verifier lets a hit pass


class Lookups(Rows):
    """Steps of a lookup."""

    def serve_local(self, request: CacheRequest) -> Hit | None:
        """Serve an exact match from a local copy inside its bound; None if there is none that may be."""
        if request.no_cache or request.mode == "off" or (self.trial and self.watches(request)):
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
        self.usage.note(hit.entry_id, entry.response)
        return hit

    def lookup(self, request: CacheRequest) -> Steps[Decision]:
        """Look up, count, never raise for the store's or the encoder's sake."""
        look = self._look(request)
        decision = yield from self._lookup(look)
        if self.trial and self.watches(request):
            decision = self.watch(request, decision)
        self._count(decision, self.clock() - look.started)
        return decision

    def _count(self, decision: Decision, seconds: float) -> None:
        if isinstance(decision, Hit):
            self.metrics.hit(decision.match, decision.tier, seconds)
            self.usage.note(decision.entry_id, decision.response)
            if decision.stale:
                self.metrics.count("stale", "stale")
        else:
            self.metrics.miss(decision.reason, seconds)

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

    def _search(self, look: Look) -> Steps[Decision]:
        request = look.request
        identity = look.identity = yield from self._identify(request, look.left)
        if not self.fingerprint:
            yield Compute(self.meet_encoder)
        if self.followed is None and self.has_follower and self.starting is None:
            # Once, so that the follower tells of what is withdrawn after this read.
            yield from self._note_position(look)
        serial, read_at = self._serial(), self.clock()
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
            serial, read_at = self._serial(), self.clock()
            view = yield from self._read(look, (identity.entry_id,), None)
        reported = len(look.report or ())
        exact, decision = yield from self._exact(look, identity, view, read_at, serial)
        if decision is not None and decision.reason == "deadline":
            # Held up for so long that what was read may be withdrawn by now. No neighbour stands in for it.
            if look.report is not None:
                del look.report[reported:]
            exact, decision = yield from self._read_exact(look, identity)
        if exact is None and decision is None and self.disk is not None and look.report is None:
            exact = yield from self._from_disk(look, identity)
        if exact is not None:
            return exact
        if decision is not None and decision.reason in ("withdrawn", "blocked_text", "deadline"):
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

    def _from_disk(self, look: Look, identity: Identity) -> Steps[Hit | None]:
        """Put an entry back that the store has let go of; it is served if the store takes it, and not otherwise."""
        disk = self.disk
        assert disk is not None
        try:
            kept: Kept | None = yield Compute(
                lambda: disk.get(identity.entry_id, self.epoch, self.server_now())
            )
        except (sqlite3.Error, OSError):
            self.metrics.count("failures", "disk")
            return None
        if kept is None or look.left() <= 0:
            return None
        draft = kept.draft
        if self.policy.store_ttl is not None and draft.keep is not None:
            keep = min(draft.keep, self.policy.store_ttl)
            draft = replace(draft, keep=keep, expires_at=draft.now + keep)
        if (
            draft.fingerprint != self.fingerprint
        ):  # another encoder's: it matches exactly, until it is embedded again
            draft = replace(draft, embedding=None, shared_embedding=None, fingerprint="")
        if self.budget is not None:
            draft = replace(draft, budget=self.budget)
        embedding = decode_embedding(draft.embedding, self.encoder.dim) if draft.embedding else None
        reply = yield from self._send(identity, draft, embedding)
        if reply.outcome not in ("stored", "replaced"):
            if reply.outcome in ("tombstone", "old_fence"):
                disk.drop([identity.entry_id])
            return None
        exact, _ = yield from self._read_exact(look, identity)
        return None if exact is None else replace(exact, tier="disk")

    def _read_exact(self, look: Look, identity: Identity) -> Steps[tuple[Hit | None, Miss | None]]:
        """Read the entry at the request's own id once more, and judge it."""
        serial, read_at = self._serial(), self.clock()
        view = yield from self._read(look, (identity.entry_id,), None)
        return (yield from self._exact(look, identity, view, read_at, serial))

    def _serial(self) -> int:
        """Return what a copy of an entry that is read now is kept under; -1, never, until withdrawals are heard of."""
        return self.local.serial if self.followed is not None or not self.has_follower else -1

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
            scope.entry_generations(identity.generations, look.request.tenant, entry.tags)
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
        if look.report is None and (
            verdict.stale
            or verdict.reason == "expired"
            # By its own tags. What a whole model, tenant or segment lost isn't wanted back.
            or (verdict.reason == "stale_tag" and liveness(entry, clock, identity.generations) is None)
        ):
            self.met_stale(entry, verdict.reason or "expired")
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

    def _semantic(self, look: Look, identity: Identity, view: View) -> Steps[Decision]:
        yield from self._load(identity.scope, look)
        index = self.index
        look.size = 0 if index is None else index.count(identity.scope)
        if index is None or not look.size:
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
        passed: Verdict | None = None
        asked = admission.aged(look.request, self.policy)
        while candidates:
            judged = decide(
                asked, identity.scope, candidates, clock, generations=names, blocked=identity.blocked,
                stale_allowed=self._stale_allowed(look.request), judge=self._judge(look, identity),
                every=look.report is not None, beside=[v.candidate.similarity for v in verdicts],
            )  # fmt: skip
            passed = winner(judged)
            if passed is not None and self.verifier is not None:
                refusal = yield from self._verify(look, identity, passed)
                if refusal is not None:  # the others that passed, and those behind, are judged again
                    verdicts += [v for v in judged if v.reason is not None] + [refusal]
                    out = {id(v.candidate) for v in judged if v.reason is not None or v is passed}
                    left = [place for place, c in enumerate(candidates) if id(c) not in out]
                    candidates, names, passed = [candidates[i] for i in left], [names[i] for i in left], None
                    continue
            verdicts += judged
            break
        verdicts.sort(key=lambda verdict: verdict.candidate.similarity, reverse=True)
        if look.report is not None:
            look.report += verdicts
        if passed is not None:
            if passed.stale and look.report is None:
                self.met_stale(passed.candidate.entry, "expired")
            return self._hit(
                look.request, identity, passed, "semantic", clock.now_us / 1e6, "store", look.fence
            )
        return self._miss(verdicts[0], look) if verdicts else Miss("no_candidate", look.fence)

    def _judge(self, look: Look, identity: Identity) -> Callable[[Candidate, Sequence[float]], Judgement]:
        request, explain, size = look.request, look.report is not None, look.size

        def judge(candidate: Candidate, rivals: Sequence[float]) -> Judgement:
            threshold = request.threshold
            if candidate.entry.observations:
                least = -1.0 if threshold is None else threshold
                own = tightened(least, candidate.entry.observations)
                threshold = own if own > least else threshold
            return self.matcher.judge(
                identity.text, candidate.entry.prompt, candidate.similarity, threshold=threshold, rivals=rivals,
                size=size, answer_language=candidate.entry.response.language, explain=explain,
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
        asked = f"needs a probability of {VERIFIED} or more from the verifier"
        findings = (*verdict.findings, Finding("verifier", "refuse", detail, asked))
        return replace(verdict, reason="verifier", detail=detail, findings=findings)

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
                flip=flip(v.reason is None, findings),
                findings=findings,
            )
            for v in report
            for findings in (v.findings or (state_finding(v.reason),),)
        )
        reason = decision.reason if isinstance(decision, Miss) else None
        return Explanation(
            decision=decision,
            candidates=candidates,
            encoder=self.fingerprint,
            docs=docs_anchor(reason) if reason else "",
        )
