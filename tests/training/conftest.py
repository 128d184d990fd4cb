"""A file of the form in which the base of the Chinese encoder is packed, with a few weights."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

HIDDEN, LAYERS, INNER = 32, 3, 64
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "密", "码", "密码", "怎么", "▁re", "set", "ж", "пароль", "?"]


def _blocks(values: NDArray[np.int8], scale: float) -> bytes:
    """4-bit blocks of 32 whole numbers from -8 to 7, times a scale."""
    found = b""
    for block in values.reshape(-1, 32) + 8:
        low, high = block[:16].astype(np.uint8), block[16:].astype(np.uint8)
        found += np.float16(scale).tobytes() + (low | high << 4).astype(np.uint8).tobytes()
    return found


@pytest.fixture(scope="session")
def tiny_chinese(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the package's form with a tiny model."""
    rng = np.random.default_rng(1)
    tensors: dict[str, bytes] = {
        "emb.word": _blocks(rng.integers(-8, 8, (len(PIECES), HIDDEN), dtype=np.int8), 0.25),
        "emb.pos": rng.normal(0, 0.1, (512, HIDDEN)).astype("<f4").tobytes(),
        "emb.type": np.zeros((2, HIDDEN), "<f4").tobytes(),
        "emb.ln.w": np.ones(HIDDEN, "<f4").tobytes(),
        "emb.ln.b": np.zeros(HIDDEN, "<f4").tobytes(),
    }
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("q", HIDDEN, HIDDEN), ("k", HIDDEN, HIDDEN), ("v", HIDDEN, HIDDEN), ("ao", HIDDEN, HIDDEN),
            ("fi", INNER, HIDDEN), ("fo", HIDDEN, INNER),
        ):  # fmt: skip
            tensors[f"l{layer}.{name}.w"] = _blocks(rng.integers(-8, 8, (rows, columns), dtype=np.int8), 0.03)
            tensors[f"l{layer}.{name}.b"] = np.zeros(rows, "<f4").tobytes()
        for name in ("aln", "oln"):
            tensors[f"l{layer}.{name}.w"] = np.ones(HIDDEN, "<f4").tobytes()
            tensors[f"l{layer}.{name}.b"] = np.zeros(HIDDEN, "<f4").tobytes()
    words = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *map(len, words)]).astype("<u4")
    scores = -np.arange(len(PIECES), dtype="<f4")
    head = b"E5S1" + struct.pack("<I7ifi", 1, HIDDEN, LAYERS, 2, INNER, len(PIECES), 512, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, int(ends[-1])) + ends.tobytes() + scores.tobytes()
    head += b"".join(words) + struct.pack("<iI", 0, 0) + struct.pack("<i", len(tensors))
    start = len(head) + sum(2 + len(name) + struct.calcsize("<BIQQ") for name in tensors)
    body = b""
    for name, data in tensors.items():
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", 0, 0, start + len(body), len(data))
        body += data
    file = tmp_path_factory.mktemp("packed") / "model.bin"
    file.write_bytes(head + body)
    return file
