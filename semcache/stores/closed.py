"""What a closed cache asks: a store that refuses everything, so that no operation needs to know of closing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn

from semcache.errors import StoreUnavailableError
from semcache.types import Entry

_SAID = "this cache was closed; open another, or close it only when nobody uses it any more"


class ClosedStore:
    """Stands for every method of `protocols.Store`."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise StoreUnavailableError(_SAID)

        return refuse

    def scan(self, *, count: int = 500) -> Iterator[list[Entry]]:
        raise StoreUnavailableError(_SAID)
        yield []


class AsyncClosedStore:
    """Stands for every method of `protocols.AsyncStore`."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def refuse(*_: Any, **__: Any) -> NoReturn:
            raise StoreUnavailableError(_SAID)

        return refuse

    async def scan(self, *, count: int = 500) -> AsyncIterator[list[Entry]]:
        raise StoreUnavailableError(_SAID)
        yield []
