"""The HTTP service: an OpenAI-compatible caching proxy, the cache's API, feedback, and a page to see and judge.

Needs the extra ``server``. `Settings` says how it runs, `make_app` gives the ASGI application, `serve` runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semcache.server.settings import Key, Settings, load_settings

if TYPE_CHECKING:
    from semcache.server.app import Application

__all__ = ["Key", "Settings", "load_settings", "make_app", "serve"]


def make_app(settings: Settings, **options: Any) -> Application:
    """Return the ASGI application; see `semcache.server.app.Application`."""
    from semcache.server.app import Application

    return Application(settings, **options)


def serve(settings: Settings) -> None:
    """Run the service until it is told to stop; see `semcache.server.run`."""
    from semcache.server.run import run

    run(settings)
