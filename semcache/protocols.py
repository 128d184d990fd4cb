"""The shapes that back ends have; a back end doesn't inherit from them.

`tests/contracts/` holds every back end to these.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from semcache.eviction import Eviction
from semcache.types import Embedding, Embeddings, Entry, FeedbackResult, Fence, Finding


@dataclass(frozen=True, slots=True)
class TextLimits:
    """What an encoder can tell about a text before encoding it.

    Attributes:
        over_window: True if the text is longer than the encoder reads, or than it can tell apart.
        unknown_share: Share of the text's tokens that the encoder doesn't know, in [0, 1].
    """

    over_window: bool
    unknown_share: float


@runtime_checkable
class Encoder(Protocol):
    """Turns texts into embeddings.

    Constructing one is cheap; the model is loaded at the first `encode`, `inspect` or `dim`.
    An encoder is called by one thread at a time (`encoders.thread.EncoderThread` sees to that).
    """

    @property
    def fingerprint(self) -> str:
        """Name, revision, dim, normalisation and prefix in one short string of [a-z0-9.-].

        Embeddings of two fingerprints are never compared.
        """
        ...

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        ...

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts.

        Returns:
            float32 array of shape (len(texts), dim), C-contiguous; each row has unit L2 norm, so
            that a dot product of two rows is their cosine similarity. A text that has no meaning
            to the encoder gives a row of zeros.

        Raises:
            EncoderError: The encoder failed.
        """
        ...

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Tell for each text whether it fits and how much of it is known. Never truncates silently."""
        ...


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One row that a search found."""

    key: str  # the entry id
    similarity: float  # cosine in [-1, 1]


