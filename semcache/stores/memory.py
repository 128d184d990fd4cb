"""A store inside the process, for tests, notebooks and platforms without a server; and its asynchronous twin.

It keeps the same promises as Redis for one process and loses everything when the process ends.
"""

from __future__ import annotations

import heapq
import threading
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from semcache.codec import decode_response
from semcache.decision import Clock, liveness
from semcache.eviction import Ranked, weight
from semcache.feedback import Complaint, Praise, consequence, crowded, distinct_raters, raised
from semcache.protocols import (
    Budget,
    Change,
    Claim,
    Claimed,
    Draft,
    Embedded,
    EncodersSeen,
    Foreign,
    Former,
    LateEmbedding,
    Mark,
    Position,
    PutReply,
    Reembedding,
    Refresh,
    Stale,
    Swept,
    Tombstone,
    Uses,
    View,
    Withdrawn,
)
from semcache.stores.drafts import size_of
from semcache.stores.plans import MAX_BLOCKED, MAX_LOG, MAX_OBSERVATIONS, MAX_QUEUED, new_epoch
from semcache.types import Entry, FeedbackResult, Fence


@dataclass
class _Slot:
    entry: Entry | None = None
    fingerprint: str = ""
    embedding: bytes | None = None
    others: dict[str, bytes] = field(default_factory=dict)  # fingerprint → embedding
    gone_at: float | None = None
    complaints: dict[Complaint, float] = field(default_factory=dict)
    praise: dict[Praise, float] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)
    tomb_us: int = 0
    tomb_reason: str = ""
    tomb_count: int = 0

    def of(self, fingerprint: str) -> bytes | None:
        """Return the embedding of one encoder."""
        return self.embedding if self.fingerprint == fingerprint else self.others.get(fingerprint)


@dataclass
class _Lease:
    holder: str  # "-": the last answer wasn't stored
    epoch: str
    fence_us: int
    ends: float


