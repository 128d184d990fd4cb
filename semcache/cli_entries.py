"""Commands about what is stored: stats, explain, invalidate, feedback, withdrawn, restore."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from semcache import trial
from semcache.cli_options import (
    DataDirOption,
    JsonOption,
    NamespaceOption,
    RedisOption,
    ago,
    console,
    counting,
    opened,
    opened_store,
    plain,
    print_json,
    shown,
    size,
)
from semcache.errors import InvalidRequestError
from semcache.reasons import FAILURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from semcache.types import CacheRequest, CandidateReport, Explanation, Verdict

EntryIdOption = Annotated[
    list[str] | None, typer.Option("--entry-id", metavar="ID", help="An entry; may be given again.")
]
TagOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be given again.")
]
SegmentOption = Annotated[
    list[str] | None,
    typer.Option("--segment", metavar="KEY=VALUE", help="Part of the segment; may be given again."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (stats, explain, invalidate, feedback, withdrawn, restore):
        app.command()(command)


def stats(
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """Count what is stored, by a scan, and say what the server says of itself.

    Hits and misses are counted by each process that serves; ask it, not this command.
    """
    from semcache.census import count
    from semcache.hotkeys import decode_counts, decode_reports, merged
    from semcache.worth import from_counts, summed

    with opened_store(redis, namespace, data_dir) as store:
        server = dict(store.info(timeout=5.0))
        with counting("counting entries") as watch:
            census = count(store, watch=watch)
        shadow = store.tally({}, timeout=5.0)
        reports = store.report_hot("", "", timeout=5.0)
        counted = decode_counts(reports, time.time())
        worth = summed(from_counts(counts) for counts in counted.values())
        hot = merged(decode_reports(reports, time.time()).values(), 10)
        asked = store.get_many([key.entry_id for key in hot], timeout=5.0)
    if json_:
        print_json(
            {
                "namespace": namespace,
                **plain(census),
                "shadow": shadow,
                "hot": hot,
                "worth": worth,
                "server": server,
            }
        )
        return
    out = console()
    out.print(f"namespace   {shown(namespace)}")
    out.print(f"entries     {census.live:,} that may be served, in {census.scopes:,} scopes")
    for model, number in census.models.items():
        out.print(f"            {number:>9,}  {shown(model) or '(no model named)'}")
    for reason, number in census.dead.items():
        out.print(f"            {number:>9,}  no longer served: {reason}")
    if census.oldest is not None and census.newest is not None:
        now = time.time()
        out.print(f"age         {ago(now - census.newest)} to {ago(now - census.oldest)}")
    if "budget_entries" in server:
        used = size(float(server["budget_bytes"]))
        out.print(
            f"budget      {int(server['budget_entries']):,} entries, {used}; {int(server['budget_evicted']):,} evicted so far"
        )
    if worth.attempted:
        mean = f", {worth.mean_ms:,.1f} ms a request on the mean" if worth.mean_ms is not None else ""
        wrong = (
            "not judged"
            if worth.wrong_share is None
            else f"{worth.wrong_share:.1%} of the verdicts said wrong"
        )
        out.print(
            f"served      {worth.hit_rate:.1%} of {worth.attempted:,.0f} lookups in {len(counted)} processes{mean}; effective"
            f" hit rate {worth.effective_hit_rate:.1%} ({worth.fresh_share:.1%} of the hits fresh, {wrong})"
        )
        money = f", ${worth.usd:,.2f}" if worth.usd else ""
        out.print(
            f"saved       {worth.tokens:,.0f} tokens, {worth.saved_ms / 3.6e6:,.2f} h of the model{money}"
        )
    for key, entry in zip(hot, asked, strict=True):
        name = key.entry_id if entry is None else entry.prompt
        out.print(f"hot         {key.per_second:>9,.1f} a second, {key.growth:.1f}x  {shown(name, 60)}")
    if shadow:
        out.print(f"shadow      {watched(shadow)}")
    cpu = sum(float(server.get(name, 0)) for name in ("used_cpu_user", "used_cpu_sys"))
    out.print(
        f"server      {server_name(server)}, {size(float(server.get('used_memory', 0)))} used by all that is on it, "
        f"{cpu:,.1f} s of CPU in {ago(float(server.get('uptime_in_seconds', 0)))}, "
        f"{int(float(server.get('evicted_keys', 0))):,} keys evicted by itself"
    )


def watched(shadow: Mapping[str, int]) -> str:
    """Return what a trial found, in words."""
    asked = shadow.get("hits", 0) + shadow.get("misses", 0)
    agreement = trial.agreement(shadow)
    agreed = "none compared yet" if agreement is None else f"{agreement:.1%} of the answers agreed"
    return (
        f"{trial.hit_rate(shadow):.1%} of {asked:,} watched lookups would have been hits; {agreed}; "
        f"{shadow.get('tokens', 0):,} tokens and {shadow.get('model_ms', 0) / 1000:,.1f} s of the model to be saved"
    )


def server_name(server: Mapping[str, str]) -> str:
    """Return product and version."""
    if "valkey_version" in server:
        return f"Valkey {server['valkey_version']}"
    return f"Redis {server.get('redis_version', 'of unknown version')}"


def explain(
    prompt: Annotated[str | None, typer.Argument(help="The prompt; or give --request.")] = None,
    model: Annotated[str, typer.Option(help="Part of the scope.")] = "",
    model_version: Annotated[str, typer.Option(help="Part of the scope.")] = "",
    tenant: Annotated[str, typer.Option(help="Part of the scope.")] = "",
    segment: SegmentOption = None,
    request: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON with the fields of a CacheRequest, for scopes with more in them; - is stdin.",
        ),
    ] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """Say what a lookup would do and why: candidates, similarities, each rule's verdict. Serves nothing.

    Ends with 1 if that can't be said, e.g. while the store is away.

    Only entries of the same scope are candidates: name model, tenant and segment as the application does.
    """
    if (prompt is None) == (request is None):
        raise typer.BadParameter("give a prompt or --request FILE, one of the two")
    asked = (
        _read_request(request)
        if request is not None
        else _request(prompt or "", model, model_version, tenant, segment)
    )
    with opened(redis, namespace, data_dir) as cache:
        explanation = cache.explain(asked)
    if json_:
        print_json(explanation)
    else:
        _print_explanation(console(), explanation)
    reason = getattr(explanation.decision, "reason", None)
    if reason in FAILURES and reason != "undecodable":  # that is an answer
        print(f"semcache: nothing was looked up: {reason}; see semcache doctor", file=sys.stderr)
        raise typer.Exit(1)


def _request(
    prompt: str, model: str, model_version: str, tenant: str, segment: list[str] | None
) -> CacheRequest:
    from semcache.types import CacheRequest

    return CacheRequest(
        prompt, model=model, model_version=model_version, tenant=tenant, segment=_pairs(segment) or {}
    )


def _read_request(path: Path) -> CacheRequest:
    from semcache.types import CacheRequest

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        return CacheRequest(**json.loads(text))
    except (OSError, ValueError, TypeError) as error:
        raise InvalidRequestError(
            f'{path} isn\'t a request: {error}; expected JSON such as {{"prompt": "…", "model": "…"}}'
        ) from error


def _print_explanation(out: Console, explanation: Explanation) -> None:
    from semcache.types import Hit

    decision = explanation.decision
    if isinstance(decision, Hit):
        out.print(
            f"hit         {decision.match}, similarity {decision.similarity:.4f}, {ago(decision.age)} old"
        )
        out.print(f"entry       {decision.entry_id}")
    else:
        out.print(
            f"miss        {decision.reason}" + (f": {shown(decision.detail, 200)}" if decision.detail else "")
        )
        out.print(f"see         {explanation.docs}")
    out.print(f"encoder     {explanation.encoder}")
    if not explanation.candidates:
        out.print("candidates  none in this scope")
    for number, candidate in enumerate(explanation.candidates, 1):
        _print_candidate(out, number, candidate)


def _print_candidate(out: Console, number: int, candidate: CandidateReport) -> None:
    probability = "" if candidate.probability is None else f"  probability {candidate.probability:.3f}"
    verdict = "may be served" if candidate.reason is None else candidate.reason
    out.print()
    out.print(f"{number}. {shown(candidate.prompt, 100)}")
    out.print(f"   similarity {candidate.similarity:.4f}{probability}  {verdict}")
    out.print(f"   {candidate.entry_id}")
    if candidate.flip:
        out.print(f"   flips   {shown(candidate.flip, 300)}")
    for finding in candidate.findings:
        if finding.verdict != "not_applicable":
            detail = f"  {shown(finding.detail, 120)}" if finding.detail else ""
            out.print(f"   {finding.verdict:<7} {finding.rule}{detail}")


def invalidate(
    entry_id: EntryIdOption = None,
    tag: TagOption = None,
    model: Annotated[str | None, typer.Option(help="All entries of a model.")] = None,
    model_version: Annotated[
        str | None, typer.Option(help="All entries of a version; give --model as well.")
    ] = None,
    segment: SegmentOption = None,
    subject: Annotated[str | None, typer.Option(help="All entries about a user or object.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's, or all of it.")] = None,
    older_than: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Only entries at least this old; by itself more than 0."),
    ] = None,
    everything: Annotated[bool, typer.Option("--everything", help="All entries of the namespace.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count by a scan, withdraw nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask before --everything.")] = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """Withdraw entries everywhere; afterwards they are served nowhere."""
    if everything and not (dry_run or yes):
        typer.confirm(f"Withdraw all entries of namespace {namespace}?", abort=True, err=True)
    with opened(redis, namespace, data_dir) as cache:
        done = cache.invalidate(
            entry_ids=entry_id or (), tags=tag or (), model=model, model_version=model_version,
            segment=_pairs(segment), subject=subject, tenant=tenant, older_than=older_than, everything=everything,
            dry_run=dry_run,
        )  # fmt: skip
    if json_:
        print_json(done)
        return
    if done.dry_run:
        print(f"would withdraw {done.matched} entries; nothing was changed")
    elif done.matched is not None:
        print(f"withdrew {done.matched} entries (acknowledged: {done.durability})")
    else:
        print(f"withdrew {_scope_of(done.tags, tenant, older_than)} (acknowledged: {done.durability})")


def _scope_of(bases: Sequence[str], tenant: str | None, older_than: float | None) -> str:
    """Say in words what was withdrawn."""
    named = [shown(base) for base in bases if base != "all"]
    words = f"everything under {', '.join(named)}" if named else "everything"
    if tenant is not None:
        words += f" of tenant {shown(tenant)}" if tenant else " of the tenant without a name"
    return words if not older_than else f"{words} from before the last {older_than:g} s"


def _pairs(words: list[str] | None) -> dict[str, str] | None:
    if not words:
        return None
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    if len(pairs) != len(words):
        raise typer.BadParameter(f"found --segment {' '.join(words)}, expected KEY=VALUE, each key once")
    return pairs


def feedback(
    target: Annotated[str, typer.Argument(help="The lookup id of a serving, or an entry id.")],
    verdict: Annotated[
        int, typer.Option(min=-1, max=1, help="-1 wrong, 1 right, 0 takes one's verdict back.")
    ],
    rater: Annotated[str | None, typer.Option(help="Who says so; without it one anonymous person.")] = None,
    about: Annotated[
        str | None,
        typer.Option(help="answer or match; by default answer for an exact hit, match for a semantic one."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="The serving must have been this tenant's.")] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """Say whether a served answer was right."""
    if about not in (None, "answer", "match"):
        raise typer.BadParameter(f"found --about {about}, expected answer or match")
    with opened(redis, namespace, data_dir) as cache:
        done = cache.feedback(
            target,
            cast("Verdict", verdict),
            rater=rater,
            about=cast(Literal["answer", "match"] | None, about),
            tenant=tenant,
        )
    if json_:
        print_json(done)
    else:
        weight = "" if not done.needed else f", weight {done.weight:g} of {done.needed:g}"
        print(f"{done.action}: {done.entry_id}, {done.raters} raters against it{weight}")


def withdrawn(
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 100,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """List withdrawn entries, newest first."""
    with opened_store(redis, namespace, data_dir) as store:
        found = store.tombstones(limit=limit, timeout=5.0)
    if json_:
        print_json(found)
        return
    if not found:
        print("nothing is withdrawn by name")
    now = time.time()
    for tombstone in found:
        print(f"{tombstone.entry_id}  {ago(now - tombstone.withdrawn_at)} ago  {shown(tombstone.reason)}")
        print(f"    {shown(tombstone.prompt, 100)}")


def restore(
    entry_id: Annotated[str, typer.Argument(help="The entry's id, as `semcache withdrawn` shows it.")],
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    data_dir: DataDirOption = None,
    json_: JsonOption = False,
) -> None:
    """Bring a withdrawn entry back."""
    with opened(redis, namespace, data_dir) as cache:
        done = cache.restore(entry_id)
    if json_:
        print_json({"entry_id": entry_id, "restored": done})
    elif done:
        print(f"restored {entry_id}")
    else:
        print(
            f"semcache: nothing to bring back under {entry_id}: it isn't withdrawn (see semcache withdrawn), or has "
            "been ended since by an invalidation or by its ttl",
            file=sys.stderr,
        )
    if not done:
        raise typer.Exit(1)
