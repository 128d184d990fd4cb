"""Closed classes of English that the guards read: function words, contrasts, calendar, units, shells.

Written by hand for this project. Open-class words (antonyms, synonyms, how common a word is) come
from the shipped tables, see `lexicon`.
"""

from __future__ import annotations

from typing import Final


def _classes(text: str) -> dict[str, str]:
    """Map every word of a line to the line's first word; words are separated by white space, `_` is a space."""
    return {
        word.replace("_", " "): words[0].replace("_", " ")
        for line in text.strip().splitlines()
        if (words := line.split())
        for word in words
    }


def words(text: str) -> frozenset[str]:
    """Parse words separated by white space."""
    return frozenset(text.split())


def pairs(text: str) -> frozenset[tuple[str, str]]:
    """Parse `a b|c d` into both orders of each pair; `x/y z/w` opposes every word left to every word right."""
    found: set[tuple[str, str]] = set()
    for pair in text.replace("\n", "|").split("|"):
        if not pair.strip():
            continue
        left, right = pair.split()
        for a in left.split("/"):
            for b in right.split("/"):
                found |= {
                    (a.replace("_", " "), b.replace("_", " ")),
                    (b.replace("_", " "), a.replace("_", " ")),
                }
    return frozenset(found)


FUNCTION: Final = words("""
    a an the this that these those some any each every all both such same other another own
    i me my mine myself we us our ours ourselves you your yours yourself he him his himself she her hers herself
    it its itself they them their theirs themselves one ones someone somebody anyone anybody something anything
    am is are was were be been being do does did doing done have has had having will would shall should can could may
    might must ought need dare get gets got getting let lets make makes made
    of in on at by for from to into onto with without within about as than then so if or and but nor yet also too just
    only even ever really actually somehow truly fact quite rather very much many more most lot lots bit
    up down out off over under again back away here there now who whom whose which what when where why how
    whether while because since until till though although however through during between among against per via
    not no never none nobody nothing neither n't
    please kindly thanks thank hi hello hey ok okay yes well like kind sort way ways thing things
    tell show give find list want know see wanna gonna go going come us use using used mean means called
    possible different good best better there's etc
    """)
"""Words that carry little of what is asked; guards for closed classes look at them all the same."""

CARRIERS: Final = words("""
    tell show give find list want know see need like look looking get search display display explain describe help
    please could would can may might will shall should information info details detail question questions answer
    advice tips tip idea ideas suggest suggestion suggestions recommend recommendation recommendations
    way ways method methods step steps process procedure
    """)
"""Verbs and nouns that frame a request."""

ARTICLES: Final = words("a an the")
POSSESSIVES: Final = words("my your our his her its their")

QUESTION: Final = _classes(
    """
    how
    why
    when
    where
    who whom whose
    what which
    """
)
YES_NO_OPENERS: Final = words(
    "is are am was were do does did can could will would should shall may might must has have had isn aren doesn don"
)

SAME: Final = {  # word → group of words that stand for each other and share no frequent sense in the table
    word: line
    for line in """
    generate create produce build construct
    give provide
    return yield
    number quantity amount
    allow enable permit let
    deprecate discontinue
    select choose pick
    retrieve fetch get obtain
    cast convert transform
    delete remove erase
    contain include comprise
    start begin
    end finish
    fast quick rapid
    execute run
    set configure
    store save
    share distribute
    structure organize
    library package
    app application
    find locate
    tall height
    old age
    far distance
    heavy weight
    deep depth
    wide width
    long length
    stop quit
    fix correct
    """.strip().splitlines()
    for word in line.split()
}
NEGATIONS: Final = words(
    "not no non never none nobody nothing neither nor without cannot hardly unable absence lack lacks lacking avoid avoids avoiding prevent prevents preventing"
)

QUANTIFIERS: Final = {  # word → how many it says; alike are those of one line
    word: kind
    for kind, line in {
        "all": "all every each whole entire everyone everybody everything everywhere",
        "some": "some several someone somebody something somewhere couple",
        "any": "any anyone anybody anything",
        "few": "few",
        "most": "most",
        "many": "many much lot lots plenty",
        "half": "half",
        "part": "part portion",
        "one": "one single last latest newest oldest",
        "no": "no none nobody",
        "both": "both",
        "either": "either",
        "only": "only solely exclusively",
        "also": "also even",
        "full": "full complete total fully completely entirely totally wholly",
        "partly": "partial partly partially",
        "always": "always",
        "sometimes": "sometimes sometime often usually occasionally rarely seldom",
        "": "least than exactly precisely minimum maximum up other but",  # beside a number or an all
    }.items()
    for word in line.split()
}

