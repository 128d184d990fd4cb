"""Makes histories: workers over one server, things that break, scenes that aim at one safeguard each."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semcache.stores._launch import find_binary
from tests.faults.history import Event, Violation, read_history
from tests.faults.mutants import VARIABLE
from tests.faults.proxy import Proxy
from tests.faults.worker import Notes, question
from tests.servers import Server

ROOT = Path(__file__).parents[2]
WORKERS = 4
AFTER = 1.05  # seconds after a withdrawal from which nothing may be served, and a little


class Line(Proxy):
    """A connection that can wait for one answer to pass, and keep the change log from being heard.

    Attributes:
        watched: Sets `passing` when a reply holds it, before the reply is slowed down.
        deaf: Swallows what comes back on connections that read the change log.
    """

    def __init__(self, target: str) -> None:
        self.watched = b""
        self.passing = threading.Event()
        self.deaf = False
        self._log_readers: set[Any] = set()
        super().__init__(target)

    def _hear(self, client: Any, data: bytes) -> None:
        if b"XREAD" in data:
            self._log_readers.add(client)

    def _keeps_back(self, client: Any, data: bytes) -> bool:
        if self.watched and self.watched in data:
            self.passing.set()
        return self.deaf and client in self._log_readers


class Worker:
    """A handle on one worker process."""

    def __init__(self, name: str, kind: str, folder: Path, target: str, *, mutant: str = "", namespace: str = "h",
                 deadline: float = 1.0) -> None:  # fmt: skip
        self.name, self.kind, self._folder = name, kind, folder
        self.line = Line(target)
        self._mutant, self._lives = mutant, 0
        self._config = {
            "kind": kind, "url": self.line.url, "namespace": namespace, "deadline": deadline,
            "snapshots": str(folder / "snapshots"),
        }  # fmt: skip
        self.process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Start a process; `wait` tells when it is ready."""
        self._lives += 1
        config = self._config | {"notes": str(self._folder / f"{self.name}.{self._lives}.jsonl")}
        environment = os.environ | {VARIABLE: self._mutant, "PYTHONPATH": str(ROOT)}
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.worker", json.dumps(config)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment,
            )  # fmt: skip

    def send(self, do: str, **arguments: Any) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def wait(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            log = (self._folder / f"{self.name}.log").read_text()
            raise RuntimeError(f"worker {self.name} ended with {self.process.wait(10)}: {log[-2000:]}")
        result: dict[str, Any] = json.loads(line)
        return result

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Have the worker do something and wait for it."""
        self.send(do, **arguments)
        return self.wait()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self._forget()

    def _forget(self) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.wait(20)
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.send_signal(signal.SIGCONT)
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
            self._forget()
        self.line.close()


@dataclass
class Stage:
    """A server and the folder of a history."""

    folder: Path
    server: Server
    socket: str
    notes: Notes
    faults: Counter[str] = field(default_factory=Counter)

    def flush(self, what: str, namespace: str = "h") -> None:
        """Make the store lose its memory: ``everything``, or the ``generations`` with the epoch."""
        number = self.notes.begin("flush", {"what": what})
        client = self.server.client()
        if what == "everything":
            client.flushall()
        else:
            client.delete(f"semcache:{namespace}:gens")
        self.notes.end(number, {})

    def events(self) -> list[Event]:
        return read_history(self.folder)


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Start a server that keeps what it acknowledged."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="semcache-") as short:  # a socket's path is limited to 107 bytes
        socket = f"{short}/s"
        arguments = ("--appendonly", "yes", "--appendfsync", "always", "--save", "", "--unixsocket", socket)
        server = Server(find_binary(), folder / "server", arguments)
        try:
            server.start()
            yield Stage(folder, server, socket, Notes(folder / "conductor.jsonl"))
        finally:
            server.stop()


@contextmanager
def workers(stage: Stage, kinds: Sequence[str], **options: Any) -> Iterator[list[Worker]]:
    """Start workers."""
    prefix = options.get("namespace", "w")
    made = [
        Worker(f"{prefix}{number}", kind, stage.folder, stage.socket, **options)
        for number, kind in enumerate(kinds)
    ]
    try:
        for worker in made:
            worker.begin()
        for worker in made:
            worker.wait()
        yield made
    finally:
        for worker in made:
            worker.end()


# scenes: two workers, one safeguard

PLACE = {"tenant": "amber", "question": question(0, 0)}


def scene_generations(stage: Stage, one: Worker, other: Worker) -> None:
    """An answer's tag is invalidated."""
    one.ask("put", **PLACE, tags=["topic:0"])
    other.ask("lookup", **PLACE)
    one.ask("invalidate", tags=["topic:0"])
    time.sleep(AFTER)
    other.ask("lookup", **PLACE)


def scene_slow_reply(stage: Stage, one: Worker, other: Worker) -> None:
    """An entry is withdrawn while the reply that brings it to another process is on its way."""
    other.ask("lookup", **PLACE)  # so that it is connected
    other.line.deaf, other.line.delay = True, 0.6
    for _ in range(2):  # on a busy machine a reply may come too late to be used
        serial = one.ask("put", **PLACE, tags=["topic:0"])["serial"]
        other.line.passing.clear()
        other.line.watched = str(serial).encode()
        other.line.set("slow")
        other.send("lookup", **PLACE)
        if other.line.passing.wait(10.0):
            one.ask("invalidate", tags=["topic:0"])
        withdrawn = time.monotonic()
        other.wait()
        other.line.watched = b""
        while time.monotonic() < withdrawn + 1.7:
            other.ask("lookup", **PLACE)
            time.sleep(0.02)
        other.line.set("pass")


def scene_old_fence(stage: Stage, one: Worker, other: Worker) -> None:
    """An answer is computed before everything is invalidated, and stored after."""
    one.ask("lookup", **PLACE)
    other.ask("invalidate", everything=True)
    one.ask("put", **PLACE, tags=["topic:0"], late=True)
    time.sleep(AFTER)
    other.ask("lookup", **PLACE)


def scene_lost_memory(stage: Stage, one: Worker, other: Worker) -> None:
    """A tag is invalidated, and the store forgets that; then it is emptied while an answer is computed."""
    one.ask("put", **PLACE, tags=["topic:0"])
    other.ask("lookup", **PLACE)
    one.ask("invalidate", tags=["topic:0"])
    stage.flush("generations")
    time.sleep(AFTER)
    other.ask("lookup", **PLACE)
    one.ask("lookup", **PLACE)
    stage.flush("everything")
    one.ask("put", **PLACE, tags=["topic:0"], late=True)
    time.sleep(AFTER)
    other.ask("lookup", **PLACE)


def scene_blocked_text(stage: Stage, one: Worker, other: Worker) -> None:
    """Somebody says that an answer doesn't match her question, the entry is answered anew, and she asks again."""
    one.ask("put", **PLACE, tags=["topic:0"])
    reworded = PLACE | {"question": question(0, 1)}
    one.ask("feedback", **reworded, rater="rater 0", about="match")
    one.ask(
        "put", **PLACE, tags=["topic:0"]
    )  # its threshold is the usual one again; blocked texts stay blocked
    time.sleep(AFTER)
    other.ask("lookup", **reworded, user="rater 0")


def scene_older_than(stage: Stage, one: Worker, other: Worker) -> None:
    """What is older than some seconds is invalidated; the answer is."""
    one.ask("put", **PLACE, tags=["topic:0"])
    time.sleep(0.5)
    one.ask("invalidate", everything=True, older_than=0.3)
    time.sleep(AFTER)
    other.ask("lookup", **PLACE)


SCENES: dict[str, Callable[[Stage, Worker, Worker], None]] = {
    "skip_generations": scene_generations,
    "age_from_reply": scene_slow_reply,
    "generations_at_put": scene_old_fence,
    "ignore_epoch": scene_lost_memory,
    "ignore_blocks": scene_blocked_text,
    "spare_too_much": scene_older_than,
}
"""The scene that shows each mutant."""


def play(folder: Path, scenes: Sequence[str], mutant: str = "") -> list[Event]:
    """Play scenes with two workers, and return their history."""
    with stage(folder) as here, workers(here, ("sync", "sync"), mutant=mutant, deadline=2.0) as (one, other):
        for name in scenes:
            SCENES[name](here, one, other)
    return here.events()


# the rough run: everything at random


@dataclass(frozen=True, slots=True)
class Run:
    """A history and what was done to it."""

    events: list[Event]
    faults: Counter[str]
    seconds: float
    seed: int


class Trouble:
    """Breaks things at random until the end, and mends each before it breaks the next."""

    def __init__(self, stage: Stage, made: Sequence[Worker], chance: random.Random, end: float) -> None:
        self._stage, self._made, self._chance, self._end = stage, made, chance, end

    def go(self) -> None:
        names = ("stop", "kill", "server", "slow", "cut", "hang", "refuse", "generations", "everything")
        while (left := self._end - time.monotonic()) > 3.0:
            (name,) = self._chance.choices(names, (4, 2, 1.5, 3, 3, 1.5, 1.5, 0.4, 0.4))
            time.sleep(self._chance.uniform(0.2, min(1.5, left / 4)))
            self._stage.faults[name] += 1
            worker = self._chance.choice(self._made)
            if name == "stop":
                self._stop(worker)
            elif name == "kill":
                worker.kill()
                worker.begin()
                worker.wait()
                self.load(worker)
            elif name == "server":
                self._stage.server.kill()
                time.sleep(self._chance.uniform(0.1, 1.0))
                self._stage.server.start()
            elif name in ("generations", "everything"):
                self._stage.flush(name)
            else:
                self._disturb(worker, name)

    def load(self, worker: Worker) -> None:
        left = max(0.0, self._end - time.monotonic())
        worker.send("load", seed=self._chance.randrange(1 << 30), seconds=left)

    def _stop(self, worker: Worker) -> None:
        assert worker.process is not None
        worker.process.send_signal(signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.2, 1.6))
        worker.process.send_signal(signal.SIGCONT)

    def _disturb(self, worker: Worker, mood: Any) -> None:
        worker.line.delay = self._chance.uniform(0.02, 0.4)
        worker.line.deaf = self._chance.random() < 0.5
        worker.line.set(mood)
        time.sleep(self._chance.uniform(0.3, 1.5))
        worker.line.set("pass")
        worker.line.deaf = False


