"""How soon is a withdrawn answer gone in another process, and what do feedback and invalidations cost?

    python benchmarks/bench_withdrawals.py [--only delays tags feedback call invalidate] [--trials 100]
        [--events 1000000] [--rated 1000] [--tags 100000] [--entries 100000] [--json]

- delays: from the return of the deciding thumbs-down to the start of the last lookup that another process still
  served. It keeps local copies (bound 1 s) and asks without pause.
- call: a feedback call against a bare GET on the same server, both from this process, by turns of some calls each.
- invalidate: one tag of many entries, each stored by a put. Afterwards every one of a sample must be a miss, here
  and in a process that starts then.
- tags, feedback: the server's memory while many tags are invalidated and many verdicts given, and after a sweep.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import redis
from bench_cache import in_turns

from semcache import CacheRequest, Hit, Policy, Response, SemanticCache
from semcache.codec import encode_response
from semcache.core.arguments import Given
from semcache.feedback import principal_digest
from semcache.protocols import Draft, Mark
from semcache.stores.embedded import EmbeddedServer
from semcache.stores.plans import Plan
from semcache.testing import HashEncoder

NAMESPACE = "withdrawals"


def open_cache(url: str, **policy: Any) -> SemanticCache:
    settings = {"deadline": 5.0, "feedback_rate": 10**9, **policy}
    return SemanticCache.open(url, namespace=NAMESPACE, encoder=HashEncoder(32), policy=Policy(**settings))


def ask_all_the_time(url: str, pipe: Connection) -> None:
    """Serve one prompt until it is gone; send the time of the last lookup that was served."""
    with open_cache(url) as cache:
        while (prompt := pipe.recv()) is not None:
            while not isinstance(cache.lookup(prompt), Hit):
                time.sleep(0.001)
            pipe.send("serving")
            served = time.monotonic()
            while True:
                started = time.monotonic()
                if not isinstance(cache.lookup(prompt), Hit):
                    break
                served = started
            pipe.send(served)


def delays(url: str, trials: int) -> dict[str, Any]:
    """Withdraw in this process by the third thumbs-down; look in another."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    other = multiprocessing.get_context("spawn").Process(
        target=ask_all_the_time, args=(url, there), daemon=True
    )
    other.start()
    measured = []
    with open_cache(url) as cache:
        for number in range(trials):
            prompt = f"question {number}"
            cache.put(prompt, "an answer")
            here.send(prompt)
            here.recv()
            time.sleep(0.01 * (number % 30))  # so that the copy's age varies
            for rater in range(3):
                found = cache.lookup(prompt)
                assert isinstance(found, Hit)
                cache.feedback(found.lookup_id, -1, rater=str(rater))
            returned = time.monotonic()
            measured.append(1000 * max(0.0, here.recv() - returned))
        here.send(None)
    other.join(10)
    row = {f"p{p}": round(float(np.percentile(measured, p)), 2) for p in (50, 90, 99)}
    return {"trials": trials, "ms": {**row, "max": round(max(measured), 2)}}


