"""What two Chinese prompts say of persons, manner and whom something is for, read by characters.

How a word is cut depends on what stands beside it, so these rules don't go by words. Pure; each takes two
prompts without their shells and returns what they are at odds about, or None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from semcache.guards.comparison import shared_beginning

_PERSON: Final = re.compile("(?:[我咱你他她]们|[我俺咱你您他她])")
_SAME: Final = {"我们": "我", "咱们": "我", "咱": "我", "俺": "我", "您": "你", "你们": "你"}
_PARTICLES: Final = frozenset("的呢啊呀吧哦哈嘛")
_FILLERS: Final = re.compile(r"[\s\W]|[的呢啊呀吧哦哈嘛]")
_COMPARED: Final = re.compile("(?<![对相好百])比(?![较如例赛方特])")
_RELATED: Final = re.compile(r"^(.{1,10}?)(?:是不是|是否是|是)(.{1,10}?)的(.{1,10})$")
_HOW: Final = "(?:怎么|怎样|如何|咋|怎)"
_END: Final = r"(?:的|啊|呀|呢|吧|了|吗|哦|嘛)?[\s\W]*$"
_NO_VERB: Final = "样么的了会能才办回这那不没个是啊呀呢"
_LIKE: Final = re.compile(rf"{_HOW}样{_END}|(?:如何|怎样){_END}")
_TO: Final = re.compile(rf"{_HOW}(?:样)?(?:才能|可以|去|来|能|自己)?([^{_NO_VERB}\s\W]+)")
_USE: Final = re.compile(rf"{_HOW}(?:使用|用){_END}")
_WHOM: Final = "[^给跟我你您]{1,6}?"
_CALLED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"给({_WHOM})(?:打|拨|发(?![生现布票])|回(?![来去家]))",
        rf"(?:打|拨|拨打|发|发送)个?(?:视频)?(?:电话|短信|微信|消息|视频|信息)给({_WHOM}){_END}",
        rf"跟({_WHOM})说",
        rf"^(?:通知|私信|呼叫|语音通话|视频通话)({_WHOM})(?:[，：:,]|{_END})",
    )
)


def _bare(text: str) -> str:
    """Return a text without marks, spaces and particles."""
    text = text.rstrip("?!.")
    return text if text.isalnum() and _PARTICLES.isdisjoint(text) else _FILLERS.sub("", text)


def compared(a: str, b: str) -> tuple[str, str] | None:
    """Return X and Y where one text compares X with Y, and the other Y with X, in the same words."""
    one, two = _COMPARED.search(a), _COMPARED.search(b)
    if one is None or two is None:
        return None
    left_a, left_b, right_a, right_b = a[: one.start()], b[: two.start()], a[one.end() :], b[two.end() :]
    for shared in range(shared_beginning(left_a, left_b), -1, -1):  # 我, 我老公 begin alike
        x, y = left_a[shared:], left_b[shared:]
        turned = right_a.startswith(y) and right_b.startswith(x) and right_a[len(y) :] == right_b[len(x) :]
        if x and y and x != y and turned:
            return x, y
    return None


def related(a: str, b: str) -> tuple[str, str] | None:
    """Return X and Y where one text asks whether X is Y's Z, and the other whether Y is X's: 鲁迅是不是他的学生, 他是不是鲁迅的学生."""
    one, two = _RELATED.match(a), _RELATED.match(b)
    if one is None or two is None or one[3] != two[3]:
        return None
    return (one[1], one[2]) if (one[1], one[2]) == (two[2], two[1]) and one[1] != one[2] else None


def persons(a: str, b: str) -> tuple[str, str] | None:
    """Return who is spoken of in each, in order, where the texts are the same but for that: 你讨厌我, 我讨厌你."""
    a, b = _bare(a), _bare(b)
    mine = [_SAME.get(person, person) for person in _PERSON.findall(a)]
    theirs = [_SAME.get(person, person) for person in _PERSON.findall(b)]
    if len(mine) != len(theirs) or mine == theirs or _PERSON.sub("_", a) != _PERSON.sub("_", b):
        return None
    return "".join(mine), "".join(theirs)


def manner(a: str, b: str) -> tuple[str, str] | None:
    """Return what is asked by "how" in each, where one asks what something is like, or how to use it, and the other how to do it."""
    for like, name in ((_LIKE, "怎么样"), (_USE, "怎么用")):
        if bool(like.search(a)) == bool(like.search(b)):
            continue
        other = b if like.search(a) else a
        done = next((found[1] for found in _TO.finditer(other) if found[1][0] not in "用使"), None)
        if done is not None:
            return (name, f"怎么{done}") if other is b else (f"怎么{done}", name)
    return None


def called(a: str, b: str) -> tuple[str, str] | None:
    """Return whom each text calls or writes to, where they are two: 给大熊猫打电话, 打电话给熊猫."""
    mine, theirs = _whom(a), _whom(b)
    return (mine, theirs) if mine and theirs and mine != theirs else None


_NAMED: Final = (  # longer ones before their beginnings
    "西班牙|意大利|葡萄牙|阿拉伯|土耳其|希伯来|匈牙利|罗马尼亚|乌克兰|荷兰|波兰|瑞典|芬兰|丹麦|挪威|希腊|印地|拉丁|越南|印尼|马来|缅甸|蒙古|捷克|文言|白话"
    "|英|法|德|日|韩|俄|泰|越|葡|西|意|藏|中|汉|粤"
)
_LANGUAGE: Final = re.compile(rf"({_NAMED})(?:语|文(?!化|明|件|献|艺))")
_INTO: Final = re.compile("([中英法德日韩俄泰西意葡汉])(?:翻)?译(?:成)?([中英法德日韩俄泰西意葡汉])")


def languages(a: str, b: str) -> tuple[str, str] | None:
    """Return which languages each text names, where both do and not the same: 翻译成日文, 翻译成泰文; 中译英, 中译法."""
    if not any(word in a for word in "语文译"):
        return None
    mine, theirs = (
        sorted({*_LANGUAGE.findall(text), *(">".join(pair) for pair in _INTO.findall(text))})
        for text in (a, b)
    )
    return (" ".join(mine), " ".join(theirs)) if mine and theirs and mine != theirs else None


_DAY: Final = re.compile("(?:周|星期|礼拜)([一二三四五六日天])(?!下班)")
_MONTH: Final = re.compile("(?:农历|阴历)?(正|腊|冬|[一二三四五六七八九十]{1,2})月(?!份?[票饼嫂子])")
_SUNDAY: Final = str.maketrans("天", "日")


def days(a: str, b: str) -> tuple[str, str] | None:
    """Return the weekdays, or months by their Chinese names, of each text where both have some and not the same: 下周一, 下周三."""
    for pattern in (_DAY, _MONTH):
        if (pattern is _MONTH and "月" not in a) or not pattern.search(a):
            continue
        mine, theirs = (sorted(set("".join(pattern.findall(text)).translate(_SUNDAY))) for text in (a, b))
        if mine and theirs and mine != theirs and len(pattern.findall(a)) == len(pattern.findall(b)):
            return "".join(mine), "".join(theirs)
    return None


_BRAND: Final = re.compile(
    "(招商|建设|工商|农业|交通|邮储|中信|民生|光大|平安|兴业|浦发|华夏|广发)银行|中国(移动|联通|电信)|([海南东国川厦])航(?![空行天运道])"
)


def brands(a: str, b: str) -> tuple[str, str] | None:
    """Return the banks, carriers and airlines of each text, where both name one and they have none in common."""
    if not _BRAND.search(a):
        return None
    mine, theirs = ({"".join(found) for found in _BRAND.findall(text)} for text in (a, b))
    return ("".join(sorted(mine)), "".join(sorted(theirs))) if mine and theirs and not mine & theirs else None


_GREETINGS: Final = frozenset(("hello", "hi", "hey"))
_LATIN: Final = re.compile("[A-Za-z][A-Za-z0-9_+#.-]*")


def latin(a: str, b: str) -> tuple[str, str] | None:
    """Return the words in Latin letters that only one text has, where both have one: docker rm, docker rmi.

    One inside the other is no other word (OPPO, OPPOA5) unless the texts are the same but for that.
    """
    if not _LATIN.search(a):
        return None
    mine, theirs = (
        {word.lower().strip(".-") for word in _LATIN.findall(text)} - _GREETINGS for text in (a, b)
    )
    left, right = sorted(mine - theirs), sorted(theirs - mine)
    if not left or not right:
        return None
    if _all_meet(left, right, _branded):
        return None
    if _all_meet(left, right, lambda x, y: x in y or y in x) and _FILLERS.sub(
        "", _LATIN.sub("_", a)
    ) != _FILLERS.sub("", _LATIN.sub("_", b)):
        return None
    return " ".join(left), " ".join(right)


def _all_meet(left: list[str], right: list[str], meets: Callable[[str, str], bool]) -> bool:
    """Tell whether each word of both sides meets one of the other side."""
    return all(any(meets(x, y) for y in right) for x in left) and all(
        any(meets(x, y) for x in left) for y in right
    )


def _branded(x: str, y: str) -> bool:
    """Tell whether one is a model's name and the other the same behind its brand: a79, oppoa79."""
    shorter, longer = sorted((x, y), key=len)
    return longer.endswith(shorter) and any(map(str.isdigit, shorter))


