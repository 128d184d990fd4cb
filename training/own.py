"""Our own rows: questions written for this project, and requests made from our own grammar.

`written/questions-*.txt` (English) and `written/zh-*.txt` (Chinese) hold topics divided by empty lines; a line is one
question or request in several wordings, divided by "|". Wordings of a line are same=1; lines of one topic are near,
but not the same. In `questions-near-*.txt` wordings share half of their words, in `questions-far-*.txt` a quarter.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from training import forms, grammar
from training.data import Row, share
from training.embedded import Cached

FOLDER = Path(__file__).parent / "written"
FILES = {"en": "questions-*.txt", "zh": "zh-*.txt"}
_ASIDE = 0.03  # share of the topics that no step trains on
SAME_A_LINE = 4  # same=1 rows of one line, of up to ten that its wordings make
FAR = 0.45  # cosine by the base model below which a pair teaches little: no cache serves across that distance


def topics(lang: str = "en", files: Sequence[str] = ()) -> list[list[list[str]]]:
    """topics()[topic][question][wording].

    Args:
        files: Patterns of file names; without them all files of the language are read.
    """
    found = []
    patterns = files or (FILES[lang],)
    for file in sorted({file for pattern in patterns for file in FOLDER.glob(pattern)}):
        for block in file.read_text(encoding="utf-8").strip().split("\n\n"):
            found.append([[w.strip() for w in line.split("|")] for line in block.strip().split("\n")])
    return found


def written_rows(
    seed: int, lang: str = "en", embed: Cached | None = None, files: Sequence[str] = ()
) -> tuple[list[Row], list[Row]]:
    """Rows to train on, rows kept aside, of what was written for this project.

    Args:
        files: See `topics`.
        embed: Embeds texts as the base model does, (n, dim) unit rows. With it each line gives its nearest wordings as
            same=1 and each two lines of a topic their nearest wordings as same=0, and pairs that are far apart are left
            out; without it they are drawn at random.
    """
    rng = random.Random(seed)
    train: list[Row] = []
    aside: list[Row] = []
    everything = topics(lang, files)
    place: dict[str, int] = {}
    vectors = np.zeros((0, 0), dtype=np.float32)
    if embed is not None:
        texts = sorted({wording for topic in everything for line in topic for wording in line})
        embed.add(texts)
        place, vectors = {text: i for i, text in enumerate(texts)}, embed(texts)

    def cosine(pair: tuple[str, str]) -> float:
        return float(vectors[place[pair[0]]] @ vectors[place[pair[1]]])

    def near(pairs: list[tuple[str, str]], most: int) -> list[tuple[str, str]]:
        if embed is None:
            return rng.sample(pairs, min(len(pairs), most))
        known = sorted(((cosine(pair), pair) for pair in pairs), reverse=True)[:most]
        return [pair for found, pair in known if found >= FAR]

    by_chance = sorted(everything, key=lambda topic: share(topic[0][0], "topic"))
    hidden = {topic[0][0] for topic in by_chance[: int(_ASIDE * len(everything))]}
    for lines in everything:
        rows = aside if lines[0][0] in hidden else train
        for line in lines:
            for a, b in near(list(itertools.combinations(line, 2)), SAME_A_LINE):
                rows.append(Row(a, b, 1, "written", line[0], line[0]))
        for one, two in itertools.combinations(lines, 2):
            for a, b in near(list(itertools.product(one, two)), 1):
                rows.append(Row(a, b, 0, "written", one[0], two[0]))
    return train, aside


def rows(
    seed: int,
    requests_count: int,
    written_times: int,
    lang: str = "en",
    embed: Cached | None = None,
    files: Sequence[str] = (),
) -> tuple[list[Row], list[Row]]:
    """Rows to train on, rows kept aside.

    Args:
        files: See `topics`.
        requests_count: About how many rows of the grammar.
        written_times: How often the written rows come in one epoch.
    """
    written_train, written_aside = written_rows(seed, lang, embed, files) if written_times else ([], [])
    if lang != "en":  # the grammar and the forms are English
        return written_train, written_aside
    made_train, made_aside = grammar.rows(seed, requests_count)
    rng = random.Random(seed)
    train = list(made_train)
    for time in range(written_times):
        train += written_train if time == 0 else [_in_other_form(row, rng) for row in written_train]
    return train, written_aside + made_aside


def _in_other_form(row: Row, rng: random.Random) -> Row:
    found = forms.kept(row.a, rng) if rng.random() < 0.6 else None
    return row if found is None else replace(row, a=found[1])
