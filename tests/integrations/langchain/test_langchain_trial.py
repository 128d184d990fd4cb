"""A cache in shadow mode beneath LangChain: the model answers every time, and the two are compared."""

from __future__ import annotations

from lc_shared import RESET, Chat

from langchain_semcache import SemcacheCache
from semcache import Policy, SemanticCache
from semcache.testing import TableEncoder
from tests.upstream import Upstream


def test_a_shadow_compares_what_update_brings(
    redis_url: str, namespace: str, encoder: TableEncoder, upstream: Upstream, chat: Chat
) -> None:
    policy = Policy(threshold=0.9, deadline=5.0, mode="shadow")
    with SemanticCache.open(redis_url, namespace=namespace, policy=policy, encoder=encoder) as cache:
        model = chat(cache=SemcacheCache(cache))
        answers = [model.invoke(RESET).content for _ in range(3)]
        stats = cache.stats()

    assert upstream.count == 3
    assert len(set(answers)) == 3
    assert (stats.shadow["misses"], stats.shadow["hits"], stats.shadow["differed"]) == (1, 2, 2)
    assert stats.shadow["tokens"] > 0
