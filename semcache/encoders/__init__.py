"""What turns texts into embeddings, one module per back end, and the thread that owns the encoder.

Names are resolved when they are first used, so that importing this package loads no model library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semcache.encoders.bundled import BundledEncoder
    from semcache.encoders.caching import EmbeddingLRU, dequantise, quantise
    from semcache.encoders.onnx import OnnxEncoder
    from semcache.encoders.openai import OpenAIEncoder
    from semcache.encoders.routed import RoutedEncoder, default_encoder
    from semcache.encoders.sentence_transformers import SentenceTransformerEncoder
    from semcache.encoders.thread import EncodedText, EncoderThread

_HOMES = {
    "BundledEncoder": "bundled",
    "EmbeddingLRU": "caching",
    "EncodedText": "thread",
    "EncoderThread": "thread",
    "OnnxEncoder": "onnx",
    "OpenAIEncoder": "openai",
    "RoutedEncoder": "routed",
    "SentenceTransformerEncoder": "sentence_transformers",
    "default_encoder": "routed",
    "dequantise": "caching",
    "quantise": "caching",
}

__all__ = [
    "BundledEncoder",
    "EmbeddingLRU",
    "EncodedText",
    "EncoderThread",
    "OnnxEncoder",
    "OpenAIEncoder",
    "RoutedEncoder",
    "SentenceTransformerEncoder",
    "default_encoder",
    "dequantise",
    "quantise",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
