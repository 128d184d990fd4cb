"""The command `semcache plan`. What is worked out is `plan`'s; here it is read, measured, printed and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semcache.cli_options import JsonOption, ago, console, counting, print_json, size
from semcache.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semcache.plan import Footprint, Key, Plan
    from semcache.traffic import Asked


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    log: Annotated[
        Path, typer.Argument(help="JSON Lines or JSON, plain or gzip.", exists=True, dir_okay=False)
    ],
    semantic: Annotated[
        bool, typer.Option("--semantic", help="Compare meanings with the default encoder, not only texts.")
    ] = False,
    latency_ms: Annotated[
        float | None, typer.Option("--latency-ms", min=0, help="A call's latency, where the log has none.")
    ] = None,
    hit_ms: Annotated[float, typer.Option("--hit-ms", min=0, help="A hit's latency.")] = 1.0,
    tokens_in: Annotated[
        float | None, typer.Option("--tokens-in", min=0, help="Tokens read per call, where the log has none.")
    ] = None,
    tokens_out: Annotated[
        float | None, typer.Option("--tokens-out", min=0, help="Tokens written, where the log has none.")
    ] = None,
    usd_in: Annotated[
        float | None, typer.Option("--usd-in", min=0, help="US dollars per million tokens read.")
    ] = None,
    usd_out: Annotated[
        float | None, typer.Option("--usd-out", min=0, help="US dollars per million tokens written.")
    ] = None,
    response_bytes: Annotated[
        int, typer.Option("--response-bytes", min=1, help="Length of an answer, where the log has none.")
    ] = 1000,
    entry_bytes: Annotated[
        float | None,
        typer.Option("--entry-bytes", min=1, help="Memory of an entry in Redis; measured by default."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use the first so many rows.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the curves into this file.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Say from a log of requests how large a cache should be, and what it would save.

    A row needs a prompt (or messages, input, query, text); a time, an answer, a latency and tokens are used where it
    has them, and a popularity or count stands for so many requests.
    """
    from semcache import plan as work
    from semcache.traffic import read_traffic

    asked = read_traffic(log, limit=limit)
    near = _near(asked) if semantic else None
    footprint = _footprint(asked, response_bytes, entry_bytes)
    prices = work.Prices(
        latency_ms=latency_ms, hit_ms=hit_ms, tokens_in=tokens_in, tokens_out=tokens_out, usd_in=usd_in, usd_out=usd_out
    )  # fmt: skip
    made = work.plan(asked, footprint, prices, near=near)
    if plot is not None:
        _draw(made, log.name, plot)
    if json_:
        print_json(_as_json(made))
        return
    _print(made)


def _near(asked: Sequence[Asked]) -> Callable[[Key], Sequence[Key]]:
    from semcache.alike import alike
    from semcache.encoders import default_encoder
    from semcache.evaluate import Vectors
    from semcache.matching import default_matcher
    from semcache.policy import Policy

    encoder = default_encoder()
    names = list(dict.fromkeys((one.text, one.context) for one in asked))
    with counting("comparing prompts") as watch:
        found = alike(names, Vectors(encoder), default_matcher(encoder.fingerprint, Policy()), watch=watch)
    return found.__getitem__


