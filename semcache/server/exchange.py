"""How several workers tell each other what their journals hold: a file each in a folder that only they can read."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from semcache.server.journal import Journal

logger = logging.getLogger(__name__)

EVERY: Final = 1.0  # seconds between copies
_MOST: Final = 64  # files; the oldest of workers that are gone are dropped


class Exchange:
    """One worker's place in the folder.

    Args:
        folder: Shared by the workers of one service, mode 0700; None for a service of one process.
    """

    def __init__(self, journal: Journal, folder: str | None) -> None:
        self._journal = journal
        self._written = -1
        self._folder = None if folder is None else Path(folder)
        self._name = f"{os.getpid()}-{uuid.uuid4().hex}.json"

    def write(self) -> None:
        """Write a copy of the journal where it changed."""
        if self._folder is None or self._written == self._journal.changes:
            return
        changes = self._journal.changes
        data = json.dumps(self._journal.dump())
        partial = self._folder / (self._name + ".part")
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(data)
            partial.replace(self._folder / self._name)
        except OSError as error:
            logger.warning("the journal of this worker can't be shared: %s", error)
            return
        self._written = changes

    def dumps(self) -> list[Mapping[str, Any]]:
        """Return every worker's journal, this one's as it is now."""
        found: list[Mapping[str, Any]] = [self._journal.dump()]
        if self._folder is None:
            return found
        try:
            files = sorted(self._folder.glob("*.json"), key=lambda file: -file.stat().st_mtime)
        except OSError as error:
            logger.warning("the journals of other workers can't be read: %s", error)
            return found
        for file in files[_MOST:]:
            file.unlink(missing_ok=True)
        for file in files[:_MOST]:
            if file.name == self._name:
                continue
            try:
                found.append(json.loads(file.read_text()))
            except (OSError, ValueError) as error:
                logger.warning("the journal of another worker can't be read: %s", error)
        return found
