"""How decisions travel: the two forms that servers of decision models speak.

`POST /v1/decisions` (OpenAI; types of the `openai` package from 3.54 on: `types/decision.py`,
`types/decision_create_params.py`) and `POST /v1/systemone` (TypeSafe, and servers that
follow it; types of `typesafe-sdk` from 0.7 on: `_schemas/models.py`). Both carry a state and many
questions, and answer each with probabilities.

Answers are read strictly, question by question. What is missing, doubled, not asked for or does not
add up is a failure of that question alone. The types are silent about two things. They do not bound
the levels of a score, so more than ten are sent as a choice. They do not say how exactly
probabilities add up, so a hundredth, or what rounding each to two decimals may make, passes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pydantic import BaseModel, ValidationError

from dagengine.errors import JudgeError, RefusedError, UnparseableError
from dagengine.judges.wire.completions import Count, PromptDetails
from dagengine.judges.wire.dialects.failures import unreadable
from dagengine.judges.wire.requests import Body
from dagengine.prompts.decisions import Asked
from dagengine.prompts.json_values import shallow_value
from dagengine.question import NO_USAGE, Odds, Usage

MOST_LEVELS: Final = 10
"""How many levels a score may have; a rating of more becomes a choice of one of them."""
MOST_CHARACTERS: Final = 128_000
"""For a request of several questions: half of the 64 k tokens that one form documents, at four
characters each. Languages other than English have fewer."""
_TIE = 1e-6  # by how much another option may be likelier than the one that was chosen
_PLACE = re.compile(r"questions[\[.](\d+)")


class Said(NamedTuple):
    """The answer to one question: the option, the odds of all options, and the server's words."""

    value: str | bool
    odds: Odds
    raw: str


class Reply(NamedTuple):
    """What came back for a request: who answered, what it used, and each question's outcome."""

    model: str
    usage: Usage
    outcomes: list[Said | JudgeError]


class Form(Protocol):
    """One of the two wire forms; at most so many questions and characters go into one request."""

    name: str
    path: str
    most: int
    characters: int

    def body(self, model: str, state: Any, asked: Sequence[Asked]) -> Body:
        """The body of a request: questions about one state."""
        ...

    def read(self, content: bytes, asked: Sequence[Asked]) -> Reply:
        """Read a response to these questions; raises ProviderError for anything else."""
        ...

    def faults_in(self, body: Any, count: int) -> dict[int, str]:
        """The questions, of so many, that the body of a rejection finds fault with, and why."""
        ...


def _name(index: int) -> str:
    return f"q{index}"


class _Envelope(BaseModel):
    model: str
    answers: Any
    usage: Any = None


class _Tokens(BaseModel):
    input_tokens: Count = 0
    output_tokens: Count = 0
    input_tokens_details: PromptDetails = PromptDetails()


class Decisions:
    """`POST /v1/decisions`: answers in the order of the questions, each with its name.

    1 to 400 questions; a choice has 2 to 255 values. The state goes as one text, since parts of
    JSON are limited (32 levels, 10,000 values, 256 KiB), material as a part of its question.
    """

    name = "decisions"
    path = "/decisions"
    most = 400
    characters = MOST_CHARACTERS

    def body(self, model: str, state: Any, asked: Sequence[Asked]) -> Body:
        questions = [self._question(index, question) for index, question in enumerate(asked)]
        text = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
        return {"model": model, "input": text, "questions": questions}

    def _question(self, index: int, question: Asked) -> Body:
        instructions: Any = question.instructions
        if question.material:
            instructions = [
                {"type": "input_text", "text": question.instructions},
                {"type": "input_json", "data": question.material},
            ]
        body: Body = {"type": kind_of(question), "name": _name(index), "instructions": instructions}
        if body["type"] == "choice":
            body["choices"] = [_describe(option, "value") for option in question.options]
        elif body["type"] == "score":
            body["levels"] = [_describe(option, "label") for option in question.options]
        elif question.options:
            body["instructions"] = _with_meanings(instructions, question)
        return body

    def read(self, content: bytes, asked: Sequence[Asked]) -> Reply:
        envelope = _envelope(content, list)
        answers: list[Any] = envelope.answers
        names = [answer.get("name") if isinstance(answer, dict) else None for answer in answers]
        if not any(names) and len(answers) == len(asked):  # they are in order
            names = [_name(index) for index in range(len(asked))]
        outcomes: list[Said | JudgeError] = []
        for index, question in enumerate(asked):
            own_name = _name(index)
            pairs = zip(names, answers, strict=True)
            own = [answer for name, answer in pairs if name == own_name]
            outcomes.append(_outcome(own, question, _of_decisions))
        return Reply(envelope.model, _usage(envelope.usage), outcomes)

    def faults_in(self, body: Any, count: int) -> dict[int, str]:
        error = body if isinstance(body, dict) else {}
        match = _PLACE.search(str(error.get("param") or ""))
        ours = match is not None and int(match[1]) < count
        return {int(match[1]): str(error.get("message"))} if match and ours else {}