class VectorIndex(Protocol):
    """Finds the nearest embeddings inside one scope. Safe to call from many threads at once.

    Keys are entry ids, unique within a scope. A row is a hint: the store decides what is served.
    """

    def add(
        self, scope: str, keys: Sequence[str], embeddings: Embeddings, expires_at: Sequence[float | None]
    ) -> None:
        """Add or replace rows.

        Args:
            keys: One per row.
            embeddings: float32 (len(keys), dim), unit rows; zero, NaN and infinite rows are refused.
            expires_at: Seconds since the Unix epoch after which the row is a ghost; None for never.

        Raises:
            ConfigurationError: Wrong shape, dtype, or a row that isn't a unit vector.
        """
        ...

    def remove(self, scope: str, keys: Sequence[str]) -> int:
        """Remove rows; unknown keys are ignored. Returns how many were removed."""
        ...

    def search(
        self, scope: str, embedding: Embedding, k: int, *, now: float, least: float = -1.0
    ) -> list[Neighbour]:
        """Return up to k live rows of the scope in descending order of similarity.

        Ties are broken by key, ascending, so that the answer is deterministic.

        Args:
            embedding: float32 (dim,), unit norm.
            now: Seconds since the Unix epoch; rows that expired by then are not returned.
            least: Rows below this similarity may be left out.
        """
        ...

    def count(self, scope: str) -> int:
        """Return how many rows the scope has."""
        ...

    def drop_scope(self, scope: str) -> None:
        """Forget a scope's rows."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def scopes(self) -> list[str]:
        """Return the scopes that have rows."""
        ...

    def memory_bytes(self) -> int:
        """Return the memory that rows and graphs take, bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the matching rules say about one pair of prompts.

    Attributes:
        reason: None if the pair may share an answer, else ``below_threshold``, ``guard:<name>`` or ``verifier``.
        probability: Calibrated probability that the two ask the same; None if not computed.
        findings: What each rule said, for explain; empty unless asked for.
        detail: What the deciding rule found, in words.
    """

    reason: str | None
    probability: float | None = None
    findings: tuple[Finding, ...] = ()
    detail: str = ""


class Matcher(Protocol):
    """Decides whether two prompts ask the same. Pure: no I/O, no clock, no state that changes the result."""

    def judge(
        self,
        query: str,
        stored: str,
        similarity: float,
        *,
        threshold: float | None = None,
        rivals: Sequence[float] = (),
        size: int | None = None,
        answer_language: str | None = None,
        explain: bool = False,
    ) -> Judgement:
        """Judge one pair.

        Args:
            query: The prompt asked now.
            stored: The prompt that the entry was stored for.
            similarity: Cosine of their embeddings.
            threshold: Least similarity of a hit, inclusive; None means the matcher's calibrated default.
                A caller's or an entry's threshold only tightens it.
            rivals: Similarities of the other candidates, best first: the more there are and the nearer, the less it says
                that this one is near. One that is nearer and was refused counts as well.
            size: Number of prompts stored in the scope; None if unknown. The more there are, the more of them come near by
                accident.
            answer_language: Language of the stored answer, None if unknown.
            explain: Run every rule and report it, also after one refused.
        """
        ...


class Verifier(Protocol):
    """A second opinion on pairs in the grey zone; may be slow and may do I/O."""

    def verify(self, query: str, stored: str, response: str, *, deadline_s: float) -> float | None:
        """Return the probability in [0, 1] that the stored answer serves the query; None for no opinion.

        No opinion, an error or NaN is a miss, never a hit.
        """
        ...


@dataclass(frozen=True, slots=True)
class View:
    """What one read of the store saw.

    Attributes:
        entries: One per id asked for, in that order; None if there is none.
        undecodable: Ids under which there was something that can't be read.
        epoch: The store's epoch.
        version: Counts tag invalidations; equal versions mean equal generations.
        floor_us: Entries fenced up to this moment are stale, whatever their tags.
        generations: Tag → store clock of its last invalidation, for the tags asked for; 0 for never.
        time_us: The store's clock, microseconds since the Unix epoch.
        embedding: The shared embedding cache's bytes, if asked for and there.
        withdrawals: Counts withdrawals; a store that counts fewer than before went back in time.
    """

    entries: tuple[Entry | None, ...]
    undecodable: tuple[str, ...]
    epoch: str
    version: int
    floor_us: int
    generations: Mapping[str, int]
    time_us: int
    embedding: bytes | None = None
    withdrawals: int = 0


Uses: TypeAlias = Sequence[tuple[str, int]]
"""Entries that were served, each with how often."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a namespace may hold.

    Attributes:
        entries: Most entries, None for no limit.
        size: Most bytes of entries, None for no limit.
        eviction: Which entry goes first, see `eviction`.
    """

    entries: int | None
    size: int | None
    eviction: Eviction


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entry about to be stored; the store adds revision, clock and blocked texts.

    Attributes:
        fence_us: Store clock of the lookup that led to it; None for now.
        all_tags: The implicit tags and the entry's own.
        ttl: Seconds, None for ever.
        keep: Seconds that the store keeps it, at least ttl; None for ever.
        now, expires_at: The store's clock as this process estimates it, and then plus `keep`; hints only.
        embedding: float16 bytes, None for an entry that only matches exactly.
        shared_embedding: (text digest, int8 bytes) for the shared embedding cache.
        cost: JSON with what the answer cost: usage and latency.
        lease: Holder of the lease that ends with this put, empty for none.
        stretch: Factor on the ttl that is in `ttl` already, for the next refresh.
        budget: What the namespace may hold; None for no limit.
        saves: Tokens and milliseconds that a hit saves, None for what isn't known.
        spare: Bytes that the entry will grow by.
        created_us: When it was stored first, for an entry that is put back; None for now.
        uses: Uses of entries that the store hasn't been told of, where there is a budget.
    """

    entry_id: str
    scope: str
    prompt: str
    response: bytes
    tags: tuple[str, ...]
    all_tags: tuple[str, ...]
    epoch: str
    fence_us: int | None
    ttl: float | None
    keep: float | None
    now: float
    expires_at: float | None
    confidence: float | None
    kind: str | None
    embedding: bytes | None
    fingerprint: str
    shared_embedding: tuple[str, bytes] | None = None
    request: str = ""
    cost: str = ""
    lease: str = ""
    stretch: float = 1.0
    budget: Budget | None = None
    saves: tuple[float | None, float | None] = (None, None)
    spare: int = 0
    created_us: int | None = None
    uses: Uses = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A wish to be the one that calls the model for an entry.

    Attributes:
        holder: Names whoever wishes it, once.
        seconds: How long the lease lasts unless it is extended.
        epoch: The store's epoch at the lookup that missed.
        fence_us: The store's clock at that lookup, microseconds; None for now.
        since_us: An entry stored after this is the answer, and nothing is claimed; None to claim all the same.
        instead_of: A holder whose lease is taken over, because its answer could not be stored any more; empty for nobody.
        names: Generations that the answer will obey.
    """

    entry_id: str
    holder: str
    seconds: float
    epoch: str
    fence_us: int | None
    since_us: int | None
    instead_of: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """What the store said to a claim.

    Attributes:
        state: ``taken`` (call the model), ``held`` (somebody does), ``stored`` (there is an answer by now) or
            ``unshared`` (somebody did, and the answer wasn't stored: don't wait for the next one).
        holder: Who holds the lease.
        left: Seconds until it ends by itself.
        fence_us: The store's clock when the holder looked up.
        epoch, time_us: The store's epoch and clock, after the claim.
        raised_us: The store's clock when one of the claim's generations was raised last; 0 for never.
    """

    state: str
    holder: str
    left: float
    fence_us: int
    epoch: str
    time_us: int
    raised_us: int


@dataclass(frozen=True, slots=True)
class PutReply:
    """What the store said to a draft: outcome as in `reasons.STORE_OUTCOMES`.

    Attributes:
        written: Whether the entry is in the store, served or not.
        evicted: Why entries went to make room: ``entries`` or ``bytes``, once for each.
    """

    outcome: str
    revision: int
    time_us: int
    written: bool = False
    evicted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the change log.

    Attributes:
        epoch: The store's epoch; empty if it has none yet.
        sequence: Sequence number of the newest record, 0 if there is none.
        mark: Tells the record that was asked about from any other that may have its number in a store that
            went back in time; empty if there is no such record.
    """

    epoch: str
    sequence: int
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One record of the change log.

    Attributes:
        sequence: Counts up by one; a jump means that records were lost.
        op: ``add``, ``withdraw``, ``block`` (a text was refused for an entry), ``evict``, ``tag`` or ``clear``.
        epoch: The store's epoch when it was written.
        entry_id, scope, fingerprint: The entry, for ``add``, ``withdraw``, ``block`` and ``evict``.
        expires_at: Seconds since the Unix epoch, None for never.
        names: Generations that were raised, for ``tag``.
        mark: As in `Position`.
        until: For ``withdraw``, ``block`` and ``tag``: what was fenced up to then is withdrawn, by the clock of that epoch,
            which is this store's where it is empty; None if the record doesn't say.
        again: Whether it was withdrawn before, and the store had forgotten it.
    """

    sequence: int
    op: str
    epoch: str
    entry_id: str = ""
    scope: str = ""
    fingerprint: str = ""
    expires_at: float | None = None
    names: tuple[str, ...] = ()
    mark: str = ""
    until: Fence | None = None
    again: bool = False

    def told(self) -> list[Former]:
        """Return the withdrawals that it tells of; none if it doesn't say when they were."""
        if self.until is None:
            return []
        told = [Former("name", name, self.until) for name in self.names]
        if self.op in ("withdraw", "block"):
            told.append(Former("id" if self.op == "withdraw" else "block", self.entry_id, self.until))
        return told


