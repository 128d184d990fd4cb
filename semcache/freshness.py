"""Pure: what a prompt's wording and an answer's history say about how long, and for whom, an answer holds.

Three questions: is the answer bound to this moment ("weather today"), is it about the person or the
place that asks ("my order", "near me"), and how does what is known of an answer (its kind, its
confidence, whether it came back equal when it was asked again) change its ttl. English and Chinese.
The word lists aim at precision: a how-to question ("how do I reset my password") has one answer for all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from semcache.errors import InvalidRequestError
from semcache.types import Entry, Response

KINDS: Final[Mapping[str, float | None]] = {
    "faq": 30 * 86400.0,
    "chat": 86400.0,
    "search": 600.0,
    "volatile": 30.0,
}
"""Kinds that every policy knows, with their ttl in seconds; `Policy.kinds` overrides and adds."""

_READ = 1000  # characters that are read at either end of a long prompt: questions are asked there


class Traits(NamedTuple):
    """What the wording says.

    Attributes:
        time_bound: The words that bind the answer to this moment; empty if none do.
        personal: The words that bind it to who asks, or where; empty if none do.
    """

    time_bound: str
    personal: str


def traits(prompt: str) -> Traits:
    """Read a prompt's wording. Of a long one both ends are read."""
    if len(prompt) > 2 * _READ:
        prompt = f"{prompt[:_READ]}\n{prompt[-_READ:]}"
    return _traits(prompt)


@lru_cache(maxsize=4096)  # at most 2,001 characters each
def _traits(text: str) -> Traits:
    lowered = text.lower()
    chinese = "" if text.isascii() else "zh"
    return Traits(
        _first(_TIME_EN, lowered) or (chinese and _first(_TIME_ZH, text)),
        _personal_en(lowered) or (chinese and _personal_zh(text)),
    )


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found.group().strip() if found else ""


_TIME_EN: Final = re.compile(
    r"""\b(?:
      today(?:'s)? | tonight(?:'s)? | tomorrow(?:'s)? | yesterday(?:'s)? | right\ now | as\ of\ now | just\ now
    | at\ the\ moment | at\ this\ moment | this\ (?:morning|afternoon|evening|weekend|week|month)
    | latest | most\ recent | newest | breaking\ news | up[- ]to[- ]the[- ]minute | real[- ]?time\ (?:price|data|quote)s?
    | (?<!alternating\ )(?<!direct\ )(?<!electric\ )current(?:ly)?\ (?:the\ )?(?:\w+\ ){0,2}?
        (?:price|prices|rate|rates|weather|temperature|time|date|status|score|news|version|events?|affairs|situation
          |population|value|balance|president|prime\ minister|ceo|champion|record|exchange|stock|market|trending)
    | weather(?!\ (?:vane|station|balloon)s?\b) | (?:stock|share|bitcoin|btc|gold|silver|oil|petrol|gas|crypto|ethereum)\ prices?
    | price\ of\ (?:gold|silver|oil|petrol|gas|bitcoin|btc|ethereum) | exchange\ rates?
    | what(?:'s|\ is)\ the\ (?:time|date)\s*(?:now|in\b[^?]*)?(?=\W*$) | what\ (?:time|day|date)\ is\ it | live\ scores?
    )\b | \bnow\W*$ | \bnews\ (?:on|about|from)\b""",
    re.X,
)

_TIME_ZH: Final = re.compile(
    r"今天|今日|今晚|明天|明日|昨天|昨日|刚刚|最新|实时|本周|这周|本月|天气|气温|股价|汇率|金价|油价|币价"
    r"|几点了|现在几点|今年|几号了|星期几|此刻|眼下"
    r"|(?:现在|目前|当前)(?:的)?(?:\w{0,6})(?:价格|房价|行情|形势|情况|利率|温度|多少钱|人口|版本|总统|首相|排名|比分)"
)

_PLACE_EN: Final = re.compile(
    r"""\b(?: near\ (?:me|here|my\ (?:current\ )?location) | around\ here(?=\W*$) | closest\ to\ me
    | near(?:est|by)\ (?:hospital|pharmacy|pharmacies|chemist|gas\ station|petrol\ station|atm|bank|branch|store|shop|restaurant
        |hotel|clinic|gym|cinema|supermarket|post\ office|police\ station|airport|metro|subway|bus\ stop|dentist|doctor)s?
        (?!\ (?:to|in|from|of)\ (?!me\b|here\b))
    | in\ my\ (?:area|zip\ code|postcode)(?=\W*$) | where\ am\ i(?=\W*$)
    ) \b""",
    re.X,
)

