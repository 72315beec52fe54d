"""Decisions of ordinary chat models: one token, and the probabilities of what it might have been.

The options get the labels A to Z, and the model is to answer with a label. Its probabilities of the
labels, made to add up to 1, are the odds. Hendrycks et al. 2021 (https://arxiv.org/abs/2009.03300)
read answers to questions with options this way. `mass` is how much of all probability fell on
labels. Below a half the model would rather say something else: the likeliest label is the verdict,
but its odds are not known.

What a server tells is what counts. OpenAI's protocol gives at most 20 alternatives. An option that
is not among them is less likely than each of them, which bounds it (`probabilities.masses`).
llama.cpp's probabilities are those from before its grammar and its sampling.
"""

from __future__ import annotations

import json
import math
import string
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar, Unpack

from pydantic import BaseModel

from dagengine.errors import InputError, JudgeError, UnparseableError, UnsupportedError
from dagengine.judges.openai import OpenAIJudge
from dagengine.judges.wire.client import EndpointJudge, EndpointSettings
from dagengine.judges.wire.completions import (
    Completion,
    read_completion,
    reply_text,
    usage_of,
)
from dagengine.judges.wire.connection import CHAT, Connection
from dagengine.judges.wire.dialects.attempts import Attempt, ask_lawfully
from dagengine.judges.wire.dialects.completion_shapes import with_system_in_front
from dagengine.judges.wire.dialects.demands import Demands
from dagengine.judges.wire.probabilities import alternatives
from dagengine.judges.wire.requests import Body
from dagengine.prompts.decisions import (
    Asked,
    Shows,
    answer_fields,
    odds_in_words,
    option_word,
    read_wording,
)
from dagengine.prompts.evidence import Evidence
from dagengine.prompts.instructions import messages_for
from dagengine.prompts.parsing import valid_answer
from dagengine.prompts.probabilities.masses import Masses
from dagengine.question import Answer, Capabilities, Judge, Message, Question

T = TypeVar("T", bound=BaseModel)

LABELS: Final = string.ascii_uppercase
_ALTERNATIVES = 20
_ASKED: Final = frozenset({"alternatives", "limit", "system", "temperature"})
_DECIDE = (
    "Decide one question of the evaluation.\n\n"
    "Question: {instructions}\n\nOptions:\n{options}\n\n"
    "Answer with the letter of one option and nothing else."
)


def chat_of(asked: Asked, state: str) -> tuple[Message, ...]:
    """The messages that ask a chat for the label of an option; the state is JSON.

    Raises UnsupportedError for more options than there are labels.
    """
    if len(asked.values) > len(LABELS):
        raise UnsupportedError(
            f"{len(asked.values)} options are more than the {len(LABELS)} labels from A to Z"
        )
    lines = []
    for label, value in zip(LABELS, asked.values, strict=False):
        meaning = asked.description_of(value)
        lines.append(f"{label}: {option_word(value)}" + (f" ({meaning})" if meaning else ""))
    options = "\n".join(lines)
    evidence = [Evidence("state", state)]
    if asked.material:
        evidence.append(Evidence("material", json.dumps(asked.material, ensure_ascii=False)))
    step = _DECIDE.format(instructions=asked.instructions, options=options)
    return messages_for(step, evidence)


async def by_label(
    judge: EndpointJudge, connection: Connection, question: Question[T]
) -> Answer[T] | JudgeError:
    """The answer of a chat to a question in the form of `prompts.decisions`, or the error."""
    import openai

    async def ask(demands: Demands) -> Answer[T] | JudgeError:
        try:
            return await _ask(judge, connection, question, demands)
        except (JudgeError, openai.OpenAIError) as error:
            return judge.failure(error, question)

    def attempt(demands: Demands) -> Attempt[T]:
        return Attempt(demands, _ASKED, alternatives=_ALTERNATIVES, send=partial(ask, demands))

    return await ask_lawfully(judge.hypotheses, question, connection.exploring, attempt)