class SystemOne:
    """`POST /v1/systemone`: a mapping of names to questions, and one of names to answers.

    The hosted server documents 64 k tokens for a request and 32 k for a state. Its types do not
    bound the number of questions.
    """

    name = "systemone"
    path = "/systemone"
    most = 400
    characters = MOST_CHARACTERS

    def body(self, model: str, state: Any, asked: Sequence[Asked]) -> Body:
        questions = {_name(index): self._question(question) for index, question in enumerate(asked)}
        return {"model": model, "state": state, "questions": questions}

    def _question(self, question: Asked) -> Body:
        instructions: Any = question.instructions
        if question.material:
            instructions = {"instructions": question.instructions, "material": question.material}
        kind = kind_of(question)
        if kind == "choice":
            options = question.options
            criteria: Any = {str(option["value"]): option.get("description") for option in options}
        elif kind == "score":
            levels = [(option["value"], option.get("description")) for option in question.options]
            criteria = [f"{value}: {text}" if text else str(value) for value, text in levels]
        else:
            described = {
                "true": question.description_of(True),
                "false": question.description_of(False),
            }
            criteria = {name: text for name, text in described.items() if text is not None}
        body = {"type": "noul" if kind == "predicate" else kind, "instructions": instructions}
        return {**body, "criteria": criteria} if criteria else body

    def read(self, content: bytes, asked: Sequence[Asked]) -> Reply:
        envelope = _envelope(content, dict)
        answers: dict[str, Any] = envelope.answers
        outcomes: list[Said | JudgeError] = []
        for index, question in enumerate(asked):
            name = _name(index)
            own = answers.get(name)
            every = list(own) if isinstance(own, _Doubled) else [own]
            outcomes.append(_outcome(every if name in answers else [], question, _of_systemone))
        return Reply(envelope.model, _usage(envelope.usage), outcomes)

    def faults_in(self, body: Any, count: int) -> dict[int, str]:
        faults: dict[int, str] = {}
        details = body.get("detail") if isinstance(body, dict) else None
        for detail in details if isinstance(details, list) else ():
            path = detail.get("loc") if isinstance(detail, dict) else None
            steps = [str(step) for step in path] if isinstance(path, list) else []
            tail = steps[steps.index("questions") + 1 :] if "questions" in steps else []
            numbers = {_name(number): number for number in range(count)}
            if tail and tail[0] in numbers:
                where = ".".join(tail[1:])
                faults.setdefault(numbers[tail[0]], f"{where}: {detail.get('msg')}".lstrip(": "))
        return faults


FORMS: Final[Mapping[str, Form]] = {form.name: form for form in (Decisions(), SystemOne())}


def kind_of(question: Asked) -> str:
    """The type of question as it travels: a rating of many levels is a choice of one of them."""
    many = question.type == "score" and len(question.options) > MOST_LEVELS
    return "choice" if many else question.type


