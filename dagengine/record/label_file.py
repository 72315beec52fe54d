"""Labels of people for a run, in `labels.jsonl` beside it: lines are only ever added.

A person walks through the tree of a metric on one case and answers the questions of its nodes
(`view.next_question`). Every line is one answer, the end of a walk, or the retraction of an earlier
line. A line is on the disk before it counts, and is written in one piece. So several processes may
add to one file, and a kill loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dagengine.data.written_lines import JsonLines, line_of
from dagengine.errors import InputError, first_flaw, require_format
from dagengine.prompts.json_in_text import shallow_value
from dagengine.results import Verdict
from dagengine.system.safe_files import is_there, read_whole

FORMAT = 1  # of lines, which do not name it; a line that names a greater one is refused
LABELS = "labels.jsonl"
"""The file of labels in a run folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One answer of a person to a node on a case, or the end of a walk.

    `case` is the hash of the case's content, `index` its place in the run and `name` its name.
    `definition` is the hash of the node. `answer` is a verdict, a rating from 0 to 1, or None for
    "cannot tell".

    The node "" stands for the case as a whole, and `definition` is then the hash of the metric. At
    the end of a walk it has the `outcome`: "pass", "fail", or a score from 0 to 1 if there is no
    threshold. It has an `answer` only if the person was asked about the whole case.
    """

    id: str
    who: str
    when: str
    case: str
    index: int
    name: str
    metric: str
    node: str
    definition: str | None
    answer: Verdict | float | None
    outcome: str | float | None = None
    note: str | None = None

    @property
    def ends(self) -> bool:
        """Return whether this is the end of a walk, and no answer."""
        return not self.node and self.answer is None and self.outcome is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraction:
    """An earlier label that is taken back, by its `id`."""

    who: str
    when: str
    retracts: str


_LABEL, _RETRACTION = TypeAdapter(Label), TypeAdapter(Retraction)


class LabelFile:
    """The labels of one run folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def add(self, lines: Iterable[Label | Retraction]) -> None:
        """Add lines in one piece, and return when they are on the disk; raises InputError."""
        data = b""
        for label in lines:
            row = asdict(label)
            for optional in ("outcome", "note"):
                if optional in row and row[optional] is None:
                    del row[optional]
            data += line_of(row)
        try:
            # Another server may be adding to it.
            with closing(JsonLines(self.path, emptied=False, locked=True)) as file:
                # The page says "saved" after this: then a power cut must not take it back.
                file.write_line(data, synced=True)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror or error}") from error

    def labels(self) -> list[Label]:
        """All labels that were not taken back, in the order of the file.

        Empty without a file. A line that a kill cut off is left out. Raises InputError for a line
        that is not a label.
        """
        labels: dict[str, Label] = {}
        text = read_whole(self.path) if is_there(self.path) else b""
        for number, line in enumerate(text.split(b"\n"), 1):
            if not line.strip():
                continue
            where = f"{self.path} line {number}"
            try:
                row = shallow_value(line)
            except ValueError as error:
                if not line.rstrip().endswith(b"}"):
                    continue  # cut off by a kill, and never said to be saved
                raise InputError(f"{where}: no label (not JSON: {error})") from None
            require_format(row, FORMAT, where)
            try:
                if isinstance(row, Mapping) and "retracts" in row:
                    labels.pop(_RETRACTION.validate_python(row).retracts, None)
                else:
                    label = _LABEL.validate_python(row)
                    labels[label.id] = label
            except ValidationError as error:
                raise InputError(f"{where}: no label ({first_flaw(error)})") from None
        return list(labels.values())


def is_label_file(path: Path) -> bool:
    """Return whether a file holds the labels of walks: its first line says so."""
    try:
        with path.open("rb") as file:
            first = shallow_value(file.readline() or b"null")
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and {"who", "when"} <= first.keys()
