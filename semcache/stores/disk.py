"""The disk tier: entries that the store has let go of, in a file of this machine (SQLite of the standard library).

It proposes, the store disposes: what is found here is put back into the store under the fence it had, so that a
withdrawal or an invalidation refuses it there, before it is served. What a store that lost its memory can't know, the
file's record does (`disk_record`); `carrying` has the rule. Nothing is kept for longer than the store remembers
withdrawals. Several processes may share a file. Failures are the caller's to count.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from semcache.protocols import Draft
from semcache.stores.carrying import standing
from semcache.stores.disk_record import SCHEMA, Record, read_gone, read_heard

_BATCH: Final = 500
_WAIT: Final = 0.2  # seconds that the writer lets work gather
_PATIENCE: Final = 1.0  # seconds that a file may be locked by another process
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
  namespace TEXT, id TEXT, epoch TEXT, fence INTEGER, created INTEGER, ends REAL, used INTEGER, size INTEGER,
  fields TEXT, response BLOB, embedding BLOB, shared BLOB, PRIMARY KEY (namespace, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_use ON entries (namespace, used);
"""
_FIELDS: Final = ("scope", "prompt", "confidence", "kind", "fingerprint", "request", "stretch", "ttl")


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry as it was stored.

    Attributes:
        draft: What to put back: fence, time of storing and ttl are the old ones. Where the store has lost its memory
            since, the fence is one of its present epoch, and from before anything was withdrawn in it.
        ends: Seconds since the Unix epoch when it may no longer be served.
    """

    draft: Draft
    ends: float


class DiskTier:
    """One file, for one namespace of one process. Opened when it is first used; made anew after a fork.

    Args:
        path: The file; it is created, readable by its owner alone.
        most_bytes: Most bytes of answers; what wasn't used for longest goes first.
        keep: Seconds for which withdrawals are remembered.
        on_failure: Called for each failure of writing, which happens in a thread.

    Attributes:
        record: What the file has heard of withdrawals.
    """

    def __init__(
        self, path: str, namespace: str, *, most_bytes: int, keep: float, on_failure: Callable[[], None]
    ) -> None:
        self._path = Path(path)
        self._namespace = namespace
        self._most = most_bytes
        self._on_failure = on_failure
        self.record = Record(namespace, self._writing, keep)
        self._lock = threading.Lock()  # of the writer; readers don't wait for what it writes
        self._connection: sqlite3.Connection | None = None
        self._reading = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._work: deque[tuple[str, Any]] = deque(maxlen=10_000)
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._turn = 0

    def _open(self) -> sqlite3.Connection:
        """Return the connection; the lock is held."""
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            made = sqlite3.connect(self._path, timeout=_PATIENCE, check_same_thread=False)
            made.execute("PRAGMA journal_mode=WAL")
            made.execute("PRAGMA synchronous=NORMAL")
            made.executescript(_SCHEMA + SCHEMA)
            newest = made.execute("SELECT max(used) FROM entries WHERE namespace = ?", (self._namespace,))
            self._turn = newest.fetchone()[0] or 0
            self._connection = made
        return self._connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Give the connection within a transaction that no other process writes in."""
        with self._lock:
            if self._closed:
                raise sqlite3.ProgrammingError("the disk tier is closed")
            db = self._open()
            db.execute("BEGIN IMMEDIATE")
            with db:
                yield db

    def _open_reader(self) -> sqlite3.Connection:
        """Return the connection for reading; the lock of readers is held."""
        if self._reader is None:
            with self._lock:
                self._open()  # makes the file
            self._reader = sqlite3.connect(self._path, timeout=_PATIENCE, check_same_thread=False)
        return self._reader

    def get(self, entry_id: str, epoch: str, now: float) -> Kept | None:
        """Return an entry that has time left, if it may be served.

        Args:
            epoch: The store's.
            now: The store's clock, seconds since the Unix epoch.

        Raises:
            sqlite3.Error, OSError: The file can't be read.
        """
        with self._reading:
            if self._closed:
                return None
            db = self._open_reader()
            row = db.execute(
                "SELECT epoch, fence, created, ends, fields, response, embedding, shared FROM entries"
                " WHERE namespace = ? AND id = ?",
                (self._namespace, entry_id),
            ).fetchone()
            if row is None:
                return None
            kept = _kept(entry_id, row, now)
            if kept is None or kept.ends <= now:
                self.drop([entry_id])
                return None
            # Read after the row, so that it is judged by all that was heard until then.
            heard = read_heard(db, self._namespace)
            old, fence_us = row[:2]
            gone = read_gone(db, self._namespace, entry_id, kept.draft.all_tags, blocked=old != epoch)
        stands = standing(old, fence_us, present=epoch, heard=heard, gone=gone)
        if stands == "dead":
            self.drop([entry_id])
        if stands != "served":
            return None
        self._later("used", entry_id)
        if old == epoch or heard is None:
            return kept
        fence_us = min(fence_us, heard.noticed_us)
        return replace(kept, draft=replace(kept.draft, epoch=epoch, fence_us=fence_us))

    def keep(self, draft: Draft, *, time_us: int, longest: float) -> None:
        """Keep a copy of what was stored; written by a thread.

        Args:
            time_us: The store's clock when it was stored.
            longest: Most seconds to keep it: for which the store remembers withdrawals.
        """
        born = time_us if draft.created_us is None else draft.created_us
        lives = longest if draft.ttl is None else min(draft.ttl, longest)
        fence = time_us if draft.fence_us is None else draft.fence_us
        self._later("keep", (draft, born, born / 1e6 + lives, fence))

    def drop(self, entry_ids: Iterable[str]) -> None:
        """Forget entries; done by a thread."""
        for entry_id in entry_ids:
            self._later("drop", entry_id)

    def _later(self, what: str, with_: Any) -> None:
        if self._closed:
            return
        self._idle.clear()
        self._work.append((what, with_))
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="semcache-disk", daemon=True)
                    self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if not self._closed:
                time.sleep(_WAIT)  # let work gather
            while self._work:
                batch = [self._work.popleft() for _ in range(min(_BATCH, len(self._work)))]
                try:
                    with self._lock:
                        self._write(batch)
                except (sqlite3.Error, OSError):
                    self._on_failure()
            self._idle.set()
            if self._closed:
                return

    def _write(self, batch: list[tuple[str, Any]]) -> None:
        with self._open() as db:  # one transaction
            for what, with_ in batch:
                self._turn += 1
                if what == "used":
                    db.execute(
                        "UPDATE entries SET used = ? WHERE namespace = ? AND id = ?",
                        (self._turn, self._namespace, with_),
                    )
                elif what == "drop":
                    db.execute("DELETE FROM entries WHERE namespace = ? AND id = ?", (self._namespace, with_))
                else:
                    db.execute(
                        f"INSERT OR REPLACE INTO entries VALUES ({', '.join('?' * 12)})",
                        _row(self._namespace, self._turn, *with_),
                    )
            self._hold_bound(db)

    def _hold_bound(self, db: sqlite3.Connection) -> None:
        (held,) = db.execute(
            "SELECT total(size) FROM entries WHERE namespace = ?", (self._namespace,)
        ).fetchone()
        while held > self._most:
            oldest = db.execute(
                "SELECT id, size FROM entries WHERE namespace = ? ORDER BY used LIMIT 100", (self._namespace,)
            ).fetchall()
            for entry_id, size in oldest:
                if held <= self._most:
                    break
                db.execute("DELETE FROM entries WHERE namespace = ? AND id = ?", (self._namespace, entry_id))
                held -= size

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def settle(self, timeout: float) -> bool:
        """Wait until everything asked for is written."""
        return self._idle.wait(timeout)

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5.0)
        with self._reading, self._lock:
            for connection in (self._reader, self._connection):
                if connection is not None:
                    connection.close()
            self._reader = self._connection = None


