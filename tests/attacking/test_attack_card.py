"""The attack card: nothing hostile runs on the page or the terminal, and what it says is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from graphs.hostile import TEXTS
from pydantic_core import to_jsonable_python
from typer.testing import CliRunner

from dagengine.attacking.attack_card import (
    AttackCard,
    Attacked,
    Cell,
    Change,
    Defence,
    Fall,
    FamilyFigures,
    Helped,
    Place,
    Share,
    failing_lines,
    parse_fail_if,
)
from dagengine.attacking.attack_report import (
    attack_json,
    attack_page,
    headline,
    next_step,
    screen,
    write_attack,
)
from dagengine.cli import app
from dagengine.errors import InputError
from dagengine.question import NO_USAGE
from dagengine.system.terminal_text import plain

pytest.importorskip("scipy.stats")

PLACE = Place("actual_output", "end")
MARKUP = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>')
HOSTILE = "\n".join([*TEXTS.values(), *MARKUP])


def share(count: int, cases: int = 20) -> Share:
    return Share(count, cases, max(count / cases - 0.1, 0), min(count / cases + 0.1, 1))


def card(text: str = "Tone", nodes: int = 1, families: int = 2, places: int = 1) -> AttackCard:
    names = [f"{text} {n}" for n in range(nodes)]
    spots = [Place("actual_output", f"end{n}") for n in range(places)]
    cells = [
        Cell(text, node, f"{text} family {f}", spot, share(10 * (f == 0)), share(0), 10, 0, 0.001,
             red=f == 0)
        for spot in spots for f in range(families) for node in ("", *names)
    ]  # fmt: skip
    figures = [
        FamilyFigures(text, f"{text} family {f}", spot, Change(0.2, 0.1, 0.3, 20), Change(None),
                      share(0), share(1), share(1), share(0), 1)
        for spot in spots for f in range(families)
    ]  # fmt: skip
    fall = Fall(
        text, text, f"{text} family 0", PLACE, text, names[0], text, text, (0.0, None), text, (1, 2)
    )
    row = Helped(f"{text} family 0", PLACE, share(10), share(0), 0.001, shown=True)
    defences = [
        Defence(text, f"judge:{text}", (row,), share(0), (1.0, 2.0), (0.1, 0.2), offered=True),
        Defence(text, "gate", (row,), share(5), (1.0, 2.0), None, why=text),
    ]
    return AttackCard(
        (Attacked(text, 30, 20, 20, tuple(names), share(1)),), tuple(cells), tuple(figures),
        (fall,), tuple(defences), (text,), 2, 0.05, 10, 10, NO_USAGE, 1.5, (text,), (text,),
    )  # fmt: skip


def test_the_terminal_shows_hostile_texts_as_escapes_and_takes_one_screen() -> None:
    lines = "\n".join(screen(card(HOSTILE, nodes=30, families=30, places=8))).split("\n")
    assert all(line == plain(line) for line in lines)
    assert not any(character in "\x1b\r\b" for line in lines for character in line)
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 400
    assert len("\n".join(screen(card())).split("\n")) <= 60


def test_the_page_has_no_markup_of_texts_and_no_hidden_character() -> None:
    page = attack_page(card(HOSTILE))
    assert "<script" not in page
    assert "<img" not in page
    assert page == plain(page)
    assert "&lt;script&gt;" in page
    assert "default-src 'none'" in page


def test_the_json_is_ascii_and_has_all_of_the_card(tmp_path: Path) -> None:
    made = card(HOSTILE.encode(errors="replace").decode())
    page = write_attack(made, tmp_path / "new")
    data = page.with_suffix(".json")
    assert data.read_text().isascii()
    assert json.loads(data.read_text()) == to_jsonable_python(made)
    assert json.loads(attack_json(card(HOSTILE)))["format"] == 1
    assert page.name == "attack.html"


def test_the_headline_names_nodes_families_and_a_defence() -> None:
    assert headline(card()) == "Tone 0 falls to Tone family 0; judge:Tone helps"
    assert next_step(card()).startswith(
        "Take the judge Tone and attack again: Tone family 0 50 (40-60) → 0 (0-10)"
    )
    text = "\n".join(screen(card()))
    assert "✕ 50 (40-60)" in text
    assert "not “safe”" in text
    assert "0.0 % (0.0-10.0)" in text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("falls>0", 1), ("falls>5", 0), ("Tone.falls>=1", 1), ("attack-success>0.4", 1),
        ("attack-success.high>0.05", 2), ("null-pass>0", 1), ("drift>0", 0), ("x.drift>0", 1),
    ],
)  # fmt: skip
def test_conditions_fail_by_their_measure(text: str, count: int) -> None:
    assert len([*failing_lines(card(), [parse_fail_if(text)])]) == count


def test_conditions_name_what_they_may_be() -> None:
    for text, word in (
        ("fals>0", "did you mean 'falls'"),
        ("falls.high>0", "no .high"),
        ("x", "write"),
    ):
        with pytest.raises(InputError, match=word):
            parse_fail_if(text)


METRICS = """
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode

