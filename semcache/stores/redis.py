"""Redis stores: the operations of `operations`, sent over `connections`, synchronously and asynchronously."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from redis.exceptions import RedisError

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
from semcache.stores.connections import AsyncClustered, AsyncDirect, Clustered, Direct, unavailable
from semcache.stores.operations import Operations, Steps, read_replies, server_facts, with_wait
from semcache.stores.plans import Plan, new_epoch
from semcache.types import Entry, FeedbackResult

T = TypeVar("T")
_SCAN_TIMEOUT = 10.0  # seconds per batch


class RedisStore:
    """The store of a synchronous cache."""

    def __init__(self, connections: Direct | Clustered, namespace: str) -> None:
        self._connections = connections
        self._operations = Operations(namespace, cluster=connections.cluster)
        self._holder = new_epoch()

    def _run(self, steps: Steps[T], timeout: float) -> T:
        try:
            plan = next(steps)
            while True:
                commands, wait = with_wait(plan, cluster=self._connections.cluster)
                replies = self._connections.execute(commands, timeout + wait, plan.packed)
                plan = steps.send(read_replies(plan, replies))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def read(
        self,
        ids: Sequence[str],
        tags: Sequence[str],
        *,
        embedding: tuple[str, str] | None,
        copies: int = 0,
        timeout: float,
    ) -> View:
        return self._run(self._operations.read(ids, tags, embedding, copies), timeout)

    def perform(self, plan: Plan[T], *, timeout: float) -> T:
        """Perform a plan of another part of the package."""
        commands, wait = with_wait(plan, cluster=self._connections.cluster)
        replies = self._connections.execute(commands, timeout + wait, plan.packed)
        result: T = read_replies(plan, replies)
        return result

    def report_hot(self, holder: str, report: str, *, timeout: float) -> dict[str, str]:
        return self._run(self._operations.report_hot(holder, report), timeout)

    def put(self, draft: Draft, *, timeout: float) -> PutReply:
        return self._run(self._operations.put(draft), timeout)

    def claim(self, claim: Claim, *, timeout: float) -> Claimed:
        return self._run(self._operations.claim(claim), timeout)

    def extend(self, leases: Sequence[tuple[str, str]], seconds: float, *, timeout: float) -> list[bool]:
        return self._run(self._operations.extend(leases, seconds), timeout)

    def release(
        self, leases: Sequence[tuple[str, str]], *, unshared: float | None = None, timeout: float
    ) -> None:
        self._run(self._operations.release(leases, unshared), timeout)

    def put_embedding(
        self, fingerprint: str, digest: str, data: bytes, ttl: float, *, timeout: float
    ) -> None:
        self._run(self._operations.put_embedding(fingerprint, digest, data, ttl), timeout)

    def attach(self, late: LateEmbedding, *, timeout: float) -> bool:
        return self._run(self._operations.attach(late), timeout)

    def set_aside(self, entry_id: str, *, keep: float, timeout: float) -> None:
        self._run(self._operations.set_aside(entry_id, keep), timeout)

    def withdraw(
        self, ids: Sequence[str], reason: str, *, keep: float, durability: str, timeout: float
    ) -> Withdrawn:
        return self._run(self._operations.withdraw(ids, reason, keep, durability), timeout)

    def raise_generations(
        self, names: Sequence[str], *, before: float = 0.0, durability: str, timeout: float
    ) -> Withdrawn:
        return self._run(self._operations.raise_generations(names, before, durability), timeout)

    def withdraw_again(
        self, former: Sequence[Former], *, keep: float, durability: str, timeout: float
    ) -> Withdrawn:
        return self._run(self._operations.withdraw_again(former, keep, durability), timeout)

    def restore(self, entry_id: str, *, timeout: float) -> bool:
        return self._run(self._operations.restore(entry_id), timeout)

    def feedback(self, mark: Mark, *, durability: str, timeout: float) -> FeedbackResult:
        return self._run(self._operations.feedback(mark, durability), timeout)

    def members(self, scope: str, fingerprint: str, *, timeout: float) -> list[tuple[str, float | None]]:
        return self._run(self._operations.members(scope, fingerprint), timeout)

    def embeddings(self, ids: Sequence[str], fingerprint: str, *, timeout: float) -> list[bytes | None]:
        return self._run(self._operations.embeddings(ids, fingerprint), timeout)

    def changes(self, after: int, *, count: int, block: float) -> list[Change]:
        return self._run(self._operations.changes(after, count, block), block + 2.0)

    def position(self, at: int | None = None, *, timeout: float) -> Position:
        return self._run(self._operations.position(at), timeout)

    def secret(self, offer: bytes, *, timeout: float) -> bytes:
        return self._run(self._operations.secret(offer), timeout)

    def queue_refresh(self, stale: Sequence[Stale], *, timeout: float) -> int:
        return self._run(self._operations.queue_refresh(stale), timeout)

    def take_refreshes(self, consumer: str, *, count: int, idle: float, timeout: float) -> list[Refresh]:
        return self._run(self._operations.take_refreshes(consumer, count, idle), timeout)

    def finish_refreshes(self, done: Sequence[Refresh], *, timeout: float) -> None:
        self._run(self._operations.finish_refreshes(done), timeout)

    def get_many(self, ids: Sequence[str], *, timeout: float) -> list[Entry | None]:
        return self._run(self._operations.get_many(ids), timeout)

    def tally(self, counts: Mapping[str, int], *, timeout: float) -> dict[str, int]:
        return self._run(self._operations.tally(counts), timeout)

    def versions(self, *, timeout: float) -> list[tuple[str, float]]:
        return self._run(self._operations.versions(), timeout)

    def note_uses(self, uses: Uses, budget: Budget, *, timeout: float) -> None:
        self._run(self._operations.note_uses(uses, budget), timeout)

    def sweep(
        self, *, lease: float, keep: float, generations: int, budget: Budget | None = None, timeout: float
    ) -> Swept:
        holder = self._holder
        done = self._run(self._operations.lead_sweep(holder, lease, keep, generations), timeout)
        if not done.leader:
            return done
        announced = 0
        for keys in self._key_batches(500):
            announced += self._run(self._operations.announce_left(keys), timeout)
            if budget is not None:
                self._run(self._operations.adopt(keys, budget), timeout)
        members = 0
        for keys in self._key_batches(500, "members:*"):
            members += self._run(self._operations.expire_members(keys), timeout)
        return replace(done, announced=announced, members=members)

    def tombstones(self, *, limit: int, timeout: float) -> list[Tombstone]:
        return self._run(self._operations.tombstones(limit), timeout)

    def encoders(self, fingerprint: str, *, timeout: float) -> EncodersSeen:
        return self._run(self._operations.encoders(fingerprint), timeout)

    def lead(self, name: str, seconds: float, *, timeout: float) -> bool:
        return self._run(self._operations.lead(name, self._holder, seconds), timeout)

    def resign(self, name: str, *, timeout: float) -> None:
        self._run(self._operations.resign(name, self._holder), timeout)

    def foreign(self, ids: Sequence[str], fingerprint: str, *, timeout: float) -> list[Foreign]:
        keys = [self._operations.keys.entry(entry_id).encode() for entry_id in ids]
        return self._run(self._operations.foreign(keys, fingerprint), timeout)

    def scan_foreign(self, fingerprint: str, *, count: int = 500) -> Iterator[list[Foreign]]:
        for keys in self._key_batches(count):
            yield self._run(self._operations.foreign(keys, fingerprint), _SCAN_TIMEOUT)

    def embed(self, given: Sequence[Embedded], fingerprint: str, *, timeout: float) -> int:
        return self._run(self._operations.embed(given, fingerprint), timeout)

    def note_reembedding(self, progress: Reembedding, *, timeout: float) -> None:
        self._run(self._operations.note_reembedding(progress), timeout)

    def forget_encoders(self, fingerprints: Sequence[str], *, timeout: float) -> int:
        dropped = 0
        for keys in self._key_batches(500):
            dropped += self._run(self._operations.unembed(keys, fingerprints), timeout)
        for fingerprint in fingerprints:
            for keys in self._key_batches(500, f"members:{fingerprint}:*"):
                self._run(self._operations.drop_keys(keys), timeout)
        self._run(self._operations.forget_encoders(fingerprints), timeout)
        return dropped

    def scan(self, *, count: int = 500) -> Iterator[list[Entry]]:
        for keys in self._key_batches(count):
            yield self._entries(keys)

    def _key_batches(self, count: int, names: str = "entry:*") -> Iterator[list[bytes]]:
        batch: list[bytes] = []
        pattern = self._operations.keys.prefix + names
        try:
            for key in self._connections.client().scan_iter(match=pattern, count=count):
                batch.append(key)
                if len(batch) >= count:
                    yield batch
                    batch = []
        except (OSError, RedisError) as error:
            raise unavailable(error) from error
        if batch:
            yield batch

    def _entries(self, keys: Sequence[bytes]) -> list[Entry]:
        replies = self._connections.execute(self._operations.entry_commands(keys), 10.0)
        return self._operations.decode(keys, replies)

    def info(self, *, timeout: float) -> Mapping[str, str]:
        facts = server_facts(_node_info(self._info()))
        return facts | self._run(self._operations.budget_facts(), timeout)

    def _info(self) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = self._connections.client().info()
        except (OSError, RedisError) as error:
            raise unavailable(error) from error
        return found

    def close(self) -> None:
        self._connections.close()


class AsyncRedisStore:
    """The store of an asynchronous cache."""

    def __init__(self, connections: AsyncDirect | AsyncClustered, namespace: str) -> None:
        self._connections = connections
        self._operations = Operations(namespace, cluster=connections.cluster)
        self._holder = new_epoch()

    async def _run(self, steps: Steps[T], timeout: float) -> T:
        try:
            plan = next(steps)
            while True:
                commands, wait = with_wait(plan, cluster=self._connections.cluster)
                replies = await self._connections.execute(commands, timeout + wait, plan.packed)
                plan = steps.send(read_replies(plan, replies))
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def read(
        self,
        ids: Sequence[str],
        tags: Sequence[str],
        *,
        embedding: tuple[str, str] | None,
        copies: int = 0,
        timeout: float,
    ) -> View:
        return await self._run(self._operations.read(ids, tags, embedding, copies), timeout)

    async def perform(self, plan: Plan[T], *, timeout: float) -> T:
        """Perform a plan of another part of the package."""
        commands, wait = with_wait(plan, cluster=self._connections.cluster)
        replies = await self._connections.execute(commands, timeout + wait, plan.packed)
        result: T = read_replies(plan, replies)
        return result

    async def report_hot(self, holder: str, report: str, *, timeout: float) -> dict[str, str]:
        return await self._run(self._operations.report_hot(holder, report), timeout)

    async def put(self, draft: Draft, *, timeout: float) -> PutReply:
        return await self._run(self._operations.put(draft), timeout)

    async def claim(self, claim: Claim, *, timeout: float) -> Claimed:
        return await self._run(self._operations.claim(claim), timeout)

    async def extend(
        self, leases: Sequence[tuple[str, str]], seconds: float, *, timeout: float
    ) -> list[bool]:
        return await self._run(self._operations.extend(leases, seconds), timeout)

    async def release(
        self, leases: Sequence[tuple[str, str]], *, unshared: float | None = None, timeout: float
    ) -> None:
        await self._run(self._operations.release(leases, unshared), timeout)

    async def put_embedding(
        self, fingerprint: str, digest: str, data: bytes, ttl: float, *, timeout: float
    ) -> None:
        await self._run(self._operations.put_embedding(fingerprint, digest, data, ttl), timeout)

    async def attach(self, late: LateEmbedding, *, timeout: float) -> bool:
        return await self._run(self._operations.attach(late), timeout)

    async def set_aside(self, entry_id: str, *, keep: float, timeout: float) -> None:
        await self._run(self._operations.set_aside(entry_id, keep), timeout)

    async def withdraw(
        self, ids: Sequence[str], reason: str, *, keep: float, durability: str, timeout: float
    ) -> Withdrawn:
        return await self._run(self._operations.withdraw(ids, reason, keep, durability), timeout)

    async def raise_generations(
        self, names: Sequence[str], *, before: float = 0.0, durability: str, timeout: float
    ) -> Withdrawn:
        return await self._run(self._operations.raise_generations(names, before, durability), timeout)

    async def withdraw_again(
        self, former: Sequence[Former], *, keep: float, durability: str, timeout: float
    ) -> Withdrawn:
        return await self._run(self._operations.withdraw_again(former, keep, durability), timeout)

    async def restore(self, entry_id: str, *, timeout: float) -> bool:
        return await self._run(self._operations.restore(entry_id), timeout)

    async def feedback(self, mark: Mark, *, durability: str, timeout: float) -> FeedbackResult:
        return await self._run(self._operations.feedback(mark, durability), timeout)

    async def members(
        self, scope: str, fingerprint: str, *, timeout: float
    ) -> list[tuple[str, float | None]]:
        return await self._run(self._operations.members(scope, fingerprint), timeout)

    async def embeddings(self, ids: Sequence[str], fingerprint: str, *, timeout: float) -> list[bytes | None]:
        return await self._run(self._operations.embeddings(ids, fingerprint), timeout)

    async def changes(self, after: int, *, count: int, block: float) -> list[Change]:
        return await self._run(self._operations.changes(after, count, block), block + 2.0)

    async def position(self, at: int | None = None, *, timeout: float) -> Position:
        return await self._run(self._operations.position(at), timeout)

    async def secret(self, offer: bytes, *, timeout: float) -> bytes:
        return await self._run(self._operations.secret(offer), timeout)

    async def queue_refresh(self, stale: Sequence[Stale], *, timeout: float) -> int:
        return await self._run(self._operations.queue_refresh(stale), timeout)

    async def take_refreshes(
        self, consumer: str, *, count: int, idle: float, timeout: float
    ) -> list[Refresh]:
        return await self._run(self._operations.take_refreshes(consumer, count, idle), timeout)

    async def finish_refreshes(self, done: Sequence[Refresh], *, timeout: float) -> None:
        await self._run(self._operations.finish_refreshes(done), timeout)

    async def get_many(self, ids: Sequence[str], *, timeout: float) -> list[Entry | None]:
        return await self._run(self._operations.get_many(ids), timeout)

    async def tally(self, counts: Mapping[str, int], *, timeout: float) -> dict[str, int]:
        return await self._run(self._operations.tally(counts), timeout)

    async def versions(self, *, timeout: float) -> list[tuple[str, float]]:
        return await self._run(self._operations.versions(), timeout)

    async def note_uses(self, uses: Uses, budget: Budget, *, timeout: float) -> None:
        await self._run(self._operations.note_uses(uses, budget), timeout)

    async def sweep(
        self, *, lease: float, keep: float, generations: int, budget: Budget | None = None, timeout: float
    ) -> Swept:
        holder = self._holder
        done = await self._run(self._operations.lead_sweep(holder, lease, keep, generations), timeout)
        if not done.leader:
            return done
        announced = 0
        async for keys in self._key_batches(500):
            announced += await self._run(self._operations.announce_left(keys), timeout)
            if budget is not None:
                await self._run(self._operations.adopt(keys, budget), timeout)
        members = 0
        async for keys in self._key_batches(500, "members:*"):
            members += await self._run(self._operations.expire_members(keys), timeout)
        return replace(done, announced=announced, members=members)

    async def tombstones(self, *, limit: int, timeout: float) -> list[Tombstone]:
        return await self._run(self._operations.tombstones(limit), timeout)

    async def scan(self, *, count: int = 500) -> AsyncIterator[list[Entry]]:
        async for keys in self._key_batches(count):
            yield await self._entries(keys)

    async def _key_batches(self, count: int, names: str = "entry:*") -> AsyncIterator[list[bytes]]:
        batch: list[bytes] = []
        pattern = self._operations.keys.prefix + names
        try:
            async for key in self._connections.client().scan_iter(match=pattern, count=count):
                batch.append(key)
                if len(batch) >= count:
                    yield batch
                    batch = []
        except (OSError, RedisError) as error:
            raise unavailable(error) from error
        if batch:
            yield batch

    async def _entries(self, keys: Sequence[bytes]) -> list[Entry]:
        replies = await self._connections.execute(self._operations.entry_commands(keys), 10.0)
        return self._operations.decode(keys, replies)

    async def info(self, *, timeout: float) -> Mapping[str, str]:
        facts = server_facts(_node_info(await self._info()))
        return facts | await self._run(self._operations.budget_facts(), timeout)

    async def _info(self) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = await self._connections.client().info()
        except (OSError, RedisError) as error:
            raise unavailable(error) from error
        return found

    async def close(self) -> None:
        await self._connections.close()


def _node_info(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """INFO of a server; of a cluster, that of its first node."""
    first = next(iter(info.values()), None)
    return first if isinstance(first, Mapping) else info
