"""The disk tier survives a Redis that lost its memory, and nothing that was withdrawn does."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from semcache import CacheRequest, Hit, Miss, Policy, hearing, sync
from semcache.keys import Keys
from semcache.protocols import Encoder
from semcache.stores.carrying import Heard
from semcache.stores.disk_record import read_heard
from semcache.stores.embedded import EmbeddedServer
from semcache.testing import HashEncoder, TableEncoder
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade, within
from tests.servers import Server, binaries, eventually, running

NAMESPACE = "n"
TABLE = {"apple": [1.0, 0.0], "apples": [0.99, 0.141]}
REQUEST = CacheRequest("question", model="m", subject="ada", segment={"tier": "gold"})


class Place:
    """One server, one file, and the caches that use them."""

    def __init__(self, kind: str, url: str, loop: Loop, file: Path) -> None:
        self.kind, self.url, self.loop, self.file = kind, url, loop, file
        self.opened: list[Facade] = []
        self.client = redis.from_url(url)

    def open(
        self, *, disk: bool = True, file: Path | None = None, encoder: Encoder | None = None, **policy: Any
    ) -> Facade:
        settings = {"deadline": 5.0, "local_bound": 0.0, "flight_lease": 0.0, **policy}
        if disk:
            settings["disk"] = str(file or self.file)
        cache = open_facade(
            self.kind, self.url, self.loop, encoder=encoder or HashEncoder(64),
            matcher=ThresholdMatcher(0.9), policy=Policy(**settings), namespace=NAMESPACE,
        )  # fmt: skip
        self.opened.append(cache)
        cache.lookup("warm up")
        if disk:
            assert within(30.0, lambda: self.up_to_date(file)), "the file hears the log"
        return cache

    def heard(self, file: Path | None = None) -> Heard | None:
        db = sqlite3.connect(file or self.file)
        try:
            return read_heard(db, NAMESPACE)
        except sqlite3.OperationalError:  # no table yet
            return None
        finally:
            db.close()

    def up_to_date(self, file: Path | None = None) -> bool:
        """Whether the file stands on the store's epoch, and what it has may be served."""
        heard = self.heard(file)
        epoch = self.client.hget(Keys(NAMESPACE).gens, "#epoch")
        return heard is not None and epoch is not None and heard.epoch == epoch.decode() and heard.ready

    def carried(self, file: Path | None = None) -> bool:
        heard = self.heard(file)
        return heard is not None and heard.since[0] < heard.number and self.up_to_date(file)

    def log_end(self) -> int:
        newest = self.client.xrevrange(Keys(NAMESPACE).log, count=1)
        return int(newest[0][0].split(b"-")[0]) if newest else 0

    def flush(self) -> None:
        self.client.flushall()

    def survive(self, file: Path | None = None) -> None:
        """Lose the store's memory, and wait until what survives that may be served."""
        self.flush()
        assert within(30.0, lambda: self.carried(file)), "the file is carried over"

    def close(self) -> None:
        for cache in self.opened:
            cache.close()
        self.client.close()


def settled(cache: Facade) -> None:
    """Wait until what was put is in the file."""
    assert cache.cache._core.disk.settle(5.0)


def heard_all(place: Place, *caches: Facade) -> None:
    """Wait until these caches have applied the log up to its end."""
    end = place.log_end()
    for cache in caches:
        assert within(30.0, lambda c=cache: c.cache._follower._follower.at.sequence >= end)
        if cache.cache._core.disk is not None:
            assert within(30.0, lambda: (heard := place.heard()) is not None and heard.sequence >= end)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits a tenth as long as in earnest, all in proportion."""
    monkeypatch.setattr(sync, "BLOCK", 0.1)
    monkeypatch.setattr(sync, "PAUSE", 0.05)
    monkeypatch.setattr(hearing, "QUARANTINE", 0.3)
    monkeypatch.setattr(hearing, "WRITTEN", 0.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server that may be flushed."""
    with EmbeddedServer.open(tmp_path_factory.mktemp("flushed")) as server:
        yield server


