"""Copies a stream while it passes by. Pure."""

from __future__ import annotations

from openai_semcache.accumulate import Accumulator
from openai_semcache.exchange import Finish
from openai_semcache.requests import ParsedRequest
from openai_semcache.responses import response_of
from semcache import Lead


class Keep:
    """Copies a stream while it passes by; says what the whole of it was.

    Args:
        lead: The right to answer; others may wait for the stream's end.
        max_bytes: A longer stream is given up.
    """

    def __init__(self, parsed: ParsedRequest, lead: Lead, *, max_bytes: int) -> None:
        self.lead = lead
        self._accumulator = Accumulator(parsed.endpoint, max_bytes=max_bytes)
        self._parsed = parsed

    @property
    def hopeless(self) -> bool:
        """Whether nothing will come of it."""
        return self._accumulator.failed

    def feed(self, chunk: bytes) -> None:
        """Take bytes that are on their way to the caller."""
        self._accumulator.feed(chunk)

    def settle(self, *, ended: bool) -> Finish | None:
        """Return the end of the lead; None, and the lead given up, if the stream was cut. Call it once.

        Args:
            ended: Whether the stream ended by itself.
        """
        if ended:
            self._accumulator.finish()
        answer = self._accumulator.result()
        if not isinstance(answer, dict):
            self.lead.give_up()
            return None
        parsed = self._parsed
        return Finish(self.lead, response_of(parsed.endpoint, answer, structure=parsed.structure))
