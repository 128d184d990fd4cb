"""What one process of the service is made of: opened at the start, closed at the end, reloaded in between."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from semcache.server.errors import HttpError
from semcache.server.exchange import EVERY, Exchange
from semcache.server.identity import Caller, Identity
from semcache.server.journal import Journal, Judged
from semcache.server.limits import RateLimit
from semcache.server.meters import Meters
from semcache.server.proxy import Proxy, ProxyFlow
from semcache.server.settings import Settings
from semcache.server.telemetry import Telemetry
from semcache.server.upstream import Upstream

if TYPE_CHECKING:
    from semcache.cache import AsyncSemanticCache
    from semcache.server.models import FeedbackAnswer

logger = logging.getLogger(__name__)

FIXED: Final = (
    "redis", "namespace", "data_dir", "snapshot_dir", "host", "port", "workers", "policy", "otel", "upstream_connections",
    "recent", "upstream_proxy", "header_timeout", "drain_timeout", "log_level", "log_json",
)  # fmt: skip
"""Settings that a reload doesn't change; they need a restart."""

_OF_UPSTREAM: Final = ("connect_timeout", "upstream_timeout", "max_upload_bytes")


class Service:
    """The parts of one process.

    Args:
        cache: Closed with the service.
        folder: Shared with the other workers; None without any.
    """

    def __init__(
        self,
        settings: Settings,
        cache: AsyncSemanticCache,
        *,
        folder: str | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.settings = settings
        self.cache = cache
        self.draining = False
        self.meters = Meters()
        self.journal = Journal(time.time, recent=settings.recent)
        self.exchange = Exchange(self.journal, folder)
        self.answered: OrderedDict[Any, FeedbackAnswer] = OrderedDict()
        self._telemetry = telemetry or Telemetry()
        self._limit = RateLimit(settings.feedback_rate, time.monotonic)
        self._upstreams: dict[tuple[Any, ...], Upstream] = {}
        self._use(settings)
        self._sharing = asyncio.create_task(self._share()) if folder is not None else None

    def _use(self, settings: Settings) -> None:
        self.settings = settings
        self.identity = Identity(settings, self.cache.pseudonym)
        way = tuple(getattr(settings, name) for name in _OF_UPSTREAM)
        if way not in self._upstreams:  # an older one still has answers under way
            self._upstreams[way] = Upstream(settings, self.meters.upstream_failed)
        upstream = self._upstreams[way]
        self.proxy = Proxy(settings, self.cache, upstream, self.journal, self.meters, self._telemetry)
        self._limit = RateLimit(settings.feedback_rate, time.monotonic)

    @property
    def flow(self) -> ProxyFlow:
        """What makes requests of calls."""
        return self.proxy.flow

    def reload(self, settings: Settings) -> None:
        """Take over new settings; those that need a restart stay as they are, and are named in the log."""
        kept = {name: getattr(self.settings, name) for name in FIXED}
        changed = sorted(name for name, value in kept.items() if getattr(settings, name) != value)
        if changed:
            logger.warning("changed settings that need a restart: %s", ", ".join(changed))
        self._use(dataclasses.replace(settings, **kept))
        logger.info("settings were read again")

    def limit(self, caller: Caller) -> None:
        """Count a verdict that came without a key.

        Raises:
            HttpError: 429.
        """
        wait = self._limit.take(caller.address)
        if wait:
            after = str(max(1, round(wait)))
            raise HttpError(429, f"too many verdicts; try again in {after} s", "rate_limited",
                            headers=(("retry-after", after),))  # fmt: skip

    def note_feedback(self, judged: Judged) -> None:
        """Remember a verdict."""
        self.journal.judge(judged)
        self.meters.judged(judged.verdict, judged.action)
        logger.info(
            "judged entry=%s verdict=%d action=%s by=%s",
            judged.entry_id, judged.verdict, judged.action, judged.principal,
        )  # fmt: skip

    async def process_stats(self) -> dict[str, Any]:
        """Return this process's counters."""
        stats = await self.cache.stats()
        return {**dataclasses.asdict(stats), "hit_rate": stats.hit_rate, "requests": stats.requests,
                "shadow_hit_rate": stats.shadow_hit_rate, "agreement": stats.agreement,
                "effective_hit_rate": stats.worth.effective_hit_rate, "fresh_share": stats.worth.fresh_share,
                "wrong_share": stats.worth.wrong_share, "mean_ms": stats.worth.mean_ms}  # fmt: skip

    async def _share(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.exchange.write()

    async def close(self) -> None:
        """End what is under way in the background, and close what was opened."""
        if self._sharing is not None:
            self._sharing.cancel()
            self.exchange.write()
        for upstream in self._upstreams.values():
            await upstream.close()
        await self.cache.close()
