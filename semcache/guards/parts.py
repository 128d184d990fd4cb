"""The guard for prompts that ask for more than one thing: an answer to the first doesn't answer the second. Pure.

An embedding of two questions lies near that of the first, and nearer the longer that one is. So where one text has a part that
asks for something of its own, and the rest of it already says what the other text says, the other's answer lacks a part.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Final

from semcache.guards import analysis as an
from semcache.guards import english as en
from semcache.guards import lexicon
from semcache.guards.analysis import Analysis, analyse
from semcache.guards.comparison import Comparison, compare, shared_beginning
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

LEAST_WEIGHT: Final = {"en": 0.45, "zh": 0.6}  # of a part that asks for something of its own
LEAST_ADDED: Final = 0.3  # ... where the rest is the other text, word for word
MOST: Final = 16  # parts: each is compared with the whole
KNOWN: Final = 0.5  # share of a part that stands in the other text from which it is no more than that one's
SAID: Final = 0.7  # share of the other text that the rest must say
SAID_BESIDE: Final = 0.4  # ... where the other one asks for something of its own too

_ENDS: Final = {
    "en": re.compile(r"(?<=[.!?;])\s+|\n+"),
    "zh": re.compile(
        r"(?<=[!?;,])\s*(?=[^\s!?;,])|(?<=[\u3400-\u9fff]\.)\s*(?=\S)|\n+"
    ),  # marks are narrow here
}
_CLAUSES: Final = re.compile(
    r"(?<=,)\s+(?=(?:(?:and|but|so)\s+)?(?:how|what|when|where|who|why|which|should|shall|can|could|do|does|did|is|are|will|would|am|may|must)\b)",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"`[^`\n]+`")  # ends nothing inside
_CALL: Final = re.compile(r"\w+[(\[].*[)\]]\W*$")  # print(x) tells nobody to print
_RELATIVES: Final = en.words("which who when where")
_AUXILIARIES: Final = en.words(
    "should shall can could do does did is are was were will would am may might must has have had"
)
_BE: Final = en.words("is are was were am")
_PRONOUNS: Final = en.words("i you he she it we they this that these those there one")
_OWN: Final = en.words("i i'm i've my me we we've our us")
_SUBJECTS: Final = _PRONOUNS | en.words("the a an my your his her its our their any some")
_NUMBERED: Final = re.compile(
    r"^(?:\(?(?:\d{1,2}|[a-h])[).:]|q\d{1,2}[).:]|[-*•])\s*", re.IGNORECASE
)  # 1) a. Q1:
_SHORTENED: Final = re.compile(
    r"\b(?:mr|mrs|ms|dr|st|vs|etc|e\.g|i\.e|no|prof|sr|jr|inc|ltd|fig|rs|approx|dept|vol|al|cf|ca|[a-z])\.$",
    re.IGNORECASE,
)
_ASKING: Final = re.compile(r"[?？]\s*$")
_LEADS: Final = en.words("and also then plus next finally afterwards so but please kindly")
_BEGINS: Final = en.words("and also then plus with but while")
_RESTRICTS: Final = en.words("in on for without using under that as like")  # what a request is to be like
_PLACES: Final = en.words("after afterwards below above once finally next underneath then")
_REDUCED: Final = 3  # words of a clause without a subject: when applicable, where possible
_ZH_SOME: Final = re.compile(r"[好十]?几.{1,2}(?:[之以]?[前后]|来)[,.]?$")  # 几年前: some years ago
_ZH_MARKS: Final = ".,!?;。，！？；"
_ZH_JOINED: Final = re.compile(r"(?:和|及|以及|与|还有|并)([\u3400-\u9fff]{2,6})[.,!?;]*")
_ZH_LEADS: Final = tuple(
    en.words("先 给 出 写 替 列 讲 解释 推荐 翻译 总结 然后 接着 最后 顺便 还有 还要 另外 并 再 请 帮 给我")
)
_OF_ITS_OWN: Final = {  # what, how and a bare "why" come with whatever is asked; in Chinese, by the words that ask it
    "when": ("什么时候", "何时", "哪年", "几点"),
    "where": ("哪里", "哪儿", "在哪"),
    "who": ("谁",),
    "number": ("多少", "几", "价格", "价钱"),
}
_GENERIC: Final = en.words(
    "possible safe normal ok okay fine good bad true right correct idea thought suggestion opinion advice help tip solution "
    "anyone someone somebody know experience do think mean support allow recommend answer brief briefly short work kind sort "
    "happen reason easy step advise look looking forward reply ask able question happen thank thanks appreciate sure sense wrong problem issue fix matter try option way possibility chance achieve accomplish "
    "步骤 具体 操作 方法 例子 处理 解决 恢复 价值 价格 价钱 分别 哪些 可以 给分 悬赏 看 帮帮忙 帮忙 帮 忙 谢谢 谢 求助 求 急 请教 求教 指教 赐教 告知 原因 知道 有人 大神 高手 问题 说明 介绍 解答 回答 怎么办 为什么"
)


def parts(c: Comparison) -> Verdict:
    """Refuse if one text asks what the other does, and for something else beside it."""
    if c.a.family != c.b.family or c.a.family not in ("en", "zh"):
        return NOT_APPLICABLE
    joined = _joined(c.a, c.b) or _joined(c.b, c.a)
    if joined:
        return refuse(f"only one of them also asks {joined!r}")
    both = (_pieces(c.a, c.b), _pieces(c.b, c.a))
    if not 2 <= max(map(len, both)) <= MOST:
        return NOT_APPLICABLE
    # A part says no more of the other text than the whole does.
    if max(_said(c.weight_a, c.a), _said(c.weight_b, c.b)) < SAID_BESIDE:
        return PASS
    asking = [[place for place, piece in enumerate(pieces) if _asks(piece, c.a.family)] for pieces in both]
    if len(asking[0]) == len(asking[1]) == 1 and _one_told(both):
        return PASS
    extra = [
        [place for place in places if _beyond(pieces[place], y, added=pieces[0] == y.plain)]
        for pieces, places, y in zip(both, asking, (c.b, c.a), strict=True)
    ]
    least = SAID_BESIDE if extra[0] and extra[1] else SAID
    for pieces, places, y in zip(both, extra, (c.b, c.a), strict=True):
        for place in places:
            if _says(" ".join(pieces[:place] + pieces[place + 1 :]), y, least):
                return refuse(f"only one of them also asks {pieces[place]!r}")
    return PASS


def _joined(x: Analysis, y: Analysis) -> str:
    """Return what a Chinese text names beside what the other ends with: 讲讲它的起因, 讲讲它的起因和结果."""
    if x.family != "zh" or not x.plain.startswith(y.plain.rstrip(_ZH_MARKS)):
        return ""
    found = _ZH_JOINED.fullmatch(x.plain[len(y.plain.rstrip(_ZH_MARKS)) :])
    return found[1] if found else ""


def _one_told(both: tuple[tuple[str, ...], tuple[str, ...]]) -> bool:
    """Tell whether one text is a single part, and the other tells what led its writer to ask."""
    short, long = sorted(both, key=len)
    return len(short) == 1 and any(not _OWN.isdisjoint(piece.lower().split()) for piece in long[:-1])


def _said(left: float, text: Analysis) -> float:
    """Return the share of a text that isn't left over, in [0, 1]."""
    return 1.0 - left / text.total if text.total else 0.0


