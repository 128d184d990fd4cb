"""A process that uses a cache and notes every call; commands come by standard input, one JSON object a line."""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from semcache import CacheRequest, Hit, Policy, StoreUnavailableError
from semcache.testing import TableEncoder
from semcache.types import Answer, Decision, Fence
from semcache.verify import ThresholdMatcher
from tests.facade import Facade, Loop, open_facade
from tests.faults.mutants import MUTANTS, VARIABLE

MEANINGS = 6
WORDINGS = 3
TENANTS = ("amber", "birch")
SHORT = 0.7  # seconds; a short time to live
RATERS = 2
THREADS = 2


def question(meaning: int, wording: int) -> str:
    """Return a text; wordings of one meaning match by their embeddings."""
    return f"topic {meaning} in wording {wording}"


def meaning_of(text: str) -> int:
    """Return what a text is about."""
    return int(text.split()[1])


def table() -> dict[str, list[float]]:
    """Return an embedding for every question."""
    rows = {}
    for meaning in range(MEANINGS):
        for wording in range(WORDINGS):
            row = [0.0] * (2 * MEANINGS)
            row[meaning], row[MEANINGS + meaning] = ((1.0, 0.0), (0.99, 0.141), (0.99, -0.141))[wording]
            rows[question(meaning, wording)] = row
    return rows


