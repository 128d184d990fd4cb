"""Fifty pairs a guard and language, each written on its own, judged with the default encoder's cosines.

They were written when the rules were frozen; what they showed at the first shot is in docs/matching.md. Since then
the rules have learnt from them.
"""

from __future__ import annotations

import pytest

from semcache.reasons import GUARDS
from tests.guards.fresh_pairs import LANGUAGES, fresh_pairs
from tests.guards.judging import served

PAIRS = {language: fresh_pairs(language) for language in LANGUAGES}
CASES = [(lang, heading) for lang in LANGUAGES for heading in PAIRS[lang] if not heading.startswith("kept")]
LEAST_KEPT = [
    ("en", "kept", 22), ("en", "kept, naturally", 34), ("en", "kept, voice", 47), ("en", "kept, voice, second", 48), ("en", "kept, voice, third", 46),
    ("zh", "kept", 32), ("zh", "kept, lightly", 47), ("zh", "kept, lightly, second", 44), ("zh", "kept, lightly, third", 45), ("zh", "kept, freely", 3),
    ("en", "kept, fourth", 36), ("en", "kept, fifth", 36), ("zh", "kept, fourth", 7), ("zh", "kept, fifth", 11),
]  # fmt: skip


@pytest.mark.parametrize(("language", "heading"), CASES, ids=[f"{lang}-{name}" for lang, name in CASES])
def test_at_most_one_changed_question_in_ten_is_served(language: str, heading: str) -> None:
    pairs = PAIRS[language][heading]

    assert heading.split(",")[0] in GUARDS
    assert len(set(pairs)) == 50
    assert all(stored != asked for stored, asked in pairs)
    assert len(served(pairs)) <= 5


@pytest.mark.parametrize(("language", "most"), [("en", 0.03), ("zh", 0.03)])
def test_of_all_changed_questions_next_to_none_is_served(language: str, most: float) -> None:
    changed = [pair for lang, heading in CASES if lang == language for pair in PAIRS[lang][heading]]

    assert len(served(changed)) <= most * len(changed)


@pytest.mark.parametrize(("language", "heading", "least"), LEAST_KEPT)
def test_rewordings_are_served_as_often_as_natural_ones(language: str, heading: str, least: int) -> None:
    assert len(served(PAIRS[language][heading])) >= least
