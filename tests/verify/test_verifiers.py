"""Verifiers give a probability in time, or none at all."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from semcache.errors import ConfigurationError
from semcache.protocols import Verifier
from semcache.verify import CrossEncoderVerifier, LLMJudgeVerifier


class Scorer:
    def __init__(self, score: float) -> None:
        self.score = score
        self.seen: list[Any] = []

    def predict(self, sentences: Any, **_: Any) -> list[float]:
        self.seen += sentences
        return [self.score]


def judge(reply: str | Exception | threading.Event | None) -> LLMJudgeVerifier:
    def create(**request: Any) -> Any:
        assert request["temperature"] == 0
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, threading.Event):
            reply.wait(30)
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=reply))])

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    return LLMJudgeVerifier(client, "judge-1")


def ask(verifier: Verifier, deadline_s: float = 20.0) -> float | None:
    return verifier.verify("how {stored} late are you open", "opening hours", "9 to 5", deadline_s=deadline_s)


def test_a_cross_encoder_sees_the_stored_prompt_first() -> None:
    scorer = Scorer(0.75)

    assert ask(CrossEncoderVerifier(scorer)) == 0.75
    assert scorer.seen == [("opening hours", "how {stored} late are you open")]


def test_a_raw_logit_becomes_a_probability() -> None:
    probability = ask(CrossEncoderVerifier(Scorer(4.0)))

    assert probability == pytest.approx(0.982, abs=0.001)


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_is_no_sure_opinion(score: float) -> None:
    probability = ask(CrossEncoderVerifier(Scorer(score), to_probability=lambda raw: raw))

    assert probability is None


@pytest.mark.parametrize(("reply", "expected"), [("90", 0.9), ("Score: 5", 0.05), ("100", 1.0), (" 0.", 0.0)])
def test_the_judges_number_is_read(reply: str, expected: float) -> None:
    assert ask(judge(reply)) == pytest.approx(expected)


@pytest.mark.parametrize("reply", ["yes", "", None, "250", ConnectionError("refused")])
def test_an_unreadable_or_failing_judge_has_no_opinion(reply: str | Exception | None) -> None:
    assert ask(judge(reply)) is None


def test_a_late_judge_has_no_opinion() -> None:
    never = threading.Event()

    assert ask(judge(never), deadline_s=0.05) is None
    never.set()


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, float("nan")])
def test_without_time_left_nothing_is_asked(deadline_s: float) -> None:
    scorer = Scorer(1.0)

    assert ask(CrossEncoderVerifier(scorer), deadline_s=deadline_s) is None
    assert not scorer.seen


def test_a_question_without_the_prompts_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="stored"):
        LLMJudgeVerifier(object(), "judge-1", question="same? {query}")


def test_a_real_cross_encoder_gives_a_probability(tmp_path: Any) -> None:
    pytest.importorskip("sentence_transformers")
    transformers = pytest.importorskip("transformers")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "how",
        "late",
        "are",
        "you",
        "open",
        "opening",
        "hours",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=1,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)

    probability = ask(CrossEncoderVerifier(str(tmp_path)), deadline_s=120.0)

    assert probability is not None
    assert 0.0 <= probability <= 1.0
