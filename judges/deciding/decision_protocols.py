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
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import compress, dropwhile
from operator import eq, methodcaller
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, BeforeValidator

from dagengine.errors import JudgeError, RefusedError, UnparseableError
from dagengine.judges.wire.client import OPENAI, Provider
from dagengine.judges.wire.completions import Counts, usage_of
from dagengine.judges.wire.dialects.error_responses import unreadable
from dagengine.judges.wire.requests import Body
from dagengine.prompts.decisions import Asked
from dagengine.prompts.json_in_text import fields_of, items_of, shallow_value
from dagengine.question import Odds, Usage

MOST_LEVELS: Final = 10
"""How many levels a score may have; a rating of more becomes a choice of one of them."""
MOST_CHARACTERS: Final = 128_000
"""For a request of several questions: half of the 64 k tokens that one form documents, at four
characters each. Languages other than English have fewer."""
_TIE = 1e-6  # by how much another option may be likelier than the one that was chosen
_PLACE = re.compile(r"questions[\[.](\d+)")


class DecidedAnswer(NamedTuple):
    """The answer to one question: the option, the odds of all options, and the server's words."""

    value: str | bool
    odds: Odds
    raw: str


class DecisionReply(NamedTuple):
    """What came back for a request: who answered, what it used, and each question's outcome."""

    model: str
    usage: Usage
    outcomes: list[DecidedAnswer | JudgeError]


def _names(count: int) -> list[str]:
    """The names of so many questions."""
    return list(map("q{}".format, range(count)))


class _Envelope(BaseModel):
    model: str
    answers: Any
    usage: Annotated[Counts, BeforeValidator(fields_of)] = Counts()


class Form:
    """One of the two wire forms; at most so many questions and characters go into one request.

    Questions go to `model` of the `provider` if nobody says otherwise.
    """

    name = ""
    model = ""
    provider: Provider
    most = 400
    characters = MOST_CHARACTERS
    predicate = ("predicate", "probability")
    """The names of a question for true or false, and of the probability of true."""
    answers: type[Any] = list

    @property
    def path(self) -> str:
        """The path below the base URL."""
        return f"/{self.name}"

    def body(self, model: str, state: Any, asked: Sequence[Asked]) -> Body:
        """The body of a request: questions about one state."""
        raise NotImplementedError

    def read(self, content: bytes, asked: Sequence[Asked]) -> DecisionReply:
        """Read a response to these questions; raises ProviderError for anything else."""
        try:
            text = content.decode(errors="replace")
            envelope = _Envelope.model_validate(shallow_value(text, object_pairs_hook=_pairs))
            answers = envelope.answers
            if not isinstance(answers, self.answers) or isinstance(answers, _Doubled):
                raise ValueError("its answers are of another form")
        except ValueError as error:  # pydantic's own is one, too
            raise unreadable(content, "decisions", str(error).splitlines()[0]) from None
        outcomes = list(map(self._outcome, self._by_question(answers, len(asked)), asked))
        return DecisionReply(envelope.model, usage_of(envelope), outcomes)

    def faults_in(self, body: Any, count: int) -> dict[int, str]:
        """The questions, of so many, that the body of a rejection finds fault with, and why."""
        raise NotImplementedError

    def _by_question(self, answers: Any, count: int) -> Iterable[list[Any]]:
        """All that was answered to each of so many questions."""
        raise NotImplementedError

    def _outcome(self, answers: list[Any], question: Asked) -> DecidedAnswer | JudgeError:
        """Outcome of the answers to one question: there has to be exactly one, which fits."""
        raw = json.dumps(answers[0] if len(answers) == 1 else answers, ensure_ascii=False)
        try:
            if len(answers) != 1:
                raise ValueError("no answer" if not answers else f"{len(answers)} answers")
            answer, kind = answers[0], wire_kind(question)
            if not isinstance(answer, dict):
                raise ValueError(f"an answer is an object, not {answer!r:.80}")
            if answer.get("type") == "refusal":
                return RefusedError("the model declined to answer this question")
            own_type, chance_key = {"predicate": self.predicate}.get(kind, (kind, ""))
            if answer.get("type") != own_type:
                raise ValueError(f"it is of the type {answer.get('type')!r:.80}, not {own_type!r}")
            if chance_key:  # what is as likely as not counts as true
                chance = _chance(answer.get(chance_key))
                return DecidedAnswer(chance >= 0.5, ((True, chance), (False, 1 - chance)), raw)
            pairs = self._pairs(answer.get("probabilities"), question, kind)
            chances = _chances_of(pairs, question)
            total = math.fsum(chances.values())  # nearly 1
            odds = tuple((value, chances[value] / total) for value in question.meanings)
            return DecidedAnswer(_option_of(answer, chances, kind), odds, raw)
        except ValueError as error:
            return UnparseableError(f"the answer cannot be used: {error}", raw)

    def _pairs(self, stated: Any, question: Asked, kind: str) -> Iterable[tuple[Any, Any]]:
        """Each option with its probability, as stated; raises ValueError for another form."""
        raise NotImplementedError


