"""The source archive and the wheel that is built from it, made once for all tests of this folder."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.packaging.installed import ROOT, build


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the unpacked source archive, as an installer without wheels would."""
    source = tmp_path_factory.mktemp("source")
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (folder,) = source.iterdir()
    return build(folder, "wheel", tmp_path_factory.mktemp("wheel"))
