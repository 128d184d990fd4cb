"""What a disk tier's file has heard: up to which record of the change log, and what was withdrawn by then.

Several processes may share a file. Each notes what it hears; what is noted twice does no harm, and of two that want
to change what the file stands on, the second finds it changed and takes it as it is.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from semcache.protocols import Change, Former, Position
from semcache.stores.carrying import Heard, Moment

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS gone (
  namespace TEXT, name TEXT, number INTEGER, at INTEGER, PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heard (
  namespace TEXT PRIMARY KEY, epochs TEXT, sequence INTEGER, mark TEXT, since_number INTEGER, since_us INTEGER,
  noticed INTEGER, ready INTEGER
) WITHOUT ROWID;
"""
MOST_EPOCHS: Final = 32  # whose numbers are known, and whose rows may be served
_FOR_EVER: Final = 1 << 62  # microseconds
_SLACK: Final = 86400.0  # seconds by which the clocks of two servers may differ
_TRIMMED: Final = 1000  # withdrawals between two looks for those that needn't be remembered any more


def read_heard(db: sqlite3.Connection, namespace: str) -> Heard | None:
    """Return how much was heard, None if nothing was yet."""
    row = db.execute(
        "SELECT epochs, sequence, mark, since_number, since_us, noticed, ready FROM heard WHERE namespace = ?",
        (namespace,),
    ).fetchone()
    if row is None:
        return None
    epochs, sequence, mark, number, us, noticed, ready = row
    return Heard(dict(json.loads(epochs)), sequence, mark, (number, us), noticed, bool(ready))


def read_gone(
    db: sqlite3.Connection, namespace: str, entry_id: str, generations: Sequence[str], *, blocked: bool
) -> list[Moment]:
    """Return when an entry was withdrawn and when its generations were raised, of those that were.

    Args:
        blocked: Whether a text that was refused for the entry counts as well. It is refused in the whole epoch, for
            answers to come too, and forgotten with it.
    """
    block = _name("block", entry_id)
    names = [
        _name("id", entry_id),
        *(_name("name", name) for name in generations),
        *([block] if blocked else []),
    ]
    marks = ", ".join("?" * len(names))
    found = db.execute(
        f"SELECT name, number, at FROM gone WHERE namespace = ? AND name IN ({marks})", (namespace, *names)
    )
    return [(number, _FOR_EVER if name == block else at) for name, number, at in found]


