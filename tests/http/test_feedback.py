"""The whole story of feedback over HTTP."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.http.served import POLICY, SECRET, Served, key
from tests.upstream import Upstream

QUESTION = "How do I reset my password?"
PARAPHRASES = (
    "How can I reset my password?",
    "How might I reset my password?",
    "What may I do to reset my password?",
)


def ask(served: Served, text: str, key: str, **more: object) -> dict[str, str]:
    return dict(served.chat(text, key=key, **more).headers)


def judge(served: Served, key: str | None, **body: object) -> dict[str, object]:
    answer = served.call("POST", "/v1/feedback", key=key, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_one_untrusted_key_under_many_names_cannot_withdraw(keyed: Served) -> None:
    ask(keyed, QUESTION, "acme")
    for number in range(8):
        lookup_id = ask(keyed, QUESTION, "acme")["x-semcache-lookup-id"]
        said = judge(keyed, "acme", lookup_id=lookup_id, verdict=-1, rater=f"user-{number}")
        assert (said["action"], said["raters"], said["rater_counted"]) == ("recorded", 1, False)

    assert ask(keyed, QUESTION, "acme")["x-semcache-status"] == "hit"


def test_a_trusted_keys_three_users_withdraw_each_with_her_own_serving(keyed: Served, stub: Upstream) -> None:
    ask(keyed, QUESTION, "acme-app")
    actions = []
    for number in range(3):
        lookup_id = ask(keyed, QUESTION, "acme-app")["x-semcache-lookup-id"]
        actions.append(
            judge(keyed, "acme-app", lookup_id=lookup_id, verdict=-1, rater=f"u-{number}")["action"]
        )

    assert actions == ["recorded", "recorded", "withdrawn"]
    after = ask(keyed, QUESTION, "acme-app")
    assert (after["x-semcache-status"], after["x-semcache-reason"]) == ("miss", "withdrawn")
    gone = keyed.call("GET", "/v1/cache/withdrawn", key="acme-admin").json()["entries"]
    assert [entry["prompt"] for entry in gone] in ([QUESTION], [])  # asked again, so put again


def test_a_trusted_key_with_one_serving_for_many_names_cannot_withdraw(keyed: Served) -> None:
    ask(keyed, QUESTION, "acme-app")
    lookup_id = ask(keyed, QUESTION, "acme-app")["x-semcache-lookup-id"]
    for number in range(5):
        said = judge(keyed, "acme-app", lookup_id=lookup_id, verdict=-1, rater=f"u-{number}")

    assert said["action"] == "recorded"
    assert ask(keyed, QUESTION, "acme-app")["x-semcache-status"] == "hit"


def test_a_raters_own_thumbs_up_takes_her_thumbs_down_back(keyed: Served) -> None:
    ask(keyed, QUESTION, "acme-app")
    for rater, verdict in (("a", -1), ("b", -1), ("a", 1), ("c", -1)):
        lookup_id = ask(keyed, QUESTION, "acme-app")["x-semcache-lookup-id"]
        said = judge(keyed, "acme-app", lookup_id=lookup_id, verdict=verdict, rater=rater)

    assert said["action"] == "recorded"


def test_a_refused_match_is_blocked_for_that_user_and_makes_the_entry_stricter_for_others(
    keyed: Served, stub: Upstream
) -> None:
    ask(keyed, QUESTION, "acme-app")
    served = ask(keyed, PARAPHRASES[0], "acme-app", user="ann")
    assert served["x-semcache-match"] == "semantic"
    said = judge(keyed, "acme-app", lookup_id=served["x-semcache-lookup-id"], verdict=-1, rater="ann")
    assert said["action"] == "blocked"
    no_store = {"cache-control": "no-store"}

    other = ask(keyed, PARAPHRASES[0], "acme-app", user="bob", headers=no_store)
    assert other["x-semcache-reason"] == "below_threshold"  # one complaint makes the entry stricter, no more
    assert ask(keyed, QUESTION, "acme-app", user="ann")["x-semcache-status"] == "hit"
    refused = ask(keyed, PARAPHRASES[0], "acme-app", user="ann", headers=no_store)
    assert (refused["x-semcache-status"], refused["x-semcache-reason"]) == ("miss", "blocked_text")


def test_a_keys_own_refusal_holds_for_the_key(keyed: Served) -> None:
    ask(keyed, QUESTION, "acme")
    served = ask(keyed, PARAPHRASES[0], "acme")
    judge(keyed, "acme", lookup_id=served["x-semcache-lookup-id"], verdict=-1)
    no_store = {"cache-control": "no-store"}

    assert ask(keyed, PARAPHRASES[0], "acme", headers=no_store)["x-semcache-reason"] == "blocked_text"
    assert ask(keyed, PARAPHRASES[0], "acme-app", headers=no_store)["x-semcache-reason"] == "below_threshold"


def test_a_browser_needs_nothing_but_the_lookup_id_and_is_one_voice(keyed: Served) -> None:
    ask(keyed, QUESTION, "acme")
    for _ in range(4):
        lookup_id = ask(keyed, QUESTION, "acme")["x-semcache-lookup-id"]
        said = judge(keyed, None, lookup_id=lookup_id, verdict=-1, rater="whoever")

    assert (said["action"], said["raters"]) == ("recorded", 1)
    by_entry = keyed.call("POST", "/v1/feedback", json={"entry_id": said["entry_id"], "verdict": -1})
    assert by_entry.status_code == 401


def test_a_browser_is_rate_limited(stub: Upstream) -> None:
    keys = (key("acme", "acme"),)
    with Served(stub.url, keys=keys, secret=SECRET, feedback_rate=3) as served:
        lookup_id = ask(served, QUESTION, "acme")["x-semcache-lookup-id"]
        body = {"lookup_id": lookup_id, "verdict": 1}
        statuses = [served.call("POST", "/v1/feedback", json=body).status_code for _ in range(5)]
        last = served.call("POST", "/v1/feedback", json=body)

    assert statuses == [200, 200, 200, 429, 429]
    assert int(last.headers["retry-after"]) >= 1
    assert last.json()["error"]["type"] == "rate_limit_error"


def test_a_keys_verdicts_are_limited_by_the_policy(stub: Upstream) -> None:
    policy = replace(POLICY, feedback_rate=2, feedback_rate_window=1e10)  # no window ends in between
    with Served(stub.url, keys=(key("acme", "acme"),), secret=SECRET, policy=policy) as served:
        statuses = []
        for _ in range(4):
            lookup_id = ask(served, QUESTION, "acme")["x-semcache-lookup-id"]
            body = {"lookup_id": lookup_id, "verdict": 1}
            statuses.append(served.call("POST", "/v1/feedback", key="acme", json=body).status_code)

    assert statuses[:2] == [200, 200]
    assert statuses[-1] == 429


def test_another_origin_may_judge_only_where_it_is_configured(stub: Upstream) -> None:
    origin = {"origin": "https://shop.example"}
    with Served(
        stub.url, keys=(key("acme", "acme"),), secret=SECRET, cors_origins=("https://shop.example",)
    ) as served:
        lookup_id = ask(served, QUESTION, "acme")["x-semcache-lookup-id"]
        body = {"lookup_id": lookup_id, "verdict": 1}
        said = served.call("POST", "/v1/feedback", headers=origin, json=body)
        asked = served.call("OPTIONS", "/v1/feedback", headers=origin)
        other = served.call("POST", "/v1/feedback", headers={"origin": "https://evil.example"}, json=body)
        elsewhere = served.call("OPTIONS", "/v1/cache/invalidate", headers=origin)

    assert said.headers["access-control-allow-origin"] == "https://shop.example"
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-headers"] == "content-type"
    assert "access-control-allow-origin" not in other.headers
    assert "access-control-allow-origin" not in elsewhere.headers


def test_the_same_verdict_sent_twice_is_answered_once(keyed: Served) -> None:
    ask(keyed, QUESTION, "acme-app")
    lookup_id = ask(keyed, QUESTION, "acme-app")["x-semcache-lookup-id"]
    body = {"lookup_id": lookup_id, "verdict": -1, "rater": "a", "idempotency_key": "one"}
    first, second = judge(keyed, "acme-app", **body), judge(keyed, "acme-app", **body)

    assert first == second
    assert len(keyed.call("GET", "/v1/cache/overview", key="operator").json()["verdicts"]) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"verdict": -1},
        {"lookup_id": "x"},
        {"lookup_id": "x", "entry_id": "m/~/" + "0" * 32, "verdict": 1},
        {"lookup_id": "x", "verdict": 2},
        {"lookup_id": "x", "verdict": 1, "unknown": 1},
        {"lookup_id": "x", "verdict": 1, "score": 1},
    ],
)
def test_a_verdict_that_cannot_be_meant_is_a_400(keyed: Served, body: dict[str, object]) -> None:
    answer = keyed.call("POST", "/v1/feedback", key="acme", json=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_score_is_another_name_for_verdict(keyed: Served) -> None:
    ask(keyed, QUESTION, "acme")
    lookup_id = ask(keyed, QUESTION, "acme")["x-semcache-lookup-id"]

    assert judge(keyed, "acme", lookup_id=lookup_id, score=1)["recorded"] is True


def test_a_trusted_keys_named_rater_of_weight_withdraws_alone(stub: Upstream) -> None:
    keys = (key("acme", "acme", "use", "feedback:trusted"), key("acme-web", "acme", "use", "feedback"))
    policy = replace(POLICY, feedback_weights={"key:acme/editor-*": 3.0, "key:acme-web": 0.0})
    with Served(stub.url, keys=keys, secret=SECRET, policy=policy) as served:
        lookups = [ask(served, QUESTION, "acme")["x-semcache-lookup-id"] for _ in range(4)][1:]
        said = [
            judge(served, "acme-web", lookup_id=lookups[0], verdict=-1, rater="editor-1"),
            judge(served, "acme", lookup_id=lookups[1], verdict=-1, rater="ann"),
            judge(served, "acme", lookup_id=lookups[2], verdict=-1, rater="editor-bo"),
        ]

    assert [(one["action"], one["raters"], one["weight"], one["needed"]) for one in said] == [
        ("recorded", 0, 0.0, 3.0),
        ("recorded", 1, 1.0, 3.0),
        ("withdrawn", 2, 4.0, 3.0),
    ]
