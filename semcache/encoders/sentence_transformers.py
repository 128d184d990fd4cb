"""Any sentence-transformers model as an encoder; needs the extra ``st``.

Knows how to load a model by name or from a folder, what its window is, what makes two models
differ, and how to count what its tokenizer doesn't know. Nothing is loaded before the first use.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from semcache.encoders.texts import (
    CHARS_PER_TOKEN,
    MAX_TOKENS,
    check_count,
    checked_texts,
    fingerprint,
    has_meaning,
    unit_rows,
)
from semcache.errors import ConfigurationError, EncoderError, MissingDependencyError
from semcache.protocols import TextLimits
from semcache.types import Embeddings

_DECIDES = {".safetensors", ".bin", ".json", ".txt", ".model", ".py"}  # files that decide an embedding
_OTHER_RUNTIMES = {"onnx", "openvino"}  # folders that hold the model once more, for others
_NO_WINDOW = 512  # tokens; for a model that reads everything and averages it
# A folder may be called anything, so the weights tell whose they are: sha256 of model.safetensors.
_KNOWN = {"53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db": "all-minilm-l6-v2"}


class SentenceTransformerEncoder:
    """A sentence-transformers model.

    Args:
        model: Folder of a model, or its name on the Hugging Face hub. A name is looked up in the local
            cache of the hub, and is downloaded only if it isn't there and HF_HUB_OFFLINE isn't set.
        prefix: Put before each text, e.g. ``query: ``; empty means the model's own default prompt.
        max_tokens: Longest text that is told apart, in tokens without marks and prefix; a longer one counts
            as over the window. The default was measured for all-MiniLM-L6-v2, where two texts of 69
            tokens that differ in their last sentence have a median cosine of .898, and two true
            paraphrases .889 (`benchmarks/encoder_length.py`). None means the model's window alone.
        device: ``cpu``, ``cuda:0`` …; None lets torch choose.
        trust_remote_code: Whether code that comes with the model may run.

    Raises:
        MissingDependencyError: sentence-transformers isn't installed.
        ConfigurationError: `model` is empty, or a path that isn't a folder.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        prefix: str = "",
        max_tokens: int | None = MAX_TOKENS,
        device: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        if importlib.util.find_spec("sentence_transformers") is None:
            raise MissingDependencyError("SentenceTransformerEncoder", extra="st")
        if not str(model) or (isinstance(model, Path) and not model.is_dir()):
            raise ConfigurationError(f"model is {str(model)!r}, expected a folder or a name on the hub")
        if max_tokens is not None:
            check_count("max_tokens", max_tokens)
        self._name = str(model)
        self._max_tokens = max_tokens
        self._prefix = prefix
        self._device = device
        self._trust_remote_code = trust_remote_code
        self._fingerprint: str | None = None
        self._loaded: _Loaded | None = None

    @property
    def fingerprint(self) -> str:
        """Name, revision, dim, normalisation and prefix; loads the model.

        The revision is the hub's commit for a name, and a digest of the files for a folder.
        """
        if self._fingerprint is None:
            dim = self.dim
            name, revision = _identity(self._name)
            prefix = hashlib.sha256(self._prefix.encode()).hexdigest()[:8] if self._prefix else ""
            self._fingerprint = fingerprint(name, revision, str(dim), "l2", prefix)
        return self._fingerprint

    @property
    def dim(self) -> int:
        """Length of an embedding; loads the model."""
        return self._model().dim

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts; see `Encoder.encode`. A text over the window is not cut but has a row of zeros."""
        texts = checked_texts(texts)
        model = self._model()
        embeddings = np.zeros((len(texts), model.dim), dtype=np.float32)
        rows = [row for row, limits in enumerate(self.inspect(texts)) if has_meaning(limits)]
        if rows:
            embeddings[rows] = unit_rows(model.encode([texts[row] for row in rows]))
        return embeddings

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Count tokens against `max_tokens` and the window, and those that are unknown."""
        return [self._model().inspect(text, self._max_tokens) for text in checked_texts(texts)]

    def _model(self) -> _Loaded:
        if self._loaded is None:
            self._loaded = _Loaded(self._name, self._prefix, self._device, self._trust_remote_code)
        return self._loaded


