"""What every encoder does with its input and output before and after the model.

Knows nothing about models.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from semcache.errors import ConfigurationError, EncoderError, InvalidRequestError
from semcache.protocols import TextLimits
from semcache.types import Embeddings

# Tokens of a text, beyond which a foreign sentence in it is nearer than a true paraphrase: measured with
# `benchmarks/encoder_length.py` for USE multilingual (70 to 85) and all-MiniLM-L6-v2 (60 to 70).
MAX_TOKENS = 64
CHARS_PER_TOKEN = 16  # no text has longer tokens on average; what follows is not worth reading
NORM_TOLERANCE = 1e-3  # how far the L2 norm of a unit row may be from 1


def checked_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts with every lone surrogate replaced by U+FFFD, so that a tokenizer can read them.

    Raises:
        InvalidRequestError: `texts` is one str, or holds something that isn't a str.
    """
    if isinstance(texts, str):
        raise InvalidRequestError("texts is a str, expected a sequence of str; pass [text]")
    for text in texts:
        if not isinstance(text, str):
            raise InvalidRequestError(f"a text is {type(text).__name__}, expected str")
    return [text if text.isascii() else _without_surrogates(text) for text in texts]


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def check_count(name: str, value: object) -> None:
    """Raise unless `value` is an int of 1 or more."""
    if type(value) is not int or value < 1:
        raise ConfigurationError(f"{name} is {value!r}, expected an int of 1 or more")


def has_meaning(limits: TextLimits) -> bool:
    """Return False if the text must have a row of zeros: it is over the window, or nothing of it is known."""
    return not limits.over_window and limits.unknown_share < 1.0


def unit_rows(rows: npt.ArrayLike) -> Embeddings:
    """Return the rows as a C-contiguous float32 array scaled to unit L2 norm.

    Rows of zeros stay as they are, and rows that aren't finite stay so, for `check_embeddings` to find.
    """
    array = np.array(rows, dtype=np.float64, ndmin=2)
    norms = np.linalg.norm(array, axis=1, keepdims=True)
    np.divide(array, norms, out=array, where=np.isfinite(norms) & (norms > 0))
    return array.astype(np.float32, order="C")


def check_embeddings(embeddings: object, count: int, dim: int) -> Embeddings:
    """Return what an encoder gave if it is what `Encoder.encode` promises.

    Raises:
        EncoderError: Wrong type, shape or dtype, a value that isn't finite, or a row that is neither
            a unit vector nor all zeros.
    """
    if not isinstance(embeddings, np.ndarray):
        raise EncoderError(f"the encoder returned {type(embeddings).__name__}, expected a numpy array")
    if embeddings.shape != (count, dim) or embeddings.dtype != np.float32:
        raise EncoderError(
            f"the encoder returned {embeddings.dtype} of shape {embeddings.shape}, "
            f"expected float32 of shape {(count, dim)}"
        )
    norms = np.sqrt(np.einsum("ij,ij->i", embeddings, embeddings))
    wrong = ~((np.abs(norms - 1.0) < NORM_TOLERANCE) | (norms == 0.0))  # NaN compares false, so it is wrong
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise EncoderError(f"the encoder's row {row} has L2 norm {norms[row]}, expected 1 (or all zeros)")
    return np.ascontiguousarray(embeddings)


def fingerprint(*parts: str) -> str:
    """Join what makes an embedding comparable into one short string of [a-z0-9.-]."""
    joined = "-".join(part for part in parts if part)
    return re.sub(r"[^a-z0-9.]+", "-", joined.lower()).strip("-")
