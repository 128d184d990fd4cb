"""The sample that ships, and the stream made from it."""

from __future__ import annotations

from collections import Counter
from importlib import resources

import pytest

from semcache.errors import ConfigurationError
from semcache.sample import SampleQuestion, load_sample, traffic

SAMPLE = load_sample()


def _wordings(question: SampleQuestion) -> list[str]:
    return [question.question, *question.rephrasings, *(friend.question for friend in question.false_friends)]


def test_the_sample_has_real_questions_in_two_languages() -> None:
    faq = [question for question in SAMPLE if question.source == "python-faq"]

    assert len(faq) >= 120
    assert sum(bool(question.rephrasings) for question in faq) >= 60
    assert sum(question.lang == "zh" for question in SAMPLE) >= 25
    assert sum(len(question.false_friends) for question in SAMPLE) >= 15
    assert all(0 < len(question.answer) <= 1200 for question in SAMPLE)


def test_no_wording_belongs_to_two_questions() -> None:
    wordings = Counter(text.strip().lower() for question in SAMPLE for text in _wordings(question))

    assert [text for text, number in wordings.items() if number > 1] == []
    assert len({question.question_id for question in SAMPLE}) == len(SAMPLE)


def test_every_false_friend_has_an_answer_of_its_own() -> None:
    for question in SAMPLE:
        for friend in question.false_friends:
            assert friend.answer
            assert friend.answer != question.answer


def test_the_attribution_ships_beside_the_sample() -> None:
    folder = resources.files("semcache") / "data" / "sample"

    assert "Python Software Foundation" in (folder / "README.md").read_text(encoding="utf-8")
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in (folder / "LICENSE.PSF").read_text(
        encoding="utf-8"
    )


def test_the_same_seed_gives_the_same_stream() -> None:
    assert traffic(SAMPLE, requests=50, seed=3) == traffic(SAMPLE, requests=50, seed=3)
    assert traffic(SAMPLE, requests=50, seed=3) != traffic(SAMPLE, requests=50, seed=4)


def test_the_stream_has_every_kind_and_few_questions_make_most_of_it() -> None:
    stream = traffic(SAMPLE, requests=600, seed=1)

    kinds = Counter(request.kind for request in stream)
    assert set(kinds) == {"question", "repeat", "rephrasing", "false_friend", "singleton"}
    assert min(kinds.values()) >= 15
    counts = sorted(Counter(request.question_id for request in stream).values(), reverse=True)
    assert sum(counts[:20]) > len(stream) / 3


def test_a_repeat_repeats_a_wording_and_nothing_else_does() -> None:
    seen: set[str] = set()
    for request in traffic(SAMPLE, requests=600, seed=2):
        assert (request.prompt in seen) == (request.kind == "repeat")
        seen.add(request.prompt)


def test_a_false_friend_comes_after_its_question() -> None:
    asked: set[str] = set()
    for request in traffic(SAMPLE, requests=600, seed=5):
        if request.kind == "false_friend":
            assert request.question_id.rpartition("/")[0] in asked
        asked.add(request.question_id)


def test_answers_go_with_questions() -> None:
    answers: dict[str, str] = {}
    for request in traffic(SAMPLE, requests=600, seed=6):
        assert answers.setdefault(request.question_id, request.answer) == request.answer


def test_a_stream_needs_a_length_and_rephrasings() -> None:
    assert traffic(SAMPLE, requests=0, seed=1) == []
    with pytest.raises(ConfigurationError, match="expected 0 or more"):
        traffic(SAMPLE, requests=-1, seed=1)
    with pytest.raises(ConfigurationError, match="no question with rephrasings"):
        traffic([question for question in SAMPLE if not question.rephrasings], requests=1, seed=1)
