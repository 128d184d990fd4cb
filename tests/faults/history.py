"""What a history of many processes proves: a pure checker, and the command that makes and checks a long one.

A history is what every process noted of its calls: when each began and returned on the machine's one
monotonic clock, what was asked and what came back. The checker knows nothing of the cache's code. Where
something can't be known (a call that failed, a process that was killed), it takes what suits the cache.
"""

from __future__ import annotations

import argparse
import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

SKEW = 0.05  # seconds that the store's clock may drift from the monotonic one during a time to live
LATE = 15.0  # seconds after which a call that failed, or whose process was killed, has no effect any more
ACKNOWLEDGED = ("stored", "replaced")
EXCUSED = frozenset({"deadline", "breaker_open", "store_unavailable", "store_busy", "encoder_failed"})
MAY_RAISE = {"invalidate": {"StoreUnavailableError"}, "restore": {"StoreUnavailableError"},
             "feedback": {"StoreUnavailableError"}}  # fmt: skip

Key: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One call.

    Attributes:
        call, returned: Monotonic seconds; `returned` is None if the process ended before.
        result: None if it raised or never returned.
        error: Name of what it raised.
    """

    op: str
    call: float
    returned: float | None
    args: Mapping[str, Any]
    result: Mapping[str, Any] | None = None
    error: str | None = None
    worker: str = ""

    @property
    def end(self) -> float:
        """When its effect is surely over."""
        if self.result is not None and self.returned is not None:
            return self.returned
        return (self.call if self.returned is None else self.returned) + LATE


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken.

    Attributes:
        kind: ``withdrawn``, ``blocked``, ``expired``, ``foreign``, ``unknown``, ``vanished`` or ``raised``.
        because: What made the event wrong, if that is another event.
    """

    kind: str
    event: Event
    because: Event | None = None


def read_history(folder: Path) -> list[Event]:
    """Read every process's notes; a call without a return is one whose process was killed."""
    events: list[Event] = []
    for path in sorted(folder.glob("*.jsonl")):
        open_calls: dict[int, dict[str, Any]] = {}
        for line in path.read_text("utf-8").splitlines():
            note = json.loads(line)
            begun = open_calls.pop(note["n"], None)
            if begun is None:
                open_calls[note["n"]] = note
                continue
            events.append(
                Event(
                    op=begun["op"], call=begun["call"], returned=note["returned"], args=begun["args"],
                    result=note["result"], error=note["error"], worker=path.stem,
                )
            )  # fmt: skip
        events += [
            Event(op=note["op"], call=note["call"], returned=None, args=note["args"], worker=path.stem)
            for note in open_calls.values()
        ]
    return sorted(events, key=lambda event: event.call)


@dataclass(slots=True)
class Spans:
    """Calls in the order in which they began, with the least and greatest ends on either side."""

    events: list[Event] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    soonest: list[int] = field(default_factory=list)  # of each position: where the least end from there on is
    latest: list[float] = field(default_factory=list)  # of each position: the greatest end up to there

    def seal(self) -> None:
        """Compute what the questions below need."""
        self.events.sort(key=lambda event: event.call)
        self.calls = [event.call for event in self.events]
        self.soonest = list(range(len(self.events)))
        for position in range(len(self.events) - 2, -1, -1):
            after = self.soonest[position + 1]
            if self.events[after].end < self.events[position].end:
                self.soonest[position] = after
        latest = -inf
        self.latest = [latest := max(latest, event.end) for event in self.events]

    def between(self, begun: float, ended: float) -> Event | None:
        """Return a call that began at `begun` or later and ended by `ended`."""
        position = bisect_left(self.calls, begun)
        if position == len(self.calls):
            return None
        event = self.events[self.soonest[position]]
        return event if event.end <= ended else None

    def last_end(self, begun_before: float) -> float:
        """Return the greatest end of the calls that began before a moment."""
        position = bisect_left(self.calls, begun_before)
        return self.latest[position - 1] if position else -inf


