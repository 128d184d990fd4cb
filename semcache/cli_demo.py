"""The command `semcache demo`: a live table while it runs, then a summary. What is counted is `demo`'s."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semcache.cli_options import (
    DataDirOption,
    JsonOption,
    RedisOption,
    console,
    opened,
    print_json,
    shown,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from semcache.demo import Event, Question, Report

_REQUESTS = 600
_REQUESTS_UPSTREAM = 100  # a real model takes seconds
_TTL = 3600.0  # seconds: what a demo leaves in somebody's Redis ends by itself
_DEADLINE = 5.0  # seconds: the encoder is loaded by the first request
_NAMESPACE = "demo"
_SEED = 1
_LAST = 8  # events in the live table
_JUDGED = {None: "", False: " (rightly)", True: " (wrongly)"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Your own questions, one a line, or .jsonl with question, answer, group."
        ),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, help=f"How many; {_REQUESTS}, or {_REQUESTS_UPSTREAM} with --base-url."),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="An OpenAI-compatible endpoint that answers misses, e.g. http://localhost:8000/v1.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Its model.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="VAR", help="Environment variable that holds its API key.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed, another order of the sample.")] = _SEED,
    redis: RedisOption = None,
    namespace: Annotated[str, typer.Option(metavar="NAME")] = _NAMESPACE,
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """Answer real questions through the cache and show what it did, wrong answers included.

    Without options it starts the embedded server in a temporary folder, plays the sample that ships, and
    answers misses from the sample's stored answers: nothing to configure, nothing leaves this machine.
    """
    if (base_url is None) != (model is None):
        raise typer.BadParameter("--base-url and --model belong together; give both or neither")
    if api_key_env is not None and base_url is None:
        raise typer.BadParameter("--api-key-env is for --base-url")
    if api_key_env is not None and not os.environ.get(api_key_env):
        raise typer.BadParameter(
            f"the environment variable {api_key_env} is not set, expected the endpoint's API key"
        )

    from semcache.demo import play
    from semcache.policy import Policy

    limit = requests or (_REQUESTS if base_url is None else _REQUESTS_UPSTREAM)
    script = _script(queries, limit, seed, base_url, model, os.environ.get(api_key_env or ""))
    with ExitStack() as stack:
        if redis is None and data_dir is None:
            data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="semcache-demo-")))
        policy = Policy(ttl=_TTL, deadline=_DEADLINE)
        cache = stack.enter_context(opened(redis, namespace, data_dir, policy=policy, memory=True))
        before = sum(1 for entry in cache.entries() if entry.state == "live")
        out = console(stderr=json_)
        out.print(_opening(script, cache.stats().server, before))
        with _watching(out, len(script.questions)) as watch:
            play(
                cache,
                script.questions,
                script.ask,
                script.report,
                model=script.model,
                endpoint=base_url or "",
                groups=script.groups,
                watch=lambda event: watch(event, script.report),
            )
        stats = cache.stats()
        script.report.encode_ms = stats.latency_ms.get("encode", {})
    if json_:
        print_json({**script.report.as_json(), "entries_before": before, "encoder": stats.encoder})
    else:
        _print_report(out, script.report)


@dataclass(frozen=True, slots=True)
class _Script:
    """What is played."""

    questions: list[Question]
    ask: Callable[[Any], Any]
    report: Report
    model: str
    groups: dict[str, str]


def _script(
    queries: Path | None, limit: int, seed: int, base_url: str | None, model: str | None, api_key: str | None
) -> _Script:
    from semcache.demo import STORED_SAMPLE, Report, from_sample, read_questions, stored_answers, wordings
    from semcache.sample import load_sample, traffic

    groups: dict[str, str] = {}
    if queries is None:
        sample = load_sample()
        questions, groups = from_sample(traffic(sample, requests=limit, seed=seed)), wordings(sample)
        source = STORED_SAMPLE
    else:
        questions = read_questions(queries)[:limit]
        source = f"stored answers of {queries.name}"
    if base_url is None or model is None:
        return _Script(
            questions, stored_answers(questions), Report(source, measured=False), "stored-sample", groups
        )
    from semcache.upstream import ChatUpstream

    upstream = ChatUpstream(base_url, model, api_key=api_key or None)
    return _Script(
        questions, upstream, Report(f"{model} at {upstream.base_url}", measured=True), model, groups
    )


def _opening(script: _Script, server: Any, before: int) -> str:
    from semcache.cli_entries import server_name

    lines = [
        f"{len(script.questions)} requests over {server_name(server)}; misses are answered by: {script.report.source}",
    ]
    if before:
        lines.append(f"{before} entries of an earlier run are still there and will be served")
    return "\n".join(lines)


@contextmanager
def _watching(out: Console, total: int) -> Iterator[Callable[[Event, Report], None]]:
    """Show events as they come: a live table on a terminal, five lines of counts elsewhere."""
    if not out.is_terminal:
        step = max(1, total // 5)

        def line(event: Event, report: Report) -> None:
            done = len(report.events)
            if done % step == 0 or done == total:
                out.print(
                    f"  {done:>5} of {total}: {report.count('exact')} exact hits, {report.count('semantic')} semantic "
                    f"hits, {report.count('miss')} misses, {report.seconds:.1f} s"
                )

        yield line
        return

    from rich.live import Live

    with Live(console=out, refresh_per_second=8, transient=True) as live:

        def table(event: Event, report: Report) -> None:
            live.update(_live_table(report, total))

        yield table


def _live_table(report: Report, total: int) -> Table:
    from rich.table import Table

    done = len(report.events)
    title = (
        f"{done} of {total}   {report.count('exact')} exact hits   {report.count('semantic')} semantic hits   "
        f"{report.count('miss')} misses   {len(report.wrong)} wrong"
    )
    table = Table(title=title, title_justify="left", expand=True)
    table.add_column("outcome", no_wrap=True, width=24)
    table.add_column("similarity", justify="right", width=10)
    table.add_column("ms", justify="right", width=8)
    table.add_column("asked", no_wrap=True, ratio=1)
    for event in report.events[-_LAST:]:
        outcome = event.reason or f"{event.outcome} hit" if event.outcome != "failed" else "upstream failed"
        style = {"exact": "green", "semantic": "cyan", "failed": "red"}.get(event.outcome, "")
        table.add_row(
            outcome,
            "" if event.similarity is None else f"{event.similarity:.3f}",
            f"{1000 * event.seconds:.1f}",
            shown(event.prompt),
            style="bold red" if event.wrong else style,
        )
    return table


def _print_report(out: Console, report: Report) -> None:
    requests = len(report.events)
    out.print()
    _head(out, "Summary")
    _row(out, "requests", f"{requests} in {report.seconds:.1f} s")
    _row(out, "exact hits", _share(report.count("exact"), requests))
    _row(out, "semantic hits", _share(report.count("semantic"), requests))
    _row(out, "misses", _share(report.count("miss"), requests))
    for reason, number in report.misses.items():
        _row(out, "", f"{number:>5}  {reason}")
    if report.count("failed"):
        _row(out, "failed", f"{report.count('failed')} calls to the upstream")
    if report.possible is not None:
        _row(out, "possible hits", f"{report.possible}: requests whose answer an earlier request had brought")
    _row(out, "wrong answers", _wrong_words(report))
    out.print()
    _head(out, "Time, as the caller saw it")
    for name, times in report.latencies_ms().items():
        _row(out, name, f"p50 {times['p50']:.2f} ms   p95 {times['p95']:.2f} ms")
    if report.time_saved is None:
        _row(out, "time saved", f"not claimed: answers came from the {report.source}, not from a model")
    else:
        _row(out, "time saved", f"{report.time_saved:.1f} s against the model's median for each hit")
    _print_pairs(out, "Semantic hits: the least similar that were served", report.semantic_hits())
    _print_pairs(
        out,
        "Refusals: near, and not served; rightly where the question needed another answer",
        report.refusals(),
    )
    _print_pairs(out, "Wrong answers served", report.wrong_pairs())


def _head(out: Console, title: str) -> None:
    out.print(title, style="bold")


def _row(out: Console, name: str, value: str) -> None:
    out.print(f"  {name:<15} {value}")


def _share(number: int, total: int) -> str:
    return f"{number:>5}  ({number / total:.0%})"


def _wrong_words(report: Report) -> str:
    if not report.judged:
        return "not known: these questions don't say which of them may share an answer"
    return f"{len(report.wrong):>5}  of {report.judged} hits whose right answer is known"


def _print_pairs(out: Console, title: str, events: list[Event]) -> None:
    if not events:
        return
    out.print()
    _head(out, title)
    for event in events:
        similarity = "" if event.similarity is None else f"{event.similarity:.3f}"
        out.print(f"  {similarity:>6}  asked   {shown(event.prompt, 84)}")
        out.print(f"          stored  {shown(event.other, 84)}")
        if event.reason:
            detail = f": {shown(event.detail, 50)}" if event.detail else ""
            out.print(f"          reason  {event.reason}{detail}{_JUDGED[event.lost]}")
