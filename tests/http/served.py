"""A real server on loopback, in a thread of the test's process: uvicorn, sockets, the whole application."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import uvicorn

from semcache import AsyncSemanticCache, Policy
from semcache.server.app import Application
from semcache.server.identity import key_digest
from semcache.server.run import uvicorn_config
from semcache.server.settings import Key, Settings
from semcache.testing import TableEncoder

SECRET = "a secret for tests only"
POLICY = Policy(deadline=5.0, threshold=0.9, guards=False)
NEAR = {
    "How do I reset my password?": [1.0, 0.0, 0.0],
    "How can I reset my password?": [0.99, 0.14, 0.0],
    "How might I reset my password?": [0.98, 0.19, 0.0],
    "What may I do to reset my password?": [0.97, 0.24, 0.0],
    "Where is the office?": [0.0, 1.0, 0.0],
}


def key(name: str, tenant: str, *roles: str) -> Key:
    """An API key whose text is ``sc-<name>``."""
    given = frozenset(roles or ("use", "feedback"))
    return Key(name=name, digest=key_digest(SECRET, f"sc-{name}"), tenant=tenant, roles=given)


def bearer(name: str) -> dict[str, str]:
    """Headers that show the key of that name."""
    return {"authorization": f"Bearer sc-{name}"}


async def open_memory(settings: Settings) -> AsyncSemanticCache:
    """A cache in memory with a few neighbours."""
    return await AsyncSemanticCache.open(
        settings.redis or "memory://",
        namespace=settings.namespace,
        policy=settings.policy,
        encoder=TableEncoder(NEAR, default=[0.0, 0.0, 1.0]),
    )


class Served:
    """A running service. `close` it, or use it as a context manager."""

    def __init__(
        self,
        upstream: str,
        *,
        opener: Callable[..., Any] = open_memory,
        telemetry: Any = None,
        **settings: Any,
    ) -> None:
        settings = {"policy": POLICY, "redis": "memory://", "port": 0, "log_level": "warning"} | settings
        self.settings = Settings(upstream=upstream, **settings)
        self.app = Application(self.settings, opener=opener, telemetry=telemetry)
        self.server = uvicorn.Server(uvicorn_config(self.settings, self.app))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        until = time.monotonic() + 30
        while not self.server.started:
            if time.monotonic() > until or not self._thread.is_alive():
                raise RuntimeError("the server didn't start")
            time.sleep(0.005)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.origin = f"http://127.0.0.1:{port}"
        self.url = self.origin + "/v1"
        self.client = httpx.Client(base_url=self.origin, timeout=30.0, trust_env=False)

    def _run(self) -> None:
        factory = self.server.config.get_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            self.loop = runner.get_loop()
            runner.run(self.server._serve())

    def run(self, awaitable: Any) -> Any:
        """Await something on the server's loop."""
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result(30)

    @property
    def cache(self) -> AsyncSemanticCache:
        """The cache behind it; its coroutines belong to the server's loop, see `run`."""
        return self.app.service.cache

    def call(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        **rest: Any,
    ) -> httpx.Response:
        """Send a request, with an API key by its name."""
        given = {**(bearer(key) if key else {}), **(headers or {})}
        return self.client.request(method, path, headers=given, **rest)

    def chat(self, text: str, *, key: str | None = None, headers: Any = None, **more: Any) -> httpx.Response:
        """Ask for a chat completion."""
        body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
        return self.call("POST", "/v1/chat/completions", key=key, headers=headers, json=body)

    def close(self) -> None:
        """Stop it."""
        self.client.close()
        self.server.should_exit = True
        self._thread.join(30)
        if self._thread.is_alive():
            raise RuntimeError("the server didn't stop")

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
