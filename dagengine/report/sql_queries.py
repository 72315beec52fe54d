"""SQL over the rows of runs, by DuckDB (the extra `sql`), without an index.

Three views hold what the files of a run say: `runs` has a line per case and metric, `steps` a
line per case, metric and node that ran, `cases` the texts. The files are read as they are, by all
processors, at each query; for `runs` the columns of a run that has some. Nothing else can be read,
and nothing can be written.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from dagengine.errors import InputError, load_extra
from dagengine.record.parquet_columns import COLUMNS
from dagengine.record.reader import Run
from dagengine.record.writer import CASES
from dagengine.system.safe_files import is_there, require_regular

_FAILURE = "STRUCT(kind VARCHAR, node VARCHAR, message VARCHAR)"
_USAGE = "STRUCT(input_tokens BIGINT, output_tokens BIGINT)"
_STEP = (
    "STRUCT(node VARCHAR, kind VARCHAR, outcome VARCHAR, verdict JSON, score DOUBLE, "
    f"confidence DOUBLE, reason VARCHAR, output JSON, votes JSON, usage {_USAGE})"
)
_METRIC = (
    "STRUCT(metric VARCHAR, score DOUBLE, success BOOLEAN, outcome VARCHAR, reason VARCHAR, "
    f"threshold DOUBLE, path JSON[][], failure {_FAILURE}, steps {_STEP}[])"
)
_ROW = {"index": "BIGINT", "case": "VARCHAR", "hash": "VARCHAR", "metrics": f"{_METRIC}[]"}
# A verdict as Python prints it, as in reasons and pictures.
_WORD = """CREATE MACRO word(value) AS CASE WHEN json_type(value) = 'BOOLEAN'
    THEN upper((value ->> '$')[1]) || (value ->> '$')[2:] ELSE value ->> '$' END"""
_PATH = """CREATE MACRO path_words(path) AS
    array_to_string([word(turn[1]) || ' → ' || word(turn[2]) FOR turn IN path], ', ')"""
# A metric of a run that has columns, which are read in the place of the lines.
_COLUMNS = """SELECT {run} AS run, "index", "case", hash, {metric} AS metric, "score.{n}" AS score,
    ("course.{n}" ->> '$.success')::BOOLEAN AS success,
    coalesce("course.{n}" ->> '$.failure.kind', 'ok') AS outcome, "reason.{n}" AS reason,
    ("course.{n}" ->> '$.threshold')::DOUBLE AS threshold,
    path_words(("course.{n}" -> '$.path')::JSON[][]) AS path,
    "course.{n}" ->> '$.failure.node' AS failed_node, "input_tokens.{n}" AS input_tokens,
    "output_tokens.{n}" AS output_tokens FROM read_parquet({path})"""
_VIEWS = (
    """CREATE VIEW results AS SELECT run, "index", "case", hash, unnest(metrics) AS m FROM rows""",
    """CREATE VIEW lines AS SELECT run, "index", "case", hash, m.metric, m.score, m.success,
    m.outcome, coalesce(m.failure.message, m.reason) AS reason, m.threshold,
    path_words(m.path) AS path,
    m.failure.node AS failed_node,
    coalesce(list_sum([s.usage.input_tokens FOR s IN m.steps]), 0)::BIGINT AS input_tokens,
    coalesce(list_sum([s.usage.output_tokens FOR s IN m.steps]), 0)::BIGINT AS output_tokens
    FROM (SELECT run, "index", "case", hash, unnest(metrics) AS m FROM bare)""",
    """CREATE VIEW steps AS SELECT run, "index", "case", metric, s.node, s.kind, s.outcome,
    word(s.verdict) AS verdict, s.score, s.confidence, s.reason, s.output, s.votes,
    s.usage.input_tokens, s.usage.output_tokens
    FROM (SELECT * EXCLUDE m, m.metric, unnest(m.steps) AS s FROM results)""",
    """CREATE VIEW cases AS SELECT run, (json ->> '$.index')::BIGINT AS "index",
    json ->> '$.name' AS "case", json ->> '$.hash' AS hash, json ->> '$.input' AS input,
    json ->> '$.actual_output' AS actual_output, json ->> '$.expected_output' AS expected_output,
    json AS fields FROM texts""",
)
_NOTHING = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in {**_ROW, "json": "JSON"}.items())
_AT_ONCE = 1000  # lines of an answer that are held
_PATTERN = re.compile(r"[*?\[]|^\w{2,}:")  # also of an address: file:, s3:
_READ = 1 << 20  # bytes of a file that are looked at together
_FORM = "format = 'newline_delimited', maximum_object_size = 1000000000"


@contextmanager
def query_runs(
    sql: str, runs: Sequence[Run]
) -> Iterator[tuple[list[str], Iterator[tuple[Any, ...]]]]:
    """Ask one SELECT of the views `runs`, `steps` and `cases` of some run folders.

    Yields the names of the columns, and the lines as they are read. `run` is the folder of a line,
    as it was named. Raises MissingExtraError without DuckDB, and InputError for what is not one
    SELECT, for a query that DuckDB refuses, and for damaged files.
    """
    duckdb = load_extra("duckdb", "SQL needs", "sql")
    try:
        kinds = [statement.type.name for statement in duckdb.extract_statements(sql)]
    except duckdb.Error as error:
        raise InputError(_refusal(error)) from None
    if kinds != ["SELECT"]:
        raise InputError(
            f"a query is one SELECT, and this is {' and '.join(kinds) or 'empty'}; ask, for "
            'instance: "SELECT path, avg(score) FROM runs GROUP BY 1"'
        )
    with tempfile.TemporaryDirectory() as own, closing(_connect(duckdb, runs, Path(own))) as db:
        try:
            reply = db.execute(sql)
            # Fetched while the caller reads: an answer may have more lines than memory has room.
            batches = iter(lambda: reply.fetchmany(_AT_ONCE), [])
            yield [column[0] for column in reply.description], chain.from_iterable(batches)
        except duckdb.Error as error:
            raise InputError(_refusal(error)) from None


def _connect(duckdb: Any, runs: Sequence[Run], own: Path) -> Any:
    """A database in memory with the three views; of all files it can read those of the runs."""
    rows, texts, columns = dict[str, Path](), dict[str, Path](), dict[str, Path]()
    tables = ["SELECT * FROM lines"]
    for number, run in enumerate(runs):
        name = str(run.folder)
        if run.columns() is not None:
            columns[name] = _plain(run.folder / COLUMNS, own / f"columns-{number}.parquet")
            own_table = partial(
                _COLUMNS.format, run=_quote_text(name), path=_quote_text(columns[name])
            )
            for n, metric in enumerate(run.manifest.metric_names):
                tables.append(own_table(metric=_quote_text(metric), n=n))
        rows[name] = _readable(run.results, run, own / f"rows-{number}.jsonl")
        if is_there(run.folder / CASES):
            texts[name] = _readable(run.folder / CASES, run, own / f"{number}.jsonl")
    db = duckdb.connect()
    try:
        db.execute(f"SET temp_directory = {_quote_text(own)}")
        db.execute(_WORD)
        db.execute(_PATH)
        bare = {name: path for name, path in rows.items() if name not in columns}
        # With the kinds of all columns: DuckDB would else guess them from the first lines.
        kinds = ", ".join(
            f"{_quote_text(name)}: {_quote_text(kind)}" for name, kind in _ROW.items()
        )
        for view, files in (("rows", rows), ("bare", bare)):
            read = _union(files, "read_json", f"columns = {{{kinds}}}, {_FORM}")
            db.execute(f"CREATE VIEW {view} AS {read}")
        db.execute(f"CREATE VIEW texts AS {_union(texts, 'read_json_objects', _FORM)}")
        for view in _VIEWS:
            db.execute(view)
        db.execute(f"CREATE VIEW runs AS {' UNION ALL '.join(tables)}")
        # In this order: once access is off, DuckDB takes no more paths, and once locked no more
        # settings.
        paths = ", ".join(map(_quote_text, chain(*(of.values() for of in (rows, texts, columns)))))
        db.execute(f"SET allowed_paths = [{paths}]")
        db.execute(f"SET allowed_directories = [{_quote_text(own)}]")
        db.execute("SET enable_external_access = false")
        db.execute("SET lock_configuration = true")
    except BaseException:
        db.close()
        raise
    return db


def _union(files: Mapping[str, Path], reader: str, options: str) -> str:
    """The lines of all files, each with its run; a line of nothing where there is no file."""
    parts = [
        f"SELECT {_quote_text(run)} AS run, * FROM {reader}({_quote_text(path)}, {options})"
        for run, path in files.items()
    ]
    return " UNION ALL ".join(parts) or f"SELECT NULL AS run, {_NOTHING} LIMIT 0"


def _quote_text(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def _readable(path: Path, run: Run, copy: Path) -> Path:
    """A file as DuckDB takes it: whole lines of JSON, without lone surrogates."""
    require_regular(path)
    if run.finished and path.suffix == ".jsonl" and not _has_surrogates(path):
        return _plain(path, copy)
    lines = run.cases() if path.name == CASES else (row.as_dict() for row in run.rows())
    with copy.open("w", encoding="utf-8", errors="replace") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return copy


def _plain(path: Path, link: Path) -> Path:
    """A file under a name that DuckDB takes neither for a pattern of names nor for an address."""
    if not _PATTERN.search(str(path)):
        return path
    link.symlink_to(path.resolve())
    return link


def _has_surrogates(path: Path) -> bool:
    """Return whether a file may have lone surrogates, which are its only escapes of this form."""
    with path.open("rb") as file:
        end = b""
        while part := file.read(_READ):
            if b"\\ud" in end + part:
                return True
            # The three bytes may lie across two parts.
            end = part[-2:]
    return False


def _refusal(error: Exception) -> str:
    """DuckDB's message, and advice."""
    return f"{error}; the tables are runs, steps and cases (`DESCRIBE runs` lists columns)"
