"""The extra `server`: `semcache serve` in front of the upstream whose URL is given."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
service = subprocess.Popen(
    ["semcache", "serve", "--upstream", sys.argv[1], "--redis", "memory://", "--port", str(port)]
)


def ask() -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": "How do I reset my password?"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.headers["x-semcache-status"]


try:
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).close()
            break
        except urllib.error.URLError:
            assert service.poll() is None, "the service ended"
            assert time.monotonic() < until, "the service didn't start"
            time.sleep(0.1)
    seen = [ask(), ask()]
    assert seen == ["miss", "hit"], seen
finally:
    service.terminate()
    service.wait(60)
print("used")
