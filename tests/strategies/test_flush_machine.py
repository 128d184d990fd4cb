"""Processes, files and a store that loses its memory, in any order: nothing withdrawn is ever served."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from hypothesis import event, given, settings
from hypothesis import strategies as st

from semcache import Hit, Policy, SemanticCache, sync
from semcache.hearing import GRACE
from semcache.steps import drive
from semcache.stores import disk
from semcache.stores.memory import MemoryStore
from semcache.stores.plans import new_epoch
from semcache.sync import Follower
from semcache.testing import HashEncoder

FILES = ("a", "a", "b", None)  # of each process
PROCESSES = st.sampled_from(range(len(FILES)))
PROMPTS = st.sampled_from(["one", "two", "three"])
TAGS = st.sampled_from(["t", "u"])
Deeds: TypeAlias = Sequence[tuple[int, str]]  # by whom what is withdrawn
DEEDS = st.just(()) | st.lists(st.tuples(PROCESSES, PROMPTS | TAGS | st.just("everything")), max_size=2)


class Cycle(NamedTuple):
    """What happens around one loss of memory."""

    order: Sequence[int]  # of the processes' turns
    put: Sequence[tuple[int, str, str]]
    ticks: int
    before: Deeds
    ended: int | None  # which process ends and starts anew
    long_ago: bool  # so that it tells nobody, but others were out of touch for as long; else it tells
    trimmed: bool
    in_touch: bool  # shortly before the loss
    shift: float  # seconds: the clock of the next server
    early: Deeds
    late: Deeds
    let_go: bool


CYCLES = st.lists(
    st.builds(
        Cycle,
        order=st.permutations(range(len(FILES))),
        put=st.lists(st.tuples(st.integers(0, 2), PROMPTS, TAGS), min_size=2, max_size=4),
        ticks=st.integers(0, 2),
        before=DEEDS,
        ended=st.none() | st.none() | PROCESSES,
        long_ago=st.booleans(),
        trimmed=st.sampled_from([False, False, True]),
        in_touch=st.booleans(),
        shift=st.sampled_from([0.0, 0.0, -3600.0, 3600.0]),
        early=DEEDS,
        late=DEEDS,
        let_go=st.booleans(),
    ),
    min_size=1,
    max_size=3,
)


class Losing(MemoryStore):
    """A store that can lose its memory, and whose clock is another server's after that."""

    def __init__(self, clock: Any) -> None:
        self.shift = 0.0
        super().__init__(lambda: float(clock()) + self.shift)

    def lose(self, shift: float) -> None:
        with self._lock:
            self.shift, self._last_us = self.shift + shift, 0
            self._epoch, self._version = new_epoch(), 0
            self._generations.clear()
            self._slots.clear()
            self._log.clear()
            self._leases.clear()

    def trim(self) -> None:
        with self._lock:
            del self._log[:-1]

    def let_go(self) -> None:
        with self._lock:
            for slot in self._slots.values():
                if slot.entry is not None and slot.entry.state == "live":
                    slot.entry, slot.embedding = None, None


