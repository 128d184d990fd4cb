"""Runs the tests that concern a dependency against the oldest and the newest version of it that we claim to support.

Each cell of the matrix is a wheel of this project in a virtual environment of its own, with the lower bounds of
pyproject.toml pinned (``oldest``) or left to pip (``newest``), and the tests that exercise them. It needs a package
index and some minutes, so that it is a command (`make matrix`) and no part of `make test`, which runs against the
newest versions anyway.

    python tools/version_matrix.py                      all cells
    python tools/version_matrix.py redis-oldest openai  cells whose name starts so
    python tools/version_matrix.py --list
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNNER = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_BOUND = re.compile(r">=\s*([0-9][0-9A-Za-z.]*)")


@dataclass(frozen=True, slots=True)
class Dependency:
    """What is tested in an environment of its own.

    Attributes:
        extras: Extras of the wheel that are installed.
        pinned: Requirements held to their lower bound in the oldest cell; empty means all of base and extras.
        tests: What pytest is given.
        beside: More that the tests import; ``beside_oldest`` where the newest don't go with the oldest.
        skipped_oldest: Tests that need something which has no version for the oldest cell.
        options_oldest: More words for pytest in the oldest cell.
    """

    name: str
    tests: tuple[str, ...]
    extras: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    beside_oldest: tuple[str, ...] | None = None
    skipped_oldest: tuple[str, ...] = ()
    options_oldest: tuple[str, ...] = ()


MATRIX = (
    Dependency(
        "base",
        ("tests/test_cli.py", "tests/test_demo.py", "tests/encoders/test_bundled.py", "tests/indexes"),
        beside_oldest=("click<8.3",),  # with a newer one the oldest typer works, and warns
    ),
    Dependency(
        "redis",
        ("tests/test_cache.py", "tests/test_round_trips.py", "tests/test_regeneration.py", "tests/stores"),
        pinned=("redis",),
    ),
    Dependency(
        "langchain",
        ("tests/integrations/langchain",),
        extras=("langchain",),
        pinned=("langchain-core",),
        beside=("langchain-openai", "langchain-tests", "langchain"),
        beside_oldest=("langchain-openai==1.1.6", "langchain-tests==1.0.0", "openai<3"),
        options_oldest=("-W", "ignore:Pydantic serializer:UserWarning"),  # of langchain-openai itself
        skipped_oldest=(  # those of agents, which need the next extra
            "tests/integrations/langchain/test_langchain_agents.py",
            "tests/integrations/langchain/test_langchain_docs.py",
            "tests/integrations/langchain/test_langchain_playback.py",
            "tests/integrations/langchain/test_langchain_users.py",
        ),
    ),
    Dependency(
        "agents",
        (
            "tests/integrations/langchain/test_langchain_agents.py",
            "tests/integrations/langchain/test_langchain_playback.py",
        ),
        extras=("langchain-agents",),
        pinned=("langchain",),
        beside=("langchain-openai", "langchain-tests"),
        beside_oldest=("langchain-core==1.4.0", "langchain-openai<1.3", "langchain-tests<1.2"),
    ),
    Dependency(
        "openai",
        ("tests/integrations/openai",),
        extras=("openai",),
        pinned=("openai",),
        beside=("langchain-openai", "langgraph", "instructor", "httpx"),
        beside_oldest=("httpx",),
        skipped_oldest=(  # other packages over the SDK, of any version
            "tests/integrations/openai/test_openai_frameworks.py",
            "tests/integrations/openai/test_openai_docs.py",
            "tests/integrations/openai/test_openai_instructor.py",
            "tests/integrations/openai/test_openai_langchain.py",
        ),
    ),
    Dependency(
        "server",
        ("tests/http",),
        extras=("server", "otel"),
        beside=("schemathesis", "selenium", "openai", "langchain-openai"),
        beside_oldest=("selenium", "click<8.3"),
        options_oldest=("--deselect", "tests/http/test_api.py::test_schemathesis_finds_no_server_error"),
        skipped_oldest=(
            "tests/http/test_proxy.py",
        ),  # needs newest SDKs, whose pydantic is newer than the oldest
    ),
)


def requirements(extras: Sequence[str], project: dict[str, object]) -> list[str]:
    """Return the requirements of the base and of these extras, as pyproject.toml has them."""
    base: list[str] = list(project["dependencies"])  # type: ignore[call-overload]
    optional: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    return base + [requirement for extra in extras for requirement in optional[extra]]


def at_lower_bound(requirement: str) -> str:
    """Return the requirement held to its lower bound: ``redis[hiredis]>=5.2`` becomes ``redis==5.2``.

    Raises:
        ValueError: It has no lower bound.
    """
    name, bound = _NAME.match(requirement), _BOUND.search(requirement)
    if name is None or bound is None:
        raise ValueError(f"{requirement!r} has no lower bound, expected one like 'redis>=5.2'")
    marker = requirement.partition(";")[2]
    return f"{name[0]}=={bound[1]}" + (f" ; {marker.strip()}" if marker else "")


def name_of(requirement: str) -> str:
    """Return the name of the distribution that a requirement asks for."""
    found = _NAME.match(requirement)
    return "" if found is None else found[0].lower()


def cell(dependency: Dependency, age: str, project: dict[str, object]) -> tuple[list[str], list[str]]:
    """Return what pip is given beside the wheel, and what pytest is given."""
    if age == "newest":
        return [*RUNNER, *dependency.beside], list(dependency.tests)
    pins = [
        at_lower_bound(requirement)
        for requirement in requirements(dependency.extras, project)
        if not dependency.pinned or name_of(requirement) in dependency.pinned
    ]
    beside = dependency.beside if dependency.beside_oldest is None else dependency.beside_oldest
    ignored = [f"--ignore={path}" for path in dependency.skipped_oldest]
    return [*RUNNER, *pins, *beside], [*dependency.options_oldest, *dependency.tests, *ignored]


def without_packages(folder: Path) -> Path:
    """Copy what the tests read into `folder`, and not the packages: those come from the wheel."""
    folder.mkdir()
    for name in ("tests", "tools", "docs", "benchmarks", "deploy", "training", "examples", "notebooks"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"):
        shutil.copy(file, folder)
    return folder


def run(
    dependency: Dependency, age: str, wheel: Path, checkout: Path, folder: Path, project: dict[str, object]
) -> bool:
    """Make the environment, run the tests in it, and say how it went."""
    wanted, tests = cell(dependency, age, project)
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    extras = f"[{','.join(dependency.extras)}]" if dependency.extras else ""
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    installed = subprocess.run([*pip, f"{wheel}{extras}", *wanted]).returncode
    made = time.monotonic()
    passed = False
    if installed == 0:
        options = ["-q", "-p", "no:cacheprovider", "-o", "pythonpath=."]
        passed = subprocess.run([str(python), "-m", "pytest", *options, *tests], cwd=checkout).returncode == 0
    took = f"install {made - started:.0f} s, tests {time.monotonic() - made:.0f} s"
    print(f"== {dependency.name}-{age}: {'passed' if passed else 'FAILED'} ({took})", flush=True)
    return passed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen cells; return 0 if all of them passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="*", help="cells to run, by the beginning of their names; all without")
    parser.add_argument("--keep", type=Path, help="leave the environments in this folder")
    parser.add_argument("--list", action="store_true", help="print the cells and what they pin")
    chosen = parser.parse_args(arguments)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cells = [
        (dependency, age)
        for dependency in MATRIX
        for age in ("oldest", "newest")
        if not chosen.cells or f"{dependency.name}-{age}".startswith(tuple(chosen.cells))
    ]
    if not cells:
        print(f"no cell begins with {', '.join(chosen.cells)}; --list shows them", file=sys.stderr)
        return 2
    if chosen.list:
        for dependency, age in cells:
            print(f"{dependency.name}-{age}:", *cell(dependency, age, project)[0][len(RUNNER) :])
        return 0
    with tempfile.TemporaryDirectory(prefix="semcache-matrix-") as made:
        folder = chosen.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=chosen.keep is None)
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
        subprocess.run([*build, str(ROOT)], check=True)
        (wheel,) = folder.glob("*.whl")
        checkout = without_packages(folder / "checkout")
        failed = [
            f"{dependency.name}-{age}"
            for dependency, age in cells
            if not run(dependency, age, wheel, checkout, folder / f"{dependency.name}-{age}", project)
        ]
    print("all cells passed" if not failed else f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
