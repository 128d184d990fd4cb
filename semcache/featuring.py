"""The feature cache without its waiting: keys, local copies, and what is asked of the store."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import quote

from semcache.core.arguments import check_seconds
from semcache.errors import ConfigurationError, InvalidRequestError, StoreUnavailableError
from semcache.keys import Keys
from semcache.steps import Ask, Steps
from semcache.stores.plans import Command, Plan, call, check, records
from semcache.types import JsonValue

Values: TypeAlias = Mapping[str, JsonValue]
READ_TIMEOUT: Final = 0.25  # seconds; a read that takes longer is a miss
WRITE_TIMEOUT: Final = 5.0
REMEMBERED_MS: Final = 60_000  # for which a loader that began before an invalidation can't store
_MAX_LOG: Final = 10_000
_LONGEST: Final = 400  # bytes of one part of a key


@dataclass(frozen=True, slots=True)
class Found:
    """What a read found.

    Attributes:
        values: By id; ids of which nothing is known are left out.
        fences: Key of a feature that is missing → the store's clock when it was read, microseconds.
    """

    values: dict[str, Values]
    fences: dict[str, str]

    def missing(self, ids: Sequence[str], features: Collection[str]) -> list[str]:
        """Return the ids that lack one of the features."""
        return [i for i in dict.fromkeys(ids) if not self.values.get(i, {}).keys() >= set(features)]

    def with_loaded(self, loaded: Mapping[str, Values]) -> dict[str, Values]:
        """Return what was found and what was loaded; the latter wins."""
        merged = dict(self.values)
        for id_, values in loaded.items():
            merged[id_] = {**merged.get(id_, {}), **values}
        return merged


class Featuring:
    """Steps and local copies of one process."""

    def __init__(
        self, namespace: str, *, ttl: float | None, bound: float, entries: int, clock: Callable[[], float]
    ) -> None:
        check_seconds("ttl", ttl, none=True)
        check_seconds("local_bound", bound)
        if type(entries) is not int or entries < 0:
            raise ConfigurationError(f"local_entries is {entries!r}, expected an int of 0 or more")
        self._prefix = Keys(namespace).prefix
        self._log = self._prefix + "feature-log"
        self._ttl = ttl
        self.bound = bound
        self._entries = entries
        self._clock = clock
        self.lock = threading.RLock()
        self._copies: OrderedDict[str, tuple[float, JsonValue]] = OrderedDict()  # key → (read at, value)
        self._serial = 0
        self.failures = 0

    def key(self, entity: str, id: str, feature: str, version: str) -> str:
        """Return the key of a feature.

        Raises:
            InvalidRequestError: A part is empty, not text or too long.
        """
        parts = []
        for name, part in (("entity", entity), ("id", id), ("feature", feature), ("version", version)):
            if not isinstance(part, str) or not part:
                raise InvalidRequestError(f"{name} is {part!r:.60}, expected text that isn't empty")
            quoted = quote(part, safe="-._~")
            if len(quoted) > _LONGEST:
                raise InvalidRequestError(f"{name} is longer than {_LONGEST} bytes: {part!r:.60}")
            parts.append(quoted)
        return self._prefix + "feature:" + ":".join(parts)

    def _keys(
        self, entity: str, ids: Iterable[str], features: Collection[str], version: str
    ) -> dict[str, tuple[str, str]]:
        if isinstance(features, str):
            raise InvalidRequestError(
                f"features is the text {features!r:.60}, expected a collection of names"
            )
        return {self.key(entity, i, f, version): (i, f) for i in ids for f in features}

    # local copies

    def renew(self) -> None:
        """Begin anew in a forked child, where whoever held the lock is gone."""
        self.lock = threading.RLock()
        self.forget()

    def forget(self) -> None:
        """Drop all local copies."""
        self._drop(None)

    def _drop(self, keys: Iterable[str] | None) -> None:
        with self.lock:
            self._serial += 1
            if keys is None:
                self._copies.clear()
            else:
                for key in keys:
                    self._copies.pop(key, None)

    def _keep(self, found: Mapping[str, JsonValue], read_at: float, serial: int) -> None:
        if self.bound <= 0 or not self._entries:
            return
        with self.lock:
            if serial != self._serial:
                return  # something was dropped since; it may have been one of these
            for key, value in found.items():
                self._copies[key] = (read_at, value)
                self._copies.move_to_end(key)
            while len(self._copies) > self._entries:
                self._copies.popitem(last=False)

    # steps

    def get(self, entity: str, ids: Sequence[str], features: Collection[str], version: str) -> Steps[Found]:
        """Read features; what can't be read is missing."""
        keys = self._keys(entity, ids, features, version)
        now, serial = self._clock(), self._serial
        values: dict[str, JsonValue] = {}
        with self.lock:
            for key in keys:
                copy = self._copies.get(key)
                if copy is not None and now - copy[0] < self.bound:
                    values[key] = copy[1]
        wanted = [key for key in keys if key not in values]
        fences: dict[str, str] = {}
        if wanted:
            try:
                replies = yield self._ask([call("feature_get", [key]) for key in wanted], READ_TIMEOUT)
            except (StoreUnavailableError, TimeoutError):
                self.failures += 1
                replies = []
            fresh: dict[str, JsonValue] = {}
            for key, (data, time_us) in zip(wanted, replies, strict=False):
                decoded = _decoded(data)
                if decoded is None:
                    fences[key] = time_us.decode()
                else:
                    fresh[key] = decoded[0]
            self._keep(fresh, now, serial)
            values |= fresh
        grouped: dict[str, dict[str, JsonValue]] = {}
        for key, value in values.items():
            id_, feature = keys[key]
            grouped.setdefault(id_, {})[feature] = value
        return Found(dict(grouped), fences)

    def put(
        self,
        entity: str,
        values: Mapping[str, Values],
        version: str,
        ttl: float | None,
        fences: Mapping[str, str] | None,
    ) -> Steps[None]:
        """Store features, then tell the other processes."""
        check_seconds("ttl", ttl, none=True)
        lives = self._ttl if ttl is None else ttl
        ms = "" if lives is None else str(max(1, round(lives * 1000)))
        commands: list[Command] = []
        for id_, features in values.items():
            for feature, value in features.items():
                key = self.key(entity, id_, feature, version)
                fence = "" if fences is None else fences.get(key, "")
                if fences is None or fence:  # what was loaded beside what was asked for has no fence
                    commands.append(call("feature_put", [key], _encoded(feature, value), ms, fence))
        yield from self._write(commands)

    def fill(
        self,
        entity: str,
        values: Mapping[str, Values],
        version: str,
        ttl: float | None,
        fences: Mapping[str, str],
    ) -> Steps[None]:
        """Store what was loaded, where it wasn't invalidated since; a store that is away is none of the reader's business."""
        try:
            yield from self.put(entity, values, version, ttl, fences)
        except (StoreUnavailableError, TimeoutError):
            self.failures += 1

    def invalidate(
        self, entity: str, ids: Sequence[str], features: Collection[str], version: str
    ) -> Steps[None]:
        """Drop features, then tell the other processes."""
        keys = self._keys(entity, ids, features, version)
        yield from self._write([call("feature_drop", [key], REMEMBERED_MS) for key in keys])

    def _write(self, commands: list[Command]) -> Steps[None]:
        if not commands:
            return
        keys = [str(command[3]) for command in commands]
        self._drop(keys)
        news: Command = ("XADD", self._log, "MAXLEN", "~", _MAX_LOG, "*", "keys", json.dumps(keys))
        yield self._ask([*commands, news], WRITE_TIMEOUT)
        self._drop(keys)  # also what was read while this was written

    def hear(self, position: str, block: float) -> Steps[str]:
        """Wait for news of other processes and drop what they wrote; returns the new position."""
        if position == "$":
            (newest,) = yield self._ask([("XREVRANGE", self._log, "+", "-", "COUNT", 1)], WRITE_TIMEOUT)
            self.forget()  # whatever was read before we listen
            return newest[0][0].decode() if newest else "0-0"
        command: Command = (
            "XREAD", "COUNT", 1000, "BLOCK", round(block * 1000), "STREAMS", self._log, position
        )  # fmt: skip
        (streams,) = yield self._ask([command], block + 2.0)
        if not streams:
            return position
        heard = records(streams)
        for _, fields in heard:
            self._drop(json.loads(next(iter(fields.values())) if isinstance(fields, Mapping) else fields[1]))
        newest_id: bytes = heard[-1][0]
        return newest_id.decode()

    def _ask(self, commands: Sequence[Command], timeout: float) -> Ask:
        plan = Plan(list(commands), lambda replies: [check(reply) for reply in replies])
        return Ask("perform", (plan,), {"timeout": timeout})


def _encoded(feature: str, value: JsonValue) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"feature {feature!r} can't be written as JSON: {error}") from error


def _decoded(data: bytes) -> tuple[JsonValue] | None:
    if not data:
        return None
    try:
        return (json.loads(data),)
    except ValueError:
        return None  # not ours: as good as missing, and replaced by the next put
