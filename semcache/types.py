"""The values that pass between the parts: one frozen dataclass per concept.

They hold no behaviour beyond checks at construction; what may be done with them is decided in
`decision`, `admission`, `scope` and `feedback`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from semcache.errors import InvalidRequestError
from semcache.reasons import BYPASSES

Embedding: TypeAlias = npt.NDArray[np.float32]  # (dim,), unit L2 norm
Embeddings: TypeAlias = npt.NDArray[np.float32]  # (n, dim), unit rows
JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
Mode: TypeAlias = Literal["semantic", "exact", "off"]
Match: TypeAlias = Literal["exact", "semantic"]

MODES = ("semantic", "exact", "off")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidRequestError(f"{name} is {type(value).__name__}, expected str")


def _check_seconds(name: str, value: float | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequestError(f"{name} is {value!r}, expected a finite number of seconds or None")
    if value < 0:
        raise InvalidRequestError(f"{name} is {value!r} seconds, expected 0 or more (or None for no limit)")


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """One question to a model, split into the text that is compared and what must match exactly.

    Everything but `prompt`, `subject` and the controls is part of the scope: two requests share an
    answer only if all of it is equal.

    Args:
        prompt: The text being compared, normally the last user turn.
        model: Name of the model, e.g. ``gpt-4o-mini``.
        model_version: Version or snapshot of the model, e.g. ``2024-07-18``.
        tenant: The customer, from authenticated identity.
        context: What precedes the prompt: system prompt, earlier turns, tool results, retrieved documents.
        earlier_turns: Number of user turns before this one.
        tools: Tool definitions and tool choice, if any.
        params: Sampling and length fields, response schema, and every other field that isn't known
            not to matter. A missing temperature is the provider's default, not 0.
        endpoint: Kind and base URL (or deployment) of the endpoint.
        media: Digests of images, audio or files in the request.
        segment: A small mapping from the application, so that people alike share answers.
        opaque: True if the caller couldn't tell what the scope is made of: exact matches only.
        subject: The user or object whose data the answer may hold; not in the scope, a tag on the entry.
        user: Who asks; not in the scope. Answers that this user has refused as a match aren't served to her again.
        kind: Freshness class of the answer, a key of `Policy.kinds`; None means the policy's default.
        mode: ``semantic``, ``exact`` (no neighbours) or ``off`` (neither read nor stored).
        bypass: Why this request is neither served nor stored, one of `reasons.BYPASSES`; None if it may be. Set by
            whoever read the request and found what only it can see, e.g. a tool that runs on the model's server.
        threshold: Least cosine similarity of a semantic hit, in [-1, 1]; may only tighten the policy's.
        max_age: Accept entries up to this age only, seconds.
        stale_while_revalidate: Serve an entry this many seconds past its ttl while it is refreshed.
        no_cache: Don't read, but store the new answer.
        no_store: Don't store.
        only_if_cached: Don't call the model; a miss is an `OnlyIfCachedError` in get_or_compute.

    Raises:
        InvalidRequestError: A field has the wrong type or is out of range.
    """

    prompt: str
    model: str = field(default="", kw_only=True)
    model_version: str = field(default="", kw_only=True)
    tenant: str = field(default="", kw_only=True)
    context: JsonValue = field(default=None, kw_only=True)
    earlier_turns: int = field(default=0, kw_only=True)
    tools: JsonValue = field(default=None, kw_only=True)
    params: Mapping[str, JsonValue] = field(default_factory=dict, kw_only=True)
    endpoint: str = field(default="", kw_only=True)
    media: tuple[str, ...] = field(default=(), kw_only=True)
    segment: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    opaque: bool = field(default=False, kw_only=True)
    subject: str | None = field(default=None, kw_only=True)
    user: str | None = field(default=None, kw_only=True)
    kind: str | None = field(default=None, kw_only=True)
    mode: Mode = field(default="semantic", kw_only=True)
    bypass: str | None = field(default=None, kw_only=True)
    threshold: float | None = field(default=None, kw_only=True)
    max_age: float | None = field(default=None, kw_only=True)
    stale_while_revalidate: float | None = field(default=None, kw_only=True)
    no_cache: bool = field(default=False, kw_only=True)
    no_store: bool = field(default=False, kw_only=True)
    only_if_cached: bool = field(default=False, kw_only=True)
    _memo: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A request is made for every call: what most of them leave out is passed over without a call.
        if not (
            type(self.prompt) is type(self.model) is type(self.model_version) is type(self.tenant) is str
            and type(self.endpoint) is str
        ):
            for name in ("prompt", "model", "model_version", "tenant", "endpoint"):
                _check_text(name, getattr(self, name))
        if not self.subject is self.user is self.kind is None:
            for name in ("subject", "user", "kind"):
                if getattr(self, name) is not None:
                    _check_text(name, getattr(self, name))
        if self.mode not in MODES:
            raise InvalidRequestError(f"mode is {self.mode!r}, expected one of {', '.join(MODES)}")
        if self.bypass is not None and self.bypass not in BYPASSES:
            raise InvalidRequestError(f"bypass is {self.bypass!r}, expected one of {', '.join(BYPASSES)}")
        if self.threshold is not None:
            check_cosine("threshold", self.threshold)
        if not self.max_age is self.stale_while_revalidate is None:
            _check_seconds("max_age", self.max_age)
            _check_seconds("stale_while_revalidate", self.stale_while_revalidate)
        if type(self.earlier_turns) is not int or self.earlier_turns < 0:
            raise InvalidRequestError(
                f"earlier_turns is {self.earlier_turns!r}, expected an int of 0 or more"
            )
        if not type(self.params) is type(self.segment) is dict:
            for name in ("params", "segment"):
                value = getattr(self, name)
                if not isinstance(value, Mapping):
                    raise InvalidRequestError(f"{name} is {type(value).__name__}, expected a mapping")


def check_cosine(name: str, value: object) -> None:
    """Raise unless `value` is a finite number in [-1, 1]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1.0 <= value <= 1.0:
        raise InvalidRequestError(f"{name} is {value!r}, expected a cosine similarity in [-1, 1]")