class Decisions(Form):
    """`POST /v1/decisions`: answers in the order of the questions, each with its name.

    1 to 400 questions; a choice has 2 to 255 values. The state goes as one text, since parts of
    JSON are limited (32 levels, 10,000 values, 256 KiB), material as a part of its question.
    """

    name = "decisions"
    model = "gpt-6-luna"
    provider = OPENAI._replace(name=name)

    def body(self, model: str, state: Any, asked: Sequence[Asked]) -> Body:
        questions = list(map(self._question, _names(len(asked)), asked))
        text = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
        return {"model": model, "input": text, "questions": questions}

    def _question(self, name: str, question: Asked) -> Body:
        kind, instructions = wire_kind(question), question.instructions
        if kind == "predicate" and question.options:  # true and false have no other place
            texts = sorted(question.meanings.items(), reverse=True)
            meanings = (f"{value} means: {text}" for value, text in texts if text)
            instructions = f"{instructions}\n\n{' '.join(meanings)}"
        body: Body = {"type": kind, "name": name, "instructions": instructions}
        if question.material:
            body["instructions"] = [
                {"type": "input_text", "text": instructions},
                {"type": "input_json", "data": question.material},
            ]
        if kind == "choice":
            body["choices"] = question.options
        elif kind == "score":
            body["levels"] = list(map(_level, question.options))
        return body

    def _by_question(self, answers: Any, count: int) -> Iterable[list[Any]]:
        names: Sequence[Any] = list(map(methodcaller("get", "name"), map(fields_of, answers)))
        if not any(names) and len(answers) == count:  # they are in order
            names = _names(count)
        for own_name in _names(count):
            yield list(compress(answers, map(partial(eq, own_name), names)))

    def _pairs(self, stated: Any, question: Asked, kind: str) -> Iterable[tuple[Any, Any]]:
        if not isinstance(stated, list) or not all(isinstance(entry, dict) for entry in stated):
            raise ValueError(f"probabilities is not a list of objects: {stated!r:.80}")
        key = {"choice": "value"}.get(kind, "label")
        return [(entry.get(key), entry.get("probability")) for entry in stated]

    def faults_in(self, body: Any, count: int) -> dict[int, str]:
        error = fields_of(body)
        match = _PLACE.search(str(error.get("param") or ""))
        if match is None or int(match[1]) >= count:
            return {}
        return {int(match[1]): str(error.get("message"))}


