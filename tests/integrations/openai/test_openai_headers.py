"""The headers of answers."""

from __future__ import annotations

import pytest

from openai_semcache.headers import bypass_info, hit_headers, info_headers, info_json, info_of, merge_headers
from semcache.types import Hit, LookupToken, Miss, Response, Stored


def hit(**changes: object) -> Hit:
    fields = {
        "response": Response("Yes.", data={"id": "chatcmpl-1"}),
        "similarity": 0.97312,
        "match": "semantic",
        "age": 12.9,
        "entry_id": "m/~/0f",
        "prompt": "q",
        "ttl_left": 99.5,
        "token": LookupToken(lambda: "signed"),
        **changes,
    }
    return Hit(**fields)  # type: ignore[arg-type]


def test_a_hit_says_what_was_served() -> None:
    headers = dict(info_headers(info_of(hit())))

    assert headers == {
        "x-semcache-status": "hit",
        "x-semcache-match": "semantic",
        "x-semcache-similarity": "0.9731",
        "x-semcache-entry-id": "m/~/0f",
        "x-semcache-lookup-id": "signed",
        "x-semcache-source-id": "chatcmpl-1",
        "age": "12",
        "cache-status": "semcache; hit; ttl=99; detail=semantic",
    }
    assert (
        dict(info_headers(info_of(hit(similarity=1.0, match="exact", ttl_left=None))))[
            "x-semcache-similarity"
        ]
        == "1"
    )


@pytest.mark.parametrize(
    ("reason", "status", "cache_status"),
    [
        ("no_candidate", "miss", "semcache; fwd=miss; detail=no_candidate"),
        ("guard:number", "miss", "semcache; fwd=miss; detail=guard:number"),
        ("expired", "miss", "semcache; fwd=stale; detail=expired"),
        ("store_unavailable", "error", "semcache; fwd=miss; detail=store_unavailable"),
        ("bypass:no_cache", "refresh", "semcache; fwd=request; detail=bypass:no_cache"),
        ("bypass:temperature", "bypass", "semcache; fwd=bypass; detail=bypass:temperature"),
    ],
)
def test_a_miss_says_why(reason: str, status: str, cache_status: str) -> None:
    headers = dict(info_headers(info_of(Miss(reason))))

    assert headers == {"x-semcache-status": status, "x-semcache-reason": reason, "cache-status": cache_status}


def test_a_miss_names_the_entry_that_was_just_stored() -> None:
    stored = Stored("stored", "m/~/0f", 1, LookupToken(lambda: "signed"))
    info = info_of(Miss("no_candidate"), stored=stored, collapsed=True)
    headers = dict(info_headers(info))

    assert headers["x-semcache-lookup-id"] == "signed"
    assert headers["x-semcache-entry-id"] == "m/~/0f"
    assert headers["x-semcache-stored"] == "stored"
    assert headers["cache-status"] == "semcache; fwd=miss; stored; collapsed; detail=no_candidate"
    assert info_json(info) == {
        "status": "miss",
        "reason": "no_candidate",
        "stored": "stored",
        "entry_id": "m/~/0f",
        "lookup_id": "signed",
    }


def test_a_bypass_names_the_field_that_decided() -> None:
    headers = dict(info_headers(bypass_info("policy", "store")))

    assert headers["x-semcache-status"] == "bypass"
    assert headers["cache-status"] == "semcache; fwd=bypass; detail=bypass:policy/store"


def test_nothing_gets_a_line_end_into_a_header() -> None:
    for name, value in info_headers(bypass_info("policy", 'a"\r\nset-cookie: x\u00e9')):
        assert "\n" not in name + value
        assert "\r" not in value
        value.encode("ascii")


def test_a_hit_has_headers_of_its_own_only() -> None:
    one, two = (dict(hit_headers(info_of(hit()), stream=True)) for _ in range(2))

    assert one["content-type"] == "text/event-stream; charset=utf-8"
    assert one["x-request-id"] != two["x-request-id"]
    assert dict(hit_headers(info_of(hit()), stream=False))["content-type"] == "application/json"


def test_upstream_cannot_speak_for_us() -> None:
    upstream = [
        ("X-Semcache-Status", "hit"),
        ("cache-status", "edge; hit"),
        ("x-request-id", "r"),
        ("Age", "9"),
    ]
    merged = merge_headers(
        upstream, [("x-semcache-status", "miss"), ("cache-status", "semcache; fwd=miss"), ("age", "0")]
    )

    assert merged == [
        ("cache-status", "edge; hit"),
        ("x-request-id", "r"),
        ("x-semcache-status", "miss"),
        ("cache-status", "semcache; fwd=miss"),
        ("age", "0"),
    ]
