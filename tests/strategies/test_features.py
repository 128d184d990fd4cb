"""Features: written and read by several processes, never older than the bound, and turned into segments."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from semcache import (
    CacheRequest,
    ConfigurationError,
    Hit,
    InvalidRequestError,
    Miss,
    Policy,
    SemanticCache,
    StoreUnavailableError,
)
from semcache.features import AsyncFeatureCache, FeatureCache
from semcache.segments import bands, first_of, segment_from
from semcache.testing import HashEncoder
from tests.facade import Loop
from tests.servers import cluster, eventually


class Face:
    """Either cache, called synchronously; what is loaded and saved is a plain function."""

    def __init__(self, cache: Any, loop: Loop | None) -> None:
        self.cache, self._loop = cache, loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.cache, name)
        if self._loop is None:
            return method  # type: ignore[no-any-return]
        loop = self._loop

        def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
            async def call(*args: Any) -> Any:
                return function(*args)

            return call

        def run(*args: Any, **kwargs: Any) -> Any:
            return loop.run(method(*(awaited(a) if callable(a) else a for a in args), **kwargs))

        return run


@pytest.fixture(params=["sync", "async"])
def make(
    request: pytest.FixtureRequest, loop: Loop, redis_url: str, namespace: str
) -> Iterator[Callable[..., Face]]:
    opened: list[Face] = []

    def open_one(target: str | None = None, **options: Any) -> Face:
        target = target or redis_url
        if request.param == "sync":
            face = Face(FeatureCache.open(target, namespace=namespace, **options), None)
        else:
            face = Face(loop.run(AsyncFeatureCache.open(target, namespace=namespace, **options)), loop)
        opened.append(face)
        return face

    yield open_one
    for face in opened:
        face.close()


def test_what_is_put_is_got(make: Callable[..., Face]) -> None:
    features = make()
    features.put_many(
        "user",
        {"ada": {"tier": "gold", "age": 36, "likes": ["outdoor"], "note": None}, "bob": {"tier": "tin"}},
    )

    assert features.get("user", "ada", ["tier", "age", "likes", "note", "other"]) == {
        "tier": "gold", "age": 36, "likes": ["outdoor"], "note": None,
    }  # fmt: skip
    assert features.get_many("user", ["ada", "bob", "eve"], ["tier"]) == {
        "ada": {"tier": "gold"},
        "bob": {"tier": "tin"},
    }
    assert features.get("user", "ada", ["tier"], version="2") == {}
    assert features.get("item", "ada", ["tier"]) == {}


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_names_that_differ_have_keys_that_differ(a: str, b: str) -> None:
    from semcache.featuring import Featuring

    core = Featuring("n", ttl=None, bound=1.0, entries=1, clock=lambda: 0.0)
    try:
        keys = {core.key(a, b, "f", "1"), core.key(b, a, "f", "1"), core.key(a + b, "x", "f", "1")}
    except UnicodeEncodeError:
        return
    assert len(keys) == 2 + (a != b) - (a + b == a and b == "x")


def test_another_process_drops_its_copy_at_once(make: Callable[..., Face]) -> None:
    one, two = make(local_bound=3600.0), make(local_bound=3600.0)
    one.put("user", "ada", {"tier": "gold"})
    assert eventually(lambda: two.get("user", "ada", ["tier"]) == {"tier": "gold"})
    one.put("user", "ada", {"tier": "tin"})

    assert one.get("user", "ada", ["tier"]) == {"tier": "tin"}
    assert eventually(lambda: two.get("user", "ada", ["tier"]) == {"tier": "tin"}, 5.0)
    two.invalidate("user", ["ada"], ["tier"])
    assert two.get("user", "ada", ["tier"]) == {}
    assert eventually(lambda: one.get("user", "ada", ["tier"]) == {}, 5.0)


def test_a_copy_is_served_inside_its_bound_only(
    make: Callable[..., Face], redis_url: str, namespace: str
) -> None:
    near, far = make(local_bound=3600.0), make(local_bound=0.0)
    near.put("user", "ada", {"tier": "gold"})
    key = f"semcache:{namespace}:feature:user:ada:tier:1"
    with redis.from_url(redis_url) as client:

        def copied() -> bool:
            """Whether what is changed behind its back isn't seen; news of the put may still come and drop the copy."""
            client.set(key, '"gold"')
            near.get("user", "ada", ["tier"])
            client.set(key, '"tin"')
            return bool(near.get("user", "ada", ["tier"]) == {"tier": "gold"})

        assert eventually(copied)
    assert far.get("user", "ada", ["tier"]) == {"tier": "tin"}


