"""Reads the pairs of `fresh/`: fifty a guard and language, each written on its own after the rules were frozen.

A line is one pair; ``{x|y}`` is where they differ: the one that is stored has x, the one that asks y. A heading
names the guard that should object; pairs under ``kept`` ask the same.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "fresh"
LANGUAGES = {"en": "english", "zh": "chinese"}
_CHOICE = re.compile(r"\{([^{}]*?)\|([^{}]*?)\}")


def fresh_pairs(language: str) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs (stored, asked) of a language by heading."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading = ""
    for line in (FOLDER / f"{LANGUAGES[language]}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:]
            found[heading] = []
        elif line.strip():
            stored, asked = (_CHOICE.sub(side, line).strip() for side in (r"\1", r"\2"))
            found[heading].append((stored, asked))
    return found
