"""How many of the same are meant: what is told apart, and what is no difference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache.guards import analyse, compare
from semcache.guards.english import words
from semcache.guards.quantifiers import quantifier

REFUSED = [
    ("Close all the shutters", "Close some of the shutters", "'all' against 'some'"),
    ("Are all mushrooms edible?", "Are some mushrooms edible?", "'all' against 'some'"),
    ("Are all mushrooms edible?", "Are most mushrooms edible?", "'all' against 'most'"),
    ("Do many tenants pay by card?", "Does every tenant pay by card?", "'many' against 'every'"),
    ("Do many people in Malta cycle?", "Does everyone in Malta cycle?", "'many' against 'everyone'"),
    ("Archive each invoice", "Archive half of the invoices", "'each' against 'half'"),
    ("Must I return the whole parcel?", "Must I return part of the parcel?", "'whole' against 'part'"),
    ("Test whether any row is empty", "Test whether every row is empty", "'any' against 'every'"),
    ("Is any seat taken?", "Are all seats taken?", "'any' against 'all'"),
    ("Does anyone here speak Dutch?", "Does everyone here speak Dutch?", "'anyone' against 'everyone'"),
    ("Do some owls migrate?", "Do most owls migrate?", "'some' against 'most'"),
    ("Do both tenants have to sign?", "Does either tenant have to sign?", "'both' against 'either'"),
    ("Pick words with both a tilde and a comma", "Pick words with either a tilde or a comma", "'both' against 'either'"),
    ("Which birds only eat seeds?", "Which birds also eat seeds?", "'only' against 'also'"),
    ("Can only members vote?", "Can all members vote?", "'only' against 'all'"),
    ("Remove the first tab from the line", "Remove all tabs from the line", "'1th' against 'all'"),
    ("Delete the latest backup", "Delete every backup", "'latest' against 'every'"),
    ("Mute three of the channels", "Mute all of the channels", "'3' against 'all'"),
    ("Why do some people hate olives?", "Why do so few people hate olives?", "'some' against 'few'"),
    ("What do all poems have in common?", "What do some poems have in common?", "'all' against 'some'"),
    ("Are the trains always late?", "Are the trains sometimes late?", "'always' against 'sometimes'"),
    ("Can I get a full refund?", "Can I get a partial refund?", "'full' against 'partial'"),
    ("Show at least 7 rows", "Show exactly 7 rows", "at least against exactly"),
    ("Pick up to seven cards", "Pick at least seven cards", "at most against at least"),
]  # fmt: skip

PASSED = [
    # a list is asked for either way
    ("What are some ways to fold a shirt?", "What are all the ways to fold a shirt?"),
    ("Which are some good hostels in Riga?", "Which are all good hostels in Riga?"),
    ("Give me some tips for a loaf", "Give me all tips for a loaf"),
    ("Any tips for a loaf?", "Some tips for a loaf?"),
    ("Where are all the ferries?", "Where are some ferries?"),
    ("Do you know any hostels in Riga?", "Do you know all hostels in Riga?"),
    # the same in other words
    ("Mute every channel", "Mute all channels"),
    ("Mute each channel", "Mute all channels"),
    ("Mute any channel", "Mute all channels"),
    ("May anyone join the choir?", "May everyone join the choir?"),
    ("Name a few rivers", "Name some rivers"),
    ("Are there some hostels in Riga?", "Are there any hostels in Riga?"),
    ("Do many owls migrate?", "Do some owls migrate?"),
    ("Return the entire parcel", "Return the whole parcel"),
    ("Are there shops on both sides of the road?", "Are there shops on either side of the road?"),
    ("Show no more than 7 rows", "Show at most 7 rows"),
    # said with feeling, or no quantifier
    ("Why do most men cheat?", "Why do all men cheat?"),
    ("Why do I cry all the time?", "Why do I cry most of the time?"),
    ("What are the best songs of all time?", "What are some of the best songs?"),
    ("Which is the most useful app?", "What are some useful apps?"),
    ("How many owls are there?", "Count all owls"),
    ("How often does it rain in Bergen?", "Does it always rain in Bergen?"),
    ("Is it too hot?", "Is it only hot?"),
    # more than that differs, which is another guard's business
    ("Close all the shutters", "Open some of the blinds"),
    ("Muss ich alle Fenster putzen?", "Muss ich einige Fenster putzen?"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "why"), REFUSED)
def test_another_number_of_the_same_is_refused_in_both_orders(one: str, other: str, why: str) -> None:
    there, back = (quantifier(compare(analyse(x), analyse(y))) for x, y in ((one, other), (other, one)))

    assert (there.verdict, back.verdict) == ("refuse", "refuse")
    assert there.detail == why
    assert back.detail == " against ".join(reversed(why.split(" against ")))


@pytest.mark.parametrize(("one", "other"), PASSED)
def test_what_asks_for_the_same_is_not_refused(one: str, other: str) -> None:
    assert all(
        quantifier(compare(analyse(x), analyse(y))).verdict != "refuse"
        for x, y in ((one, other), (other, one))
    )


WORDS = st.sampled_from(
    sorted(
        words(
            "all some any every both either most few many half part of the only also at least exactly up to 3 4 owls eat mice do what are whether people everyone"
        )
    )
)
TEXTS = st.lists(WORDS, min_size=1, max_size=9).map(" ".join)


@given(one=TEXTS, other=TEXTS)
def test_the_order_of_the_texts_is_no_matter_and_none_differs_from_itself(one: str, other: str) -> None:
    a, b = analyse(one), analyse(other)

    assert quantifier(compare(a, b)).verdict == quantifier(compare(b, a)).verdict
    assert quantifier(compare(a, a)).verdict != "refuse"
