"""What the API takes and gives, as pydantic models with examples; they make the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints, model_validator

ENTRY_ID = "gpt-4o-mini/~/5f2b7c1d9e8a4b3c6d7e8f9a0b1c2d3e"
Tag = Annotated[str, StringConstraints(min_length=1, max_length=256)]
EntryId = Annotated[str, StringConstraints(min_length=1, max_length=400)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Seconds = Annotated[float, Field(ge=0, le=10**10, allow_inf_nan=False)]
Similarity = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]


class Model(BaseModel):
    """Base: unknown members are errors, so that a typo isn't ignored."""

    model_config = ConfigDict(extra="forbid")


def _example(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": list(examples)})


class Question(Model):
    """One question to a model, as a proxied call would ask it."""

    model: str = Field(default="", max_length=256, description="Name of the model.")
    prompt: str | None = Field(default=None, description="Short for one user message.")
    messages: list[dict[str, Any]] | None = Field(
        default=None, description="The conversation; `input` of a response."
    )
    endpoint: Literal["chat", "responses", "completions"] = "chat"
    params: dict[str, Any] = Field(default_factory=dict, description="Further members of the request's body.")
    tenant: str | None = Field(default=None, max_length=256, description="Whose; for operators only.")

    @model_validator(mode="after")
    def _one_text(self) -> Question:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give prompt or messages, one of them")
        if self.endpoint == "completions" and self.prompt is None:
            raise ValueError("completions take a prompt, not messages")
        return self


class LookupRequest(Question):
    """A lookup."""

    model_config = _example(
        {"model": "gpt-4o-mini", "prompt": "How do I reset my password?", "explain": True}
    )
    threshold: Similarity | None = Field(
        default=None, description="Least cosine similarity; may only tighten."
    )
    explain: bool = Field(default=False, description="Also say why each candidate was refused.")
    record: bool = Field(default=False, description="Count it, and give a lookup id for feedback.")


class Rejected(Model):
    """A candidate that may not be served."""

    entry_id: str
    similarity: float
    reason: str
    detail: str = ""


class LookupAnswer(Model):
    """What a lookup found."""

    status: Literal["hit", "miss", "bypass", "refresh", "error"]
    match: Literal["exact", "semantic"] | None = None
    similarity: float | None = None
    reason: str | None = None
    entry_id: str | None = None
    lookup_id: str | None = None
    age: float | None = Field(default=None, description="Seconds.")
    prompt: str | None = Field(default=None, description="The prompt that the entry was stored for.")
    text: str | None = None
    response: Any = Field(default=None, description="The stored answer, whole.")
    rejected: list[Rejected] = []


class PutRequest(Question):
    """An answer to store."""

    model_config = _example(
        {
            "model": "gpt-4o-mini",
            "prompt": "How do I reset my password?",
            "response": "Open Settings and choose Reset password.",
            "tags": ["help:account"],
            "ttl": 86400,
        }
    )
    response: str | dict[str, Any] = Field(description="The answer's text, or the upstream's whole answer.")
    tags: list[Tag] = Field(default=[], max_length=32)
    ttl: Seconds | None = Field(default=None, description="Seconds; null for the policy's.")
    confidence: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)


class PutAnswer(Model):
    """What became of it."""

    stored: bool
    reason: str = Field(description="`stored`, `replaced`, or why not.")
    entry_id: str | None = None
    lookup_id: str | None = None


class EntrySummary(Model):
    """An entry in a list."""

    entry_id: str
    model: str
    prompt: str
    text: str
    state: Literal["live", "withdrawn"]
    tags: list[str]
    created_at: float = Field(description="Seconds since the Unix epoch.")
    ttl: float | None
    revision: int


class EntryDetail(EntrySummary):
    """An entry."""

    tenant: str | None = None
    version: str
    age: float = Field(description="Seconds.")
    ttl_left: float | None
    confidence: float | None
    kind: str | None
    finish_reason: str | None
    usage: dict[str, Any] | None
    blocked: int = Field(description="Texts refused for this entry.")
    observations: list[tuple[float, bool]] = Field(description="(similarity, right) of judged servings.")
    response: Any = None


class EntryList(Model):
    """A page of entries, newest first."""

    entries: list[EntrySummary]
    next: str | None = Field(default=None, description="Give it as `after` for the next page.")


class Deleted(Model):
    """What a withdrawal by name did."""

    entry_id: str
    withdrawn: bool