def memory(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


def sent(cache: SemanticCache, plans: Iterable[Plan[Any]]) -> list[Any]:
    """Send plans of the store in one round trip: what this measures is the server's, not the pipe's."""
    batch = list(plans)
    store: Any = cache._store
    replies = store._connections.execute([command for plan in batch for command in plan.commands], 60.0)
    results, place = [], 0
    for plan in batch:
        results.append(plan.read(replies[place : place + len(plan.commands)]))
        place += len(plan.commands)
    return results


def feedback_memory(url: str, events: int, rated: int) -> dict[str, Any]:
    """Many verdicts on some entries, by raters of so little weight that they never withdraw one; one of four is a thumbs-up.

    The marks are those of `SemanticCache.feedback`, 500 in one round trip.
    """
    client = redis.Redis.from_url(url)
    with open_cache(url) as cache:
        ids = [str(cache.put(f"entry {n}", "x").entry_id) for n in range(rated)]
        plans = cache._store._operations.plans  # type: ignore[attr-defined]

        def mark(number: int) -> Mark:
            rater = principal_digest(f"u-{(number * 7919) % 100_003}")
            return Mark(
                entry_id=ids[number * 31 % rated], revision=None, verdict=1 if number % 4 == 3 else -1, about="answer",
                principal=rater, nonce=rater, text="-", similarity=None, weight=0.01, rules=cache._core.rules,
            )  # fmt: skip

        before, started, grown, actions = memory(client), time.perf_counter(), [], Counter[str]()
        for first in range(0, events, 500):
            batch = range(first, min(first + 500, events))
            actions.update(
                one.action for one in sent(cache, (plans.feedback(mark(n), "memory") for n in batch))
            )
            if first // (events // 10) != (first + 500) // (events // 10):
                grown.append(round((memory(client) - before) / 1e6, 1))
                print(f"{first + 500:,} verdicts, {grown[-1]} MB", file=sys.stderr)
        took = time.perf_counter() - started
        marks = {
            what: max(
                (client.zcard(key) for key in client.scan_iter(f"semcache:{NAMESPACE}:{what}:*")), default=0
            )
            for what in ("downs", "ups")
        }
    client.close()
    return {
        "events": events,
        "entries": rated,
        "actions": dict(actions),
        "per_s": round(events / took),
        "MB_by_tenth": grown,
        "most_marks_of_an_entry": marks,
    }


def tag_memory(url: str, tags: int) -> dict[str, Any]:
    """Many different tags, each invalidated once."""
    client = redis.Redis.from_url(url)
    with open_cache(url) as cache:
        before, started = memory(client), time.perf_counter()
        for number in range(tags):
            cache.invalidate(tags={f"object:{number}"})
        took = time.perf_counter() - started
        grown = memory(client) - before
        cache.put("still", "x")
        alive = isinstance(cache.lookup("still"), Hit)
    client.close()
    return {
        "tags": tags,
        "per_s": round(tags / took),
        "MB": round(grown / 1e6, 1),
        "most_MB_of_any_number": round(grown / tags * Policy().max_generations / 1e6, 1),
        "a_new_entry_is_served": alive,
    }


def feedback_call(url: str, calls: int) -> dict[str, Any]:
    """Feedback calls and bare round trips by turns, each about a serving of its own."""
    client = redis.Redis.from_url(url)
    client.set("bare", "x")
    with open_cache(url, feedback_raters=3) as cache:
        servings = []
        for number in range(100):
            cache.put(f"asked {number}", "x")
        for number in range(calls):
            found = cache.lookup(f"asked {number % 100}")
            assert isinstance(found, Hit)
            servings.append((found.lookup_id, 1 if number % 2 else -1, f"u-{number % 100}"))
        turn = itertools.cycle(servings)

        def rate() -> None:
            lookup_id, verdict, rater = next(turn)
            cache.feedback(lookup_id, verdict, rater=rater)

        rows = in_turns({"get": lambda: client.get("bare"), "call": rate}, calls)
    client.close()
    call, bare = rows["call"], rows["get"]
    return {
        "calls": calls,
        "call_us": call,
        "bare_get_us": bare,
        "p50_in_round_trips": round(call["p50"] / bare["p50"], 2),
        "us_beside_the_round_trip": round(call["p50"] - bare["p50"]),  # two hold it where one takes as long
    }


def fill(cache: SemanticCache, entries: int, tag: str) -> None:
    """Store entries with a tag, 500 in one round trip."""
    cache.put("object 0", "an answer", tags={tag})
    core, plans = cache._core, cache._store._operations.plans  # type: ignore[attr-defined]

    def draft(number: int) -> Draft:
        request = CacheRequest(f"object {number}")
        identity = core.identify(request)
        assert identity is not None
        data = encode_response(Response("an answer"))
        return core._draft(identity, request, data, None, Given((tag,), 3600.0, None, None), None, None, 1.0)

    for first in range(0, entries, 500):
        for reply in sent(cache, (plans.put(draft(n)) for n in range(first, min(first + 500, entries)))):
            assert reply.outcome in ("stored", "replaced"), reply


def invalidation(url: str, entries: int) -> dict[str, Any]:
    """Withdraw many entries by their tag."""
    with open_cache(url) as cache:
        fill(cache, entries, "season:autumn")
        counted = cache.invalidate(tags={"season:autumn"}, dry_run=True).matched
        started = time.perf_counter()
        cache.invalidate(tags={"season:autumn"})
        took = time.perf_counter() - started
        sample = range(0, entries, max(1, entries // 1000))
        here = sum(isinstance(cache.lookup(f"object {number}"), Hit) for number in sample)
        again = []
        for _ in range(200):
            started = time.perf_counter()
            cache.invalidate(tags={"season:autumn"})
            again.append(1000 * (time.perf_counter() - started))
    with open_cache(url) as cache:
        there = sum(isinstance(cache.lookup(f"object {number}"), Hit) for number in sample)
    return {
        "entries": counted,
        "first_ms": round(1000 * took, 2),
        "again_ms": {f"p{p}": round(float(np.percentile(again, p)), 2) for p in (50, 99, 100)},
        "still_served_here": here,
        "still_served_by_a_new_process": there,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("delays", "call", "invalidate", "tags", "feedback")
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rated", type=int, default=1000, help="entries that the events are about")
    parser.add_argument("--tags", type=int, default=100_000)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measures: dict[str, Callable[[str], dict[str, Any]]] = {
        "delays": lambda url: delays(url, options.trials),
        "call": lambda url: feedback_call(url, options.calls),
        "invalidate": lambda url: invalidation(url, options.entries),
        "tags": lambda url: tag_memory(url, options.tags),
        "feedback": lambda url: feedback_memory(url, options.events, options.rated),
    }
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    }
    for part in options.only:
        with tempfile.TemporaryDirectory() as folder, EmbeddedServer.open(Path(folder) / "data") as server:
            report[part] = measures[part](server.url)
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name}: {json.dumps(value) if isinstance(value, dict) else value}")


if __name__ == "__main__":
    main()
