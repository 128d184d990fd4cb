"""Which rows of a disk tier's file may be served, by what the file has heard."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from semcache.stores.carrying import Heard, Moment, Standing, standing

EPOCHS = ["a", "b", "c"]
times = st.integers(0, 6)
epochs = st.sampled_from(["a", "b", "c", "d"])
moments: st.SearchStrategy[Moment] = st.tuples(st.integers(1, 4), times)
heards = st.builds(
    lambda count, since, ready: Heard(
        {epoch: number for number, epoch in enumerate(EPOCHS[:count], 1)}, 1, "m", since, 6, ready
    ),
    st.integers(1, 3),
    st.tuples(st.integers(0, 3), times),
    st.booleans(),
)


def judged(
    epoch: str, fence: int, present: str, heard: Heard | None, gone: list[Moment] | None = None
) -> Standing:
    return standing(epoch, fence, present=present, heard=heard, gone=gone or [])


HEARD = Heard({"a": 1, "b": 2}, 5, "m", (1, 3), 9, True)


def test_the_rule_in_words() -> None:
    assert judged("b", 1, "b", HEARD) == "served", "of the store's own epoch, which the store judges"
    assert judged("a", 4, "b", HEARD) == "served", "carried over"
    assert judged("a", 3, "b", HEARD) == "dead", "nobody heard what was withdrawn until then"
    assert judged("a", 4, "b", replace(HEARD, ready=False)) == "waiting"
    assert judged("a", 4, "b", HEARD, [(1, 4)]) == "dead", "a tie is dead"
    assert judged("a", 4, "b", HEARD, [(1, 3)]) == "served", "looked up after it was withdrawn"
    assert judged("a", 4, "b", HEARD, [(2, 1)]) == "dead", "withdrawn in a later epoch, whose clock is behind"
    assert judged("a", 4, "c", HEARD) == "waiting", "for the file to notice the store's epoch"
    assert judged("z", 4, "b", HEARD) == "waiting", "of an epoch that the file doesn't know"
    assert judged("a", 4, "a", HEARD) == "waiting", "the store went back to an epoch of before"
    assert judged("a", 4, "a", None) == "served"
    assert judged("a", 4, "b", None) == "waiting"


@given(epochs, times, epochs, heards, st.lists(moments))
def test_what_was_withdrawn_is_never_served(
    epoch: str, fence: int, present: str, heard: Heard, gone: list[Moment]
) -> None:
    number = heard.epochs.get(epoch)
    stands = judged(epoch, fence, present, heard, gone)

    if number is not None and any((number, fence) <= when for when in gone):
        assert stands == "dead"


@given(epochs, times, epochs, heards, st.lists(moments), moments)
def test_one_more_withdrawal_never_brings_anything_back(
    epoch: str, fence: int, present: str, heard: Heard, gone: list[Moment], more: Moment
) -> None:
    before, after = (judged(epoch, fence, present, heard, names) for names in (gone, [*gone, more]))

    assert after in (before, "dead")


@given(epochs, times, epochs, heards, st.lists(moments))
def test_another_epochs_row_is_served_only_if_it_was_carried_and_vouched_for(
    epoch: str, fence: int, present: str, heard: Heard, gone: list[Moment]
) -> None:
    if epoch != present and judged(epoch, fence, present, heard, gone) == "served":
        assert heard.ready
        assert heard.epoch == present
        assert (heard.epochs[epoch], fence) > heard.since


@given(epochs, times, times, epochs, heards, st.lists(moments))
def test_a_later_fence_is_never_worse(
    epoch: str, fence: int, later: int, present: str, heard: Heard, gone: list[Moment]
) -> None:
    early, late = (judged(epoch, when, present, heard, gone) for when in sorted((fence, later)))

    assert early == "dead" or late == early
