"""Where a tenant, a segment or a subject comes from: a value, a context variable or a function."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Source: TypeAlias = T | ContextVar[T] | Callable[[], T]


def read(source: Source[T]) -> T:
    """Return the value that counts for this call.

    Raises:
        LookupError: The context variable isn't set, or the function found nothing.
    """
    if isinstance(source, ContextVar):
        return source.get()
    return source() if callable(source) else source
