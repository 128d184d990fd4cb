"""Snapshots: one process's index in a file, so that the next process needn't read it from the store.

Knows where the file lies, what it must agree with (epoch, encoder, a record of the change log that is still
there) and which scopes in it are whole. What doesn't fit is refused, and scopes are read from the store.
The file's form is `indexes.snapshot`'s. It holds embeddings, entry ids and scopes; no prompts, no answers.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from semcache.errors import ConfigurationError, EncoderError, SemcacheError
from semcache.protocols import Position, VectorIndex
from semcache.steps import Ask, Compute, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from semcache.core.rows import Rows

log = logging.getLogger(__name__)

FORM = 1
KEPT = 7 * 86400.0  # seconds after which another encoder's file counts as left behind
PATIENCE = 5.0  # seconds that writing waits for puts that are under way


@runtime_checkable
class KeptIndex(VectorIndex, Protocol):
    """An index that can be written to a file."""

    def snapshot(self, path: str | os.PathLike[str], meta: Callable[[], dict[str, Any]]) -> None:
        """Write everything to a file, which takes the place of an older one whole or not at all."""
        ...

    def restore(
        self, path: str | os.PathLike[str], *, expected: Mapping[str, object] | None = None
    ) -> dict[str, Any] | None:
        """Read a file; returns its meta data, None if there is none or it was refused."""
        ...


class _ForgottenError(SemcacheError):
    """The index was emptied while it was being written."""


def checked_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder for snapshots; it needn't be there yet.

    Raises:
        ConfigurationError: It is something else.
    """
    try:
        path = Path(folder).expanduser()
    except TypeError as error:
        raise ConfigurationError(f"snapshot_dir is {folder!r}, expected the path of a folder") from error
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"snapshot_dir is {str(folder)!r}, which is no folder")
    return path


class Snapshots:
    """The snapshots of one namespace in one folder, which is made when the first one is written.

    Raises:
        ConfigurationError: `folder` is something else.
    """

    def __init__(self, folder: str | os.PathLike[str], namespace: str) -> None:
        self._folder = checked_folder(folder)
        self._name = "index-" + hashlib.sha256(namespace.encode()).hexdigest()[:16]
        self.renew()

    def renew(self) -> None:
        """Start anew in a forked child."""
        self._writing = threading.Lock()
        self._written: tuple[Position, int] | None = None  # where the log was at the last one, and its rows

    def path(self, fingerprint: str) -> Path:
        """Where the snapshot of an encoder's rows lies."""
        return self._folder / f"{self._name}-{fingerprint}.snapshot"

    def restore(self, core: Rows) -> Steps[int]:
        """Take over a snapshot, if there is one that fits and no rows were read yet.

        Returns:
            The record of the log up to which the rows must be brought before they are searched.
        """
        try:
            core.meet_encoder()
            path = self.path(core.fingerprint)
            if not path.exists():
                return 0
            index = core.new_index(core.encoder.dim)
        except EncoderError as error:
            log.warning("no snapshot is read: %s", error)
            return 0
        if not isinstance(index, KeptIndex):
            return 0
        forgotten = core.forgotten
        newest: Position = yield Ask("position", (), {"timeout": 1.0})
        expected = {"form": FORM, "epoch": newest.epoch, "fingerprint": core.fingerprint}
        meta = yield Compute(lambda: index.restore(path, expected=expected))
        if meta is None:
            core.metrics.count("failures", "snapshot")
            return 0
        kept = Position(meta["epoch"], int(meta["position"]), str(meta["mark"]))
        found: Position = yield Ask("position", (kept.sequence,), {"timeout": 1.0})
        if found.epoch != kept.epoch or found.sequence < kept.sequence or found.mark != kept.mark:
            log.info("the snapshot %s is not used: the log no longer has its record %s", path, kept.sequence)
            core.metrics.count("failures", "snapshot")
            return 0
        whole = set(meta["whole"])
        for scope in index.scopes():
            if scope not in whole:
                index.drop_scope(scope)
        with core.lock:
            if core.forgotten != forgotten or core.followed is not None or core.loaded:
                log.info("the snapshot %s comes too late: rows were read already", path)
                return 0
            core.index, core.followed = index, kept
            here = set(index.scopes())  # the index may have let some go: its memory is bounded
            for scope in meta["whole"]:
                if scope in here:
                    core.loads += 1
                    core.loaded[scope] = core.loads
            self._written = (kept, sum(index.count(scope) for scope in here))
        log.info("read %s scopes from the snapshot %s", len(here), path)
        return found.sequence

    def write(self, core: Rows, at: Position) -> bool:
        """Write a snapshot, unless little has changed since the last; never raises for the file's sake.

        Args:
            at: Up to where the log is applied to the index.
        """
        with self._writing:
            index = core.index
            if not isinstance(index, KeptIndex) or not at.epoch or not core.own.settle(PATIENCE):
                return False
            with core.lock:
                forgotten = core.forgotten
                before = {scope: load for scope, load in core.loaded.items() if load}
            rows = sum(index.count(scope) for scope in before)
            if not before or not self._worth_it(at, rows):
                return False

            def meta() -> dict[str, Any]:
                with core.lock:
                    if core.forgotten != forgotten:
                        raise _ForgottenError("the index was emptied while it was being written")
                    whole = [scope for scope, load in before.items() if core.loaded.get(scope) == load]
                return {
                    "form": FORM, "epoch": at.epoch, "position": at.sequence, "mark": at.mark,
                    "fingerprint": core.fingerprint, "whole": whole,
                }  # fmt: skip

            path = self.path(core.fingerprint)
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                index.snapshot(path, meta)
                self._tidy(path)
            except _ForgottenError as error:
                log.info("no snapshot is written: %s", error)
                return False
            except OSError as error:
                log.warning("the snapshot %s can't be written: %s", path, error)
                core.metrics.count("failures", "snapshot_write")
                return False
            self._written = (at, rows)
            return True

    def _worth_it(self, at: Position, rows: int) -> bool:
        """Whether the next process would have much to catch up with: a hundredth of the rows, read or in the log."""
        if self._written is None:
            return True
        then, had = self._written
        behind = at.sequence - then.sequence + max(0, rows - had)
        return at.epoch != then.epoch or behind < 0 or 0 < rows <= 100 * behind

    def _tidy(self, path: Path) -> None:
        """Remove what encoders left behind that nobody uses any more."""
        for other in self._folder.glob(f"{self._name}-*.snapshot"):
            if other != path and time.time() - other.stat().st_mtime > KEPT:
                other.unlink(missing_ok=True)
