"""LangChain's models over the cache: what a user sees, sync and async, single and in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration
from lc_shared import AGE, COLOUR, HEAP, HOURS, RESET, RESET_AGAIN, Chat, CountingLLM, is_hit, note, overwrite
from pydantic import BaseModel

from langchain_semcache import SemcacheCache
from semcache import AsyncSemanticCache, Policy, Response, SemanticCache
from semcache.codec import encode_response
from semcache.testing import TableEncoder
from tests.upstream import Behaviour, Upstream


@pytest.fixture
def ours(cache: SemanticCache) -> SemcacheCache:
    return SemcacheCache(cache)


def test_the_second_identical_question_is_not_sent(
    ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=ours)
    first, second = model.invoke(RESET), model.invoke(RESET)

    assert upstream.count == 1
    assert type(second) is AIMessage
    assert second.content == first.content
    assert second.response_metadata["finish_reason"] == "stop"
    assert isinstance(first, AIMessage)
    assert first.usage_metadata is not None
    assert second.usage_metadata is not None
    assert second.usage_metadata["total_tokens"] == first.usage_metadata["total_tokens"] == 13
    assert note(second).keys() == {"lookup_id", "similarity", "match", "entry_id", "age"}
    assert (note(second)["match"], note(second)["similarity"]) == ("exact", 1.0)
    assert note(second)["age"] >= 0.0


async def test_the_same_awaited(acache: AsyncSemanticCache, chat: Chat, upstream: Upstream) -> None:
    model = chat(cache=SemcacheCache(async_cache=acache))
    first, second = await model.ainvoke(RESET), await model.ainvoke(RESET)

    assert upstream.count == 1
    assert second.content == first.content
    assert not is_hit(first)
    assert is_hit(second)


async def test_blocking_and_awaiting_callers_share_entries(
    cache: SemanticCache, acache: AsyncSemanticCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=SemcacheCache(cache, async_cache=acache))
    first = model.invoke(RESET)
    second = await model.ainvoke(RESET)

    assert upstream.count == 1
    assert second.content == first.content


def test_a_paraphrase_is_served_and_says_so(ours: SemcacheCache, chat: Chat, upstream: Upstream) -> None:
    model = chat(cache=ours)
    first, second = model.invoke(RESET), model.invoke(RESET_AGAIN)

    assert upstream.count == 1
    assert second.content == first.content
    assert note(second)["match"] == "semantic"
    assert note(second)["similarity"] == pytest.approx(0.99, abs=0.005)


def test_another_question_is_not_served(ours: SemcacheCache, chat: Chat, upstream: Upstream) -> None:
    model = chat(cache=ours)
    answers = [model.invoke(question) for question in (RESET, HOURS, COLOUR)]

    assert upstream.count == 3
    assert len({answer.content for answer in answers}) == 3
    assert {note(answer)["reason"] for answer in answers} <= {"no_candidate", "below_threshold"}


def test_every_hit_is_a_fresh_copy_with_a_fresh_id(ours: SemcacheCache, chat: Chat) -> None:
    model = chat(cache=ours)
    model.invoke(RESET)
    one = model.invoke(RESET)
    one.response_metadata["finish_reason"] = "spoilt"
    one.content = "spoilt"
    two = model.invoke(RESET)

    assert one.id != two.id
    assert two.content != "spoilt"
    assert two.response_metadata["finish_reason"] == "stop"


def test_a_new_answer_can_be_named_in_feedback_too(ours: SemcacheCache, chat: Chat) -> None:
    answer = chat(cache=ours).invoke(RESET)

    assert note(answer)["stored"] == "stored"
    assert note(answer)["match"] is None
    assert note(answer)["lookup_id"]


def test_the_global_cache_serves_every_model(ours: SemcacheCache, chat: Chat, upstream: Upstream) -> None:
    set_llm_cache(ours)
    try:
        chat().invoke(RESET)
        assert is_hit(chat().invoke(RESET))
        assert "semcache" not in chat(cache=False).invoke(RESET).response_metadata
    finally:
        set_llm_cache(None)
    assert upstream.count == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "gpt-4o"},
        {"model": "name-q6:latest"},
        {"model": "openai/gpt-4o"},
        {"temperature": 0.0},
        {"max_tokens": 5},
        {"seed": 7},
        {"stop": ["\n"]},
        {"default_headers": {"X-Route": "eu"}},
    ],
    ids=str,
)
def test_two_configurations_share_nothing_and_each_hits_its_own(
    ours: SemcacheCache, chat: Chat, upstream: Upstream, settings: dict[str, Any]
) -> None:
    plain, other = chat(cache=ours), chat(cache=ours, **settings)
    answers = [plain.invoke(RESET), other.invoke(RESET)]

    assert upstream.count == 2
    assert [plain.invoke(RESET).content, other.invoke(RESET).content] == [
        answer.content for answer in answers
    ]
    assert upstream.count == 2


@pytest.mark.parametrize(("settings", "calls"), [({}, 2), ({"temperature": 0.0}, 1)], ids=str)
def test_a_missing_temperature_counts_as_the_providers_default(
    redis_url: str, namespace: str, chat: Chat, upstream: Upstream, settings: dict[str, Any], calls: int
) -> None:
    policy = Policy(threshold=0.9, deadline=5.0, max_temperature=0.5)
    with SemanticCache.open(
        redis_url, namespace=namespace, policy=policy, encoder=TableEncoder(HEAP)
    ) as cache:
        for _ in range(2):
            chat(cache=SemcacheCache(cache), **settings).invoke(RESET)

    assert upstream.count == calls


def test_a_system_prompt_isolates(ours: SemcacheCache, chat: Chat, upstream: Upstream) -> None:
    model = chat(cache=ours)
    model.invoke([SystemMessage("Answer in French."), HumanMessage(RESET)])

    assert not is_hit(model.invoke([SystemMessage("Answer in German."), HumanMessage(RESET)]))
    assert is_hit(model.invoke([SystemMessage("Answer in French."), HumanMessage(RESET_AGAIN)]))
    assert upstream.count == 2


def test_a_later_turn_says_that_it_matches_exactly_only(ours: SemcacheCache, chat: Chat) -> None:
    model = chat(cache=ours)
    turns = [HumanMessage("Hello"), AIMessage("Hello!"), HumanMessage(RESET)]
    first, second = model.invoke(turns), model.invoke(turns)

    assert (note(first)["reason"], note(first)["stored"]) == ("exact_only:turns", "stored")
    assert note(second)["match"] == "exact"


def test_a_follow_up_is_only_served_in_the_same_conversation(
    ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=ours)

    def ask(subject: str, run: int) -> AIMessage:
        history = [
            HumanMessage(f"Who is {subject}?", id=f"h{run}", additional_kwargs={"at": run}),
            AIMessage(f"{subject} is famous.", id=f"run-{run}", response_metadata={"created": run}),
            HumanMessage(AGE, id=f"q{run}"),
        ]
        return model.invoke(history)

    ada, eve = ask("Ada", 1), ask("Eve", 2)

    assert ada.content != eve.content
    assert upstream.count == 2
    assert ask("Ada", 3).content == ada.content
    assert upstream.count == 2


def test_an_answer_from_the_cache_makes_the_same_history_as_a_new_one(
    ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=ours)
    new, served = model.invoke(RESET), model.invoke(RESET)
    first = model.invoke([HumanMessage(RESET), new, HumanMessage(AGE)])
    second = model.invoke([HumanMessage(RESET), served, HumanMessage(AGE)])

    assert upstream.count == 2
    assert second.content == first.content


def test_a_turn_after_a_tool_result_matches_exactly_only(
    ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=ours)

    def ask(question: str, call_id: str) -> AIMessage:
        call = {"name": "age", "args": {}, "id": call_id, "type": "tool_call"}
        return model.invoke(
            [
                HumanMessage(question),
                AIMessage("", tool_calls=[call]),
                ToolMessage("36", tool_call_id=call_id),
            ]  # type: ignore[list-item]
        )

    ask(RESET, "a")
    assert is_hit(ask(RESET, "b"))
    assert not is_hit(ask(RESET_AGAIN, "c"))
    assert upstream.count == 2


def test_a_batch_sends_what_is_not_stored_and_keeps_its_order(
    ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=ours)
    questions: list[Any] = [RESET, HOURS, COLOUR]
    one_by_one = {"max_concurrency": 1}

    model.batch(questions[:1], config=one_by_one)
    assert upstream.count == 1
    some = model.batch(questions, config=one_by_one)
    assert upstream.count == 3
    every = model.batch(questions, config=one_by_one)
    assert upstream.count == 3
    twice = model.batch([AGE, AGE], config=one_by_one)
    assert upstream.count == 4
    assert [answer.content for answer in every] == [answer.content for answer in some]
    assert all(question in str(answer.content) for question, answer in zip(questions, every, strict=True))
    assert twice[0].content == twice[1].content


async def test_an_awaited_batch_sends_nothing_that_is_stored(
    acache: AsyncSemanticCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=SemcacheCache(async_cache=acache))
    first = await model.abatch([RESET, HOURS])
    second = await model.abatch([HOURS, RESET])

    assert upstream.count == 2
    assert [answer.content for answer in second] == [answer.content for answer in reversed(first)]


def test_a_plain_llm_is_called_for_the_missing_prompts_only(ours: SemcacheCache) -> None:
    model = CountingLLM(cache=ours)

    assert model.generate([RESET, HOURS, RESET]).generations[0][0].text == f"1: {RESET}"
    assert model.calls == [[RESET, HOURS, RESET]]
    result = model.generate([COLOUR, RESET, HOURS])
    assert model.calls[1:] == [[COLOUR]]
    assert [generations[0].text for generations in result.generations] == [
        f"2: {COLOUR}", f"1: {RESET}", f"1: {HOURS}",
    ]  # fmt: skip
    model.generate([HOURS, COLOUR])
    assert len(model.calls) == 2


async def test_a_plain_llm_awaited(acache: AsyncSemanticCache) -> None:
    model = CountingLLM(cache=SemcacheCache(async_cache=acache))
    first, second = await model.ainvoke(RESET), await model.ainvoke(RESET_AGAIN)

    assert first == second == f"1: {RESET}"


def test_two_plain_llms_share_nothing(ours: SemcacheCache) -> None:
    one, two = CountingLLM(cache=ours, model="a"), CountingLLM(cache=ours, model="b")
    one.invoke(RESET)
    two.invoke(RESET)

    assert len(two.calls) == 1


def test_the_answer_of_an_llm_is_named_by_the_cache(ours: SemcacheCache, cache: SemanticCache) -> None:
    model = CountingLLM(cache=ours)
    model.invoke(RESET)
    stored = ours.last_lookup_id
    model.invoke(RESET)

    assert stored is not None
    assert ours.last_lookup_id not in (None, stored)
    assert cache.feedback(str(ours.last_lookup_id), -1, rater="a").action == "recorded"


def test_a_model_that_hides_its_name_matches_exactly_only_and_says_so_once(
    ours: SemcacheCache, caplog: pytest.LogCaptureFixture
) -> None:
    model = FakeListChatModel(responses=["one", "two", "three"], cache=ours)

    assert [model.invoke(q).content for q in (RESET, RESET, RESET_AGAIN)] == ["one", "one", "two"]
    assert [record.levelname for record in caplog.records if "model name" in record.message] == ["WARNING"]
    assert "one" not in caplog.text


def test_a_name_given_by_the_application_makes_paraphrases_hit(cache: SemanticCache) -> None:
    model = FakeListChatModel(
        responses=["one", "two"], cache=SemcacheCache(cache, model="fake", model_version="1")
    )

    assert [model.invoke(q).content for q in (RESET, RESET_AGAIN)] == ["one", "one"]
    assert note(model.invoke(RESET))["entry_id"].startswith("fake/1/")


def test_several_choices_are_one_unit(ours: SemcacheCache, chat: Chat, upstream: Upstream) -> None:
    model = chat(cache=ours, n=2, temperature=1.0)
    first = model.generate([[HumanMessage(RESET)]])
    second = model.generate([[HumanMessage(RESET)]])

    assert upstream.count == 1
    assert [g.text for g in second.generations[0]] == [g.text for g in first.generations[0]]
    assert len(second.generations[0]) == 2
    ids = {g.message.id for g in second.generations[0] if isinstance(g, ChatGeneration)}
    assert len(ids) == 2


def test_a_stream_is_not_served_from_a_models_cache(
    ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=ours)
    model.invoke(RESET)
    pieces = [chunk.content for chunk in model.stream(RESET)]

    assert upstream.count == 2
    assert len(pieces) > 1


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        (Behaviour(finish="length"), "truncated"),
        (Behaviour(finish="content_filter"), "filtered"),
        (Behaviour(refusal="I can't help with that."), "refusal"),
        (Behaviour(tool_calls=(("f", "{}"),)), "tool_calls"),
        (Behaviour(text=""), "empty_disallowed"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_may_not_be_stored_is_returned_and_not_stored(
    ours: SemcacheCache, chat: Chat, upstream: Upstream, how: Behaviour, outcome: str
) -> None:
    model = chat(cache=ours)
    upstream.next(how)
    first = model.invoke(RESET)
    second = model.invoke(RESET)

    assert note(first)["stored"] == outcome
    assert not is_hit(second)
    assert upstream.count == 2


def test_an_error_is_raised_and_not_stored(ours: SemcacheCache, chat: Chat, upstream: Upstream) -> None:
    import openai

    model = chat(cache=ours)
    for status in (429, 500, 400):
        upstream.next(Behaviour(status=status))
        with pytest.raises(openai.APIStatusError):
            model.invoke(RESET)

    assert not is_hit(model.invoke(RESET))
    assert upstream.count == 4


class Out(BaseModel):
    """An answer in parts."""

    answer: str


def structured(model: Any, method: str) -> Any:
    return model.with_structured_output(Out, method=method, include_raw=True)


def test_structured_output_as_json_mode(ours: SemcacheCache, chat: Chat, upstream: Upstream) -> None:
    upstream.always(Behaviour(text='{"answer": "yes"}'))
    model = structured(chat(cache=ours), "json_mode")
    found = [model.invoke(RESET) for _ in range(2)]

    assert [f["parsed"] for f in found] == [Out(answer="yes")] * 2
    assert is_hit(found[1]["raw"])
    assert upstream.count == 1


def test_structured_output_as_json_schema_by_class_is_not_cached_unless_registered(
    cache: SemanticCache,
    ours: SemcacheCache,
    chat: Chat,
    upstream: Upstream,
    caplog: pytest.LogCaptureFixture,
) -> None:
    upstream.always(Behaviour(text='{"answer": "yes"}'))
    unknown = structured(chat(cache=ours), "json_schema")
    known = structured(chat(cache=SemcacheCache(cache, schemas=[Out])), "json_schema")

    assert [unknown.invoke(RESET)["parsed"] for _ in range(2)] == [Out(answer="yes")] * 2
    assert upstream.count == 2
    assert "schemas=" in caplog.text
    found = [known.invoke(question) for question in (RESET, RESET, RESET_AGAIN)]
    assert [f["parsed"] for f in found] == [Out(answer="yes")] * 3
    assert [is_hit(f["raw"]) for f in found] == [False, True, True]
    assert upstream.count == 3


def test_structured_output_as_json_schema_by_dict_is_cached(
    ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text='{"answer": "yes"}'))
    model = chat(cache=ours).with_structured_output(Out.model_json_schema(), method="json_schema")

    assert [model.invoke(RESET) for _ in range(2)] == [{"answer": "yes"}] * 2
    assert upstream.count == 1


def test_an_answer_that_does_not_fit_its_schema_is_given_and_not_stored(
    ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    upstream.next(Behaviour(text='{"answer": 1}'), Behaviour(text='{"answer": "yes"}'))
    schema = Out.model_json_schema()
    model = chat(cache=ours).with_structured_output(schema, method="json_schema", include_raw=True)
    found = [model.invoke(RESET) for _ in range(3)]

    assert [f["raw"].text for f in found] == ['{"answer": 1}', '{"answer": "yes"}', '{"answer": "yes"}']
    assert [note(f["raw"]).get("stored") for f in found] == ["schema_mismatch", "stored", None]
    assert upstream.count == 2


def test_a_stored_answer_that_does_not_fit_is_withdrawn_and_asked_anew(
    redis_url: str, namespace: str, ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    upstream.always(Behaviour(text='{"answer": "yes"}'))
    model = chat(cache=ours).with_structured_output(Out.model_json_schema(), method="json_schema")
    model.invoke(RESET)
    overwrite(redis_url, namespace, encode_response(Response("from elsewhere")))

    assert model.invoke(RESET) == {"answer": "yes"}
    assert upstream.count == 2


def test_structured_output_by_function_calling_is_stored_if_the_policy_says_so(
    redis_url: str, namespace: str, encoder: Any, ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    upstream.always(Behaviour(tool_calls=(("Out", '{"answer": "yes"}'),)))
    plain = structured(chat(cache=ours), "function_calling")
    assert [plain.invoke(RESET)["parsed"] for _ in range(2)] == [Out(answer="yes")] * 2
    assert upstream.count == 2
    policy = Policy(threshold=0.9, deadline=5.0, store_tool_calls=True)
    with SemanticCache.open(redis_url, namespace=namespace, policy=policy, encoder=encoder) as storing:
        model = structured(chat(cache=SemcacheCache(storing)), "function_calling")
        found = [model.invoke(RESET) for _ in range(3)]

        assert [f["parsed"] for f in found] == [Out(answer="yes")] * 3
        assert [is_hit(f["raw"]) for f in found] == [False, True, True]
        assert found[1]["raw"].tool_calls[0]["id"] != found[2]["raw"].tool_calls[0]["id"]
        assert not is_hit(model.invoke(RESET_AGAIN)["raw"])


def test_two_schemas_share_nothing(ours: SemcacheCache, chat: Chat, upstream: Upstream) -> None:
    upstream.always(Behaviour(text='{"answer": "yes"}'))
    other = {"title": "Other", "type": "object", "properties": {"answer": {"type": "integer"}}}
    for schema in (Out.model_json_schema(), other):
        chat(cache=ours).with_structured_output(schema, method="json_schema").invoke(RESET)

    assert upstream.count == 2


TENANT: ContextVar[str] = ContextVar("tenant")


@pytest.fixture
def as_tenant() -> Iterator[Any]:
    yield TENANT.set
    TENANT.set("")


def test_two_tenants_share_nothing(
    cache: SemanticCache, chat: Chat, upstream: Upstream, as_tenant: Any
) -> None:
    model = chat(cache=SemcacheCache(cache, tenant=TENANT))
    as_tenant("acme")
    model.invoke(RESET)
    as_tenant("globex")

    assert not is_hit(model.invoke(RESET))
    assert not is_hit(chat(cache=SemcacheCache(cache, tenant=lambda: "initech")).invoke(RESET_AGAIN))
    as_tenant("acme")
    assert is_hit(model.invoke(RESET_AGAIN))
    assert upstream.count == 3


async def test_concurrent_tasks_of_two_tenants_get_their_own_answers(
    acache: AsyncSemanticCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=SemcacheCache(async_cache=acache, tenant=TENANT))

    async def ask(tenant: str) -> str:
        TENANT.set(tenant)
        return str((await model.ainvoke(RESET)).content)

    first = await asyncio.gather(*(ask(f"t{n}") for n in range(8)))
    second = await asyncio.gather(*(ask(f"t{n}") for n in range(8)))

    assert len(set(first)) == 8
    assert second == first


def test_without_a_tenant_where_one_is_expected_nothing_is_cached(
    cache: SemanticCache, chat: Chat, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    unset: ContextVar[str] = ContextVar("unset")
    model = chat(cache=SemcacheCache(cache, tenant=unset))
    answers = [model.invoke(RESET) for _ in range(2)]

    assert upstream.count == 2
    assert all("semcache" not in answer.response_metadata for answer in answers)
    assert caplog.text.count("isn't set") == 1


def test_a_segment_isolates(cache: SemanticCache, chat: Chat, upstream: Upstream) -> None:
    gold = chat(cache=SemcacheCache(cache, segment={"tier": "gold"}))
    plain = chat(cache=SemcacheCache(cache, segment=lambda: {"tier": "plain"}))
    gold.invoke(RESET)

    assert not is_hit(plain.invoke(RESET))
    assert is_hit(gold.invoke(RESET))


def test_clearing_takes_everything_or_what_a_filter_names(
    ours: SemcacheCache, chat: Chat, upstream: Upstream
) -> None:
    small, large = chat(cache=ours), chat(cache=ours, model="gpt-4o")
    small.invoke(RESET)
    large.invoke(RESET)

    ours.clear(model="gpt-4o")
    assert is_hit(small.invoke(RESET))
    assert not is_hit(large.invoke(RESET))
    ours.clear()
    assert not is_hit(small.invoke(RESET))


def test_clearing_one_tenants_cache_leaves_the_others(cache: SemanticCache, chat: Chat) -> None:
    ours, theirs = SemcacheCache(cache, tenant="acme"), SemcacheCache(cache, tenant="globex")
    for each in (ours, theirs):
        chat(cache=each).invoke(RESET)

    ours.clear()
    assert not is_hit(chat(cache=ours).invoke(RESET))
    assert is_hit(chat(cache=theirs).invoke(RESET))
    ours.clear(model="gpt-4o-mini")
    assert is_hit(chat(cache=theirs).invoke(RESET))


def test_entries_carry_the_tags_they_were_given(cache: SemanticCache, chat: Chat) -> None:
    ours = SemcacheCache(cache, tags={"season:autumn"})
    model = chat(cache=ours)
    model.invoke(RESET)
    assert is_hit(model.invoke(RESET))

    ours.clear(tags={"season:autumn"})
    assert not is_hit(model.invoke(RESET))


def test_documents_pasted_into_the_question_can_be_split_off(
    cache: SemanticCache, chat: Chat, upstream: Upstream
) -> None:
    def split(turn: str) -> tuple[str, str]:
        document, _, question = turn.rpartition("\nQuestion: ")
        return question, document

    model = chat(cache=SemcacheCache(cache, split_prompt=split))
    document = "The shop is in the main street. " * 100
    model.invoke(f"{document}\nQuestion: {RESET}")

    assert is_hit(model.invoke(f"{document}\nQuestion: {RESET_AGAIN}"))
    assert not is_hit(model.invoke(f"{document}\nQuestion: {HOURS}"))
    assert not is_hit(model.invoke(f"Another.\nQuestion: {RESET}"))


def test_three_raters_withdraw_an_answer(
    ours: SemcacheCache, cache: SemanticCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=ours)
    model.invoke(RESET)
    actions = []
    for rater in ("u-1", "u-2", "u-3"):
        message = model.invoke(RESET)
        actions.append(cache.feedback(note(message)["lookup_id"], -1, rater=rater).action)

    assert actions == ["recorded", "recorded", "withdrawn"]
    again = model.invoke(RESET)
    assert not is_hit(again)
    assert upstream.count == 2


async def test_three_raters_withdraw_an_answer_awaited(
    acache: AsyncSemanticCache, chat: Chat, upstream: Upstream
) -> None:
    model = chat(cache=SemcacheCache(async_cache=acache))
    answers = [await model.ainvoke(RESET) for _ in range(3)]  # the first is new, and can be rated as well
    results = [
        await acache.feedback(note(message)["lookup_id"], -1, rater=f"u-{n}")
        for n, message in enumerate(answers)
    ]

    assert [result.action for result in results] == ["recorded", "recorded", "withdrawn"]
    assert not is_hit(await model.ainvoke(RESET))
    assert upstream.count == 2
