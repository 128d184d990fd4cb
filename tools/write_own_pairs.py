"""Write tests/guards/pairs_<lang>.jsonl: fifty pairs per guard, from sentences and contrasts of our own.

The sentences were written after the rules were frozen, and use no text of the evaluation data. Each
guard gets ten frames and five contrasts; a frame and a contrast make one pair that asks something else.
`same` rows are rewordings that must survive.

Run: python tools/write_own_pairs.py
"""

from __future__ import annotations

import json
from pathlib import Path

OUT = Path(__file__).parent.parent / "tests" / "guards"
Table = dict[str, tuple[str, str]]  # guard → frames with {} (one a line), contrasts `x | y` (one a line)

ENGLISH: Table = {
    "number": (
        "how do I divide a cake into {} pieces\nbook seats for {} passengers\nwhy does my oven show error {}\nmy parrot is {} years old, is that rare\n"
        "print {} copies of the contract\nis a salary of {} enough for a family\nwhich bus runs on line {}\nhow many tiles cover {} walls\n"
        "summarise chapter {} of the report\nrestart the server after {} failed logins",
        "4 | 7\ntwelve | 13\n250 | 2500\n8 | eighteen\n36 | 63",
    ),
    "date": (
        "is the museum open on {}\nwhat did the board decide on {}\nmove my appointment to {}\nwhich matches are played on {}\nshow the invoices issued on {}\n"
        "will it rain on {}\nhow busy is the clinic on {}\nremind me of the deadline on {}\ndoes the ferry run on {}\nwho is on duty on {}",
        "monday | thursday\nmarch 5th | march 15th\njune 2 2021 | june 2 2022\nfriday | saturday\n3 august | 3 october",
    ),
    "time": (
        "wake me at {}\nis there a train at {}\ncan I call the office at {}\nstart the dishwasher at {}\nhow warm will it be at {}\nwhen I land at {}, is the metro open\n"
        "reserve the tennis court at {}\nswitch the lights off at {}\ndoes the bakery have bread at {}\nfeed the fish at {}",
        "7 am | 7 pm\n5:30 pm | 6:30 pm\nnoon | midnight\n9 o'clock am | 11 am\n10:15 | 10:45",
    ),
    "unit": (
        "how far is 12 {} on foot\nhow heavy is a rope of 30 {}\nis 40 {} a lot\nconvert 3 {} for me\nhow should I store 25 {} of it\nwhat costs 8 {} of it\n"
        "can a child carry 6 {}\nexplain what 90 {} means\nis a tank of 60 {} enough\nwait 15 {} before the next step",
        "miles | kilometers\nkilograms | ounces\nliters | gallons\nminutes | hours\nweeks | days",
    ),
    "currency": (
        "transfer 70 {} to my landlord\nhow much is a stamp in {}\ncan I pay the hotel with 200 {}\nis 15 {} a fair price for lunch\nset the budget to 900 {}\nrefund me the 45 {}\n"
        "what does a ticket for 60 {} include\ndonate 10 {} to the shelter\nexchange 300 {} at the airport\ninsure the parcel for 500 {}",
        "dollars | euros\npounds | yen\nrupees | dollars\nfrancs | pesos\neuros | pounds",
    ),
    "antonym": (
        "how do I {} the alarm\nwhy did the app {} my contacts\nwho may {} the gate\nwhen should I {} the backup\nis it hard to {} the firewall\ncan the nurse {} the pump remotely\n"
        "what happens if I {} the plugin\nshow me where to {} the camera\nhow often must we {} the valve\nwhich key do I press to {} the panel",
        "open | close\nenable | disable\nlock | unlock\nstart | stop\ninstall | uninstall",
    ),
    "negation": (
        "which fruits {} grow in deserts\nwhy {} my neighbours recycle\nwhat if the guests {} like fish\nshow the clients who {} pay online\nhow many of the trains {} stop here\n"
        "name three birds that {} migrate\nwhich of these books {} mention Rome\nwho are the players that {} train on sunday\nwhen the pumps {} start, whom do I call\nwhich countries {} border the sea",
        "do | do not\ndo | don't\ncan | cannot\nwill | will not\nshould | should not",
    ),
    "place": (
        "find me a plumber in {}\nwhat is the population of {}\nis tap water safe in {}\nwhich holidays are celebrated in {}\nrent a van near {}\nhow do taxis work in {}\n"
        "universities for music in {}\nwhat time is it in {}\nbest season to hike in {}\nopen a bank account in {}",
        "Denmark | Portugal\nChicago | Houston\nBerlin | Vienna\nKenya | Peru\nNew Zealand | South Korea",
    ),
    "name": (
        "Which novels did {} write?\nWhere was {} educated?\nWhat is {} best known for?\nShow me interviews with {}.\nHow old was {} in her first film?\nDid {} ever work with Kubrick?\n"
        "I want the address of {} in our directory.\nWhy did {} leave the company?\nHow tall is {} really?\nForward this note to {} today.",
        "Agatha Morton | Agatha Bellamy\nZelda Quist | Pernille Aas\nOdenkirk | Tillmann\nMarisol Vega | Marisol Duarte\nIgnatius | Bartholomew",
    ),
    "code": (
        "what does {} return\nwhy is {} deprecated\nshow an example with {}\nwhere is {} documented\nhow slow is {} on large inputs\nwho wrote {}\nis {} thread safe\n"
        "how do I test {}\nrename {} everywhere\nwhich release introduced {}",
        "read_csv() | read_json()\nmain.py | setup.py\nv1.4.2 | v1.4.3\nmax_depth | min_samples\nC++ | C#",
    ),
    "quote": (
        "what is the meaning of \"{}\" here\nwho first said \"{}\" in public\nhow is \"{}\" pronounced\ntranslate \"{}\" for a menu\nwhy does the label read \"{}\"\n"
        "is \"{}\" an insult\nfind a song called \"{}\"\nwhere does the phrase \"{}\" come from\nuse \"{}\" in a sentence\nwhat rhymes with \"{}\"",
        "silver lining | cold turkey\npiece of cake | wild goose chase\nblue moon | red herring\nsea change | last straw\nkeep out | come in",
    ),
    "direction": (
        "ferries from {} to {}\nhow do I drive from {} to {}\nwhat is the fare from {} to {}\ncopy the files from {} to {}\nlist departures from {} to {} tomorrow\n"
        "how long does mail take from {} to {}\nconvert the drawing from {} to {}\nis there a bike path from {} to {}\nmigrate our data from {} to {}\nmove the chairs from {} to {}",
        "Genoa | Palermo\nDover | Calais\nLeeds | York\nSeattle | Portland\nOslo | Bergen",
    ),
    "order": (
        "Did {} outrun {}?\nDoes {} trust {}?\nWill {} replace {}?\nHas {} insulted {}?\nCan {} teach {}?\nShould {} forgive {}?\nIs {} avoiding {}?\nDid {} copy {}?\n"
        "Does {} owe {}?\nWould {} defeat {}?",
        "Marta | Oleg\nPedro | Ingrid\nSanjay | Emily\nHelga | Tomas\nYuki | Andre",
    ),
    "subject": (
        "Did {0} paint {1}? | Was {0} painted by {1}?\nDoes {0} admire {1}? | Is {0} admired by {1}?\nDid {0} follow {1}? | Was {0} followed by {1}?\nDoes {0} fear {1}? | Is {0} feared by {1}?\n"
        "Did {0} rescue {1}? | Was {0} rescued by {1}?\nDid {0} invite {1}? | Was {0} invited by {1}?\nDoes {0} respect {1}? | Is {0} respected by {1}?\nDid {0} betray {1}? | Was {0} betrayed by {1}?\n"
        "Did {0} hire {1}? | Was {0} hired by {1}?\nDoes {0} support {1}? | Is {0} supported by {1}?",
        "Marta | Oleg\nPedro | Ingrid\nSanjay | Emily\nHelga | Tomas\nYuki | Andre",
    ),
    "qualifier": (
        "Is Marta {} dentist?\nWas that {} decision?\nIs Oslo {} city?\nWas he {} king?\nIs it {} contract?\nAre you {} robot?\nIs this {} lake?\nWas she {} witness?\nIs yours {} dog?\nWas the trip {} success?",
        "a | a clumsy\na | a popular\na | a dangerous\na | a famous\na | a reliable",
    ),
    "question": (
        "{} did the committee meet\n{} was the bridge built\n{} do the birds gather\n{} should the ceremony begin\n{} is the lamp repaired\n{} does the river freeze\n"
        "{} were the letters hidden\n{} can the engine be tested\n{} will the parade pass\n{} has the museum moved",
        "when | where\nwhy | when\nwhere | why\nhow | why\nhow | where",
    ),
    "substitution": (
        "my {} smells strange\nhow do I clean a {}\nwhere can I donate a {}\nis a {} allowed on the plane\nteach me to draw a {}\nwhat should I pay for a {}\nwhy is the {} so loud\n"
        "which shop repairs a {}\nwrite a poem about a {}\nhow long does a {} last",
        "carpet | teapot\ntrumpet | scooter\nblanket | ladder\nturtle | pigeon\nhelmet | cactus",
    ),
    "language": (
        "how do I {}\nwhere can I {}\nplease explain how to {}\nis it possible to {}\nwhat do I need to {}\nhelp me to {} today\nwho can {} for me\nwhat does it cost to {}\n"
        "show me the way to {}\nwhich form do I need to {}",
        "renew my passport | 怎么更新我的护照\nrepair the heater | 如何修理家里的暖气\nopen a bakery | 怎样开一家面包店\nlearn the violin | 怎么学习小提琴\nsell a house | 如何卖掉自己的房子",
    ),
}  # fmt: skip