def _pieces(x: Analysis, y: Analysis) -> tuple[str, ...]:
    """Return the sentences of a text, or what the other text says and what this one adds to it."""
    added = _added(x, y) if x.family == "en" else ""
    return (y.plain, added) if added else _sentences(x.plain, x.family)


def _added(x: Analysis, y: Analysis) -> str:
    """Return what a text says at one place beyond the other, in words, where it begins by "and", "with", "also" …"""
    size = len(x.keys) - len(y.keys)
    if size < 2:
        return ""
    start = shared_beginning(x.keys, y.keys)
    for first in range(max(0, start - 1), start + 1):  # "and" may stand behind the place as well as before it
        if x.keys[first + size :] == y.keys[first:] and x.keys[:first] == y.keys[:first]:
            span = x.words[first : first + size]
            if span[0] in _BEGINS or "also" in span or (not y.asks and span[0] in _RESTRICTS):
                return " ".join(span if span[0] == "and" else ("and", *span))
    return ""


@lru_cache(maxsize=an.CACHE_SIZE)
def _sentences(plain: str, family: str) -> tuple[str, ...]:
    found: list[str] = []
    for part in (_NUMBERED.sub("", part.strip()) for part in _cut(plain, family)):
        if found and _SHORTENED.search(found[-1]):  # Mr. Smith, J. Doe
            found[-1] += " " + part
        elif part:
            found.append(part)
    return tuple(found)