@dataclass(frozen=True, slots=True)
class Response:
    """What a model answered, and what is needed to judge whether it may be stored.

    Args:
        text: The answer's text.
        data: The whole answer as JSON, for callers whose type has more than text.
        finish_reason: ``stop``, ``length``, ``content_filter``, ``tool_calls`` … or None if unknown.
        refusal: True if the model declined.
        partial: True if the answer was cut, e.g. an interrupted stream.
        error: True if this is an error or a stand-in for one.
        tool_calls: True if the answer calls tools.
        media: True if the answer holds images, audio or files.
        malformed: True if it isn't the JSON that the request asks for.
        usage: Token counts as the model reported them, e.g. ``{"total_tokens": 57}``.
        confidence: How sure the answer is, in [0, 1]; None if unknown.
        latency_ms: What the model took, milliseconds; None if unknown.
        language: BCP 47 tag of the answer's language, None if unknown.
    """

    text: str
    data: JsonValue = field(default=None, kw_only=True)
    finish_reason: str | None = field(default=None, kw_only=True)
    refusal: bool = field(default=False, kw_only=True)
    partial: bool = field(default=False, kw_only=True)
    error: bool = field(default=False, kw_only=True)
    tool_calls: bool = field(default=False, kw_only=True)
    media: bool = field(default=False, kw_only=True)
    malformed: bool = field(default=False, kw_only=True)
    usage: Mapping[str, JsonValue] | None = field(default=None, kw_only=True)
    confidence: float | None = field(default=None, kw_only=True)
    latency_ms: float | None = field(default=None, kw_only=True)
    language: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_text("text", self.text)
        check_confidence(self.confidence)

    def __str__(self) -> str:
        return self.text