_LOCAL_WEATHER_EN: Final = re.compile(
    r"^\W*(?:(?:what(?:'s|\ is)|how(?:'s|\ is))\ the\ )?weather(?:\ forecast)?(?:\ like)?(?:\ (?:today|now|right\ now|tonight|tomorrow|outside))*\W*$"
    r"|^\W*(?:will|is)\ it\ (?:going\ to\ )?(?:rain|raining|snow|snowing|be\ (?:hot|cold|sunny))(?:\ (?:today|now|tonight|tomorrow))*\W*$",
    re.X,
)

_THING_EN: Final = (
    r"(?:orders?|packages?|parcels?|deliver(?:y|ies)|shipments?|refunds?|balance|transactions?|bookings?|reservations?"
    r"|flights?|appointments?|payments?|bills?|invoices?|subscription|salary|payslips?|claims?|tickets?|prescriptions?"
    r"|test\ results?|grades?|calendar|inbox|meetings?|itinerary|cart|wish\ ?list|loyalty\ points|reward\ points|data\ usage"
    r"|credit\ limit|statement|account\ (?:balance|number|status)|order\ (?:number|status|history)|luggage|baggage)"
)
_OWN_EN: Final = rf"my\ (?:(?!friend|mother|father|boss|wife|husband)\w+\ ){{0,2}}?{_THING_EN}\b"
_STATE_EN: Final = re.compile(
    rf"""^\W*(?:(?:hi|hello|hey|please|so|and|also|ok|okay|can\ you|could\ you|would\ you|i\ want\ to\ know)\W+)*(?:
      where(?:'s|\ is|\ are)\ my\ (?:\w+\ ){{0,2}}?(?:orders?|packages?|parcels?|deliver(?:y|ies)|shipments?|refunds?|luggage|baggage)\b
    | (?:what|when|which)(?:'s|\ is|\ are|\ was|\ were|\ will|\ does|\ did|\ do)\ (?:the\ (?:\w+\ )?(?:status|balance|date|total|amount)\ (?:of|on|for)\ )?{_OWN_EN}
    | what\ is\ on\ my\ (?:calendar|schedule)\b
    | (?:has|have|is|are|was|were|did|does|will)\ {_OWN_EN}\ (?!a\b|an\b|the\ same)
    | how\ (?:much|many|long)\b(?![^?]*\bshould\b)[^.?!]{{0,40}}?\b{_OWN_EN}
    | (?:show|list|track|check|find|pull\ up|look\ up|get|read|tell|give|summari[sz]e)\ (?:me\ )?(?:all\ )?(?:about\ )?(?:of\ )?
        (?:the\ (?:\w+\ )?(?:status|balance|details)\ (?:of|on|for)\ )?{_OWN_EN}
    | (?:order|delivery|refund)\ status\ (?:of|for)\ {_OWN_EN}
    | why\ (?:is|was|has|have|are|were|hasn't|isn't|wasn't|haven't)\ {_OWN_EN}\ (?:late|delayed|cancel+ed|not|still|declined|so\ high|higher|missing|been)\b
    | how\ much\ (?:money\ )?do\ i\ (?:have|owe)(?=\W*$|\ (?:left|in\ my|on\ my)\b) | what\ do\ i\ owe\b | what's\ my\ name\b | what\ is\ my\ name\b | who\ am\ i(?=\W*$)
    ) | ^\W*my\ (?:\w+\ )?(?:orders?|packages?|parcels?|deliver(?:y|ies)|refunds?)\ (?:hasn't|has\ not|didn't|never|is\ (?:late|missing|delayed)|still|arrived)""",
    re.X,
)


def _personal_en(lowered: str) -> str:
    if "my" not in lowered and " me" not in lowered and "here" not in lowered:
        if "weather" in lowered or "it " in lowered:
            return _first(_LOCAL_WEATHER_EN, lowered)
        if "near" not in lowered and " i" not in lowered:
            return ""
    return _first(_STATE_EN, lowered) or _first(_PLACE_EN, lowered)


