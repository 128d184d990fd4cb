"""The OpenAI-compatible upstream of the command line, over real HTTP."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from semcache.errors import ConfigurationError, UpstreamError
from semcache.types import CacheRequest
from semcache.upstream import ChatUpstream
from tests.stub_upstream import completion, upstream


def test_an_answer_comes_with_usage_and_latency() -> None:
    with upstream() as stub:
        response = ChatUpstream(stub.url + "/", "small", api_key="sesame")(CacheRequest("How? 怎么？"))

    assert response.text == "You asked: How? 怎么？"
    assert response.finish_reason == "stop"
    assert response.usage == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    assert response.latency_ms is not None
    assert response.latency_ms > 0
    assert stub.asked == [{"model": "small", "messages": [{"role": "user", "content": "How? 怎么？"}]}]
    assert stub.headers[0]["authorization"] == "Bearer sesame"


def test_without_a_key_none_is_sent() -> None:
    with upstream() as stub:
        ChatUpstream(stub.url, "small")(CacheRequest("How?"))

    assert "authorization" not in stub.headers[0]


def test_a_refusal_and_tool_calls_are_told() -> None:
    with upstream(lambda body: (200, completion("", refusal="no", tool_calls=[{"id": "1"}]))) as stub:
        response = ChatUpstream(stub.url, "small")(CacheRequest("How?"))

    assert (response.refusal, response.tool_calls) == (True, True)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, {"error": "bad key"}, "answered 401 .*bad key"),
        (500, b"boom", "answered 500 .*boom"),
        (200, b"<html>", "isn't JSON"),
        (200, [], "isn't a chat completion"),
        (200, {"choices": []}, "isn't a chat completion"),
        (200, completion(["a", "b"]), "isn't a chat completion"),  # type: ignore[arg-type]
    ],
    ids=["unauthorised", "broken", "not-json", "a-list", "no-choice", "content-parts"],
)
def test_what_is_no_answer_is_an_error_that_says_what_came(status: int, body: Any, message: str) -> None:
    with upstream(lambda asked: (status, body)) as stub, pytest.raises(UpstreamError, match=message):
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
