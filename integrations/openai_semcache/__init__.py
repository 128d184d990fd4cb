"""A semantic cache under the OpenAI SDK: it answers below the SDK's HTTP client, so SDK types come back genuine.

    client = wrap_openai(OpenAI(), SemanticCache.open())

`Options` says what may be cached beyond the defaults; per-call controls are headers (`x-semcache-…`,
`Cache-Control`) or the body's `cache` member (`extra_body={"cache": {"ttl": 60}}`).
"""

from openai_semcache.again import ask_again
from openai_semcache.call import CachedCall, cached_call
from openai_semcache.fields import Options
from openai_semcache.transport import AsyncCachingTransport, CachingTransport
from openai_semcache.wrap import wrap_openai

__all__ = [
    "AsyncCachingTransport",
    "CachedCall",
    "CachingTransport",
    "Options",
    "ask_again",
    "cached_call",
    "wrap_openai",
]
