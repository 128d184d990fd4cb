"""The command `semcache doctor`. What is checked is `doctor`'s."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from semcache.cli_options import (
    DataDirOption,
    JsonOption,
    NamespaceOption,
    RedisOption,
    check_target,
    console,
    counting,
    opened_store,
    print_json,
)
from semcache.errors import ConfigurationError, SemcacheError

if TYPE_CHECKING:
    from semcache.doctor import Check


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """Check server, persistence, eviction, memory, encoder, index and clock, and say what to fix.

    The exit code is 1 if a check fails; warnings don't count.
    """
    check_target(redis, data_dir)
    checks = _examine(redis, namespace, data_dir, quiet=json_)
    failed = any(check.status == "fail" for check in checks)
    if json_:
        print_json(
            {
                "ok": not failed,
                "checks": [
                    {"name": c.name, "status": c.status, "found": c.found, "todo": c.todo, "docs": c.docs}
                    for c in checks
                ],
            }
        )
    if failed:
        raise typer.Exit(1)


def _examine(redis: str | None, namespace: str, data_dir: Path | None, *, quiet: bool) -> list[Check]:
    from semcache.doctor import Check, examine
    from semcache.encoders import default_encoder

    checks: list[Check] = []

    def note(check: Check) -> None:
        checks.append(check)
        if not quiet:
            _print_check(check)

    try:
        with opened_store(redis, namespace, data_dir) as store, counting("looking at entries") as watch:
            for check in examine(store, default_encoder(), watch=watch):
                note(check)
    except ConfigurationError:
        raise
    except SemcacheError as error:  # the embedded server can't be started
        note(Check("server", "fail", str(error), "see its log, or give --redis URL"))
    return checks


def _print_check(check: Check) -> None:
    out = console()
    style = {"ok": "green", "warn": "yellow", "fail": "bold red"}[check.status]
    out.print(check.status.ljust(5), style=style, end="")
    out.print(f"{check.name:<12} {' '.join(check.found.split())}", soft_wrap=True)
    if check.todo:
        out.print(f"{'':<17} {check.todo}; see {check.docs}", soft_wrap=True)
