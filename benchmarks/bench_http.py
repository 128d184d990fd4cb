"""The HTTP service on loopback: exact hits per second, overhead of a passed-through stream, memory over many hits.

The service, the stub upstream and the load are processes of their own; the load is wrk where it is installed, else a
small one of ours, which needs more of the machine than wrk. Figures of a busy machine say little: the load average is
printed with them, and the processor time per hit hardly depends on it.

    python benchmarks/bench_http.py [--seconds 5] [--requests 100000] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
CONNECTIONS = 32
BODY = {"model": "m", "messages": [{"role": "user", "content": "How do I reset my password?"}]}
STUB = (
    "import time\nfrom tests.upstream import Upstream\nprint(Upstream().url, flush=True)\ntime.sleep(1e6)\n"
)
SCRIPT = """wrk.method = "POST"
wrk.body = [[{body}]]
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer sk-bench"
"""


def spawn(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "integrations")])
    environment = {**os.environ, "PYTHONPATH": path, "SEMCACHE_LOG_LEVEL": "warning"}
    return subprocess.Popen([sys.executable, *arguments], env=environment, text=True, **options)


def wait_until_ready(origin: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            httpx.get(origin + "/readyz", trust_env=False).raise_for_status()
            return
        except httpx.HTTPError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(origin: str, seconds: float) -> dict[str, float]:
    """Hits per second and p99 in milliseconds with 32 connections."""
    if shutil.which("wrk"):
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
            script.write(SCRIPT.format(body=json.dumps(BODY)))
            script.flush()
            command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "--latency", "-s", script.name]
            said = subprocess.run(
                [*command, origin + "/v1/chat/completions"], capture_output=True, text=True, check=True
            ).stdout
        units = {"us": 0.001, "ms": 1.0, "s": 1000.0}
        parts = {share: re.search(rf"{share}%\s+([\d.]+)(us|ms|s)", said) for share in (50, 99)}
        times = {f"p{share}_ms": float(m[1]) * units[m[2]] for share, m in parts.items() if m}
        done, rate = re.search(r"(\d+) requests in", said), re.search(r"Requests/sec:\s+([\d.]+)", said)
        assert done is not None, said
        assert rate is not None, said
        errors = sum(map(int, re.findall(r"(?:connect|read|write|timeout) (\d+)", said)))
        errors += sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", said)))
        return {"requests": int(done[1]), "per_second": float(rate[1]), "errors": errors, **times}
    command = ["-c", "import benchmarks.bench_http as b, sys; b.own_load(sys.argv[1], float(sys.argv[2]))"]
    ran = spawn([*command, origin, str(seconds)], stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(ran.communicate()[0])
    return found


def own_load(origin: str, seconds: float) -> None:
    """The same from raw sockets, in this process; prints JSON."""
    body = json.dumps(BODY).encode()
    host, port = origin.removeprefix("http://").split(":")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer sk-bench\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    times: list[float] = []
    errors = 0

    async def one(until: float) -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection(host, int(port))
        while time.perf_counter() < until:
            started = time.perf_counter()
            writer.write(head + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", answer)
            await reader.readexactly(int(length[1]) if length else 0)
            times.append(time.perf_counter() - started)
            errors += b" 200 " not in answer[:20]
        writer.close()

    async def every() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(one(until) for _ in range(CONNECTIONS)))

    asyncio.run(every())
    times.sort()
    print(
        json.dumps(
            {
                "requests": len(times),
                "per_second": len(times) / seconds,
                "errors": errors,
                "p50_ms": times[len(times) // 2] * 1000,
                "p99_ms": times[len(times) * 99 // 100] * 1000,
            }
        )
    )


def first_bytes(url: str, number: int) -> list[float]:
    """Milliseconds to the first byte of passed-through streams."""
    found = []
    body = {**BODY, "stream": True}
    headers = {"authorization": "Bearer sk-bench", "x-semcache-mode": "off", "accept-encoding": "identity"}
    with httpx.Client(trust_env=False, timeout=30) as client:
        for _ in range(number):
            started = time.perf_counter()
            with client.stream("POST", url + "/chat/completions", json=body, headers=headers) as response:
                chunks = response.iter_raw()
                next(chunks)
                found.append((time.perf_counter() - started) * 1000)
                for _ in chunks:
                    pass
    return found


def measure(seconds: float, requests: int) -> dict[str, Any]:
    stub = spawn(["-c", STUB], stdout=subprocess.PIPE)
    assert stub.stdout is not None
    upstream = stub.stdout.readline().strip()
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        serve = [
            "-m",
            "semcache.cli",
            "serve",
            "--upstream",
            upstream,
            "--data-dir",
            folder,
            "--port",
            str(port),
        ]
        service = spawn(serve)
        origin = f"http://127.0.0.1:{port}"
        try:
            wait_until_ready(origin)
            load(origin, 1.0)
            before = cpu_seconds(service.pid)
            hits = load(origin, seconds)
            cpu = cpu_seconds(service.pid) - before
            direct, proxied = [], []
            for _ in range(5):  # in turns, so that both see the same machine
                direct += first_bytes(upstream, 20)
                proxied += first_bytes(origin + "/v1", 20)
            done, first = hits["requests"], memory_mb(service.pid)
            memory = []
            while done < requests:
                done += load(origin, max(1.0, seconds))["requests"]
                memory.append(round(memory_mb(service.pid), 1))
        finally:
            for process in (service, stub):
                process.terminate()
                process.wait(30)
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}",
        "load_from": "wrk" if shutil.which("wrk") else "own",
        "connections": CONNECTIONS,
        "exact_hits": {**hits, "cpu_ms_per_hit": round(1000 * cpu / hits["requests"], 3)},
        "stream_first_byte_ms": {
            "direct_p50": round(statistics.median(direct), 2),
            "proxied_p50": round(statistics.median(proxied), 2),
            "overhead_p50": round(statistics.median(proxied) - statistics.median(direct), 2),
        },
        "memory_mb": {"after_first": round(first, 1), "then": memory, "requests": done},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.seconds, arguments.requests)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
