"""Published figures of LLM judges, computed anew by graphs from the recorded calls.

Every source here published what its judge answered and a figure that follows from it. The
questions of the graphs below are answered from those calls; parsing, weighting and combining
happens in their nodes, and `dagengine.statistics` makes the figures of the scores.

Where a source kept its prompts they are the key of a recording; where it did not, the name of
the item stands in for the prompt, so that an answer can only reach the item it was about.

    for done in replays(data_directory()):
        print(done.folder, done.figures, done.checks)
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from llmbar import Json
from pydantic import BaseModel

from dagengine import PromptTemplate, evaluate
from dagengine.errors import UnparseableError
from dagengine.judges import RecordedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BaseNode,
    CodeNode,
    Judgement,
    MapNode,
    NonBinaryJudgementNode,
    RatingNode,
    TaskNode,
)
from dagengine.metrics.prebuilt import share
from dagengine.node import Ask, Asking, Given, NodeValue
from dagengine.prompts import Evidence, as_text, output_type, rating_type
from dagengine.question import (
    Answer,
    Capabilities,
    FirstMatch,
    Options,
    Parser,
    Question,
    TokenChoice,
)
from dagengine.results import CaseResult, EvaluationResult, MetricResult, OutcomeKind
from dagengine.statistics import (
    classification,
    kendall,
    majority,
    majority_share,
    pairwise_disagreement,
    pearson,
    rmse,
    spearman,
    win_rate,
)
from dagengine.test_case import ArenaTestCase, LLMTestCase, TestCase
from dagengine.weighting import expected_score

T = TypeVar("T", bound=BaseModel)

IMPOSSIBLE = {
    "wikieval: the published accuracies": "the source's file of human answers is not public",
    "prometheus: scores from the verbatim answer": (
        "the source cut `[RESULT] n` off the text; it is put back from the stored score here, so "
        "that equal ratings only show that nodes and parser pass them on"
    ),
    "llm_rubric: the most likely answer from a text": (
        "only token probabilities are stored; the most likely token stands for the text"
    ),
    "pandalm: a source for its published figures": (
        "EXPECTED.json has them from memory, written down before anything was computed"
    ),
    "pandalm: verdicts from the verbatim answer": (
        "the source kept result, reason and reference apart and unreadable answers as ties; the "
        "text was put together again from them"
    ),
}
"""What cannot be had from the recordings, and why. No key of EXPECTED.json is among it."""

REPEATED: Mapping[str, tuple[int, float, float, float]] = {
    "prometheus/mt_bench_eval GPT-4 n=3": (160, 0.419, 0.794, 0.400),
    "prometheus/vicuna_eval GPT-4 n=3": (160, 0.588, 0.860, 0.277),
    "mtbench GPT-4 T=0 repeats": (6, 0.667, 0.833, 0.333),
}
"""Reference values of the recording's README for repeated calls, to three decimals: prompts,
share of unanimous ones, mean majority share, mean pairwise disagreement."""

_DIGITS = {"alpaca_eval": 8, "llm_rubric": 6, "pandalm": 2, "repeated": 3}


# What a replay gives.


@dataclass(frozen=True)
class Check:
    """How many records are the same here as in the recording."""

    equal: int
    of: int


@dataclass(frozen=True)
class Replay:
    """One folder of recordings, judged by the graphs here.

    `figures` have the names of EXPECTED.json, `checks` compare record by record. `recorded`
    are the keys of the calls, `asked` how often a judge was asked for each; `failures` are the
    metrics that ended without a score.
    """

    folder: str
    figures: Mapping[str, float | None] = field(default_factory=dict)
    checks: Mapping[str, Check] = field(default_factory=dict)
    recorded: frozenset[str] = frozenset()
    asked: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every recorded call was used, nothing else asked, and nothing failed."""
        used = self.asked.keys() == self.recorded
        return used and not self.failures and all(c.equal == c.of for c in self.checks.values())


def digits_of(name: str) -> int:
    """To how many decimals a figure was printed.

    AlpacaEval printed all digits, but of figures of preferences that it kept to ten decimals.
    """
    return 0 if name.endswith("/prompts") else _DIGITS[name.partition("/")[0]]


def is_reference(name: str) -> bool:
    """Whether a figure is no publisher's, but computed by those who prepared the recordings."""
    return name.startswith("repeated/")