def test_what_is_missing_is_loaded_once(make: Callable[..., Face]) -> None:
    features, asked = make(), list[list[str]]()

    def load(ids: list[str]) -> Mapping[str, Any]:
        asked.append(ids)
        return {i: {"tier": "gold", "extra": 1} for i in ids if i != "eve"}

    features.put("user", "bob", {"tier": "tin"})
    for _ in range(2):
        found = features.get_or_load("user", ["ada", "bob", "eve"], ["tier"], load)
        assert found["ada"]["tier"] == "gold"
        assert found["bob"] == {"tier": "tin"}
        assert "eve" not in found
    assert asked == [["ada", "eve"], ["eve"]]


def test_what_was_invalidated_while_it_was_loaded_is_not_stored(make: Callable[..., Face]) -> None:
    features, other = make(local_bound=0.0), make()

    def load(ids: list[str]) -> Mapping[str, Any]:
        thread = threading.Thread(target=lambda: FeatureCacheOf(other).invalidate())
        thread.start()
        thread.join()
        return {"ada": {"tier": "old"}}

    class FeatureCacheOf:
        def __init__(self, face: Face) -> None:
            self._core = face.cache

        def invalidate(self) -> None:
            from semcache.steps import drive

            drive(self._core._core.invalidate("user", ["ada"], ["tier"], "1"), self._core._opened.background)

    assert features.get_or_load("user", ["ada"], ["tier"], load)["ada"]["tier"] == "old"
    assert features.get("user", "ada", ["tier"]) == {}
    assert (
        features.get_or_load("user", ["ada"], ["tier"], lambda ids: {"ada": {"tier": "new"}})["ada"]["tier"]
        == "new"
    )
    assert features.get("user", "ada", ["tier"]) == {"tier": "new"}


def test_a_write_through_saves_first_and_stores_nothing_when_that_fails(make: Callable[..., Face]) -> None:
    features, saved = make(), dict[str, Any]()
    features.write_through("user", "ada", {"tier": "gold"}, saved.__setitem__)
    assert saved == {"ada": {"tier": "gold"}}
    assert features.get("user", "ada", ["tier"]) == {"tier": "gold"}

    def failing(id: str, values: Mapping[str, Any]) -> None:
        raise OSError("the database is away")

    with pytest.raises(OSError, match="away"):
        features.write_through("user", "ada", {"tier": "tin"}, failing)
    assert features.get("user", "ada", ["tier"]) == {}  # nobody knows what the source holds now


def test_reads_fail_open_and_writes_raise(make: Callable[..., Face]) -> None:
    features = make("redis://127.0.0.1:1/0")

    assert features.get("user", "ada", ["tier"]) == {}
    assert features.get_or_load("user", ["ada"], ["tier"], lambda ids: {"ada": {"tier": "gold"}}) == {
        "ada": {"tier": "gold"}
    }
    assert features.cache.failures >= 2
    with pytest.raises(StoreUnavailableError):
        features.put("user", "ada", {"tier": "gold"})
    with pytest.raises(StoreUnavailableError):
        features.invalidate("user", ["ada"], ["tier"])


def test_a_feature_expires(make: Callable[..., Face], redis_url: str, namespace: str) -> None:
    make(ttl=100.0).put_many("user", {"ada": {"a": 1}})
    make(ttl=None).put("user", "ada", {"b": 1})
    make().put("user", "ada", {"c": 1}, ttl=50.0)
    with redis.from_url(redis_url) as client:
        left = [client.pttl(f"semcache:{namespace}:feature:user:ada:{name}:1") for name in "abc"]

    assert 90_000 < left[0] <= 100_000
    assert left[1] == -1
    assert 40_000 < left[2] <= 50_000


def test_what_is_not_ours_is_as_good_as_missing(
    make: Callable[..., Face], redis_url: str, namespace: str
) -> None:
    with redis.from_url(redis_url) as client:
        client.set(f"semcache:{namespace}:feature:user:ada:tier:1", b"\xff{")
    features = make()

    assert features.get("user", "ada", ["tier"]) == {}
    features.put("user", "ada", {"tier": "gold"})
    assert features.get("user", "ada", ["tier"]) == {"tier": "gold"}


def test_what_cannot_be_meant_is_refused(make: Callable[..., Face]) -> None:
    features = make()

    for act, named in (
        (lambda: features.get("", "a", ["f"]), "entity"),
        (lambda: features.get("e", "a", "f"), "features"),
        (lambda: features.put("e", "a", {"f": float("nan")}), "JSON"),
        (lambda: features.put("e", "a", {"f": object()}), "JSON"),
        (lambda: features.put("e", "a", {"f": 1}, ttl=-1.0), "ttl"),
        (lambda: features.put("e", "a", {"f": 1}, ttl=1e300), "ttl"),
        (lambda: make(ttl=1e300), "ttl"),
        (lambda: make("memory://"), "memory"),
        (lambda: make(local_bound=-1.0), "local_bound"),
    ):
        with pytest.raises(ConfigurationError, match=named):
            act()


