"""From repeated runs to a judge card: every metric under every setting, then across settings."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from operator import attrgetter
from pathlib import Path
from typing import Any

from dagengine.errors import InputError, near_hint
from dagengine.graph.graph import Metric
from dagengine.reliability.card import case_results, label_agreement, node_cards, repeats
from dagengine.reliability.card.differences import between_settings
from dagengine.reliability.card.label_agreement import NOBODY, LabelledRuns
from dagengine.reliability.card.types import (
    CaseKey,
    Figure,
    JudgeCard,
    MetricCard,
    Needs,
    Setting,
    SettingCard,
)
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.fingerprint import bind
from dagengine.reliability.human_labels import (
    HumanLabels,
    Labels,
    NodeAnswers,
    labels_for,
    on_scale,
)
from dagengine.reliability.observations import Condition, Observation
from dagengine.reliability.observed_runs import (
    Runs,
    alike_but_for_blanks,
    clusters,
    constant_questions,
    runs_of,
)
from dagengine.reliability.perturbations import Symmetry
from dagengine.reliability.statistics.sums import mean_score
from dagengine.system.terminal_text import counted
from dagengine.test_case import LLMTestCase, TestCase, case_label

RULES = (
    "Values leave runs without a score out. Intervals of pass rate, mean score and agreement reach "
    "from all of them wrong to all of them right.",
    "A tie of the runs of a case is no outcome, and agrees with nobody.",
    "Runs are compared within one case and one setting; then cases are averaged.",
    "Runs under different settings are never pooled.",
    "Shares of the noise assume that the nodes of a case answer independently of each other.",
)


def make_card(
    observations: Iterable[Observation],
    metrics: Sequence[Metric],
    cases: Sequence[TestCase],
    judges: Sequence[str],
    *,
    labels: str | Path | Mapping[int, Any] | None = None,
    labels_random: bool = False,
    label_scale: tuple[float, float] | None = None,
    groups: str | None = None,
    target: float = 0.05,
    symmetry: Symmetry | None = None,
    needs: Needs | None = None,
    price: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> JudgeCard:
    """The card of a benchmark.

    `judges` are the identities of the judges that answered. `labels` is what people say (see
    `HumanLabels`): a case field's path, a file (also the `labels.jsonl` of `dagengine view`), or
    labels by case number. `labels_random` states that the labelled cases are a random sample of
    all, `label_scale` the ends of labels that are numbers. `groups` is the path of a field that
    cases of one document or dialogue have in common. `target` is the flip rate that votes are
    counted for, `symmetry` what was swapped, `needs` what the judge has to meet, `price` that of
    one question in US dollars. `progress` is called with a line as each setting begins. Raises
    InputError if no case has a label, no label is an outcome of a metric, or no case has the field
    of groups. Raises it too if the observations are about other metrics or nodes.
    """
    replays = list(map(Counterfactual, metrics))
    observed = _about_these(list(observations), replays)
    people = HumanLabels(cases, labels)
    meanings = _meanings(people, replays, cases, label_scale)
    reads = [replay.plan.fields for replay in replays]
    together = clusters(cases, observed, groups, reads)
    alike = max((alike_but_for_blanks(cases, paths) for paths in reads), default=0)
    runs = [runs_of(observed, replay, together) for replay in replays]
    settings, keys = _settings(runs), tuple(keys_of(cases, together))
    maker = _Maker(
        cases, settings, people, labels_random, groups is not None, target,
        symmetry or Symmetry(), progress or (lambda _: None),
    )  # fmt: skip
    cards: list[MetricCard] = []
    for own, replay, meaning in zip(runs, replays, meanings, strict=True):
        card = maker.card(LabelledRuns(own, _threshold(replay), meaning), replay)
        cards.append(replace(card, between=between_settings(card, settings, keys)))
    dependence = own_rules(together, len(cases), constant_questions(observed), alike)
    gone = *people.left_out(replays), *_ties(meanings)
    return JudgeCard(
        bind(metrics, judges, cases), max(map(attrgetter("times"), settings), default=0),
        settings, tuple(cards), keys, (*RULES, *dependence, *gone), labels_random, label_scale,
        needs or Needs(flips=target), price,
    )  # fmt: skip


def _about_these(
    observed: Sequence[Observation], replays: Sequence[Counterfactual]
) -> Sequence[Observation]:
    """Observations of the metrics; a table that names none is about the only one."""
    names = [replay.spec.name for replay in replays]
    about = [*dict.fromkeys(map(attrgetter("metric"), observed))]
    if about == [""] and len(names) == 1:
        observed = [replace(row, metric=names[0]) for row in observed]
    elif about and not set(about) & set(names):
        raise InputError(
            f"the observations are about {', '.join(map(repr, about))}, but the metrics are "
            f"called {', '.join(map(repr, names))}"
        )
    nodes = dict.fromkeys((row.metric, row.node) for row in observed if row.node)
    for replay in replays:
        plan, name = replay.plan, replay.spec.name
        titles = {*map(attrgetter("name"), (*plan.slots, *plan.units))}
        for metric, node in nodes:
            if metric == name and node not in titles:
                speaking = ", ".join(repr(speaker.node) for speaker in replay.speakers)
                raise InputError(
                    f"the observations name a node {node!r}, but the metric {name!r} has no such "
                    f"node{near_hint(node, titles)}; its nodes that decide or rate are "
                    f"{speaking or 'none'}"
                )
    return observed


def check_labels(
    metrics: Sequence[Metric], cases: Sequence[TestCase], labels: str | Path | Mapping[int, Any]
) -> list[str]:
    """Raise what `make_card` would raise about labels, before the first call.

    Returns what is to be said about them, one line each: which are left out.
    """
    replays, people = list(map(Counterfactual, metrics)), HumanLabels(cases, labels)
    return [*people.left_out(replays), *_ties(_meanings(people, replays, cases))]


def _ties(meanings: Iterable[Labels]) -> Iterator[str]:
    """A line for cases that are left out because as many people say one thing as another."""
    tied = max((len(own.people.keys() - own.by_case.keys()) for own in meanings), default=0)
    if tied:
        yield f"{counted(tied, 'case')} left out: as many people say one label as another"


def _meanings(
    people: HumanLabels, replays: Sequence[Counterfactual], cases: Sequence[TestCase],
    scale: tuple[float, float] | None = None,
) -> list[Labels]:  # fmt: skip
    """Meaning of labels for each metric: nobody's if none is an outcome, which must not be all."""
    meanings = [NOBODY] * len(replays)
    errors: list[InputError] = []
    for index, source in enumerate(people.for_metrics(replays) if people.of_cases else ()):
        try:
            if source:
                labels = labels_for(source, replays[index], cases)
                if _threshold(replays[index]) is not None:
                    require_pass_or_fail(labels, replays[index].spec.name, cases)
                meanings[index] = labels
        except InputError as error:
            errors.append(error)
    if errors and len(errors) == len(meanings):
        raise errors[0]
    if scale is not None:
        return [on_scale(own, scale) if own.people else own for own in meanings]
    return meanings


