"""Goldens from a corpus of known facts: the same at any timing, supported, and accounted for."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from inspect import getsource
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
import typer
from folders.documents import write_docx, write_pdf
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import commands
from typer.testing import CliRunner

from dagengine import Limits
from dagengine.cli import app
from dagengine.cli.synthesize import SynthesizeOptions, synthesize
from dagengine.dataset import ConversationalGolden, EvaluationDataset, Golden
from dagengine.errors import InputError, RefusedError
from dagengine.judges import ScriptedJudge
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, CodeNode
from dagengine.prompts.evidence import unfence
from dagengine.question import Question
from dagengine.record import load_run
from dagengine.report.page.run_facts import drafts_of
from dagengine.results import Attempt
from dagengine.synthesis.quotas import Context, Filling
from dagengine.synthesis.synthesis_types import Passage
from dagengine.synthesizer import (
    ContextConstructionConfig,
    Evolution,
    EvolutionConfig,
    Quota,
    StylingConfig,
    Synthesizer,
)

PLACES = [
    "Bern",
    "Basel",
    "Thun",
    "Chur",
    "Genf",
    "Zug",
    "Visp",
    "Sion",
    "Brig",
    "Uster",
    "Olten",
    "Baden",
]
FACT = re.compile(r"The house in (\w+) costs (\d+) francs")
ASKED = re.compile(r"the house in (\w+)")
NO_EVOLUTION = EvolutionConfig(num_evolutions=0)
TEXT: Any = "text"  # in the place of something else
NUMBER: Any = 1
CHUNKS: dict[str, Any] = {"chunk_size": 16}


def evidence(question: Question[Any]) -> str:
    return question.messages[1]["content"]


def facts_of(text: str) -> dict[str, str]:
    return dict(FACT.findall(text))


class Writer:
    """A judge that knows the corpus: it plants bad drafts, and its filters find them."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def judge(self, name: str = "writer") -> ScriptedJudge:
        return ScriptedJudge(self.answer, name=name)

    def answer(self, question: Question[Any]) -> Any:
        self.asked[question.name] += 1
        text, place = evidence(question), ASKED.search(evidence(question))
        known = facts_of(text)
        match question.name:
            case "Draft":
                return [
                    draft
                    for name, price in known.items()
                    for draft in (
                        f"What does the house in {name} cost?",
                        f"How old is the house in {name}?",
                        f"Why does the house in {name} cost {price} francs?",
                    )
                ]
            case "Rewrite":
                found = re.search(r"\S[^\n]*the house in [^\n]*\?", text)
                assert found is not None
                return found[0]
            case "Answerable":
                return "How old" not in text and place is not None and place[1] in known
            case "Expected output":
                assert place is not None
                price = known[place[1]]
                sentence = f"The house in {place[1]} costs {price} francs."
                return {"answer": f"{price} francs", "supporting_sentences": [sentence]}
            case "Leaks the answer":
                return "Why" in text
            case "Blind answer":
                assert place is not None
                return f"{known[place[1]]} francs"
            case "Blind answer agrees":
                return len(set(re.findall(r"\d+ francs", text))) == 1
        if question.name.startswith("Closed book"):
            return False if question.name.endswith("agrees") else "I do not know"
        return question.name in ("One thing", "Self-contained")


def corpus(folder: Path) -> list[Path]:
    """Three documents of four facts each."""
    facts = [f"The house in {name} costs {400 + 7 * n} francs." for n, name in enumerate(PLACES)]
    marked = folder / "a.md"
    marked.write_text("\n\n".join(f"# Part {n}\n\n{fact}" for n, fact in enumerate(facts[:4])))
    return [
        marked,
        write_pdf(folder / "b.pdf", facts[4:8]),
        write_docx(folder / "c.docx", facts[8:]),
    ]


def told(goldens: list[Any]) -> str:
    return json.dumps([golden.model_dump(mode="json") for golden in goldens])


def synthesizer(writer: Writer | None = None, **more: Any) -> Synthesizer:
    judge = (writer or Writer()).judge()
    return Synthesizer(model=judge, evolution_config=NO_EVOLUTION, show=False, **more)


