"""How many of the same are meant: what is told apart, and what is no difference."""

from __future__ import annotations

import time

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
    # other words around it, other words for it
    ("Print every line of the file", "Print every other line of the file", "'every' against 'every'"),
    ("Archive all of my folders", "Archive all but one of my folders", "'all' against 'all'"),
    ("Command to stop all running jobs", "Stop all running jobs but mine", "'all' against 'all'"),
    ("Find guests who saw every film", "List guests who saw at least one film", "'every' against 'one'"),
    ("Wait until all threads have finished", "Return as soon as any thread finishes", "'all' against 'any'"),
    ("Is every fern poisonous?", "Are there any ferns that are poisonous?", "'every' against 'any'"),
    ("Do twins share all of their genes?", "Do twins share any of their genes?", "'all' against 'any'"),
    ("Do all nurses get sick pay?", "Do any nurses get sick pay at all?", "'all' against 'any'"),
    ("Make all the headings bold", "Make only one heading bold", "'all' against 'one'"),
    ("All my lamps flicker", "Just one of my lamps flickers, why?", "'all' against 'one'"),
    ("Describe one phase of the lunar cycle", "Describe the whole lunar cycle", "'one' against 'whole'"),
    ("Which trees have few leaves?", "Which kinds of trees have a lot of leaves?", "'few' against 'lot'"),
    ("What do most Danes drink?", "What do few Danes drink?", "'most' against 'few'"),
    ("Suggest soups with no salt", "Suggest soups with plenty of salt", "'no' against 'plenty'"),
    ("Do both tenants have to sign?", "Can either of the tenants sign alone?", "'both' against 'either'"),
    ("How much does each mug weigh?", "How much do all the mugs weigh?", "'each' against 'all'"),
    ("Do only male crickets sing?", "Do all crickets sing?", "'only' against 'all'"),
    ("Write at most two lines on eels", "Write at least two pages on eels", "at most against at least"),
    ("List all ports in Malta", "List some ports in Malta", "'all' against 'some'"),
    ("Do filters keep only dust?", "Do filters keep all dust?", "'only' against 'all'"),
    ("Show only red mugs", "Show also red mugs", "'only' against 'also'"),
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
    ("List all ideas for a picnic", "List some ideas for a picnic"),
    ("Explain all the benefits of rye", "Explain some benefits of rye"),
    ("Print only lines that match", "Print all lines that match"),
    ("How do I list only the folders in a zip?", "How do I list all folders in a zip?"),
    # the same in other words
    ("Drop all but the last item of a list", "Drop every item of a list except the last"),
    ("Drop every item apart from the last", "Drop all items but the last"),
    ("I closed all tabs but still slow", "I closed all tabs, still slow"),
    ("I tried all the fixes but nothing helped", "I tried all fixes, nothing helped"),
    ("Do all the stretches but gently", "Do all stretches gently"),
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
    ("How many legs does every ant have?", "How many legs does each ant have?"),
    ("Is there a mayor in every town?", "Do all fifty towns have a mayor?"),
    ("I'd like to know if you have any berths to Gol", "All berths to Gol"),
    ("Find all ferries to Gol", "Are there any ferries to Gol?"),
    ("Some ferries carry bikes, but not all", "It is not certain that all ferries carry bikes"),
    ("I have too many tabs, how do I close them all?", "How do I close all my tabs?"),
    ("Why have I lost all hope?", "Why do I have no hope?"),
    ("I have no plan for June, what should I do?", "What can one do about having no plan for June?"),
    ("Which film should everyone see once?", "Which film should nobody die without having seen?"),
    ("What do you get for each click?", "What do you get for one click?"),
    ("I toss three coins, how likely are three heads?", "How likely are all heads if I toss three coins?"),
    ("Why do so few cooks bake?", "Why is it that not many cooks bake?"),
    # said with feeling, or no quantifier
    ("Why were my last few parcels late?", "Why are all my parcels late?"),
    ("How do I make sure none gets near my tent?", "What keeps snakes from one's tent?"),
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


def test_many_quantifiers_in_a_long_text_take_no_long_time() -> None:
    shared, ones, others = (
        " ".join(f"{word}{n}" for n in range(600)) for word in ("owl", "all newt", "some crab")
    )
    c = compare(analyse(f"{shared} {ones}"), analyse(f"{shared} {others}"))

    start = time.process_time()

    assert quantifier(c).verdict == "pass"
    assert time.process_time() - start < 5  # 30 s where each pair is weighed by itself


WORDS = st.sampled_from(
    sorted(
        words(
            "all some any every both either most few many half part no none plenty other but one of the only also at least exactly up to 3 4 owls eat mice do what are whether people everyone"
        )
    )
)
TEXTS = st.lists(WORDS, min_size=1, max_size=9).map(" ".join)


@given(one=TEXTS, other=TEXTS)
def test_the_order_of_the_texts_is_no_matter_and_none_differs_from_itself(one: str, other: str) -> None:
    a, b = analyse(one), analyse(other)

    assert quantifier(compare(a, b)).verdict == quantifier(compare(b, a)).verdict
    assert quantifier(compare(a, a)).verdict != "refuse"
