"""`dagengine help`: every code and every outcome, wherever dagengine is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dagengine.cli import app
from dagengine.errors import InputError, more_on
from dagengine.results import OutcomeKind


def explained(*codes: str) -> str:
    done = CliRunner().invoke(app, ["help", *codes], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_every_code_that_is_listed_is_explained_in_lines_that_fit() -> None:
    shown = explained()
    names = shown.replace("\n", " ").replace(",", "").split()
    codes = [name for name in names if name.islower() and ("-" in name or name in set(OutcomeKind))]
    assert len(codes) > 40
    for code in set(codes):
        lines = explained(code).splitlines()
        assert lines[0] == code
        assert len(lines) > 2
        assert max(map(len, lines)) <= 80
        assert "](" not in "".join(lines)


def test_the_command_of_a_message_explains_its_codes() -> None:
    words = more_on(["verdict-missing", "cycle"]).partition("dagengine help ")[2].split()
    shown = explained(*words)
    assert shown.index("cycle\n") < shown.index("verdict-missing\n")
    assert explained("#Provider-Error") == explained("provider_error")


def test_an_unknown_code_is_told_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no code or outcome 'cylce'; did you mean 'cycle'\?"):
        explained("cylce")
    with pytest.raises(InputError, match="options are in `dagengine COMMAND --help`"):
        explained("run")


def test_the_command_asks_about_an_application_and_names_metrics() -> None:
    answers = "n\nn\ny\ny\nn\nn\nn\nn\ny\n"
    done = CliRunner().invoke(app, ["help", "metrics"], input=answers)
    assert done.exit_code == 0, done.output
    for name in ("DAGMetric", "FaithfulnessMetric", "ContextualRecallMetric"):
        assert name in done.output
    assert "BiasMetric" not in done.output


@pytest.mark.parametrize("topics", [[], ["cycle"], ["metrics", "cycle"]])
def test_a_file_to_write_is_of_metrics_alone(topics: list[str], tmp_path: Path) -> None:
    target = tmp_path / "metrics.py"
    done = CliRunner().invoke(app, ["help", *topics, "--write", str(target)])
    assert done.exit_code == 2
    assert "--write is of `dagengine help metrics`" in done.output
    assert not target.exists()


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (["explain", "cycle"], "dagengine help CODE"),
        (["recommend"], "dagengine help metrics"),
        (["index", "out"], "dagengine sql SELECT RUN"),
    ],
)
def test_an_old_spelling_is_answered_with_the_new_call(words: list[str], call: str) -> None:
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert f"there is no command {words[0]!r}: write `{call}`" in done.output