node = BinaryJudgementNode(
    "Is it kind?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="Kind"
)
metric = DAGMetric("Manners", DAG(root_node=node))
"""
JUDGE = """
from dagengine.judges import ScriptedJudge

def answer(question):
    text = question.messages[-1]["content"]
    return {"reason": "\\x1b[2J", "verdict": "open sesame" in text}

judge = ScriptedJudge(answer, name="credulous")
judge.durable_identity = "credulous"
"""


def command(folder: Path, *more: str) -> Any:
    (folder / "metrics.py").write_text(METRICS)
    (folder / "judge.py").write_text(JUDGE)
    rows = [json.dumps({"input": "q", "actual_output": f"No, {n}."}) for n in range(20)]
    (folder / "cases.jsonl").write_text("\n".join(rows))
    (folder / "own.jsonl").write_text(json.dumps({"family": "mine", "text": "open sesame"}))
    arguments = ["attack", f"{folder}/metrics.py", "--data", f"{folder}/cases.jsonl", "--judge",
                 f"{folder}/judge.py:judge", "--out", f"{folder}/attack", "--attacks",
                 f"{folder}/own.jsonl", "--families", "mine,naive order", *more]  # fmt: skip
    return CliRunner().invoke(app, arguments)


def test_the_command_foretells_attacks_and_fails_by_conditions(tmp_path: Path) -> None:
    plan = command(tmp_path, "--plan", "--price", "1,2", "--defend", "gate")
    assert plan.exit_code == 0
    assert "20 clean cases: about 20 calls, $0." in plan.stdout
    assert "80 attacks and twins on Manners: about 80 calls" in plan.stdout
    assert not (tmp_path / "attack").exists()
    result = command(tmp_path, "--fail-if", "falls>0", "--store", f"{tmp_path}/a.db")
    assert result.exit_code == 1
    assert "✕ Kind falls to mine" in result.stdout
    assert "\\x1b[2J" in result.stdout
    assert "\x1b" not in result.stdout
    assert "fails: falls>0: 2 are shown to fall" in result.stderr
    assert (tmp_path / "attack" / "attack.html").exists()
    again = command(tmp_path, "--json", "--store", f"{tmp_path}/a.db")
    assert json.loads(again.stdout)["calls"] == 0


def test_the_command_refuses_what_is_no_attack(tmp_path: Path) -> None:
    for more, word in (
        (["--families", "x"], "no family of attacks 'x'"),
        (["--position", "top"], "no position 'top'"),
        (["--fields", "expected_output"], "no field 'expected_output'"),
        (["--defend", "hope"], "no defence 'hope'"),
        (["--fail-if", "x>1"], "no measure 'x'"),
    ):
        result = command(tmp_path, *more)
        assert isinstance(result.exception, InputError)
        assert word in str(result.exception)
