"""LangChain's own tests of caches, unmodified: with one cache, with both, and with each made from the other."""

from __future__ import annotations

import pytest
from langchain_core.caches import BaseCache
from langchain_tests.integration_tests.cache import AsyncCacheTestSuite, SyncCacheTestSuite

from langchain_semcache import SemcacheCache
from semcache import AsyncSemanticCache, SemanticCache


class TestSync(SyncCacheTestSuite):
    @pytest.fixture
    def cache(self, cache: SemanticCache) -> BaseCache:
        return SemcacheCache(cache)


class TestAsync(AsyncCacheTestSuite):
    @pytest.fixture
    async def cache(self, acache: AsyncSemanticCache) -> BaseCache:
        return SemcacheCache(async_cache=acache)


class TestSyncOverAnAsyncCache(SyncCacheTestSuite):
    @pytest.fixture
    def cache(self, acache: AsyncSemanticCache) -> BaseCache:
        return SemcacheCache(async_cache=acache)


class TestAsyncOverASyncCache(AsyncCacheTestSuite):
    @pytest.fixture
    async def cache(self, cache: SemanticCache) -> BaseCache:
        return SemcacheCache(cache)


class TestSyncWithBoth(SyncCacheTestSuite):
    @pytest.fixture
    def cache(self, cache: SemanticCache, acache: AsyncSemanticCache) -> BaseCache:
        return SemcacheCache(cache, async_cache=acache)


class TestAsyncWithBoth(AsyncCacheTestSuite):
    @pytest.fixture
    async def cache(self, cache: SemanticCache, acache: AsyncSemanticCache) -> BaseCache:
        return SemcacheCache(cache, async_cache=acache)
