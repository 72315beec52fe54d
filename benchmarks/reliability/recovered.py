"""What the judge card finds out about simulated judges, beside the truth about them.

    python benchmarks/reliability/recovered.py [--seeds 300] [--only cards] [--named 10x3]

The populations: mixtures of sure, noisy and coin cases; prevalences of .5 to .95; wrong labels;
several people; drift; lost answers; judges that differ; dialogues; 10 to 300 cases; 3 to 20 runs;
gated trees of two and three depths; labels on a part of the cases; changes on the same cases.

- `cards`: every figure of whole cards of drawn answers.
- `others`: the same of judges whose noise is of other kinds, on which nothing was tuned.
- `examined`: whole cards of judges that do what real ones do (copies, shocks, lost answers …).
- `further`: the same of the populations of a second examination.
- `asked`: whole cards that go the way users go, questions through the engine.
- `estimators`: estimators by themselves, on more numbers of cases, runs, labels and groups.
- `blame`: shares of the noise in gated trees.
- `votes`: how many votes are needed.
- `paired`: what comparisons find, beside exact McNemar and Wilcoxon.

Ends with 1 where a row fails: significantly fewer than 93 % of its intervals hold the truth (by
binomial p < .001: 263 of 300), votes are right or "not known" in fewer than 95 %, or promised
where none are enough in more than 2.5 %, or a comparison finds less than 90 % of what the exact
test finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rows import Row, rows_of, table_of
from simulated.asked_cards import asked_rows
from simulated.paired_power import power_rows, power_table
from simulated.votes_needed import votes_rows, votes_table

Shown = tuple[Table, list[bool]]
"""A table, and for each row whether it fails."""


def _cards(seeds: int, jobs: int, named: str) -> Shown:
    return _shown("whole cards", list(rows_of("simulated.drawn_cards", seeds, jobs, named)), seeds)


def _others(seeds: int, jobs: int, named: str) -> Shown:
    rows = list(rows_of("simulated.other_noise", seeds, jobs, named))
    return _shown("cards of judges with other noise", rows, seeds)


def _examined(seeds: int, jobs: int, named: str) -> Shown:
    rows = list(rows_of("simulated.examined", seeds, jobs, named))
    return _shown("cards of judges that do what real ones do", rows, seeds)


def _further(seeds: int, jobs: int, named: str) -> Shown:
    rows = list(rows_of("simulated.further", seeds, jobs, named))
    return _shown("cards of judges of a second examination", rows, seeds)


def _estimators(seeds: int, jobs: int, named: str) -> Shown:
    return _shown("estimators", list(rows_of("simulated.estimators", seeds, jobs, named)), seeds)


def _asked(seeds: int, jobs: int, named: str) -> Shown:
    return _shown("cards of judges that were asked", asked_rows(seeds, jobs, named), seeds)


def _blame(seeds: int, jobs: int, named: str) -> Shown:
    return _shown("blame", list(rows_of("simulated.blame", seeds, jobs, named)), seeds)


def _votes(seeds: int, jobs: int, named: str) -> Shown:
    rows = votes_rows(seeds, jobs, named)
    return votes_table(rows, seeds), [found.fails for _, found in rows]


def _paired(seeds: int, jobs: int, named: str) -> Shown:
    rows = power_rows(seeds, jobs, named)
    return power_table(rows, seeds), [found.fails for _, _, found in rows]


def _shown(what: str, rows: list[Row], seeds: int) -> Shown:
    return table_of(f"{what}, {seeds} seeds", rows), [row.fails for row in rows]


TABLES: dict[str, Callable[[int, int, str], Shown]] = {
    "cards": _cards,
    "others": _others,
    "asked": _asked,
    "examined": _examined,
    "further": _further,
    "estimators": _estimators,
    "blame": _blame,
    "votes": _votes,
    "paired": _paired,
}


def main(
    seeds: Annotated[int, typer.Option(min=2)] = 300,
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(TABLES)}.")] = None,
    named: Annotated[str, typer.Option(help="Part of the names of populations.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 2,
) -> None:
    """Print the tables, and how many of their rows fail."""
    if stray := set(only or ()) - set(TABLES):
        raise typer.BadParameter(f"no table is called {', '.join(stray)}; {', '.join(TABLES)} are")
    failed = 0
    for name in only or TABLES:
        table, fails = TABLES[name](seeds, jobs, named)
        console = Console(width=130)
        console.print(table)
        console.print(f"{name}: {sum(fails)} of {len(fails)} rows fail")
        failed += sum(fails)
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