def _describe(option: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = option["value"] if key == "value" else str(option["value"])
    return {key: value, **{k: v for k, v in option.items() if k == "description"}}


def _with_meanings(instructions: Any, question: Asked) -> Any:
    """Instructions with the meaning of true and false, which a predicate has no other place for."""
    texts = {value: question.description_of(value) for value in (True, False)}
    meanings = " ".join(f"{value} means: {text}" for value, text in texts.items() if text)
    if isinstance(instructions, str):
        return f"{instructions}\n\n{meanings}"
    opening, *material = instructions
    return [{**opening, "text": f"{opening['text']}\n\n{meanings}"}, *material]


class _Doubled(list[Any]):
    """The values of a name that an object has more than once."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name not in fields:
            fields[name] = value
        elif isinstance(fields[name], _Doubled):
            fields[name].append(value)
        else:
            fields[name] = _Doubled([fields[name], value])
    return fields


def _envelope(content: bytes, answers: type[Any]) -> _Envelope:
    try:
        text = content.decode(errors="replace")
        envelope = _Envelope.model_validate(shallow_value(text, object_pairs_hook=_pairs))
        if not isinstance(envelope.answers, answers) or isinstance(envelope.answers, _Doubled):
            raise ValueError("its answers are of another form")
    except ValueError as error:  # pydantic's own is one, too
        raise unreadable(content, "decisions", str(error).splitlines()[0]) from None
    return envelope


def _usage(counts: Any) -> Usage:
    try:
        tokens = _Tokens.model_validate(counts)
    except ValidationError:
        return NO_USAGE
    cached = min(tokens.input_tokens_details.cached_tokens, tokens.input_tokens)
    return Usage(tokens.input_tokens, tokens.output_tokens, cached)


class _WrongError(ValueError):
    """Raised for an answer that does not fit its question."""


class _Read(Protocol):
    def __call__(self, answer: dict[str, Any], question: Asked) -> tuple[str | bool, Odds]: ...


def _outcome(answers: Sequence[Any], question: Asked, read: _Read) -> Said | JudgeError:
    """Outcome of the answers to one question: there has to be exactly one, which fits."""
    raw = json.dumps(answers[0] if len(answers) == 1 else list(answers), ensure_ascii=False)
    try:
        if len(answers) != 1:
            raise _WrongError("no answer" if not answers else f"{len(answers)} answers")
        answer = answers[0]
        if not isinstance(answer, dict):
            raise _WrongError(f"an answer is an object, not {answer!r:.80}")
        if answer.get("type") == "refusal":
            return RefusedError("the model declined to answer this question")
        value, odds = read(answer, question)
    except _WrongError as error:
        return UnparseableError(f"the answer cannot be used: {error}", raw)
    return Said(value, odds, raw)


def _of_decisions(answer: dict[str, Any], question: Asked) -> tuple[str | bool, Odds]:
    kind = _as_text(answer, kind_of(question))
    if kind == "predicate":
        return _of_chance(answer, "probability")
    stated = answer.get("probabilities")
    if not isinstance(stated, list) or not all(isinstance(entry, dict) for entry in stated):
        raise _WrongError(f"probabilities is not a list of objects: {stated!r:.80}")
    key = "value" if kind == "choice" else "label"
    pairs = [(entry.get(key), entry.get("probability")) for entry in stated]
    return _of_pairs(pairs, question, answer.get("choice") if kind == "choice" else None, kind)


def _of_systemone(answer: dict[str, Any], question: Asked) -> tuple[str | bool, Odds]:
    kind = kind_of(question)
    _as_text(answer, "noul" if kind == "predicate" else kind)
    if kind == "predicate":
        return _of_chance(answer, "noul")
    stated = answer.get("probabilities")
    if not isinstance(stated, dict):
        raise _WrongError(f"probabilities is not a mapping: {stated!r:.80}")
    names = range(len(question.options)) if kind == "score" else question.values
    values = dict(zip(map(str, names), question.values, strict=True))
    pairs = [(values.get(name, name), chance) for name, chance in stated.items()]
    if kind == "score" and not set(stated) <= set(values):
        raise _WrongError(f"a level was not asked for: {min(set(stated) - set(values))!r:.80}")
    return _of_pairs(pairs, question, answer.get("choice") if kind == "choice" else None, kind)


def _as_text(answer: dict[str, Any], wanted: str) -> str:
    kind = answer.get("type")
    if kind != wanted:
        raise _WrongError(f"it is of the type {kind!r:.80}, not {wanted!r}")
    return wanted


def _of_chance(answer: dict[str, Any], name: str) -> tuple[bool, Odds]:
    """True or false by the probability of true; what is as likely as not counts as true."""
    chance = _chance(answer.get(name))
    return chance >= 0.5, ((True, chance), (False, 1 - chance))


def _chance(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _WrongError(f"{value!r:.80} is not a probability from 0 to 1")
    return float(value)


def _of_pairs(
    pairs: Sequence[tuple[Any, Any]], question: Asked, chosen: Any, kind: str
) -> tuple[str | bool, Odds]:
    """The option chosen, and the odds of all in the order asked; they are made to add up to 1."""
    chances = _chances_of(pairs, question)
    total = math.fsum(chances.values())
    # Servers round each probability: the more there are, the further the sum is from 1.
    if abs(total - 1) > min(0.1, max(0.01, 0.005 * len(chances))):
        raise _WrongError(f"the probabilities add up to {total:.4g}, not to 1")
    odds = tuple((value, chances[value] / total) for value in question.values)
    likeliest = max(chances, key=lambda value: chances[value])
    if kind != "choice":
        return next(value for value in question.values if value == likeliest), odds
    if not isinstance(chosen, str) or chosen not in chances:
        raise _WrongError(f"the choice {chosen!r:.80} was not asked for")
    if chances[chosen] < chances[likeliest] - _TIE:
        raise _WrongError(f"the choice {chosen!r:.80} is less likely than {likeliest!r:.80}")
    return chosen, odds


def _chances_of(pairs: Sequence[tuple[Any, Any]], question: Asked) -> dict[Any, float]:
    """The probability of each option, as stated; raises unless each option has exactly one."""
    chances: dict[Any, float] = {}
    for value, stated in pairs:
        if value not in question.values or isinstance(value, bool):
            raise _WrongError(f"{value!r:.80} was not asked for")
        if value in chances:
            raise _WrongError(f"{value!r:.80} has two probabilities")
        chances[value] = _chance(stated)
    missing = [value for value in question.values if value not in chances]
    if missing:
        raise _WrongError(f"there is no probability of {missing[0]!r:.80}")
    return chances


def shares(usage: Usage, count: int) -> list[Usage]:
    """Usage of each of so many questions in a request: equal parts, which add up to all of it."""
    wholes = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    usages = []
    for index in range(count):
        parts = (whole * (index + 1) // count - whole * index // count for whole in wholes)
        usages.append(Usage(*parts))
    return usages
