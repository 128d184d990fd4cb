"""Examples run as they stand but for one thing: a cache that names no policy has a long deadline.

On a machine that stands still for a moment its usual one passes, and a miss is right then, but not what is shown.

    python -m tests.patience MODULE ARGUMENTS
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

from semcache import AsyncSemanticCache, Policy, SemanticCache

PATIENT = Policy(deadline=30.0)


def defaults() -> list[dict[str, Any]]:
    """Return where the defaults of `open` are."""
    kinds: tuple[Any, ...] = (SemanticCache, AsyncSemanticCache)
    return [kind.open.__func__.__kwdefaults__ for kind in kinds]


def be_patient() -> None:
    """Give all caches of this process the long deadline."""
    for values in defaults():
        values["policy"] = PATIENT


if __name__ == "__main__":
    be_patient()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