@pytest.mark.anyio
async def test_three_kinds_of_files_give_the_same_goldens_at_any_timing(tmp_path: Path) -> None:
    files = corpus(tmp_path)

    async def made(in_flight: int) -> list[Any]:
        writer = Writer()

        async def slowly(question: Question[Any]) -> Any:
            for _ in range(hash(question.key) % 5):
                await anyio.lowlevel.checkpoint()
            return writer.answer(question)

        found = Synthesizer(
            model=ScriptedJudge(slowly, name="writer"),
            evolution_config=NO_EVOLUTION,
            limits=Limits(max_in_flight=in_flight),
        )
        return await found.a_generate_goldens_from_docs(files, max_goldens_per_document=2)

    first = await made(64)
    names = Counter(Path(golden.source_file).name for golden in first)
    assert names == {"a.md": 2, "b.pdf": 2, "c.docx": 2}
    assert told(first) == told(await made(1)) == told(await made(3))


def test_what_is_kept_is_supported_and_every_planted_draft_is_found(tmp_path: Path) -> None:
    made = synthesizer(max_tries=20).generate_goldens_from_docs(
        corpus(tmp_path), max_goldens_per_context=1
    )
    # Every fact has a passage of its own, but for the third document, whose facts share one.
    asked = {f"What does the house in {name} cost?" for name in PLACES}
    assert {golden.input for golden in made} <= asked
    assert len({golden.input for golden in made}) == len(made) == 9
    for golden in made:
        origin = golden.additional_metadata["synthesis"]
        assert golden.expected_output.split()[0] in facts_of("".join(golden.context)).values()
        assert all(
            any(sentence in text for text in golden.context)
            for sentence in origin["supporting_sentences"]
        )
        assert not re.match("How old|Why", golden.input)
    assert set(made.report.fell) <= {"Answerable", "Leaks the answer", "not needed"}


def test_a_plan_says_what_is_asked_when_every_draft_passes(tmp_path: Path) -> None:
    files, writer = corpus(tmp_path)[:2], Writer()

    def judge(name: str) -> ScriptedJudge:
        return ScriptedJudge(lambda question: _evolving(writer, question), name=name)

    def made(**more: Any) -> Synthesizer:
        return Synthesizer(
            judge("writer"), evolution_config=EvolutionConfig(num_evolutions=2), show=False,
            second_model=judge("second"), difficulty_models=[judge("cheap"), judge("small")],
            embedder=judge("vectors"), **more,
        )  # fmt: skip

    plan = made().estimate_goldens_from_docs(files, max_goldens_per_document=3)
    assert writer.asked.total() == 0
    names = {one.judge.split()[0] for one in plan.judges}
    assert names == {"writer", "second", "cheap", "small", "vectors"}
    ledger: list[Attempt] = []
    again = made(on_attempt=ledger.append, max_tries=1)
    goldens = again.generate_goldens_from_docs(files, max_goldens_per_document=3)
    assert len(goldens) == 6
    # No two of them are alike, so that nothing is asked about pairs.
    pairs = next(metric.asked.most for metric in plan.metrics if metric.metric == "Duplicates")
    assert pairs == 0 + 1 + 2 + 3 + 3 + 3
    assert plan.asked.most is not None
    assert plan.calls.most is not None
    assert plan.asked.most - pairs == again.totals.asked
    assert plan.calls.most - pairs == again.totals.calls == len(ledger) == writer.asked.total()


def test_a_plan_names_judges_as_price_lists_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    maker = Synthesizer("gpt-4o", show=False)
    plan = maker.estimate_goldens_from_docs(corpus(tmp_path)[:1], max_goldens_per_document=2)
    assert [judge.judge for judge in plan.judges] == ["gpt-4o"]
    assert (plan.cost({}) or 0) > 0


def _evolving(writer: Writer, question: Question[Any]) -> Any:
    """What the writer says, and what it does not know of: evolutions, vectors, other words."""
    if not question.name.startswith(("Evolve", "Embedding")) and question.name != "Closed book 2":
        return writer.answer(question)
    writer.asked[question.name] += 1
    if question.name == "Embedding":
        return vector_of(question)
    if question.name == "Closed book 2":
        return "No idea"  # an equal answer would make equal questions
    return f"Do tell: {re.findall('.*the house in .*', evidence(question))[0]}"