def _row(
    namespace: str, turn: int, draft: Draft, created: int, ends: float, fence: int
) -> tuple[object, ...]:
    fields = {name: getattr(draft, name) for name in _FIELDS}
    fields |= {"tags": list(draft.tags), "all_tags": list(draft.all_tags), "saves": list(draft.saves)}
    digest, shared = draft.shared_embedding or ("", None)
    text = json.dumps(fields | {"digest": digest}, ensure_ascii=False)
    size = len(text) + len(draft.response) + len(draft.embedding or b"") + len(shared or b"")
    return (
        namespace, draft.entry_id, draft.epoch, fence, created, ends, turn, size, text, draft.response,
        draft.embedding, shared,
    )  # fmt: skip


def _kept(entry_id: str, row: tuple[Any, ...], now: float) -> Kept | None:
    epoch, fence, created, ends, text, response, embedding, shared = row
    try:
        fields = json.loads(text)
        tokens, milliseconds = fields.pop("saves")
        digest, tags, all_tags = fields.pop("digest"), fields.pop("tags"), fields.pop("all_tags")
        draft = Draft(
            entry_id=entry_id,
            tags=tuple(tags),
            all_tags=tuple(all_tags),
            response=response,
            embedding=embedding,
            shared_embedding=None if shared is None else (digest, shared),
            epoch=epoch,
            fence_us=fence,
            created_us=created,
            keep=ends - now,
            now=now,
            expires_at=ends,
            saves=(tokens, milliseconds),
            **fields,
        )
    except (ValueError, TypeError, KeyError):
        return None  # written by another version
    return Kept(draft, ends)
