"""Evaluation counts what it says it counts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from semcache import cli_evaluate
from semcache.errors import ConfigurationError
from semcache.evaluate import evaluate_files, wilson
from semcache.evaluate_rows import Request, request_of, schema_of
from semcache.testing import TableEncoder
from semcache.tune import tune
from semcache.verify import CalibratedMatcher, ThresholdMatcher, calibration_for

ENCODER = TableEncoder(
    {
        "how do I reset my password": [1, 0, 0],
        "how can I reset my password": [0.99, 0.14, 0],
        "how do I reset my router": [0.9, 0.43, 0],
        "what is the weather": [0, 1, 0],
        "tell me the weather": [0, 0.96, 0.28],
    }
)
RESET, RESET_TOO, ROUTER, WEATHER, WEATHER_TOO = (
    "how do I reset my password",
    "how can I reset my password",
    "how do I reset my router",
    "what is the weather",
    "tell me the weather",
)


def written(folder: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl.gz") -> Path:
    path = folder / name
    text = "\n".join(json.dumps(row) for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    return path


def measured(path: Path, threshold: float) -> dict[str, Any]:
    (report,) = evaluate_files([path], ENCODER, ThresholdMatcher(threshold))
    return report


PAIRS = [
    {"a": RESET, "b": RESET_TOO, "same": 1, "lang": "en", "source": "s", "kind": "verb"},
    {"a": RESET, "b": ROUTER, "same": 0, "lang": "en", "source": "s", "kind": "object"},
    {"a": WEATHER, "b": WEATHER_TOO, "same": 1, "lang": "en", "source": "s", "kind": "verb"},
]


def test_pairs_are_judged_each_alone_and_by_kind(tmp_path: Path) -> None:
    report = measured(written(tmp_path, PAIRS), 0.95)

    assert report["right_kept"] == 1.0
    assert report["wrong_served"] == 0.0
    assert report["by_kind"]["object"]["rows"] == 1
    assert report["by_kind"]["verb"]["right_kept"] == 1.0
    assert measured(written(tmp_path, PAIRS), 0.8)["wrong_served"] == 1.0


def test_store_all_serves_from_every_stored_prompt(tmp_path: Path) -> None:
    rows = [*PAIRS, {"a": RESET_TOO, "b": ROUTER, "same": 1, "lang": "en", "source": "s"}]

    stored = measured(written(tmp_path, rows), 0.8)["store_all"]

    assert stored["right"] == 1.0  # an equal text counts as right, so does the own one
    assert stored["rows"] == 3


def test_a_trace_counts_hits_wrong_hits_and_both_bounds(tmp_path: Path) -> None:
    texts = [(RESET, "p"), (RESET, "p"), (ROUTER, "r"), (RESET_TOO, "p"), (WEATHER, "w"), (WEATHER_TOO, "w")]
    rows = [
        {"i": i, "text": t, "cluster": c, "first": False, "exact_repeat": False}
        for i, (t, c) in enumerate(texts)
    ]

    report = measured(written(tmp_path, rows), 0.85)

    assert report["hits"] == 4
    assert report["wrong_rate"] == pytest.approx(1 / 6)
    assert report["exact_rate"] == pytest.approx(1 / 6)
    assert report["oracle_rate"] == pytest.approx(3 / 6)
    assert report["wrong_examples"] == [(ROUTER, RESET)]


def test_prompts_that_all_differ_make_each_hit_wrong(tmp_path: Path) -> None:
    rows = [{"text": t, "topic": "x"} for t in (RESET, RESET_TOO, WEATHER)]

    assert measured(written(tmp_path, rows), 0.95)["hits"] == 1
    assert measured(written(tmp_path, rows), 0.999)["hits"] == 0


def test_another_context_never_hits(tmp_path: Path) -> None:
    row = {"question": RESET, "turns_a": ["hi"], "turns_b": ["hello"], "same": 0}

    report = measured(written(tmp_path, [row, row | {"turns_b": ["hi"]}]), 0.9)

    assert (report["hits"], report["rows"]) == (1, 2)


def test_clusters_look_up_all_but_the_first_text(tmp_path: Path) -> None:
    rows = [
        {"text": t, "intent": i, "source": "s"} for t, i in ((RESET, "p"), (WEATHER, "w"), (RESET_TOO, "p"))
    ]

    report = measured(written(tmp_path, rows), 0.95)

    assert (report["right"], report["wrong"], report["lookups"]) == (1.0, 0.0, 1)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "hi", "response": "hello"},
        {
            "inputs": {
                "messages": [[{"id": ["HumanMessage"], "kwargs": {"type": "human", "content": "hi"}}]]
            },
            "run_type": "llm",
        },
        {
            "type": "GENERATION",
            "input": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
        },
        {"body": {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}},
        {"request": {"body": {"model": "m", "input": "hi"}}},
    ],
    ids=["own", "langsmith", "langfuse", "openai-batch", "openai-responses"],
)
def test_logs_of_many_makers_are_read(row: dict[str, Any]) -> None:
    request = request_of(row)

    assert schema_of([row]) == "log"
    assert isinstance(request, Request)
    assert request.text == "hi"


def test_an_unlabelled_log_has_no_wrong_rate(tmp_path: Path) -> None:
    rows = [{"prompt": t, "response": "x"} for t in (RESET, RESET_TOO, RESET)]

    report = measured(written(tmp_path, rows, "log.jsonl"), 0.95)

    assert report["hits"] == 2
    assert report["wrong_rate"] is None


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"x": 1}'])
def test_a_file_that_is_nothing_known_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigurationError):
        evaluate_files([path], ENCODER, ThresholdMatcher(0.9))


def test_wilson_brackets_the_share_and_stays_in_range() -> None:
    low, high = wilson(0, 20) or (1.0, 0.0)
    inner = wilson(10, 20) or (1.0, 0.0)

    assert low == 0.0
    assert 0.1 < high < 0.2
    assert inner[0] < 0.5 < inner[1]
    assert wilson(0, 0) is None


def test_tuning_keeps_wrong_hits_under_its_bound(tmp_path: Path) -> None:
    topics = [
        f"{w} {v}"
        for w in ("kitchen", "garden", "school", "office")
        for v in ("lamp", "table", "window", "door")
    ]
    table: dict[str, list[float]] = {}
    rows = []
    for n, topic in enumerate(topics * 5):
        a, right, wrong = (
            f"buying a {topic} {n}",
            f"purchase of some {topic} {n}",
            f"why people fear a {topic} {n} so often",
        )
        table |= {a: [1, 0], right: [0.9, 0.44], wrong: [0.75, 0.66]}
        rows += [{"a": a, "b": right, "same": 1}, {"a": a, "b": wrong, "same": 0}]
    encoder = TableEncoder(table)
    path = written(tmp_path, rows)

    calibration = tune([path], encoder, most_wrong=0.01)
    (report,) = evaluate_files([path], encoder, CalibratedMatcher(calibration))

    assert calibration.calibrated
    assert report["wrong_served"] <= 0.01
    assert report["right_kept"] > 0.9
    assert calibration.families["zh"] == calibration_for(encoder.fingerprint).families["cjk"]


def test_the_commands_print_json_and_write_a_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = typer.Typer()
    cli_evaluate.register(app)
    path = written(tmp_path, PAIRS)

    shown = CliRunner().invoke(app, ["evaluate", str(path), "--json", "--threshold-only", "0.9"])
    out = tmp_path / "mine.json"
    tuned = CliRunner().invoke(app, ["tune", str(path), "--out", str(out)])
    again = CliRunner().invoke(app, ["evaluate", str(path), "--calibration", str(out)])

    report = json.loads(shown.stdout)
    assert shown.exit_code == tuned.exit_code == again.exit_code == 0
    assert {"file", "rows", "encoder", "right_kept", "wrong_served", "by_kind", "store_all"} <= report.keys()
    assert "right_kept" in report["threshold_only"]
    assert "right kept" in again.stdout