def _cut(plain: str, family: str) -> list[str]:
    """Cut a text into sentences, and an English one before clauses that ask; never inside quoted code."""
    masked = _CODE.sub(lambda code: "x" * len(code[0]), plain) if "`" in plain else plain
    cut = _split(plain, masked, _ENDS[family])
    if family != "en":
        return cut
    return [clause for sentence in cut for clause in _clauses(sentence)]


def _split(plain: str, masked: str, at: re.Pattern[str]) -> list[str]:
    places = [(0, 0), *(end.span() for end in at.finditer(masked)), (len(plain), len(plain))]
    return [plain[before[1] : after[0]] for before, after in pairwise(places)]


def _clauses(sentence: str) -> list[str]:
    """Cut a sentence before clauses that ask; behind a statement, one that only relates or conditions stays with it."""
    masked = _CODE.sub(lambda code: "x" * len(code[0]), sentence) if "`" in sentence else sentence
    first, *others = _split(sentence, masked, _CLAUSES)
    if not others:
        return [first]
    told = not _ASKING.search(sentence) and not _asks(first, "en")
    found = [first]
    for clause in others:
        own = not _OWN.isdisjoint(first.lower().split())
        if told and _relates(clause, ends=sentence.endswith("."), own=own):
            found[-1] += " " + clause
        else:
            found.append(clause)
    return found


def _relates(clause: str, *, ends: bool, own: bool) -> bool:
    """Tell whether a clause behind a statement only adds to it: ", which is for ...", ", when applicable"; not ", where is it".

    Args:
        ends: Whether the sentence ends with a full stop: "I have two, which is better" without one may ask.
        own: Whether the statement is about who writes: "I rent a flat, who pays for the boiler." asks.
    """
    words = clause.lower().rstrip(" .,!").split()
    if words[0] in _LEADS:
        return False
    if words[0] not in _RELATIVES:
        return ends and words[0] in _AUXILIARIES and words[1:2] != [] and words[1] not in _SUBJECTS
    after, subject = (*words[1:3], "", "")[:2]
    if own and words[0] in ("which", "who"):
        return False
    if after not in _AUXILIARIES:  # when applicable, where rangers rent canoes; but: where to complain
        return after != "to" and (ends or (len(words) <= _REDUCED and words[0] in ("when", "where")))
    if words[0] in ("when", "where"):
        return False
    return ends and subject not in (_PRONOUNS if after in _BE else _SUBJECTS)


def _asks(piece: str, family: str) -> bool:
    """Tell whether a part asks, or tells somebody to do something."""
    if _ASKING.search(piece):
        return True
    if _CALL.match(piece):
        return False
    seen = analyse(piece)
    if family == "zh":
        if _ZH_SOME.match(piece):
            return False
        return bool(seen.question) or piece.startswith(_ZH_LEADS)
    if seen.asks:
        return True
    words = list(seen.words)
    added = bool(words) and words[0] == "and"
    if "," in piece and words and words[0] in _PLACES:  # After that, give me three questions
        words = list(analyse(piece.partition(",")[2]).words)
    while words and words[0] in _LEADS:
        words.pop(0)
    if not words:
        return False
    return (
        added
        or (words[0] not in en.FUNCTION and "v" in lexicon.part_of_speech(words[0]))
        or words[0] in en.CARRIERS
    )


def _beyond(piece: str, y: Analysis, *, added: bool) -> bool:
    """Tell whether a part says enough that the other text doesn't, or asks when, where or who and the other doesn't."""
    seen = analyse(piece)
    compared = compare(seen, y)
    new = [i for i in compared.left_a if seen.keys[i] not in _GENERIC and seen.classes[i] != an.CARRIER]
    heavy = sum(seen.weights[i] for i in new)
    least = LEAST_ADDED if added else LEAST_WEIGHT[y.family]
    if heavy >= least and heavy >= (1.0 - KNOWN) * seen.total:
        return True
    words = _OF_ITS_OWN.get(seen.question)
    if words is None or not (added or len(seen.keys) > 1):
        return False
    asks_too = seen.question == y.question or seen.question in an.question_words(y)
    return not asks_too and not any(word in y.plain for word in words)


def _says(rest: str, y: Analysis, least: float) -> bool:
    """Tell whether the other parts say what the other text says."""
    return bool(rest) and _said(compare(analyse(rest), y).weight_b, y) >= least
