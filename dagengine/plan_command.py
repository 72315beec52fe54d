"""`dagengine plan`: what a run will ask, take and cost, before a token is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagengine.errors import InputError

if TYPE_CHECKING:
    from dagengine.plan import Plan

LATENCY = 2.0


def plan(
    metrics: Annotated[
        str, typer.Argument(metavar="METRICS.py[:NAME]", help="A Python file with metrics.")
    ],
    data: Annotated[Path, typer.Option(help="Test cases, one JSON object per line.")],
    judge: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Who will answer, as for `run`; it is not asked."),
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible server.")] = None,
    max_in_flight: Annotated[
        int, typer.Option(min=1, help="Judge calls under way at the same time.")
    ] = 64,
    results: Annotated[
        Path | None,
        typer.Option(help="Rows of an earlier run: how likely each verdict is."),
    ] = None,
    items: Annotated[
        int, typer.Option(min=1, help="Assumed length of lists that a judge will write.")
    ] = 10,
    latency: Annotated[float, typer.Option(min=0, help="Assumed seconds for a call.")] = LATENCY,
    price: Annotated[
        str | None,
        typer.Option(metavar="IN,OUT", help="US dollars for a million tokens in and out."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Say what a run will ask before it asks anything: calls, tokens, money, time.

    Questions are given as at least, likely and at most. The bounds hold for every run in
    which each metric gets its score; calls repeated after a failure come on top. Code that
    reads nothing but the case is run, as it would be in the run.
    """
    from dagengine.estimate import estimate, verdicts_of
    from dagengine.loading import load_cases, load_judge, load_metrics, load_results
    from dagengine.plan import compile_metrics
    from dagengine.plan_table import Budget, as_dict, print_estimate

    paid = _price(price)
    compiled = compile_metrics(load_metrics(metrics))
    model = load_judge(judge, base_url) if judge or base_url else None
    names, identities = judges_of(compiled, model)
    found = estimate(
        compiled,
        load_cases(data),
        judges=identities,
        items=items,
        odds=verdicts_of(load_results(results)) if results else None,
    )
    prices = {} if paid is None else dict.fromkeys(names, paid)
    budget = Budget(tuple(names), prices, latency, max_in_flight, items, results is not None)
    if as_json:
        import json

        typer.echo(json.dumps(as_dict(found, budget), ensure_ascii=False, indent=2))
    else:
        print_estimate(found, budget)


def _price(text: str | None) -> tuple[float, float] | None:
    """The prices of `--price IN,OUT`."""
    if text is None:
        return None
    try:
        paid, received = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--price is IN,OUT, for instance 2.5,10, not {text!r}") from None
    if not (0 <= paid < float("inf") and 0 <= received < float("inf")):
        raise InputError(f"--price must be two numbers from 0 on, not {text!r}")
    return paid, received


def judges_of(compiled: Plan, model: Any) -> tuple[list[str], list[str]]:
    """What people call the judges, and what tells them apart, in the order of the plan."""
    from dagengine.judges import as_judge

    judges = [as_judge(model if own is None else own) for own in compiled.models]
    names = [getattr(judge, "model", None) for judge in judges]
    shown = [
        name if isinstance(name, str) else judge.identity.partition(" with ")[0]
        for name, judge in zip(names, judges, strict=True)
    ]
    return shown, [judge.identity for judge in judges]