@pytest.fixture(params=["sync", "async"])
def place(
    request: pytest.FixtureRequest, server: EmbeddedServer, loop: Loop, tmp_path: Path
) -> Iterator[Place]:
    place = Place(request.param, server.url, loop, tmp_path / "disk.db")
    place.flush()
    yield place
    place.close()


def test_answers_come_back_after_a_flush(place: Place) -> None:
    cache = place.open()
    cache.put("question", "x", tags={"t"}, ttl=1000.0, confidence=0.9)
    before = cache.lookup("question")
    settled(cache)
    place.survive()
    found = cache.lookup("question")

    assert (found.tier, found.text, found.match) == ("disk", "x", "exact")
    assert found.age >= before.age
    assert found.ttl_left <= before.ttl_left
    assert cache.lookup("question").tier == "store"
    (entry,) = cache.all_entries()
    assert (entry.tags, entry.confidence) == (("t",), 0.9)


def test_they_are_found_by_meaning_once_they_are_back(place: Place) -> None:
    cache = place.open(encoder=TableEncoder(TABLE, default=[-1.0, 0.0]))
    cache.put("apple", "a fruit")
    settled(cache)
    place.survive()
    assert isinstance(cache.lookup("apples"), Miss)
    cache.lookup("apple")

    assert cache.lookup("apples").match == "semantic"


def test_nothing_comes_back_before_everybody_could_speak(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "QUARANTINE", 3600.0)
    cache = place.open()
    cache.put("question", "x")
    settled(cache)
    place.flush()
    assert within(30.0, lambda: len(place.heard().epochs) == 2)  # type: ignore[union-attr]
    missed = cache.lookup("question")
    monkeypatch.setattr(hearing, "QUARANTINE", 0.0)
    assert within(30.0, lambda: place.carried())

    assert isinstance(missed, Miss)
    assert cache.lookup("question").tier == "disk"


SELECTORS: list[dict[str, Any]] = [
    {"tags": ["t"]},
    {"everything": True},
    {"subject": "ada"},
    {"segment": {"tier": "gold"}},
    {"model": "m"},
    {"older_than": 0.0, "everything": True},
]


def take_back(how: Any, by: Facade, entry_id: str) -> None:
    if how == "id":
        by.invalidate(entry_ids=[entry_id])
    elif how == "feedback":
        actions = [by.feedback(entry_id, -1, rater=rater).action for rater in "abc"]
        assert actions[-1] == "withdrawn"
    else:
        by.invalidate(**how)


HOW = ["id", "feedback", *SELECTORS]
WHO = ["itself", "another without a disk at once"]
SOME = ["id", SELECTORS[0]]


@pytest.mark.parametrize(
    ("how", "who"),
    [(how, who) for who in WHO for how in HOW]
    + [(how, who) for who in ("another", "another at once") for how in SOME],
    ids=str,
)
def test_what_was_withdrawn_before_a_flush_stays_away(place: Place, how: Any, who: str) -> None:
    cache = place.open()
    by = {
        "itself": lambda: cache, "another": place.open, "another at once": place.open,
        "another without a disk at once": lambda: place.open(disk=False),
    }[who]()  # fmt: skip
    entry_id = cache.put(REQUEST, "x", tags={"t"}).entry_id
    cache.put("other", "y")
    settled(cache)
    if "at once" not in who:
        heard_all(place, cache, by)
    take_back(how, by, entry_id)
    place.survive()

    assert isinstance(cache.lookup(REQUEST), Miss)
    assert isinstance(cache.lookup(REQUEST), Miss)
    everything = isinstance(how, dict) and "everything" in how
    assert isinstance(cache.lookup("other"), Miss if everything else Hit)


@pytest.mark.parametrize("how", HOW, ids=str)
def test_what_a_process_withdrew_that_is_gone_stays_away(place: Place, how: Any) -> None:
    cache, other = place.open(), place.open(disk=False)
    entry_id = cache.put(REQUEST, "x", tags={"t"}).entry_id
    settled(cache)
    take_back(how, other, entry_id)
    heard_all(place, cache)
    other.close()
    cache.cache._core.recent.clear()  # the file has it, too
    place.survive()

    assert isinstance(cache.lookup(REQUEST), Miss)


