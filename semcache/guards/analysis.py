"""What the guards need to know about one text, worked out once per text.

Knows: the class of each token, its key for comparison, and how much it tells. Leaves to others: the
comparison of two texts (`comparison`) and what follows from it (the guards).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import lexicon, names
from semcache.guards.normal import Token, clean, strip_shells, tokenize

CACHE_SIZE: Final = 20_000

# classes of tokens; those in TYPED refuse when both sides have one the other lacks
FUNCTION, CARRIER, CONTENT, NAME, PLACE = "function", "carrier", "content", "name", "place"
NUMBER, ORDINAL, YEAR, UNIT, CURRENCY, TIME, DAY_PART, DATE, CODE, SYMBOL, QUESTION = (
    "number", "ordinal", "year", "unit", "currency", "time", "day_part", "date", "code", "symbol", "question",
)  # fmt: skip
TYPED: Final = {
    NUMBER: "number",
    ORDINAL: "number",
    YEAR: "date",
    UNIT: "unit",
    CURRENCY: "currency",
    TIME: "time",
    DAY_PART: "time",
    DATE: "date",
    CODE: "code",
    PLACE: "place",
}
_QUANTIFIERS: Final = frozenset(en.QUANTIFIERS)
_WEIGHT: Final = {
    FUNCTION: 0.0, CARRIER: 0.1, QUESTION: 0.0, NUMBER: 0.9, ORDINAL: 0.7, YEAR: 0.8, UNIT: 0.6, CURRENCY: 0.7,
    TIME: 0.8, DAY_PART: 0.6, DATE: 0.7, CODE: 1.0, SYMBOL: 0.1, PLACE: 1.0, NAME: 1.0,
}  # fmt: skip
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_KANA: Final = re.compile(r"[\u3040-\u30ff]")
_HANGUL: Final = re.compile(r"[\uac00-\ud7af]")
_WORD: Final = re.compile(r"[^\W\d_][\w'&.-]*")
_CAPITAL: Final = re.compile(r"[A-Z][\w'&.-]")  # opens a word of two letters or more
_SENTENCE_ENDS: Final = tuple(".!?。！？:")
_SIGNS: Final = re.compile(
    r"\\[A-Za-z]|\$[?#!@*$]|(?<!\w)(['\"`])[A-Za-z]\1|!(?=[*.\w/])|(?<!\S)-[A-Za-z]{1,4}(?!\S)|\+\+(?=\w)|(?<=\w)\+\+(?!\w)"
)
_LETTER_IN_QUOTES: Final = re.compile(r"['\"][A-Za-z]['\"]")
_QUOTED: Final = re.compile(r"\"\"?([^\"]{2,80}?)\"\"?|(?<!\w)'([^']{3,80}?)'(?!\w)")


@dataclass(frozen=True, slots=True)
class Analysis:
    """One text as the guards see it. All sequences run in parallel, in reading order.

    Attributes:
        text: As written.
        plain: Without greetings and politeness around it, widths and quotes unified: what is embedded.
        normal: Normal form; equal ones are the same prompt.
        language: ``en``, ``zh``, ``ja``, ``ko``, another ISO 639-1 code, or ``und``.
        family: Which threshold applies: ``en``, ``zh``, ``cjk`` (Japanese and Korean) or ``other``.
        keys: Per token what is compared: base form, canonical word, value.
        words: Per token its normal text.
        classes: Per token its class.
        kinds: The classes that occur.
        weights: Per token how much it tells, in [0, 1].
        total: Sum of the weights.
        negations: How often the text negates.
        capitals: Keys of words capitalised inside a sentence, where case tells anything.
        quotes: Quoted spans, lower case.
        question: First question word, ``yesno``, or empty.
        asks: Whether it is put as a question: not a statement with a "which" or "how" inside.
        said: The keys, without order.
        letters: The normal form without spaces.
        tenses: The words that may say whether something was, is or will be.
        quantifiers: The keys that say how many, or stand beside what does: all, both, only, at least, other.
        signs: What is written in signs that words don't tell apart: escapes, shell variables, one quoted letter, a "!" before something.
    """

    text: str
    plain: str
    normal: str
    language: str
    family: str
    keys: tuple[str, ...]
    words: tuple[str, ...]
    classes: tuple[str, ...]
    kinds: frozenset[str]
    weights: tuple[float, ...]
    total: float
    negations: int
    capitals: frozenset[str]
    quotes: frozenset[str]
    question: str
    asks: bool
    signs: tuple[str, ...]
    said: frozenset[str]
    letters: str
    tenses: frozenset[str]
    quantifiers: frozenset[str]


def question_words(text: Analysis) -> frozenset[str]:
    """Return the keys of all question words of an English text."""
    return frozenset(key for key, kind in zip(text.keys, text.classes, strict=True) if kind == QUESTION)


_FAMILY: Final = {"en": "en", "zh": "zh", "ja": "cjk", "ko": "cjk"}


@lru_cache(maxsize=CACHE_SIZE)
def analyse(text: str) -> Analysis:
    """Analyse a text; the last 20,000 distinct ones are remembered."""
    plain = strip_shells(clean(text))
    tokens = tokenize(plain)
    language = _language(plain, tokens)
    chinese = language == "zh"
    tokens = tokens if chinese else _join_places(tokens)
    capitals = frozenset() if chinese or plain[1:].islower() else _capitals(plain)
    classify: Callable[[Token, str, str], tuple[str, str]] = _classify_han if chinese else _classify
    words = [token.text for token in tokens]
    keys: list[str] = []
    classes: list[str] = []
    weights: list[float] = []
    before = ""
    for token, word, after in zip(tokens, words, [*words[1:], ""], strict=False):
        key, kind = classify(token, before, after)
        if key in capitals and kind in (CONTENT, CARRIER):
            kind = NAME
        keys.append(key)
        classes.append(kind)
        weights.append(_content_weight(key, token) if kind == CONTENT else _WEIGHT[kind])
        before = word
    question = _zh_question(tokens) if chinese else _question(tokens)
    return Analysis(
        text=text,
        plain=plain,
        normal=" ".join(words),
        language=language,
        family=_FAMILY.get(language, "other"),
        keys=tuple(keys),
        words=tuple(words),
        classes=tuple(classes),
        kinds=frozenset(classes),
        weights=tuple(weights),
        total=sum(weights),
        negations=_zh_negations(plain) if chinese else _negations(tokens, plain),
        capitals=capitals,
        quotes=frozenset((a or b).strip().lower() for a, b in _QUOTED.findall(plain))
        if '"' in plain or "'" in plain
        else frozenset(),
        question=question,
        asks=bool(question) and (chinese or "?" in plain or _opens(tokens)),
        signs=tuple(match[0] for match in _SIGNS.finditer(plain)) if _may_have_signs(plain) else (),
        said=frozenset(keys),
        letters="".join(words).replace(" ", ""),
        tenses=en.TENSES.intersection(words),
        quantifiers=_QUANTIFIERS.intersection(keys),
    )


def _may_have_signs(plain: str) -> bool:
    """Tell whether a text may have signs: found sooner than they are told apart."""
    return (
        "!" in plain
        or "+" in plain
        or "$" in plain
        or "`" in plain
        or "\\" in plain
        or " -" in plain
        or (("'" in plain or '"' in plain) and _LETTER_IN_QUOTES.search(plain) is not None)
    )


def _content_weight(key: str, token: Token) -> float:
    if token.kind == "h":
        return 0.25 + 0.75 * lexicon.chinese_rarity(token.text)
    return 0.3 + 0.7 * lexicon.rarity(key) if key.isascii() else 0.8


def _language(text: str, tokens: list[Token]) -> str:
    if not text.isascii():
        if len(_KANA.findall(text)) >= 2:
            return "ja"
        if len(_HANGUL.findall(text)) >= 2:
            return "ko"
        if _HAN.search(text):
            return "zh"
    words = [t.text for t in tokens if t.kind == "w"]
    if not words:
        return "und"
    if text.isascii() and _FOREIGN_STOP_WORDS.isdisjoint(words):  # English wins, or nothing speaks against it
        return "en"
    if any(ord(c) > 0x36F for w in words for c in w[:1]):
        return {0x04: "ru", 0x06: "ar", 0x05: "he", 0x0E: "th", 0x09: "hi", 0x03: "el"}.get(
            ord(words[0][0]) >> 8, "und"
        )
    counts = dict.fromkeys(en.LATIN_STOP_WORDS, 0)
    for word in words:
        for code in _STOP_WORD_OF.get(word, ()):
            counts[code] += 1
    best = max(counts, key=counts.__getitem__)  # the first listed, English, wins ties
    if best == "en" and counts["en"]:
        return "en"
    known = sum(w in en.FUNCTION or bool(lexicon.part_of_speech(lexicon.lemma(w))) for w in words)
    if best != "en" and counts[best] >= 2 and 10 * known < 7 * len(words):
        second = max(n for code, n in counts.items() if code != best)
        return best if counts[best] > second else "und"
    return "en" if counts["en"] or 2 * known >= len(words) or text.isascii() else "und"


_STOP_WORD_OF: Final = {
    word: tuple(code for code, stop in en.LATIN_STOP_WORDS.items() if word in stop)
    for word in frozenset().union(*en.LATIN_STOP_WORDS.values())
}
_FOREIGN_STOP_WORDS: Final = frozenset(word for word, codes in _STOP_WORD_OF.items() if "en" not in codes)


def _join_places(tokens: list[Token]) -> list[Token]:
    """Join names of places that have several words: `new york` becomes one token."""
    beginnings = lexicon.place_beginnings()
    if beginnings.isdisjoint([token.text for token in tokens]):
        return tokens
    out: list[Token] = []
    i, size = 0, len(tokens)
    while i < size:
        token = tokens[i]
        if (
            token.text in beginnings
            and token.kind == "w"
            and token.text not in en.FUNCTION
            and i + 1 < size
            and tokens[i + 1].kind == "w"
        ):
            for width in (3, 2):
                name = " ".join(t.text for t in tokens[i : i + width])
                if i + width <= size and lexicon.is_place(name):
                    out.append(Token(name, "p", token.raw))
                    i += width
                    break
            else:
                out.append(token)
                i += 1
            continue
        out.append(token)
        i += 1
    return out


def _capitals(text: str) -> frozenset[str]:
    """Return words capitalised inside a sentence; none if most words are (titles, shouting)."""
    found: set[str] = set()
    upper = words = 0
    if text.isupper() or (text.isascii() and not _CAPITAL.search(text, 1)):
        return frozenset()
    matches = list(_WORD.finditer(text))
    for match in matches:
        word = match[0].rstrip("'.")
        if len(word) < 2:
            continue
        start = match.start()
        if not start or text[max(0, start - 3) : start].rstrip().endswith(_SENTENCE_ENDS):
            continue
        words += 1
        if word[0].isupper():
            upper += 1
            lower = word.lower().removesuffix("'s")
            if lower not in en.FUNCTION:
                found |= {lower, lexicon.lemma(lower)}
    if not found or (words >= 5 and upper > 0.75 * words):
        return frozenset()
    if len(found) > 2 and text.count(",") + text.count(":") + text.count(";") > 1:
        items = names.opens_items(text, matches)
        found -= items | {lexicon.lemma(item) for item in items}
    return frozenset(found)


def _classify(token: Token, before: str, after: str) -> tuple[str, str]:
    kind, word = token.kind, token.text
    if kind == "n":
        return word, _number_class(token)
    if kind != "w":
        return word.removesuffix("()") if kind == "c" else word, _BY_KIND[kind]
    if word in _CALENDAR:
        found = _calendar(token, before, after)
        if found is not None:
            return found
    if word in en.QUESTION:
        return en.QUESTION[word], QUESTION
    if word in en.FUNCTION:
        if token.raw == "US" and before in _BEFORE_US:
            return word, PLACE
        return word, CARRIER if word in en.CARRIERS else FUNCTION
    if word in en.CURRENCIES and len(word) > 2 and word not in _NOT_ALONE:
        return en.CURRENCIES[word], CURRENCY
    if word in en.UNITS and (before in ("square", "cubic") or (len(word) > 2 and word not in _NOT_ALONE)):
        return en.UNITS[word], UNIT
    if word in en.FREQUENCIES:
        return en.FREQUENCIES[word], UNIT
    if lexicon.is_place(word):
        return word, PLACE
    base = lexicon.lemma(word)
    if base in en.CARRIERS:
        return base, CARRIER
    return base, FUNCTION if base in en.FUNCTION else CONTENT


def _calendar(token: Token, before: str, after: str) -> tuple[str, str] | None:
    """Return key and class of a word that names a day, month or part of the day."""
    word = token.text
    if word in en.RELATIVE and after in _PERIODS:
        return en.RELATIVE[word], DATE
    if word in en.DAYS:
        return en.DAYS[word], DATE
    if word in en.WEEKDAYS and word not in _AMBIGUOUS_DAYS:
        return en.WEEKDAYS[word], DATE
    if word in en.MONTHS and (
        word not in _AMBIGUOUS_MONTHS or token.raw[:1].isupper() or before in _BEFORE_MONTHS
    ):
        return en.MONTHS[word], DATE
    if word in en.DAY_PARTS and not (word == "am" and "i" in (before, after)):  # I am, am I: no morning
        return en.DAY_PARTS[word], DAY_PART
    return None


_CALENDAR: Final = frozenset((*en.RELATIVE, *en.DAYS, *en.WEEKDAYS, *en.MONTHS, *en.DAY_PARTS))
_AMBIGUOUS_DAYS: Final = en.words("sun mon sat wed")
_AMBIGUOUS_MONTHS: Final = en.words("may march mar jan")
_ZH_NOT_ALONE: Final = en.words("人民币 号 点 人 次 遍 倍 层 楼 集 级 期 里 度 分 角 升")
_ZH_COUNTERS: Final = en.words("几 多 少 个 半 每 哪 整 数")
_BEFORE_US: Final = en.words("the in from to for of across within outside leave visit")
_NOT_ALONE: Final = en.words(
    "real try won rand cad rub second sec point points star stars foot feet yard cup cups bit bits min mins"
)
_BEFORE_MONTHS: Final = en.words(
    "in of next last this since by until for from to during through early late mid on"
)
_PERIODS: Final = frozenset(
    w
    for w in (
        *en.UNITS,
        *en.WEEKDAYS,
        *en.MONTHS,
        "weekend",
        "night",
        "summer",
        "winter",
        "spring",
        "autumn",
        "fall",
        "season",
        "quarter",
    )
    if len(w) > 2
)

_BY_KIND: Final = {
    "o": ORDINAL, "u": UNIT, "m": CURRENCY, "t": TIME, "d": DATE, "s": SYMBOL, "c": CODE, "x": CONTENT, "p": PLACE, "h": CONTENT,
}  # fmt: skip


def _number_class(token: Token) -> str:
    value = token.value
    return (
        YEAR
        if value is not None and 1900 <= value < 2100 and len(token.raw) == 4 and token.text.isdigit()
        else NUMBER
    )


def _classify_han(token: Token, before: str, after: str) -> tuple[str, str]:
    if token.kind != "h":
        key, kind = _classify(token, before, after)
        return (zh.CANONICAL.get(key, key), kind) if kind != CONTENT else (key, kind)
    word = token.text
    if word in zh.WHEN:
        return zh.WHEN[word], DATE
    if word in zh.DAY_PARTS:
        return zh.DAY_PARTS[word], DAY_PART
    if word in zh.CURRENCY_WORDS:
        return zh.CURRENCY_WORDS[word], CURRENCY
    if len(word) > 1 and (word in zh.COUNTRIES or lexicon.is_place(word)):
        return word, PLACE
    key = zh.CANONICAL.get(word, word)
    if word in zh.UNITS and word not in _ZH_NOT_ALONE and (len(word) > 1 or before[-1:] in _ZH_COUNTERS):
        return zh.UNITS[word], CURRENCY if zh.UNITS[word] in zh.CURRENCIES else UNIT
    return key, FUNCTION if key in zh.FUNCTION or word in zh.FUNCTION else CONTENT


def _question(tokens: list[Token]) -> str:
    for token in tokens:
        if token.text in en.QUESTION:
            return en.QUESTION[token.text]
    return "yesno" if tokens and tokens[0].text in en.YES_NO_OPENERS else ""


def _opens(tokens: list[Token]) -> bool:
    """Tell whether the first words ask: how do I, in which year, do you, tell me what, I want to know why."""
    first = [token.text for token in tokens[:_OPENING]]
    return first[0] in en.YES_NO_OPENERS or any(word in en.QUESTION for word in first)


_OPENING: Final = 6  # tokens in which a question says that it is one

_ZH_QUESTIONS: Final = {
    "怎么": "how",
    "为什么": "why",
    "哪里": "where",
    "什么时候": "when",
    "多少": "number",
    "谁": "who",
    "什么": "what",
}


def _zh_question(tokens: list[Token]) -> str:
    for token in tokens:
        found = _ZH_QUESTIONS.get(zh.CANONICAL.get(token.text, token.text))
        if found is not None:
            return found
    return "yesno" if tokens and tokens[-1].text in ("吗", "么", "不", "没") else ""


_NO: Final = re.compile(r"no\s*[,.;:!]", re.IGNORECASE)


def _negations(tokens: list[Token], text: str) -> int:
    """Count negations that change what is asked; "No, …", "or not", "do or do not", "isn't it …" and "not only" don't."""
    if en.NEGATIONS.isdisjoint([token.text for token in tokens]):
        return 0
    count = 0
    if len(tokens) > 2 and tokens[1].text == "not" and tokens[2].text in _SUBJECTS and _FRONTED.match(text):
        count = -1
    for index, token in enumerate(tokens):
        if token.text in en.NEGATIONS:
            before = tokens[index - 1].text if index else ""
            after = tokens[index + 1].text if index + 1 < len(tokens) else ""
            if (
                (token.text == "no" and not index and (_NO.match(text) or after in _SPEAKERS))
                or _either(tokens, index)
                or _aside(tokens, index)
                or before in ("or", "if", "whether")
                or after in ("only", "just", "matter")
            ):
                continue
            count += 1
    return count


