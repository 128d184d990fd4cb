"""Which requests may use the cache, by their temperature."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache import CacheRequest, Policy
from semcache.admission import bypass


@pytest.mark.parametrize(
    ("params", "mode", "bound", "reason"),
    [
        ({}, "semantic", 1.0, None),
        ({}, "semantic", 0.9, "bypass:temperature"),
        ({"temperature": None}, "semantic", 0.9, "bypass:temperature"),
        ({"temperature": 0}, "semantic", 0.0, None),
        ({"temperature": 0.0}, "semantic", 0.0, None),
        ({"temperature": 1}, "semantic", 1.0, None),
        ({"temperature": 1.1}, "semantic", 1.0, "bypass:temperature"),
        ({"temperature": 2}, "semantic", None, None),
        ({}, "exact", 0.0, None),  # an embedding, say
        ({"temperature": 1.1}, "exact", 1.0, "bypass:temperature"),
    ],
)
def test_a_temperature_above_the_bound_bypasses_and_a_missing_one_is_the_providers_default(
    params: Any, mode: Any, bound: float | None, reason: str | None
) -> None:
    request = CacheRequest("Who?", params=params, mode=mode)

    assert bypass(request, Policy(max_temperature=bound)) == reason


@given(st.floats(0, 2), st.floats(0, 2), st.floats(0, 2))
def test_a_lower_bound_never_admits_more(temperature: float, one: float, two: float) -> None:
    request = CacheRequest("Who?", params={"temperature": temperature})
    low, high = (Policy(max_temperature=bound) for bound in sorted((one, two)))

    assert bypass(request, low) is not None or bypass(request, high) is None
