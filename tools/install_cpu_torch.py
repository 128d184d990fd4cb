"""Installs a torch without CUDA into this interpreter's environment, or explains why it doesn't.

On Linux most package indexes offer a torch that brings gigabytes of CUDA libraries. This asks pip first what it
would install, and installs only what is free of them. Indexes given to pip (PIP_INDEX_URL,
PIP_EXTRA_INDEX_URL, pip.conf) count.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

CHOICES = ("torch==2.13.0", "torch")
Pip = Callable[..., "subprocess.CompletedProcess[str]"]
_HELP = """\
Every torch that the configured package index offers for this machine brings CUDA:
{found}
Nothing was installed. Point pip at PyTorch's CPU wheels (the index for "Compute Platform: CPU" in the
installation guide on PyTorch's site) and run this again, for example:

    PIP_EXTRA_INDEX_URL=<PyTorch's CPU wheel index> make test
"""


def is_cuda(name: str) -> bool:
    """Tell whether a distribution belongs to CUDA."""
    name = name.lower().replace("_", "-")
    return name == "triton" or name.startswith(("nvidia-", "cuda-", "pytorch-triton"))


def cuda_of(report: dict[str, Any]) -> list[str]:
    """Return the CUDA distributions of a report of `pip install --dry-run --report`."""
    names = (item["metadata"]["name"] for item in report["install"])
    return sorted(name for name in names if is_cuda(name))


def run_pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the pip of this environment."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def plan(requirement: str, pip: Pip) -> dict[str, Any] | str:
    """Return pip's report of what it would install, or its complaint."""
    done = pip("install", "--quiet", "--dry-run", "--report", "-", requirement)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"pip ended with {done.returncode}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def installed() -> str | None:
    """Return the version of the torch that is there and runs without CUDA libraries."""
    names = [(found.metadata["Name"] or "", found.version) for found in importlib.metadata.distributions()]
    version = next((version for name, version in names if name == "torch"), None)
    return None if any(is_cuda(name) for name, _ in names) else version


def main(pip: Pip = run_pip, *, version: str | None = None) -> int:
    """Install torch unless a `version` of it is there.

    Returns:
        What the process exits with: 0 if there is a torch without CUDA now.
    """
    if version is not None:
        print(f"torch {version} is installed already")
        return 0
    found = []
    for requirement in CHOICES:
        report = plan(requirement, pip)
        if isinstance(report, str):
            found.append(f"  {requirement}: {report}")
            continue
        cuda = cuda_of(report)
        if not cuda:
            print(f"installing {requirement} (CPU)")
            done = pip("install", "--quiet", requirement)
            print(done.stderr, end="", file=sys.stderr)
            return done.returncode
        found.append(f"  {requirement}: {len(cuda)} packages, {', '.join(cuda[:3])} …")
    print(_HELP.format(found="\n".join(found)), file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(version=installed()))