def require_pass_or_fail(labels: Labels, metric: str, cases: Sequence[TestCase]) -> None:
    """Raise InputError for a label of another kind where labels stand for cases without one."""
    stands_for_others = labels.kind == "pass" and len(labels.by_case) < len(cases)
    for number, label in labels.by_case.items() if stands_for_others else ():
        if not isinstance(label, bool):
            raise InputError(
                f"the label {label!r} of the case {case_label(cases[number], number)!r} is neither "
                f"pass nor fail for the metric {metric!r}, and figures of the cases without a "
                "label rest on it: write pass or fail, or take the label out"
            )


def keys_of(cases: Sequence[TestCase], together: Mapping[int, Hashable]) -> Iterator[CaseKey]:
    for number, case in enumerate(cases):
        about = ""  # a dialogue has no input that two systems could have been asked
        if isinstance(case, LLMTestCase):
            about = hashlib.sha256(case.input.encode(errors="surrogatepass")).hexdigest()[:16]
        name, key = case_label(case, number), case.content_hash()[:16]
        yield CaseKey(name, key, str(together.get(number, "")), about)


def _threshold(replay: Counterfactual) -> float | None:
    return 1.0 if replay.spec.strict else replay.spec.threshold


def own_rules(
    together: Mapping[int, Hashable], cases: int, shared: Sequence[str], alike: int
) -> Iterator[str]:
    """Rules for reading this card's intervals: what n counts, and what no interval contains."""
    if alike:
        yield f"{counted(alike, 'text')} equal others but for blanks, and count as different."
    if together:
        independent = cases - len(together) + len(set(together.values()))
        yield (
            f"{len(together)} of {counted(cases, 'case')} share a question, texts or a group with "
            f"other cases. So intervals and n count {independent} independent cases and groups."
        )
    if shared:
        named = f"“{'”, “'.join(shared)}”"
        yield (
            f"All cases share one question of {named}. Its answer affects all scores of a run in "
            "the same way; no interval contains this effect, because more cases cannot show it."
        )


# Settings.


def _settings(all_runs: Sequence[Runs]) -> tuple[Setting, ...]:
    times = defaultdict[Condition, int](int)
    for settings in chain.from_iterable(runs.cases.values() for runs in all_runs):
        for condition, row in settings.items():
            times[condition] = max(times[condition], len(row))
    return tuple(Setting(named_setting(at, [*times]), at, count) for at, count in times.items())


_ORDERS = {"given": "order as given", "swapped": "inputs swapped", "reversed": "options reversed"}


