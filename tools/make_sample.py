"""Makes semcache/data/sample/questions.jsonl. Kept as the record of how it was made; not in the wheel.

    apt-get download python3.11-doc && dpkg-deb -x python3.11-doc_*.deb unpacked
    python tools/make_sample.py unpacked/usr/share/doc/python3.11/html/faq

Questions and answers come from the Python FAQ, as plain text: the first paragraphs of each answer, up to
1,200 characters, whole blocks only. `tools/sample_written.jsonl` holds what was written for this project:
rephrasings, false friends, and the Chinese questions with their answers.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = ROOT / "tools" / "sample_written.jsonl"
TARGET = ROOT / "semcache" / "data" / "sample" / "questions.jsonl"
PAGES = ("general", "programming", "design", "library", "extending", "windows", "gui", "installed")
LONGEST = 1200  # characters of an answer
SKIPPED = frozenset(
    {
        "installed-what-is-python",  # asks the same as general-what-is-python
        "design-why-am-i-getting-strange-results-with-simple-arithmetic-oper",  # "see the next question"
        "programming-what-does-unicodedecodeerror-or-unicodeencodeerror-error-mea",  # points elsewhere
    }
)
_HEADINGS = ("h1", "h2", "h3", "h4")
_BLOCKS = ("p", "pre", "li", "dt", "td")


@dataclass
class _Section:
    """One heading and the blocks of text below it."""

    title: str = ""
    blocks: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    """Collects the sections of one page that Sphinx wrote."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sections: list[_Section] = []
        self._open: list[_Section] = []
        self._tags: list[str] = []
        self._text: list[str] = []
        self._skip = 0  # depth of elements that aren't text: the table of contents, anchors of headings

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = (dict(attrs).get("class") or "").split()
        if tag in ("br", "img", "input", "meta", "link", "hr", "col"):
            return
        self._tags.append(tag)
        if self._skip or tag == "nav" or "headerlink" in classes or "linenos" in classes:
            self._skip += 1
        elif tag == "section":
            self._open.append(_Section())
            self.sections.append(self._open[-1])
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._flush("p")
            if tag == "li":
                self._text.append("- ")

    def handle_endtag(self, tag: str) -> None:
        if not self._tags or self._tags[-1] != tag:
            return
        self._tags.pop()
        if self._skip:
            self._skip -= 1
        elif tag == "section":
            self._open.pop()
        elif tag in _HEADINGS and self._open:
            self._open[-1].title = _line("".join(self._text))
            self._text.clear()
        elif tag in _BLOCKS:
            self._flush(tag)

    def handle_data(self, data: str) -> None:
        if self._open and not self._skip:
            self._text.append(data)

    def _flush(self, tag: str) -> None:
        raw = "".join(self._text)
        if raw.strip() == "-":  # an item whose text is a paragraph of its own
            return
        self._text.clear()
        if not raw.strip() or not self._open:
            return
        self._open[-1].blocks.append(_code(raw) if tag == "pre" else _line(raw))


def _line(raw: str) -> str:
    return re.sub(r"\s+", " ", raw.translate(str.maketrans("‘’“”", "''\"\""))).strip()


def _code(raw: str) -> str:
    return "\n".join("    " + line.rstrip() for line in raw.strip("\n").splitlines())


def _name(page: str, title: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", title.lower().replace("+", "p")).strip("-")
    return f"{page}-{words[:60].strip('-')}"


def _answer(blocks: list[str]) -> str:
    """Join whole blocks up to the limit; one that only announces what was left out isn't kept last."""
    kept: list[str] = []
    for block in blocks:
        if len("\n\n".join([*kept, block])) > LONGEST:
            break
        kept.append(block)
    while kept and len(kept) < len(blocks) and kept[-1].endswith(":"):
        kept.pop()
    return "\n\n".join(kept)


def faq(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the questions of the FAQ's pages, in their order."""
    for page in PAGES:
        reader = _Reader()
        reader.feed((folder / f"{page}.html").read_text(encoding="utf-8"))
        for section in reader.sections[1:]:
            answer = _answer(section.blocks)
            name = _name(page, section.title)
            if answer and name not in SKIPPED:
                yield {"id": name, "question": section.title, "answer": answer, "source": "python-faq"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("faq", type=Path, help="the folder html/faq of Python's documentation")
    parser.add_argument("--list", action="store_true", help="print the questions' ids, write nothing")
    arguments = parser.parse_args()

    rows: dict[str, dict[str, Any]] = {}
    for row in faq(arguments.faq):
        if rows.setdefault(row["id"], row) is not row:
            raise SystemExit(f"two questions are called {row['id']}")
    if arguments.list:
        for row in rows.values():
            print(f"{row['id']}\t{row['question']}\n{row['answer']}\n")
        return
    for line in WRITTEN.read_text(encoding="utf-8").splitlines():
        written = json.loads(line)
        row = rows.setdefault(written["id"], {**written, "source": "semcache"})
        if row["source"] == "semcache" and "answer" not in row:
            raise SystemExit(f"{WRITTEN}: {written['id']} is no question of the FAQ and has no answer")
        row.update({name: written[name] for name in ("rephrasings", "false_friends") if name in written})
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    order = ("id", "source", "lang", "question", "answer", "rephrasings", "false_friends")
    with TARGET.open("w", encoding="utf-8") as file:
        for row in rows.values():
            row = {"lang": "en", **row}
            file.write(
                json.dumps({name: row[name] for name in order if name in row}, ensure_ascii=False) + "\n"
            )
    print(f"{len(rows)} questions, {TARGET.stat().st_size:,} bytes in {TARGET}")


if __name__ == "__main__":
    main()