def withdrawal_keys(event: Event) -> list[Key]:
    """Return what a withdrawal reaches; nothing if it isn't one."""
    args = event.args
    if event.op == "flush":
        return [("flush",)]
    if event.op == "feedback":
        decides = event.result is None or event.result["action"] == "withdrawn"
        return [("id", args["entry_id"])] if args["verdict"] == -1 and decides else []
    if event.op != "invalidate":
        return []
    if args.get("entry_ids"):
        return [("id", name) for name in args["entry_ids"]]
    if args.get("tags"):
        return [("tag", tag, args.get("tenant") or "") for tag in args["tags"]]
    return [("tenant", args["tenant"])] if args.get("tenant") else [("all",)]


def block_keys(event: Event) -> list[Key]:
    """Return for whom a verdict on a match surely blocks a text: its rater, and everybody once N have said so."""
    args, result = event.args, event.result
    if event.op != "feedback" or args.get("about") != "match" or args["verdict"] != -1 or result is None:
        return []
    if result["action"] not in ("blocked", "withdrawn"):
        return []
    # Where the complaints withdraw the answer, they are counted over all texts, not over this one.
    everybody = [("",)] if result["action"] == "blocked" and result["raters"] >= args["needed"] else []
    return [("block", args["entry_id"], args["question"], *who) for who in ((args["rater"],), *everybody)]


def unblock_keys(event: Event) -> list[Key]:
    """Return what may bring a blocked text back: the rater's other word, and a store that lost its memory."""
    if event.op == "flush":
        return [("unblock",)]
    if event.op == "feedback" and event.args["verdict"] == 1:
        return [("unblock", event.args["entry_id"], event.args.get("rater") or "")]
    return []


def reach_of(put: Event, entry_ids: Iterable[str]) -> list[Key]:
    """Return the withdrawals that reach an answer."""
    tenant = put.args["tenant"]
    tags = [("tag", tag, whose) for tag in put.args["tags"] for whose in ("", tenant)]
    return [("all",), ("flush",), ("tenant", tenant), *tags, *(("id", name) for name in entry_ids)]


class _Known:
    """The history by what it is about."""

    def __init__(self, events: list[Event]) -> None:
        self.puts = {event.args["serial"]: event for event in events if event.op == "put"}
        self.done: defaultdict[Key, Spans] = defaultdict(Spans)
        self.tried: defaultdict[Key, Spans] = defaultdict(Spans)
        self.restored: defaultdict[str, Spans] = defaultdict(Spans)
        self.puts_of: defaultdict[Key, list[Event]] = defaultdict(list)
        self.ids_of: defaultdict[Key, set[str]] = defaultdict(set)
        for event in events:
            self._note(event)
        for spans in (*self.done.values(), *self.tried.values(), *self.restored.values()):
            spans.seal()

    def _note(self, event: Event) -> None:
        older = event.args.get("older_than") or 0.0
        for key in withdrawal_keys(event):
            # What spares answers of the last seconds reaches those it would if it had come so much earlier.
            late = replace(event, returned=event.end - older + SKEW, result={}) if older else event
            self.tried[key].events.append(late)
            if event.result is not None:
                self.done[key].events.append(
                    replace(event, call=event.call - older - SKEW) if older else event
                )
        for key in block_keys(event):
            self.done[key].events.append(event)
        for key in unblock_keys(event):
            self.tried[key].events.append(event)
        if event.op == "restore":
            self.restored[event.args["entry_id"]].events.append(event)
        if event.op == "put":
            self.puts_of[_place(event)].append(event)
        if event.result is not None and event.result.get("entry_id"):
            put = event if event.op == "put" else self.puts.get(event.result.get("answer", {}).get("serial"))
            if put is not None:
                self.ids_of[_place(put)].add(event.result["entry_id"])

    def last_restore(self, entry_ids: Iterable[str], before: float) -> float:
        spans = [self.restored[name] for name in entry_ids if name in self.restored]
        return max((one.last_end(before) for one in spans), default=-inf)


def _place(event: Event) -> Key:
    return event.args["tenant"], event.args["question"]


def _ended(event: Event) -> float:
    assert event.returned is not None
    return event.returned