def test_quotas_are_met_and_others_say_what_is_missing(tmp_path: Path) -> None:
    files = corpus(tmp_path)
    quotas = [
        Quota(2, document=str(files[0]), difficulty="hard"),
        Quota(1, document=str(files[1])),
        Quota(2, difficulty="easy"),
    ]
    made = synthesizer(difficulty_models=[Writer().judge("cheap")]).generate_goldens_from_docs(
        files, quotas=quotas
    )
    kept = [(one.kept, one.quota.count) for one in made.report.quotas]
    assert kept == [(2, 2), (1, 1), (0, 2)]
    assert made.report.missing == 2
    assert "easy: 0 of 2" in "\n".join(made.report.lines())
    hard = {"level": "hard", "answered": 0, "judges": 1}
    assert all(g.additional_metadata["synthesis"]["difficulty"] == hard for g in made)


def test_another_judge_answers_blind_and_has_to_agree(tmp_path: Path) -> None:
    def contrary(question: Question[Any]) -> Any:
        assert question.name == "Blind answer"
        return "1 francs"

    judge = ScriptedJudge(contrary, name="contrary")
    with pytest.warns(UserWarning, match="no golden was made; 0 of 1 goldens from"):
        made = synthesizer(second_model=judge).generate_goldens_from_docs(
            corpus(tmp_path)[:1], max_goldens_per_document=1
        )
    assert made == []
    assert made.report.fell.keys() >= {"Blind answer agrees"}


def vector_of(question: Question[Any]) -> list[float]:
    """Says that two inputs mean the same when they ask about one house."""
    place = ASKED.search(evidence(question))
    assert place is not None
    return [float(name == place[1]) for name in PLACES]


def test_a_golden_that_no_quota_wanted_makes_none_a_duplicate() -> None:
    fact = "The house in Bern costs 400 francs."
    quotas = [Quota(1, document="a", difficulty="easy"), Quota(1, document="b")]
    made = synthesizer(difficulty_models=[Writer().judge("cheap")]).generate_goldens_from_contexts(
        [[fact], [f"{fact} It is old."]], source_files=["a", "b"], quotas=quotas,
        max_goldens_per_context=1,
    )  # fmt: skip
    assert [golden.source_file for golden in made] == ["b"]
    assert made.report.fell["not needed"] == 1


def test_a_judge_that_refuses_is_counted_by_node(tmp_path: Path) -> None:
    def refusing(question: Question[Any]) -> Any:
        if question.name == "Rewrite":
            raise RefusedError("not this one")
        return Writer().answer(question)

    judge = ScriptedJudge(refusing, name="refusing")
    with pytest.warns(UserWarning, match="judge_refused at Rewrite"):
        made = Synthesizer(
            model=judge, evolution_config=NO_EVOLUTION, show=False
        ).generate_goldens_from_docs(corpus(tmp_path)[:1], max_goldens_per_document=1)
    assert made == []
    assert made.report.failed == {"judge_refused at Rewrite": made.report.tried}
    assert f"{made.report.tried} of {made.report.tried} got no answer" in made.report.lines()[-1]


def test_a_synthesis_leaves_a_record_of_every_draft(tmp_path: Path) -> None:
    made = synthesizer(out=tmp_path / "run").generate_goldens_from_docs(
        corpus(tmp_path), max_goldens_per_document=2
    )
    run = load_run(tmp_path / "run")
    rows = list(run.rows())
    assert run.finished
    assert [row.index for row in rows] == list(range(made.report.tried))
    assert sum(row.metrics[0].success is True for row in rows) == len(made)
    fell = Counter(row.metrics[0].path[-1][0] for row in rows if not row.metrics[0].success)
    assert fell == made.report.fell
    figures = json.loads((tmp_path / "run" / "yield.json").read_text())
    assert (figures["kept"], figures["tried"], figures["fell"]) == (len(made), len(rows), fell)
    kept = [
        json.loads(line) for line in (tmp_path / "run" / "goldens.jsonl").read_text().splitlines()
    ]
    assert [Golden(**line) for line in kept] == made
    drafts = drafts_of(run)
    assert drafts is not None
    assert [draft.case for draft in drafts] == list(range(len(rows)))
    assert [draft.text for draft in drafts if draft.cause is None] == [
        golden.input for golden in made
    ]
    assert Counter(draft.cause for draft in drafts if draft.cause) == fell
    for draft in drafts:
        assert draft.text.endswith("?")
        assert draft.source in rows[draft.case].case
        assert bool(draft.answer and draft.sentences) == (draft.cause is None)
    headline = f"{len(made)} goldens kept of {len(rows)} drafts"
    assert headline in (tmp_path / "run" / "report.html").read_text()
    page = (tmp_path / "run" / "goldens.md").read_text()
    assert page == made.markdown()
    for golden in made:
        (place,) = golden.additional_metadata["synthesis"]["passages"]
        assert f". {golden.input}\n\n- answer: {golden.expected_output}\n- rests on: The" in page
        assert f"(SHA-256 {place['sha256'][:12]}…): " in page
    asked = [
        json.loads(line) for line in (tmp_path / "run" / "cases.jsonl").read_text().splitlines()
    ]
    assert all(len(case["additional_metadata"]["passages"][0]["sha256"]) == 64 for case in asked)


