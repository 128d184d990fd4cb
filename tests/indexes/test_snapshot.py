"""Index files: whole or refused, and refused before hnswlib sees them."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semcache.errors import ConfigurationError
from semcache.indexes.adaptive import AdaptiveIndex
from semcache.indexes.graph import Graph
from semcache.indexes.snapshot import MAGIC, SnapshotReader, SnapshotWriter, writing
from semcache.protocols import Neighbour
from tests.indexes.support import names, random_units

DIM = 16
META = {"fingerprint": "bundled-1", "epoch": "e1", "position": "17-0"}
EMBEDDINGS = random_units(700, DIM)


def new_index() -> AdaptiveIndex:
    return AdaptiveIndex(DIM, own_from=8, graph_from=64)


def filled() -> AdaptiveIndex:
    """An index with small scopes, a flat one, and one with a graph, a tail and garbage."""
    index = new_index()
    for i in range(100):
        index.add(f"small{i % 40}", [f"k{i}"], EMBEDDINGS[i : i + 1], [None if i % 3 else 100.0 + i])
    index.add("flat", names(40), EMBEDDINGS[:40], [None] * 40)
    index.add("graph", names(600), EMBEDDINGS[:600], [1000.0] * 600)
    assert index.settle(60)
    index.remove("graph", [f"k{i}" for i in range(0, 600, 7)])
    index.add("graph", names(20, "new"), EMBEDDINGS[600:620], [None] * 20)
    return index


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("index") / "index"
    filled().snapshot(path, META)
    return path.read_bytes()


def answers(index: AdaptiveIndex, now: float) -> list[list[Neighbour]]:
    scopes = ["flat", "graph", *(f"small{i}" for i in range(40))]
    return [index.search(scope, EMBEDDINGS[i], 3, now=now) for scope in scopes for i in range(0, 620, 31)]


def test_a_restored_index_answers_as_the_one_that_was_stored(tmp_path: Path) -> None:
    index, again = filled(), new_index()
    index.snapshot(tmp_path / "index", META)

    assert again.restore(tmp_path / "index") == META
    assert sorted(again.scopes()) == sorted(index.scopes())
    assert all(again.count(scope) == index.count(scope) for scope in index.scopes())
    assert answers(again, 0.0) == answers(index, 0.0)
    assert answers(again, 150.0) == answers(index, 150.0)  # expiries came along


def test_a_restored_index_has_its_graphs_and_goes_on(tmp_path: Path) -> None:
    filled().snapshot(tmp_path / "index", META)
    index = new_index()
    index.restore(tmp_path / "index")
    assert dict(index._rows.owned())["graph"]._graphs  # type: ignore[attr-defined]

    index.remove("graph", ["k1"])
    index.add("graph", names(80, "later"), EMBEDDINGS[620:], [None] * 80)
    index.add("small3", ["later"], EMBEDDINGS[620:621], [None])
    assert index.settle(60)

    assert index.search("graph", EMBEDDINGS[621], 1, now=0.0) == [Neighbour("later1", 1.0)]
    assert index.search("graph", EMBEDDINGS[2], 1, now=0.0) == [Neighbour("k2", 1.0)]
    assert index.search("graph", EMBEDDINGS[1], 1, now=0.0, least=0.99999) == []
    assert index.search("small3", EMBEDDINGS[620], 1, now=0.0) == [Neighbour("later", 1.0)]


def test_no_file_is_no_snapshot(tmp_path: Path) -> None:
    assert new_index().restore(tmp_path / "nothing") is None


def test_a_file_for_another_encoder_is_not_used(tmp_path: Path, stored: bytes) -> None:
    (tmp_path / "index").write_bytes(stored)
    index = new_index()

    assert index.restore(tmp_path / "index", expected={"fingerprint": "bundled-2"}) is None
    assert index.scopes() == []
    assert index.restore(tmp_path / "index", expected={"fingerprint": "bundled-1"}) == META


def test_a_file_of_another_dim_is_refused(tmp_path: Path, stored: bytes) -> None:
    (tmp_path / "index").write_bytes(stored)

    assert AdaptiveIndex(DIM + 1).restore(tmp_path / "index") is None


def refused(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> bool:
    """Whether an index refuses the file, says why, and keeps what it had."""
    path = tmp_path / "index"
    path.write_bytes(content)
    index = new_index()
    index.add("mine", ["a"], EMBEDDINGS[:1], [None])
    caplog.clear()
    meta = index.restore(path)
    kept = index.search("mine", EMBEDDINGS[0], 1, now=0.0) == [Neighbour("a", 1.0)]
    return meta is None and kept and "is not used" in caplog.text


def test_a_cut_file_is_refused_wherever_it_was_cut(
    tmp_path: Path, stored: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for length in [0, 1, len(MAGIC), 100, *range(1000, len(stored), 9973), len(stored) - 1]:
        assert refused(tmp_path, stored[:length], caplog), length
    assert refused(tmp_path, stored + b"\0", caplog)


def test_a_file_with_one_flipped_bit_is_refused_wherever_it_is(
    tmp_path: Path, stored: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    ends = [*range(20), *range(len(stored) - 60, len(stored))]
    header = header_of(stored)
    rows = [piece["rows"] for piece in header["small"]] + [piece["tail"]["rows"] for piece in header["large"]]
    gaps = [offset for (offset, size, _), *_ in rows if size]
    assert gaps
    for at in [*ends, *gaps, *rng.integers(0, len(stored), 120).tolist()]:
        damaged = bytearray(stored)
        damaged[at] ^= 1 << int(rng.integers(8))
        assert refused(tmp_path, bytes(damaged), caplog), at


Change = Callable[[dict[str, Any], dict[str, Any]], None]


def header_of(stored: bytes) -> dict[str, Any]:
    offset, length, _ = struct.unpack("<QQ32s", stored[-48:])
    header: dict[str, Any] = json.loads(stored[offset : offset + length])
    return header


def merged(parts: list[Any]) -> list[Any]:
    """Return parts that follow one another, behind a gap, as one."""
    return [parts[1][0], sum(size for _, size, _ in parts[1:]), None]


def forged(stored: bytes, change: Change) -> bytes:
    """Return the file with one graph changed and every checksum made right again."""
    header, offset = header_of(stored), struct.unpack("<QQ32s", stored[-48:])[0]
    body = bytearray(stored[:offset])
    piece = next(piece for piece in header["large"] if piece["graphs"])["graphs"][0]
    parts: dict[str, Any] = {}
    for name, dtype in {"level0": "u1", "levels": "<i4", "links": "<u4", "expires": "<f8"}.items():
        start, size, _ = merged(piece[name]) if name == "level0" else piece[name]
        parts[name] = np.frombuffer(bytes(body[start : start + size]), dtype=dtype).copy()
    start, size, _ = piece["keys"]
    parts["keys"] = json.loads(body[start : start + size])
    change(parts, piece)
    for name, value in parts.items():
        data = json.dumps(value).encode() if name == "keys" else value.tobytes()
        gap = [len(body), -len(body) % 64, zlib.crc32(bytes(-len(body) % 64))]
        body += bytes(gap[1])
        part = [len(body), len(data), zlib.crc32(data)]
        piece[name] = [gap, part] if name == "level0" else part
        body += data
    encoded = json.dumps(header).encode()
    numbers = struct.pack("<QQ", len(body), len(encoded))
    return bytes(body) + encoded + numbers + hashlib.sha256(MAGIC + numbers + encoded).digest()


def words(parts: dict[str, Any]) -> Any:
    """The lowest level of a graph, one row of 32-bit words a row: count, links, floats, label."""
    return parts["level0"].view(np.uint32).reshape(len(parts["levels"]), -1)


def set_word(at: int, value: int) -> Change:
    return lambda parts, _: words(parts).__setitem__((3, at), value)


def set_header(name: str, value: object) -> Change:
    return lambda _, piece: piece.__setitem__(name, value)


def drop_key(parts: dict[str, Any], _: dict[str, Any]) -> None:
    parts["keys"].pop()


def double_key(parts: dict[str, Any], _: dict[str, Any]) -> None:
    named = [i for i, key in enumerate(parts["keys"]) if key is not None]
    parts["keys"][named[0]] = parts["keys"][named[1]]


def number_for_key(parts: dict[str, Any], _: dict[str, Any]) -> None:
    parts["keys"][1] = 7


def higher_level(parts: dict[str, Any], _: dict[str, Any]) -> None:
    parts["levels"][int(np.argmin(parts["levels"]))] = 1


def negative_level(parts: dict[str, Any], _: dict[str, Any]) -> None:
    parts["levels"][0] = -1


def shorter_links(parts: dict[str, Any], _: dict[str, Any]) -> None:
    parts["links"] = parts["links"][:-17]


def wild_upper_link(parts: dict[str, Any], _: dict[str, Any]) -> None:
    parts["links"][:2] = (1, 10**9)


def upper_link_to_a_low_row(parts: dict[str, Any], _: dict[str, Any]) -> None:
    parts["links"][:2] = (1, int(np.argmin(parts["levels"])))


def missing_row(parts: dict[str, Any], _: dict[str, Any]) -> None:
    parts["level0"] = parts["level0"][: -4 * words(parts).shape[1]]


def no_rows(parts: dict[str, Any], _: dict[str, Any]) -> None:
    for name in parts:
        parts[name] = [] if name == "keys" else parts[name][:0]


FORGERIES: dict[str, Change] = {
    "too many links": set_word(0, 33),
    "very many links": set_word(0, 0xFFFF),
    "a link outside": lambda parts, _: words(parts).__setitem__((3, slice(0, 2)), (1, 10**6)),
    "a link far outside": lambda parts, _: words(parts).__setitem__((3, slice(0, 2)), (1, 2**32 - 1)),
    "a NaN row": lambda parts, _: words(parts)[:, 33:49].view(np.float32).__setitem__((5, 0), np.nan),
    "a row of zeros": lambda parts, _: words(parts).__setitem__((5, slice(33, 49)), 0),
    "a label twice": lambda parts, _: words(parts).__setitem__((3, 49), int(words(parts)[4, 49])),
    "a label outside": set_word(49, 10**6),
    "an entry point outside": set_header("enterpoint", 10**6),
    "a negative entry point": set_header("enterpoint", -1),
    "an entry point that is no number": set_header("enterpoint", "0"),
    "a top level nobody has": set_header("max_level", 9),
    "an absurd top level": set_header("max_level", 2**40),
    "a missing key": drop_key,
    "a key twice": double_key,
    "a key that is no text": number_for_key,
    "a level without links": higher_level,
    "a negative level": negative_level,
    "links cut short": shorter_links,
    "an upper link outside": wild_upper_link,
    "an upper link to a low row": upper_link_to_a_low_row,
    "a missing row": missing_row,
    "no rows": no_rows,
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_file_with_right_checksums_is_refused(
    tmp_path: Path, stored: bytes, caplog: pytest.LogCaptureFixture, change: Change
) -> None:
    assert refused(tmp_path, forged(stored, change), caplog)


def test_the_forger_itself_makes_files_that_are_accepted(tmp_path: Path, stored: bytes) -> None:
    """Else the forgeries could be refused for the wrong reason."""
    (tmp_path / "index").write_bytes(forged(stored, lambda _parts, _piece: None))
    index = new_index()

    assert index.restore(tmp_path / "index") == META
    assert index.search("graph", EMBEDDINGS[2], 1, now=0.0) == [Neighbour("k2", 1.0)]


@pytest.mark.parametrize(
    "header",
    [{}, {"dim": DIM}, [], "x", {"dim": DIM, "graph": [16, 200], "meta": {}, "small": 3, "large": []}],
    ids=str,
)
def test_a_header_of_another_shape_is_refused(
    tmp_path: Path, header: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with writing(tmp_path / "odd") as writer:
        writer.header(header)

    assert refused(tmp_path, (tmp_path / "odd").read_bytes(), caplog)


def test_parts_outside_the_file_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for part in ([0, 10, ""], [16, 10**15, ""], [16, -5, ""], [10**15, 5, ""], ["a", "b", "c"], None):
        with writing(tmp_path / "odd") as writer:
            piece = {"owners": part, "keys": part, "rows": part, "expires": part}
            writer.header({"dim": DIM, "graph": [16, 200], "meta": {}, "small": [piece], "large": []})

        assert refused(tmp_path, (tmp_path / "odd").read_bytes(), caplog), part


def test_meta_data_must_be_json(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="JSON"):
        new_index().snapshot(tmp_path / "index", {"epoch": b"bytes"})
    assert list(tmp_path.iterdir()) == []


def test_an_older_file_stays_whole_when_writing_fails(tmp_path: Path, stored: bytes) -> None:
    path = tmp_path / "index"
    path.write_bytes(stored)

    def fails(writer: SnapshotWriter) -> None:
        writer.part(b"half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"), writing(path) as writer:
        fails(writer)

    assert path.read_bytes() == stored
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_dead_writer_left_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    old, young = tmp_path / ".index.abc.tmp", tmp_path / ".index.def.tmp"
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (0, 0))

    new_index().snapshot(tmp_path / "index", {})

    assert sorted(path.name for path in tmp_path.iterdir()) == [".index.def.tmp", "index"]


def test_only_the_owner_may_read_a_snapshot(tmp_path: Path) -> None:
    new_index().snapshot(tmp_path / "index", {})

    assert (tmp_path / "index").stat().st_mode & 0o077 == 0


def test_keys_and_scopes_of_any_text_come_back(tmp_path: Path) -> None:
    index, again = new_index(), new_index()
    odd = ["", "é", "报销", "\ud800", "a\0b", "\u202eabc", "x" * 1000]
    for scope in odd:
        index.add(scope, odd, EMBEDDINGS[: len(odd)], [None] * len(odd))
    index.snapshot(tmp_path / "index", {})
    again.restore(tmp_path / "index")

    assert sorted(again.scopes()) == sorted(odd)
    assert again.search("\ud800", EMBEDDINGS[3], 1, now=0.0) == [Neighbour("\ud800", 1.0)]


def test_a_graph_with_removed_rows_knows_them_after_a_restart() -> None:
    graph = Graph(DIM, 64)
    for label in graph.insert(EMBEDDINGS[:50]):
        graph.adopt(label, f"k{label}", EMBEDDINGS[label], np.inf)
    graph.remove(names(10))
    graph.mark()
    graph.remove([f"k{i}" for i in range(10, 15)])  # not marked yet

    again = Graph.from_state(DIM, graph.state())

    assert len(again) == 35
    assert again.garbage == 15
    assert again.to_mark == 5
    assert sorted(again.rows()[0]) == sorted(f"k{i}" for i in range(15, 50))


def test_a_reader_reads_what_a_writer_wrote(tmp_path: Path) -> None:
    with writing(tmp_path / "file") as writer:
        numbers = writer.part(np.arange(5, dtype="<f4"))
        text = writer.json(["a", None])
        writer.header({"numbers": numbers, "text": text})
    with open(tmp_path / "file", "rb") as file:
        reader = SnapshotReader(file)

        assert reader.array(reader.header["numbers"], "<f4").tolist() == [0, 1, 2, 3, 4]
        assert reader.json(reader.header["text"]) == ["a", None]