def turned(a: str, b: str) -> tuple[str, str] | None:
    """Return the characters by which two texts differ at one place: 涨停, 跌停."""
    a, b = _bare(a), _bare(b)
    start = shared_beginning(a, b)
    end = shared_beginning(a[start:][::-1], b[start:][::-1])
    x, y = a[start : len(a) - end], b[start : len(b) - end]
    return (x, y) if x and y else None


@lru_cache(maxsize=1024)  # several guards ask
def inserted(a: str, b: str) -> str:
    """Return what one text says at one place, inside it, beyond the other, else an empty string: 二手 in 买二手手机, 买手机.

    A 不 between two equal characters (能不能) only asks.
    """
    a, b = _bare(a), _bare(b)
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    size = len(longer) - len(shorter)
    start = shared_beginning(longer, shorter)
    if not size or longer[start + size :] != shorter[start:] or start + size == len(longer):
        return ""
    span = longer[start : start + size]
    before, after = longer[start - 1 : start], longer[start + size]
    return "" if before == after else span


_DOES: Final = re.compile("[吃打骂给借欠倒进爱恨追咬撞救教娶嫁赢胜超管养害杀骗换派还送到至]|都是")
_JOINT: Final = re.compile("[和与跟同或及、]|还是|(?<!都)是")
_ASKS: Final = re.compile("[怎么什谁哪几多少吗呢]")


