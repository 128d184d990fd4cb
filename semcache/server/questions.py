"""From a question of the API to what the proxy would make of the same call, and back to JSON."""

from __future__ import annotations

import json
from typing import Any

from openai_semcache.exchange import Call
from openai_semcache.requests import ParsedRequest
from openai_semcache.responses import response_of, whole_of
from semcache.errors import InvalidRequestError
from semcache.reasons import status_of
from semcache.server.errors import HttpError
from semcache.server.identity import Caller
from semcache.server.models import (
    ExplainAnswer,
    ExplainedCandidate,
    FoundRule,
    LookupAnswer,
    PutRequest,
    Question,
    Rejected,
)
from semcache.server.proxy import ProxyFlow
from semcache.types import CandidateReport, Decision, Explanation, Hit, Response

_PATHS = {"chat": "/chat/completions", "responses": "/responses", "completions": "/completions"}
_TEXTS = {"chat": "messages", "responses": "input", "completions": "prompt"}


def parsed(
    question: Question, caller: Caller, flow: ProxyFlow, base: str, threshold: float | None = None
) -> ParsedRequest:
    """Return what the proxy would make of this question.

    Raises:
        HttpError: 400 for something that can't be meant, 403 for another tenant's.
    """
    if question.tenant is not None:
        if not caller.everywhere:
            raise HttpError(403, "only operators name a tenant", "missing_role", "tenant")
        caller = Caller(caller.principal, question.tenant, caller.roles)
    text: Any = question.messages if question.messages is not None else question.prompt
    if question.endpoint == "chat" and question.messages is None:
        text = [{"role": "user", "content": question.prompt}]
    body = {**question.params, "model": question.model, _TEXTS[question.endpoint]: text}
    if threshold is not None:
        body["cache"] = {"threshold": threshold}
    try:
        data = json.dumps(body, allow_nan=False).encode()
        call = Call("POST", base + _PATHS[question.endpoint], (), data)
        return flow.parse_for(caller, question.endpoint, call)
    except (InvalidRequestError, ValueError, RecursionError) as error:
        raise HttpError(400, str(error), "invalid_value") from error


def response_to_store(put: PutRequest, asked: ParsedRequest) -> Response:
    """Return the response that a put brings."""
    if isinstance(put.response, str):
        malformed = asked.structure is not None and not asked.structure.admits(put.response)
        return Response(put.response, finish_reason="stop", confidence=put.confidence, malformed=malformed)
    return response_of(put.endpoint, put.response, structure=asked.structure)


def lookup_answer(
    decision: Decision, asked: ParsedRequest, candidates: tuple[CandidateReport, ...], *, record: bool
) -> LookupAnswer:
    """Return what a lookup found."""
    rejected = [
        Rejected(entry_id=c.entry_id, similarity=c.similarity, reason=c.reason, detail=c.detail)
        for c in candidates
        if c.reason is not None
    ]
    if not isinstance(decision, Hit):
        return LookupAnswer(
            status=status_of(decision.reason),
            similarity=decision.best_similarity,
            reason=decision.reason,
            rejected=rejected,
        )
    return LookupAnswer(
        status="hit",
        match=decision.match,
        similarity=decision.similarity,
        entry_id=decision.entry_id,
        lookup_id=decision.lookup_id if record else None,
        age=decision.age,
        prompt=decision.prompt,
        text=decision.response.text,
        response=whole_of(asked.endpoint, decision.response, asked.request.model),
        rejected=rejected,
    )


def explain_answer(explanation: Explanation) -> ExplainAnswer:
    """Return an explanation."""
    decision = explanation.decision
    hit = isinstance(decision, Hit)
    return ExplainAnswer(
        status="hit" if isinstance(decision, Hit) else status_of(decision.reason),
        match=decision.match if isinstance(decision, Hit) else None,
        reason=None if isinstance(decision, Hit) else decision.reason,
        detail="" if isinstance(decision, Hit) else decision.detail,
        docs="" if hit else explanation.docs,
        encoder=explanation.encoder,
        candidates=[
            ExplainedCandidate(
                entry_id=c.entry_id,
                prompt=c.prompt,
                similarity=c.similarity,
                probability=c.probability,
                reason=c.reason,
                detail=c.detail,
                flip=c.flip,
                findings=[
                    FoundRule(rule=f.rule, verdict=f.verdict, detail=f.detail, flip=f.flip)
                    for f in c.findings
                ],
            )
            for c in explanation.candidates
        ],
    )
