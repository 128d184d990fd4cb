"""The encoder benchmarks run, and print what they promise."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.encoder_models import NEEDS_EXPORT, QUIET, exported_folder

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: str, **environment: str) -> str:
    """Run a benchmark from this checkout and return what it printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@NEEDS_EXPORT
@pytest.mark.filterwarnings(*(mark.args[0] for mark in QUIET))
def test_the_encoders_are_compared_in_one_run() -> None:
    found = json.loads(run("bench_encoder.py", "--prompts", "20", "--onnx", str(exported_folder()), "--json"))
    rows = {row["encoder"]: row for row in found["rows"]}

    assert set(rows) == {"sentence-transformers", "default", "bundled", "onnx int8"}
    assert rows["sentence-transformers"]["faster"] == pytest.approx(1.0)
    assert rows["bundled"]["faster"] > 1.0
    assert rows["onnx int8"]["faster"] > 1.0
    assert all(0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] for row in rows.values())
    assert found["threads"] == 1
    assert found["prompts"] == 20


def test_a_longer_text_hides_its_last_sentence_better(tmp_path: Path) -> None:
    cities = ["Paris", "Oslo", "Kyoto", "Lima", "Cairo", "Perth", "Quito", "Turin", "Leeds", "Bergen"]
    rows = {
        "pairs_qqp": [
            {"a": f"What is {city} known for?", "b": f"What makes {city} famous?", "same": 1, "source": "qqp"}
            for city in cities
        ],
        "pairs_zh": [
            {"a": f"{number}号房间怎么走", "b": f"怎么去{number}号房间", "same": 1, "source": "lcqmc"}
            for number in range(10)
        ],
    }
    for name, pairs in rows.items():
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(pair) + "\n" for pair in pairs)

    found = json.loads(run("encoder_length.py", "--texts", "5", "--json", SEMCACHE_DATA=str(tmp_path)))
    english = [row for row in found["rows"] if row["language"] == "en" and row["kind"] != "paraphrase"]

    assert found["encoder"].startswith("use-multilingual-3-")
    assert len(english) == 13
    assert english[0]["cosine_p50"] < english[6]["cosine_p50"] < english[-1]["cosine_p50"]
    assert english[0]["tokens_p50"] < english[-1]["tokens_p50"]


def test_without_data_it_says_where_it_looked(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "encoder_length.py")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SEMCACHE_DATA": str(tmp_path / "nowhere")},
    )

    assert done.returncode == 1
    assert "set SEMCACHE_DATA" in done.stderr
