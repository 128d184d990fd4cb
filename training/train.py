"""Train an encoder for caching: cosines that say "same answer", not "same topic".

    python -m training.train --out training/out/english

Loss: logistic loss on the cosine with learnt scale and threshold, plus in-batch ranking on the
same=1 pairs, plus a pull towards the base model's cosines between unrelated texts of the batch.
Everything random hangs on --seed. A checkpoint is written at each check; the same command with
--resume goes on from it. The best check on the part kept aside is what is saved.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm  # type: ignore[import-untyped]

from training import batching, data, measures, mining, own
from training import mixture as mix
from training.data import Row
from training.embedded import Cached
from training.model import Encoder, base_folder, multiplies_bf16


def losses(
    a: torch.Tensor, b: torch.Tensor, batch: Sequence[Row], base: torch.Tensor, head: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logistic loss, ranking loss and distance from the base model's cosines.

    Args:
        a, b: Unit rows of the batch's two sides, (n, dim).
        base: The base model's cosines of the first k rows of a with the first k of b, (k, k).
        head: log of the scale and the threshold of the logistic loss, (2,).
    """
    cosines = a @ b.T
    own_pair = cosines.diagonal()
    same = torch.tensor([float(row.same) for row in batch])
    logits = head[0].exp() * (own_pair - head[1])
    logistic = torch.nn.functional.binary_cross_entropy_with_logits(logits, same)

    groups: dict[str, int] = {}
    ga = torch.tensor([groups.setdefault(row.group_a, len(groups)) for row in batch])
    gb = torch.tensor([groups.setdefault(row.group_b, len(groups)) for row in batch])
    linked = ga.unsqueeze(1) == gb.unsqueeze(0)
    off_diagonal = ~torch.eye(len(batch), dtype=torch.bool)
    scaled = (20.0 * cosines).masked_fill(linked & off_diagonal, -1e4)
    chosen = same.nonzero().squeeze(1)
    if len(chosen) > 1:
        ranking = torch.nn.functional.cross_entropy(scaled[chosen], chosen)
        ranking = 0.5 * (ranking + torch.nn.functional.cross_entropy(scaled.T[chosen], chosen))
    else:
        ranking = cosines.sum() * 0.0
    k = len(base)
    unrelated = (off_diagonal & ~linked)[:k, :k]
    keeping = (cosines[:k, :k] - base)[unrelated].pow(2).mean() if k > 1 else cosines.sum() * 0.0
    return logistic, ranking, keeping


