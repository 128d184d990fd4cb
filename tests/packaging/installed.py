"""Environments that hold the wheel and exactly what its metadata asks for, made in seconds.

The distributions of an environment are links to those of the environment that runs the tests, chosen by following
`Requires-Dist` from the wheel: what isn't declared isn't there, so an undeclared import fails as it would for a user.
What pip's resolver makes of the bounds, and a real installation, are tested apart (`test_a_real_installation…`,
`make matrix`).
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("semcache", "langchain_semcache", "openai_semcache")


def build(folder: Path, target: str, into: Path) -> Path:
    """Build the sdist or the wheel of the project in `folder`."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = into.glob("*.tar.gz" if target == "sdist" else "*.whl")
    return made


@dataclass(frozen=True)
class Environment:
    """A virtual environment.

    Attributes:
        distributions: Canonical names of what is installed beside the wheel.
    """

    folder: Path
    distributions: frozenset[str]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *command: str, cwd: Path, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments; it sees nothing of the checkout, nor of the script's own folder."""
        environment = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "SEMCACHE_HOME": str(cwd / "home")}
        environment |= {"HF_HUB_OFFLINE": "1", "MPLCONFIGDIR": str(cwd / "matplotlib"), "HOME": str(cwd)}
        return subprocess.run(
            [str(self.python), "-P", *command],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def bare(folder: Path) -> Path:
    """Make a virtual environment with nothing in it, not even pip; return its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    return site


def pip(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this environment's pip on another one."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder),
        "--disable-pip-version-check",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True)


def installed(folder: Path, wheel: Path) -> Environment:
    """Install the wheel into a new environment, and link what it requires without extras."""
    site = bare(folder)
    done = pip(folder, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    assert done.returncode == 0, done.stderr
    return Environment(folder, link_all(ours(site), frozenset(), site))


def with_extra(folder: Path, base: Environment, extra: str, *, without: Collection[str] = ()) -> Environment:
    """Make an environment with the wheel as it is installed in `base`, and what it requires with this extra.

    Args:
        extra: Name of the extra; empty for none.
        without: Distributions that are left out.
    """
    site = bare(folder)
    (from_site,) = base.folder.glob("lib/python*/site-packages")
    link(ours(from_site), site)
    for script in (base.folder / "bin").glob("semcache*"):
        text = script.read_text("utf-8").replace(str(base.folder), str(folder))
        copy = folder / "bin" / script.name
        copy.write_text(text, "utf-8")
        copy.chmod(0o755)
    return Environment(folder, link_all(ours(site), frozenset({extra} - {""}), site, without))


def ours(site: Path) -> importlib.metadata.Distribution:
    """Return the distribution of this project that is installed there."""
    (found,) = importlib.metadata.distributions(name="llm-semcache", path=[str(site)])
    return found


def link_all(
    distribution: importlib.metadata.Distribution,
    extras: frozenset[str],
    site: Path,
    without: Collection[str] = (),
) -> frozenset[str]:
    """Link what a distribution requires, directly or not, less those `without`; return the names."""
    found: dict[str, importlib.metadata.Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    for requirement in required(distribution, extras):
        collect(requirement, found, seen)
    for name in found.keys() - set(without):
        link(found[name], site)
    return frozenset(found) - set(without)


def required(distribution: importlib.metadata.Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    """Yield what a distribution requires on this machine with these extras."""
    for text in distribution.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            yield requirement


def collect(
    requirement: Requirement,
    found: dict[str, importlib.metadata.Distribution],
    seen: set[tuple[str, frozenset[str]]],
) -> None:
    """Add the distribution that answers a requirement, and those that it requires."""
    name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    try:
        distribution = importlib.metadata.distribution(requirement.name)
    except importlib.metadata.PackageNotFoundError as error:
        raise AssertionError(f"{requirement} isn't in the environment that runs the tests") from error
    assert requirement.specifier.contains(distribution.version, prereleases=True), (
        f"{name} {distribution.version} doesn't meet {requirement}"
    )
    found[name] = distribution
    for further in required(distribution, extras):
        collect(further, found, seen)


def link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Link the files of a distribution into site-packages, except those outside of it (scripts, data)."""
    for file in distribution.files or ():
        if ".." in file.parts:
            continue
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(str(file.locate()))
