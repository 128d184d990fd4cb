"""Turns a prompt into a list of tokens and a normal form that is the same for mere changes of format.

Knows: character width, white space, quotes, contractions, greeting and politeness shells, and the
ways to write numbers, times, dates, percentages and sums of money. Leaves to others: what words
mean (`analysis`). The stored prompt stays as written; only matching reads this.

Symbols are kept: operators, brackets with code, C++, C#, versions and file names tell texts apart.
Dropped are only the punctuation of sentences and quotation marks.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NamedTuple

from semcache.guards import chinese as zh
from semcache.guards import english as en
from semcache.guards import numbers
from semcache.guards.english import words

MAX_TOKENS: Final = 4000


class Token(NamedTuple):
    """One unit of the normal form.

    Attributes:
        text: Its normal text; tokens joined by spaces are the normal form.
        kind: ``w`` word, ``h`` Chinese word, ``n`` number, ``o`` ordinal, ``u`` unit, ``m`` currency,
            ``t`` time of day, ``d`` date, ``s`` symbol, ``c`` code or identifier, ``x`` other scripts.
        raw: As written, for capitals.
        value: The number, minutes of the day, or None.
    """

    text: str
    kind: str
    raw: str = ""
    value: float | None = None


_TRANSLATE: Final = str.maketrans(
    {
        "‘": "'", "’": "'", "‛": "'", "′": "'", "´": "'", "“": '"', "”": '"', "„": '"', "″": '"', "«": '"', "»": '"',
        "「": '"', "」": '"', "『": '"', "』": '"', "《": '"', "》": '"', "〈": '"', "〉": '"', "【": '"', "】": '"',
        "–": "-", "—": "-", "‐": "-", "‑": "-", "−": "-", "―": "-", "~": "~", "〜": "~", "。": ".", "、": ",", "・": " ", "·": " ",
        "\u200b": None, "\u200c": None, "\u200d": None, "\u2060": None, "\ufeff": None, "\u00ad": None, "\ufe0f": None,
        "×": "*", "÷": "/",
    }
)  # fmt: skip
_HAN: Final = r"\u3400-\u9fff"
_CJK: Final = r"\u3040-\u30ff\u3400-\u9fff"
_LETTER: Final = rf"[^\W\d_{_CJK}]"
_LATIN: Final = rf"[^\W{_CJK}]"  # what a name is made of: 如何在Ubuntu上安装Node.js has two
_TOKEN: Final = re.compile(
    rf"""\s*(?:
    (?P<plain>[A-Za-z]+(?=[\s?!,;]|$))
  | (?P<code>(?<!`)`+[^`\n]+`+)
  | (?P<url>https?://[^\s{_CJK}]+|[\w.+-]+@[\w-]+\.[\w.]+)
  | (?P<acronym>(?<![\w.])(?:[A-Za-z]\.){{2,}}(?:[A-Za-z]\b)?)
  | (?P<sharp>(?<!\w)[A-Za-z]{{1,2}}(?:\+\+|\#)(?!\w))
  | (?P<dotnet>(?<!\w)\.(?:NET|net)\b)
  | (?P<name>[A-Za-z0-9]*_{_LATIN}+(?:\.{_LATIN}+)*(?:\(\))?|[A-Za-z]{_LATIN}*(?:\.[A-Za-z]{_LATIN}*)*\(\)|[A-Za-z_]{_LATIN}*(?:\.[a-z]{_LATIN}*)+)
  | (?P<version>[vV]?\d+(?:\.\d+){{2,}}|[vV]\d+(?:\.\d+)*(?![\w]))
  | (?P<clock>\d{{1,2}}:\d{{2}}(?::\d{{2}})?(?!\d))
  | (?P<isodate>\d{{4}}-\d{{1,2}}-\d{{1,2}}(?!\d))
  | (?P<ordinal>\d+(?i:st|nd|rd|th)\b)
  | (?P<zhpercent>百分之\d+(?:\.\d+)?)
  | (?P<zhnumber>\d+(?:\.\d+)?[百千万亿]+)
  | (?P<number>\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?)
  | (?P<word>{_LETTER}+(?:'{_LETTER}+)*'?)
  | (?P<han>(?:[\u3400-\u767d\u767f-\u9fff]+|百(?!分之\d))+)
  | (?P<kana>[\u3040-\u30ff]+)
  | (?P<operator>[=!<>]=+|=>|->|<-|&&|\|\||\+\+|--|::|\*\*|\*{{3,}}|<<|>>|//|\?\?=)
  | (?P<stop>[.,;:!?'"…，；：！？]+|(?!(?<=[\s\d(][A-Za-z]\s)-\s(?:[A-Za-z]\b|\d))(?:(?<=\s)(?<!\d\s)-+(?=\s)|(?<=\s)-+(?=\s\D)))
  | (?P<symbol>\S))
    """,
    re.VERBOSE,
)
_HAN_GAP: Final = re.compile(rf"(?<=[{_HAN}]) (?=[{_HAN}])")
_SHELL_WORDS: Final = re.compile(
    r"""(?:(?:hi|hello|hey|greetings|good\ (?:morning|afternoon|evening)|dear\ \w+|excuse\ me|sorry)(?:\ (?:there|all|everyone|guys|folks|team))?\b[\s,.!:;-]+
        |(?:please|kindly|thanks|thank\ you|pls|plz)\b[\s,.!:;-]+
        |(?:(?:can|could|would|will)\ you\ (?:please|kindly)\b[\s,]+)
        |(?:i\ (?:was\ wondering|wonder)\ if\ you\ could\ (?:please\ )?tell\ me[\s,:]+))+""",
    re.VERBOSE | re.IGNORECASE,
)
_SHELL_TAIL: Final = re.compile(
    r"(?<![\s,.!?;:])[\s,.!?;:]+(?:(?:please|pls|plz|thanks|thank\ you|thx|many\ thanks|thanks\ in\ advance|cheers)(?:\s(?:so|very)\smuch)?[\s,.!?;:]*)+$",
    re.IGNORECASE,
)
_ZH_SHELL: Final = re.compile(
    rf"^(?:(?:{zh.CALLED}|{zh.OPENING}|{zh.SHELL})[\s,，.。!！?？:：~]*)+", re.IGNORECASE
)
_ZH_TAIL: Final = re.compile(
    r"(?<![\s,，.。!！?？])[\s,，.。!！?？]*(?:谢谢|谢谢你|谢谢您|多谢|谢了|感谢|拜托了)[\s,，.。!！?？~]*$"
)
_ZH_PARTICLE: Final = re.compile(
    r"(?<=..)(?:(?:(?<!哈)哈|[啊呀哦哇诶噢哟嘞])+|(?<=[^你我他她它]{3})呢)[\s。.!！?？~]*$"
)
_SHELL_ENDS: Final = ("please", "pls", "plz", "thanks", "thx", "you", "much", "advance", "cheers")
_LONGEST_END: Final = max(map(len, _SHELL_ENDS))
_MARKS: Final = " ,.!?;:"
_BEHIND_WORDS: Final = " ,.!?;"  # marks that are never part of a token behind a word
_ZH_PARTICLES: Final = tuple("哈啊呀哦哇诶噢哟嘞呢")
_WORD: Final = re.compile(r"\w")
_ZH_NUMERAL: Final = re.compile(
    rf"百分之[{numbers.ZH_NUMERAL}]+|{numbers.ZH_DECIMAL}|第?[{numbers.ZH_NUMERAL}]+(?=[年月日号天周岁元块角毛分秒时点度米斤克吨里升倍期次遍楼层集级人乘加减除等折丈尺]|小时|个[月小星礼半多]|星期|礼拜|公里|公斤|千米|厘米|美元|美金|欧元|英镑|日元|万|亿|百|千)"
    rf"|(?<=[以加减乘除于])[{numbers.ZH_NUMERAL}]+"
    rf"|[二两三四五六七八九十百千][{numbers.ZH_NUMERAL}]*(?=[个只张本条章位件块份家部台颗杯瓶碗双套辆箱粒片首页句门道座间场])"
    rf"|第[{numbers.ZH_NUMERAL}]+|[{numbers.ZH_NUMERAL}]{{2,}}"
)
_ZH_NUMERALS: Final = frozenset(numbers.ZH_NUMERAL)
_ZH_WORDS_WITH_NUMERALS: Final = words(
    "一一 万一 千万 一百 十分 三千 二百 四千 一千 百万 万万 一二 千百 三三 亿万 百千 二百五 三七 四六 十全 万亿"
) - words("一百 三千 二百 四千 一千 百万 万亿")
_ZH_NOT_COUNTED: Final = words(
    "十分 一点 一些 一样 一下 一直 一起 一定 一共 一般 一次 一度 一级 一时 一分 一元 一人 万元 百分 千克 千米 百度 百年 千年 万年"
)
_CLIPPED: Final = words("s t m re ve ll d")
_SUFFIXES: Final = words(
    """com net org io js py csv json txt md html htm css php pdf doc docx xls xlsx ppt pptx exe dll zip png jpg jpeg gif mp3 mp4
    wav xml yaml yml toml ini cfg conf sh bat ts tsx jsx cpp hpp java jar go rs rb swift kt sql db log gov edu co uk ai app dev
    me tv ly gl eu de fr cn jp ru info biz asp aspx gz tar iso apk vue bin dat bak lock env ipynb parquet pkl so a"""
)
_ZH_MEASURES: Final = frozenset("个只张本条章件块份家部台颗杯瓶碗双套辆箱粒片页句门场斤两亩丈尺")
_MERIDIEM: Final = {"am": 0, "pm": 12, "a.m": 0, "p.m": 12}


def clean(text: str) -> str:
    """Unify width, white space, quotes, dashes and invisible characters; case and words stay."""
    if not text.isascii():
        unified = text.translate(_TRANSLATE)
        text = unicodedata.normalize("NFKC", unified)
        text = text if text == unified else text.translate(_TRANSLATE)
        return _HAN_GAP.sub("", " ".join(text.split()))
    return " ".join(text.split())


def strip_shells(text: str) -> str:
    """Drop greetings and politeness around a cleaned prompt, unless nothing else is left."""
    found = _SHELL_WORDS.match(text)
    inner = text[found.end() :] if found else text
    if inner.rstrip(_MARKS)[-_LONGEST_END:].lower().endswith(_SHELL_ENDS):
        inner = _SHELL_TAIL.sub("", inner)
    if not inner.isascii():
        inner = _ZH_SHELL.sub("", inner)
        if "谢" in inner or "拜托" in inner:
            inner = _ZH_TAIL.sub("", inner)
        if inner.rstrip(" 。.!！?？~").endswith(_ZH_PARTICLES):
            inner = _ZH_PARTICLE.sub("", inner)
    return inner if _WORD.search(inner) else text


def tokenize(text: str) -> list[Token]:
    """Cut a cleaned text without shells into normal tokens."""
    return _bare_words(text) or _join(_plain_tokens(text))


def _bare_words(text: str) -> list[Token]:
    """Cut a text of nothing but ASCII words of which none is joined to others; return nothing for all others."""
    bare = text.rstrip(_BEHIND_WORDS)
    if not bare.isascii() or not bare.replace(" ", "").isalpha():
        return []
    words = bare.lower().split(" ")
    if not _NOT_BARE.isdisjoint(words) or len(words) > MAX_TOKENS:
        return []
    return [Token(word, "w", raw) for word, raw in zip(words, bare.split(" "), strict=True)]


def normal_form(text: str) -> str:
    """Return the normal form: equal for two texts that differ in format only."""
    return " ".join(token.text for token in tokenize(strip_shells(clean(text))))


def _plain_tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    add = tokens.append
    for found in _TOKEN.finditer(text):
        group, raw = found.lastgroup, found[found.lastindex or 0]
        if group == "plain":  # a word, found without trying the other forms
            word = raw.lower()
            if word in en.CONTRACTIONS:
                tokens.extend(_word(raw))
            else:
                add(Token(word, "w", raw))
        elif group == "word":
            tokens.extend(_word(raw))
        elif group == "stop":
            continue
        elif group == "number":
            value = numbers.from_digits(raw)
            add(Token(raw if value is None else numbers.show(value), "n", raw, value))
        elif group == "zhnumber":
            value = float(raw.rstrip("百千万亿"))
            for scale in raw[len(raw.rstrip("百千万亿")) :]:
                value *= numbers.ZH_SCALES[scale]
            add(Token(numbers.show(value), "n", raw, value))
        elif group == "zhpercent":
            add(Token(numbers.show(float(raw[3:])), "n", raw, float(raw[3:])))
            add(Token("percent", "u", "%"))
        elif group == "han":
            tokens.extend(_han(raw))
        elif group == "kana":
            add(Token(raw, "x", raw))
        elif group == "code":
            add(Token(raw.strip("`"), "c", raw))
        elif group == "acronym":
            word = raw.replace(".", "").lower()
            add(Token("usa" if word == "us" else word, "w", raw.replace(".", "")))
        elif group == "clock":
            parts = raw.split(":")
            add(Token(raw, "t", raw, int(parts[0]) * 60 + int(parts[1])))
        elif group == "isodate":
            year, month, day = (int(p) for p in raw.split("-"))
            add(Token(f"{month:02d}-{day:02d}", "d", raw))
            add(Token(str(year), "n", str(year), float(year)))
        elif group == "ordinal":
            rank = numbers.ordinal(raw.lower())
            add(Token(f"{rank}th", "o", raw, rank))
        elif group in ("symbol", "operator"):
            add(Token(raw, "s", raw))
        elif group in ("name", "version", "url"):
            if group == "name" and (split := _run_on(raw)):
                for part in split:
                    tokens.extend(_word(part))
            else:
                add(Token(raw if "_" in raw or "(" in raw else raw.lower(), "c", raw))
        else:
            add(Token(raw.lower(), "c", raw))
        if len(tokens) > MAX_TOKENS:
            break
    return tokens


def _run_on(raw: str) -> list[str] | None:
    """Split `end.Start`, where a space is missing; None for file names, domains and attributes."""
    parts = raw.split(".")
    if "_" in raw or "(" in raw or len(parts) != 2 or len(parts[0]) < 2 or len(parts[1]) < 2:
        return None
    if parts[1].lower() in _SUFFIXES or (any(c.isupper() for c in parts[1][1:]) and not parts[1].isupper()):
        return None
    return parts


def _word(raw: str) -> list[Token]:
    word = raw.lower().rstrip("'")
    if "'" in word:
        expanded = _contraction(word)
        if expanded is not None:
            parts = expanded.split()
            return [Token(part, "w", raw if i == 0 else part) for i, part in enumerate(parts)]
        if word.endswith("'s"):
            return [Token(word[:-2], "w", raw[:-2])]
        return [Token(word, "w", raw)]
    found = en.CONTRACTIONS.get(word)
    if found is not None:
        return [Token(part, "w", part) for part in found.split()]
    return [Token(word, "w", raw)]


def _contraction(word: str) -> str | None:
    if word in en.CONTRACTIONS:
        return en.CONTRACTIONS[word]
    head, _, tail = word.rpartition("'")
    if tail == "s" and head in en.IS_SUBJECTS:
        return head + " is"
    if word.endswith("n't"):
        return word[:-3] + " not"
    long = {"re": "are", "ve": "have", "ll": "will", "m": "am", "d": "would"}.get(tail)
    return None if long is None else f"{head} {long}"


def _han(run: str) -> list[Token]:
    """Cut a run of Chinese into words and numbers."""
    from semcache.guards.lexicon import cut

    if _ZH_NUMERALS.isdisjoint(run):
        return [Token(word, "h", word) for word in cut(run)]
    tokens: list[Token] = []
    position = 0
    for found in _ZH_NUMERAL.finditer(run):
        text = found[0]
        if text in _ZH_WORDS_WITH_NUMERALS or found.start() < position:
            continue
        if (
            not text.startswith("百分之")
            and "点" not in text
            and run[found.start() :][:2] in _ZH_NOT_COUNTED
            and run[found.end() + 1 : found.end() + 2] != "钟"
        ):
            continue
        token = _zh_number(text)
        if token is None:
            continue
        tokens.extend(Token(word, "h", word) for word in cut(run[position : found.start()]))
        tokens.extend(token)
        position = found.end()
    tokens.extend(Token(word, "h", word) for word in cut(run[position:]))
    return tokens


def _zh_number(text: str) -> list[Token] | None:
    if text.startswith("百分之"):
        value = numbers.from_digits(text[3:]) or numbers.from_chinese(text[3:])
        return (
            None
            if value is None
            else [Token(numbers.show(value), "n", text, value), Token("percent", "u", "%")]
        )
    if text.startswith("第"):
        value = numbers.from_chinese(text[1:])
        return None if value is None else [Token(f"{int(value)}th", "o", text, value)]
    value = numbers.from_chinese(text)
    return None if value is None else [Token(numbers.show(value), "n", text, value)]


_JOINED: Final = (  # words that may be part of a number, sum, date or contraction
    _CLIPPED | {"per", *en.ONES, *en.TENS, *en.ORDINALS, *en.DECADES, *en.MONTHS, *en.CURRENCIES}
)
_NOT_BARE: Final = _JOINED | en.CONTRACTIONS.keys()


def _join(tokens: list[Token]) -> list[Token]:
    """Join what belongs together: number words, scales, units, money, times and dates."""
    words = [t.text for t in tokens]
    kinds = {t.kind for t in tokens}
    if (
        kinds.isdisjoint("nto")
        and _JOINED.isdisjoint(words)
        and not ("h" in kinds and any(w[0] == "几" for w in words))
    ):
        return tokens
    out: list[Token] = []
    i, size = 0, len(tokens)
    while i < size:
        token = tokens[i]
        kind = token.kind
        if kind == "w" and words[i] not in _JOINED:
            out.append(token)
            i += 1
        elif kind == "w":
            i = _join_word(tokens, words, i, out)
        elif kind == "n":
            i = _join_number(tokens, words, i, out)
        elif kind == "t":
            i = _join_clock(tokens, words, i, out)
        elif kind == "s" and token.text in en.CURRENCIES and i + 1 < size and tokens[i + 1].kind == "n":
            i = _join_number(tokens, words, i + 1, out)
            if out[-1].kind != "m":  # "$30 gbp": the word says which
                _add_unit(out, en.CURRENCIES[token.text], "m")
        elif (
            kind == "o"
            and i + 1 < size
            and (month := _month(words, i + 1 + (words[i + 1] == "of"))) is not None
        ):
            out.append(Token(f"{month}-{int(token.value or 0):02d}", "d", token.raw))
            i += 2 + (words[i + 1] == "of")
        elif kind == "h":
            i = _join_han(tokens, words, i, out)
        else:
            out.append(token)
            i += 1
    return out


def _add_unit(out: list[Token], unit: str, kind: str) -> None:
    """Append a unit behind its number; a currency said twice ($5 USD) counts once."""
    if not (out and out[-1].kind == kind and out[-1].text == unit):
        out.append(Token(unit, kind, unit))


def _month(words: list[str], i: int) -> str | None:
    return en.MONTHS.get(words[i]) if i < len(words) else None


def _join_word(tokens: list[Token], words: list[str], i: int, out: list[Token]) -> int:
    token, word = tokens[i], words[i]
    following = words[i + 1] if i + 1 < len(words) else ""
    if word in en.ONES or word in en.TENS:
        read = numbers.from_english(words, i)
        if read is not None and not (word == "one" and read[1] == 1 and not _counts(words, i + 1)):
            value, taken = read
            rank = (
                numbers.ordinal(words[i + taken])
                if word in en.TENS and taken == 1 and i + 1 < len(words)
                else None
            )
            if rank is not None and rank < 10:  # twenty second
                return _ordinal(tokens, words, i + 2, int(value) + rank, out)
            number = Token(numbers.show(value), "n", token.raw, value)
            merged = [*tokens[:i], number, *tokens[i + taken :]]
            texts = [*words[:i], number.text, *words[i + taken :]]
            return _join_number(merged, texts, i, out) + taken - 1
    elif word in en.ORDINALS and not (word == "second" and out and out[-1].kind == "n"):
        return _ordinal(tokens, words, i + 1, en.ORDINALS[word], out)
    elif word in en.DECADES:
        out.append(Token(f"{en.DECADES[word]}s", "n", token.raw, float(en.DECADES[word])))
        return i + 1
    elif word in en.MONTHS and i + 1 < len(words):
        nxt = tokens[i + 1]
        day = nxt.value if nxt.kind in "no" else numbers.ordinal(following)
        if day is None and following in en.TENS and i + 2 < len(words):
            rank = numbers.ordinal(words[i + 2])
            if rank is not None and rank < 10:
                out.append(Token(f"{en.MONTHS[word]}-{en.TENS[following] + rank:02d}", "d", token.raw))
                return i + 3
        if day is not None and 1 <= day <= 31 and word not in ("may", "sun"):
            out.append(Token(f"{en.MONTHS[word]}-{int(day):02d}", "d", token.raw))
            return i + 2
    elif len(word) <= 2 and word in _CLIPPED and out and out[-1].kind == "w":  # what s, don t
        previous = out[-1].text
        if word == "s":
            if previous in en.IS_SUBJECTS:
                out.append(Token("is", "w", word))
            return i + 1
        expanded = _contraction(
            f"{previous}n't" if word == "t" and not previous.endswith("n") else f"{previous}'{word}"
        )
        if (
            expanded is not None
            and (word != "t" or previous.endswith("n"))
            and (word != "d" or previous in en.IS_SUBJECTS | {"i", "we", "you", "they"})
        ):
            out[-1:] = [Token(part, "w", part) for part in expanded.split()]
            return i + 1
    elif word == "per" and following == "cent":
        _add_unit(out, "percent", "u")
        return i + 2
    elif word in en.CURRENCIES and out and out[-1].kind in "nm":
        _add_unit(out, en.CURRENCIES[word], "m")
        return i + 1
    out.append(token)
    return i + 1


def _counts(words: list[str], i: int) -> bool:
    """Tell whether the word at `i` makes a preceding `one` a number: a unit, a currency, `of 6`, `out of`."""
    if i >= len(words):
        return False
    word = words[i]
    return (
        word in en.UNITS
        or word in en.CURRENCIES
        or word in ("out", "person", "people", "am", "pm", "o'clock", "way")
    )


def _ordinal(tokens: list[Token], words: list[str], i: int, rank: int, out: list[Token]) -> int:
    """Append an ordinal that ends before `i`, or the date that it is part of."""
    skip = 1 if i < len(words) and words[i] == "of" else 0
    month = _month(words, i + skip)
    if month is not None and rank <= 31:
        out.append(Token(f"{month}-{rank:02d}", "d", ""))
        return i + skip + 1
    out.append(Token(f"{rank}th", "o", "", rank))
    return i


def _join_number(tokens: list[Token], words: list[str], i: int, out: list[Token]) -> int:
    token = tokens[i]
    value = token.value
    i += 1
    following = words[i] if i < len(words) else ""
    if value is not None and following in en.SCALES and following != "hundred":
        value *= en.SCALES[following]
        i += 1
    elif (
        value is not None
        and following in ("k", "万", "亿", "千", "百")
        and (following != "k" or token.kind == "n")
    ):
        value *= {"k": 1000, "千": 1000, "百": 100, "万": 10**4, "亿": 10**8}[following]
        i += 1
    following = words[i] if i < len(words) else ""
    text = token.text if value is None else numbers.show(value)
    if following in ("o'clock", "oclock") and value is not None:
        after = words[i + 1] if i + 1 < len(words) else ""
        hour = _hour(value, after)
        out.append(Token(_clock(hour * 60), "t", token.raw, hour * 60))
        return i + (2 if after in _MERIDIEM else 1)
    if following in _MERIDIEM and value is not None and 0 < value <= 12:
        hour = _hour(value, following)
        out.append(Token(_clock(hour * 60), "t", token.raw, hour * 60))
        return i + 1
    month = _month(words, i + (following == "of"))
    if month is not None and value is not None and 1 <= value <= 31 and value == int(value):
        out.append(Token(f"{month}-{int(value):02d}", "d", token.raw))
        return i + 1 + (following == "of")
    if following == "s" and value is not None and value % 10 == 0 and tokens[i].raw == "s":  # 1980s, 80s
        out.append(
            Token(
                f"{numbers.show(value % 100 if value > 1900 and value < 2000 else value)}s",
                "n",
                token.raw,
                value % 100,
            )
        )
        return i + 1
    out.append(Token(text, "n", token.raw, value))
    if following == "%" or following in ("percent", "pct"):
        _add_unit(out, "percent", "u")
        return i + 1
    if following in en.CURRENCIES:
        _add_unit(out, en.CURRENCIES[following], "m")
        return i + 1
    if following in en.UNITS:
        _add_unit(out, en.UNITS[following], "u")
        return i + 1
    return i


def _hour(value: float, meridiem: str) -> float:
    return value if meridiem not in _MERIDIEM else value % 12 + _MERIDIEM[meridiem]


def _clock(minutes: float) -> str:
    return f"{int(minutes // 60)}:{int(minutes % 60):02d}"


def _join_clock(tokens: list[Token], words: list[str], i: int, out: list[Token]) -> int:
    token = tokens[i]
    minutes = float(token.value or 0)
    following = words[i + 1] if i + 1 < len(words) else ""
    if following in _MERIDIEM and minutes < 13 * 60:
        minutes = minutes % 720 + _MERIDIEM[following] * 60
        out.append(Token(_clock(minutes), "t", token.raw, minutes))
        return i + 2
    out.append(Token(_clock(minutes), "t", token.raw, minutes))
    return i + 1


def _join_han(tokens: list[Token], words: list[str], i: int, out: list[Token]) -> int:
    word = words[i]
    if word == "第" and i + 1 < len(tokens) and tokens[i + 1].kind == "n" and tokens[i + 1].value is not None:
        rank = tokens[i + 1].value or 0.0
        out.append(Token(f"{numbers.show(rank)}th", "o", word, rank))
        return i + 2
    following = tokens[i + 1] if i + 1 < len(tokens) else None
    if word == "一点" and following is not None and following.kind == "n":  # 一点55: the hour, not a little
        out += [Token("1", "n", "一", 1.0), Token("点", "u", "点")]
        return i + 1
    if word[:1] == "几" and word[1:] in zh.UNITS and len(word) > 2:  # 几厘米
        canonical = zh.UNITS[word[1:]]
        out += [
            Token("几", "h", "几"),
            Token(canonical, "m" if canonical in zh.CURRENCIES else "u", word[1:]),
        ]
        return i + 1
    if out and out[-1].kind == "n":
        for unit in (word, word[:2], word[:1]):
            if unit in zh.UNITS:
                rest = word[len(unit) :]
                canonical = zh.UNITS[unit]
                out.append(Token(canonical, "m" if canonical in zh.CURRENCIES else "u", unit))
                if rest.startswith("半"):
                    _add(out, len(out) - 2, 0.5)
                    rest = rest[1:]
                if rest:
                    out.append(Token(rest, "h", rest))
                return i + 1
        if word == "个" and following is not None and following.text[:2] in ("月", "小时", "星期", "礼拜"):
            unit = following.text
            out.append(Token(zh.UNITS.get(unit, unit), "u", unit))
            return i + 2
        if word in ("个半", "个") and (
            word != "个" or (following is not None and following.text[:1] == "半")
        ):
            rest = following.text[1:] if word == "个" and following is not None else ""
            after = i + (2 if word == "个" else 1)
            unit = rest or (words[after] if after < len(words) else "")
            if unit in zh.UNITS:  # 两个半小时
                _add(out, len(out) - 1, 0.5)
                out.append(Token(zh.UNITS[unit], "u", unit))
                return after + (0 if rest else 1)
    counted = len(out) > 1 and out[-2].kind == "n" and (out[-1].kind == "u" or out[-1].text in _ZH_MEASURES)
    if counted and word.startswith("半"):
        _add(out, len(out) - 2, 0.5)  # 七点半, 三年半, 三杯半
        if word[1:]:
            out.append(Token(word[1:], "h", word[1:]))
        return i + 1
    if counted and out[-1].text not in ("点", "年", "月") and len(word) == 1 and numbers.ZH_DIGITS.get(word):
        _add(out, len(out) - 2, numbers.ZH_DIGITS[word] / 10)  # 十二秒五, 三块五
        return i + 1
    out.append(tokens[i])
    return i + 1


def _add(out: list[Token], place: int, part: float) -> None:
    """Make the number at `place` larger by a part of its unit."""
    value = round((out[place].value or 0.0) + part, 9)
    out[place] = Token(numbers.show(value), "n", out[place].raw, value)
