"""semcache for LangChain: a cache for models, a middleware for agents, and embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semcache.errors import MissingDependencyError

try:
    from langchain_semcache.cache import SemcacheCache
    from langchain_semcache.embeddings import SemcacheEmbeddings
    from langchain_semcache.encoder import LangChainEncoder
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "langchain_core":
        raise
    raise MissingDependencyError("langchain_semcache", extra="langchain") from error

if TYPE_CHECKING:
    from langchain_semcache.middleware import SemcacheMiddleware

__all__ = ["LangChainEncoder", "SemcacheCache", "SemcacheEmbeddings", "SemcacheMiddleware"]


def __getattr__(name: str) -> Any:
    if name != "SemcacheMiddleware":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from langchain_semcache.middleware import SemcacheMiddleware
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("langchain", "langgraph"):
            raise
        raise MissingDependencyError("SemcacheMiddleware", extra="langchain-agents") from error
    return SemcacheMiddleware
