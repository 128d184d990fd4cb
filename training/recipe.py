"""The whole way from the packaged MiniLM to the folder that ships: train, average, export, report.

    python -m training.recipe --out training/out

Two seeds from the base model, averaged; a third from there on a second mixture; averaged with the base
model, exported to int8, and both reported on the evaluation data. Under two hours on two cores. A
step whose result is there already is left out, and a run that was stopped goes on from its last check, so the same
command ends what an earlier one began.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from semcache.encoders.export import export_encoder
from training import report, soup, train

NAME = "semcache-encoder-en"
BASE_SHARE = 0.7  # of the base model in what ships, see README.md
MAX_LENGTH = 128  # tokens that the exported model reads


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
    parser.add_argument(
        "--share", type=float, default=BASE_SHARE, help="of the base model in what is exported"
    )
    parser.add_argument("--steps", type=int, default=300, help="of each of the three runs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--no-report", action="store_true", help="leave out the figures on the evaluation data"
    )
    given = parser.parse_args(argv)
    out: Path = given.out

    def run(name: str, *options: str) -> Path:
        done = out / name / "training.json"
        if not done.exists():
            train.main([
                "--out", str(out / name), "--data", str(given.data / "train"), "--seed", name, "--steps", str(given.steps),
                "--check", str(max(1, given.steps // 2)), "--threads", str(given.threads), "--resume", *options,
            ])  # fmt: skip
        return out / name / "model"

    def average(name: str, *parts: str) -> Path:
        if not (out / name).exists():
            soup.main([str(out / name), *parts])
        return out / name

    first = average("first", *(f"{run(seed, '--warmup', '60', '--rate', '8e-5')}=0.5" for seed in ("1", "2")))
    second = ("--start", str(first), "--mixture", "second", "--warmup", "15", "--rate", "6e-5")
    mixed = average(
        f"soup-{given.share:g}", f"{run('3', *second)}={1.0 - given.share}", f"base={given.share}"
    )
    exported = out / f"{mixed.name}-int8"
    written = export_encoder(str(mixed), exported, name=NAME, max_length=MAX_LENGTH)
    print(
        f"{exported}: {written.size_bytes / 1e6:.1f} MB, cosine with the float model {written.agreement_min:.4f} or more"
    )
    if not given.no_report:
        report.main(
            [
                "base",
                str(exported),
                "--data",
                str(given.data),
                "--cache",
                str(out / "cache"),
                "--out",
                str(out / "report.json"),
            ]
        )


if __name__ == "__main__":
    main()
