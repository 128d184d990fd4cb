"""semcache: a semantic cache for LLM responses.

Names are resolved when they are first used, so that importing this package loads neither Redis nor an
encoder nor an index.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from semcache._version import __version__

if TYPE_CHECKING:
    from semcache.cache import AsyncSemanticCache, SemanticCache
    from semcache.errors import (
        ConfigurationError,
        EmbeddedServerError,
        EncoderError,
        InvalidRequestError,
        MissingDependencyError,
        OnlyIfCachedError,
        RateLimitedError,
        SemcacheError,
        StoreUnavailableError,
        UnknownLookupError,
    )
    from semcache.flights import Lead
    from semcache.metrics import Stats
    from semcache.policy import Policy
    from semcache.types import (
        Answer,
        CacheRequest,
        Entry,
        Explanation,
        FeedbackResult,
        Fence,
        Hit,
        Invalidated,
        Miss,
        ModelVersion,
        Response,
        Stored,
    )

_HOMES = {
    "AsyncSemanticCache": "cache",
    "SemanticCache": "cache",
    "Lead": "flights",
    "Policy": "policy",
    "Stats": "metrics",
    **dict.fromkeys(
        (
            "ConfigurationError", "EmbeddedServerError", "EncoderError", "InvalidRequestError",
            "MissingDependencyError", "OnlyIfCachedError", "RateLimitedError", "SemcacheError",
            "StoreUnavailableError", "UnknownLookupError",
        ),
        "errors",
    ),
    **dict.fromkeys(
        (
            "Answer", "CacheRequest", "Entry", "Explanation", "FeedbackResult", "Fence", "Hit", "Invalidated",
            "Miss", "ModelVersion", "Response", "Stored",
        ),
        "types",
    ),
}  # fmt: skip

__all__ = [
    "Answer",
    "AsyncSemanticCache",
    "CacheRequest",
    "ConfigurationError",
    "EmbeddedServerError",
    "EncoderError",
    "Entry",
    "Explanation",
    "FeedbackResult",
    "Fence",
    "Hit",
    "InvalidRequestError",
    "Invalidated",
    "Lead",
    "Miss",
    "MissingDependencyError",
    "ModelVersion",
    "OnlyIfCachedError",
    "Policy",
    "RateLimitedError",
    "Response",
    "SemanticCache",
    "SemcacheError",
    "Stats",
    "StoreUnavailableError",
    "Stored",
    "UnknownLookupError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
