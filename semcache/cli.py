"""The command line: `semcache …`. Commands register themselves; here are the program and its errors.

Starting it imports neither redis nor numpy: commands import what they need.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from semcache import (
    cli_again,
    cli_demo,
    cli_doctor,
    cli_entries,
    cli_evaluate,
    cli_plan,
    cli_reembed,
    cli_serve,
)
from semcache._version import __version__
from semcache.errors import SemcacheError


class _Group(TyperGroup):
    """Commands whose known errors are one line, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SemcacheError as error:
            print(f"semcache: {' '.join(str(error).split())}", file=sys.stderr)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_Group,
    help="A semantic cache for LLM responses: try it, look into it, withdraw what has gone bad.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"semcache {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Options of the program itself."""


# One line per module of commands, in the order of the help.
cli_demo.register(app)
cli_entries.register(app)
cli_doctor.register(app)
cli_serve.register(app)
cli_again.register(app)
cli_evaluate.register(app)
cli_reembed.register(app)
cli_plan.register(app)


def main() -> None:
    """Run the command line; the entry point."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # replaced by something that isn't a text file
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    app()


if __name__ == "__main__":
    main()
