"""semcache for LangChain: a cache for models, a middleware for agents, and embeddings."""

from langchain_semcache.cache import SemcacheCache

__all__ = ["SemcacheCache"]