def check_confidence(value: float | None) -> None:
    """Raise unless `value` is None or a number in [0, 1]."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise InvalidRequestError(f"confidence is {value!r}, expected a number in [0, 1] or None")


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """When a lookup looked: the store's epoch and its clock, before anything was read.

    An entry that was computed after this moment may be stored with it; whatever was invalidated
    since then refuses the entry.

    Args:
        epoch: The store's epoch; another epoch means that the store lost its memory.
        time_us: The store's clock, microseconds since the Unix epoch.
    """

    epoch: str
    time_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A stored response and what is needed to judge whether it may be served."""

    entry_id: str  # <model>/<version>/<id>, percent-encoded
    scope: str
    prompt: str
    response: Response
    tags: tuple[str, ...] = ()
    fence: Fence
    revision: int
    created_at: float  # seconds since the Unix epoch, the store's clock
    ttl: float | None = None  # seconds; None means the entry never expires
    confidence: float | None = None
    kind: str | None = None
    state: Literal["live", "withdrawn"] = "live"
    blocked: frozenset[str] = frozenset()  # digests of texts refused for this entry
    observations: tuple[tuple[float, bool], ...] = ()  # (similarity, right), oldest first
    obeys: tuple[str, ...] = ()  # names of its generations; filled by scans only
    stretch: float = 1.0  # factor on its ttl that its refreshes have earned; filled by scans only
    request: str = ""  # what it takes to ask again, see `requests`; filled by scans only


@dataclass(frozen=True, slots=True)
class Candidate:
    """A neighbour under judgement."""

    entry: Entry
    similarity: float  # cosine in [-1, 1]; 1.0 for an exact match


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule said about one candidate, for `explain`."""

    rule: str  # a guard's name, "threshold", "probability", "verifier", "state" …
    verdict: Literal["pass", "refuse", "not_applicable"]
    detail: str = ""
    flip: str = ""  # what would turn the verdict round, e.g. "needs cosine ≥ 0.830, has 0.790"


class LookupToken:
    """A lookup id that is signed only when somebody asks for it."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make
        self._value: str | None = None

    def __str__(self) -> str:
        if self._value is None:
            self._value = self._make()
        return self._value


@dataclass(frozen=True, slots=True, eq=False)
class Hit:
    """A stored response that may be served.

    Attributes:
        response: The stored response.
        similarity: Cosine similarity of the two prompts, 1.0 for an exact match.
        match: ``exact`` or ``semantic``.
        age: Seconds since the entry was stored, on the store's clock.
        entry_id: Name of the entry, for invalidate.
        prompt: The prompt that the entry was stored for.
        tier: Where it came from: ``local``, ``store`` or ``disk``.
        stale: True if it is past its ttl and served under stale_while_revalidate.
        probability: Calibrated probability that the two prompts ask the same, None if not computed.
    """

    response: Response
    similarity: float
    match: Match
    age: float
    entry_id: str
    prompt: str
    ttl_left: float | None
    token: LookupToken
    tier: Literal["local", "store", "disk"] = "store"
    stale: bool = False
    probability: float | None = None
    fence: Fence | None = None

    @property
    def lookup_id(self) -> str:
        """Signed token of this serving, for feedback."""
        return str(self.token)

    @property
    def text(self) -> str:
        """The response's text."""
        return self.response.text

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Miss:
    """Nothing may be served, and why.

    Attributes:
        reason: One of `reasons.MISS_REASONS`.
        fence: When the lookup looked; pass it to put. None if the store wasn't reached.
        best_similarity: Similarity of the closest candidate, None without one.
        best_entry_id: Name of the closest candidate.
        best_prompt: Prompt of the closest candidate.
        detail: What the deciding rule found, in words.
    """

    reason: str
    fence: Fence | None = None
    best_similarity: float | None = None
    best_entry_id: str | None = None
    best_prompt: str | None = None
    detail: str = ""

    def __bool__(self) -> bool:
        return False


