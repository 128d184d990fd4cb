"""A shipped calibration is found for the encoders it was made for, however they are loaded, and for no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from semcache.encoders.bundled import BundledEncoder
from semcache.encoders.onnx import OnnxEncoder
from semcache.encoders.sentence_transformers import SentenceTransformerEncoder
from semcache.matching import default_matcher
from semcache.policy import Policy
from semcache.verify import CalibratedMatcher, calibration_for
from tests.encoder_models import NEEDS_EXPORT, NEEDS_MINILM, QUIET, exported_folder, minilm_folder

pytestmark = QUIET
MINILM = "all-minilm-l6-v2"


def test_the_bundled_encoder_is_calibrated() -> None:
    assert calibration_for(BundledEncoder().fingerprint).fingerprint == "use-multilingual-3"


@NEEDS_MINILM
def test_minilm_from_its_package_is_calibrated() -> None:
    encoder = SentenceTransformerEncoder(minilm_folder())
    matcher = default_matcher(encoder.fingerprint, Policy())

    assert isinstance(matcher, CalibratedMatcher)
    assert (matcher.calibration.fingerprint, matcher.calibration.calibrated) == (MINILM, True)


@NEEDS_EXPORT
def test_minilm_exported_to_onnx_is_calibrated() -> None:
    found = calibration_for(OnnxEncoder(exported_folder()).fingerprint)

    assert (found.fingerprint, found.calibrated) == (MINILM, True)


@NEEDS_MINILM
def test_other_weights_under_the_same_name_are_not_taken_for_it(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    copy = Path(shutil.copytree(minilm_folder(), tmp_path / "all-MiniLM-L6-v2"))
    weights = safetensors.load_file(copy / "model.safetensors")
    name = next(n for n in weights if n.endswith("query.weight"))
    safetensors.save_file(
        weights | {name: weights[name] * 1.5}, copy / "model.safetensors", metadata={"format": "pt"}
    )

    assert not calibration_for(SentenceTransformerEncoder(copy).fingerprint).calibrated


@NEEDS_MINILM
def test_minilm_with_a_prefix_is_another_encoder() -> None:
    encoder = SentenceTransformerEncoder(minilm_folder(), prefix="query: ")

    assert not calibration_for(encoder.fingerprint).calibrated


@pytest.mark.parametrize(
    "fingerprint",
    [
        "",
        "paraphrase-minilm-l6-v2-1-384-l2",
        "all-minilm-l12-v2-1-384-l2",
        "all-minilm-l6-v2x-1-384-l2",
        "multi-qa-minilm-l6-cos-v1",
        "use-multilingual-large-3-512",
        "use-multilingual-30-1-512-l2",
        "text-embedding-3-small",
    ],
)
def test_a_like_name_is_not_enough(fingerprint: str) -> None:
    found = calibration_for(fingerprint)

    assert not found.calibrated
    assert all(family.threshold >= 0.95 for family in found.families.values())


@pytest.mark.parametrize("fingerprint", [MINILM, f"{MINILM}-abc-384-l2", "use-multilingual-3-0.2.1-512-l2"])
def test_a_release_of_the_same_encoder_is_calibrated(fingerprint: str) -> None:
    assert calibration_for(fingerprint).calibrated