@pytest.mark.parametrize("how", SOME, ids=str)
def test_what_is_withdrawn_after_a_flush_stays_away(place: Place, how: Any) -> None:
    cache, other = place.open(), place.open(disk=False)
    entry_id = cache.put(REQUEST, "x", tags={"t"}).entry_id
    settled(cache)
    place.survive()
    take_back(how, other, entry_id)

    assert isinstance(cache.lookup(REQUEST), Miss)


@pytest.mark.parametrize("how", ["feedback", *SOME], ids=str)
def test_what_is_withdrawn_once_it_is_back_stays_away(place: Place, how: Any) -> None:
    cache = place.open()
    entry_id = cache.put(REQUEST, "x", tags={"t"}).entry_id
    settled(cache)
    place.survive()
    assert isinstance(cache.lookup(REQUEST), Hit)
    take_back(how, cache, entry_id)
    first = cache.lookup(REQUEST)
    place.client.delete(*place.client.scan_iter(match=Keys(NAMESPACE).prefix + "entry:*"))

    assert isinstance(first, Miss)
    assert isinstance(cache.lookup(REQUEST), Miss)


@pytest.mark.parametrize("who", ["itself", "another at once"])
@pytest.mark.parametrize("again", [False, True], ids=["", "replaced since"])
def test_an_answer_that_a_text_was_refused_for_stays_away(place: Place, who: str, again: bool) -> None:
    encoder = TableEncoder(TABLE, default=[-1.0, 0.0])
    cache = place.open(encoder=encoder)
    by = cache if who == "itself" else place.open(disk=False, encoder=encoder)
    cache.put("apple", "a fruit")
    cache.put("pear", "another")
    settled(cache)
    found = by.lookup("apples")
    assert by.feedback(found.lookup_id, -1, rater="ann").action == "blocked"
    if again:
        cache.put("apple", "still a fruit")
        settled(cache)
    place.survive()

    assert isinstance(cache.lookup("pear"), Hit)
    assert isinstance(cache.lookup("apple"), Miss)
    assert isinstance(cache.lookup("apples"), Miss)
    cache.put("apple", "a fruit after all")
    settled(cache)
    place.survive()
    assert cache.lookup("apple").tier == "disk", "the epoch in which it was refused is over"


def test_a_refused_text_keeps_nothing_from_the_disk_while_the_store_remembers(place: Place) -> None:
    cache = place.open(encoder=TableEncoder(TABLE, default=[-1.0, 0.0]))
    cache.put("apple", "a fruit")
    settled(cache)
    cache.feedback(cache.lookup("apples").lookup_id, -1, rater="ann")
    heard_all(place, cache)
    place.client.delete(*place.client.scan_iter(match=Keys(NAMESPACE).prefix + "entry:*"))

    assert cache.lookup("apple").tier == "disk"
    assert isinstance(cache.lookup(CacheRequest("apples", user="ann")), Miss)


def test_only_what_is_old_goes_when_the_old_is_invalidated(place: Place) -> None:
    cache = place.open()
    cache.put("question", "x")
    settled(cache)
    cache.invalidate(everything=True, older_than=3600.0)
    place.survive()

    assert isinstance(cache.lookup("question"), Hit)


def test_an_answer_since_a_withdrawal_comes_back(place: Place) -> None:
    cache, other = place.open(), place.open(disk=False)
    entry_id = cache.put("question", "x", tags={"t"}).entry_id
    cache.invalidate(everything=True)
    other.invalidate(entry_ids=[entry_id])
    heard_all(place, cache, other)
    cache.put("question", "y", tags={"t"})
    settled(cache)
    place.survive()

    assert cache.lookup("question").text == "y"


def test_a_restored_entry_does_not_come_back(place: Place) -> None:
    cache = place.open()
    entry_id = cache.put("question", "x").entry_id
    settled(cache)
    cache.invalidate(entry_ids=[entry_id])
    assert cache.restore(entry_id)
    place.survive()

    assert isinstance(cache.lookup("question"), Miss)


