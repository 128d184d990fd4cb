"""uvicorn's HTTP protocol with a limit on how long a client may take to send a request's headers."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_Base: Any = AutoHTTPProtocol  # httptools' where installed, else h11's


class Protocol(_Base):  # type: ignore[misc]
    """Closes a connection whose next request isn't there `seconds` after its first byte, or after connecting."""

    seconds = 15.0
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on, unless the headers are whole."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._waiting is None and not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.seconds, self._give_up)

    def _stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()


def protocol_class(seconds: float) -> type[Protocol]:
    """Return the protocol with another limit."""
    return type("Protocol", (Protocol,), {"seconds": seconds})
