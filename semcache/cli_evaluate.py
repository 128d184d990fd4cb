"""The commands `semcache evaluate` and `semcache tune`. What is measured is `evaluate`'s, what is fitted `tune`'s."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semcache.errors import ConfigurationError, MissingDependencyError

if TYPE_CHECKING:
    from semcache.evaluate import Vectors
    from semcache.protocols import Encoder
    from semcache.verify import Calibration

# Cosines of the frontier, 0.70 to 0.995, ever closer.
GRID = tuple(round(1.0 - 0.3 / 60 ** (i / 15), 4) for i in range(16))

Files = Annotated[
    list[Path], typer.Argument(help="JSON Lines or JSON, plain or gzip.", exists=True, dir_okay=False)
]
EncoderOption = Annotated[
    str,
    typer.Option(
        "--encoder",
        help="`default`, `bundled` (the multilingual half of the default alone), a folder made by export-encoder, or a sentence-transformers model.",
    ),
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option("--calibration", help="A file written by `semcache tune`.", exists=True, dir_okay=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(evaluate)
    app.command()(tune)


def evaluate(
    files: Files,
    encoder: EncoderOption = "default",
    calibration: CalibrationOption = None,
    threshold_only: Annotated[
        float | None,
        typer.Option(
            "--threshold-only", help="Measure plain cosine at this threshold beside.", min=-1, max=1
        ),
    ] = None,
    near_copy_gate: Annotated[
        bool, typer.Option("--near-copy-gate", help="Refuse long near copies.")
    ] = False,
    frontier: Annotated[
        Path | None,
        typer.Option(
            "--frontier",
            help="Plot right or hit rate against wrong rate into this picture, a panel per file.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Use the first so many rows of each file.", min=1)
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object per file.")] = False,
) -> None:
    """Measure right and wrong hits on labelled pairs, clusters, prompts, traces and your own logs."""
    from semcache.evaluate import Vectors, evaluate_files, summary
    from semcache.verify import CalibratedMatcher, ThresholdMatcher

    chosen = _encoder(encoder)
    numbers = _calibration(calibration, chosen.fingerprint)
    if not numbers.calibrated:
        print(numbers.note, file=sys.stderr)
    matcher = CalibratedMatcher(numbers, near_copy_gate=near_copy_gate)
    baseline = None if threshold_only is None else ThresholdMatcher(threshold_only)
    vectors = Vectors(chosen)
    curves: dict[str, dict[str, list[Any]]] = {}
    for path in files:
        (report,) = evaluate_files([path], chosen, matcher, baseline=baseline, limit=limit, vectors=vectors)
        if frontier is not None:
            curves[path.name] = report["frontier"] = _curves(path, vectors, numbers, near_copy_gate, limit)
        if json_:
            print(json.dumps(report, ensure_ascii=False))
            continue
        print(summary(report))
        for kind, figures in (report.get("by_kind") or {}).items():
            print(f"    {kind}: {_figures(figures)}")
        if baseline is not None:
            print("  plain cosine: " + summary(report | report["threshold_only"]))
    if frontier is not None:
        _plot(curves, frontier)


def tune(
    files: Files,
    encoder: EncoderOption = "default",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the calibration here; else to standard output.")
    ] = None,
    most_wrong: Annotated[
        float, typer.Option("--most-wrong", help="Share of different pairs that may be served.", min=0, max=1)
    ] = 0.02,
    cut_only: Annotated[
        bool, typer.Option("--cut-only", help="Keep the weights, choose only where to cut.")
    ] = False,
) -> None:
    """Fit thresholds and weights for an encoder on labelled pairs."""
    from semcache.tune import tune as fit

    text = fit(files, _encoder(encoder), most_wrong=most_wrong, fit_weights=not cut_only).to_json()
    if out is None:
        print(text, end="")
    else:
        out.write_text(text, encoding="utf-8")


def _figures(figures: dict[str, Any]) -> str:
    shown = {k: "-" if (v := figures[k]) is None else f"{v:.3f}" for k in ("right_kept", "wrong_served")}
    return f"right kept {shown['right_kept']}, wrong served {shown['wrong_served']} of {figures['rows']}"


def _calibration(path: Path | None, fingerprint: str) -> Calibration:
    from semcache.verify import Calibration, calibration_for

    if path is None:
        return calibration_for(fingerprint)
    found = Calibration.from_json(path.read_text(encoding="utf-8"))
    if not fingerprint.startswith(found.fingerprint):
        raise ConfigurationError(
            f"{path} was tuned for the encoder {found.fingerprint!r}, expected one for {fingerprint!r}"
        )
    return found


def _encoder(name: str) -> Encoder:
    if name == "default":
        from semcache.encoders import default_encoder

        return default_encoder()
    if name == "bundled":
        from semcache.encoders.bundled import BundledEncoder

        return BundledEncoder()
    if (Path(name) / "model.onnx").exists():
        from semcache.encoders.onnx import OnnxEncoder

        return OnnxEncoder(Path(name))
    from semcache.encoders.sentence_transformers import SentenceTransformerEncoder

    return SentenceTransformerEncoder(name)


def _curves(
    path: Path, vectors: Vectors, numbers: Calibration, gate: bool, limit: int | None
) -> dict[str, list[Any]]:
    """Return points (cosine, wrong, right) of plain cosine, of the guards with it, and the default's one point."""
    from semcache.evaluate import evaluate_rows
    from semcache.evaluate_rows import read_rows
    from semcache.verify import CalibratedMatcher, ThresholdMatcher

    rows = read_rows(path)[:limit]
    curves: dict[str, list[Any]] = {"plain cosine": [], "guards": [], "default": []}

    def add(name: str, at: float | None, report: dict[str, Any]) -> None:
        right = report.get("right_kept", report.get("hit_rate", report.get("right")))
        wrong = report.get("wrong_served", report.get("wrong_rate", report.get("wrong")))
        curves[name].append((at, wrong, right))

    for at in GRID:
        families = {k: replace(f, threshold=at, probability=0.0) for k, f in numbers.families.items()}
        guarded = CalibratedMatcher(replace(numbers, families=families), near_copy_gate=gate)
        add("plain cosine", at, evaluate_rows(rows, vectors, ThresholdMatcher(at)))
        add("guards", at, evaluate_rows(rows, vectors, guarded))
    add("default", None, evaluate_rows(rows, vectors, CalibratedMatcher(numbers, near_copy_gate=gate)))
    return curves


def _plot(curves: dict[str, dict[str, list[Any]]], target: Path) -> None:
    """Draw the curves of each file into a panel of its own."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("--frontier", extra="plots") from error
    figure = Figure(figsize=(max(6.4, 3.9 * len(curves)), 4.2), layout="constrained")
    panels = figure.subplots(1, max(1, len(curves)), squeeze=False)[0]
    for axes, (name, of_file) in zip(panels, curves.items(), strict=True):
        most = max(0.05, *(10 * (w or 0.0) for _, w, _ in of_file["default"]))  # wrong ones that are shown
        for label, points in of_file.items():
            known = [(w, r) for _, w, r in points if w is not None and r is not None]
            drawn = [(100 * w, 100 * r) for w, r in known if w <= most]
            style = {"plain cosine": "C0.--", "guards": "C1.-", "default": "k*"}[label]
            size = 13 if label == "default" else 6
            axes.plot([w for w, _ in drawn], [r for _, r in drawn], style, markersize=size, label=label)
        axes.set_xlabel("served wrongly, %")
        axes.set_title(name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json"))
        axes.set_xlim(left=-0.05)
    panels[0].set_ylabel("hits, or right pairs served, %")
    panels[0].legend(loc="lower right")
    figure.savefig(target, dpi=110)
