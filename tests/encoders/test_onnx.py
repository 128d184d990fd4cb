"""OnnxEncoder on a real export of all-MiniLM-L6-v2, and on folders that are wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcache.encoders import OnnxEncoder, SentenceTransformerEncoder
from semcache.errors import ConfigurationError, EncoderError, MissingDependencyError
from tests.encoder_models import NEEDS_EXPORT, QUIET, exported_folder, minilm_folder

pytestmark = [*QUIET, NEEDS_EXPORT, pytest.mark.slow]

TEXTS = [
    "How do I reset my password?",
    "I forgot my password, how can I reset it?",
    "Which vaccines do I need for Kenya?",
    "why is the sky blue",
    "Cancel my order from last week, please, it has not been sent yet and I found a cheaper one elsewhere.",
]


@pytest.fixture(scope="module")
def encoder() -> OnnxEncoder:
    return OnnxEncoder(exported_folder())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(exported_folder(), tmp_path / "folder")


def change(folder: Path, **facts: Any) -> None:
    path = folder / "semcache.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def test_int8_rows_agree_with_the_float_models(encoder: OnnxEncoder) -> None:
    wanted = SentenceTransformerEncoder(minilm_folder()).encode(TEXTS)

    assert (encoder.encode(TEXTS) * wanted).sum(axis=1).min() >= 0.97


def test_a_texts_row_does_not_depend_on_its_neighbours(encoder: OnnxEncoder) -> None:
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])

    assert np.array_equal(alone, encoder.encode(TEXTS))


def test_it_names_itself_without_loading_the_model() -> None:
    encoder = OnnxEncoder(exported_folder())
    revision = json.loads((exported_folder() / "semcache.json").read_text())["revision"]

    assert encoder.fingerprint == f"all-minilm-l6-v2-{revision[:12]}-384-l2"
    assert encoder.dim == 384
    assert encoder._loaded is None


def test_its_limits_are_those_of_the_model_it_came_from(encoder: OnnxEncoder) -> None:
    texts = [
        "",
        "a " * 64,
        "a " * 65,
        "a " * 254,
        "a " * 255,
        "报销流程是什么",
        "how is 报 written?",
        "word " * 5000,
    ]
    whole = OnnxEncoder(exported_folder(), max_tokens=None)

    assert encoder.inspect(texts) == SentenceTransformerEncoder(minilm_folder()).inspect(texts)
    assert whole.inspect(texts) == SentenceTransformerEncoder(minilm_folder(), max_tokens=None).inspect(texts)
    assert [limits.over_window for limits in whole.inspect(texts)[:5]] == [False, False, False, False, True]
    assert [limits.over_window for limits in encoder.inspect(texts)[:5]] == [False, False, True, True, True]


def test_a_prefix_is_encoded_counted_and_told_apart(folder: Path, encoder: OnnxEncoder) -> None:
    change(folder, prefix="query: ")
    prefixed = OnnxEncoder(folder, max_tokens=None)

    assert prefixed.fingerprint != encoder.fingerprint
    assert prefixed.encode(["a cat"])[0] @ encoder.encode(["query: a cat"])[0] == pytest.approx(1.0, abs=1e-5)
    assert prefixed.inspect(["a " * 254])[0].over_window
    assert not prefixed.encode([""]).any()


def test_pooling_by_the_first_token_is_another_row(folder: Path, encoder: OnnxEncoder) -> None:
    change(folder, pooling="cls")

    assert OnnxEncoder(folder).encode(TEXTS[:1])[0] @ encoder.encode(TEXTS[:1])[0] < 0.999


def test_many_threads_get_the_rows_of_one(encoder: OnnxEncoder) -> None:
    wanted = encoder.encode(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for rows in pool.map(lambda _: encoder.encode(TEXTS), range(12)):
            assert np.array_equal(rows, wanted)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_model_loaded_before_a_fork_works_in_the_child() -> None:
    code = (
        "import os, sys, threading\n"
        "from semcache.encoders import OnnxEncoder\n"
        "encoder = OnnxEncoder(sys.argv[1])\n"
        "wanted = encoder.encode(['a cat'])[0]\n"
        "def use():\n"
        "    while True: encoder.encode(['busy ' * 50])\n"
        "threading.Thread(target=use, daemon=True).start()\n"
        "for _ in range(4):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        os._exit(0 if encoder.encode(['a cat'])[0] @ wanted > 0.999 else 2)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
        "os._exit(0)\n"
    )

    subprocess.run([sys.executable, "-c", code, str(exported_folder())], check=True, timeout=120)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "semcache.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()

    with pytest.raises(ConfigurationError, match=f"no {name}"):
        OnnxEncoder(folder)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"dim": "384"}, "dim is '384', expected int"),
        ({"dim": 0}, "dim is 0"),
        ({"dim": True}, "dim is True"),
        ({"max_length": 2}, "max_length 2"),
        ({"pooling": "max"}, "pooling is 'max'"),
        ({"normalise": False}, "normalise isn't true"),
        ({"prefix": None}, "prefix is None"),
    ],
    ids=str,
)
def test_a_wrong_fact_is_refused(folder: Path, facts: dict[str, Any], said: str) -> None:
    change(folder, **facts)

    with pytest.raises(ConfigurationError, match=said):
        OnnxEncoder(folder)


def test_a_limit_out_of_range_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="max_tokens is 0"):
        OnnxEncoder(folder, max_tokens=0)


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense"])
def test_facts_that_are_none_are_refused(folder: Path, text: str) -> None:
    (folder / "semcache.json").write_text(text)

    with pytest.raises(ConfigurationError, match="can't be read"):
        OnnxEncoder(folder)


def test_a_replaced_or_damaged_model_is_refused(folder: Path) -> None:
    """Else embeddings of two models would share one fingerprint."""
    model = folder / "model.onnx"
    model.write_bytes(model.read_bytes()[:-100] + bytes(100))

    with pytest.raises(EncoderError, match="sha256"):
        OnnxEncoder(folder).encode(["a"])


def test_bytes_that_are_no_model_are_an_encoder_error(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"nonsense")
    change(folder, revision="mine")

    with pytest.raises(EncoderError, match="can't be loaded"):
        OnnxEncoder(folder).encode(["a"])


def test_a_model_of_another_dim_is_an_encoder_error(folder: Path) -> None:
    change(folder, dim=128)

    with pytest.raises(EncoderError, match="384"):
        OnnxEncoder(folder).encode(["a"])


@pytest.mark.parametrize("module", ["onnxruntime", "tokenizers"])
def test_without_the_libraries_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingDependencyError, match=r"llm-semcache\[onnx\]") as caught:
        OnnxEncoder("anywhere")
    assert caught.value.extra == "onnx"
