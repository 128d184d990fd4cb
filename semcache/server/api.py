"""The cache's own API: routes, each a few lines. Who may do what is said here; what it means is the cache's."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from openai_semcache.responses import whole_of
from semcache.errors import InvalidRequestError, UnknownLookupError
from semcache.server import catalogue, models, questions
from semcache.server.errors import UNKNOWN_ID, HttpError
from semcache.server.identity import Caller
from semcache.server.journal import Judged, overview
from semcache.server.similar import similar
from semcache.types import Entry, Invalidated

if TYPE_CHECKING:
    from semcache.server.service import Service

logger = logging.getLogger(__name__)

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": models.ErrorAnswer, "description": text}
    for status, text in (
        (400, "Something in the request can't be meant."),
        (401, "No API key, or an unknown one."),
        (403, "The key lacks a role."),
        (404, "Unknown; another tenant's looks the same."),
        (408, "The body took too long."),
        (413, "The body is too large."),
        (415, "The body isn't JSON."),
        (429, "Too many verdicts."),
        (503, "The store didn't acknowledge."),
    )
}
router = APIRouter(responses=ERRORS)
EntryPath = Annotated[str, Path(max_length=400, examples=[models.ENTRY_ID])]
_REMEMBERED = 10_000


def _service(request: Request) -> Service:
    service: Service = request.scope["semcache.service"]
    return service


def _caller(request: Request, *roles: str) -> Caller:
    caller: Caller = request.scope["semcache.caller"]
    if roles:
        caller.need(*roles)
    return caller


@router.post("/v1/cache/lookup", tags=["cache"])
async def lookup(request: Request, body: models.LookupRequest) -> models.LookupAnswer:
    """Look up as a proxied call would; without `record`, nothing is counted."""
    service, caller = _service(request), _caller(request, "use")
    asked = questions.parsed(body, caller, service.flow, service.settings.base, body.threshold)
    if not body.record:
        explained = await service.cache.explain(asked.request)
        candidates = explained.candidates if body.explain else ()
        return questions.lookup_answer(explained.decision, asked, candidates, record=False)
    candidates = (await service.cache.explain(asked.request)).candidates if body.explain else ()
    decision = await service.cache.lookup(asked.request)
    return questions.lookup_answer(decision, asked, candidates, record=True)


@router.post("/v1/cache/entries", tags=["cache"], status_code=200)
async def put(request: Request, response: Response, body: models.PutRequest) -> models.PutAnswer:
    """Store an answer; 201 if it was, 200 with the reason if not."""
    service, caller = _service(request), _caller(request, "use")
    asked = questions.parsed(body, caller, service.flow, service.settings.base)
    stored = await service.cache.put(
        asked.request,
        questions.response_to_store(body, asked),
        tags=body.tags,
        ttl=body.ttl,
        confidence=body.confidence,
    )
    if stored:
        response.status_code = 201
    return models.PutAnswer(
        stored=bool(stored), reason=stored.outcome, entry_id=stored.entry_id, lookup_id=stored.lookup_id
    )


@router.get("/v1/cache/entries", tags=["cache"])
async def entries(
    request: Request,
    q: Annotated[str | None, Query(max_length=500, description="Part of a prompt or an answer.")] = None,
    tag: Annotated[str | None, Query(max_length=512)] = None,
    model: Annotated[str | None, Query(max_length=256)] = None,
    state: Annotated[Literal["live", "withdrawn"] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    after: Annotated[str | None, Query(max_length=600, description="`next` of the page before.")] = None,
) -> models.EntryList:
    """List or search entries, newest first."""
    service, caller = _service(request), _caller(request, "admin")
    place = None if after is None else catalogue.place_of(after)
    query = catalogue.Query(text=q, tag=tag, model=model, state=state, limit=limit, after=place)
    found, more = await catalogue.page(service.cache, caller.view, query)
    return models.EntryList(
        entries=[catalogue.summary(entry) for entry in found],
        next=None if more is None else catalogue.cursor(more),
    )


@router.get("/v1/cache/entries/{entry_id:path}", tags=["cache"])
async def entry(request: Request, entry_id: EntryPath) -> models.EntryDetail:
    """Return an entry with its answer."""
    service, caller = _service(request), _caller(request, "admin")
    found = await catalogue.owned(service.cache, caller, entry_id)
    return catalogue.detail(found, now=time.time(), response=_whole(found))


@router.delete("/v1/cache/entries/{entry_id:path}", tags=["cache"])
async def delete(request: Request, entry_id: EntryPath) -> models.Deleted:
    """Withdraw an entry."""
    service, caller = _service(request), _caller(request, "admin")
    await catalogue.owned(service.cache, caller, entry_id)
    done = await service.cache.invalidate(entry_ids=[entry_id])
    return models.Deleted(entry_id=entry_id, withdrawn=bool(done.matched))


@router.post("/v1/cache/invalidate", tags=["cache"])
async def invalidate(request: Request, body: models.InvalidateRequest) -> models.InvalidateAnswer:
    """Withdraw entries by a selector."""
    service, caller = _service(request), _caller(request, "admin")
    if body.tenant is not None and not caller.everywhere:
        raise HttpError(403, "only operators name a tenant", "missing_role", "tenant")
    if body.ids or body.similar_to is not None:
        done = await _invalidate_named(service, caller, body)
    else:
        done = await service.cache.invalidate(
            tags=body.tags, model=body.model, model_version=body.model_version, segment=body.segment,
            subject=body.subject, older_than=body.older_than, everything=body.all,
            tenant=body.tenant if caller.everywhere else _narrowed(caller, body), dry_run=body.dry_run,
        )  # fmt: skip
    return models.InvalidateAnswer(
        matched=done.matched, withdrawn=not done.dry_run, selectors=[*done.tags, *done.entry_ids],
        dry_run=done.dry_run, durability=done.durability,
    )  # fmt: skip


def _narrowed(caller: Caller, body: models.InvalidateRequest) -> str:
    """Return the caller's tenant; by itself it would select everything, so something must have been named.

    Raises:
        HttpError: 400.
    """
    named = body.tags or body.model or body.segment or body.subject or body.all or body.older_than
    if not named:
        raise HttpError(400, "nothing to invalidate was named; `all: true` means everything", "invalid_value")
    return caller.tenant


async def _invalidate_named(service: Service, caller: Caller, body: models.InvalidateRequest) -> Invalidated:
    """Withdraw entries that are named, or whose prompts are close to a text."""
    others = (
        body.tags,
        body.model,
        body.model_version,
        body.segment,
        body.subject,
        body.older_than,
        body.tenant,
    )
    if (
        body.all
        or (body.ids and body.similar_to is not None)
        or any(value not in (None, [], {}) for value in others)
    ):
        raise HttpError(
            400, "ids and similar_to name entries; give no other selector with them", "invalid_value"
        )
    if body.similar_to is not None:
        mine = await similar(service.cache, caller.view, body.similar_to.text, body.similar_to.threshold)
        live = len(mine)
    else:
        found = await _get(service, body.ids)
        owned = [e for e in found if e is not None and catalogue.owns(caller.view, e)]
        mine, live = [e.entry_id for e in owned], sum(e.state == "live" for e in owned)
    if body.dry_run or not mine:
        return Invalidated(live, (), tuple(mine), dry_run=body.dry_run)
    return await service.cache.invalidate(entry_ids=mine)


async def _get(service: Service, ids: list[str]) -> list[Entry | None]:
    try:
        return await service.cache.get(list(dict.fromkeys(ids)))
    except InvalidRequestError as error:
        raise HttpError(400, str(error), "invalid_value", "ids") from error


@router.post("/v1/cache/explain", tags=["cache"])
async def explain(request: Request, body: models.ExplainRequest) -> models.ExplainAnswer:
    """Say what a lookup would do, and what every rule finds. Serves and counts nothing."""
    service, caller = _service(request), _caller(request, "admin")
    asked = questions.parsed(body, caller, service.flow, service.settings.base, body.threshold)
    return questions.explain_answer(await service.cache.explain(asked.request))


@router.get("/v1/cache/withdrawn", tags=["cache"])
async def withdrawn(
    request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> models.WithdrawnList:
    """List withdrawn entries, newest first."""
    service, caller = _service(request), _caller(request, "admin")
    found = await service.cache.withdrawn(limit=limit if caller.everywhere else 1000)
    if not caller.everywhere and found:
        known = await service.cache.get([tomb.entry_id for tomb in found])
        mine = {e.entry_id for e in known if e is not None and catalogue.owns(caller.view, e)}
        found = [tomb for tomb in found if tomb.entry_id in mine]
    return models.WithdrawnList(
        entries=[
            models.WithdrawnEntry(
                entry_id=tomb.entry_id,
                withdrawn_at=tomb.withdrawn_at,
                reason=tomb.reason,
                count=tomb.count,
                prompt=tomb.prompt,
                text=tomb.text,
            )
            for tomb in found[:limit]
        ]
    )


@router.post("/v1/cache/restore", tags=["cache"])
async def restore(request: Request, body: models.RestoreRequest) -> models.RestoreAnswer:
    """Bring a withdrawn entry back."""
    service, caller = _service(request), _caller(request, "admin")
    await catalogue.owned(service.cache, caller, body.entry_id)
    return models.RestoreAnswer(entry_id=body.entry_id, restored=await service.cache.restore(body.entry_id))


@router.post("/v1/feedback", tags=["feedback"])
async def feedback(request: Request, body: models.FeedbackRequest) -> models.FeedbackAnswer:
    """Say whether a served answer was right. A signed lookup id is enough; it counts as one voice."""
    service, caller = _service(request), _caller(request)
    verdict = body.verdict if body.verdict is not None else body.score
    assert verdict is not None
    key = None if body.idempotency_key is None else (caller.rater(body.rater), body.idempotency_key)
    if key is not None and key in service.answered:
        return service.answered[key]
    if body.entry_id is not None:
        caller.need("feedback:trusted")
        await catalogue.owned(service.cache, caller, body.entry_id)
    elif not caller.anonymous:
        caller.need("feedback", "feedback:trusted")
    else:
        service.limit(caller)
    narrowed = None if caller.anonymous and not caller.tenant else caller.view
    target = body.lookup_id if body.lookup_id is not None else body.entry_id
    assert target is not None
    if body.lookup_id is not None and "/" in target:
        raise HttpError(404, UNKNOWN_ID, "unknown_id")
    try:
        result = await service.cache.feedback(
            target, verdict, rater=caller.rater(body.rater), about=body.about, tenant=narrowed
        )
    except UnknownLookupError as error:
        raise HttpError(404, UNKNOWN_ID, "unknown_id") from error
    service.note_feedback(
        Judged(
            at=time.time(), tenant=caller.tenant, entry_id=result.entry_id, verdict=verdict, about=body.about,
            action=result.action, principal=caller.principal, comment=(body.comment or "")[:1000],
        )
    )  # fmt: skip
    answer = models.FeedbackAnswer(
        recorded=True, action=result.action, entry_id=result.entry_id, raters=result.raters, weight=result.weight,
        needed=result.needed,
        rater_counted=body.rater is not None and caller.trusted,
    )  # fmt: skip
    if key is not None:
        _remember(service.answered, key, answer)
    return answer


def _remember(answered: OrderedDict[Any, Any], key: Any, answer: Any) -> None:
    answered[key] = answer
    while len(answered) > _REMEMBERED:
        answered.popitem(last=False)


@router.get("/v1/cache/stats", tags=["operations"])
async def stats(request: Request) -> dict[str, Any]:
    """Return numbers of the last day; for operators also this process's counters and facts about the store."""
    service, caller = _service(request), _caller(request, "admin")
    found = overview(service.exchange.dumps(), caller.view, now=time.time(), top=20, recent=0)
    answer = {
        "since": found["since"],
        "total": found["total"],
        "series": found["series"],
        "hot": found["hot"],
    }
    return {**answer, "process": await service.process_stats()} if caller.everywhere else answer


