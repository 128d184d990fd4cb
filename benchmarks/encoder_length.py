"""How long may a text be before one sentence of it hardly moves its embedding?

Builds texts of real questions (files of SEMCACHE_DATA), replaces the last one by an unrelated question, and
takes the cosine of the two texts, by length. For comparison: the cosine of true paraphrases. Where
the first passes the second, an index can't tell another question from the same one any more.

    python benchmarks/encoder_length.py [--encoder bundled|FOLDER] [--texts 200] [--json]

FOLDER holds a sentence-transformers model or, with a semcache.json in it, an exported one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semcache.encoders.bundled import BundledEncoder

LENGTHS = (0, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # least tokens before the last sentence
DATA = Path(os.environ.get("SEMCACHE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SOURCES = {"en": ("pairs_qqp", "qqp", " "), "zh": ("pairs_zh", "lcqmc", "")}


def load(language: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return true paraphrases and questions that differ."""
    file, source, _ = SOURCES[language]
    with gzip.open(DATA / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row["source"] == source]
    return [(row["a"], row["b"]) for row in rows if row["same"]], sorted({row["a"] for row in rows})


def make(which: str) -> Any:
    """Return an encoder with all of its window."""
    if which == "bundled":
        return BundledEncoder(max_tokens=100_000)
    if (Path(which) / "semcache.json").exists():
        from semcache.encoders import OnnxEncoder

        return OnnxEncoder(which, max_tokens=None)
    from semcache.encoders import SentenceTransformerEncoder

    return SentenceTransformerEncoder(which, max_tokens=None)


def cosines(encoder: Any, pairs: list[tuple[str, str]]) -> npt.NDArray[np.float32]:
    """Cosine of each pair that fits."""
    left, right = zip(*pairs, strict=True)
    fits = [
        not (a.over_window or b.over_window)
        for a, b in zip(encoder.inspect(left), encoder.inspect(right), strict=True)
    ]
    if not any(fits):
        return np.empty(0, dtype=np.float32)
    product = encoder.encode(left) * encoder.encode(right)
    return np.asarray(product.sum(axis=1)[np.array(fits)])


def measure(encoder: Any, language: str, count: int, seed: int) -> list[dict[str, Any]]:
    """One row for the paraphrases and one for each length."""
    paraphrases, questions = load(language)
    counter = BundledEncoder(max_tokens=100_000)  # counts tokens the same way for every encoder
    chance = random.Random(seed)
    separator = SOURCES[language][2]

    def tokens(text: str) -> int:
        counter.inspect([text])
        assert counter._tokenizer is not None
        return len(counter._tokenizer.read(text).ids) - 2

    def summary(kind: str, pairs: list[tuple[str, str]]) -> dict[str, Any]:
        found = cosines(encoder, pairs)
        texts = [pair[0] for pair in pairs]
        p10, p50, p90 = np.percentile(found, [10, 50, 90]).round(3).tolist() if len(found) else [None] * 3
        return {
            "language": language,
            "kind": kind,
            "tokens_p50": int(np.median([tokens(text) for text in texts])),
            "characters_p50": int(np.median([len(text) for text in texts])),
            "pairs_that_fit": len(found),
            "cosine_p10": p10,
            "cosine_p50": p50,
            "cosine_p90": p90,
        }

    rows = [summary("paraphrase", chance.sample(paraphrases, min(4 * count, len(paraphrases))))]
    for length in LENGTHS:
        pairs = []
        for _ in range(count):
            before: list[str] = []
            reached = 0
            while reached < length:
                before.append(chance.choice(questions))
                reached += tokens(before[-1])
            pairs.append(tuple(separator.join([*before, last]) for last in chance.sample(questions, 2)))
        rows.append(summary("last sentence replaced", pairs))  # type: ignore[arg-type]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", default="bundled")
    parser.add_argument("--texts", type=int, default=200, help="pairs for each length")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"{DATA} isn't there; set SEMCACHE_DATA to the folder of the evaluation data")
    encoder = make(arguments.encoder)
    rows = [
        row for language in SOURCES for row in measure(encoder, language, arguments.texts, arguments.seed)
    ]
    if arguments.json:
        about = {"machine": platform.platform(), "encoder": encoder.fingerprint, "seed": arguments.seed}
        print(json.dumps({**about, "rows": rows}, indent=2))
        return
    print(f"{platform.platform()}; encoder {encoder.fingerprint}; {arguments.texts} pairs for each length")
    print(f"{'':2} {'':22} {'tokens':>7} {'chars':>6} {'pairs':>6} {'cos p10':>8} {'p50':>6} {'p90':>6}")
    for row in rows:
        values = [row[f"cosine_p{share}"] for share in (10, 50, 90)]
        shown = [
            f"{'-' if value is None else format(value, '.3f'):>{8 if i == 0 else 6}}"
            for i, value in enumerate(values)
        ]
        print(
            f"{row['language']:2} {row['kind']:22} {row['tokens_p50']:>7} {row['characters_p50']:>6} "
            f"{row['pairs_that_fit']:>6} " + " ".join(shown)
        )


if __name__ == "__main__":
    main()
