"""The page as a person meets it: figures, filters, keys, hostile texts, accessibility."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from graphs.hostile import TEXTS
from graphs.support_tree import support_cases, support_judge, support_metric
from playwright.sync_api import Browser
from programs.browser import CHROMIUM, Scheme, Visit, chromium, needs_chromium, visit
from servers.decision_server import DecisionServer
from typer.testing import CliRunner

from dagengine import evaluate
from dagengine.cli import app
from dagengine.judges import DecisionJudge, LexicalJudge, ScriptedJudge
from dagengine.metrics import AnswerRelevancyMetric, ContextualRelevancyMetric, DAGMetric
from dagengine.metrics.dag import (
    DAG,
    BinaryJudgementNode,
    CodeNode,
    FieldNode,
    NonBinaryJudgementNode,
)
from dagengine.record.reader import load_run
from dagengine.report.case_selection import Selected, Selection
from dagengine.report.page import write_page
from dagengine.report.tally import Tally
from dagengine.results import CaseResult
from dagengine.test_case import ArenaTestCase, LLMTestCase

pytestmark = needs_chromium
METRIC = "Support quality"
MARKUP = {
    "the end of a script": "</script><script>window.hacked = 1</script>",
    "the beginning of a comment": "<!-- <script> <!--",
    "an image": "<img src=x onerror='window.hacked = 1'>",
    "a link": "<a href='javascript:window.hacked = 1'>click</a> [x](javascript:hacked())",
    "a style": "</style><style>* { display: none }</style>",
    "an entity": "&lt;b&gt; &amp; &#60;",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM
    with chromium() as found:
        yield found


def _judged(folder: Path, cases: list[LLMTestCase], metrics: list[Any], judge: Any) -> None:
    evaluate(cases, metrics, model=judge, show=False, out=folder)


@pytest.fixture(scope="module")
def support(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[CaseResult]]:
    """A page of 60 cases of one tree, and its rows."""
    folder = tmp_path_factory.mktemp("runs") / "support"
    _judged(folder, support_cases(60), [support_metric()], support_judge())
    run = load_run(folder)
    return write_page(run, folder / "report.html"), list(run.rows())


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two metrics."""
    folder = tmp_path_factory.mktemp("runs") / "faq"
    cases = [
        LLMTestCase(
            name=f"faq {place}",
            input="How long is a gift card valid?",
            actual_output=("It is valid for two years.", "The moon is far.")[place % 2],
            retrieval_context=["A gift card is valid for two years.", "Parcels take long."],
        )
        for place in range(12)
    ]
    metrics = [AnswerRelevancyMetric(), ContextualRelevancyMetric()]
    _judged(folder, cases, metrics, LexicalJudge())
    return write_page(load_run(folder), folder / "report.html")


def _listed(page: Visit) -> list[str]:
    """The names of the cases in the table; the window is tall enough for all."""
    page.settled()
    found: list[str] = page.page.eval_on_selector_all(
        "table.cases .name", "cells => cells.map(cell => cell.textContent)"
    )
    return found


def test_opening_the_page_asks_for_nothing_and_complains_of_nothing(
    browser: Browser, support: tuple[Path, list[CaseResult]]
) -> None:
    with visit(browser, support[0]) as page:
        page.at("#case=ticket%201042&v=case")
        page.page.wait_for_selector(".walk")
        assert [url for url in page.requests if not url.startswith("file:")] == []
        assert len(page.requests) == 1
        assert page.errors == []


