"""The whole way from packaged models to the folders that ship: train, average, export, report.

    python -m training.recipe --out training/out

English: two runs from MiniLM, on two mixtures, averaged with it. Chinese: multilingual-e5-small with its vocabulary cut, distilled to six layers,
trained on pairs, and averaged with the distilled model. Both are exported to int8 and reported on the evaluation data. A
step whose result is there already is left out, and a run that was stopped goes on from its last check, so the same
command ends what an earlier one began.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from semcache.encoders.export import export_encoder
from training import chinese_base, distil, report, soup, train

NAMES = {"en": "semcache-encoder-en", "zh": "semcache-encoder-zh"}
# Shares of a run on each mixture; the rest is MiniLM, see README.md.
ENGLISH_SHARES = {"english": 0.27, "near": 0.16}
CHINESE_SHARE = 0.3  # of the run on pairs; the rest is the distilled model
LAYERS = (0, 2, 4, 6, 8, 11)  # of the Chinese base, that the student starts from
MAX_LENGTH = 128  # tokens that the exported models read


class Recipe:
    """The steps, each of which leaves a folder behind and isn't done again where that is there."""

    def __init__(self, out: Path, data: Path, threads: int) -> None:
        self._out, self._data, self._threads = out, data, threads

    def run(self, name: str, steps: int, *options: str) -> Path:
        """Train; returns the folder of the best check."""
        if not (self._out / name / "training.json").exists():
            train.main([
                "--out", str(self._out / name), "--data", str(self._data / "train"), "--steps", str(steps),
                "--check", str(max(1, steps // 3)), "--threads", str(self._threads), "--resume", *options,
            ])  # fmt: skip
        return self._out / name / "model"

    def average(self, name: str, *parts: str) -> Path:
        """Average weights; done again each time, since it takes a second and the shares may have changed."""
        soup.main([str(self._out / name), *parts])
        return self._out / name

    def english(self, steps: int) -> Path:
        """Return the folder of the English model, float."""
        parts = []
        for seed, (mixture, share) in enumerate(ENGLISH_SHARES.items(), start=1):
            folder = self.run(
                mixture, steps, "--mixture", mixture, "--warmup", "60", "--rate", "8e-5", "--bf16", "--seed", str(seed),
            )  # fmt: skip
            parts.append(f"{folder}={share}")
        return self.average("en", *parts, f"base={round(1.0 - sum(ENGLISH_SHARES.values()), 9)}")

    def chinese(self, steps: int) -> Path:
        """Return the folder of the Chinese model, float."""
        teacher, student = self._out / "zh-base", self._out / "zh-small"
        if not (teacher / "model.safetensors").exists():
            chinese_base.write(chinese_base.Packed.read(chinese_base.source()), teacher)
        if not (student / "model" / "model.safetensors").exists():
            distil.main([
                "--out", str(student), "--teacher", str(teacher), "--prefix", chinese_base.PREFIX,
                "--layers", *map(str, LAYERS), "--data", str(self._data / "train"), "--steps", str(math.ceil(0.6 * steps)),
                "--threads", str(self._threads),
            ])  # fmt: skip
        pairs = self.run(
            "zh-pairs", math.ceil(0.3 * steps), "--lang", "zh", "--mixture", "chinese", "--start", str(student / "model"),
            "--reference", str(student / "model"), "--warmup", "30", "--rate", "8e-5", "--frozen-layers", "0", "--seed", "1", "--no-bf16",
        )  # fmt: skip
        return self.average("zh", f"{pairs}={CHINESE_SHARE}", f"{student / 'model'}={1.0 - CHINESE_SHARE}")

    def export(self, lang: str, model: Path) -> Path:
        """Write the int8 folder."""
        written = export_encoder(
            str(model), self._out / f"{lang}-int8", name=NAMES[lang], max_length=MAX_LENGTH
        )
        print(
            f"{written.out}: {written.size_bytes / 1e6:.1f} MB, cosine with the float model {written.agreement_min:.4f} or more"
        )
        return written.out


def main(argv: Sequence[str] | None = None) -> None:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for all that is made")
    parser.add_argument(
        "--data",
        type=Path,
        default=root.parent / "shared" / "data",
        help="evaluation data, with train/ in it",
    )
    parser.add_argument("--lang", nargs="+", default=["en", "zh"], choices=sorted(NAMES))
    parser.add_argument(
        "--steps",
        type=int,
        default=1500,
        help="of each English run; the Chinese ones have 0.6 (distilling) and 0.3 times as many",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--no-report", action="store_true", help="leave out the figures on the evaluation data"
    )
    given = parser.parse_args(argv)
    recipe = Recipe(given.out, given.data, given.threads)
    for lang in given.lang:
        exported = recipe.export(
            lang, recipe.english(given.steps) if lang == "en" else recipe.chinese(given.steps)
        )
        if not given.no_report:
            report.main([
                "base" if lang == "en" else "use", str(exported), "--lang", lang, "--data", str(given.data),
                "--cache", str(given.out / "cache"), "--out", str(given.out / f"report-{lang}.json"),
            ])  # fmt: skip


if __name__ == "__main__":
    main()
