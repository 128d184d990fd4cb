"""What the commands share: options, opening a cache, and showing values. No command is defined here."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from semcache.cache import SemanticCache
    from semcache.policy import Policy
    from semcache.protocols import BackgroundStore

RedisOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        help="redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://; without it the embedded server.",
    ),
]
NamespaceOption: TypeAlias = Annotated[
    str, typer.Option("--namespace", metavar="NAME", help="The deployment: whose keys, whose entries.")
]
DataDirOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="FOLDER", help="Data folder of the embedded server."),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]

PATIENCE = 30.0  # seconds
_PLAIN_WIDTH = 110  # columns where the output isn't a terminal


def check_target(redis: str | None, data_dir: Path | None, *, memory: bool = False) -> None:
    """Raise a usage error for options that contradict one another."""
    if redis is not None and data_dir is not None:
        raise typer.BadParameter("--data-dir is for the embedded server; give it or --redis, not both")
    if redis is not None and redis.startswith("memory:") and not memory:
        raise typer.BadParameter(
            "memory:// lives inside one process and can't be seen from here; expected redis://…"
        )


@contextmanager
def opened(
    redis: str | None,
    namespace: str,
    data_dir: Path | None,
    *,
    policy: Policy | None = None,
    memory: bool = False,
) -> Iterator[SemanticCache]:
    """Open the cache that the options name; by default with a deadline for a person, whose process starts cold."""
    from semcache.cache import SemanticCache
    from semcache.policy import Policy

    check_target(redis, data_dir, memory=memory)
    if policy is None:
        policy = Policy(deadline=PATIENCE)
    with SemanticCache.open(redis, namespace=namespace, data_dir=data_dir, policy=policy) as cache:
        yield cache


@contextmanager
def opened_store(redis: str | None, namespace: str, data_dir: Path | None) -> Iterator[BackgroundStore]:
    """Open the store alone: no encoder, no index."""
    from semcache.opening import open_store
    from semcache.policy import Policy

    check_target(redis, data_dir)
    parts = open_store(
        redis, namespace=namespace, policy=Policy(deadline=PATIENCE), data_dir=data_dir, asynchronous=False
    )
    try:
        yield parts.store
    finally:
        parts.store.close()
        parts.background.close()
        parts.close()


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """Show a count that grows while something long runs; silent where stderr isn't a terminal."""
    err = console(stderr=True)
    if not err.is_terminal:
        yield lambda number: None
        return
    with err.status(f"{what} …") as status:
        yield lambda number: status.update(f"{what} … {number:,}")


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints what it is given, not what it takes for markup."""
    from rich.console import Console

    made = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not made.is_terminal:
        made = Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=_PLAIN_WIDTH)
    return made


def print_json(value: Any) -> None:
    """Print a value as JSON, for machines."""
    print(json.dumps(plain(value), ensure_ascii=not _speaks_utf8(), indent=2))


def _speaks_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def plain(value: Any) -> Any:
    """Turn values of the cache into what JSON has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value) if not field.name.startswith("_"))
        return {name: plain(getattr(value, name)) for name in names if name != "token"}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(plain, value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value


def shown(text: str | None, limit: int = 70) -> str:
    """Return a text of somebody else's for one line of a terminal: no control characters, not too long."""
    words = " ".join((text or "").split())
    words = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in words)
    return words if len(words) <= limit else words[: limit - 1] + "…"


def ago(seconds: float) -> str:
    """Return a time span in words, one unit."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def size(number: float) -> str:
    """Return bytes in words."""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if number >= length:
            return f"{number / length:.1f} {unit}"
    return f"{number:.0f} bytes"
