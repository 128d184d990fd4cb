"""A stream on its way to its caller, copied for the cache and for whoever waits for its end.

The caller reads straight from upstream, with nothing in between. Once somebody else waits for the answer, it is read
ahead in the background: nobody waits for a caller who is slow, reads something else first, or leaves early.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, Self

from openai_semcache.drivers import AsyncCache, Cache, finish, finish_async
from openai_semcache.exchange import Reply

logger = logging.getLogger(__name__)

_reading_ahead: Final[set[asyncio.Task[None]]] = set()  # event loops hold their tasks by weak references only


class Tee(Iterator[bytes]):
    """A stream of a synchronous caller. Close it: what is whole by then is stored, and upstream is closed.

    Args:
        reply: From a flow, with its `keep`; its `close` is this stream's from now on.
        cache: Where the answer goes.
    """

    def __init__(self, reply: Reply, cache: Cache) -> None:
        assert reply.keep is not None
        self._chunks: Iterator[bytes] = iter(reply.chunks)
        self._close: Callable[[], object] | None = reply.close
        reply.close = None
        self._keep = reply.keep
        self._cache = cache
        self._source = threading.Lock()  # held by whoever reads from upstream
        self._news = threading.Condition()
        self._ahead: deque[bytes] = deque()  # read, and not yet given to the caller
        self._over: BaseException | None = None  # how it ended: StopIteration, or what upstream raised
        self._background = False
        self._keep.lead.attend(_weakly(self._read_ahead))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        while True:
            if not self._background and self._source.acquire(blocking=False):
                try:
                    if not self._ahead and self._over is None:
                        return self._pull()
                finally:
                    self._source.release()
            with self._news:
                self._news.wait_for(lambda: self._ahead or self._over is not None or not self._background)
                if self._ahead:
                    return self._ahead.popleft()
                if self._over is not None:
                    raise self._over

    def close(self) -> None:
        """The caller wants no more; if others wait, the rest is read for them."""
        if self._source.acquire(blocking=False):
            try:
                if not self._background and self._over is None:
                    self._end(StopIteration(), ended=False)
            finally:
                self._source.release()

    def _pull(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except BaseException as error:
            self._end(error, ended=isinstance(error, StopIteration))
            raise
        self._keep.feed(chunk)
        return chunk

    def _end(self, how: BaseException, *, ended: bool) -> None:
        try:
            if hasattr(self._chunks, "close"):
                self._chunks.close()
            if self._close is not None:
                self._close()
        finally:
            step = self._keep.settle(ended=ended)
            if step is not None:
                finish(step, self._cache)
            with self._news:
                self._over = how
                self._news.notify_all()

    def _read_ahead(self) -> None:
        self._background = True
        threading.Thread(target=self._drain, name="semcache-stream", daemon=True).start()

    def _drain(self) -> None:
        with self._source:
            while self._over is None and not self._keep.hopeless:
                try:
                    chunk = self._pull()
                except BaseException as error:  # noqa: BLE001 - it is the caller's, who is given it
                    logger.debug("a stream ended with %s", type(error).__name__)
                    break
                with self._news:
                    self._ahead.append(chunk)
                    self._news.notify_all()
        if self._over is None:
            self._keep.lead.give_up()
        with self._news:
            self._background = False
            self._news.notify_all()


class AsyncTee(AsyncIterator[bytes]):
    """A stream of an asynchronous caller; as `Tee`. For one task at a time."""

    def __init__(self, reply: Reply, cache: AsyncCache) -> None:
        assert reply.keep is not None
        self._chunks: AsyncIterator[bytes] = aiter(reply.chunks)
        self._close: Callable[[], Awaitable[object]] | None = reply.close
        reply.close = None
        self._keep = reply.keep
        self._cache = cache
        self._source = asyncio.Lock()
        self._news = asyncio.Event()
        self._ahead: deque[bytes] = deque()
        self._over: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._background = False
        self._keep.lead.attend(_weakly(self._attended))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            if not self._background and not self._source.locked():
                async with self._source:
                    if not self._ahead and self._over is None:
                        return await self._pull()
            if self._ahead:
                return self._ahead.popleft()
            if self._over is not None:
                raise self._over
            if self._background:
                self._news.clear()
                await self._news.wait()

    async def aclose(self) -> None:
        """The caller wants no more; if others wait, the rest is read for them."""
        if not self._background and not self._source.locked():
            async with self._source:
                if self._over is None:
                    await self._end(StopAsyncIteration(), ended=False)

    async def _pull(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except BaseException as error:
            await self._end(error, ended=isinstance(error, StopAsyncIteration))
            raise
        self._keep.feed(chunk)
        return chunk

    async def _end(self, how: BaseException, *, ended: bool) -> None:
        try:
            if hasattr(self._chunks, "aclose"):
                await self._chunks.aclose()
            if self._close is not None:
                await self._close()
        finally:
            step = self._keep.settle(ended=ended)
            try:
                if step is not None:
                    await finish_async(step, self._cache)
            finally:
                self._over = how
                self._news.set()

    def _attended(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the stream with it
            self._loop.call_soon_threadsafe(self._read_ahead)

    def _read_ahead(self) -> None:
        if self._over is None:
            self._background = True
            task = self._loop.create_task(self._drain())
            _reading_ahead.add(task)
            task.add_done_callback(_reading_ahead.discard)

    async def _drain(self) -> None:
        try:
            async with self._source:
                while self._over is None and not self._keep.hopeless:
                    try:
                        self._ahead.append(await self._pull())
                    except Exception as error:  # noqa: BLE001 - it is the caller's, who is given it
                        logger.debug("a stream ended with %s", type(error).__name__)
                        break
                    self._news.set()
        finally:
            if self._over is None:
                self._keep.lead.give_up()
            self._background = False
            self._news.set()


def _weakly(method: Callable[[], None]) -> Callable[[], object]:
    """Return a function that calls a method as long as its object lives."""
    reference: Any = weakref.WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call
