"""Playing questions through a cache, and counting honestly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semcache import CacheRequest, Policy, SemanticCache
from semcache.demo import (
    Event,
    Question,
    Report,
    from_sample,
    percentiles_ms,
    play,
    read_questions,
    stored_answers,
    wordings,
)
from semcache.errors import ConfigurationError, UpstreamError
from semcache.protocols import Judgement
from semcache.sample import load_sample, traffic
from semcache.stores.memory import MemoryStore
from semcache.testing import TableEncoder

TABLE = {"q1": [1.0, 0.0], "q1 again": [0.99, 0.14], "q2": [0.98, 0.2], "far": [0.0, 1.0]}


@pytest.fixture
def cache() -> Iterator[SemanticCache]:
    """A cache with a bare threshold, so that a near question is served wrongly."""
    policy = Policy(deadline=10.0, threshold=0.9, guards=False)
    with SemanticCache(store=MemoryStore(), encoder=TableEncoder(TABLE), policy=policy) as made:
        yield made


def _played(cache: SemanticCache, questions: list[Question], *, measured: bool = False) -> Report:
    report = Report("a table", measured=measured)
    play(cache, questions, lambda request: f"answer to {request.prompt}", report, model="m")
    return report


def test_hits_misses_and_what_was_possible_are_counted(cache: SemanticCache) -> None:
    stream = [Question(text, "1") for text in ("q1", "q1", "q1 again")] + [Question("far", "2")]

    report = _played(cache, stream)

    assert [event.outcome for event in report.events] == ["miss", "exact", "semantic", "miss"]
    assert report.hits == 2
    assert sum(report.misses.values()) == 2
    assert report.possible == 2
    assert report.wrong == []


class _Refuses:
    """A matcher that lets nothing pass but what was asked."""

    def judge(self, query: str, stored: str, similarity: float, **_: Any) -> Judgement:
        return Judgement("verifier")


def test_a_refusal_is_judged_too() -> None:
    with SemanticCache(
        store=MemoryStore(), encoder=TableEncoder(TABLE), matcher=_Refuses(), policy=Policy(deadline=10.0)
    ) as strict:
        report = _played(strict, [Question("q1", "1"), Question("q1 again", "1"), Question("q2", "2")])

    first, wrongly, rightly = report.events
    assert first.lost is None
    assert (wrongly.other, wrongly.lost) == ("q1", True)
    assert (rightly.other, rightly.lost) == ("q1 again", False)


def test_a_hit_of_another_group_is_a_wrong_answer_and_is_told(cache: SemanticCache) -> None:
    report = _played(cache, [Question("q1", "1"), Question("q2", "2"), Question("q2", "2")])

    assert len(report.wrong) == 2
    assert report.judged == 2
    assert report.semantic_hits() == []
    told = report.as_json()
    assert told["wrong_hits"] == 2
    assert [(pair["asked"], pair["stored"]) for pair in told["examples"]["wrong_hits"]] == [("q2", "q1")]


def test_without_groups_nothing_is_said_of_right_and_wrong(cache: SemanticCache) -> None:
    report = _played(cache, [Question("q1"), Question("q2")])

    assert report.hits == 1
    assert report.as_json()["wrong_hits"] is None
    assert report.possible is None


def test_an_entry_of_an_earlier_run_is_judged_by_its_wording(cache: SemanticCache) -> None:
    cache.put(CacheRequest("q1", model="m", segment={"audience": "demo"}), "old")
    report = Report("a table", measured=False)

    play(cache, [Question("q2", "2")], lambda request: "new", report, model="m", groups={"q1": "1"})

    assert len(report.wrong) == 1


def test_time_saved_is_claimed_for_a_real_model_only(cache: SemanticCache) -> None:
    stream = [Question("q1"), Question("q1")]

    assert _played(cache, stream).time_saved is None
    assert "model" not in _played(cache, stream).latencies_ms()

    report = Report("a model", measured=True)
    report.events = [
        Event("q", "miss", 2.1, model_seconds=2.0),
        Event("q", "exact", 0.5),
        Event("r", "exact", 0.5),
    ]
    assert report.time_saved == pytest.approx(3.0)
    assert report.latencies_ms()["model"] == {"p50": 2000.0, "p95": 2000.0}


def test_one_failure_of_the_upstream_is_counted_and_three_in_a_row_end_the_demo(cache: SemanticCache) -> None:
    def ask(request: CacheRequest) -> str:
        if request.prompt == "q1":
            raise UpstreamError("busy")
        return "fine"

    report = Report("a model", measured=True)
    play(cache, [Question("q1"), Question("far"), Question("q1")], ask, report, model="m")
    assert [event.outcome for event in report.events] == ["failed", "miss", "failed"]

    with pytest.raises(UpstreamError, match="busy"):
        play(cache, [Question("q1")] * 5, ask, report, model="m")


def test_refusals_show_every_reason_before_a_second_of_one() -> None:
    report = Report("a table", measured=False)
    report.events = [
        Event("a", "miss", 0.0, reason="guard:number", similarity=0.99, other="x"),
        Event("b", "miss", 0.0, reason="guard:number", similarity=0.98, other="x"),
        Event("c", "miss", 0.0, reason="verifier", similarity=0.5, other="x"),
        Event("d", "miss", 0.0, reason="no_candidate"),
    ]

    assert [event.prompt for event in report.refusals()] == ["a", "c", "b"]
    assert [event.prompt for event in report.refusals(2)] == ["a", "c"]


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert percentiles_ms([0.001]) == {"p50": 1.0, "p95": 1.0}
    assert percentiles_ms([n / 1000 for n in range(1, 101)]) == {"p50": 50.0, "p95": 95.0}


def test_the_sample_becomes_questions_with_answers_and_groups() -> None:
    sample = load_sample()
    stream = from_sample(traffic(sample, requests=300, seed=1))

    known = wordings(sample)
    assert all(known[question.prompt] == question.group for question in stream)
    ask = stored_answers(stream)
    assert ask(CacheRequest(stream[0].prompt)) == stream[0].answer


@pytest.mark.parametrize("seed", [1, 2])
def test_at_most_seven_of_a_hundred_hits_of_the_demo_are_wrong(seed: int) -> None:
    sample = load_sample()
    stream = from_sample(traffic(sample, requests=600, seed=seed))
    report = Report("the sample", measured=False)
    with SemanticCache.open("memory://", policy=Policy(deadline=10.0)) as cache:
        play(cache, stream, stored_answers(stream), report, model="stored-sample", groups=wordings(sample))

    assert report.count("failed") == 0
    assert report.count("semantic") >= 60
    assert report.judged >= 300
    assert len(report.wrong) / report.judged <= 0.07, [(e.prompt, e.other) for e in report.wrong_pairs()]


def test_a_question_without_an_answer_needs_a_model() -> None:
    with pytest.raises(ConfigurationError, match="no stored answer; give --base-url"):
        stored_answers([Question("How?")])


def test_questions_are_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("How?\n\n  Why?  \n", encoding="utf-8")

    assert read_questions(file) == [Question("How?"), Question("Why?")]


def test_questions_are_read_from_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [
        {"question": "How?", "answer": "So.", "group": 7},
        {"text": "Why?", "cluster": "c"},
        {"prompt": "Who?"},
    ]
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")

    assert read_questions(file) == [Question("How?", "7", "So."), Question("Why?", "c"), Question("Who?")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "holds no question"),
        ("a.txt", b"\xff\xfe", "can't be read"),
        ("a.jsonl", b'{"question": "a"}\nnonsense\n', "line 2: "),
        ("a.jsonl", b'{"id": 1}', "line 1: found no question"),
        ("a.jsonl", b"[1]", "line 1: found list"),
        ("a.jsonl", b'{"question": "a", "answer": 3}', "line 1: the answer is int"),
    ],
    ids=["empty", "not-utf8", "not-json", "no-question", "a-list", "answer-not-text"],
)
def test_a_bad_file_of_questions_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)

    with pytest.raises(ConfigurationError, match=message):
        read_questions(file)


def test_a_missing_file_of_questions_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.txt can't be read"):
        read_questions(tmp_path / "nowhere.txt")
