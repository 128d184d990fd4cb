"""Our own rows: questions written for this project, and requests made from our own grammar.

`written/questions-*.txt` holds topics divided by empty lines; a line is one question in several wordings,
divided by "|". Wordings of a line are same=1; lines of one topic are near, but not the same.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

from training import forms, grammar
from training.data import Row, share

FOLDER = Path(__file__).parent / "written"
_ASIDE = 0.1  # share of the topics that no step trains on


def topics() -> list[list[list[str]]]:
    """topics()[topic][question][wording]."""
    found = []
    for file in sorted(FOLDER.glob("questions-*.txt")):
        for block in file.read_text(encoding="utf-8").strip().split("\n\n"):
            found.append([[w.strip() for w in line.split("|")] for line in block.strip().split("\n")])
    return found


def written_rows(seed: int) -> tuple[list[Row], list[Row]]:
    rng = random.Random(seed)
    train: list[Row] = []
    aside: list[Row] = []
    for questions in topics():
        rows = aside if share(questions[0][0], "topic") < _ASIDE else train
        for wordings in questions:
            for a, b in itertools.combinations(wordings, 2):
                rows.append(Row(a, b, 1, "written", wordings[0], wordings[0]))
        for one, two in itertools.combinations(questions, 2):
            for _ in range(2):
                rows.append(Row(rng.choice(one), rng.choice(two), 0, "written", one[0], two[0]))
    return train, aside


def rows(seed: int, requests_count: int, written_times: int) -> tuple[list[Row], list[Row]]:
    """Rows to train on, rows kept aside.

    Args:
        requests_count: About how many rows of the grammar.
        written_times: How often the written rows come in one epoch.
    """
    written_train, written_aside = written_rows(seed)
    made_train, made_aside = grammar.rows(seed, requests_count)
    rng = random.Random(seed)
    train = list(made_train)
    for time in range(written_times):
        train += written_train if time == 0 else [_in_other_form(row, rng) for row in written_train]
    return train, written_aside + made_aside


def _in_other_form(row: Row, rng: random.Random) -> Row:
    found = forms.kept(row.a, rng) if rng.random() < 0.6 else None
    return row if found is None else replace(row, a=found[1])
