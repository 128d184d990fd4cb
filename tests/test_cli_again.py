"""Asking a model again from the command line: refresh, warm, versions, export."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from semcache import CacheRequest, Hit, Policy, SemanticCache
from semcache.cli import app

runner = CliRunner()


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An OpenAI-compatible endpoint that answers "new: <prompt>"."""
    seen: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append(body)
            text = "new: " + body["messages"][-1]["content"]
            answer = {
                "choices": [
                    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
                ]
            }
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", seen
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cache(redis_url: str, namespace: str) -> Iterator[SemanticCache]:
    with SemanticCache.open(
        redis_url, namespace=namespace, policy=Policy(deadline=30.0, local_bound=0.0)
    ) as cache:
        yield cache


def ask(prompt: str, version: str = "v1", **fields: Any) -> CacheRequest:
    return CacheRequest(prompt, model="m", model_version=version, **fields)


def run(*words: str) -> Any:
    result = runner.invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result


def test_refresh_answers_what_was_rejected(
    cache: SemanticCache, endpoint: tuple[str, list[dict[str, Any]]], redis_url: str, namespace: str
) -> None:
    request = ask("When do you open?")
    cache.put(request, "old")
    cache.put(ask("Private?", context="a secret"), "old")
    for rater in "abc":
        found = cache.lookup(request)
        assert isinstance(found, Hit)
        cache.feedback(found.lookup_id, -1, rater=rater)
    where = ("--redis", redis_url, "--namespace", namespace, "--base-url", endpoint[0])
    first = run("refresh", *where)
    second = run("refresh", *where)
    found = cache.lookup(request)

    assert "changed" in first.output
    assert "nothing to do" in second.output
    assert isinstance(found, Hit)
    assert found.text == "new: When do you open?"
    assert [body["model"] for body in endpoint[1]] == ["m"]


def test_warm_from_a_version_with_a_canary_and_from_a_log(
    cache: SemanticCache,
    endpoint: tuple[str, list[dict[str, Any]]],
    redis_url: str,
    namespace: str,
    tmp_path: Path,
) -> None:
    for prompt in ("When do you open?", "Where are you?"):
        cache.put(ask(prompt), "new: When do you open?")
    where = (
        "--redis",
        redis_url,
        "--namespace",
        namespace,
        "--base-url",
        endpoint[0],
        "--model",
        "m",
        "--json",
    )
    first = json.loads(
        run("warm", *where, "--from-version", "v1", "--to-version", "v2", "--canary", "2").output
    )
    again = json.loads(run("warm", *where, "--from-version", "v1", "--to-version", "v2").output)
    log = tmp_path / "log.jsonl"
    log.write_text('{"prompt": "Who are you?", "time": 1}\n{"prompt": "Who are you?", "time": 2}\n')
    logged = json.loads(run("warm", *where, "--log", str(log), "--to-version", "v2", "--top", "1").output)
    listed = run("versions", "--redis", redis_url, "--namespace", namespace).output

    assert (first["canary"]["asked"], first["canary"]["held"]) == (2, 1)
    assert first["outcomes"] == {"warmed": 2}
    assert again["outcomes"] == {"there": 2}
    assert logged["outcomes"] == {"warmed": 1}
    assert isinstance(cache.lookup(ask("Who are you?", "v2")), Hit)
    assert "m v2" in listed
    assert "m v1" in listed


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("warm", "--model", "m", "--to-version", "v2", "--base-url", "http://x/v1"),
            "--from-version or by --log",
        ),
        (("refresh", "--base-url", "ftp://x"), "expected http"),
        (("refresh", "--base-url", "http://x/v1", "--api-key-env", "SEMCACHE_NO_SUCH"), "is not set"),
    ],
)
def test_what_cant_be_meant_is_refused(words: tuple[str, ...], complaint: str) -> None:
    result = runner.invoke(app, list(words))

    assert result.exit_code != 0
    assert complaint in result.output + str(result.exception)


def test_a_log_that_isnt_one_names_the_line(
    endpoint: tuple[str, list[dict[str, Any]]], redis_url: str, namespace: str, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"prompt": "ok"}\nnonsense\n')
    result = runner.invoke(
        app,
        ["warm", "--model", "m", "--to-version", "v2", "--log", str(log), "--base-url", endpoint[0], "--redis", redis_url,
         "--namespace", namespace],
    )  # fmt: skip

    assert result.exit_code != 0
    assert "line 2" in result.output + str(result.exception)
