"""Replays requests through the cache's rules: look up, on a miss put. Pure.

Knows: who is whose neighbour (once per file, so that many matchers can be compared), and what counts as a
hit, a wrong one and a miss. Leaves to others: reading the requests, intervals and reports (`evaluate`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from semcache.decision import Choice
from semcache.evaluate_rows import Request
from semcache.policy import Policy
from semcache.protocols import Encoder, Matcher
from semcache.types import Embeddings

CANDIDATES = 8
_BATCH = 256
_EXAMPLES = 20


@dataclass(slots=True)
class Counts:
    """What a replay found.

    Attributes:
        counts: ``hit``, ``wrong``, ``exact``, ``oracle``.
        misses: By reason.
        examples: Some wrong hits: (asked, stored).
    """

    counts: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scope:
    """The requests of one scope, and for each distinct text the nearest of the texts before it.

    Attributes:
        texts: Distinct, in order of arrival.
        requests: (number of the text, cluster or None).
        earlier: For each text the numbers and similarities of earlier ones, best first.
    """

    texts: list[str]
    requests: list[tuple[int, str | None]]
    earlier: list[tuple[list[int], list[float]]]


def exact_only(encoder: Encoder, texts: Sequence[str]) -> list[bool]:
    """Tell for each text whether the cache would match it exactly only, with the policy's defaults."""
    most_unknown = Policy().max_unknown_share
    return [limits.over_window or limits.unknown_share > most_unknown for limits in encoder.inspect(texts)]


def prepare(
    requests: Sequence[Request], encoder: Encoder, embed: Callable[[Sequence[str]], Embeddings]
) -> list[Scope]:
    """Find neighbours once, for any number of replays.

    Args:
        embed: Returns float32 (len(texts), dim), unit rows, a copy that may be written to.
    """
    by_context: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        by_context[request.context].append(request)
    scopes = []
    for group in by_context.values():
        order = {text: i for i, text in enumerate(dict.fromkeys(q.text for q in group))}
        texts = list(order)
        embeddings = embed(texts)
        embeddings[exact_only(encoder, texts)] = 0.0  # neither looks for neighbours nor is one
        scopes.append(Scope(texts, [(order[q.text], q.cluster) for q in group], _earlier(embeddings)))
    return scopes


def replay_scopes(scopes: Sequence[Scope], matcher: Matcher) -> Counts:
    """Replay prepared requests in order of arrival."""
    found = Counts()
    for scope in scopes:
        _replay(scope, matcher, found)
    return found


def _replay(scope: Scope, matcher: Matcher, found: Counts) -> None:
    counts = found.counts
    stored: dict[int, str | None] = {}  # number of a stored text → its cluster
    seen: set[int] = set()
    clusters: set[str] = set()
    for number, cluster in scope.requests:
        text = scope.texts[number]
        counts["exact"] += number in seen
        counts["oracle"] += cluster in clusters
        seen.add(number)
        if cluster is not None:
            clusters.add(cluster)
        served: int | None = number if number in stored else None
        if served is None:
            near = [(n, s) for n, s in zip(*scope.earlier[number], strict=True) if n in stored]
            served = serve(text, near[:CANDIDATES], scope.texts, matcher, found.misses, size=len(stored))
        if served is None:
            stored[number] = cluster
            continue
        counts["hit"] += 1
        wrong = cluster is not None and stored[served] not in (None, cluster)
        counts["wrong"] += wrong
        if wrong and len(found.examples) < _EXAMPLES:
            found.examples.append((text, scope.texts[served]))


def _earlier(embeddings: Embeddings) -> list[tuple[list[int], list[float]]]:
    """Return for each row the nearest of the rows before it, best first, ties by order.

    More than are judged, since not every text gets stored.
    """
    found: list[tuple[list[int], list[float]]] = []
    for start in range(0, len(embeddings), _BATCH):
        block = embeddings[start : start + _BATCH] @ embeddings[: start + _BATCH].T
        for row, similar in enumerate(block, start=start):
            similar = similar[:row]
            k = min(8 * CANDIDATES, row)
            rows = np.argpartition(-similar, k - 1)[:k] if k else np.zeros(0, np.int64)
            rows = rows[np.lexsort((rows, -similar[rows]))]
            found.append((rows.tolist(), similar[rows].tolist()))
    return found


def serve(
    text: str,
    near: Sequence[tuple[int, float]],
    texts: Sequence[str],
    matcher: Matcher,
    reasons: Counter[str],
    *,
    size: int,
) -> int | None:
    """Return the candidate that a cache would serve; a miss is counted under the nearest candidate's reason.

    Args:
        size: How many texts are stored.
    """
    first = "no_candidate"
    choice: Choice[int] = Choice()
    for rank, (number, similarity) in enumerate(near):
        if similarity == 0.0:  # no embedding, no neighbours
            continue
        if choice.is_over(similarity):
            break
        rivals = [s for place, (_, s) in enumerate(near) if place != rank]
        said = matcher.judge(text, texts[number], min(similarity, 1.0), rivals=rivals, size=size)
        if said.reason is None:
            choice.offer(number, similarity, said.probability)
        elif first == "no_candidate":
            first = said.reason
    if choice.best is None:
        reasons[first] += 1
    return choice.best
