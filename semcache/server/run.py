"""Runs the service: one process or several, until it is told to stop. SIGHUP reads the configuration again.

With several workers, uvicorn's supervisor replaces them one by one at SIGHUP; a single process reloads in place.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from semcache.errors import ConfigurationError, EncoderError, MissingDependencyError
from semcache.server.settings import Settings, load_settings

if TYPE_CHECKING:
    from semcache.cache import AsyncSemanticCache
    from semcache.server.app import Application

logger = logging.getLogger(__name__)

_FOLDER: Final = "SEMCACHE_SERVER_FOLDER"
_SOURCE: Final = "SEMCACHE_SERVER_SOURCE"


def run(settings: Settings, read: Callable[[], Settings] | None = None, source: Any = None) -> None:
    """Run until SIGTERM or SIGINT; answers under way may take `drain_timeout` seconds to end.

    Args:
        read: Reads the settings again, at SIGHUP; None keeps them.
        source: What `load_settings` was given, as (file, options), for workers; None gives them `settings`.

    Raises:
        MissingDependencyError: The extra isn't installed.
    """
    try:
        from semcache.server.app import Application
    except ImportError as error:
        raise MissingDependencyError("semcache serve", extra="server") from error
    configure_logging(settings)
    if settings.workers == 1:
        _Server(uvicorn_config(settings, Application(settings, opener=open_settled)), read).run()
        return
    folder = tempfile.mkdtemp(prefix="semcache-serve-")
    metrics = os.path.join(folder, "metrics")
    os.mkdir(metrics, 0o700)
    os.environ |= {
        _FOLDER: folder,
        "PROMETHEUS_MULTIPROC_DIR": metrics,
        _SOURCE: pickle.dumps((settings if source is None else None, source)).hex(),
    }
    try:
        from uvicorn.supervisors import Multiprocess

        config = uvicorn_config(settings, "semcache.server.run:worker_application")
        Multiprocess(config, sockets=[config.bind_socket()]).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def worker_application() -> Application:
    """Return the application of one worker; called by uvicorn in the worker's process."""
    from semcache.server.app import Application
    from semcache.server.protocol import Protocol

    given, source = pickle.loads(bytes.fromhex(os.environ[_SOURCE]))  # noqa: S301 - from our own parent
    if given is None:
        file, options = source
        given = load_settings(file, **options)
    configure_logging(given)
    Protocol.seconds = given.header_timeout
    return Application(given, opener=open_settled, folder=os.environ[_FOLDER])


async def open_settled(settings: Settings) -> AsyncSemanticCache:
    """Open the cache of a process that does nothing else, with the model loaded.

    Everything that is in memory by then stays, so the garbage collector needn't look through it again: it
    would hold up every request by a tenth of a second each time.
    """
    from semcache.server.app import open_cache

    cache = await open_cache(settings)
    try:
        await asyncio.wrap_future(cache._warm_up())
    except EncoderError as error:
        logger.warning("the encoder doesn't load, prompts match exactly only: %s", error)
    gc.collect()
    gc.freeze()
    return cache


def uvicorn_config(settings: Settings, app: Any) -> Any:
    """Return uvicorn's configuration."""
    import uvicorn

    from semcache.server.protocol import Protocol, protocol_class

    several = isinstance(app, str)  # then it goes to other processes, which set the limit themselves
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        factory=several,
        http=Protocol if several else protocol_class(settings.header_timeout),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=round(settings.drain_timeout),
        timeout_worker_healthcheck=60,
    )


class _Server:
    """A single process, which reloads at SIGHUP."""

    def __init__(self, config: Any, read: Callable[[], Settings] | None) -> None:
        import uvicorn

        self._server = uvicorn.Server(config)
        self._app: Application = config.app
        self._read = read

    def run(self) -> None:
        factory = self._server.config.get_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self._serve())
        if not self._server.started:
            sys.exit(3)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, self._reload)
        await self._server.serve()

    def _reload(self) -> None:
        if self._read is None:
            return
        try:
            self._app.service.reload(self._read())
        except ConfigurationError as error:
            logger.error("the configuration can't be used, the old one stays: %s", error)


class _JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{round(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


def configure_logging(settings: Settings) -> None:
    """Send the service's log to stderr; prompts are in no record above DEBUG."""
    level = logging.getLevelName(settings.log_level.upper())
    if not isinstance(level, int):
        raise ConfigurationError(
            f"log_level is {settings.log_level!r}, expected debug, info, warning or error"
        )
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(_JsonLines() if settings.log_json else plain)
    for name in ("semcache", "openai_semcache", "uvicorn"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)
