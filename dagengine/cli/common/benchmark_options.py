"""What `dagengine benchmark` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from typer import Argument, Option

from dagengine.cli.common import options as shared
from dagengine.cli.common.files import Reads
from dagengine.cli.common.files import within as writes

TIMES: Final = 20
"""How many times each question is asked, if nothing else is said."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions(shared.ColumnOptions, shared.QuoteOptions):
    """The options of one benchmark, as they were typed."""

    metrics: Annotated[
        str | None,
        Argument(metavar="METRICS.py[:NAME]", help="A Python file with metrics."),
        Reads(metrics=True),
    ] = None
    data: Annotated[Path | None, Option(help="Test cases in a file, as for `run`."), Reads()] = None
    judge: Annotated[
        list[str] | None,
        Option(
            metavar="MODEL",
            autocompletion=shared.judge_names,
            help="The judge, as for `run`. Repeatable: several judges are compared.",
        ),
        Reads(),
    ] = None
    base_url: shared.BaseUrl = None
    times: Annotated[
        int | None, Option(min=1, help=f"How many times each question is asked. Default: {TIMES}.")
    ] = None
    orders: Annotated[
        str, Option(help="Orders of presentation, separated by commas: given, swapped, reversed.")
    ] = "given"
    temperatures: Annotated[
        str | None,
        Option(help="Temperatures, separated by commas. Default: the temperature of each node."),
    ] = None
    seeds: Annotated[str | None, Option(help="Seeds for the judge, separated by commas.")] = None
    paraphrases: Annotated[
        Path | None,
        Option(
            metavar="FILE.json",
            help='Other criteria for nodes: {"short": {"name of a node": "other words"}, …}.',
        ),
        Reads(),
    ] = None
    swap: Annotated[
        str | None,
        Option(
            metavar="FIRST,SECOND",
            help="The two fields that the order `swapped` exchanges. Default: the two contestants.",
        ),
    ] = None
    probabilities: Annotated[
        bool,
        Option(
            "--probabilities",
            help="Ask for token probabilities, to measure the judge's calibration.",
        ),
    ] = False
    second_answers: Annotated[
        bool, Option(help="If a case reached a node only once, ask that node a second time.")
    ] = True
    verdicts: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Existing verdicts, instead of judge calls: a table with the columns `case` and "
            "`verdict` or `score` (optional: `run`, `node`, `judge` …), or a file from "
            "`Observations.save`. Without METRICS.py: of any judge, also a run, or results of "
            "promptfoo, deepeval, inspect and MLflow.",
        ),
        Reads(),
    ] = None
    scale: Annotated[
        str | None,
        Option(metavar="LOW,HIGH", help="The range of the scores in --verdicts. Default: 0,1."),
    ] = None
    labels: Annotated[
        str | None,
        Option(
            metavar="FIELD|FILE",
            help="Human labels: a case field such as `additional_metadata.label`, a file with the "
            "columns `case` (name, or index from 0) and `label`, or the `labels.jsonl` of "
            "`dagengine view`.",
        ),
    ] = None
    labels_random: Annotated[
        bool,
        Option(
            "--labels-random",
            help="State that the labelled cases are a random sample of all cases. The card then "
            "corrects the judge's pass rate with them.",
        ),
    ] = False
    label_scale: Annotated[
        str | None,
        Option(
            metavar="LOW,HIGH",
            help="The lowest and the highest label there can be, of labels that are numbers.",
        ),
    ] = None
    need: Annotated[
        str | None,
        Option(
            metavar="NAME=NUMBER,…",
            help="What the judge must meet to be used: agreement=80,kappa=0.4,flips=5 "
            "(agreement and flips in per cent).",
        ),
    ] = None
    metric: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="The metric in --verdicts, if there are several and no METRICS.py is given.",
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Option(
            help="From which score on a verdict passes, where --verdicts has scores and no "
            "METRICS.py is given. Default: half-way."
        ),
    ] = None
    ties: Annotated[
        Literal["wrong", "share"],
        Option(
            help="Where --verdicts has a column `candidate`: a tie of the best candidates is "
            "wrong, or shared (right as often as a draw among them)."
        ),
    ] = "share"
    within: Annotated[
        float,
        Option(
            min=0,
            max=100,
            help="Where --verdicts has a column `candidate`: fewer scores are enough if they are "
            "surely at most so many points short of all of them.",
        ),
    ] = 1.0
    verbose: Annotated[
        bool, Option("--verbose", help="Print all figures, not only the verdict.")
    ] = False
    groups: Annotated[
        str | None,
        Option(
            metavar="FIELD",
            help="The case field that identifies a group of dependent cases, "
            "for instance of one document.",
        ),
    ] = None
    out: Annotated[
        Path,
        Option(help="Folder for the card."),
        writes("card.html", "card.json", "card.md", unless=("check", "compare")),
    ] = Path("benchmark")
    fail_if: Annotated[
        list[str] | None,
        Option(
            metavar="MEASURE>NUMBER",
            help="Exit with 1 if this condition holds; also verdict!=use. Repeatable. With "
            "--compare, it must hold for the difference, with p < 0.05 after correction for all "
            "conditions.",
        ),
    ] = None
    target: Annotated[
        float,
        Option(
            min=0, max=0.5, help="The flip rate to reach; the card says how many votes it takes."
        ),
    ] = 0.05
    max_calls: Annotated[
        int | None,
        Option(min=0, help="Make no calls at all if more calls than this may be needed."),
    ] = None
    max_in_flight: shared.MaxInFlight = None
    max_tokens: shared.MaxTokens = None
    store: shared.StorePath = None
    check: Annotated[
        Path | None,
        Option(
            metavar="CARD.json", help="Only say whether this card is still valid. Makes no calls."
        ),
        Reads(),
    ] = None
    compare: Annotated[
        tuple[Path, Path] | None,
        Option(metavar="OLD.json NEW.json", help="Only compare two cards."),
        Reads(),
    ] = None
