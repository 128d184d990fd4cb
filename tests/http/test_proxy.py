"""The caching proxy: hits, pass-through, streams, controls, limits, what goes upstream and what doesn't."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.facade import waiting, within
from tests.http.served import SECRET, Served, bearer, key
from tests.upstream import Behaviour, Upstream

QUESTION = "How do I reset my password?"


def test_the_second_call_is_a_hit_and_the_paraphrase_too(served: Served, stub: Upstream) -> None:
    first, second = served.chat(QUESTION), served.chat(QUESTION)
    near = served.chat("How can I reset my password?")

    assert stub.count == 1
    assert first.headers["x-semcache-status"] == "miss"
    assert (second.headers["x-semcache-status"], second.headers["x-semcache-match"]) == ("hit", "exact")
    assert second.headers["cache-status"].startswith("semcache; hit; ttl=")
    assert int(second.headers["age"]) >= 0
    assert near.headers["x-semcache-match"] == "semantic"
    assert float(near.headers["x-semcache-similarity"]) == pytest.approx(0.99, abs=0.01)
    texts = [r.json()["choices"][0]["message"]["content"] for r in (first, second, near)]
    assert len(set(texts)) == 1


def test_the_openai_sdk_only_changes_its_base_url(served: Served, stub: Upstream) -> None:
    with OpenAI(base_url=served.url, api_key="sk-mine", max_retries=0) as client:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": QUESTION}]}
        first = client.chat.completions.create(**asked)
        raw = client.chat.completions.with_raw_response.create(**asked)
        streamed = [
            c.choices[0].delta.content or "" for c in client.chat.completions.create(**asked, stream=True)
        ]
        answer = client.responses.create(model="m", input="Hello", store=False)
        again = client.responses.create(model="m", input="Hello", store=False)
        row = client.embeddings.create(model="e", input=["a", "b"]).data[1].embedding
        row_again = client.embeddings.create(model="e", input=["b"]).data[0].embedding
        text = client.completions.create(model="m", prompt="Say hi").choices[0].text
        models = [model.id for model in client.models.list()]

    assert raw.headers["x-semcache-status"] == "hit"
    assert raw.parse().choices[0].message.content == first.choices[0].message.content == "".join(streamed)
    assert answer.output_text == again.output_text
    assert row == row_again
    assert text
    assert models == ["m"]
    paths = [call.path for call in stub.calls]
    assert paths.count("/v1/chat/completions") == paths.count("/v1/responses") == 1
    assert paths.count("/v1/embeddings") == 1


def test_langchain_goes_through_the_proxy(served: Served, stub: Upstream) -> None:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="m", base_url=served.url, api_key="sk-mine", max_retries=0)  # type: ignore[arg-type]

    assert model.invoke(QUESTION).content == model.invoke(QUESTION).content
    assert stub.count == 1


def test_a_stream_is_stored_when_whole_and_replayed_as_a_stream(served: Served, stub: Upstream) -> None:
    first = served.chat(QUESTION, stream=True)
    second = served.chat(QUESTION, stream=True)

    assert stub.count == 1
    assert first.headers["content-type"].startswith("text/event-stream")
    assert second.headers["content-type"].startswith("text/event-stream")
    assert second.headers["x-semcache-status"] == "hit"
    assert text_of(first.text) == text_of(second.text) != ""
    assert second.text.endswith("data: [DONE]\n\n")


def text_of(events: str) -> str:
    found = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in found if c["choices"])


def test_a_stream_passes_without_delay(served: Served, stub: Upstream) -> None:
    let = threading.Event()
    stub.next(Behaviour(text="one two three four five six", hold=let, hold_after=2))

    with served.client.stream(
        "POST", "/v1/chat/completions", json={"model": "m", "stream": True,
                                              "messages": [{"role": "user", "content": QUESTION}]},
    ) as response:  # fmt: skip
        got = b""
        for chunk in response.iter_raw():
            got += chunk
            if got.count(b"data: ") >= 2:  # upstream waits for this, and drops the stream if it is held back
                let.set()

    assert got.endswith(b"data: [DONE]\n\n")


def test_streams_that_are_asked_for_at_once_share_one_call(served: Served, stub: Upstream) -> None:
    let = threading.Event()
    stub.always(Behaviour(text="Open Settings, then Security.", hold=let, hold_after=1))
    with ThreadPoolExecutor(5) as pool:
        asked = pool.map(lambda n: served.chat(QUESTION, stream=n % 2 == 0), range(5))
        assert within(20.0, lambda: waiting(served.cache) == 4)
        let.set()
        answers = list(asked)
    texts = [a.text if "chunk" in a.text else a.json()["choices"][0]["message"]["content"] for a in answers]

    assert stub.count == 1
    assert sum("collapsed" in answer.headers["cache-status"] for answer in answers) == 4
    assert texts[1] == texts[3] == "Open Settings, then Security."
    assert all(text.endswith("data: [DONE]\n\n") for text in texts[::2])


def test_a_reader_who_leaves_takes_nothing_from_those_who_wait(served: Served, stub: Upstream) -> None:
    text = "Open Settings, then Security, then Reset. " * 4
    let = threading.Event()
    stub.always(Behaviour(text=text, chunk_delay=0.05, hold=let, hold_after=3))
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": QUESTION}]}
    with ThreadPoolExecutor(1) as pool:
        with served.client.stream("POST", "/v1/chat/completions", json=body) as response:
            chunks = response.iter_bytes()
            got = next(chunks)
            follower = pool.submit(served.chat, QUESTION)
            assert within(20.0, lambda: waiting(served.cache) == 1)  # the other arrives while this streams
            let.set()
            while got.count(b"data: ") < 4:  # the first that was sent since
                got += next(chunks)
        answer = follower.result()

    assert answer.json()["choices"][0]["message"]["content"] == text
    assert stub.count == 1


@pytest.mark.parametrize(
    "cut", [Behaviour(cut_after=2), Behaviour(end_after=2)], ids=["dropped", "ended early"]
)
def test_nothing_is_stored_of_a_stream_that_upstream_cut(
    served: Served, stub: Upstream, cut: Behaviour
) -> None:
    stub.next(cut)
    try:
        served.chat(QUESTION, stream=True)
    except httpx.RemoteProtocolError:
        assert cut.cut_after is not None

    assert served.chat(QUESTION).headers["x-semcache-status"] == "miss"


def test_nothing_is_stored_of_a_stream_whose_reader_left_and_upstream_is_told(
    served: Served, stub: Upstream
) -> None:
    before = stub.streams_broken
    stub.next(Behaviour(text="word " * 2000, chunk_delay=0.02))
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": QUESTION}]}
    with served.client.stream("POST", "/v1/chat/completions", json=body) as response:
        next(response.iter_raw())

    until = time.monotonic() + 30
    while stub.streams_broken == before and time.monotonic() < until:
        time.sleep(0.02)
    assert stub.streams_broken == before + 1
    assert served.chat(QUESTION).headers["x-semcache-status"] == "miss"


def test_an_error_of_upstream_is_given_on_and_never_stored(served: Served, stub: Upstream) -> None:
    stub.next(Behaviour(status=429, headers={"retry-after": "7"}))
    refused = served.chat(QUESTION)

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
    assert served.chat(QUESTION).status_code == 200


def test_an_upstream_that_is_away_is_a_502_in_the_openai_shape() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Served(f"http://127.0.0.1:{port}/v1") as served:
        answer = served.chat(QUESTION)

        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "upstream_unreachable"
        assert served.call("GET", "/v1/models").status_code == 502


def test_a_slow_upstream_is_a_504(stub: Upstream) -> None:
    let = threading.Event()
    stub.always(Behaviour(hold=let))
    with Served(stub.url, upstream_timeout=0.2) as served:
        assert served.chat(QUESTION).status_code == 504
        let.set()


def test_other_endpoints_pass_byte_for_byte_both_ways(served: Served, stub: Upstream) -> None:
    blob = bytes(range(256)) * 5000
    headers = {"content-type": "multipart/form-data; boundary=x", "authorization": "Bearer sk-mine"}
    answer = served.client.post("/v1/files?purpose=a%20b&x=%2F", content=blob, headers=headers)

    assert stub.last.raw == blob
    assert stub.last.path == "/v1/files?purpose=a%20b&x=%2F"
    assert stub.last.headers["content-type"] == headers["content-type"]
    assert "x-semcache-status" not in answer.headers


def test_a_body_of_unknown_length_passes_as_it_comes() -> None:
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                while not b"".join(received).endswith(b"\r\n0\r\n\r\n"):
                    received.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-Kept: a\r\n\r\nok")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with Served(f"http://127.0.0.1:{listener.getsockname()[1]}/base") as served:
            reply = served.client.post("/v1/audio", content=iter([b"first", b"second"]))
        thread.join(10)

    assert (reply.status_code, reply.text, reply.headers["x-kept"]) == (201, "ok", "a")
    head, _, body = b"".join(received).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /base/audio HTTP/1.1")
    assert b"transfer-encoding: chunked" in head.lower()
    assert b"first" in body
    assert b"second" in body


def test_a_compressed_body_passes_as_it_is(served: Served, stub: Upstream) -> None:
    stub.next(Behaviour(compress=True))
    with served.client.stream("GET", "/v1/models") as response:
        raw = b"".join(response.iter_raw())

    assert response.headers.get("content-encoding") == "gzip"
    assert raw[:2] == b"\x1f\x8b"


def test_a_compressed_answer_is_stored_all_the_same(served: Served, stub: Upstream) -> None:
    stub.next(Behaviour(compress=True))

    assert served.chat(QUESTION).status_code == 200
    assert served.chat(QUESTION).headers["x-semcache-status"] == "hit"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"cache-control": "no-cache"}, "refresh"),
        ({"cache-control": "no-cache, no-store"}, "bypass"),
        ({"x-semcache-mode": "off"}, "bypass"),
        ({"x-semcache-scope": "other"}, "miss"),
    ],
)
def test_controls_are_those_of_the_integration(
    served: Served, stub: Upstream, headers: dict[str, str], status: str
) -> None:
    served.chat(QUESTION)

    assert served.chat(QUESTION, headers=headers).headers["x-semcache-status"] == status
    assert stub.count == 2
    assert not any(name.startswith("x-semcache") for name in stub.last.headers)


def test_a_control_that_cannot_be_meant_is_a_400(served: Served, stub: Upstream) -> None:
    for headers in ({"x-semcache-ttl": "soon"}, {"x-semcache-threshold": "2"}, {"x-semcache-tenant": "acme"}):
        assert served.chat(QUESTION, headers=headers).status_code == 400
    assert stub.count == 0


def test_only_if_cached_is_a_504_on_a_miss(served: Served, stub: Upstream) -> None:
    answer = served.chat(QUESTION, headers={"cache-control": "only-if-cached"})

    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "only_if_cached"
    assert stub.count == 0


def test_our_keys_never_go_upstream_and_the_services_own_does(keyed: Served, stub: Upstream) -> None:
    keyed.chat(QUESTION, key="acme")
    assert stub.last.headers["authorization"] == "Bearer sk-upstream"

    keyed.call("GET", "/v1/models", key="acme")
    assert stub.last.headers["authorization"] == "Bearer sk-upstream"


def test_without_keys_the_callers_key_goes_upstream_and_is_the_tenant(served: Served, stub: Upstream) -> None:
    mine, yours = {"authorization": "Bearer sk-mine"}, {"authorization": "Bearer sk-yours"}
    served.chat(QUESTION, headers=mine)
    assert stub.last.headers["authorization"] == "Bearer sk-mine"

    assert served.chat(QUESTION, headers=yours).headers["x-semcache-status"] == "miss"
    assert served.chat(QUESTION, headers=mine).headers["x-semcache-status"] == "hit"
    assert served.chat(QUESTION).headers["x-semcache-status"] == "miss"


def test_credentials_and_prompts_are_in_no_log_above_debug_and_no_entry(
    served: Served, stub: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    loggers = [logging.getLogger(name) for name in ("semcache", "openai_semcache")]
    for log in loggers:
        log.propagate = True
        log.setLevel(logging.INFO)
    try:
        with caplog.at_level(logging.INFO):
            for _ in range(2):
                served.chat("my secret question", headers={"authorization": "Bearer sk-very-secret"})
            served.call("GET", "/v1/models", headers={"authorization": "Bearer sk-very-secret"})
    finally:
        for log in loggers:
            log.setLevel(logging.WARNING)
            log.propagate = False

    assert "status=hit" in caplog.text
    assert "sk-very-secret" not in caplog.text
    assert "secret question" not in caplog.text
    everything = served.call("GET", "/v1/cache/overview").text + served.call("GET", "/v1/cache/entries").text
    assert "my secret question" in everything
    assert "sk-very-secret" not in everything


def test_cookies_and_the_connections_own_headers_stay_here(served: Served, stub: Upstream) -> None:
    served.chat(
        QUESTION, headers={"cookie": "a=b", "connection": "x-private", "x-private": "1", "te": "trailers"}
    )

    for name in ("cookie", "x-private", "te"):
        assert name not in stub.last.headers


@pytest.mark.parametrize(
    "path", ["/v1/../admin", "/v1/%2e%2e/admin", "/v1/a/..%2fb", "/v1/x%0d%0ay", "/v1/..%5cx"]
)
def test_a_path_that_leaves_upstreams_base_is_refused(served: Served, stub: Upstream, path: str) -> None:
    host, port = served.origin.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: sock.recv(65536), b""))

    assert answer.split(b" ")[1] == b"400"
    assert stub.count == 0


def test_an_absolute_address_in_the_request_line_doesnt_change_upstream(
    served: Served, stub: Upstream
) -> None:
    host, port = served.origin.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(b"GET http://198.51.100.1/v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: sock.recv(65536), b""))

    assert answer.split(b" ")[1] in (b"200", b"400", b"404")
    assert all(call.path == "/v1/models" for call in stub.calls)


def test_a_body_that_is_too_large_is_a_413(stub: Upstream) -> None:
    with Served(stub.url, max_body_bytes=1000, max_upload_bytes=2000) as served:
        assert served.chat("x" * 2000).status_code == 413
        assert served.client.post("/v1/files", content=b"x" * 3000).status_code == 413
        assert served.call("POST", "/v1/cache/lookup", json={"prompt": "x" * 2000}).status_code == 413

        def parts() -> Any:
            yield b"x" * 1500
            yield b"x" * 1500

        assert stub.count == 0
        assert served.client.post("/v1/files", content=parts()).status_code == 413


def test_a_client_that_dawdles_with_headers_or_body_is_let_go(stub: Upstream) -> None:
    with Served(stub.url, header_timeout=0.2) as served:
        host, port = served.origin.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            sock.sendall(b"POST /v1/chat/completions HT")
            assert sock.recv(100) == b""
    with Served(stub.url, body_timeout=0.2) as served:
        host, port = served.origin.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
            assert sock.recv(100).split(b" ")[1] == b"408"


def test_a_call_under_way_keeps_its_connection_past_the_header_timeout(stub: Upstream) -> None:
    stub.next(Behaviour(delay=3.0))
    with Served(stub.url, header_timeout=2.0) as served:
        assert served.chat(QUESTION).status_code == 200


def test_callers_at_once_share_one_call(served: Served, stub: Upstream) -> None:
    let = threading.Event()
    stub.always(Behaviour(hold=let))
    answers: list[httpx.Response] = []
    threads = [threading.Thread(target=lambda: answers.append(served.chat(QUESTION))) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert within(20.0, lambda: waiting(served.cache) == 7)
    let.set()
    for thread in threads:
        thread.join()

    assert stub.count == 1
    assert {a.status_code for a in answers} == {200}
    assert sum("collapsed" in a.headers["cache-status"] for a in answers) == 7


def test_what_upstream_says_in_our_headers_is_not_believed(served: Served, stub: Upstream) -> None:
    stub.next(Behaviour(headers={"x-semcache-status": "hit", "x-semcache-lookup-id": "forged"}))
    answer = served.chat(QUESTION)

    assert answer.headers["x-semcache-status"] == "miss"
    assert answer.headers["x-semcache-lookup-id"] != "forged"


def test_a_trusted_hop_names_the_tenant_and_nobody_else_does(stub: Upstream) -> None:
    import ipaddress

    hop = {"tenant_header": "x-tenant", "trusted_networks": (ipaddress.ip_network("127.0.0.0/8"),)}
    with Served(stub.url, **hop) as served:
        served.chat(QUESTION, headers={"x-tenant": "acme"})
        assert "x-tenant" not in stub.last.headers
        assert served.chat(QUESTION, headers={"x-tenant": "acme"}).headers["x-semcache-status"] == "hit"
        assert served.chat(QUESTION, headers={"x-tenant": "bolt"}).headers["x-semcache-status"] == "miss"
        assert served.call("GET", "/v1/cache/entries", headers={"x-tenant": "acme"}).status_code in (401, 403)
    other = hop | {"trusted_networks": (ipaddress.ip_network("198.51.100.0/24"),)}
    with Served(stub.url, **other, keys=(key("k", "acme"),), secret=SECRET) as served:
        served.chat(QUESTION, headers={**bearer("k"), "x-tenant": "bolt"})
        assert (
            served.chat(QUESTION, headers={**bearer("k"), "x-tenant": "x"}).headers["x-semcache-status"]
            == "hit"
        )


def test_telemetry_spans_follow_the_conventions_and_hold_no_text(stub: Upstream) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from semcache.server.telemetry import Telemetry

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    with Served(stub.url, telemetry=Telemetry(provider.get_tracer("test"))) as served:
        served.chat(QUESTION)
        served.chat(QUESTION, headers=parent)
    spans = exporter.get_finished_spans()

    assert [span.name for span in spans] == ["chat m", "chat m"]
    found = dict(spans[1].attributes or {})
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.request.model"] == "m"
    assert found["semcache.status"] == "hit"
    assert found["gen_ai.usage.input_tokens"] == 9
    assert spans[1].parent is not None
    assert f"{spans[1].context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert "password" not in str([dict(span.attributes or {}) for span in spans])