def rough_run(*, seconds: float, seed: int, folder: Path | None = None, mutant: str = "") -> Run:
    """Let four processes do everything at random while things break."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="semcache-history-") as made:
            return rough_run(seconds=seconds, seed=seed, folder=Path(made), mutant=mutant)
    kinds = ["sync"] * (WORKERS - 1) + ["async"]
    with stage(folder) as here, workers(here, kinds, mutant=mutant) as crew:
        trouble = Trouble(here, crew, random.Random(seed), time.monotonic() + seconds)
        for worker in crew:
            trouble.load(worker)
        trouble.go()
        for worker in crew:
            worker.wait()
    return Run(here.events(), here.faults, seconds, seed)


def report(run: Run, violations: Sequence[Violation]) -> str:
    """Say what was done, what was broken, and what came of it."""
    done = Counter(event.op for event in run.events)
    results = [event.result for event in run.events if event.op == "lookup" and event.result is not None]
    hits = Counter(f"{one['tier']} {one['match']}" for one in results if one["hit"])
    misses = Counter(one["reason"] for one in results if not one["hit"])
    puts = Counter(
        "unknown" if event.result is None else event.result["outcome"]
        for event in run.events
        if event.op == "put"
    )
    lines = [
        f"{len(run.events)} operations in {run.seconds:.0f} s, seed {run.seed}: {_listed(done)}",
        f"faults: {_listed(run.faults)}",
        f"lookups served: {_listed(hits)}; missed: {_listed(misses)}",
        f"puts: {_listed(puts)}",
        f"raised: {_listed(Counter(f'{e.op} {e.error}' for e in run.events if e.error))}; "
        f"never returned: {sum(event.returned is None for event in run.events)}",
        f"violations: {len(violations)} {_listed(Counter(one.kind for one in violations))}",
    ]
    for one in violations[:10]:
        lines += [f"  {one.kind}: {one.event}", f"    because of {one.because}"]
    return "\n".join(lines)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"
