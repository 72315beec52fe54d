"""The search: split, node, ladder, test, sealed part. Every answer is stored before it counts."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dagengine.data.cases import read_cases, strict
from dagengine.errors import InputError
from dagengine.execution.engine import check_settings
from dagengine.execution.interrupts import sync
from dagengine.graph.nodes import RatingNode
from dagengine.improvement.acceptance import LEVEL, joint_p
from dagengine.improvement.judged import Asking, Judged
from dagengine.improvement.naming import blame, wrong_at
from dagengine.improvement.planning import changeable, possible_rungs, search_plan
from dagengine.improvement.rewriters import JudgeRewriter, Rewriter, Task, WrongCase, complaint
from dagengine.improvement.rungs import (
    answers_of_one,
    asking_node,
    examples_for,
    fitted_score,
    fitted_threshold,
    holistic,
    with_score,
    with_threshold,
)
from dagengine.improvement.splitting import split_cases
from dagengine.improvement.values import (
    Blame,
    Candidate,
    Improvement,
    Rung,
    Sealed,
    SearchPlan,
    Split,
)
from dagengine.improvement.words import points
from dagengine.metrics.common.base import BaseMetric
from dagengine.reliability.clusters import clusters
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.labels import (
    Given,
    Labels,
    NodeAnswers,
    labels_for,
    labels_of,
    left_out,
    metric_hash,
    walk_file,
    walked_answers,
    walked_labels,
)
from dagengine.reliability.statistics.comparisons import Comparison, cases_needed
from dagengine.reliability.statistics.confusion import label_ceiling
from dagengine.terminal import counted
from dagengine.test_case import TestCase, case_label, read_field
from dagengine.voting.stopping import Curtailed
from dagengine.voting.wrappers import exemplified, reworded, voted

FREE = 0.2
"""The share of the error that is spent on the rungs that ask nothing."""
POINTS = 0.05
"""The gain for which labels are counted when nothing is proved."""
VOTES = 3


@dataclass(frozen=True)
class Search:
    """One search, checked and split, before anything is asked."""

    cases: Sequence[TestCase]
    metric: BaseMetric
    labels: Labels
    people: Given
    answers: NodeAnswers
    groups: Mapping[int, Hashable]
    split: Split
    rungs: Sequence[Rung]
    node: str | None
    times: int
    proposals: int
    sealed_share: float
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        test_cases: Any,
        metric: BaseMetric,
        labels: str | Path | Mapping[int, Any],
        *,
        groups: str | None = None,
        node: str | None = None,
        times: int = 3,
        proposals: int = 2,
        sealed: float = 0.4,
    ) -> Search:
        """Read labels and split the cases; raises InputError for what cannot be improved."""
        cases: list[Any] = list(strict(read_cases(test_cases)))
        if not isinstance(metric, BaseMetric):
            raise InputError(f"improve takes one metric, got {metric!r:.80}")
        if times < 1 or proposals < 0:
            raise InputError("times= is a whole number from 1 on, proposals= one from 0 on")
        nodes = changeable(metric)
        if node is not None and node not in nodes:
            names = ", ".join(map(repr, nodes)) or "none"
            raise InputError(f"no node {node!r} has a criterion to change; there is {names}")
        replay, walks = Counterfactual(metric), walk_file(labels)
        answers: NodeAnswers = {}
        notes: tuple[str, ...] = ()
        if walks is None:
            people = labels_of(cases, labels)
        else:
            (people,) = walked_labels(walks, cases, [replay])
            answers = walked_answers(walks, cases, replay)
            notes = tuple(left_out(walks, [replay]))
        meant = labels_for(people, replay, cases, replay.spec.threshold)
        if not answers:
            answers = answers_of_one(metric, meant.by_case)
        together = {} if groups is None else clusters(cases, (), groups)
        split = split_cases(cases, meant.by_case, together, sealed)
        made = Asking(cases, meant, together, times, {})
        made.read(metric)  # raises for labels that say neither pass nor fail nor a verdict
        rungs = possible_rungs(
            metric, node, answers, passes=meant.kind == "pass", times=times, proposals=proposals
        )
        return cls(
            cases, metric, meant, people, answers, together, split, rungs, node, times, proposals,
            sealed, notes,
        )  # fmt: skip

    def plan(self, *, model: Any = None, prices: Any = None) -> SearchPlan:
        """What it will ask; asks nothing."""
        return search_plan(
            self.cases, self.metric, self.split, self.rungs, node=self.node, times=self.times,
            votes=VOTES, model=model, prices=prices,
        )  # fmt: skip

    async def run(
        self,
        settings: Mapping[str, Any],
        *,
        rewriter: Rewriter | None = None,
        on_candidate: Callable[[Candidate], None] | None = None,
        on_look: Callable[[str], int] | None = None,
    ) -> Improvement:
        """Climb the ladder, and open the sealed part if a change was accepted.

        `on_candidate` gets every candidate once it is decided. `on_look` gets the hash of the
        accepted metric before the sealed part is opened, and says how many earlier looks it had.
        """
        asking = Asking(self.cases, self.labels, self.groups, self.times, settings)
        ladder = _Ladder(
            self, asking, rewriter or JudgeRewriter(), on_candidate or (lambda _: None)
        )
        blamed = await ladder.climb()
        sealed, looks, metric = None, 0, ladder.metric
        if any(candidate.accepted for candidate in ladder.tried) and self.split.sealed:
            if on_look is not None:
                looks = on_look(metric_hash(Counterfactual(metric)))
            sealed = await self._open(asking, metric)
        several = [votes for votes in self.people.values() if len(votes) > 1]
        differing = [n for n, votes in self.people.items() if len(set(map(str, votes))) > 1]
        return Improvement(
            name=self.metric.spec().name,
            metric=metric,
            split=self.split,
            times=self.times,
            tries=len(self.rungs),
            right=asking.share(ladder.as_it_was),
            blame=blamed,
            candidates=tuple(ladder.tried),
            sealed=sealed,
            needed=self._needed(ladder.tried),
            several=len(several),
            contradictions=tuple(case_label(self.cases[n], n) for n in differing),
            ceiling=label_ceiling([list(votes) for votes in self.people.values()])
            if several
            else None,
            totals=asking.totals,
            looks=looks,
            notes=self.notes,
        )

    async def _open(self, asking: Asking, metric: BaseMetric) -> Sealed:
        """The sealed part, before and after."""
        before = asking.right(await asking.judge(self.metric, self.split.sealed))
        after = asking.right(await asking.judge(metric, self.split.sealed))
        names = {n: case_label(self.cases[n], n) for n in self.split.sealed}
        return Sealed(
            asking.share(before),
            asking.share(after),
            asking.gain(before, after),
            tuple(names[n] for n in before if before[n] <= 0.5 < after[n]),
            tuple(names[n] for n in before if after[n] <= 0.5 < before[n]),
        )

    def _needed(self, tried: Sequence[Candidate]) -> int | None:
        """About how many more labels would show a gain of 5 points, by what the best one did."""
        gains = [c.gain for c in tried if isinstance(c.gain, Comparison) and c.rung != "rival"]
        best = max(gains, key=lambda gain: gain.value, default=None)
        if best is None:
            return None
        visible = best.visible
        square = max((visible or 0.0) ** 2 * best.cases / 7.85, 0.02)
        missing = cases_needed(POINTS, square) - best.cases
        held = best.cases / len(self.labels.by_case)
        return max(0, 10 * round(missing / held / 10))


@dataclass(frozen=True)
class _Try:
    """A candidate that was asked, and the metric with it; `right` are its shares of right results.

    The metric before it is that which the free rungs left.
    """

    candidate: Candidate
    metric: BaseMetric
    right: Mapping[int, float]


class _Ladder:
    """The candidates of one search, cheapest first."""

    def __init__(
        self,
        search: Search,
        asking: Asking,
        rewriter: Rewriter,
        on_candidate: Callable[[Candidate], None],
    ) -> None:
        self._search, self._asking, self._rewriter = search, asking, rewriter
        self._on_candidate = on_candidate
        self.metric = search.metric
        self.tried: list[Candidate] = []
        self.as_it_was: dict[int, float] = {}
        self._right: dict[int, float] = {}
        self._held = search.split.without(0)

    async def climb(self) -> Blame:
        """Try every rung; returns which node is to blame."""
        judged = await self._asking.judge(self.metric, self._search.split.tried)
        self._right = self.as_it_was = self._asking.right(judged)
        self._decide(self._free(judged), FREE)
        if self.metric is not self._search.metric:
            judged = await self._asking.judge(self.metric, self._search.split.tried)
            self._right = self._asking.right(judged)
        blamed = self._blame(judged)
        if blamed.node is not None:
            self._decide(await self._paid(blamed.node, judged), 1 - FREE)
        return blamed

    def _blame(self, judged: Judged) -> Blame:
        search = self._search
        blamed = blame(self._asking, judged, search.answers, 1 - search.sealed_share)
        if search.node is not None:
            return replace(blamed, node=search.node, by="your choice", needed=None)
        if blamed.node is not None and blamed.node not in changeable(self.metric):
            return replace(blamed, node=None, needed=None)
        return blamed

    def _free(self, judged: Judged) -> list[_Try | Candidate]:
        """Threshold and scores, which are replayed from the answers."""
        tries: list[_Try | Candidate] = []
        split, asking = self._search.split, self._asking
        if "threshold" in self._search.rungs:
            fit = fitted_threshold(asking, judged, split)
            if isinstance(fit, str):
                tries.append(_skipped("threshold", "another threshold", "whole metric", fit))
            else:
                what, detail = f"threshold {fit.now:g} → {fit.value:g}", {"before": fit.now}
                made = with_threshold(self.metric, fit.value)
                detail["threshold"] = fit.value
                tries.append(self._made("threshold", what, "whole metric", made, fit.right, detail))
        if "scores" in self._search.rungs:
            fit = fitted_score(asking, judged, split)
            if isinstance(fit, str) or fit.leaf is None:
                tries.append(_skipped("scores", "another score", "whole metric", str(fit)))
            else:
                (node, verdict), score = fit.leaf, int(fit.value)
                what = f"score of {verdict}: {fit.now:g} → {score}"
                made = with_score(self.metric, fit.leaf, score)
                scored = {"verdict": verdict, "before": fit.now, "score": score}
                tries.append(self._made("scores", what, node, made, fit.right, scored))
        return tries

    # At the node.

    async def _paid(self, node: str, judged: Judged) -> list[_Try | Candidate]:
        """Votes, examples, rewritten criteria at a node, then the rival."""
        rungs, tries = self._search.rungs, list[_Try | Candidate]()
        if "votes" in rungs:
            tries.append(await self._votes(node, judged))
        examples = examples_for(
            self.metric, node, self._search.answers, self._asking.cases, judged,
            self._search.split.folds[0],
        )  # fmt: skip
        shown = [
            {"reads": example.reads, "answer": example.answer, "reason": example.reason}
            for example in examples
        ]
        solved = None
        if "examples" in rungs and examples:
            made = exemplified(self.metric, {node: examples})
            what = f"{counted(len(examples), 'example')} from labels"
            solved = await self._ask("examples", what, node, made, {"examples": shown})
            tries.append(solved)
        elif "examples" in rungs:
            why = "no label of it may be shown"
            tries.append(_skipped("examples", "examples from labels", node, why))
        criteria = await self._criteria(node, judged) if "criterion" in rungs else []
        tries += criteria
        asked = [each for each in criteria if isinstance(each, _Try)]
        best = max(asked, key=self._gain, default=None)
        if "together" in rungs:
            if best is None or solved is None or min(map(self._gain, (best, solved))) <= 0:
                why = "needs a criterion and examples that both look better"
                tries.append(_skipped("together", "criterion and examples", node, why))
            else:
                made = exemplified(best.metric, {self._title(best.metric, node): examples})
                what = f"{best.candidate.what[-1]} and {counted(len(examples), 'example')}"
                detail = {**best.candidate.detail, "examples": shown}
                tries.append(await self._ask("together", what, node, made, detail))
        if "rival" in rungs and (rival := holistic(self._search.metric)) is not None:
            tries.append(await self._ask("rival", "one holistic node", "rival", rival, {}))
        return tries

    async def _votes(self, node: str, judged: Judged) -> _Try | Candidate:
        """Votes at the node, unless they cannot help."""
        what, varied = (
            f"{VOTES} votes",
            any(len({run.replies.get(node) for run in runs}) > 1 for runs in judged.runs.values()),
        )
        if not varied:
            return _skipped("votes", what, node, "its answers never differed")
        try:
            made = voted(self.metric, VOTES, [node], stop=Curtailed())
        except InputError as error:
            return _skipped("votes", what, node, str(error))
        return await self._ask("votes", what, node, made, {"votes": VOTES})

    async def _criteria(self, node: str, judged: Judged) -> list[_Try | Candidate]:
        """The criterion reworded, each time otherwise."""
        tries, earlier = list[_Try | Candidate](), list[str]()
        held = asking_node(self.metric, node)
        shown = self._search.split.folds[0]
        wrong = wrong_at(self._asking, judged, self._search.answers, node, shown)
        for number in range(self._search.rungs.count("criterion")):
            what = f"criterion rewritten, {chr(ord('a') + number)}"
            if not wrong or held is None:
                why = "no wrong case of it may be shown"
                tries.append(_skipped("criterion", what, node, why))
                continue
            task = Task(
                held.text, list(map(str, held.exemplary)), self._as_seen(judged, node, wrong)
            )
            words, why = await self._edit(task, earlier)
            if words is None:
                why = f"no edit that can be used: {why}"
                tries.append(_skipped("criterion", what, node, why))
                continue
            earlier.append(words)
            made = reworded(self.metric, {node: words})
            detail = {"before": held.text, "criterion": words}
            tries.append(await self._ask("criterion", what, node, made, detail))
        return tries

    async def _edit(self, task: Task, earlier: Sequence[str]) -> tuple[str | None, str]:
        """A new criterion, or None and why; one that cannot be used is asked for once more."""
        why = f"write another edit than: {' / '.join(earlier)}" if earlier else ""
        for _ in range(2):
            words, totals = await self._rewriter.rewrite(
                replace(task, complaint=why), self._asking.rest()
            )
            self._asking.add(totals)
            why = "it was tried already" if words in earlier else complaint(task.criterion, words)
            if not why:
                return words, ""
        return None, why

    def _title(self, metric: BaseMetric, node: str) -> str:
        """What a node of the metric is called in a copy: one without a name by its new words."""
        place = [each.title for each in self.metric.spec().graph.nodes()].index(node)
        return metric.spec().graph.nodes()[place].title

    def _as_seen(self, judged: Judged, node: str, wrong: Sequence[int]) -> list[WrongCase]:
        """Wrong cases as a rewriter sees them."""
        seen: list[WrongCase] = []
        held = asking_node(self.metric, node)
        assert held is not None
        for number in wrong:
            case, result = self._asking.cases[number], judged.first[number]
            steps = {step.node: step for step in result.steps}
            reads = {path: read_field(case, path) for path in held.evaluation_params}
            reads |= {
                source.output_label or source.title: steps[source.title].output
                for source in held.inputs
                if source.title in steps
            }
            step = steps.get(node)
            people = self._search.answers.get(node, {}).get(number)
            label = self._asking.labels.by_case[number]
            final = {True: "pass", False: "fail"}.get(label, str(label))  # type: ignore[arg-type]
            wanted = f"the whole result: {final}"
            if people:
                wanted = (
                    str(people[0]) if not isinstance(held, RatingNode) else f"{people[0]:g} of 1"
                )
            answered = (
                "nothing"
                if step is None
                else str(step.score if step.verdict is None else step.verdict)
            )
            seen.append(WrongCase(reads, answered, step.reason if step else None, wanted))
        return seen

    # Decisions.

    async def _ask(
        self, rung: Rung, what: str, where: str, made: BaseMetric, detail: Mapping[str, Any]
    ) -> _Try:
        """Ask a candidate about the held-out cases."""
        calls = self._asking.totals.calls
        right = self._asking.right(await self._asking.judge(made, self._held))
        calls = self._asking.totals.calls - calls
        return self._made(rung, what, where, made, right, detail, calls)

    def _made(
        self,
        rung: Rung,
        what: str,
        where: str,
        made: BaseMetric,
        right: Mapping[int, float],
        detail: Mapping[str, Any],
        calls: int = 0,
    ) -> _Try:
        before = {number: self._right[number] for number in right if number in self._right}
        candidate = Candidate(
            rung, what, where, _mean(before), _mean(right), self._asking.gain(before, right),
            cases=len(before), calls=calls, detail=dict(detail),
            definition=metric_hash(Counterfactual(made)),
        )  # fmt: skip
        return _Try(candidate, made, right)

    def _decide(self, tries: Sequence[_Try | Candidate], spent: float) -> None:
        """Accept what is shown to be better, cheapest first; a later one has to beat it.

        The share `spent` of the error that is allowed belongs to these tries.
        """
        asked = [each for each in tries if isinstance(each, _Try)]
        against = dict(zip(map(id, asked), self._joint(asked, self._right, spent), strict=True))
        accepted: _Try | None = None
        for each in tries:
            if isinstance(each, Candidate):
                self._note(each)
                continue
            p = against[id(each)]
            why = _refusal(each.candidate, p, len(self._search.rungs))
            if not why and accepted is not None:
                p, *_ = self._joint(asked[asked.index(each) :], accepted.right, spent)
                if p > LEVEL:
                    gain = self._asking.gain(accepted.right, each.right)
                    why = f"{points(gain)} over {accepted.candidate.what}: could be chance"
            decided = replace(each.candidate, p=p, refused=why)
            if not why:
                if accepted is not None:
                    self._replaced(accepted.candidate, decided)
                accepted = replace(each, candidate=decided)
            self._note(decided)
        if accepted is not None:
            self.metric = accepted.metric

    def _joint(
        self, tries: Sequence[_Try], before: Mapping[int, float], spent: float
    ) -> list[float]:
        """The p value of each try over what was before it, for the error that it may spend.

        It is the greater one of two: of all cases, and with as much weight for every label. A judge
        that only learns which label is commoner is no better by the second.
        """
        gains = [
            {n: each.right[n] - before[n] for n in each.right if n in before} for each in tries
        ]
        labels = self._asking.labels.by_case
        often = Counter(labels[n] for n in self._search.split.tried)
        even = [{n: gain / often[labels[n]] for n, gain in each.items()} for each in gains]
        groups = self._asking.groups
        both = zip(joint_p(gains, groups), joint_p(even, groups), strict=True)
        return [min(1.0, max(pair) / spent) for pair in both]

    def _note(self, candidate: Candidate) -> None:
        self.tried.append(candidate)
        self._on_candidate(candidate)

    def _replaced(self, old: Candidate, new: Candidate) -> None:
        """Note that a better change took the place of one that was accepted before."""
        place = next(n for n, each in enumerate(self.tried) if each.definition == old.definition)
        self.tried[place] = replace(old, refused=f"{new.what} is shown to be better")

    def _gain(self, tried: _Try) -> float:
        gain = tried.candidate.gain
        return gain.value if isinstance(gain, Comparison) else 0.0


def _skipped(rung: Rung, what: str, where: str, why: str) -> Candidate:
    return Candidate(rung, what, where, refused=why, skipped=True)


def _mean(right: Mapping[int, float]) -> float | None:
    return sum(right.values()) / len(right) if right else None


def _refusal(candidate: Candidate, p: float, tries: int) -> str:
    """Why a gain is not enough; "" if it is."""
    gain = candidate.gain
    if not isinstance(gain, Comparison):
        return "not known: too few cases or groups"
    if gain.value <= 0:
        return "worse" if gain.value < 0 and gain.p <= LEVEL else "not better"
    if p <= LEVEL:
        return ""
    if gain.p <= LEVEL:
        return f"p {gain.p:.2g} alone, {p:.2g} after {tries} tries"
    return "could be chance, or the judge's noise"


@asynccontextmanager
async def _stored(settings: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The settings with a store: a file of its own for this search, where none is given."""
    if settings.get("store") is not None:
        yield dict(settings)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield {**settings, "store": Path(folder) / "answers.db"}


