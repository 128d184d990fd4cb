"""The extra `langchain`: a chat model answers once."""

from langchain_core.globals import set_llm_cache
from langchain_core.language_models import FakeListChatModel

from langchain_semcache import SemcacheCache
from semcache import Policy, SemanticCache

with SemanticCache.open("memory://", policy=Policy(deadline=10.0)) as cache:
    set_llm_cache(SemcacheCache(cache, model="fake"))
    model = FakeListChatModel(responses=["first", "second"])
    assert [model.invoke("How do I reset my password?").text for _ in range(2)] == ["first", "first"]
print("used")