TENSES: Final = words(
    "is are am was were do does did has have had will going used use ago last past next come coming upcoming before back"
)
"""Words that may say whether something was, is or will be."""

CONTRASTS: Final = pairs(
    """
    before after|with without|much little|used new|above under|until since|got gave|gets gives|getting giving|he she|him her|his her|himself herself|and or|more less/fewer|most least|always never
    everyone nobody|everything nothing|somebody nobody|inside outside|indoor outdoor|indoors outdoors|above below|over under|on off
    in out|into out|up down|upstairs downstairs|upper lower|internal external|inbound outbound|incoming outgoing|male female
    man woman|boy girl|husband wife|father mother|dad mom/mum|brother sister|son daughter|uncle aunt|nephew niece|king queen|boyfriend girlfriend
    actor actress|prince princess|bride groom|gentleman lady|mr mrs/ms/miss|guy girl|grandfather grandmother
    enable disable|activate deactivate|open close/shut|start stop/end/finish|begin end/finish/stop|increase decrease/reduce/lower
    raise lower|allow block/deny/forbid/prevent|accept reject/decline/refuse|add remove/delete|import export|upload download
    install uninstall|send receive|buy sell|lend borrow|push pull|win lose|pass fail|lock unlock|subscribe unsubscribe|follow unfollow
    connect disconnect|login logout|log_in log_out|sign_in sign_out|enter leave/exit|arrive depart/leave|save delete|create destroy/delete
    build demolish|love hate|like dislike/hate|agree disagree|appear disappear|encrypt decrypt|compress decompress|zip unzip
    deposit withdraw|withdrawal deposit|mute unmute|hide show/reveal|hidden visible|expand shrink/collapse|gain lose|attack defend
    remember forget|learn teach|ask answer|freeze unfreeze/thaw|block unblock|register unregister/deregister|link unlink
    approve deny/reject|permit prohibit/forbid|include exclude|attach detach|mount unmount|load unload|bind unbind|pin unpin
    good bad/evil|better worse|best worst|big small/little|large small|high low|long short|tall short|fast slow|quick slow
    cheap expensive/pricey/costly|old new/young|early late|hot cold|warm cool|hard easy/soft|difficult easy|strong weak|heavy light
    rich poor|happy sad/unhappy|safe dangerous/unsafe/risky|legal illegal|possible impossible|true false|right wrong/left
    correct incorrect/wrong|public private|free paid|full empty|clean dirty|wet dry|dark bright/light|loud quiet|deep shallow
    wide narrow|thick thin|fat thin/skinny|healthy unhealthy|normal abnormal|active inactive|passive active|positive negative|first last
    maximum minimum|max min|many few|day night|morning evening|summer winter|birth death|born died/dead|alive dead
    profit loss|income expense|advantage disadvantage|pro con|benefit drawback/harm|strength weakness|success failure|beginning end
    cause effect|input output|front back/rear|top bottom|left right|north south|east west|northern southern|eastern western
    employer employee|teacher student|buyer seller|lender borrower|landlord tenant|doctor patient|parent child|problem solution
    polite rude|brave cowardly|guilty innocent|domestic foreign/international|ancient modern|simple complex/complicated|rough smooth
    temporary permanent|manual automatic|single married|optional required/mandatory|direct indirect|smart stupid/dumb|kind cruel
    ugly beautiful/handsome/pretty|optimistic pessimistic|religious secular/atheist|liberal conservative|introvert extrovert
    introverted extroverted|lazy hardworking/diligent|generous stingy/greedy|honest dishonest|loyal disloyal|careful careless
    hopeful hopeless|useful useless|powerful powerless|defensive offensive|visible invisible|formal informal|major minor
    vertical horizontal|absolute relative|singular plural|odd even|senior junior|superior inferior|interior exterior
    ascending descending|forward backward/backwards|clockwise counterclockwise/anticlockwise|synchronous asynchronous
    online offline|wired wireless|read write|get set|encode decode|serialize deserialize|client server|host guest
    debit credit|asset liability|supply demand|bull bear|bullish bearish|import export|gross net|fixed variable|prepaid postpaid
    departure arrival|takeoff landing|check-in check-out|checkin checkout|one-way round-trip|nonstop connecting|pre post
    vegetarian meat|vegan meat|vacation work|weekday weekend|am pm|a.m. p.m.|yesterday tomorrow|past future|ancestor descendant
    introduction conclusion|bound unbound|question answer|lead follow|give take|lift drop|rise fall|ascend descend|accelerate decelerate
    promote demote|hire fire|employ dismiss|praise blame/criticize|win lose|succeed fail|admit deny|confirm cancel|book cancel
    schedule cancel|order cancel|turn_on turn_off|switch_on switch_off|plug_in unplug|charge discharge|inhale exhale
    wake sleep|stand sit|laugh cry|live die|float sink|melt freeze|heat cool|tighten loosen|zoom_in zoom_out|pack unpack|dress undress
    wrap unwrap|tie untie|fold unfold|cover uncover|undo redo|increase decrease|maximize minimize|inner outer
    major minor|mandatory optional|presence absence|present absent|guilty innocent|victory defeat|war peace|friend enemy|heaven hell
    """
)