def named_setting(setting: Condition, conditions: Sequence[Condition]) -> str:
    """Name of a setting among the others."""
    own: dict[object, object] = {None: "as the nodes have it"}
    words = {
        "judge": setting.judge,
        "temperature": f"temperature {own.get(setting.temperature, setting.temperature)}",
        "seed": f"seed {own.get(setting.seed, setting.seed)}",
        "order": _ORDERS.get(setting.order, setting.order),
        "paraphrase": f"wording {setting.paraphrase or 'as given'}",
    }
    differing = (len({*map(attrgetter(field), conditions)}) > 1 for field in words)
    return ", ".join(compress(words.values(), differing)) or "as given"


# One metric.


@dataclass(frozen=True)
class _Maker:
    """Maker of the cards of metrics, of what they have in common."""

    cases: Sequence[TestCase]
    settings: Sequence[Setting]
    people: HumanLabels
    random: bool
    grouped: bool
    target: float
    symmetry: Symmetry
    progress: Callable[[str], None]

    def card(self, whole: LabelledRuns, replay: Counterfactual) -> MetricCard:
        settings, walked = list[SettingCard](), self.people.walked(replay)
        for setting in self.settings:
            self.progress(setting.name)
            under = replace(whole, runs=whole.runs.under(setting.condition))
            settings.append(self._under(setting.name, under, replay, walked))
        return MetricCard(
            replay.spec.name, whole.threshold, tuple(settings),
            across=(
                *repeats.flips_between_settings(whole.runs),
                *repeats.agreement_of_judges(whole.runs, whole.threshold),
                *repeats.position_bias(whole.runs, replay, self.cases, self.symmetry),
            ),
            labels=whole.labels.meanings,
        )  # fmt: skip

    def _under(
        self, name: str, marked: LabelledRuns, replay: Counterfactual, walked: NodeAnswers
    ) -> SettingCard:
        runs, threshold = marked.runs, marked.threshold
        noise = node_cards.noise_of(runs, replay, self.cases)
        unlike = repeats.not_repeats(runs, threshold)
        nodes = node_cards.node_cards(
            replay, runs, noise, walked, target=self.target, cases=len(self.cases),
            unlike=unlike.first,
        )  # fmt: skip
        calibrated, tables = label_agreement.stated_probabilities(marked)
        effects, notes = case_results.unsupported_effect(marked)
        corrected = tuple(
            label_agreement.corrected_figures(marked, self.random, dict(_traits(self.cases)))
        )
        unsure = label_agreement.why_not_all(marked, corrected, self.random)
        # A reader picks the best of the settings, so all of them have to hold together.
        together = 1 - 0.05 / len(self.settings)
        return SettingCard(
            setting=name,
            again=tuple(map(unlike.without, repeats.again(runs, threshold))),
            nodes=nodes,
            people=tuple(self._people(marked, walked)),
            spread=tuple(case_results.spread(runs, self.cases)),
            calls=mean_score([len(run.asked) for run in runs.every()]) or 0.0,
            departures=unlike.shown,
            warnings=(*repeats.lost_together(runs, threshold), *filter(None, (unlike.shock,))),
            voted=tuple(
                label_agreement.withhold_intervals(votes, unsure)
                for votes in label_agreement.votes_of_runs(marked, unlike, together)
            ),
            segments=tuple(case_results.segments(marked.hits, self.cases, runs.group)),
            disagreements=tuple(case_results.disagreements(marked, self.cases)),
            unlabelled=tuple(case_results.next_labels(marked)),
            notes=(
                *node_cards.notes_on(noise), *repeats.without_score(runs),
                *repeats.rule_effect(runs, threshold), *notes,
            ),
            more=(
                *repeats.agreement_of_runs(runs, threshold),
                *repeats.bias_by_place(runs, replay),
                *repeats.bias_by_length(runs, self.cases, marked.by_case),
                *calibrated,
                *effects,
            ),
            calibration=tuple(tables),
            outcomes=case_results.outcomes(marked, len(self.cases)),
            corrected=corrected,
            confusion=label_agreement.confusion_table(marked),
            keys=node_cards.key_cards(runs, self.people.criteria),
        )  # fmt: skip

    def _people(self, marked: LabelledRuns, walked: NodeAnswers) -> Iterator[Figure]:
        yield from label_agreement.compare_with_labels(marked, self.grouped)
        if not marked.labels.people and self.people.of_cases:
            # People may have walked a tree of which only some nodes are as they were.
            stale = "no finished walk fits the current definition of the metric"
            unknown = "no label is a possible outcome of this metric"
            yield Figure("accuracy", None, note=stale if any(walked.values()) else unknown)


def _traits(cases: Sequence[TestCase]) -> Iterator[tuple[str, Sequence[float]]]:
    """Numbers of all cases in which those with a label do not differ if they were drawn."""
    yield "place in the file", range(len(cases))
    for field in ("input", "actual_output"):
        texts = [getattr(case, field, None) for case in cases]
        if any(isinstance(text, str) for text in texts):
            yield f"length of `{field}`", [len(text or "") for text in texts]
