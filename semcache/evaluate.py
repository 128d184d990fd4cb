"""Measures right and wrong hits of an encoder and a matcher on files. Pure but for reading the files.

Knows: what each schema measures, and intervals. Leaves to others: reading (`evaluate_rows`),
choosing numbers (`tune`), drawing and printing (`cli_evaluate`).

Pairs are judged each alone by the matcher. The replay of traces, logs and prompts follows the cache:
texts that the encoder can't tell apart match exactly only; otherwise exact text first, then the nearest `CANDIDATES` stored prompts in
descending similarity, the first that the matcher passes is served. `wrong` needs a label that says
which prompts may share an answer.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from semcache.evaluate_replay import CANDIDATES, prepare, replay_scopes, serve
from semcache.evaluate_rows import Request, Row, read_rows, request_of, schema_of
from semcache.protocols import Encoder, Matcher
from semcache.types import Embeddings

BATCH = 256
Report: TypeAlias = dict[str, Any]


def evaluate_files(
    paths: Sequence[Path | str],
    encoder: Encoder,
    matcher: Matcher,
    *,
    baseline: Matcher | None = None,
    limit: int | None = None,
    vectors: Vectors | None = None,
) -> list[Report]:
    """Evaluate files of any known schema.

    Args:
        baseline: A second matcher measured in the same run, reported under ``threshold_only``.
        limit: Use the first so many rows of each file.
        vectors: Embeddings to reuse; they must come from the same encoder.

    Returns:
        One object per file: ``file, rows, encoder, schema`` and the figures of its schema.

    Raises:
        ConfigurationError: A file can't be read or has no known schema.
        EncoderError: The encoder failed.
    """
    vectors = Vectors(encoder) if vectors is None else vectors
    reports = []
    for path in map(Path, paths):
        rows = read_rows(path)[:limit]
        report = {
            "file": path.name,
            "rows": len(rows),
            "encoder": encoder.fingerprint,
            "schema": schema_of(rows),
        }
        report |= evaluate_rows(rows, vectors, matcher)
        if baseline is not None:
            report["threshold_only"] = evaluate_rows(rows, vectors, baseline)
        reports.append(report)
    return reports


def evaluate_rows(rows: Sequence[Row], vectors: Vectors, matcher: Matcher) -> Report:
    """Evaluate the rows of one file."""
    match schema_of(rows):
        case "pairs":
            return evaluate_pairs(rows, vectors, matcher)
        case "context_pairs":
            return evaluate_context_pairs(rows, vectors, matcher)
        case "prompts":
            return evaluate_prompts(rows, vectors, matcher)
        case "clusters":
            return evaluate_clusters(rows, vectors, matcher)
        case "trace":
            return replay([Request(str(r["text"]), str(r["cluster"])) for r in rows], vectors, matcher)
        case "log":
            return replay([q for r in rows if (q := request_of(r)) is not None], vectors, matcher)


def wilson(hits: int, rows: int, z: float = 1.96) -> tuple[float, float] | None:
    """Return the 95 % interval of a share after Wilson (1927); None without rows."""
    if rows == 0:
        return None
    share = hits / rows
    middle = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z / (1 + z * z / rows) * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    return max(0.0, middle - half), min(1.0, middle + half)


def _share(hits: int, rows: int) -> float | None:
    return hits / rows if rows else None


@dataclass(slots=True)
class Vectors:
    """Embeddings by text; each text is encoded once, in batches of similar length."""

    encoder: Encoder
    _rows: dict[str, int] = field(default_factory=dict)
    _blocks: list[Embeddings] = field(default_factory=list)
    _matrix: Embeddings | None = None

    def of(self, texts: Sequence[str]) -> Embeddings:
        """Return float32 (len(texts), dim), unit rows; zeros for texts without meaning to the encoder."""
        fresh = sorted({t for t in texts if t not in self._rows}, key=lambda t: (len(t), t))
        for start in range(0, len(fresh), BATCH):
            part = fresh[start : start + BATCH]
            self._blocks.append(self.encoder.encode(part))
            for text in part:
                self._rows[text] = len(self._rows)
            self._matrix = None
        if self._matrix is None:
            self._matrix = (
                np.concatenate(self._blocks) if self._blocks else np.zeros((0, self.encoder.dim), np.float32)
            )
            self._blocks = [self._matrix]
        picked: Embeddings = self._matrix[[self._rows[t] for t in texts]]
        return picked


class Store:
    """Prompts with their embeddings, as a growing matrix."""

    def __init__(self, dim: int) -> None:
        self.texts: list[str] = []
        self.labels: list[str | None] = []
        self.exact: dict[str, int] = {}
        self._matrix: Embeddings = np.zeros((1024, dim), np.float32)

    def put(self, text: str, label: str | None, embedding: Embeddings) -> None:
        """Store a prompt; the same text again replaces its label."""
        if len(self.texts) == len(self._matrix):
            self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
        self.exact[text] = len(self.texts)
        self._matrix[len(self.texts)] = embedding
        self.texts.append(text)
        self.labels.append(label)

    def nearest(self, embeddings: Embeddings) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return rows and similarities (n, up to CANDIDATES), best first; ties by order of arrival."""
        similarities = embeddings @ self._matrix[: len(self.texts)].T
        k = min(CANDIDATES, similarities.shape[1])
        rows = (
            np.argpartition(-similarities, k - 1, axis=1)[:, :k]
            if k
            else np.zeros((len(embeddings), 0), np.int64)
        )
        rows = np.sort(rows, axis=1)
        found = np.take_along_axis(similarities, rows, axis=1)
        order = np.argsort(-found, axis=1, kind="stable")
        return np.take_along_axis(rows, order, axis=1), np.take_along_axis(found, order, axis=1)


