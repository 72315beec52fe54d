"""Data sets in memory: test cases and goldens, loaded from files and evaluated together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from dagengine.data.app import App
from dagengine.data.dataset_files import (
    CONTEXTS,
    DELIMITERS,
    hugging_face,
    load_named,
    named_columns,
    save_rows,
)
from dagengine.data.golden import ConversationalGolden, Golden
from dagengine.deepeval_configs import Show
from dagengine.evaluation import Recorded, evaluate
from dagengine.graph.graph import Metric
from dagengine.results import CaseResult, EvaluationResult
from dagengine.test_case import TestCase
from dagengine.unknown import Answering, answer_absent

if TYPE_CHECKING:
    from dagengine.synthesis.synthesizer import Synthesizer

AnyGolden = Golden | ConversationalGolden


class EvaluationDataset(Sequence[Any], Answering):
    """A data set in memory: a list of test cases to judge, and of goldens that an app completes.

    You can iterate, index and count it like the list of its test cases; the goldens are in
    `goldens`. For a large file, pass its name to `evaluate` or `stream` instead. Goldens among the
    `test_cases` are moved to the goldens.
    """

    def __init__(
        self,
        test_cases: Iterable[TestCase | AnyGolden] | None = None,
        goldens: Iterable[AnyGolden] | None = None,
    ) -> None:
        self.test_cases, self.goldens = list[Any](), list[AnyGolden]()
        for row in test_cases or ():
            if isinstance(row, Golden | ConversationalGolden):
                self.goldens.append(row)
            else:
                self.test_cases.append(row)
        self.goldens += goldens or ()

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
        show: Show = True,
        on_row: Callable[[CaseResult], None] | None = None,
        **settings: Unpack[Recorded],
    ) -> EvaluationResult:
        """`evaluate(self, metrics, …)` with the same arguments; `app=` completes the goldens."""
        return evaluate(self, metrics, show=show, on_row=on_row, **settings)

    def generate_goldens_from_docs(
        self, document_paths: Iterable[Any], *, synthesizer: Synthesizer | None = None, **more: Any
    ) -> None:
        """Append goldens about documents; see `Synthesizer.generate_goldens_from_docs`."""
        self.goldens += _or_default(synthesizer).generate_goldens_from_docs(document_paths, **more)

    def generate_goldens_from_contexts(
        self,
        contexts: Iterable[Sequence[str]],
        *,
        synthesizer: Synthesizer | None = None,
        **more: Any,
    ) -> None:
        """Append goldens about contexts; see `Synthesizer.generate_goldens_from_contexts`."""
        self.goldens += _or_default(synthesizer).generate_goldens_from_contexts(contexts, **more)

    def generate_goldens_from_scratch(
        self, subject: str | Sequence[str], *, synthesizer: Synthesizer | None = None, **more: Any
    ) -> None:
        """Append goldens about a subject; see `Synthesizer.generate_goldens_from_scratch`."""
        self.goldens += _or_default(synthesizer).generate_goldens_from_scratch(subject, **more)

    def add_test_cases_from_json_file(
        self,
        file_path: str | Path,
        input_key_name: str | None = None,
        actual_output_key_name: str | None = None,
        **names: str | None,
    ) -> None:
        """Append a test case per object of a file's JSON array.

        `<field>_key_name=` says which key contains a field (`context_key_name="facts"`). Fields
        that are not named are read from keys of their own names. Other keys are ignored.
        Raises InputError for a row that is not a test case and for a key that no row has. Raises
        TypeError for an argument that names no field.
        """
        names = {"input_key_name": input_key_name, **names}
        names["actual_output_key_name"] = actual_output_key_name
        self.test_cases += _rows(file_path, names, "_key_name", {}, goldens=False)

    def add_goldens_from_json_file(
        self, file_path: str | Path, input_key_name: str | None = None, **names: str | None
    ) -> None:
        """`add_test_cases_from_json_file`, as goldens (conversational ones have a `scenario`)."""
        names = {"input_key_name": input_key_name, **names}
        self.goldens += _rows(file_path, names, "_key_name", {}, goldens=True)

    def add_test_cases_from_jsonl_file(
        self,
        file_path: str | Path,
        input_key_name: str | None = None,
        actual_output_key_name: str | None = None,
        **names: str | None,
    ) -> None:
        """`add_test_cases_from_json_file` for a file with an object in each line.

        A context that is a text is split at `<field>_col_delimiter=` (`|` where not given).
        """
        names = {"input_key_name": input_key_name, **names}
        names["actual_output_key_name"] = actual_output_key_name
        self.test_cases += _rows(file_path, names, "_key_name", CONTEXTS, goldens=False)

    def add_goldens_from_jsonl_file(
        self, file_path: str | Path, input_key_name: str | None = None, **names: str | None
    ) -> None:
        """`add_test_cases_from_jsonl_file`, as goldens."""
        names = {"input_key_name": input_key_name, **names}
        self.goldens += _rows(file_path, names, "_key_name", CONTEXTS, goldens=True)

    def add_test_cases_from_csv_file(
        self,
        file_path: str | Path,
        input_col_name: str | None = None,
        actual_output_col_name: str | None = None,
        **names: str | None,
    ) -> None:
        """Append a test case per row of a CSV file.

        As `add_test_cases_from_json_file`, with `<field>_col_name=`. A cell of a list is JSON, or
        is split at `<field>_col_delimiter=` (by default contexts at `|` and tools at `;`). An empty
        cell is an empty list. Tools are given by their names, or as JSON.
        """
        names = {"input_col_name": input_col_name, **names}
        names["actual_output_col_name"] = actual_output_col_name
        self.test_cases += _rows(file_path, names, "_col_name", DELIMITERS, goldens=False)

    def add_goldens_from_csv_file(
        self, file_path: str | Path, input_col_name: str | None = None, **names: str | None
    ) -> None:
        """`add_test_cases_from_csv_file`, as goldens."""
        names = {"input_col_name": input_col_name, **names}
        self.goldens += _rows(file_path, names, "_col_name", DELIMITERS, goldens=True)

    def add_test_cases_from_hf_dataset(
        self, dataset_name: Any, split: str | None = "train", **names: str | None
    ) -> None:
        """Append a test case per row of a Hugging Face data set, given by name or as an object.

        `<field>_field_name=` says which column holds a field, as in
        `add_test_cases_from_json_file`. Raises MissingExtraError for a name without the package
        `datasets`.
        """
        columns = named_columns("_field_name", names, goldens=False)
        self.test_cases += load_named(hugging_face(dataset_name, split), columns, {}, goldens=False)

    def add_goldens_from_hf_dataset(
        self, dataset_name: Any, split: str | None = "train", **names: str | None
    ) -> None:
        """`add_test_cases_from_hf_dataset`, as goldens."""
        columns = named_columns("_field_name", names, goldens=True)
        self.goldens += load_named(hugging_face(dataset_name, split), columns, {}, goldens=True)

    def save_as(
        self,
        file_type: Literal["json", "csv", "jsonl"],
        directory: str | Path,
        file_name: str | None = None,
        include_test_cases: bool = False,
    ) -> str:
        """Write the goldens into `directory/file_name.file_type`; returns the path.

        The loaders above read the file again. With `include_test_cases` the test cases are
        written, too, as goldens; without a name the file is called by date and time. Raises
        InputError if there is nothing to write.
        """
        cases = self.test_cases if include_test_cases else ()
        return str(save_rows(self.goldens, cases, file_type, directory, file_name))


def _rows(
    path: str | Path,
    arguments: Mapping[str, str | None],
    ending: str,
    delimiters: Mapping[str, str],
    *,
    goldens: bool,
) -> list[Any]:
    """The rows of a file, by arguments: `<field><ending>` and `<field>_col_delimiter`.

    Without the latter, cells of the fields of `delimiters` are split at these.
    """
    chosen, names = dict(delimiters), dict(arguments)
    for field in delimiters:
        chosen[field] = names.pop(f"{field}_col_delimiter", None) or delimiters[field]
    return load_named(path, named_columns(ending, names, goldens), chosen, goldens=goldens)


def _or_default(synthesizer: Synthesizer | None) -> Synthesizer:
    from dagengine.synthesis.synthesizer import Synthesizer as Default
    from dagengine.synthesis.synthesizer import require_kind

    return Default() if synthesizer is None else require_kind("synthesizer", synthesizer, Default)


__all__ = ["App", "ConversationalGolden", "EvaluationDataset", "Golden"]

answer_absent(__name__)
