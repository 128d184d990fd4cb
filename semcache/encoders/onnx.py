"""An exported model on onnxruntime; needs the extra ``onnx``, not torch.

Knows the folder that `semcache.encoders.export` writes (`model.onnx`, `tokenizer.json`,
`semcache.json`), how to run it on one thread, and how to be right after a fork. Leaves the export to
`export`.

Texts run one by one: int8 models scale their activations by the largest in the batch, so a text's
embedding would depend on its neighbours, and on one thread a batch is hardly faster.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

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
from semcache.types import Embedding, Embeddings

_FILES = ("semcache.json", "tokenizer.json", "model.onnx")
_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


@dataclass(frozen=True, slots=True)
class _Facts:
    """What semcache.json says."""

    name: str
    revision: str
    dim: int
    pooling: str
    max_length: int  # tokens, marks included
    prefix: str

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            facts = cls(**{name: found[name] for name in cls.__slots__})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ConfigurationError(
                f"{path} can't be read ({type(error).__name__}: {error}); expected a JSON object with "
                f"{', '.join(cls.__slots__)} and normalise; export the model again"
            ) from error
        for name in cls.__slots__:
            wanted = int if name in ("dim", "max_length") else str
            if type(getattr(facts, name)) is not wanted:
                raise ConfigurationError(
                    f"{path}: {name} is {getattr(facts, name)!r}, expected {wanted.__name__}"
                )
        if facts.dim < 1 or facts.max_length < 3:
            raise ConfigurationError(
                f"{path}: dim is {facts.dim} and max_length {facts.max_length}, expected at least 1 and 3"
            )
        if facts.pooling not in ("mean", "cls"):
            raise ConfigurationError(f"{path}: pooling is {facts.pooling!r}, expected 'mean' or 'cls'")
        if found.get("normalise") is not True:
            raise ConfigurationError(
                f"{path}: normalise isn't true, and embeddings are compared as unit rows"
            )
        return facts


class OnnxEncoder:
    """A model from a folder that `semcache export-encoder` wrote.

    It may be called from many threads, and in a forked child, which loads the model anew.

    Args:
        folder: Holds `model.onnx`, `tokenizer.json` and `semcache.json`.
        max_tokens: Longest text that is told apart, in tokens without marks and prefix; a longer one counts
            as over the window. The default was measured, see `SentenceTransformerEncoder`. None means
            the model's window alone.

    Raises:
        MissingDependencyError: onnxruntime or tokenizers isn't installed.
        ConfigurationError: A file is missing, or `semcache.json` is wrong.
    """

    def __init__(self, folder: str | Path, *, max_tokens: int | None = MAX_TOKENS) -> None:
        if max_tokens is not None:
            check_count("max_tokens", max_tokens)
        for module in ("onnxruntime", "tokenizers"):
            if importlib.util.find_spec(module) is None:
                raise MissingDependencyError("OnnxEncoder", extra="onnx")
        self._folder = Path(folder)
        missing = [name for name in _FILES if not (self._folder / name).is_file()]
        if missing:
            raise ConfigurationError(
                f"{self._folder} has no {' and no '.join(missing)}; expected a folder that "
                "`semcache export-encoder` wrote"
            )
        self._facts = _Facts.read(self._folder / "semcache.json")
        self._most = min(max_tokens or self._facts.max_length, self._facts.max_length)
        self._loaded: _Loaded | None = None
        self._left_behind: list[_Loaded] = []  # by a fork; not freed, because its locks are the parent's

    @property
    def fingerprint(self) -> str:
        """Name, revision, dim, normalisation and prefix, from semcache.json."""
        facts = self._facts
        prefix = hashlib.sha256(facts.prefix.encode()).hexdigest()[:8] if facts.prefix else ""
        return fingerprint(facts.name, facts.revision[:12], str(facts.dim), "l2", prefix)

    @property
    def dim(self) -> int:
        """Length of an embedding, from semcache.json."""
        return self._facts.dim

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts; see `Encoder.encode`. A text over the window is not cut but has a row of zeros."""
        texts = checked_texts(texts)
        embeddings = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(embeddings, texts, strict=True):
            tokens = self._model().tokens(text)
            if has_meaning(tokens.limits):
                row[:] = self._model().embed(tokens)
        return unit_rows(embeddings)

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Count tokens against `max_tokens` and the window, and those that are unknown."""
        return [self._model().tokens(text).limits for text in checked_texts(texts)]

    def _model(self) -> _Loaded:
        loaded = self._loaded
        if loaded is None or loaded.process != os.getpid():
            if loaded is not None:
                self._left_behind.append(loaded)
            loaded = self._loaded = _Loaded(self._folder, self._facts, self._most)
        return loaded


@dataclass(frozen=True, slots=True)
class _Tokens:
    """A text as the model takes it."""

    ids: list[int]  # with marks
    types: list[int]
    limits: TextLimits


class _Loaded:
    """The model and its tokenizer in the memory of one process."""

    def __init__(self, folder: Path, facts: _Facts, most: int) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        _check_revision(folder / "model.onnx", facts.revision)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        failure = onnxruntime.capi.onnxruntime_pybind11_state
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
            )
        except (failure.Fail, failure.InvalidProtobuf, failure.InvalidGraph, failure.NoSuchFile) as error:
            raise EncoderError(f"{folder / 'model.onnx'} can't be loaded: {error}") from error
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        token = getattr(self._tokenizer.model, "unk_token", None)  # a unigram model doesn't tell its own
        self._unknown = self._tokenizer.token_to_id(token or "<unk>")
        self._facts = facts
        self._most = most
        self._bare = self._tokenizer.encode(facts.prefix)
        self._inputs = {put.name for put in self._session.get_inputs()}
        self.process = os.getpid()
        if not self._inputs <= _INPUTS or "input_ids" not in self._inputs:
            raise EncoderError(
                f"{folder / 'model.onnx'} has the inputs {sorted(self._inputs)}, expected {sorted(_INPUTS)}"
            )

    def tokens(self, text: str) -> _Tokens:
        text = text.strip()
        cut = text[: self._most * CHARS_PER_TOKEN]
        found = self._tokenizer.encode(self._facts.prefix + cut)
        own = len(found.ids) - len(self._bare.ids)  # without marks and prefix
        unknown = found.ids.count(self._unknown)
        limits = TextLimits(
            over_window=len(text) > len(cut) or own > self._most or len(found.ids) > self._facts.max_length,
            unknown_share=min(unknown / own, 1.0) if own > 0 else 1.0,
        )
        return _Tokens(found.ids, found.type_ids, limits)

    def embed(self, tokens: _Tokens) -> Embedding:
        """Return one row, not scaled."""
        fed = {
            "input_ids": [tokens.ids],
            "attention_mask": [[1] * len(tokens.ids)],
            "token_type_ids": [tokens.types],
        }
        arrays = {name: np.array(fed[name], dtype=np.int64) for name in self._inputs}
        hidden = self._session.run(None, arrays)[0][0]  # (tokens, dim)
        if hidden.shape != (len(tokens.ids), self._facts.dim):
            raise EncoderError(
                f"the model gave an array of shape {hidden.shape}, expected {(len(tokens.ids), self._facts.dim)}; "
                "export it again"
            )
        row: Embedding = hidden[0] if self._facts.pooling == "cls" else hidden.mean(axis=0)
        return row


def _check_revision(path: Path, revision: str) -> None:
    """Refuse a model that isn't the one that semcache.json was written for, if it says which that is."""
    if not re.fullmatch(r"[0-9a-f]{64}", revision):
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != revision:
        raise EncoderError(
            f"{path} has the sha256 {found[:12]}…, expected {revision[:12]}… as semcache.json says; "
            "it is damaged, or was replaced: export the model again"
        )
