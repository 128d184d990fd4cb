"""What two Chinese prompts say of persons, manner and whom something is for, read by characters.

How a word is cut depends on what stands beside it, so these rules don't go by words. Pure; each takes two
prompts without their shells and returns what they are at odds about, or None.
"""

from __future__ import annotations

import re
from typing import Final

_PERSON: Final = re.compile("(?:[我咱你他她]们|[我俺咱你您他她])")
_SAME: Final = {"我们": "我", "咱们": "我", "咱": "我", "俺": "我", "您": "你", "你们": "你"}
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


def compared(a: str, b: str) -> tuple[str, str] | None:
    """Return X and Y where one text compares X with Y, and the other Y with X, in the same words."""
    one, two = _COMPARED.search(a), _COMPARED.search(b)
    if one is None or two is None:
        return None
    left_a, left_b, right_a, right_b = a[: one.start()], b[: two.start()], a[one.end() :], b[two.end() :]
    differ = (i for i, (m, n) in enumerate(zip(left_a, left_b, strict=False)) if m != n)
    for shared in range(next(differ, min(len(left_a), len(left_b))), -1, -1):  # 我, 我老公 begin alike
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
    a, b = _FILLERS.sub("", a), _FILLERS.sub("", b)
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


def _whom(text: str) -> str:
    return next((found[1] for pattern in _CALLED if (found := pattern.search(text))), "")
