"""Training rows: which sources are used, how they are capped, and what is kept aside.

A row is a pair of texts with a label (may one answer serve both?) and a group id per text.
Texts that are linked by a same=1 row share a group, so that in-batch ranking never pushes two
texts apart that mean the same. A fixed share of the groups is kept aside for early stopping; a
row with one side kept aside is kept aside too, so no text is on both sides.

What this module doesn't know: edits (edits.py), our own written questions and requests
(written.py, grammar.py), the model (model.py).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SHARE_ALIKE = frozenset({"sgd", "spider-syn", "disfl-qa", "drcd", "cmrc2018", "xquad"})
KEPT_ASIDE = 0.05  # share of the groups that no step trains on


@dataclass(frozen=True, slots=True)
class Row:
    """One training pair; `same` is 1 where one answer serves both texts."""

    a: str
    b: str
    same: int
    source: str
    group_a: str
    group_b: str


def normalised(text: str) -> str:
    """Lower case, no punctuation, no spaces: the key by which texts are told apart."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).lower())


def share(key: str, salt: str) -> float:
    """A number in [0, 1) that depends on the key alone."""
    digest = hashlib.sha256(f"{salt}:{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def kept_aside(group: str) -> bool:
    return share(group, "aside") < KEPT_ASIDE


class Groups:
    """Union-find over normalised texts."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, key: str) -> str:
        parent = self._parent
        root = key
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[key] != root:
            parent[key], key = root, parent[key]
        return root

    def join(self, a: str, b: str) -> None:
        ra, rb = self.find(a), self.find(b)
        if ra != rb:
            low, high = sorted((ra, rb))
            self._parent[high] = low


def read_pairs(path: Path, *, lang: str, share_alike: bool) -> list[Row]:
    """Read the training pairs of one language.

    Args:
        path: `train_pairs.jsonl.gz`, or the folder that holds it.
        share_alike: Whether rows under share-alike licences are read too.

    Raises:
        FileNotFoundError: The file isn't there.
    """
    file = path / "train_pairs.jsonl.gz" if path.is_dir() else path
    raw: list[dict[str, str | int]] = []
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["lang"] == lang and (share_alike or row["source"] not in SHARE_ALIKE):
                raw.append(row)
    groups = Groups()
    for row in raw:
        if row["same"] == 1:
            groups.join(normalised(str(row["a"])), normalised(str(row["b"])))
    rows = []
    for row in raw:
        a, b = str(row["a"]), str(row["b"])
        rows.append(
            Row(
                a,
                b,
                int(row["same"]),
                str(row["source"]),
                groups.find(normalised(a)),
                groups.find(normalised(b)),
            )
        )
    return rows


def split(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Rows to train on, rows kept aside; rows across the border are dropped."""
    train: list[Row] = []
    aside: list[Row] = []
    for row in rows:
        a, b = kept_aside(row.group_a), kept_aside(row.group_b)
        if a and b:
            aside.append(row)
        elif not a and not b:
            train.append(row)
    # Negatives rarely have both sides kept aside: one side is enough where the other is unseen.
    seen = {row.group_a for row in train} | {row.group_b for row in train}
    for row in rows:
        a, b = kept_aside(row.group_a), kept_aside(row.group_b)
        if a != b and row.group_a not in seen and row.group_b not in seen:
            aside.append(row)
    return train, aside


def cap(rows: Sequence[Row], caps: dict[str, tuple[int, int]], rng: random.Random) -> list[Row]:
    """Keep at most caps[source] = (same, not same) rows of each source; no cap means all."""
    kinds: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row.source, row.same].append(row)
    kept: list[Row] = []
    for (source, same), found in sorted(kinds.items()):
        most = caps[source][0 if same == 1 else 1] if source in caps else len(found)
        kept += found if most >= len(found) else rng.sample(found, most)
    return kept
