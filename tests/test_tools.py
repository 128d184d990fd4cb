"""The scripts of the repository that decide something."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


torch_tool = _tool("install_cpu_torch")
version_matrix = _tool("version_matrix")
PROJECT = tomllib.loads((TOOLS.parent / "pyproject.toml").read_text("utf-8"))["project"]


class _Pip:
    """Answers as pip would, and notes what it was asked to install."""

    def __init__(self, resolved: dict[str, list[str]]) -> None:
        self.resolved = resolved
        self.installed: list[str] = []

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        requirement = arguments[-1]
        if "--dry-run" not in arguments:
            self.installed.append(requirement)
            return subprocess.CompletedProcess(arguments, 0, "", "")
        if requirement not in self.resolved:
            return subprocess.CompletedProcess(
                arguments, 1, "", f"ERROR: No matching distribution for {requirement}\n"
            )
        items = [{"metadata": {"name": name}} for name in self.resolved[requirement]]
        return subprocess.CompletedProcess(arguments, 0, json.dumps({"install": items}), "")


def test_a_torch_without_cuda_is_installed() -> None:
    pip = _Pip({"torch==2.13.0": ["torch", "filelock"]})

    assert torch_tool.main(pip) == 0
    assert pip.installed == ["torch==2.13.0"]


def test_a_torch_with_cuda_is_refused_with_a_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    pip = _Pip({"torch==2.13.0": ["torch", "nvidia_cublas", "triton"], "torch": ["torch", "triton"]})

    assert torch_tool.main(pip) == 1
    assert pip.installed == []
    said = capsys.readouterr().err
    assert "nvidia_cublas, triton" in said
    assert "PyTorch's CPU wheels" in said


def test_the_unpinned_torch_is_tried_where_the_pinned_one_is_missing() -> None:
    pip = _Pip({"torch": ["torch"]})

    assert torch_tool.main(pip) == 0
    assert pip.installed == ["torch"]


def test_a_torch_that_is_there_is_left_alone() -> None:
    pip = _Pip({})

    assert torch_tool.main(pip, version="2.13.0+cpu") == 0
    assert pip.installed == []


@pytest.mark.parametrize(
    ("requirement", "pinned"),
    [
        ("redis[hiredis]>=5.3", "redis==5.3"),
        ("numpy>=1.26,<3", "numpy==1.26"),
        ("uvloop>=0.21; sys_platform != 'win32'", "uvloop==0.21 ; sys_platform != 'win32'"),
    ],
)
def test_a_requirement_is_held_to_its_lower_bound(requirement: str, pinned: str) -> None:
    assert version_matrix.at_lower_bound(requirement) == pinned


def test_the_matrix_lists_its_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert version_matrix.main(["--list"]) == 0
    listed = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]

    assert listed == [f"{one.name}-{age}" for one in version_matrix.MATRIX for age in ("oldest", "newest")]
    assert version_matrix.main(["nothing"]) == 2


def test_every_requirement_has_a_lower_bound() -> None:
    for requirement in version_matrix.requirements(list(PROJECT["optional-dependencies"]), PROJECT):
        assert version_matrix.name_of(version_matrix.at_lower_bound(requirement))

    with pytest.raises(ValueError, match="'redis' has no lower bound"):
        version_matrix.at_lower_bound("redis")


def test_the_matrix_pins_what_is_declared_and_runs_tests_that_exist() -> None:
    for dependency in version_matrix.MATRIX:
        declared = {
            version_matrix.name_of(one) for one in version_matrix.requirements(dependency.extras, PROJECT)
        }
        assert set(dependency.pinned) <= declared
        for path in (*dependency.tests, *dependency.skipped_oldest):
            assert (TOOLS.parent / path).exists(), path
    assert {"redis", "langchain-core", "openai"} <= {
        name for dependency in version_matrix.MATRIX for name in dependency.pinned
    }


def _install_redis(tmp_path: Path, apt_get: str) -> subprocess.CompletedProcess[str]:
    """Run the script where nothing but apt-get, as given, and the shell's own tools are found."""
    for name, body in {"id": "echo 0", "apt-get": apt_get, "timeout": 'shift; exec "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    return subprocess.run(
        ["/bin/sh", str(TOOLS / "install_old_redis.sh")],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},
    )


def test_integration_goes_on_without_redis_where_it_cant_be_installed(tmp_path: Path) -> None:
    failed = _install_redis(tmp_path, "exit 100")
    installed = _install_redis(tmp_path, f'echo "$@" >> {tmp_path}/asked')

    assert (failed.returncode, installed.returncode) == (0, 0)
    assert "couldn't be installed" in failed.stderr
    assert installed.stderr == ""
    assert (
        (tmp_path / "asked")
        .read_text()
        .splitlines()[-1]
        .endswith("install -y --no-install-recommends redis-server")
    )


measuring_tool = _tool("measure_matching")
measuring = pytest.mark.skipif(
    not (measuring_tool.DATA / "pairs_slots.jsonl.gz").exists(),
    reason="the evaluation data is absent",
)


@measuring
def test_the_table_of_matching_is_printed_by_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    measuring_tool.main(["--sample", "25", "--only", "pairs"])
    printed = capsys.readouterr().out

    for name, part, *_ in measuring_tool.PAIRS:
        assert f"| {name} {part}" in printed
    assert "| distinct_prompts | 0 hits | | | 0 hits | ok |" in printed
    assert "| context_pairs | 0 hits | | | 0 hits | ok |" in printed


@measuring
def test_guards_never_accept_what_plain_cosine_refuses() -> None:
    judge = measuring_tool.Judge(cosine=0.9)

    assert judge.judge("a table for 4", "a table for four", 0.71).reason is None  # equal normal form
    assert judge.judge("a table for 4", "a chair for 4", 0.89).reason == "below_threshold"
    assert judge.judge("a table for 4", "a table for 5", 0.99).reason == "guard:number"
    judge.without = frozenset({"number", "substitution"})
    assert judge.judge("a table for 4", "a table for 5", 0.99).reason is None
