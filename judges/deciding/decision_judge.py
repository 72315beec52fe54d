"""Judges that decide and give no text: probabilities of every option.

A decision model gets one request with a state and typed questions. An ordinary chat model gives one
token: the options get the labels A to Z, and the model is to answer with a label. Its probabilities
of the labels, made to add up to 1, are the odds. Hendrycks et al. 2021
(https://arxiv.org/abs/2009.03300) read answers to questions with options this way. `mass` is how
much of all probability fell on labels. Below a half the model would rather say something else: the
likeliest label is the verdict, but its odds are not known.

What a server tells is what counts. OpenAI's protocol gives at most 20 alternatives. An option that
is not among them is less likely than each of them, which bounds it (`probabilities.options`).
llama.cpp's probabilities are those from before its grammar and its sampling.
"""

from __future__ import annotations

import json
import logging
import math
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import filterfalse
from operator import itemgetter
from typing import Any, Final, Literal, TypeVar, Unpack

import anyio
from pydantic import BaseModel

from dagengine.errors import (
    InputError,
    JudgeError,
    ProviderError,
    UnparseableError,
    UnsupportedError,
    did_you_mean,
)
from dagengine.judges.deciding.decision_protocols import FORMS, DecisionReply, Form, shares
from dagengine.judges.openai import OpenAIJudge
from dagengine.judges.wire.client import EndpointJudge, EndpointSettings
from dagengine.judges.wire.completions import Completion, read_completion, reply_text, usage_of
from dagengine.judges.wire.connection import CHAT, Connection
from dagengine.judges.wire.dialects.fallback_attempts import Attempt, ask_lawfully
from dagengine.judges.wire.dialects.feature_fallback import Demands
from dagengine.judges.wire.dialects.response_shapes import with_system_in_front
from dagengine.judges.wire.logprobs import alternatives
from dagengine.judges.wire.requests import Body
from dagengine.prompts.decisions import (
    Asked,
    Shows,
    answer_fields,
    odds_in_words,
    option_word,
    read_wording,
    state_text,
)
from dagengine.prompts.evidence import Evidence
from dagengine.prompts.instructions import messages_for
from dagengine.prompts.parsing import valid_answer
from dagengine.prompts.probabilities.options import Masses
from dagengine.question import NO_USAGE, Answer, Capabilities, Judge, Message, Packs, Question

T = TypeVar("T", bound=BaseModel)
_log = logging.getLogger(__name__)

_NO_MODEL = 501
# Questions of a case that may ride along before anybody asks them.
_AHEAD = 32

LABELS: Final = string.ascii_uppercase
_ALTERNATIVES = 20
_ASKED: Final = frozenset({"alternatives", "limit", "system", "temperature"})
_DECIDE = (
    "Decide one question of the evaluation.\n\n"
    "Question: {instructions}\n\nOptions:\n{options}\n\n"
    "Answer with the letter of one option and nothing else."
)