@dataclass(frozen=True, slots=True)
class Former:
    """A withdrawal of before, for a store that may have forgotten it.

    Attributes:
        kind: ``id`` for an entry, ``block`` for one that a text was refused for, ``name`` for a generation. A store
            that has forgotten the text withdraws the entry.
        at: What was fenced up to then is withdrawn; the epoch is the store's at that time, empty if it isn't known.
    """

    kind: Literal["id", "block", "name"]
    name: str
    at: Fence


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What withdrawing by name did.

    Attributes:
        entry_ids: Those that were live.
        time_us: The store's clock.
        durability: ``memory``, ``local`` or ``replicas:<n>``.
        count: Withdrawals that the store has counted, this one included.
        epoch: The store's epoch; empty if it has none.
    """

    entry_ids: tuple[str, ...]
    time_us: int
    durability: str
    count: int = 0
    epoch: str = ""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A withdrawn entry, for operators."""

    entry_id: str
    withdrawn_at: float  # seconds since the Unix epoch
    reason: str
    count: int
    prompt: str
    text: str


class FeedbackRules(NamedTuple):
    """What a policy says of verdicts, all alike."""

    raters: int
    window: float  # seconds
    keep: float  # seconds
    rate: int  # verdicts of one principal per rate_window
    rate_window: float  # seconds
    trust: int  # weight of raters for the answer that raises `raters` by one, at most to twice it; 0 if none does
    trust_window: float  # seconds


