"""A LangChain agent whose model calls are cached by the middleware.

    pip install 'llm-semcache[langchain-agents]'
    python examples/langchain_agent.py

`Offline` stands for `init_chat_model("openai:gpt-4o-mini")` or any other chat model that calls tools.
"""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_semcache import SemcacheMiddleware
from semcache import Policy, SemanticCache


class Offline(BaseChatModel):
    """Asks the tool about orders, and answers everything else by itself."""

    model: str = "offline-1"
    calls: int = 0

    @property
    def _llm_type(self) -> str:
        return "offline"

    def bind_tools(self, tools: Any, **kwargs: Any) -> BaseChatModel:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.calls += 1
        last = messages[-1]
        if isinstance(last, ToolMessage):
            said = AIMessage(f"Your order is {last.text}.")
        elif "order 17" in last.text:
            call = {"name": "order_state", "args": {"number": 17}, "id": "call_1"}
            said = AIMessage("", tool_calls=[call])
        else:
            said = AIMessage("We ship to all of Europe.")
        return ChatResult(generations=[ChatGeneration(message=said)])


def order_state(number: int) -> str:
    """Look up where an order is."""
    print(f"  the tool looks up order {number}")
    return "on its way"


def main() -> None:
    # With tools at hand only equal questions match; calls of tools, and the turns after them, are cached if asked for.
    policy = Policy(deadline=10.0, store_tool_calls=True)
    with SemanticCache.open("memory://", policy=policy) as cache:
        model = Offline()
        caching = SemcacheMiddleware(
            cache, tenant=lambda run: run.context["tenant"], tool_turns=True, model=model.model
        )
        agent = create_agent(model, tools=[order_state], middleware=[caching])
        for question in (
            "Which countries do you ship to?",
            "Which countries do you ship to?",  # no call of the model
            "Where is order 17?",  # two calls: one that asks the tool, one that answers
            "Where is order 17?",  # none; the tool runs again, since orders move
        ):
            before = model.calls
            state = agent.invoke({"messages": [("user", question)]}, context={"tenant": "acme"})
            print(f"{question} → {state['messages'][-1].text} ({model.calls - before} model calls)")


if __name__ == "__main__":
    main()
