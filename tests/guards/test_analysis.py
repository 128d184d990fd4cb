"""Reading one text: what is dropped around it, and how long that takes."""

from __future__ import annotations

import time

import pytest

from semcache.guards import analyse, normal_form
from semcache.guards.analysis import DAY_PART

LONG = 40_000  # characters; quadratic time would be 8 s and more
ENOUGH = 2.0  # seconds of this thread's


@pytest.mark.parametrize(
    "mark", ["?", "!", ",", ":", "…", "。", "，", "`", "``a", "呢", "? x", "please, ", "谢谢"]
)
def test_a_run_of_marks_is_read_in_linear_time(mark: str) -> None:
    text = (mark * LONG)[:LONG]
    started = time.thread_time()

    analyse(text)

    assert time.thread_time() - started < ENOUGH


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("how does it work ??!?, thanks !! please ..", "how does it work"),
        ("How does it work? Thank you very much.", "how does it work"),
        ("how does it work, many thanks, thanks in advance!", "how does it work"),
        ("how does it help you", "how does it help you"),
        ("Thanks!", "thanks"),
        ("它怎么工作？！ 谢谢您！", "它 怎么 工作"),
        ("它怎么工作，拜托了", "它 怎么 工作"),
        ("它怎么工作啊？？", "它 怎么 工作"),
    ],
)
def test_politeness_at_the_end_is_dropped_behind_any_marks(text: str, bare: str) -> None:
    assert normal_form(text) == bare


def test_a_fence_of_backquotes_is_code_and_one_that_is_never_closed_is_not() -> None:
    assert analyse("run ```rm -r x``` now").words == ("run", "rm -r x", "now")
    assert analyse("run ``rm now").words == ("run", "`", "`", "rm", "now")


@pytest.mark.parametrize("text", ["I am out of milk", "I'm out of milk", "what am I", "am I out of milk"])
def test_who_says_i_am_says_nothing_of_the_morning(text: str) -> None:
    read = analyse(text)

    assert "morning" not in read.keys
    assert DAY_PART not in read.kinds


def test_the_am_is_the_morning() -> None:
    assert "morning" in analyse("which flights leave in the am").keys