class Mark(NamedTuple):  # made for each verdict: a dataclass takes three times as long
    """One verdict as the store records it; names are digests already."""

    entry_id: str
    revision: int | None
    verdict: int
    about: str
    principal: str
    nonce: str
    text: str
    similarity: float | None
    weight: float  # of this rater
    rules: FeedbackRules


@dataclass(frozen=True, slots=True)
class Stale:
    """An entry that ought to be answered again.

    Attributes:
        why: ``feedback``, ``feedback:match`` or ``invalidated`` (it was withdrawn just now), ``stale_tag`` or
            ``expired`` (a lookup met it), ``asked``.
        revision: The revision that is bad; None for whatever was stored when it was queued.
    """

    entry_id: str
    why: str
    revision: int | None = None

    @property
    def withdrawn(self) -> bool:
        """Whether it was withdrawn just now, so that work already in hand may have missed it."""
        return self.why in ("feedback", "feedback:match", "invalidated")


@dataclass(frozen=True, slots=True)
class Refresh:
    """One piece of work in the regeneration queue, claimed by this consumer.

    Attributes:
        ticket: Names the piece of work, for `finish_refreshes`.
        entry_id: The entry to be answered again.
        why: As in `Stale`; ``again`` where it went bad once more while it was worked on.
        queued_at: Seconds since the Unix epoch, the store's clock.
        tries: How often it was claimed, this time included.
        revision: The revision that is bad; None for what was stored up to `queued_at`.
    """

    ticket: str
    entry_id: str
    why: str
    queued_at: float
    tries: int
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class Swept:
    """What one clean-up did; all zero if another process had the lease.

    Attributes:
        generations: Folded into the floor.
        tombstones: Forgotten.
        announced: Entries announced that a crashed writer left.
        members: Expired entries taken off the lists of what scopes hold.
    """

    leader: bool = False
    generations: int = 0
    tombstones: int = 0
    announced: int = 0
    members: int = 0


@dataclass(frozen=True, slots=True)
class Foreign:
    """An entry that has another encoder's embedding, and none of this one."""

    entry_id: str
    revision: int
    scope: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Embedded:
    """One more embedding for an entry: float16 bytes."""

    entry_id: str
    revision: int
    scope: str
    embedding: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reembedding:
    """How far embedding stored prompts again, after a change of encoder, has come.

    Attributes:
        fingerprint: The encoder that they are embedded with.
        done: Prompts embedded in this pass, or in the last that had something to do.
        skipped: Prompts left as they are: too long for this encoder, unknown to it, or changed meanwhile.
        total: Prompts that there were at the pass's start.
        started, finished: Seconds since the Unix epoch, the store's clock; `finished` is None while it goes on.
        leader: Whether this process did it; False says what another one wrote down.
    """

    fingerprint: str
    done: int = 0
    skipped: int = 0
    total: int = 0
    started: float | None = None
    finished: float | None = None
    leader: bool = False


