"""What an English text says of when: now, in the past, in a time to come.

Knows: the words that say so beside the verb. Leaves to others: dates and times of day (`quantities`) and which
difference matters (`tenses`).
"""

from __future__ import annotations

from typing import Final

from semcache.guards import analysis as an
from semcache.guards.analysis import Analysis
from semcache.guards.english import words

PRESENT: Final = words("is are am do does")
PAST: Final = words("did was were had")
FUTURE: Final = words("will going")
DATED: Final = frozenset((an.DATE, an.YEAR, an.ORDINAL, an.TIME))
ONGOING: Final = words("play perform work live stay study happen sell host serve sing")
_PERIODS: Final = words("day week month year decade century hour minute season summer winter night weekend")
_COMING: Final = words("next come coming upcoming")
_GONE: Final = words("last past")
_NOW: Final = words("now nowadays currently")
_BE: Final = words("is are was were be been being get gets getting got become")
_ONCE_VERBS: Final = ONGOING | words("be have")
_BACK: Final = frozenset((("back", "in"), ("back", "when")))


def ahead(text: Analysis) -> bool:
    """Tell whether a text is about a time to come: the next seven days, the coming year."""
    return _beside_period(text, _COMING)


def over(text: Analysis) -> bool:
    """Tell whether a text is about a time that is over: the last seven days, two years ago."""
    return "ago" in text.tenses or _beside_period(text, _GONE)


def _beside_period(text: Analysis, which: frozenset[str]) -> bool:
    return not which.isdisjoint(text.tenses) and any(
        word in which and not _PERIODS.isdisjoint(text.keys[i + 1 : i + 3])
        for i, word in enumerate(text.words)
    )


def says_now(text: Analysis) -> bool:
    """Tell whether a text says that it is about today: now, these days; not "what now"."""
    said = text.words
    return (not _NOW.isdisjoint(said) and said[-2:] != ("what", "now")) or (
        "these" in said and said[said.index("these") + 1 :][:1] in (("day",), ("days",))
    )


def is_now(text: Analysis) -> bool:
    """Tell whether a text says how something is, in the present alone and without a date."""
    return (
        not PRESENT.isdisjoint(text.tenses)
        and PAST.isdisjoint(text.tenses)
        and FUTURE.isdisjoint(text.tenses)
        and "been" not in text.words
        and DATED.isdisjoint(text.kinds)
        and not was_once(text)
        and not over(text)
    )


def was_once(text: Analysis) -> bool:
    """Tell whether a text says how something was and no longer need be: used to be, was … ago, did … before."""
    if _used_to(text):
        return True
    if PAST.isdisjoint(text.tenses):
        return False
    return (
        text.words[-1] == "before"
        or an.YEAR in text.kinds
        or over(text)
        or ("back" in text.tenses and not _BACK.isdisjoint(zip(text.words, text.words[1:], strict=False)))
    )


def _used_to(text: Analysis) -> bool:
    """Tell whether something used to be so: not what is used to do it."""
    if "use" in text.tenses:
        return "did" in text.tenses and "use to" in text.normal
    if "used" not in text.tenses:
        return False
    i = text.words.index("used")
    behind = text.words[i + 1 : i + 3]
    return (
        behind[:1] == ("to",)
        and behind[1:] != ()
        and behind[1] in _ONCE_VERBS
        and _BE.isdisjoint(text.words[:i])
    )
