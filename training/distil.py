"""Distil an encoder of fewer layers: the student's embeddings become the teacher's.

    python -m training.distil --out training/out/zh/small --teacher training/out/zh/base --layers 0 2 4 6 8 11

The student starts as the teacher's named layers and its frozen word embeddings, and learns on texts alone: the loss is one less the
cosine of its embedding and the teacher's. The teacher may read a prefix that the student does without.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from tqdm import tqdm  # type: ignore[import-untyped]

from training import batching, data, own
from training.embedded import Cached, digest
from training.model import Encoder, keep_layers


def texts_of(file: Path, lang: str) -> list[str]:
    """All texts of one language: of the training file, share-alike rows left out, and our own."""
    rows = data.read_pairs(file, lang=lang, share_alike=False)
    found = {row.a for row in rows} | {row.b for row in rows}
    found |= {wording for topic in own.topics(lang) for question in topic for wording in question}
    return sorted(found)


def main(argv: Sequence[str] | None = None) -> None:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the student")
    parser.add_argument("--teacher", type=Path, required=True, help="folder of the teacher")
    parser.add_argument("--prefix", default="", help="what the teacher reads before each text")
    parser.add_argument("--layers", type=int, nargs="+", required=True, help="of the teacher, that are kept")
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data" / "train")
    parser.add_argument("--lang", default="zh", choices=sorted(own.FILES))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=128, help="texts a step")
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--warmup", type=int, default=50, help="steps")
    parser.add_argument("--max-length", type=int, default=40, help="tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    texts = texts_of(args.data, args.lang)
    teacher = Encoder(args.teacher, max_length=args.max_length + 4)
    wanted = Cached(
        f"teacher-{digest(args.teacher / 'model.safetensors')}",
        lambda some: teacher.encode([args.prefix + text for text in some]),
        args.out,
    )
    wanted.add(texts)
    targets = wanted(texts)
    keep_layers(args.teacher, args.layers, args.out / "start")
    student = Encoder(args.out / "start", max_length=args.max_length)
    body = [p for p in student.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(body, lr=args.rate, weight_decay=0.01)
    schedule = batching.schedule(optimiser, args.warmup, args.steps)
    ids = student.token_ids(texts)
    plan = batching.plan(
        range(len(ids)), args.batch, args.steps, lambda i: len(ids[i]), random.Random(args.seed)
    )
    student.train()
    mean = 0.0
    bar = tqdm(plan, mininterval=10)
    for batch in bar:
        rows = student(*student.padded([ids[i] for i in batch]))
        loss = (1.0 - (rows * torch.from_numpy(targets[batch])).sum(1)).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(body, 1.0)
        optimiser.step()
        schedule.step()
        mean = loss.item() if mean == 0.0 else 0.98 * mean + 0.02 * loss.item()
        bar.set_postfix(distance=f"{mean:.4f}")
    student.save(args.out / "model")
    print(f"{len(texts)} texts; distance from the teacher {mean:.4f}; model in {args.out / 'model'}")


if __name__ == "__main__":
    main()