_FRONTED: Final = re.compile(r"[a-z]+n['\u2019]?t ", re.IGNORECASE)
_SPEAKERS: Final = en.words("i we you he she they it that this")
_SUBJECTS: Final = _SPEAKERS | en.words("there the a an my your our his her their these those")


def _either(tokens: list[Token], index: int) -> bool:
    """Tell whether the negation at `index` is one of both ways: do or do not, should/should not, why or why not."""
    return (
        index > 2
        and tokens[index - 2].text in ("or", "and", "/")
        and tokens[index - 1].text == tokens[index - 3].text
    )


def _aside(tokens: list[Token], index: int) -> bool:
    """Tell whether the negation at `index` only sets one verb or adjective off from another: hide (not block), a warm (not hot) bath."""
    if not 1 < index < len(tokens) - 2 or (tokens[index - 1].text, tokens[index + 2].text) != ("(", ")"):
        return False
    said, other = (lexicon.part_of_speech(lexicon.lemma(tokens[i].text)) for i in (index - 2, index + 1))
    return any(part in said and part in other for part in "va")


_ZH_NO: Final = frozenset("不没别无未勿非莫")
_ZH_NEGATION: Final = re.compile(
    rf"(?:{zh.NOT_NEGATION})|(..?)[不没]\1|[了过]没有?|没有?$|(?P<no>不|没|别|无|未|勿|非|莫)"
)


def _zh_negations(text: str) -> int:
    if _ZH_NO.isdisjoint(text):
        return 0
    body = text.rstrip(" ?？!！。.~")
    count = sum(found.lastgroup == "no" for found in _ZH_NEGATION.finditer(body))
    return count - (
        body.endswith(("不", "没", "没有", "不呢", "不啊")) and count > 0
    )  # …好不? asks, doesn't negate