def same(ours: float | None, published: float | None, digits: int) -> bool:
    """Whether two figures are equal as far as they were printed."""
    if ours is None or published is None:
        return False
    return round(ours, digits) == round(published, digits)


def is_there(directory: Path) -> bool:
    """Whether a directory holds all the recordings that are replayed here."""
    return all((directory / folder / "judgements.jsonl").is_file() for folder in REPLAYS)


def published(directory: Path) -> dict[str, float]:
    """The figures to be met: those of EXPECTED.json but LLMBar's, and those of repeated calls."""
    stored = json.loads((directory / "EXPECTED.json").read_text(encoding="utf-8"))
    figures = {k: v["value"] for k, v in stored.items() if not k.startswith("llmbar/")}
    for name, values in REPEATED.items():
        figures |= _repeated(name, values)
    return figures


def _repeated(name: str, values: Iterable[float | None]) -> dict[str, Any]:
    measures = ("prompts", "unanimous", "majority_share", "disagreement")
    return {f"repeated/{name}/{m}": v for m, v in zip(measures, values, strict=True)}


def replays(directory: Path) -> list[Replay]:
    """Every folder, judged by its graphs."""
    return [make(Folder(directory / name)) for name, make in REPLAYS.items()]


# The recording.


@dataclass(frozen=True)
class Folder:
    """Items and judgements of one source."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def items(self) -> dict[str, Json]:
        """Items by id, each with what it inherits."""
        rows = {row["id"]: row for row in self._rows("items")}
        return {name: _inherited(row, rows) for name, row in rows.items()}

    def judgements(self, *protocols: str) -> list[Json]:
        """Judgements of the named protocols, or all."""
        rows = self._rows("judgements")
        return [row for row in rows if not protocols or row["protocol"] in protocols]

    def _rows(self, kind: str) -> list[Json]:
        # Not splitlines(): JSON allows other line separators inside a text.
        text = (self.path / f"{kind}.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.split("\n") if line]


def _inherited(row: Json, rows: Mapping[str, Json]) -> Json:
    """An item with the fields of its parent, and the answers of both."""
    parent = rows.get(row.get("parent", ""), {})
    answers = {**parent.get("responses", {}), **row.get("responses", {})}
    return {**parent, **row, "responses": answers}


@dataclass(frozen=True)
class Call:
    """What a judge wrote, and the alternatives to the first token where they were stored."""

    text: str
    first: TokenChoice | None = None

    @property
    def tokens(self) -> tuple[TokenChoice, ...] | None:
        if self.first is None:
            return None
        return self.first, TokenChoice(self.text.removeprefix(self.first.token), ())


def likeliest(probabilities: Mapping[str, float], text: str | None = None) -> Call:
    """A call known by the probabilities of its first token, and by its text if that was kept."""
    written = max(probabilities, key=probabilities.__getitem__) if text is None else text
    token = max(filter(written.startswith, probabilities), key=len)
    found = ((name, _log(share)) for name, share in probabilities.items())
    return Call(written, TokenChoice(token, tuple(found)))


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -math.inf


def key(prompt: str, sample: int = 0) -> str:
    """What a recording is found by."""
    return f"{prompt}#{sample}"


def key_of(question: Question[Any]) -> str:
    """The key of the recording that answers a question."""
    return key(question.messages[-1]["content"], question.options.sample)


class CallJudge(RecordedJudge):
    """A recorded judge that also gives the token probabilities, and counts what was asked."""

    capabilities = Capabilities(repeatable=False, logprobs=True)

    def __init__(self, calls: Mapping[str, Call]) -> None:
        super().__init__({name: call.text for name, call in calls.items()}, key=key_of)
        self.calls = calls
        self.asked: Counter[str] = Counter()

    async def answer(self, question: Question[T]) -> Answer[T]:
        """The recorded answer with its tokens; raises RecordingMissError when there is none."""
        found = key_of(question)
        self.asked[found] += 1
        plain = await super().answer(question)
        return replace(plain, tokens=self.calls[found].tokens)


@dataclass(frozen=True)
class Run:
    """The results of one evaluation by metric and case, and what its judge was asked."""

    done: EvaluationResult
    recorded: frozenset[str]
    asked: Mapping[str, int]

    def results(self, metric: str) -> dict[str, MetricResult]:
        """One metric's results by case."""
        return {row.case: _of(row, metric) for row in self.done.rows}

    def failures(self, *expected: OutcomeKind) -> tuple[str, ...]:
        """What ended without a score, but for the kinds that were to be expected."""
        found = [result for row in self.done.rows for result in row.metrics if result.failure]
        return tuple(
            f"{result.metric}: {result.failure.message}"
            for result in found
            if result.failure and result.failure.kind not in expected
        )


