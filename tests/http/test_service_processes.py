"""`semcache serve` as a process: shutdown, reload, several workers, and a Redis that dies under load."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.http.served import SECRET
from tests.upstream import Behaviour, Upstream

ROOT = Path(__file__).parents[2]
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "How do I reset my password?"}]}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture
def patient(tmp_path: Path) -> str:
    """A file of settings with a long deadline, where that isn't the subject."""
    file = tmp_path / "patient.toml"
    file.write_text("[policy]\ndeadline = 10.0\n")
    return str(file)


@contextmanager
def serving(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    port = free_port()
    command = [sys.executable, "-m", "semcache.cli", "serve", "--port", str(port), *options]
    path = os.pathsep.join([str(ROOT), str(ROOT / "integrations")])
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, **environment})
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0, trust_env=False) as client:
            until = time.monotonic() + 60
            while True:
                try:
                    if client.get("/readyz").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                assert process.poll() is None, "the service ended at once"
                assert time.monotonic() < until, "the service didn't start"
                time.sleep(0.05)
            yield process, client
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_a_stream_under_way_ends_whole_when_the_service_is_told_to_stop(stub: Upstream) -> None:
    stub.next(Behaviour(text="word " * 30, chunk_delay=0.05))
    with serving("--upstream", stub.url, "--redis", "memory://") as (process, client):
        with client.stream("POST", "/v1/chat/completions", json={**QUESTION, "stream": True}) as response:
            chunks = response.iter_raw()
            got = [next(chunks)]
            process.send_signal(signal.SIGTERM)
            got += list(chunks)

        assert b"".join(got).endswith(b"data: [DONE]\n\n")
        assert process.wait(60) in (0, -signal.SIGTERM)


def test_sighup_reads_keys_again_and_keeps_the_old_ones_where_the_file_is_broken(
    stub: Upstream, tmp_path: Path
) -> None:
    from semcache.server.identity import key_digest

    def write(*names: str) -> None:
        keys = "".join(
            f'[[keys]]\nname = "{name}"\ndigest = "{key_digest(SECRET, name)}"\ntenant = "t"\n'
            for name in names
        )
        file.write_text(f'upstream = "{stub.url}"\nredis = "memory://"\nsecret = "{SECRET}"\n{keys}')

    def status(name: str) -> int:
        return client.post(
            "/v1/chat/completions", json=QUESTION, headers={"authorization": f"Bearer {name}"}
        ).status_code

    def until(name: str, wanted: int) -> None:
        last = time.monotonic() + 30
        while status(name) != wanted:
            assert time.monotonic() < last, f"{name} never got {wanted}"
            time.sleep(0.05)

    file = tmp_path / "semcache.toml"
    write("one")
    with serving("--config", str(file)) as (process, client):
        assert (status("one"), status("two")) == (200, 401)
        write("two")
        process.send_signal(signal.SIGHUP)
        until("two", 200)
        assert status("one") == 401
        file.write_text("upstream = ")
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)  # nothing can be seen of a reload that was refused
        assert status("two") == 200


def test_two_workers_share_one_store_and_add_up_their_numbers(
    stub: Upstream, tmp_path: Path, patient: str
) -> None:
    options = ("--config", patient, "--upstream", stub.url, "--data-dir", str(tmp_path / "data"))
    with serving(*options, "--workers", "2") as (_, client):
        statuses = []
        for _ in range(20):
            with httpx.Client(base_url=client.base_url, timeout=30.0, trust_env=False) as one:
                statuses.append(one.post("/v1/chat/completions", json=QUESTION).headers["x-semcache-status"])
        assert statuses == ["miss"] + ["hit"] * 19
        until = time.monotonic() + 30
        while True:
            total = client.get("/v1/cache/stats").json()["total"]
            if total["requests"] == 20:
                break
            assert time.monotonic() < until, total
            time.sleep(0.1)
        metrics = client.get("/metrics").text
    counted = [line for line in metrics.splitlines() if line.startswith("semcache_requests_total{")]
    assert sum(float(line.rpartition(" ")[2]) for line in counted) == 20


