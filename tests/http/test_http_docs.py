"""The curl lines of docs/http.md and of the README, run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.http.served import Served

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
LINES = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


README = [
    line
    for line in re.findall(r"```sh\n(.*?)```", (PAGE.parents[1] / "README.md").read_text("utf-8"), re.DOTALL)
    if "$SEMCACHE" in line
]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl isn't installed")
@pytest.mark.parametrize("line", README)
def test_the_curl_lines_of_the_readme_run(served: Served, line: str) -> None:
    ran = subprocess.run(
        ["sh", "-euc", line.replace("curl ", "curl --fail-with-body --noproxy '*' ", 1)],
        env={"SEMCACHE": served.origin, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stdout
    assert "x-semcache-status: " in ran.stdout or '"matched":' in ran.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl isn't installed")
def test_every_curl_line_does_what_the_page_says(served: Served) -> None:
    lookup_id = served.chat("a question").headers["x-semcache-lookup-id"]
    environment = {"SEMCACHE": served.origin, "LOOKUP_ID": lookup_id, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    answers = []
    for line in [LINES[0], *LINES]:
        ran = subprocess.run(
            ["sh", "-euc", line.replace("curl ", "curl --fail-with-body --noproxy '*' ", 1)],
            env=environment, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, (line, ran.stdout)
        answers.append(ran.stdout)

    assert len(LINES) == 10
    assert "x-semcache-status: miss" in answers[0]
    assert "x-semcache-status: hit" in answers[1]
    assert '"stored":true' in answers[2]
    assert '"status":"hit"' in answers[3]
    assert '"candidates":[' in answers[4]
    assert "What are your opening hours?" in answers[5]
    assert '"matched":1' in answers[6]
    assert '"action":"recorded"' in answers[-1]
