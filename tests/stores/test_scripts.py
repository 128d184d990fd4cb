"""Lua scripts declare every key they touch, in one slot; plans read what the server says, in both protocols."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
import redis

from semcache import CacheRequest, Hit, Policy, SemanticCache
from semcache.errors import StoreUnavailableError
from semcache.keys import Keys
from semcache.protocols import FeedbackRules, Former, Mark, Refresh, Stale
from semcache.stores.plans import Plans, pack, script
from semcache.testing import TableEncoder
from semcache.types import Fence
from semcache.verify import ThresholdMatcher

SCRIPTS = sorted(
    p.name.removesuffix(".lua")
    for p in (files("semcache.stores") / "lua").iterdir()
    if p.name.endswith(".lua")
)
ENTRY = "m/v/" + "0" * 32


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_touches_declared_keys_only(name: str) -> None:
    text = script(name).text
    touched = re.findall(r"redis\.call\('(\w+)'(?:, ([^,)]+))?", text)

    assert touched
    for command, first in touched:
        assert command == "TIME" or first.startswith("KEYS["), f"{command} {first}"
    assert "redis.call(unpack(arguments))" not in text or "{'XADD', KEYS[1]" in text


def slots(command: tuple[Any, ...]) -> set[int]:
    from redis.crc import key_slot

    count = int(command[2])
    return {key_slot(str(key).encode()) for key in command[3 : 3 + count]}


def test_every_script_call_stays_in_one_slot() -> None:
    plans = Plans(Keys("n"), cluster=True)
    mark = Mark(
        entry_id=ENTRY, revision=None, verdict=-1, about="answer", principal="p", nonce="n", text="t", similarity=None,
        weight=1.0,
        rules=FeedbackRules(raters=3, window=1.0, keep=1.0, rate=1, rate_window=1.0, trust=10, trust_window=1.0),
    )  # fmt: skip
    built = [
        plans.read([ENTRY], ["a"], None),
        plans.withdraw([ENTRY], "x", 1.0, "memory"),
        plans.raise_generations(["a", "b"], 0.0, "memory"),
        plans.restore(ENTRY),
        plans.queue_refresh([Stale(ENTRY, "asked")]),
        plans.finish_refreshes([Refresh("1-0", ENTRY, "asked", 0.0, 1)]),
        plans.announce_withdrawal(ENTRY, "feedback"),
        plans.announce_block(ENTRY),
        plans.withdraw_again(
            [Former(kind, ENTRY, Fence("e", 1)) for kind in ("id", "block", "name")], 1.0, "memory"
        ),
        plans.feedback(mark, "memory"),
        plans.set_aside(ENTRY, 1.0),
        plans.sweep(1.0, 10),
    ]
    calls = [command for plan in built for command in plan.commands if command[0] == "EVALSHA"]

    assert len(calls) >= 11
    for command in calls:
        assert len(slots(command)) == 1, command


def test_packed_commands_are_what_redis_py_would_send() -> None:
    commands = [("HMGET", "key", "field", "feld ü"), ("TIME",), ("SET", b"\x00\xff", 7)]
    ours = pack(commands)
    theirs = b"".join(redis.Connection().pack_commands(commands))

    assert ours == theirs


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(request: pytest.FixtureRequest, redis_url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(redis_url, protocol=request.param)
    yield client
    client.close()


def test_both_protocols_work_with_a_client_of_the_users(client: redis.Redis, namespace: str) -> None:
    encoder = TableEncoder({"apple": [1.0, 0.0], "apples": [0.99, 0.141]}, default=[0.0, 1.0])
    with SemanticCache.open(
        client,
        encoder=encoder,
        namespace=namespace,
        matcher=ThresholdMatcher(0.9),
        policy=Policy(deadline=5.0),
    ) as cache:
        cache.put("apple", "a fruit", tags={"t"})
        found = cache.lookup("apples")
        assert isinstance(found, Hit)
        cache.feedback(found.lookup_id, -1, rater="u")
        cache.put(CacheRequest("pear", model="m"), "another")
        for _ in range(100):
            at = cache._follower._follower.at if cache._follower is not None else None
            if at is not None and at.sequence == 3:
                break
            cache._follower._stop.wait(0.05) if cache._follower else None
        listed = {(v.model, v.model_version) for v in cache.versions()}
        cache.queue_refresh([found.entry_id])
        (work,) = cache.take_refreshes("w")
        cache.finish_refreshes([work])
        cache.invalidate(tags={"t"})

        assert listed == {("", ""), ("m", "")}
        assert work.entry_id == found.entry_id
        assert not cache.lookup("apple")
        assert cache.stats().failures.get("follower") is None
    assert client.ping(), "the user's client stays open"


def test_scripts_are_loaded_again_after_a_script_flush(redis_url: str, namespace: str) -> None:
    client = redis.Redis.from_url(redis_url)
    with SemanticCache.open(
        redis_url, encoder=TableEncoder({"apple": [1.0]}), namespace=namespace, policy=Policy(deadline=5.0)
    ) as cache:
        cache.put("apple", "a fruit")
        client.script_flush()
        stored = cache.put("apple", "a fruit")
        client.close()

        assert stored.outcome == "replaced"
        assert isinstance(cache.lookup("apple"), Hit)


@pytest.mark.parametrize("trouble", ["maxmemory", "readonly"])
def test_a_server_that_refuses_writes_is_unavailable_not_an_error(tmp_path: Any, trouble: str) -> None:
    from semcache.stores.embedded import EmbeddedServer

    with EmbeddedServer.open(tmp_path / "data") as server:
        client = redis.Redis(unix_socket_path=server.socket_path)
        with SemanticCache.open(
            server.url, encoder=TableEncoder({"apple": [1.0]}), policy=Policy(deadline=5.0, local_bound=0.0)
        ) as cache:
            cache.put("apple", "a fruit")
            if trouble == "maxmemory":
                client.config_set("maxmemory", "1")
            else:
                client.replicaof("127.0.0.1", "1")
            stored = cache.put("apple", "again")
            answer = cache.get_or_compute("apple", lambda request: "from the model")
            with pytest.raises(StoreUnavailableError):
                cache.invalidate(tags={"x"})
        client.close()

    assert stored.outcome == "store_unavailable"
    # A server out of memory lets a script finish that has begun to write: the entry is whole, old or new.
    assert answer.text in ("a fruit", "again", "from the model")