def _of(row: CaseResult, metric: str) -> MetricResult:
    return next(result for result in row.metrics if result.metric == metric)


def run(
    cases: Sequence[TestCase], graphs: Mapping[str, BaseNode], calls: Mapping[str, Call]
) -> Run:
    """Judge cases by graphs, each given by its root, from recorded calls."""
    judge = CallJudge(calls)
    metrics = [DAGMetric(name, DAG(root), threshold=None) for name, root in graphs.items()]
    done = evaluate(cases, metrics, model=judge, show=False)
    return Run(done, frozenset(calls), judge.asked)


def finished(
    folder: Folder,
    runs: Iterable[Run],
    figures: Mapping[str, float | None],
    checks: Mapping[str, Check],
    expected: Sequence[OutcomeKind] = (),
) -> Replay:
    """The replay that several runs make together."""
    runs = list(runs)
    asked: Counter[str] = Counter()
    for one in runs:
        asked.update(one.asked)
    recorded = frozenset().union(*(one.recorded for one in runs))
    failures = tuple(line for one in runs for line in one.failures(*expected))
    return Replay(folder.name, figures, checks, recorded, asked, failures)


def counted(pairs: Iterable[tuple[Any, Any]]) -> Check:
    """How many pairs are equal."""
    found = [ours == stored for ours, stored in pairs]
    return Check(sum(found), len(found))


def near(ours: float | None, stored: float, tolerance: float) -> bool:
    """Whether there is a figure and it is close enough to the stored one."""
    return ours is not None and abs(ours - stored) <= tolerance


def output_of(result: MetricResult, node: str) -> str | None:
    """What readers of one node saw, if it ran."""
    return next((step.output for step in result.steps if step.node == node), None)


# Nodes and parsers for what these sources recorded.

WHOLE_TEXT = FirstMatch(((r"([\s\S]*)", None),), field="output")


def number(pattern: str, field: str) -> FirstMatch:
    """Reads the number that a pattern's group finds."""
    return FirstMatch(((pattern, None),), field=field)


class PlainRatingNode(RatingNode):
    """A rating whose answer is plain text that begins with the number.

    `RatingNode` weights the score of a JSON answer only; here the first token is the score,
    and the engine's weighting is shown it as the score of a JSON answer.
    """

    kind = "plain rating"

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        low, high = self.scale
        answer = await ask(self.question(given, self.criteria, rating_type(low, high)))
        found = cast(Any, answer.value)
        rating, mode = expected_score(_as_json(answer, found.score), found.score, low, high)
        return NodeValue(rating, found.reason, score=(rating - low) / (high - low), mode=mode)


def _as_json(answer: Answer[Any], score: int) -> Answer[Any]:
    if answer.tokens is None:
        return answer
    around = TokenChoice('{"score": ', ()), TokenChoice("}", ())
    tokens = (around[0], answer.tokens[0], around[1])
    return replace(answer, raw=f'{{"score": {score}}}', tokens=tokens)


class FirstTokenNode(Asking):
    """The mean of the values of tokens, weighted by their probability as first token.

    score = Σ value · p / Σ p over the tokens that have a value; whatever else the judge might
    have begun with does not count. With the values 0 and 1 it is how strongly the judge
    prefers one answer over another (Dubois et al. 2024, https://arxiv.org/abs/2404.04475).
    """

    kind = "first token"
    grades = True

    def __init__(self, criteria: str, values: Mapping[str, float], **common: Any) -> None:
        options = Options(temperature=1.0, max_tokens=1, top_logprobs=5)
        super().__init__(parser=WHOLE_TEXT, options=options, **common)
        self.criteria = criteria
        self.values = values

    @property
    def text(self) -> str:
        return self.criteria

    async def run(self, given: Given, ask: Ask) -> NodeValue:
        answer = await ask(self.question(given, self.criteria, output_type(str)))
        shares = self._shares(answer)
        total = math.fsum(shares.values())
        if not total:
            raise UnparseableError(f"none of {list(self.values)} may begin it", raw=answer.raw)
        score = math.fsum(self.values[token] * part for token, part in shares.items()) / total
        return NodeValue(score, reason=answer.raw, score=score, mode="weighted")

    def _shares(self, answer: Answer[Any]) -> dict[str, float]:
        first = answer.tokens[0].alternatives if answer.tokens else ()
        return {token: math.exp(log) for token, log in first if token in self.values}