def test_no_request_fails_while_redis_is_killed_and_restarted_under_load(
    stub: Upstream, tmp_path: Path
) -> None:
    from semcache.stores._launch import find_binary

    port = free_port()
    command = [str(find_binary()), "--port", str(port), "--appendonly", "yes", "--dir", str(tmp_path)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command, "--logfile", str(tmp_path / "log")])

    redis = start()
    try:
        with serving("--upstream", stub.url, "--redis", f"redis://127.0.0.1:{port}/0") as (_, client):
            statuses: list[int] = []
            seen: set[str] = set()
            stop = threading.Event()

            def load(number: int) -> None:
                with httpx.Client(base_url=client.base_url, timeout=30.0, trust_env=False) as one:
                    turn = 0
                    while not stop.is_set():
                        turn += 1
                        text = f"question {number} {turn % 5}"
                        body = {
                            "model": "m",
                            "messages": [{"role": "user", "content": text}],
                            "stream": turn % 3 == 0,
                        }
                        answer = one.post("/v1/chat/completions", json=body)
                        statuses.append(answer.status_code)
                        seen.add(answer.headers["x-semcache-status"])
                        stop.wait(0.01)

            threads = [threading.Thread(target=load, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for _ in range(2):
                stop.wait(1.0)
                redis.kill()
                redis.wait()
                stop.wait(1.0)
                redis = start()
            stop.wait(1.5)
            stop.set()
            for thread in threads:
                thread.join()
            for _ in range(100):
                last = client.post("/v1/chat/completions", json=QUESTION).headers["x-semcache-status"]
                if last == "hit":
                    break
                time.sleep(0.1)
    finally:
        redis.terminate()
        redis.wait()

    assert len(statuses) > 100
    assert set(statuses) == {200}
    assert {"hit", "error"} <= seen
    assert last == "hit"


@pytest.mark.parametrize("options", [(), ("--upstream", "nonsense")])
def test_settings_that_cannot_be_meant_end_it_with_one_line(options: tuple[str, ...]) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "integrations")])
    ended = subprocess.run(
        [sys.executable, "-m", "semcache.cli", "serve", *options],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ended.returncode == 1
    assert ended.stderr.startswith("semcache: ")
    assert ended.stderr.count("\n") == 1


def test_the_garbage_collector_has_little_to_look_through_while_requests_wait(tmp_path: Path) -> None:
    code = (
        "import asyncio, gc\n"
        "from semcache import Policy\n"
        "from semcache.server.run import open_settled\n"
        "from semcache.server.settings import load_settings\n"
        "async def main():\n"
        "    upstream, policy = 'http://127.0.0.1:9/v1', Policy(deadline=30.0)\n"
        "    cache = await open_settled(load_settings(None, upstream=upstream, redis='memory://', policy=policy))\n"
        "    await cache.put('How do I reset my password?', 'x')\n"
        "    assert await cache.lookup('how do i reset my password')\n"
        "    gc.collect()\n"
        "    print(gc.get_freeze_count(), len(gc.get_objects()))\n"
        "    await cache.close()\n"
        "asyncio.run(main())\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "integrations")])
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    frozen, left = map(int, ran.stdout.split())
    assert frozen > 20_000
    assert left < 20_000  # of them the word tables, which hold nothing but text


def test_traces_reach_a_collector_over_otlp(upstream: Upstream, tmp_path: Path, patient: str) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    upstream.reset()
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.path, gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{collector.server_address[1]}"
        try:
            options = ("--config", patient, "--upstream", upstream.url, "--data-dir", str(tmp_path / "data"))
            with serving(*options, SEMCACHE_OTEL="true", OTEL_EXPORTER_OTLP_ENDPOINT=address) as (_, client):
                for _ in range(2):
                    answer = client.post(
                        "/v1/chat/completions", json=QUESTION, headers={"authorization": "Bearer k"}
                    )
                    assert answer.status_code == 200
        finally:
            collector.shutdown()
    assert {path for path, _ in received} == {"/v1/traces"}
    spans = [
        span
        for _, data in received
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert [span.name for span in spans] == ["chat m", "chat m"]
    found = [{a.key: a.value.string_value for a in span.attributes} for span in spans]
    assert [each["semcache.status"] for each in found] == ["miss", "hit"]
    assert all(each["gen_ai.request.model"] == "m" for each in found)
    assert not any(b"password" in data for _, data in received)
