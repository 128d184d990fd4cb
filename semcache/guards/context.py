"""The guard for prompts that share a passage: what is asked beside it must be alike as well. Pure.

The longer a shared passage, the less the rest moves a cosine or a share of words: two unlike questions
about one paragraph look alike as wholes. Where a whole sentence stands in both, the rest is compared alone.
"""

from __future__ import annotations

import re
from typing import Final

from semcache.guards.analysis import analyse
from semcache.guards.comparison import Comparison, compare
from semcache.guards.verdict import NOT_APPLICABLE, PASS, Verdict, refuse

PASSAGE: Final = {
    "en": 60,
    "zh": 20,
    "cjk": 20,
    "other": 60,
}  # characters from which a shared sentence is a passage
LEAST_OVERLAP: Final = 0.5  # of what stands beside it, weighted

_ENDS: Final = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+")
_MARKS: Final = re.compile(r"[\W_]+")


def context(c: Comparison) -> Verdict:
    """Refuse if a long sentence stands in both, and what stands beside it is not alike."""
    if c.a.family != c.b.family:
        return NOT_APPLICABLE
    long = PASSAGE[c.a.family]
    if min(len(c.a.text), len(c.b.text)) <= long:
        return NOT_APPLICABLE
    left, right = _sentences(c.a.text), _sentences(c.b.text)
    shared = left.keys() & right.keys()
    if not any(len(sentence) >= long for sentence in shared):
        return NOT_APPLICABLE
    rest, other = (
        " ".join(text for key, text in side.items() if key not in shared) for side in (left, right)
    )
    if not rest or not other:  # one of them says nothing more, or only the order differs
        return NOT_APPLICABLE
    a, b = analyse(rest), analyse(other)
    if a.normal == b.normal:
        return PASS
    overlap = compare(a, b).overlap
    if overlap < LEAST_OVERLAP:
        return refuse(f"beside a shared passage {rest!r} against {other!r}, which overlap by {overlap:.2f}")
    return PASS


def _sentences(text: str) -> dict[str, str]:
    """Return a text's sentences by their letters and digits alone, in order."""
    found = (part.strip() for part in _ENDS.split(text))
    return {key: part for part in found if part and (key := _MARKS.sub(" ", part.lower()).strip())}
