"""No score from a part of a prompt: servers that cut, refuse, count honestly, or not at all."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from servers.cutting_server import (
    KINDS,
    TOKENIZERS,
    Cut,
    CuttingServer,
    Tokenize,
    ollama,
    shifted,
    text,
    to,
)
from servers.local_servers import LLAMA, TellingServer
from servers.openai_server import Json, OpenAIServer, Reply, completion_of, valid_reply

from dagengine import Limits, evaluate
from dagengine.judges import OpenAIJudge
from dagengine.metrics.dag import DAG, BinaryJudgementNode, DAGMetric
from dagengine.results import CaseResult, OutcomeKind
from dagengine.test_case import LLMTestCase
from dagengine.voting import voted

LONG = text("english", 40_000)
FAST = Limits(attempts=3, backoff=0.0, max_backoff=0.0)


def metric() -> DAGMetric:
    node = BinaryJudgementNode(
        "Is it polite?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="Tone"
    )
    return DAGMetric("Manners", DAG(node))


def run(server: OpenAIServer, texts: list[str], **settings: Any) -> list[CaseResult]:
    cases = [LLMTestCase(input="q", actual_output=each) for each in texts]
    judge = OpenAIJudge("m", base_url=server.base_url)
    limits = settings.pop("limits", FAST)
    done = evaluate(
        cases, settings.pop("metrics", [metric()]), model=judge, limits=limits, show=False
    )
    return list(done.rows)


def outcomes(rows: list[CaseResult]) -> list[OutcomeKind]:
    return [row.metrics[0].outcome for row in rows]


def texts_of(kind: str, count: int, seed: object) -> list[str]:
    chance = random.Random(f"{kind} {seed}")
    lengths = [int(10 ** chance.uniform(1.5, 4.3)) for _ in range(count)]
    kinds = [chance.choice(KINDS) if kind == "all" else kind for _ in lengths]
    return [
        text(one, length, place)
        for place, (one, length) in enumerate(zip(kinds, lengths, strict=True))
    ]


@pytest.mark.parametrize(
    ("cut", "tokenizer"),
    [
        (ollama(4096), "efficient"),
        (ollama(4096), "small"),
        (ollama(2048), "bytes"),
        (to(200), "efficient"),
        (to(777), "small"),
        (to(1000), "by four"),
        (ollama(512), "words"),
    ],
)
def test_no_score_leaves_a_server_that_cuts_prompts(cut: Cut, tokenizer: str) -> None:
    found = 0
    for kind in ("german", "code", "base64", "chinese", "all"):
        texts = texts_of(kind, 12, tokenizer)
        with CuttingServer(TOKENIZERS[tokenizer], cut) as server:
            rows = run(server, texts)
        for row, shown in zip(rows, texts, strict=True):
            was_cut = any(f"\n{shown}\n" in prompt for prompt in server.cuts)
            assert not was_cut or row.metrics[0].score is None
            found += was_cut
        assert set(outcomes(rows)) <= {OutcomeKind.OK, OutcomeKind.TRUNCATED}
    assert found


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_server_that_reads_all_is_believed_whatever_the_text_and_the_tokenizer(
    tokenizer: str,
) -> None:
    calls = cases = 0
    for kind in (*KINDS, "all"):
        texts = texts_of(kind, 10, tokenizer)
        with CuttingServer(TOKENIZERS[tokenizer]) as server:
            assert set(outcomes(run(server, texts))) == {OutcomeKind.OK}
        calls, cases = calls + server.calls, cases + len(texts)
    assert calls < 1.8 * cases


def test_the_first_answer_of_a_run_is_held_back_when_it_is_cut() -> None:
    for cut in (to(200), to(777), ollama(4096)):
        with CuttingServer(TOKENIZERS["small"], cut) as server:
            (row,) = run(server, [LONG])
        assert row.metrics[0].outcome is OutcomeKind.TRUNCATED


def test_the_message_names_the_tokens_the_field_and_a_remedy() -> None:
    with CuttingServer(TOKENIZERS["efficient"], ollama(4096)) as server:
        (row,) = run(server, [LONG])
    failure = row.metrics[0].failure
    assert failure is not None
    assert failure.node == "Tone"
    assert "read 2,050 tokens of a prompt of about" in failure.message
    assert "most of it is actual_output (40," in failure.message
    assert "Give the server a window of" in failure.message


def test_blocks_that_are_dropped_until_the_rest_fits_are_noticed() -> None:
    texts = [text("english", length, length) for length in range(500, 20_000, 1_500)]
    with CuttingServer(TOKENIZERS["small"], shifted(1024)) as server:
        rows = run(server, texts, limits=Limits(max_in_flight=1))
    for row, shown in zip(rows, texts, strict=True):
        was_cut = any(f"\n{shown}\n" in prompt for prompt in server.cuts)
        assert not was_cut or row.metrics[0].score is None


def test_a_cut_prompt_is_no_vote() -> None:
    with CuttingServer(TOKENIZERS["small"], to(300)) as server:
        (row,) = run(server, [LONG], metrics=[voted(metric(), 3)])
    assert row.metrics[0].outcome is OutcomeKind.TRUNCATED


def test_a_cut_prompt_is_not_asked_about_again() -> None:
    with CuttingServer(TOKENIZERS["small"], to(300)) as server:
        run(server, [LONG])
    assert sum(LONG in body["messages"][-1]["content"] for body in server.requests) == 2
    assert server.calls == 3  # the question, with more words, and a tiny one


class Reporting(OpenAIServer):
    """Reports what `report` makes of the tokens of a prompt."""

    def __init__(self, report: Callable[[int], Json | None]) -> None:
        super().__init__(self._read)
        self._report = report

    def _read(self, body: Json) -> Reply:
        tokenize: Tokenize = TOKENIZERS["efficient"]
        tokens = sum(tokenize(message["content"]) for message in body["messages"])
        completion = completion_of(body, valid_reply(body))
        completion["usage"] = self._report(tokens)
        return Reply(body=json.dumps(completion))


@pytest.mark.parametrize(
    "report",
    [
        lambda tokens: None,
        lambda tokens: {},
        lambda tokens: {"prompt_tokens": 0},
        lambda tokens: {"prompt_tokens": 10},
        lambda tokens: {"prompt_tokens": "many"},
    ],
)
def test_a_server_that_counts_nothing_or_always_the_same_is_not_accused(
    report: Callable[[int], Json | None],
) -> None:
    with Reporting(report) as server:
        rows = run(server, [text("english", 2_000), text("german", 9_000), LONG])
    assert set(outcomes(rows)) == {OutcomeKind.OK}


def test_what_a_server_took_from_its_cache_may_be_missing_in_its_count() -> None:
    seen: list[str] = []

    class Cached(OpenAIServer):
        def __init__(self) -> None:
            super().__init__(self._read)

        def _read(self, body: Json) -> Reply:
            prompt = "".join(message["content"] for message in body["messages"])
            known = max((_alike(prompt, other) for other in seen), default=0)
            seen.append(prompt)
            completion = completion_of(body, valid_reply(body))
            completion["usage"]["prompt_tokens"] = 1 + TOKENIZERS["efficient"](prompt[known:])
            return Reply(body=json.dumps(completion))

    with Cached() as server:
        same = text("english", 5_000)
        rows = run(server, [same + str(n) for n in range(6)], limits=Limits(max_in_flight=1))
    assert set(outcomes(rows)) == {OutcomeKind.OK}


def _alike(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


REFUSALS: list[Json] = [
    {
        "code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9301, "n_ctx": 4096,
        "message": "request (9301 tokens) exceeds the available context size (4096 tokens)",
    },
    {
        "code": "context_length_exceeded",
        "message": "This model's maximum context length is 4096 tokens. However, your messages "
        "resulted in 9301 tokens.",
    },
    {
        "code": 400, "type": "BadRequestError",
        "message": "This model's maximum context length is 4096 tokens. However, you requested "
        "9601 tokens (9301 in the messages, 300 in the completion). Please reduce the length.",
    },
]  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_is_too_long_with_tokens_field_and_remedy_and_is_not_retried(
    refusal: Json,
) -> None:
    def respond(body: Json) -> Reply:
        return Reply(status=400, body=json.dumps({"error": refusal}))

    with OpenAIServer(respond) as server:
        (row,) = run(server, [text("english", 9_000)])
        assert len(server.requests) == 1
    failure = row.metrics[0].failure
    assert failure is not None
    assert failure.kind is OutcomeKind.TOO_LONG
    assert "needs about 9,301 tokens, and the server reads 4,096" in failure.message
    assert "most of it is actual_output" in failure.message
    assert "window of 10240 tokens" in failure.message
    assert "again" not in failure.message


def test_garbage_after_an_overflow_is_no_score_either() -> None:
    with OpenAIServer(lambda _: Reply(body="\x00\x00 overflow")) as server:
        (row,) = run(server, [LONG])
    assert row.metrics[0].score is None


def test_what_cannot_fit_is_not_sent() -> None:
    with TellingServer(LLAMA) as server:
        first, second = run(server, ["Hello!", text("english", 60_000)])
        assert len(server.requests) == 1
    assert first.metrics[0].outcome is OutcomeKind.OK
    failure = second.metrics[0].failure
    assert failure is not None
    assert failure.kind is OutcomeKind.TOO_LONG
    assert "the server reads 4,096" in failure.message
    assert ": llama-server --ctx-size" in failure.message


def test_a_server_that_can_count_is_asked_for_the_exact_count() -> None:
    def cut(body: Json) -> Reply:
        completion = completion_of(body, valid_reply(body))
        completion["usage"] = {"prompt_tokens": 2050, "completion_tokens": 9}
        return Reply(body=json.dumps(completion))

    pages = {**LLAMA, "/tokenize": {"tokens": list(range(3900))}}
    with TellingServer(pages, cut) as server:
        (row,) = run(server, [text("english", 15_000)])
        assert len(server.requests) == 1
    assert row.metrics[0].outcome is OutcomeKind.TRUNCATED
    assert "of about 3,900" in str(row.metrics[0].failure)
    pages = {**LLAMA, "/tokenize": {"tokens": list(range(2040))}}
    with TellingServer(pages, cut) as server:
        (row,) = run(server, [text("english", 15_000)])
    assert row.metrics[0].outcome is OutcomeKind.OK


def test_a_prompt_and_an_answer_beyond_the_window_were_shifted() -> None:
    def shift(body: Json) -> Reply:
        completion = completion_of(body, valid_reply(body))
        completion["usage"] = {"prompt_tokens": 4000, "completion_tokens": 300}
        return Reply(body=json.dumps(completion))

    with TellingServer(LLAMA, shift) as server:
        (row,) = run(server, [text("german", 9_000)])
    assert row.metrics[0].outcome is OutcomeKind.TRUNCATED
