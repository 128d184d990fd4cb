"""The sample that ships: real questions with answers, and a stream of requests made from them.

Pure apart from reading the package's own file. It knows which wordings share an answer, so that a demo can
count wrong answers; it knows nothing of a cache. Origin and licence: semcache/data/sample/README.md.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, TypeAlias

from semcache.errors import ConfigurationError

RequestKind: TypeAlias = Literal["question", "repeat", "rephrasing", "false_friend", "singleton"]

_SINGLETONS = 0.12  # share of requests for questions that nobody asks twice
_FALSE_FRIENDS = 0.08  # share of requests that are near an earlier question and need another answer
_REPEATS = 0.45  # share of the requests for a known question that use a wording used before
_SKEW = 0.9  # exponent of Zipf's law


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseFriend:
    """A question that is near another one and has an answer of its own."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleQuestion:
    """One question of the sample.

    Attributes:
        question_id: Unique in the sample.
        source: ``python-faq`` or ``semcache``.
        lang: ``en`` or ``zh``.
        rephrasings: Other wordings that the same answer serves.
    """

    question_id: str
    source: str
    lang: str
    question: str
    answer: str
    rephrasings: tuple[str, ...] = ()
    false_friends: tuple[FalseFriend, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One request of the stream.

    Attributes:
        question_id: Requests with the same one may share an answer, others may not.
        answer: The right answer.
        kind: Why it is in the stream: a question in its first wording, a wording used before, another
            wording, a false friend, or a question asked once.
    """

    prompt: str
    question_id: str
    answer: str
    kind: RequestKind


def load_sample() -> tuple[SampleQuestion, ...]:
    """Return the questions that ship with semcache."""
    text = (resources.files("semcache") / "data" / "sample" / "questions.jsonl").read_text(encoding="utf-8")
    return tuple(_question(json.loads(line)) for line in text.splitlines())


def _question(row: dict[str, Any]) -> SampleQuestion:
    return SampleQuestion(
        question_id=row["id"],
        source=row["source"],
        lang=row["lang"],
        question=row["question"],
        answer=row["answer"],
        rephrasings=tuple(row.get("rephrasings", ())),
        false_friends=tuple(FalseFriend(**friend) for friend in row.get("false_friends", ())),
    )


def traffic(sample: Sequence[SampleQuestion], *, requests: int, seed: int) -> list[SampleRequest]:
    """Make a stream as a help desk sees it: a few questions often and in many wordings, most of them rarely.

    Questions with rephrasings are drawn by Zipf's law; the others come once each, as long as there are some. A
    false friend comes after the question that it is near to.

    Args:
        requests: Length of the stream, 0 or more.
        seed: The same seed gives the same stream.
    """
    if requests < 0:
        raise ConfigurationError(f"requests is {requests}, expected 0 or more")
    stream = _Stream(sample, random.Random(seed))
    return [stream.draw() for _ in range(requests)]


class _Stream:
    """What has been asked so far, and what is left."""

    def __init__(self, sample: Sequence[SampleQuestion], rng: random.Random) -> None:
        self._rng = rng
        self._popular = [question for question in sample if question.rephrasings]
        self._singletons = [question for question in sample if not question.rephrasings]
        if not self._popular:
            raise ConfigurationError("the sample has no question with rephrasings, expected at least one")
        rng.shuffle(self._popular)
        rng.shuffle(self._singletons)
        self._weights = [1.0 / rank**_SKEW for rank in range(1, len(self._popular) + 1)]
        self._asked: dict[str, list[str]] = {}  # question id → wordings asked, in order
        self._friends: list[SampleRequest] = []  # those whose question was asked

    def draw(self) -> SampleRequest:
        share = self._rng.random()
        if share < _SINGLETONS and self._singletons:
            return _request(self._singletons.pop(), "singleton")
        if share > 1.0 - _FALSE_FRIENDS and self._friends:
            return self._friends.pop(self._rng.randrange(len(self._friends)))
        return self._ask(self._rng.choices(self._popular, self._weights)[0])

    def _ask(self, question: SampleQuestion) -> SampleRequest:
        asked = self._asked.get(question.question_id)
        if asked is None:
            self._asked[question.question_id] = [question.question]
            self._friends += [
                SampleRequest(
                    prompt=friend.question,
                    question_id=f"{question.question_id}/{number}",
                    answer=friend.answer,
                    kind="false_friend",
                )
                for number, friend in enumerate(question.false_friends, 1)
            ]
            return _request(question, "question")
        fresh = [text for text in question.rephrasings if text not in asked]
        if not fresh or self._rng.random() < _REPEATS:
            return _request(question, "repeat", self._rng.choice(asked))
        asked.append(self._rng.choice(fresh))
        return _request(question, "rephrasing", asked[-1])


def _request(question: SampleQuestion, kind: RequestKind, prompt: str | None = None) -> SampleRequest:
    return SampleRequest(
        prompt=question.question if prompt is None else prompt,
        question_id=question.question_id,
        answer=question.answer,
        kind=kind,
    )
