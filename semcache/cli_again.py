"""Commands that ask a model again: refresh, warm, versions; and export-encoder."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semcache.cli_options import (
    DataDirOption,
    JsonOption,
    NamespaceOption,
    RedisOption,
    ago,
    console,
    opened,
    opened_store,
    print_json,
    shown,
)
from semcache.errors import InvalidRequestError, UpstreamError

if TYPE_CHECKING:
    from semcache.types import CacheRequest, Response

BaseUrlOption = Annotated[
    str,
    typer.Option(
        "--base-url", metavar="URL", help="OpenAI-compatible endpoint, e.g. http://localhost:8000/v1."
    ),
]
UpstreamModelOption = Annotated[
    str | None,
    typer.Option("--upstream-model", metavar="NAME", help="The endpoint's name for the model, if another."),
]
ApiKeyOption = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="VARIABLE", help="Environment variable with the endpoint's key."),
]
RateOption = Annotated[
    float | None, typer.Option("--per-second", min=0.001, help="Most calls of the model a second.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(refresh)
    app.command()(warm)
    app.command()(versions)
    app.command("export-encoder")(export_encoder)


def ask(base_url: str, model: str | None, api_key_env: str | None) -> Callable[[CacheRequest], Response]:
    """Return a model that asks the endpoint; it refuses requests that are more than a prompt."""
    from semcache.upstream import ChatUpstream

    if api_key_env is not None and not os.environ.get(api_key_env):
        raise typer.BadParameter(
            f"the environment variable {api_key_env} is not set, expected the endpoint's API key"
        )
    key = os.environ.get(api_key_env) if api_key_env else None
    ChatUpstream(base_url, model or "any", api_key=key)  # refuses a base URL that can't be meant

    def call(request: CacheRequest) -> Response:
        if request.context or request.tools or request.params or request.media:
            raise UpstreamError(
                "the request has a context, tools or parameters, which this command can't send; "
                "refresh it from the application (semcache.refresh)"
            )
        return ChatUpstream(base_url, model or request.model, api_key=key)(request)

    return call


@contextmanager
def moving(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Show a progress bar on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    err = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)


def refresh(
    base_url: BaseUrlOption,
    upstream_model: UpstreamModelOption = None,
    api_key_env: ApiKeyOption = None,
    per_second: RateOption = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most entries to answer again.")] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """Answer withdrawn and stale entries again, until the queue is empty."""
    from semcache import refresh as work

    model = ask(base_url, upstream_model, api_key_env)
    with opened(redis, namespace, data_dir) as cache, moving("answering again", None) as step:
        consumer = f"cli-{os.getpid()}"
        done = work.refresh(
            cache, model, consumer=consumer, limit=limit, per_second=per_second, on_done=lambda _: step()
        )
    if json_:
        print_json({"done": done})
        return
    out = console()
    if not done:
        out.print("nothing to do: the regeneration queue is empty")
    for one in done:
        out.print(f"{one.outcome:<9} {one.work.entry_id}  {shown(one.new, 60)}")


def warm(
    model: Annotated[str, typer.Option("--model", help="The model whose version is new.")],
    to_version: Annotated[str, typer.Option("--to-version", help="The new version.")],
    base_url: BaseUrlOption,
    from_version: Annotated[
        str | None, typer.Option("--from-version", help="Take the questions from this version's entries.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", exists=True, help="Or from a JSONL log with prompt and time, by frequency × growth."
        ),
    ] = None,
    top: Annotated[int | None, typer.Option("--top", min=1, help="Most questions.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Calls of the model at once.")] = 4,
    canary: Annotated[
        int,
        typer.Option(
            "--canary", min=0, help="First answer so many again and say how many stored answers hold."
        ),
    ] = 0,
    carry_over: Annotated[
        bool, typer.Option("--carry-over", help="Store the old answers under the new version; ask nothing.")
    ] = False,
    upstream_model: UpstreamModelOption = None,
    api_key_env: ApiKeyOption = None,
    per_second: RateOption = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """Warm a new model version with the questions that mattered; a broken run is resumed by running it again."""
    from semcache import warm as work

    if (from_version is None) == (log is None):
        raise typer.BadParameter("name the questions by --from-version or by --log, one of them")
    if log is not None and (canary or carry_over):
        raise typer.BadParameter("--canary and --carry-over compare stored answers; they need --from-version")
    call = ask(base_url, upstream_model, api_key_env)
    report: dict[str, object] = {}
    with opened(redis, namespace, data_dir) as cache:
        if from_version is not None:
            questions = work.stored_questions(
                cache.entries(), model=model, from_version=from_version, to_version=to_version
            )[:top]
            requests = [request for _, request in questions]
        else:
            assert log is not None
            questions = []
            requests = work.logged_questions(read_log(log), model=model, version=to_version, top=top)
        if canary and questions:
            with moving("canary", min(canary, len(questions))) as step:
                report["canary"] = work.canary(questions, call, sample=canary, on_done=step)
        with moving("warming", len(requests)) as step:
            if carry_over:
                done = work.carry_over(cache, questions, on_done=lambda _: step())
            else:
                done = work.warm(
                    cache,
                    requests,
                    call,
                    concurrency=concurrency,
                    per_second=per_second,
                    on_done=lambda _: step(),
                )
    report["outcomes"] = dict(Counter(one.outcome for one in done))
    if json_:
        print_json(report)
        return
    out = console()
    found = report.get("canary")
    if isinstance(found, work.Canary):
        out.print(
            f"canary   {found.held} of {found.asked} stored answers hold ({found.low:.0%} to {found.high:.0%})"
        )
        for prompt, old, new in found.changed[:5]:
            out.print(f"         {shown(prompt)}\n           was  {shown(old)}\n           now  {shown(new)}")
    out.print(
        f"{len(done):,} questions: "
        + (", ".join(f"{n} {what}" for what, n in Counter(o.outcome for o in done).items()) or "none found")
    )
    for one in [one for one in done if one.outcome == "failed"][:3]:
        out.print(f"failed   {shown(one.request.prompt)}: {shown(one.detail)}")


def read_log(path: Path) -> list[tuple[float, str]]:
    """Read (time, prompt) from JSON lines.

    Raises:
        InvalidRequestError: A line isn't an object with a prompt; says which.
    """
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            found.append((float(row.get("time", 0.0)), str(row["prompt"])))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidRequestError(
                f"{path.name}, line {number}: expected JSON with a prompt and a time in seconds, found {line[:60]!r}"
            ) from error
    return found


def versions(
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """List the model versions that something was stored of."""
    from semcache.core.arguments import as_versions

    with opened_store(redis, namespace, data_dir) as store:
        found = as_versions(store.versions(timeout=5.0))
    if json_:
        print_json(found)
        return
    for version in found:
        console().print(
            f"{version.model or '(no model)'} {version.model_version}  last put {ago(time.time() - version.last_put)} ago"
        )


def export_encoder(
    model: Annotated[str, typer.Argument(help="Name or folder of a sentence-transformers model.")],
    out: Annotated[Path, typer.Argument(help="Folder to write, for OnnxEncoder.")],
    int8: Annotated[bool, typer.Option("--int8/--float", help="Quantise to int8.")] = True,
    max_length: Annotated[
        int | None, typer.Option("--max-length", min=8, help="Tokens; the model's own by default.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Export a sentence-transformers model for OnnxEncoder; needs the extra `st`, serving doesn't."""
    from semcache.encoders.export import export_encoder as export

    started = time.monotonic()
    report = export(model, out, int8=int8, max_length=max_length)
    if json_:
        print_json(report)
        return
    console().print(f"wrote {out} in {time.monotonic() - started:.1f} s")
    console().print(str(report))