def test_a_damaged_record_of_drafts_is_told_with_its_line(tmp_path: Path) -> None:
    synthesizer(out=tmp_path / "run").generate_goldens_from_contexts(
        [["The house in Bern costs 400 francs."]], max_goldens_per_context=1
    )
    path = tmp_path / "run" / "drafts.jsonl"
    path.write_bytes(b'{"case": "one"}\n' + path.read_bytes())
    with pytest.raises(InputError, match=r"drafts\.jsonl line 1: not a draft"):
        drafts_of(load_run(tmp_path / "run"))


def test_a_page_to_review_shows_what_hides_and_keeps_each_text_to_its_line() -> None:
    fact = "The house in Bern costs 400 francs.\n\n## 2. Not a heading\u202e \ud800 \x1b[31m"
    made = synthesizer().generate_goldens_from_contexts([[fact]], max_goldens_per_context=1)
    page = made.markdown()
    shown = r"francs. ## 2. Not a heading\u202e \ud800 \x1b[31m"
    assert shown in page
    assert page.isprintable() is False
    assert page.replace("\n", "").isprintable()
    assert page.count("\n## ") == 1


def test_near_duplicates_are_one_golden(tmp_path: Path) -> None:
    writer = Writer()

    def same(question: Question[Any]) -> Any:
        if question.name == "Rewrite":
            return "What is the price, then, of the house in Bern?"
        return writer.answer(question)

    path = tmp_path / "a.md"
    path.write_text("The house in Bern costs 400 francs.")
    made = Synthesizer(
        model=ScriptedJudge(same, name="same"), evolution_config=NO_EVOLUTION,
        out=tmp_path / "run",
    ).generate_goldens_from_docs([path], max_goldens_per_context=2)  # fmt: skip
    assert len(made) == 1
    kept, *dropped = drafts_of(load_run(tmp_path / "run")) or []
    assert kept.cause is None
    assert [(draft.cause, draft.repeats) for draft in dropped if draft.text] == [
        ("near duplicate", kept.text)
    ] * 2
    assert [draft.cause for draft in dropped if not draft.text] == ["not written"]
    assert made.report.fell == {"near duplicate": 2}
    assert (made.report.unwritten, made.report.failed) == (1, {})
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run")]).output
    headline, first, *_ = shown.splitlines()
    assert headline == "1 golden kept of 4 drafts"
    assert first.startswith("2x dropped, near duplicate: repeats 'What is the price, then")
    assert "failed" not in shown
    rows = CliRunner().invoke(app, ["show", str(tmp_path / "run"), "--at", "Rewrite"]).output
    assert rows.startswith("3 of 4 drafts")


def test_evolutions_are_drawn_by_weight_and_wide_ones_get_two_passages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what is drawn depends on the names of the documents, too
    writer = Writer()

    def answer(question: Question[Any]) -> Any:
        if question.name.startswith("Evolve"):
            return f"Do tell: {re.findall('What does the house in .*', evidence(question))[0]}"
        return writer.answer(question)

    config = EvolutionConfig(evolutions={Evolution.MULTICONTEXT: 1, Evolution.REASONING: 1})
    made = Synthesizer(
        model=ScriptedJudge(answer, name="evolving"), evolution_config=config
    ).generate_goldens_from_docs(corpus(Path())[:2], max_goldens_per_context=1)
    notes = [golden.additional_metadata["synthesis"] for golden in made]
    assert {(note["kind"], len(note["passages"])) for note in notes} == {
        ("multi-context", 2),
        ("reasoning", 1),
    }
    assert all(
        len(golden.context) == len(n["passages"]) for golden, n in zip(made, notes, strict=True)
    )