CHINESE: Table = {
    "number": (
        "帮我订{}张电影票\n这个房间能住{}个人吗\n宝宝{}个月会说话吗\n打印{}份合同\n每天跑{}公里能瘦吗\n坐{}路公交去哪里\n一箱有{}瓶水吗\n背{}个单词要多久\n存{}元有多少利息\n请假{}天怎么扣工资",
        "3 | 5\n十二 | 二十\n30 | 300\n六 | 九\n18 | 80",
    ),
    "date": (
        "{}图书馆开门吗\n{}会下雪吗\n帮我把会议改到{}\n{}有哪些球赛\n{}谁值班\n{}的车票还有吗\n{}要交作业吗\n{}几点日落\n{}食堂吃什么\n{}可以退货吗",
        "今天 | 明天\n星期一 | 星期四\n上个月 | 下个月\n去年 | 今年\n昨天 | 后天",
    ),
    "time": (
        "{}出发来得及吗\n{}喝咖啡好吗\n{}跑步合适吗\n{}有没有地铁\n{}可以洗头吗\n{}的飞机几点登机\n{}孩子不肯吃饭\n{}给我打电话\n{}去公园人多吗\n{}吃水果好不好",
        "早上 | 晚上\n上午 | 下午\n中午 | 凌晨\n下午 | 晚上\n傍晚 | 清晨",
    ),
    "unit": (
        "等了3{}还没回复\n走5{}要多久\n这个有2{}吗\n剩下10{}怎么办\n买4{}多少钱\n每次用6{}够吗\n保修8{}是真的吗\n坚持7{}有效果吗\n最多可以放9{}\n大概需要20{}",
        "分钟 | 小时\n公里 | 英里\n斤 | 吨\n天 | 年\n个月 | 周",
    ),
    "currency": (
        "寄500{}怎么寄\n一瓶水要几{}\n80{}能买什么\n工资是3000{}\n换200{}要手续费吗\n罚款100{}\n门票60{}贵吗\n预算改成900{}\n借我50{}\n红包发20{}",
        "美元 | 欧元\n日元 | 英镑\n人民币 | 美元\n港币 | 韩元\n英镑 | 卢布",
    ),
    "antonym": (
        "怎么{}夜间模式\n为什么要{}这个功能\n谁可以{}权限\n什么时候{}服务\n在哪里{}通知\n能不能帮我{}它\n老人怎么{}热点\n一键{}有用吗\n必须先{}吗\n多久才能{}成功",
        "开启 | 关闭\n安装 | 卸载\n绑定 | 解绑\n上传 | 下载\n增加 | 减少",
    ),
    "negation": (
        "这种布料{}缩水\n孕妇{}吃螃蟹\n哪些植物{}浇水\n他{}参加比赛\n这个电池{}带上飞机\n周末{}上课\n学生{}免票\n新手机{}贴膜\n小狗{}吃葡萄\n旧车{}过户",
        "会 | 不会\n能 | 不能\n要 | 不要\n可以 | 不可以\n需要 | 不需要",
    ),
    "place": (
        "{}有什么小吃\n去{}旅游带什么\n{}的房价怎么样\n{}现在几点\n在{}怎么打车\n{}的大学哪些好\n{}冬天冷吗\n{}有地铁吗\n从公司去{}多远\n{}的特产是什么",
        "杭州 | 成都\n日本 | 泰国\n重庆 | 西安\n法国 | 埃及\n广州 | 南京",
    ),
    "code": (
        "{}是干什么用的\n怎么打开{}\n{}报错怎么办\n哪里下载{}\n{}需要收费吗\n谁维护{}\n怎么删除{}\n{}支持中文吗\n给我看{}的例子\n{}什么时候发布的",
        "main.py | setup.py\nv1.4.2 | v1.4.3\nread_csv() | read_json()\nmax_depth | min_samples\na.txt | b.txt",
    ),
    "quote": (
        "“{}”是什么意思\n“{}”怎么读\n谁写了《{}》\n用“{}”造句\n《{}》讲了什么\n“{}”的反义词是什么\n《{}》好看吗\n“{}”出自哪里\n《{}》有几集\n“{}”可以形容人吗",
        "画蛇添足 | 守株待兔\n星河旧事 | 北方来信\n亡羊补牢 | 刻舟求剑\n雨夜归人 | 长街故里\n井底之蛙 | 掩耳盗铃",
    ),
    "direction": (
        "从{}到{}的机票\n从{}到{}有多远\n从{}到{}坐什么车\n从{}到{}的快递几天到\n从{}到{}的高铁几小时\n从{}到{}怎么走\n从{}到{}的火车还有票吗\n从{}到{}开车多久\n从{}到{}的距离\n从{}到{}要过路费吗",
        "杭州 | 成都\n重庆 | 西安\n广州 | 南京\n武汉 | 长沙\n天津 | 青岛",
    ),
    "order": (
        "{}喜欢{}吗\n{}为什么批评{}\n{}能打败{}吗\n{}想感谢{}\n{}应该相信{}吗\n{}会原谅{}吗\n{}欠{}钱怎么办\n{}在等{}下班\n{}认真地教{}画画\n{}总是躲着{}",
        "我 | 你\n他 | 我\n你 | 他\n小明 | 小红\n老师 | 学生",
    ),
    "question": (
        "会议{}开始\n灯{}坏了\n信{}寄的\n鸟{}聚在一起\n桥{}建的\n花{}开\n他{}回来\n合同{}签的\n比赛{}取消\n门{}打开",
        "什么时候 | 为什么\n为什么 | 什么时候\n什么时候 | 在哪里\n在哪里 | 为什么\n谁 | 什么时候",
    ),
    "substitution": (
        "怎么清洗{}\n{}坏了找谁修\n哪里能买到便宜的{}\n{}可以带上飞机吗\n画一只{}\n{}的寿命有多长\n送朋友{}合适吗\n写一首关于{}的诗\n{}为什么这么贵\n孩子怕{}怎么办",
        "地毯 | 茶壶\n乌龟 | 鸽子\n钢琴 | 帐篷\n手表 | 雨伞\n风筝 | 沙发",
    ),
    "language": (
        "{}\n请问{}\n{}？谢谢\n我想知道{}\n{}呢\n麻烦问一下{}\n现在{}\n你知道{}吗\n在家{}\n最近{}",
        "怎么更新我的护照 | how do I renew my passport\n如何修理家里的暖气 | how to repair the heater at home\n怎样开一家面包店 | how can I open a bakery\n怎么学习小提琴 | how do I learn the violin\n如何卖掉自己的房子 | how do I sell my own house",
    ),
}  # fmt: skip