class DecisionJudge(EndpointJudge):
    """Decides with a decision model: gives the probability of every verdict, and no text.

    `form` is the protocol. `decisions` is OpenAI's `POST /v1/decisions`; the key is OPENAI_API_KEY.
    `systemone` is `POST /v1/systemone` of TypeSafe, whose key is TYPESAFE_API_KEY, and of local
    servers, which `base_url` names. `judges.deciding.decision_protocols` has both, and the sources.
    `base_url`, `api_key`, `client`, `parameters` and `max_bytes` as for `OpenAIJudge`.

    With `shows="case"`, it sees the texts of the case, including fields that a node does not read,
    for instance the expected output. With `shows="reads"`, it sees only what the node reads. It
    never sees the name, tags, comments or metadata of the case. Tasks, extractions and written
    reasons go to the `writer`, any other judge (see `model=`). Without a writer they are an error
    before the first call.

    The most likely verdict counts (true from 0.5 on). Verdicts have odds instead of reasons. There
    is no temperature, seed or token limit; a repetition asks the same again. `model` may be an
    alias: the `mode` of each answer names the model that answered. With a `version`, answers of
    other versions are an error; the version is part of the identity.

    If the server knows the protocol but has no decision model (HTTP 501), its chat endpoint is
    asked from then on, as in `LabelJudge`. One warning and each answer's `mode` say so.

    Questions about one case are sent in one request. Each has its own answer and key, and counts
    for the limits; `pack=False` sends each one separately. With `speculate="packed"`, up to 32
    questions (or the given number) that a later verdict may need are sent along. Unneeded answers
    change no score and are counted in `Totals.unneeded`. `"never"` sends none of them. Neither
    setting affects the store. Answers are the same if the server's answers depend only on state and
    question. To check this, compare both settings as two judges of one benchmark.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        form: str = "decisions",
        writer: Any = None,
        shows: Shows = "case",
        version: str | None = None,
        pack: bool = True,
        speculate: Literal["never", "packed"] | int = "packed",
        **settings: Unpack[EndpointSettings],
    ) -> None:
        if form not in FORMS:
            near = did_you_mean(str(form), FORMS)
            forms = " or ".join(map(repr, FORMS))
            raise InputError(f"form must be {forms}, got {form!r:.80}{near and f'; {near}'}")
        if shows not in ("case", "reads"):
            raise InputError(f"shows must be 'case' or 'reads', got {shows!r:.80}")
        steps = {"never": 0, "packed": _AHEAD}
        most = steps.get(speculate) if isinstance(speculate, str) else speculate
        if isinstance(most, bool) or not isinstance(most, int) or most < 0:
            raise InputError(
                "speculate must be 'never', 'packed', or how many questions of a case may be asked "
                f"ahead (a whole number from 0 on), got {speculate!r:.80}"
            )
        if not isinstance(pack, bool):
            raise InputError(f"pack must be True or False, got {pack!r:.80}")
        self.form: Form = FORMS[form]
        packs = Packs(self.form.most, self.form.characters, most) if pack else None
        self.capabilities = Capabilities(schema=False, text=False, decides=True, packs=packs)
        super().__init__(model or self.form.model, **settings)
        self.provider = self.form.provider
        self.shows: Shows = shows
        self.version = version
        self.writer = None if writer is None else writer_judge(writer)
        self._alone = not pack
        self._labelling = False

    @property
    def _name(self) -> str:
        return super()._name + (f" ({self.version})" if self.version else "")

    @property
    def _process_name(self) -> str:
        return f"{self._name} one by one" if self._alone else self._name

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises JudgeError. The question has the form of `prompts.decisions`."""
        (outcome,) = await self.answer_all([question])
        if isinstance(outcome, JudgeError):
            raise outcome
        return outcome

    async def answer_all(
        self,
        questions: Sequence[Question[T]],
        *,
        on_request: Callable[[], None] = lambda: None,
        ahead: int = 0,
    ) -> list[Answer[T] | JudgeError]:
        """Ask all questions in one request and return their outcomes; all have one state.

        A question that the server refuses as it stands fails alone: the others are sent again
        without it; `on_request` is called for each request. The last `ahead` questions, which
        nobody wants yet, are not put to a chat. Raises JudgeError if the request as a whole
        failed.
        """
        states = set(map(state_text, questions))
        if not 1 <= len(questions) <= self.form.most or len(states) > 1:
            raise InputError(
                f"a request must have 1 to {self.form.most} questions about one state, got "
                f"{len(questions)} about {len(states)}"
            )
        if self._labelling:
            return await self._by_labels(questions, on_request, ahead)
        outcomes: dict[int, Answer[T] | JudgeError] = {}
        pending = list(range(len(questions)))
        while pending:
            batch = list(map(questions.__getitem__, pending))
            on_request()
            answered = await self._request(batch)
            if answered is None:
                return await self._by_labels(questions, on_request, ahead)
            outcomes.update((pending[index], outcome) for index, outcome in answered.items())
            pending = list(filterfalse(outcomes.__contains__, pending))
        return list(map(outcomes.__getitem__, range(len(questions))))

    async def _request(
        self, questions: Sequence[Question[T]]
    ) -> Mapping[int, Answer[T] | JudgeError] | None:
        """The outcomes by the questions' indices: of all, or of those that the server rejects.

        None if the server has no decision model, which is said when it is first found out.
        """
        import openai

        decisions = list(map(read_wording, questions))
        body = self.form.body(self.model, json.loads(state_text(questions[0])), decisions)
        try:
            async with self.session() as connection:
                send = connection.sender(self.form.path)
                content = await send({**body, **self._parameters})
            reply = self.form.read(content, decisions)
        except (JudgeError, openai.OpenAIError) as error:
            faults = self._faults(error, len(questions))
            failure = self._hidden(self.failure(error, questions[0]))
        else:
            return dict(enumerate(self._answers(questions, reply)))
        # Outside of the handler: what is raised inside keeps the other error with it.
        if isinstance(failure, ProviderError) and failure.status == _NO_MODEL:
            self._turn_to_labels(failure)
            return None
        if faults and len(questions) > 1:
            return faults
        raise failure

    def _faults(self, error: Any, count: int) -> dict[int, JudgeError]:
        """The questions, of so many, that a rejection finds fault with."""
        status, faults = getattr(error, "status_code", None), dict[int, JudgeError]()
        if status in (400, 422):
            for index, why in self.form.faults_in(getattr(error, "body", None), count).items():
                fault = ProviderError(f"HTTP {status}: {why}", transient=False, status=status)
                faults[index] = self._hidden(fault)
        return faults

    def _turn_to_labels(self, failure: ProviderError) -> None:
        """Decide by labels from now on; the first time is told."""
        if not self._labelling:
            self._labelling = True
            # A chat is asked one question at a time, so that there is nothing to pack.
            self.capabilities = replace(self.capabilities, packs=None)
            _log.warning(
                "%s; from now on, its chat is asked for labels, with odds from token probabilities",
                failure,
            )

    async def _by_labels(
        self, questions: Sequence[Question[T]], on_request: Callable[[], None], ahead: int
    ) -> list[Answer[T] | JudgeError]:
        """Ask a chat all questions at the same time."""
        outcomes: dict[int, Answer[T] | JudgeError] = {}

        async def ask(index: int, question: Question[T]) -> None:
            on_request()
            outcome = outcomes[index] = await by_label(self, connection, question)
            if isinstance(outcome, JudgeError):
                self._hidden(outcome)

        async with self.session() as connection, anyio.create_task_group() as group:
            for index, question in enumerate(questions[: len(questions) - ahead]):
                group.start_soon(ask, index, question)
        unanswered = UnsupportedError(
            "a chat answers one question at a time; nobody wants this one yet"
        )
        return [outcomes.get(index, unanswered) for index in range(len(questions))]

    def failure(self, error: Any, question: Question[Any]) -> JudgeError:
        if getattr(error, "status_code", None) == _NO_MODEL:
            return ProviderError(
                f"HTTP {_NO_MODEL}: the server knows {self.form.path} but {self.model!r} is no "
                "decision model",
                transient=False,
                status=_NO_MODEL,
            )
        failure = super().failure(error, question)
        whys = self.form.faults_in(getattr(error, "body", None), 1)
        if whys and isinstance(failure, ProviderError):
            failure.args = (f"{failure}: {whys[0]}",)
        return failure

    def _answers(
        self, questions: Sequence[Question[T]], reply: DecisionReply
    ) -> Iterator[Answer[T] | JudgeError]:
        """The answers in a reply; raises ProviderError if another version answered."""
        if self.version is not None and reply.model != self.version:
            message = f"the version {reply.model!r} answered, but version= asks for "
            failure = ProviderError(f"{message}{self.version!r}", transient=False)
            raise self._hidden(failure)
        mode, usages = f"{self.form.name} {reply.model}", shares(reply.usage, len(questions))
        for question, outcome, usage in zip(questions, reply.outcomes, usages, strict=True):
            try:
                if isinstance(outcome, JudgeError):
                    raise outcome
                reason = odds_in_words(outcome.odds)
                fields = answer_fields(question.answer_type, outcome.value, reason)
                value = valid_answer(question, fields, outcome.raw)
                yield Answer(value, outcome.raw, None, usage, mode, outcome.odds)
            except JudgeError as error:
                error.tokens = usage.counts
                yield self._hidden(error)