def test_every_context_of_a_golden_says_where_it_stands(tmp_path: Path) -> None:
    files = corpus(tmp_path)
    made = synthesizer().generate_goldens_from_docs(files, max_goldens_per_document=1)
    for golden in made:
        (place,) = golden.additional_metadata["synthesis"]["passages"]
        assert place["document"] == golden.source_file
        assert len(place["sha256"]) == 64
        if place["document"].endswith(".md"):
            text = files[0].read_text()
            assert text[place["offset"] :].startswith(golden.context[0])
        if place["document"].endswith(".pdf"):
            assert 1 <= place["page"] <= 4


# Other doors.


def test_contexts_and_goldens_give_goldens_that_can_be_saved(tmp_path: Path) -> None:
    made = synthesizer(max_tries=9)
    fact = "The house in {} costs 400 francs."
    texts = [[fact.format("Bern"), fact.format("Visp")], [fact.format("Zug"), fact.format("Chur")]]
    first = made.generate_goldens_from_contexts(texts, max_goldens_per_context=1)
    assert [golden.context for golden in first] == texts
    more = made.generate_goldens_from_goldens(first, max_goldens_per_golden=4)
    # None of them is a golden that was there, so that each context gives its other question.
    asked = {f"What does the house in {name} cost?" for name in ("Bern", "Visp", "Zug", "Chur")}
    assert {golden.input for golden in [*first, *more]} == asked
    assert len(more) == 2
    assert made.synthetic_goldens == [*first, *more]
    dataset = EvaluationDataset()
    dataset.add_goldens_from_json_file(made.save_as("json", tmp_path, "made"), "input")
    assert [g.model_dump()["input"] for g in dataset.goldens] == [g.input for g in [*first, *more]]


def listing(question: Question[Any]) -> Any:
    """Writes lists of different drafts about whatever it is asked."""
    text = evidence(question)
    if question.name == "Draft":
        number = int(question.messages[-1]["content"].split("Write ")[1].split()[0])
        material = " ".join(shown.text for shown in unfence(text))
        mark = re.sub(r"\W+", " ", material)[-60:]
        return [f"Word{n} other{n * n} thing{n * 7} of {mark}" for n in range(number)]
    if question.name in ("Rewrite", "Evolve 1"):
        return unfence(text)[0].text
    if question.name in ("Expected output", "Expected outcome", "User description"):
        return f"{question.name} for {len(text)}"
    return True


def test_lists_go_on_until_there_are_as_many_goldens_as_wanted() -> None:
    judge = ScriptedJudge(listing, name="listing")
    made = Synthesizer(
        judge, evolution_config=NO_EVOLUTION, show=False
    ).generate_goldens_from_scratch(
        ["refunds", "parcels"], task="answers letters", num_initial_goldens=50
    )
    sources = Counter(golden.additional_metadata["synthesis"]["source"] for golden in made)
    assert sources == {"refunds": 25, "parcels": 25}
    assert len({golden.input for golden in made}) == 50
    assert all(golden.expected_output is None and golden.context is None for golden in made)


def test_goldens_without_contexts_give_others_like_them() -> None:
    judge = ScriptedJudge(listing, name="listing")
    made = Synthesizer(
        judge, evolution_config=NO_EVOLUTION, show=False
    ).generate_goldens_from_goldens([Golden(input="Where is my parcel?")], max_goldens_per_golden=3)
    assert len(made) == 3
    assert all(golden.expected_output.startswith("Expected output") for golden in made)


def test_conversations_have_a_scenario_an_outcome_and_a_person() -> None:
    made = Synthesizer(ScriptedJudge(listing, name="listing"))
    about = made.generate_conversational_goldens_from_contexts([["Refunds take 14 days."]])
    free = made.generate_conversational_goldens_from_scratch("refunds", num_goldens=3)
    assert [type(golden) for golden in [*about, *free]] == [ConversationalGolden] * 5
    assert about[0].context == ["Refunds take 14 days."]
    assert all(golden.expected_outcome and golden.user_description for golden in about)