def test_out_of_touch_for_too_long_nothing_comes_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = place.open()
    cache.put("question", "x")
    settled(cache)
    monkeypatch.setattr(hearing, "GRACE", -1.0)
    place.flush()
    cache.lookup("another")

    assert within(30.0, place.up_to_date)
    assert not place.carried()
    assert isinstance(cache.lookup("question"), Miss)
    settled(cache)
    assert cache.put("question", "y").outcome == "stored"
    settled(cache)
    monkeypatch.setattr(hearing, "GRACE", 5.0)
    place.survive()
    assert cache.lookup("question").text == "y"


def test_nothing_from_before_a_gap_comes_back(place: Place) -> None:
    cache = place.open()
    cache.put("question", "x")
    settled(cache)
    heard_all(place, cache)
    since = place.heard().since  # type: ignore[union-attr]
    place.client.xadd(Keys(NAMESPACE).log, {"op": "add", "at": "1"}, id=f"{place.log_end() + 2}-0")
    assert within(30.0, lambda: place.heard().since > since)  # type: ignore[union-attr]
    cache.put("later", "y")
    settled(cache)
    place.survive()

    assert isinstance(cache.lookup("question"), Miss)
    assert cache.lookup("later").text == "y"
    assert cache.stats().failures["disk_gap"] == 1


def test_a_record_that_cannot_be_read_is_a_gap(place: Place) -> None:
    cache = place.open()
    cache.put("question", "x")
    settled(cache)
    since = place.heard().since  # type: ignore[union-attr]
    of_another_version = {"op": "take back", "at": "1"}
    place.client.xadd(Keys(NAMESPACE).log, of_another_version, id=f"{place.log_end() + 1}-0")
    assert within(30.0, lambda: place.heard().since > since)  # type: ignore[union-attr]
    place.survive()

    assert isinstance(cache.lookup("question"), Miss)


def test_two_processes_share_a_file(place: Place) -> None:
    one, other = place.open(), place.open()
    one.put("question", "x")
    other.put("another", "y")
    entry_id = one.put("third", "z").entry_id
    settled(one)
    settled(other)
    other.invalidate(entry_ids=[entry_id])
    place.survive()

    for cache in (one, other):
        assert cache.lookup("question").text == "x"
        assert cache.lookup("another").text == "y"
        assert isinstance(cache.lookup("third"), Miss)


def test_a_process_that_starts_after_the_flush_finds_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "GRACE", 0.2)
    first = place.open()
    first.put("question", "x")
    settled(first)
    secret = place.client.get(Keys(NAMESPACE).secret)
    first.close()
    place.flush()
    place.client.set(Keys(NAMESPACE).secret, secret)
    cache = place.open()

    assert isinstance(cache.lookup("question"), Miss)
    assert not place.carried()


def test_one_that_starts_leaves_the_file_to_one_that_was_there(place: Place) -> None:
    first = place.open()
    first.put("question", "x")
    settled(first)
    secret = place.client.get(Keys(NAMESPACE).secret)
    place.flush()
    place.client.set(Keys(NAMESPACE).secret, secret)  # as if it had been given
    second = place.open()

    assert place.carried()
    assert second.lookup("question").text == "x"


def test_withdrawals_between_two_runs_are_caught_up_with(place: Place) -> None:
    first, other = place.open(), place.open(disk=False)
    ids = [first.put(name, "x").entry_id for name in ("question", "another")]
    settled(first)
    heard_all(place, first)
    first.close()
    other.invalidate(entry_ids=ids[:1])
    other.close()
    cache = place.open()
    heard_all(place, cache)
    place.survive()

    assert isinstance(cache.lookup("question"), Miss)
    assert cache.lookup("another").text == "x"


def test_it_survives_a_second_flush_and_a_third(place: Place) -> None:
    cache = place.open()
    ids = {name: cache.put(name, name).entry_id for name in ("one", "two", "three")}
    settled(cache)
    place.survive()
    first = cache.lookup("one").text
    cache.invalidate(entry_ids=[ids["two"]])
    place.survive()
    cache.put("four", "four")
    settled(cache)
    assert cache.lookup("three").text == "three"
    place.survive()

    assert first == "one"
    assert [cache.lookup(name).text for name in ("one", "three", "four")] == ["one", "three", "four"]
    assert isinstance(cache.lookup("two"), Miss)


