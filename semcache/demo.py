"""Plays a stream of questions through a cache and reports what happened, wrong answers included.

It knows which questions may share an answer (where the stream says so) and counts; it prints nothing. How the
report looks is `cli_demo`'s.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from semcache.errors import ConfigurationError, UpstreamError
from semcache.sample import SampleQuestion, SampleRequest
from semcache.types import Answer, CacheRequest, Miss, Response

STORED_SAMPLE = "stored sample"
_PATIENCE = 3  # upstream failures in a row after which the demo gives up
_EXAMPLES = 6
_SEGMENT = {"audience": "demo"}  # everybody who asks here may have the same answer, also to "my program …"


class Cache(Protocol):
    """What the demo needs of a cache."""

    def get_or_compute(
        self, request: CacheRequest | str, call_model: Callable[[CacheRequest], Response | str]
    ) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Question:
    """One request of the stream.

    Attributes:
        group: Requests of one group may share an answer, others may not; None if that isn't known.
        answer: The stored answer, None if there is none.
    """

    prompt: str
    group: str | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """What became of one request.

    Attributes:
        outcome: ``exact``, ``semantic``, ``miss`` or ``failed`` (the upstream's fault).
        reason: Why it was a miss, else empty.
        other: Prompt of the entry that was served, or of the closest one that wasn't.
        wrong: True if the answer served belongs to another group; None if that isn't known.
        could: True if an earlier request of the stream had the right answer; None if that isn't known.
        lost: For a miss, True if the closest entry had the right answer; None if that isn't known.
        seconds: What the caller waited.
        model_seconds: Of which for the model; None if it wasn't asked.
    """

    prompt: str
    outcome: str
    seconds: float
    reason: str = ""
    detail: str = ""
    similarity: float | None = None
    other: str | None = None
    wrong: bool | None = None
    could: bool | None = None
    lost: bool | None = None
    model_seconds: float | None = None


@dataclass(slots=True)
class Report:
    """What happened so far.

    Attributes:
        source: Where misses were answered from.
        measured: True if the source's latency means something, so that time saved may be claimed.
    """

    source: str
    measured: bool
    events: list[Event] = field(default_factory=list)
    seconds: float = 0.0
    encode_ms: Mapping[str, float] = field(default_factory=dict)

    def count(self, outcome: str) -> int:
        """Return how many requests had this outcome."""
        return sum(event.outcome == outcome for event in self.events)

    @property
    def hits(self) -> int:
        """Requests answered from the cache."""
        return self.count("exact") + self.count("semantic")

    @property
    def misses(self) -> dict[str, int]:
        """Misses by reason, most frequent first."""
        return dict(Counter(event.reason for event in self.events if event.outcome == "miss").most_common())

    @property
    def wrong(self) -> list[Event]:
        """Hits whose answer belongs to another question."""
        return [event for event in self.events if event.wrong]

    def wrong_pairs(self) -> list[Event]:
        """Return the wrong hits without repetitions."""
        return list({(event.prompt, event.other): event for event in self.wrong}.values())

    @property
    def judged(self) -> int:
        """Hits of which it is known whether they are right."""
        return sum(event.wrong is not None for event in self.events)

    @property
    def possible(self) -> int | None:
        """Requests that an earlier answer could have served; None if that isn't known."""
        known = [event.could for event in self.events if event.could is not None]
        return sum(known) if known else None

    def latencies_ms(self) -> dict[str, dict[str, float]]:
        """Return p50 and p95 of what was measured."""
        table = {
            "exact hit": [event.seconds for event in self.events if event.outcome == "exact"],
            "semantic hit": [event.seconds for event in self.events if event.outcome == "semantic"],
            "model": [event.model_seconds for event in self.events if event.model_seconds is not None],
        }
        if not self.measured:
            del table["model"]
        found = {name: percentiles_ms(times) for name, times in table.items() if times}
        if self.encode_ms:
            found["encoder"] = {name: self.encode_ms[name] for name in ("p50", "p95")}
        return found

    @property
    def time_saved(self) -> float | None:
        """Seconds: for each hit what the model takes at the median, less what the hit took; None if unknown."""
        asked = sorted(event.model_seconds for event in self.events if event.model_seconds is not None)
        if not self.measured or not asked:
            return None
        median = asked[len(asked) // 2]
        return sum(median - event.seconds for event in self.events if event.outcome in ("exact", "semantic"))

    def semantic_hits(self, limit: int = _EXAMPLES) -> list[Event]:
        """Return right semantic hits to show: distinct pairs, those with the lowest similarity first."""
        found = {
            (event.prompt, event.other): event
            for event in self.events
            if event.outcome == "semantic" and not event.wrong
        }
        return sorted(found.values(), key=lambda event: event.similarity or 0.0)[:limit]

    def refusals(self, limit: int = _EXAMPLES) -> list[Event]:
        """Return misses to show that had a near candidate: each reason's closest pair, then the next ones."""
        near = [event for event in self.events if event.outcome == "miss" and event.other is not None]
        near.sort(key=lambda event: -(event.similarity or 0.0))
        by_reason: dict[str, list[Event]] = {}
        for event in near:
            by_reason.setdefault(event.reason, []).append(event)
        longest = max(map(len, by_reason.values()), default=0)
        rows = [group[row] for row in range(longest) for group in by_reason.values() if row < len(group)]
        return rows[:limit]

    def as_json(self) -> dict[str, Any]:
        """Return the report for machines."""
        return {
            "requests": len(self.events),
            "seconds": round(self.seconds, 3),
            "answers_from": self.source,
            "hits": {"exact": self.count("exact"), "semantic": self.count("semantic")},
            "misses": self.misses,
            "upstream_failures": self.count("failed"),
            "could_have_been_hits": self.possible,
            "hits_judged": self.judged,
            "wrong_hits": len(self.wrong) if self.judged else None,
            "latency_ms": self.latencies_ms(),
            "time_saved_s": None if self.time_saved is None else round(self.time_saved, 3),
            "examples": {
                "semantic_hits": [_pair(event) for event in self.semantic_hits()],
                "refusals": [_pair(event) for event in self.refusals()],
                "wrong_hits": [_pair(event) for event in self.wrong_pairs()],
            },
        }


def _pair(event: Event) -> dict[str, Any]:
    pair: dict[str, Any] = {"asked": event.prompt, "stored": event.other, "similarity": event.similarity}
    if not event.reason:
        return pair
    return {**pair, "reason": event.reason, "detail": event.detail, "would_have_served": event.lost}


def percentiles_ms(seconds: Iterable[float]) -> dict[str, float]:
    """Return p50 and p95 in milliseconds."""
    times = sorted(seconds)
    return {
        f"p{share}": round(1000 * times[max(0, math.ceil(len(times) * share / 100) - 1)], 3)
        for share in (50, 95)
    }


def from_sample(stream: Sequence[SampleRequest]) -> list[Question]:
    """Return the stream of the sample that ships."""
    return [Question(request.prompt, request.question_id, request.answer) for request in stream]


def wordings(sample: Sequence[SampleQuestion]) -> dict[str, str]:
    """Return which group each wording of the sample belongs to."""
    groups: dict[str, str] = {}
    for question in sample:
        for text in (question.question, *question.rephrasings):
            groups[text] = question.question_id
        for number, friend in enumerate(question.false_friends, 1):
            groups[friend.question] = f"{question.question_id}/{number}"
    return groups


def read_questions(path: Path) -> list[Question]:
    """Read questions from a file, in its order.

    One question a line; or, if the name ends in ``.jsonl``, one JSON object a line with ``question`` (or
    ``text`` or ``prompt``), and optionally ``answer`` and ``group`` (or ``cluster``): lines of one group may share
    an answer.

    Raises:
        ConfigurationError: The file can't be read, or a line isn't a question.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}") from error
    read = _json_question if path.suffix == ".jsonl" else Question
    questions = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                questions.append(read(line.strip()))
            except (ValueError, LookupError) as error:
                raise ConfigurationError(
                    f'{path}, line {number}: {error}; expected an object such as {{"question": "How …?"}}'
                ) from error
    if not questions:
        raise ConfigurationError(f"{path} holds no question, expected one a line")
    return questions


def _json_question(line: str) -> Question:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(f"found {type(row).__name__}")
    prompt = next((row[name] for name in ("question", "text", "prompt") if name in row), None)
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("found no question")
    group, answer = row.get("group", row.get("cluster")), row.get("answer")
    if answer is not None and not isinstance(answer, str):
        raise ValueError(f"the answer is {type(answer).__name__}")
    return Question(prompt, None if group is None else str(group), answer)


def stored_answers(questions: Sequence[Question]) -> Callable[[CacheRequest], str]:
    """Return a stand-in for a model that looks answers up.

    Raises:
        ConfigurationError: A question has no stored answer.
    """
    answers: dict[str, str] = {}
    for question in questions:
        if question.answer is None:
            raise ConfigurationError(
                f"{question.prompt[:60]!r} has no stored answer; give --base-url and --model, or a .jsonl file with "
                "an answer for each question"
            )
        answers[question.prompt] = question.answer
    return lambda request: answers[request.prompt]


def play(
    cache: Cache,
    questions: Sequence[Question],
    ask: Callable[[CacheRequest], Response | str],
    report: Report,
    *,
    model: str,
    endpoint: str = "",
    groups: Mapping[str, str] | None = None,
    watch: Callable[[Event], None] = lambda event: None,
) -> None:
    """Send each question through the cache, one after the other, and add to the report.

    Args:
        ask: Answers a miss.
        groups: Group of each wording that may be in the cache from an earlier run.
        watch: Told of each event.

    Raises:
        UpstreamError: The upstream failed several times in a row.
    """
    known = dict(groups or {})
    known.update({question.prompt: question.group for question in questions if question.group is not None})
    seen: set[str] = set()
    failures = 0
    began = time.perf_counter()
    for question in questions:
        request = CacheRequest(question.prompt, model=model, endpoint=endpoint, segment=_SEGMENT)
        timed = _Timed(ask)
        started = time.perf_counter()
        try:
            answer = cache.get_or_compute(request, timed)
        except UpstreamError as error:
            failures += 1
            event = Event(question.prompt, "failed", time.perf_counter() - started, detail=str(error))
            if failures >= _PATIENCE:
                raise
        else:
            failures = 0
            event = _event(question, answer, time.perf_counter() - started, timed.seconds, known, seen)
            if question.group is not None:
                seen.add(question.group)
        report.events.append(event)
        report.seconds = time.perf_counter() - began
        watch(event)


class _Timed:
    """A call to the model, and how long it took."""

    def __init__(self, ask: Callable[[CacheRequest], Response | str]) -> None:
        self._ask = ask
        self.seconds: float | None = None

    def __call__(self, request: CacheRequest) -> Response | str:
        started = time.perf_counter()
        response = self._ask(request)
        self.seconds = time.perf_counter() - started
        return response


def _event(
    question: Question,
    answer: Answer,
    seconds: float,
    model_seconds: float | None,
    known: Mapping[str, str],
    seen: set[str],
) -> Event:
    could = None if question.group is None else question.group in seen
    decision = answer.decision
    if isinstance(decision, Miss):
        return Event(
            question.prompt,
            "miss",
            seconds,
            reason=decision.reason,
            detail=decision.detail,
            similarity=decision.best_similarity,
            other=decision.best_prompt,
            could=could,
            lost=_shares(question, decision.best_prompt, known),
            model_seconds=model_seconds,
        )
    right = _shares(question, decision.prompt, known)
    return Event(
        question.prompt,
        decision.match,
        seconds,
        similarity=decision.similarity,
        other=decision.prompt,
        wrong=None if right is None else not right,
        could=could,
    )


def _shares(question: Question, stored: str | None, known: Mapping[str, str]) -> bool | None:
    """Tell whether a stored prompt may share the question's answer; None if either group isn't known."""
    if question.group is None or stored is None or stored not in known:
        return None
    return known[stored] == question.group
