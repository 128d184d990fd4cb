"""Pure: from what is known of a user to the segment that people alike share.

A segment is part of a request's scope: whoever has the same one shares answers. So it should have few values, and
never one that names a person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from semcache.errors import ConfigurationError, InvalidRequestError
from semcache.types import JsonValue

Features: TypeAlias = Mapping[str, JsonValue]
Rule: TypeAlias = str | Callable[[Features], "str | None"]
"""The name of a feature to take over, or what makes a text of all features; None leaves the key out."""

_LONGEST = 200  # characters of a value


def segment_from(features: Features, rules: Mapping[str, Rule]) -> dict[str, str]:
    """Return the segment of a request by rules: key of the segment → rule.

    A feature that is missing or null leaves its key out: whoever lacks it shares answers with others who do.

    Raises:
        ConfigurationError: A rule is neither a name nor callable.
        InvalidRequestError: A value isn't text, a number or a truth value, or is too long to be shared.
    """
    segment = {}
    for key, rule in rules.items():
        if isinstance(rule, str):
            value: JsonValue = features.get(rule)
        elif callable(rule):
            value = rule(features)
        else:
            raise ConfigurationError(
                f"the rule of {key!r} is {type(rule).__name__}, expected a feature's name or a function of features"
            )
        if value is None:
            continue
        if not isinstance(value, str | int | float):
            raise InvalidRequestError(
                f"segment {key!r} is {type(value).__name__}, expected text or a number; make one with a rule"
            )
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if len(text) > _LONGEST:
            raise InvalidRequestError(
                f"segment {key!r} has {len(text)} characters, expected at most {_LONGEST}"
            )
        segment[key] = text
    return segment


def bands(feature: str, edges: Sequence[float]) -> Rule:
    """Return a rule that tells the band of a number: ``<10``, ``10-100``, ``>=100`` for the edges 10 and 100.

    Raises:
        ConfigurationError: The edges don't ascend.
    """
    if not edges or any(a >= b for a, b in pairwise(edges)):
        raise ConfigurationError(
            f"the edges of {feature!r} are {list(edges)!r}, expected numbers that ascend"
        )

    def rule(features: Features) -> str | None:
        value = features.get(feature)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        above = [edge for edge in edges if value >= edge]
        if not above:
            return f"<{edges[0]:g}"
        if len(above) == len(edges):
            return f">={edges[-1]:g}"
        return f"{above[-1]:g}-{edges[len(above)]:g}"

    return rule


def first_of(feature: str, values: Sequence[str], other: str | None = None) -> Rule:
    """Return a rule that tells the first of `values` that a feature is or holds, else `other`."""

    def rule(features: Features) -> str | None:
        found = features.get(feature)
        if found is None:
            return None
        held = [found] if isinstance(found, str) or not isinstance(found, Sequence) else list(found)
        return next((value for value in values if value in held), other)

    return rule
