"""Decision judges against a real server of both wire forms: what is sent, and what is believed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from servers.decision_server import MODEL, TOKENS, Asked, DecisionServer, Twice, always
from servers.openai_server import Json, Reply

from dagengine import Limits
from dagengine.errors import (
    InputError,
    JudgeError,
    JudgeSetupError,
    ProviderError,
    RefusedError,
    TooLongError,
    UnparseableError,
)
from dagengine.gateway import Gateway
from dagengine.judges import DecisionJudge, OpenAIJudge, ProviderJudge, as_judge
from dagengine.prompts.answer_types import judgement_type, labelled_type, rating_type
from dagengine.prompts.decisions import decision_question
from dagengine.question import YES_NO, Answer, Decision, Kind, Option, Question, Usage
from dagengine.results import Attempt
from dagengine.test_case import LLMTestCase

pytestmark = pytest.mark.anyio

FAST = Limits(attempts=3, backoff=0.0, max_backoff=0.0, reasks=1)
CASE = LLMTestCase(
    name="gold", input="why?", actual_output="so", expected_output="thus", tags=["label"],
    comments="good", additional_metadata={"label": "good"}, retrieval_context=["one", "two"],
)  # fmt: skip
TEXTS = {
    "input": "why?", "actual_output": "so", "expected_output": "thus",
    "retrieval_context": ["one", "two"],
}  # fmt: skip
FORMS = ("decisions", "systemone")
both = pytest.mark.parametrize("form", FORMS)

YES = judgement_type(None)
TONES = ("warm", "cold", "rude")
TONE = judgement_type(TONES)


def about(
    kind: Kind,
    shape: Any,
    options: Sequence[Option] = YES_NO,
    words: str = "Is it so?",
    case: Any = CASE,
    **more: Any,
) -> Question[Any]:
    fields = (("input", "why?"), ("actual_output", "so"))
    decision = Decision(kind, words, tuple(options), case, fields, **more)
    plain = Question(({"role": "user", "content": "chat"},), shape, name="q", decision=decision)
    return decision_question(plain, decision, "case")


def predicate(words: str = "Is it so?", **more: Any) -> Question[Any]:
    return about("predicate", YES, words=words, **more)


def choice(words: str = "Which tone?") -> Question[Any]:
    return about("choice", TONE, list(map(Option, TONES)), words)


def rating(most: int) -> Question[Any]:
    levels = [Option(str(number)) for number in range(most + 1)]
    return about("score", rating_type(0, most), levels, "How good?")


async def outcomes(
    server: DecisionServer, form: str, questions: Sequence[Question[Any]], **settings: Any
) -> list[Answer[Any] | JudgeError]:
    judge = DecisionJudge("alias", form=form, base_url=server.base_url, **settings)
    async with judge.session():
        return await judge.answer_all(questions)


async def answered(server: DecisionServer, form: str, question: Question[Any]) -> Answer[Any]:
    (outcome,) = await outcomes(server, form, [question])
    assert isinstance(outcome, Answer), outcome
    return outcome


@both
async def test_every_kind_of_question_is_answered_with_its_odds(form: str) -> None:
    with DecisionServer(always(0.7, 0.3)) as server:
        answer = await answered(server, form, predicate())
    assert answer.value.verdict is True
    assert dict(answer.odds or ()) == pytest.approx({True: 0.7, False: 0.3})
    assert answer.mode == f"{form} {MODEL}"
    assert answer.value.reason.startswith("yes 0.7, no 0.3 (")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (TOKENS, 1)
    with DecisionServer(always(0.2, 0.5, 0.3)) as server:
        answer = await answered(server, form, choice())
        assert answer.value.verdict == "cold"
        assert answer.odds == (("warm", 0.2), ("cold", 0.5), ("rude", 0.3))
        assert json.loads(answer.raw)["choice"] == "cold"
        answer = await answered(server, form, rating(2))
        assert answer.value.score == 1
        assert answer.odds == (("0", 0.2), ("1", 0.5), ("2", 0.3))


@both
async def test_a_predicate_is_true_from_a_half_on(form: str) -> None:
    for chance, verdict in ((0.5, True), (0.49, False), (1.0, True), (0.0, False), (1, True)):
        with DecisionServer(always(chance, 1 - chance)) as server:
            assert (await answered(server, form, predicate())).value.verdict is verdict


async def test_the_state_is_the_texts_of_the_case_and_nothing_that_may_be_a_label() -> None:
    with DecisionServer() as server:
        for form in FORMS:
            await answered(server, form, predicate())
        one, other = server.asked
    assert json.loads(one["input"]) == other["state"] == TEXTS
    (question,) = one["questions"]
    assert question["type"] == "predicate"
    assert "Is it so?" in question["instructions"]
    assert "`input`, `actual_output`" in question["instructions"]
    (noul,) = other["questions"].values()
    assert noul == {"type": "noul", "instructions": question["instructions"]}


async def test_what_a_question_reads_besides_travels_as_its_own_material() -> None:
    question = predicate(material=(("claim", 'Sky "is" blue'), ("truths", ["a", "b"])))
    with DecisionServer() as server:
        for form in FORMS:
            await answered(server, form, question)
        one, other = server.asked
    text, data = one["questions"][0]["instructions"]
    material = {"claim": 'Sky "is" blue', "truths": ["a", "b"]}
    assert text["type"] == "input_text"
    assert data == {"type": "input_json", "data": material}
    (noul,) = other["questions"].values()
    assert noul["instructions"] == {"instructions": text["text"], "material": material}


async def test_options_keep_their_order_and_their_descriptions() -> None:
    options = [Option("warm", "friendly words"), Option("cold"), Option("rude")]
    with DecisionServer() as server:
        for form in FORMS:
            await answered(server, form, about("choice", TONE, options))
            await answered(server, form, about("score", labelled_type(TONES), options))
        one, two, three, four = server.asked
    assert one["questions"][0]["choices"] == [
        {"value": "warm", "description": "friendly words"}, {"value": "cold"}, {"value": "rude"},
    ]  # fmt: skip
    assert two["questions"][0]["levels"] == [
        {"label": "warm", "description": "friendly words"}, {"label": "cold"}, {"label": "rude"},
    ]  # fmt: skip
    criteria = three["questions"]["q0"]["criteria"]
    assert list(criteria.items()) == [("warm", "friendly words"), ("cold", None), ("rude", None)]
    assert four["questions"]["q0"]["criteria"] == ["warm: friendly words", "cold", "rude"]


async def test_what_true_and_false_stand_for_is_said_in_both_forms() -> None:
    options = [Option(True, "it is spam"), Option(False, "it is not")]
    with DecisionServer() as server:
        for form in FORMS:
            await answered(server, form, about("predicate", YES, options))
        one, other = server.asked
    assert "True means: it is spam False means: it is not" in one["questions"][0]["instructions"]
    assert other["questions"]["q0"]["criteria"] == {"true": "it is spam", "false": "it is not"}


@both
async def test_a_rating_of_more_than_ten_levels_travels_as_a_choice(form: str) -> None:
    with DecisionServer() as server:
        few, many = await outcomes(server, form, [rating(9), rating(10)])
        asked = server.asked[0]["questions"]
    kinds = [one["type"] for one in (asked if form == "decisions" else asked.values())]
    assert kinds == ["score", "choice"]
    for answer, count in ((few, 10), (many, 11)):
        assert isinstance(answer, Answer)
        assert [value for value, _ in answer.odds or ()] == [str(n) for n in range(count)]
        likeliest = max(answer.odds or (), key=lambda one: one[1])[0]
        assert answer.value.score == int(likeliest)


@both
async def test_many_questions_share_a_request_and_answer_as_each_alone(form: str) -> None:
    questions = [predicate(), choice(), rating(4), predicate("And that?"), rating(10)]
    with DecisionServer() as server:
        packed = await outcomes(server, form, questions)
        assert len(server.asked) == 1
        alone = [await answered(server, form, question) for question in questions]
    for one, other in zip(packed, alone, strict=True):
        assert isinstance(one, Answer)
        assert (one.value, one.odds, one.mode) == (other.value, other.odds, other.mode)
    used = sum((one.usage for one in packed if isinstance(one, Answer)), Usage())
    assert (used.input_tokens, used.output_tokens) == (TOKENS, len(questions))


async def test_tokens_that_were_in_the_cache_are_counted_in_parts() -> None:
    with DecisionServer() as server:
        packed = await outcomes(server, "decisions", [predicate(), choice(), rating(4)])
    assert [one.usage for one in packed if isinstance(one, Answer)] == [
        Usage(33, 1, 13), Usage(33, 1, 13), Usage(34, 1, 14),
    ]  # fmt: skip


async def test_questions_about_several_states_are_no_request() -> None:
    other = predicate(case=LLMTestCase(input="else"))
    with DecisionServer() as server, pytest.raises(InputError, match="one state"):
        await outcomes(server, "decisions", [predicate(), other])
    assert not server.asked


Spoil = Callable[[Any], Any]


def of_one(change: Callable[[Json], Any]) -> Spoil:
    """Changes the second answer of a request, in either form."""

    def spoil(answers: Any) -> Any:
        if isinstance(answers, list):
            return [change(one) if place == 1 else one for place, one in enumerate(answers)]
        return {name: change(one) if name == "q1" else one for name, one in answers.items()}

    return spoil


def without(answers: Any) -> Any:
    if isinstance(answers, list):
        return [one for one in answers if one["name"] != "q1"]
    return {name: one for name, one in answers.items() if name != "q1"}


def doubled(answers: Any) -> Any:
    if isinstance(answers, list):
        return [*answers, answers[1]]
    return Twice([*answers.items(), ("q1", answers["q1"])])


def odds_of(change: Callable[[list[tuple[Any, Any]]], Any]) -> Spoil:
    """Changes the (value, probability) pairs of the second answer."""

    def spoil(answer: Json) -> Json:
        found = answer["probabilities"]
        if isinstance(found, dict):
            return {**answer, "probabilities": Twice(change(list(found.items())))}
        pairs = change([(one["value"], one["probability"]) for one in found])
        odds = [{"value": value, "probability": chance} for value, chance in pairs]
        return {**answer, "probabilities": odds}

    return of_one(spoil)


SPOILT: dict[str, tuple[Spoil, str]] = {
    "missing": (without, "no answer"),
    "doubled": (doubled, "2 answers"),
    "no object": (of_one(lambda answer: "warm"), "answer"),
    "another type": (of_one(lambda answer: {**answer, "type": "box"}), "type 'box'"),
    "not a choice": (of_one(lambda answer: {**answer, "choice": "blue"}), "'blue' was not asked"),
    "a choice that is a list": (of_one(lambda answer: {**answer, "choice": ["warm"]}), "not asked"),
    "an unlikely choice": (of_one(lambda answer: {**answer, "choice": "warm"}), "less likely"),
    "no odds": (of_one(lambda answer: {**answer, "probabilities": None}), "probabilities is not"),
    "an option more": (odds_of(lambda odds: [*odds, ("blue", 0.0)]), "'blue' was not asked for"),
    "an option less": (odds_of(lambda odds: odds[:-1]), "no probability of 'rude'"),
    "an option twice": (odds_of(lambda odds: [*odds, odds[0]]), ""),
    "odds of more than 1": (
        odds_of(lambda odds: [(value, chance + 0.05) for value, chance in odds]), "add up to 1.15"
    ),
    "odds of less than 1": (
        odds_of(lambda odds: [(value, chance * 0.9) for value, chance in odds]), "add up to 0.9"
    ),
    "odds below 0": (odds_of(lambda odds: [*odds[:2], ("rude", -0.1)]), "not a probability from 0"),
    "odds in texts": (odds_of(lambda odds: [*odds[:2], ("rude", "0.3")]), "'0.3' is not"),
    "odds that are true": (odds_of(lambda odds: [*odds[:2], ("rude", True)]), "True is not"),
}  # fmt: skip


@both
@pytest.mark.parametrize("fault", SPOILT)
async def test_an_answer_that_does_not_fit_is_a_failure_of_its_question_alone(
    form: str, fault: str
) -> None:
    spoil, why = SPOILT[fault]
    with DecisionServer(always(0.2, 0.5, 0.3), spoil=spoil) as server:
        first, second, third = await outcomes(server, form, [predicate(), choice(), rating(4)])
    assert isinstance(first, Answer)
    assert isinstance(third, Answer)
    assert isinstance(second, UnparseableError), second
    assert why in str(second)
    assert second.tokens == (33, 1)
    assert second.raw


@both
async def test_a_refusal_is_one_of_its_question_alone(form: str) -> None:
    def decide(state: Any, asked: Asked) -> Sequence[float] | None:
        return None if "Which tone" in asked.instructions else (0.9, 0.1)

    with DecisionServer(decide) as server:
        yes, refused = await outcomes(server, form, [predicate(), choice()])
    assert isinstance(yes, Answer)
    assert isinstance(refused, RefusedError)
    assert refused.tokens == (50, 1)


async def test_answers_without_names_are_taken_in_their_order_and_no_other() -> None:
    def nameless(answers: list[Json]) -> list[Json]:
        return [{**one, "name": None} for one in answers]

    questions = [predicate(), choice()]
    with DecisionServer(always(0.2, 0.5, 0.3), spoil=nameless) as server:
        assert all(
            isinstance(one, Answer) for one in await outcomes(server, "decisions", questions)
        )
    with DecisionServer(spoil=lambda answers: nameless(answers)[:1]) as server:
        found = await outcomes(server, "decisions", questions)
    assert all(isinstance(one, UnparseableError) for one in found)
    with DecisionServer(always(0.2, 0.5, 0.3), spoil=lambda answers: answers[::-1]) as server:
        yes, tone = await outcomes(server, "decisions", questions)
    assert isinstance(tone, Answer)
    assert tone.value.verdict == "cold"
    assert isinstance(yes, Answer)


@both
@pytest.mark.parametrize(
    "body",
    ["", "no json", "[]", '"text"', "{}", '{"answers": 7, "model": "m", "usage": {}}', "9" * 5000],
)
async def test_a_response_without_decisions_is_a_final_failure(form: str, body: str) -> None:
    faulty = DecisionServer(fault=lambda _: Reply(body=body))
    with faulty as server, pytest.raises(ProviderError, match="no decisions") as caught:
        await outcomes(server, form, [predicate()])
    assert not caught.value.transient


@both
async def test_usage_of_another_form_counts_nothing(form: str) -> None:
    answers: Any = {"decisions": [{"type": "predicate", "probability": 0.9}]}
    answers["systemone"] = {"q0": {"type": "noul", "noul": 0.9}}
    strange: list[Any] = [None, [], {"input_tokens": "many"}, {"input_tokens": -4}]
    with DecisionServer(fault=lambda _: Reply(body=bodies.pop())) as server:
        for usage in strange:
            bodies = [json.dumps({"model": "m", "answers": answers[form], "usage": usage})]
            assert (await answered(server, form, predicate())).usage == Usage()


def at_fault(form: str, place: int) -> str:
    """A rejection that names a question."""
    if form == "decisions":
        error = {"message": "a bad question", "param": f"questions[{place}].instructions"}
        return json.dumps({"error": {**error, "type": "invalid_request_error", "code": None}})
    where = ["body", "questions", f"q{place}", "choice", "criteria"]
    return json.dumps({"detail": [{"loc": where, "msg": "a bad question", "type": "missing"}]})


@both
@pytest.mark.parametrize("status", [400, 422])
async def test_a_question_that_the_server_rejects_fails_alone(form: str, status: int) -> None:
    def fault(body: Json) -> Reply | None:
        asked = body["questions"]
        listed = asked if form == "decisions" else list(asked.values())
        places = [place for place, one in enumerate(listed) if one["type"] == "choice"]
        return Reply(status=status, body=at_fault(form, places[0])) if places else None

    questions = [predicate(), choice(), predicate("And that?"), choice("And now?")]
    with DecisionServer(fault=fault) as server:
        found = await outcomes(server, form, questions)
        assert len(server.asked) == 3
        with pytest.raises(ProviderError, match="a bad question"):
            await outcomes(server, form, [choice()])
    assert [type(one) for one in found] == [Answer, ProviderError, Answer, ProviderError]
    error = found[1]
    assert isinstance(error, ProviderError)
    assert (error.status, error.transient) == (status, False)
    assert "a bad question" in str(error)


FAILURES = {
    400: (False, "HTTP 400"),
    401: (False, "check the API key"),
    404: (False, "check the model's name"),
    422: (False, "HTTP 422"),
    429: (True, "HTTP 429"),
    500: (True, "HTTP 500"),
    503: (True, "HTTP 503"),
}


@both
@pytest.mark.parametrize("status", FAILURES)
async def test_the_failure_of_a_request_says_whether_another_attempt_may_help(
    form: str, status: int
) -> None:
    transient, words = FAILURES[status]
    reply = Reply("too much", status=status, headers={"Retry-After": "7"})
    faulty = DecisionServer(fault=lambda _: reply)
    with faulty as server, pytest.raises(ProviderError, match=words) as caught:
        await outcomes(server, form, [predicate(), choice()])
    assert (caught.value.transient, caught.value.status) == (transient, status)
    if transient:
        assert caught.value.retry_after == 7


@both
async def test_a_state_that_is_too_long_is_said_to_be(form: str) -> None:
    text = "the state has 40001 tokens, at most 32000 are read"
    faulty = DecisionServer(fault=lambda _: Reply(text, status=413))
    with faulty as server, pytest.raises(TooLongError, match="40001 tokens"):
        await outcomes(server, form, [predicate()])


@both
async def test_the_gateway_retries_and_asks_again(form: str) -> None:
    attempts: list[Attempt] = []
    tried: list[Json] = []

    def fault(body: Json) -> Reply | None:
        tried.append(body)
        return Reply("busy", status=429) if len(tried) == 1 else None

    def spoil(answers: Any) -> Any:
        return [] if len(tried) == 2 and isinstance(answers, list) else (
            {} if len(tried) == 2 else answers
        )  # fmt: skip

    with DecisionServer(spoil=spoil, fault=fault) as server:
        judge = DecisionJudge(form=form, base_url=server.base_url)
        async with judge.session():
            answer = await Gateway(FAST, attempts.append).ask(judge, predicate())
    assert answer.odds is not None
    assert [str(one.outcome) for one in attempts] == ["provider_error", "unparseable", "ok"]
    assert tried[0] == tried[1] == tried[2]


async def test_nobody_but_the_version_asked_for_may_answer() -> None:
    with DecisionServer() as server:
        judge = DecisionJudge("alias", base_url=server.base_url, version=MODEL)
        assert (await judge.answer(predicate())).mode == f"decisions {MODEL}"
        other = DecisionJudge("alias", base_url=server.base_url, version="decider-2026-09-09")
        with pytest.raises(ProviderError, match="decider-2026-09-09"):
            await other.answer(predicate())
    plain = DecisionJudge("alias", base_url=server.base_url)
    assert len({judge.durable_identity, other.durable_identity, plain.durable_identity}) == 3
    assert len({judge.identity, other.identity, plain.identity}) == 3


async def test_parameters_go_into_every_request() -> None:
    with DecisionServer() as server:
        settings: Any = {"parameters": {"prompt_cache_key": "k"}}
        await outcomes(server, "decisions", [predicate()], **settings)
        assert server.asked[0]["prompt_cache_key"] == "k"
        assert server.asked[0]["model"] == "alias"


async def test_texts_without_a_form_in_utf_8_are_sent_all_the_same() -> None:
    question = predicate(case=LLMTestCase(input="a \ud800 b"))
    with DecisionServer() as server:
        for form in FORMS:
            await answered(server, form, question)


def test_names_of_judges() -> None:
    judge = as_judge("decisions/gpt-6-luna")
    assert isinstance(judge, DecisionJudge)
    assert (judge.model, judge.form.name) == ("gpt-6-luna", "decisions")
    written = as_judge("decisions/gpt-6-luna+anthropic/claude-sonnet-4-5")
    assert isinstance(written, DecisionJudge)
    assert (written.model, written.identity) == (judge.model, judge.identity)
    assert isinstance(written.writer, ProviderJudge)
    with pytest.raises(InputError, match="writer= must be a judge that writes texts"):
        as_judge("decisions/gpt-6-luna+systemone/mine")
    local = as_judge("systemone/mine", base_url="http://127.0.0.1:9/v1")
    assert isinstance(local, DecisionJudge)
    assert (local.model, local.form.name, local.base_url) == (
        "mine", "systemone", "http://127.0.0.1:9/v1",
    )  # fmt: skip
    assert isinstance(as_judge("other/mine", base_url="http://127.0.0.1:9/v1"), OpenAIJudge)


def test_identities_name_form_model_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "TYPESAFE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert DecisionJudge().durable_identity == (
        "decisions gpt-6-luna at https://api.openai.com/v1 with {}"
    )
    systemone = DecisionJudge(form="systemone")
    assert (
        systemone.durable_identity == "systemone jev-latest at https://api.typesafe.ai/v1 with {}"
    )
    monkeypatch.setenv("TYPESAFE_BASE_URL", "https://proxy.example/")
    assert systemone.durable_identity == "systemone jev-latest at https://proxy.example/v1 with {}"


async def test_the_key_of_one_provider_goes_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TYPESAFE_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-0123456789")
    with DecisionServer() as server:
        monkeypatch.setenv("TYPESAFE_BASE_URL", server.base_url.removesuffix("/v1"))
        with pytest.raises(JudgeSetupError, match="TYPESAFE_API_KEY"):
            await DecisionJudge(form="systemone").answer(predicate())
        monkeypatch.setenv("TYPESAFE_API_KEY", "of-typesafe-0123456789")
        await DecisionJudge(form="systemone").answer(predicate())
        assert server.keys == ["Bearer of-typesafe-0123456789"]


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'decisions'"):
        DecisionJudge(form="decision")
    with pytest.raises(InputError, match="'case' or 'reads'"):
        DecisionJudge(shows="all")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a judge that writes texts"):
        DecisionJudge(writer=DecisionJudge())


def test_a_judge_goes_to_another_process_without_its_key() -> None:
    judge = DecisionJudge("m", form="systemone", api_key="secret-key", writer="gpt-4o")
    found = pickle.loads(pickle.dumps(judge))
    assert b"secret-key" not in pickle.dumps(judge)
    assert (found.identity, found.form.name) == (judge.identity, "systemone")
    assert found.writer.identity == judge.writer.identity  # type: ignore[union-attr]
