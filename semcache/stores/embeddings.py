"""What embedding again after a change of encoder says to Redis. No I/O.

An entry keeps the embedding that it was stored with; those of further encoders lie beside it in fields of their
own, so that processes with either encoder find it, and embeddings of two are never taken for one another.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from semcache.keys import Keys
from semcache.protocols import Embedded, EncodersSeen, Foreign, Reembedding
from semcache.stores.plans import Command, Plan, Plans, call, check

_WANTED = ("id", "state", "revision", "scope", "prompt", "fingerprint")
_TIMES = ("started", "finished")
SKEW = 60.0  # seconds by which this machine's clock may be ahead of the store's


class EmbeddingPlans:
    """The plans of one namespace."""

    def __init__(self, keys: Keys, plans: Plans) -> None:
        self._keys = keys
        self._plans = plans

    def encoders(self, fingerprint: str) -> Plan[EncodersSeen]:
        """Note that an encoder is in use; read which others were, and how far embedding again has come."""
        commands: list[Command] = [
            call("encoders", [self._keys.encoders], fingerprint),
            ("HGETALL", self._keys.named("reembed", fingerprint)),
        ]

        def parse(replies: list[Any]) -> EncodersSeen:
            now, *pairs = check(replies[0])
            seen = {n.decode(): float(us) / 1e6 for n, us in zip(pairs[::2], pairs[1::2], strict=True)}
            fields = check(replies[1])
            if not isinstance(fields, dict):
                fields = dict(zip(fields[::2], fields[1::2], strict=True))
            named = {name.decode(): value.decode() for name, value in fields.items()}
            progress = None
            if named:
                done, skipped, total = (int(named.get(name, 0)) for name in ("done", "skipped", "total"))
                started, finished = (float(named[n]) if named.get(n) else None for n in _TIMES)
                progress = Reembedding(
                    fingerprint=fingerprint, done=done, skipped=skipped, total=total, started=started,
                    finished=finished,
                )  # fmt: skip
            return EncodersSeen(int(now) / 1e6, seen, progress)

        return Plan(commands, parse)

    def note(self, progress: Reembedding) -> Plan[None]:
        """Write down how far embedding again has come."""
        pairs: list[Any] = ["done", progress.done, "skipped", progress.skipped, "total", progress.total]
        for name in _TIMES:
            value = getattr(progress, name)
            pairs += [name, "" if value is None else repr(value)]
        commands: list[Command] = [("HSET", self._keys.named("reembed", progress.fingerprint), *pairs)]
        return Plan(commands, lambda replies: _nothing(replies))

    def lead(self, name: str, holder: str, seconds: float) -> Plan[bool]:
        """Take a lease, or hold it for longer."""
        commands = [call("lead", [self._keys.named("leader", name)], holder, round(seconds * 1000))]
        return Plan(commands, lambda replies: bool(int(check(replies[0]))))

    def resign(self, name: str, holder: str) -> Plan[None]:
        """Give a lease back."""
        commands = [call("release", [self._keys.named("leader", name)], holder, "")]
        return Plan(commands, lambda replies: _nothing(replies))

    def foreign(self, keys: Sequence[bytes], fingerprint: str) -> Plan[list[Foreign]]:
        """Of scanned entries, those that have another encoder's embedding and none of this one."""
        commands: list[Command] = []
        for key in keys:
            commands.append(("HMGET", key, *_WANTED))
            commands.append(("HSTRLEN", key, f"embedding:{fingerprint}"))
            commands.append(("HSTRLEN", key, "embedding"))

        def parse(replies: list[Any]) -> list[Foreign]:
            found = []
            for first in range(0, len(replies), 3):
                if isinstance(replies[first], Exception):  # no entry
                    continue
                id_, state, revision, scope, prompt, own = replies[first]
                ours = own is not None and own.decode() == fingerprint
                if state == b"live" and id_ and own and not int(check(replies[first + (2 if ours else 1)])):
                    found.append(Foreign(id_.decode(), int(revision), scope.decode(), prompt.decode()))
            return found

        return Plan(commands, parse)

    def embed(self, given: Sequence[Embedded], fingerprint: str) -> Plan[list[tuple[bool, str]]]:
        """Give entries one more embedding; returns for each whether it was still that revision, and its expiry."""
        commands = [
            call("embed", [self._keys.entry(one.entry_id)], one.revision, fingerprint, one.embedding)
            for one in given
        ]

        def parse(replies: list[Any]) -> list[tuple[bool, str]]:
            pairs = [check(reply) for reply in replies]
            return [(bool(int(done)), repr(int(ms) / 1000) if ms else "inf") for done, ms in pairs]

        return Plan(commands, parse)

    def announce(self, epoch: str, given: Sequence[tuple[Embedded, str]], fingerprint: str) -> Plan[None]:
        """Tell the members and the log of entries that can be found by one more encoder."""
        commands: list[Command] = []
        for one, expires in given:
            commands += self._plans.announce(epoch, one.entry_id, one.scope, fingerprint, expires).commands
        return Plan(commands, lambda replies: _nothing(replies))

    def unembed(self, keys: Sequence[bytes], fingerprints: Sequence[str]) -> Plan[int]:
        """Drop encoders' embeddings from scanned entries; returns how many."""
        commands = [call("unembed", [key.decode()], *fingerprints) for key in keys]
        return Plan(commands, lambda replies: sum(int(check(reply)) for reply in replies))

    def expire_members(self, keys: Sequence[bytes]) -> Plan[int]:
        """Take expired entries off scanned lists of what scopes hold; an empty list is gone. Returns how many."""
        now = f"({time.time() - SKEW:.3f}"
        commands: list[Command] = [("ZREMRANGEBYSCORE", key, "-inf", now) for key in keys]
        return Plan(commands, lambda replies: sum(int(check(reply)) for reply in replies))

    def forget(self, fingerprints: Sequence[str]) -> Plan[None]:
        """Forget encoders."""
        commands: list[Command] = [("ZREM", self._keys.encoders, *fingerprints)]
        commands += [("DEL", self._keys.named("reembed", name)) for name in fingerprints]
        return Plan(commands, lambda replies: _nothing(replies))


def _nothing(replies: list[Any]) -> None:
    for reply in replies:
        check(reply)
