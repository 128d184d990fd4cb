"""Embeddings that are kept between runs, by text, so that another list of texts never gets the rows of a former one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm  # type: ignore[import-untyped]

Rows = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Rows]
_CHUNK = 4096  # texts between two looks at the progress bar


def digest(file: Path) -> str:
    """The beginning of a file's sha256."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


class Cached:
    """Embeds each text once per encoder; keeps the rows in a folder between runs."""

    def __init__(self, key: str, encode: Encode, folder: Path) -> None:
        self._encode, self._file = encode, folder / f"{key}.npz"
        self._place: dict[str, int] = {}
        self._rows: Rows = np.zeros((0, 0), dtype=np.float32)
        if self._file.exists():
            stored = np.load(self._file, allow_pickle=False)
            self._place = {text: i for i, text in enumerate(json.loads(str(stored["texts"])))}
            self._rows = stored["rows"].astype(np.float32)

    def add(self, texts: Sequence[str]) -> None:
        new = sorted({text for text in texts if text not in self._place})
        if not new:
            return
        chunks = tqdm(range(0, len(new), _CHUNK), desc=self._file.stem, mininterval=10)
        rows = np.concatenate([self._encode(new[start : start + _CHUNK]) for start in chunks])
        self._rows = np.concatenate([self._rows, rows]) if len(self._rows) else rows
        for text in new:
            self._place[text] = len(self._place)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        # Rows aren't rounded: a run that goes on must see the same.
        np.savez(self._file, texts=json.dumps(list(self._place)), rows=self._rows)

    def __call__(self, texts: Sequence[str]) -> Rows:
        return self._rows[[self._place[text] for text in texts]]
