"""Judges without a model: by a script, by recordings, or by the truth with known chances of errors.

With chances that are known, what is measured of a judge can be compared with the truth.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, combinations, product, repeat
from operator import ne
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from dagengine.errors import InputError, JudgeError, RecordingMissError, UnparseableError
from dagengine.prompts.instructions import material_of, said_without_bounds
from dagengine.prompts.parsing import read_answer, valid_answer
from dagengine.prompts.probabilities.answer_tokens import value_span
from dagengine.question import Answer, Capabilities, Question, TokenChoice, schema_json, schema_of

T = TypeVar("T", bound=BaseModel)
Script = Callable[[Question[Any]], Any]
_JSON = json.JSONEncoder(ensure_ascii=False, default=str)
_OUTSIDE = "an answer that nobody can read"
_REASON = {"reason": "simulated"}
_MAIN = ("verdict", "score", "output")  # fields that a script may give alone


class ScriptedJudge:
    """Answers from a mapping by node name, or from a function of the question.

    For tests, documentation, and judges in plain Python. An answer is a dict of the fields of the
    answer type, or only the verdict, score or output, or its only field. A JudgeError as an answer
    is raised. The function may be a coroutine function.

    Answers are stored only if there is a `name`. It identifies the script: if the script changes,
    change the name.
    """

    capabilities = Capabilities(elastic=True)

    def __init__(self, script: Mapping[str, Any] | Script, name: str | None = None) -> None:
        self._script = self.named_code = script
        # Two scripts under one name are two judges.
        self.identity = f"{name or 'scripted'} {id(self):x}"
        self.durable_identity = f"scripted {name}" if name else None

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises RecordingMissError when the script has nothing to say."""
        lacks = f"the script has no answer for {question.name!r}; it has"
        scripted = _look_up(self._script, question, lacks)
        if inspect.isawaitable(scripted):
            scripted = await scripted
        if isinstance(scripted, JudgeError):
            raise scripted

        fields = question.answer_type.model_fields
        main = next(filter(fields.__contains__, _MAIN), None)
        if main is None and len(fields) == 1:
            (main,) = fields
        if isinstance(scripted, str) and question.parser is not None:
            return Answer(read_answer(question, scripted), scripted, mode="text")
        if main is not None and not (isinstance(scripted, dict) and main in scripted):
            scripted = {main: scripted}
        if isinstance(scripted, dict) and "reason" in fields:
            scripted = {"reason": "scripted", **scripted}
        raw = _JSON.encode(scripted)
        return Answer(valid_answer(question, scripted, raw), raw)