KEPT = {
    "en": """what's the capital of Chad | what is the capital of chad?
please water the plants | Water the plants.
I'm looking for a 3 bed flat | I am looking for a three bed flat
set the oven to 180 degrees | set the oven to one hundred and eighty degrees
meet me on March 3rd | meet me on 3 March
wake me at 7 pm | wake me at 7:00 p.m.
it costs $40 | it costs 40 dollars
a discount of 15% | a discount of fifteen percent
1,200 guests | 1200 guests
hello, how do I fold a shirt | how do I fold a shirt
how can I buy a piano | how can I purchase a piano
is the couch dirty | is the sofa dirty
Is the gate really open? | Is the gate open?
Did Marta paint the wall? | Was the wall painted by Marta?
Is Oleg married to Helga? | Is Helga married to Oleg?
trains from Leeds to York | from Leeds to York trains
how do I get from Dover to Calais by ferry | how do I get to Calais from Dover by ferry
who won the cup in 1994 | Who won the cup in 1994 ?
my recieve button is gone | my receive button is gone
the girl friend of Tomas | the girlfriend of Tomas
tea or coffee, which is healthier | coffee or tea, which is healthier
ten people want soup and bread | ten people want bread and soup
could you please close the blinds | close the blinds
don't ring the bell | do not ring the bell
explain the US tax system | explain the us tax system""",
    "zh": """请问图书馆几点开门？ | 图书馆几点开门
３个苹果多少钱 | 3个苹果多少钱
三个苹果多少钱 | 3个苹果多少钱
你好，怎么折衬衫 | 怎么折衬衫
如何学会游泳 | 怎么学会游泳
为啥天是蓝色的 | 为什么天是蓝色的
百分之二十的折扣 | 20%的折扣
星期三有空吗 | 周三有空吗
这个房间可不可以加床 | 这个房间可以加床吗
在哪儿买邮票 | 在哪里买邮票
帮我查一下天气，谢谢 | 帮我查一下天气
两百块钱够吗 | 200元够吗
苹果 和 梨 | 苹果和梨
衬衫要怎样洗才干净 | 衬衫要怎么洗才干净
她啥时候回来 | 她什么时候回来
医院今天上班吗 | 今天医院上班吗
猫和狗哪个好养 | 狗和猫哪个好养
这本书讲了什么？ | 这本书讲了啥
我想换手机号 | 我想换手机号码
第三章讲什么 | 第3章讲什么
十二点开会 | 12点开会
您好请问怎么退票 | 怎么退票
礼拜天营业吗 | 周日营业吗
一万元利息多少 | 10000元利息多少
能否给我发票 | 能不能给我发票""",
}


