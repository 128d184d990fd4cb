"""The extra `langchain-agents`: an agent's model is asked once."""

from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel

from langchain_semcache import SemcacheMiddleware
from semcache import Policy, SemanticCache

with SemanticCache.open("memory://", policy=Policy(deadline=10.0)) as cache:
    model = FakeListChatModel(responses=["first", "second"])
    agent = create_agent(model, middleware=[SemcacheMiddleware(cache, model="fake")])
    question = {"messages": [("user", "How do I reset my password?")]}
    assert [agent.invoke(question)["messages"][-1].text for _ in range(2)] == ["first", "first"]
print("used")
