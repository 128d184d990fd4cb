"""What passes between a flow and whoever drives it: calls, replies, and the steps to perform. No rules."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from openai_semcache import headers
from openai_semcache.headers import Info
from openai_semcache.sse import dump
from semcache import Lead
from semcache.types import CacheRequest, Fence, Response

if TYPE_CHECKING:
    from openai_semcache.keep import Keep


@dataclass(frozen=True, slots=True)
class Call:
    """An HTTP request, whatever library it came from. Headers in order, names in any case."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(slots=True)
class Reply:
    """An HTTP answer.

    Attributes:
        body: The whole body as it came (it may be compressed), None if it is streamed.
        content: The whole body decoded.
        chunks: The decoded body as an iterable of bytes; from upstream, asynchronous where the driver is.
        close: Ends a stream early; None where there is nothing to end. Awaited where the driver is asynchronous.
        keep: For a stream being copied: where its bytes go, and what comes of them at its end.
        extensions: What the HTTP library adds.
    """

    status: int
    headers: list[tuple[str, str]]
    body: bytes | None = None
    content: bytes | None = None
    chunks: Any = None
    close: Callable[[], Any] | None = None
    keep: Keep | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is a stream of events."""
        kind = next((value for name, value in self.headers if name.lower() == "content-type"), "")
        return kind.lower().startswith("text/event-stream")


@dataclass(frozen=True, slots=True)
class Send:
    """Send a call upstream; `whole` reads the body before the reply is given. An error's body is always read."""

    call: Call
    whole: bool


@dataclass(frozen=True, slots=True)
class Lookup:
    """Look these up, in order."""

    requests: Sequence[CacheRequest]


@dataclass(frozen=True, slots=True)
class Put:
    """Store these, in order."""

    items: Sequence[tuple[CacheRequest, Response, Fence | None]]
    tags: tuple[str, ...]
    ttl: float | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Serve this, or wait for whoever is answering the same, or lead; gives an `Answer` or a `Lead`."""

    request: CacheRequest
    tags: tuple[str, ...]
    ttl: float | None
    call: Call | None  # how to ask again behind a hit, None for not at all
    read: Callable[[Reply], Response]  # what a whole reply to it says


@dataclass(frozen=True, slots=True)
class Finish:
    """Store the answer that a `Lead` was given for, and give it to those who wait; gives the `Answer`."""

    lead: Lead
    response: Response


Step: TypeAlias = Send | Lookup | Put | Begin | Finish
Steps: TypeAlias = Generator[Step, Any, Reply]


def error_reply(
    status: int, message: str, kind: str, *, code: str | None = None, info: Info | None = None
) -> Reply:
    """Return an error in the OpenAI shape; the SDK is told not to retry it."""
    body = dump({"error": {"message": message, "type": kind, "param": None, "code": code}})
    ours = [] if info is None else headers.info_headers(info)
    out = [("content-type", headers.JSON_TYPE), ("x-should-retry", "false"), *ours]
    return Reply(status, out, body=body, content=body)


def only_if_cached_reply(info: Info) -> Reply:
    """Return the 504 that RFC 9111 asks for."""
    message = f"nothing stored may be served ({info.reason}), and only-if-cached was asked for"
    return error_reply(504, message, "cache_miss", code="only_if_cached", info=info)