def evaluate_pairs(
    rows: Sequence[Row], vectors: Vectors, matcher: Matcher, *, all_stored: bool = True
) -> Report:
    """Measure rows each alone, then all stored together (slow on large files; `store_all` is empty without)."""
    texts = [str(r[side]) for r in rows for side in ("a", "b")]
    embeddings = vectors.of(texts)
    similarities = np.einsum("ij,ij->i", embeddings[0::2], embeddings[1::2])
    served: dict[tuple[str, int], int] = defaultdict(int)
    count: dict[tuple[str, int], int] = defaultdict(int)
    refused: dict[str, Counter[str]] = {"same": Counter(), "different": Counter()}
    for row, similarity in zip(rows, similarities, strict=True):
        same = int(row["same"])
        said = matcher.judge(str(row["b"]), str(row["a"]), float(np.clip(similarity, -1.0, 1.0)))
        for group in (
            "all",
            "lang:" + str(row.get("lang", "")),
            "source:" + str(row.get("source", "")),
            "kind:" + _kind(row),
        ):
            count[group, same] += 1
            served[group, same] += said.reason is None
        if said.reason is not None:
            refused["same" if same else "different"][said.reason] += 1

    def figures(group: str) -> Report:
        right, wrong = (served[group, 1], count[group, 1]), (served[group, 0], count[group, 0])
        return {
            "right_kept": _share(*right),
            "wrong_served": _share(*wrong),
            "rows": right[1] + wrong[1],
            "right_kept_interval": wilson(*right),
            "wrong_served_interval": wilson(*wrong),
        }

    def grouped(prefix: str) -> Report:
        names = sorted({group for group, _ in count if group.startswith(prefix)})
        return {name.removeprefix(prefix): figures(name) for name in names}

    whole = figures("all")
    del whole["rows"]
    return whole | {
        "by_kind": grouped("kind:"),
        "by_lang": grouped("lang:"),
        "by_source": grouped("source:"),
        "refusals": {side: dict(c.most_common()) for side, c in refused.items()},
        "store_all": store_all(rows, vectors, matcher) if all_stored else {},
    }


def _kind(row: Row) -> str:
    return str(row.get("kind") or row.get("source") or "all")


def store_all(rows: Sequence[Row], vectors: Vectors, matcher: Matcher) -> Report:
    """Store every a, then look up every b that asks the same; shares of these lookups."""
    asked = [r for r in rows if int(r["same"])]
    stored = sorted({str(r["a"]) for r in rows})
    store = Store(vectors.encoder.dim)
    for text, embedding in zip(stored, vectors.of(stored), strict=True):
        store.put(text, None, embedding)
    fits: dict[str, set[str]] = defaultdict(set)
    for pair in asked:
        fits[str(pair["b"])].add(str(pair["a"]))
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for start in range(0, len(asked), BATCH):
        part = [str(r["b"]) for r in asked[start : start + BATCH]]
        nearest, similarities = store.nearest(vectors.of(part))
        for text, found, similar in zip(part, nearest, similarities, strict=True):
            row: int | None = store.exact.get(text)
            if row is None:
                row = serve(
                    text,
                    list(zip(found.tolist(), similar.tolist(), strict=True)),
                    stored,
                    matcher,
                    reasons,
                    size=len(stored),
                )
            if row is None:
                counts["miss"] += 1
            else:
                counts[
                    "right" if store.texts[row] == text or store.texts[row] in fits[text] else "wrong"
                ] += 1
    shares: Report = {name: _share(counts[name], len(asked)) for name in ("right", "wrong", "miss")}
    return shares | {"rows": len(asked), "misses": dict(reasons.most_common())}


