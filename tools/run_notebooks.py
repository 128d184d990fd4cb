"""Runs the notebooks top to bottom in a fresh kernel and writes their outputs into them, or only checks that they run.

    python tools/run_notebooks.py                            all, in place
    python tools/run_notebooks.py notebooks/01*.ipynb --check

A kernel runs in an empty folder, with proxies that lead nowhere, so that a notebook which needs a network fails.
What ships are texts and pictures alone: no times of execution, no paths of the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
LIMIT = 120.0  # seconds that a notebook may take
_NOWHERE = "http://127.0.0.1:9"


def run(file: Path, folder: Path) -> Any:
    """Return the notebook with its outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raised something.
        nbclient.exceptions.CellTimeoutError: A cell took longer than the limit.
    """
    notebook: Any = nbformat.read(file, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    options = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=LIMIT, kernel_name="python3", resources=options)
    client.execute()
    for number, cell in enumerate(c for c in notebook.cells if c.cell_type == "code"):
        cell.metadata = {}
        cell.execution_count = number + 1
        merged: list[Any] = []
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number + 1
            if merged and output.output_type == "stream" and merged[-1].get("name") == output.name:
                merged[-1].text += output.text
            else:
                merged.append(output)
        cell.outputs = merged
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def outputs(notebook: Any) -> Iterator[tuple[int, str, str]]:
    """Yield (number of the code cell, kind of output, text of it) for texts, and pictures as base64."""
    for number, cell in enumerate(c for c in notebook.cells if c.cell_type == "code"):
        for output in cell.outputs:
            if output.output_type == "stream":
                yield number, str(output.name), str(output.text)
            elif output.output_type == "error":
                yield number, "error", "\n".join(output.traceback)
            else:
                for kind, value in output.data.items():
                    yield number, str(kind), str(value)


def offline(environment: dict[str, str], home: Path) -> dict[str, str]:
    """Return an environment from which nothing but this machine can be reached by HTTP, without evaluation data."""
    environment = {name: value for name, value in environment.items() if name != "SEMCACHE_DATA"}
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _NOWHERE)
    local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    more = {"SEMCACHE_HOME": str(home), "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    return (
        environment | proxies | local | more | {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "error::UserWarning"}
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the notebooks; return 0 if each ran inside the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path, help="all of notebooks/ without")
    parser.add_argument("--check", action="store_true", help="run, write nothing")
    chosen = parser.parse_args(arguments)
    slow = False
    for file in chosen.notebooks or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory(prefix="semcache-notebook-") as folder:
            chosen_environment = offline(dict(os.environ), Path(folder) / "home")
            os.environ.clear()
            os.environ.update(chosen_environment)
            began = time.monotonic()
            notebook = run(file, Path(folder))
            took = time.monotonic() - began
        slow = slow or took > LIMIT
        print(f"{file.name}: {took:.0f} s", flush=True)
        if not chosen.check:
            nbformat.write(notebook, file)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
