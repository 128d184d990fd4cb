"""Where a tenant or a segment comes from: a value, a context variable or a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TypeAlias

from semcache.errors import ConfigurationError

Tenant: TypeAlias = str | ContextVar[str] | Callable[[], str] | None
Segment: TypeAlias = (
    Mapping[str, str] | ContextVar[Mapping[str, str]] | Callable[[], Mapping[str, str]] | None
)


def check_sources(tenant: Tenant, segment: Segment) -> None:
    """Raise unless both are what they may be.

    Raises:
        ConfigurationError: One of them isn't.
    """
    if not (tenant is None or isinstance(tenant, str | ContextVar) or callable(tenant)):
        raise ConfigurationError(
            f"tenant is {type(tenant).__name__}, expected a str, a context variable or a function"
        )
    if not (segment is None or isinstance(segment, Mapping | ContextVar) or callable(segment)):
        raise ConfigurationError(
            f"segment is {type(segment).__name__}, expected a mapping, a context variable or a function"
        )


def tenant_now(tenant: Tenant) -> str | None:
    """Return the tenant of this call; None takes the request's credentials.

    Raises:
        LookupError: The context variable isn't set, or the function found nothing.
    """
    if isinstance(tenant, ContextVar):
        return tenant.get()
    return tenant() if callable(tenant) else tenant


def segment_now(segment: Segment) -> Mapping[str, str] | None:
    """Return the segment of this call; raises as `tenant_now` does."""
    if isinstance(segment, ContextVar):
        return segment.get()
    return segment() if callable(segment) else segment
