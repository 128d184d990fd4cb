"""Prompts that share a passage and ask something else beside it are told apart; the default encoder takes them for near."""

from __future__ import annotations

import numpy as np
import pytest

from semcache.guards import analyse, compare
from semcache.guards.context import context
from tests.guards.judging import served, similarities

PASSAGES = {
    "en": [
        "Orders above 50 euros are sent free of charge within three working days, and may be returned within thirty days of delivery.",
        "The lighthouse was built in 1874 by Erik Hansen, stands 31 metres high, and has been run without a keeper since 1969.",
        "Our premium plan costs 12 dollars a month for up to five users, includes phone support and renews by itself every year.",
        "Maria started the bakery with her brother in 2009, moved it to Porto four years later and sold it to a chain last spring.",
    ],
    "zh": [
        "本店订单满三百元免运费，三个工作日内发货，收到商品后三十天内可以申请退货，定制商品除外。",
        "这座灯塔由王建国于一八七四年建成，高三十一米，自一九六九年起不再有人看守，现在对游客开放。",
    ],
}
QUESTIONS = {
    "en": [
        ("How much does it cost?", "How long does it take?"),
        ("Who is it about?", "When did it end?"),
        ("Summarise this in one sentence.", "Translate this into French."),
        ("What happens first?", "Is anything said about children?"),
        ("Which number is the largest?", "Which city is named?"),
    ],
    "zh": [
        ("要多少钱？", "需要多长时间？"),
        ("请用一句话总结。", "请翻译成英文。"),
        ("主角是谁？", "什么时候结束的？"),
    ],
}
FORMS = {
    "en": ("{passage}\n\n{question}", "Context: {passage} Question: {question}", "{question}\n{passage}"),
    "zh": ("{passage}\n{question}", "背景：{passage}问题：{question}"),
}
CASES = [
    (form.format(passage=passage, question=one), form.format(passage=passage, question=other))
    for language, forms in FORMS.items()
    for form in forms
    for passage in PASSAGES[language]
    for one, other in QUESTIONS[language]
]


def test_two_questions_about_one_passage_are_told_apart() -> None:
    assert float(np.median(similarities(CASES))) > 0.75
    assert len(CASES) > 60
    assert served(CASES) == []


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ("What does it cost?", "What is the price?", "not_applicable"),
        ("{p} What does it cost?", "What does it cost? {p}", "not_applicable"),
        ("{p} What does the plan cost?", "{p} What would the plan cost me?", "pass"),
        ("{p} What does it cost?", "{p} Who sells it?", "refuse"),
        ("What does it cost? {p}", "{p} Who sells it?", "refuse"),
        ("{p} What does it cost?", "{p}", "not_applicable"),
        ("{p} What does it cost?", "Another passage of more than sixty characters stands here. What does it cost?", "not_applicable"),
    ],
)  # fmt: skip
def test_only_a_shared_passage_makes_the_rest_decide(a: str, b: str, verdict: str) -> None:
    passage = PASSAGES["en"][2]
    said = context(compare(analyse(a.format(p=passage)), analyse(b.format(p=passage))))

    assert said.verdict == verdict