async def _ask(
    judge: EndpointJudge, connection: Connection, question: Question[T], demands: Demands
) -> Answer[T]:
    """One request with such demands; raises JudgeError, and what the client raises."""
    decision = read_wording(question)
    body: Body = {
        "model": judge.model,
        "messages": chat_of(decision, question.messages[0]["content"]),
        demands.limit_name: 1,
        **({"temperature": 0} if demands.temperature else {}),
        "logprobs": True,
        "top_logprobs": int(min(_ALTERNATIVES, demands.alternatives)),
        **judge.parameters,
    }
    if not demands.system:
        body = with_system_in_front(body)
    completion = read_completion(await connection.sender(CHAT)(body), question.messages)
    usage = usage_of(completion)
    try:
        value, masses = _read(completion, decision)
        odds, mass = masses.odds, masses.total
        text = completion.choices[0].message.text
        raw = json.dumps({"said": text, "mass": mass, "odds": odds}, ensure_ascii=False)
        stated, unknown = "the likeliest label", ": its odds are unknown"
        if odds:
            stated, unknown = odds_in_words(odds), ""
        reason = f"{stated}; {mass:.3g} of all probability fell on the labels{unknown}"
        fields = answer_fields(question.answer_type, value, reason)
        valid = valid_answer(question, fields, raw)
        return Answer(valid, raw, None, usage, f"labels {judge.model}", odds, mass=mass)
    except JudgeError as error:
        error.tokens = usage.counts
        raise


def _read(completion: Completion, asked: Asked) -> tuple[str | bool, Masses]:
    """The most likely option, and what is known of all."""
    text = reply_text(completion)
    try:
        if completion.choices[0].logprobs is None:
            raise ValueError("no probabilities, or in some other form")
        tokens = alternatives(completion, range(len(completion.token_texts[:1])))
    except ValueError:  # pydantic's among them
        raise UnsupportedError(
            "the server gave no token probabilities, but labels need them"
        ) from None
    chances = [(token, math.exp(logprob)) for token, logprob in tokens.get(0, ()) if logprob <= 0]
    labelled = dict(zip(LABELS, asked.values, strict=False))
    options = dict.fromkeys(asked.values, 0.0)
    for token, chance in chances:
        if (label := token.strip()) in labelled:
            options[labelled[label]] += chance
    likeliest = max(options, key=lambda value: options[value])
    if not options[likeliest]:
        raise UnparseableError(f"no label is among the likely answers; it said {text!r:.40}", text)
    return likeliest, Masses.of(options, list(map(itemgetter(1), chances)))


def writer_judge(model: Any) -> Judge:
    """The judge for texts that `writer=` names; raises InputError for one that writes none."""
    from dagengine.judges.resolve import as_judge  # which knows the judges that have writers

    writer = as_judge(model)
    if writer.capabilities.decides:
        raise InputError(f"writer= must be a judge that writes texts; {writer.identity} does not")
    return writer


class LabelJudge(EndpointJudge):
    """Decides with a chat model that returns token probabilities: one token, one label per option.

    For `shows` see `DecisionJudge`; everything else is as for `OpenAIJudge`. The default `writer`
    is the same model as a chat judge. Raises UnsupportedError for more than 26 options and if the
    server gives no probabilities.
    """

    capabilities = Capabilities(schema=False, text=False, decides=True, logprobs=True)
    chats = True

    def __init__(
        self,
        model: str = "gpt-4o",
        *,
        writer: Any = None,
        shows: Shows = "case",
        **settings: Unpack[EndpointSettings],
    ) -> None:
        super().__init__(model, **settings)
        self.shows: Shows = shows
        own_writer = OpenAIJudge(model, **settings) if writer is None else writer
        self.writer = writer_judge(own_writer)

    @property
    def _name(self) -> str:
        return f"labels {self.model}"

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises JudgeError."""
        async with self.session() as connection:
            outcome = await by_label(self, connection, question)
        if isinstance(outcome, JudgeError):
            raise self._hidden(outcome)
        return outcome
