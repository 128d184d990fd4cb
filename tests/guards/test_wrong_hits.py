"""False friends from public bug reports are refused at a cosine of 0.99; rewordings are not.

The numbers in the ids are those of the project's list of cases.
"""

from __future__ import annotations

import pytest

from semcache.verify import CalibratedMatcher, calibration_for

MATCHER = CalibratedMatcher(calibration_for("use-multilingual-3"))

REFUSED = [
    # 1: direction and roles
    ("How do I convert miles to kilometres?", "How do I convert kilometres to miles?", "direction"),
    ("cheapest train from Oslo to Bergen", "cheapest train from Bergen to Oslo", "direction"),
    ("does inflation imply growth", "does growth imply inflation", "order"),
    ("Does Anna admire Peter?", "Is Anna admired by Peter?", "subject"),
    ("我妈妈叫什么名字", "你妈妈叫什么名字", "subject"),
    ("从北京到上海的高铁票价", "从上海到北京的高铁票价", "direction"),
    ("我很喜欢听你唱歌", "你很喜欢听我唱歌", "order"),
    ("猫比狗聪明吗", "狗比猫聪明吗", "order"),
    ("请问火车比飞机便宜多少钱", "飞机比火车便宜多少钱", "order"),
    ("为什么广州比深圳热", "为什么深圳比广州热", "order"),
    # 3: numbers, dates, versions, sizes, doses, identifiers
    ("what is 17 times 24", "what is 17 times 25", "number"),
    ("dose of ibuprofen for a 20 kg child", "dose of ibuprofen for a 30 kg child", "number"),
    ("how long is 5 miles", "how long is 5 kilometers", "unit"),
    ("upgrade to version 2.10.1", "upgrade to version 2.11.1", "code"),
    ("what happened on 3 May 1998", "what happened on 4 May 1998", "date"),
    ("translate page twelve", "translate page thirteen", "number"),
    ("is 9 bigger than 7", "is 7 bigger than 9", "order"),
    ("send 50 dollars to Tom", "send 50 euros to Tom", "currency"),
    ("set an alarm for 6 am", "set an alarm for 6 pm", "time"),
    ("三个月利息是多少", "六个月利息是多少", "number"),
    ("十分钟后提醒我", "十小时后提醒我", "unit"),
    ("明天天气怎么样", "昨天天气怎么样", "date"),
    ("一百美元是多少人民币", "一百欧元是多少人民币", "currency"),
    # opposites, names, wording
    ("how do I enable two factor login", "how do I disable two factor login", "antonym"),
    ("is it safe to eat before surgery", "is it safe to eat after surgery", "antonym"),
    ("which plants need water", "which plants don't need water", "negation"),
    ("如何开通短信提醒", "如何关闭短信提醒", "antonym"),
    ("这个手机能防水吗", "这个手机不能防水吗", "antonym"),
    ("weather in Lisbon", "weather in Madrid", "place"),
    ("Who founded the company Siemens?", "Who founded the company Philips?", "name"),
    ("feed my hamster lettuce", "feed my parrot lettuce", "substitution"),
    ("Is she a teacher?", "Is she an experienced teacher?", "qualifier"),
    ("when did the train leave", "why did the train leave", "question"),
]
SERVED = [
    ("What is 10 % of 250?", "what is ten percent of 250"),
    ("Remind me at 8 pm please", "remind me at 8:00 PM"),
    ("I'd like 5,000 euros", "I would like 5000 euros"),
    ("flights from Oslo to Bergen", "from Oslo to Bergen flights"),
    ("Are Tom and Jane married?", "Are Jane and Tom married?"),
    ("Does Anna admire Peter?", "Is Peter admired by Anna?"),
    ("请问三个月利息是多少？", "3个月利息是多少"),
    ("在２０２４年", "在2024年"),
    ("您能给我讲个故事吗", "你能给我讲个故事吗"),
    ("how can I buy a car", "how can I purchase a car"),
    ("猫比狗聪明吗", "请问猫比狗聪明吗？"),
    ("苹果和梨的比较", "梨和苹果的比较"),
    ("Is the shop open", "Is the shop really open"),
]


@pytest.mark.parametrize(("stored", "asked", "guard"), REFUSED, ids=[r[1] for r in REFUSED])
def test_a_false_friend_is_refused_by_its_guard(stored: str, asked: str, guard: str) -> None:
    there, back = MATCHER.judge(asked, stored, 0.99), MATCHER.judge(stored, asked, 0.99)

    assert there.reason == back.reason == f"guard:{guard}"
    assert there.detail


@pytest.mark.parametrize(("stored", "asked"), SERVED, ids=[s[1] for s in SERVED])
def test_a_rewording_is_served(stored: str, asked: str) -> None:
    assert MATCHER.judge(asked, stored, 0.95).reason is None


@pytest.mark.parametrize(
    ("stored", "asked"),
    [("hello there", "2 + 2"), ("good morning", "good evening"), ("hi", "weather today"), ("a = b", "a == b"),
     ("C++ tutorial", "C# tutorial"), ("what does () mean", "what does [] mean"), ("open main.py", "open main.js")],
)  # fmt: skip
def test_unrelated_short_prompts_and_symbols_never_share_an_answer(stored: str, asked: str) -> None:
    assert MATCHER.judge(asked, stored, 0.8).reason is not None


def test_explain_says_which_rule_and_what_it_found() -> None:
    said = MATCHER.judge("set an alarm for 6 pm", "set an alarm for 6 am", 0.98, explain=True)

    (time,) = (f for f in said.findings if f.rule == "time")
    assert time.verdict == "refuse"
    assert "18:00" in time.detail
    assert {f.verdict for f in said.findings if f.rule == "currency"} == {"not_applicable"}