@dataclass(frozen=True, slots=True)
class EncodersSeen:
    """Which encoders are in use in a namespace.

    Attributes:
        now: The store's clock, seconds since the Unix epoch.
        seen: Fingerprint → when a process last said that it uses it, the store's clock.
        progress: Of embedding again with the encoder that was asked about; None if that was never begun.
    """

    now: float
    seen: Mapping[str, float]
    progress: Reembedding | None


@dataclass(frozen=True, slots=True)
class LateEmbedding:
    """An embedding that wasn't ready when its entry was stored."""

    entry_id: str
    revision: int
    scope: str
    fingerprint: str
    embedding: bytes
    epoch: str
    expires_at: float | None


class Store(Protocol):
    """Where entries live. Every method but `scan` and `close` is one round trip, or says otherwise.

    Any of them raises `StoreUnavailableError` when the store doesn't answer within `timeout` seconds.
    """

    def read(
        self,
        ids: Sequence[str],
        tags: Sequence[str],
        *,
        embedding: tuple[str, str] | None,
        copies: int = 0,
        timeout: float,
    ) -> View:
        """Read entries, then generations and clock.

        Args:
            embedding: (fingerprint, text digest) to read from the shared embedding cache as well.
            copies: Read the response of the one entry from one of so many copies, where the store has nodes to spread
                them over; the entry's state is read where it lies all the same.
        """
        ...

    def put(self, draft: Draft, *, timeout: float) -> PutReply:
        """Store an entry atomically and announce it."""
        ...

    def claim(self, claim: Claim, *, timeout: float) -> Claimed:
        """Take the lease on calling the model for an entry, or learn who has it."""
        ...

    def extend(self, leases: Sequence[tuple[str, str]], seconds: float, *, timeout: float) -> list[bool]:
        """Hold leases, (entry id, holder) each, for so many seconds from now; False where it is another's by now."""
        ...

    def release(
        self, leases: Sequence[tuple[str, str]], *, unshared: float | None = None, timeout: float
    ) -> None:
        """Give leases, (entry id, holder) each, back.

        Args:
            unshared: Seconds for which whoever claims is told that there is nothing to wait for; None for none.
        """
        ...

    def put_embedding(
        self, fingerprint: str, digest: str, data: bytes, ttl: float, *, timeout: float
    ) -> None:
        """Keep an embedding in the shared cache."""
        ...

    def attach(self, late: LateEmbedding, *, timeout: float) -> bool:
        """Give an entry its embedding; False if it is another revision by now."""
        ...

    def set_aside(self, entry_id: str, *, keep: float, timeout: float) -> None:
        """Move an entry that can't be read out of the way, and keep it `keep` seconds for whoever investigates."""
        ...

    def withdraw(
        self, ids: Sequence[str], reason: str, *, keep: float, durability: str, timeout: float
    ) -> Withdrawn:
        """Withdraw entries by name."""
        ...

    def raise_generations(
        self, names: Sequence[str], *, before: float = 0.0, durability: str, timeout: float
    ) -> Withdrawn:
        """Make every entry stale that obeys one of these generations and was fenced up to `before` seconds ago."""
        ...

    def withdraw_again(
        self, former: Sequence[Former], *, keep: float, durability: str, timeout: float
    ) -> Withdrawn:
        """Withdraw what was withdrawn before, as of then, where the store has forgotten it; several round trips.

        Returns:
            The entries and generations that it had forgotten, in `entry_ids`.
        """
        ...

    def restore(self, entry_id: str, *, timeout: float) -> bool:
        """Bring a withdrawn entry back, with the fence and the age it had; several round trips.

        Returns:
            False if there is none, or what was invalidated since, its ttl or another epoch has ended it anyway.
        """
        ...

    def feedback(self, mark: Mark, *, durability: str, timeout: float) -> FeedbackResult:
        """Record one verdict, count, and withdraw or block in the same step."""
        ...

    def members(self, scope: str, fingerprint: str, *, timeout: float) -> list[tuple[str, float | None]]:
        """Return the entries that the scope holds, with their expiry."""
        ...

    def embeddings(self, ids: Sequence[str], fingerprint: str, *, timeout: float) -> list[bytes | None]:
        """Return the embeddings that entries have of one encoder, float16 bytes."""
        ...

    def changes(self, after: int, *, count: int, block: float) -> list[Change]:
        """Return what the log says after a sequence number, waiting up to `block` seconds for the first."""
        ...

    def position(self, at: int | None = None, *, timeout: float) -> Position:
        """Return where the log ends, with the mark of its newest record, or of the one with number `at`."""
        ...

    def secret(self, offer: bytes, *, timeout: float) -> bytes:
        """Return the namespace's root secret; the offer becomes it if there is none."""
        ...

    def queue_refresh(self, stale: Sequence[Stale], *, timeout: float) -> int:
        """Put entries on the regeneration queue, one ticket each; returns how many are new there.

        Names under which nothing is stored are left out, and so is what a full queue has no room for.
        """
        ...

    def take_refreshes(self, consumer: str, *, count: int, idle: float, timeout: float) -> list[Refresh]:
        """Claim work: what nobody has, and what another consumer claimed `idle` seconds ago and didn't finish."""
        ...

    def finish_refreshes(self, done: Sequence[Refresh], *, timeout: float) -> None:
        """Take finished work off the queue; what went bad again meanwhile is queued anew."""
        ...

    def get_many(self, ids: Sequence[str], *, timeout: float) -> list[Entry | None]:
        """Return entries whole, with `obeys`, `request` and `stretch`, whatever their state."""
        ...

    def tally(self, counts: Mapping[str, int], *, timeout: float) -> dict[str, int]:
        """Add to the namespace's totals of what was watched; returns them."""
        ...

    def versions(self, *, timeout: float) -> list[tuple[str, float]]:
        """Return ``<model>/<version>``, percent-encoded, with the time of the last put, newest first."""
        ...

    def report_hot(self, holder: str, report: str, *, timeout: float) -> dict[str, str]:
        """Tell what is hot in one process; returns all processes' reports. An empty report only asks."""
        ...

    def note_uses(self, uses: Uses, budget: Budget, *, timeout: float) -> None:
        """Tell the namespace's accounts which entries were served; one that has none is left alone."""
        ...

    def sweep(
        self, *, lease: float, keep: float, generations: int, budget: Budget | None = None, timeout: float
    ) -> Swept:
        """Clean up under a lease of so many seconds; several round trips."""
        ...

    def tombstones(self, *, limit: int, timeout: float) -> list[Tombstone]:
        """List withdrawn entries, newest first."""
        ...

    def scan(self, *, count: int = 500) -> Iterator[list[Entry]]:
        """Walk over all entries of the namespace in batches; for operators, never on a live path."""
        ...

    def info(self, *, timeout: float) -> Mapping[str, str]:
        """Return facts about the server: version, persistence, eviction policy, memory."""
        ...

    def close(self) -> None:
        """Release connections that the store made itself."""
        ...


