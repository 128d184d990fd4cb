"""The operations of a Redis store as steps: each yields plans and is sent their results. No I/O.

Most operations are one plan. Those that need a second say why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from semcache.codec import FIELDS, decode_entry
from semcache.decision import Clock, liveness
from semcache.errors import StoreUnavailableError, UndecodableError
from semcache.keys import Keys
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
from semcache.stores.budget import BudgetPlans, Room
from semcache.stores.embeddings import EmbeddingPlans
from semcache.stores.plans import Command, Plan, Plans, check, seconds
from semcache.types import Entry, FeedbackResult

T = TypeVar("T")
DURABLE_WAIT: Final = 2.0  # seconds that a withdrawal waits for disk or replicas
Steps = Generator[Plan[Any], Any, T]


class Operations:
    """What a store does, in terms of round trips."""

    def __init__(self, namespace: str, *, cluster: bool = False) -> None:
        self.keys = Keys(namespace)
        self.plans = Plans(self.keys, cluster=cluster)
        self.budget = BudgetPlans(self.keys)
        self._cluster = cluster
        self._turn = 0  # which copy of a hot entry is read next
        self.embedding_plans = EmbeddingPlans(self.keys, self.plans)

    def read(
        self, ids: Sequence[str], tags: Sequence[str], embedding: tuple[str, str] | None, copies: int = 0
    ) -> Steps[View]:
        if not copies or not self._cluster:
            return (yield from self._read(ids, tags, embedding))
        self._turn = (self._turn + 1) % copies
        number = self._turn
        copied: View | None = yield self.plans.read_copied(ids[0], tags, embedding, number, copies)
        if copied is not None and copied.epoch:
            return copied
        whole = yield from self._read(ids, tags, embedding)
        entry = whole.entries[0]
        if entry is not None and entry.state == "live":
            yield self.plans.write_copy(entry, number, copies)
        return whole

    def _read(
        self, ids: Sequence[str], tags: Sequence[str], embedding: tuple[str, str] | None
    ) -> Steps[View]:
        view: View = yield self.plans.read(ids, tags, embedding)
        if view.epoch:
            return view
        # A store without an epoch is new or was flushed: give it one, and read again under it.
        yield self.plans.begin()
        view = yield self.plans.read(ids, tags, embedding)
        if not view.epoch:
            raise StoreUnavailableError(
                "the store doesn't keep its epoch; is its memory full or flushed all the time?"
            )
        return view

    def put(self, draft: Draft) -> Steps[PutReply]:
        if draft.budget is not None:
            return (yield from self._put_within(draft, draft.budget))
        reply: PutReply = yield self.plans.put(draft)
        return reply

    def claim(self, claim: Claim) -> Steps[Claimed]:
        reply: Claimed = yield self.plans.claim(claim)
        return reply

    def extend(self, leases: Sequence[tuple[str, str]], seconds: float) -> Steps[list[bool]]:
        held: list[bool] = yield self.plans.extend(leases, seconds)
        return held

    def release(self, leases: Sequence[tuple[str, str]], unshared: float | None) -> Steps[None]:
        yield self.plans.release(leases, unshared)

    def _put_within(self, draft: Draft, budget: Budget) -> Steps[PutReply]:
        """Make room, then store: what is evicted lies in other slots, and must be gone before."""
        room: Room = yield self.budget.reserve(draft, budget)
        gone = yield from self._evict(room)
        if room.outcome != "reserved":
            left = [*gone, *self.plans.end_lease(draft)]
            if left:
                yield Plan(left, lambda replies: [check(reply) for reply in replies])
            return PutReply(room.outcome, 0, int(room.stamp))
        stored = self.budget.stored(room, draft)
        # What replaces another is said to be there once that is known: if it is refused, the other still is.
        at_once = not self._cluster and not room.replaced
        if at_once:
            gone.append(stored)
        reply: PutReply = yield self.plans.put(draft, also=gone, until_us=room.until_us)
        if not reply.written:
            yield self.budget.take_back(room, draft.entry_id)
        elif not at_once:
            yield Plan([stored], lambda replies: [check(reply) for reply in replies])
        return replace(reply, evicted=tuple(why for _, why in room.leaving if why in ("entries", "bytes")))

    def _evict(self, room: Room) -> Steps[list[Command]]:
        """Delete what is leaving; returns the commands that say so, to be sent with whatever comes next."""
        if not room.leaving:
            return []
        deleted: list[tuple[str, str, str]] = yield self.budget.evict(room)
        told = [self.budget.settled(room)]
        for entry_id, scope, fingerprint in deleted:
            if fingerprint:
                told.append(self.budget.forget_member(entry_id, scope, fingerprint))
            told.append(self.plans.evicted(entry_id, scope))
        return told

    def report_hot(self, holder: str, report: str) -> Steps[dict[str, str]]:
        found: dict[str, str] = yield self.plans.report_hot(holder, report)
        return found

    def note_uses(self, uses: Uses, budget: Budget) -> Steps[None]:
        yield self.budget.use(uses, budget)

    def budget_facts(self) -> Steps[dict[str, str]]:
        found: dict[str, str] = yield self.budget.facts()
        return found

    def adopt(self, keys: Sequence[bytes], budget: Budget) -> Steps[int]:
        """Give accounts to those of the scanned entries that have none: they were stored without a budget."""
        unknown: list[str] = yield self.budget.unknown([self.keys.entry_id(key.decode()) for key in keys])
        if not unknown:
            return 0
        weighed: list[tuple[str, int, int]] = yield self.budget.weigh(unknown)
        if weighed:
            rooms: list[Room] = yield self.budget.adopt(weighed, budget, time.time())
            for (entry_id, size, _), room in zip(weighed, rooms, strict=True):
                if room.outcome != "reserved":  # there is no room for it
                    room = replace(room, leaving=(*room.leaving, (entry_id, room.outcome)))
                gone = yield from self._evict(room)
                gone.append(self.budget.adopted(room, entry_id, size))
                yield Plan(gone, lambda replies: [check(reply) for reply in replies])
        return len(weighed)

    def put_embedding(self, fingerprint: str, digest: str, data: bytes, ttl: float) -> Steps[None]:
        yield self.plans.put_embedding(fingerprint, digest, data, ttl)

    def attach(self, late: LateEmbedding) -> Steps[bool]:
        done: bool = yield self.plans.attach(late)
        if done:
            expires = "inf" if late.expires_at is None else seconds(late.expires_at)
            yield self.plans.announce(late.epoch, late.entry_id, late.scope, late.fingerprint, expires)
        return done

    def set_aside(self, entry_id: str, keep: float) -> Steps[None]:
        yield self.plans.set_aside(entry_id, keep)

    def withdraw(self, ids: Sequence[str], reason: str, keep: float, durability: str) -> Steps[Withdrawn]:
        done: Withdrawn = yield self.plans.withdraw(ids, reason, keep, durability)
        return done

    def raise_generations(self, names: Sequence[str], before: float, durability: str) -> Steps[Withdrawn]:
        done: Withdrawn = yield self.plans.raise_generations(names, before, durability)
        return done

    def withdraw_again(self, former: Sequence[Former], keep: float, durability: str) -> Steps[Withdrawn]:
        # What every process of a fleet withdraws again is told the log once, by the first.
        done: Withdrawn = yield self.plans.withdraw_again(former, keep, durability)
        forgotten = [one for one in former if one.name in done.entry_ids]
        if not forgotten:
            return done
        count: int = yield self.plans.announce_again_withdrawn(forgotten)
        return replace(done, count=count)

    def restore(self, entry_id: str) -> Steps[bool]:
        # The generations live in another slot than the entry, and the log needs what the script found.
        (entry,) = yield from self.get_many([entry_id])
        if entry is None:
            return False
        view: View = yield self.plans.read((), entry.obeys, None)
        clock = Clock(view.epoch, view.time_us, view.floor_us, view.generations)
        if liveness(replace(entry, state="live"), clock, entry.obeys) is not None:
            return False
        done, scope, fingerprint, expiry = yield self.plans.restore(entry_id)
        if done:
            expires = seconds(float(expiry) / 1000) if expiry else "inf"
            yield self.plans.announce_restored(view.epoch, entry_id, scope, fingerprint, expires)
        return bool(done)

    def feedback(self, mark: Mark, durability: str) -> Steps[FeedbackResult]:
        result: FeedbackResult = yield self.plans.feedback(mark, durability)
        if self._cluster and mark.about == "match" and result.action in ("blocked", "withdrawn"):
            yield self.plans.announce_block(mark.entry_id)
        if result.action == "withdrawn":
            yield self.plans.announce_withdrawal(
                mark.entry_id, "feedback" if mark.about == "answer" else "feedback:match"
            )
        return result

    def members(self, scope: str, fingerprint: str) -> Steps[list[tuple[str, float | None]]]:
        found: list[tuple[str, float | None]] = yield self.plans.members(scope, fingerprint)
        return found

    def embeddings(self, ids: Sequence[str], fingerprint: str) -> Steps[list[bytes | None]]:
        found: list[bytes | None] = yield self.plans.embeddings(ids, fingerprint)
        return found

    def changes(self, after: int, count: int, block: float) -> Steps[list[Change]]:
        found: list[Change] = yield self.plans.changes(after, count, max(1, round(block * 1000)))
        return found

    def position(self, at: int | None = None) -> Steps[Position]:
        found: Position = yield self.plans.position(at)
        return found

    def secret(self, offer: bytes) -> Steps[bytes]:
        found: bytes = yield self.plans.secret(offer)
        return found

    def queue_refresh(self, stale: Sequence[Stale]) -> Steps[int]:
        # The queue is in another slot than the entries.
        there: list[bool] = yield self.plans.present([one.entry_id for one in stale])
        known = [one for one, is_there in zip(stale, there, strict=True) if is_there]
        added: int = (yield self.plans.queue_refresh(known)) if known else 0
        return added

    def take_refreshes(self, consumer: str, count: int, idle: float) -> Steps[list[Refresh]]:
        plan = self.plans.take_refreshes(consumer, count, round(idle * 1000))
        found: list[Refresh] | None = yield plan
        if found is None:
            yield self.plans.make_group()
            found = yield plan
        return found or []

    def finish_refreshes(self, done: Sequence[Refresh]) -> Steps[None]:
        yield self.plans.finish_refreshes(done)

    def get_many(self, ids: Sequence[str]) -> Steps[list[Entry | None]]:
        keys = [self.keys.entry(entry_id).encode() for entry_id in ids]
        replies = yield Plan(self.entry_commands(keys), list)
        found = {entry.entry_id: entry for entry in self.decode(keys, replies)}
        return [found.get(entry_id) for entry_id in ids]

    def tally(self, counts: Mapping[str, int]) -> Steps[dict[str, int]]:
        found: dict[str, int] = yield self.plans.tally(counts)
        return found

    def versions(self) -> Steps[list[tuple[str, float]]]:
        found: list[tuple[str, float]] = yield self.plans.versions()
        return found

    def lead_sweep(self, holder: str, lease: float, keep: float, generations: int) -> Steps[Swept]:
        """Take the lease and do what needs no scan."""
        if not (yield self.plans.lease("sweep", holder, lease)):
            return Swept()
        folded, forgotten = yield self.plans.sweep(keep, generations)
        return Swept(True, folded, forgotten)

    def announce_left(self, keys: Sequence[bytes]) -> Steps[int]:
        """Announce those of the scanned entries that never were."""
        states = yield self.plans.announced_states(keys)
        left = 0
        for key, (announced, state, epoch, scope, fingerprint, entry_id) in zip(keys, states, strict=True):
            if announced == b"0" and state == b"live" and entry_id:
                texts = [(value or b"").decode() for value in (epoch, entry_id, scope, fingerprint)]
                yield self.plans.announce_again(key, *texts)
                left += 1
        return left

    def encoders(self, fingerprint: str) -> Steps[EncodersSeen]:
        found: EncodersSeen = yield self.embedding_plans.encoders(fingerprint)
        return found

    def lead(self, name: str, holder: str, seconds: float) -> Steps[bool]:
        done: bool = yield self.embedding_plans.lead(name, holder, seconds)
        return done

    def resign(self, name: str, holder: str) -> Steps[None]:
        yield self.embedding_plans.resign(name, holder)

    def foreign(self, keys: Sequence[bytes], fingerprint: str) -> Steps[list[Foreign]]:
        found: list[Foreign] = yield self.embedding_plans.foreign(keys, fingerprint)
        return found

    def embed(self, given: Sequence[Embedded], fingerprint: str) -> Steps[int]:
        # The epoch lives in another slot than the entries; the log needs it, and what the scripts found.
        epoch: str = yield self.plans.begin()
        outcomes = yield self.embedding_plans.embed(given, fingerprint)
        done = [(one, expires) for one, (was, expires) in zip(given, outcomes, strict=True) if was]
        if done:
            yield self.embedding_plans.announce(epoch, done, fingerprint)
        return len(done)

    def note_reembedding(self, progress: Reembedding) -> Steps[None]:
        yield self.embedding_plans.note(progress)

    def unembed(self, keys: Sequence[bytes], fingerprints: Sequence[str]) -> Steps[int]:
        dropped: int = yield self.embedding_plans.unembed(keys, fingerprints)
        return dropped

    def expire_members(self, keys: Sequence[bytes]) -> Steps[int]:
        removed: int = yield self.embedding_plans.expire_members(keys)
        return removed

    def drop_keys(self, keys: Sequence[bytes]) -> Steps[int]:
        # One command for each: they lie in different slots of a cluster.
        yield Plan([("DEL", key) for key in keys], list)
        return len(keys)

    def forget_encoders(self, fingerprints: Sequence[str]) -> Steps[None]:
        yield self.embedding_plans.forget(fingerprints)

    def tombstones(self, limit: int) -> Steps[list[Tombstone]]:
        names: list[str] = yield self.plans.tombstones(limit)
        found: list[Tombstone] = yield self.plans.tombstone_details(names)
        return found

    def decode(self, keys: Sequence[bytes], replies: Sequence[Any]) -> list[Entry]:
        """Turn scanned keys and their fields into entries; what can't be read is left out."""
        entries = []
        for key, reply in zip(keys, replies, strict=True):
            try:
                entry = decode_entry(self.keys.entry_id(key.decode()), reply[:-3])
                if entry is not None:
                    obeys, request, stretch = reply[-3:]
                    entries.append(
                        replace(
                            entry,
                            obeys=tuple(json.loads(obeys or b"[]")),
                            request=(request or b"").decode(),
                            stretch=float(stretch or 1.0),
                        )
                    )
            except (UndecodableError, ValueError, TypeError):
                continue
        return entries

    def entry_commands(self, keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """Commands that read scanned keys."""
        return [("HMGET", key, *FIELDS, "obeys", "request", "stretch") for key in keys]


def server_facts(info: Mapping[str, Any]) -> dict[str, str]:
    """Pick from INFO and what doctor and stats need."""
    wanted = (
        "redis_version", "valkey_version", "redis_mode", "role", "aof_enabled", "rdb_last_save_time",
        "maxmemory", "maxmemory_policy", "used_memory", "evicted_keys", "run_id", "used_cpu_user", "used_cpu_sys",
        "connected_slaves", "uptime_in_seconds",
    )  # fmt: skip
    return {name: str(info[name]) for name in wanted if name in info}


def with_wait(plan: Plan[Any], *, cluster: bool) -> tuple[list[tuple[Any, ...]], float]:
    """Return a plan's commands, with the wait for durability that it asks for, and the seconds that may take.

    In a cluster the wait would go to some node, not to the ones written: it isn't sent, and isn't claimed.
    """
    if cluster or plan.durable == "memory":
        return plan.commands, 0.0
    limit = round(DURABLE_WAIT * 1000)
    wait = ("WAITAOF", 1, 0, limit) if plan.durable == "local" else ("WAIT", 1, limit)
    return [*plan.commands, wait], DURABLE_WAIT + 0.5


def read_replies(plan: Plan[Any], replies: Sequence[Any]) -> Any:
    """Read a plan's replies; a result that says what was durable gets the server's word on it."""
    if len(replies) == len(plan.commands):
        return plan.read(list(replies))
    result, word = plan.read(list(replies[:-1])), replies[-1]
    if isinstance(word, list) and word and int(word[0]) >= 1:
        return replace(result, durability="local")
    if isinstance(word, int) and word >= 1:
        return replace(result, durability=f"replicas:{word}")
    return result
