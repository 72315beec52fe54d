"""The search for a change that makes one node better, and the proof that it does.

Changes are tried from the cheapest kind to the dearest: the rungs of a ladder. What was accepted is
then judged on the sealed part of the cases. Every answer is stored before it counts.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Unpack

from dagengine.execution.interrupts import blocking
from dagengine.execution.local_executor import Settings
from dagengine.graph.node import AskingNode
from dagengine.graph.nodes import RatingNode
from dagengine.improvement.candidates import (
    VOTES,
    Proposal,
    asking_node,
    changed,
    examples_for,
    fitted_score,
    fitted_threshold,
)
from dagengine.improvement.experiment import LEVEL, Judged, LabelledExperiment, joint_p
from dagengine.improvement.faulty_node import Faults, NodeBlame
from dagengine.improvement.improvement_report import Candidate, Improvement, Rung, Sealed, points
from dagengine.improvement.rewriters import ONE, JudgeRewriter, Rewriter, Task, WrongCase, complaint
from dagengine.improvement.search_plan import Search, changeable
from dagengine.metrics.common.base import BaseMetric
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.human_labels import metric_hash
from dagengine.reliability.statistics.accuracy_and_kappa import label_ceiling
from dagengine.reliability.statistics.paired_comparisons import Comparison, cases_needed
from dagengine.reliability.statistics.sums import mean_score
from dagengine.store.answer_journal import as_store
from dagengine.system.terminal_text import counted
from dagengine.test_case import case_label, read_field
from dagengine.unknown_arguments import check_names, names_of
from dagengine.voting.metric_rewrites import can_split, pair_at

FREE = 0.2
"""The share of the error that is spent on the rungs that ask nothing."""
POINTS = 0.05
"""The gain for which labels are counted when nothing is proved."""
_PASS: Mapping[Any, str] = {True: "pass", False: "fail"}
_FITTED = {"threshold": fitted_threshold, "scores": fitted_score}  # rungs that ask nothing


@dataclass(frozen=True)
class _Try:
    """A candidate, the metric with it, and its shares of right results (none if it was skipped)."""

    candidate: Candidate
    metric: BaseMetric
    right: Mapping[int, float]

    @property
    def gain(self) -> float:
        """The gain on the held-out cases; 0 where it is not known."""
        gain = self.candidate.gain
        return gain.value if isinstance(gain, Comparison) else 0.0


@dataclass
class _Ladder:
    """The candidates of one search, cheapest first.

    `metric` is that with what was accepted, `right` its shares of right results on the tried cases,
    and `judged` these results. `as_it_was` are the shares of the metric without a change.
    """

    search: Search
    asking: LabelledExperiment
    rewriter: Rewriter
    on_candidate: Callable[[Candidate], None]
    metric: BaseMetric
    tried: list[Candidate] = field(default_factory=list)
    right: Mapping[int, float] = field(default_factory=dict)
    as_it_was: Mapping[int, float] = field(default_factory=dict)
    judged: Judged = field(init=False)
    faults: Faults = field(init=False)

    async def climb(self) -> NodeBlame:
        """Try every rung; returns which node is to blame."""
        search = self.search
        await self._judge()
        self.as_it_was = self.right
        self._decide(await self._tries(), FREE)
        # The mistakes to blame a node for are those that the new threshold or score left.
        if self.metric is not search.metric:
            await self._judge()
        self.faults = Faults(self.judged, search.answers)
        blamed = self.faults.blame(1 - search.sealed_share)
        if search.node is not None:
            blamed = replace(blamed, node=search.node, by="your choice", needed=None)
        elif blamed.node is not None and blamed.node not in changeable(self.metric):
            # It is known, so more labels are not needed; but no rung could change it.
            blamed = replace(blamed, node=None, needed=None)
        if blamed.node is not None:
            self._decide(await self._tries(blamed.node), 1 - FREE)
        return blamed

    async def open_sealed(self) -> Sealed:
        """The sealed part, before and after."""
        cases, asking = self.search.split.sealed, self.asking
        old = (await asking.judge(self.search.metric, cases)).right()
        new = (await asking.judge(self.metric, cases)).right()

        def newly_right(before: Mapping[int, float], after: Mapping[int, float]) -> tuple[str, ...]:
            numbers = [number for number in before if before[number] <= 0.5 < after[number]]
            return tuple(case_label(self.search.cases[number], number) for number in numbers)

        return Sealed(
            asking.share(old), asking.share(new), asking.gain(old, new), newly_right(old, new),
            newly_right(new, old),
        )  # fmt: skip

    def labels_needed(self) -> int | None:
        """About how many more labels would show a gain of 5 points, by what the best one did."""
        gains = [c.gain for c in self.tried if isinstance(c.gain, Comparison) and c.rung != "rival"]
        best = max(gains, key=attrgetter("value"), default=None)
        if best is None:
            return None
        # So many cases can show about √(7.85 · variance / cases), where 7.85 = (1.96 + 0.84)²: this
        # is the variance. A candidate that hardly changed anything does not make it less than 0.02.
        square = max((best.visible or 0.0) ** 2 * best.cases / 7.85, 0.02)
        missing = cases_needed(POINTS, square) - best.cases
        # Only a part of new labels would be tried on, as of those there are.
        share = best.cases / len(self.search.labels.by_case)
        return max(0, 10 * round(missing / share / 10))

    async def _judge(self) -> None:
        """Ask the metric with what was accepted about the tried cases."""
        self.judged = await self.asking.judge(self.metric, self.search.split.tried)
        self.right = self.judged.right()

    async def _tries(self, node: str = "") -> list[_Try]:
        """Try the rungs that ask nothing, or with a node all others at it, in their order."""
        tries = defaultdict[Rung, list[_Try]](list)
        for rung in self.search.rungs:
            if (rung in _FITTED) != bool(node):
                proposal = await self._propose(rung, node, tries)
                tries[rung].append(await self._try(rung, proposal))
        return [*chain.from_iterable(tries.values())]

    async def _propose(self, rung: Rung, node: str, tries: Mapping[Rung, list[_Try]]) -> Proposal:
        """The change that a rung would make, after some `tries`."""
        if rung in _FITTED:
            return _FITTED[rung](self.judged, self.search.split)
        if rung == "votes":
            return Proposal(f"{VOTES} votes", node, self._votes(node))
        if rung == "examples":
            return self._examples(node)
        if rung == "criterion":
            return await self._criterion(node, tries["criterion"])
        if rung == "together":
            return self._together(node, tries["criterion"], tries["examples"][0])
        if rung == "merge":
            return self._merge(node)
        if rung == "split":
            parts: Mapping[str, Any] | str = "it is no yes/no question, or its answer is read"
            if can_split(self.metric, node):
                parts = await self._edit(node, split=True)
            return Proposal("split in two", node, parts)
        return Proposal("one holistic node", "rival", {})

    def _votes(self, node: str) -> Mapping[str, Any] | str:
        """Votes at the node, or why they cannot help."""
        inner_node = asking_node(self.metric, node)
        if inner_node is not None and inner_node.panel is not None:
            return f"it already has votes or several judges: {inner_node.panel.label}"
        for runs in self.judged.runs.values():
            if len({run.replies.get(node) for run in runs}) > 1:
                return {"votes": VOTES}
        return "its answers never differed"

    def _examples(self, node: str) -> Proposal:
        """Labels of the node as solved examples."""
        answers = self.search.answers.get(node, {})
        examples = examples_for(self.judged, node, answers, self.search.split.folds[0])
        if not examples:
            return Proposal("examples from labels", node, "no label of it may be shown")
        title = f"{counted(len(examples), 'example')} from labels"
        return Proposal(title, node, {"examples": [*map(asdict, examples)]})

    async def _criterion(self, node: str, tries: Sequence[_Try]) -> Proposal:
        """The criterion reworded, each time otherwise."""
        edits = map(attrgetter("candidate"), tries)
        earlier = [edit.detail["criterion"] for edit in edits if not edit.skipped]
        title = f"criterion rewritten, {chr(ord('a') + len(tries))}"
        return Proposal(title, node, await self._edit(node, earlier))

    def _together(self, node: str, criteria: Sequence[_Try], examples: _Try) -> Proposal:
        """The best criterion with the examples, if each of them looks better alone."""
        criterion = max(criteria, key=attrgetter("gain"))
        if min(criterion.gain, examples.gain) <= 0:
            why = "needs both, and both have to look better"
            return Proposal("criterion and examples", node, why)
        letter, detail = criterion.candidate.what[-1], examples.candidate.detail
        title = f"{letter} and {counted(len(detail['examples']), 'example')}"
        return Proposal(title, node, {**criterion.candidate.detail, **detail})

    def _merge(self, node: str) -> Proposal:
        """The node and a neighbour as one question."""
        pair = pair_at(self.metric, node)
        if pair is None:
            why = "no neighbouring yes/no node leads to the same outcome"
            return Proposal("merged with a neighbour", node, why)
        detail = {"before": f"{pair.parent.text} {pair.child.text}", "criterion": pair.criterion}
        return Proposal(f"merged with {pair.child.title}", pair.parent.title, detail)

    async def _edit(
        self, node: str, earlier: Sequence[str] = (), *, split: bool = False
    ) -> Mapping[str, Any] | str:
        """New words for a node, or why there are none.

        An edit that cannot be used is asked for once more.
        """
        inner_node, folds = asking_node(self.metric, node), self.search.split.folds
        wrong = self.faults.wrong_at(node, folds[0])
        if not wrong or inner_node is None:
            return "no wrong case of it may be shown"
        wrong_cases = [self._as_seen(inner_node, number) for number in wrong]
        why = f"write another edit than: {' / '.join(earlier)}" if earlier else ""
        for _ in range(2):
            task = Task(
                inner_node.text, list(map(str, inner_node.exemplary)), wrong_cases, why, split
            )
            words, totals = await self.rewriter.rewrite(task, self.asking.remaining())
            self.asking.add(totals)
            if split and words is not None and words.strip(" .") == ONE:
                return "its criterion asks for one thing"
            why = complaint(task, words)
            if words in earlier:
                why = "the judge proposed an earlier wording again"
            if words and not why:
                return {"before": inner_node.text, "criterion": words}
        return f"no edit that can be used: {why}"

    def _as_seen(self, node: AskingNode, number: int) -> WrongCase:
        """A wrong case of a node as a rewriter sees it."""
        case = self.asking.cases[number]
        steps = {step.node: step for step in self.judged.first[number].steps}
        reads = {path: read_field(case, path) for path in node.evaluation_params}
        for source in node.inputs:
            if source.title in steps:
                reads[source.output_label or source.title] = steps[source.title].output
        label = self.asking.labels.by_case[number]
        target = f"the whole result: {_PASS.get(label, label)}"
        for person in self.search.answers.get(node.title, {}).get(number, ())[:1]:
            target = f"{person:g} of 1" if isinstance(node, RatingNode) else str(person)
        if (step := steps.get(node.title)) is None:
            return WrongCase(reads, "nothing", None, target)
        answered = step.score if step.verdict is None else step.verdict
        return WrongCase(reads, str(answered), step.reason, target)

    # Decisions.

    async def _try(self, rung: Rung, proposal: Proposal) -> _Try:
        """Ask a candidate about the held-out cases, unless what is right with it is known."""
        what, where, detail = proposal.what, proposal.where, proposal.detail
        if isinstance(detail, str):
            skipped = Candidate(rung, what, where, refused=detail, skipped=True)
            return _Try(skipped, self.metric, {})
        changed_metric = changed(self.metric, rung, where, **detail)
        calls, right = self.asking.totals.calls, proposal.right
        if right is None:
            tried_cases = self.search.split.without(0)
            right = (await self.asking.judge(changed_metric, tried_cases)).right()
        right_before = {number: self.right[number] for number in right if number in self.right}
        candidate = Candidate(
            rung, what, where, mean_score(right_before.values()), mean_score(right.values()),
            self.asking.gain(right_before, right),
            cases=len(right_before), calls=self.asking.totals.calls - calls, detail=dict(detail),
            definition=metric_hash(Counterfactual(changed_metric)),
        )  # fmt: skip
        return _Try(candidate, changed_metric, right)

    def _decide(self, tries: Sequence[_Try], spent: float) -> None:
        """Accept what is shown to be better, cheapest first; a later one has to beat it.

        The share `spent` of the error that is allowed belongs to these tries.
        """
        p_values = iter(self._joint(tries, self.right, spent))
        accepted: _Try | None = None
        for index, attempt in enumerate(tries):
            candidate = attempt.candidate
            if attempt.right:
                plain, even = next(p_values)
                p, refusal = max(plain, even), self._refusal(candidate, plain, even)
                if accepted is not None and not refusal:
                    # It has to beat what was accepted before, too, and then takes its place.
                    p = max(self._joint(tries[index:], accepted.right, spent)[0])
                    former = accepted.candidate
                    if p > LEVEL:
                        gain = self.asking.gain(accepted.right, attempt.right)
                        refusal = f"{points(gain)} over {former.what}: could be chance"
                    else:
                        worse = replace(former, refused=f"{candidate.what} is shown to be better")
                        self.tried[self.tried.index(former)] = worse
                candidate = replace(candidate, p=p, refused=refusal)
                if not refusal:
                    accepted = replace(attempt, candidate=candidate)
            self.tried.append(candidate)
            self.on_candidate(candidate)
        if accepted is not None:
            self.metric = accepted.metric

    def _joint(
        self, tries: Sequence[_Try], before: Mapping[int, float], spent: float
    ) -> list[tuple[float, float]]:
        """Two p values of each try that was asked, over the shares of right results `before`.

        The first is of all cases as they are, the second with as much weight for every label: a
        judge that only learns which label is commoner is no better by this. Both count all tries,
        which may spend the share `spent` of the error.
        """
        labels, groups = self.asking.labels.by_case, self.asking.groups
        often = Counter(map(labels.__getitem__, self.search.split.tried))
        plain, even = list[dict[int, float]](), list[dict[int, float]]()
        for attempt in filter(attrgetter("right"), tries):
            gains = {n: right - before[n] for n, right in attempt.right.items() if n in before}
            plain.append(gains)
            even.append({n: gain / often[labels[n]] for n, gain in gains.items()})
        p_values = zip(joint_p(plain, groups), joint_p(even, groups), strict=True)
        return [(min(1.0, a / spent), min(1.0, b / spent)) for a, b in p_values]

    def _refusal(self, candidate: Candidate, plain: float, even: float) -> str:
        """Why a gain is not enough by its p values; "" if it is."""
        gain = candidate.gain
        if not isinstance(gain, Comparison):
            return "not known: too few cases or groups"
        if gain.value <= 0:
            return "worse" if gain.value < 0 and gain.p <= LEVEL else "not better"
        if plain <= LEVEL:
            return "" if even <= LEVEL else "not shown with equal weight for every label"
        if gain.p <= LEVEL:
            return f"p {gain.p:.2g} alone, {plain:.2g} after {len(self.search.rungs)} tries"
        return "could be chance, or the judge's noise"


async def run_search(
    search: Search,
    settings: Mapping[str, Any],
    *,
    rewriter: Rewriter | None = None,
    on_candidate: Callable[[Candidate], None] | None = None,
    on_look: Callable[[str], int] | None = None,
) -> Improvement:
    """Climb the ladder, and open the sealed part if a change was accepted.

    `on_candidate` gets every candidate once it is decided. `on_look` gets the hash of the accepted
    metric before the sealed part is opened, and says how many earlier looks it had.
    """
    store = settings.get("store")
    if store is not None:
        settings = {**settings, "store": replace(as_store(store), rewords=True)}
    asking = LabelledExperiment(
        settings=settings, times=search.times, cases=search.cases, labels=search.labels,
        groups=search.groups,
    )  # fmt: skip
    listener = on_candidate or (lambda _: None)
    ladder = _Ladder(search, asking, rewriter or JudgeRewriter(), listener, search.metric)
    blamed = await ladder.climb()
    sealed, looks = None, 0
    if any(candidate.accepted for candidate in ladder.tried) and search.split.sealed:
        if on_look is not None:
            # Noted before it is opened: a run that is killed in between has looked, too.
            looks = on_look(metric_hash(Counterfactual(ladder.metric)))
        sealed = await ladder.open_sealed()
    several, contradictions = search.people_differ()
    return Improvement(
        name=search.metric.spec().name,
        metric=ladder.metric,
        split=search.split,
        times=search.times,
        tries=len(search.rungs),
        right=asking.share(ladder.as_it_was),
        blame=blamed,
        candidates=tuple(ladder.tried),
        sealed=sealed,
        needed=ladder.labels_needed(),
        several=several,
        contradictions=contradictions,
        ceiling=label_ceiling([*map(list, search.people.values())]) if several else None,
        totals=asking.totals,
        looks=looks,
        notes=search.notes,
    )


class Terms(Settings, total=False):
    """How a search goes (as in `Search.of` and `run_search`), and how a run is made."""

    groups: str | None
    node: str | None
    times: int
    proposals: int
    sealed: float
    rewriter: Rewriter | None
    on_candidate: Callable[[Candidate], None] | None


async def a_improve(
    test_cases: Any,
    metric: BaseMetric,
    labels: str | Path | Mapping[int, Any],
    **settings: Unpack[Terms],
) -> Improvement:
    """Improve one node of a metric by human labels; returns what was tried, and what is proved.

    `labels` are a case field, a file, or values by the number of the case, as for a judge card; the
    `labels.jsonl` of `dagengine view` also says which node is to blame. A share of the labelled
    cases is `sealed` (0.4) and looked at once, after the choice. Of the rest a quarter may be shown
    to a judge, as examples or as wrong cases; candidates are compared on the other three quarters.
    `groups` is a field whose equal values keep cases together.

    Tried are, cheapest first: another threshold, another score of a verdict, votes at the node that
    causes most wrong results (or at `node`), solved examples from labels, `proposals` (2) criteria
    by the `rewriter`, the node as one question with its neighbour, as two questions, and the whole
    tree as one question. Each is asked `times` (3). A change is accepted if its gain over the
    metric accepted before it has a p value of at most 0.05 that counts all tries (`joint_p`).
    `on_candidate` gets every candidate once it is decided. The other `settings` are those of
    `evaluate`. With a `store` nothing is asked twice, also after a kill. The metric is not changed;
    the result has the new one.

    Raises InputError for labels that say neither pass nor fail nor a verdict, for too few of them,
    and when a limit of `limits` is reached.
    """
    check_names("improve() has no argument", settings, Terms.__annotations__)
    run_settings: dict[str, Any] = {**settings}
    rewriter = run_settings.pop("rewriter", None)
    on_candidate = run_settings.pop("on_candidate", None)
    terms = {name: run_settings.pop(name) for name in names_of(Search.of) if name in run_settings}
    search = Search.of(test_cases, metric, labels, **terms)
    with tempfile.TemporaryDirectory() as folder:  # answers are shared by all candidates
        if run_settings.get("store") is None:
            run_settings["store"] = Path(folder) / "answers.db"
        return await run_search(search, run_settings, rewriter=rewriter, on_candidate=on_candidate)


improve = blocking(a_improve)
