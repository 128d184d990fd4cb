"""The guard for substitutions: one thing for another is refused, the same in other words is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semcache.guards import analyse, compare, lexicon
from semcache.guards import english as en
from semcache.guards.substitutions import substitution

OTHER_THING = [
    # whose it is said in one of them only
    ("group my receipts by shop", "group receipts by the month they were paid in"),
    ("Which oil is good for my hinges?", "Which grease is good for hinges?"),
    # one word in another's place, and nothing else or only small words around it
    ("how do I knit a scarf for a child", "how do I crochet a scarf for a child"),
    ("where can I rent a ladder", "where do you borrow a ladder"),
    ("What is the best tent for winter hiking?", "What are some good stoves for winter hiking?"),
    ("what wine goes with duck", "what wine goes with lamb"),
    ("my dishwasher makes a grinding noise", "my dryer makes a grinding noise"),
    ("what does a red card mean in handball", "what does a yellow card mean in handball"),
    ("is walnut wood good for a cutting board", "is pine wood good for a cutting board"),
    ("how do I buy shares", "how can I sell shares"),
    # beside a word that has a synonym
    ("How do I wash a wool sweater?", "How can I clean a silk sweater?"),
    ("What is the price of a piano lesson?", "What is the cost of a guitar lesson?"),
    # one thing's name for another's of another length
    ("how do i get ink out of a leather bag", "how do you get ink out of the curtains"),
    ("how should I prune a lemon tree", "how do you prune roses"),
    # two words for two others, each in its place
    ("how can I paint my bathroom floor", "how can I tile my bathroom ceiling"),
    # towards and away, what it did and what was done to it
    ("a letter to grandma", "a letter from overseas"),
    ("how did it break", "how was it put together"),
    # another question
    ("where can I renew my library card", "how do I cancel my library card"),
    # opposites
    ("is it healthier to eat less than this", "is it unhealthier to eat more of this"),
]
OTHER_WORDS = [
    ("How do I teach my parrot to whistle?", "How do I teach a parrot to whistle?"),
    # near synonyms, what is more general, derived words
    ("how do I develop a mobile game", "how do I create a mobile game"),
    ("is this mushroom poisonous", "is this mushroom toxic"),
    ("Is the ferry costly?", "Is the ferry expensive?"),
    ("What are the advantages of composting?", "What are the benefits of composting?"),
    ("How can I improve my skating skills?", "How can I improve my skating ability?"),
    ("What is the greatest lake in Finland?", "What is the biggest lake in Finland?"),
    # praise
    ("what's the finest bakery around here", "what's the best bakery around here"),
    ("What are some amazing facts about octopuses?", "What are some fascinating facts about octopuses?"),
    # a verb with the words around it
    ("The tool supports long tables.", "The tool can be utilized for long tables."),
    ("The bill must be paid by Friday.", "The bill has to be settled by Friday."),
    ("how do I get rid of fruit flies", "how do I eliminate fruit flies"),
    ("The script walks through files within a folder.", "The script steps over files inside a folder."),
    # a word that both have, elsewhere
    ("How do I improve my pronunciation of Greek?", "How do I improve my Greek speaking?"),
    ("what are typical flu signs in winter", "what signs does flu show in winter"),
]


@pytest.mark.parametrize(("a", "b"), OTHER_THING, ids=[b for _, b in OTHER_THING])
def test_one_thing_for_another_is_refused(a: str, b: str) -> None:
    x, y = analyse(a), analyse(b)

    assert substitution(compare(x, y)).verdict == substitution(compare(y, x)).verdict == "refuse"


@pytest.mark.parametrize(("a", "b"), OTHER_WORDS, ids=[b for _, b in OTHER_WORDS])
def test_other_words_for_one_thing_are_let_pass(a: str, b: str) -> None:
    x, y = analyse(a), analyse(b)

    assert substitution(compare(x, y)).verdict != "refuse"
    assert substitution(compare(y, x)).verdict != "refuse"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("enhance", "improve", True),  # more general
        ("improved", "enhance", False),  # base forms alone: the guard looks them up
        ("costly", "expensive", True),  # grouped by WordNet
        ("couch", "carpet", False),
        ("car", "truck", False),  # two of one kind
        ("red", "blue", False),
        ("bake", "fry", False),
        ("buy", "sell", False),
    ],
)
def test_related_words(a: str, b: str, expected: bool) -> None:
    assert lexicon.related(a, b) is lexicon.related(b, a) is expected


SENTENCES = st.lists(
    st.sampled_from(
        sorted(
            en.words(
                "how do i can you the a my of to fix paint clean wash boat wool red best nice Oslo 5 not"
            )
        )
    ),
    min_size=1,
    max_size=9,
).map(" ".join)


@given(SENTENCES, SENTENCES)
def test_the_order_of_two_texts_does_not_matter(a: str, b: str) -> None:
    x, y = analyse(a), analyse(b)

    assert substitution(compare(x, y)).verdict == substitution(compare(y, x)).verdict