class PlainMapNode(MapNode):
    """One question per item, with a prompt and a parser for judges that answer in prose.

    The prompt may refer to the item by its label and to the case fields that are read.
    """

    def __init__(self, *args: Any, each: PromptTemplate, parser: Parser, **common: Any) -> None:
        super().__init__(*args, **common)
        self.parser = parser
        self.each = each

    def _question(self, system: str, evidence: Sequence[Evidence], shape: type[T]) -> Question[T]:
        messages = self.each.fill({piece.label: piece.text for piece in evidence})
        return Question(messages, shape, self.options, self.parser, name=self.title)


@dataclass(frozen=True)
class TextList:
    """Reads a JSON list of texts with prose around it, or what is whole of a broken one."""

    field: str = "output"

    def __call__(self, text: str, /) -> Mapping[str, Any]:
        start, end = text.find("["), text.rfind("]")
        if start < 0:
            raise UnparseableError("there is no list in the answer", raw=text)
        try:
            return {self.field: json.loads(text[start : end + 1])}
        except ValueError:
            whole = re.findall(r'"(?:[^"\\]|\\.)*"', text[start:])
            return {self.field: [json.loads(item) for item in whole]}


def scaled_to(low: float, high: float) -> Callable[[float], float]:
    """Where a number stands between two others, from 0 to 1."""

    def scaled(value: float) -> float:
        return (value - low) / (high - low)

    return scaled


# WikiEval: a chain of calls, and ratings with probabilities.

_SCALES = {"1-5": (1, 5), "1-10": (1, 10), "0-1": (0, 1)}


def replay_wikieval(folder: Folder) -> Replay:
    """Faithfulness = supported / statements, and ratings weighted by token probabilities."""
    chains = folder.judgements("ragas_ff_chat")
    ratings = [row for row in folder.judgements() if row["protocol"].startswith("direct_score")]
    first, second = _wikieval_chains(folder, chains), _wikieval_ratings(folder, ratings)
    checks = {**_chain_checks(first, chains), **_rating_checks(second, ratings)}
    return finished(folder, [first, second], {}, checks)


def faithfulness_graph() -> BaseNode:
    """The statements of the answer, a verdict on each, and the share of supported ones."""
    statements = TaskNode(
        "List the statements that the answer makes.",
        output_label="statements",
        evaluation_params=["name"],
        output_type=list[str],
        prompt=PromptTemplate("the statements of {name}"),
        parser=TextList(),
    )
    verdicts = PlainMapNode(
        "Can the statement be inferred from the context?",
        statements,
        "verdicts",
        answer=("1", "0"),
        item_label="statement",
        evaluation_params=["name"],
        each=PromptTemplate("{name}: {statement}"),
        parser=number(r"Verdict:\s*([01])", "verdict"),
    )
    return CodeNode(supported, inputs=[statements, verdicts])


def supported(statements: list[str], verdicts: list[Judgement]) -> NodeValue:
    """The share of statements that the context supports."""
    return share(statements, verdicts, ("1",), what="statements", passed="supported", empty=1.0)


def _wikieval_chains(folder: Folder, chains: Sequence[Json]) -> Run:
    items, calls = folder.items(), dict[str, Call]()
    for row in chains:
        first, *others = row["calls"]
        calls[key(f"the statements of {row['item']}")] = Call(first["text"])
        for other in others:
            statement = first["parsed"][other["target"]]
            calls[key(f"{row['item']}: {statement}")] = Call(other["text"])
    cases = [_answer(items[row["item"]]) for row in chains]
    return run(cases, {"faithfulness": faithfulness_graph()}, calls)


def _answer(item: Json) -> LLMTestCase:
    context = [item["context"]] if item.get("context") else None
    answer = item["responses"]["A"]["text"]
    return LLMTestCase(
        name=item["id"], input=item["input"], actual_output=answer, retrieval_context=context
    )


def _chain_checks(done: Run, chains: Sequence[Json]) -> dict[str, Check]:
    found = done.results("faithfulness")
    scores = [(found[row["item"]].score, row["result"]["faithfulness"]) for row in chains]
    verdicts = [pair for row in chains for pair in _verdict_pairs(found[row["item"]], row)]
    return {
        "wikieval/faithfulness": counted(scores),
        "wikieval/statement verdicts": counted(verdicts),
    }


