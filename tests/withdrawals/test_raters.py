"""Whose verdicts count, and for how much: distinct raters, weights, trust."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from semcache import ConfigurationError, Hit, Miss, Policy
from semcache.codec import encode_response
from semcache.feedback import Complaint, Praise, consequence, distinct_raters, raised, weight_of
from semcache.keys import Keys
from semcache.protocols import Draft, FeedbackRules, Mark
from semcache.stores.connections import connect
from semcache.stores.memory import MemoryStore
from semcache.stores.redis import RedisStore
from semcache.types import FeedbackResult, Response
from tests.facade import Facade

ENTRY = "m/v/" + "0" * 32


def say(cache: Facade, verdict: int, rater: str | None, about: str | None = None) -> FeedbackResult:
    found = cache.lookup("apple")
    assert isinstance(found, Hit)
    result: FeedbackResult = cache.feedback(found.lookup_id, verdict, rater=rater, about=about)
    return result


def opened(make: Callable[..., Facade], **policy: Any) -> Facade:
    cache = make(policy=Policy(deadline=5.0, feedback_rate=10_000, **policy))
    cache.put("apple", "x")
    return cache


def test_a_rater_of_weight_counts_for_as_many(make: Callable[..., Facade]) -> None:
    cache = opened(make, feedback_weights={"editor:*": 2.0})
    first, second = say(cache, -1, "ann"), say(cache, -1, "editor:bo")

    assert (first.action, first.raters, first.weight, first.needed) == ("recorded", 1, 1.0, 3.0)
    assert (second.action, second.raters, second.weight) == ("withdrawn", 2, 3.0)
    assert isinstance(cache.lookup("apple"), Miss)


def test_one_rater_withdraws_alone_only_by_the_policys_word(make: Callable[..., Facade]) -> None:
    cache = opened(make, feedback_weights={"chief": 3.0, "deputy": 2.5})
    deputy = [say(cache, -1, "deputy").action for _ in range(20)]
    chief = say(cache, -1, "chief").action

    assert set(deputy) == {"recorded"}
    assert chief == "withdrawn"


def test_names_on_an_editors_lookup_id_weigh_no_more_than_she(make: Callable[..., Facade]) -> None:
    cache = opened(make, feedback_weights={"editor": 2.0})
    lookup_id = cache.lookup("apple").lookup_id
    for rater in ("editor", *(f"u-{n}" for n in range(50))):
        result = cache.feedback(lookup_id, -1, rater=rater)

    assert (result.action, result.raters, result.weight) == ("recorded", 1, 2.0)


def test_a_rater_without_weight_blocks_for_herself_only(make: Callable[..., Facade]) -> None:
    cache = opened(make, feedback_weights={"troll-*": 0.0})
    results = [say(cache, -1, f"troll-{n}") for n in range(10)]

    assert {(one.action, one.raters, one.weight) for one in results} == {("recorded", 0, 0.0)}


def test_ten_who_call_it_right_raise_what_it_takes_by_one(make: Callable[..., Facade]) -> None:
    cache = opened(make)
    for number in range(10):
        trusted = say(cache, 1, f"fan-{number}")
    actions = [say(cache, -1, f"u-{number}").action for number in range(4)]

    assert (trusted.action, trusted.needed) == ("recorded", 4.0)
    assert actions == ["recorded", "recorded", "recorded", "withdrawn"]


def test_a_few_who_call_it_right_dont_break_the_count(make: Callable[..., Facade]) -> None:
    cache = opened(make)
    actions = [
        say(cache, verdict, rater).action
        for verdict, rater in ((-1, "a"), (1, "b"), (-1, "c"), (1, "d"), (1, "e"), (-1, "f"))
    ]

    assert actions[-1] == "withdrawn"


def test_trust_has_an_end(make: Callable[..., Facade]) -> None:
    cache = opened(make, feedback_raters=2, feedback_trust=1)
    needed = [say(cache, 1, f"fan-{number}").needed for number in range(6)]
    actions = [say(cache, -1, f"u-{number}").action for number in range(4)]

    assert needed == [3.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    assert actions[-1] == "withdrawn"


def test_trust_comes_from_distinct_raters(make: Callable[..., Facade]) -> None:
    cache = opened(make, feedback_trust=2)
    lookup_id = cache.lookup("apple").lookup_id
    for number in range(20):
        names = cache.feedback(lookup_id, 1, rater=f"u-{number}")
        lookups = say(cache, 1, "eager")

    assert (names.needed, lookups.needed) == (4.0, 4.0), "one serving and one eager rater are two"


def test_trust_can_be_turned_off(make: Callable[..., Facade]) -> None:
    cache = opened(make, feedback_trust=0)

    assert {say(cache, 1, f"fan-{number}").needed for number in range(20)} == {3.0}


def test_the_last_word_of_a_rater_counts(make: Callable[..., Facade]) -> None:
    cache = opened(make, feedback_raters=2, feedback_trust=1)
    said = [
        (result.action, result.raters, result.needed)
        for result in (say(cache, verdict, "ann") for verdict in (1, -1, 1, 0, -1, 0))
    ]

    assert said == [
        ("recorded", 0, 3.0),
        ("recorded", 1, 2.0),
        ("recorded", 0, 3.0),
        ("none", 0, 2.0),
        ("recorded", 1, 2.0),
        ("none", 0, 2.0),
    ]


def test_a_verdict_of_neither_lifts_ones_own_block(make: Callable[..., Facade]) -> None:
    from semcache import CacheRequest

    cache = make({"apple": [1.0, 0.0, 0.0], "apples": [0.99, 0.141, 0.0]}, policy=Policy(deadline=5.0))
    cache.put("apple", "x")
    asked = CacheRequest("apples", user="ann")
    lookup_id = cache.lookup(asked).lookup_id
    cache.feedback(lookup_id, -1, rater="ann")
    blocked = cache.lookup(asked)
    cache.feedback(lookup_id, 0, rater="ann")
    cache.feedback(lookup_id, 1, rater="another")  # takes back what the wrong match made stricter

    assert isinstance(blocked, Miss)
    assert isinstance(cache.lookup(asked), Hit)


def test_a_new_answer_has_no_trust_yet(make: Callable[..., Facade]) -> None:
    cache = opened(make, feedback_trust=1)
    say(cache, 1, "fan")
    cache.put("apple", "another answer")

    assert say(cache, -1, "u").needed == 3.0


def test_trust_ends_with_its_window(make: Callable[..., Facade]) -> None:
    import time

    cache = opened(make, feedback_trust=1, feedback_trust_window=0.05)
    now = say(cache, 1, "fan").needed
    time.sleep(0.06)

    assert (now, say(cache, -1, "u").needed) == (4.0, 3.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"feedback_weights": None},
        {"feedback_weights": ["ann"]},
        {"feedback_weights": {5: 1.0}},
        {"feedback_weights": {"ann": None}},
        {"feedback_weights": {"ann": -1.0}},
        {"feedback_weights": {"ann": 101.0}},
        {"feedback_weights": {"ann": float("nan")}},
        {"feedback_trust": -1},
        {"feedback_trust": 0.5},
        {"feedback_trust_window": float("inf")},
    ],
    ids=str,
)
def test_weights_and_trust_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"Policy.{next(iter(wrong))}"):
        Policy(**wrong)


def test_the_longest_name_decides_the_weight() -> None:
    weights = {"key:app/*": 0.5, "key:app/staff-*": 2.0, "key:app/staff-ann": 5.0, "caf\u00e9": 4.0}
    raters = ("key:app/u", "key:app/staff-bo", "key:app/staff-ann", "cafe\u0301", "key:app", None)

    assert [weight_of(rater, weights) for rater in raters] == [0.5, 2.0, 5.0, 4.0, 1.0, 1.0]


people, servings = st.sampled_from("abcdefg"), st.sampled_from("123456789")
weights = st.sampled_from([0.0, 0.25, 1.0, 1.0, 1.0, 2.5])


@given(
    marks=st.lists(st.tuples(people, servings, st.sampled_from(["t1", "t2", "t3", "t4"])), max_size=40),
    alone=st.sampled_from(["principal", "nonce"]), about=st.sampled_from(["answer", "match"]),
    raters=st.integers(2, 4),
)  # fmt: skip
def test_one_rater_never_withdraws_whatever_she_says(
    marks: list[tuple[str, str, str]], alone: str, about: str, raters: int
) -> None:
    complaints = {
        Complaint(
            about, 1, "she" if alone == "principal" else who, "one" if alone == "nonce" else nonce, text
        )
        for who, nonce, text in marks
    }

    assert consequence(complaints, about, "t1", raters, raters)[0] != "withdrawn"


@given(marks=st.lists(st.tuples(people, servings, weights)), more=st.tuples(people, servings, weights))
def test_a_mark_more_never_weighs_less_and_adds_at_most_its_own(
    marks: list[tuple[str, str, float]], more: tuple[str, str, float]
) -> None:
    before = distinct_raters(Praise(1, *mark) for mark in marks)
    after = distinct_raters(Praise(1, *mark) for mark in [*marks, more])

    assert before[0] <= after[0] <= before[0] + 1
    assert before[1] <= after[1] + 1e-9 <= before[1] + more[2] + 2e-9


@given(
    praise=st.lists(st.tuples(people, servings, weights)), raters=st.integers(1, 5), step=st.integers(0, 5)
)
def test_trust_at_most_doubles_what_it_takes(
    praise: list[tuple[str, str, float]], raters: int, step: int
) -> None:
    needed = raised(raters, step, [Praise(1, *one) for one in praise])

    assert raters <= needed <= 2 * raters
    assert needed == raters or step > 0


def rules(raters: int, trust: int, window: float = 3600.0) -> FeedbackRules:
    return FeedbackRules(
        raters=raters, window=window, keep=3600.0, rate=10_000, rate_window=3600.0, trust=trust, trust_window=window
    )  # fmt: skip


def draft() -> Draft:
    return Draft(
        entry_id=ENTRY, scope="s" * 32, prompt="x", response=encode_response(Response("x")), tags=(), all_tags=("all",),
        epoch="e", fence_us=None, ttl=None, keep=None, now=0.0, expires_at=None, confidence=None, kind=None,
        embedding=None, fingerprint="", request="",
    )  # fmt: skip


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    verdicts=st.lists(
        st.tuples(
            st.sampled_from([-1, -1, -1, -1, 0, 1, 1]), st.sampled_from(["answer", "match"]), people, servings,
            st.sampled_from(["t1", "t2", "t3"]) | st.integers(4, 30).map(lambda number: f"t{number}"), weights,
        ),
        max_size=60,
    ),
    raters=st.integers(1, 4), trust=st.integers(0, 3),
)  # fmt: skip
def test_the_script_does_what_the_pure_rules_say(
    redis_url: str, verdicts: list[tuple[int, str, str, str, str, float]], raters: int, trust: int
) -> None:
    script = RedisStore(connect(redis_url, 5.0), f"test-{uuid.uuid4().hex}")
    stores = (MemoryStore(), script)
    told: list[list[Any]] = [[], []]
    for store, said in zip(stores, told, strict=True):
        store.put(draft(), timeout=5.0)
        for verdict, about, who, nonce, text, weight in verdicts:
            mark = Mark(
                entry_id=ENTRY, revision=None, verdict=verdict, about=about, principal=who, nonce=nonce, text=text,
                similarity=0.9, weight=weight, rules=rules(raters, trust),
            )  # fmt: skip
            one = store.feedback(mark, durability="memory", timeout=5.0)
            said.append((one.action, one.raters, round(one.weight, 4), one.needed))
        (entry,) = store.get_many([ENTRY], timeout=5.0)
        assert entry is not None
        said.append((entry.state, entry.blocked, entry.observations))
    script.close()

    assert told[0] == told[1]


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_marks_past_their_window_dont_count_and_leave_the_store(kind: str, redis_url: str) -> None:
    clock, namespace = [1e6], f"test-{uuid.uuid4().hex}"
    client = Redis.from_url(redis_url)
    store: Any = MemoryStore(clock=lambda: clock[0])
    if kind == "redis":
        store = RedisStore(connect(redis_url, 5.0), namespace)

    def say(verdict: int, who: str) -> tuple[str, int, float]:
        mark = Mark(
            entry_id=ENTRY, revision=None, verdict=verdict, about="answer", principal=who, nonce=who, text="t",
            similarity=None, weight=1.0, rules=rules(3, 1),
        )  # fmt: skip
        told = store.feedback(mark, durability="memory", timeout=5.0)
        return told.action, told.raters, told.needed

    def marks() -> dict[bytes, list[bytes]]:
        return {
            key: client.zrange(key, 0, -1)
            for what in ("downs", "ups")
            for key in client.keys(f"semcache:{namespace}:{what}:*")
        }

    def wait(seconds: float) -> None:
        clock[0] += seconds
        for key, members in marks().items():  # the server's clock can't be moved; what it has seen can
            client.pexpire(key, max(1, client.pttl(key) - round(1000 * seconds)))
            for member in members:
                client.zincrby(key, -1e6 * seconds, member)

    store.put(draft(), timeout=5.0)
    said = [say(-1, "ann"), say(1, "dot")]
    wait(3000.0)
    said += [say(-1, "ben"), say(1, "eve")]
    wait(3000.0)
    said += [say(-1, "cat"), say(1, "fay")]
    left = [len(members) for members in marks().values()]
    store.close()
    client.close()

    assert said == [
        ("recorded", 1, 3.0), ("recorded", 1, 4.0),
        ("recorded", 2, 4.0), ("recorded", 2, 5.0),
        ("recorded", 2, 4.0), ("recorded", 2, 5.0),
    ]  # fmt: skip
    assert left == ([2, 2] if kind == "redis" else [])


def test_a_shorter_window_shortens_the_life_of_what_a_longer_one_left(redis_url: str) -> None:
    namespace = f"test-{uuid.uuid4().hex}"
    store = RedisStore(connect(redis_url, 5.0), namespace)
    store.put(draft(), timeout=5.0)
    lives = []
    with Redis.from_url(redis_url) as client:
        for window in (30 * 86400.0, 60.0):
            mark = Mark(
                entry_id=ENTRY, revision=None, verdict=-1, about="answer", principal=f"ann-{window}", nonce=f"n-{window}", text="t",
                similarity=None, weight=1.0, rules=rules(3, 10, window),
            )  # fmt: skip
            store.feedback(mark, durability="memory", timeout=5.0)
            (key,) = client.scan_iter(match=Keys(namespace).prefix + "downs:*")
            lives.append(client.pttl(key) / 1000)
    store.close()

    assert 30 * 86400 < lives[0] <= 32 * 86400
    assert 60 < lives[1] <= 64


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_one_rater_cant_crowd_out_the_others(kind: str, redis_url: str) -> None:
    store: Any = MemoryStore()
    if kind == "redis":
        store = RedisStore(connect(redis_url, 5.0), f"test-{uuid.uuid4().hex}")

    def complain(who: str, about: str, text: str) -> str:
        mark = Mark(
            entry_id=ENTRY, revision=None, verdict=-1, about=about, principal=who, nonce=f"{who}-{text}", text=text,
            similarity=None, weight=1.0, rules=rules(3, 10),
        )  # fmt: skip
        return str(store.feedback(mark, durability="memory", timeout=5.0).action)

    store.put(draft(), timeout=5.0)
    first = [complain(who, "answer", "t") for who in ("ann", "ben")]
    flood = {complain("flood", "match", f"text-{number}") for number in range(1100)}
    last = complain("cat", "answer", "t")
    store.close()

    assert (first, flood, last) == (["recorded", "recorded"], {"blocked"}, "withdrawn")
