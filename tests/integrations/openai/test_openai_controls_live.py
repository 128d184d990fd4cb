"""Per-call controls, through the real SDK."""

from __future__ import annotations

import time
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from openai_semcache import Options, wrap_openai
from semcache import SemanticCache
from tests.integrations.openai.conftest import RESET, RESET_TOO
from tests.upstream import Upstream

CHAT: Any = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": RESET}]}
REPHRASED: Any = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": RESET_TOO}]}


def number(client: OpenAI, *, stream: bool = False, **more: Any) -> int:
    """Ask, and return which upstream call gave the answer."""
    request = {**CHAT, **more}
    if stream:
        chunks = client.chat.completions.create(**request, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    else:
        text = client.chat.completions.create(**request).choices[0].message.content
    return int(text.split()[1])


def status(client: OpenAI, **more: Any) -> tuple[str, str | None]:
    headers = client.chat.completions.with_raw_response.create(**{**CHAT, **more}).headers
    return headers["x-semcache-status"], headers.get("x-semcache-reason")


NO_CACHE: list[dict[str, Any]] = [
    {"extra_headers": {"Cache-Control": "no-cache"}},
    {"extra_headers": {"cache-control": "No-Cache"}},
    {"extra_body": {"cache": {"no-cache": True}}},
    {"extra_body": {"cache": {"no_cache": True}}},
]


@pytest.mark.parametrize("control", NO_CACHE)
@pytest.mark.parametrize("stream", [False, True])
def test_no_cache_asks_upstream_and_stores_the_new_answer(
    control: dict[str, Any], stream: bool, client: OpenAI, upstream: Upstream
) -> None:
    assert [number(client), number(client), number(client, stream=stream, **control)] == [1, 1, 2]
    assert [number(client), number(client, stream=True)] == [2, 2]
    assert status(client, **control) == ("refresh", "bypass:no_cache")
    assert all("cache" not in call.body for call in upstream.calls)


@pytest.mark.parametrize("stream", [False, True])
def test_no_store_may_read_and_does_not_store(stream: bool, client: OpenAI) -> None:
    control = {"extra_headers": {"Cache-Control": "no-store"}}

    assert number(client, stream=stream, **control) == 1
    assert number(client) == 2
    assert number(client, stream=stream, **control) == 2


@pytest.mark.parametrize(
    ("control", "reason"),
    [
        ({"extra_headers": {"Cache-Control": "no-cache, no-store"}}, "bypass:no_store"),
        ({"extra_headers": {"x-semcache-mode": "off"}}, "bypass:policy"),
        ({"extra_body": {"cache": {"mode": "off"}}}, "bypass:policy"),
    ],
)
def test_a_full_bypass_neither_reads_nor_stores(control: dict[str, Any], reason: str, client: OpenAI) -> None:
    assert [number(client, **control), number(client), number(client, **control), number(client)] == [
        1,
        2,
        3,
        2,
    ]
    assert status(client, **control) == ("bypass", reason)


def test_only_if_cached_is_a_504_on_a_miss_and_upstream_is_not_asked(
    client: OpenAI, upstream: Upstream
) -> None:
    control: Any = {"extra_headers": {"Cache-Control": "only-if-cached"}}
    retrying = client.with_options(max_retries=2)
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError) as caught:
            number(retrying, stream=stream, **control)
        assert caught.value.status_code == 504
        assert caught.value.code == "only_if_cached"
    with pytest.raises(openai.InternalServerError):
        client.embeddings.create(model="e", input="a", **control)
    with pytest.raises(openai.InternalServerError):
        client.responses.create(model="m", input="a", **control)  # bypasses
    assert upstream.count == 0
    number(client)
    assert [number(client, **control), number(client, stream=True, **control)] == [1, 1]


