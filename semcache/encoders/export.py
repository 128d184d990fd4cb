"""Turn a sentence-transformers model into a folder that `OnnxEncoder` reads.

Knows: how to trace the transformer, quantize it to int8, copy the tokenizer, and measure how far
the int8 file is from the float one. Leaves to others: loading the folder (onnx.py), choosing a
threshold for it (int8 moves single cosines, so calibrate on the very file that serves).

The folder holds `model.onnx` (inputs `input_ids`, `attention_mask` and, where the model has
them, `token_type_ids`, each int64 of shape (batch, tokens); output `last_hidden_state`, float32
of shape (batch, tokens, dim)), `tokenizer.json` and `semcache.json`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semcache.errors import ConfigurationError, EncoderError, MissingDependencyError

OPSET = 17
SAMPLE = (
    "How do I reset my password?",
    "I forgot my password, how can I get a new one?",
    "What is the weather in Lisbon tomorrow?",
    "Translate this sentence into French.",
    "Which invoices are still unpaid?",
    "cancel my order from last week",
    "How long does a parcel to Norway take?",
    "Is there a limit on how much I can withdraw per day, and does it differ between weekdays and weekends?",
    "Remind me to call the dentist at 5 pm.",
    "Why is the sky blue?",
    "Summarise the meeting notes in three bullet points.",
    "What does HTTP status 429 mean?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What was written, and how close the written model is to the one it came from.

    Attributes:
        revision: sha256 of `model.onnx`, 64 hex digits.
        dim: Length of an embedding.
        size_bytes: Size of `model.onnx`.
        agreement_min: Least cosine between the written and the float model's embeddings of one text.
        agreement_mean: Mean of these cosines.
    """

    out: Path
    name: str
    revision: str
    dim: int
    pooling: str
    max_length: int
    int8: bool
    size_bytes: int
    agreement_min: float
    agreement_mean: float


def export_encoder(
    model: str,
    out: Path,
    *,
    int8: bool = True,
    max_length: int | None = None,
    name: str | None = None,
    sample: Sequence[str] = SAMPLE,
) -> ExportReport:
    """Write `model.onnx`, `tokenizer.json` and `semcache.json` into a folder.

    Args:
        model: Folder or name of a sentence-transformers model. A name is looked up on this machine
            only; nothing is downloaded.
        out: Folder to write; it is made where it doesn't exist, and the three files are replaced.
        int8: Whether the weights are quantized to int8 (dynamic, per channel).
        max_length: Tokens after which a text is cut; None means the model's own limit.
        name: Name to record; None means the last part of `model`.
        sample: Texts on which the written model is compared with the float one.

    Raises:
        ConfigurationError: The model can't be read, or it pools in a way that isn't supported.
        EncoderError: The written model disagrees with the float one.
        MissingDependencyError: sentence-transformers, onnx or onnxruntime isn't installed.
    """
    if not sample:
        raise ConfigurationError("sample is empty; give at least one text to compare the two models on")
    if max_length is not None and max_length < 4:
        raise ConfigurationError(f"max_length is {max_length}; expected at least 4 tokens")
    loaded = _load(model)
    pooling = _pooling(loaded)
    transformer = loaded[0]
    limit = int(max_length or loaded.max_seq_length or 512)
    loaded.max_seq_length = limit
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        traced = Path(scratch) / "model.onnx"
        inputs = _trace(transformer, traced)
        if int8:
            _quantize(traced, out / "model.onnx")
        else:
            shutil.copyfile(traced, out / "model.onnx")
    _write_tokenizer(transformer.tokenizer, out)
    revision = _sha256(out / "model.onnx")
    recorded = name if name is not None else Path(model).name
    dim = int(loaded.encode(["one"], show_progress_bar=False).shape[1])
    facts = {
        "name": recorded,
        "revision": revision,
        "dim": dim,
        "pooling": pooling,
        "normalise": True,
        "max_length": limit,
        "prefix": "",
    }
    (out / "semcache.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    agreement = _agreement(loaded, out, inputs, pooling, limit, sample)
    report = ExportReport(
        out=out,
        name=recorded,
        revision=revision,
        dim=dim,
        pooling=pooling,
        max_length=limit,
        int8=int8,
        size_bytes=(out / "model.onnx").stat().st_size,
        agreement_min=float(agreement.min()),
        agreement_mean=float(agreement.mean()),
    )
    if report.agreement_min < 0.9:
        raise EncoderError(
            f"the exported model's embedding of one sample text has cosine {report.agreement_min:.3f} with the "
            "float model's; expected at least 0.9. Export with int8=False, or compare on other texts"
        )
    return report


def _load(model: str) -> Any:
    try:
        import onnx  # noqa: F401  (torch.onnx.export and the quantizer need it)
        import onnxruntime  # noqa: F401
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingDependencyError(
            f"exporting an encoder (no module {error.name!r})", extra="st"
        ) from error
    try:
        return SentenceTransformer(model, device="cpu", local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{model!r} can't be read as a sentence-transformers model on this machine ({error}); "
            "give the folder that holds its modules.json"
        ) from error


def _pooling(loaded: Any) -> str:
    pools = [module for module in loaded if type(module).__name__ == "Pooling"]
    others = {type(module).__name__ for module in loaded} - {"Transformer", "Pooling", "Normalize"}
    if len(pools) != 1 or others:
        found = ", ".join(type(module).__name__ for module in loaded)
        raise ConfigurationError(
            f"the model's modules are {found}; expected Transformer, Pooling and, at most, Normalize"
        )
    mode = (
        pools[0].get_pooling_mode_str()
        if hasattr(pools[0], "get_pooling_mode_str")
        else pools[0].pooling_mode
    )
    if mode not in ("mean", "cls"):
        raise ConfigurationError(f"the model pools by {mode!r}; expected 'mean' or 'cls'")
    return str(mode)


def _trace(transformer: Any, path: Path) -> list[str]:
    """Write the float model; return the names of its inputs."""
    import torch

    tokens = transformer.tokenizer(
        ["a short text", "one that is a little longer"], padding=True, return_tensors="pt"
    )
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in tokens]
    body = transformer.auto_model.eval()

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, *values: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.body(**dict(zip(names, values, strict=True))).last_hidden_state
            return hidden

    axes = {name: {0: "batch", 1: "tokens"} for name in [*names, "last_hidden_state"]}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the tracer warns about each shape it reads as a constant
        torch.onnx.export(
            Hidden(),
            tuple(tokens[name] for name in names),
            str(path),
            input_names=names,
            output_names=["last_hidden_state"],
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )
    return names


