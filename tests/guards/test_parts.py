"""A prompt that asks for two things isn't answered by the answer to one of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semcache.guards import analyse, compare
from semcache.guards.parts import parts
from tests.guards.judging import served

MORE = [
    ("How do I reset my password?", " And where do I find my invoice?"), ("Write a haiku about spring.", " Then translate it into German."),
    ("What is the capital of France", " and its population"), ("How long do eggs keep in the fridge?", " Can I freeze them?"),
    ("What are the side effects of ibuprofen?", " Can I take it with alcohol?"), ("Explain how TCP works.", " Give an example in Python."),
    ("Who wrote Hamlet?", " When was it written?"), ("Recommend a good pasta recipe.", " What wine goes with it?"),
    ("Summarize this article in three sentences.", " Also list the main arguments as bullet points."),
    ("How do I install Docker on Ubuntu?", " How do I run it without sudo?"), ("Plan a weekend in Rome.", " Keep it under 300 euros."),
    ("What is Docker?", " Who uses it?"), ("What is Docker?", " Is it free?"), ("Where was Bach born", " and where did he die"),
    ("What are the pros of nuclear power?", " And the cons?"), ("Write a haiku about autumn", " without using the word leaf"),
    ("Plan a 3-day trip to Rome", " on a budget"), ("糖尿病有什么症状？", "怎么治疗？"), ("什么是生酮饮食？", "有什么好处？"),
    ("我的密码忘了怎么办？", "还有发票在哪里下载？"), ("写一首关于春天的诗。", "然后翻译成英文。"), ("怎么取消订阅？", "这个月还会扣费吗？"),
    ("北京到上海的高铁要多久？", "票价多少？"),
]  # fmt: skip
ASKED_IN_A_CLAUSE = [
    ("The grant pays for travel", ", who decides"), ("I have a red one and a blue one", ", which is lighter"), ("My flight was cancelled", ", where to complain"),
    ("The oven has a steam mode", ", how do I clean it."), ("The trail ends at a lake", ", is the water warm."), ("The trail ends at a lake", ", where can I rent a boat."),
    ("I rent a flat", ", who pays for the boiler."), ("My phone fell in water", ", which drying method works."), ("List the planets.", " Print(x) in Python: explain it."),
    ("Explain what a valve does", ", where it is mounted and who invented it"), ("How long is the tunnel?", " When applicable, what does it cost?"),
]  # fmt: skip
CHANGED = [
    ("How do I reset my password?", "Where do I find my invoice?", "How do I close my account?"),
    ("I have a cat.", "What should I feed it?", "How often should I bathe it?"),
    ("My flight was cancelled.", "Can I get a refund?", "Can I rebook for free?"),
    ("My grandson swallowed chewing gum,", "how long does it stay inside him?", "should I call a doctor?"),
    ("我买了一双鞋。", "怎么退货？", "怎么清洗？"), ("我家孩子三岁了。", "每天要睡多久？", "要打什么疫苗？"),
]  # fmt: skip
SAME = [
    ("How do I reset my password?", "How do I reset my password? Thanks!"), ("How do I reset my password?", "How do I reset my password? Any ideas?"),
    ("How do I block my lost card?", "I lost my card. How do I block my lost card?"), ("Can I take ibuprofen with alcohol?", "Can I take ibuprofen with alcohol? Is it safe?"),
    ("How do I cancel my order?", "How do I cancel my order? Can someone help me?"), ("What is the capital of France?", "What is the capital of France? Please answer briefly."),
    ("What is Docker? Why would I use it?", "1) What is Docker?\n2) Why would I use it?"),
    ("What is Docker? Why would I use it?", "What is Docker? Also, why would I use Docker?"),
    ("How do I reset my password?", "How do I reset my password? Please advise."), ("怎么重置密码？", "怎么重置密码？步骤是什么？"),
    ("The oven has a steam mode, which keeps the crust soft.", "The oven comes with a steam mode that keeps the crust soft."),
    ("Our lab tests water samples on Tuesdays, when staff are available.", "On Tuesdays our lab tests samples of water if staff are available."),
    ("The library lends tablets, where possible", "The library lends tablets if possible"),
    ("Membership, once it has lapsed, can be renewed at the counter.", "A lapsed membership may be renewed at the counter."),
    ("Run `python -c \"import numpy; print(numpy.pi)\"` to check that numpy works.", "To see whether numpy works, run `python -c \"import numpy; print(numpy.pi)\"`."),
    ("import math; print(math.tau)", "Try this: import math; print(math.tau)"),
    ("What is the best rice cooker under Rs. 3000 for two people?", "Which rice cooker under Rs 3000 is best for two people?"),
    ("I lost the key of my bike lock, how can I open it?", "How do I open a bike lock without its key?"),
    ("My landlord wants to raise the rent by a third. Is that allowed?", "May a landlord raise the rent by a third?"),
    ("I'd like to hang a hammock between two pines, what are my options?", "Hanging a hammock between two pines."),
    ("几天前，我的护照丢了，怎么补办？", "护照丢了怎么补办"), ("打印机卡纸了，怎么取出来？请赐教", "打印机卡纸怎么取出来"),
    ("Would Mr. Smith be a good mayor?", "Would Mr. Smith make a good mayor?"), ("怎么取消订阅？", "怎么取消订阅？谢谢！"),
]  # fmt: skip


def said(one: str, other: str) -> str:
    return parts(compare(analyse(one), analyse(other))).verdict


@pytest.mark.parametrize(("first", "more"), MORE + ASKED_IN_A_CLAUSE)
def test_a_second_demand_is_another_prompt(first: str, more: str) -> None:
    assert said(first, first + more) == said(first + more, first) == "refuse"


@pytest.mark.parametrize(
    ("first", "more"),
    [("介绍秦始皇陵的位置", "和门票"), ("说说失眠的原因。", "及对策"), ("多肉怎么浇水", "和换盆？"), ("给出这道题的答案", "以及步骤说明。")],
)  # fmt: skip
def test_a_thing_named_beside_what_a_chinese_prompt_ends_with_is_asked_too(first: str, more: str) -> None:
    assert said(first, first.rstrip("。") + more) == said(first.rstrip("。") + more, first) == "refuse"


@pytest.mark.parametrize(("shared", "one", "other"), CHANGED)
def test_two_demands_behind_one_sentence_are_never_served_for_each_other(
    shared: str, one: str, other: str
) -> None:
    assert served([(f"{shared} {one}", f"{shared} {other}")]) == []


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_asks_for_nothing_more_passes(one: str, other: str) -> None:
    assert said(one, other) != "refuse"
    assert said(other, one) != "refuse"


QUESTIONS = {
    "en": [
        "How do I renew my passport?", "What is a good name for a parrot?", "Why does my radiator bang at night?", "Who painted the Night Watch?",
        "Can I grow lemons on a balcony?", "When was the telescope invented?", "How much does a piano weigh?", "Where do swallows spend the winter?",
        "What is the plural of octopus?", "Should I rent or buy skis?", "How is blue cheese made?", "Which visa does a journalist need?",
    ],
    "zh": [
        "护照怎么续期？", "鹦鹉叫什么名字好听？", "暖气片半夜为什么会响？", "夜巡是谁画的？", "阳台上能种柠檬吗？", "望远镜是什么时候发明的？", "一架钢琴有多重？",
        "燕子在哪里过冬？", "滑雪板是租还是买？", "蓝纹奶酪怎么做？", "记者要办什么签证？", "苹果树什么时候剪枝？",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("language", "between"), [("en", " "), ("zh", "")])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_of_several_questions_each_counts(language: str, between: str, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.sampled_from(QUESTIONS[language]), min_size=3, max_size=6, unique=True))
    *asked, new = drawn
    place = data.draw(st.integers(0, len(asked) - 1))
    stored = between.join(asked)
    added = between.join([*asked[:place], new, *asked[place:]])
    replaced = between.join([*asked[:place], new, *asked[place + 1 :]])

    assert served([(stored, added), (added, stored), (stored, replaced)]) == []


@pytest.mark.parametrize("text", ["a? " * 2000, "甲？" * 2000, ", how " * 2000, "?" * 4000])
def test_many_parts_are_not_told_apart(text: str) -> None:
    assert said(text, text + "x") == "not_applicable"


@pytest.mark.parametrize(
    "text", ["一" * 310, "第" + "一" * 400, "1" * 400 + "万", "9" * 308 + "k", "一" + "亿" * 60]
)
def test_numbers_beyond_all_bounds_are_read(text: str) -> None:
    assert analyse(text).normal
