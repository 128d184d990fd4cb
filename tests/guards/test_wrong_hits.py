"""False friends from public bug reports are refused at a cosine of 0.99; rewordings are not.

The numbers in the ids are those of the project's list of cases.
"""

from __future__ import annotations

import pytest

from semcache.guards import normal_form
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
    ("把闹钟定在早上七点", "把闹钟定在早上七点半", "number"),
    ("两个小时后提醒我关火", "两个半小时后提醒我关火", "number"),
    ("一点八乘以四等于几", "八乘以四等于几", "number"),
    ("零点五加三", "五加三", "number"),
    ("定一个一点40的闹钟", "定一个三点40的闹钟", "number"),
    ("三加五等于多少", "二加三加五等于多少", "number"),
    ("what is 5 plus 3", "what is 5 plus 3 plus 2", "number"),
    ("一公里等于多少米", "一公里等于多少厘米", "unit"),
    ("一米等于几厘米", "一米等于几毫米", "unit"),
    ("price of the galaxy s20", "price of the galaxy z20", "code"),
    ("k7的参数", "k7x的参数", "code"),
    # Chinese, by characters: persons, manner, whom it is for
    ("你想让我给你读首诗", "我想让你给我读首诗", "subject"),
    ("和她说我很想念他", "和他说我很想念她", "subject"),
    ("扫地机器人怎么样", "扫地机器人怎么修", "question"),
    ("人参怎么用", "人参怎么种", "question"),
    ("给王小明打电话", "打电话给王明", "direction"),
    ("发短信给老李", "给老刘发个短信", "direction"),
    # opposites, names, wording
    ("how do I enable two factor login", "how do I disable two factor login", "antonym"),
    ("is it safe to eat before surgery", "is it safe to eat after surgery", "antonym"),
    ("which plants need water", "which plants don't need water", "negation"),
    (
        "How do I share a session across threads?",
        "How do I avoid sharing a session across threads?",
        "negation",
    ),
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
    ("早上七点半叫我", "早上7.5点叫我"),
    ("三点一四乘以二", "3.14乘以2"),
    ("price of the iphone12", "price of the iPhone12"),
    ("oppoa79的屏幕多大", "a79的屏幕多大"),
    ("小布小布，今天会下雨吗", "今天会下雨吗"),
    ("嘿 Siri，播放音乐", "播放音乐"),
    ("那你会说方言吗", "你会说方言吗"),
    ("没有收据怎么退货呢？", "没有收据怎么退货"),
    ("给王小明打电话", "打电话给王小明"),
    ("咖啡机怎么样", "咖啡机如何"),
    ("the config flag can be used to load remote tables", "remote tables can be loaded with the config flag"),
    ("No mention of the flag is made in the manual.", "The flag is not mentioned in the manual."),
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
    ("text", "normal"),
    [("小布丁怎么做", "小 布丁 怎么 做"), ("小布什是谁", "小 布什 是 谁"), ("那天下雨", "那天 下雨"), ("那么多人", "那么 多 人"),
     ("小布", "小 布"), ("哈哈", "哈哈"), ("你呢", "你 呢"), ("一点一点地学", "一点一点 地学"), ("早上七点三十", "早上 7 点 30")],
)  # fmt: skip
def test_what_only_looks_like_a_shell_or_a_decimal_stays(text: str, normal: str) -> None:
    assert normal_form(text) == normal


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