class BackgroundStore(Store, Protocol):
    """A store that a cache's own threads work on, besides requests; always synchronous."""

    def encoders(self, fingerprint: str, *, timeout: float) -> EncodersSeen:
        """Note that an encoder is in use, and return which are."""
        ...

    def lead(self, name: str, seconds: float, *, timeout: float) -> bool:
        """Take a lease, or hold it for longer; False if another process has it."""
        ...

    def resign(self, name: str, *, timeout: float) -> None:
        """Give a lease back."""
        ...

    def foreign(self, ids: Sequence[str], fingerprint: str, *, timeout: float) -> list[Foreign]:
        """Return those of the entries that are live and have another encoder's embedding but none of this one."""
        ...

    def scan_foreign(self, fingerprint: str, *, count: int = 500) -> Iterator[list[Foreign]]:
        """Walk over all such entries of the namespace in batches, empty ones too."""
        ...

    def embed(self, given: Sequence[Embedded], fingerprint: str, *, timeout: float) -> int:
        """Give entries one more embedding, and announce them; returns how many still were that revision."""
        ...

    def note_reembedding(self, progress: Reembedding, *, timeout: float) -> None:
        """Write down how far embedding again has come, for all processes to read."""
        ...

    def forget_encoders(self, fingerprints: Sequence[str], *, timeout: float) -> int:
        """Drop the embeddings of encoders, and the lists of what they find; by a scan. Returns how many."""
        ...


