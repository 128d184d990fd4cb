"""Feedback and invalidation: what takes an entry back, and is final once it was acknowledged."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from semcache import scope, secrets
from semcache.core.selectors import Selection
from semcache.core.state import WITHDRAWAL_TIMEOUT, State
from semcache.decision import Clock, liveness
from semcache.errors import (
    InvalidRequestError,
    RateLimitedError,
    StoreUnavailableError,
    UnknownLookupError,
)
from semcache.feedback import check_verdict, principal_digest, weight_of
from semcache.protocols import Former, Mark, Stale, View
from semcache.steps import Compute, Steps
from semcache.types import (
    About,
    Entry,
    FeedbackResult,
    Fence,
    Invalidated,
)
from semcache.types import (
    Verdict as Vote,
)

CHUNK = 1_000  # entries withdrawn by name in one round trip
SCAN_TIMEOUT = 10.0  # seconds, for an operator's scan


class Withdrawals(State):
    """Steps of feedback and invalidation."""

    def invalidate(self, selection: Selection) -> Steps[Invalidated]:
        """Withdraw entries by name, or raise generations; raises unless the store acknowledged."""
        if selection.entry_ids:
            return (yield from self._withdraw(selection.entry_ids))
        policy = self.policy
        raised = selection.raised
        done = yield self._ask(
            "raise_generations", raised, before=selection.older_than, durability=policy.durability,
            timeout=WITHDRAWAL_TIMEOUT,
        )  # fmt: skip
        self.local.drop()
        self.counted(done.count)
        at = Fence(done.epoch, done.time_us - round(selection.older_than * 1e6))
        yield from self._took_back([Former("name", name, at) for name in raised], done.epoch)
        self.flights.ground()
        self._mirror_of = ("", -1)
        return Invalidated(None, selection.bases, durability=done.durability)

    def _withdraw(self, names: Sequence[str]) -> Steps[Invalidated]:
        live: list[str] = []
        for first in range(0, len(names), CHUNK):
            chunk = names[first : first + CHUNK]
            done = yield self._ask(
                "withdraw", chunk, "invalidated", keep=self.keep, durability=self.policy.durability,
                timeout=WITHDRAWAL_TIMEOUT,
            )  # fmt: skip
            self.local.drop(*chunk)
            self.counted(done.count)
            at = Fence(done.epoch, done.time_us)
            yield from self._took_back([Former("id", name, at) for name in chunk], done.epoch)
            live += done.entry_ids
        self.flights.ground()
        if live:
            try:
                yield self._ask(
                    "queue_refresh", [Stale(name, "invalidated") for name in live], timeout=WITHDRAWAL_TIMEOUT
                )
            except (StoreUnavailableError, TimeoutError):
                self.metrics.count(
                    "failures", "queue_refresh"
                )  # what was asked for is done, and acknowledged
        return Invalidated(len(live), (), tuple(live), durability=done.durability)

    def _took_back(self, former: Sequence[Former], epoch: str) -> Steps[None]:
        """Remember what the store has acknowledged, here and in the disk tier's file.

        Args:
            epoch: The store's, when it acknowledged.
        """
        self.withdrew(former, epoch)
        disk = self.disk
        if disk is not None:
            try:
                yield Compute(lambda: disk.record.note(former))
            except (sqlite3.Error, OSError):
                self.metrics.count("failures", "disk")  # the log will tell the file

    def restore(self, entry_id: str) -> Steps[bool]:
        """Bring a withdrawn entry back; what this process remembers of its withdrawal is forgotten."""
        scope.split_entry_id(entry_id)
        done: bool = yield self._ask("restore", entry_id, timeout=WITHDRAWAL_TIMEOUT)
        self.local.drop(entry_id)
        if done:
            self.recent.drop("id", entry_id)
        return done

    def reached(self, selection: Selection, entries: Sequence[Entry]) -> Steps[int]:
        """Count those of some scanned entries that an invalidation would withdraw."""
        names = sorted({name for entry in entries for name in entry.obeys})
        view: View = yield self._ask("read", (), names, embedding=None, timeout=SCAN_TIMEOUT)
        clock = Clock(view.epoch, view.time_us, view.floor_us, view.generations)
        return sum(selection.reaches(entry, clock) for entry in entries)

    def standing(self, entry: Entry) -> Steps[Fence | None]:
        """Return the fence under which a scanned entry's answer may be stored anew; None if it is no longer alive.

        Args:
            entry: With `obeys`, as scans give it.
        """
        view: View = yield self._ask(
            "read", (entry.entry_id,), entry.obeys, embedding=None, timeout=WITHDRAWAL_TIMEOUT
        )
        (found,) = view.entries
        clock = Clock(view.epoch, view.time_us, view.floor_us, view.generations)
        if (
            found is None
            or found.revision != entry.revision
            or liveness(found, clock, entry.obeys) is not None
            or (found.ttl is not None and view.time_us / 1e6 - found.created_at >= found.ttl)
        ):
            return None
        return Fence(view.epoch, view.time_us)

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
        keys = self._secrets
        if keys is None or not self._agreed:
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
        epoch = self.epoch
        mark = Mark(
            entry_id=entry_id, revision=revision, verdict=verdict, about=about, principal=principal, nonce=nonce,
            text=digest, similarity=similarity, weight=weight_of(rater, policy.feedback_weights), rules=self.rules,
        )  # fmt: skip
        result: FeedbackResult = yield self._ask(
            "feedback", mark, durability=policy.durability, timeout=WITHDRAWAL_TIMEOUT
        )
        if result.action in ("withdrawn", "blocked"):
            self.local.drop(entry_id)
            self.flights.ground()
            if result.action == "withdrawn":
                yield from self.count_withdrawals()
            at = Fence(epoch, round(self.server_now() * 1e6))  # the log will say it exactly
            withdrawn = [Former("id", entry_id, at)] if result.action == "withdrawn" else []
            blocked = [Former("block", entry_id, at)] if about == "match" else []
            yield from self._took_back([*withdrawn, *blocked], epoch)
        if result.limited:
            with self.lock:
                self.limited[principal] = self.clock() + policy.feedback_rate_window
        self.metrics.verdict(verdict, result.action)
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
        return {
            "lease": lease,
            "keep": policy.tombstone_ttl,
            "generations": policy.max_generations,
            "budget": self.budget,
        }

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