def _verdict_pairs(result: MetricResult, row: Json) -> Iterable[tuple[Any, Any]]:
    lines = (output_of(result, "verdicts") or "").split("\n")
    ours = [json.loads(line)["verdict"] for line in lines if line]
    return zip_longest(ours, [str(call["verdict"]) for call in row["calls"][1:]])


def rating_graph(scale: str) -> BaseNode:
    """A rating on one scale, weighted by the probabilities of its first token."""
    return PlainRatingNode(
        "How relevant is the answer?",
        ["name"],
        scale=_SCALES[scale],
        prompt=PromptTemplate(f"{{name}} from {scale}"),
        # On the scale from 0 to 1 the source weighted what stands before the decimal point.
        parser=number(r"^(\d+)", "score"),
    )


def _wikieval_ratings(folder: Folder, ratings: Sequence[Json]) -> Run:
    items = folder.items()
    calls = {
        key(f"{row['item']} from {_scale_of(row)}"): likeliest(call["token_probs"], call["text"])
        for row in ratings
        for call in row["calls"]
    }
    cases = [_answer(items[name]) for name in dict.fromkeys(row["item"] for row in ratings)]
    return run(cases, {scale: rating_graph(scale) for scale in _SCALES}, calls)


def _scale_of(row: Json) -> str:
    return str(row["protocol"].rpartition("_")[2])


def _rating_checks(done: Run, ratings: Sequence[Json]) -> dict[str, Check]:
    found = {scale: done.results(scale) for scale in _SCALES}
    pairs = [(found[_scale_of(row)][row["item"]], row) for row in ratings]
    equal = [
        near(on_scale(result, *_SCALES[_scale_of(row)]), row["result"]["weighted_score"], 2e-3)
        for result, row in pairs
    ]
    weighted = [result.mode == "weighted" for result, _ in pairs]
    return {
        "wikieval/weighted scores (within 0.002)": Check(sum(equal), len(equal)),
        "wikieval/weighted scores, mode weighted": Check(sum(weighted), len(weighted)),
    }


def on_scale(result: MetricResult, low: float, high: float) -> float | None:
    """A score as the number that the judge was asked for."""
    return None if result.score is None else low + result.score * (high - low)


# LLM-Rubric: nothing but the probabilities of four answers.

_QUESTIONS = ("Q0", "Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8")
_MEASURES = {"rmse": rmse, "pearson": pearson, "spearman": spearman, "kendall": kendall}


def replay_llm_rubric(folder: Folder) -> Replay:
    """The most likely and the expected answer, against what people answered."""
    items, rows = folder.items(), folder.judgements()
    calls = {
        key(f"{row['dim']} of {row['item']}"): likeliest(call["token_probs"])
        for row in rows
        for call in row["calls"]
    }
    cases = [LLMTestCase(name=name, input="a dialogue that was not recorded") for name in items]
    done = run(cases, rubric_graphs(), calls)
    people = {name: item["labels"]["annotations"][0]["Q0"] for name, item in items.items()}
    figures = {
        f"llm_rubric/Q0/{kind}_llm/{name}": measure(*_against(people, done, f"{kind} Q0"))
        for kind in ("argmax", "expected")
        for name, measure in _MEASURES.items()
    }
    modes = [found.mode for q in _QUESTIONS for found in done.results(f"expected {q}").values()]
    check = counted((mode, "weighted") for mode in modes)
    return finished(folder, [done], figures, {"llm_rubric/expected answers, mode weighted": check})


def rubric_graphs() -> dict[str, BaseNode]:
    """Two graphs per question: the answer as it stands, and the expected answer."""
    graphs: dict[str, BaseNode] = {}
    for question in _QUESTIONS:
        prompt = PromptTemplate(f"{question} of {{name}}")
        graphs[f"argmax {question}"] = stated(prompt, r"^([1-4])$", 1, 4, ["name"])
        graphs[f"expected {question}"] = PlainRatingNode(
            question, ["name"], scale=(1, 4), prompt=prompt, parser=number(r"^(\d)$", "score")
        )
    return graphs