def check(history: Iterable[Event], bound: float = 1.0) -> list[Violation]:
    """Return every promise that the history shows broken.

    Args:
        bound: Seconds after the return of a withdrawal from which no call that begins may be served what
            was withdrawn. A call is judged by when it began, so its own duration is allowed for.
    """
    events = list(history)
    known = _Known(events)
    found: list[Violation] = []
    for event in events:
        if event.error is not None and event.error not in MAY_RAISE.get(event.op, ()):
            found.append(Violation("raised", event))
        if event.op not in ("lookup", "compute") or event.result is None:
            continue
        judge: Callable[[_Known, Event, float], Violation | None]
        judge = _judge_hit if event.result["hit"] or event.result.get("waited") else _judge_miss
        violation = judge(known, event, bound)
        if violation is not None:
            found.append(violation)
    return found


def _judge_hit(known: _Known, event: Event, bound: float) -> Violation | None:
    assert event.result is not None
    answer = event.result["answer"]
    put = known.puts.get(answer["serial"])
    if put is None:
        return Violation("unknown", event)
    if (answer["tenant"], answer["meaning"]) != (event.args["tenant"], event.args["meaning"]):
        return Violation("foreign", event, put)
    if event.result.get("waited"):
        return None  # another caller's call to the model, made now
    entry_ids = [event.result["entry_id"]]
    restored = known.last_restore(entry_ids, _ended(event))
    ttl = put.args["ttl"]
    if (
        ttl is not None
        and put.result is not None
        and put.result["outcome"] in ACKNOWLEDGED
        and event.call > _ended(put) + ttl + SKEW
    ):
        return Violation("expired", event, put)
    fenced = put.args["fenced"]
    born = put.end if fenced is None else fenced
    for key in reach_of(put, entry_ids):
        if key in known.done:
            # Restoring lifts what was said of the entry by name, and nothing else.
            since = max(born, restored) if key[0] == "id" else born
            because = known.done[key].between(since, event.call - bound)
            if because is not None:
                return Violation("withdrawn", event, because)
    return _judge_block(known, event, entry_ids[0], bound)


def _judge_block(known: _Known, event: Event, entry_id: str, bound: float) -> Violation | None:
    """Whether a text was served an entry that it is blocked for."""
    user = event.args.get("user") or ""
    for who in {user, ""}:
        key = ("block", entry_id, event.args["question"], who)
        if key not in known.done:
            continue
        undone = [("unblock",), *([("unblock", entry_id, who)] if who else [])]
        since = max(
            (known.tried[u].last_end(_ended(event)) for u in undone if u in known.tried), default=-inf
        )
        because = known.done[key].between(since, event.call - bound)
        if because is not None:
            return Violation("blocked", event, because)
    return None


def _judge_miss(known: _Known, event: Event, _: float) -> Violation | None:
    """Whether a miss at the place of an acknowledged put has a reason.

    Whatever may lie there now (the put that was acknowledged last and all that overlap it or came after)
    must have none for the miss to be wrong.
    """
    assert event.result is not None
    reason = event.result["reason"]
    if reason in EXCUSED or reason.startswith("bypass:"):
        return None
    place = _place(event)
    puts = [put for put in known.puts_of.get(place, ()) if put.call < _ended(event)]
    sure = [
        put
        for put in puts
        if put.result is not None and put.result["outcome"] in ACKNOWLEDGED and _ended(put) <= event.call
    ]
    if not sure:
        return None
    last = max(sure, key=_ended)
    rivals = [put for put in puts if put.end >= last.call]
    if any(_may_be_gone(known, put, place, _ended(event)) for put in rivals):
        return None
    return Violation("vanished", event, last)


def _may_be_gone(known: _Known, put: Event, place: Key, now: float) -> bool:
    ttl = put.args["ttl"]
    if ttl is not None and put.call + ttl <= now + SKEW:
        return True
    looked = put.args["looked"]
    since = put.call if looked is None else looked
    refused = put.result is not None and put.result["outcome"] not in ACKNOWLEDGED
    for key in reach_of(put, known.ids_of[place]):
        if refused and key == ("flush",):
            continue  # one from before a flush takes nothing away from what was stored after it
        if key in known.tried and known.tried[key].last_end(now) > since:
            return True
    return False


def main() -> int:
    """Make a history under faults, check it, print a report."""
    from tests.faults.chaos import report, rough_run

    parser = argparse.ArgumentParser(
        description="Make a history of four processes under faults and check it."
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep the history here")
    given = parser.parse_args()
    run = rough_run(seconds=given.minutes * 60.0, seed=given.seed, folder=given.folder)
    violations = check(run.events)
    print(report(run, violations))
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
