"""The OpenAI-compatible upstream of the command line, over real HTTP."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from semcache.errors import ConfigurationError, UpstreamError
from semcache.types import CacheRequest
from semcache.upstream import ChatUpstream
from tests.upstream import Behaviour, Upstream


@pytest.fixture
def stub() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


def test_an_answer_comes_with_usage_and_latency(stub: Upstream) -> None:
    stub.next(Behaviour(text="So. 这样。"))

    response = ChatUpstream(stub.url + "/", "small", api_key="sesame")(CacheRequest("How? 怎么？"))

    assert response.text == "So. 这样。"
    assert response.finish_reason == "stop"
    assert response.usage is not None
    assert response.usage["total_tokens"]
    assert response.latency_ms is not None
    assert response.latency_ms > 0
    assert stub.last.body == {"model": "small", "messages": [{"role": "user", "content": "How? 怎么？"}]}
    assert stub.last.headers["authorization"] == "Bearer sesame"


def test_without_a_key_none_is_sent(stub: Upstream) -> None:
    ChatUpstream(stub.url, "small")(CacheRequest("How?"))

    assert "authorization" not in stub.last.headers


def test_refusals_tool_calls_and_cut_answers_are_told(stub: Upstream) -> None:
    stub.next(Behaviour(refusal="no"), Behaviour(tool_calls=(("f", "{}"),)), Behaviour(finish="length"))
    ask = ChatUpstream(stub.url, "small")

    refused, called, cut = (ask(CacheRequest("How?")) for _ in range(3))

    assert refused.refusal
    assert called.tool_calls
    assert cut.finish_reason == "length"


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (Behaviour(status=401, body=b"bad key"), "answered 401 .*bad key"),
        (Behaviour(status=500), "answered 500 "),
        (Behaviour(body=b"<html>"), "isn't JSON"),
        (Behaviour(body=b"[]"), "isn't a chat completion"),
        (Behaviour(body=b'{"choices": []}'), "isn't a chat completion"),
        (Behaviour(body=b'{"choices": [{"message": {"content": ["a"]}}]}'), "isn't a chat completion"),
    ],
    ids=["unauthorised", "broken", "not-json", "a-list", "no-choice", "content-parts"],
)
def test_what_is_no_answer_is_an_error_that_says_what_came(
    stub: Upstream, behaviour: Behaviour, message: str
) -> None:
    stub.next(behaviour)

    with pytest.raises(UpstreamError, match=message):
        ChatUpstream(stub.url, "small")(CacheRequest("How?"))


def test_an_endpoint_that_is_away_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refuses

        with pytest.raises(UpstreamError, match="can't be reached"):
            ChatUpstream(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", "small")(CacheRequest("How?"))


@pytest.mark.parametrize("url", ["localhost:8000", "file:///etc/passwd", "http://", ""])
def test_a_base_url_is_http(url: str) -> None:
    with pytest.raises(ConfigurationError, match="expected http"):
        ChatUpstream(url, "small")
