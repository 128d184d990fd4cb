"""Print the table of docs/matching.md: every file of the evaluation data with the defaults, in one run.

    python tools/measure_matching.py                          # everything, default encoder: some minutes
    python tools/measure_matching.py --fast                   # a sample of each file, without traces
    python tools/measure_matching.py --encoder FOLDER         # an exported MiniLM
    python tools/measure_matching.py --only traces            # one part: pairs, traces, sizes, guards or reliability
    python tools/measure_matching.py --plots docs             # also draw the two plots

It prints pairs (right kept / wrong served, each row alone; `aside` is a tenth of the rows by hash), traces (the
defaults; plain cosine and guards at the allowed wrong rate), how strict one has to be in smaller and larger scopes, and
what each guard gains and costs. The evaluation data is read from the folder that SEMCACHE_DATA names.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from semcache.cli_evaluate import GRID
from semcache.evaluate import Vectors, evaluate_pairs, evaluate_rows, replay
from semcache.evaluate_replay import Scope, prepare, replay_scopes
from semcache.evaluate_rows import Request, Row, read_rows
from semcache.guards import GUARDS, analyse, compare
from semcache.protocols import Encoder, Judgement, Matcher
from semcache.verify import CalibratedMatcher, ThresholdMatcher, calibration_for
from semcache.verify.calibration import FEATURES, Calibration
from semcache.verify.features import features

MOST_SHOWN = 0.03  # wrong hits per request, in the plot of the frontier
DATA = Path(os.environ.get("SEMCACHE_DATA", Path(__file__).parents[1].parent / "shared" / "data"))
# file, language or source (empty: all rows), near-copy gate, most wrong, least right
PAIRS = [
    ("pairs_swap", "en", False, 0.01, 0.98),
    ("pairs_swap", "zh", False, 0.03, 0.98),
    ("pairs_slots", "", False, 0.03, 0.45),
    ("pairs_adversarial", "", False, 0.10, 0.80),
    ("pairs_qqp", "", False, 0.11, 0.52),
    ("pairs_zh", "lcqmc", False, 0.13, 0.60),
    ("pairs_zh", "oppo-xiaobu", False, 0.06, 0.35),
    ("pairs_pawsx", "en", False, 0.35, 0.45),
    ("pairs_pawsx", "en", True, 0.15, 0.35),
]
# file, most wrong per request, least hit rate
TRACES = [
    ("trace_zipf_faq_en", 0.003, 0.65),
    ("trace_zipf_en", 0.005, 0.525),
    ("trace_zipf_zh", 0.006, 0.515),
]
GUARDED = [
    "pairs_swap en",
    "pairs_swap zh",
    "pairs_slots",
    "pairs_adversarial",
    "pairs_qqp",
    "pairs_zh lcqmc",
    "pairs_pawsx en",
]
SAMPLE = 600
BINS = 10


def is_aside(row: Row) -> bool:
    """Tell whether a row belongs to the tenth that takes no part in choosing numbers."""
    key = "\n".join(str(row.get(name, "")) for name in ("a", "b", "text"))
    return hashlib.sha256(key.encode()).digest()[0] < 26


def rows_of(name: str, part: str, *, sample: int | None = None) -> list[Row]:
    """Read the rows of a file, or those of one language or source; at most about `sample` of them."""
    rows = [r for r in read_rows(DATA / f"{name}.jsonl.gz") if not part or part in (r["lang"], r["source"])]
    return rows if sample is None else rows[:: max(1, len(rows) // sample)]


def met(wrong: float, right: float, most: float, least: float) -> str:
    """Say which of two bounds hold."""
    return (
        ("wrong ok" if wrong <= most else "WRONG HIGH")
        + ", "
        + ("right ok" if right >= least else "RIGHT LOW")
    )


def measure_pairs(
    vectors: Vectors, calibration: Calibration, *, sample: int | None, skip_chinese: bool
) -> None:
    """Print right kept / wrong served of every file of pairs."""
    print(
        "\n| file | right kept / wrong served | aside | worst kind (wrong) | asked for (wrong; right) | |\n|---|---|---|---|---|---|"
    )
    for name, part, gate, most, least in PAIRS:
        if skip_chinese and (part == "zh" or name == "pairs_zh"):
            continue
        matcher = CalibratedMatcher(calibration, near_copy_gate=gate)
        rows = rows_of(name, part, sample=sample)
        whole = evaluate_pairs(rows, vectors, matcher, all_stored=False)
        aside = evaluate_pairs([r for r in rows if is_aside(r)], vectors, matcher, all_stored=False)
        kinds = {k: f["wrong_served"] for k, f in whole["by_kind"].items() if f["wrong_served"] is not None}
        worst = max(kinds, key=kinds.__getitem__)
        right, wrong = whole["right_kept"], whole["wrong_served"]
        apart = " / ".join(
            "-" if (v := aside[k]) is None else f"{v:.3f}" for k in ("right_kept", "wrong_served")
        )
        print(
            f"| {name} {part}{' gate' if gate else ''} | {right:.3f} / {wrong:.3f} | {apart} | {worst} {kinds[worst]:.3f} |"
            f" {most:g}; {least:g} | {met(wrong, right, most, least)} |",
            flush=True,
        )
    rows = rows_of("pairs_gptcache_mock", "")
    stored = evaluate_pairs(rows, vectors, CalibratedMatcher(calibration))["store_all"]
    print(
        f"| pairs_gptcache_mock, all stored | {stored['right']:.3f} / {stored['wrong']:.3f} | | | 0.015; 0.87 |"
        f" {met(stored['wrong'], stored['right'], 0.015, 0.87)} |"
    )
    for name in ("distinct_prompts", "context_pairs"):
        found = evaluate_rows(rows_of(name, ""), vectors, CalibratedMatcher(calibration))
        print(
            f"| {name} | {found['hits']} hits | | | 0 hits | {'ok' if found['hits'] == 0 else 'HITS'} |",
            flush=True,
        )


@dataclass(slots=True)
class Judge:
    """A matcher that remembers what the guards said of a pair, so that cuts and guards can be varied quickly."""

    cosine: float = 0.0
    without: frozenset[str] = frozenset()
    said: dict[tuple[str, str], tuple[bool, frozenset[str]]] = field(default_factory=dict)
    floor: float = -1.0

    def judge(
        self,
        query: str,
        stored: str,
        similarity: float,
        *,
        threshold: float | None = None,
        rivals: Sequence[float] = (),
        size: int | None = None,
        answer_language: str | None = None,
        explain: bool = False,
    ) -> Judgement:
        """Accept equal normal forms, and what reaches the cosine and no guard refuses."""
        if similarity < min(self.cosine, 0.7):
            return Judgement("below_threshold")
        key = (query, stored)
        found = self.said.get(key)
        if found is None:
            found = self.said[key] = _said(query, stored)
        equal, refused = found
        if equal:
            return Judgement(None)
        if similarity < self.cosine:
            return Judgement("below_threshold")
        left = refused - self.without
        first = next((name for name, _ in GUARDS if name in left), None)
        return Judgement(f"guard:{first}" if first else None)


def _said(query: str, stored: str) -> tuple[bool, frozenset[str]]:
    a, b = analyse(query), analyse(stored)
    if a.normal == b.normal:
        return True, frozenset()
    c = compare(a, b)
    return False, frozenset(name for name, guard in GUARDS if guard(c).verdict == "refuse")


def at_wrong_rate(
    scopes: Sequence[Scope], rows: int, most: float, matcher_at: Callable[[float], Matcher]
) -> tuple[float, float, float]:
    """Return (cosine, hit rate, wrong rate) of the least cosine, to 0.0025, whose wrong rate is allowed."""
    low, high = 0.70, 0.9925
    while high - low > 0.0026:
        middle = (low + high) / 2
        wrong = replay_scopes(scopes, matcher_at(middle)).counts["wrong"]
        low, high = (low, middle) if wrong <= most * rows else (middle, high)
    counts = replay_scopes(scopes, matcher_at(high)).counts
    return high, counts["hit"] / rows, counts["wrong"] / rows


def measure_traces(vectors: Vectors, calibration: Calibration, *, skip_chinese: bool) -> None:
    """Print hit and wrong rates of each trace, and what each guard costs there at the allowed wrong rate."""
    print(
        "\n| trace | defaults: hits / wrong | plain cosine at the allowed wrong rate | guards there | exact only, oracle | asked for | |\n|---|---|---|---|---|---|---|"
    )
    costs: dict[str, dict[str, float]] = {}
    for name, most, least in TRACES:
        if skip_chinese and name.endswith("zh"):
            continue
        rows = [Request(str(r["text"]), str(r["cluster"])) for r in read_rows(DATA / f"{name}.jsonl.gz")]
        found = replay(rows, vectors, CalibratedMatcher(calibration))
        scopes = prepare(rows, vectors.encoder, vectors.of)
        plain = at_wrong_rate(scopes, len(rows), most, ThresholdMatcher)
        judge = Judge()
        guards = at_wrong_rate(scopes, len(rows), most, _varied(judge, frozenset()))
        print(
            f"| {name} | {found['hit_rate']:.4f} / {found['wrong_rate']:.4f} | {plain[1]:.4f} / {plain[2]:.4f} ({plain[0]:.3f}) |"
            f" {guards[1]:.4f} / {guards[2]:.4f} ({guards[0]:.3f}) | {found['exact_rate']:.3f}, {found['oracle_rate']:.3f} |"
            f" {most:g}; {least:g} | {met(found['wrong_rate'], found['hit_rate'], most, least)} |",
            flush=True,
        )
        every = frozenset(guard for guard, _ in GUARDS)
        used = {guard for _, refused in judge.said.values() for guard in refused}
        for guard in used:
            alone = at_wrong_rate(scopes, len(rows), most, _varied(judge, every - {guard}))
            costs.setdefault(guard, {})[name] = 100 * (alone[1] - plain[1])
    names = [name for name, _, _ in TRACES if not (skip_chinese and name.endswith("zh"))]
    print(
        "\nPoints of hits that one guard alone adds to plain cosine (negative: costs), at the allowed wrong rate\n"
    )
    print("| guard | " + " | ".join(names) + " |\n|---" * 1 + "|---" * len(names) + "|")
    for guard, _ in GUARDS:
        if guard in costs:
            cells = (f"{costs[guard][n]:+.2f}" if n in costs[guard] else "" for n in names)
            print(f"| {guard} | " + " | ".join(cells) + " |")


def _varied(judge: Judge, without: frozenset[str]) -> Callable[[float], Matcher]:
    def at(cosine: float) -> Matcher:
        judge.cosine, judge.without = cosine, without
        return judge

    return at


def measure_sizes(vectors: Vectors, calibration: Calibration, *, skip_chinese: bool) -> None:
    """Print by how much the log odds may rise in smaller parts of a trace until its allowed wrong rate is reached.

    A part holds every nth group of the trace, by hash, so that parts differ in size and in nothing else; the weights of
    the size itself are 0 here.
    """
    flat = {
        name: replace(f, weights=tuple(0.0 if n in ("room", "asked_room") else w for n, w in zip(FEATURES, f.weights, strict=True)))
        for name, f in calibration.families.items()
    }  # fmt: skip
    print("\n| trace | part | stored at the end | log odds, added | hits / wrong |\n|---|---|---|---|---|")
    for name, most, _ in TRACES[1:]:
        if skip_chinese and name.endswith("zh"):
            continue
        requests = [Request(str(r["text"]), str(r["cluster"])) for r in read_rows(DATA / f"{name}.jsonl.gz")]
        for parts in (8, 4, 2, 1):
            for number in range(min(parts, 3)):
                some = [q for q in requests if _part(str(q.cluster), parts) == number]
                scopes = prepare(some, vectors.encoder, vectors.of)

                def counted(added: float, scopes: Sequence[Scope] = scopes) -> Counter[str]:
                    families = {n: replace(f, bias=f.bias + added) for n, f in flat.items()}
                    return replay_scopes(
                        scopes, CalibratedMatcher(replace(calibration, families=families))
                    ).counts

                low, high = -3.0, 5.0
                while high - low > 0.07:
                    middle = (low + high) / 2
                    wrong = counted(middle)["wrong"]
                    low, high = (middle, high) if wrong <= most * len(some) else (low, middle)
                counts = counted(low)
                print(
                    f"| {name} | {number + 1} of {parts} | {len(some) - counts['hit']:,} | {low:+.2f} |"
                    f" {counts['hit'] / len(some):.3f} / {counts['wrong'] / len(some):.4f} |",
                    flush=True,
                )


def _part(cluster: str, parts: int) -> int:
    return hashlib.sha256(cluster.encode()).digest()[0] % parts


def measure_guards(*, sample: int | None, skip_chinese: bool) -> None:
    """Print which share of the pairs that ask the same / that don't each guard refuses alone."""
    columns = [c for c in GUARDED if not (skip_chinese and "zh" in c)]
    table: dict[str, list[str]] = {name: [] for name in ("equal normal form", *(g for g, _ in GUARDS), "any")}
    for column in columns:
        name, _, part = column.partition(" ")
        rows = rows_of(name, part, sample=sample)
        said = [_said(str(r["b"]), str(r["a"])) for r in rows]
        same = np.array([int(r["same"]) for r in rows])
        for line, cells in table.items():
            if line == "equal normal form":
                hit = np.array([equal for equal, _ in said])
            elif line == "any":
                hit = np.array([bool(refused) for _, refused in said])
            else:
                hit = np.array([line in refused for _, refused in said])
            cells.append(f"{hit[same == 1].mean():.3f}/{hit[same == 0].mean():.3f}")
    print(
        "\nShare of pairs that ask the same / that don't, which a guard alone refuses (equal normal form: accepts)\n"
    )
    print("| guard | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
    for line, cells in table.items():
        print(f"| {line} | " + " | ".join(cells) + " |")


def reliability(
    vectors: Vectors, calibration: Calibration, *, sample: int | None
) -> dict[str, list[tuple[float, float, int]]]:
    """Return, per file, bins of (mean probability, share that asks the same, pairs) where no guard and no normal form decides."""
    found = {}
    for name, part in (
        ("pairs_qqp", ""),
        ("pairs_slots", ""),
        ("pairs_zh", "lcqmc"),
        ("pairs_zh", "oppo-xiaobu"),
    ):
        rows = rows_of(name, part, sample=sample)
        embeddings = vectors.of([str(r[side]) for r in rows for side in ("a", "b")])
        similarities = np.einsum("ij,ij->i", embeddings[0::2], embeddings[1::2])
        said: list[tuple[float, int]] = []
        for row, similarity in zip(rows, similarities, strict=True):
            a, b = analyse(str(row["b"])), analyse(str(row["a"]))
            if a.normal == b.normal or a.family != b.family:
                continue
            c = compare(a, b)
            if not any(guard(c).verdict == "refuse" for _, guard in GUARDS):
                family = calibration.families[a.family]
                said.append((family.probability_of(features(c, float(similarity), ())), int(row["same"])))
        bins = []
        for low in np.arange(BINS) / BINS:
            inside = [(p, same) for p, same in said if low <= p < low + 1 / BINS]
            if len(inside) >= 20:
                bins.append(
                    (
                        float(np.mean([p for p, _ in inside])),
                        float(np.mean([s for _, s in inside])),
                        len(inside),
                    )
                )
        found[f"{name} {part}".strip()] = bins
    return found


def draw_frontier(vectors: Vectors, calibration: Calibration, target: Path, *, skip_chinese: bool) -> None:
    """Plot hit rate against wrong rate of each trace: plain cosine and the guards at many cosines, and the defaults."""
    from matplotlib.figure import Figure

    names = [name for name, _, _ in TRACES if not (skip_chinese and name.endswith("zh"))]
    figure = Figure(figsize=(4.6 * len(names), 4.4), layout="tight")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        rows = [Request(str(r["text"]), str(r["cluster"])) for r in read_rows(DATA / f"{name}.jsonl.gz")]
        scopes = prepare(rows, vectors.encoder, vectors.of)
        matchers = (("plain cosine", ThresholdMatcher), ("guards", _varied(Judge(), frozenset())))
        for label, matcher_at in matchers:
            points = []
            for cosine in GRID:
                counts = replay_scopes(scopes, matcher_at(float(cosine))).counts
                points.append((counts["wrong"] / len(rows), counts["hit"] / len(rows)))
            shown = [point for point in points if point[0] <= MOST_SHOWN]
            axes.plot([w for w, _ in shown], [h for _, h in shown], ".-", label=label)
        counts = replay_scopes(scopes, CalibratedMatcher(calibration)).counts
        axes.plot(
            [counts["wrong"] / len(rows)], [counts["hit"] / len(rows)], "*", markersize=11, label="defaults"
        )
        axes.set_xlim(0.0, MOST_SHOWN)
        axes.set_title(name)
        axes.set_xlabel("wrong hits per request")
        axes.set_ylabel("hits per request")
        axes.legend()
    figure.savefig(target)


def draw_reliability(curves: dict[str, list[tuple[float, float, int]]], target: Path) -> None:
    """Plot observed share against probability."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.8))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    for name, bins in curves.items():
        axes.plot([p for p, _, _ in bins], [share for _, share, _ in bins], ".-", label=name)
    axes.axvline(0.5, color="grey", linestyle=":", linewidth=0.8)
    axes.set_xlabel("match probability (served from 0.5 on)")
    axes.set_ylabel("share of pairs that ask the same")
    axes.legend()
    figure.savefig(target)


def _encoder(name: str) -> Encoder:
    if name == "default":
        from semcache.encoders import default_encoder

        return default_encoder()
    if name == "bundled":
        from semcache.encoders.bundled import BundledEncoder

        return BundledEncoder()
    from semcache.encoders.onnx import OnnxEncoder

    return OnnxEncoder(Path(name))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--encoder", default="default", help="`default`, `bundled`, or a folder of export-encoder"
    )
    parser.add_argument(
        "--calibration", type=Path, help="a file of `semcache tune` or tools/fit_calibration.py"
    )
    parser.add_argument("--fast", action="store_true", help="600 rows of each file, no traces")
    parser.add_argument("--sample", type=int, help="so many rows of each file, no traces")
    parser.add_argument(
        "--only",
        choices=("pairs", "traces", "sizes", "guards", "reliability", "frontier"),
        help="one part of it",
    )
    parser.add_argument("--english", action="store_true", help="leave out Chinese")
    parser.add_argument(
        "--plots", type=Path, help="folder for matching-reliability.png and matching-frontier.png"
    )
    given = parser.parse_args(arguments)
    encoder = _encoder(given.encoder)
    calibration = calibration_for(encoder.fingerprint)
    if given.calibration is not None:
        fitted = Calibration.from_json(given.calibration.read_text(encoding="utf-8"))
        calibration = replace(fitted, fingerprint=encoder.fingerprint)
    print(f"encoder {encoder.fingerprint}; {calibration.note}")
    vectors = Vectors(encoder)
    sample = SAMPLE if given.fast and given.sample is None else given.sample
    if given.only in (None, "pairs"):
        measure_pairs(vectors, calibration, sample=sample, skip_chinese=given.english)
    if given.only == "traces" or (given.only is None and sample is None):
        measure_traces(vectors, calibration, skip_chinese=given.english)
    if given.only == "sizes" or (given.only is None and sample is None):
        measure_sizes(vectors, calibration, skip_chinese=given.english)
    if given.only in (None, "guards"):
        measure_guards(sample=sample, skip_chinese=given.english)
    if given.plots is not None and given.only in (None, "reliability"):
        curves = reliability(vectors, calibration, sample=sample)
        for name, bins in curves.items():
            print(f"{name}: " + "  ".join(f"{p:.2f}→{share:.2f} ({n})" for p, share, n in bins))
        draw_reliability(curves, given.plots / "matching-reliability.png")
    if given.plots is not None and given.only in (None, "frontier"):
        draw_frontier(vectors, calibration, given.plots / "matching-frontier.png", skip_chinese=given.english)


if __name__ == "__main__":
    main()