def test_a_data_set_takes_goldens_and_an_app_completes_them(tmp_path: Path) -> None:
    dataset = EvaluationDataset()
    dataset.generate_goldens_from_docs(
        corpus(tmp_path)[:1], synthesizer=synthesizer(), max_goldens_per_document=2
    )
    passed = CodeNode(
        lambda answer, expected: float(answer == expected),
        evaluation_params=["actual_output", "expected_output"],
    )
    goldens = [golden for golden in dataset.goldens if isinstance(golden, Golden)]
    known = {golden.input: golden.expected_output for golden in goldens}
    done = dataset.evaluate(
        [DAGMetric("Equal", DAG(passed))], app=lambda text: known[text], show=False
    )
    assert done.scores("Equal") == [1.0, 1.0]


def test_a_generator_of_ones_own_is_a_graph_with_a_golden_at_its_end() -> None:
    def ask(context: list[str]) -> Any:
        from dagengine.graph import NodeValue

        return NodeValue({"input": f"What about {context[0]}?"}, score=1.0)

    leaf = CodeNode(ask, evaluation_params=["context"], name="Golden")
    own = Synthesizer(
        generator=DAGMetric("Own", DAG(leaf)), evolution_config=NO_EVOLUTION, show=False
    )
    made = own.generate_goldens_from_contexts([["Bern"], ["Zug"]], max_goldens_per_context=1)
    assert {golden.input for golden in made} == {"What about Bern?", "What about Zug?"}


def about(config: EvolutionConfig = NO_EVOLUTION, **more: Any) -> Any:
    """What `generate_goldens_from_contexts` makes of one short text; nobody may be asked."""

    def unasked(question: Question[Any]) -> Any:
        raise AssertionError(question.name)

    made = Synthesizer(ScriptedJudge(unasked, name="no"), evolution_config=config)
    return made.generate_goldens_from_contexts([["a"]], **more)


