"""Labels of people in every usual form, from fields and files, and what they mean to a metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagengine.errors import InputError
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode
from dagengine.reliability.card.card_maker import check_labels, make_card
from dagengine.reliability.counterfactual import Counterfactual
from dagengine.reliability.human_labels import Given, HumanLabels, Labels, labels_among, labels_for
from dagengine.reliability.observations import Observations
from dagengine.test_case import LLMTestCase


def passing() -> Counterfactual:
    node = BinaryJudgementNode(
        "Good?", name="good", evaluation_params=["input"], then={True: 10, False: 0}
    )
    return Counterfactual(DAGMetric("worth", DAG(node), threshold=0.5))


def graded(*verdicts: str) -> Counterfactual:
    then = {verdict: place for place, verdict in enumerate(verdicts)}
    node = NonBinaryJudgementNode("Which?", name="which", evaluation_params=["input"], then=then)
    return Counterfactual(DAGMetric("kind", DAG(node), threshold=0.5))


def labels_of(cases: list[LLMTestCase], source: Any) -> Given:
    return HumanLabels(cases, source).by_case


def understood(labels: list[Any], replay: Counterfactual) -> Labels:
    cases = [LLMTestCase(input=str(n)) for n in range(len(labels))]
    given = labels_of(cases, dict(enumerate(labels)))
    return labels_for(given, replay, cases)


@pytest.mark.parametrize(
    ("labels", "kind", "means"),
    [
        (["1", "0"], "pass", [True, False]),
        (["5", "1"], "pass", [True, False]),
        ([10, 0], "pass", [True, False]),
        (["Y", "n"], "pass", [True, False]),
        (["PASS", "Fail"], "pass", [True, False]),
        (["correct", "incorrect"], "pass", [True, False]),
        ([True, False], "pass", [True, False]),
        (["4", "5", "2"], "number", [4.0, 5.0, 2.0]),
        ([4, 5], "number", [4.0, 5.0]),
    ],
)
def test_labels_are_understood_in_their_usual_forms(
    labels: list[Any], kind: str, means: list[Any]
) -> None:
    found = understood(labels, passing())
    assert (found.kind, list(found.by_case.values())) == (kind, means)
    assert [one.label for one in found.meanings] == list(map(str, labels))


def test_names_of_verdicts_come_first_in_whatever_case() -> None:
    assert understood(["GOOD", "bad"], graded("good", "bad")).by_case == {0: "good", 1: "bad"}
    # Yes may be the verdict that fails.
    assert understood(["Y", "N"], graded("yes", "no")).by_case == {0: "yes", 1: "no"}


def test_labels_of_which_none_can_come_out_are_refused_with_what_can() -> None:
    with pytest.raises(InputError, match="no label is a possible outcome of the metric 'worth'"):
        understood(["great", "awful"], passing())
    with pytest.raises(InputError, match="'good', 'bad' or a score"):
        understood(["great", "awful"], graded("good", "bad"))


def test_a_label_that_cannot_come_out_beside_others_counts_as_never_met() -> None:
    found = understood(["good", "so-so"], graded("good", "bad"))
    assert found.by_case == {0: "good", 1: "so-so"}
    assert [one.means for one in found.meanings] == ["good", ""]


def test_several_people_have_the_label_that_most_of_them_give() -> None:
    found = understood([["yes", "yes", "no"], ["yes", "no"], ["no"]], passing())
    assert found.by_case == {0: True, 2: False}  # the second case has no majority
    assert found.people[1] == (True, False)
    assert understood([["1", "5", "4"], ["2"]], passing()).by_case == {0: 10 / 3, 1: 2.0}


CASES = [LLMTestCase(name=name, input=name) for name in ("one", "two")]


def test_a_gap_in_a_column_of_numbers_is_no_label() -> None:
    assert understood([1.0, 0.0, float("nan")], passing()).by_case == {0: True, 1: False}


def test_a_number_and_its_text_are_one_label_on_the_card() -> None:
    found = understood([1, "1", "0"], passing()).meanings
    assert [(one.label, one.means, one.cases) for one in found] == [
        ("1", "pass", 2),
        ("0", "fail", 1),
    ]


@pytest.mark.parametrize("head", ["case,label", "Case,Label", " NAME ,LABEL", "label,case"])
@pytest.mark.parametrize("names", [("two", "one"), ("1", "0"), ("1.0", "0.0")])
def test_a_file_of_labels_is_joined_by_name_or_by_place(
    tmp_path: Path, head: str, names: tuple[str, str]
) -> None:
    file = tmp_path / "labels.csv"
    rows = [(names[0], "yes"), (names[1], "no"), (names[0], "no")]
    turn = -1 if head.startswith("label") else 1
    file.write_text("\n".join([head, *(",".join(row[::turn]) for row in rows)]))
    assert labels_of(CASES, file) == {1: ("yes", "no"), 0: ("no",)}


@pytest.mark.parametrize(
    "names", [[str(n) for n in range(1, 21)], [f"{n}.0" for n in range(1, 21)],
              [f"{n:03}" for n in range(1, 21)]],
)  # fmt: skip
@pytest.mark.parametrize("form", ["{}", "{}.0", "{:03}"])
def test_a_whole_number_is_also_a_name_in_each_of_its_forms(
    tmp_path: Path, names: list[str], form: str
) -> None:
    cases = [LLMTestCase(name=name, input=name) for name in names]
    file = tmp_path / "labels.csv"
    rows = [f"{form.format(n)},{'yes' if n % 3 else 'no'}" for n in range(1, 21)]
    file.write_text("\n".join(["case,label", *rows]))
    assert labels_of(cases, file) == {n - 1: ("yes" if n % 3 else "no",) for n in range(1, 21)}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["two,yes", "0,no"], r"line 3: '0' is only a place .*'two' \(.*line 2\) is the name"),
        (["0,yes", "two,no"], r"line 3: 'two' is the name of a case, but '0' \(.* only a place"),
    ],
)
def test_names_and_places_in_one_file_are_refused_with_one_of_each(
    tmp_path: Path, rows: list[str], says: str
) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("\n".join(["case,label", *rows]))
    with pytest.raises(InputError, match=says):
        labels_of(CASES, file)
    # As when cases are called 1 to 20 and somebody counts them from 0.
    cases = [LLMTestCase(name=str(n), input=str(n)) for n in range(1, 4)]
    file.write_text("case,label\n0,yes\n1,no\n2,no\n")
    with pytest.raises(InputError, match="'1' is the name of a case"):
        labels_of(cases, file)


@pytest.mark.parametrize("gap", ["N/A", "n/a", "NA", "none", "-", "?", "unknown", "Skipped"])
def test_what_says_that_there_is_no_label_is_none_and_is_counted(gap: str) -> None:
    labels = {0: ["pass", gap], 1: [gap], 2: "fail"}
    replay = passing()
    cases = [LLMTestCase(input=str(n)) for n in range(3)]
    people = HumanLabels(cases, labels)
    (left,) = people.for_metrics([replay])
    assert left == {0: ("pass",), 2: ("fail",)}
    (line,) = people.left_out([replay])
    assert line == f"2 labels left out, as they say that there is none: {gap!r} (2)"


def test_a_verdict_with_such_a_name_is_a_label() -> None:
    replay = graded("good", "N/A")
    cases = [LLMTestCase(input=str(n)) for n in range(2)]
    people = HumanLabels(cases, {0: "n/a", 1: "good"})
    assert people.for_metrics([replay]) == [{0: ("n/a",), 1: ("good",)}]
    assert list(people.left_out([replay])) == []


def test_labels_that_are_repeated_with_every_run_are_one_each(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.csv"
    file.write_text("case,run,verdict,label\none,0,1,yes\none,1,0,yes\ntwo,0,1,no\ntwo,1,1,no\n")
    assert labels_of(CASES, file) == {0: ("yes",), 1: ("no",)}
    file.write_text("case,run,verdict,label\none,0,1,yes\none,1,0,no\ntwo,0,1,no\ntwo,1,1,\n")
    assert labels_of(CASES, file) == {0: ("yes", "no"), 1: ("no",)}
    file.write_text("case,metric,label\none,a,yes\none,b,no\n")
    with pytest.raises(InputError, match="labels of several metrics"):
        labels_of(CASES, file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "case,label\ntow,yes\n",
            r"line 2: no case has the name or the place 'tow' \(did you mean 'two'\?\)",
        ),
        ("case,label\n,yes\n", "line 2: `case` is empty"),
        ("case,score\ntwo,1\n", "has no column `label`; it has case, score"),
        ("id,label\ntwo,yes\n", "needs the columns `case` and `label`; it has id, label"),
        ("Case,CASE,label\ntwo,one,yes\n", "'Case' and 'CASE' may both be `case`"),
        ("case,label\n", "no case has a label"),
    ],
)
def test_a_file_that_labels_no_case_says_where(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "labels.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=says):
        labels_of(CASES, file)


def test_a_file_that_is_no_table_is_read_or_named_as_what_it_is(tmp_path: Path) -> None:
    rows, table = tmp_path / "labels.ndjson", tmp_path / "labels.xlsx"
    rows.write_text('{"case": "two", "label": "yes"}\n')
    assert list(labels_of(CASES, rows).values()) == [("yes",)]
    table.write_text("PK...")
    with pytest.raises(InputError, match="is a spreadsheet"):
        labels_of(CASES, table)


def test_a_name_that_several_cases_have_joins_no_row(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("case,label\ntwo,yes\nthree,no\none,no\n")
    cases = [LLMTestCase(name=name, input=name) for name in ("one", "two", "one", "three")]
    with pytest.raises(InputError, match=r"line 4: .* called 'one': write a place \(0, 2\)"):
        labels_of(cases, file)


def test_a_file_of_criteria_is_left_to_its_reader_where_some_are_about_no_case(
    tmp_path: Path,
) -> None:
    file, cases = tmp_path / "labels.csv", [LLMTestCase(name="one", input="a")]
    file.write_text("case,criterion,label\none,tone,yes\nnobody,tone,no\n")
    assert labels_among(file, cases) == (str(file), "")
    with pytest.raises(InputError, match=r"line 3: no case has the name or the place 'nobody'"):
        HumanLabels(cases, file)


@pytest.mark.parametrize("stray", ["great", 3, "2.5"])
def test_a_stray_label_is_refused_with_its_case_where_labels_stand_for_other_cases(
    stray: str | float,
) -> None:
    cases = [LLMTestCase(name=f"case {n}", input=str(n)) for n in range(4)]
    rows = [{"case": n, "verdict": "yes"} for n in range(4)]
    metric = DAGMetric("worth", passing().spec.graph, threshold=0.5)
    seen = Observations.load(rows, cases, metric="worth")
    labels = {0: "yes", 1: "no", 2: stray}
    says = (
        rf"the label {stray!r} of the case 'case 2' is neither pass nor fail .*take the label out"
    )
    for make in (
        lambda: check_labels([metric], cases, labels),
        lambda: make_card(seen, [metric], cases, ["it"], labels=labels),
    ):
        with pytest.raises(InputError, match=says):
            make()
    # Of several metrics, one that they fit has them, and this one has none.
    fits = DAGMetric("kind", graded("great", "3", "2.5", "yes", "no").spec.graph, threshold=None)
    cards = make_card([], [fits, metric], cases, ["it"], labels=labels).metrics
    assert [len(card.labels) for card in cards] == [3, 0]
    # With a label on each case nothing is estimated for others: it is one that no run meets.
    card = make_card(seen, [metric], cases, ["it"], labels={**labels, 3: "yes"})
    assert card.metrics[0].settings[0].outcomes.hits == "1001"