class _Loaded:
    """A model in memory."""

    def __init__(self, name: str, prefix: str, device: str | None, trust_remote_code: bool) -> None:
        from sentence_transformers import SentenceTransformer

        try:
            model: Any = SentenceTransformer(name, device=device, trust_remote_code=trust_remote_code)
        except (OSError, ValueError) as error:
            raise EncoderError(
                f"{name!r} can't be loaded as a sentence-transformers model: {error}; give a folder with a "
                "modules.json in it, or the name of a model on the hub"
            ) from error
        self._model = model
        own = self._model.prompts.get(self._model.default_prompt_name or "")
        self._prompt: str = prefix or own or ""
        self._tokenizer: Any = self._model.tokenizer
        self._window = _window(self._model)
        if not callable(self._tokenizer):
            self._tokenizer.no_truncation()  # a static model's: it would hide how long a text is
        self._unknown = _unknown_id(self._tokenizer)
        self._marks = self._tokenizer.num_special_tokens_to_add() if callable(self._tokenizer) else 0
        self._prompt_tokens = len(self._ids(self._prompt))
        self.dim: int = self.encode(["one"]).shape[1]

    def encode(self, texts: list[str]) -> Embeddings:
        rows = self._model.encode(
            texts, prompt=self._prompt or None, batch_size=len(texts), show_progress_bar=False
        )
        return np.asarray(rows, dtype=np.float32)

    def inspect(self, text: str, max_tokens: int | None) -> TextLimits:
        text = text.strip()
        most = self._window if max_tokens is None else min(max_tokens, self._window)
        cut = text[: most * CHARS_PER_TOKEN]
        ids = self._ids(self._prompt + cut)
        own = max(len(ids) - self._prompt_tokens, 0)
        unknown = 0 if self._unknown is None else ids.count(self._unknown)
        return TextLimits(
            over_window=len(text) > len(cut) or own > most or len(ids) + self._marks > self._window,
            unknown_share=min(unknown / own, 1.0) if own else 1.0,
        )

    def _ids(self, text: str) -> list[int]:
        if callable(self._tokenizer):
            found = self._tokenizer(text, add_special_tokens=False, truncation=False, verbose=False)
            return list(found["input_ids"])
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _unknown_id(tokenizer: Any) -> int | None:
    if callable(tokenizer):
        return getattr(tokenizer, "unk_token_id", None)
    token = getattr(tokenizer.model, "unk_token", None)
    return None if token is None else tokenizer.token_to_id(token)


def _window(model: Any) -> int:
    """Return the most tokens that the model reads, marks included."""
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    limits = (
        model.max_seq_length,
        (getattr(model.tokenizer, "truncation", None) or {}).get("max_length"),
        getattr(model.tokenizer, "model_max_length", None),
        getattr(config, "max_position_embeddings", None),
    )
    return int(min((limit for limit in limits if limit and math.isfinite(limit)), default=_NO_WINDOW))


def _identity(name: str) -> tuple[str, str]:
    """Return a model's base name and what tells its weights and settings from others of that name."""
    folder = Path(name)
    if folder.is_dir():
        weights, revision = _digests(folder)
        name = folder.resolve().name
        impostor = weights not in _KNOWN and name.lower() in _KNOWN.values()
        return _KNOWN.get(weights, f"other.{name}" if impostor else name), revision
    from huggingface_hub import snapshot_download

    repository = name if "/" in name else f"sentence-transformers/{name}"
    try:
        commit = Path(snapshot_download(repository, local_files_only=True)).name
    except (OSError, ValueError) as error:
        raise EncoderError(f"the local cache doesn't tell the revision of {name!r}: {error}") from error
    owner, _, base = repository.rpartition("/")
    impostor = owner != "sentence-transformers" and base.lower() in _KNOWN.values()
    return f"{owner}.{base}" if impostor else base, commit[:12]


def _digests(folder: Path) -> tuple[str, str]:
    """Return the sha256 of model.safetensors, and 12 digits over all files that decide an embedding."""
    every = hashlib.sha256()
    weights = ""
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if path.suffix not in _DECIDES or not path.is_file() or _OTHER_RUNTIMES & set(inner.parts):
            continue
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if inner == Path("model.safetensors"):
            weights = digest
        every.update(f"{inner.as_posix()}\0{digest}\n".encode())
    return weights, every.hexdigest()[:12]