@pytest.mark.parametrize(
    "control",
    [
        {"extra_headers": {"x-semcache-ttl": "30s"}},
        {"extra_headers": {"x-semcache-threshold": "1.5"}},
        {"extra_headers": {"x-semcache-mode": "fuzzy"}},
        {"extra_headers": {"Cache-Control": "max-age=soon"}},
        {"extra_headers": {"x-semcache-tennant": "acme"}},
        {"extra_body": {"cache": {"ttl": "soon"}}},
        {"extra_body": {"cache": True}},
    ],
)
def test_a_bad_value_is_a_400_that_names_it(
    control: dict[str, Any], client: OpenAI, upstream: Upstream
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        number(client, **control)

    assert caught.value.type == "invalid_request_error"
    assert "semcache" in caught.value.message or "ache" in caught.value.message
    assert upstream.count == 0


def test_a_ttl_of_zero_and_a_max_age_of_zero_are_not_the_default(client: OpenAI) -> None:
    assert number(client, extra_headers={"x-semcache-ttl": "0"}) == 1
    assert number(client, extra_headers={"x-semcache-ttl": "1000"}) == 2
    assert number(client) == 2
    assert number(client, extra_headers={"Cache-Control": "max-age=0"}) == 3
    assert number(client, extra_headers={"Cache-Control": "max-age=1000"}) == 3


def test_seconds_are_seconds(client: OpenAI) -> None:
    took = 1.0
    while took >= 1.0:  # on a machine that stood still, or this is another answer already
        started = time.monotonic()
        first = number(client, extra_headers={"x-semcache-ttl": "1", "cache-control": "no-cache"})
        create = client.chat.completions.with_raw_response.create
        headers = create(**CHAT, extra_headers={"x-semcache-ttl": "1"}).headers
        took = time.monotonic() - started
    assert headers["age"] == "0"
    assert headers["cache-status"] in (
        "semcache; hit; ttl=0; detail=exact",
        "semcache; hit; ttl=1; detail=exact",
    )
    deadline = time.monotonic() + 30
    while number(client) == first and time.monotonic() < deadline:
        time.sleep(0.05)

    assert number(client) == first + 1


@pytest.mark.parametrize(("threshold", "expected"), [("1", 2), ("0.99", 2), ("0.98", 1), ("0", 1), ("-1", 1)])
def test_a_threshold_may_only_tighten(threshold: str, expected: int, client: OpenAI) -> None:
    number(client)
    assert number(client, **REPHRASED, extra_headers={"x-semcache-threshold": threshold}) == expected


def test_exact_mode_has_no_neighbours(client: OpenAI) -> None:
    number(client)
    assert number(client, extra_headers={"x-semcache-mode": "exact"}) == 1
    assert number(client, **REPHRASED, extra_headers={"x-semcache-mode": "exact"}) == 2


def test_a_scope_header_isolates(client: OpenAI) -> None:
    scopes = ["eu", "us", "eu"]
    assert [number(client, extra_headers={"x-semcache-scope": scope}) for scope in scopes] == [1, 2, 1]
    assert number(client) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_tags_can_be_invalidated(stream: bool, client: OpenAI, cache: SemanticCache) -> None:
    number(client, stream=stream, extra_headers={"x-semcache-tags": "season:autumn, shop"})
    cache.invalidate(tags={"season:autumn"})

    assert number(client) == 2


def test_controls_of_untrusted_callers_can_be_turned_off(cache: SemanticCache, upstream: Upstream) -> None:
    client = OpenAI(api_key="k", base_url=upstream.url)
    with wrap_openai(client, cache, options=Options(controls=False)):
        assert number(client) == 1
        assert number(client, extra_headers={"Cache-Control": "no-cache", "x-semcache-mode": "nonsense"}) == 1
        assert number(client, extra_body={"cache": {"no_cache": True}}) == 1


def test_our_headers_do_not_go_upstream(client: OpenAI, upstream: Upstream) -> None:
    number(
        client, extra_headers={"x-semcache-ttl": "60", "x-lane": "b"}, extra_body={"cache": {"tags": ["a"]}}
    )

    assert not any(name.startswith("x-semcache") for name in upstream.last.headers)
    assert upstream.last.headers["x-lane"] == "b"
    assert upstream.last.body == CHAT


async def test_asynchronous_callers_have_the_same_controls(
    async_client: AsyncOpenAI, upstream: Upstream
) -> None:
    async def ask(**more: Any) -> str:
        answer = await async_client.chat.completions.create(**CHAT, **more)
        return answer.choices[0].message.content or ""

    first = await ask()
    assert await ask() == first
    assert await ask(extra_headers={"Cache-Control": "no-cache"}) != first
    with pytest.raises(openai.BadRequestError):
        await ask(extra_headers={"x-semcache-ttl": "soon"})
    with pytest.raises(openai.InternalServerError):
        await ask(extra_headers={"Cache-Control": "only-if-cached, max-age=0"})
    assert upstream.count == 2
