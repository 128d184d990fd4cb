"""What each operation of the store says to Redis, and how it reads the replies. No I/O.

A plan is a list of commands for one round trip and a function of their replies; `redis` sends plans,
synchronously and asynchronously.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Generic, NamedTuple, TypeVar

from hiredis import pack_command

from semcache.codec import FIELDS, decode_entry, decode_response, encode_response, encode_tags
from semcache.errors import StoreUnavailableError, UndecodableError
from semcache.keys import Keys
from semcache.protocols import (
    Change,
    Claim,
    Claimed,
    Draft,
    FeedbackRules,
    Former,
    LateEmbedding,
    Mark,
    Position,
    PutReply,
    Refresh,
    Stale,
    Tombstone,
    View,
    Withdrawn,
)
from semcache.stores.drafts import fields_of
from semcache.types import Entry, FeedbackResult, Fence

T = TypeVar("T")
Command = tuple[Any, ...]

MAX_LOG = 100_000
MAX_OBSERVATIONS = 64
MAX_BLOCKED = 256
MAX_LISTED = 100_000
MAX_QUEUED = 100_000
GROUP = "regeneration"
COPY_TTL = 60.0  # seconds
HOT_TTL = 60.0  # seconds
EMBEDDING_TTL = 7 * 86400.0  # seconds


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script of this package; `keys` says how many keys it declares."""

    name: str
    text: str
    sha: str


class Plan(NamedTuple, Generic[T]):
    """Commands of one round trip and what their replies mean.

    Attributes:
        commands: Each a tuple of command name and arguments.
        read: Turns the replies into a result; a reply may be an exception.
        packed: The commands as bytes of the protocol, where they are sent often enough to keep.
        durable: What to wait for after the commands: ``memory``, ``local`` or ``replicas``.
    """

    commands: list[Command]
    read: Callable[[list[Any]], T]
    durable: str = "memory"
    packed: bytes | None = None


@cache
def script(name: str) -> Script:
    """Load a Lua script by name."""
    text = files("semcache.stores").joinpath("lua", f"{name}.lua").read_text("utf-8")
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@cache
def script_by_sha(sha: str) -> Script | None:
    """Find a loaded script by its digest."""
    names = (
        "put", "announced", "announce", "attach", "generations", "raise", "withdraw", "restore", "feedback", "compact",
        "raise_again", "withdraw_again",
        "aside", "claim", "extend", "release", "queue", "finish",
        "reserve", "evict", "settle", "weigh",
        "embed", "unembed", "encoders", "lead",
        "feature_get", "feature_put", "feature_drop",
    )  # fmt: skip
    return next((script(name) for name in names if script(name).sha == sha), None)


def call(name: str, keys: Sequence[str], *arguments: Any) -> Command:
    """Return the EVALSHA command of a script."""
    return ("EVALSHA", script(name).sha, len(keys), *keys, *arguments)


