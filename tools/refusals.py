"""Prints README's table of what is refused: false friends of the sample that ships, asked of a real cache.

    python tools/refusals.py

A false friend is a question that is near another one and has an answer of its own. Each is looked up where only that
other one is stored; of each reason for a refusal the table shows the closest pair.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from semcache import CacheRequest, Hit, Policy, SemanticCache
from semcache.sample import load_sample


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of one false friend; `reason` is empty where it was served, wrongly."""

    asked: str
    stored: str
    similarity: float
    reason: str


def ask_all() -> Iterator[Asked]:
    """Look every false friend of the sample up."""
    with SemanticCache.open("memory://", policy=Policy(deadline=30.0)) as cache:
        for question in load_sample():
            for friend in question.false_friends:
                scope = {"question": question.question_id, "friend": friend.question}  # of their own
                cache.put(CacheRequest(question.question, segment=scope), question.answer)
                found = cache.lookup(CacheRequest(friend.question, segment=scope))
                similarity = found.similarity if isinstance(found, Hit) else found.best_similarity or 0.0
                reason = "" if isinstance(found, Hit) else found.reason
                yield Asked(friend.question, question.question, similarity, reason)


def table() -> str:
    """Return the table in Markdown, and a line that counts."""
    asked = sorted(ask_all(), key=lambda one: (-one.similarity, one.asked))
    closest: dict[str, Asked] = {}
    for one in asked:
        if one.reason not in ("", "no_candidate"):
            closest.setdefault(one.reason, one)
    rows = ["| asked | stored | cosine | refused by |", "|---|---|---|---|"]
    rows += [
        f"| {one.asked} | {one.stored} | {one.similarity:.2f} | `{reason}` |"
        for reason, one in closest.items()
    ]
    wrong = sum(not one.reason for one in asked)
    return "\n".join(
        [*rows, "", f"{len(asked) - wrong} of {len(asked)} are refused, {wrong} are served wrongly."]
    )


def main() -> int:
    """Print the table."""
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
