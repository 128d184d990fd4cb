"""Two tenants can't see, hit, judge or delete each other's entries: a test for each route."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.http.conftest import KEYS
from tests.http.served import SECRET, Served
from tests.upstream import Upstream

QUESTION = "How do I reset my password?"
PARAPHRASE = "How can I reset my password?"


@dataclass
class Two:
    """A service in which acme has one entry, with tag `t`."""

    served: Served
    entry_id: str
    lookup_id: str

    def call(self, method: str, path: str, key: str, **rest: object) -> httpx.Response:
        return self.served.call(method, path, key=key, **rest)  # type: ignore[arg-type]

    def is_still_served(self) -> bool:
        return self.served.chat(QUESTION, key="acme").headers["x-semcache-status"] == "hit"


@pytest.fixture(params=["memory", "redis"])
def two(request: pytest.FixtureRequest, stub: Upstream, namespace: str) -> Iterator[Two]:
    """Both kinds of store."""
    redis = "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")
    with Served(stub.url, keys=KEYS, secret=SECRET, redis=redis, namespace=namespace) as served:
        headers = served.chat(QUESTION, key="acme", headers={"x-semcache-tags": "t"}).headers
        yield Two(served, headers["x-semcache-entry-id"], headers["x-semcache-lookup-id"])


def test_the_proxy_serves_each_its_own(two: Two) -> None:
    for text in (PARAPHRASE, QUESTION):
        keep = {"cache-control": "no-store"}
        assert two.served.chat(text, key="bolt", headers=keep).headers["x-semcache-status"] == "miss"
        assert two.served.chat(text, key="acme", headers=keep).headers["x-semcache-status"] == "hit"
    assert two.served.chat(PARAPHRASE, key="acme").headers["x-semcache-match"] == "semantic"


def test_a_stream_is_each_ones_own(two: Two) -> None:
    assert two.served.chat(QUESTION, key="bolt", stream=True).headers["x-semcache-status"] == "miss"


def test_embeddings_are_each_ones_own(two: Two, stub: Upstream) -> None:
    body = {"model": "e", "input": ["text"]}
    statuses = [
        two.call("POST", "/v1/embeddings", key, json=body).headers["x-semcache-status"]
        for key in ("acme", "bolt", "acme")
    ]

    assert statuses == ["miss", "miss", "hit"]


def test_a_body_or_header_names_no_tenant(two: Two) -> None:
    more = {"user": "acme", "metadata": {"tenant": "acme"}, "safety_identifier": "acme"}
    headers = {"x-tenant": "acme", "x-forwarded-for": "127.0.0.1"}

    assert (
        two.served.chat(QUESTION, key="bolt", headers=headers, **more).headers["x-semcache-status"] == "miss"
    )


def test_lookup_finds_each_its_own(two: Two) -> None:
    body = {"model": "m", "prompt": PARAPHRASE, "explain": True}

    assert two.call("POST", "/v1/cache/lookup", "acme", json=body).json()["status"] == "hit"
    other = two.call("POST", "/v1/cache/lookup", "bolt", json=body).json()
    assert (other["status"], other["rejected"], other["entry_id"]) == ("miss", [], None)
    named = two.call("POST", "/v1/cache/lookup", "bolt", json=body | {"tenant": "acme"})
    assert named.status_code == 403


def test_put_writes_into_its_own(two: Two) -> None:
    body = {"model": "m", "prompt": QUESTION, "response": "poison"}

    assert two.call("POST", "/v1/cache/entries", "bolt", json=body).status_code == 201
    assert "poison" not in two.served.chat(QUESTION, key="acme").text
    assert two.call("POST", "/v1/cache/entries", "bolt", json=body | {"tenant": "acme"}).status_code == 403


def test_the_list_shows_its_own(two: Two) -> None:
    assert two.call("GET", "/v1/cache/entries", "bolt-admin").json()["entries"] == []
    assert two.call("GET", "/v1/cache/entries?q=password&tag=t", "bolt-admin").json()["entries"] == []
    for key in ("acme-admin", "operator"):
        found = two.call("GET", "/v1/cache/entries?q=PASSWORD&tag=t&model=m", key).json()["entries"]
        assert [entry["entry_id"] for entry in found] == [two.entry_id]


def test_an_entry_of_others_looks_like_an_unknown_one(two: Two) -> None:
    unknown = two.entry_id[:-4] + "0000"
    theirs = two.call("GET", f"/v1/cache/entries/{two.entry_id}", "bolt-admin")
    nobodys = two.call("GET", f"/v1/cache/entries/{unknown}", "bolt-admin")

    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.json() == nobodys.json()
    assert two.call("GET", f"/v1/cache/entries/{two.entry_id}", "acme-admin").json()["tenant"] == "acme"


def test_delete_reaches_its_own(two: Two) -> None:
    assert two.call("DELETE", f"/v1/cache/entries/{two.entry_id}", "bolt-admin").status_code == 404
    assert two.is_still_served()

    done = two.call("DELETE", f"/v1/cache/entries/{two.entry_id}", "acme-admin").json()
    assert done["withdrawn"] is True
    assert not two.is_still_served()


@pytest.mark.parametrize(
    "selector",
    [{"tags": ["t"]}, {"model": "m"}, {"all": True}, {"older_than": 1e-6}],
    ids=lambda s: next(iter(s)),
)
def test_invalidate_reaches_its_own(two: Two, selector: dict[str, object]) -> None:
    counted = two.call(
        "POST", "/v1/cache/invalidate", "bolt-admin", json={**selector, "dry_run": True}
    ).json()
    assert counted["matched"] == 0
    assert two.call("POST", "/v1/cache/invalidate", "bolt-admin", json=selector).status_code == 200
    assert two.is_still_served()
    named = two.call("POST", "/v1/cache/invalidate", "bolt-admin", json={**selector, "tenant": "acme"})
    assert named.status_code == 403

    counted = two.call(
        "POST", "/v1/cache/invalidate", "acme-admin", json={**selector, "dry_run": True}
    ).json()
    assert counted["matched"] == 1
    two.call("POST", "/v1/cache/invalidate", "acme-admin", json=selector)
    assert not two.is_still_served()


def test_invalidate_by_likeness_reaches_its_own(two: Two) -> None:
    body = {"similar_to": {"text": "How do I reset my password?", "threshold": -1}}
    assert two.call("POST", "/v1/cache/invalidate", "bolt-admin", json=body).json()["matched"] == 0
    assert two.is_still_served()

    assert two.call("POST", "/v1/cache/invalidate", "acme-admin", json=body).json()["matched"] == 1
    assert not two.is_still_served()


def test_a_tenants_empty_selector_isnt_everything_of_it(two: Two) -> None:
    for body in ({"older_than": 0}, {"dry_run": False}, {"older_than": 0.0, "segment": {}}):
        assert two.call("POST", "/v1/cache/invalidate", "acme-admin", json=body).status_code == 400

    assert two.is_still_served()


def test_invalidate_by_id_reaches_its_own(two: Two) -> None:
    body = {"ids": [two.entry_id]}
    assert two.call("POST", "/v1/cache/invalidate", "bolt-admin", json=body).json()["matched"] == 0
    assert two.is_still_served()

    assert two.call("POST", "/v1/cache/invalidate", "acme-admin", json=body).json()["matched"] == 1
    assert not two.is_still_served()


def test_explain_shows_its_own(two: Two) -> None:
    body = {"model": "m", "prompt": PARAPHRASE}

    assert two.call("POST", "/v1/cache/explain", "bolt-admin", json=body).json()["candidates"] == []
    named = two.call("POST", "/v1/cache/explain", "bolt-admin", json=body | {"tenant": "acme"})
    assert named.status_code == 403
    seen = two.call("POST", "/v1/cache/explain", "operator", json=body | {"tenant": "acme"}).json()
    assert [c["entry_id"] for c in seen["candidates"]] == [two.entry_id]


def test_withdrawn_and_restore_are_each_ones_own(two: Two) -> None:
    two.call("DELETE", f"/v1/cache/entries/{two.entry_id}", "acme-admin")
    body = {"entry_id": two.entry_id}

    assert two.call("GET", "/v1/cache/withdrawn", "bolt-admin").json()["entries"] == []
    assert two.call("POST", "/v1/cache/restore", "bolt-admin", json=body).status_code == 404
    assert len(two.call("GET", "/v1/cache/withdrawn", "acme-admin").json()["entries"]) == 1
    assert len(two.call("GET", "/v1/cache/withdrawn", "operator").json()["entries"]) == 1
    assert two.call("POST", "/v1/cache/restore", "acme-admin", json=body).json()["restored"] is True
    assert two.is_still_served()


def test_feedback_by_lookup_id_is_each_ones_own(two: Two) -> None:
    body = {"lookup_id": two.lookup_id, "verdict": -1}
    theirs = two.call("POST", "/v1/feedback", "bolt", json=body)
    forged = two.call("POST", "/v1/feedback", "bolt", json={"lookup_id": "x.y", "verdict": -1})

    assert theirs.status_code == forged.status_code == 404
    assert theirs.json() == forged.json()
    assert two.call("POST", "/v1/feedback", "acme", json=body).status_code == 200


def test_feedback_by_entry_id_is_each_ones_own(two: Two) -> None:
    body = {"entry_id": two.entry_id, "verdict": -1}

    assert two.call("POST", "/v1/feedback", "bolt-admin", json=body).status_code == 404
    assert two.call("POST", "/v1/feedback", "acme", json=body).status_code == 403
    assert two.call("POST", "/v1/feedback", "acme-admin", json=body).status_code == 200


@pytest.mark.parametrize("path", ["/v1/cache/stats", "/v1/cache/overview"])
def test_numbers_and_decisions_are_each_ones_own(two: Two, path: str) -> None:
    theirs = two.call("GET", path, "bolt-admin")
    assert "password" not in theirs.text
    assert theirs.json()["total"]["requests"] == 0
    assert "process" not in theirs.json()
    assert two.call("GET", path, "acme-admin").json()["total"]["requests"] == 1


def test_an_entry_id_says_nothing_about_what_others_asked(two: Two) -> None:
    mine = two.served.chat(QUESTION, key="bolt").headers["x-semcache-entry-id"]

    assert mine != two.entry_id


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/cache/entries"),
        ("GET", "/v1/cache/entries/m/~/" + "0" * 32),
        ("DELETE", "/v1/cache/entries/m/~/" + "0" * 32),
        ("POST", "/v1/cache/invalidate"),
        ("POST", "/v1/cache/explain"),
        ("GET", "/v1/cache/withdrawn"),
        ("POST", "/v1/cache/restore"),
        ("GET", "/v1/cache/stats"),
        ("GET", "/v1/cache/overview"),
        ("GET", "/metrics"),
    ],
)
def test_what_operators_do_needs_their_role(keyed: Served, method: str, path: str) -> None:
    body = {"entry_id": "m/~/" + "0" * 32} if path.endswith("restore") else {"all": True}
    body = {"prompt": "x"} if path.endswith("explain") else body
    rest = {"json": body} if method == "POST" else {}

    assert keyed.call(method, path, key="acme", **rest).status_code == 403
    assert keyed.call(method, path, **rest).status_code == 401
    assert keyed.call(method, path, key="nobody", **rest).status_code == 401


def test_using_it_needs_a_key_that_may(keyed: Served, stub: Upstream) -> None:
    assert keyed.chat(QUESTION).status_code == 401
    assert keyed.chat(QUESTION, key="wrong").status_code == 401
    assert keyed.chat(QUESTION, key="judge").status_code == 403
    assert keyed.call("GET", "/v1/models").status_code == 401
    assert stub.count == 0
    assert keyed.call("GET", "/v1/models", headers={"api-key": "sc-acme"}).status_code == 200