def chat_of(asked: Asked, state: str) -> tuple[Message, ...]:
    """The messages that ask a chat for the label of an option; the state is JSON.

    Raises UnsupportedError for more options than there are labels.
    """
    meanings = asked.meanings
    if len(meanings) > len(LABELS):
        raise UnsupportedError(
            f"{len(meanings)} options are more than the {len(LABELS)} labels from A to Z"
        )
    lines = []
    for label, (value, meaning) in zip(LABELS, meanings.items(), strict=False):
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
        usage = NO_USAGE
        try:
            body = _body(judge, question, decision, demands)
            completion = read_completion(await connection.sender(CHAT)(body), question.messages)
            usage = usage_of(completion)
            return _labelled_answer(judge, question, completion, decision)
        except (JudgeError, openai.OpenAIError) as error:
            failure = judge.failure(error, question)
            failure.tokens = usage.counts
            return failure

    def attempt(demands: Demands) -> Attempt[T]:
        return Attempt(demands, _ASKED, alternatives=_ALTERNATIVES, send=partial(ask, demands))

    decision = read_wording(question)
    return await ask_lawfully(judge.hypotheses, question, connection.exploring, attempt)


def _body(judge: EndpointJudge, question: Question[Any], decision: Asked, demands: Demands) -> Body:
    """The body of a request with such demands; raises UnsupportedError as `chat_of`."""
    body: Body = {
        "model": judge.model,
        "messages": chat_of(decision, question.messages[0]["content"]),
        demands.limit_name: 1,
        **({"temperature": 0} if demands.temperature else {}),
        "logprobs": True,
        "top_logprobs": int(min(_ALTERNATIVES, demands.alternatives)),
        **judge.parameters,
    }
    return body if demands.system else with_system_in_front(body)


