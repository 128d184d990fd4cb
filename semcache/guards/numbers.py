"""Reads numbers written in digits, English words and Chinese numerals. Pure.

Knows: values. Leaves to others: what is counted (units), and where in the text the number stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from semcache.guards.english import ONES, ORDINALS, SCALES, TENS

ZH_DIGITS: Final = {c: i for i, c in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "两": 2,
    "俩": 2,
    "壹": 1,
    "贰": 2,
    "叁": 3,
}
ZH_SCALES: Final = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8}
ZH_NUMERAL: Final = "零〇一二两三四五六七八九十百千万亿"
_FIGURE: Final = "[零〇一二三四五六七八九]"
ZH_DECIMAL: Final = (  # 零点五, 三点一四; 七点三十, 八点五分, 七点三个人 and 一点一点 are none
    rf"(?:[{ZH_NUMERAL}]+点{_FIGURE}+)(?![十百千分刻半点个位名只人])"
)


LONGEST: Final = 40  # characters of a Chinese numeral; what is longer is none


def show(value: float) -> str:
    """Write a value the same way however it was written: ``5000``, ``3.5``."""
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(value)


def from_digits(text: str) -> float | None:
    """Read ``5,000`` or ``3.50``; None if it isn't one plain number."""
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    return float(text) if re.fullmatch(r"\d+(?:\.\d+)?", text) and len(text) < 300 else None


def from_english(words: Sequence[str], start: int) -> tuple[float, int] | None:
    """Read the number written in words from `start` on.

    Returns:
        Its value and how many words it took ("and" included); None if there is none.
    """
    total, group, taken, index = 0.0, 0.0, 0, start
    room = 1000.0  # least place still free in this group: keeps "five six" two numbers
    while index < len(words):
        word = words[index]
        if word in TENS and room > 10:
            group, room = group + TENS[word], 10.0
        elif word in ONES and ((ONES[word] < 10 and room > 1) or room > 10):
            group, room = group + ONES[word], 1.0
        elif word in SCALES and taken:
            scale = SCALES[word]
            if scale == 100:
                group, room = max(group, 1.0) * 100, 100.0
            else:
                total, group, room = total + max(group, 1.0) * scale, 0.0, 1000.0
        elif (
            word == "and"
            and taken
            and room >= 100
            and index + 1 < len(words)
            and words[index - 1] in SCALES
            and (words[index + 1] in ONES or words[index + 1] in TENS)
        ):
            index += 1
            continue
        else:
            break
        index += 1
        taken = index - start
    return (total + group, taken) if taken else None


def ordinal(word: str) -> int | None:
    """Read ``third`` or ``22nd``."""
    if word in ORDINALS:
        return ORDINALS[word]
    found = re.fullmatch(r"(\d+)(?:st|nd|rd|th)", word)
    return int(found[1]) if found and len(found[1]) < 10 else None


def from_chinese(text: str) -> float | None:
    """Read ``三百五十``, ``二〇一六`` or ``三点五``; None if it isn't a numeral throughout."""
    whole, point, part = text.partition("点")
    if point:
        value, fraction = from_chinese(whole), from_chinese(part)
        if value is None or fraction is None or any(c in ZH_SCALES for c in part):
            return None
        return float(f"{show(value)}.{''.join(str(ZH_DIGITS[c]) for c in part)}")
    if not 0 < len(text) <= LONGEST or any(c not in ZH_DIGITS and c not in ZH_SCALES for c in text):
        return None
    if not any(c in ZH_SCALES for c in text):
        return float("".join(str(ZH_DIGITS[c]) for c in text))
    total, section, digit = 0, 0, 0
    last = 1
    for c in text:
        if c in ZH_DIGITS:
            digit = ZH_DIGITS[c]
            last = 1 if digit == 0 else last
            continue
        scale = ZH_SCALES[c]
        if scale >= 10**4:
            total, section, digit = (
                (total + (section + digit)) * scale
                if scale == 10**8
                else total + max(section + digit, 1) * scale,
                0,
                0,
            )
        else:
            section, digit = section + (digit or 1) * scale, 0
        last = scale
    if digit and last >= 100 and text[-2] in ZH_SCALES:  # 三百五 is 350
        digit *= last // 10
    return float(total + section + digit)