class Record:
    """The record of one namespace in a file.

    Any method raises `sqlite3.Error` or `OSError` if the file can't be used.

    Args:
        writing: Gives a connection within a transaction that nobody else writes in.
        keep: Seconds for which a withdrawal is remembered.
    """

    def __init__(
        self, namespace: str, writing: Callable[[], AbstractContextManager[sqlite3.Connection]], keep: float
    ) -> None:
        self._namespace = namespace
        self._writing = writing
        self._keep = keep
        self._noted = 0

    def heard(self) -> Heard | None:
        """Return how much was heard, None if nothing was yet."""
        with self._writing() as db:
            return read_heard(db, self._namespace)

    def note(self, former: Iterable[Former]) -> None:
        """Note withdrawals that this process has made, at once. The log will tell of them as well."""
        with self._writing() as db:
            heard = read_heard(db, self._namespace)
            if heard is not None:  # else whatever is kept is heard of from now on
                # An epoch that the file hasn't met comes after all that it has.
                self._note(db, [(one, heard.epochs.get(one.at.epoch, heard.number + 1)) for one in former])

    def hear(self, changes: Sequence[Change], epoch: str) -> Heard | None:
        """Note what records of the log tell of, which follow those heard so far; returns how much is heard by now.

        Nothing is noted if the file stands on another epoch by now.
        """
        with self._writing() as db:
            heard = read_heard(db, self._namespace)
            if heard is None or heard.epoch != epoch:
                return heard
            told = [former for change in changes for former in change.told()]
            self._note(db, [(one, heard.epochs.get(one.at.epoch, heard.number)) for one in told])
            newest = changes[-1]
            if newest.sequence > heard.sequence:
                heard = replace(heard, sequence=newest.sequence, mark=newest.mark)
                self._write(db, heard)
            return heard

    def begin(self, seen: Heard | None, position: Position, time_us: int) -> Heard:
        """Hear the log from a position on; what may have been said before it isn't known.

        Args:
            seen: What the file stood on when this was decided.
            time_us: The store's clock, read after the position.

        Returns:
            What the file stands on: another process may have been first.
        """
        with self._writing() as db:
            heard = read_heard(db, self._namespace)
            if heard is not None and not _same_place(heard, seen):
                return heard
            number = 1
            if heard is not None:
                number = heard.number + (position.epoch != heard.epoch)
                if position.epoch in heard.epochs and number > heard.number:
                    # The store went back to an epoch of before; what was kept in it may have been withdrawn since.
                    db.execute("DELETE FROM entries WHERE namespace = ?", (self._namespace,))
            # The numbers of epochs before it stay known: withdrawals of then are told of.
            known = {} if heard is None else {e: n for e, n in heard.epochs.items() if e != position.epoch}
            epochs = dict([*known.items(), (position.epoch, number)][-MOST_EPOCHS:])
            heard = Heard(epochs, position.sequence, position.mark, (number, time_us), time_us, True)
            self._write(db, heard)
            db.execute(
                "DELETE FROM entries WHERE namespace = ? AND epoch != ?", (self._namespace, position.epoch)
            )
            return heard

    def carry(self, seen: Heard, epoch: str, time_us: int) -> Heard:
        """Hear the log of another epoch from its first record on, and serve what was kept before once it is ready.

        Args:
            time_us: The clock of that epoch, microseconds.

        Returns:
            What the file stands on: another process may have been first.
        """
        with self._writing() as db:
            heard = read_heard(db, self._namespace)
            if heard is None:
                raise sqlite3.DatabaseError("the file has lost its record")
            if heard.epoch != seen.epoch:
                return heard
            epochs = dict([*heard.epochs.items(), (epoch, heard.number + 1)][-MOST_EPOCHS:])
            heard = Heard(epochs, 0, "", heard.since, time_us, False)
            self._write(db, heard)
            return heard

    def make_ready(self, epoch: str) -> Heard | None:
        """Serve from now on what was kept in the epochs before this one."""
        with self._writing() as db:
            heard = read_heard(db, self._namespace)
            if heard is not None and heard.epoch == epoch and not heard.ready:
                heard = replace(heard, ready=True)
                self._write(db, heard)
            return heard

    def _write(self, db: sqlite3.Connection, heard: Heard) -> None:
        db.execute(
            "INSERT OR REPLACE INTO heard VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._namespace, json.dumps(list(heard.epochs.items())), heard.sequence, heard.mark, *heard.since,
                heard.noticed_us, heard.ready,
            ),
        )  # fmt: skip

    def _note(self, db: sqlite3.Connection, former: Sequence[tuple[Former, int]]) -> None:
        db.executemany(
            "INSERT INTO gone VALUES (?, ?, ?, ?) ON CONFLICT (namespace, name) DO UPDATE"
            " SET number = excluded.number, at = excluded.at WHERE (number, at) < (excluded.number, excluded.at)",
            [(self._namespace, _name(one.kind, one.name), number, one.at.time_us) for one, number in former],
        )
        if former and self._noted // _TRIMMED != (self._noted + len(former)) // _TRIMMED:
            # A row was stored before it was withdrawn, and lies here for no longer than a withdrawal is remembered.
            newest = max(one.at.time_us for one, _ in former)
            oldest = newest - round((self._keep + _SLACK) * 1e6)
            db.execute("DELETE FROM gone WHERE namespace = ? AND at < ?", (self._namespace, oldest))
        self._noted += len(former)


def tells(change: Change) -> bool:
    """Return whether a record is about something that was withdrawn, or may be."""
    return change.op in ("withdraw", "block", "tag", "clear")


def readable(change: Change) -> bool:
    """Return whether a record says what was withdrawn, and when, if it is about that at all."""
    return not tells(change) or (change.op != "clear" and change.until is not None)


def _same_place(heard: Heard, seen: Heard | None) -> bool:
    return seen is not None and (heard.epoch, heard.sequence) == (seen.epoch, seen.sequence)


def _name(kind: str, name: str) -> str:
    return f"{kind} {name}"
