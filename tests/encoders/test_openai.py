"""OpenAIEncoder against a small HTTP server of the test's own."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from semcache.encoders import EncoderThread, OpenAIEncoder
from semcache.errors import ConfigurationError, EncoderError, MissingDependencyError
from semcache.testing import HashEncoder
from tests.encoder_models import needs

pytestmark = needs("openai")

Reply = tuple[int, dict[str, str], bytes]
Rule = Callable[[dict[str, Any]], Reply]


def embeddings(body: dict[str, Any]) -> list[dict[str, Any]]:
    dim = body.get("dimensions", 16)
    rows = 3 * HashEncoder(dim).encode(body["input"])  # servers needn't normalise
    return [{"object": "embedding", "index": i, "embedding": row.tolist()} for i, row in enumerate(rows)]


def data(items: object) -> Reply:
    body = {"object": "list", "data": items, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
    return 200, {}, json.dumps(body).encode()


def well(body: dict[str, Any]) -> Reply:
    return data(embeddings(body))


class Server:
    """Answers by a rule, and remembers what it was asked."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []  # for the next requests; then `well`
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server.requests.append(body)
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                rule = server.rules.pop(0) if server.rules else well
                status, headers, content = rule(body) if self.path == "/v1/embeddings" else (404, {}, b"{}")
                self.send_response(status)
                for name, value in {"content-type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_arguments: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_arguments: object) -> None:
                pass  # the client went away, which some tests want

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def encoder(server: Server) -> OpenAIEncoder:
    return OpenAIEncoder(server.url, "m", deadline=20)


def failing(status: int, headers: dict[str, str] | None = None) -> Rule:
    return lambda _body: (status, headers or {}, b'{"error": {"message": "no"}}')


def test_rows_are_unit_vectors_in_the_order_of_the_texts(encoder: OpenAIEncoder) -> None:
    texts = [f"text {number}" for number in range(5)]

    assert np.abs(encoder.encode(texts) - HashEncoder(16).encode(texts)).max() < 1e-6


def test_answers_out_of_order_are_put_in_order(server: Server, encoder: OpenAIEncoder) -> None:
    server.rules = [lambda body: data(embeddings(body)[::-1])]
    texts = ["a", "b", "c"]

    assert np.abs(encoder.encode(texts) - HashEncoder(16).encode(texts)).max() < 1e-6


def test_long_lists_are_sent_in_batches(server: Server) -> None:
    texts = [f"text {number}" for number in range(7)]
    rows = OpenAIEncoder(server.url, "m", batch_size=3).encode(texts)

    assert [len(request["input"]) for request in server.requests] == [3, 3, 1]
    assert np.abs(rows - HashEncoder(16).encode(texts)).max() < 1e-6


def test_only_a_given_dim_is_asked_for(server: Server) -> None:
    own, short = OpenAIEncoder(server.url, "m"), OpenAIEncoder(server.url, "m", dim=8)

    assert own.encode(["a"]).shape == (1, 16)
    assert short.encode(["a"]).shape == (1, 8)
    assert "dimensions" not in server.requests[0]
    assert server.requests[1]["dimensions"] == 8
    assert [request["encoding_format"] for request in server.requests] == ["float", "float"]


def test_an_unknown_dim_is_learnt_once(server: Server, encoder: OpenAIEncoder) -> None:
    assert (encoder.dim, encoder.dim) == (16, 16)
    assert encoder.encode([]).shape == (0, 16)
    assert len(server.requests) == 1


def test_the_fingerprint_is_known_without_a_request_and_tells_servers_apart(server: Server) -> None:
    one = OpenAIEncoder(server.url, "BAAI/bge-m3")
    fingerprints = {
        encoder.fingerprint
        for encoder in (
            one,
            OpenAIEncoder("http://127.0.0.1:1/v1", "BAAI/bge-m3"),
            OpenAIEncoder(server.url, "BAAI/bge-m3", dim=8),
            OpenAIEncoder(server.url, "BAAI/bge-m3", prefix="query: "),
            OpenAIEncoder(server.url, "other"),
        )
    }

    assert len(fingerprints) == 5
    assert one.fingerprint.startswith("baai-bge-m3-")
    assert one.fingerprint == OpenAIEncoder(server.url + "/", "BAAI/bge-m3").fingerprint
    assert server.requests == []


def test_a_prefix_is_put_before_each_text(server: Server) -> None:
    OpenAIEncoder(server.url, "m", prefix="query: ").encode(["a", "b"])

    assert server.requests[0]["input"] == ["query: a", "query: b"]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_passing_failure_is_tried_again(server: Server, encoder: OpenAIEncoder, status: int) -> None:
    server.rules = [failing(status), failing(status)]

    assert encoder.encode(["a"]).any()
    assert len(server.requests) == 3


def test_attempts_are_bounded(server: Server, encoder: OpenAIEncoder) -> None:
    server.rules = [failing(500)] * 10

    with pytest.raises(EncoderError, match=r"attempt 3.*500"):
        encoder.encode(["a"])
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_lasting_failure_is_not_tried_again(server: Server, encoder: OpenAIEncoder, status: int) -> None:
    server.rules = [failing(status)] * 10

    with pytest.raises(EncoderError, match=str(status)):
        encoder.encode(["a"])
    assert len(server.requests) == 1


def test_a_wait_that_the_server_asks_for_is_kept_if_there_is_time(server: Server) -> None:
    server.rules = [failing(429, {"retry-after": "1"})]
    begin = time.monotonic()
    OpenAIEncoder(server.url, "m", deadline=20).encode(["a"])

    assert time.monotonic() - begin >= 1.0


def test_a_wait_that_the_deadline_does_not_allow_is_an_error_at_once(server: Server) -> None:
    server.rules = [failing(429, {"retry-after": "60"})]
    begin = time.monotonic()
    with pytest.raises(EncoderError, match="429"):
        OpenAIEncoder(server.url, "m", deadline=20).encode(["a"])

    assert time.monotonic() - begin < 15
    assert len(server.requests) == 1


def test_a_server_that_hangs_costs_the_deadline_once(server: Server) -> None:
    released = threading.Event()

    def hang(body: dict[str, Any]) -> Reply:
        released.wait(20)
        return well(body)

    server.rules = [hang]
    begin = time.monotonic()
    with pytest.raises(EncoderError, match="no embeddings"):
        OpenAIEncoder(server.url, "m", deadline=0.3).encode(["a"])
    took = time.monotonic() - begin
    released.set()

    assert 0.3 <= took < 15
    assert len(server.requests) <= 1


def test_the_deadline_covers_all_batches(server: Server) -> None:
    def slow(body: dict[str, Any]) -> Reply:
        time.sleep(0.2)
        return well(body)

    server.rules = [slow] * 50
    with pytest.raises(EncoderError):
        OpenAIEncoder(server.url, "m", deadline=0.5, batch_size=1).encode([str(n) for n in range(50)])

    assert len(server.requests) <= 4


def test_a_refused_connection_is_an_encoder_error() -> None:
    with pytest.raises(EncoderError, match="attempt 3"):
        OpenAIEncoder("http://127.0.0.1:9/v1", "m").encode(["a"])


def renumbered(body: dict[str, Any]) -> Reply:
    return data([{**item, "index": 0} for item in embeddings(body)])


@pytest.mark.parametrize(
    "rule",
    [
        renumbered,
        lambda body: data(embeddings(body)[:1]),
        lambda body: data(embeddings(body) + embeddings(body)),
        lambda body: data([{**item, "index": item["index"] + 1} for item in embeddings(body)]),
        lambda body: data(
            [{**item, "embedding": item["embedding"][: 3 + i]} for i, item in enumerate(embeddings(body))]
        ),
        lambda body: data([{**item, "embedding": [None] * 16} for item in embeddings(body)]),
        lambda body: data([{**item, "embedding": [float("inf")] * 16} for item in embeddings(body)]),
        lambda body: data([]),
        lambda body: data(None),
        lambda _: (200, {}, b"not json"),
        lambda _: (200, {"content-type": "text/html"}, b"<html>a proxy's page</html>"),
        lambda _: (200, {}, b"[]"),
    ],
    ids=[
        "renumbered",
        "few",
        "many",
        "from one",
        "lengths",
        "null",
        "inf",
        "none",
        "null data",
        "text",
        "html",
        "list",
    ],
)
def test_an_answer_that_is_no_list_of_embeddings_is_an_error(
    server: Server, encoder: OpenAIEncoder, rule: Rule
) -> None:
    server.rules = [rule] * 5

    with pytest.raises(EncoderError):
        encoder.encode(["a", "b"])
    assert encoder._dim is None


def test_a_length_that_changes_is_an_error(server: Server, encoder: OpenAIEncoder) -> None:
    encoder.encode(["a"])
    server.rules = [lambda body: data([{**item, "embedding": [1.0]} for item in embeddings(body)])]

    with pytest.raises(EncoderError, match="length"):
        encoder.encode(["a"])


def test_blank_and_long_texts_are_not_sent(server: Server) -> None:
    encoder = OpenAIEncoder(server.url, "m", max_bytes=20)
    texts = ["a", " ", "x" * 21, "ü" * 11, "b"]
    rows = encoder.encode(texts)

    assert server.requests[0]["input"] == ["a", "b"]
    assert rows.any(axis=1).tolist() == [True, False, False, False, True]
    assert [limits.over_window for limits in encoder.inspect(texts)] == [False, False, True, True, False]
    assert [limits.unknown_share for limits in encoder.inspect(texts)] == [0.0, 1.0, 0.0, 0.0, 0.0]


def test_a_client_of_the_users_own_is_used_as_it_is(server: Server) -> None:
    import openai

    with openai.OpenAI(base_url=server.url, api_key="mine", default_headers={"x-team": "search"}) as client:
        OpenAIEncoder(client, "m").encode(["a"])

        assert client.max_retries == 2
    assert server.headers[0]["authorization"] == "Bearer mine"
    assert server.headers[0]["x-team"] == "search"


def test_a_function_may_make_the_client(server: Server) -> None:
    import openai

    assert OpenAIEncoder(lambda: openai.OpenAI(base_url=server.url, api_key="made"), "m").encode(["a"]).any()
    assert server.headers[0]["authorization"] == "Bearer made"


def test_the_environments_key_is_not_sent_to_a_base_url(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    OpenAIEncoder(server.url, "m").encode(["a"])
    OpenAIEncoder(server.url, "m", api_key="given").encode(["a"])

    assert [headers["authorization"] for headers in server.headers] == ["Bearer none", "Bearer given"]


@pytest.mark.parametrize("how", ["url", "client", "function"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(server: Server, how: str) -> None:
    import openai

    def make() -> openai.OpenAI:
        return openai.OpenAI(base_url=server.url, api_key="mine")

    encoder = OpenAIEncoder({"url": server.url, "client": make(), "function": make}[how], "m")
    with EncoderThread(encoder) as thread:
        wanted = thread.encode_now(["a"])[0].embedding
        before = encoder._client
        pid = os.fork()
        if pid == 0:
            (found,) = thread.encode_now(["a"], timeout=20)
            apart = encoder._client is not before and encoder._client._client is not before._client
            os._exit(0 if apart and np.array_equal(found.embedding, wanted) else 2)

        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert np.array_equal(thread.encode_now(["a"])[0].embedding, wanted)


def test_an_asynchronous_client_and_other_things_are_refused() -> None:
    import openai

    with pytest.raises(ConfigurationError, match="AsyncOpenAI"):
        OpenAIEncoder(openai.AsyncOpenAI(api_key="x"), "m")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="int"):
        OpenAIEncoder(7, "m")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"dim": 0},
        {"batch_size": 0},
        {"max_bytes": -1},
        {"deadline": 0},
        {"deadline": float("nan")},
        {"model": ""},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        OpenAIEncoder("http://127.0.0.1:9/v1", **{"model": "m", **settings})


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)

    with pytest.raises(MissingDependencyError, match=r"llm-semcache\[openai\]") as caught:
        OpenAIEncoder("http://127.0.0.1:9/v1", "m")
    assert caught.value.extra == "openai"
