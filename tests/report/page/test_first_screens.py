"""What a stranger wants to know of a run stands on the first screen that it concerns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from programs.browser import CHROMIUM, Visit, chromium, needs_chromium, visit

from dagengine import evaluate
from dagengine.errors import ProviderError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import (
    AnswerRelevancyMetric,
    ArenaGEval,
    ContextualPrecisionMetric,
    ContextualRecallMetric,
    ConversationCompletenessMetric,
    DAGMetric,
    FaithfulnessMetric,
    HallucinationMetric,
    KnowledgeRetentionMetric,
    RoleAdherenceMetric,
)
from dagengine.metrics.arena_g_eval import compare, outcome_in
from dagengine.metrics.dag import DAG, BinaryJudgementNode, NonBinaryJudgementNode
from dagengine.record.reader import load_run
from dagengine.reliability.statistics.paired_comparisons import Comparison, compare_shares
from dagengine.report.page.run_facts import drafts_of
from dagengine.results.summary import Share, badness
from dagengine.synthesizer import EvolutionConfig, Synthesizer
from dagengine.test_case import ArenaTestCase, ConversationalTestCase, LLMTestCase, Turn

pytestmark = needs_chromium
MARKUP = "<img src=x onerror='window.hacked = 1'>"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def _page(folder: Path, cases: list[Any], metrics: list[Any], answer: Any) -> Path:
    judge = ScriptedJudge(answer)
    evaluate(cases, metrics, model=judge, show=False, out=folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def goldens(base: Path) -> Path:
    """Two passages: one gives a golden and one that repeats it, the other none."""

    def answer(question: Any) -> Any:
        text = question.messages[-1]["content"]
        place = "Bern" if "Bern costs" in text or "Bern?" in text else "Thun"
        match question.name:
            case "Draft":
                return [f"What is the price in {place}? {MARKUP}", f"How much is it in {place}?"]
            case "Rewrite":
                asked = f"How much is it in {place}? {MARKUP}"
                return asked if "price" in text else asked.upper()
            case "Answerable":
                return {"verdict": place == "Bern", "reason": "the passage has no price"}
            case "Expected output":
                sentence = "The house in Bern costs 400 francs."
                return {"answer": "400 francs", "supporting_sentences": [sentence]}
            case "Blind answer":
                return "400 francs"
        return question.name in (
            "One thing",
            "Self-contained",
            "Blind answer agrees",
            "Same answer",
        )

    made = Synthesizer(
        ScriptedJudge(answer), evolution_config=EvolutionConfig(num_evolutions=0), show=False,
        out=base / "goldens", max_tries=1,
    )  # fmt: skip
    texts = [["Old. The house in Bern costs 400 francs. It is red."], ["Thun has a house."]]
    made.generate_goldens_from_contexts(texts, max_goldens_per_context=2)
    return base / "goldens" / "report.html"


# The pages are made before the browser starts, which keeps an event loop in this thread.


@pytest.fixture(scope="module")
def arena(base: Path) -> Path:
    """Three contestants: long wins wherever it stands, but one case ties and one breaks."""

    def answer(question: Any) -> Any:
        text = question.messages[-1]["content"]
        if "case 5" in text:
            raise ProviderError("down for today", transient=False)
        places = re.findall(r"Contestant (\d) actual_output(.*?)(?=Contestant|\Z)", text, re.S)
        wanted = "short" if "case 4" in text and "long" in places[0][1] else "long"
        place = next(number for number, said in places if wanted in said)
        verdict = "tie" if "case 3" in text else f"Contestant {place}"
        return {"reason": f"{verdict} comes to the point {MARKUP}", "verdict": verdict}

    cases = [
        ArenaTestCase(
            name=f"q {n}",
            contestants={
                who: LLMTestCase(input=f"case {n}", actual_output=f"{who} {MARKUP}")
                for who in ("long", "short", "third")
            },
        )
        for n in range(6)
    ]
    steps = ["Which comes to the point?"]
    read = ["input", "actual_output"]
    metric = ArenaGEval("Better", evaluation_steps=steps, evaluation_params=read)
    page = _page(base / "arena", cases, [metric], answer)
    won = compare(cases, metric, model=ScriptedJudge(answer), show=False)
    assert won == {"long": 4, "tie": 1}
    return page


CLAIMS = [f"Claim number {n} says something else." for n in range(12)]
BAD = {1, 2, 4, 5, 7, 9, 10}


@pytest.fixture(scope="module")
def rag(base: Path) -> Path:
    """One answer of twelve claims, seven of which the second piece contradicts."""

    def answer(question: Any) -> Any:
        fields = question.answer_type.model_fields
        if "truths" in fields:
            return {"truths": ["A truth."]}
        if "claims" in fields or "statements" in fields:
            return {next(iter(fields)): CLAIMS}
        verdicts = [
            {"verdict": "no" if n in BAD else "yes", "reason": f"It says “number {n} is wrong”."}
            for n in range(question.answer_type.count)
        ]
        return {"verdicts": verdicts}

    pieces = ["Nothing here.", " ".join(f"Piece: number {n} is wrong." for n in range(12))]
    case = LLMTestCase(
        name="route", input="What is it?", actual_output=" ".join(CLAIMS),
        expected_output="It.", retrieval_context=pieces,
    )  # fmt: skip
    metrics = [ContextualPrecisionMetric(), FaithfulnessMetric(threshold=0.8)]
    return _page(base / "rag", [case], metrics, answer)


TALK = [
    "Hi, I am Ana, about parcel 4417.", "Hello Ana.", "It is broken.", "Which parcel is it?",
    "4417, as I said.", "It is noted.", "Thanks.", "You are welcome.", "Bye.", f"Bye. {MARKUP}",
]  # fmt: skip


@pytest.fixture(scope="module")
def talk(base: Path) -> Path:
    """A conversation whose second reply forgets, and whose third is out of role."""

    def answer(question: Any) -> Any:
        fields = question.answer_type.model_fields
        text = question.messages[-1]["content"]
        if "facts" in fields:
            facts = {"facts": ["Parcel 4417"] if "I am Ana" in text else []}
            return {**facts, "outdated": []} if "outdated" in fields else facts
        if "intentions" in fields:
            return {"intentions": ["A new lamp"]}
        if "verdicts" in fields:
            no = 2 if question.answer_type.count > 1 else 0
            said = [{"verdict": "no" if n == no else "yes", "reason": "No clerk says so."}
                    for n in range(question.answer_type.count)]  # fmt: skip
            return {"verdicts": said}
        material = text.partition("This was all the material")[0]
        forgets = "Which parcel" in material[-200:]
        return {"verdict": "no" if forgets else "yes", "reason": "Asks for parcel 4417 again."}

    turns = [
        Turn(role="assistant" if n % 2 else "user", content=said) for n, said in enumerate(TALK)
    ]
    case = ConversationalTestCase(name="talk", turns=turns, chatbot_role="A clerk.")
    metrics = [RoleAdherenceMetric(threshold=0.9), KnowledgeRetentionMetric(threshold=0.9),
               ConversationCompletenessMetric(threshold=None)]  # fmt: skip
    return _page(base / "talk", [case], metrics, answer)


@pytest.fixture(scope="module")
def several(base: Path) -> Path:
    """Three metrics: the first passes everything, the second fails, the third has gaps."""

    def metric(name: str) -> DAGMetric:
        node = BinaryJudgementNode(
            f"{name}?", evaluation_params=["actual_output"], name=f"{name} node",
            then={True: 10, False: 2},
        )  # fmt: skip
        return DAGMetric(name, DAG(root_node=node))

    def answer(question: Any) -> Any:
        number = int(question.messages[-1]["content"].split("answer ")[1].split()[0])
        name = question.name.split()[0]
        if name == "Gaps" and number in (1, 2):
            raise ProviderError("down for today", transient=False)
        failing = {"Kind": (), "Right": (0, 1, 5), "Gaps": (5,)}[name]
        return {"verdict": number not in failing, "reason": f"{name} of {number} {MARKUP}"}

    cases = [
        LLMTestCase(name=f"ticket {n}", input=f"question {n}", actual_output=f"answer {n} .")
        for n in range(8)
    ]
    return _page(base / "several", cases, [metric(n) for n in ("Kind", "Right", "Gaps")], answer)


@pytest.fixture(scope="module")
def five(base: Path) -> Path:
    """Five metrics that fail in all of three answers, two of which share a wrong claim."""

    def answer(question: Any) -> Any:
        number = int(question.messages[-1]["content"].split("#")[1][0])
        fields = question.answer_type.model_fields
        if "truths" in fields:
            return {"truths": ["A truth."]}
        if "claims" in fields or "statements" in fields:
            return {next(iter(fields)): [f"Claim {number // 2} {MARKUP}", "It is open."]}
        verdicts = [
            {"verdict": "yes" if n else "no", "reason": "The piece says 7."}
            for n in range(question.answer_type.count)
        ]
        return {"verdicts": verdicts}

    cases = [
        LLMTestCase(
            name=f"route {n}", input=f"What #{n}?", actual_output=f"#{n} It is so.",
            expected_output=f"#{n} It.", retrieval_context=[f"#{n} piece."],
        )
        for n in range(3)
    ]  # fmt: skip
    kinds = (
        FaithfulnessMetric, AnswerRelevancyMetric, ContextualPrecisionMetric,
        ContextualRecallMetric, HallucinationMetric,
    )  # fmt: skip
    context = [case.model_copy(update={"context": case.retrieval_context}) for case in cases]
    return _page(base / "five", context, [kind(threshold=0.9) for kind in kinds], answer)


def _branches(depth: int, path: str) -> NonBinaryJudgementNode:
    below = {way: _branches(depth - 1, f"{path}.{way}") for way in "abc"} if depth else {}
    then = {**below, "end": 3} if depth else {"good": 10, "poor": 1}
    return NonBinaryJudgementNode(
        f"What at {path}?", evaluation_params=["actual_output"], then=then, name=path
    )


@pytest.fixture(scope="module")
def large(base: Path) -> Path:
    """A tree of 40 nodes; most cases fail at the end of one branch."""

    def answer(question: Any) -> Any:
        number = int(question.messages[-1]["content"].split("text ")[1].split()[0])
        deep = question.name.count(".")
        if deep == 3:
            return {"verdict": "poor" if number % 4 else "good", "reason": "far down"}
        return {"verdict": "c" if number % 4 else "ab"[deep % 2], "reason": "on the way"}

    cases = [LLMTestCase(name=f"w{n}", input="i", actual_output=f"text {n} .") for n in range(12)]
    policy = DAGMetric("Policy", DAG(root_node=_branches(3, "Q")))
    return _page(base / "large", cases, [policy], answer)


@pytest.fixture(scope="module")
def spread(base: Path) -> Path:
    """The same tree, with cases at each of its ends."""

    def answer(question: Any) -> Any:
        number = int(question.messages[-1]["content"].split("text ")[1].split()[0])
        deep = question.name.count(".")
        if deep == 3:
            return {"verdict": "poor" if number % 2 else "good", "reason": "far down"}
        return {"verdict": "abc"[number // 3**deep % 3], "reason": "on the way"}

    cases = [LLMTestCase(name=f"s{n}", input="i", actual_output=f"text {n} .") for n in range(54)]
    policy = DAGMetric("Policy", DAG(root_node=_branches(3, "Q")))
    return _page(base / "spread", cases, [policy], answer)


@pytest.fixture(scope="module")
def browser(
    arena: Path, rag: Path, talk: Path, several: Path, five: Path, large: Path, goldens: Path
) -> Iterator[Browser]:
    assert CHROMIUM
    with chromium() as found:
        yield found


def _above(page: Visit, selector: str, height: int = 900) -> bool:
    """Whether the first such part is on the first screen."""
    box = page.page.locator(selector).first.bounding_box()
    return box is not None and box["y"] + min(box["height"], 40) <= height


def test_who_won_an_arena(browser: Browser, arena: Path) -> None:
    with visit(browser, arena) as page:
        assert page.page.text_content("h1") == "long won 4 of 5 cases, short 0"
        lines = page.page.inner_text("dl.lines")
        assert "⊘ 1 no score" in lines
        lead = compare_shares([(True, False)] * 4)
        assert isinstance(lead, Comparison)
        said = re.search(r"p = ([\d.]+)", lines)
        assert said
        assert float(said[1]) == pytest.approx(lead.p, abs=0.001)
        assert "in 1 of 5 cases the vote changed with the order" in lines
        share = Share.of(4, 5)
        assert share
        words = f"80 %, interval {100 * share.low:.0f} to {100 * share.high:.0f} %"
        assert page.page.locator(".ci").first.get_attribute("aria-label") == words
        rows = page.page.locator("table.cases tbody tr")
        assert "changed with the order" in rows.first.inner_text()
        assert _above(page, "table.cases tbody tr")
        page.page.get_by_role("button", name="tie 1").click()
        page.until("document.querySelector('h1').textContent === '1 of 6 cases chosen'")
        assert page.page.locator("table.cases .name").all_inner_texts() == ["q 3"]
        assert page.errors == []
        assert len(page.requests) == 1


def test_why_a_contestant_won_and_whether_the_order_decided(browser: Browser, arena: Path) -> None:
    changed = next(row for row in load_run(arena.parent).rows() if row.case == "q 4")
    outcome = outcome_in(changed.metrics[0])
    assert outcome
    with visit(browser, arena, "#case=q 4&v=case") as page:
        won = sum(ballot.winner == "long" for ballot in outcome.ballots)
        assert page.page.text_content("h1") == f"long won {won} of 3 orders: q 4"
        assert "The order matters here: short won" in page.page.inner_text(".decision")
        assert page.page.locator(".sides h2").all_inner_texts()[0] == "long"
        assert page.page.locator(".sides .txt").first.inner_text() == f"long {MARKUP}"
        orders = page.page.locator("table.orders tbody tr")
        assert orders.count() == 3
        for row, ballot in zip(orders.all_inner_texts(), outcome.ballots, strict=True):
            assert f"{ballot.winner} won" in row
            assert MARKUP in row
        assert page.run("return window.hacked ?? null") is None
        assert page.page.locator("main img, pre").count() == 0


def test_what_was_wrong_with_an_answer(browser: Browser, rag: Path) -> None:
    with visit(browser, rag, "#case=route&v=case") as page:
        assert page.page.text_content("h1") == "✕ route failed Faithfulness with 0.42"
        lead = page.page.inner_text(".decision")
        assert lead.startswith("✕ contradicted 7, ✓ supported 5.")
        assert "Passes at 0.8." in lead
        assert "not contradicted" not in lead  # the count is said already
        items = page.page.locator(".items li")
        assert items.count() == 5
        assert _above(page, ".items li:nth-child(5)")
        assert items.first.inner_text().startswith("✕ 2")
        rest = page.page.locator(".rest").all_inner_texts()
        assert rest == ["2 more contradicted: 10, 11", "5 supported: 1, 4, 7, 9, 12"]
        # The chosen item is marked in the answer and in the piece that says otherwise.
        assert page.page.locator("mark.fail.on").inner_text().startswith("Claim number 1 says")
        assert page.page.locator("mark.piece").inner_text() == "number 1 is wrong"
        assert "piece 2 of 2" in page.page.inner_text(".lists")
        page.page.locator("[data-item='2']").focus()
        page.page.keyboard.press("ArrowDown")
        page.until("document.querySelector('mark.piece').textContent === 'number 2 is wrong'")
        page.page.locator(".rest").first.click()
        page.until("document.querySelectorAll('.items li').length === 7")
        counted = page.page.inner_text(".counted")
        assert "the same list as" in counted
        assert "()" not in counted
        # The passed metric is a tab away, and its items are pieces.
        page.page.keyboard.press("2")
        page.until("document.querySelector('h1').textContent.includes('Contextual Precision')")
        assert page.errors == []


def test_which_reply_went_wrong_and_against_what(browser: Browser, talk: Path) -> None:
    with visit(browser, talk, "#case=talk&v=case&under=Knowledge Retention") as page:
        forgets = page.page.locator(".talk li", has_text="forgets")
        assert forgets.count() == 1
        said = forgets.inner_text()
        assert "Which parcel is it?" in said
        assert "known since turn 1: Parcel 4417" in said.replace("\n", " ")
        assert "now known" in page.page.locator("#turn-1").inner_text()
        folded = page.page.locator(".talk .folded").inner_text()
        assert re.fullmatch("Turns 5.8: 2 replies, all ✓", folded)
        page.page.locator(".talk .folded button").click()
        page.until("document.querySelectorAll('.talk > li').length === 10")
        out = page.page.locator("#turn-6").inner_text()
        assert "also ✕ Role Adherence: No clerk says so." in out
        assert "{" not in page.page.inner_text("main")
        page.at("#case=talk&v=case&under=Conversation Completeness")
        assert "not met" in page.page.inner_text(".decision")
        assert page.page.locator(".above .items li").inner_text().startswith("✕ 1")
        assert page.run("return window.hacked ?? null") is None
        assert page.errors == []


def test_five_metrics_leave_room_for_why_and_name_what_is_wrong(
    browser: Browser, five: Path
) -> None:
    with visit(browser, five) as page:
        page.page.wait_for_selector("table.cases .wy")
        column = page.page.locator("td.c-about").first.bounding_box()
        assert column
        assert column["width"] >= 240
        assert page.page.locator("table.cases tbody tr").first.locator("td.c-score").count() == 3
        page.page.get_by_role("button", name="Faithfulness", exact=True).first.click()
        why = page.page.locator(".where .why").first
        why.filter(has_text="in 2 of 3 cases").wait_for()
        assert why.inner_text() == f"“Claim 0 {MARKUP}” in 2 of 3 cases"
        assert "dagengine view" in page.page.inner_text(".lines")
        page.at("#columns=scores")
        page.page.wait_for_selector("tr:first-child td.c-score >> nth=4")
        assert page.errors == []


def test_why_each_row_failed(browser: Browser, several: Path) -> None:
    rows = sorted(load_run(several.parent).rows(), key=badness)
    with visit(browser, several) as page:
        assert page.page.text_content("h1") == "3 of 8 cases failed, 1 has no score"
        assert "passed all 3 metrics: 4 of 7 with a score, 57 %" in page.page.inner_text(".lines")
        chips = page.page.locator(".tsec .chips").first.locator("button").all_inner_texts()
        assert chips == ["✕ Failed 3", "⊘ No score 1", "✓ Passed 4", "All 8"]
        page.page.wait_for_selector("table.cases .wy:has-text('Right of 0')")
        first = page.page.locator("table.cases tbody tr").first.inner_text()
        assert "Right 0.20" in first
        assert f"Right node → False. Right of 0 {MARKUP}" in first
        heads = page.page.locator("table.cases th").all_inner_texts()
        assert not any("Kind" in head for head in heads)  # it has nothing to show
        table = page.page.locator(".bymetric tbody tr").all_inner_texts()
        assert [line.split()[0] for line in table] == ["Right", "Gaps", "Kind"]
        page.page.keyboard.press("j")
        page.page.keyboard.press("Enter")
        page.page.wait_for_selector(".walk")
        assert page.page.text_content("h1") == "✕ ticket 0 failed Right with 0.20"
        page.page.keyboard.press("Escape")
        page.page.wait_for_selector("table.cases")
        page.page.locator("button", has_text="⊘ No score 1").click()
        page.page.wait_for_selector("table.cases .wy:has-text('down for today')")
        assert "Gaps no score" in page.page.locator("table.cases tbody tr").inner_text()
        page.page.locator(".tsec .chips button", has_text="All 8").click()
        page.until("document.querySelectorAll('table.cases .name').length === 8")
        names = page.page.locator("table.cases .name").all_inner_texts()
        assert names == [row.case for row in rows]
        assert page.errors == []


def test_where_most_fail_in_a_large_tree(browser: Browser, large: Path) -> None:
    with visit(browser, large) as page:
        # It opens at the branch with most failures, whole on the screen, without scrolling.
        most = page.page.locator(".treebox .leaf.most")
        assert (most.text_content() or "") == "✕ 1 · 9"
        box = page.page.locator(".scroller").bounding_box()
        leaf = most.bounding_box()
        assert box
        assert leaf
        assert box["x"] <= leaf["x"]
        assert leaf["x"] + leaf["width"] <= box["x"] + box["width"]
        folds = page.page.inner_text(".folds")
        assert "7 of 40 nodes are drawn" in folds  # those that a case came by
        assert "33 were never taken" in folds
        assert "The drawn ends hold 9 of 9 failures" in folds
        assert page.page.locator(".tree .part.x").count() > 0
        before = page.page.locator(".treebox .n").count()
        page.page.keyboard.press("+")
        page.until(f"document.querySelectorAll('.treebox .n').length > {before}")
        page.page.keyboard.press("0")
        page.until(f"document.querySelectorAll('.treebox .n').length === {before}")
        page.page.keyboard.press("z")
        page.page.wait_for_selector(".treebox.full")
        page.page.keyboard.press("Escape")
        page.until("!document.querySelector('.treebox.full')")
        page.page.get_by_role("button", name="+ zoom in").click()
        page.until("document.querySelector('.zoom').textContent === '125 %'")
        # A link brings its edge into sight.
        page.at("#e=Q.a.b:a")
        page.page.wait_for_selector(".e[aria-pressed=true]")
        edge = page.page.locator(".e[aria-pressed=true]").bounding_box()
        box = page.page.locator(".scroller").bounding_box()
        assert edge
        assert box
        assert box["x"] <= edge["x"] <= box["x"] + box["width"]
        assert page.errors == []


def test_groups_of_a_large_tree_unfold_in_their_place(browser: Browser, spread: Path) -> None:
    with visit(browser, spread) as page:
        groups = page.page.locator(".treebox .stub")
        folds = page.page.inner_text(".folds")
        assert re.search(r"\d+ of 40 nodes are drawn, \d+ folded in \d+ group", folds)
        folded, drawn = groups.count(), page.page.locator(".treebox .n").count()
        assert re.match(r"\d+ nodes?, \d+ failed", groups.first.text_content() or "")
        groups.first.click()
        page.until(f"document.querySelectorAll('.treebox .n').length > {drawn}")
        assert groups.count() == folded - 1
        page.page.get_by_role("button", name="Fit").click()
        page.until(f"document.querySelectorAll('.treebox .n').length === {drawn}")
        assert page.page.locator(".map").count() == 0
        # All of it is larger than its box: a map shows which part is in sight, and goes elsewhere.
        page.page.keyboard.press("+")
        page.page.wait_for_selector(".map .sight")
        sight = page.page.locator(".map .sight")
        page.page.locator(".map").click(position={"x": 4, "y": 4})
        page.until("document.querySelector('.scroller').scrollLeft === 0")
        left = float(sight.get_attribute("x") or -1)
        page.page.locator(".map").click(position={"x": 170, "y": 20})
        page.until("document.querySelector('.scroller').scrollLeft > 0")
        page.until(f"Number(document.querySelector('.map .sight').getAttribute('x')) > {left}")
        # A link to a part inside of a group unfolds the group.
        page.page.reload()
        page.page.wait_for_selector(".treebox .stub")
        inside = page.run(
            "const drawn = [...document.querySelectorAll('.treebox .n .t')]"
            ".map(name => name.textContent);"
            "return ['a','b','c'].flatMap(x => ['a','b','c'].map(y => `Q.${x}.${y}`))"
            ".find(name => !drawn.includes(name)) ?? ''"
        )
        assert inside
        page.at(f"#n={inside}")
        page.page.wait_for_selector(".n[aria-pressed=true]")
        assert page.errors == []


def test_a_phone_folds_the_outline_of_a_large_tree(browser: Browser, large: Path) -> None:
    with visit(browser, large, width=400) as page:
        page.page.wait_for_selector(".outline")
        lines = page.page.locator(".outline > li")
        assert lines.count() < 30
        unfold = page.page.locator(".unfold[aria-expanded=false]").first
        assert "failed" in unfold.inner_text()
        before = lines.count()
        unfold.click()
        page.until(f"document.querySelectorAll('.outline > li').length > {before}")


def test_what_is_reviewed_of_a_synthesis(browser: Browser, goldens: Path) -> None:
    kept = f"How much is it in Bern? {MARKUP}"
    with visit(browser, goldens) as page:
        assert page.page.text_content("h1") == "1 golden kept of 4 drafts"
        assert "Answerable 2 · near duplicate 1" in page.page.inner_text("dl.lines")
        places = page.page.locator(".goldens")
        assert places.count() == 2
        left, right = places.first.locator("ul").all_inner_texts()
        assert f"✓ {kept}" in left.replace("\n", " ")
        assert "400 francs" in left
        assert places.first.locator("blockquote").all_inner_texts() == [
            "The house in Bern costs 400 francs."
        ]
        assert f"✕ {kept.upper()}" in right.replace("\n", " ")
        assert f"near duplicate. It asks for the same as “{kept}”" in right
        assert "Answerable. the passage has no price" in places.last.inner_text()
        # The question is the title, and the sentence is marked in its passage.
        page.page.locator(".goldens .q button").first.click()
        page.page.wait_for_selector(".walk")
        assert page.page.text_content("h1") == f"✓ {kept}"
        assert page.page.inner_text(".decision").startswith("Kept. 400 francs")
        assert page.page.inner_text("mark.piece") == "The house in Bern costs 400 francs"
        page.page.keyboard.press("j")
        page.until("document.querySelector('h1').textContent.includes('Thun')")
        (repeating,) = [
            draft.case
            for draft in drafts_of(load_run(goldens.parent)) or []
            if draft.cause == "near duplicate"
        ]
        page.at(f"#case={repeating}&v=case")
        page.until("document.querySelector('h1').textContent.startsWith('✕ HOW MUCH')")
        assert page.page.inner_text(".decision").startswith("Dropped: near duplicate.")
        page.page.keyboard.press("Escape")
        page.page.wait_for_selector(".goldens")
        page.page.get_by_role("button", name="Every draft as a row").click()
        page.page.wait_for_selector("table.cases")
        title = "2 of 4 drafts rejected by a node, 1 dropped later"
        assert page.page.text_content("h1") == title
        assert page.page.locator("table.cases .name").first.inner_text() == kept
        page.page.get_by_role("button", name="Kept and dropped").click()
        page.page.wait_for_selector(".goldens")
        assert page.run("return window.hacked ?? null") is None
        assert page.errors == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_the_screens_are_accessible_and_fit(
    browser: Browser, arena: Path, rag: Path, talk: Path, several: Path, large: Path,
    goldens: Path, width: int, scheme: Any,
) -> None:  # fmt: skip
    found = []
    for file, places in (
        (arena, ("", "#case=q 4&v=case")), (rag, ("#case=route&v=case",)),
        (talk, ("#case=talk&v=case",)), (several, ("", "#case=ticket 5&v=case")), (large, ("",)),
        (goldens, ("", "#state=all", "#case=0&v=case", "#case=1&v=case")),
    ):  # fmt: skip
        with visit(browser, file, width=width, scheme=scheme) as page:
            for place in places:
                page.at(place)
                page.settled()
                found += [(file.parent.name, place, broken) for broken in page.violations()]
                if page.run("return document.documentElement.scrollWidth") > width:
                    found.append((file.parent.name, place, "wider than the screen"))
            assert page.errors == []
    assert found == []


@pytest.fixture(scope="module")
def quoting(base: Path) -> Path:
    """A verdict with a true quote, one that is nowhere, and a list whose items quote."""
    case = LLMTestCase(
        input="When?",
        actual_output="\U0001f3ea The shop closes at 5 pm. " + MARKUP,
        context=["Open from 9 to 5 pm.", "On Sunday the shop is shut."],
    )
    tree = DAGMetric(
        "Hours",
        DAG(
            BinaryJudgementNode(
                "Does it name an hour?",
                evaluation_params=["actual_output"],
                then={True: 0, False: 10},
                quote="required",
                unsupported="keep",
                name="Hour",
            )
        ),
    )

    def answer(question: Any) -> Any:
        if "verdicts" in question.answer_type.model_fields:
            first = {"quotes": [{"piece": "context (1 of 2)", "text": "9 to 5 pm"}]}
            second = {"quotes": [], "absent": "an hour on Sunday"}
            return {
                "verdicts": {
                    "1": {**first, "verdict": "yes", "reason": "r"},
                    "2": {**second, "verdict": "no", "reason": "s"},
                }
            }
        texts = ("closes at 5 pm", MARKUP + " at six")
        quotes = [{"piece": "actual_output", "text": text} for text in texts]
        return {"quotes": quotes, "verdict": True, "reason": "It does."}

    metrics = [tree, HallucinationMetric(quote="required", threshold=0.9)]
    return _page(base / "quoting", [case], metrics, answer)


def test_on_which_words_a_verdict_stands(browser: Browser, quoting: Path) -> None:
    with visit(browser, quoting) as page:
        page.at("#case=case%200&v=case&under=Hours")
        page.page.wait_for_selector(".walk .quote")
        assert page.page.locator(".marked mark").all_text_contents() == ["closes at 5 pm"]
        assert page.page.locator(".walk .quote").all_inner_texts() == [
            "closes at 5 pm actual_output",
            f"⊘ {MARKUP} at six not in actual_output",
        ]
        assert "2 calls: 1 re-ask" in page.page.inner_text(".casehead")
        page.at("#case=case%200&v=case&under=Hallucination")
        page.page.wait_for_selector(".items .quote")
        assert page.page.locator(".items .quote").all_inner_texts() == [
            "not said: an hour on Sunday"
        ]
        assert page.run("return window.hacked ?? null") is None
        assert page.errors == []
