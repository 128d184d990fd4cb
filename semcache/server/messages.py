"""ASGI messages: reading a body within limits, and sending an answer to a client that may be slow or gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from semcache.server.errors import HttpError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientGoneError(Exception):
    """The client closed the connection; there is nobody to answer."""


def headers_of(scope: Scope) -> list[tuple[str, str]]:
    """Return a request's headers, names in lower case."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]


def check_length(headers: dict[str, str], most: int) -> None:
    """Raise where a body says of itself that it is too large.

    Raises:
        HttpError: 413.
    """
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > most:
        raise too_large(most)


def too_large(most: int) -> HttpError:
    """Return the error for a body that is too large."""
    return HttpError(413, f"the body is larger than {most} bytes", "body_too_large")


async def body_of(receive: Receive, headers: dict[str, str], *, most: int, seconds: float) -> bytes:
    """Read a whole body.

    Raises:
        HttpError: 413 for one of more than `most` bytes, 408 for one that takes longer than `seconds`.
        ClientGoneError: It didn't come to its end.
    """
    check_length(headers, most)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                part = message.get("body", b"")
                size += len(part)
                if size > most:
                    raise too_large(most)
                if part:
                    parts.append(bytes(part))
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError as error:
        raise HttpError(408, f"the body took longer than {seconds:g} s", "slow_body") from error


async def body_parts(
    receive: Receive, headers: dict[str, str], *, most: int, seconds: float
) -> AsyncIterator[bytes]:
    """Yield a body as it comes; `seconds` is for each part.

    Raises:
        HttpError: As `body_of` does.
        ClientGoneError: It didn't come to its end.
    """
    check_length(headers, most)
    size = 0
    while True:
        try:
            async with asyncio.timeout(seconds):
                message = await receive()
        except TimeoutError as error:
            raise HttpError(408, f"no bytes of the body for {seconds:g} s", "slow_body") from error
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise too_large(most)
        if part:
            yield bytes(part)
        if not message.get("more_body"):
            return


def encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as ASGI wants them; a value with a control character can't be one and is left out."""
    return [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers
        if value.isprintable() or not any(c in value for c in "\r\n\0")
    ]


async def send_whole(send: Send, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
    """Send an answer with its body."""
    kept = [pair for pair in headers if pair[0].lower() != "content-length"]
    raw = encoded([*kept, ("content-length", str(len(body)))])
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: HttpError) -> None:
    """Send an error."""
    headers = [("content-type", "application/json"), ("cache-control", "no-store"), *error.headers]
    await send_whole(send, error.status, headers, error.body)


async def send_chunks(
    send: Send,
    receive: Receive,
    status: int,
    headers: Iterable[tuple[str, str]],
    chunks: AsyncIterator[bytes],
    *,
    seconds: float,
) -> None:
    """Send a body as it comes; give up on a client that takes longer than `seconds` for a chunk, or is gone.

    Raises:
        ClientGoneError: The client went away or stopped reading.
    """
    await send({"type": "http.response.start", "status": status, "headers": encoded(headers)})
    task = asyncio.current_task()
    assert task is not None
    over = False
    watcher = asyncio.create_task(_gone(receive))
    watcher.add_done_callback(lambda _: None if over else task.cancel() and None)
    try:
        async for chunk in chunks:
            async with asyncio.timeout(seconds):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except TimeoutError as error:
        raise ClientGoneError from error
    except asyncio.CancelledError:
        if not watcher.done() or watcher.cancelled():
            raise
        task.uncancel()
        raise ClientGoneError from None
    finally:
        over = True
        watcher.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
