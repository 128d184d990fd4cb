"""semcache: a semantic cache for LLM responses."""

from semcache._version import __version__

__all__ = ["__version__"]