class AsyncStore(Protocol):
    """`Store`, awaited: the same methods with the same meaning."""

    async def read(
        self,
        ids: Sequence[str],
        tags: Sequence[str],
        *,
        embedding: tuple[str, str] | None,
        copies: int = 0,
        timeout: float,
    ) -> View: ...

    async def put(self, draft: Draft, *, timeout: float) -> PutReply: ...

    async def claim(self, claim: Claim, *, timeout: float) -> Claimed: ...

    async def extend(
        self, leases: Sequence[tuple[str, str]], seconds: float, *, timeout: float
    ) -> list[bool]: ...

    async def release(
        self, leases: Sequence[tuple[str, str]], *, unshared: float | None = None, timeout: float
    ) -> None: ...

    async def put_embedding(
        self, fingerprint: str, digest: str, data: bytes, ttl: float, *, timeout: float
    ) -> None: ...

    async def attach(self, late: LateEmbedding, *, timeout: float) -> bool: ...

    async def set_aside(self, entry_id: str, *, keep: float, timeout: float) -> None: ...

    async def withdraw(
        self, ids: Sequence[str], reason: str, *, keep: float, durability: str, timeout: float
    ) -> Withdrawn: ...

    async def raise_generations(
        self, names: Sequence[str], *, before: float = 0.0, durability: str, timeout: float
    ) -> Withdrawn: ...

    async def withdraw_again(
        self, former: Sequence[Former], *, keep: float, durability: str, timeout: float
    ) -> Withdrawn: ...

    async def restore(self, entry_id: str, *, timeout: float) -> bool: ...

    async def feedback(self, mark: Mark, *, durability: str, timeout: float) -> FeedbackResult: ...

    async def members(
        self, scope: str, fingerprint: str, *, timeout: float
    ) -> list[tuple[str, float | None]]: ...

    async def embeddings(
        self, ids: Sequence[str], fingerprint: str, *, timeout: float
    ) -> list[bytes | None]: ...

    async def changes(self, after: int, *, count: int, block: float) -> list[Change]: ...

    async def position(self, at: int | None = None, *, timeout: float) -> Position: ...

    async def secret(self, offer: bytes, *, timeout: float) -> bytes: ...

    async def queue_refresh(self, stale: Sequence[Stale], *, timeout: float) -> int: ...

    async def take_refreshes(
        self, consumer: str, *, count: int, idle: float, timeout: float
    ) -> list[Refresh]: ...

    async def finish_refreshes(self, done: Sequence[Refresh], *, timeout: float) -> None: ...

    async def get_many(self, ids: Sequence[str], *, timeout: float) -> list[Entry | None]: ...

    async def tally(self, counts: Mapping[str, int], *, timeout: float) -> dict[str, int]: ...

    async def versions(self, *, timeout: float) -> list[tuple[str, float]]: ...

    async def report_hot(self, holder: str, report: str, *, timeout: float) -> dict[str, str]: ...

    async def note_uses(self, uses: Uses, budget: Budget, *, timeout: float) -> None: ...

    async def sweep(
        self, *, lease: float, keep: float, generations: int, budget: Budget | None = None, timeout: float
    ) -> Swept: ...

    async def tombstones(self, *, limit: int, timeout: float) -> list[Tombstone]: ...

    def scan(self, *, count: int = 500) -> AsyncIterator[list[Entry]]: ...

    async def info(self, *, timeout: float) -> Mapping[str, str]: ...

    async def close(self) -> None: ...