def rows(language: str, table: Table) -> list[dict[str, object]]:
    """Make the pairs of one language."""
    found: list[dict[str, object]] = []
    for guard, (frames, contrasts) in table.items():
        for frame in frames.splitlines():
            for contrast in contrasts.splitlines():
                x, y = contrast.split(" | ")
                if guard == "subject":
                    one, other = (part.format(x, y) for part in frame.split(" | "))
                elif guard in ("direction", "order"):
                    one, other = frame.format(x, y), frame.format(y, x)
                elif guard == "language":
                    one, other = frame.format(x), y
                else:
                    one, other = frame.format(x), frame.format(y)
                found.append({"a": one, "b": other, "same": 0, "lang": language, "kind": guard})
    for line in KEPT[language].splitlines():
        one, other = line.split(" | ")
        found.append({"a": one, "b": other, "same": 1, "lang": language, "kind": "kept"})
    return found


if __name__ == "__main__":
    for language, table in (("en", ENGLISH), ("zh", CHINESE)):
        made = rows(language, table)
        text = "\n".join(json.dumps(row, ensure_ascii=False) for row in made) + "\n"
        (OUT / f"pairs_{language}.jsonl").write_text(text, encoding="utf-8")
        print(f"pairs_{language}.jsonl: {len(made)} pairs")