def exchanged(a: str, b: str) -> tuple[str, str] | None:
    """Return X and Y where one does to the other what the other does to it in the other text: 把水倒进酸里, 把酸倒进水里."""
    found = turned(a, b)
    if found is None:
        return None
    one, two = found
    for i in range(1, min(5, len(one) - 1)):
        for j in range(1, min(5, len(one) - i)):
            x, middle, y = one[:i], one[i : len(one) - j], one[len(one) - j :]
            if (
                two == y + middle + x
                and _DOES.search(middle)
                and not _JOINT.search(middle)
                and not _ASKS.search(x + y)
            ):
                return x, y
    return None


_LETTER: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z](?:\.[a-z]{1,4})?(?![A-Za-z0-9])|[甲乙丙丁]")
_JOINED: Final = re.compile(r"[\s、，,/&+]*(?:和|与|跟|同|及|或|还是|以及)?[\s、，,/&+]*")


def lettered(a: str, b: str) -> tuple[str, str] | None:
    """Return what letters stand for, in order, where the texts are the same but for that: A 收购 B, B 收购 A.

    Letters that are only listed (A 和 B) may come in any order.
    """
    operands = _operands(a), _operands(b)
    if all(operands) and operands[0] == operands[1][::-1]:
        return " ".join(operands[0]), " ".join(operands[1])
    if _LETTER.sub("_", a) != _LETTER.sub("_", b):
        return None
    mine, theirs = _LETTER.findall(a), _LETTER.findall(b)
    if mine == theirs or sorted(mine) != sorted(theirs):
        return None
    between = _LETTER.split(a)[1:-1]
    return None if all(_JOINED.fullmatch(one) for one in between) else (" ".join(mine), " ".join(theirs))


_COMMAND: Final = re.compile(r"(?:cp|mv|ln|rsync|scp|diff)\s+(?:-\w+\s+)*([\w./-]+)\s+([\w./-]+)")


def _operands(text: str) -> tuple[str, ...]:
    """Return the two operands of a shell command in a text: what it copies, and where to."""
    found = _COMMAND.search(text)
    return found.groups() if found else ()


def _whom(text: str) -> str:
    return next((found[1] for pattern in _CALLED if (found := pattern.search(text))), "")