class Notes:
    """The history of one process. Each note is one write, so that a killed process loses none."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        self._numbers = itertools.count()

    def begin(self, op: str, args: Mapping[str, Any]) -> int:
        number = next(self._numbers)
        self._write({"n": number, "op": op, "args": args, "call": time.monotonic()})
        return number

    def end(self, number: int, result: Any, error: str | None = None) -> None:
        returned = time.monotonic()
        self._write({"n": number, "returned": returned, "result": result, "error": error})

    def _write(self, note: Mapping[str, Any]) -> None:
        os.write(self._file, (json.dumps(note) + "\n").encode())


class Client:
    """One user of the cache; its methods note what they do."""

    def __init__(self, cache: Facade, notes: Notes) -> None:
        self._cache = cache
        self._notes = notes
        self._serials = itertools.count()
        self.fences: dict[tuple[str, str], tuple[Fence, float, float]] = {}  # fence, call, return
        self.seen: dict[str, str] = {}  # entry id → lookup id
        self._lock = threading.Lock()
        self._mine = threading.local()  # the lookup id of this thread's last hit

    def _noted(self, op: str, args: Mapping[str, Any], do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        number = self._notes.begin(op, args)
        try:
            result = do()
        except Exception as error:  # noqa: BLE001 - whatever it is goes into the history, and the checker judges it
            name = type(error).__name__
            if isinstance(error, StoreUnavailableError):  # or a kind of it
                name = StoreUnavailableError.__name__
            self._notes.end(number, None, name)
            return {"error": name, "detail": str(error)}
        self._notes.end(number, result)
        return result

    def lookup(self, tenant: str, question: str, user: str | None = None) -> dict[str, Any]:
        args = {"tenant": tenant, "question": question, "meaning": meaning_of(question), "user": user}
        started = time.monotonic()

        def do() -> dict[str, Any]:
            found: Decision = self._cache.lookup(CacheRequest(question, tenant=tenant, user=user))
            if not isinstance(found, Hit) and found.fence is not None:
                with self._lock:
                    self.fences[tenant, question] = (found.fence, started, time.monotonic())
            return self._decision(found)

        return self._noted("lookup", args, do)

    def _decision(self, found: Decision) -> dict[str, Any]:
        if not isinstance(found, Hit):
            return {"hit": False, "reason": found.reason, "detail": found.detail}
        self.seen[found.entry_id] = self._mine.lookup_id = found.lookup_id
        return {
            "hit": True, "answer": json.loads(found.text), "entry_id": found.entry_id, "tier": found.tier,
            "match": found.match,
        }  # fmt: skip

    def _answer(self, args: Mapping[str, Any]) -> str:
        kept = ("serial", "tenant", "question", "meaning", "fenced")
        return json.dumps({key: args[key] for key in kept})

    def _new(self, tenant: str, question: str, **more: Any) -> dict[str, Any]:
        meaning = meaning_of(question)
        with self._lock:
            serial = f"{self._notes.name}-{next(self._serials)}"
        return {"serial": serial, "tenant": tenant, "question": question, "meaning": meaning, **more}

    def put(
        self, tenant: str, question: str, tags: list[str], ttl: float | None = None, late: bool = False
    ) -> dict[str, Any]:
        """Store an answer; `late` gives it the fence of the last lookup that missed here."""
        fence, looked, fenced = None, None, None
        if late:
            with self._lock:
                fence, looked, fenced = self.fences.pop((tenant, question), (None, None, None))
        args = self._new(tenant, question, tags=tags, ttl=ttl, looked=looked, fenced=fenced)

        def do() -> dict[str, Any]:
            request = CacheRequest(question, tenant=tenant)
            stored = self._cache.put(request, self._answer(args), fence=fence, tags=tags, ttl=ttl)
            return {"outcome": stored.outcome, "entry_id": stored.entry_id}

        return {"serial": args["serial"], **self._noted("put", args, do)}

    def compute(
        self, tenant: str, question: str, tags: list[str], ttl: float | None = None, seconds: float = 0.0
    ) -> dict[str, Any]:
        """Get or compute, with a model that takes `seconds`."""
        args = {"tenant": tenant, "question": question, "meaning": meaning_of(question)}
        started = time.monotonic()
        made: list[int] = []

        def model(request: CacheRequest) -> str:
            # The fence was taken after this call began and before the model was called.
            born = self._new(tenant, question, tags=tags, ttl=ttl, looked=started, fenced=time.monotonic())
            made.append(self._notes.begin("put", born))
            time.sleep(seconds)
            return self._answer(born)

        def do() -> dict[str, Any]:
            answer: Answer = self._cache.get_or_compute(
                CacheRequest(question, tenant=tenant), model, tags=tags, ttl=ttl
            )
            for number in made:
                stored = answer.stored
                outcome = None if stored is None else {"outcome": stored.outcome, "entry_id": stored.entry_id}
                self._notes.end(number, outcome)
            result = self._decision(answer.decision)
            return {**result, "answer": json.loads(answer.text), "waited": answer.waited}

        return self._noted("compute", args, do)

    def invalidate(self, **selector: Any) -> dict[str, Any]:
        """Withdraw; the selector is the cache's own."""

        def do() -> dict[str, Any]:
            return {"matched": self._cache.invalidate(**selector).matched}

        return self._noted("invalidate", selector, do)

    def feedback(
        self, tenant: str, question: str, rater: str, verdict: int = -1, about: str = "answer"
    ) -> dict[str, Any]:
        """Look up, and judge what is served if there is anything; a match only if it was one by meaning."""
        found = self.lookup(tenant, question, rater)
        if not found.get("hit") or (about == "match" and found["match"] != "semantic"):
            return found
        lookup_id = self._mine.lookup_id
        args = {
            "entry_id": found["entry_id"], "verdict": verdict, "rater": rater, "about": about, "question": question,
            "needed": RATERS,
        }  # fmt: skip

        def do() -> dict[str, Any]:
            given = self._cache.feedback(lookup_id, verdict, rater=rater, about=about)
            return {"action": given.action, "raters": given.raters}

        return self._noted("feedback", args, do)

    def restore(self, entry_id: str) -> dict[str, Any]:
        return self._noted("restore", {"entry_id": entry_id}, lambda: {"done": self._cache.restore(entry_id)})

    def load(self, seed: int, seconds: float) -> dict[str, Any]:
        """Do everything at random from several threads."""
        threads = [
            threading.Thread(target=self._load, args=(random.Random(seed * 100 + number), seconds))
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"done": True}

    def _load(self, chance: random.Random, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._one(chance)
            time.sleep(chance.uniform(0.0, 0.02))

    def _one(self, chance: random.Random) -> None:
        meaning, tenant = chance.randrange(MEANINGS), chance.choice(TENANTS)
        text = question(meaning, chance.randrange(WORDINGS))
        tags = [f"topic:{meaning}", f"colour:{chance.randrange(3)}"]
        ttl = SHORT if chance.random() < 0.3 else None
        known = list(self.seen)
        older = chance.choice(({}, {"older_than": 0.3}, {"older_than": 3.0}))
        (what,) = chance.choices(
            (
                "lookup",
                "compute",
                "put",
                "late",
                "down",
                "match",
                "up",
                "id",
                "tag",
                "tenant",
                "everything",
                "restore",
            ),
            (70, 10, 5, 5, 4, 1.5, 1, 0.7, 0.5, 0.1, 0.1, 0.7),
        )
        if what == "compute":
            self.compute(tenant, text, tags, ttl, chance.choice((0.0, 0.05, 0.3)))
        elif what in ("put", "late"):
            self.put(tenant, text, tags, ttl, late=what == "late")
        elif what in ("down", "match", "up"):
            rater, about = f"rater {chance.randrange(5)}", "match" if what == "match" else "answer"
            self.feedback(tenant, text, rater, 1 if what == "up" else -1, about)
        elif what == "id" and known:
            self.invalidate(entry_ids=[chance.choice(known)])
        elif what == "tag":
            self.invalidate(tags=[chance.choice(tags)], tenant=chance.choice((None, tenant)), **older)
        elif what == "tenant":
            self.invalidate(tenant=tenant, **older)
        elif what == "everything":
            self.invalidate(everything=True, **older)
        elif what == "restore" and known:
            self.restore(chance.choice(known))
        else:
            self.lookup(tenant, text, chance.choice((None, f"rater {chance.randrange(5)}")))


def main() -> None:
    config = json.loads(sys.argv[1])
    mutant = os.environ.get(VARIABLE)
    if mutant:
        MUTANTS[mutant]()
    notes = Notes(Path(config["notes"]))
    loop = Loop()
    policy = Policy(
        deadline=config["deadline"], feedback_raters=RATERS, feedback_rate=100_000, breaker_reset=0.3,
        snapshot_every=2.0,
    )  # fmt: skip
    cache = open_facade(
        config["kind"], config["url"], loop, encoder=TableEncoder(table()), matcher=ThresholdMatcher(0.9),
        policy=policy, namespace=config["namespace"], snapshot_dir=config["snapshots"],
    )  # fmt: skip
    client = Client(cache, notes)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        result = getattr(client, command.pop("do"))(**command)
        print(json.dumps(result), flush=True)
    cache.close()
    loop.close()


if __name__ == "__main__":
    main()
