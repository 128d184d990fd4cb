"""The cache's own API, its document, and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from semcache.errors import ConfigurationError
from semcache.server.identity import key_digest
from semcache.server.journal import BUCKETS, TENANTS, Hot, Journal, Seen, wilson
from semcache.server.settings import Settings, load_settings
from tests.http.conftest import KEYS
from tests.http.served import SECRET, Served
from tests.upstream import Upstream

QUESTION = "How do I reset my password?"


def test_what_is_put_over_the_api_is_served_by_the_proxy_with_its_tags(
    served: Served, stub: Upstream
) -> None:
    body = {"model": "m", "prompt": QUESTION, "response": "Open Settings.", "tags": ["help"], "ttl": 60}
    put = served.call("POST", "/v1/cache/entries", json=body)
    again = served.call("POST", "/v1/cache/entries", json=body)
    answer = served.chat(QUESTION)

    assert (put.status_code, put.json()["reason"]) == (201, "stored")
    assert again.json()["reason"] == "replaced"
    assert answer.json()["choices"][0]["message"]["content"] == "Open Settings."
    assert stub.count == 0
    entry = served.call("GET", f"/v1/cache/entries/{put.json()['entry_id']}").json()
    assert entry["tags"] == ["help"]
    assert 0 < entry["ttl_left"] <= 60
    assert served.call("POST", "/v1/cache/entries", json=body | {"ttl": 0}).json() == {
        "stored": False, "reason": "no_store", "entry_id": None, "lookup_id": None,
    }  # fmt: skip


def test_a_lookup_counts_nothing_unless_it_is_recorded(served: Served) -> None:
    served.chat(QUESTION)
    body = {"model": "m", "prompt": "How can I reset my password?"}
    before = served.call("GET", "/v1/cache/stats").json()["process"]["hits"]
    dry = served.call("POST", "/v1/cache/lookup", json=body).json()
    between = served.call("GET", "/v1/cache/stats").json()["process"]["hits"]
    recorded = served.call("POST", "/v1/cache/lookup", json=body | {"record": True}).json()
    after = served.call("GET", "/v1/cache/stats").json()["process"]["hits"]

    assert (dry["status"], dry["match"], dry["lookup_id"]) == ("hit", "semantic", None)
    assert before == between
    assert after["semantic"] == 1
    judged = served.call("POST", "/v1/feedback", json={"lookup_id": recorded["lookup_id"], "verdict": 1})
    assert judged.status_code == 200


def test_a_lookup_says_why_candidates_were_refused(served: Served) -> None:
    served.chat("Where is the office?")
    body = {"model": "m", "prompt": QUESTION, "explain": True}
    found = served.call("POST", "/v1/cache/lookup", json=body).json()

    assert (found["status"], found["rejected"][0]["reason"]) == ("miss", "below_threshold")


def test_explain_says_what_would_turn_each_verdict_round(served: Served) -> None:
    served.chat("Where is the office?")
    body = {"model": "m", "prompt": QUESTION}
    (candidate,) = served.call("POST", "/v1/cache/explain", json=body).json()["candidates"]

    assert candidate["reason"] == "below_threshold"
    assert candidate["flip"].startswith("threshold: needs cosine ≥ 0.")
    assert [found["flip"] for found in candidate["findings"]] == [
        candidate["flip"].removeprefix("threshold: ")
    ]


def test_pages_of_a_listing_hold_every_entry_once_newest_first(served: Served) -> None:
    for number in range(7):
        served.chat(f"question {number}", headers={"x-semcache-mode": "exact"})
    seen: list[str] = []
    path = "/v1/cache/entries?limit=3"
    while True:
        page = served.call("GET", path).json()
        seen += [entry["prompt"] for entry in page["entries"]]
        if page["next"] is None:
            break
        path = f"/v1/cache/entries?limit=3&after={page['next']}"

    assert seen == [f"question {number}" for number in reversed(range(7))]
    assert served.call("GET", "/v1/cache/entries?after=nonsense").status_code == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/cache/lookup", {"model": "m"}),
        ("/v1/cache/lookup", {"prompt": "x", "messages": []}),
        ("/v1/cache/lookup", {"prompt": "x", "threshold": 2}),
        ("/v1/cache/lookup", {"prompt": "x", "treshold": 0.5}),
        ("/v1/cache/entries", {"prompt": "x"}),
        ("/v1/cache/entries", {"prompt": "x", "response": "y", "ttl": -1}),
        ("/v1/cache/invalidate", {}),
        ("/v1/cache/invalidate", {"dry_run": True}),
        ("/v1/cache/invalidate", {"tags": ["a"], "model": "m"}),
        ("/v1/cache/invalidate", {"ids": ["nonsense"]}),
        ("/v1/cache/invalidate", {"ids": ["m/~/" + "0" * 32], "all": True}),
        ("/v1/cache/invalidate", {"model_version": "1"}),
        ("/v1/cache/invalidate", {"older_than": 0}),
        ("/v1/cache/invalidate", {"older_than": 1e300}),
        ("/v1/cache/invalidate", {"all": "yes"}),
        ("/v1/cache/invalidate", {"similar_to": {"text": "x"}}),
        ("/v1/cache/invalidate", {"similar_to": {"text": "x", "threshold": 2}}),
        ("/v1/cache/invalidate", {"similar_to": {"text": "x", "threshold": 0.9}, "all": True}),
        ("/v1/cache/invalidate", {"similar_to": {"text": "x", "threshold": 0.9}, "tags": ["a"]}),
        ("/v1/cache/invalidate", {"all": 1}),
        ("/v1/cache/invalidate", {"all": True, "dry_run": "no"}),
        ("/v1/cache/entries", {"prompt": "x", "response": "y", "ttl": 1e300}),
        ("/v1/cache/entries", {"prompt": "x", "response": "y", "tags": [""]}),
    ],
)
def test_what_cannot_be_meant_is_a_400_that_names_it(served: Served, path: str, body: dict[str, Any]) -> None:
    answer = served.call("POST", path, json=body)

    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_errors_of_routing_have_the_openai_shape(served: Served) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("PUT", "/v1/cache/stats", 405)):
        answer = served.call(method, path, json={})
        assert answer.status_code == status
        assert answer.json()["error"]["message"]


def test_metrics_have_labels_of_closed_lists_only(served: Served) -> None:
    served.chat("a very private question", model="private-model")
    served.chat("a very private question", model="private-model")
    text = served.call("GET", "/metrics").text

    hit = 'semcache_requests_total{endpoint="chat",match="exact",reason="",status="hit"} 1.0'
    assert hit in text
    assert "semcache_tokens_saved_total 13.0" in text
    assert "private" not in text
    for line in (
        "semcache_effective_hit_ratio 0.5", "semcache_fresh_ratio 1.0", 'semcache_hot_per_second{place="1"}',
        'semcache_tier_seconds{quantile="0.95",tier="store"}', "semcache_store_memory_bytes", "semcache_store_cpu_seconds",
        "semcache_mean_seconds",
    ):  # fmt: skip
        assert line in text


def test_money_saved_is_counted_at_the_configured_prices(stub: Upstream) -> None:
    from semcache.server.settings import Price

    with Served(stub.url, prices={"m": Price(input=1.0, output=10.0)}) as served:
        for _ in range(3):
            served.chat(QUESTION)
        total = served.call("GET", "/v1/cache/stats").json()["total"]

    assert total["tokens_saved"] == 2 * 13
    assert total["usd_saved"] == pytest.approx(2 * (9 * 1.0 + 4 * 10.0) / 1e6)


def test_the_openapi_document_is_whole(served: Served) -> None:
    document = served.call("GET", "/openapi.json").json()

    for path in ("/v1/chat/completions", "/v1/embeddings", "/v1/cache/lookup", "/v1/feedback", "/readyz"):
        assert path in document["paths"]
    bodies = [
        operation["requestBody"]["content"]["application/json"]
        for path in document["paths"].values()
        for operation in path.values()
        if "requestBody" in operation
    ]
    assert len(bodies) >= 9
    for body in bodies:
        schema = body["schema"]
        name = schema.get("$ref", "").rpartition("/")[2]
        assert "example" in body or document["components"]["schemas"][name]["examples"]
    assert "422" not in str([list(o["responses"]) for p in document["paths"].values() for o in p.values()])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_schemathesis_finds_no_server_error(stub: Upstream) -> None:
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    with Served(stub.url, keys=KEYS, secret=SECRET) as served:
        schema = schemathesis.openapi.from_url(served.origin + "/openapi.json")
        operations = [result.ok() for result in schema.get_all_operations()]
        for operation in operations:

            @given(case=operation.as_strategy())
            @settings(
                max_examples=12, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck), derandomize=True,
            )  # fmt: skip
            def check(case: Any) -> None:
                answer = case.call(base_url=served.origin, headers={"authorization": "Bearer sc-operator"})
                assert answer.status_code < 500, (case.as_curl_command(), answer.text)

            check()
    assert len(operations) >= 18


def test_the_wilson_interval_is_that_of_the_books() -> None:
    low, high = wilson(1, 10)
    assert (low, high) == (pytest.approx(0.0179, abs=1e-4), pytest.approx(0.4042, abs=1e-4))
    assert wilson(0, 0) == (None, None)


def test_a_journal_is_bounded_whoever_calls() -> None:
    now = [0.0]
    journal = Journal(lambda: now[0], recent=10)
    for number in range(5000):
        now[0] += 300.0
        journal.note(
            Seen(
                at=now[0], tenant=f"t{number}", endpoint="chat", model="m", status="hit", prompt=f"p{number}"
            )
        )

    assert len(journal.seen) == 10
    assert len(journal.series) == TENANTS
    assert max(len(series) for series in journal.series.values()) == BUCKETS
    assert len(journal.hot.items()) <= 512


def test_the_hottest_prompts_survive_a_flood_of_others() -> None:
    hot = Hot(size=50)
    for number in range(2000):
        hot.add("t", "hot" if number % 3 == 0 else f"cold {number}")

    assert max(hot.items(), key=lambda item: item[2])[1] == "hot"


def test_settings_come_from_file_environment_and_options_the_later_wins(tmp_path: Path) -> None:
    file = tmp_path / "semcache.toml"
    file.write_text(
        f'upstream = "http://one"\nport = 1\nnamespace = "file"\nsecret = "{SECRET}"\n'
        '[policy]\nthreshold = 0.9\n[prices."gpt-4o-mini"]\ninput = 0.15\noutput = 0.6\n'
        f'[[keys]]\nname = "web"\ndigest = "{key_digest(SECRET, "k")}"\ntenant = "acme"\nroles = ["use"]\n'
    )
    found = load_settings(file, environment={"SEMCACHE_PORT": "2", "SEMCACHE_NAMESPACE": "env"}, port=3)

    assert (found.upstream, found.port, found.namespace) == ("http://one", 3, "env")
    assert found.base == "http://one/v1"
    assert found.policy.threshold == 0.9
    assert found.prices["gpt-4o-mini"].output == 0.6
    assert found.keys[0].roles == {"use"}
    assert SECRET not in repr(found)
    assert found.keys[0].digest not in repr(found)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"upstream": "ftp://x"},
        {"upstream": "http://user:password@x"},
        {"upstream": "http://x", "prot": 1},
        {"upstream": "http://x", "port": "1"},
        {"upstream": "http://x", "workers": 0},
        {"upstream": "http://x", "keys": [{"name": "a", "digest": "00", "tenant": "t"}]},
        {"upstream": "http://x", "keys": [{"name": "a", "digest": "0" * 64, "tenant": "t"}]},
        {"upstream": "http://x", "tenant_header": "x-tenant"},
        {"upstream": "http://x", "policy": {"threshold": 3}},
        {"upstream": "http://x", "redis": "redis://x", "data_dir": "y"},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        load_settings(environment={}, **values)


def test_a_secret_is_in_no_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        Settings(upstream="http://user:hunter2@x")
    assert "hunter2" not in str(error.value)


def test_invalidate_by_likeness_withdraws_what_is_close_and_nothing_else(served: Served) -> None:
    served.chat(QUESTION)
    served.chat("Where is the office?")
    close = {"similar_to": {"text": "How might I reset my password?", "threshold": 0.95}}
    counted = served.call("POST", "/v1/cache/invalidate", json={**close, "dry_run": True}).json()
    assert (counted["matched"], counted["withdrawn"]) == (1, False)
    assert served.chat(QUESTION).headers["x-semcache-status"] == "hit"

    assert served.call("POST", "/v1/cache/invalidate", json=close).json()["matched"] == 1
    assert served.call("POST", "/v1/cache/invalidate", json=close).json()["matched"] == 0
    assert served.chat("Where is the office?").headers["x-semcache-status"] == "hit"
    assert served.chat(QUESTION).headers["x-semcache-status"] == "miss"


def test_invalidate_by_likeness_finds_what_has_no_embedding_by_its_text(served: Served) -> None:
    served.chat(QUESTION, headers={"x-semcache-mode": "exact"})
    body = {"similar_to": {"text": f" {QUESTION} ", "threshold": 0.9}}
    assert served.call("POST", "/v1/cache/invalidate", json=body).json()["matched"] == 1
