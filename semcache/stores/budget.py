"""What keeping a namespace within its budget says to Redis. No I/O.

The accounts of a namespace (scores, sizes, expiries, what is leaving) lie in one slot, each entry in its own: no
script spans the two. Room is reserved first, what was chosen to go is deleted next, the new entry is stored
last; so the store never holds more than the budget, whoever dies in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from semcache.eviction import HALF_LIFE, weight
from semcache.keys import Keys
from semcache.protocols import Budget, Draft, Uses
from semcache.stores.drafts import size_of
from semcache.stores.plans import Command, Plan, as_text, call, check, nothing

AT_ONCE: Final = 256  # entries that one put evicts at most; a budget that was lowered is reached by several
_LOST_US: Final = 5_000_000  # after which an eviction or a put that nobody confirmed is taken for lost
_LATEST_US: Final = (
    3_000_000  # after which a put comes too late for its reservation; less, as nodes' clocks differ
)
_SLACK_MS: Final = 5_000  # an account ends so much later than its entry
_PARTS: Final = ("rank", "sizes", "expiry", "past", "leaving", "state", "pending", "freed")


@dataclass(frozen=True, slots=True)
class Room:
    """What a reservation got.

    Attributes:
        outcome: ``reserved``, ``too_large`` or ``policy`` (the budget was lowered and isn't reached yet).
        stamp: Name of the reservation, microseconds.
        replaced: The account that the entry had before, as it stands in the store.
        overlap: Whether another put of the same entry was under way.
        leaving: (entry, why) to delete before the new entry is stored; why is ``entries``, ``bytes``,
            ``expired`` or ``left`` (by somebody who died).
    """

    outcome: str
    stamp: str
    replaced: str
    overlap: bool
    leaving: tuple[tuple[str, str], ...]

    @property
    def until_us(self) -> int:
        """The store's clock after which the entry mustn't be stored any more."""
        return int(self.stamp) + _LATEST_US


class BudgetPlans:
    """The plans of one namespace's budget."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._accounts = [keys.budget(part) for part in _PARTS]

    def reserve(self, draft: Draft, budget: Budget) -> Plan[Room]:
        """Reserve room for a draft, with the uses that it brings."""
        size = size_of(draft)
        saved = weight(budget.eviction, tokens=draft.saves[0], latency_ms=draft.saves[1], size=size)
        ends = "" if draft.expires_at is None else round(draft.expires_at * 1000) + _SLACK_MS
        command = self._reserve(budget, draft.entry_id, size, repr(saved), ends, draft.uses)

        return Plan([command], lambda replies: _room(replies[0]))

    def use(self, uses: Uses, budget: Budget) -> Plan[None]:
        """Note uses of entries."""
        return Plan([self._reserve(budget, "", "", "", "", uses)], lambda replies: nothing(check(replies[0])))

    def _reserve(
        self, budget: Budget, entry_id: str, size: object, weight: str, ends: object, uses: Uses
    ) -> Command:
        flat = [part for entry, count in uses for part in (entry, count)]
        most, most_bytes = ("" if n is None else n for n in (budget.entries, budget.size))
        return call(
            "reserve", self._accounts, budget.eviction, HALF_LIFE, most, most_bytes, AT_ONCE, _LOST_US, entry_id,
            size, weight, ends, *flat,
        )  # fmt: skip

    def evict(self, room: Room) -> Plan[list[tuple[str, str, str]]]:
        """Delete what is leaving; returns (entry, scope, fingerprint) of what was there."""
        commands = [call("evict", [self._keys.entry(entry)], room.stamp) for entry, _ in room.leaving]

        def parse(replies: list[Any]) -> list[tuple[str, str, str]]:
            found = []
            for (entry, _), reply in zip(room.leaving, replies, strict=True):
                scope, fingerprint = check(reply)
                if scope:
                    found.append((entry, as_text(scope), as_text(fingerprint)))
            return found

        return Plan(commands, parse)

    def settled(self, room: Room) -> Command:
        """Return the command that confirms what was deleted."""
        return self._settle(room, "", "", "", [entry for entry, _ in room.leaving])

    def stored(self, room: Room, draft: Draft) -> Command:
        """Return the command that says that the entry is there."""
        size = size_of(draft)
        if room.overlap:  # either may come last to the entry: it takes no more than the larger
            size = max(size, int(room.replaced.split()[0]))
        return self._settle(room, draft.entry_id, size, "", [])

    def adopted(self, room: Room, entry_id: str, size: int) -> Command:
        """Return the command that says that an entry which was there has its account."""
        return self._settle(room, entry_id if room.outcome == "reserved" else "", size, "", [])

    def take_back(self, room: Room, entry_id: str) -> Plan[None]:
        """Give back the room of an entry that wasn't stored."""
        return Plan(
            [self._settle(room, entry_id, "", room.replaced, [])],
            lambda replies: nothing(check(replies[0])),
        )

    def _settle(
        self, room: Room, entry_id: str, size: object, replaced: str, deleted: Sequence[str]
    ) -> Command:
        rank, sizes, expiry, _, leaving, state, pending, freed = self._accounts
        keys = [rank, sizes, expiry, leaving, state, pending, freed]
        return call(
            "settle", keys, room.stamp, entry_id, size, replaced, "1" if room.overlap else "", *deleted
        )

    def forget_member(self, entry_id: str, scope: str, fingerprint: str) -> Command:
        """Return the command that takes an evicted entry off its scope's members."""
        return ("ZREM", self._keys.members(fingerprint, scope), entry_id)

    def unknown(self, ids: Sequence[str]) -> Plan[list[str]]:
        """Return those of the entries that have no account."""
        command: Command = ("HMGET", self._accounts[1], *ids)
        return Plan(
            [command],
            lambda replies: [i for i, kept in zip(ids, check(replies[0]), strict=True) if kept is None],
        )

    def weigh(self, ids: Sequence[str]) -> Plan[list[tuple[str, int, int]]]:
        """Return (entry, bytes, milliseconds left or -1) of entries that are there."""
        commands = [call("weigh", [self._keys.entry(entry)]) for entry in ids]

        def parse(replies: list[Any]) -> list[tuple[str, int, int]]:
            pairs = zip(ids, replies, strict=True)
            found = [(i, int(r[0]), int(r[1])) for i, r in pairs if not isinstance(r, Exception)]
            return [one for one in found if one[1]]

        return Plan(commands, parse)

    def adopt(self, weighed: Sequence[tuple[str, int, int]], budget: Budget, now: float) -> Plan[list[Room]]:
        """Give accounts to entries that were stored without; each may evict others, like a put."""
        commands = [
            self._reserve(
                budget, entry, size, "0", "" if left < 0 else round(now * 1000) + left + _SLACK_MS, ()
            )
            for entry, size, left in weighed
        ]

        return Plan(commands, lambda replies: [_room(reply) for reply in replies])

    def facts(self) -> Plan[dict[str, str]]:
        """Return entries, bytes and evictions of the accounts; empty where there are none."""
        rank, state = self._accounts[0], self._accounts[5]
        commands: list[Command] = [("ZCARD", rank), ("HMGET", state, "bytes", "evicted")]

        def parse(replies: list[Any]) -> dict[str, str]:
            entries, (size, evicted) = check(replies[0]), check(replies[1])
            if size is None:
                return {}
            return {
                "budget_entries": str(entries),
                "budget_bytes": as_text(size),
                "budget_evicted": as_text(evicted or b"0"),
            }

        return Plan(commands, parse)


def _room(reply: Any) -> Room:
    outcome, stamp, replaced, overlap, *gone = (as_text(part) for part in check(reply))
    return Room(outcome, stamp, replaced, overlap == "1", tuple(zip(gone[::2], gone[1::2], strict=True)))
