"""The examples run as their first lines say, and are short."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
COMPOSE = yaml.safe_load((EXAMPLES / "compose.yaml").read_text("utf-8"))


def _environment(home: Path) -> dict[str, str]:
    folders = f"{ROOT}{os.pathsep}{ROOT / 'integrations'}"
    return {"PATH": os.environ["PATH"], "PYTHONPATH": folders, "SEMCACHE_HOME": str(home), "HOME": str(home)}


def _run(name: str, home: Path, *arguments: str, says: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        input=says,
        capture_output=True,
        text=True,
        env=_environment(home),
        cwd=home,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.*")), ids=lambda file: file.name)
def test_an_example_is_short(file: Path) -> None:
    assert len(file.read_text("utf-8").splitlines()) <= 80


def test_the_table_names_every_example() -> None:
    table = (EXAMPLES / "README.md").read_text("utf-8")

    for file in EXAMPLES.iterdir():
        assert file.name == "README.md" or f"({file.name})" in table or file.name == "__pycache__"


def test_three_thumbs_down_withdraw_an_answer_of_the_faq_bot(tmp_path: Path) -> None:
    question = "Are there any books on Python?"
    said = {
        user: "\n".join(_run("faq_bot.py", tmp_path, "--user", user, says=f"{question}\n-\n\n"))
        for user in ("ann", "ben", "cat")
    }
    after = "\n".join(_run("faq_bot.py", tmp_path, "--user", "dan", says=f"{question}\n\n"))

    assert "[from the model: no_candidate]" in said["ann"]
    assert "[from the cache: exact match" in said["ben"]
    assert "[thanks, ben: recorded]" in said["ben"]
    assert "[thanks, cat: withdrawn]" in said["cat"]
    assert "[from the model: withdrawn]" in after


def test_the_faq_bot_answers_other_words_and_stores_no_excuse(tmp_path: Path) -> None:
    asked = "Are there any books on Python?\n\nAny books about Python?\n\nWho am I?\nWho am I?\n"
    said = "\n".join(_run("faq_bot.py", tmp_path, says=asked))

    assert "[from the cache: semantic match for 'Are there any books on Python?']" in said
    assert said.count("I don't know that.") == 2


def test_a_changed_document_is_not_answered_from_before(tmp_path: Path) -> None:
    lines = _run("rag.py", tmp_path)

    assert [line.split()[0] for line in lines] == ["miss", "hit", "miss", "hit", "miss"]
    assert "within 30" in lines[1]
    assert "within 14" in lines[2]


def test_the_agents_model_is_asked_once_and_its_tool_each_time(tmp_path: Path) -> None:
    lines = _run("langchain_agent.py", tmp_path)

    calls = [line.rpartition("(")[2] for line in lines if "→" in line]
    assert calls == ["1 model calls)", "0 model calls)", "2 model calls)", "0 model calls)"]
    assert sum("looks up order 17" in line for line in lines) == 2


@contextlib.contextmanager
def _application(redis_url: str, home: Path) -> Iterator[str]:
    """The service `app` of the compose file, its command line taken from there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = COMPOSE["services"]["app"]
    program, *words = [*app["entrypoint"], *app["command"]]
    here = {"/examples": str(EXAMPLES), "0.0.0.0": "127.0.0.1", "8000": str(port)}
    command = [sys.executable, "-m", "tests.patience", program, *(here.get(word, word) for word in words)]
    assert list(app["environment"]) == ["SEMCACHE_REDIS"]
    environment = _environment(home) | {"SEMCACHE_REDIS": redis_url}
    process = subprocess.Popen(command, env=environment, cwd=home, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(urllib.error.URLError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=5).close()
                break
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until, "the application didn't start"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _post(url: str, **body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_the_application_shares_its_cache_and_takes_thumbs(redis_url: str, tmp_path: Path) -> None:
    with _application(redis_url, tmp_path) as url:
        first = _post(f"{url}/ask", question="How do I reset my password?")
    with _application(redis_url, tmp_path) as url:  # another process, the same Redis
        again = _post(f"{url}/ask", question="How can I reset my password?")
        served = [_post(f"{url}/ask", question="How do I reset my password?") for _ in range(3)]
        thumbs = [
            _post(f"{url}/feedback", lookup_id=one["lookup_id"], verdict=-1, user=user)["action"]
            for one, user in zip(served, ("ann", "ben", "cat"), strict=True)
        ]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            _post(f"{url}/feedback", lookup_id="forged", verdict=-1, user="ann")

    assert (first["status"], again["status"]) == ("miss: no_candidate", "hit")
    assert again["answer"] == first["answer"]
    assert thumbs == ["recorded", "recorded", "withdrawn"]


def test_the_compose_files_redis_keeps_withdrawals_and_bookkeeping() -> None:
    app, redis = COMPOSE["services"]["app"], COMPOSE["services"]["redis"]

    assert app["environment"]["SEMCACHE_REDIS"].startswith("redis://redis:")
    assert (EXAMPLES / app["build"]["context"] / app["build"]["dockerfile"]).is_file()
    assert (EXAMPLES / app["volumes"][0].partition(":")[0]).is_file()
    options = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"].startswith("volatile-")
