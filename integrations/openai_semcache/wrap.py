"""`wrap_openai`: puts a cache below a client that exists already."""

from __future__ import annotations

from typing import Any, TypeVar

from openai_semcache.drivers import AsyncCache, Cache, check_cache
from openai_semcache.fields import DEFAULT_OPTIONS, Options
from openai_semcache.sources import Segment, Tenant
from openai_semcache.transport import AsyncCachingTransport, CachingTransport
from semcache.errors import ConfigurationError

Client = TypeVar("Client")


def wrap_openai(
    client: Client,
    cache: Cache | AsyncCache,
    *,
    tenant: Tenant = None,
    segment: Segment = None,
    options: Options = DEFAULT_OPTIONS,
) -> Client:
    """Let a client answer from a cache. It is changed in place and returned.

    Every way of calling it is covered, and clients made from it with `with_options` too: they share its HTTP client.
    Wrapping it again with the same cache and settings changes nothing.

    Args:
        client: `OpenAI`, `AzureOpenAI` and their like, or the HTTP client that one will be given
            (`ChatOpenAI(http_client=wrap_openai(DefaultHttpx2Client(), cache))`).
        cache: `SemanticCache`, or `AsyncSemanticCache` for an asynchronous client.
        tenant: Whose answers these are: a name, or a context variable or function that gives it at each call. None takes
            each request's credentials, so that two API keys never share an answer; name the tenant where credentials
            change by themselves, such as Azure's tokens. Where the variable isn't set, or the function raises
            `LookupError`, nothing is cached.
        segment: People alike, e.g. ``{"locale": "de"}``, or what gives them at each call.
        options: What the application lifts or adds.

    Raises:
        ConfigurationError: It isn't such a client, the cache doesn't fit, or the client has another cache already.
    """
    http: Any = getattr(client, "_client", client)  # older SDKs have a _transport of their own beside it
    if not hasattr(http, "_transport") or not hasattr(http, "_mounts"):
        raise ConfigurationError(
            f"client is {type(client).__name__}, expected an OpenAI client or its HTTP client (httpx2 or httpx)"
        )
    asynchronous = hasattr(http, "aclose")
    check_cache(cache, asynchronous=asynchronous)
    kind: Any = AsyncCachingTransport if asynchronous else CachingTransport

    def wrapped(transport: Any) -> Any:
        made = kind(transport, cache, tenant=tenant, segment=segment, options=options)
        if not isinstance(transport, AsyncCachingTransport | CachingTransport):
            return made
        if not transport.same_as(made):
            raise ConfigurationError(
                f"this {type(client).__name__} already has a cache with other settings; make another client for this one"
            )
        return transport

    mounts = {pattern: inner if inner is None else wrapped(inner) for pattern, inner in http._mounts.items()}
    http._transport = wrapped(http._transport)
    http._mounts = mounts
    return client
