"""The same words said of other things, exceptions, sides, and copies of long prompts with one thing changed; and what asks the same."""

from __future__ import annotations

import pytest

from semcache.guards import GUARDS, analyse, compare

LONG = (
    "My grandfather keeps {animals} behind the barn, and since the autumn storms half of them limp on cold mornings although"
    " the vet found nothing. Which bedding would you {verb}, and how often should it be changed?"
)

REFUSED = [
    # whose something is
    ("order", "My uncle's goat ate my roses. Who pays?", "My goat ate my uncle's roses. Who pays?"),
    ("order", "May my tenant open my letters?", "May I open my tenant's letters?"),
    # what is denied
    ("order", "a stew with beans and no onions", "a stew with onions and no beans"),
    ("order", "The pump starts but won't stop.", "The pump stops but won't start."),
    ("order", "My sister wants to sell but I don't.", "I want to sell but my sister doesn't."),
    # who does it to whom
    ("order", "What do owls hunt?", "What hunts owls?"),
    ("order", "Who did Achilles defeat?", "Who defeated Achilles?"),
    ("order", "Which dynasties own the castle?", "Which castle do dynasties own?"),
    ("direction", "Write a complaint to the ferry line about a delay.", "Write a reply from the ferry line to a complaint about a delay."),
    ("order", "Which insects visit orchids?", "Which orchids do insects visit?"),
    # what comes first
    ("order", "How long after varnishing can I sand the table?", "How long after sanding can I varnish the table?"),
    ("antonym", "Write an essay for a ban on fireworks.", "Write an essay against a ban on fireworks."),
    ("antonym", "How do I mute all channels?", "How do I mute one channel?"),
    ("antonym", "Who decides if both owners disagree?", "Who decides if one owner disagrees?"),
    ("negation", "Delete all drafts except the newest.", "Delete the newest drafts."),
    # related to both ends of a scale; ages, deals, companies
    ("substitution", "How do I increase the brightness of my lamp?", "How do I change the brightness of my lamp?"),
    ("substitution", "Which shoes does a toddler need?", "Which shoes does a child need?"),
    ("substitution", "May I lend my flat to a colleague?", "May I give my flat to a colleague?"),
    # lists, and another deed with the same thing
    ("substitution", "What is the difference between a lawyer and a plumber?", "What is the difference between a plumber and a carpenter?"),
    ("substitution", "Add oats to my order.", "Strike oats off my order."),
    # copies
    ("substitution", LONG.format(animals="four goats", verb="choose"), LONG.format(animals="four donkeys", verb="choose")),
    ("code", "Solve 5x + 2 = 12", "Solve 5x - 2 = 12"),
]  # fmt: skip

PASSED = [
    ("order", "May my tenant open my letters?", "Is my tenant allowed to open my letters?"),
    ("order", "Do owls hunt mice?", "Are mice hunted by owls?"),
    ("order", "What does entropy mean?", "What is meant by entropy?"),
    ("order", "a stew with beans and no onions", "a stew with no onions and with beans"),
    ("order", "How long after varnishing should I sand?", "I want to sand. How long after varnishing?"),
    ("order", "Stretch before or after running?", "Is it better to stretch after running or before?"),
    ("antonym", "Is there a cream for wasp stings?", "Is there a cream against wasp stings?"),
    ("negation", "Delete all drafts except the newest.", "Delete all drafts excluding the newest."),
    ("substitution", "What are the advantages of wool socks?", "What are the benefits of wool socks?"),
    ("substitution", LONG.format(animals="four goats", verb="choose"), LONG.format(animals="four goats", verb="select")),
    ("code", "Plan B - 3 steps", "Plan B: 3 steps"),
]  # fmt: skip


def said(guard: str, x: str, y: str) -> str:
    return dict(GUARDS)[guard](compare(analyse(x), analyse(y))).verdict


@pytest.mark.parametrize(("guard", "one", "other"), REFUSED)
def test_what_is_said_of_something_else_is_refused_in_both_orders(guard: str, one: str, other: str) -> None:
    assert (said(guard, one, other), said(guard, other, one)) == ("refuse", "refuse")


@pytest.mark.parametrize(("guard", "one", "other"), PASSED)
def test_what_asks_the_same_is_not_refused(guard: str, one: str, other: str) -> None:
    assert "refuse" not in (said(guard, one, other), said(guard, other, one))