def _footprint(asked: Sequence[Asked], response_bytes: int, entry_bytes: float | None) -> Footprint:
    from semcache.encoders import default_encoder
    from semcache.footprint import ENTRIES, measure, row_bytes
    from semcache.plan import Footprint

    encoder = default_encoder()
    if entry_bytes is not None:
        return Footprint(
            redis_bytes=entry_bytes, row_bytes=row_bytes(encoder.dim), measured="an entry's bytes were given"
        )
    answers: dict[str, str] = {}
    for one in asked:
        if one.text not in answers or (one.response and not answers[one.text]):
            answers[one.text] = one.response or ""
    texts = list(answers)
    step = max(1, len(texts) // ENTRIES)
    return measure([(text, answers[text] or "x" * response_bytes) for text in texts[::step]], encoder)


def _as_json(made: Plan) -> dict[str, Any]:
    from semcache.cli_options import plain

    report: dict[str, Any] = plain(made)
    steps = range(0, 101)
    report["curve"] = [
        {"entries": made.distinct * step / 100, "hit_rate": made.curve.hit_rate(made.distinct * step / 100)}
        for step in steps
    ]
    report["ttls"] = [{"ttl": ttl, "share": share, "hit_rate": rate} for ttl, share, rate in made.ttls]
    report["recommended"] = plain(made.recommended)
    return report


def _print(made: Plan) -> None:
    from rich.table import Table

    from semcache.plan import MONTH, TTL_SHARES

    out = console()
    span = "" if made.seconds is None else f" in {ago(made.seconds)}"
    out.print(f"{made.requests:,} requests{span}, {made.distinct:,} distinct prompts; ", end="")
    out.print(f"a cache without limits serves {made.unbounded:.1%} with {made.served:,} entries")
    if made.rate < 1.0:
        out.print(f"the log is long: {made.rate:.1%} of the prompts were looked at")
    table = Table("size", "entries", box=None, pad_edge=False)
    for name in (*made.sizes[0].hit_rate, "in Redis", "per process", "waiting saved", "saved"):
        table.add_column(name, justify="right")
    for one in made.sizes:
        mark = " ←" if one is made.recommended else ""
        table.add_row(
            f"{one.share:.0%}",
            f"{one.entries:,}",
            *(f"{rate:.1%}" for rate in one.hit_rate.values()),
            size(one.redis_bytes),
            size(one.process_bytes),
            "-" if one.hours is None else f"{one.hours:,.1f} h",
            ("-" if one.usd is None else f"${one.usd:,.2f}") + mark,
        )
    out.print(table)
    if made.latency_ms is None:
        out.print("no latency in the log: give --latency-ms to see the waiting that is saved")
    if made.usd_per_call is None:
        out.print(
            "give --usd-in and --usd-out (and --tokens-in, --tokens-out where the log has none) to see money"
        )
    if made.ttls:
        table = Table("ttl", box=None, pad_edge=False)
        for share in TTL_SHARES:
            table.add_column("no limit" if share == 1.0 else f"{share:.0%}", justify="right")
        for start in range(0, len(made.ttls), len(TTL_SHARES)):
            cells = made.ttls[start : start + len(TTL_SHARES)]
            ttl = cells[0][0]
            table.add_row("for ever" if ttl is None else ago(ttl), *(f"{rate:.1%}" for _, _, rate in cells))
        out.print("hit rate by ttl and size (lru)")
        out.print(table)
    best = made.recommended
    out.print(
        f"recommended: {best.entries:,} entries ({best.share:.0%} of the distinct prompts), {size(best.redis_bytes)} in"
        f" Redis, hit rate {best.best:.1%}, {best.best / made.unbounded if made.unbounded else 1.0:.0%} of what no limit"
        " would give"
    )
    if made.seconds and best.hours is not None:
        month = MONTH / made.seconds
        money = "" if best.usd is None else f" and ${best.usd * month:,.2f}"
        out.print(
            f"             in 30 days of such traffic it saves {best.hours * month:,.1f} h of waiting{money}"
        )
    out.print(
        f"an entry takes {size(made.footprint.redis_bytes)} in Redis and {size(made.footprint.row_bytes)} in each"
        f" process: {made.footprint.measured}"
    )


def _draw(made: Plan, title: str, target: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("--plot", extra="plots") from error
    from semcache.plan import TTL_SHARES

    figure = Figure(figsize=(10.4, 4.4) if made.ttls else (6.0, 4.4), layout="tight")
    axes = figure.subplots(1, 2 if made.ttls else 1, squeeze=False)[0]
    shares = [step / 200 for step in range(201)]
    axes[0].plot(
        [100 * s for s in shares],
        [100 * made.curve.hit_rate(s * made.distinct) for s in shares],
        label="lru, curve",
    )
    for name in made.sizes[0].hit_rate:
        axes[0].plot(
            [100 * s.share for s in made.sizes], [100 * s.hit_rate[name] for s in made.sizes], ".", label=name
        )
    axes[0].axhline(100 * made.unbounded, linestyle=":", color="grey", label="no limit")
    axes[0].axvspan(20, 40, alpha=0.1)
    axes[0].set_xlabel("entries, % of the distinct prompts")
    axes[0].set_ylabel("hit rate, %")
    axes[0].set_ylim(bottom=0)
    axes[0].legend()
    if made.ttls:
        for position, share in enumerate(TTL_SHARES):
            cells = made.ttls[position :: len(TTL_SHARES)]
            names = ["for ever" if ttl is None else ago(ttl) for ttl, _, _ in cells]
            label = "no limit" if share == 1.0 else f"{share:.0%}"
            axes[1].plot(names, [100 * rate for _, _, rate in cells], ".-", label=label)
        axes[1].set_xlabel("ttl")
        axes[1].set_ylim(bottom=0)
        axes[1].legend()
    figure.suptitle(title)
    try:
        figure.savefig(target)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(
            f"the plot can't be written to {target}: {error}; expected a file like plan.png in a folder that exists"
        ) from error