def _labelled_answer(
    judge: EndpointJudge, question: Question[T], completion: Completion, decision: Asked
) -> Answer[T]:
    """The answer by what a completion tells of the labels; raises JudgeError."""
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
    labelled = dict(zip(LABELS, decision.meanings, strict=False))
    options = dict.fromkeys(decision.meanings, 0.0)
    for token, chance in chances:
        if (label := token.strip()) in labelled:
            options[labelled[label]] += chance
    likeliest = max(options, key=options.__getitem__)
    if not options[likeliest]:
        raise UnparseableError(f"no label is among the likely answers; it said {text!r:.40}", text)
    masses = Masses.of(options, list(map(itemgetter(1), chances)))
    odds, mass = masses.odds, masses.total
    raw = json.dumps({"said": text, "mass": mass, "odds": odds}, ensure_ascii=False)
    stated, unknown = "the likeliest label", ": its odds are unknown"
    if odds:
        stated, unknown = odds_in_words(odds), ""
    reason = f"{stated}; {mass:.3g} of all probability fell on the labels{unknown}"
    fields = answer_fields(question.answer_type, likeliest, reason)
    valid = valid_answer(question, fields, raw)
    return Answer(valid, raw, None, usage_of(completion), f"labels {judge.model}", odds, mass=mass)


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
        if writer is None:
            writer = OpenAIJudge(model, **settings)
        self.writer = writer_judge(writer)

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