UNITS: Final = _classes(
    """
    second seconds sec secs
    minute minutes min mins
    hour hours hr hrs
    day days
    week weeks wk wks
    month months
    year years yr yrs
    decade decades
    century centuries
    millisecond milliseconds ms
    gram grams g gm gms
    kilogram kilograms kg kgs kilo kilos
    milligram milligrams mg
    ounce ounces oz
    lb lbs
    ton tons tonne tonnes
    meter meters metre metres m
    kilometer kilometers kilometre kilometres km kms
    centimeter centimeters centimetre centimetres cm cms
    millimeter millimeters mm
    mile miles mi
    inch inches
    foot feet ft
    yard yards
    acre acres
    hectare hectares
    liter liters litre litres l
    milliliter milliliters ml
    gallon gallons
    cup cups
    tablespoon tablespoons tbsp
    teaspoon teaspoons tsp
    byte bytes
    bit bits
    kb kilobyte kilobytes
    mb megabyte megabytes
    gb gigabyte gigabytes gig gigs
    tb terabyte terabytes
    kilobit kilobits kbit kbits
    megabit megabits mbit mbits
    gigabit gigabits gbit gbits
    mbps
    gbps
    hz hertz
    khz
    mhz megahertz
    ghz gigahertz
    watt watts w
    kilowatt kilowatts kw
    volt volts
    amp amps
    mah
    celsius centigrade
    fahrenheit
    degree degrees
    calorie calories kcal
    mph
    kph kmh
    percent
    percentile
    star stars
    point points
    pixel pixels px
    """
)
CURRENCIES: Final = _classes(
    """
    dollar dollars usd bucks $ us$
    euro euros eur €
    pound pounds gbp sterling £ quid
    yen jpy
    yuan rmb cny renminbi ¥
    rupee rupees inr rs ₹
    won krw ₩
    ruble rubles rouble roubles rub
    franc francs chf
    peso pesos mxn
    cad
    aud
    dirham dirhams aed
    riyal riyals sar
    lira try
    real reais brl
    rand zar
    krona sek
    krone nok dkk
    zloty pln
    baht thb
    cent cents
    bitcoin bitcoins btc
    ethereum eth
    """
)
MONTHS: Final = _classes(
    """
    january jan
    february feb
    march mar
    april apr
    may
    june jun
    july jul
    august aug
    september sep sept
    october oct
    november nov
    december dec
    """
)
REVERSERS: Final = words(
    "remove revoke stop disable cancel undo delete reverse withdraw quit without no not off rid lose"
)
"""Words that undo what follows: "remove trust" is "untrust"."""

WEAK_CONTRASTS: Final = pairs(
    "and or|in out|into out|on off|up down|over under|above below|read write|question answer|more fewer|with without|give take"
    "|left right|ask answer|like dislike|first last|end beginning|learn teach|buy sell|long short|client server"
)
"""Opposites that often stand in rewordings too; they decide only between nearly equal texts."""

KEPT_OR_NOT: Final = pairs(
    "keep/retain/preserve/maintain remove/delete/erase/discard/drop/strip/ignore/lose/omit/clear"
)
"""Verbs that are opposites where they have the same object; "keep" alone has many senses."""

WEEKDAYS: Final = _classes(
    """
    monday mon mondays
    tuesday tue tues tuesdays
    wednesday wed wednesdays
    thursday thu thurs thursdays
    friday fri fridays
    saturday sat saturdays
    sunday sun sundays
    """
)
DAYS: Final = _classes(
    """
    today todays
    tomorrow tomorrows tmrw
    yesterday yesterdays
    tonight
    """
)
DAY_PARTS: Final = _classes(
    """
    morning mornings am a.m a.m.
    afternoon afternoons
    evening evenings
    night nights
    noon midday
    midnight
    pm p.m p.m.
    dawn sunrise
    dusk sunset
    breakfast
    lunch
    dinner
    """
)
RELATIVE: Final = _classes(
    """
    next coming upcoming following
    last previous past
    this current
    """
)
FREQUENCIES: Final = _classes(
    """
    daily
    weekly
    monthly
    yearly annual annually
    hourly
    quarterly
    """
)