class Plans:
    """The plans of one namespace."""

    def __init__(self, keys: Keys, *, cluster: bool = False) -> None:
        self.keys = keys
        self._cluster = cluster
        self._packed = lru_cache(maxsize=4096)(self._pack_read)  # an exact lookup is this and nothing else

    # reading

    def read(self, ids: Sequence[str], tags: Sequence[str], embedding: tuple[str, str] | None) -> Plan[View]:
        """Entries, then generations and clock: what was read first is judged by what was read last."""
        commands: list[Command] = [("HMGET", self.keys.entry(entry_id), *FIELDS) for entry_id in ids]
        if embedding is not None:
            commands.append(("GET", self.keys.embedding(*embedding)))
        commands += self._generations(tags)
        packed = (
            self._packed(ids[0], tuple(tags))
            if len(ids) == 1 and embedding is None and not self._cluster
            else None
        )
        return Plan(
            commands, lambda replies: self._view(ids, tags, replies, embedding is not None), packed=packed
        )

    def _view(
        self, ids: Sequence[str], tags: Sequence[str], replies: list[Any], with_embedding: bool
    ) -> View:
        entries: list[Entry | None] = []
        undecodable: list[str] = []
        for entry_id, reply in zip(ids, replies, strict=False):
            try:
                entries.append(decode_entry(entry_id, _wrong_type(reply)))
            except UndecodableError:
                entries.append(None)
                undecodable.append(entry_id)
        blob = replies[len(ids)] if with_embedding else None
        epoch, version, floor, generations, time_us, withdrawals = self._read_generations(replies, tags)
        return View(
            tuple(entries),
            tuple(undecodable),
            epoch,
            version,
            floor,
            generations,
            time_us,
            blob if isinstance(blob, bytes) else None,
            withdrawals,
        )

    def read_copied(
        self, entry_id: str, tags: Sequence[str], embedding: tuple[str, str] | None, number: int, copies: int
    ) -> Plan[View | None]:
        """An entry's state where it lies and its response from a copy; None if the copy isn't that revision's."""
        at = FIELDS.index("response")
        commands: list[Command] = [
            ("GET", self.keys.copy(number, copies, entry_id)),
            ("HMGET", self.keys.entry(entry_id), *FIELDS[:at], *FIELDS[at + 1 :]),
        ]
        if embedding is not None:
            commands.append(("GET", self.keys.embedding(*embedding)))
        commands += self._generations(tags)

        def parse(replies: list[Any]) -> View | None:
            copy, state, *rest = replies
            if not isinstance(copy, bytes) or not isinstance(state, list):
                return None
            revision, _, response = copy.partition(b"\n")
            if state[FIELDS.index("revision") - 1] != revision:
                return None
            whole = [*state[:at], response, *state[at:]]
            return self._view([entry_id], tags, [whole, *rest], embedding is not None)

        return Plan(commands, parse)

    def write_copy(self, entry: Entry, number: int, copies: int) -> Plan[None]:
        """Keep a copy of an entry's response, under its revision."""
        data = b"%d\n%b" % (entry.revision, encode_response(entry.response))
        key = self.keys.copy(number, copies, entry.entry_id)
        return Plan([("SET", key, data, "PX", _ms(COPY_TTL))], lambda replies: nothing(check(replies[0])))

    def report_hot(self, holder: str, report: str) -> Plan[dict[str, str]]:
        """Tell what is hot in one process, and read what all have told; all of it is forgotten when nobody tells."""
        commands: list[Command] = [("HGETALL", self.keys.hot)]
        if report:
            commands = [
                ("HSET", self.keys.hot, holder, report), ("PEXPIRE", self.keys.hot, _ms(HOT_TTL)), *commands
            ]  # fmt: skip

        def parse(replies: list[Any]) -> dict[str, str]:
            flat = [check(reply) for reply in replies][-1]
            pairs = flat.items() if isinstance(flat, Mapping) else zip(flat[::2], flat[1::2], strict=True)
            return {as_text(name): as_text(value) for name, value in pairs}

        return Plan(commands, parse)

    def _pack_read(self, entry_id: str, tags: tuple[str, ...]) -> bytes:
        return pack([("HMGET", self.keys.entry(entry_id), *FIELDS), *self._generations(tags)])

    def _generations(self, tags: Sequence[str]) -> list[Command]:
        if self._cluster:
            return [call("generations", [self.keys.gens], new_epoch(), *tags)]
        names = ["=" + tag for tag in tags]
        return [("HMGET", self.keys.gens, "#epoch", "#version", "#floor", "#withdrawn", *names), ("TIME",)]

    def _read_generations(
        self, replies: list[Any], tags: Sequence[str]
    ) -> tuple[str, int, int, dict[str, int], int, int]:
        if self._cluster:
            seconds, micros, *values = check(replies[-1])
        else:
            values, (seconds, micros) = check(replies[-2]), check(replies[-1])
        epoch = values[0].decode() if values[0] else ""
        generations = {tag: int(value or 0) for tag, value in zip(tags, values[4:], strict=True)}
        time_us = int(seconds) * 1_000_000 + int(micros)
        return epoch, int(values[1] or 0), int(values[2] or 0), generations, time_us, int(values[3] or 0)

    def begin(self) -> Plan[str]:
        """Give the store an epoch if it has none; returns the epoch."""
        command = call("generations", [self.keys.gens], new_epoch())
        return Plan([command], lambda replies: check(replies[0])[2].decode())

    def members(self, scope: str, fingerprint: str) -> Plan[list[tuple[str, float | None]]]:
        """Entries of a scope with their expiry in seconds."""
        commands: list[Command] = [("ZRANGE", self.keys.members(fingerprint, scope), 0, -1, "WITHSCORES")]

        def parse(replies: list[Any]) -> list[tuple[str, float | None]]:
            flat = check(replies[0])
            pairs = (
                flat
                if flat and isinstance(flat[0], list | tuple)
                else list(zip(flat[::2], flat[1::2], strict=True))
            )
            return [
                (as_text(name), None if float(score) == float("inf") else float(score))
                for name, score in pairs
            ]

        return Plan(commands, parse)

    def embeddings(self, ids: Sequence[str], fingerprint: str) -> Plan[list[bytes | None]]:
        """Embeddings that entries have of one encoder."""
        fields = ("fingerprint", "embedding", f"embedding:{fingerprint}")
        commands: list[Command] = [("HMGET", self.keys.entry(entry_id), *fields) for entry_id in ids]
        wanted = fingerprint.encode()

        def parse(replies: list[Any]) -> list[bytes | None]:
            # A key of the wrong type has none.
            triples = ((None, None, None) if isinstance(reply, Exception) else reply for reply in replies)
            return [embedding if own == wanted else other for own, embedding, other in triples]

        return Plan(commands, parse)

    def changes(self, after: int, count: int, block_ms: int) -> Plan[list[Change]]:
        """The log after a position, waiting for the first record."""
        commands: list[Command] = [
            ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", self.keys.log, f"{after}-0")
        ]

        return Plan(commands, lambda replies: [_change(record) for record in records(check(replies[0]))])

    def position(self, at: int | None = None) -> Plan[Position]:
        """Epoch and the newest sequence number, and the mark of a record."""
        commands: list[Command] = [
            ("HGET", self.keys.gens, "#epoch"),
            ("XREVRANGE", self.keys.log, "+", "-", "COUNT", 1),
        ]
        if at is not None:
            commands.append(("XRANGE", self.keys.log, f"{at}-0", f"{at}-0"))

        def parse(replies: list[Any]) -> Position:
            epoch, newest, asked = check(replies[0]), check(replies[1]), check(replies[-1])
            sequence = _change(newest[0]).sequence if newest else 0
            return Position(as_text(epoch or b""), sequence, _change(asked[0]).mark if asked else "")

        return Plan(commands, parse)

    # writing

    def put(
        self, draft: Draft, *, also: Sequence[Command] = (), until_us: int | None = None
    ) -> Plan[PutReply]:
        """The entry's truth in one script; then its hints, members and log, in the same round trip.

        Args:
            also: Commands to send after the script, in the same round trip.
            until_us: The store's clock after which the entry isn't stored any more; None for never.
        """
        keys = self.keys
        entry = keys.entry(draft.entry_id)
        pairs = fields_of(draft)
        beside = [entry, *keys.all_beside(("tomb", "downs", "blocked"), draft.entry_id)]
        commands: list[Command] = [
            call("put", beside, draft.epoch, "" if draft.fence_us is None else draft.fence_us,
                 _ms(draft.ttl), _ms(draft.keep), "" if until_us is None else until_us, *pairs)
        ]  # fmt: skip
        commands += also
        expires = "inf" if draft.expires_at is None else seconds(draft.expires_at)
        if draft.embedding is not None:
            members = keys.members(draft.fingerprint, draft.scope)
            commands.append(("ZREMRANGEBYSCORE", members, "-inf", f"({seconds(draft.now)}"))
            commands.append(("ZADD", members, expires, draft.entry_id))
        if draft.shared_embedding is not None:
            digest, data = draft.shared_embedding
            commands.append(
                ("SET", keys.embedding(draft.fingerprint, digest), data, "PX", _ms(EMBEDDING_TTL))
            )
        fingerprint = draft.fingerprint if draft.embedding is not None else ""
        commands += [
            self._log("add", draft.epoch, draft.entry_id, draft.scope, fingerprint, expires),
            call("announced", [entry]),
            ("ZADD", keys.versions, seconds(draft.now), draft.entry_id.rsplit("/", 1)[0]),
            *self.end_lease(draft),
            *self._generations(draft.all_tags),
        ]

        def parse(replies: list[Any]) -> PutReply:
            outcome, revision, time_us = check(replies[0])
            for reply in replies[1:]:
                check(reply)
            epoch, _, floor, generations, _, _ = self._read_generations(replies, draft.all_tags)
            stale = draft.fence_us is not None and (
                draft.fence_us <= floor or any(draft.fence_us <= when for when in generations.values())
            )
            word = as_text(outcome)
            written = word in ("stored", "replaced")
            if written and (stale or epoch != draft.epoch):
                word = "old_fence"
            return PutReply(word, int(revision), int(time_us), written)

        return Plan(commands, parse)

    def claim(self, claim: Claim) -> Plan[Claimed]:
        """Take the lease on an entry; then read what was invalidated meanwhile, in the same round trip."""
        lease, tomb = self.keys.all_beside(("lease", "tomb"), claim.entry_id)
        keys = [lease, self.keys.entry(claim.entry_id), tomb]
        times = ["" if us is None else us for us in (claim.fence_us, claim.since_us)]
        commands: list[Command] = [
            call("claim", keys, claim.holder, _ms(claim.seconds), claim.epoch, *times, claim.instead_of),
            *self._generations(claim.names),
        ]

        def parse(replies: list[Any]) -> Claimed:
            state, holder, left, fence = check(replies[0])
            epoch, _, floor, generations, time_us, _ = self._read_generations(replies, claim.names)
            raised = max(floor, *generations.values(), 0)
            return Claimed(
                as_text(state), as_text(holder), max(0, int(left)) / 1e6, int(fence), epoch, time_us, raised
            )

        return Plan(commands, parse)

    def extend(self, leases: Sequence[tuple[str, str]], seconds: float) -> Plan[list[bool]]:
        """Hold leases for longer."""
        commands = [
            call("extend", [self.keys.beside("lease", entry_id)], holder, _ms(seconds))
            for entry_id, holder in leases
        ]
        return Plan(commands, lambda replies: [bool(int(check(reply))) for reply in replies])

    def release(self, leases: Sequence[tuple[str, str]], unshared: float | None) -> Plan[None]:
        """Give leases back."""
        commands = [
            call("release", [self.keys.beside("lease", entry_id)], holder, _ms(unshared))
            for entry_id, holder in leases
        ]
        return Plan(commands, lambda replies: nothing([check(reply) for reply in replies]))

    def put_embedding(self, fingerprint: str, digest: str, data: bytes, ttl: float) -> Plan[None]:
        """Keep an embedding in the shared cache."""
        commands: list[Command] = [("SET", self.keys.embedding(fingerprint, digest), data, "PX", _ms(ttl))]
        return Plan(commands, lambda replies: nothing(check(replies[0])))

    def attach(self, late: LateEmbedding) -> Plan[bool]:
        """Give an entry its embedding."""
        arguments = (late.revision, late.embedding, late.fingerprint)
        commands: list[Command] = [call("attach", [self.keys.entry(late.entry_id)], *arguments)]
        return Plan(commands, lambda replies: bool(check(replies[0])))

    def set_aside(self, entry_id: str, keep: float) -> Plan[None]:
        """Move an entry that can't be read out of the way."""
        keys = [self.keys.entry(entry_id), self.keys.beside("aside", entry_id)]
        return Plan([call("aside", keys, _ms(keep))], lambda replies: nothing(check(replies[0])))

    def withdraw(self, ids: Sequence[str], reason: str, keep: float, durability: str) -> Plan[Withdrawn]:
        """Withdraw entries by name: truth first, then log and list."""
        keys = self.keys
        commands: list[Command] = []
        for entry_id in ids:
            beside = [keys.entry(entry_id), keys.beside("tomb", entry_id), keys.beside("downs", entry_id)]
            commands.append(call("withdraw", beside, reason, _ms(keep)))
        commands.append(("HINCRBY", keys.gens, "#withdrawn", len(ids)))
        commands += [self._log("withdraw", "", entry_id) for entry_id in ids]
        commands += [*self._listed(ids), ("HGET", keys.gens, "#epoch")]

        def parse(replies: list[Any]) -> Withdrawn:
            for reply in replies:
                check(reply)
            live = tuple(i for i, reply in zip(ids, replies, strict=False) if int(reply[0]))
            latest = max(int(reply[1]) for reply in replies[: len(ids)])
            return Withdrawn(live, latest, "memory", int(replies[len(ids)]), as_text(replies[-1] or b""))

        return Plan(commands, parse, durability)

    def raise_generations(self, names: Sequence[str], before: float, durability: str) -> Plan[Withdrawn]:
        """Raise generations: one write, whatever the number of entries."""
        commands: list[Command] = [
            call("raise", [self.keys.gens], new_epoch(), round(before * 1e6), *names),
            self._log("tag", "", names=names, before=round(before * 1e6)),
        ]

        def parse(replies: list[Any]) -> Withdrawn:
            for reply in replies:
                check(reply)
            return Withdrawn((), int(replies[0][1]), "memory", int(replies[0][2]), as_text(replies[0][0]))

        return Plan(commands, parse, durability)

    def withdraw_again(self, former: Sequence[Former], keep: float, durability: str) -> Plan[Withdrawn]:
        """Withdraw what was withdrawn before; the result names what the store had forgotten."""
        keys = self.keys
        ids = [one for one in former if one.kind != "name"]
        names = [one for one in former if one.kind == "name"]
        pairs = [word for one in names for word in (one.name, one.at.time_us)]
        commands: list[Command] = [call("raise_again", [keys.gens], new_epoch(), *pairs)]
        for one in ids:
            kinds = ("tomb", "downs") if one.kind == "id" else ("tomb", "downs", "blocked")
            beside = [keys.entry(one.name), *keys.all_beside(kinds, one.name)]
            commands.append(call("withdraw_again", beside, "asserted again", _ms(keep), one.at.time_us))

        def parse(replies: list[Any]) -> Withdrawn:
            raised, *withdrawn = [check(reply) for reply in replies]
            forgotten = [one.name for one, reply in zip(ids, withdrawn, strict=False) if int(reply[0])]
            latest = max((int(reply[1]) for reply in withdrawn[: len(ids)]), default=0)
            return Withdrawn((*(as_text(name) for name in raised), *forgotten), latest, "memory")

        return Plan(commands, parse, durability)

    def announce_again_withdrawn(self, former: Sequence[Former]) -> Plan[int]:
        """Count, log and list what the store had forgotten; returns how many it has counted."""
        ids = [one.name for one in former if one.kind != "name"]
        commands: list[Command] = [("HINCRBY", self.keys.gens, "#withdrawn", len(former))]
        for one in former:
            if one.kind == "name":
                commands.append(self._log("tag", "", names=[one.name], first=one.at))
            else:
                op = "withdraw" if one.kind == "id" else "block"
                commands.append(self._log(op, "", one.name, first=one.at))
        commands += self._listed(ids) if ids else []

        def parse(replies: list[Any]) -> int:
            count, *_ = [check(reply) for reply in replies]
            return int(count)

        return Plan(commands, parse)

    def restore(self, entry_id: str) -> Plan[tuple[bool, str, str, str]]:
        """Bring a withdrawn entry back; returns (done, scope, fingerprint, expiry in ms or '')."""
        keys = self.keys
        beside = [keys.entry(entry_id), keys.beside("tomb", entry_id), keys.beside("downs", entry_id)]

        def parse(replies: list[Any]) -> tuple[bool, str, str, str]:
            done, scope, fingerprint, expiry = check(replies[0])
            return bool(int(done)), as_text(scope), as_text(fingerprint), as_text(expiry)

        return Plan([call("restore", beside)], parse)

    def announce(self, epoch: str, entry_id: str, scope: str, fingerprint: str, expires: str) -> Plan[None]:
        """Tell the members and the log of an entry that is live again."""
        commands: list[Command] = [
            ("ZADD", self.keys.members(fingerprint, scope), expires, entry_id),
            self._log("add", epoch, entry_id, scope, fingerprint, expires),
        ]
        return Plan(commands, lambda replies: nothing([check(reply) for reply in replies]))

    def announce_restored(
        self, epoch: str, entry_id: str, scope: str, fingerprint: str, expires: str
    ) -> Plan[None]:
        """Tell the members, the log and the list of withdrawn entries of one that was restored."""
        commands: list[Command] = [
            ("ZREM", self.keys.withdrawn, entry_id),
            self._log("add", epoch, entry_id, scope, fingerprint, expires),
        ]
        if fingerprint:
            commands.append(("ZADD", self.keys.members(fingerprint, scope), expires, entry_id))
        return Plan(commands, lambda replies: nothing([check(reply) for reply in replies]))

    def feedback(self, mark: Mark, durability: str) -> Plan[FeedbackResult]:
        """Record one verdict and decide, in one script."""
        keys = self.keys
        beside = [
            keys.entry(mark.entry_id),
            *keys.all_beside(("downs", "tomb", "blocked", "ups"), mark.entry_id),
        ]
        # In a cluster the limit's slot is another, so that it is counted beside the script. Who is over it is told so,
        # and her next verdicts aren't sent at all.
        rules = mark.rules
        bucket = int(time.time() // rules.rate_window) if rules.rate_window else 0
        limit = keys.limit(mark.principal, bucket)
        commands = [
            call("feedback", beside if self._cluster else [*beside, limit, keys.log], mark.verdict, mark.about,
                 "" if mark.revision is None else mark.revision, mark.principal, mark.nonce, mark.text,
                 "" if mark.similarity is None else f"{mark.similarity:.4f}", f"{mark.weight:.6g}", _packed_rules(rules), mark.entry_id)
        ]  # fmt: skip
        if self._cluster:
            commands += [("INCR", limit), ("PEXPIRE", limit, _ms(rules.rate_window * 2))]

        def parse(replies: list[Any]) -> FeedbackResult:
            action, raters, weight, needed, spoken = as_text(check(replies[0])).split()
            word: Any = action
            if self._cluster:
                spoken = check(replies[1])
            return FeedbackResult(
                word, mark.entry_id, int(raters), limited=int(spoken) > rules.rate, weight=float(weight),
                needed=float(needed),
            )  # fmt: skip

        return Plan(commands, parse, durability)

    def announce_block(self, entry_id: str) -> Plan[None]:
        """Log that a text was refused for an entry, where the script can't."""
        return Plan([self._log("block", "", entry_id)], lambda replies: nothing(check(replies[0])))

    def announce_withdrawal(self, entry_id: str, reason: str) -> Plan[None]:
        """Log, list and queue for regeneration what feedback withdrew."""
        commands: list[Command] = [
            ("HINCRBY", self.keys.gens, "#withdrawn", 1),
            self._log("withdraw", "", entry_id),
            *self._listed([entry_id]),
            self._queue([Stale(entry_id, reason)]),
        ]
        return Plan(commands, lambda replies: nothing([check(reply) for reply in replies]))

    def present(self, ids: Sequence[str]) -> Plan[list[bool]]:
        """Whether there is anything under these names."""
        commands: list[Command] = [("EXISTS", self.keys.entry(entry_id)) for entry_id in ids]
        return Plan(commands, lambda replies: [bool(check(reply)) for reply in replies])

    def queue_refresh(self, stale: Sequence[Stale]) -> Plan[int]:
        """Put entries on the regeneration queue; returns how many are new there."""
        return Plan([self._queue(stale)], lambda replies: int(check(replies[0])))

    def _queue(self, stale: Sequence[Stale]) -> Command:
        fields: list[str | int] = []
        for one in stale:
            revision = "" if one.revision is None else one.revision
            fields += [one.entry_id, one.why, revision, "1" if one.withdrawn else "0"]
        return call("queue", [self.keys.refresh, self.keys.queued], MAX_QUEUED, *fields)

    def make_group(self) -> Plan[None]:
        """Create the queue's consumer group; one that exists is left alone."""
        return Plan([("XGROUP", "CREATE", self.keys.refresh, GROUP, "0", "MKSTREAM")], lambda replies: None)

    def take_refreshes(self, consumer: str, count: int, idle_ms: int) -> Plan[list[Refresh] | None]:
        """Claim abandoned work and new work; None if there is no group yet."""
        queue = self.keys.refresh
        commands: list[Command] = [
            ("XAUTOCLAIM", queue, GROUP, consumer, idle_ms, "0-0", "COUNT", count),
            ("XREADGROUP", "GROUP", GROUP, consumer, "COUNT", count, "STREAMS", queue, ">"),
        ]

        def parse(replies: list[Any]) -> list[Refresh] | None:
            if any(isinstance(reply, Exception) and "NOGROUP" in str(reply) for reply in replies):
                return None
            claimed, fresh = check(replies[0])[1], records(check(replies[1]))
            found = [_refresh(record, 2) for record in claimed if record and record[1]]
            return found + [_refresh(record, 1) for record in fresh]

        return Plan(commands, parse)

    def finish_refreshes(self, done: Sequence[Refresh]) -> Plan[None]:
        """Acknowledge and delete finished work."""
        pairs = [part for work in done for part in (work.ticket, work.entry_id)]
        commands: list[Command] = [call("finish", [self.keys.refresh, self.keys.queued], GROUP, *pairs)]
        return Plan(commands, lambda replies: nothing(check(replies[0])))

    def tally(self, counts: Mapping[str, int]) -> Plan[dict[str, int]]:
        """Add to the totals of a trial, and read them."""
        key = self.keys.shadow
        commands: list[Command] = [("HINCRBY", key, label, number) for label, number in counts.items()]
        commands.append(("HGETALL", key))

        def parse(replies: list[Any]) -> dict[str, int]:
            for reply in replies:
                check(reply)
            found = replies[-1]
            pairs = found.items() if isinstance(found, Mapping) else zip(found[::2], found[1::2], strict=True)
            return {as_text(label): int(number) for label, number in pairs}

        return Plan(commands, parse)

    def versions(self) -> Plan[list[tuple[str, float]]]:
        """Model versions with the time of their last put, newest first."""
        commands: list[Command] = [("ZREVRANGE", self.keys.versions, 0, -1, "WITHSCORES")]

        def parse(replies: list[Any]) -> list[tuple[str, float]]:
            flat = check(replies[0])
            pairs = (
                flat
                if flat and isinstance(flat[0], list | tuple)
                else list(zip(flat[::2], flat[1::2], strict=True))
            )
            return [(as_text(name), float(score)) for name, score in pairs]

        return Plan(commands, parse)

    def lease(self, name: str, holder: str, seconds: float) -> Plan[bool]:
        """Take a lease if nobody has it."""
        commands: list[Command] = [("SET", self.keys.named("lease", name), holder, "NX", "PX", _ms(seconds))]
        return Plan(commands, lambda replies: bool(check(replies[0])))

    def sweep(self, keep: float, generations: int) -> Plan[tuple[int, int]]:
        """Fold old generations, forget old tombstones; returns how many of each."""
        now = time.time()
        commands: list[Command] = [
            call("compact", [self.keys.gens], generations, round((now - 60.0) * 1e6)),
            ("ZREMRANGEBYSCORE", self.keys.withdrawn, "-inf", f"{now - keep:.6f}"),
        ]
        return Plan(commands, lambda replies: (int(check(replies[0])), int(check(replies[1]))))

    def announced_states(self, keys: Sequence[bytes]) -> Plan[list[Any]]:
        """Read what it takes to announce entries that never were."""
        wanted = ("announced", "state", "epoch", "scope", "fingerprint", "id")
        return Plan(
            [("HMGET", key, *wanted) for key in keys], lambda replies: [check(reply) for reply in replies]
        )

    def announce_again(
        self, key: bytes, epoch: str, entry_id: str, scope: str, fingerprint: str
    ) -> Plan[None]:
        """Announce an entry whose writer didn't come to it."""
        commands: list[Command] = [
            ("ZADD", self.keys.members(fingerprint, scope), "inf", entry_id),
            self._log("add", epoch, entry_id, scope, fingerprint),
            call("announced", [key.decode()]),
        ]
        return Plan(
            commands if fingerprint else commands[1:], lambda replies: nothing([check(r) for r in replies])
        )

    def secret(self, offer: bytes) -> Plan[bytes]:
        """Adopt the namespace's secret, or set it."""
        commands: list[Command] = [("SET", self.keys.secret, offer, "NX"), ("GET", self.keys.secret)]

        def parse(replies: list[Any]) -> bytes:
            value = check(replies[1])
            if not isinstance(value, bytes):
                raise StoreUnavailableError("the store lost the namespace's secret between two commands")
            return value

        return Plan(commands, parse)

    def tombstones(self, limit: int) -> Plan[list[str]]:
        """Names of withdrawn entries, newest first."""
        commands: list[Command] = [("ZREVRANGE", self.keys.withdrawn, 0, limit - 1)]
        return Plan(commands, lambda replies: [as_text(name) for name in check(replies[0])])

    def tombstone_details(self, ids: Sequence[str]) -> Plan[list[Tombstone]]:
        """What is known of withdrawn entries; names whose tombstone is gone are left out."""
        commands: list[Command] = []
        for entry_id in ids:
            commands.append(("HMGET", self.keys.beside("tomb", entry_id), "time", "reason", "count"))
            commands.append(("HMGET", self.keys.entry(entry_id), "prompt", "response", "state"))

        def parse(replies: list[Any]) -> list[Tombstone]:
            found = []
            for number, entry_id in enumerate(ids):
                (time, reason, count), (prompt, response, state) = (
                    check(replies[2 * number]),
                    check(replies[2 * number + 1]),
                )
                if time is None or state == b"live":
                    continue
                text = decode_response(response).text if response else ""
                found.append(
                    Tombstone(
                        entry_id, int(time) / 1e6, as_text(reason), int(count), as_text(prompt or b""), text
                    )
                )
            return found

        return Plan(commands, parse)

    def _listed(self, ids: Sequence[str]) -> list[Command]:
        # This process's clock orders a list for people; nothing is decided by it.
        now = f"{time.time():.6f}"
        commands: list[Command] = [("ZADD", self.keys.withdrawn, now, entry_id) for entry_id in ids]
        return [*commands, ("ZREMRANGEBYRANK", self.keys.withdrawn, 0, -MAX_LISTED - 1)]

    def end_lease(self, draft: Draft) -> list[Command]:
        """Return the command that ends the lease which a draft ends, if it ends one."""
        if not draft.lease:
            return []
        return [call("release", self.keys.all_beside(("lease",), draft.entry_id), draft.lease, "")]

    def evicted(self, entry_id: str, scope: str) -> Command:
        """Return the command that tells the log of an evicted entry."""
        return self._log("evict", "", entry_id, scope)

    def _log(
        self,
        op: str,
        epoch: str,
        entry_id: str = "",
        scope: str = "",
        fingerprint: str = "",
        expires: str = "inf",
        names: Sequence[str] = (),
        before: int = 0,
        first: Fence | None = None,
    ) -> Command:
        """Append to the change log.

        Args:
            names: Generations that were raised, to `before` microseconds ago.
            first: When what is withdrawn again was withdrawn first.
        """
        return call(
            "announce", [self.keys.log], MAX_LOG, "op", op, "epoch", epoch, "entry", entry_id, "scope", scope,
            "encoder", fingerprint, "expires", expires, *(("names", encode_tags(names)) if names else ()),
            *(("before", before) if before else ()),
            *(("first", f"{first.time_us} {first.epoch}") if first is not None else ()),
        )  # fmt: skip


def pack(commands: Sequence[Command]) -> bytes:
    """Return commands as bytes of the protocol."""
    return b"".join(map(pack_command, commands))


def new_epoch() -> str:
    """Return a random name for an epoch."""
    return secrets.token_hex(8)


def check(reply: Any) -> Any:
    """Return a reply, or raise `StoreUnavailableError` if it is an error."""
    if isinstance(reply, Exception):
        raise StoreUnavailableError(f"the store answered: {reply}") from reply
    return reply


def _wrong_type(reply: Any) -> Any:
    """A key of the wrong type is an undecodable entry; any other error is the store's."""
    if isinstance(reply, Exception):
        if "WRONGTYPE" in str(reply):
            raise UndecodableError(str(reply)) from reply
        check(reply)
    return reply


def records(streams: Any) -> list[Any]:
    """Unwrap XREAD's reply, which is a list of streams in RESP2 and a mapping in RESP3."""
    if not streams:
        return []
    records = next(iter(streams.values())) if isinstance(streams, Mapping) else streams[0][1]
    if records and isinstance(records[0], list) and records[0] and isinstance(records[0][0], list | tuple):
        records = records[0]  # redis-py's own RESP3 form
    return list(records)


def seconds(value: float) -> str:
    """Write a number of seconds as Redis reads it; of numpy's floats too, which write themselves otherwise."""
    return repr(float(value))


OPERATIONS = ("add", "withdraw", "block", "evict", "tag", "clear")


def _change(record: Any) -> Change:
    """Read a record of the log. One that can't be read may have told of anything: ``clear``."""
    sequence = int(as_text(record[0]).split("-")[0])
    try:
        change = _read_change(sequence, record[1])
    except (ValueError, TypeError, RecursionError):
        return Change(sequence, "clear", "")
    return change if change.op in OPERATIONS else replace(change, op="clear")


def _read_change(sequence: int, fields: Any) -> Change:
    if isinstance(fields, Mapping):
        named = {as_text(k): as_text(v) for k, v in fields.items()}
    else:
        named = {as_text(k): as_text(v) for k, v in zip(fields[::2], fields[1::2], strict=True)}
    expires = named.get("expires", "inf")
    return Change(
        sequence=sequence,
        op=named.get("op", ""),
        epoch=named.get("epoch", ""),
        entry_id=named.get("entry", ""),
        scope=named.get("scope", ""),
        fingerprint=named.get("encoder", ""),
        expires_at=None if expires == "inf" else float(expires),
        names=tuple(json.loads(named.get("names", "[]"))),
        mark=" ".join(named.get(name, "") for name in ("at", "op", "entry")),
        until=_until(named),
        again="first" in named,
    )


def _until(named: Mapping[str, str]) -> Fence | None:
    if "first" in named:
        time_us, _, epoch = named["first"].partition(" ")
        return Fence(epoch, int(time_us))
    return Fence("", int(named["at"]) - int(named.get("before", 0))) if "at" in named else None


def _refresh(record: Any, tries: int) -> Refresh:
    id_, fields = record
    pairs = fields.items() if isinstance(fields, Mapping) else zip(fields[::2], fields[1::2], strict=True)
    named = {as_text(k): as_text(v) for k, v in pairs}
    queued_at = int(as_text(id_).split("-")[0]) / 1000
    revision = named.get("revision")
    return Refresh(
        as_text(id_),
        named.get("entry", ""),
        named.get("why", ""),
        queued_at,
        tries,
        int(revision) if revision else None,
    )


@lru_cache(maxsize=64)
def _packed_rules(rules: FeedbackRules) -> bytes:
    """Return the argument of the feedback script that is the same for all verdicts under one policy."""
    return struct.pack(
        "<9d", rules.raters, int(rules.window * 1e6), _whole_ms(rules.keep), MAX_OBSERVATIONS, rules.trust,
        int(rules.trust_window * 1e6), _whole_ms(rules.rate_window * 2), MAX_BLOCKED, MAX_LOG,
    )  # fmt: skip


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else str(_whole_ms(seconds))


def _whole_ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def as_text(value: Any) -> str:
    """Return a reply as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def nothing(_: object) -> None:
    """Return nothing of replies that were checked."""
    return None
