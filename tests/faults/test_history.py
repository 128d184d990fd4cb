"""The history checker: what it calls wrong, the true code under faults, and every mutant found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.chaos import SCENES, play, report, rough_run
from tests.faults.history import Event, check, read_history
from tests.faults.mutants import MUTANTS
from tests.faults.worker import Notes

WHERE = {"tenant": "amber", "question": "topic 0 in wording 0", "meaning": 0}


def event(op: str, call: float, returned: float | None, args: dict[str, Any], result: Any = None) -> Event:
    return Event(op=op, call=call, returned=returned, args=args, result=result)


def put(call: float, returned: float, outcome: str = "stored", **args: Any) -> Event:
    given = {**WHERE, "serial": "s", "tags": ["t"], "ttl": None, "looked": None, "fenced": None, **args}
    stored = outcome in ("stored", "replaced")
    return event("put", call, returned, given, {"outcome": outcome, "entry_id": "e" if stored else None})


def served(call: float, **answer: Any) -> Event:
    result = {"hit": True, "entry_id": "e", "answer": {**WHERE, "serial": "s", **answer}}
    return event("lookup", call, call + 0.01, WHERE, result)


def missed(call: float, reason: str = "no_candidate") -> Event:
    return event("lookup", call, call + 0.01, WHERE, {"hit": False, "reason": reason})


def kinds(*events: Event) -> list[str]:
    return [violation.kind for violation in check(events)]


TAG = {"tags": ["t"], "tenant": None}


@pytest.mark.parametrize(
    ("op", "args", "result"),
    [
        ("invalidate", TAG, {}),
        ("invalidate", {"tags": ["t"], "tenant": "amber"}, {}),
        ("invalidate", {"tenant": "amber"}, {}),
        ("invalidate", {"everything": True}, {}),
        ("invalidate", {"entry_ids": ["e"]}, {}),
        ("feedback", {"entry_id": "e", "verdict": -1}, {"action": "withdrawn"}),
        ("flush", {}, {}),
    ],
)
def test_a_withdrawn_answer_is_wrong_after_the_bound(op: str, args: dict[str, Any], result: Any) -> None:
    withdrawal = event(op, 2.0, 2.1, args, result)

    assert kinds(put(1.0, 1.1), withdrawal, served(3.0)) == []
    assert kinds(put(1.0, 1.1), withdrawal, served(3.2)) == ["withdrawn"]
    assert kinds(put(1.0, 1.1), withdrawal, served(1.9)) == []


@pytest.mark.parametrize(
    ("op", "args", "result"),
    [
        ("invalidate", {"tags": ["t"], "tenant": "birch"}, {}),
        ("invalidate", {"tags": ["other"], "tenant": None}, {}),
        ("invalidate", {"tenant": "birch"}, {}),
        ("invalidate", {"entry_ids": ["another"]}, {}),
        ("invalidate", TAG, None),
        ("feedback", {"entry_id": "e", "verdict": -1}, {"action": "recorded"}),
        ("feedback", {"entry_id": "e", "verdict": 1}, {"action": "recorded"}),
    ],
)
def test_what_doesnt_reach_an_answer_doesnt_withdraw_it(op: str, args: dict[str, Any], result: Any) -> None:
    withdrawal = event(op, 2.0, 2.1, args, result)

    assert kinds(put(1.0, 1.1), withdrawal, served(4.0)) == []
    if result is not None:
        assert kinds(put(1.0, 1.1), withdrawal, missed(4.0)) == ["vanished"]


def test_an_answer_from_before_an_invalidation_may_not_be_born_after_it() -> None:
    withdrawal = event("invalidate", 2.0, 2.1, {"everything": True}, {})

    assert kinds(withdrawal, put(3.0, 3.1, looked=1.0, fenced=1.1), served(3.2)) == ["withdrawn"]
    assert kinds(withdrawal, put(3.0, 3.1, looked=2.2, fenced=2.3), served(3.2)) == []


def test_a_restored_answer_may_be_served_until_it_is_withdrawn_again() -> None:
    by_name = {"entry_ids": ["e"]}
    first = event("invalidate", 2.0, 2.1, by_name, {})
    restored = event("restore", 3.0, 3.1, {"entry_id": "e"}, {"done": True})
    second = event("invalidate", 5.0, 5.1, by_name, {})

    assert kinds(put(1.0, 1.1), first, restored, served(4.0), second, served(6.0)) == []
    assert kinds(put(1.0, 1.1), first, restored, second, served(6.2)) == ["withdrawn"]
    by_tag = event("invalidate", 2.0, 2.1, TAG, {})
    assert kinds(put(1.0, 1.1), by_tag, restored, served(4.2)) == ["withdrawn"]


def test_expired_foreign_and_invented_answers_are_wrong() -> None:
    assert kinds(put(1.0, 1.1, ttl=0.5), served(1.55)) == []
    assert kinds(put(1.0, 1.1, ttl=0.5), served(1.7)) == ["expired"]
    assert kinds(put(1.0, 1.1), served(2.0, tenant="birch")) == ["foreign"]
    assert kinds(put(1.0, 1.1), served(2.0, meaning=1)) == ["foreign"]
    assert kinds(served(2.0)) == ["unknown"]


def test_a_miss_where_an_answer_was_stored_needs_a_reason() -> None:
    unacknowledged = event("put", 1.2, None, put(1.2, 1.3, ttl=0.1, serial="r").args)

    assert kinds(put(1.0, 1.1), missed(2.0)) == ["vanished"]
    assert kinds(put(1.0, 1.1), missed(1.05)) == []
    assert kinds(put(1.0, 1.1), missed(2.0, "deadline")) == []
    assert kinds(put(1.0, 1.1, ttl=0.5), missed(2.0)) == []
    assert kinds(put(1.0, 1.1, ttl=0.5), missed(1.2)) == ["vanished"]
    assert kinds(put(1.0, 1.1), event("invalidate", 1.5, 1.6, TAG), missed(2.0)) == []  # it failed, or not
    assert kinds(put(1.0, 1.1), event("invalidate", 0.5, 0.6, TAG, {}), missed(2.0)) == ["vanished"]
    assert kinds(put(1.0, 1.1), unacknowledged, missed(2.0)) == []


def test_a_refused_put_from_before_a_flush_takes_nothing_away() -> None:
    flush = event("flush", 0.5, 0.6, {}, {})
    refused = put(2.0, 2.1, "old_fence", serial="r", looked=0.1, fenced=0.2)

    assert kinds(flush, put(1.0, 1.1), refused, missed(3.0)) == ["vanished"]


def test_only_withdrawals_may_raise_and_only_that_the_store_is_away() -> None:
    def raised(op: str, error: str) -> list[str]:
        args = {"entry_id": "e", "verdict": -1, "everything": True, **put(1.0, 1.1).args}
        return kinds(Event(op=op, call=1.0, returned=1.1, args=args, error=error))

    assert raised("invalidate", "StoreUnavailableError") == []
    assert raised("invalidate", "TypeError") == ["raised"]
    assert raised("lookup", "StoreUnavailableError") == ["raised"]
    assert raised("put", "TimeoutError") == ["raised"]


def block(call: float, rater: str, raters: int = 1, verdict: int = -1, action: str = "blocked") -> Event:
    args = {"entry_id": "e", "verdict": verdict, "rater": rater, "about": "match", "needed": 2, **WHERE}
    return event("feedback", call, call + 0.1, args, {"action": action, "raters": raters})


def asked(call: float, user: str | None) -> Event:
    result = {"hit": True, "entry_id": "e", "answer": {**WHERE, "serial": "s"}}
    return event("lookup", call, call + 0.01, {**WHERE, "user": user}, result)


def test_a_blocked_text_is_wrong_for_its_rater_and_for_all_once_enough_have_said_so() -> None:
    stored, first, second = put(1.0, 1.1), block(2.0, "u"), block(3.0, "v", raters=2)

    assert kinds(stored, first, asked(3.0, "u")) == []
    assert kinds(stored, first, asked(3.2, "u")) == ["blocked"]
    assert kinds(stored, first, asked(3.2, "w"), asked(3.2, None)) == []
    assert kinds(stored, first, second, asked(4.2, "w"), asked(4.2, None)) == ["blocked", "blocked"]
    assert kinds(stored, block(2.0, "u", action="none"), asked(3.2, "u")) == []
    withdrawn = [block(2.0, "v", raters=2, action="withdrawn"), put(2.5, 2.6)]
    assert kinds(stored, *withdrawn, asked(3.2, "w"), asked(3.2, "v")) == ["blocked"]


def test_the_raters_other_word_and_a_flush_bring_a_blocked_text_back() -> None:
    stored, first, second = put(1.0, 1.1), block(2.0, "u"), block(2.2, "v", raters=2)

    assert kinds(stored, first, block(2.5, "u", verdict=1, action="recorded"), asked(4.0, "u")) == []
    assert kinds(stored, first, block(2.5, "v", verdict=1, action="recorded"), asked(4.0, "u")) == ["blocked"]
    assert kinds(stored, first, second, block(2.5, "v", verdict=1, action="recorded"), asked(4.0, "v")) == [
        "blocked"
    ]
    assert kinds(event("flush", 2.5, 2.6, {}, {}), first, put(3.0, 3.1), asked(4.5, "u")) == []


def test_what_is_younger_than_an_invalidation_reaches_is_neither_withdrawn_nor_excused() -> None:
    older = event("invalidate", 5.0, 5.1, {"everything": True, "older_than": 2.0}, {})

    assert kinds(put(1.0, 1.1), older, served(6.2)) == ["withdrawn"]
    assert kinds(put(4.0, 4.1), older, served(6.2)) == []
    assert kinds(put(1.0, 1.1), older, missed(6.2, "stale_tag")) == []
    assert kinds(put(4.0, 4.1), older, missed(6.2, "stale_tag")) == ["vanished"]


def test_a_call_without_a_return_is_in_the_history(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "w.jsonl")
    notes.begin("restore", {"entry_id": "e"})
    notes.end(notes.begin("lookup", dict(WHERE)), {"hit": False, "reason": "no_candidate"})
    first, second = read_history(tmp_path)

    assert (first.op, first.returned, first.worker) == ("restore", None, "w")
    assert second.result == {"hit": False, "reason": "no_candidate"}


def test_four_processes_under_faults_keep_every_promise(tmp_path: Path) -> None:
    run = rough_run(seconds=12.0, seed=1, folder=tmp_path)
    violations = check(run.events)
    answers = [one.result for one in run.events if one.op == "lookup" and one.result is not None]

    assert violations == [], report(run, violations)
    assert run.faults.total() >= 3
    assert sum(answer["hit"] for answer in answers) > 50
    assert sum(not answer["hit"] for answer in answers) > 50


def test_the_true_code_passes_in_every_scene(tmp_path: Path) -> None:
    for turn in range(3):  # on a machine that stood still calls may have come too late to be served
        events = play(tmp_path / str(turn), list(SCENES))
        assert check(events) == []
        hits = sum(bool(one.result and one.result.get("hit")) for one in events)
        if hits >= 4:
            break

    assert hits >= 4


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checker_finds_the_mutant(mutant: str, tmp_path: Path) -> None:
    expected = "blocked" if mutant == "ignore_blocks" else "withdrawn"
    played = (
        play(tmp_path / str(turn), [mutant], mutant) for turn in range(3)
    )  # it may come too late to be served

    assert any(expected in {violation.kind for violation in check(events)} for events in played)