def multi_context_only() -> EvolutionConfig:
    return EvolutionConfig(evolutions={Evolution.MULTICONTEXT: 1})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Synthesizer(stor="a.db"), "no argument 'stor'.*store"),
        (lambda: Synthesizer(max_tries=0), "max_tries must be a whole number from 1 on"),
        (lambda: Synthesizer(difficulty_models="gpt-4o"), r"takes a list: \['gpt-4o'\]"),
        (lambda: Synthesizer(seed=TEXT), "seed must be a whole number from 0"),
        (lambda: Synthesizer(generator=TEXT), "generator must be a metric"),
        (lambda: Synthesizer(on_golden=TEXT), "on_golden must be a function"),
        (lambda: Synthesizer(styling_config=TEXT), "must be of the type StylingConfig"),
        (lambda: synthesizer(critic="x"), "no argument 'critic'"),
        (lambda: synthesizer(alike=0), "alike must be a number above 0, at most 1, got 0"),
        (lambda: StylingConfig(task=NUMBER), "task must be a text"),
        (lambda: EvolutionConfig(num_evolutions=-1), "whole number from 0 to 10, got -1"),
        (lambda: EvolutionConfig(evolutions={"resoning": 1}), "did you mean 'reasoning'"),
        (lambda: EvolutionConfig(evolutions={"reasoning": -1}), "a number from 0 on, got -1"),
        (lambda: EvolutionConfig(evolutions={"reasoning": math.nan}), "from 0 on, got nan"),
        (lambda: EvolutionConfig(evolutions={"reasoning": 0}), "at least one weight"),
        (lambda: EvolutionConfig(evolutions=TEXT), "evolutions are weights"),
        (lambda: ContextConstructionConfig(chunk_size=8), "chunk_size must be a whole number"),
        (lambda: Quota(0), "count of a quota must be a whole number from 1"),
        (lambda: Quota(1, kind="resoning"), "unknown kind 'resoning'"),
        (lambda: synthesizer().generate_goldens_from_contexts([]), "at least one list"),
        (lambda: synthesizer().generate_goldens_from_contexts(["a"]), "must be a list of texts"),
        (
            lambda: synthesizer().generate_goldens_from_contexts([["a"]], source_files=["b", "c"]),
            "1 contexts need as many source_files, got 2",
        ),
        (lambda: synthesizer().generate_goldens_from_scratch([]), "subject must be a text"),
        (lambda: synthesizer().generate_goldens_from_goldens([]), "no golden to start from"),
        (
            lambda: synthesizer().generate_goldens_from_contexts(
                [["a"]], quotas=[Quota(1, document="context 2")]
            ),
            "names 'context 2', which gave no text; did you mean 'context 1'",
        ),
        (
            lambda: synthesizer().generate_goldens_from_contexts(
                [["a"]], quotas=[Quota(1, kind="reasoning")]
            ),
            "num_evolutions is 0",
        ),
        (
            lambda: synthesizer().generate_goldens_from_contexts(
                [["a"]], quotas=[Quota(1, difficulty="hard")]
            ),
            "need difficulty_models",
        ),
        (lambda: about(quotas=[Quota(3)]), "3 goldens cannot be: passages there are 1.* at most 2"),
        (lambda: about(quotas=Quota(1)), r"quotas must be a list of Quota"),
        (lambda: about(max_goldens_per_context=0), "max_goldens_per_context .* got 0"),
        (lambda: about(include_expected_output="no"), "must be of the type bool, got 'no'"),
        (lambda: about(num_evolutions=1), r"it is in Synthesizer\(evolution_config="),
        (
            lambda: synthesizer().estimate_goldens_from_docs([], **CHUNKS),
            r"estimate_goldens_from_docs\(\) has no argument 'chunk_size': it is in context_",
        ),
        (
            lambda: cast("Any", synthesizer()).generate_goldens_from_docs(),
            r"^Synthesizer\.generate_goldens_from_docs\(\) missing",
        ),
        (lambda: about(max_golden_per_context=1), "did you mean 'max_goldens_per_context'"),
        (lambda: about(config=multi_context_only()), "multi-context takes two passages"),
        (lambda: synthesizer().generate_goldens_from_docs(NUMBER), "list of paths or objects"),
        (lambda: synthesizer().generate_goldens_from_docs([]), "there is no document"),
        (
            lambda: synthesizer().generate_goldens_from_docs([], max_goldens_per_document=-1),
            "max_goldens_per_document must be a whole number from 1 on, got -1",
        ),
        (
            lambda: synthesizer().generate_goldens_from_docs(
                [], max_goldens_per_document=1, quotas=[Quota(1)]
            ),
            "quotas or max_goldens_per_document, not both",
        ),
        (
            lambda: synthesizer(second_model="gpt-4o").generate_goldens_from_scratch("refunds"),
            "leave them out for goldens without contexts",
        ),
        (
            lambda: synthesizer().generate_goldens_from_scratch("a", num_initial_goldens=-1),
            "num_initial_goldens must be a whole number from 1 on",
        ),
        (lambda: synthesizer().generate_goldens_from_goldens([TEXT]), "must be of the type Golden"),
        (
            lambda: EvaluationDataset().generate_goldens_from_docs([], synthesizer=TEXT),
            "synthesizer must be of the type Synthesizer",
        ),
        (
            lambda: synthesizer(second_model="gpt-4o").generate_goldens_from_contexts(
                [["a"]], include_expected_output=False
            ),
            "compare answers with an expected output",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(
    wrong: Callable[[], Any], message: str
) -> None:
    with pytest.raises((InputError, TypeError), match=message):
        wrong()


# The law of the quotas.

CONTEXTS = [
    Context(f"d{n % 3}", (passage := Passage(f"text {n}", f"d{n % 3}", None, n),), (passage,) * 2)
    for n in range(60)
]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_quotas_are_never_exceeded_and_no_draft_is_tried_twice(data: st.DataObject) -> None:
    kinds = st.sampled_from([None, *map(str, Evolution)])
    quotas = data.draw(
        st.lists(
            st.builds(
                Quota, st.integers(1, 5), st.sampled_from([None, "d0", "d1", "d2"]), kinds
            ),
            min_size=1, max_size=4,
        )
    )  # fmt: skip
    tries, drafts = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    filling = Filling(
        quotas, CONTEXTS, EvolutionConfig(), drafts=drafts, tries=tries, seed=1, per_context=2
    )
    tried: list[Any] = []
    kept = 0
    while seeds := filling.next():
        tried += seeds
        for seed in seeds:
            if data.draw(st.booleans()):
                kept += filling.keep(seed, None)
    places = [(seed.passages[0], seed.draft) for seed in tried]
    assert len(set(places)) == len(places)
    assert kept == sum(one.kept for one in filling.yields)
    for one in filling.yields:
        assert one.kept <= one.quota.count
        assert one.tried <= tries * one.quota.count
        assert one.kept == one.quota.count or one.ended


# The command.

JUDGE = """
from __future__ import annotations
import os, re, signal
from collections import Counter
from dagengine.judges import ScriptedJudge

FACT, ASKED = map(re.compile, {patterns})
{writer}
writer = Writer()
def answer(question):
    with open({log!r}, "a") as log:
        log.write(question.key + chr(10))
    if {kill} and writer.asked.total() == {kill}:
        os.kill(os.getpid(), signal.SIGKILL)
    return writer.answer(question)
judge = ScriptedJudge(answer, name="writer")
"""


def run_command(folder: Path, *more: str, kill: int = 0) -> subprocess.CompletedProcess[str]:
    writer = "\n".join(getsource(part) for part in (evidence, facts_of, Writer))
    patterns = [FACT.pattern, ASKED.pattern]
    (folder / "judge.py").write_text(
        JUDGE.format(writer=writer, patterns=patterns, log=str(folder / "log"), kill=kill)
    )
    command = ("synthesize", "docs", "--judge", "judge.py:judge", "--evolutions", "0")
    return commands.run_command(folder, *command, *more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    corpus(tmp_path / "docs")
    return tmp_path


def test_a_killed_synthesis_goes_on_and_asks_nothing_twice(folder: Path) -> None:
    arguments = ("--count", "5", "--store", "a.db", "--max-in-flight", "1", "--out", "g.jsonl")
    killed = run_command(folder, *arguments, kill=20)
    assert killed.returncode == -signal.SIGKILL
    done = run_command(folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert "5 of 5 goldens" in done.stdout
    keys = (folder / "log").read_text().split()
    twice = [key for key, count in Counter(keys).items() if count > 1]
    assert len(twice) <= 1  # the one that was being asked
    first = (folder / "g.jsonl").read_bytes()
    replayed = run_command(folder, *arguments, "--replay")
    assert (replayed.returncode, (folder / "g.jsonl").read_bytes()) == (0, first)
    assert (folder / "log").read_text().split() == keys
    read = EvaluationDataset(goldens=[Golden(**json.loads(line)) for line in first.splitlines()])
    assert len(read.goldens) == 5


def test_the_command_says_what_is_missing_and_why(folder: Path) -> None:
    (folder / "docs" / "locked.txt").write_bytes(b"\xff\xfe\xff")
    (folder / "quotas.csv").write_text("count,document,kind\n1,docs/a.md,\n9,docs/c.docx,plain\n")
    arguments = ("--quotas", "quotas.csv", "--out", "g.jsonl", "--per-context")
    done = run_command(folder, *arguments, "9")
    assert done.returncode == 3
    assert "docs/c.docx, plain: " in done.stdout
    assert "docs/locked.txt: it is not UTF-8 text" in done.stdout
    assert "fell at Answerable" in done.stdout
    assert (folder / "g.jsonl").read_text().count("\n") >= 2
    for rows, words in (
        ('count,document\n1,"docs/a.md\n2,docs/b.md\n', "line 2: a quote opens a cell here"),
        ("count,colour\n1,red\n", "quotas.csv line 2: wrong columns; use count, "),
        ("count\nmany\n", "quotas.csv line 2: count is not a whole number"),
    ):
        (folder / "quotas.csv").write_text(rows)
        done = run_command(folder, *arguments, "9")
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_documents_without_a_text_end_with_the_cause_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.txt").touch()
    scan = write_pdf(tmp_path / "scan.pdf", [""])
    options = SynthesizeOptions(
        documents=[tmp_path / "empty.txt", scan], out=tmp_path / "g.jsonl", judge="m",
        base_url="http://localhost:1/v1",
    )  # fmt: skip
    with pytest.raises(typer.Exit) as ended:
        synthesize(options)
    said = capsys.readouterr().out
    assert ended.value.exit_code == 3
    assert "empty.txt: the file is empty" in said
    assert "scan.pdf: its only page has no text" in said
    assert not (tmp_path / "g.jsonl").exists()


def test_styles_reach_the_judge() -> None:
    seen: list[str] = []

    def answer(question: Question[Any]) -> Any:
        seen.append(question.messages[-1]["content"])
        return listing(question)

    style = StylingConfig(scenario="a hurried nurse", input_format="one short line")
    made = Synthesizer(
        ScriptedJudge(answer, name="listing"), styling_config=style, evolution_config=NO_EVOLUTION
    )
    assert len(made.generate_goldens_from_scratch("refunds", num_initial_goldens=1)) == 1
    assert sum("a hurried nurse" in text for text in seen) == 2
