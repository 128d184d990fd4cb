"""Embeddings: one key per item, so that a batch asks upstream for what is missing only. Pure; exact matches only.

An item's text is named by digest: nothing about it is compared, and white space counts. The stored form is the one
that came (a list of numbers, or base64 of little-endian float32); the other is made from it when asked for.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from openai_semcache.fields import Json
from openai_semcache.requests import ParsedRequest
from openai_semcache.turns import digest
from semcache.types import CacheRequest, Response

FORMATS: Final = ("float", "base64")


@dataclass(frozen=True, slots=True)
class Batch:
    """The items of one request.

    Attributes:
        keys: One per item, in order; equal items have equal keys.
        requests: Key → what the cache compares, in order of first appearance.
        items: Key → the item as it was sent.
        encoding: ``float`` or ``base64``.
    """

    keys: tuple[str, ...]
    requests: Mapping[str, CacheRequest]
    items: Mapping[str, Json]
    encoding: str


@dataclass(frozen=True, slots=True)
class Item:
    """One embedding, encoded as asked for, with the tokens it cost and the model that upstream named."""

    embedding: Json
    tokens: int
    model: str | None


def batch_of(parsed: ParsedRequest, *, most: int) -> Batch | None:
    """Split a request into its items.

    Args:
        most: Largest number of different items that is split.

    Returns:
        None if the request can't be split: an input of unknown shape, an unknown encoding, too many items.
    """
    body = parsed.body or {}
    encoding = body.get("encoding_format") or "float"
    items = _items(body.get("input"))
    if items is None or encoding not in FORMATS:
        return None
    params = {name: value for name, value in parsed.request.params.items() if name != "encoding_format"}
    base = replace(parsed.request, params=params, mode="exact")
    keys = tuple(("text:" if isinstance(item, str) else "tokens:") + digest(_exact(item)) for item in items)
    first = dict(zip(reversed(keys), reversed(items), strict=True))  # the first of equals wins
    ordered = {key: first[key] for key in keys}
    if len(ordered) > most:
        return None
    return Batch(
        keys=keys,
        requests={key: replace(base, prompt="embedding " + key) for key in ordered},
        items=ordered,
        encoding=str(encoding),
    )


def missing_body(body: Mapping[str, Json], batch: Batch, missing: Sequence[str]) -> dict[str, Json]:
    """Return the request for the items that aren't stored."""
    return {**body, "input": [batch.items[key] for key in missing]}


def stored_items(answer: Any, batch: Batch, missing: Sequence[str]) -> dict[str, Response] | None:
    """Return what to store for each item of upstream's answer; None if the answer isn't one vector per item.

    A batch's tokens are known as a sum only; they are spread over its items by length, so that the sum stays right.
    """
    if not isinstance(answer, dict) or answer.get("error") or not isinstance(answer.get("data"), list):
        return None
    rows: dict[int, dict[str, Json]] = {}
    for row in answer["data"]:
        if (
            not isinstance(row, dict)
            or not isinstance(row.get("embedding"), str | list)
            or not row["embedding"]
        ):
            return None
        index = row.get("index")
        if type(index) is not int or index in rows:
            return None
        rows[index] = row
    if sorted(rows) != list(range(len(missing))):
        return None
    usage = answer.get("usage")
    total = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    shares = _spread(
        total if type(total) is int and total >= 0 else None, [batch.items[key] for key in missing]
    )
    out: dict[str, Response] = {}
    for at, key in enumerate(missing):
        embedding = rows[at]["embedding"]
        form = "base64" if isinstance(embedding, str) else "float"
        text = embedding if isinstance(embedding, str) else json.dumps(embedding, separators=(",", ":"))
        data: dict[str, Json] = {"form": form, "tokens": shares[at], "model": answer.get("model")}
        out[key] = Response(text, data=data, finish_reason="stop")
    return out


def item_of(response: Response, encoding: str) -> Item | None:
    """Return a stored item in the encoding asked for, None if it can't be given back."""
    data = response.data
    if not isinstance(data, Mapping) or data.get("form") not in FORMATS:
        return None
    try:
        embedding = _encoded(response.text, str(data["form"]), encoding)
    except (ValueError, TypeError, binascii.Error):
        return None
    tokens, model = data.get("tokens"), data.get("model")
    return Item(embedding, tokens if type(tokens) is int else 0, model if isinstance(model, str) else None)


def answer_of(batch: Batch, found: Mapping[str, Item], *, model: str) -> dict[str, Json]:
    """Return the answer to the whole request, in its order.

    Args:
        found: Key → stored or new item, for every key.
        model: Name to give where the items don't say.
    """
    tokens = sum(item.tokens for item in found.values())
    models = [item.model for item in found.values() if item.model is not None]
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": at, "embedding": found[key].embedding}
            for at, key in enumerate(batch.keys)
        ],
        "model": models[0] if models else model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _items(value: Any) -> list[Json] | None:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        return None
    if all(type(token) is int for token in value):
        return [value]
    if all(isinstance(item, str) for item in value):
        return value
    if all(isinstance(item, list) and item and all(type(token) is int for token in item) for item in value):
        return value
    return None


def _exact(item: Json) -> str:
    return item if isinstance(item, str) else json.dumps(item, separators=(",", ":"))


def _spread(total: int | None, items: Sequence[Json]) -> list[int | None]:
    """Split `total` in proportion to the items' lengths, by largest remainder."""
    if total is None:
        return [None] * len(items)
    sizes = [
        max(1, len(item.encode("utf-8", "replace")) if isinstance(item, str) else len(item)) for item in items
    ]
    whole = sum(sizes)
    shares = [total * size // whole for size in sizes]
    by_remainder = sorted(range(len(items)), key=lambda at: (-(total * sizes[at] % whole), at))
    for at in by_remainder[: total - sum(shares)]:
        shares[at] += 1
    return list(shares)


def _encoded(text: str, form: str, encoding: str) -> Json:
    if form == "base64":
        if encoding == "base64":
            return text
        row = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
        return [
            float(str(value)) for value in row
        ]  # the shortest decimal of a float32, as upstream prints it
    numbers = json.loads(text)
    if encoding == "float":
        return numbers
    return base64.b64encode(np.asarray(numbers, dtype="<f4").tobytes()).decode()
