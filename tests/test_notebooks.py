"""The notebooks run top to bottom, use public names only, and ship with outputs that name no machine."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tools.run_notebooks import outputs

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OURS = ("semcache", "langchain_semcache", "openai_semcache")
PATH = re.compile(r"(?<![\w.:/])/(?:tmp|root|home|Users|var|work|usr|private|opt)/\w|[A-Z]:\\\\Users")
each = pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)


def _read(file: Path) -> Any:
    return nbformat.read(file, as_version=4)


def _code(file: Path) -> list[Any]:
    return [cell for cell in _read(file).cells if cell.cell_type == "code"]


def test_there_are_the_notebooks_that_the_table_names() -> None:
    table = (ROOT / "notebooks" / "README.md").read_text("utf-8")

    assert len(NOTEBOOKS) >= 4
    assert re.findall(r"\((\w+\.ipynb)\)", table) == [file.name for file in NOTEBOOKS]


@pytest.mark.slow
@each
def test_a_notebook_runs_offline_in_less_than_two_minutes(file: Path) -> None:
    """A cell that raises, or the whole taking longer, ends the tool with an error."""
    folders = f"{ROOT}{os.pathsep}{ROOT / 'integrations'}"
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "run_notebooks.py"), "--check", str(file)],
        env=dict(os.environ) | {"PYTHONPATH": folders},
        capture_output=True,
        text=True,
        timeout=200,
    )

    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


@each
def test_only_public_names_are_used(file: Path) -> None:
    for cell in _code(file):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
                assert "._" not in f".{node.module}"
                assert not [alias.name for alias in node.names if alias.name.startswith("_")]
            if isinstance(node, ast.Import):
                assert not [alias.name for alias in node.names if "._" in alias.name]
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_"), f"{file.name} uses {ast.unparse(node)}"


@each
def test_a_notebook_ships_with_its_outputs(file: Path) -> None:
    cells = _code(file)
    shown = list(outputs(_read(file)))

    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any(kind == "image/png" for _, kind, _ in shown)
    for number, cell in enumerate(cells):
        if "\nprint(" in f"\n{cell.source}":
            assert any(one == number for one, _, _ in shown), cell.source
    assert not [text for _, kind, text in shown if kind in ("stderr", "error")]


@each
def test_outputs_name_no_path_of_a_machine(file: Path) -> None:
    for _, kind, text in outputs(_read(file)):
        if not kind.startswith("image/"):
            assert PATH.search(text) is None, text
    assert PATH.search("in /home/someone/project") is not None


@each
def test_links_of_a_notebook_resolve(file: Path) -> None:
    for cell in _read(file).cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\(([^)\s#]+)", cell.source):
                assert target.startswith("https://") or (file.parent / target).exists(), target
