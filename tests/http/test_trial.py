"""A proxy in shadow mode: upstream answers every time, and what would have been served is reported."""

from __future__ import annotations

from semcache import Policy
from tests.http.served import Served
from tests.upstream import Upstream


def test_a_proxy_in_shadow_mode_reports_what_it_would_have_served(stub: Upstream) -> None:
    with Served(stub.url, policy=Policy(deadline=5.0, mode="shadow")) as served:
        answers = [served.chat("What is a shadow?") for _ in range(3)]
        process = served.call("GET", "/v1/cache/stats").json()["process"]
        metrics = served.call("GET", "/metrics").text

    assert stub.count == 3
    assert [answer.headers["x-semcache-status"] for answer in answers] == ["miss", "bypass", "bypass"]
    assert answers[1].headers["x-semcache-reason"] == "bypass:shadow"
    assert (process["shadow"]["hits"], process["shadow"]["misses"]) == (2, 1)
    assert process["agreement"] == 0.0  # upstream numbers its answers
    assert round(process["shadow_hit_rate"], 3) == 0.667
    assert 'semcache_shadow{what="hits"} 2.0' in metrics