def _quantize(source: Path, target: Path) -> None:
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # the quantizer advises a pre-processing that changes nothing here
    try:
        quantize_dynamic(str(source), str(target), per_channel=True, weight_type=QuantType.QInt8)
    finally:
        logger.setLevel(level)


def _write_tokenizer(tokenizer: Any, out: Path) -> None:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConfigurationError(
            f"{type(tokenizer).__name__} has no fast form; expected one with a tokenizer.json"
        )
    backend.no_truncation()
    backend.no_padding()
    backend.save(str(out / "tokenizer.json"))


def _agreement(
    loaded: Any, out: Path, inputs: Sequence[str], pooling: str, limit: int, sample: Sequence[str]
) -> NDArray[np.float64]:
    """Cosine of the written and the float model's embedding, one for each sample text."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(out / "model.onnx"), providers=["CPUExecutionProvider"])
    cosines = []
    expected = np.asarray(loaded.encode(list(sample), normalize_embeddings=True, show_progress_bar=False))
    for text, wanted in zip(sample, expected, strict=True):
        tokens = loaded[0].tokenizer([text], truncation=True, max_length=limit, return_tensors="np")
        fed = {name: tokens[name].astype(np.int64) for name in inputs}
        hidden = session.run(None, fed)[0][0]  # (tokens, dim)
        row = hidden[0] if pooling == "cls" else hidden.mean(axis=0)
        cosines.append(float(row @ wanted / np.linalg.norm(row)))
    return np.array(cosines)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _main(argv: Sequence[str] | None = None) -> None:
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m semcache.encoders.export", description=export_encoder.__doc__
    )
    parser.add_argument("model", help="folder of a sentence-transformers model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--float", action="store_true", help="keep float32 weights")
    parser.add_argument("--max-length", type=int, default=None)
    parser.add_argument("--name", default=None)
    args = parser.parse_args(argv)
    report = export_encoder(
        args.model, args.out, int8=not args.float, max_length=args.max_length, name=args.name
    )
    for key, value in asdict(report).items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    _main()
