"""An index that lives in Redis 8 vector sets: one set a scope, nothing in the process.

Knows the commands and turns their score, (1 + cosine) / 2, into a cosine at the door. Needs Redis 8.2
(VSIM … WITHATTRIBS). Every search is a round trip, and fails when the server does; which server, and
how long to wait for it, is the client's business.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import quote, unquote

import redis
from redis.exceptions import RedisError, ResponseError

from semcache.errors import ConfigurationError, StoreUnavailableError
from semcache.indexes.graph import EF, EF_CONSTRUCTION
from semcache.indexes.integrity import M
from semcache.indexes.rows import Scored, check_dim, check_query, check_rows, cosine, neighbours
from semcache.protocols import Neighbour
from semcache.stores.connections import refuse_decoding
from semcache.stores.plans import script
from semcache.types import Embedding, Embeddings

_SLICE = 64  # rows in one pipeline
_SPARE = 8  # more rows than asked for, so that a few ghosts don't cost a second search
_TIES = 1024  # rows fetched at most to settle a tie at the k-th place

T = TypeVar("T")


class VectorSetIndex:
    """A VectorIndex over vector sets.

    Args:
        client: A redis-py client or cluster client, without decode_responses.
        dim: Length of an embedding.
        prefix: What the keys begin with, e.g. ``semcache:support:``.
        fingerprint: The encoder's, since embeddings of two encoders are never compared.

    Raises:
        ConfigurationError: The client decodes replies, or the server has no vector sets.
        StoreUnavailableError: The server doesn't answer; every method raises this.
    """

    def __init__(
        self, client: redis.Redis | redis.RedisCluster, dim: int, *, prefix: str, fingerprint: str
    ) -> None:
        self.dim = check_dim(dim)
        self._client = cast(Any, client)
        cluster = isinstance(client, redis.RedisCluster)
        pool = (
            self._client.get_connection_kwargs()
            if cluster
            else self._client.connection_pool.connection_kwargs
        )
        refuse_decoding(pool)
        self._keys = f"{prefix}vectors:{quote(fingerprint, safe='')}:"

    def _key(self, scope: str) -> str:
        return f"{self._keys}{{{quote(scope, safe='', errors='surrogatepass')}}}"

    def add(
        self, scope: str, keys: Sequence[str], embeddings: Embeddings, expires_at: Sequence[float | None]
    ) -> None:
        """Add or replace rows; they are searchable when this returns."""
        rows, expires = check_rows(self.dim, keys, embeddings, expires_at)
        options = ("NOQUANT", "EF", EF_CONSTRUCTION, "SETATTR")
        commands = [
            (
                "VADD",
                self._key(scope),
                "FP32",
                row.astype("<f4").tobytes(),
                _bytes(key),
                *options,
                _attributes(expiry),
                "M",
                M,
            )
            for key, row, expiry in zip(keys, rows, expires.tolist(), strict=True)
        ]
        self._pipeline(commands)

    def remove(self, scope: str, keys: Sequence[str]) -> int:
        """Remove rows; unknown keys are ignored. Returns how many were removed."""
        replies = self._pipeline([("VREM", self._key(scope), _bytes(key)) for key in keys])
        return sum(map(int, replies))

    def _pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        replies: list[Any] = []
        for start in range(0, len(commands), _SLICE):
            pipeline = self._client.pipeline(transaction=False)
            for command in commands[start : start + _SLICE]:
                pipeline.execute_command(*command)
            replies += _asking(pipeline.execute)
        return replies

    def search(
        self, scope: str, embedding: Embedding, k: int, *, now: float, least: float = -1.0
    ) -> list[Neighbour]:
        """Return up to k live rows of the scope in descending order of similarity, ties by key."""
        query = check_query(self.dim, embedding, k).astype("<f4").tobytes()
        want = k + _SPARE if k else 0
        found: list[Scored] = []
        while want:
            reply = self._command("VSIM", self._key(scope), "FP32", query, "WITHSCORES", "WITHATTRIBS", "COUNT", want, "EF", max(EF, want))  # fmt: skip
            judged = [
                (_cosine(score), key, _expiry(attributes)) for key, score, attributes in _elements(reply)
            ]
            found = [
                (-similarity, key)
                for similarity, key, expiry in judged
                if expiry > now and similarity >= least
            ]
            ghosts = [key for _, key, expiry in judged if expiry <= now]
            if ghosts:
                self._expire(scope, ghosts, now)
            worst = min((similarity for similarity, _, _ in judged), default=-1.0)
            if len(judged) < want or worst < least:
                break  # there is no more, or nothing that counts
            if len(found) >= k and (want >= _TIES or -worst > sorted(found)[k - 1][0]):
                break
            want *= 2
        return neighbours(found, k)

    def _expire(self, scope: str, keys: Sequence[str], now: float) -> None:
        text = script("expire_vectors").text
        self._command("EVAL", text, 1, self._key(scope), repr(now), *map(_bytes, keys))

    def _command(self, *command: Any) -> Any:
        return _asking(lambda: self._client.execute_command(*command))

    def count(self, scope: str) -> int:
        """Return how many rows the scope has."""
        return int(self._command("VCARD", self._key(scope)))

    def drop_scope(self, scope: str) -> None:
        """Forget a scope's rows."""
        self._command("UNLINK", self._key(scope))

    def clear(self) -> None:
        """Forget everything; scans the server."""
        for scope in self.scopes():
            self.drop_scope(scope)

    def scopes(self) -> list[str]:
        """Return the scopes that have rows; scans the server."""
        pattern = "".join(f"[{char}]" if char in "*?[" else char for char in self._keys) + "{*}"
        found: Iterable[bytes] = _asking(lambda: list(self._client.scan_iter(match=pattern, count=1000)))
        start = len(self._keys) + 1
        return [unquote(key.decode("ascii")[start:-1], errors="surrogatepass") for key in set(found)]

    def memory_bytes(self) -> int:
        """Return the memory that the vector sets take on the server, bytes; scans it."""
        sizes = (self._command("MEMORY", "USAGE", self._key(scope)) for scope in self.scopes())
        return sum(int(size or 0) for size in sizes)


def _asking(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except ResponseError as error:
        if "unknown command" in str(error) or "syntax" in str(error).lower():
            raise ConfigurationError(f"the server has no vector sets as of Redis 8.2: {error}") from error
        raise StoreUnavailableError(f"the vector set refused: {error}") from error
    except (RedisError, OSError) as error:
        raise StoreUnavailableError(f"the store doesn't answer ({type(error).__name__}: {error})") from error


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _attributes(expires: float) -> str:
    return "{}" if expires == math.inf else json.dumps({"e": max(expires, -1e300)})


def _expiry(attributes: bytes | None) -> float:
    value = json.loads(attributes or b"{}").get("e")
    return math.inf if value is None else float(value)


def _cosine(score: bytes | float) -> float:
    return cosine(2.0 * float(score) - 1.0)


def _elements(reply: Any) -> list[tuple[str, bytes | float, bytes | None]]:
    """Read the reply of VSIM, which is a mapping or flat by version of protocol and client."""
    if isinstance(reply, dict):
        triples = [(key, *value) for key, value in reply.items()]
    else:
        triples = list(zip(reply[::3], reply[1::3], reply[2::3], strict=True))
    return [(key.decode("utf-8", "surrogatepass"), score, attributes) for key, score, attributes in triples]
