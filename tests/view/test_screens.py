"""Compare and label in Chromium: by keys alone, in two tabs, readable for everybody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders.runs import but, cases, record, support_metric
from playwright.sync_api import Browser, Page
from programs.browser import Scheme, chromium, needs_chromium, tab
from programs.viewing import Viewing, viewing

from dagengine.record.label_file import LABELS

pytestmark = needs_chromium
OF_COLOURS = ("color-contrast", "link-in-text-block")

MARKUP = "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("runs")
    given = cases(6)
    given[2] = given[2].model_copy(update={"actual_output": MARKUP, "name": MARKUP})
    rude = but(("Tone", "answer 1", "rude"), ("Next step", "answer 3", False),
               ("Tone", "onerror", "rude"))  # fmt: skip
    runs = [record(base / "old", over=given), record(base / "new", rude, over=given)]
    # A run of another metric on other cases, and a folder that is broken: both in one folder.
    other = support_metric()
    other.name = "Something else"
    record(base / "more" / "foreign", over=cases(2, context=["other"]), metric=other)
    (base / "more" / "broken").mkdir()
    (base / "more" / "broken" / "run.json").write_text("{", encoding="utf-8")
    return [*runs, base / "more"]


@pytest.fixture(scope="module")
def server(folders: list[Path]) -> Iterator[Viewing]:
    with viewing(*folders) as found:
        yield found


@pytest.fixture(scope="module")
def browser(server: Viewing) -> Iterator[Browser]:
    # After the runs: playwright keeps an event loop in this thread.
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with tab(browser, offline=False) as opened:
        yield opened.page
        # An answer that another tab gave before is a conflict, which is said in words.
        assert [problem for problem in opened.errors if "409" not in problem] == []


def shown(page: Any, text: str) -> None:
    """Wait until the headline holds a text."""
    page.locator("h1", has_text=text).wait_for(timeout=60_000)


def test_two_runs_are_compared_by_keys_alone(page: Any, server: Viewing) -> None:
    page.goto(f"{server.address}run/1/")
    page.wait_for_selector("h1")
    page.keyboard.press("g")
    page.keyboard.press("d")
    shown(page, "3 of 6 cases flipped: 3 worse, 0 better")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    shown(page, "ticket 1: 1.00 → 0.00")
    assert page.locator("tr#first th").inner_text().startswith("Tone")
    page.keyboard.press("Escape")
    page.keyboard.press("x")
    shown(page, "3 of 6 cases flipped: 0 worse, 3 better")


def test_a_cell_of_the_matrix_leaves_its_cases(page: Any, server: Viewing) -> None:
    page.goto(f"{server.address}run/1/#v=diff")
    page.get_by_role("button", name="2: flips at Tone").click()
    page.wait_for_function("document.querySelectorAll('tr[id^=change-]').length === 2")
    names = page.locator("tr[id^=change-] .name").all_inner_texts()
    assert names == ["ticket 1", MARKUP]


def test_hostile_texts_are_shown_as_they_are(page: Any, server: Viewing) -> None:
    page.goto(f"{server.address}run/1/#v=diff&pair=2-2")
    shown(page, "onerror")
    page.locator("main summary").click()
    assert page.locator(".txt", has_text=MARKUP).count() == 2
    page.goto(f"{server.address}run/1/#v=label&who=Eve&queue=one&seed=2")
    page.wait_for_selector(".choice")
    page.locator("main summary").click()
    assert page.locator(".txt", has_text=MARKUP).count() == 1
    assert page.locator("img").count() == 0
    assert page.title() != "ran"


def test_a_person_walks_and_undoes_by_keys_alone(
    page: Any, server: Viewing, folders: list[Path]
) -> None:
    page.goto(f"{server.address}run/1/#case=ticket 1&v=case")
    page.wait_for_selector("h1")
    page.keyboard.press("l")
    shown(page, "What does input ask for?")
    page.keyboard.press("1")
    shown(page, "Does Steps name a next step?")
    assert page.locator(".choice").all_inner_texts()[:2] == ["y\nTrue", "n\nFalse"]
    page.keyboard.press("w")
    page.keyboard.type("1 u s")  # typed, not taken for keys
    page.keyboard.press("Escape")
    page.keyboard.press("y")
    shown(page, "How does actual_output speak?")
    page.keyboard.press("u")
    shown(page, "Does Steps name a next step?")
    assert "rude" not in page.locator("main").inner_text()
    page.keyboard.press("y")
    shown(page, "How does actual_output speak?")
    page.keyboard.press("3")
    shown(page, "How kind?")
    page.keyboard.press("8")
    shown(page, "by your answers it passes")
    page.locator("td", has_text="✕ not the same").wait_for()
    lines = (folders[1] / LABELS).read_text("utf-8").splitlines()
    said = [json.loads(line) for line in lines]
    assert [(one.get("node"), one.get("answer")) for one in said] == [
        ("Kind", "help"), ("Next step", True), (None, None), ("Next step", True),
        ("Tone", "apologetic"), ("Empathy", 0.8), ("", None),
    ]  # fmt: skip
    assert said[1]["note"] == "1 u s"


def test_a_copied_link_holds_no_token(page: Any, server: Viewing) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{server.address}run/1/#case=ticket 1&v=case")
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("report.html#")
    assert server.root.strip("/") not in copied


def test_two_tabs_do_not_lose_or_double_an_answer(
    page: Any, server: Viewing, folders: list[Path]
) -> None:
    other = page.context.new_page()
    address = f"{server.address}run/0/#v=label&who=Ben&queue=one&seed=3"
    for shows in (page, other):
        shows.goto(address)
        shown(shows, "What does input ask for?")
    page.keyboard.press("1")
    shown(page, "Does Steps name a next step?")
    with other.expect_response("**/answer") as reply:
        other.keyboard.press("2")
    assert reply.value.status == 409
    shown(other, "Does Steps name a next step?")
    assert "another tab" in other.locator("[role=status]").first.inner_text()
    other.close()
    assert len((folders[0] / LABELS).read_text("utf-8").splitlines()) == 1


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_every_screen_is_accessible(
    browser: Browser, server: Viewing, width: int, scheme: Scheme
) -> None:
    found = []
    with tab(browser, width=width, scheme=scheme, offline=False) as opened:
        page = opened.page
        for fragment, ready in (
            ("v=runs", ".strips"), ("v=diff&old=old&new=foreign", ".history"),
            ("v=diff", ".matrix"), ("v=diff&pair=1-1", ".both"), ("v=label", "form"),
            ("v=label&who=Zoe&queue=random", ".choice"), ("v=label&who=Ana&queue=one&seed=1", "h1"),
        ):  # fmt: skip
            page.goto(f"{server.address}run/1/#{fragment}")
            page.wait_for_selector(ready)
            found += [(fragment, scheme, broken) for broken in opened.violations()]
            # What the other scheme changes is colours, and the other width where things are.
            other: Scheme = "dark" if scheme == "light" else "light"
            page.emulate_media(color_scheme=other)
            opened.until("document.getAnimations().length === 0")
            found += [(fragment, other, broken) for broken in opened.violations(*OF_COLOURS)]
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not found


def test_the_end_of_a_random_sample_tells_the_agreement_by_node(page: Any, server: Viewing) -> None:
    warm = [("Kind", 1), ("Next step", 1), ("Tone", 1)]
    for place in (0, 1):  # the judge finds the second one rude
        for node, choice in warm:
            at = {"who": "Cy", "metric": "Support quality", "place": place}
            reply = server.ask("run/1/api/label/answer", {**at, "node": node, "choice": choice})
            assert reply.status == 200, reply.text
    page.goto(f"{server.address}run/1/#v=label&who=Cy&queue=random&count=6&at=6")
    shown(page, "2 of 6 cases labelled")
    rows = page.locator("table.bynode tbody tr").all_inner_texts()
    assert [row.split("\t")[:3] for row in rows] == [
        ["Kind", "2", "2"], ["Next step", "2", "2"], ["Tone", "1", "2"],
    ]  # fmt: skip
    page.goto("about:blank")
    page.goto(f"{server.address}run/1/#v=label&who=Cy&queue=one&seed=0&count=1&at=1")
    shown(page, "1 of 1 case labelled")
    assert page.locator("table.bynode").count() == 0


def test_did_it_get_better_and_where_the_other_runs_are(page: Any, server: Viewing) -> None:
    page.goto(server.address)
    shown(page, "Something else: 100 % pass, first run of this data")
    assert page.url.endswith("run/2/#v=runs")
    rows = page.locator(".history tbody tr")
    assert rows.count() == 4
    page.locator(".history tbody tr", has_text="3 flips: 3 worse, 0 better").wait_for()
    said = rows.all_inner_texts()
    assert "foreign" in said[0]
    assert "first run of this data" in said[0]
    assert "⊘ Cannot be read:" in said[3]
    assert page.locator(".strips svg").count() == 2
    # Every other run is two keys away, those that can be compared first.
    page.goto(f"{server.address}run/1/")
    page.wait_for_selector("h1")
    page.keyboard.press("r")
    page.wait_for_selector(".menu a")
    menu = page.locator(".menu").inner_text()
    assert menu.index("= old") < menu.index("Other cases: open only") < menu.index("foreign")
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/0/")


def test_runs_without_anything_in_common_lead_on(page: Any, server: Viewing) -> None:
    page.goto(f"{server.address}run/1/#v=diff&old=old&new=foreign")
    shown(page, "Nothing to compare: no metric in common")
    page.get_by_role("button", name="All runs").click()
    shown(page, "Something else: 100 % pass")
    # By itself a run is compared with the last one that it can be compared with.
    page.goto("about:blank")
    page.goto(f"{server.address}run/1/#v=diff")
    shown(page, "3 of 6 cases flipped: 3 worse, 0 better")
    assert "question 1" in page.locator("tr[id^=change-]").first.inner_text()


def test_both_walks_say_the_question_and_lead_to_the_next_flip(page: Any, server: Viewing) -> None:
    page.goto(f"{server.address}run/1/#v=diff&pair=1-1")
    shown(page, "ticket 1: 1.00 → 0.00")
    assert "How does actual_output speak?" in page.locator("tr#first th").inner_text()
    assert "first difference" in page.locator("tr#first th").inner_text()
    assert "✓ → ✕" in page.locator("h1").inner_text()
    page.keyboard.press("j")
    page.locator("h1", has_text="ticket 1").wait_for(state="detached")
    assert "pair=1-1" not in page.url
