"""Wrong hits from public bug reports, through a whole cache with the default encoder and the defaults.

The numbers are those of the project's list of cases; what concerns one integration is tested with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from semcache import CacheRequest, Hit, Response, SemanticCache
from semcache.encoders import default_encoder
from semcache.stores.memory import MemoryStore
from semcache.testing import HashEncoder

ENCODER = default_encoder()
RESET = "How do I reset my password?"
RESET_TOO = "how can I reset my password"


@pytest.fixture
def cache() -> Iterator[SemanticCache]:
    with SemanticCache(store=MemoryStore(), encoder=ENCODER) as made:
        yield made


def match(cache: SemanticCache, prompt: str, **fields: Any) -> str | None:
    """Return how a lookup matched, None for a miss."""
    found = cache.lookup(CacheRequest(prompt, model="m", **fields))
    return found.match if isinstance(found, Hit) else None


def put(cache: SemanticCache, prompt: str, response: Response | str = "an answer", **fields: Any) -> None:
    cache.put(CacheRequest(prompt, model="m", **fields), response)


@pytest.mark.parametrize(
    ("stored", "exchanged", "same"),
    [
        ("convert 30 miles to kilometres", "convert 30 kilometres to miles", "please convert 30 miles to kilometres"),
        ("move the files from Oslo to Bergen", "move the files from Bergen to Oslo", "Move the files from Oslo to Bergen!"),
        ("does inflation imply growth", "does growth imply inflation", "Does inflation really imply growth?"),
        ("is lead heavier than tin", "is tin heavier than lead", "Hi, is lead heavier than tin?"),
        ("translate this from German to Dutch", "translate this from Dutch to German", "Translate this from German to Dutch, please"),
        ("从上海到北京的高铁票价", "从北京到上海的高铁票价", "请问从上海到北京的高铁票价"),
        ("铅比锡重吗", "锡比铅重吗", "请问铅比锡重吗？"),
    ],
)  # fmt: skip
def test_case_1_exchanged_operands_miss_and_the_same_direction_hits(
    cache: SemanticCache, stored: str, exchanged: str, same: str
) -> None:
    put(cache, stored)

    assert match(cache, exchanged) is None
    assert match(cache, same) == "semantic"


@pytest.mark.parametrize(
    ("stored", "changed"),
    [
        ("what is 17 times 24", "what is 17 times 42"),
        ("dose of paracetamol for a 20 kg child", "dose of paracetamol for a 12 kg child"),
        ("how far is 5 miles", "how far is 5 km"),
        ("install version 2.10.1", "install version 2.1.10"),
        ("what happened on 3 May 1998", "what happened on 5 March 1998"),
        ("track order 48213", "track order 48231"),
        ("draw twelve circles and three squares", "draw three circles and twelve squares"),
        ("is 10 % enough", "is 10 euros enough"),
        ("三个月的利息是多少", "六个月的利息是多少"),
    ],
)
def test_case_3_another_number_unit_or_version_misses(
    cache: SemanticCache, stored: str, changed: str
) -> None:
    put(cache, stored)

    assert match(cache, changed) is None


def test_case_3_the_same_number_in_words_hits(cache: SemanticCache) -> None:
    put(cache, "What is 10 % of 250?")

    assert match(cache, "what is ten percent of 250") == "semantic"


def test_case_5_a_follow_up_of_another_conversation_misses(cache: SemanticCache) -> None:
    about = [
        {"role": "user", "content": "Who directed Alien?"},
        {"role": "assistant", "content": "Ridley Scott."},
    ]
    other = [
        {"role": "user", "content": "Who directed Jaws?"},
        {"role": "assistant", "content": "Steven Spielberg."},
    ]
    put(cache, "how old is he?", context=about, earlier_turns=1)

    assert match(cache, "how old is he?", context=other, earlier_turns=1) is None
    assert match(cache, "how old is he?") is None


def test_case_7_short_prompts_of_different_kinds_do_not_meet(cache: SemanticCache) -> None:
    for prompt in ("hello", "2+2", "weather?", "bye"):
        assert match(cache, prompt) is None
        put(cache, prompt)


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ({"params": {"schema": {"type": "object"}}}, {"params": {"schema": {"type": "array"}}}),  # 11
        ({"tools": [{"name": "search"}]}, {}),
        ({}, {"params": {"temperature": 0}}),  # 13
        ({"params": {"max_tokens": 5}}, {"params": {"max_tokens": 500}}),
        ({"tenant": "acme"}, {"tenant": "bolt"}),  # 17
    ],
    ids=["schema", "tools", "temperature", "length", "tenant"],
)
def test_cases_11_to_17_what_must_match_exactly_isolates_exact_and_semantic_hits(
    cache: SemanticCache, stored: dict[str, Any], asked: dict[str, Any]
) -> None:
    put(cache, RESET, **stored)

    assert match(cache, RESET, **asked) is None
    assert match(cache, RESET_TOO, **asked) is None


def test_case_17_a_long_prompt_of_another_tenant_misses(cache: SemanticCache) -> None:
    prompt = " ".join(f"paragraph {n} of the report says little" for n in range(300))
    put(cache, prompt, tenant="acme")

    assert match(cache, prompt, tenant="bolt") is None
    assert match(cache, prompt, tenant="acme") == "exact"


def test_case_31_a_long_preamble_never_hides_another_request(cache: SemanticCache) -> None:
    preamble = "The following terms apply to every order placed with us. " * 60
    put(cache, preamble + "Approve the refund.")

    assert match(cache, preamble + "Reject the refund.") is None
    assert match(cache, preamble + "Approve the refund!") is None
    assert match(cache, preamble + "Approve the refund.") == "exact"


def test_case_39_embeddings_of_another_encoder_are_never_compared() -> None:
    store = MemoryStore()
    with SemanticCache(store=store, encoder=HashEncoder(512, name="one")) as first:
        put(first, RESET)
    with SemanticCache(store=store, encoder=ENCODER) as second:
        assert match(second, RESET_TOO) is None
        put(second, "How do I close my account?")
        assert match(second, RESET_TOO) is None


def test_case_45_each_keeps_its_own_answer_after_another_is_gone(cache: SemanticCache) -> None:
    prompts = ("How are pearls made?", "How many legs does a lobster have?", "Who wrote Dracula?")
    for prompt in prompts:
        put(cache, prompt, f"answer to {prompt}")
    gone = cache.lookup(CacheRequest(prompts[0], model="m"))
    assert isinstance(gone, Hit)
    cache.invalidate(entry_ids=[gone.entry_id])

    for prompt in prompts[1:]:
        found = cache.lookup(CacheRequest("Please: " + prompt.lower(), model="m"))
        assert isinstance(found, Hit)
        assert found.text == f"answer to {prompt}"


@pytest.mark.parametrize("prompt", ["🙂🙂🙂", "…", "\u200b.", "?!"])
def test_case_51_a_text_without_meaning_matches_nothing_but_itself(cache: SemanticCache, prompt: str) -> None:
    put(cache, prompt)

    assert match(cache, RESET) is None
    assert match(cache, prompt + "🎈") is None
    assert match(cache, prompt) == "exact"


@pytest.mark.parametrize(
    "template",
    [
        "Context: {about}\n\nQuestion: {question}",
        "Question: {question}\nContext: {about}",
        "{about}\n{question}",
    ],
)
def test_case_79_each_question_about_one_long_context_has_its_own_answer(
    cache: SemanticCache, template: str
) -> None:
    about = (
        "Our shop sells shoes, hats and gloves. Orders above 40 euros ship for free. Returns are accepted "
        "within 30 days. Support answers on weekdays. "
    ) * 20
    questions = ("When does support answer?", "How long may I return an order?", "When is shipping free?")
    for question in questions:
        prompt = template.format(about=about, question=question)
        assert match(cache, prompt) is None
        put(cache, prompt, f"answer to {question}")

    for question in questions:
        found = cache.lookup(CacheRequest(template.format(about=about, question=question), model="m"))
        assert isinstance(found, Hit)
        assert found.text == f"answer to {question}"


def test_case_59_an_error_is_never_served(cache: SemanticCache) -> None:
    put(cache, RESET, Response("upstream said 429", error=True))

    assert match(cache, RESET) is None
    assert match(cache, RESET_TOO) is None