def _look_up(entries: Mapping[str, Any] | Script, question: Question[Any], lacks: str) -> Any:
    """The entry of a question's node, or what a function says of the question."""
    if not isinstance(entries, Mapping):
        return entries(question)
    if question.name not in entries:
        raise RecordingMissError(f"{lacks} {', '.join(map(repr, entries))}")
    return entries[question.name]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded output of a model, with its token alternatives if they were kept."""

    text: str
    tokens: tuple[TokenChoice, ...] | None = None


class RecordedJudge:
    """Answers from recorded texts; a question without a recording is an error.

    `recordings` maps keys to the output of a model, as text or as a `Recording`. `key` computes the
    key of a question (default: its SHA-256). Questions that ask for token probabilities get them.
    Answers are stored, and cards name the judge, only if there is a `name`, which identifies the
    recordings.
    """

    capabilities = Capabilities(repeatable=False, logprobs=True, elastic=True)

    def __init__(
        self,
        recordings: Mapping[str, str | Recording],
        *,
        key: Callable[[Question[Any]], str] = lambda question: question.key,
        name: str | None = None,
    ) -> None:
        self._recordings = self.named_code = recordings
        self._key = key
        self.identity = f"{name or 'recorded'} {id(self):x}"
        self.durable_identity = f"recorded {name}" if name else None

    async def answer(self, question: Question[T]) -> Answer[T]:
        """The recorded answer; raises RecordingMissError when there is none."""
        key = self._key(question)
        recorded = self._recordings.get(key)
        if recorded is None:
            raise RecordingMissError(
                f"nothing was recorded for this question (key {key[:16]}…): its wording, its "
                "evidence or its order differ from the recording"
            )
        recording = Recording(recorded) if isinstance(recorded, str) else recorded
        tokens = recording.tokens if question.options.top_logprobs else None
        value = read_answer(question, recording.text)
        return Answer(value, recording.text, tokens, mode="recorded")


class DrawRange(NamedTuple):
    """The draws from `low` up to `high`, and the answer they stand for."""

    answer: Any
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Noise:
    """The probabilities that an answer is not the true one; each from 0 to 1.

    An answer is unparseable with probability `unparseable`. Otherwise it is the first option with
    probability `first`, independent of the truth. Otherwise it is wrong with probability
    `flip + drift · repetition` (equal for each wrong option), and otherwise true.

    `repetitions` is the correlation of a question's draws between repetitions. `nodes` is that of
    draws for different questions about one item within a repetition. A share of √repetitions of
    every draw is common to all repetitions, and a share of √nodes to all questions about the item.
    The shares add up to 1 at most.
    """

    flip: float = 0.0
    first: float = 0.0
    drift: float = 0.0
    unparseable: float = 0.0
    repetitions: float = 0.0
    nodes: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flip", "first", "unparseable", "repetitions", "nodes"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must lie between 0 and 1, got {getattr(self, name)!r}")
        if not math.isfinite(self.drift):
            raise InputError(f"drift must be a number, got {self.drift!r}")
        if math.sqrt(self.repetitions) + math.sqrt(self.nodes) > 1:
            raise InputError("the square roots of repetitions and nodes must add up to at most 1")

    def wrong(self, repetition: int = 0) -> float:
        """The probability of a wrong answer if neither position nor format decided."""
        return min(max(self.flip + self.drift * repetition, 0.0), 1.0)

    def spans(self, truth: Any, options: Sequence[Any], repetition: int = 0) -> list[DrawRange]:
        """Answers by draws from 0 to 1; None is one that cannot be read.

        `options` stand as the judge sees them. Mistakes come first and the truth last, so
        that draws in common make mistakes in common. Raises InputError for a truth that is
        none of the options.
        """
        if truth not in options:
            raise InputError(f"the truth {truth!r} is not one of {list(options)!r}")
        wrong_options = list(filter(partial(ne, truth), options))
        readable = 1 - self.unparseable
        wrong = readable * (1 - self.first) * self.wrong(repetition) / max(len(wrong_options), 1)
        sizes = [self.unparseable, readable * self.first, *repeat(wrong, len(wrong_options))]
        ends = [*accumulate(sizes, initial=0.0), 1.0]
        return list(map(DrawRange, [None, options[0], *wrong_options, truth], ends, ends[1:]))

    def chances(self, truth: Any, options: Sequence[Any], repetition: int = 0) -> dict[Any, float]:
        """The chance of every answer; see `spans`."""
        by_answer: dict[Any, float] = dict.fromkeys((None, *options), 0.0)
        for span in self.spans(truth, options, repetition):
            by_answer[span.answer] += span.high - span.low
        return by_answer

    def accuracy(self, truth: Any, options: Sequence[Any], times: int = 1) -> float:
        """The chance of the true answer, averaged over repetitions."""
        chances = (self.chances(truth, options, repetition) for repetition in range(times))
        return math.fsum(chance[truth] for chance in chances) / times

    def flip_rate(self, truth: Any, options: Sequence[Any], times: int = 2) -> float:
        """The chance that two of `times` repetitions differ; unreadable is an answer, too.

        Two repetitions agree with the probability r · c + (1 - r) · a, where r is the correlation
        of their draws. c is the probability that one common draw stands for the same answer in both
        (1 without drift). a = Σ p · q over all answers is the probability that two draws do.
        """
        if times < 2:
            raise InputError(f"a flip needs two repetitions, got {times}")
        spans = [self.spans(truth, options, repetition) for repetition in range(times)]
        flips = []
        for pair in combinations(spans, 2):
            equal = [(a, b) for a, b in product(*pair) if a.answer == b.answer]
            common = math.fsum(max(min(a.high, b.high) - max(a.low, b.low), 0.0) for a, b in equal)
            apart = math.fsum((a.high - a.low) * (b.high - b.low) for a, b in equal)
            flips.append(1 - (self.repetitions * common + (1 - self.repetitions) * apart))
        return math.fsum(flips) / len(flips)

    def answer(self, draw: float, truth: Any, options: Sequence[Any], repetition: int = 0) -> Any:
        """Answer of a draw from 0 to 1; None for one that cannot be read."""
        spans = self.spans(truth, options, repetition)
        return next(span.answer for span in spans if draw < span.high)


QUIET = Noise()


class SimulatedJudge:
    """Knows the truth and makes errors with known probabilities; for tests of measures.

    `truth` gives the true verdict, score or output by node name, or as a function of the question.
    `noise` is for all nodes, or by node name (other nodes are always right). For a list of
    verdicts, truth is a list, and each item has its own error. Wrong text outputs get a remark at
    their end. Equal `seed`, question and sample give the same answer in every process. `name`
    identifies the truth in stores.

    With `probabilities`, questions that ask for token probabilities get them. They are the
    probabilities of the simulation, so the judge is calibrated.

    Questions with different material are about different items, for draws in common.
    """

    def __init__(
        self,
        truth: Mapping[str, Any] | Script,
        noise: Noise | Mapping[str, Noise] = QUIET,
        *,
        seed: int = 0,
        name: str = "simulated",
        probabilities: bool = False,
    ) -> None:
        self._truth = truth
        self._noise = noise if isinstance(noise, Noise) else dict(noise)
        self._seed = seed
        self.capabilities = Capabilities(text=False, logprobs=probabilities)
        extra = ", with probabilities" if probabilities else ""
        self.durable_identity = f"simulated {name}, seed {seed}, {self._noise!r}{extra}"
        # Two truths under one name are two judges.
        self.identity = f"{self.durable_identity} {id(self):x}"

    def noise_of(self, node: str) -> Noise:
        """The noise of the answers to a node's questions."""
        return self._noise if isinstance(self._noise, Noise) else self._noise.get(node, QUIET)

    async def answer(self, question: Question[T]) -> Answer[T]:
        """One attempt; raises UnparseableError by the chance asked for."""
        fields = self._answer_fields(question)
        raw = json.dumps(fields, ensure_ascii=False)
        return Answer(valid_answer(question, fields, raw), raw, self._tokens(question, raw))

    def _tokens(self, question: Question[T], raw: str) -> tuple[TokenChoice, ...] | None:
        """The answer in three tokens, the middle one with the chances of all options."""
        shapes = schema_of(question.answer_type).get("properties", {})
        main = next(filter(shapes.__contains__, ("verdict", "score")), "")
        span = value_span(raw, main)
        if not (span and question.options.top_logprobs and self.capabilities.logprobs):
            return None
        truth, noise = self._true(question), self.noise_of(question.name)
        chances = noise.chances(truth, _options(shapes[main], truth), question.options.repetition)
        # Options as tokens with their log-probabilities among readable answers
        del chances[None]
        total, tokens = math.fsum(chances.values()), list[tuple[str, float]]()
        for option in filter(chances.get, chances):
            text = json.dumps(option, ensure_ascii=False).strip('"')
            tokens.append((text, math.log(chances[option] / total)))
        start, end = span
        middle = TokenChoice(raw[start:end], tuple(tokens))
        return TokenChoice(raw[:start], ()), middle, TokenChoice(raw[end:], ())

    def _answer_fields(self, question: Question[T]) -> dict[str, Any]:
        """The fields of the answer."""
        schema, truth = schema_of(question.answer_type), self._true(question)
        shapes = schema.get("properties", {})
        if "verdicts" in shapes:
            shape = schema["$defs"]["Item"]["properties"]["verdict"]
            verdicts = []
            for number, true_verdict in enumerate(truth, 1):
                verdict = self._draw(question, true_verdict, shape, number)
                verdicts.append({"number": number, "verdict": verdict, **_REASON})
            return {"verdicts": verdicts}
        main = next(filter(shapes.__contains__, _MAIN), None)
        if main is None:
            return dict(truth)
        answer = {main: self._draw(question, truth, shapes[main])}
        return {**_REASON, **answer} if "reason" in shapes else answer

    def _true(self, question: Question[Any]) -> Any:
        lacks = f"no truth is known for {question.name!r}, only for"
        return _look_up(self._truth, question, lacks)

    def _draw(
        self, question: Question[T], truth: Any, shape: Mapping[str, Any], place: int = 0
    ) -> Any:
        """An answer by a number from 0 to 1: the question's own, or one in common."""
        noise, repetition = self.noise_of(question.name), question.options.repetition
        # An answer that could not be read is asked for again, and again cannot be read.
        # How long an answer may be changes nothing about what it says.
        messages = said_without_bounds(question)
        identity = json.dumps((messages, schema_json(question.answer_type), place))
        own = f"{identity} {question.options!r}"
        # Two draws have a correlation r if each is the common one with the chance of its root.
        source, common = self._uniform("source", own), math.sqrt(noise.repetitions)
        if source < common:
            draw = self._uniform("repetitions", identity)
        elif source < common + math.sqrt(noise.nodes):
            about = f"{question.options.sample} {place} {material_of(question)}"
            draw = self._uniform("nodes", about)
        else:
            draw = self._uniform("own", own)
        answer = noise.answer(draw, truth, _options(shape, truth), repetition)
        if answer is None:
            raise UnparseableError(_OUTSIDE, raw=_OUTSIDE)
        return answer

    def _uniform(self, kind: str, text: str) -> float:
        seeded = f"{self._seed} {kind} {text}".encode(errors="surrogatepass")
        return int.from_bytes(hashlib.sha256(seeded).digest()[:6]) / 2**48


def _options(shape: Mapping[str, Any], truth: Any) -> list[Any]:
    """Possible values of a field, in the order in which a judge sees them."""
    if "enum" in shape or "const" in shape:
        return list(shape.get("enum", ())) or [shape["const"]]
    if shape.get("type") == "boolean":
        return [True, False]
    if shape.get("type") == "integer" and "minimum" in shape and "maximum" in shape:
        return list(range(shape["minimum"], shape["maximum"] + 1))
    if isinstance(truth, str):
        return [truth, f"{truth} (in other words)"]
    return [truth]
