"""What a guard says about one pair of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

from semcache.guards.comparison import Comparison


class Verdict(NamedTuple):
    """A guard's opinion; `detail` says what it found, in words."""

    verdict: Literal["pass", "refuse", "not_applicable"]
    detail: str = ""


PASS: Final = Verdict("pass")
NOT_APPLICABLE: Final = Verdict("not_applicable")

Guard: TypeAlias = Callable[[Comparison], Verdict]


def refuse(detail: str) -> Verdict:
    """Object to serving the pair."""
    return Verdict("refuse", detail)


def show(words: list[str] | tuple[str, ...]) -> str:
    """Write words for a message, at most five of them."""
    return ", ".join(repr(word) for word in words[:5]) + (" …" if len(words) > 5 else "")