def stated(
    prompt: PromptTemplate,
    pattern: str,
    low: float,
    high: float,
    reads: Sequence[str],
    options: Options = Options(),  # noqa: B008 - a frozen value
) -> BaseNode:
    """A number of any kind read from prose, scored by its place on the scale."""
    rating = TaskNode(
        "Rate it.",
        output_label="rating",
        evaluation_params=reads,
        output_type=float,
        prompt=prompt,
        parser=number(pattern, "output"),
        options=options,
    )
    return CodeNode(scaled_to(low, high), inputs=[rating])


def _against(
    people: Mapping[str, float], done: Run, metric: str
) -> tuple[list[float], list[float]]:
    """The ratings of the judge, and those of people for the same items."""
    found = {name: on_scale(one, 1, 4) for name, one in done.results(metric).items()}
    rated = {name: rating for name, rating in found.items() if rating is not None}
    return list(rated.values()), [people[name] for name in rated]


# AlpacaEval: one answer against a baseline, in an order that the instruction decides.

BASELINE, MODEL = "A", "B"
SHOWN = {"m": 0, "M": 1}
"""How the prompt calls the answers: m is shown first, M second."""

_TOKEN, _RANKS = "the better one of {name} as one token", "the ranks in {name}"


class Ranked(BaseModel):
    """One answer's place in a ranking."""

    model: Literal["m", "M"]
    rank: Literal[1, 2]


class Ranking(BaseModel):
    """What the judge that explains itself answers, as a function call."""

    concise_explanation: str
    ordered_models: list[Ranked]


def replay_alpaca_eval(folder: Folder) -> Replay:
    """The share of comparisons that each model wins against the baseline."""
    items = folder.items()
    runs, figures, checks = list[Run](), dict[str, float | None](), dict[str, Check]()
    for protocol, (prompt, compare) in _PROTOCOLS.items():
        rows = folder.judgements(protocol)
        done = _alpaca_run(items, rows, prompt, preference_graph(compare))
        for model in dict.fromkeys(_model_of(row) for row in rows):
            name, own = f"alpaca_eval/{protocol}/{model}", _of_model(rows, model)
            figures |= _win_figures(name, done, own)
            checks[f"{name}/preferences"] = _preferences(done, own)
        runs.append(done)
    return finished(folder, runs, figures, checks)


def preference_graph(compare: Callable[[str], BaseNode]) -> BaseNode:
    """How far the model's answer is preferred; nobody is asked about two equal answers."""
    order = CodeNode(
        shown_order,
        evaluation_params=["contestants.A.input"],
        then={"AB": compare("AB"), "BA": compare("BA")},
        name="order",
    )
    answers = [f"contestants.{name}.actual_output" for name in (BASELINE, MODEL)]
    return CodeNode(equal, evaluation_params=answers, then={True: 5, False: order})


def equal(first: str, second: str) -> bool:
    """Whether two answers are the same text."""
    return first == second


def shown_order(instruction: str) -> str:
    """The order of presentation, drawn by AlpacaEval with the instruction as the seed."""
    drawn = random.Random(f"is_switched_outputs{instruction}0")
    return "BA" if drawn.choices([False, True])[0] else "AB"


def token_preference(order: str) -> BaseNode:
    """The preference in the probabilities of m and M as the only token of the answer."""
    values = {token: float(order[place] == MODEL) for token, place in SHOWN.items()}
    return FirstTokenNode(
        "Which answer is better?",
        values,
        name=f"preference {order}",
        evaluation_params=["name"],
        prompt=PromptTemplate(_TOKEN),
    )


def ranked_preference(order: str) -> BaseNode:
    """The preference in a ranking: whatever rank m has decides, as AlpacaEval reads it."""
    ranking = TaskNode(
        "Rank both answers.",
        output_label=f"ranking {order}",
        evaluation_params=["name"],
        output_type=Ranking,
        prompt=PromptTemplate(_RANKS),
    )
    first, second = (10 if name == MODEL else 0 for name in order)
    return CodeNode(first_wins, inputs=[ranking], then={True: first, False: second})


def first_wins(ranking: Ranking) -> bool:
    """Whether the answer shown first has rank 1; the other one's rank is not looked at."""
    return next(entry.rank for entry in ranking.ordered_models if entry.model == "m") == 1


_PROTOCOLS: Mapping[str, tuple[str, Callable[[str], BaseNode]]] = {
    "weighted_alpaca_eval_gpt4_turbo": (_TOKEN, token_preference),
    "alpaca_eval_cot_gpt4_turbo_fn": (_RANKS, ranked_preference),
}