_THING_ZH: Final = r"(?:订单|快递|包裹|外卖|物流|余额|账单|退款|航班|预约|预订|积分|工资|流量|话费|成绩|日程|保单|优惠券|购物车)"
_STATE_ZH: Final = re.compile(
    rf"(?:查|查询|查一下|查下|查查|看|看看|看一下|列出|帮我查|告诉我)我的?(?:\w{{0,4}}){_THING_ZH}"
    r"|我的(?:\w{0,4})(?:订单|快递|包裹|外卖|物流|退款|航班)(?:现在)?(?:到哪|在哪|到了吗|发货|什么时候|多久|状态|几点|还没|为什么还没|怎么还没)"
    rf"|我的(?:\w{{0,4}}){_THING_ZH}(?:现在)?(?:是|有|还有|还剩|剩)?(?:多少|几)"
    r"|我(?:现在|还)?(?:有|剩|欠)(?:了)?多少(?:钱|余额|积分|流量|话费)|我叫什么|我是谁"
)
_PLACE_ZH: Final = re.compile(
    r"(?:^|[我这，,。？?]|这里|这儿|请问|找找?|查|搜|看看|有没有|推荐)附近|离我(?:最)?近|我(?:的)?(?:周围|周边)(?:有|哪)|^(?:周围|周边)|我在哪(?:里|儿)?[？?]?$"
)
_LOCAL_WEATHER_ZH: Final = re.compile(
    r"^(?:今天|明天|现在|今晚|外面|后天)?(?:的)?天气(?:怎么样|如何|预报|好吗)?[？?。]?$"
)
_HOW_ZH: Final = re.compile(r"怎么(?!还没|还不)|如何|怎样|咋|可以|能不能|能否|可不可以|会不会")


def _personal_zh(text: str) -> str:
    found = _first(_PLACE_ZH, text) or _first(_LOCAL_WEATHER_ZH, text)
    if found or "我" not in text or _HOW_ZH.search(text):
        return found
    return _first(_STATE_ZH, text)


def confidence_from_logprobs(logprobs: Sequence[float]) -> float | None:
    """Return an answer's confidence from its tokens' log-probabilities, in [0, 1]; None without tokens.

    It is the geometric mean of the tokens' probabilities, the likelihood per token, so that long answers
    aren't taken for doubtful ones.

    Args:
        logprobs: Natural logarithms, each 0 or less; minus infinity counts as the least a model reports.

    Raises:
        InvalidRequestError: One is NaN or above 0.
    """
    if not logprobs:
        return None
    total = 0.0
    for position, value in enumerate(logprobs):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 1e-6:
            raise InvalidRequestError(
                f"log-probability {position} is {value!r}, expected a number of 0 or less (a natural logarithm)"
            )
        total += max(min(value, 0.0), -20.0)
    return math.exp(total / len(logprobs))


def confident_share(confidence: float | None, floor: float, least: float) -> float:
    """Return the share of its ttl that an answer of this confidence gets, in [least, 1].

    Args:
        confidence: In [0, 1]; None, unknown, gets all of it.
        floor: The confidence below which nothing is stored; there the share is `least`, and it rises evenly
            to 1 at confidence 1.
    """
    if confidence is None or floor >= 1.0:
        return 1.0
    return least + (1.0 - least) * max(0.0, confidence - floor) / (1.0 - floor)


def stretched(stretch: float, same: bool, most: float, *, lived: float = 1.0) -> float:
    """Return the factor on the ttl after an answer was asked again: doubled if it came back equal, else halved.

    Args:
        stretch: The factor so far.
        most: It stays in [1 / most, most]; 1 turns this off.
        lived: Share of its ttl that the old answer had lived; one that came back equal before half of it proves nothing.
    """
    if same and lived < 0.5:
        return min(most, max(1.0 / most, stretch))
    return min(most, max(1.0 / most, stretch * (2.0 if same else 0.5)))


def same_answer(old: str, new: str) -> bool:
    """Return whether two answers say the same, but for white space and case."""
    return " ".join(old.split()).casefold() == " ".join(new.split()).casefold()


def agree(old: Response, new: Response, same: Callable[[str, str], bool]) -> bool:
    """Return whether two responses say the same: their texts by `same`, or their data where neither has a text."""
    if not old.text and not new.text:
        return old.data == new.data
    return bool(same(old.text, new.text))


def due(age: float, ttl: float, share: float, draw: float) -> bool:
    """Return whether a hit should have its entry answered again before it expires.

    Never before `share` of the ttl; from there the probability rises exponentially, from 5 % to all at the end, so
    that a much-read entry is refreshed early and once, and a little-read one late or not at all. That is XFetch
    (Vattani, Chierichetti, Lowenstein: Optimal Probabilistic Cache Stampede Prevention, PVLDB 8(8), 2015) with a
    third of the time between `share` and the end in place of the time that the recomputation takes.

    Args:
        age, ttl: Seconds.
        draw: A random number in (0, 1].
    """
    if age < share * ttl:
        return False
    return age - (1.0 - share) * ttl / 3.0 * math.log(draw) >= ttl


def own_tags(entry: Entry | None) -> tuple[str, ...]:
    """Return the tags that an entry was put with, without the one that its subject gives."""
    return () if entry is None else tuple(tag for tag in entry.tags if not tag.startswith("subject:"))