def test_every_figure_of_the_tree_is_that_of_the_command_line(
    browser: Browser, support: tuple[Path, list[CaseResult]]
) -> None:
    file, rows = support
    tallied = Tally(rows)
    tally, summary = tallied.metrics[METRIC], tallied.summing.result()[METRIC]
    share = summary.pass_rate
    assert share
    with visit(browser, file) as page:
        counts = page.run(
            "return [...document.querySelectorAll('.treebox .e')].map(e => e.ariaLabel)"
        )
        lines = page.page.text_content("dl.lines") or ""
        bars = page.page.eval_on_selector_all(
            ".chart .count", "texts => texts.map(text => text.textContent)"
        )
        title = page.page.text_content("h1")
        shares = page.page.eval_on_selector_all(
            ".tree .n:not(.stub):not(.frame)",
            """nodes => nodes.map(node => ["part x", "part n", "part "].map(look =>
                [...node.querySelectorAll("rect.part")]
                    .filter(part => part.className.baseVal === look)
                    .reduce((sum, part) => sum + part.width.baseVal.value, 0)))""",
        )
        ends = page.page.inner_text(".legend")
    found = {}
    for label in counts:
        words, _, rest = label.partition(": answer of ")
        node, cases, *_ = rest.split(", ")
        verdict = words.rsplit(" ✕ ", 1)[0].split(" ✓ ")[0].rsplit(" ", 1)[0]
        found[node, verdict.split(" ✕")[0].rstrip(" 0123456789")] = int(cases.split()[0])
    chosen = {(node, str(verdict)): count for (node, verdict), count in tally.chose.items()}
    assert {key: count for key, count in found.items() if count} == chosen
    assert title == f"{summary.failed} of 60 cases failed, {summary.no_score} have no score"
    scored = summary.passed + summary.failed
    assert f"{summary.passed} passed of {scored} scored, {100 * share.value:.0f} %" in lines
    assert f"({100 * share.low:.0f} to {100 * share.high:.0f})" in lines
    figures = (summary.mean, summary.median, summary.spread)
    assert "mean {:.2f}, median {:.2f}, spread {:.2f}".format(*figures) in lines
    assert [int(count.replace(",", "")) for count in bars] == [n for n in summary.distribution if n]
    # A case without a score is no passed one, also above the node where its score was lost.
    whole = sum(shares[0])
    assert [round(60 * part / whole) for part in shares[0]] == [
        summary.failed, summary.no_score, summary.passed,
    ]  # fmt: skip
    most = max(
        count for (node, said), count in tally.chose.items() if node == "Next step" and not said
    )
    assert f"✕ 3 · {most}: {most} cases end with score 3, below the threshold" in ends


def test_clicking_an_edge_lists_exactly_the_cases_whose_path_has_it(
    browser: Browser, support: tuple[Path, list[CaseResult]]
) -> None:
    file, rows = support
    with visit(browser, file, height=4200) as page:
        edges = page.page.query_selector_all(".treebox .e")
        seen = 0
        for place in range(len(edges)):
            edge = page.page.query_selector_all(".treebox .e")[place]
            edge.dispatch_event("click")
            page.until("location.hash.includes('e=')")
            key = page.run("return new URLSearchParams(location.hash.slice(1)).get('e')")
            node, _, verdict = key.partition(":")
            wanted = {
                row.case
                for row in rows
                for step in row.metrics[0].steps
                if step.node == node and str(step.verdict) == verdict
            }
            page.until("!document.querySelector('dl.lines')")
            if wanted:
                assert set(_listed(page)) == wanted
                seen += 1
            else:
                assert page.page.text_content("h1") == "No case matches"
            page.at("")
        assert seen >= 10


def test_shift_narrows_and_alt_takes_out(
    browser: Browser, support: tuple[Path, list[CaseResult]]
) -> None:
    file, rows = support
    took = [{(s.node, str(s.verdict)) for s in row.metrics[0].steps} for row in rows]
    with visit(browser, file, "#state=all", height=4200) as page:
        page.page.click("[aria-label*='answer of Kind of request']:has-text('help')")
        page.page.click("[aria-label*='answer of Tone']:has-text('rude')", modifiers=["Shift"])
        both = {r.case for r, t in zip(rows, took, strict=True) if ("Tone", "rude") in t}
        both &= {
            r.case for r, t in zip(rows, took, strict=True) if ("Kind of request", "help") in t
        }
        if both:
            assert set(_listed(page)) == both
        page.at("#state=all")
        page.page.click("[aria-label*='answer of Tone']:has-text('rude')", modifiers=["Alt"])
        without = {r.case for r, t in zip(rows, took, strict=True) if ("Tone", "rude") not in t}
        assert set(_listed(page)) == without


