"""Sentences of our own, fifty per guard and language, that ask something else or the same.

Made by tools/write_own_pairs.py after the rules were frozen. The cosine is set to what nearly equal
sentences have, so that the guards alone decide.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from semcache.reasons import GUARDS
from semcache.verify import CalibratedMatcher, calibration_for

MATCHER = CalibratedMatcher(calibration_for("use-multilingual-3"))
SIMILARITY = 0.95
LANGUAGES = ("en", "zh")


def pairs(language: str) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in (Path(__file__).parent / f"pairs_{language}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found[row["kind"]].append((row["a"], row["b"]))
    return found


CASES = [(language, kind) for language in LANGUAGES for kind in pairs(language) if kind != "kept"]


@pytest.mark.parametrize(("language", "kind"), CASES, ids=[f"{lang}-{kind}" for lang, kind in CASES])
def test_at_most_one_pair_in_ten_slips_through(language: str, kind: str) -> None:
    made = pairs(language)[kind]

    served = [pair for pair in made if MATCHER.judge(pair[1], pair[0], SIMILARITY).reason is None]

    assert kind in GUARDS
    assert len(made) == 50
    assert len(served) <= 5, served


@pytest.mark.parametrize("language", LANGUAGES)
def test_rewordings_are_served(language: str) -> None:
    made = pairs(language)["kept"]

    refused = [pair for pair in made if MATCHER.judge(pair[1], pair[0], SIMILARITY).reason is not None]

    assert len(refused) <= len(made) // 10, refused
