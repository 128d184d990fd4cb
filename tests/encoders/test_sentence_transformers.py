"""SentenceTransformerEncoder on the real all-MiniLM-L6-v2, without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from semcache.encoders import EncoderThread, SentenceTransformerEncoder
from semcache.errors import ConfigurationError, EncoderError, MissingDependencyError
from semcache.protocols import TextLimits
from tests.encoder_models import NEEDS_MINILM, QUIET, minilm_folder

pytestmark = [*QUIET, NEEDS_MINILM, pytest.mark.slow]

PARAPHRASES = ["How do I reset my password?", "I forgot my password, how can I reset it?"]


@pytest.fixture(scope="module")
def encoder() -> SentenceTransformerEncoder:
    return SentenceTransformerEncoder(minilm_folder())


@pytest.fixture(scope="module")
def whole() -> SentenceTransformerEncoder:
    """The model with all of its window."""
    return SentenceTransformerEncoder(minilm_folder(), max_tokens=None)


def test_its_rows_are_the_librarys_own(encoder: SentenceTransformerEncoder) -> None:
    from sentence_transformers import SentenceTransformer

    wanted = SentenceTransformer(str(minilm_folder()), device="cpu").encode(
        PARAPHRASES, normalize_embeddings=True, show_progress_bar=False
    )

    assert np.abs(encoder.encode(PARAPHRASES) - wanted).max() < 1e-5


def test_the_weights_tell_whose_they_are_whatever_the_folder_is_called(
    encoder: SentenceTransformerEncoder,
) -> None:
    assert minilm_folder().name == "model"
    assert encoder.fingerprint.startswith("all-minilm-l6-v2-")
    assert encoder.fingerprint.endswith("-384-l2")


def test_a_copy_of_a_model_has_its_fingerprint_and_a_changed_one_another(
    encoder: SentenceTransformerEncoder, tmp_path: Path
) -> None:
    copy = shutil.copytree(minilm_folder(), tmp_path / "copy")
    same = SentenceTransformerEncoder(copy).fingerprint
    config = copy / "sentence_bert_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "max_seq_length": 128}))
    changed = SentenceTransformerEncoder(str(copy), max_tokens=None)

    assert same == encoder.fingerprint
    assert changed.fingerprint != encoder.fingerprint
    assert changed.inspect(["a " * 127])[0].over_window


def test_the_window_counts_the_marks(whole: SentenceTransformerEncoder) -> None:
    below, at, beyond = whole.inspect(["a " * 253, "a " * 254, "a " * 255])

    assert not below.over_window
    assert not at.over_window  # 254 and two marks: 256
    assert beyond.over_window


def test_a_text_that_it_reads_but_does_not_tell_apart_counts_as_over_the_window(
    encoder: SentenceTransformerEncoder, whole: SentenceTransformerEncoder
) -> None:
    rest = "I bought running shoes in your shop last month, and the left sole came off after ten days. " * 4
    ends = ["How is cheese made?", "Which vaccines do I need for Kenya?"]
    bare, long = whole.encode(ends), whole.encode([rest + end for end in ends])

    assert long[0] @ long[1] > bare[0] @ bare[1] + 0.5
    assert [limits.over_window for limits in encoder.inspect([rest + ends[0], "a " * 65, "a " * 64])] == [
        True,
        True,
        False,
    ]


def test_two_texts_that_are_equal_up_to_the_window_are_not_taken_for_the_same(
    encoder: SentenceTransformerEncoder,
) -> None:
    one, two = ("the same preamble " * 100 + end for end in ("please open it", "please close it"))

    assert [limits.over_window for limits in encoder.inspect([one, two])] == [True, True]
    assert not encoder.encode([one, two]).any()


def test_chinese_is_reported_as_unknown_because_its_embeddings_are_one(
    encoder: SentenceTransformerEncoder,
) -> None:
    """Both texts are [UNK] from end to end: the model itself gives them a cosine of 1."""
    limits = encoder.inspect(["报销流程是什么", "请假流程是什么", "how is 报 written?"])

    assert [limit.unknown_share for limit in limits[:2]] == [1.0, 1.0]
    assert 0.0 < limits[2].unknown_share < 0.5


def test_a_prefix_is_encoded_counted_and_told_apart() -> None:
    plain = SentenceTransformerEncoder(minilm_folder())
    prefixed = SentenceTransformerEncoder(minilm_folder(), prefix="query: ", max_tokens=None)

    assert prefixed.fingerprint != plain.fingerprint
    assert prefixed.encode(["a cat"])[0] @ plain.encode(["query: a cat"])[0] == pytest.approx(1.0, abs=1e-4)
    assert prefixed.inspect(["a " * 254])[0].over_window
    assert not prefixed.encode([""]).any()
    assert prefixed.inspect(["囧"])[0].unknown_share == 1.0


def test_a_models_own_default_prompt_is_used_unless_a_prefix_is_given(tmp_path: Path) -> None:
    copy = shutil.copytree(minilm_folder(), tmp_path / "prompted")
    config = copy / "config_sentence_transformers.json"
    settings = {**json.loads(config.read_text()), "prompts": {"ask": "query: "}, "default_prompt_name": "ask"}
    config.write_text(json.dumps(settings))
    wanted = SentenceTransformerEncoder(minilm_folder(), prefix="query: ").encode(["a cat"])[0]

    own = SentenceTransformerEncoder(copy, max_tokens=None)

    assert own.encode(["a cat"])[0] @ wanted == pytest.approx(1.0, abs=1e-4)
    assert own.inspect(["a " * 254])[0].over_window


def test_a_static_model_is_an_encoder_too(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu").save(
        str(tmp_path / "static")
    )
    encoder = SentenceTransformerEncoder(tmp_path / "static", max_tokens=None)

    assert np.linalg.norm(encoder.encode(PARAPHRASES), axis=1) == pytest.approx(1.0, abs=1e-5)
    assert encoder.inspect(["报销流程是什么"])[0].unknown_share == 1.0
    assert encoder.inspect(["a " * 128, "a " * 129]) == [  # where its tokenizer.json cuts
        TextLimits(over_window=False, unknown_share=0.0),
        TextLimits(over_window=True, unknown_share=0.0),
    ]
    assert encoder.fingerprint.startswith("static-")


def test_a_name_is_found_in_the_hubs_cache_without_a_network(tmp_path: Path) -> None:
    commit = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
    repository = tmp_path / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    shutil.copytree(minilm_folder(), repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    code = (
        "from semcache.encoders import SentenceTransformerEncoder\n"
        "for name in ('all-MiniLM-L6-v2', 'sentence-transformers/all-MiniLM-L6-v2'):\n"
        "    encoder = SentenceTransformerEncoder(name)\n"
        "    assert encoder.encode(['a cat']).any()\n"
        f"    assert encoder.fingerprint == 'all-minilm-l6-v2-{commit[:12]}-384-l2', encoder.fingerprint\n"
    )
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
        "HF_HUB_CACHE": str(tmp_path / "hub"),
    }

    subprocess.run([sys.executable, "-c", code], check=True, timeout=280, env=environment)


def test_a_model_that_is_not_there_is_an_encoder_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(EncoderError, match=r"modules\.json"):
        SentenceTransformerEncoder("no-such-model-anywhere").encode(["a"])
    with pytest.raises(EncoderError, match=r"modules\.json"):
        SentenceTransformerEncoder(tmp_path / "empty").encode(["a"])
    with pytest.raises(ConfigurationError, match="max_tokens is 0"):
        SentenceTransformerEncoder("any", max_tokens=0)
    with pytest.raises(ConfigurationError, match="expected a folder"):
        SentenceTransformerEncoder(tmp_path / "nowhere")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)

    with pytest.raises(MissingDependencyError, match=r"llm-semcache\[st\]") as caught:
        SentenceTransformerEncoder("all-MiniLM-L6-v2")
    assert caught.value.extra == "st"


def test_torch_has_one_thread_in_the_encoder_thread() -> None:
    import torch

    counts: list[int] = []

    class Looking(SentenceTransformerEncoder):
        def encode(self, texts):  # type: ignore[no-untyped-def]
            counts.append(torch.get_num_threads())
            return super().encode(texts)

    before = torch.get_num_threads()
    with EncoderThread(Looking(minilm_folder())) as thread:
        thread.encode_now(["a", "b"])
        thread.encode_now(["c"])

    assert counts == [1, 1]
    assert torch.get_num_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_model_that_was_loaded_or_half_loaded_at_a_fork_works_in_the_child() -> None:
    code = (
        "import os, sys\n"
        "from semcache.encoders import EncoderThread, SentenceTransformerEncoder\n"
        "thread = EncoderThread(SentenceTransformerEncoder(sys.argv[1]))\n"
        "first = thread.submit('a cat')\n"  # the model is being loaded at the first fork
        "for _ in range(2):\n"
        "    pid = os.fork()\n"
        "    wanted = first.result(250).embedding\n"
        "    if pid == 0:\n"
        "        (found,) = thread.encode_now(['a cat'], timeout=250)\n"
        "        os._exit(0 if found.embedding @ wanted > 0.999 else 2)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
        "assert thread.encode_now(['a cat'], timeout=250)[0].embedding @ wanted > 0.999\n"
    )

    subprocess.run([sys.executable, "-c", code, str(minilm_folder())], check=True, timeout=280)