def test_the_copied_command_shows_the_cases_of_the_filter(
    browser: Browser, support: tuple[Path, list[CaseResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = support
    with visit(browser, file, "#state=all", height=4200) as page:
        page.run(
            "const writeText = async (text) => { window.copied = text; };"
            "Object.defineProperty(navigator, 'clipboard', { value: { writeText } });"
        )
        page.page.click("[aria-label*='answer of Kind of request']:has-text('help')")
        page.page.click(
            "[aria-label*='answer of Tone']:has-text('rude')", modifiers=["Alt", "Shift"]
        )
        names = set(_listed(page))
        page.page.click("text=Copy as command")
        command = page.run("return window.copied")
    assert "--not-at" in command
    assert str(file.parent) not in command
    monkeypatch.chdir(file.parent.parent)
    _, *arguments = shlex.split(command)
    done = CliRunner().invoke(app, [*arguments, "--format", "json"], catch_exceptions=False)
    assert {row["case"] for row in json.loads(done.stdout)} == names
    assert names


def test_the_keyboard_alone_filters_opens_and_comes_back(
    browser: Browser, support: tuple[Path, list[CaseResult]]
) -> None:
    with visit(browser, support[0]) as page:
        keys = page.page.keyboard
        keys.press("t")
        assert page.run("return document.activeElement.id") == "n-0"
        keys.press("ArrowDown")
        keys.press("Enter")
        page.page.wait_for_selector(".e[aria-pressed=true]")
        keys.press("j")
        keys.press("j")
        page.page.wait_for_selector("tr.cur[data-place='1']")
        name = page.page.text_content("tr.cur .name")
        keys.press("Enter")
        page.page.wait_for_selector(".walk")
        assert (page.page.text_content("h1") or "").split(" ", 1)[1].startswith(name or "?")
        keys.press("Escape")
        page.page.wait_for_selector("tr.cur[data-place='1']")
        page.until("document.activeElement.matches('tr.cur')")
        keys.press("Escape")
        page.page.wait_for_selector("dl.lines")
        assert page.run("return location.hash") in ("", "#")
        keys.press("/")
        keys.type("manual")
        page.until("document.querySelector('h1').textContent.includes('“manual”')")


def test_a_search_finds_texts_reasons_and_names_and_nothing_else(
    browser: Browser, support: tuple[Path, list[CaseResult]]
) -> None:
    file, _ = support
    cases = support_cases(60)
    wanted = {c.name for c in cases if "invoice" in c.input}
    with visit(browser, file, "#q=INVOICE", height=4200) as page:
        assert set(_listed(page)) == wanted
        page.at("#q=ticket 1077")
        page.until("document.querySelector('h1').textContent.startsWith('1 of')")
        assert _listed(page) == ["ticket 1077"]
        page.at("#q=null")  # stands in the packed lines, and in no text
        page.until("document.querySelector('h1').textContent == 'No case matches'")


def test_a_head_of_the_table_sorts_and_the_address_keeps_it(
    browser: Browser, support: tuple[Path, list[CaseResult]]
) -> None:
    with visit(browser, support[0], "#state=all", height=4200) as page:
        page.page.click("th:has-text('case') button")
        names = _listed(page)
        assert names == sorted(names)
        page.page.click("th:has-text('case') button")
        assert _listed(page) == sorted(names, reverse=True)
        assert page.run("return location.hash").endswith("sort=-case")


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A page where every text is hostile: cases, reasons, names of nodes, cases and metrics."""
    texts = [*TEXTS.values(), *MARKUP.values()]
    folder = tmp_path_factory.mktemp("runs") / "hostile"
    bad = MARKUP["the end of a script"]
    question = BinaryJudgementNode(
        MARKUP["an image"], evaluation_params=["actual_output"], then={True: 10, False: 0}, name=bad
    )
    cases = [
        LLMTestCase(name=bad if place == 0 else f"case {place}", input=text, actual_output=text)
        for place, text in enumerate(texts)
    ]
    judge = ScriptedJudge(lambda q: {"verdict": False, "reason": q.messages[-1]["content"]})
    metric = DAGMetric(MARKUP["an image"], DAG(root_node=question))
    _judged(folder, cases, [metric], judge)
    return write_page(load_run(folder), folder / "report.html"), texts


def test_hostile_texts_are_shown_literally_and_nothing_runs(
    browser: Browser, hostile_page: tuple[Path, list[str]]
) -> None:
    file, texts = hostile_page
    with visit(browser, file) as page:
        assert MARKUP["the end of a script"] in (page.page.text_content(".where") or "")
        for place, text in enumerate(texts):
            page.at(f"#case={place}&v=case")
            page.until("document.querySelector('.casehead')")
            page.until(
                f"{json.dumps(text)} === [...document.querySelectorAll('.txt')][0].textContent"
            )
            assert page.run(
                "return document.querySelector('.walk .why').textContent.includes(value)", text
            )
        assert page.run("return window.hacked ?? null") is None
        assert (
            page.run(
                "return document.querySelectorAll('img, .txt *:not(mark), a[href^=java]').length"
            )
            == 0
        )
        assert page.errors == []
        assert len(page.requests) == 1


def _violations(page: Visit, colours: bool) -> list[str]:
    """What axe finds with all of its rules (or that about colours) but a contrast of 7 to 1."""
    if colours:
        return page.violations("color-contrast")
    page.load_axe()
    return page.violations(
        *page.run(
            "return axe.getRules().filter(rule => !rule.tags.includes('wcag2aaa'))"
            ".map(rule => rule.ruleId)"
        )
    )


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_axe_finds_no_violation(
    browser: Browser,
    support: tuple[Path, list[CaseResult]],
    several: Path,
    width: int,
    scheme: Scheme,
) -> None:
    def examined(page: Visit) -> list[str]:
        """What the other scheme changes is colours: the other rules run in one scheme."""
        broken = _violations(page, colours=False)
        page.page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
        page.until("document.getAnimations().length === 0")
        broken += _violations(page, colours=True)
        page.page.emulate_media(color_scheme=scheme)
        page.until("document.getAnimations().length === 0")
        return broken

    with visit(browser, support[0], width=width, scheme=scheme) as page:
        found = examined(page)
        page.at("#e=Tone:rude")
        page.page.keyboard.press("?")
        page.until("document.querySelector('.help') && document.querySelector('.parts')")
        found += examined(page)
        page.at("#case=ticket%201042&v=case")
        page.until("document.querySelector('.walk')")
        found += examined(page)
    with visit(browser, several, width=width, scheme=scheme) as page:
        found += examined(page)
    assert found == []


def test_nothing_is_wider_than_a_phone(
    browser: Browser, support: tuple[Path, list[CaseResult]], several: Path
) -> None:
    for file in (support[0], several):
        with visit(browser, file, width=400) as page:
            for place in ("", "#case=1&v=case"):
                page.at(place)
                page.settled()
                assert page.run("return document.documentElement.scrollWidth") <= 400


def test_a_link_to_unknown_parts_says_so_and_shows_the_rest(
    browser: Browser, support: tuple[Path, list[CaseResult]]
) -> None:
    with visit(browser, support[0], "#e=Tone:loud") as page:
        note = page.page.text_content("main .note")
        assert note == "This link names Tone → loud, which this run does not have."
        assert (page.page.text_content("h1") or "").endswith("have no score")


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of comparisons: two answers to one question, handed on by nodes of their own."""
    folder = tmp_path_factory.mktemp("runs") / "arena"
    fields = [
        FieldNode(f"contestants.{name}.actual_output", output_label=f"answer {name}", name=name)
        for name in "AB"
    ]
    better = NonBinaryJudgementNode(
        "Which is better?", inputs=fields, then={"A": 10, "B": 0}, name="Better"
    )
    case = ArenaTestCase(
        name="duel 1",
        contestants={
            name: LLMTestCase(input=f"Say something. {'x' * 300}", actual_output=f"<i>{name}</i>")
            for name in "AB"
        },
    )
    judge = ScriptedJudge(lambda question: {"verdict": "B", "reason": "because " * 60})
    evaluate(
        [case], [DAGMetric("Duel", DAG(root_node=better))], model=judge, show=False, out=folder
    )
    return write_page(load_run(folder), folder / "report.html")


def test_contestants_are_shown_as_fields_and_what_they_share_once(
    browser: Browser, arena: Path
) -> None:
    with visit(browser, arena, "#case=duel%201&v=case") as page:
        page.page.wait_for_selector(".walk")
        heads = page.page.locator(".texts h3").all_inner_texts()
        assert heads[:3] == ["input, of all", "A: actual_output", "B: actual_output"]
        assert page.page.locator(".texts .txt").all_inner_texts()[1:3] == ["<i>A</i>", "<i>B</i>"]
        # What only hands on a field is folded in the walk, and in no picture.
        assert page.page.locator(".walk details", has_text="what it hands on").count() == 2
        assert page.page.locator("svg.path .n").count() == 1


def test_a_row_begins_with_the_text_of_its_case_and_says_what_is_cut(
    browser: Browser, arena: Path
) -> None:
    with visit(browser, arena) as page:
        row = page.page.locator("table.cases tbody tr", has_text="duel 1")
        row.wait_for()
        text = row.text_content() or ""
        assert "Say something." in text
        assert text.count("…") == 2


SAID = ["costs 50% (a.c)? [x]* \\d", "costs 50% (abc)", "ÜBER alles", "a: 1, null", '"quoted"']


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of texts with signs that mean something to patterns and to JSON."""
    folder = tmp_path_factory.mktemp("runs") / "searched"
    kind = BinaryJudgementNode(
        "Kind?", evaluation_params=["actual_output"], then={True: 10, False: 0}, name="Kind"
    )
    last = CodeNode(lambda said: said.verdict, inputs=[kind], then={True: 10, False: 0}, name="End")
    cases = [
        LLMTestCase(name=f"n{n}", input="i", actual_output=text) for n, text in enumerate(SAID)
    ]
    judge = ScriptedJudge(lambda question: {"verdict": False, "reason": "it says nothing of it"})
    _judged(folder, cases, [DAGMetric("Said", DAG(root_node=last))], judge)
    return write_page(load_run(folder), folder / "report.html")


def test_a_search_takes_every_sign_for_itself(browser: Browser, searched: Path) -> None:
    with visit(browser, searched) as page:
        page.page.keyboard.press("/")
        for text, found in (
            ("(a.c)?", ["n0"]), ("a.c", ["n0"]), ("[X]*", ["n0"]), ("\\D", ["n0"]),
            ("50%", ["n0", "n1"]), ("über", ["n2"]), ("null", ["n3"]), (": 1", ["n3"]),
            ('"quoted"', ["n4"]), ('", "', []),
            ("SAYS NOTHING", ["n0", "n1", "n2", "n3", "n4"]), ("|", []),
        ):  # fmt: skip
            page.page.keyboard.press("Control+A")
            page.page.keyboard.type(text)
            asked = "new URLSearchParams(location.hash.slice(1)).get('q')"
            page.until(f"{asked} === {json.dumps(text)}")
            head = f"{len(found)} of 5 cases" if found else "No case matches"
            page.until(f"document.querySelector('h1').textContent.startsWith({json.dumps(head)})")
            page.until(f"document.querySelectorAll('table.cases .name').length === {len(found)}")
            assert _listed(page) == found, text


def test_a_reason_that_the_steps_say_is_put_together_again(
    browser: Browser, searched: Path
) -> None:
    (first, *_) = load_run(searched.parent).rows()
    reason = first.metrics[0].reason
    assert reason == "Kind → False: it says nothing of it\nEnd → False"
    with visit(browser, searched, "#case=n0&v=case") as page:
        page.page.wait_for_selector(".walk")
        assert reason in (page.page.text_content("p.decision") or "")
        page.at("")
        page.until("document.querySelector('table.cases .wy')?.textContent === 'decided by code'")


def test_arrows_choose_the_metric_that_enter_opens(browser: Browser, several: Path) -> None:
    first, second = (metric.name for metric in load_run(several.parent).manifest.metrics)
    with visit(browser, several, "#state=all") as page:
        page.page.wait_for_selector("table.cases .name")
        shown = page.page.locator("table.cases th.num").all_inner_texts()
        page.page.keyboard.press("j")
        page.page.wait_for_selector("tr.cur")
        assert page.page.locator("td.here").count() == 0  # Enter opens what the row tells of
        page.page.keyboard.press("ArrowRight")
        page.until(f"document.querySelector('td.here')?.dataset.n === {json.dumps(shown[0])}")
        for _ in shown:  # there is none behind the last
            page.page.keyboard.press("ArrowRight")
        page.until(f"document.querySelector('td.here').dataset.n === {json.dumps(shown[-1])}")
        page.page.keyboard.press("Enter")
        page.page.wait_for_selector(".tabs")
        assert shown[-1] in (page.page.text_content("h1") or "")
        assert {first, second} >= set(shown)
        page.page.keyboard.press("Escape")
        page.page.wait_for_selector("table.cases .name")
        assert "under=" not in page.run("return location.hash")


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a tree with another metric of two nodes under a verdict."""
    folder = tmp_path_factory.mktemp("runs") / "nested"

    def node(name: str, **then: Any) -> BinaryJudgementNode:
        return BinaryJudgementNode(
            f"{name}?", evaluation_params=["actual_output"], name=name,
            then={True: then["yes"], False: then["no"]},
        )  # fmt: skip

    inner = DAGMetric("Inner", DAG(root_node=node("Warm", yes=node("Short", yes=10, no=6), no=2)))
    outer = DAGMetric("Outer", DAG(root_node=node("Right", yes=inner, no=0)))
    cases = [
        LLMTestCase(name=f"n{n}", input="i", actual_output=f"text {n}", tags=[]) for n in range(6)
    ]

    def answer(question: Any) -> Any:
        place = int(question.messages[-1]["content"].split("text ")[1].split()[0])
        return {"verdict": {"Right": place > 0, "Warm": place > 1, "Short": place > 3}[
            question.name.rpartition("/")[2].strip()
        ]}  # fmt: skip

    _judged(folder, cases, [outer], ScriptedJudge(answer))
    return write_page(load_run(folder), folder / "report.html")


def test_a_metric_under_a_verdict_opens_its_own_graph(browser: Browser, nested: Path) -> None:
    with visit(browser, nested, "#state=all") as page:
        page.page.wait_for_selector(".treebox .n")
        assert page.page.locator(".treebox .n").count() == 2  # the inner metric is one node
        page.page.locator(".treebox .n", has_text="Inner").click()
        page.until("document.querySelector('h1').textContent === '5 of 6 cases reached Inner'")
        chosen = Selected(load_run(nested.parent), Selection(at=("Inner",)))
        assert sorted(_listed(page)) == [row.case for row in chosen]
        page.page.wait_for_selector(".treebox .frame")
        labels = page.page.eval_on_selector_all(
            ".treebox svg.tree [role=button]", "all => all.map(one => one.ariaLabel.split(':')[0])"
        )
        assert len([label for label in labels if label.startswith("Inner > ")]) == 2
        edge = page.page.locator(
            ".treebox svg.tree .e[aria-label*='answer of Inner > Short']"
        ).first
        edge.focus()
        page.page.keyboard.press("Enter")
        page.until("document.querySelector('h1').textContent.startsWith('2 of 6')")
        assert sorted(_listed(page)) == ["n4", "n5"]
        assert page.errors == []


@pytest.mark.usefixtures("without_graphviz")
def test_without_graphviz_the_outline_stands_in_the_place_of_the_picture(
    browser: Browser, nested: Path, tmp_path: Path
) -> None:
    with visit(browser, write_page(load_run(nested.parent), tmp_path / "report.html")) as page:
        page.page.wait_for_selector(".treebox .outline")
        assert page.page.locator(".treebox svg.tree").count() == 0
        page.page.locator(".treebox .outline button", has_text="Inner").first.click()
        page.until("document.querySelector('h1').textContent === '5 of 6 cases reached Inner'")
        page.at("#case=n4&v=case")
        page.page.wait_for_selector(".outline.onpath")
        assert page.errors == []


def _three_ways(depth: int, path: str) -> NonBinaryJudgementNode:
    """A tree of as many questions as there are paths of at most so many answers."""
    below = {} if not depth else {
        way: _three_ways(depth - 1, f"{path}.{way}") for way in ("refund", "parcel", "other")
    }  # fmt: skip
    then = {**below, "nothing": 3} if depth else {"fits": 10, "nothing": 1}
    return NonBinaryJudgementNode(
        f"What is it at {path}?", evaluation_params=["actual_output"], then=then, name=path
    )


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a tree of 40 nodes, whose judge gives probabilities."""
    folder = tmp_path_factory.mktemp("runs") / "wide"
    cases = [LLMTestCase(name=f"w{n}", input="i", actual_output=f"text {n}") for n in range(8)]

    more: Any = {"hyperparameters": {"prompt": "<b>v3</b>", "temperature": 0.2}}
    with DecisionServer() as server:
        judge = DecisionJudge(base_url=server.base_url)
        policy = DAGMetric("Policy", DAG(root_node=_three_ways(3, "Q")))
        evaluate(cases, [policy], model=judge, show=False, out=folder, **more)
    return folder / "report.html"


def test_a_case_of_a_large_tree_shows_its_path_and_the_rest_as_stubs(
    browser: Browser, wide: Path
) -> None:
    row = max(load_run(wide.parent).timed_rows(), key=lambda row: len(row.metrics[0].path))
    (result,) = row.metrics
    assert result.odds is not None
    with visit(browser, wide, "#state=all") as page:
        assert "prompt <b>v3</b> · temperature 0.2" in page.page.inner_text(".lines")
        page.at(f"#case={row.case}&v=case")
        page.until("document.querySelector('.onpath .stub')")
        lines = page.page.locator(".onpath li")
        taken = page.page.locator(".onpath li:not(.un)").all_inner_texts()
        assert [tuple(line.split(" → ")[0:1]) for line in taken] == [(n,) for n, _ in result.path]
        stubs = page.page.locator(".onpath .stub .link").all_inner_texts()
        behind = [int(stub.removeprefix("+").split()[0]) for stub in stubs]
        assert sum(behind) == 40 - len(result.path)
        before = lines.count()
        page.page.locator(".onpath .stub").first.focus()
        page.page.keyboard.press("Enter")
        page.until(f"document.querySelectorAll('.onpath li').length > {before}")
        page.page.keyboard.press("Enter")
        page.until(f"document.querySelectorAll('.onpath li').length === {before}")
        walk = page.page.inner_text(".walk")
        first = result.steps[0]
        assert first.confidence is not None
        assert f"probability: {first.verdict} {first.confidence:.2f}" in walk
        low, high = result.odds.expected_bounds
        assert f"expected score {low:.2f} to {high:.2f}" in walk
        assert "took " in page.page.inner_text(".texts")
        assert _violations(page, colours=False) == []
        assert page.errors == []


def test_the_time_of_cases_is_a_column_to_sort_by(browser: Browser, wide: Path) -> None:
    rows = list(load_run(wide.parent).timed_rows())
    slow = sorted(rows, key=lambda row: -round(row.metrics[0].seconds or 0, 3))
    with visit(browser, wide, "#state=all&columns=time&sort=-time") as page:
        page.until("document.querySelector('.c-time')")
        seconds = {row.case: round(row.metrics[0].seconds or 0, 3) for row in rows}
        assert [seconds[name] for name in _listed(page)] == [seconds[row.case] for row in slow]