@pytest.mark.slow
def test_features_live_in_a_cluster(tmp_path: Path, namespace: str) -> None:
    with cluster(tmp_path, masters=3, replicas=0) as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        with FeatureCache.open(url, namespace=namespace) as features:
            features.put_many("user", {f"u{n}": {"tier": n} for n in range(30)})
            found = features.get_many("user", [f"u{n}" for n in range(30)], ["tier"])
            assert found == {f"u{n}": {"tier": n} for n in range(30)}
            features.invalidate("user", ["u1"], ["tier"])
            assert features.get("user", "u1", ["tier"]) == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_copies_of_its_own(redis_url: str, namespace: str) -> None:
    with FeatureCache.open(redis_url, namespace=namespace, local_bound=3600.0) as features:
        features.put("user", "ada", {"tier": "gold"})
        features.get("user", "ada", ["tier"])
        child = os.fork()
        if child == 0:
            ok = features.get("user", "ada", ["tier"]) == {"tier": "gold"}
            features.put("user", "ada", {"tier": "tin"})
            os._exit(0 if ok else 1)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert eventually(lambda: features.get("user", "ada", ["tier"]) == {"tier": "tin"}, 5.0)


RULES = {
    "tier": "tier", "locale": "locale", "vip": "vip",
    "spend": bands("spend", [100, 1000]), "likes": first_of("likes", ["outdoor", "books"], "else"),
}  # fmt: skip


def test_people_alike_have_one_segment() -> None:
    ada = {
        "name": "Ada",
        "tier": "gold",
        "locale": "zh-CN",
        "spend": 250,
        "likes": ["food", "outdoor"],
        "vip": True,
    }
    eve = {"name": "Eve", "tier": "gold", "locale": "zh-CN", "spend": 999.9, "likes": "outdoor", "vip": True}

    assert segment_from(ada, RULES) == segment_from(eve, RULES) == {
        "tier": "gold", "locale": "zh-CN", "vip": "true", "spend": "100-1000", "likes": "outdoor",
    }  # fmt: skip
    assert segment_from({"spend": 5, "likes": ["x"]}, RULES) == {"spend": "<100", "likes": "else"}
    assert segment_from({"spend": 1000}, RULES) == {"spend": ">=1000"}
    assert segment_from({"spend": None, "likes": None, "tier": None}, RULES) == {}


@pytest.mark.parametrize(
    ("rules", "features"),
    [({"a": 5}, {}), ({"a": "b"}, {"b": ["x"]}), ({"a": "b"}, {"b": "x" * 500}), ({"a": lambda f: {}}, {})],
)
def test_a_rule_that_makes_no_segment_is_refused(rules: Any, features: Any) -> None:
    with pytest.raises((ConfigurationError, InvalidRequestError), match="'a'"):
        segment_from(features, rules)


@pytest.mark.parametrize("edges", [[], [1, 1], [2, 1]])
def test_edges_that_do_not_ascend_are_refused(edges: list[float]) -> None:
    with pytest.raises(ConfigurationError, match="ascend"):
        bands("x", edges)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_bands_keep_the_order(a: float, b: float) -> None:
    rule, order = bands("x", [0, 10]), ["<0", "0-10", ">=10"]
    low, high = (rule({"x": value}) for value in sorted((a, b)))  # type: ignore[operator]

    assert order.index(low) <= order.index(high)


def test_an_event_clears_one_users_or_one_segments_answers(redis_url: str, namespace: str) -> None:
    gold, tin = segment_from({"tier": "gold"}, RULES), segment_from({"tier": "tin"}, RULES)
    options: dict[str, Any] = {
        "namespace": namespace,
        "encoder": HashEncoder(8),
        "policy": Policy(deadline=5.0),
    }
    with SemanticCache.open(redis_url, **options) as cache:
        requests = {
            "gold": CacheRequest("offers", segment=gold), "tin": CacheRequest("offers", segment=tin),
            "ada": CacheRequest("Where is my order?", subject="ada"), "bob": CacheRequest("Where is my order?", subject="bob"),
        }  # fmt: skip
        for request in requests.values():
            assert cache.put(request, "x")
        cache.invalidate(segment=gold)
        cache.invalidate(subject="ada")
        found = {name: cache.lookup(request) for name, request in requests.items()}

    assert {name for name, decision in found.items() if isinstance(decision, Hit)} == {"tin", "bob"}
    assert all(isinstance(found[name], Miss) for name in ("gold", "ada"))
