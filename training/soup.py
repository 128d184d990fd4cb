"""Average models: the cheap guard against forgetting.

    python -m training.soup training/out/soup training/out/a/model=0.4 training/out/b/model=0.4 base=0.2

`base` stands for the packaged all-MiniLM-L6-v2.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from training.model import average, base_folder


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", nargs="+", metavar="MODEL=SHARE")
    args = parser.parse_args(argv)
    pairs = [part.rsplit("=", 1) for part in args.parts]
    folders = [base_folder() if name == "base" else Path(name) for name, _ in pairs]
    average(folders, [float(share) for _, share in pairs], args.out)


if __name__ == "__main__":
    main()