async def a_improve(
    test_cases: Any,
    metric: BaseMetric,
    labels: str | Path | Mapping[int, Any],
    *,
    groups: str | None = None,
    node: str | None = None,
    times: int = 3,
    proposals: int = 2,
    sealed: float = 0.4,
    rewriter: Rewriter | None = None,
    on_candidate: Callable[[Candidate], None] | None = None,
    **settings: Any,
) -> Improvement:
    """Improve one node of a metric by human labels; returns what was tried, and what is proved.

    `labels` are a case field, a file, or values by the number of the case, as for a judge card; the
    `labels.jsonl` of `dagengine view` also says which node is to blame. A share of the labelled
    cases is `sealed` and looked at once, after the choice. Of the rest a quarter may be shown to a
    judge, as examples or as wrong cases; candidates are compared on the other three quarters.
    `groups` is a field whose equal values keep cases together.

    Tried are, cheapest first: another threshold, another score of a verdict, votes at the node that
    causes most wrong results (or at `node`), solved examples from labels, `proposals` criteria by
    the `rewriter`, and the whole tree as one question. Each is asked `times` times. A change is
    accepted if its gain over the metric accepted before it has a p value of at most 0.05 that
    counts all tries (`acceptance`). `settings` are those of `evaluate`. With a `store` nothing
    is asked twice, also after a kill. The metric is not changed; the result has the new one.

    Raises InputError for labels that say neither pass nor fail nor a verdict, for too few of them,
    and when a limit of `limits` is reached.
    """
    check_settings(a_improve, settings)
    search = Search.of(
        test_cases, metric, labels, groups=groups, node=node, times=times, proposals=proposals,
        sealed=sealed,
    )  # fmt: skip
    async with _stored(settings) as stored:
        return await search.run(stored, rewriter=rewriter, on_candidate=on_candidate)


def improve(
    test_cases: Any,
    metric: BaseMetric,
    labels: str | Path | Mapping[int, Any],
    **settings: Any,
) -> Improvement:
    """`a_improve` for callers without an event loop (it works inside one, too)."""
    check_settings(a_improve, settings)
    return sync(lambda: a_improve(test_cases, metric, labels, **settings))
