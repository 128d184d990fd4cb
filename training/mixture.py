"""What one training run sees: source caps, edits and our own questions, in a fixed order.

`build` is a pure function of the rows, the mixture and the seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from training import edits, forms
from training.data import Row, cap, normalised


@dataclass(frozen=True, slots=True)
class Mixture:
    """How much of what; counts are rows in one epoch.

    Attributes:
        caps: Most rows of a source, (same, not same); a source that isn't named is used whole.
        form_edits: Pairs (text, text in other form), same=1.
        meaning_edits: Pairs (text in another form, text with one change of meaning), same=0.
        partner_edits: Pairs (a, b with one change of meaning) of same=1 rows, same=0.
        form_partners: Pairs (a in another form, b) of same=1 rows, same=1.
        requests: Rows of our own grammar.
        written_times: How often our own questions come; after the first time in other forms.
        written_files: Patterns of the files they are in; without them all of the language.
        mined: Pairs that the base model takes for near, same=0.
    """

    caps: dict[str, tuple[int, int]] = field(default_factory=dict)
    form_edits: int = 12_000
    meaning_edits: int = 12_000
    partner_edits: int = 8_000
    form_partners: int = 3_000
    requests: int = 10_000
    written_times: int = 4
    written_files: tuple[str, ...] = ()
    mined: int = 4_000


def edited_rows(rows: Sequence[Row], mixture: Mixture, rng: random.Random) -> list[Row]:
    """Rows made by edits of the given rows."""
    texts = sorted({(row.a, row.group_a) for row in rows} | {(row.b, row.group_b) for row in rows})
    same = [row for row in rows if row.same == 1]
    made: list[Row] = []

    def fill(count: int, make: object) -> None:
        tries = 0
        before = len(made)
        while len(made) - before < count and tries < 8 * count:
            tries += 1
            row = make()  # type: ignore[operator]
            if row is not None and row.a != row.b:
                made.append(row)

    def other_form(text: str) -> str:
        found = forms.kept(text, rng)
        return found[1] if found is not None and rng.random() < 0.5 else text

    def form_edit() -> Row | None:
        text, group = rng.choice(texts)
        found = forms.kept(text, rng)
        return Row(text, found[1], 1, f"form:{found[0]}", group, group) if found else None

    def meaning_edit() -> Row | None:
        text, group = rng.choice(texts)
        found = edits.changed(text, rng)
        if found is None:
            return None
        return Row(other_form(text), found[1], 0, f"meaning:{found[0]}", group, normalised(found[1]))

    def partner_edit() -> Row | None:
        row = rng.choice(same)
        found = edits.changed(row.b, rng)
        if found is None:
            return None
        return Row(row.a, found[1], 0, f"partner:{found[0]}", row.group_a, normalised(found[1]))

    def form_partner() -> Row | None:
        row = rng.choice(same)
        found = forms.kept(row.a, rng)
        return Row(found[1], row.b, 1, "form-partner", row.group_a, row.group_b) if found else None

    fill(mixture.form_edits, form_edit)
    fill(mixture.meaning_edits, meaning_edit)
    if same:
        fill(mixture.partner_edits, partner_edit)
        fill(mixture.form_partners, form_partner)
    return made


def build(rows: Sequence[Row], own: Sequence[Row], mixture: Mixture, seed: int) -> list[Row]:
    """All rows of one epoch, shuffled.

    Args:
        rows: Rows of the training file that may be trained on.
        own: Rows of our own questions and requests; they are used whole, and edited too.
    """
    rng = random.Random(seed)
    kept_rows = cap(rows, mixture.caps, rng) + list(own)
    made = edited_rows(kept_rows, mixture, rng)
    everything = kept_rows + made
    rng.shuffle(everything)
    return everything


_CAPS = {
    "wikisql": (192, 1_000),
    "ms-chitchat": (500, 800),
    "advising": (1_000, 800),
    "tatoeba-pivot": (3_000, 0),
    "webquestions": (1_289, 4_000),
    "paraqa": (500, 0),
}
_ENGLISH = {
    "requests": 20_000,
    "written_times": 1,
    "mined": 8_000,
    "form_edits": 14_000,
    "meaning_edits": 20_000,
    "partner_edits": 16_000,
    "form_partners": 5_000,
}
PRESETS = {
    "english": Mixture(caps=_CAPS, **_ENGLISH),
    "near": Mixture(  # without the questions whose wordings share few words
        caps=_CAPS,
        written_files=("questions-[1-4].txt", "questions-near-*.txt"),
        requests=9_000,
        written_times=1,
        mined=8_000,
        form_edits=7_000,
        meaning_edits=10_000,
        partner_edits=8_000,
        form_partners=2_500,
    ),
    "share-alike": Mixture(
        caps={**_CAPS, "sgd": (5_000, 3_000), "spider-syn": (3_000, 2_500), "disfl-qa": (800, 3_000)},
        **_ENGLISH,
    ),
    "chinese": Mixture(
        caps={
            "crosswoz": (1_600, 2_200),
            "crosswoz-tmpl": (1_500, 1_500),
            "ms-chitchat": (800, 1_500),
            "tatoeba-sub": (0, 4_000),
            "tatoeba-pivot": (1_140, 0),
            "ha-intents": (288, 235),
        },
        form_edits=0,
        meaning_edits=0,
        partner_edits=0,
        form_partners=0,
        requests=0,
        written_times=1,
        mined=3_000,
    ),
}


def preset(name: str) -> Mixture:
    return PRESETS[name]