class SimilarTo(Model):
    """Entries whose prompt is close to a text."""

    text: str = Field(min_length=1, max_length=10_000)
    threshold: float = Field(ge=-1, le=1, allow_inf_nan=False, description="Least cosine similarity.")


class InvalidateRequest(Model):
    """What to withdraw: one kind of selector; `tenant` and `older_than` narrow the others."""

    model_config = _example({"tags": ["help:account"], "dry_run": True}, {"ids": [ENTRY_ID]}, {"all": True})
    ids: list[EntryId] = Field(default=[], max_length=1000)
    tags: list[Tag] = Field(default=[], max_length=100)
    model: Name | None = None
    model_version: Name | None = None
    segment: dict[str, str] | None = None
    subject: Name | None = None
    older_than: Seconds | None = Field(default=None, description="Seconds; by itself more than 0.")
    similar_to: SimilarTo | None = Field(default=None, description="By a scan; give no other selector.")
    tenant: Name | None = Field(
        default=None, description="For operators only; others' withdrawals are their own."
    )
    all: StrictBool = False
    dry_run: StrictBool = Field(default=False, description="Only count.")


class InvalidateAnswer(Model):
    """What was withdrawn."""

    matched: int | None = Field(description="Entries; null where counting would mean a scan.")
    withdrawn: bool
    selectors: list[str]
    dry_run: bool
    durability: str


class FeedbackRequest(Model):
    """A verdict on a serving."""

    model_config = _example({"lookup_id": "WyIwIiwiZGVmYXVsdCIs…", "verdict": -1, "rater": "user-17"})
    lookup_id: str | None = Field(
        default=None, max_length=4096, description="`x-semcache-lookup-id` of the serving."
    )
    entry_id: EntryId | None = Field(default=None, description="In place of it, for trusted callers.")
    verdict: Literal[-1, 0, 1] | None = None
    score: Literal[-1, 0, 1] | None = Field(default=None, description="Another name for `verdict`.")
    rater: str | None = Field(
        default=None, min_length=1, max_length=256, description="Who says so; counts for trusted keys only."
    )
    about: Literal["answer", "match"] | None = None
    comment: str | None = Field(default=None, max_length=4000)
    metadata: dict[str, Any] | None = None
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=256)

    @model_validator(mode="after")
    def _one_of_each(self) -> FeedbackRequest:
        if (self.lookup_id is None) == (self.entry_id is None):
            raise ValueError("give lookup_id or entry_id, one of them")
        if (self.verdict is None) == (self.score is None):
            raise ValueError("give verdict (or score): -1, 0 or 1")
        return self


class FeedbackAnswer(Model):
    """What a verdict did."""

    recorded: bool
    action: Literal["none", "recorded", "blocked", "withdrawn"]
    entry_id: str
    raters: int = Field(description="Distinct raters against it inside the window.")
    weight: float = Field(description="What they weigh together.")
    needed: float = Field(description="The weight that withdraws it; 0 where nothing can be withdrawn.")
    rater_counted: bool = Field(description="Whether `rater` was counted; false where the key isn't trusted.")


class ExplainRequest(Question):
    """A question to explain."""

    model_config = _example({"model": "gpt-4o-mini", "prompt": "How do I reset my password?"})
    threshold: Similarity | None = None


class FoundRule(Model):
    """What one rule said."""

    rule: str
    verdict: Literal["pass", "refuse", "not_applicable"]
    detail: str
    flip: str


class ExplainedCandidate(Model):
    """What explain says about one candidate."""

    entry_id: str
    prompt: str
    similarity: float
    probability: float | None
    reason: str | None
    detail: str
    flip: str
    findings: list[FoundRule]


class ExplainAnswer(Model):
    """What a lookup would do, and why."""

    status: Literal["hit", "miss", "bypass", "refresh", "error"]
    match: str | None = None
    reason: str | None = None
    detail: str = ""
    docs: str
    encoder: str
    candidates: list[ExplainedCandidate]


class WithdrawnEntry(Model):
    """A withdrawn entry."""

    entry_id: str
    withdrawn_at: float
    reason: str
    count: int
    prompt: str
    text: str


class WithdrawnList(Model):
    """Withdrawn entries, newest first."""

    entries: list[WithdrawnEntry]


class RestoreRequest(Model):
    """An entry to bring back."""

    model_config = _example({"entry_id": ENTRY_ID})
    entry_id: EntryId


class RestoreAnswer(Model):
    """What came of it."""

    entry_id: str
    restored: bool


class ErrorDetail(Model):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(Model):
    """An error, in the OpenAI shape."""

    error: ErrorDetail