def test_a_store_that_goes_back_to_an_epoch_of_before_makes_the_file_dead(place: Place) -> None:
    cache = place.open()
    cache.put("question", "x")
    settled(cache)
    epoch = place.client.hget(Keys(NAMESPACE).gens, "#epoch")
    place.survive()
    place.client.hset(Keys(NAMESPACE).gens, "#epoch", epoch)
    assert within(30.0, lambda: not place.carried() and place.up_to_date())

    assert isinstance(cache.lookup("question"), Miss)


def test_ids_stay_the_same_though_the_secret_went_too(place: Place) -> None:
    cache, other = place.open(), place.open(disk=False)
    before = cache.put("question", "x").entry_id
    secret = place.client.get(Keys(NAMESPACE).secret)
    place.flush()

    assert within(30.0, lambda: place.client.get(Keys(NAMESPACE).secret) == secret)
    assert other.put("question", "x").entry_id == before


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("at_once", [False, True])
def test_answers_come_back_after_a_crash_without_persistence(
    kind: str, at_once: bool, loop: Loop, tmp_path: Path
) -> None:
    server = Server(binaries()["valkey-9"], tmp_path / "server", ("--appendonly", "no", "--save", ""))
    with running(server):
        place = Place(kind, f"redis://127.0.0.1:{server.port}", loop, tmp_path / "disk.db")
        cache, other = place.open(), place.open(disk=False)
        cache.put("question", "x")
        entry_id = cache.put("another", "y").entry_id
        settled(cache)
        other.invalidate(entry_ids=[entry_id])
        if not at_once:
            heard_all(place, cache)
        server.kill()
        server.start()
        back = eventually(place.carried)
        found, gone = cache.lookup("question"), cache.lookup("another")
        place.close()

    assert back
    assert (found.tier, found.text) == ("disk", "x")
    assert isinstance(gone, Miss)


def test_a_clock_that_is_behind_serves_nothing_withdrawn(place: Place) -> None:
    """A row of an hour ahead stands for a new server whose clock is an hour behind."""
    cache = place.open()
    entry_id = cache.put("question", "x", tags={"t"}).entry_id
    cache.put("another", "y", tags={"t"})
    settled(cache)
    ahead = 3_600_000_000
    with sqlite3.connect(place.file) as db:
        db.execute(
            "UPDATE entries SET fence = fence + ?, created = created + ?, ends = ends + 3600", (ahead, ahead)
        )
    db.close()
    place.survive()
    assert cache.lookup("another").text == "y"
    cache.invalidate(entry_ids=[entry_id])
    first = cache.lookup("question")
    cache.invalidate(tags=["t"])

    assert isinstance(first, Miss)
    assert isinstance(cache.lookup("another"), Miss)


def _gone(file: Path) -> int:
    db = sqlite3.connect(file)
    (count,) = db.execute("SELECT count(*) FROM gone").fetchone()
    db.close()
    return int(count)


def test_a_file_that_was_away_is_heard_of_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = place.open()
    core = cache.cache._core
    ids = [cache.put(name, "x").entry_id for name in ("question", "another")]
    settled(cache)

    def broken(*_: Any, **__: Any) -> Any:
        raise sqlite3.OperationalError("the disk is full")

    with monkeypatch.context() as patch:
        for name in ("note", "hear", "heard"):
            patch.setattr(core.disk.record, name, broken)
        cache.invalidate(entry_ids=ids[:1])
        assert within(30.0, lambda: cache.stats().failures.get("disk", 0) >= 2)
    assert within(30.0, lambda: _gone(place.file) == 1)
    core.recent.clear()
    place.survive()

    assert isinstance(cache.lookup("question"), Miss)
    assert cache.lookup("another").text == "x"


def test_old_withdrawals_are_forgotten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semcache.stores.disk_record._TRIMMED", 1)
    cache = place.open()
    cache.invalidate(tags=["old"])
    heard_all(place, cache)
    with sqlite3.connect(place.file) as db:
        db.execute("UPDATE gone SET at = at - ?", (round(30 * 86400e6),))
    db.close()
    cache.invalidate(tags=["new"])
    with sqlite3.connect(place.file) as db:
        names = {name for (name,) in db.execute("SELECT name FROM gone")}
    db.close()

    assert names == {"name tag:new"}
