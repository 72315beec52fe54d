"""Data sets in memory: test cases and goldens, loaded from files and evaluated together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from dagengine.data.cases import read_cases, strict
from dagengine.data.golden import ConversationalGolden, Golden
from dagengine.execution.app import App
from dagengine.execution.engine import Settings
from dagengine.execution.evaluation import evaluate
from dagengine.graph.graph import Metric
from dagengine.results import CaseResult, EvaluationResult
from dagengine.test_case import TestCase

AnyGolden = Golden | ConversationalGolden


class EvaluationDataset(Sequence[Any]):
    """A list of test cases, ready to be judged, and of goldens, which an app completes.

    It can be iterated, indexed and counted like the list of its test cases; the goldens are
    in `goldens`. The whole data set is in memory: a long file is better given to `evaluate`
    or `stream` by its name.
    """

    def __init__(
        self,
        test_cases: Iterable[TestCase] | None = None,
        goldens: Iterable[AnyGolden] | None = None,
    ) -> None:
        self.test_cases: list[Any] = list(test_cases or ())
        self.goldens: list[AnyGolden] = list(goldens or ())

    def __len__(self) -> int:
        return len(self.test_cases)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.test_cases)

    def __getitem__(self, index: Any) -> Any:
        return self.test_cases[index]

    def __repr__(self) -> str:
        return f"EvaluationDataset({len(self)} test cases, {len(self.goldens)} goldens)"

    def add_test_case(self, test_case: TestCase) -> None:
        """Append one test case."""
        self.test_cases.append(test_case)

    def add_golden(self, golden: AnyGolden) -> None:
        """Append one golden."""
        self.goldens.append(golden)

    def evaluate(
        self,
        metrics: Sequence[Metric],
        *,
        show: bool = True,
        on_row: Callable[[CaseResult], None] | None = None,
        out: str | Path | None = None,
        texts: bool = True,
        **settings: Unpack[Settings],
    ) -> EvaluationResult:
        """`evaluate(self, metrics, …)` with the same arguments; `app=` completes the goldens."""
        return evaluate(self, metrics, show=show, on_row=on_row, out=out, texts=texts, **settings)

    def add_test_cases_from_json_file(
        self,
        file_path: str | Path,
        input_key_name: str,
        actual_output_key_name: str | None = None,
        expected_output_key_name: str | None = None,
        context_key_name: str | None = None,
        retrieval_context_key_name: str | None = None,
        tools_called_key_name: str | None = None,
        expected_tools_key_name: str | None = None,
    ) -> None:
        """Append a test case per object of a file's JSON array; keys not named are left out.

        Raises InputError for a row that is no test case, and a key that no row has.
        """
        self.test_cases += _load(file_path, _named("_key_name", locals()), {}, goldens=False)

    def add_goldens_from_json_file(
        self,
        file_path: str | Path,
        input_key_name: str,
        actual_output_key_name: str | None = None,
        expected_output_key_name: str | None = None,
        context_key_name: str | None = None,
        retrieval_context_key_name: str | None = None,
        tools_called_key_name: str | None = None,
        expected_tools_key_name: str | None = None,
    ) -> None:
        """`add_test_cases_from_json_file`, as goldens."""
        self.goldens += _load(file_path, _named("_key_name", locals()), {}, goldens=True)

    def add_test_cases_from_csv_file(
        self,
        file_path: str | Path,
        input_col_name: str,
        actual_output_col_name: str | None = None,
        expected_output_col_name: str | None = None,
        context_col_name: str | None = None,
        context_col_delimiter: str = ";",
        retrieval_context_col_name: str | None = None,
        retrieval_context_col_delimiter: str = ";",
        tools_called_col_name: str | None = None,
        tools_called_col_delimiter: str = ";",
        expected_tools_col_name: str | None = None,
        expected_tools_col_delimiter: str = ";",
    ) -> None:
        """Append a test case per row of a CSV file; columns not named are left out.

        Lists are split at their delimiter; tools are given by their names. Raises
        InputError for a row that is no test case, and a column that is not there.
        """
        given = locals()
        self.test_cases += _load(
            file_path, _named("_col_name", given), _delimiters(given), goldens=False
        )

    def add_goldens_from_csv_file(
        self,
        file_path: str | Path,
        input_col_name: str,
        actual_output_col_name: str | None = None,
        expected_output_col_name: str | None = None,
        context_col_name: str | None = None,
        context_col_delimiter: str = ";",
        retrieval_context_col_name: str | None = None,
        retrieval_context_col_delimiter: str = ";",
        tools_called_col_name: str | None = None,
        tools_called_col_delimiter: str = ";",
        expected_tools_col_name: str | None = None,
        expected_tools_col_delimiter: str = ";",
    ) -> None:
        """`add_test_cases_from_csv_file`, as goldens."""
        given = locals()
        self.goldens += _load(
            file_path, _named("_col_name", given), _delimiters(given), goldens=True
        )


def _named(ending: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Column to field, from arguments that are called `<field><ending>`."""
    return {
        column: name.removesuffix(ending)
        for name, column in given.items()
        if name.endswith(ending) and column is not None
    }


def _delimiters(given: Mapping[str, Any]) -> dict[str, str]:
    """Column to delimiter, for the columns that are named."""
    ending = "_col_delimiter"
    columns = {
        given[f"{name.removesuffix(ending)}_col_name"]: delimiter
        for name, delimiter in given.items()
        if name.endswith(ending)
    }
    return {column: delimiter for column, delimiter in columns.items() if column is not None}


def _load(
    path: str | Path, columns: Mapping[str, str], delimiters: Mapping[str, str], *, goldens: bool
) -> list[Any]:
    """Every row of a file, of which only the named columns count."""
    cases = read_cases(path, map=columns, delimiters=delimiters, goldens=goldens, others=False)
    cases.check()
    return list(strict(cases))


__all__ = ["App", "ConversationalGolden", "EvaluationDataset", "Golden"]
