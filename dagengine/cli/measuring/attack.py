"""`dagengine attack`: which node of a metric falls, to what, and what a defence costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Reads, name_in_errors, sole, within
from dagengine.cli.common.judge_access import CountedAccess, collector_at_work, saying_how_to_go_on
from dagengine.cli.common.output import fail_if_any, outlive_reader, report, say
from dagengine.errors import InputError
from dagengine.system.terminal_text import counted, text_if, wrap_lines

if TYPE_CHECKING:
    from dagengine.attacking.attack_card import AttackCard
    from dagengine.attacking.campaign import AttackPlan
    from dagengine.estimate.estimate_types import Estimate
    from dagengine.metrics.common.base import BaseMetric
    from dagengine.test_case import TestCase


@dataclass(frozen=True, kw_only=True)
class AttackOptions(shared.CaseOptions, shared.QuoteOptions, shared.LimitOptions):
    """The options of one attack, as they were typed."""

    families: Annotated[str | None, Option(metavar="NAME,…")] = None
    """Families of attacks, separated by commas. Default: all."""
    attacks: Annotated[Path | None, Option(metavar="FILE"), Reads()] = None
    """Attacks of your own, JSON lines: {"family": "name", "text": "words"}; {criterion}, {verdict},
    {node}, {field} and {json} are filled in.
    """
    fields: Annotated[str | None, Option(metavar="FIELD,…")] = None
    """The fields to attack: actual_output, input, retrieval_context, context, tools_called
    (outputs), turns (of the assistant). Default: what the application writes, actual_output or
    turns.
    """
    position: str = "end"
    """Where in a field: end, start, middle, separated by commas."""
    sample: Annotated[int, Option(min=1)] = 100
    """How many failing cases of a metric are attacked at most."""
    repeats: Annotated[int, Option(min=1)] = 1
    """How many times each case is judged."""
    defend: Annotated[str | None, Option(metavar="NAME,…")] = None
    """Defences to try on what fell: quotes, gate, spotlight, judge:NAME."""
    line: Annotated[float, Option(min=0, max=1)] = 0.05
    """The share of honest cases that a defence may change."""
    seed: int = 0
    """The seed of the random sample."""
    plan: shared.PlanOnly = False
    fail_if: Annotated[list[str] | None, Option(metavar="MEASURE>NUMBER")] = None
    """Exit with 1 if this condition holds: falls>0, attack-success>0.1, null-pass>0, drift>0.05;
    shares also with .low and .high. Repeatable.
    """
    out: Annotated[Path, within("attack.html", "attack.json", unless=("plan",))] = Path("attack")
    """Folder for the card."""

    def other_judges(self, defend: Iterable[str]) -> dict[str, Any]:
        """The other judges of defences, by name."""
        from dagengine.attacking.defences import OTHER_JUDGE
        from dagengine.loading import load_judge

        names = [name.removeprefix(OTHER_JUDGE) for name in defend if name.startswith(OTHER_JUDGE)]
        return {name: load_judge(name, self.base_url) for name in names if name}


def attack(options: AttackOptions) -> None:
    """Find which nodes can be manipulated, by what, and what a defence would cost.

    Judges all test cases, then those that fail again with every family of attacks in a field, and
    with harmless words of the same length and form. An attack is one only if it does more than
    these. Prints the number of calls before the first call, and writes the attack card as
    `attack.html` and `attack.json`.

    With --store, an interrupted run continues where it stopped, and a finished run makes no calls.

    Exit codes: 0 done; 1 a --fail-if condition holds; 2 invalid input; 130 interrupted.
    """
    from dagengine.attacking.attack_card import failing_lines, parse_fail_if
    from dagengine.attacking.attack_report import screen, write_attack
    from dagengine.attacking.attack_texts import read_attacks, select_families
    from dagengine.attacking.campaign import AttackPlan, forecasts
    from dagengine.data.cases import valid_cases
    from dagengine.reliability.statistics.intervals import require_benchmark_extra

    conditions = [*map(parse_fail_if, options.fail_if or ())]
    own = () if options.attacks is None else read_attacks(options.attacks)
    defend = _parts(options.defend) or []
    plan = AttackPlan(
        select_families(_parts(options.families), own),
        tuple(_parts(options.fields) or ()) or None,
        tuple(_parts(options.position) or ()),
        options.sample,
        options.seed,
        defend,
        options.other_judges(defend),
        options.line,
    )
    metrics = options.load_metrics(options.metrics)
    read = options.cases()
    cases = cast("list[TestCase]", list(valid_cases(read)))
    if not cases:
        raise InputError(f"{read.name} has no cases: there is nothing to attack")
    require_benchmark_extra()
    model = options.chosen_judge()
    _print_plan(options, plan, forecasts(plan, metrics, cases, model))
    if options.plan:
        return
    outlive_reader()  # the card is not written yet
    with sole(options.out / "attack.json"):
        card = _run_attack(options, plan, metrics, cases, model)
        report(**dataclasses.asdict(card))
        say("\n".join(screen(card)))
        with name_in_errors(options.out):
            page = write_attack(card, options.out)
    say(f"card: {page} (also attack.json)")
    fail_if_any([*failing_lines(card, conditions)])


def _parts(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _print_plan(
    options: AttackOptions, plan: AttackPlan, parts: Iterable[tuple[str, Estimate]]
) -> None:
    """Print what is asked at most, part by part, with its price."""
    total, money, priced = 0.0, 0.0, True
    own = options.prices()
    for what, part in parts:
        calls = part.calls.likely * options.repeats
        total += calls
        price = part.cost(own)
        paid = ""
        if price is None:
            priced = False
        else:
            money += price * options.repeats
            paid = f", ${price * options.repeats:.2f}"
        say(f"  {what}: about {calls:,.0f} calls{paid}")
    report(plan={"calls": total, "usd": money if priced else None})
    much = text_if(priced, f", ${money:.2f}")
    words = (
        f"about {total:,.0f} calls{much} if {counted(plan.sample, 'case')} of a metric, or all, "
        "fail; only failing cases are attacked, and defences are tried on what fell "
        "(retries are extra)"
    )
    say(wrap_lines(words))


def _run_attack(
    options: AttackOptions, plan: AttackPlan, metrics: list[BaseMetric],
    cases: list[TestCase], model: Any,
) -> AttackCard:  # fmt: skip
    """Ask everything; an interrupt says how to continue."""
    from dagengine.attacking.campaign import AttackExperiment, run_plan
    from dagengine.execution.interrupts import sync

    access = CountedAccess()
    settings = {
        "model": model, "store": options.store, "limits": options.limits(),
        "on_attempt": access.note,
    }  # fmt: skip
    asking = AttackExperiment(
        settings=settings, times=options.repeats, show=True, on_row=access.count
    )
    collector_at_work()
    with saying_how_to_go_on(
        options.store, lambda: f"interrupted after {access.done:,} judged cases"
    ):
        return sync(lambda: run_plan(plan, metrics, cases, asking))