ONES: Final = {
    w: i
    for i, w in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
        ]
    )
}
TENS: Final = {
    w: 10 * i
    for i, w in enumerate(
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], start=2
    )
} | {"fourty": 40}
SCALES: Final = {
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "lakh": 10**5,
    "lakhs": 10**5,
    "crore": 10**7,
    "crores": 10**7,
}
ORDINALS: Final = {
    w: i
    for i, w in enumerate(
        [
            "first",
            "second",
            "third",
            "fourth",
            "fifth",
            "sixth",
            "seventh",
            "eighth",
            "ninth",
            "tenth",
            "eleventh",
            "twelfth",
            "thirteenth",
            "fourteenth",
            "fifteenth",
            "sixteenth",
            "seventeenth",
            "eighteenth",
            "nineteenth",
        ],
        start=1,
    )
} | {"twentieth": 20, "thirtieth": 30, "fortieth": 40, "fiftieth": 50, "hundredth": 100}
DECADES: Final = {
    "twenties": 20,
    "thirties": 30,
    "forties": 40,
    "fourties": 40,
    "fifties": 50,
    "sixties": 60,
    "seventies": 70,
    "eighties": 80,
    "nineties": 90,
}

CONTRACTIONS: Final = {
    "won't": "will not",
    "can't": "can not",
    "cannot": "can not",
    "shan't": "shall not",
    "ain't": "is not",
    "let's": "let us",
    "i'm": "i am",
    "gonna": "going to",
    "wanna": "want to",
    "gotta": "got to",
    "gimme": "give me",
    "lemme": "let me",
    "y'all": "you all",
    "dont": "do not",
    "doesnt": "does not",
    "didnt": "did not",
    "cant": "can not",
    "isnt": "is not",
    "arent": "are not",
    "wasnt": "was not",
    "wouldnt": "would not",
    "couldnt": "could not",
    "shouldnt": "should not",
    "havent": "have not",
    "hasnt": "has not",
    "im": "i am",
    "ive": "i have",
    "whats": "what is",
    "wheres": "where is",
    "hows": "how is",
    "whos": "who is",
    "thats": "that is",
    "theres": "there is",
    "u": "you",
    "pls": "please",
    "plz": "please",
}
IS_SUBJECTS: Final = words(
    "what who where how when why that it there here he she this which everything something one"
)

FROM_MARKERS: Final = words(
    "from leaving departing depart leave departs leaves originating originate starting"
)
TO_MARKERS: Final = words("to into onto arriving arrive arrives toward towards landing land reaching reach")
SYMMETRIC: Final = words("""
    and or vs versus between with married marry friend friends close related similar same equal equivalent different
    compare compared comparison difference similarity neighbor neighbors dating engaged siblings cousins cousin nor plus
    together distance connected connect relationship relate engage engaged acquaint acquainted date agree talk chat meet partner acquaintance acquaintances beside near next identical opposite
    """)
MODIFIERS_THAT_ADD_NOTHING: Final = words("""
    really actually somehow truly indeed basically literally just simply in fact honestly certainly definitely
    currently now exactly specifically please kindly possibly generally usually
    """)
NARROWING: Final = words(
    "vegan vegetarian kosher halal gluten beginner student senior budget kids toddler toy winter summer"
)
"""Nouns that narrow down what stands behind them."""
VAGUE: Final = words("""
    few present basic modern brief visible current available local existing corresponding specific certain particular actual real true proper exact reliable cool nice great good best
    better top interesting easy easiest simple possible various several different overall general common main whole entire complete full detailed
    helpful useful right correct appropriate ideal effective efficient personal own favorite favourite
    """)
"""Adjectives that narrow nothing down."""
PRAISE: Final = words("""
    good better best great nice fine cool awesome amazing incredible excellent outstanding superb wonderful fantastic brilliant fascinating interesting
    favorite favourite perfect ideal
    """)
"""Adjectives that say no more than that something is liked."""
LATIN_STOP_WORDS: Final = {
    "en": words("the is are what how to of and in for do does can i my you a it with on why which"),
    "es": words("el la los las de que en es un una por para con como cómo qué y del se su al"),
    "fr": words("le la les de des du que en est un une pour avec comment quel quelle et dans sur au il"),
    "de": words("der die das ist und ein eine wie ich zu von mit für auf nicht den dem im was sie"),
    "it": words("il lo la gli di che è un una per con come e del della nel si sono"),
    "pt": words("o a os as de que em é um uma por para com como e do da no na se não"),
    "nl": words("de het een van en is in op te dat met voor zijn hoe wat niet aan"),
}
