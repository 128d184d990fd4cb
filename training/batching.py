"""What both loops share: the order in which items are seen, and the learning rate."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")
_WINDOW = 40  # batches among which items are sorted by length


def batches(items: Sequence[T], size: int, length: Callable[[T], int], rng: random.Random) -> list[list[T]]:
    """Batches of items of like length, in random order; those of less than half the size are left out."""
    order = list(items)
    rng.shuffle(order)
    found: list[list[T]] = []
    for start in range(0, len(order), _WINDOW * size):
        like = sorted(order[start : start + _WINDOW * size], key=length)
        found += [like[i : i + size] for i in range(0, len(like), size)]
    rng.shuffle(found)
    return [batch for batch in found if len(batch) >= size // 2]


def plan(
    items: Sequence[T], size: int, steps: int, length: Callable[[T], int], rng: random.Random
) -> list[list[T]]:
    """The batch of each step, over as many epochs as that takes.

    Raises:
        ValueError: There are too few items for a batch.
    """
    if len(items) < size // 2:
        raise ValueError(
            f"{len(items)} items to train on, expected {size // 2} at least for a batch of {size}"
        )
    found: list[list[T]] = []
    while len(found) < steps:
        found += batches(items, size, length, rng)
    return found[:steps]


def schedule(optimiser: torch.optim.Optimizer, warmup: int, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """A learning rate that rises over the warm-up and falls to nothing at the last step, both linearly."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warmup, max(0.0, 1 - step / steps))
    )