def _alpaca_run(
    items: Mapping[str, Json], rows: Sequence[Json], prompt: str, graph: BaseNode
) -> Run:
    calls = {
        key(prompt.format(name=row["item"])): _alpaca_call(call)
        for row in rows
        for call in row["calls"]
    }
    return run([_arena(items[row["item"]]) for row in rows], {"preference": graph}, calls)


def _alpaca_call(call: Json) -> Call:
    if "top_logprobs" not in call:
        return Call(call["text"])
    return Call(call["text"], TokenChoice(call["text"], tuple(call["top_logprobs"].items())))


def _arena(item: Json) -> ArenaTestCase:
    # One answer in PandaLM's data is the JSON value true.
    contestants = {
        name: LLMTestCase(input=item["input"], actual_output=as_text(answer["text"]))
        for name, answer in item["responses"].items()
    }
    return ArenaTestCase(name=item["id"], contestants=contestants)


def _model_of(row: Json) -> str:
    return str(row["item"].rpartition("/")[2])


def _of_model(rows: Iterable[Json], model: str) -> list[Json]:
    return [row for row in rows if _model_of(row) == model]


def _win_figures(name: str, done: Run, rows: Sequence[Json]) -> dict[str, float | None]:
    """Win rate, its standard error, and the rate of plain wins, in per cent."""
    found = done.results("preference")
    scores = [found[row["item"]].score for row in rows]
    wins = [score for score in scores if score is not None]
    rate, plain = win_rate(wins), win_rate(wins, discrete=True)
    return {
        f"{name}/win_rate": _per_cent(rate.value if rate else None),
        f"{name}/standard_error": _per_cent(rate.standard_error if rate else None),
        f"{name}/discrete_win_rate": _per_cent(plain.value if plain else None),
    }


def _per_cent(part: float | None) -> float | None:
    return None if part is None else 100 * part


def _preferences(done: Run, rows: Sequence[Json]) -> Check:
    """Preferences were stored as 1 (baseline) to 2 (model), with ten decimals."""
    found = done.results("preference")
    stored = [(found[row["item"]].score, row["result"]["preference"] - 1) for row in rows]
    met = [near(ours, preference, 1e-9) for ours, preference in stored]
    return Check(sum(met), len(met))


# MT-Bench: a number in double brackets, anywhere in the answer.


def replay_mtbench(folder: Folder) -> Replay:
    """Ratings read from the text; where the source has -1, no number and therefore no score."""
    items, rows = folder.items(), folder.judgements()
    runs = [_mtbench_run(items, rows, sample) for sample in range(2)]
    results = [done.results("rating") for done in runs]
    pairs = [
        (results[call["sample"]][row["item"]], call["score"])
        for row in rows
        for call in row["calls"]
    ]
    equal = [_meets(result, score) for result, score in pairs]
    checks = {"mtbench/ratings": Check(sum(equal), len(equal))}
    votes = [[found[name].score for found in results] for name in results[1]]
    figures = votes_figures("mtbench GPT-4 T=0 repeats", [v for v in votes if None not in v])
    return finished(folder, runs, figures, checks, expected=[OutcomeKind.UNPARSEABLE])


def _mtbench_run(items: Mapping[str, Json], rows: Sequence[Json], sample: int) -> Run:
    called = [(row["item"], c) for row in rows for c in row["calls"] if c["sample"] == sample]
    calls = {key(items[name]["prompt"], sample): Call(call["text"]) for name, call in called}
    cases = [LLMTestCase(name=name, input=items[name]["prompt"]) for name, _ in called]
    prompt, options = PromptTemplate("{input}"), Options(sample=sample)
    graph = stated(prompt, r"\[\[(\d+(?:\.\d+)?)\]\]", 1, 10, ["input"], options)
    return run(cases, {"rating": graph}, calls)


def _meets(result: MetricResult, score: float) -> bool:
    """Whether a rating is the stored one; a failure is stored as -1 and has no score here."""
    if score == -1:
        return result.outcome is OutcomeKind.UNPARSEABLE
    return near(on_scale(result, 1, 10), score, 1e-9)


def votes_figures(name: str, votes: Sequence[Sequence[Any]]) -> dict[str, float | None]:
    """How far several answers to the same prompt agree, as means over the prompts."""
    shares = [majority_share(own) for own in votes]
    unanimous = [share == 1 for share in shares]
    differ = [pairwise_disagreement(own) for own in votes]
    means = [_mean(found) for found in (unanimous, shares, differ)]
    return _repeated(name, [len(votes), *means])


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return math.fsum(found) / len(found) if found else None


