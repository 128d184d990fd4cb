"""A cache with two neighbours, of each kind over each store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.facade import Facade


@pytest.fixture
def cache(make: Callable[..., Facade]) -> Facade:
    """One with two neighbours."""
    return make({"apple": [1.0, 0.0, 0.0], "apples": [0.99, 0.141, 0.0]})