class World:
    """Every process takes a turn in time; who ends has told the others, or is long gone."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.now = 1_000.0
        self.began = time.time()
        self.store = Losing(lambda: self.began + self.now)
        self.caches: list[SemanticCache] = []
        self.followers: list[Follower] = []
        self.answers: dict[str, tuple[str, str]] = {}  # text → prompt, tag
        self.taken_back: set[str] = set()
        self.losses = 0
        self.put_before: dict[str, int] = {}  # text → how often the store had lost its memory
        self.kept = (sync.BLOCK, disk._WAIT)
        sync.BLOCK, disk._WAIT = 0.0, 0.0  # type: ignore[misc]
        for process in range(len(FILES)):
            self.caches.append(self.opened(process))
            self.followers.append(self.follower(process))
        self.tick(range(len(FILES)))

    def opened(self, process: int) -> SemanticCache:
        file = FILES[process]
        policy = Policy(
            deadline=60.0, local_bound=0.0, semantic_turns=0, single_flight=False,
            disk=None if file is None else str(self.folder / file),
        )  # fmt: skip
        cache = SemanticCache(
            store=self.store, encoder=HashEncoder(8), policy=policy, secret=b"s" * 16, clock=lambda: self.now
        )
        cache._core.has_follower = True
        return cache

    def follower(self, process: int) -> Follower:
        return Follower(self.caches[process]._core)

    def turn(self, process: int) -> None:
        for _ in range(2):  # what is read in one turn is looked at again in the next
            drive(self.followers[process].turn(), self.store)

    def tick(self, order: Any) -> None:
        self.now += 1.0
        for process in order:
            self.turn(process)

    def put(self, process: int, prompt: str, tag: str) -> None:
        text = str(len(self.answers))
        self.now += 0.001
        self.answers[text] = (prompt, tag)
        self.put_before[text] = self.losses
        self.caches[process].put(prompt, text, tags={tag})
        self.settle(process)

    def settle(self, process: int) -> None:
        tier = self.caches[process]._core.disk
        assert tier is None or tier.settle(5.0)

    def withdraw(self, process: int, prompt: str) -> None:
        self.now += 0.001
        entry_id = self.caches[process].put(prompt, "-").entry_id
        self.caches[process].invalidate(entry_ids=[entry_id])
        self.taken_back |= {text for text, (of, _) in self.answers.items() if of == prompt} | {"-"}

    def invalidate(self, process: int, tag: str) -> None:
        self.now += 0.001
        self.caches[process].invalidate(tags=[tag])
        self.taken_back |= {text for text, (_, of) in self.answers.items() if of == tag}

    def invalidate_everything(self, process: int) -> None:
        self.now += 0.001
        self.caches[process].invalidate(everything=True)
        self.taken_back |= set(self.answers)

    def lose_memory(self, shift: float) -> None:
        self.now += 0.001
        self.losses += 1
        self.store.lose(shift)

    def lose_memory_and_come_back(self, cycle: Cycle) -> None:
        order = cycle.order
        self.tick(order)
        for process, prompt, tag in cycle.put:
            self.put(process, prompt, tag)
        for _ in range(cycle.ticks):
            self.tick(order)
        self.do(cycle.before)
        if cycle.ended is not None:
            (self.crash if cycle.long_ago else self.restart)(cycle.ended)
        if cycle.trimmed:
            self.store.trim()
        if cycle.in_touch:
            self.tick(order)
        self.lose_memory(cycle.shift)
        self.do(cycle.early)
        self.turn(order[0])
        self.look_everywhere(order[:1])
        for _ in range(4):
            self.tick(order)
        self.do(cycle.late)
        self.look_everywhere(order)
        if cycle.let_go:
            self.store.let_go()
            self.look_everywhere(order)

    def do(self, deeds: Any) -> None:
        for process, what in deeds:
            if what == "everything":
                self.invalidate_everything(process)
            elif what in ("t", "u"):
                self.invalidate(process, what)
            else:
                self.withdraw(process, what)

    def look_everywhere(self, processes: Any) -> None:
        for process in processes:
            for prompt in ("one", "two", "three"):
                self.look(process, prompt)

    def restart(self, process: int) -> None:
        for other in (process, *range(len(FILES))):
            self.turn(other)
        self.anew(process)

    def crash(self, process: int) -> None:
        self.now += GRACE + 0.001
        self.anew(process)

    def anew(self, process: int) -> None:
        self.caches[process].close()
        self.caches[process] = self.opened(process)
        self.followers[process] = self.follower(process)

    def look(self, process: int, prompt: str) -> None:
        found = self.caches[process].lookup(prompt)
        self.settle(process)
        if isinstance(found, Hit):
            assert found.text not in self.taken_back
            if self.put_before.get(found.text, self.losses) < self.losses:
                event("an answer from before a loss")

    def close(self) -> None:
        for cache in self.caches:
            cache.close()
        sync.BLOCK, disk._WAIT = self.kept  # type: ignore[misc]
        shutil.rmtree(self.folder)


@settings(max_examples=100, deadline=None)
@given(cycles=CYCLES)
def test_nothing_withdrawn_is_served_whatever_was_lost(cycles: Sequence[Cycle]) -> None:
    world = World()
    try:
        for cycle in cycles:
            world.lose_memory_and_come_back(cycle)
    finally:
        world.close()