# Prometheus: a rubric score after the feedback, asked three times.

_TIMES = range(3)


def replay_prometheus(folder: Folder) -> Replay:
    """Three ratings per prompt by a rubric, and how far they agree."""
    items, rows = folder.items(), folder.judgements()
    calls = {
        key(items[row["item"]]["prompt"], call["sample"]): _restored(call)
        for row in rows
        for call in row["calls"]
    }
    cases = [LLMTestCase(name=name, input=item["prompt"]) for name, item in items.items()]
    done = run(cases, {"agreement": agreement_graph()}, calls)
    votes = {name: _ratings(result) for name, result in done.results("agreement").items()}
    stored = {row["item"]: row["result"]["scores"] for row in rows}
    pairs = [pair for name in votes for pair in zip_longest(votes[name], stored[name])]
    figures: dict[str, float | None] = {}
    for source in ("mt_bench_eval", "vicuna_eval"):
        own = [votes[name] for name, item in items.items() if item["meta"]["dataset"] == source]
        figures |= votes_figures(f"prometheus/{source} GPT-4 n=3", own)
    return finished(folder, [done], figures, {"prometheus/ratings": counted(pairs)})


def agreement_graph() -> BaseNode:
    """Three ratings of one answer, and the share of the one given most often."""
    ratings = [
        RatingNode(
            "Rate the answer by the rubric.",
            ["input"],
            scale=(1, 5),
            output_label=f"rating {sample}",
            prompt=PromptTemplate("{input}"),
            parser=number(r"\[RESULT\]\s*(\d+)", "score"),
            options=Options(sample=sample),
        )
        for sample in _TIMES
    ]
    return CodeNode(lambda *votes: majority_share(votes), inputs=ratings, name="agreement")


def _restored(call: Json) -> Call:
    """The answer as the prompt asked for it; the source stored feedback and score apart."""
    return Call(f"Feedback: {call['text']} [RESULT] {call['score']}")


def _ratings(result: MetricResult) -> list[float]:
    found = [output_of(result, f"rating {sample}") for sample in _TIMES]
    return [float(rating) for rating in found if rating is not None]


# PandaLM: first answer, second answer or tie, against the majority of three people.

_VERDICTS = {"A": 10, "tie": 5, "B": 0}


def replay_pandalm(folder: Folder) -> Replay:
    """Verdicts against the majority of the annotators, in per cent."""
    items, rows = folder.items(), folder.judgements()
    calls = {key(row["item"]): Call(call["text"]) for row in rows for call in row["calls"]}
    done = run([_arena(item) for item in items.values()], {"verdict": verdict_graph()}, calls)
    found = {name: _verdict(result) for name, result in done.results("verdict").items()}
    stored = [(found[row["item"]], row["calls"][0]["verdict"]) for row in rows]
    people = [majority(item["labels"]["annotators"]) for item in items.values()]
    figures = _class_figures(rows[0]["judge"]["model"], people, list(found.values()))
    return finished(folder, [done], figures, {"pandalm/verdicts": counted(stored)})


def verdict_graph() -> BaseNode:
    """One question; an answer that names no response is a tie, as the source counts it."""
    return NonBinaryJudgementNode(
        "Which response is better?",
        name="verdict",
        evaluation_params=["name"],
        then=_VERDICTS,
        prompt=PromptTemplate("{name}"),
        parser=FirstMatch(((r"^1\b", "A"), (r"^2\b", "B"), (r"", "tie"))),
    )


def _verdict(result: MetricResult) -> str:
    return str(result.path[-1][1]) if result.path else "failed"


def _class_figures(
    judge: str, people: Sequence[str | None], verdicts: Sequence[str]
) -> dict[str, float | None]:
    found = classification(people, verdicts)
    measures = ("accuracy", "macro_precision", "macro_recall", "macro_f1")
    return {f"pandalm/{judge}/{m}": _per_cent(getattr(found, m, None)) for m in measures}


REPLAYS: Mapping[str, Callable[[Folder], Replay]] = {
    "wikieval_rag_chain": replay_wikieval,
    "llm_rubric_logprobs": replay_llm_rubric,
    "alpaca_eval": replay_alpaca_eval,
    "mtbench_gpt4": replay_mtbench,
    "prometheus_gpt4x3": replay_prometheus,
    "pandalm": replay_pandalm,
}
