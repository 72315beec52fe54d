"""The law of demands: what a server lacks is found out, and one question changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers.openai_server import Json, OpenAIServer, Reply

from dagengine import evaluate
from dagengine.gateway import Limits
from dagengine.judges import OpenAIJudge
from dagengine.judges.wire.dialects.error_responses import Complaint, blank_quotations, complaint_in
from dagengine.judges.wire.dialects.feature_fallback import (
    Demands,
    Hypotheses,
    Lowering,
    RequestDemands,
    Trial,
)
from dagengine.metrics import DAGMetric, GEval
from dagengine.metrics.dag import DAG, BinaryJudgementNode, VerdictNode
from dagengine.test_case import LLMTestCase

ALL = frozenset({"system", "mode", "keywords", "logprobs", "alternatives", "temperature", "limit"})
FIELDS = ("system", "keywords", "logprobs", "temperature")
QUICK = Limits(backoff=0.0, max_backoff=0.0, patience=1.0)


def complaint(words: str, status: int = 400) -> Complaint:
    read = complaint_in(status, {"error": {"message": words}})
    assert read is not None
    return read


class Server:
    """Rejects requests with a demand that it lacks, in words that name it or not; some at random.

    `flukes` are the numbers of questions whose first request it rejects without a cause.
    """

    def __init__(self, lacks: frozenset[str], named: bool, flukes: frozenset[int]) -> None:
        self.lacks, self.named, self.flukes = lacks, named, set(flukes)

    def reject(self, number: int, asked: frozenset[str]) -> Complaint | None:
        if number in self.flukes:
            self.flukes.remove(number)
            return complaint("something is wrong here")
        lacking = sorted(self.lacks & asked)
        if not lacking:
            return None
        words = {"system": "system role", "keywords": "xgrammar"}.get(lacking[0], lacking[0])
        return complaint(f"{words} is not supported" if self.named else "bad request")


def asked_with(demands: Demands) -> frozenset[str]:
    """The fields of the demands of a request that asks for all that it may."""
    return frozenset(field for field in ALL if getattr(demands, field, True) is not False)


def ask(law: Hypotheses, server: Server, number: int) -> Iterator[bool | None]:
    """One question on its way; each step is one request. The last value says whether it worked."""
    asked = asked_with(law.standing)
    rejected = server.reject(number, asked)
    if rejected is None:
        law.note_success(asked)
        yield True
        return
    trial = Trial(law, str(number))
    while True:
        yield None
        request = RequestDemands(trial.demands, asked)
        named = request.named_lowerings(rejected)
        if not trial.lower(rejected.shape, named, request.ladder()):
            yield False
            return
        asked = asked_with(trial.demands)
        rejected = server.reject(number, asked)
        if rejected is None:
            trial.note_success(asked)
            yield True
            return


@settings(max_examples=150)
@given(
    lacks=st.sets(st.sampled_from(FIELDS), max_size=1),
    named=st.booleans(),
    fluke=st.one_of(st.none(), st.integers(0, 63)),
    count=st.integers(1, 64),
    random=st.randoms(use_true_random=False),
)
def test_a_demand_stays_lowered_only_if_the_server_lacks_it(
    lacks: set[str], named: bool, fluke: int | None, count: int, random: Any
) -> None:
    """In any order: all are answered, and the standing demands are those that the server knows."""
    law = Hypotheses()
    flukes = frozenset() if fluke is None else frozenset({fluke})
    server = Server(frozenset(lacks), named, flukes)
    under_way = {number: ask(law, server, number) for number in range(count)}
    ended: dict[int, bool] = {}
    requests = 0
    while under_way:
        number = random.choice(sorted(under_way))
        step = next(under_way[number])
        requests += 1
        if step is not None:
            ended[number] = step
            del under_way[number]
    # What nobody knows of one question, while others work, is about this question.
    assert all(worked for number, worked in ended.items() if number != fluke)
    lowered = ALL - asked_with(law.standing)
    assert lowered <= frozenset(lacks)
    # Two questions, rejected with what the server lacks, are enough for all that come later.
    if count - len(flukes) >= 2:
        assert lowered == frozenset(lacks)
        assert server.reject(-1, asked_with(law.standing)) is None
    assert requests <= 10 * count


def test_two_demands_that_a_server_lacks_are_found_one_after_the_other() -> None:
    law, server = Hypotheses(), Server(frozenset({"logprobs", "temperature"}), True, frozenset())
    assert [list(ask(law, server, number))[-1] for number in range(2)] == [True, True]
    assert not law.standing.logprobs
    assert not law.standing.temperature
    assert law.standing.system


def test_words_lower_a_demand_that_has_worked_for_one_question_alone() -> None:
    """A router that sends one request to another server changes nothing for the next."""
    law, server = Hypotheses(), Server(frozenset(), True, frozenset())
    list(ask(law, server, 0))
    server.lacks = frozenset({"temperature"})
    assert list(ask(law, server, 1))[-1]
    assert law.standing.temperature
    assert list(ask(law, server, 2))[-1]
    assert not law.standing.temperature


def test_nobody_searches_twice_where_nothing_helps() -> None:
    law, server = Hypotheses(), Server(frozenset({"limit"}), False, frozenset())
    tries = [len(list(ask(law, server, number))) for number in range(3)]
    assert tries[0] > 2
    assert tries[1:] == [2, 2]
    assert law.standing == Demands()


@pytest.mark.parametrize(
    ("words", "fewer"),
    [
        ("Invalid value for 'top_logprobs': must be less than or equal to 5.", 5),
        ("Requested sample logprobs of 20, which is greater than max allowed: 8", 8),
        ("top_logprobs must be in [0, 20)", 5),
        ("logprobs: at most 3 of 20 are given", 3),
    ],
)
def test_the_number_of_log_probabilities_is_read(words: str, fewer: int) -> None:
    steps = RequestDemands(Demands(), ALL, alternatives=20).named_lowerings(complaint(words))
    assert steps[0] == Lowering("alternatives", fewer)


@pytest.mark.parametrize(
    "shown",
    [
        "invalid input: The API of logprobs and temperature is",
        'invalid input: \\"The API of logprobs\\nand temperature is',
        "Cannot process: the api of LOGPROBS and temperature is...",
    ],
)
def test_words_that_repeat_the_prompt_name_nothing(shown: str) -> None:
    prompt = 'Judge this. "The API of logprobs\nand temperature is" well explained.'
    read = complaint_in(400, {"error": {"message": shown}}, prompt=prompt)
    assert read is not None
    assert RequestDemands(Demands(), ALL, alternatives=20).named_lowerings(read) == []
    assert blank_quotations(shown, "") == shown


RATED = '{"reason": "It says so.", "score": 8}'


def _tokens(request: Json) -> list[Json] | None:
    if not request.get("logprobs"):
        return None
    halves = [{"token": digit, "logprob": -0.6931471805599453} for digit in "89"]
    texts = ('{"reason": "It says so.", "score": ', "8", "}")
    return [{"token": text, "top_logprobs": halves if text == "8" else []} for text in texts]


@pytest.mark.parametrize("place", [0, 2])
def test_an_error_that_repeats_a_case_changes_no_request_of_others(place: int) -> None:
    """Texts about log-probabilities and temperatures, one of them refused: 39 are weighted."""
    texts = [f"Text {n}: ask for logprobs and a temperature of zero." for n in range(40)]

    def respond(request: Json) -> Reply:
        prompt = "".join(str(message["content"]) for message in request["messages"])
        if texts[place] in prompt:
            shown = prompt[prompt.index(texts[place]) :][:120]
            return Reply(f"invalid input: {shown}", status=400)
        return Reply(RATED, logprobs=_tokens(request))

    metric = GEval("Right", evaluation_steps=["Look."], evaluation_params=["actual_output"])
    cases = [LLMTestCase(input="i", actual_output=text) for text in texts]
    with OpenAIServer(respond) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        rows = evaluate(cases, [metric], model=judge, limits=QUICK, show=False).rows
        others = [r for r in server.requests if texts[place] not in str(r["messages"])]
    scores = [row.metrics[0].score for row in rows]
    assert scores.pop(place) is None
    assert scores == [pytest.approx(0.85)] * 39
    assert all("temperature" in r and "logprobs" in r for r in others)


def test_a_page_with_the_word_tools_takes_the_schema_from_nobody() -> None:
    page = "<html><title>Denied</title><p>response_format, tools, logprobs</p></html>"

    def respond(request: Json) -> Reply:
        if "second" in str(request["messages"]):
            return Reply(body=page, status=403, headers={"Content-Type": "text/html"})
        return Reply('{"reason": "r", "verdict": true}')

    polite = DAGMetric(
        "Polite",
        DAG(
            root_node=BinaryJudgementNode(
                "Is it polite?",
                [VerdictNode(False, score=0), VerdictNode(True, score=10)],
                evaluation_params=["actual_output"],
            )
        ),
    )
    cases = [LLMTestCase(input="i", actual_output=t) for t in ("first", "second", "third")]
    with OpenAIServer(respond) as server:
        judge = OpenAIJudge("m", base_url=server.base_url)
        rows = evaluate(cases, [polite], model=judge, limits=QUICK, show=False).rows
    assert [row.metrics[0].score for row in rows] == [1.0, None, 1.0]
    assert "a web page ('Denied')" in str(rows[1].metrics[0].failure)
    assert all("response_format" in request for request in server.requests)
