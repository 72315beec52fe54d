"""The site: whole, silent, readable without a network, and easy to search."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import itertools
import json
import re
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from folders.made_once import gallery_made_once, made_once
from folders.places import ROOT
from playwright.sync_api import Browser
from programs.browser import Scheme, chromium, needs_chromium, visit

import dagengine
from dagengine.deepeval_configs import LABELS
from dagengine.execution.local_executor import Settings

REFERENCE = ROOT / "docs" / "api"
PUBLIC = {
    *("dagengine", "dagengine.data", "dagengine.dataset", "dagengine.judges", "dagengine.metrics"),
    *("dagengine.metrics.dag", "dagengine.models", "dagengine.reliability", "dagengine.results"),
    *("dagengine.store", "dagengine.synthesis", "dagengine.testing", "dagengine.voting"),
}
# What a stranger asks, and the pages that answer it.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "how do I run only the failed cases again?": ("record", "runs", "troubleshooting"),
    "why is my node skipped?": ("how-to/what-runs", "troubleshooting"),
    "what does unparseable cost me?": ("troubleshooting",),
    "how do I use Ollama as the judge?": (
        "tutorial/4-a-real-judge",
        "judges",
        "how-to/local-models",
    ),
    "how do I use Azure OpenAI?": ("tutorial/4-a-real-judge", "judges"),
    "where do I put my API key?": ("judges", "tutorial/4-a-real-judge"),
    "how much will a run cost?": ("runs", "tutorial/4-a-real-judge"),
    "how do I stop a run before it gets too expensive?": (
        "runs",
        "tutorial/4-a-real-judge",
        "troubleshooting",
    ),
    "can I resume a run that was interrupted?": ("runs", "troubleshooting"),
    "how do I read a CSV file with other column names?": (
        "data",
        "how-to/rag",
        "tutorial/2-a-data-set",
    ),
    "several values in one cell of a CSV": ("data", "how-to/rag"),
    "how do I evaluate RAG?": ("how-to/rag",),
    "how do I judge a conversation?": ("how-to/conversations",),
    "how do I check which tools an agent called?": ("how-to/agents", "metrics/tool_correctness"),
    "compare two models on the same question": ("how-to/arena", "metrics/arena_g_eval"),
    "how do I write my own metric?": ("how-to/own",),
    "how do I use my own model as a judge?": ("how-to/own", "judges"),
    "how do I use my own prompt?": ("how-to/own",),
    "what is the difference between inputs and children?": ("how-to/what-runs", "nodes/README"),
    "what does then mean in a CodeNode?": ("how-to/what-runs", "nodes/code"),
    "in which order does a code node get its arguments?": ("nodes/code",),
    "how do I use a metric inside a tree?": ("nodes/metric",),
    "can two branches share a node?": ("how-to/what-runs",),
    "what is a score of several roots?": ("how-to/what-runs", "semantics"),
    "what does gate-bypassed mean?": ("troubleshooting",),
    "what does several-terminals mean?": ("troubleshooting", "how-to/what-runs"),
    "how do I draw my tree?": ("tutorial/1-a-tree",),
    "how do I write a good criterion?": ("how-to/criterion",),
    "yes/no question or a scale?": ("nodes/rating", "how-to/criterion", "nodes/binary_judgement"),
    "one question per item of a list": ("nodes/map",),
    "how do I run evaluations with pytest?": ("testing",),
    "how do I run tests in CI without a key?": ("testing",),
    "what changed between two runs?": ("diff", "tutorial/3-a-failure"),
    "would I get the same score again?": ("benchmark", "tutorial/5-trust"),
    "does the judge agree with people?": ("benchmark", "tutorial/5-trust"),
    "how do I label cases?": ("view", "how-to/labels"),
    "how do I ask several times and take the majority?": ("voting",),
    "how do I make test cases from documents?": ("goldens",),
    "run on several machines": ("cluster",),
    "I come from deepeval, what is different?": ("coming-from/deepeval",),
    "constitutional principles": ("how-to/principles", "metrics/criteria"),
    "token probabilities of a rating": ("how-to/probabilities", "nodes/rating"),
    "I have a spreadsheet of verdicts already": ("how-to/recordings", "benchmark"),
    "is judged text dangerous?": ("security",),
    "does it send telemetry?": ("limits",),
    "why a graph and not a loop?": ("why",),
    "why did my case get no score at all": ("troubleshooting", "semantics"),
    "use a model running on my laptop": ("judges", "tutorial/4-a-real-judge"),
    "my laptop crashed in the middle of the run, do I have to start over": ("runs", "record"),
    "how do I turn a csv file into test cases": ("data", "api/data", "tutorial/2-a-data-set"),
    "column names in my file are different": ("data", "how-to/rag"),
    "judge gives a different answer every time": ("benchmark", "voting", "tutorial/5-trust"),
    "how many times should I repeat the evaluation": ("benchmark", "statistics"),
    "is the difference between two models real or just noise": ("diff", "benchmark"),
    "compare two prompts on the same data": ("diff", "how-to/arena"),
    "send results to my boss as one file": ("page",),
    "hide customer names in the report": ("record",),
    "does any of my data leave my machine": ("security", "limits"),
    "too many requests 429": ("runs", "troubleshooting"),
    "use claude as a judge": ("judges",),
    "my model server needs an extra header": ("judges",),
    "set the temperature of the judge": ("judges", "how-to/own"),
    "the model answers with text instead of json": ("troubleshooting", "how-to/own"),
    "let a bigger model decide only when the small one is unsure": ("voting",),
    "check answers against a regular expression without a model": (
        "metrics/pattern_match",
        "metrics/README",
    ),
    "weight some questions more than others": ("how-to/weights", "semantics"),
    "two branches that meet again in one node": ("how-to/what-runs",),
    "skip the rest of the tree if the first answer is no": ("tutorial/1-a-tree", "nodes/verdict"),
    "reuse a metric as one step of another tree": ("nodes/metric",),
    "evaluate a chatbot over many turns": ("how-to/conversations",),
    "detect made up facts in a rag answer": ("how-to/rag", "gallery/rag", "metrics/faithfulness"),
    "change the prompt that is sent to the judge": ("how-to/own",),
    "see the exact prompt the model received": ("record", "page", "view"),
    "fail the pull request when quality drops": ("testing", "diff"),
    "make test questions from my own pdf files": ("goldens",),
    "pick a threshold": ("how-to/labels",),
    "export results to excel or pandas": ("data", "record"),
    "use it from an async web server": ("runs",),
    "how do I install it without graphviz": ("tutorial/1-a-tree", "troubleshooting"),
    "tab completion in my shell": ("tutorial/1-a-tree",),
    "what happens if I press Ctrl-C": (
        "runs",
        "record",
    ),
    "interrupt a run and continue later": (
        "runs",
        "record",
    ),
    "comment on a pull request with the results": (
        "testing",
        "diff",
        "runs",
        "page",
    ),
    "score from 1 to 5 instead of yes or no": (
        "nodes/rating",
        "metrics/g_eval",
        "how-to/criterion",
        "nodes/README",
    ),
    "two decisions in one request": (
        "decisions",
        "performance",
        "judges",
        "how-to/what-runs",
    ),
    "limit the budget in dollars": (
        "runs",
        "api/settings",
        "api/commands",
    ),
    "write my own judge class": (
        "how-to/own",
        "judges",
    ),
    "list of all command line options": ("api/commands",),
    "default value of max_in_flight": (
        "api/settings",
        "api/run",
        "runs",
        "api/commands",
    ),
    "what arguments does evaluate take": (
        "api/settings",
        "api/run",
    ),
    "where are the results saved": (
        "record",
        "runs",
        "data",
    ),
    "how much does an evaluation cost before I start it": (
        "runs",
        "performance",
    ),
    "ollama": (
        "judges",
        "how-to/local-models",
        "tutorial/4-a-real-judge",
    ),
    "azure openai deployment": ("judges",),
    "run a gguf file": ("how-to/local-models",),
    "judge says idk or unknown": (
        "metrics/README",
        "troubleshooting",
        "metrics/faithfulness",
        "semantics",
        "metrics/answer_relevancy",
        "how-to/criterion",
    ),
    "why was my case skipped": (
        "troubleshooting",
        "semantics",
    ),
    "missing_field error": ("troubleshooting",),
    "api key not found": (
        "judges",
        "troubleshooting",
        "tutorial/4-a-real-judge",
    ),
    "does the order of answers influence the judge": (
        "benchmark",
        "how-to/arena",
        "statistics",
        "metrics/arena_g_eval",
    ),
    "how many labels do I need": (
        "how-to/labels",
        "statistics",
        "benchmark",
    ),
    "cohen kappa": (
        "statistics",
        "benchmark",
    ),
    "confidence interval of the pass rate": (
        "statistics",
        "benchmark",
        "diff",
    ),
    "compare with yesterday's run": (
        "diff",
        "view",
        "tutorial/3-a-failure",
    ),
    "dark mode": (
        "page",
        "view",
    ),
    "keyboard shortcuts of the report": (
        "page",
        "view",
    ),
    "share the report with a colleague without internet": ("page",),
    "evaluate an agent with tool calls": (
        "how-to/agents",
        "metrics/tool_correctness",
        "gallery/agents",
    ),
    "chatbot forgets what the user said": (
        "metrics/knowledge_retention",
        "how-to/conversations",
    ),
    "check that output is valid json": (
        "metrics/json_correctness",
        "gallery/extraction",
        "metrics/json_match",
    ),
    "does the answer contain bad advice": ("metrics/non_advice",),
    "translate prompts to german": (
        "how-to/own",
        "how-to/criterion",
    ),
    "use several judges and vote": ("voting",),
    "use a cheaper model first": ("voting",),
    "run in github actions": ("testing",),
    "retry failed cases only": (
        "runs",
        "record",
        "testing",
        "data",
    ),
    "replay without calling the model": (
        "runs",
        "how-to/recordings",
        "testing",
        "api/store",
    ),
    "migrate from deepeval": ("coming-from/deepeval",),
    "cycle in the graph": (
        "troubleshooting",
        "semantics",
    ),
    "jupyter notebook": ("record",),
}
# One page of each kind.
PAGES = (
    *("index", "runs", "api/run", "metrics/g_eval", "nodes/map", "coming-from/deepeval"),
    *("tutorial/2-a-data-set", "gallery/rag", "gallery/rag/report", "gallery/support-card/card"),
)
# The first hits for a question, from the key that asks until the line above the hits says how many
# there are; that line is empty before, as what was found before must be gone.
ANSWERED = """async ([question, patience]) => {
    const box = document.querySelector('.md-search__input')
    box.value = question
    const line = document.querySelector('.md-search-result__meta')
    line.textContent = ''
    const answered = new Promise(done => new MutationObserver((_, observer) => {
        if (!line.textContent.includes('matching')) return
        observer.disconnect()
        done()
    }).observe(line, {childList: true, characterData: true, subtree: true}))
    box.dispatchEvent(new KeyboardEvent('keyup'))
    await Promise.race([answered, new Promise(done => setTimeout(done, patience))])
    return [...document.querySelectorAll('.md-search-result__item')].slice(0, 3)
        .map(hit => new URL(hit.querySelector('a').href).pathname)
}"""
SEVERE = re.compile(r"^[\w-]+ \((serious|critical)\)")
needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None,
    reason="there is no mkdocs: it comes with the dependency group `docs`",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `python3 dev.py docs` builds it: a warning is an error."""

    def made(folder: Path) -> None:
        # Here and not in a process of its own, as the runs of the gallery are made already.
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            patch.setenv("NO_MKDOCS_2_WARNING", "1")
            warnings.simplefilter("ignore")
            build = importlib.import_module("mkdocs.commands.build").build
            config = importlib.import_module("mkdocs.config").load_config(
                str(ROOT / "mkdocs.yml"), site_dir=str(folder)
            )
            config.plugins.on_startup(command="build", dirty=False)
            build(config)
            config.plugins.on_shutdown()

    with gallery_made_once(tmp_path_factory):
        return made_once(tmp_path_factory, "site", made)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_the_reference_has_every_public_name_once() -> None:
    named = [
        name
        for page in REFERENCE.glob("*.md")
        for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(set(named)) == len(named)
    listed = {id(_object(name)) for name in named}
    missing = [
        f"{package}.{name}"
        for package in sorted(PUBLIC)
        for name in importlib.import_module(package).__all__
        if id(getattr(importlib.import_module(package), name)) not in listed
    ]
    assert missing == [], "add them to a page in docs/api"


@needs_mkdocs
def test_readers_choose_a_version_only_where_mike_builds_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hooks = runpy.run_path(str(ROOT / "docs" / "site" / "hooks.py"))
    for version, offered in (("", {}), ('{"version": "0.1"}', {"version": {"provider": "mike"}})):
        monkeypatch.setenv("MIKE_DOCS_VERSION", version)
        assert hooks["on_config"](SimpleNamespace(extra={})).extra == offered


def test_the_page_of_settings_has_every_argument_and_limit_with_its_default() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    arguments, limits = (
        dict(re.findall(r"^`(\w+)` \| [^|]+ \| ([^|]+) \|", part, re.MULTILINE))
        for part in page.split("## Limits")
    )
    signature = inspect.signature(dagengine.evaluate).parameters
    named = [name for name, one in signature.items() if one.kind is not one.VAR_KEYWORD]
    assert sorted(arguments) == sorted([*named, *Settings.__annotations__, *LABELS])
    defaults = {name: signature[name].default for name in named if arguments[name][0] == "`"}
    assert {name: f"`{value!r}`" for name, value in defaults.items()} == {
        name: arguments[name] for name in defaults
    }
    assert limits == {
        field.name: f"`{getattr(dagengine.Limits(), field.name)!r}`"
        for field in dataclasses.fields(dagengine.Limits)
    }


def test_every_page_stands_in_the_navigation() -> None:
    listed = set(re.findall(r"\s(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    listed.discard("api/commands.md")  # it is made when the site is built
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    assert sorted(pages - listed) == [], "add them to nav: in mkdocs.yml"


def test_the_list_for_programs_is_short_and_leads_to_pages_that_are_there() -> None:
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    outside = runpy.run_path(str(ROOT / "docs" / "site" / "hooks.py"))["OUTSIDE"]
    assert len(text.splitlines()) <= 25
    linked = re.findall(r"\]\(([^)]+)\)", text)
    assert len(linked) >= 20
    assert [name for name in linked if not (ROOT / "docs" / name).exists()] == ["guide.md"]
    assert "guide.md" in outside


@needs_mkdocs
def test_every_page_is_there_as_markdown_and_the_reference_has_signatures(site: Path) -> None:
    pages = {page.relative_to(site).with_suffix("") for page in site.glob("**/*.md")}
    assert len(pages) > 100
    assert {page for page in pages if not (site / page).with_suffix(".html").exists()} <= {
        page
        for page in pages
        if page.name == "README"  # index.html
    }
    nodes = (site / "api" / "nodes.md").read_text(encoding="utf-8")
    assert "\nBinaryJudgementNode(criteria: " in nodes
    assert ":::" not in nodes
    assert r"\|" not in (site / "metrics" / "g_eval.html").read_text(encoding="utf-8")
    assert (site / "guide.md").read_text("utf-8").startswith("---\nname: dagengine\n")
    rows = json.loads((site / "schemas" / "rows.json").read_text("utf-8"))
    assert rows["$id"] == "urn:dagengine:rows:1"


def _object(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@needs_mkdocs
@needs_chromium
def test_pages_ask_nobody_fit_and_can_be_used_by_all(site: Path, browser: Browser) -> None:
    # What breaks for some readers is that of a page or of a scheme: each page is examined in one
    # scheme, each scheme on half of the pages.
    readers: tuple[tuple[Scheme, int], ...] = (("light", 1280), ("dark", 400))
    for place, (scheme, width) in enumerate(readers):
        for name in PAGES[place::2]:
            wide = 1680 - width
            with visit(browser, site / f"{name}.html", width=wide, scheme=scheme) as page:
                page.until("!document.querySelector('.md-search:not([aria-label])')")
                page.until(f"document.documentElement.scrollWidth <= {wide}")  # bars slide
                page.page.set_viewport_size({"width": width, "height": 900})
                page.until(f"document.documentElement.scrollWidth <= {width}")
                assert [url for url in page.requests if not url.startswith("file:")] == []
                assert page.errors == []
                page.until("document.getAnimations().length === 0")
                found = page.violations()
                assert [one for one in found if SEVERE.match(one)] == [], name


@needs_mkdocs
@needs_chromium
def test_pages_of_the_gallery_show_what_their_commands_leave(site: Path, browser: Browser) -> None:
    said = {}
    with visit(browser, site / "gallery" / "run.html") as opened:
        for frame in opened.page.locator("iframe.left").all():
            frame.scroll_into_view_if_needed()
            said[frame.get_attribute("src")] = frame.content_frame.locator("h1").text_content()
    assert said == {
        "support/report.html": "3 of 6 cases failed",
        "support-card/card.html": "○ Not known yet: labels and runs are too few",
    }
    shown = sorted(page.stem for page in (ROOT / "docs" / "gallery").glob("[a-z]*.md"))
    made = [(site / "gallery").glob(name) for name in ("*/report.html", "*-card/card.html")]
    runs, cards = (sorted(page.parent.name.removesuffix("-card") for page in kind) for kind in made)
    better = [name for name in runs if name.endswith("-better")]
    assert sorted([*runs, "run"]) == sorted([*shown, *better])
    assert cards == ["support"]
    assert better == ["reviews-better"]


@needs_mkdocs
@needs_chromium
def test_the_search_answers_a_strangers_questions_within_three_hits(
    site: Path, browser: Browser
) -> None:
    assert len(QUESTIONS) == 120
    missed = {}
    with visit(browser, site / "index.html") as opened:
        opened.page.click(".md-search__input")
        # Hits are read and not seen: to draw those of all questions takes longer than to find them.
        opened.run("document.querySelector('.md-search__output').style.display = 'none'")
        # A question before the index is read may never be answered: then another one is asked.
        words = itertools.cycle(("judge", "metric"))
        while not opened.page.evaluate(ANSWERED, [next(words), 1_000]):
            pass
        for question, wanted in QUESTIONS.items():
            hits = opened.page.evaluate(ANSWERED, [question, 300_000])
            pages = [Path(hit).relative_to(site).with_suffix("").as_posix() for hit in hits]
            if not {page.replace("/index", "/README") for page in pages} & set(wanted):
                missed[question] = pages
    assert len(missed) <= 6, missed  # new pages use the words of old ones: 4 of 120 are missed
