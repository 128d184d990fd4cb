"""The same said otherwise, by grammar, and near neighbours that ask something else: what each guard says of a pair."""

from __future__ import annotations

import pytest

from semcache.guards import GUARDS, analyse, compare

PASSED = [
    ("antonym", "How do I untrust a device?", "How do I remove trust from a device?"),
    ("antonym", "How do I keep wasps away when I remove their nest?", "How can I get rid of a nest and keep wasps off?"),
    ("antonym", "Why does my dog keep losing its hair?", "What makes a dog lose hair all the time?"),
    # a unit is said once for several numbers, or before them
    ("number", "I would give the inn 4 stars out of 5", "I would give the inn 4 out of 5 stars"),
    ("number", "Which stamps cost 20 and 50 cents?", "Which stamps cost 20 cents and 50 cents?"),
    ("number", "Compare the 8 GB and the 16 GB model.", "Compare the 8 and 16 GB models."),
    ("number", "Can I still pay with Rs 20 and Rs 50 notes?", "Can I still pay with 20 and 50 rupee notes?"),
    ("number", "She moved in 1987, when she was 12.", "She moved in 1987, when she was 12 years old."),
    ("number", "There are three routes. One route follows the ridge.", "One way follows the ridge."),
    ("number", "一百元和五十元的纸币有什么不同", "100和50元的纸币有什么不同"),
    # two reversals, a converse, both ends of one route, a comparison the other way round
    ("antonym", "How do I become invisible?", "How do I become somebody who is not visible?"),
    ("antonym", "Which stove is less expensive?", "Which stove is cheaper?"),
    ("antonym", "What is the least harmful paint?", "What is the most harmless paint?"),
    ("antonym", "What is the least harmful paint?", "Which paint is harmless?"),
    ("antonym", "Apprentices will learn how to weld pipes.", "Apprentices will be taught how to weld pipes."),
    ("antonym", "Members receive a letter each year.", "Members are sent a letter each year."),
    ("antonym", "Is lead heavier than tin?", "Is tin lighter than lead?"),
    ("antonym", "Why is tea cheaper than coffee?", "Why is coffee more expensive than tea?"),
    ("antonym", "The list with all duplicates removed", "The list without any duplicates"),
    ("antonym", "leaving Lyon and going to Nice", "from Lyon arriving in Nice"),
    ("antonym", "What little things make a garden nice?", "What things make a garden much nicer?"),
    ("antonym", "Ask the forum if you have questions.", "Seek answers on the forum if you have questions."),
    ("antonym", "Is copper heavier than tin and why?", "Is copper heavier than tin? Why or why not?"),
    # asked both ways, set aside, or denied by a word
    ("negation", "Why do or don't cats like water?", "Why do cats like water?"),
    ("negation", "Should tips be shared, why or why not?", "Should tips be shared, why?"),
    ("negation", "Should/shouldn't tips be shared?", "Should tips be shared?"),
    ("negation", "no I would like the window seat", "I would like the window seat"),
    ("negation", "Isn't the museum open on Mondays?", "Is the museum open on Mondays?"),
    ("negation", "How do I mute (not leave) a group chat?", "How do I mute a group chat?"),
    ("negation", "The printer doesn't start", "The printer fails to start"),
    ("negation", "Whose umbrella is it? It is not mine.", "Whose umbrella is it? It is someone else's."),
    ("negation", "How is a frog not like a toad?", "How is a frog different from a toad?"),
    ("negation", "bread with no gluten", "gluten-free bread"),
    ("negation", "grapes that have no seeds", "seedless grapes"),
    ("negation", "How do I paint wood that isn't treated?", "How do I paint untreated wood?"),
    ("negation", "Use oil, not butter, for the dough", "Use oil instead of butter for the dough"),
    # prepositions that are no direction, or that belong to another word
    ("direction", "In addition to apples, the farm sells pears.", "Apart from apples, the farm also sells pears."),
    ("direction", "I listen to music from the forties", "I listen to forties music"),
    ("direction", "A soup can be cooked from a cube by adding water.", "A soup is cooked by adding water to a cube."),
    ("direction", "Read the meter from either hall.", "It is possible to either read the meter in the hall or not."),
    ("direction", "How do I learn from failure?", "Is it easy to failure?"),
    # a date within its clause, a list, an apposition, an attribute, a means, a clause at the end
    ("order", "The Lindholm mill was sold to Karl Ek in Sweden in 1932.", "In 1932 the Lindholm mill was sold to Karl Ek in Sweden."),
    ("order", "On 3 May 1871 the tunnel between the two valleys near Thusis was opened by the queen.", "The tunnel between the two valleys near Thusis was opened by the queen on 3 May 1871."),
    ("order", "He played with the Berg band and in 1946 he recorded with the Hale band.", "He played with the Berg band and recorded with the Hale band in 1946."),
    ("order", "Ana Duarte ( Rosa Melo ) meets the mayor of the small town at the old station", "Rosa Melo ( Ana Duarte ) meets the mayor of the small town at the old station"),
    ("order", "The choir has sung in Oslo , Hamar , Gol and Bergen since the spring tour began", "The choir has sung in Bergen , Gol , Hamar and Oslo since the spring tour began"),
    ("order", "He was a member of parliament for Fife and wrote six books about the old harbour", "He was a Fife member of parliament and wrote six books about the old harbour"),
    ("order", "The Filterkorb is used to pour more soup into the Becher without spilling", "The Becher is filled with more soup through the Filterkorb without spilling"),
    ("order", "To frame and hang your picture, you can cut a frame at the workshop and glue the corners.", "You can glue the corners and cut a frame at the workshop in order to frame and hang your picture."),
    ("order", "The clay is shaped by Tom in Ghent", "The clay is shaped in Ghent by Tom"),
]  # fmt: skip
REFUSED = [
    ("antonym", "Turn left at the mill", "Turn right at the mill"),
    ("antonym", "Put the logo to the left of the title", "Put the logo to the right of the title"),
    ("antonym", "Why do women lose iron as they age?", "Why do men lose iron as they age?"),
    ("number", "how long do 3 films take at 50 megabits a second", "how long do 3 films take at 50 megabytes a second"),
    ("antonym", "How do I keep the seeds when I make jam?", "Can I remove the seeds while making jam?"),
    ("antonym", "Preserve the comments when the script is minified", "Strip the comments while minifying the script"),
    ("antonym", "How can I make sure that notes are discarded when I print?", "I'd like to retain notes when printing, how?"),
    ("number", "Mix 2 cups flour and 3 eggs", "Mix 3 cups flour and 2 eggs"),
    ("number", "I ran 5 miles in 40 minutes", "I ran 40 miles in 5 minutes"),
    ("number", "rate 3 films with 5 stars", "rate 5 films with 3 stars"),
    ("number", "give the inn 4 stars out of 5", "give the inn 5 stars out of 4 and 6"),
    ("number", "Which stamps cost 20 and 50 cents?", "Which stamps cost 20 and 60 cents?"),
    ("number", "Pay 20 dollars for 15 euros", "Pay 15 dollars for 20 euros"),
    ("number", "A room for 2 nights and 4 people", "A room for 4 nights and 2 people"),
    ("number", "Name one way to the summit", "Name three ways to the summit"),
    ("number", "20 percent of 50", "50 percent of 20"),
    ("number", "what is 7 % 2 in Python", "what is 7 / 2 in Python"),
    ("number", "5英里40分钟跑完算快吗", "40英里5分钟跑完算快吗"),
    ("antonym", "Which stove is less expensive?", "Which stove is more expensive?"),
    ("antonym", "Is lead heavier than tin?", "Is lead lighter than tin?"),
    ("antonym", "How do I send letters abroad?", "How are letters received abroad?"),
    ("antonym", "the list with all duplicates", "the list without duplicates"),
    ("antonym", "the box with the lid removed", "the box without the lid removed"),
    ("antonym", "trains leaving Lyon for Nice at 6 pm", "trains from Lyon arriving in Nice at 6 pm"),
    ("antonym", "the earliest train leaving Lyon to Nice", "the earliest train from Lyon arriving in Nice"),
    ("antonym", "How can I get a phone that is unlocked?", "How can I get a phone that is locked?"),
    ("antonym", "My ficus gets too much light", "My ficus gets too little light"),
    ("negation", "Why do cats like water?", "Why don't cats like water?"),
    ("negation", "Restart the server", "Don't restart the server"),
    ("negation", "Should I water a cactus in winter?", "Should I not water a cactus in winter?"),
    ("negation", "Where are used laptops repaired in Berlin?", "Where are used laptops (not Macs) repaired in Berlin?"),
    ("negation", "The printer doesn't start", "The printer starts"),
    ("negation", "bread with no gluten", "bread with gluten"),
    ("negation", "My sister is not like me", "My sister is like me"),
    ("negation", "no dogs allowed in the park", "dogs allowed in the park"),
    ("negation", "How is a frog not like a toad?", "How is a frog like a toad?"),
    ("direction", "How do I migrate to Postgres?", "How do I migrate from Postgres?"),
    ("direction", "copy text from the editor", "copy text to the editor"),
    ("direction", "move a clip from the gallery to a folder", "fetch a clip from the Anwil Box to the gallery"),
    ("direction", "open from Monday to Thursday", "open from Thursday to Monday"),
    ("direction", "write a card from the aunt to her niece", "write a card from the niece to the aunt"),
    ("direction", "According to the plan, when do trains to Graz leave?", "According to the plan, when do trains from Graz leave?"),
    ("direction", "read a table from the archive", "write a table to the archive"),
    ("direction", "从车站到机场怎么走", "从机场到车站怎么走"),
    ("order", "In 1932 the Lindholm mill was sold to Karl Ek and in 1940 to Nils Berg.", "In 1940 the Lindholm mill was sold to Karl Ek and in 1932 to Nils Berg."),
    ("order", "The school was founded in Lyon in 1911 and moved to a new site in Nice near the port.", "The school was founded in Lyon and moved to a new site in Nice near the port in 1911."),
    ("order", "In 1932 he worked in Ghent and he lived in Bruges with his three sisters.", "In 1932 he worked in Bruges and he lived in Ghent with his three sisters."),
    ("order", "The film was written by Ana Duarte and directed by Rosa Melo in the summer.", "The film was written by Rosa Melo and directed by Ana Duarte in the summer."),
    ("order", "Ana Duarte ( Rosa Melo ) meets Ida Hale ( Eva Berg ) at the small old station", "Ana Duarte ( Eva Berg ) meets Ida Hale ( Rosa Melo ) at the small old station"),
    ("order", "The match was between champion Ann Hale , Bob and Cleo Berg in the big hall", "The match was between champion Cleo Berg , Bob and Ann Hale in the big hall"),
    ("order", "The strainer lid is used to pour soup into the cups without spilling", "The soup is used to pour the strainer lid into the cups without spilling"),
    ("order", "The mayor of Porto met the bishop of Braga in the garden of the palace", "The bishop of Porto met the mayor of Braga in the garden of the palace"),
    ("order", "The nurse told the doctor that the patient had left the ward before the visit", "The doctor told the nurse that the patient had left the ward before the visit"),
    ("order", "Does rain cause fog?", "Does fog cause rain?"),
    ("order", "A cat that hunts mice at night sleeps near the stove while the old dog eats", "A dog that hunts mice at night sleeps near the stove while the old cat eats"),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "one", "other"), PASSED)
def test_the_same_said_otherwise_passes(guard: str, one: str, other: str) -> None:
    for a, b in ((one, other), (other, one)):
        assert dict(GUARDS)[guard](compare(analyse(a), analyse(b))).verdict != "refuse"


@pytest.mark.parametrize(("guard", "one", "other"), REFUSED)
def test_a_near_neighbour_is_refused(guard: str, one: str, other: str) -> None:
    for a, b in ((one, other), (other, one)):
        assert dict(GUARDS)[guard](compare(analyse(a), analyse(b))).verdict == "refuse"
