"""Pure: which requests may use the cache, and which answers may be stored, for how long."""

from __future__ import annotations

from dataclasses import replace

from semcache.codec import encode_response
from semcache.errors import InvalidRequestError, UndecodableError
from semcache.freshness import KINDS, confident_share, traits
from semcache.policy import Policy
from semcache.protocols import TextLimits
from semcache.types import CacheRequest, Embedding, Response

EXACT_ONLY_PARAMS = ("seed", "logprobs", "top_logprobs", "n")
DEFAULT_TEMPERATURE = 1.0  # what providers take a missing one for


def bypass(request: CacheRequest, policy: Policy) -> str | None:
    """Return why this request may neither be served nor stored, as a miss reason; None if it may."""
    if request.bypass is not None:
        return f"bypass:{request.bypass}"
    if request.mode == "off":
        return "bypass:policy"
    if policy.max_temperature is not None and _temperature(request) > policy.max_temperature:
        return "bypass:temperature"
    if policy.time_bound == "bypass" and time_bound(request, policy):
        return "bypass:time_bound"
    if (
        policy.personal == "bypass"
        and not request.segment
        and request.user is None
        and request.subject is None
        and traits(request.prompt).personal
    ):
        return "bypass:personal"
    return None


def _temperature(request: CacheRequest) -> float:
    """Return the temperature that counts: a missing one is the providers' default, not 0.

    What asks for equal texts alone and names none (an embedding, say) has none.
    """
    temperature = request.params.get("temperature")
    if isinstance(temperature, int | float):
        return float(temperature)
    return DEFAULT_TEMPERATURE if request.mode == "semantic" else 0.0


def time_bound(request: CacheRequest, policy: Policy) -> bool:
    """Return whether the answer is bound to this moment, by the prompt's wording; a kind overrides that."""
    return policy.time_bound != "ignore" and request.kind is None and bool(traits(request.prompt).time_bound)


def aged(request: CacheRequest, policy: Policy) -> CacheRequest:
    """Return what is asked of a neighbour: one bound to this moment isn't answered by what was stored before it."""
    if not time_bound(request, policy):
        return request
    age = policy.time_bound_ttl if request.max_age is None else min(request.max_age, policy.time_bound_ttl)
    return replace(request, max_age=age)


def owner(request: CacheRequest, policy: Policy) -> tuple[str, str] | None:
    """Return (user, subject) whose alone the answer is, by the prompt's wording; None if people share it."""
    if policy.personal == "share" or (request.user is None and request.subject is None):
        return None
    return (request.user or "", request.subject or "") if traits(request.prompt).personal else None


def exact_only(request: CacheRequest, policy: Policy) -> str | None:
    """Return why only an exact match may serve this request, as a miss reason; None if neighbours may.

    A later turn, tools, media, a seed, several choices or log-probabilities pin the answer to this very text.
    """
    if request.opaque:
        return "exact_only:opaque"
    if request.media:
        return "exact_only:media"
    if request.tools:
        return "exact_only:tools"
    if request.earlier_turns >= policy.semantic_turns:
        return "exact_only:turns"
    for name in EXACT_ONLY_PARAMS:
        value = request.params.get(name)
        if value is not None and value is not False and not (name == "n" and value == 1):
            return "exact_only:policy"
    if request.mode == "exact":
        return "no_candidate"
    if policy.max_semantic_chars is not None and len(request.prompt) > policy.max_semantic_chars:
        return "over_window"
    return None


def unreadable(limits: TextLimits, embedding: Embedding, policy: Policy) -> str | None:
    """Return why a text can't be judged by its embedding, as a miss reason; None if it can."""
    if limits.over_window:
        return "over_window"
    if limits.unknown_share > policy.max_unknown_share or not embedding.any():
        return "unknown_tokens"
    return None


def ttl_of(
    request: CacheRequest,
    response: Response,
    policy: Policy,
    *,
    kind: str | None,
    ttl: float | None,
    confidence: float | None,
    stretch: float = 1.0,
) -> float | None:
    """Return the seconds that an answer lives; None for ever.

    A ttl from the caller wins; else the kind's, else the policy's, which a time-bound prompt and a doubtful
    answer shorten. An empty answer never outlives `empty_ttl`.

    Args:
        stretch: Factor that the entry's refreshes have earned; what is bound to this moment isn't lengthened by it.
    """
    if ttl is None:
        ttl = policy.ttl
        if kind is not None:
            ttl = policy.kinds[kind] if kind in policy.kinds else KINDS.get(kind, ttl)
        elif time_bound(request, policy):
            ttl = policy.time_bound_ttl if ttl is None else min(ttl, policy.time_bound_ttl)
            stretch = min(stretch, 1.0)
        if ttl is not None:
            ttl *= stretch * confident_share(confidence, policy.min_confidence, policy.unsure_ttl)
    if not response.text and not response.data:
        return policy.empty_ttl if ttl is None else min(ttl, policy.empty_ttl)
    return ttl


def storable(
    request: CacheRequest, response: Response, policy: Policy, confidence: float | None
) -> str | bytes:
    """Return the encoded response if it may be stored, else the outcome that says why not.

    Args:
        confidence: The caller's; falls back to the response's own.
    """
    outcome = _refused(request, response, policy, confidence)
    if outcome is not None:
        return outcome
    try:
        data = encode_response(response)
    except UndecodableError:
        return "unserialisable"
    return "too_large" if len(data) > policy.max_response_bytes else data


def _refused(
    request: CacheRequest, response: Response, policy: Policy, confidence: float | None
) -> str | None:
    if request.no_store:
        return "no_store"
    if response.error:
        return "error_response"
    if response.partial:
        return "partial"
    if response.refusal:
        return "refusal"
    if response.finish_reason in ("length", "max_tokens", "incomplete"):
        return "truncated"
    if response.finish_reason == "content_filter":
        return "filtered"
    if response.tool_calls and not policy.store_tool_calls:
        return "tool_calls"
    if response.media:
        return "media"
    if response.malformed:
        return "schema_mismatch"
    if not response.text.strip() and not response.tool_calls and not policy.store_empty:
        return "empty_disallowed"
    sure = response.confidence if confidence is None else confidence
    if sure is not None and sure < policy.min_confidence:
        return "low_confidence"
    if (
        len(request.prompt) > policy.max_prompt_bytes
        or len(request.prompt.encode("utf-8", "surrogatepass")) > policy.max_prompt_bytes
    ):
        return "too_large"
    return None


def check_prompt(prompt: str) -> None:
    """Raise unless the prompt can be a key: Unicode text, not blank.

    Raises:
        InvalidRequestError: It is blank or holds a lone surrogate.
    """
    if not prompt or prompt.isspace():
        raise InvalidRequestError("the prompt is blank, expected some text")
    if not prompt.isascii():
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequestError(
                f"the prompt has a lone surrogate at character {error.start}, expected Unicode text"
            ) from error
