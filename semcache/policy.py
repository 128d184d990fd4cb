"""Policy: every knob of the cache, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from semcache.errors import ConfigurationError
from semcache.eviction import EVICTIONS, Eviction
from semcache.freshness import same_answer

Durability = Literal["memory", "local", "replicas"]
MAX_SECONDS: Final = 1e10  # 317 years; what is meant to last longer has no limit (None)
MAX_WEIGHT: Final = 100.0
LEAST_LEASE: Final = 0.1  # seconds
MAX_WAIT: Final = 86400.0  # seconds that a caller can be made to wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may be served and stored, for how long, and what feedback does.

    Attributes:
        mode: What is done with what is found: ``serve`` it; ``shadow``, serve nothing, let the model answer and compare;
            or ``split``, serve a share of the users and watch the others. This is about all requests; `CacheRequest.mode`
            says how one request may match, and its ``off`` keeps that one out of the trial too.
        share: The share that ``split`` serves, in [0, 1]: of users, or of texts where a request names no user.
        threshold: Least cosine similarity of a semantic hit, in [-1, 1], inclusive; None means the
            calibrated default of the encoder.
        guards: Whether the typed guards (numbers, dates, negation, names …) may refuse a semantic hit; off
            leaves the bare cosine threshold.
        candidates: How many neighbours are judged per lookup.
        semantic_turns: How many user turns of a conversation may match semantically; later turns
            match exactly only.
        max_temperature: Requests above it bypass the cache; a missing temperature counts as 1, the providers'
            default, but for requests that match exactly only (`mode="exact"`).
        ttl: Seconds an entry lives; None means for ever.
        ttl_jitter: Share of the ttl by which it may be shortened at random, in [0, 1).
        stale_while_revalidate: Seconds past its ttl for which an entry is kept, to be served stale where a
            request or this policy allows it.
        max_prompt_bytes, max_response_bytes: Larger ones are not stored.
        max_semantic_chars: Longer prompts match exactly only; None means the encoder's own limit.
        max_unknown_share: Prompts with a larger share of unknown tokens match exactly only.
        min_confidence: Answers below it are not stored.
        store_tool_calls: Whether answers that call tools are stored (for exact matches).
        store_empty: Whether empty answers are stored, with `empty_ttl`.
        empty_ttl: Seconds an empty answer lives.
        deadline: Seconds that all cache work of one request may take.
        local_bound: Seconds that a local copy may be served without asking the store; 0 turns them off.
        local_entries: How many local copies a process keeps.
        breaker_failures: Failures in a row that open the breaker; `breaker_reset` seconds later it is tried again.
        feedback_raters: Distinct raters against an entry that withdraw it (N).
        feedback_window: Seconds in which they must have spoken.
        feedback_weights: Rater → what she counts as among them, in [0, 100], 1 for whoever isn't listed. A name that ends
            in ``*`` stands for all that begin so; the longest decides. Over HTTP raters are called ``key:<name>``, and
            ``key:<name>/<rater>`` where the key is trusted.
        feedback_trust: Distinct raters for an answer (+1) that raise the number against it that withdraws it by one,
            at most to twice `feedback_raters`; 0 if none do.
        feedback_trust_window: Seconds for which a +1 counts as such, at most the life of the answer.
        feedback_rate: Verdicts that one principal may give per `feedback_rate_window` seconds.
        lookup_id_ttl: Seconds for which a lookup id is accepted.
        tombstone_ttl: Seconds for which a withdrawn entry can be listed and restored. What was computed before the
            withdrawal is refused for at least `fence_ttl` seconds, also where this is less.
        fence_ttl: Seconds for which a fence is accepted by put.
        max_index_bytes: Memory of this process's index, bytes, from which the scopes idle for longest leave it; they
            are read from the store when they are asked for again. None for no bound.
        snapshot_every: Seconds between snapshots of the index, where there is a folder for them; 0 leaves the one
            that closing writes.
        reembed_rate: Stored prompts a second that are embedded again after a change of encoder, by one process at a
            time and in at most half of its encoder's time; 0 leaves them to expire.
        encoder_ttl: Seconds after which the embeddings of an encoder that no process uses any more are dropped.
        durability: What a withdrawal asks the store for: ``memory``, ``local`` (fsync) or ``replicas``.
        keep_requests: Whether context, tools and parameters of a request are kept with its entry, so that
            regeneration and warm-up can ask again. Without it only plain requests can be asked again.
        sweep_every: Seconds between clean-ups, by one process at a time; 0 turns them off.
        max_generations: Tag invalidations that are remembered one by one; older ones are folded into a
            floor below which everything is stale.
        kinds: Kind of answer → ttl in seconds, None for ever; on top of `freshness.KINDS` (faq, chat, search, volatile).
        time_bound: What becomes of prompts that are bound to this moment ("weather today"), where neither a ttl nor a
            kind was given: ``shorten`` (they live, and are answered by neighbours, `time_bound_ttl` seconds),
            ``bypass`` or ``ignore``.
        time_bound_ttl: Seconds that such an answer holds.
        personal: What becomes of prompts about the person or place that asks ("my order", "near me") without user,
            subject or segment: ``bypass``, or ``share`` with everybody. With a user or subject they are hers alone.
        unsure_ttl: Share of its ttl that an answer of confidence `min_confidence` gets, rising evenly to all of it at
            confidence 1, in [0, 1]; an answer of unknown confidence, or with a ttl of its own, isn't shortened.
        budget_entries: Most entries that the namespace may hold, None for no limit; what is over it is evicted.
        budget_bytes: Most bytes of entries (names and values of their fields), None for no limit.
        eviction: Which entry goes first: ``lru``, ``lfu`` or ``cost`` (what saves fewest tokens × milliseconds per
            byte), see `semcache.eviction`. All processes of a namespace need the same budget.
        hot_keys: How many of the entries that are asked for most are told in `stats().hot`, over all processes; 0 turns
            the counting off.
        hot_rate: Hits a second, over all processes, from which an entry is hot: its local copy isn't dropped for others.
        hot_copies: Copies of a hot entry's response over the nodes of a Redis Cluster, from which it is read; its state
            is read where it lies all the same. 0 for none.
        usd_in, usd_out: US dollars per million tokens read and written, for `stats().worth.usd`; None if not known.
        disk: File of the disk tier, where entries wait that the store has let go of; None for none.
        disk_bytes: Most bytes of entries in it.
        store_ttl: Seconds that the store keeps an entry where there is a disk tier, at most; None for all its ttl.
        single_flight: Whether concurrent callers with the same request share one call to the model.
        refresh_ahead: Share of its ttl, in [0, 1), past which a hit may have an entry answered again in the background, so
            that what is read often never expires; None for never. See `freshness.due`.
        background_refreshes: How many refreshes a process runs at once, of stale entries and ahead; 0 for none.
        adaptive_ttl: An answer that comes back equal when it is asked again lives twice as long the next time, one that
            changed half as long, within [ttl / this, ttl * this]; 1 turns this off. A caller's own ttl is left alone.
        same_answer: Whether two answers' texts say the same, for `adaptive_ttl`, `mode` and what is reported of
            refreshes: by default if they are equal but for white space and case.
        flight_timeout: Seconds a caller waits for another's call before it makes its own.
        flight_lease: Seconds for which a process that calls the model keeps the other processes waiting; extended while
            the call lasts, so it is how long they wait for one that died. 0 keeps single flight inside each process.
    """

    mode: Literal["serve", "shadow", "split"] = "serve"
    share: float = 0.5
    threshold: float | None = None
    guards: bool = True
    candidates: int = 8
    semantic_turns: int = 1
    max_temperature: float | None = 1.0
    ttl: float | None = 7 * 86400.0
    ttl_jitter: float = 0.0
    stale_while_revalidate: float = 0.0
    max_prompt_bytes: int = 256 * 1024
    max_response_bytes: int = 1024 * 1024
    max_semantic_chars: int | None = None
    max_unknown_share: float = 0.2
    min_confidence: float = 0.0
    store_tool_calls: bool = False
    store_empty: bool = False
    empty_ttl: float = 60.0
    deadline: float = 0.25
    local_bound: float = 1.0
    local_entries: int = 4096
    breaker_failures: int = 5
    breaker_reset: float = 1.0
    feedback_raters: int = 3
    feedback_window: float = 3600.0
    feedback_weights: Mapping[str, float] = field(default_factory=dict)
    feedback_trust: int = 10
    feedback_trust_window: float = 7 * 86400.0
    feedback_rate: int = 60
    feedback_rate_window: float = 60.0
    lookup_id_ttl: float = 7 * 86400.0
    tombstone_ttl: float = 7 * 86400.0
    fence_ttl: float = 3600.0
    durability: Durability = "memory"
    max_index_bytes: int | None = 1 << 30
    snapshot_every: float = 600.0
    reembed_rate: float = 50.0
    encoder_ttl: float = 86400.0
    single_flight: bool = True
    keep_requests: bool = False
    sweep_every: float = 300.0
    max_generations: int = 200_000
    refresh_ahead: float | None = None
    background_refreshes: int = 8
    adaptive_ttl: float = 1.0
    same_answer: Callable[[str, str], bool] = same_answer
    flight_timeout: float = 60.0
    flight_lease: float = 5.0
    kinds: Mapping[str, float | None] = field(default_factory=dict)
    time_bound: Literal["shorten", "bypass", "ignore"] = "shorten"
    time_bound_ttl: float = 60.0
    personal: Literal["bypass", "share"] = "bypass"
    unsure_ttl: float = 0.25
    budget_entries: int | None = None
    budget_bytes: int | None = None
    eviction: Eviction = "lfu"
    usd_in: float | None = None
    usd_out: float | None = None
    disk: str | None = None
    disk_bytes: int = 1024 * 1024 * 1024
    store_ttl: float | None = None
    hot_keys: int = 32
    hot_rate: float = 100.0
    hot_copies: int = 0

    def __post_init__(self) -> None:
        if self.threshold is not None:
            _number("threshold", self.threshold, -1.0, 1.0)
        _number("max_temperature", self.max_temperature, 0.0, math.inf, none=True)
        for name in (
            "ttl",
            "stale_while_revalidate",
            "empty_ttl",
            "local_bound",
            "breaker_reset",
            "feedback_window",
            "feedback_rate_window",
            "feedback_trust_window",
            "lookup_id_ttl",
            "tombstone_ttl",
            "fence_ttl",
            "sweep_every",
            "hot_rate",
            "time_bound_ttl",
            "snapshot_every",
            "reembed_rate",
            "encoder_ttl",
        ):
            _number(name, getattr(self, name), 0.0, MAX_SECONDS, none=name == "ttl")
        for name in ("deadline", "flight_timeout", "flight_lease"):
            _number(name, getattr(self, name), 0.0, MAX_WAIT)
        if 0.0 < self.flight_lease < LEAST_LEASE:
            raise ConfigurationError(
                f"Policy.flight_lease is {self.flight_lease!r}, expected 0 or at least {LEAST_LEASE} s: it is extended "
                "three times in its life"
            )
        for name, most in (("kinds", MAX_SECONDS), ("feedback_weights", MAX_WEIGHT)):
            _numbers(name, getattr(self, name), most, none=name == "kinds")
        for name in ("guards", "store_tool_calls", "store_empty", "single_flight", "keep_requests"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(
                    f"Policy.{name} is {getattr(self, name)!r:.60}, expected True or False"
                )
        for name in ("max_unknown_share", "min_confidence", "unsure_ttl", "share"):
            _number(name, getattr(self, name), 0.0, 1.0)
        _number("refresh_ahead", self.refresh_ahead, 0.0, 0.99, none=True)
        _number("adaptive_ttl", self.adaptive_ttl, 1.0, 1000.0)
        if not callable(self.same_answer):
            raise ConfigurationError(
                f"Policy.same_answer is {self.same_answer!r:.60}, expected a function of two texts"
            )
        _number("ttl_jitter", self.ttl_jitter, 0.0, 0.99)
        for name, least in (
            ("candidates", 1),
            ("background_refreshes", 0),
            ("semantic_turns", 0),
            ("max_prompt_bytes", 1),
            ("max_response_bytes", 1),
            ("local_entries", 0),
            ("breaker_failures", 1),
            ("feedback_raters", 1),
            ("feedback_trust", 0),
            ("feedback_rate", 1),
            ("max_generations", 1000),
            ("hot_keys", 0),
            ("disk_bytes", 1),
            ("hot_copies", 0),
        ):
            _whole(name, getattr(self, name), least)
        for name, least in (
            ("max_semantic_chars", 0),
            ("max_index_bytes", 1),
            ("budget_entries", 1),
            ("budget_bytes", 1),
        ):
            _whole(name, getattr(self, name), least, none=True)
        _choice("mode", self.mode, ("serve", "shadow", "split"))
        _number("usd_in", self.usd_in, 0.0, math.inf, none=True)
        _number("usd_out", self.usd_out, 0.0, math.inf, none=True)
        if self.disk is not None and (not isinstance(self.disk, str) or not self.disk):
            raise ConfigurationError(f"Policy.disk is {self.disk!r}, expected the name of a file or None")
        _number("store_ttl", self.store_ttl, 0.001, math.inf, none=True)
        _choice("eviction", self.eviction, EVICTIONS)
        _choice("durability", self.durability, ("memory", "local", "replicas"))
        _choice("time_bound", self.time_bound, ("shorten", "bypass", "ignore"))
        _choice("personal", self.personal, ("bypass", "share"))


def _numbers(name: str, values: object, most: float, *, none: bool) -> None:
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"Policy.{name} is {values!r:.60}, expected a mapping of names to numbers")
    for key, value in values.items():
        if not isinstance(key, str):
            raise ConfigurationError(f"Policy.{name} has the key {key!r:.60}, expected str")
        _number(f"{name}[{key!r:.60}]", value, 0.0, most, none=none)


def _whole(name: str, value: object, least: int, *, none: bool = False) -> None:
    if value is None and none:
        return
    if type(value) is not int or value < least:
        expected = f"an int of {least} or more" + (", or None" if none else "")
        raise ConfigurationError(f"Policy.{name} is {value!r}, expected {expected}")


def _choice(name: str, value: object, words: tuple[str, ...]) -> None:
    if value not in words:
        raise ConfigurationError(
            f"Policy.{name} is {value!r}, expected {', '.join(map(repr, words[:-1]))} or {words[-1]!r}"
        )


def _number(name: str, value: object, least: float, most: float, *, none: bool = False) -> None:
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        expected = f"a number in [{least:g}, {most:g}]" + (" or None" if none else "")
        raise ConfigurationError(f"Policy.{name} is {value!r}, expected {expected}")
