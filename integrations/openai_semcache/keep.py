"""Copies a stream while it passes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openai_semcache.accumulate import Accumulator
from openai_semcache.exchange import Put
from openai_semcache.requests import ParsedRequest
from openai_semcache.responses import response_of
from semcache.types import Fence


class Keep:
    """Copies a stream while it passes by; gives what to store once it is whole."""

    def __init__(
        self,
        parsed: ParsedRequest,
        fence: Fence | None,
        *,
        max_bytes: int,
        monotonic: Callable[[], float],
    ) -> None:
        self._accumulator = Accumulator(parsed.endpoint, max_bytes=max_bytes)
        self._parsed = parsed
        self._fence = fence
        self._started = monotonic()
        self._monotonic = monotonic
        self._taken = False

    def feed(self, chunk: bytes) -> None:
        """Take bytes that are on their way to the caller."""
        self._accumulator.feed(chunk)

    def settle(self, *, ended: bool) -> Put | None:
        """Return what to store, once; None if the stream was cut.

        Args:
            ended: Whether the stream ended by itself.
        """
        if self._taken:
            return None
        self._taken = True
        if ended:
            self._accumulator.finish()
        answer = self._accumulator.result()
        return self.settle_whole(answer) if isinstance(answer, dict) else None

    def settle_whole(self, answer: Any) -> Put:
        """Return what to store of a whole answer's JSON."""
        parsed = self._parsed
        response = response_of(
            parsed.endpoint,
            answer,
            latency_ms=(self._monotonic() - self._started) * 1000,
            structure=parsed.structure,
        )
        return Put([(parsed.request, response, self._fence)], parsed.controls.tags, parsed.controls.ttl)