def evaluate_context_pairs(rows: Sequence[Row], vectors: Vectors, matcher: Matcher) -> Report:
    """Count wrong hits between two conversations: side a stored in its context, side b looked up in its own.

    Contexts are part of the scope: only equal ones can meet at all.
    """
    hits = {0: 0, 1: 0}
    count = {0: 0, 1: 0}
    for row in rows:
        same = int(row["same"])
        count[same] += 1
        if row["turns_a"] != row["turns_b"]:
            continue
        stored, asked = str(row["question"]), str(row.get("question_b") or row["question"])
        one, other = vectors.of([stored, asked])
        said = matcher.judge(asked, stored, float(np.clip(one @ other, -1.0, 1.0)))
        hits[same] += stored == asked or said.reason is None
    return {
        "hits": hits[0],
        "rows": count[0],
        "hits_interval": wilson(hits[0], count[0]),
        "same": {"hits": hits[1], "rows": count[1]},
    }


def evaluate_prompts(rows: Sequence[Row], vectors: Vectors, matcher: Matcher) -> Report:
    """Look up each prompt among those before it; they all ask something else, so that each hit is wrong."""
    requests = [Request(str(r["text"]), str(i)) for i, r in enumerate(rows)]
    found = replay(requests, vectors, matcher)
    return {
        "hits": found["hits"],
        "hits_interval": wilson(found["hits"], len(rows)),
        "misses": found["misses"],
        "examples": found["wrong_examples"],
    }


def evaluate_clusters(rows: Sequence[Row], vectors: Vectors, matcher: Matcher) -> Report:
    """Store the first text of each group, then look up the others; groups of one source are compared."""
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    by_source: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_source[str(row.get("source", ""))].append(row)
    asked = 0
    for group in by_source.values():
        store, later, seen = Store(vectors.encoder.dim), [], set()
        for row, embedding in zip(group, vectors.of([str(r["text"]) for r in group]), strict=True):
            if row["intent"] in seen:
                later.append(row)
            else:
                seen.add(row["intent"])
                store.put(str(row["text"]), str(row["intent"]), embedding)
        asked += len(later)
        for start in range(0, len(later), BATCH):
            part = later[start : start + BATCH]
            nearest, similarities = store.nearest(vectors.of([str(r["text"]) for r in part]))
            for row, found, similar in zip(part, nearest, similarities, strict=True):
                near = list(zip(found.tolist(), similar.tolist(), strict=True))
                hit = serve(str(row["text"]), near, store.texts, matcher, reasons, size=len(store.texts))
                counts[
                    "miss" if hit is None else "right" if store.labels[hit] == str(row["intent"]) else "wrong"
                ] += 1
    shares: Report = {name: _share(counts[name], asked) for name in ("right", "wrong", "miss")}
    return shares | {
        "lookups": asked,
        "right_interval": wilson(counts["right"], asked),
        "wrong_interval": wilson(counts["wrong"], asked),
        "misses": dict(reasons.most_common()),
    }


def replay(requests: Sequence[Request], vectors: Vectors, matcher: Matcher) -> Report:
    """Replay requests in order of arrival: look up, on a miss put. Rates are over all requests."""
    scopes = prepare(requests, vectors.encoder, vectors.of)
    found = replay_scopes(scopes, matcher)
    counts = found.counts
    labelled = sum(q.cluster is not None for q in requests)
    rows = len(requests)
    return {
        "hits": counts["hit"],
        "hit_rate": _share(counts["hit"], rows),
        "hit_interval": wilson(counts["hit"], rows),
        "wrong_rate": _share(counts["wrong"], rows) if labelled else None,
        "wrong_interval": wilson(counts["wrong"], rows) if labelled else None,
        "exact_rate": _share(counts["exact"], rows),
        "oracle_rate": _share(counts["oracle"], rows) if labelled == rows else None,
        "misses": dict(found.misses.most_common()),
        "wrong_examples": found.examples,
    }


def summary(report: Mapping[str, Any]) -> str:
    """Write one report as a line for people."""

    def show(value: float | None) -> str:
        return "-" if value is None else f"{value:.4f}"

    head = f"{report['file']} ({report['rows']} rows, {report['encoder']})"
    match report["schema"]:
        case "pairs":
            stored = report["store_all"]
            return (
                f"{head}: right kept {show(report['right_kept'])}, wrong served {show(report['wrong_served'])};"
                f" all stored: right {show(stored['right'])}, wrong {show(stored['wrong'])}"
            )
        case "trace" | "log":
            return (
                f"{head}: hit rate {show(report['hit_rate'])}, wrong {show(report['wrong_rate'])}"
                f" (exact only {show(report['exact_rate'])}, oracle {show(report['oracle_rate'])})"
            )
        case "clusters":
            return f"{head}: right {show(report['right'])}, wrong {show(report['wrong'])}, miss {show(report['miss'])}"
        case _:
            return f"{head}: {report['hits']} wrong hits"