class SystemOne(Form):
    """`POST /v1/systemone`: a mapping of names to questions, and one of names to answers.

    The hosted server documents 64 k tokens for a request and 32 k for a state. Its types do not
    bound the number of questions.
    """

    name = "systemone"
    model = "jev-latest"
    provider = Provider(
        name, "TYPESAFE_BASE_URL", "TYPESAFE_API_KEY", "https://api.typesafe.ai/v1", path="/v1"
    )
    predicate = ("noul", "noul")
    answers = dict

    def body(self, model: str, state: Any, asked: Sequence[Asked]) -> Body:
        questions = dict(zip(_names(len(asked)), map(self._question, asked), strict=True))
        return {"model": model, "state": state, "questions": questions}

    def _question(self, question: Asked) -> Body:
        instructions: Any = question.instructions
        if question.material:
            instructions = {"instructions": question.instructions, "material": question.material}
        kind, meanings = wire_kind(question), question.meanings
        if kind == "choice":
            criteria: Any = dict(zip(map(str, meanings), meanings.values(), strict=True))
        elif kind == "score":
            criteria = []
            for value, text in meanings.items():
                criteria.append(f"{value}: {text}" if text else str(value))
        else:
            texts = {"true": meanings.get(True), "false": meanings.get(False)}
            criteria = {name: text for name, text in texts.items() if text is not None}
            kind = self.predicate[0]
        body: Body = {"type": kind, "instructions": instructions}
        if criteria:
            body["criteria"] = criteria
        return body

    def _by_question(self, answers: Any, count: int) -> Iterable[list[Any]]:
        for name in _names(count):
            own = answers.get(name, _Doubled())
            yield own if isinstance(own, _Doubled) else [own]

    def _pairs(self, stated: Any, question: Asked, kind: str) -> Iterable[tuple[Any, Any]]:
        if not isinstance(stated, dict):
            raise ValueError(f"probabilities is not a mapping: {stated!r:.80}")
        names: Iterable[Any] = question.meanings
        if kind == "score":
            names = range(len(question.options))
        values = dict(zip(map(str, names), question.meanings, strict=True))
        unknown = stated.keys() - values.keys()
        if kind == "score" and unknown:
            raise ValueError(f"a level was not asked for: {min(unknown)!r:.80}")
        return [(values.get(name, name), chance) for name, chance in stated.items()]

    def faults_in(self, body: Any, count: int) -> dict[int, str]:
        faults: dict[int, str] = {}
        numbers = dict(zip(_names(count), range(count), strict=True))
        for detail in map(fields_of, items_of(fields_of(body).get("detail"))):
            steps = map(str, items_of(detail.get("loc")))
            tail = list(dropwhile("questions".__ne__, steps))[1:]
            if tail and tail[0] in numbers:
                where = ".".join(tail[1:])
                faults.setdefault(numbers[tail[0]], f"{where}: {detail.get('msg')}".lstrip(": "))
        return faults


FORMS: Final[Mapping[str, Form]] = {"decisions": Decisions(), "systemone": SystemOne()}


def wire_kind(question: Asked) -> str:
    """The type of question as it travels: a rating of many levels is a choice of one of them."""
    many = question.type == "score" and len(question.options) > MOST_LEVELS
    return "choice" if many else question.type


def _level(option: Mapping[str, Any]) -> dict[str, Any]:
    """An option as a level, which has a label in the place of a value."""
    fields = dict(option)
    return {"label": str(fields.pop("value")), **fields}


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


def _chance(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{value!r:.80} is not a probability from 0 to 1")
    return float(value)


def _chances_of(pairs: Iterable[tuple[Any, Any]], question: Asked) -> dict[Any, float]:
    """The probability of each option, as stated.

    Raises ValueError unless each option has exactly one, and they add up to about 1.
    """
    chances: dict[Any, float] = {}
    values = list(question.meanings)
    for value, stated in pairs:
        if value not in values or isinstance(value, bool):
            raise ValueError(f"{value!r:.80} was not asked for")
        if value in chances:
            raise ValueError(f"{value!r:.80} has two probabilities")
        # The value of the question: a stated 1 is equal to true.
        chances[values[values.index(value)]] = _chance(stated)
    for value in values:
        if value not in chances:
            raise ValueError(f"there is no probability of {value!r:.80}")
    total = math.fsum(chances.values())
    # Servers round each probability: the more there are, the further the sum is from 1.
    if abs(total - 1) > min(0.1, max(0.01, 0.005 * len(chances))):
        raise ValueError(f"the probabilities add up to {total:.4g}, not to 1")
    return chances


def _option_of(answer: dict[str, Any], chances: Mapping[Any, float], kind: str) -> Any:
    """The option that was chosen: of a score the likeliest level, the first one of several."""
    likeliest = max(chances, key=chances.__getitem__)
    if kind != "choice":
        return likeliest
    chosen = answer.get("choice")
    if not isinstance(chosen, str) or chosen not in chances:
        raise ValueError(f"the choice {chosen!r:.80} was not asked for")
    if chances[chosen] < chances[likeliest] - _TIE:
        raise ValueError(f"the choice {chosen!r:.80} is less likely than {likeliest!r:.80}")
    return chosen


def shares(usage: Usage, count: int) -> list[Usage]:
    """Usage of each of so many questions in a request: equal parts, which add up to all of it."""
    wholes = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    usages = []
    for index in range(count):
        parts = (whole * (index + 1) // count - whole * index // count for whole in wholes)
        usages.append(Usage(*parts))
    return usages