def main(argv: Sequence[str] | None = None) -> None:
    args = _arguments(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)

    train_rows, aside = data.split(data.read_pairs(args.data, lang=args.lang, share_alike=args.share_alike))
    mixture = mix.preset(args.mixture)
    reference = Encoder(
        args.reference or base_folder(), max_length=args.max_length, bf16=args.bf16
    ).requires_grad_(False)
    own_train, own_aside = own.rows(
        args.seed,
        mixture.requests,
        mixture.written_times,
        args.lang,
        Cached("written", reference.encode, out),
        mixture.written_files,
    )
    checks = measures.aside_sets(aside, own_aside, seed=7, edited=args.lang == "en")
    counts = {name: len(found) for name, found in checks.items()}
    encoder = Encoder(
        args.start or base_folder(),
        max_length=args.max_length,
        frozen_layers=args.frozen_layers,
        bf16=args.bf16,
    )
    near = mining.mined([*train_rows, *own_train], encoder, mixture.mined, 5, out / "mined.json")
    rows = mix.build(train_rows, [*own_train, *near], mixture, args.seed)
    print(f"{len(rows)} pairs to train on, kept aside: {counts}", flush=True)

    texts = sorted({row.a for row in rows} | {row.b for row in rows})
    tokens = dict(zip(texts, encoder.token_ids(texts), strict=True))
    lengths = {text: len(ids) for text, ids in tokens.items()}

    head = torch.nn.Parameter(torch.tensor([math.log(15.0), 0.75]))
    body = [p for p in encoder.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(
        [
            {"params": body, "lr": args.rate, "weight_decay": 0.01},
            {"params": [head], "lr": 20 * args.rate, "weight_decay": 0.0},
        ]
    )
    plan = batching.plan(
        rows, args.batch, args.steps, lambda r: max(lengths[r.a], lengths[r.b]), random.Random(args.seed)
    )
    schedule = batching.schedule(optimiser, args.warmup, args.steps)

    state_file = out / "checkpoint.pt"
    step, best, waited, history = 0, -math.inf, 0, []
    if args.resume and state_file.exists():
        state = torch.load(state_file, weights_only=True)
        encoder.body.load_state_dict(state["body"])
        optimiser.load_state_dict(state["optimiser"])
        schedule.load_state_dict(state["schedule"])
        with torch.no_grad():
            head.copy_(state["head"])
        step, best, waited, history = state["step"], state["best"], state["waited"], state["history"]
    else:
        history.append({"step": 0, **measures.judge(encoder, checks)})
        print(measures.line(history[-1]), flush=True)

    bar = tqdm(total=args.steps, initial=step, mininterval=10)
    sums = np.zeros(3)
    while step < args.steps:
        batch = plan[step]
        encoder.train()
        sides = [tokens[row.a] for row in batch] + [tokens[row.b] for row in batch]
        rows_ab = encoder(*encoder.padded(sides))
        a, b = rows_ab[: len(batch)], rows_ab[len(batch) :]
        anchors = min(args.anchors, len(batch)) if args.keep > 0 else 0
        with torch.no_grad():  # the first rows of a batch are as random as any
            texts_ab = sides[:anchors] + sides[len(batch) : len(batch) + anchors]
            kept = reference(*reference.padded(texts_ab)) if anchors else rows_ab[:0].detach()
        base = kept[:anchors] @ kept[anchors:].T
        parts = losses(a, b, batch, base, head)
        loss = parts[0] + args.ranking * parts[1] + args.keep * parts[2]
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(body, 1.0)
        optimiser.step()
        schedule.step()
        sums += [part.item() for part in parts]
        step += 1
        bar.update()
        if step % args.check == 0 or step == args.steps:
            found = measures.judge(encoder, checks)
            means = sums / args.check
            sums[:] = 0
            history.append({"step": step, **found})
            bar.write(
                f"{measures.line(history[-1])} | logistic {means[0]:.3f} ranking {means[1]:.3f} "
                f"kept {means[2]:.4f} scale {head[0].exp().item():.1f} at {head[1].item():.3f}"
            )
            if found["mean"] > best:
                best, waited = found["mean"], 0
                encoder.save(out / "model")
            else:
                waited += 1
            torch.save(
                {
                    "body": encoder.body.state_dict(),
                    "optimiser": optimiser.state_dict(),
                    "schedule": schedule.state_dict(),
                    "head": head.detach(),
                    "step": step,
                    "best": best,
                    "waited": waited,
                    "history": history,
                },
                state_file,
            )
            if waited >= args.patience:
                bar.write(f"no better for {waited} checks: stopped")
                break
            if 0 < args.stop_after <= step:
                bar.write(f"stopped after {step} steps; the same command with --resume goes on")
                break
    bar.close()
    encoder.save(out / "last")
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()}
    record = {"settings": settings, "mixture": asdict(mixture), "kept_aside": counts, "history": history}
    (out / "training.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"best on the part kept aside: {best:.4f}; model in {out / 'model'}")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data" / "train")
    parser.add_argument(
        "--start", type=Path, default=None, help="folder to start from; default: all-MiniLM-L6-v2"
    )
    parser.add_argument(
        "--reference",
        type=Path,
        default=None,
        help="folder whose cosines are kept; default: all-MiniLM-L6-v2",
    )
    parser.add_argument("--lang", default="en", choices=sorted(own.FILES))
    parser.add_argument("--mixture", default="english", choices=sorted(mix.PRESETS))
    parser.add_argument("--share-alike", action="store_true", help="train on share-alike rows too")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=64, help="pairs a step")
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--warmup", type=int, default=100, help="steps")
    parser.add_argument("--ranking", type=float, default=0.3, help="weight of the ranking loss")
    parser.add_argument("--keep", type=float, default=2.0, help="weight of the pull towards the base model")
    parser.add_argument("--anchors", type=int, default=16, help="pairs a step that feel this pull")
    parser.add_argument("--max-length", type=int, default=40, help="tokens")
    parser.add_argument("--frozen-layers", type=int, default=2, help="lowest layers left alone")
    parser.add_argument("--check", type=int, default=250, help="steps between two checks")
    parser.add_argument("--patience", type=int, default=5, help="checks without gain before stopping")
    parser.add_argument(
        "--stop-after", type=int, default=0, help="stop at the first check after so many steps"
    )
    parser.add_argument(
        "--bf16",
        action=argparse.BooleanOptionalAction,
        default=multiplies_bf16(),
        help="multiply matrices in bfloat16; default: where the processor does so by itself",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