@router.get("/v1/cache/overview", tags=["operations"])
async def page(request: Request, recent: Annotated[int, Query(ge=1, le=200)] = 50) -> dict[str, Any]:
    """Return what the page shows: numbers, latest decisions and verdicts, hot prompts."""
    service, caller = _service(request), _caller(request, "admin")
    found: dict[str, Any] = overview(
        service.exchange.dumps(), caller.view, now=time.time(), top=20, recent=recent
    )
    priced = bool(service.settings.prices)
    return {**found, "priced": priced, "tenant": caller.view, "namespace": service.settings.namespace}


@router.get("/metrics", tags=["operations"], response_class=Response)
async def metrics(request: Request) -> Response:
    """Return metrics for Prometheus."""
    service = _service(request)
    if not service.settings.public_metrics:
        _caller(request, "admin")
    text = service.meters.render(await service.cache.stats())
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/healthz", tags=["operations"])
async def healthz() -> dict[str, str]:
    """Say that the process runs."""
    return {"status": "ok"}


@router.get("/readyz", tags=["operations"])
async def readyz(
    request: Request, response: Response, strict: Annotated[bool, Query()] = False
) -> dict[str, str]:
    """Say whether calls can be answered: they can while the store is away, so only `strict` asks for it."""
    service = _service(request)
    found = await service.cache.stats()
    store = "ok" if found.server else "away"
    if service.draining or (strict and store == "away"):
        response.status_code = 503
    return {
        "status": "draining" if service.draining else "ok",
        "store": store,
        "encoder": "ok" if found.encoder else "loading",
    }


def _whole(found: Entry) -> Any:
    return whole_of("chat", found.response, "") or found.response.data