Decision: TypeAlias = Hit | Miss


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a put.

    Attributes:
        outcome: One of `reasons.STORE_OUTCOMES`.
        entry_id: Name of the entry, None if it wasn't stored.
        revision: Revision of the entry, None if it wasn't stored.
        lookup_id: Signed token that names this entry, for feedback; None if it wasn't stored.
    """

    outcome: str
    entry_id: str | None = None
    revision: int | None = None
    token: LookupToken | None = None

    @property
    def lookup_id(self) -> str | None:
        """Signed token of the entry just put, for feedback; None if it wasn't stored."""
        return None if self.token is None else str(self.token)

    def __bool__(self) -> bool:
        return self.outcome in ("stored", "replaced")


@dataclass(frozen=True, slots=True)
class Answer:
    """What get_or_compute gives back.

    Attributes:
        response: The response, stored or new.
        decision: The `Hit` or the `Miss`.
        stored: What became of the new response; None on a hit or for a caller who waited.
        waited: True if another caller's call to the model answered this one.
        shared: For a caller who waited, what became of the response.
    """

    response: Response
    decision: Decision
    stored: Stored | None = None
    waited: bool = False
    shared: Stored | None = None

    @property
    def hit(self) -> bool:
        """True if the response came from the cache."""
        return isinstance(self.decision, Hit)

    @property
    def text(self) -> str:
        """The response's text."""
        return self.response.text

    @property
    def put(self) -> Stored | None:
        """What became of a new response, whoever called the model; None on a hit."""
        return self.shared if self.stored is None else self.stored

    @property
    def lookup_id(self) -> str | None:
        """Signed token for feedback; on a miss it names the entry just put, or is None."""
        if isinstance(self.decision, Hit):
            return self.decision.lookup_id
        put = self.put
        return None if put is None else put.lookup_id


Verdict: TypeAlias = Literal[-1, 0, 1]
About: TypeAlias = Literal["answer", "match"]


@dataclass(frozen=True, slots=True)
class FeedbackResult:
    """What a verdict did.

    Attributes:
        action: ``withdrawn``, ``blocked``, ``recorded`` or ``none``.
        entry_id: The entry it was about.
        raters: Distinct raters against it inside the window, this one included.
        durability: What the store acknowledged, see `Invalidated`.
        limited: True if this was the principal's last verdict for now.
        weight: What those raters weigh together; their number, where the policy gives no weights.
        needed: The weight that withdraws the entry: `Policy.feedback_raters`, more for a trusted one; 0 where nothing
            can be withdrawn.
    """

    action: Literal["withdrawn", "blocked", "recorded", "none"]
    entry_id: str
    raters: int = 0
    durability: str = "memory"
    limited: bool = False
    weight: float = 0.0
    needed: float = 0.0


@dataclass(frozen=True, slots=True)
class Invalidated:
    """What an invalidation did.

    Attributes:
        matched: Entries that it matched; None where counting would have meant a scan.
        tags: Tags whose generation was raised.
        entry_ids: Entries withdrawn by name.
        dry_run: True if nothing was changed.
        durability: What the store acknowledged: ``memory``, ``local`` (on disk) or ``replicas:<n>``.
    """

    matched: int | None
    tags: tuple[str, ...] = ()
    entry_ids: tuple[str, ...] = ()
    dry_run: bool = False
    durability: str = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateReport:
    """What `explain` says about one candidate.

    Attributes:
        reason: Why it may not be served; None if it may.
        flip: What would turn that round: all that refuses it, or how far it is from being refused.
        findings: Each rule's verdict.
    """

    entry_id: str
    prompt: str
    similarity: float
    reason: str | None
    detail: str = ""
    probability: float | None = None
    flip: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a lookup would do, and why.

    Attributes:
        decision: What lookup would return.
        candidates: Every candidate, closest first.
        encoder: Fingerprint of the encoder.
        docs: Where the deciding reason is explained; empty for a hit.
    """

    decision: Decision
    candidates: tuple[CandidateReport, ...]
    encoder: str
    docs: str = ""


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A model version of which something was stored.

    Attributes:
        last_put: Seconds since the Unix epoch.
    """

    model: str
    model_version: str
    last_put: float