class MemoryStore:
    """Entries in a dictionary. Safe to use from many threads.

    Args:
        clock: Seconds since the Unix epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Condition(threading.RLock())
        self._epoch = new_epoch()
        self._version = 0
        self._generations: dict[str, int] = {}
        self._slots: dict[str, _Slot] = {}
        self._log: list[Change] = []
        self._shared: dict[tuple[str, str], bytes] = {}
        self._encoders: dict[str, float] = {}
        self._reembedded: dict[str, Reembedding] = {}
        self._secret: bytes | None = None
        self._queue: dict[str, tuple[Stale, float]] = {}  # ticket → (what, queued at)
        self._queued: dict[str, str] = {}  # entry → its ticket
        self._again: dict[str, Stale] = {}  # ticket → what went bad while it was out
        self._claims: dict[str, tuple[float, int]] = {}  # ticket → (claimed at, tries)
        self._versions: dict[str, float] = {}
        self._spoken: dict[tuple[str, int], int] = {}  # (principal, bucket) → verdicts
        self._tally: dict[str, int] = {}
        self._leases: dict[str, _Lease] = {}
        self._last_us = 0
        self._reports: dict[str, str] = {}
        self._accounts: Ranked[str] | None = None
        self._ends: list[tuple[float, str]] = []  # heap of expiries, where there is a budget

    def _now_us(self) -> int:
        # Strictly rising, so that of two events one is always first.
        self._last_us = max(self._last_us + 1, int(self._clock() * 1e6))
        return self._last_us

    def _slot(self, entry_id: str) -> _Slot | None:
        slot = self._slots.get(entry_id)
        if slot is not None and slot.gone_at is not None and self._clock() >= slot.gone_at:
            slot.entry, slot.embedding, slot.gone_at = None, None, None
            slot.others.clear()
        return slot

    def _note(
        self,
        op: str,
        entry_id: str = "",
        scope: str = "",
        fingerprint: str = "",
        expires: float | None = None,
        names: tuple[str, ...] = (),
        until: Fence | None = None,
        again: bool = False,
    ) -> None:
        sequence = self._log[-1].sequence + 1 if self._log else 1
        until = Fence("", self._now_us()) if until is None else until
        self._log.append(
            Change(
                sequence, op, self._epoch, entry_id, scope, fingerprint, expires, names, str(sequence), until, again
            )
        )  # fmt: skip
        del self._log[:-MAX_LOG]
        self._lock.notify_all()

    def read(
        self,
        ids: Sequence[str],
        tags: Sequence[str],
        *,
        embedding: tuple[str, str] | None,
        copies: int = 0,
        timeout: float,
    ) -> View:
        with self._lock:
            slots = [self._slot(entry_id) for entry_id in ids]
            entries = tuple(None if slot is None else slot.entry for slot in slots)
            known = {name: self._generations.get(name, 0) for name in tags}
            shared = None if embedding is None else self._shared.get(embedding)
            return View(entries, (), self._epoch, self._version, 0, known, self._now_us(), shared)

    def put(self, draft: Draft, *, timeout: float) -> PutReply:
        with self._lock:
            now = self._now_us()
            fence = now if draft.fence_us is None else min(draft.fence_us, now)
            self._slot(draft.entry_id)
            slot = self._slots.setdefault(draft.entry_id, _Slot())
            if draft.lease:
                self.release([(draft.entry_id, draft.lease)], timeout=timeout)
            old = slot.entry
            if slot.tomb_us and fence <= slot.tomb_us:
                return PutReply("tombstone", 0, now)
            if old is not None and old.state == "live" and old.fence.time_us > fence:
                return PutReply("old_fence", old.revision, now)
            evicted: tuple[str, ...] = ()
            if draft.budget is not None:
                room = self._make_room(draft, draft.budget)
                if room is None:
                    return PutReply("too_large", 0, now)
                evicted = room
            revision = now if old is None else max(now, old.revision + 1)
            slot.entry = Entry(
                entry_id=draft.entry_id,
                scope=draft.scope,
                prompt=draft.prompt,
                response=decode_response(draft.response),
                tags=draft.tags,
                fence=Fence(draft.epoch, fence),
                revision=revision,
                created_at=(now if draft.created_us is None else draft.created_us) / 1e6,
                ttl=draft.ttl,
                confidence=draft.confidence,
                kind=draft.kind,
                blocked=frozenset(slot.blocked),
                obeys=draft.all_tags,
                request=draft.request,
                stretch=draft.stretch,
            )
            slot.fingerprint, slot.embedding = draft.fingerprint, draft.embedding
            slot.others.clear()
            slot.gone_at = None if draft.keep is None else self._clock() + draft.keep
            slot.complaints.clear()
            if draft.shared_embedding is not None:
                self._shared[(draft.fingerprint, draft.shared_embedding[0])] = draft.shared_embedding[1]
            fingerprint = draft.fingerprint if draft.embedding is not None else ""
            self._note("add", draft.entry_id, draft.scope, fingerprint, slot.gone_at)
            self._versions[draft.entry_id.rsplit("/", 1)[0]] = now / 1e6
            stale = draft.epoch != self._epoch or any(
                fence <= self._generations.get(t, 0) for t in draft.all_tags
            )
            outcome = "old_fence" if stale else "stored" if old is None else "replaced"
            return PutReply(outcome, revision, now, True, evicted)

    def _make_room(self, draft: Draft, budget: Budget) -> tuple[str, ...] | None:
        """Evict what is over the budget; returns why, once for each, None if the entry is larger than all of it."""
        if self._accounts is None:
            self._accounts = Ranked(entries=None, eviction=budget.eviction)
            for entry_id, slot in self._slots.items():
                if slot.entry is not None and entry_id != draft.entry_id:
                    self._accounts.put(entry_id, len(slot.entry.prompt) + len(slot.entry.response.text))
        accounts = self._accounts
        accounts.limit(budget.entries, budget.size)
        for entry_id, uses in draft.uses:
            accounts.touch(entry_id, uses)
        while self._ends and self._ends[0][0] <= self._clock():
            _, entry_id = heapq.heappop(self._ends)
            known = self._slot(entry_id)
            if known is None or known.entry is None:
                accounts.drop(entry_id)
        size = size_of(draft)
        saved = weight(budget.eviction, tokens=draft.saves[0], latency_ms=draft.saves[1], size=size)
        gone = accounts.put(draft.entry_id, size, saved)
        if gone is None:
            return None
        for entry_id in gone:
            slot = self._slots[entry_id]
            scope = "" if slot.entry is None else slot.entry.scope
            slot.entry, slot.embedding, slot.gone_at = None, None, None
            self._note("evict", entry_id, scope)
        if draft.keep is not None:
            heapq.heappush(self._ends, (self._clock() + draft.keep, draft.entry_id))
        return ("entries" if budget.entries is not None else "bytes",) * len(gone)

    def report_hot(self, holder: str, report: str, *, timeout: float) -> dict[str, str]:
        with self._lock:
            if report:
                self._reports[holder] = report
            return dict(self._reports)

    def note_uses(self, uses: Uses, budget: Budget, *, timeout: float) -> None:
        with self._lock:
            if self._accounts is not None:
                for entry_id, count in uses:
                    self._accounts.touch(entry_id, count)

    def _lease(self, entry_id: str) -> _Lease | None:
        lease = self._leases.get(entry_id)
        if lease is not None and self._clock() >= lease.ends:
            del self._leases[entry_id]
            return None
        return lease

    def claim(self, claim: Claim, *, timeout: float) -> Claimed:
        with self._lock:
            now = self._now_us()
            slot, lease = self._slot(claim.entry_id), self._lease(claim.entry_id)
            entry = None if slot is None else slot.entry
            raised = max((self._generations.get(name, 0) for name in claim.names), default=0)
            if (
                claim.since_us is not None
                and entry is not None
                and entry.state == "live"
                and entry.created_at * 1e6 > claim.since_us
            ):
                return Claimed("stored", "", 0.0, 0, self._epoch, now, raised)
            if lease is not None and lease.holder == "-":
                return Claimed("unshared", "", 0.0, 0, self._epoch, now, raised)
            if (
                lease is not None
                and lease.holder != claim.instead_of
                and lease.epoch == claim.epoch
                and (slot is None or lease.fence_us > slot.tomb_us)
            ):
                left = lease.ends - self._clock()
                return Claimed("held", lease.holder, left, lease.fence_us, self._epoch, now, raised)
            fence = now if claim.fence_us is None else claim.fence_us
            self._leases[claim.entry_id] = _Lease(
                claim.holder, claim.epoch, fence, self._clock() + claim.seconds
            )
            return Claimed("taken", claim.holder, claim.seconds, fence, self._epoch, now, raised)

    def extend(self, leases: Sequence[tuple[str, str]], seconds: float, *, timeout: float) -> list[bool]:
        with self._lock:
            held = []
            for entry_id, holder in leases:
                lease = self._lease(entry_id)
                mine = lease is not None and lease.holder == holder
                if lease is not None and mine:
                    lease.ends = self._clock() + seconds
                held.append(mine)
            return held

    def release(
        self, leases: Sequence[tuple[str, str]], *, unshared: float | None = None, timeout: float
    ) -> None:
        with self._lock:
            for entry_id, holder in leases:
                lease = self._lease(entry_id)
                if lease is None or lease.holder != holder:
                    continue
                if unshared is None:
                    del self._leases[entry_id]
                else:
                    lease.holder, lease.ends = "-", self._clock() + unshared

    def put_embedding(
        self, fingerprint: str, digest: str, data: bytes, ttl: float, *, timeout: float
    ) -> None:
        with self._lock:
            self._shared[(fingerprint, digest)] = data

    def attach(self, late: LateEmbedding, *, timeout: float) -> bool:
        with self._lock:
            slot = self._slot(late.entry_id)
            if slot is None or slot.entry is None or slot.entry.revision != late.revision:
                return False
            slot.embedding, slot.fingerprint = late.embedding, late.fingerprint
            self._note("add", late.entry_id, late.scope, late.fingerprint, late.expires_at)
            return True

    def set_aside(self, entry_id: str, *, keep: float, timeout: float) -> None:
        with self._lock:
            self._slots.pop(entry_id, None)

    def withdraw(
        self, ids: Sequence[str], reason: str, *, keep: float, durability: str, timeout: float
    ) -> Withdrawn:
        with self._lock:
            live = []
            for entry_id in ids:
                self._slot(entry_id)
                slot = self._slots.setdefault(entry_id, _Slot())
                if slot.entry is not None and slot.entry.state == "live":
                    live.append(entry_id)
                self._bury(entry_id, slot, reason, keep)
            return Withdrawn(tuple(live), self._now_us(), "memory", epoch=self._epoch)

    def _bury(self, entry_id: str, slot: _Slot, reason: str, keep: float) -> None:
        slot.tomb_us, slot.tomb_reason, slot.tomb_count = self._now_us(), reason, slot.tomb_count + 1
        slot.complaints.clear()
        if slot.entry is not None:
            slot.entry = replace(slot.entry, state="withdrawn")
        slot.gone_at = self._clock() + keep
        self._note("withdraw", entry_id)

    def raise_generations(
        self, names: Sequence[str], *, before: float = 0.0, durability: str, timeout: float
    ) -> Withdrawn:
        with self._lock:
            now = self._now_us()
            for name in names:
                self._generations[name] = max(self._generations.get(name, 0), now - round(before * 1e6))
            self._version += 1
            self._note("tag", names=tuple(names), until=Fence("", now - round(before * 1e6)))
            return Withdrawn((), now, "memory", epoch=self._epoch)

    def withdraw_again(
        self, former: Sequence[Former], *, keep: float, durability: str, timeout: float
    ) -> Withdrawn:
        with self._lock:
            now = self._now_us()
            forgotten = []
            for one in former:
                at = min(one.at.time_us, now)
                if one.kind == "name":
                    if self._generations.get(one.name, 0) >= at:
                        continue
                    self._generations[one.name] = at
                    self._version += 1
                    self._note("tag", names=(one.name,), until=one.at, again=True)
                else:
                    self._slot(one.name)
                    slot = self._slots.setdefault(one.name, _Slot())
                    if one.kind == "block" and slot.blocked:
                        continue
                    entry = slot.entry
                    bad = entry is not None and entry.state == "live" and entry.fence.time_us <= at
                    if slot.tomb_us >= at and not bad:
                        continue
                    self._bury_again(one, slot, at, keep if bad else None)
                forgotten.append(one.name)
            return Withdrawn(tuple(forgotten), now, "memory")

    def _bury_again(self, one: Former, slot: _Slot, at: int, keep: float | None) -> None:
        slot.tomb_us, slot.tomb_reason = max(at, slot.tomb_us), "asserted again"
        slot.tomb_count += 1
        if keep is not None and slot.entry is not None:
            slot.complaints.clear()
            slot.entry = replace(slot.entry, state="withdrawn")
            slot.gone_at = self._clock() + keep
        op = "withdraw" if one.kind == "id" else "block"
        self._note(op, one.name, until=one.at, again=True)

    def restore(self, entry_id: str, *, timeout: float) -> bool:
        with self._lock:
            slot = self._slot(entry_id)
            if slot is None or slot.entry is None or slot.entry.state != "withdrawn":
                return False
            now, entry = self._now_us(), replace(slot.entry, state="live")
            clock = Clock(self._epoch, now, 0, {name: self._generations.get(name, 0) for name in entry.obeys})
            gone_at = None if entry.ttl is None else entry.created_at + entry.ttl
            if liveness(entry, clock, entry.obeys) is not None or (
                gone_at is not None and now / 1e6 >= gone_at
            ):
                return False
            slot.entry = replace(entry, revision=max(now, entry.revision + 1))
            slot.tomb_us = 0
            slot.complaints.clear()
            slot.gone_at = gone_at
            self._note("add", entry_id, slot.entry.scope, slot.fingerprint, slot.gone_at)
            return True

    def feedback(self, mark: Mark, *, durability: str, timeout: float) -> FeedbackResult:
        with self._lock:
            result = self._judge(mark)
            if result.action == "withdrawn":
                why = "feedback" if mark.about == "answer" else "feedback:match"
                self.queue_refresh([Stale(mark.entry_id, why)], timeout=timeout)
            bucket = (
                mark.principal,
                int(self._clock() // mark.rules.rate_window) if mark.rules.rate_window else 0,
            )
            self._spoken = {key: n for key, n in self._spoken.items() if key[1] >= bucket[1] - 1}
            self._spoken[bucket] = self._spoken.get(bucket, 0) + 1
            return replace(result, limited=self._spoken[bucket] > mark.rules.rate)

    def _judge(self, mark: Mark) -> FeedbackResult:
        with self._lock:
            slot, now = self._slot(mark.entry_id), self._clock()
            entry = None if slot is None else slot.entry
            if (
                slot is None
                or entry is None
                or entry.state != "live"
                or mark.revision not in (None, entry.revision)
            ):
                return FeedbackResult("none", mark.entry_id)
            self._forget_old(slot, entry.revision, now, mark)
            if mark.verdict != -1:
                _take_back(slot, mark)
            slot.praise = {p: w for p, w in slot.praise.items() if p.principal != mark.principal}
            if mark.verdict == 1:
                slot.praise[Praise(entry.revision, mark.principal, mark.nonce, mark.weight)] = now
            if mark.verdict == -1:
                complaint = Complaint(
                    mark.about, entry.revision, mark.principal, mark.nonce, mark.text, mark.weight
                )
                for older in crowded(slot.complaints, complaint):
                    del slot.complaints[older]
                slot.complaints[complaint] = now
            if mark.verdict != 0 and mark.about == "match" and mark.similarity is not None:
                seen = (*entry.observations, (round(mark.similarity, 4), mark.verdict == 1))
                entry = slot.entry = replace(entry, observations=seen[-MAX_OBSERVATIONS:])
            needed = raised(mark.rules.raters, mark.rules.trust, slot.praise)
            if mark.verdict != -1:
                slot.entry = replace(entry, blocked=frozenset(slot.blocked))
                count, heavy = distinct_raters(c for c in slot.complaints if c.about == mark.about)
                said: Literal["recorded", "none"] = "recorded" if mark.verdict else "none"
                return FeedbackResult(said, mark.entry_id, count, weight=float(heavy), needed=float(needed))
            action, count, heavy, everyone = consequence(
                slot.complaints, mark.about, mark.text, mark.rules.raters, needed
            )
            if mark.about == "match" and len(slot.blocked) < MAX_BLOCKED:
                slot.blocked.add(mark.text if everyone else f"{mark.text}@{mark.principal}")
                slot.entry = replace(entry, blocked=frozenset(slot.blocked))
                self._note("block", mark.entry_id)
            if action == "withdrawn":
                self._bury(
                    mark.entry_id,
                    slot,
                    "feedback" if mark.about == "answer" else "feedback:match",
                    mark.rules.keep,
                )
            return FeedbackResult(action, mark.entry_id, count, weight=float(heavy), needed=float(needed))

    def _forget_old(self, slot: _Slot, revision: int, now: float, mark: Mark) -> None:
        slot.complaints = {
            c: w
            for c, w in slot.complaints.items()
            if w >= now - mark.rules.window and c.revision == revision
        }
        slot.praise = {
            p: w
            for p, w in slot.praise.items()
            if w >= now - mark.rules.trust_window and p.revision == revision
        }

    def members(self, scope: str, fingerprint: str, *, timeout: float) -> list[tuple[str, float | None]]:
        with self._lock:
            return [
                (entry_id, slot.gone_at)
                for entry_id in list(self._slots)
                if (slot := self._slot(entry_id)) is not None
                and slot.entry is not None
                and slot.entry.scope == scope
                and slot.of(fingerprint) is not None
            ]

    def embeddings(self, ids: Sequence[str], fingerprint: str, *, timeout: float) -> list[bytes | None]:
        with self._lock:
            slots = [self._slot(entry_id) for entry_id in ids]
            return [None if slot is None else slot.of(fingerprint) for slot in slots]

    def changes(self, after: int, *, count: int, block: float) -> list[Change]:
        with self._lock:
            if block and (not self._log or self._log[-1].sequence <= after):
                self._lock.wait(block)
            first = bisect_right(self._log, after, key=lambda change: change.sequence)
            return self._log[first : first + count]

    def position(self, at: int | None = None, *, timeout: float) -> Position:
        with self._lock:
            newest = self._log[-1].sequence if self._log else 0
            asked = newest if at is None else at
            there = bool(self._log) and self._log[0].sequence <= asked <= newest
            return Position(self._epoch, newest, str(asked) if there else "")

    def secret(self, offer: bytes, *, timeout: float) -> bytes:
        with self._lock:
            self._secret = self._secret or offer
            return self._secret

    def queue_refresh(self, stale: Sequence[Stale], *, timeout: float) -> int:
        with self._lock:
            added = 0
            for one in stale:
                slot, ticket = self._slot(one.entry_id), self._queued.get(one.entry_id)
                if slot is None or slot.entry is None:
                    continue
                if ticket is not None:
                    noted = self._queue[ticket][0].revision
                    if one.withdrawn or one.revision not in (None, noted):
                        self._again[ticket] = replace(one, why="again")
                elif len(self._queue) < MAX_QUEUED:
                    self._enqueue(one)
                    added += 1
            return added

    def _enqueue(self, one: Stale) -> None:
        ticket = self._queued[one.entry_id] = f"{self._now_us()}-0"
        self._queue[ticket] = (one, self._clock())

    def take_refreshes(self, consumer: str, *, count: int, idle: float, timeout: float) -> list[Refresh]:
        with self._lock:
            now = self._clock()
            found: list[Refresh] = []
            for ticket, (one, queued_at) in self._queue.items():
                claimed_at, tries = self._claims.get(ticket, (None, 0))
                if len(found) < count and (claimed_at is None or now - claimed_at >= idle):
                    self._claims[ticket] = (now, tries + 1)
                    found.append(Refresh(ticket, one.entry_id, one.why, queued_at, tries + 1, one.revision))
            return found

    def finish_refreshes(self, done: Sequence[Refresh], *, timeout: float) -> None:
        with self._lock:
            for work in done:
                self._queue.pop(work.ticket, None)
                self._claims.pop(work.ticket, None)
                again = self._again.pop(work.ticket, None)
                if self._queued.get(work.entry_id) == work.ticket:
                    del self._queued[work.entry_id]
                    if again is not None:
                        self._enqueue(again)

    def get_many(self, ids: Sequence[str], *, timeout: float) -> list[Entry | None]:
        with self._lock:
            slots = [self._slot(entry_id) for entry_id in ids]
            return [None if slot is None else slot.entry for slot in slots]

    def tally(self, counts: Mapping[str, int], *, timeout: float) -> dict[str, int]:
        with self._lock:
            for label, number in counts.items():
                self._tally[label] = self._tally.get(label, 0) + number
            return dict(self._tally)

    def versions(self, *, timeout: float) -> list[tuple[str, float]]:
        with self._lock:
            return sorted(self._versions.items(), key=lambda item: -item[1])

    def sweep(
        self, *, lease: float, keep: float, generations: int, budget: Budget | None = None, timeout: float
    ) -> Swept:
        with self._lock:
            gone = [
                i
                for i, slot in list(self._slots.items())
                if self._slot(i) and slot.entry is None and slot.gone_at is None
            ]
            forgotten = [i for i in gone if self._slots[i].tomb_us / 1e6 < self._clock() - keep]
            for entry_id in list(self._leases):
                self._lease(entry_id)
            for entry_id in forgotten:
                if not self._slots[entry_id].blocked:
                    del self._slots[entry_id]
            return Swept(True, 0, len(forgotten))

    def tombstones(self, *, limit: int, timeout: float) -> list[Tombstone]:
        with self._lock:
            found = [
                Tombstone(
                    entry_id, slot.tomb_us / 1e6, slot.tomb_reason, slot.tomb_count,
                    slot.entry.prompt if slot.entry else "", slot.entry.response.text if slot.entry else "",
                )
                for entry_id, slot in self._slots.items()
                if slot.tomb_us and (slot.entry is None or slot.entry.state == "withdrawn")
            ]  # fmt: skip
            return sorted(found, key=lambda tomb: -tomb.withdrawn_at)[:limit]

    def scan(self, *, count: int = 500) -> Iterator[list[Entry]]:
        with self._lock:
            slots = [self._slot(entry_id) for entry_id in list(self._slots)]
            entries = [slot.entry for slot in slots if slot is not None and slot.entry is not None]
        for first in range(0, len(entries), count):
            yield entries[first : first + count]

    def encoders(self, fingerprint: str, *, timeout: float) -> EncodersSeen:
        with self._lock:
            self._encoders[fingerprint] = self._clock()
            progress = self._reembedded.get(fingerprint)
            return EncodersSeen(self._clock(), dict(self._encoders), progress)

    def lead(self, name: str, seconds: float, *, timeout: float) -> bool:
        return True  # there is no other process

    def resign(self, name: str, *, timeout: float) -> None:
        """Nothing to give back."""

    def foreign(self, ids: Sequence[str], fingerprint: str, *, timeout: float) -> list[Foreign]:
        with self._lock:
            found = []
            for entry_id in ids:
                slot = self._slot(entry_id)
                if (
                    slot is None
                    or slot.entry is None
                    or slot.entry.state != "live"
                    or not slot.fingerprint
                    or slot.of(fingerprint) is not None
                ):
                    continue
                entry = slot.entry
                found.append(Foreign(entry_id, entry.revision, entry.scope, entry.prompt))
            return found

    def scan_foreign(self, fingerprint: str, *, count: int = 500) -> Iterator[list[Foreign]]:
        with self._lock:
            ids = list(self._slots)
        for first in range(0, len(ids), count):
            yield self.foreign(ids[first : first + count], fingerprint, timeout=1.0)

    def embed(self, given: Sequence[Embedded], fingerprint: str, *, timeout: float) -> int:
        with self._lock:
            done = 0
            for one in given:
                slot = self._slot(one.entry_id)
                if slot is None or slot.entry is None or slot.entry.revision != one.revision:
                    continue
                if slot.fingerprint == fingerprint:
                    slot.embedding = one.embedding
                else:
                    slot.others[fingerprint] = one.embedding
                self._note("add", one.entry_id, one.scope, fingerprint, slot.gone_at)
                done += 1
            return done

    def note_reembedding(self, progress: Reembedding, *, timeout: float) -> None:
        with self._lock:
            self._reembedded[progress.fingerprint] = replace(progress, leader=False)

    def forget_encoders(self, fingerprints: Sequence[str], *, timeout: float) -> int:
        with self._lock:
            dropped = 0
            for slot in self._slots.values():
                for fingerprint in fingerprints:
                    if slot.of(fingerprint) is None:
                        continue
                    dropped += 1
                    if slot.fingerprint == fingerprint:
                        slot.embedding = None
                    else:
                        del slot.others[fingerprint]
            for fingerprint in fingerprints:
                self._encoders.pop(fingerprint, None)
                self._reembedded.pop(fingerprint, None)
            return dropped

    def info(self, *, timeout: float) -> Mapping[str, str]:
        return {"redis_version": "none (memory store)"}

    def close(self) -> None:
        """Nothing to release."""


def _take_back(slot: _Slot, mark: Mark) -> None:
    """Forget what this principal has said so far."""
    slot.complaints = {c: w for c, w in slot.complaints.items() if c.principal != mark.principal}
    slot.blocked.discard(f"{mark.text}@{mark.principal}")


class AsyncMemoryStore:
    """The asynchronous twin: the same entries, from a `MemoryStore` that may be shared."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self._store = MemoryStore() if store is None else store

    async def read(
        self,
        ids: Sequence[str],
        tags: Sequence[str],
        *,
        embedding: tuple[str, str] | None,
        copies: int = 0,
        timeout: float,
    ) -> View:
        return self._store.read(ids, tags, embedding=embedding, timeout=timeout)

    async def put(self, draft: Draft, *, timeout: float) -> PutReply:
        return self._store.put(draft, timeout=timeout)

    async def claim(self, claim: Claim, *, timeout: float) -> Claimed:
        return self._store.claim(claim, timeout=timeout)

    async def extend(
        self, leases: Sequence[tuple[str, str]], seconds: float, *, timeout: float
    ) -> list[bool]:
        return self._store.extend(leases, seconds, timeout=timeout)

    async def release(
        self, leases: Sequence[tuple[str, str]], *, unshared: float | None = None, timeout: float
    ) -> None:
        self._store.release(leases, unshared=unshared, timeout=timeout)

    async def put_embedding(
        self, fingerprint: str, digest: str, data: bytes, ttl: float, *, timeout: float
    ) -> None:
        self._store.put_embedding(fingerprint, digest, data, ttl, timeout=timeout)

    async def attach(self, late: LateEmbedding, *, timeout: float) -> bool:
        return self._store.attach(late, timeout=timeout)

    async def set_aside(self, entry_id: str, *, keep: float, timeout: float) -> None:
        self._store.set_aside(entry_id, keep=keep, timeout=timeout)

    async def withdraw(
        self, ids: Sequence[str], reason: str, *, keep: float, durability: str, timeout: float
    ) -> Withdrawn:
        return self._store.withdraw(ids, reason, keep=keep, durability=durability, timeout=timeout)

    async def raise_generations(
        self, names: Sequence[str], *, before: float = 0.0, durability: str, timeout: float
    ) -> Withdrawn:
        return self._store.raise_generations(names, before=before, durability=durability, timeout=timeout)

    async def withdraw_again(
        self, former: Sequence[Former], *, keep: float, durability: str, timeout: float
    ) -> Withdrawn:
        return self._store.withdraw_again(former, keep=keep, durability=durability, timeout=timeout)

    async def restore(self, entry_id: str, *, timeout: float) -> bool:
        return self._store.restore(entry_id, timeout=timeout)

    async def feedback(self, mark: Mark, *, durability: str, timeout: float) -> FeedbackResult:
        return self._store.feedback(mark, durability=durability, timeout=timeout)

    async def members(
        self, scope: str, fingerprint: str, *, timeout: float
    ) -> list[tuple[str, float | None]]:
        return self._store.members(scope, fingerprint, timeout=timeout)

    async def embeddings(self, ids: Sequence[str], fingerprint: str, *, timeout: float) -> list[bytes | None]:
        return self._store.embeddings(ids, fingerprint, timeout=timeout)

    async def changes(self, after: int, *, count: int, block: float) -> list[Change]:
        return self._store.changes(after, count=count, block=0.0)

    async def position(self, at: int | None = None, *, timeout: float) -> Position:
        return self._store.position(at, timeout=timeout)

    async def secret(self, offer: bytes, *, timeout: float) -> bytes:
        return self._store.secret(offer, timeout=timeout)

    async def queue_refresh(self, stale: Sequence[Stale], *, timeout: float) -> int:
        return self._store.queue_refresh(stale, timeout=timeout)

    async def take_refreshes(
        self, consumer: str, *, count: int, idle: float, timeout: float
    ) -> list[Refresh]:
        return self._store.take_refreshes(consumer, count=count, idle=idle, timeout=timeout)

    async def finish_refreshes(self, done: Sequence[Refresh], *, timeout: float) -> None:
        self._store.finish_refreshes(done, timeout=timeout)

    async def get_many(self, ids: Sequence[str], *, timeout: float) -> list[Entry | None]:
        return self._store.get_many(ids, timeout=timeout)

    async def tally(self, counts: Mapping[str, int], *, timeout: float) -> dict[str, int]:
        return self._store.tally(counts, timeout=timeout)

    async def versions(self, *, timeout: float) -> list[tuple[str, float]]:
        return self._store.versions(timeout=timeout)

    async def report_hot(self, holder: str, report: str, *, timeout: float) -> dict[str, str]:
        return self._store.report_hot(holder, report, timeout=timeout)

    async def note_uses(self, uses: Uses, budget: Budget, *, timeout: float) -> None:
        self._store.note_uses(uses, budget, timeout=timeout)

    async def sweep(
        self, *, lease: float, keep: float, generations: int, budget: Budget | None = None, timeout: float
    ) -> Swept:
        return self._store.sweep(
            lease=lease, keep=keep, generations=generations, budget=budget, timeout=timeout
        )

    async def tombstones(self, *, limit: int, timeout: float) -> list[Tombstone]:
        return self._store.tombstones(limit=limit, timeout=timeout)

    async def scan(self, *, count: int = 500) -> AsyncIterator[list[Entry]]:
        for batch in self._store.scan(count=count):
            yield batch

    async def info(self, *, timeout: float) -> Mapping[str, str]:
        return self._store.info(timeout=timeout)

    async def close(self) -> None:
        """Nothing to release."""
