"""What is published: a source archive, and a wheel that is built from it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.installed import PACKAGES, ROOT


def test_the_source_archive_has_what_its_tests_need(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    for name in (
        "Makefile",
        "pyproject.toml",
        "tests/conftest.py",
        "tools/install_cpu_torch.py",
        "LICENSE",
        "NOTICE",
    ):
        assert name in names


def test_the_wheel_holds_every_file_of_the_packages_and_no_more(wheel: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "semcache", "integrations"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout: which files belong to the packages isn't known")
    expected = {
        name.removeprefix("integrations/") for name in listed.stdout.splitlines() if (ROOT / name).exists()
    }

    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert {name for name in expected if name.startswith(PACKAGES)} - names == set()
    assert {name.partition("/")[0] for name in names} == set(PACKAGES)


def test_licences_and_entry_point_are_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
        (entry_points,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))

    assert "semcache = semcache.cli:main" in entry_points
    assert "License-Expression: Apache-2.0 AND PSF-2.0" in metadata
    for licence in ("LICENSE", "NOTICE", "LICENSE.PSF"):
        assert any(name.endswith(f"/{licence}") and ".dist-info/licenses/" in name for name in names)


def test_all_packages_import_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        f"import {', '.join(PACKAGES)}\n"
        f"print([m.__file__ for m in ({', '.join(PACKAGES)})])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, env={"PATH": ""}
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count(wheel.name) == len(PACKAGES)
