"""A store in trouble never reaches the caller: the SDK answers as without a cache, and the cache comes back by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from test_openai_failures import ask, ask_async

from openai_semcache import wrap_openai
from semcache import AsyncSemanticCache, Policy, SemanticCache
from tests.integrations.openai.conftest import encoder
from tests.servers import Server, binaries
from tests.upstream import Upstream

POLICY = Policy(deadline=5.0, local_bound=0.0, breaker_reset=0.05)
OTHER: Any = [{"role": "user", "content": "When do you open?"}]

TROUBLES: dict[str, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    "out of memory": (
        lambda server: server.config_set("maxmemory", "1"),
        lambda server: server.config_set("maxmemory", "0"),
    ),
    "read-only replica": (
        lambda server: server.replicaof("127.0.0.1", "1"),
        lambda server: server.replicaof("no", "one"),
    ),
    "other password": (
        lambda server: (server.config_set("requirepass", "new"), server.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")),
        lambda server: server.config_set("requirepass", ""),
    ),
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(binaries()["valkey-9"], tmp_path / "server", ("--appendonly", "no", "--save", ""))
    server.start()
    yield server
    server.stop()


def eventually_served(request: Callable[[], str], upstream: Upstream) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        before = upstream.count
        request()
        if upstream.count == before:
            return
        time.sleep(0.1)
    pytest.fail("the cache didn't come back")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_sdk_answers_through_a_trouble_of_the_store_and_is_served_after_it(
    trouble: str, stream: bool, server: Server, upstream: Upstream
) -> None:
    begin, end = TROUBLES[trouble]
    url = f"redis://127.0.0.1:{server.port}/0"
    with (
        SemanticCache.open(url, encoder=encoder(), policy=POLICY) as cache,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url, max_retries=0), cache) as client,
    ):
        ask(client, stream=stream)
        begin(server.client())
        answers = [ask(client, stream=stream, messages=OTHER) for _ in range(3)]
        failures = sum(cache.stats().failures.values())
        end(server.client())
        eventually_served(lambda: ask(client, stream=stream, messages=OTHER), upstream)

    assert all(answer.endswith("When do you open?") for answer in answers)
    assert failures > 0, "a failure that isn't counted"


def test_an_application_that_starts_before_its_store_is_served_once_it_is_there(
    tmp_path: Path, upstream: Upstream
) -> None:
    server = Server(binaries()["valkey-9"], tmp_path / "server")
    url = f"redis://127.0.0.1:{server.port}/0"
    with (
        SemanticCache.open(url, encoder=encoder(), policy=POLICY) as cache,
        wrap_openai(OpenAI(api_key="k", base_url=upstream.url, max_retries=0), cache) as client,
    ):
        assert ask(client) != ask(client)
        server.start()
        try:
            eventually_served(lambda: ask(client), upstream)
        finally:
            server.stop()


@pytest.mark.parametrize("password", ["wrong", None])
async def test_a_wrong_password_costs_the_cache_only(
    password: str | None, server: Server, upstream: Upstream
) -> None:
    server.client().config_set("requirepass", "right")
    given = "" if password is None else f":{password}@"
    cache = await AsyncSemanticCache.open(
        f"redis://{given}127.0.0.1:{server.port}/0", encoder=encoder(), policy=POLICY
    )
    async with wrap_openai(AsyncOpenAI(api_key="k", base_url=upstream.url), cache) as client:
        answers = [await ask_async(client) for _ in range(2)]
    failures = (await cache.stats()).failures
    await cache.close()

    assert len(set(answers)) == 2
    assert sum(failures.values()) > 0
