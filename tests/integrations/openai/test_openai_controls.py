"""Per-call controls."""

from __future__ import annotations

from typing import Any

import pytest

from openai_semcache.controls import Controls, parse_controls
from semcache.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({}, None, Controls()),
        ({"cache-control": "no-cache"}, None, Controls(no_cache=True)),
        ({"cache-control": "No-Store, MAX-AGE=0"}, None, Controls(no_store=True, max_age=0)),
        ({"cache-control": "only-if-cached, max-stale=5, private"}, None, Controls(only_if_cached=True)),
        ({"x-semcache-mode": "exact"}, None, Controls(mode="exact")),
        ({"x-semcache-ttl": "0"}, None, Controls(ttl=0)),
        ({"x-semcache-ttl": "1.5"}, None, Controls(ttl=1.5)),
        ({"x-semcache-threshold": "0"}, None, Controls(threshold=0)),
        ({"x-semcache-threshold": "1"}, None, Controls(threshold=1)),
        ({"x-semcache-threshold": "-1.0"}, None, Controls(threshold=-1)),
        ({"x-semcache-scope": " eu "}, None, Controls(scope="eu")),
        ({"x-semcache-tags": "a, b,a"}, None, Controls(tags=("a", "b"))),
        ({}, {"no-cache": True, "s-maxage": 5}, Controls(no_cache=True, max_age=5)),
        (
            {},
            {"ttl": 0, "threshold": 0.0, "max_age": 0, "tags": ["a"]},
            Controls(ttl=0, threshold=0, max_age=0, tags=("a",)),
        ),
        ({}, {"no_store": False, "ttl": None, "only_if_cached": True}, Controls(only_if_cached=True)),
        ({"x-semcache-ttl": "5"}, {"ttl": 9, "mode": "exact"}, Controls(ttl=5, mode="exact")),
    ],
)
def test_controls_are_read(headers: dict[str, str], body: Any, expected: Controls) -> None:
    assert parse_controls(headers, body) == expected


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"cache-control": "max-age=soon"}, None),
        ({"cache-control": "max-age"}, None),
        ({"cache-control": "max-age=-1"}, None),
        ({"x-semcache-mode": "fuzzy"}, None),
        ({"x-semcache-mode": ""}, None),
        ({"x-semcache-ttl": "30s"}, None),
        ({"x-semcache-ttl": "-1"}, None),
        ({"x-semcache-ttl": "nan"}, None),
        ({"x-semcache-ttl": "1_0"}, None),
        ({"x-semcache-ttl": "inf"}, None),
        ({"x-semcache-threshold": "1.01"}, None),
        ({"x-semcache-threshold": "90%"}, None),
        ({"x-semcache-scope": "  "}, None),
        ({"x-semcache-tags": "a,,b"}, None),
        ({"x-semcache-tags": ",".join("abcdefghijklmnopqrstuvwxyz0123456789")}, None),
        ({"x-semcache-tenant": "acme"}, None),
        ({"x-semcache-no-cache": "true"}, None),
        ({}, True),
        ({}, []),
        ({}, {"namespace": "x"}),
        ({}, {"ttl": True}),
        ({}, {"ttl": [1]}),
        ({}, {"no_cache": "yes"}),
        ({}, {"no_cache": 1}),
        ({}, {"mode": 0}),
        ({}, {"tags": "a\nb"}),
        ({}, {"tags": [1]}),
        ({}, {"scope": "x" * 300}),
    ],
)
def test_values_that_cannot_be_meant_are_refused(headers: dict[str, str], body: Any) -> None:
    with pytest.raises(InvalidRequestError):
        parse_controls(headers, body)
