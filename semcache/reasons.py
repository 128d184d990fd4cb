"""The closed lists of reasons: why a lookup missed, and what became of a put.

The same word is in the return value, the metric's label, the log and the HTTP answer. A new reason
is added here first, then to docs/reasons.md.
"""

from __future__ import annotations

from typing import Final, Literal

GUARDS: Final = (
    "number",
    "date",
    "time",
    "unit",
    "currency",
    "negation",
    "antonym",
    "quantifier",
    "tense",
    "name",
    "place",
    "code",
    "quote",
    "direction",
    "order",
    "qualifier",
    "question",
    "substitution",
    "subject",
    "language",
    "context",
    "parts",
    "near_copy",
)
"""Names of the guards; each gives the miss reason ``guard:<name>``."""

BYPASSES: Final = (
    "no_cache",
    "no_store",
    "media",
    "tools",
    "turns",
    "temperature",
    "time_bound",
    "personal",
    "opaque",
    "shadow",
    "policy",
)
"""Why a lookup wasn't attempted; each gives the miss reason ``bypass:<name>``."""

EXACT_ONLY: Final = ("media", "tools", "turns", "opaque", "policy")
"""Why neighbours weren't looked for, where nothing is stored for this very text; each gives ``exact_only:<name>``."""

MISS_REASONS: Final = (
    "no_candidate",
    "below_threshold",
    *(f"guard:{name}" for name in GUARDS),
    "verifier",
    "expired",
    "max_age",
    "stale_tag",
    "withdrawn",
    "blocked_text",
    "epoch",
    "over_window",
    "unknown_tokens",
    "undecodable",
    "deadline",
    "breaker_open",
    "store_unavailable",
    "store_busy",
    "encoder_failed",
    *(f"exact_only:{name}" for name in EXACT_ONLY),
    *(f"bypass:{name}" for name in BYPASSES),
)

STORE_OUTCOMES: Final = (
    "stored",
    "replaced",
    "no_store",
    "error_response",
    "truncated",
    "filtered",
    "refusal",
    "partial",
    "empty_disallowed",
    "low_confidence",
    "tool_calls",
    "media",
    "schema_mismatch",
    "too_large",
    "old_fence",
    "tombstone",
    "deadline",
    "breaker_open",
    "store_unavailable",
    "unserialisable",
    "shadow",
    "policy",
)

FAILURES: Final = frozenset(
    {"undecodable", "deadline", "breaker_open", "store_unavailable", "store_busy", "encoder_failed"}
)
"""Miss reasons that mean that something is broken; HTTP status `error`."""

Status = Literal["hit", "miss", "bypass", "refresh", "error"]


def status_of(reason: str | None) -> Status:
    """Map a miss reason (None for a hit) to the status that HTTP answers and metrics show."""
    if reason is None:
        return "hit"
    if reason == "bypass:no_cache":
        return "refresh"
    if reason.startswith("bypass:"):
        return "bypass"
    return "error" if reason in FAILURES else "miss"


def docs_anchor(reason: str) -> str:
    """Return the name of the section of docs/reasons.md that explains `reason`."""
    return "docs/reasons.md#" + reason.replace(":", "-").replace("_", "-")
