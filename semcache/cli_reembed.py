"""The command `semcache reembed`. The work is `reembed`'s."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from semcache.cli_options import (
    PATIENCE,
    DataDirOption,
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    opened,
    print_json,
)

if TYPE_CHECKING:
    from semcache.cache import SemanticCache
    from semcache.protocols import Reembedding

_STEP = 1.0  # seconds between two looks at another process's progress


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reembed)


def reembed(
    rate: Annotated[
        float | None, typer.Option("--per-second", min=0.001, help="Most prompts to embed a second.")
    ] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """Embed stored prompts that the default encoder hasn't embedded yet, and show how far it is.

    After a change of encoder an open cache does this by itself, at its policy's rate. If another process is at it,
    this shows that one's progress, and takes over should it end early.
    """
    from semcache.policy import Policy

    policy = Policy(deadline=PATIENCE, reembed_rate=0.0)  # by this command's word alone
    with opened(redis, namespace, data_dir, policy=policy) as cache:
        done = _until_done(cache, rate, quiet=json_)
    if json_:
        print_json(done)
        return
    console().print(
        f"{done.done:,} prompts embedded with {done.fingerprint}, {done.skipped:,} left as they are"
    )


def _until_done(cache: SemanticCache, rate: float | None, *, quiet: bool) -> Reembedding:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    err = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=quiet or not err.is_terminal) as bar:
        task = bar.add_task("looking", total=None)

        def show(progress: Reembedding) -> None:
            words = "embedding" if progress.leader else "another process is embedding"
            bar.update(
                task, description=words, total=progress.total, completed=progress.done + progress.skipped
            )

        while not (progress := cache.reembed(rate=rate, watch=show)).leader:
            show(progress)
            time.sleep(_STEP)
    return progress
