"""Small changes that a cosine hardly sees, and rewordings that resemble them: what each guard says of a pair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache.guards import GUARDS, analyse, compare, han
from semcache.verify import CalibratedMatcher, calibration_for

MATCHER = CalibratedMatcher(calibration_for("use-multilingual-3"))
REFUSED = [
    ("number", "Tell me a fact about owls.", "Tell me ten facts about owls."),
    ("number", "Write a haiku about autumn.", "Write five haikus about autumn."),
    ("code", "what does ls -a do", "what does ls -A do"),
    ("qualifier", "lasagne recipe for six people", "vegan lasagne recipe for six people"),
    ("qualifier", "Name the largest lake in Africa.", "Name the second largest lake in Africa."),
    ("qualifier", "give me ten baby names from ireland", "give me ten unisex baby names from ireland"),
    ("qualifier", "买手机要检查哪些地方", "买二手手机要检查哪些地方"),
    ("question", "How long is the Suez Canal?", "Who owns the Suez Canal?"),
    ("question", "When was the telescope invented?", "Where was the telescope invented?"),
    ("question", "is it legal to fly a drone over a public beach in spain", "how do i fly a drone over a public beach in spain"),
    ("question", "Which type of lamp do I need for a small kitchen?", "How many lamps do I need for a small kitchen?"),
    ("question", "What is in a Bloody Mary?", "Who invented the Bloody Mary?"),
    ("subject", "i snore like a chainsaw, how do i get some sleep", "my wife snores like a chainsaw, how do i get some sleep"),
    ("subject", "my boss owes me 500 dollars, how do i bring it up", "i owe my boss 500 dollars, how do i bring it up"),
    ("antonym", "I'm left-handed, on which wrist is a watch worn?", "I'm right-handed, on which wrist is a watch worn?"),
    ("antonym", "My ficus gets too much light", "My ficus gets too little light"),
    ("antonym", "looking for new tyres for a Golf", "looking for used tyres for a Golf"),
    ("antonym", "股票涨停了还能买进去吗", "股票跌停了还能买进去吗"),
    ("antonym", "顺时针拧是松还是紧", "逆时针拧是松还是紧"),
    ("negation", "toxic houseplants for cats, a list", "non-toxic houseplants for cats, a list"),
    ("negation", "老公同意要二胎，我该怎么办", "老公不同意要二胎，我该怎么办"),
    ("direction", "a checklist for moving to a rented flat", "a checklist for moving out of a rented flat"),
    ("order", "A公司收购B公司以后，股票怎么办", "B公司收购A公司以后，股票怎么办"),
    ("order", "数学题，甲是乙的3倍，甲是多少", "数学题，乙是甲的3倍，甲是多少"),
    ("order", "象棋里马能吃炮要满足什么条件", "象棋里炮能吃马要满足什么条件"),
    ("language", "帮忙中译英：本店不打烊", "帮忙中译法：本店不打烊"),
    ("language", "说明书需要一份荷兰语的", "说明书需要一份波兰语的"),
    ("code", "What does a + b return in Python?", "What does a - b return in Python?"),
    ("code", "What does x/y mean?", "What does x-y mean?"),
    ("code", "What does arr[0] return?", "What does arr(0) return?"),
    ("code", "What does `Session.close` do?", "What does `Session.open` do?"),
    ("code", "does `git stash pop` remove the stash", "does `git stash apply` remove the stash"),
    ("code", "Is Load_image() slower than load_image()?", "Is Load_image() slower than Load_image()?"),
    ("code", "How do I call Parse_header twice?", "How do I call parse_header twice?"),
    ("code", "rtx 4070 for gaming", "rtx 4070ti for gaming"),
    ("name", "Is a LinkedHashMap faster in Java?", "Is a TreeMap faster in Java?"),
    ("name", "A LinkedHashMap keeps the order", "A Map that is Sorted keeps the order"),
    ("name", "Which museums show films in French?", "Which museums in France show films?"),
    ("name", "Is British tea strong?", "Is tea strong in France?"),
    ("name", "Did Dvořák write operas?", "Did Janáček write operas?"),
    ("name", "Is there a Djangoic way to write a view?", "Is there a way to write a view in Flask?"),
    ("name", "Which is stronger, Superman or Hulk?", "Which is stronger, Superman or Thor?"),
    ("name", "Compare Target, Amazon and Costco on prices", "Compare Walmart, Amazon and Costco on prices"),
    ("name", "Who sang better, Rice or Baker, in Evita?", "Who sang better, Rice or Page, in Evita?"),
    ("name", "link to a minute in a deezer playlist", "how do i link to one minute of a spotify playlist"),
    ("name", "pay a friend through paypal safely", "safely pay friends through venmo"),
    ("name", "share a board in trello with my team", "how can my team get a board shared in jira"),
    ("name", "the strap of my garmin broke", "my fitbit strap broke, what now"),
    ("name", "does my netflix plan include sports", "is sport part of my hulu plan"),
    ("code", "what does price/earnings mean", "what does price*earnings mean"),
    ("code", "what does git commit --amend do", "what does git commit -amend do"),
    ("name", "Which HashMap is slow?", "Which Hash or Map is slow?"),
    ("code", "docker rm后面该跟什么参数", "docker rmi后面该跟什么参数"),
    ("code", "Go里make返回的是指针吗", "Go里new返回的是指针吗"),
    ("code", "bash: what does $? hold", "bash: what does $# hold"),
    ("code", "Tell me the ASCII code of 'A'", "Tell me the ASCII code of 'a'"),
    ("code", r"does \d+ match abc", r"does \D+ match abc"),
    ("code", ".gitignore里写 *.log 会怎么样", ".gitignore里写 !*.log 会怎么样"),
]  # fmt: skip
PASSED = [
    ("qualifier", "What is the difference between a lake and a pond?", "What is the basic difference between a lake and a pond?"),
    ("qualifier", "show me the movie times", "show me the current movie times"),
    ("question", "How long should soft eggs cook?", "How many minutes should soft eggs cook?"),
    ("question", "Is it possible to export my notes?", "How can I export my notes?"),
    ("question", "When was the telescope invented?", "What year was the telescope invented?"),
    ("question", "Who is the president of France? And since when?", "Since when is the president of France in office, and who is it?"),
    ("question", "Where is the best baker in town?", "Who is the best baker in town?"),
    ("subject", "help me lose weight", "how do i lose weight"),
    ("subject", "What if my landlord sues me?", "my landlord is suing me, what now?"),
    ("order", "A和B哪个好", "B和A哪个好"),
    ("order", "香蕉好还是苹果好", "苹果好还是香蕉好"),
    ("negation", "能删除微信吗", "能不能删除微信吗"),
    ("language", "英语怎么学", "怎么学好英语"),
    ("code", "The audit has two stages: 1) it counts the stock, and 2) it checks the two-way ledger.", "The audit is a two-stage process: it counts the stock, then checks the ledger."),
    ("code", "To brew tea: (a) warm the pot (b) add leaves", "To brew tea, warm the pre-heated pot, then add leaves"),
    ("code", "Compare trains/buses for commuters", "Compare trains (and buses) for commuters"),
    ("code", "The film -- a comedy -- was shot in Malta", "The film-a comedy-was shot in Malta"),
    ("code", "`Session.close` releases the socket.", "Session.close releases the socket."),
    ("substitution", "`Session.close` releases the socket.", "Session.close releases the socket."),
    ("code", "Run `npm install left-pad` in the folder", "Run npm install left-pad in the folder"),
    ("code", "Set ``` max_conn = 5 ``` in app.cfg", "Set max_conn = 5 in the file app.cfg"),
    ("code", "Open_valve() starts the pump.", "The pump is started by open_valve()."),
    ("code", "Two ways. Load_image() returns pixels", "load_image() returns pixels, two ways"),
    ("code", "How do I read sensor_A with the ESP?", "how do i read sensor_a with the esp?"),
    ("code", "What does load_image() return?", "What does load_image return?"),
    ("code", "Decorate a room with a 1970's feel", "Decorate a room with a 1970s feel"),
    ("code", "Is a flat for 900eur ok for a student?", "Is a flat for 900 ok for a student?"),
    ("code", "hello你会唱歌吗", "hi你会唱歌吗"),
    ("code", "打开设置--账户--安全", "打开设置-账户-安全"),
    ("name", "A LinkedHashMap is a map that keeps the order", "A HashMap that is Linked is a map that keeps the order"),
    ("substitution", "FrameBuffer holds pixels of a picture", "A Buffer for each Frame holds pixels of a picture"),
    ("name", "The chapters are: Sow the seeds, Water often, Harvest, Store the crop, and Sell.", "The chapters comprise: Sowing the seeds, Watering often, Harvesting, Keeping the crop, and Selling."),
    ("name", "Our menu has Soups of the day, Grilled fish, Desserts and Drinks.", "Our menu consists of Starters of the day, Grilled seafood, Sweets and Beverages."),
    ("name", "Is there a Djangoic way to write a view?", "How does one write a view in the way of Django?"),
    ("name", "Who are the best MCs in town?", "Who is the best MC in town?"),
    ("name", "Did Dvořák write operas?", "Did Dvorak write any operas?"),
    ("name", "Is British tea strong?", "Is tea strong in the UK?"),
    ("substitution", "Are French trains punctual?", "Are trains in France punctual?"),
    ("name", "Which Dutch towns are by the sea?", "Which towns in the Netherlands are by the sea?"),
    ("name", "reset the password of my instagram page", "my insta page needs its password reset"),
    ("name", "the best inspirational books", "motivational books, the best ones please"),
    ("name", "the weirdest place to sleep", "the craziest place to sleep in"),
    ("name", "what everyone should know about jazz", "what everybody should know about jazz"),
    ("name", "can i watch livestreams for free", "can i watch live streams for free"),
    ("name", "a spotfy playlist for runners", "playlists of spotify for a runner"),
    ("name", "how do i cancel my lapotp plan", "cancel my spotify plan on the laptop"),
    ("name", "mute a group in whatsapp", "how can i mute groups"),
    ("code", "怎么在Ubuntu上安装Node.js？", "如何在 Ubuntu 上安装 Node.js"),
    ("code", "__init__在Python里是什么意思？", "Python里的__init__是什么意思？"),
    ("question", "What is Docker? Why would I use it?", "Why would I use Docker? What is it?"),
    ("code", "我的OPPO密码忘了", "OPPOA5忘记密码"),
    ("code", "这部是OPPO几", "这个是oppo几"),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "one", "other"), REFUSED)
def test_a_small_change_is_refused_by_its_guard(guard: str, one: str, other: str) -> None:
    for a, b in ((one, other), (other, one)):
        said = {name: rule(compare(analyse(a), analyse(b))).verdict for name, rule in GUARDS}

        assert said[guard] == "refuse"
        assert str(MATCHER.judge(a, b, 0.99).reason).startswith("guard:")


@pytest.mark.parametrize(("guard", "one", "other"), PASSED)
def test_a_rewording_passes_that_guard(guard: str, one: str, other: str) -> None:
    for a, b in ((one, other), (other, one)):
        assert dict(GUARDS)[guard](compare(analyse(a), analyse(b))).verdict != "refuse"


@pytest.mark.parametrize("text", ["zqxj" * 3000, "zq " + "xj" * 5000 + " plan"])
def test_a_word_of_any_length_is_compared_at_once(text: str) -> None:
    c = compare(analyse(f"my {text} plan ends"), analyse("my spotify plan ends today"))

    assert dict(GUARDS)["name"](c).verdict


@pytest.mark.parametrize("text", ["`a b` " * 3000, "x_1 " * 3000, "(ab " * 3000, "1) " * 3000, "- a " * 3000])
def test_much_code_is_compared_at_once(text: str) -> None:
    c = compare(analyse(text + "one_1"), analyse(text + "One_2 `c`"))

    assert all(rule(c).verdict for _, rule in GUARDS)


LATIN_WORDS = st.lists(
    st.sampled_from(["nova", "nova5", "nova5pro", "watch", "pro", "a7", "手机", "的", "怎么", "开机", "sim"]),
    max_size=6,
).map(" ".join)


@given(a=LATIN_WORDS, b=LATIN_WORDS)
def test_words_in_latin_letters_are_told_apart_whichever_text_comes_first(a: str, b: str) -> None:
    there, back = han.latin(a, b), han.latin(b, a)

    assert there == (back and back[::-1])
