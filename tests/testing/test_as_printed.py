"""What is published runs as printed: our page on tests, and the documents that users know."""

from __future__ import annotations

import re
import signal
import sys

import pytest
from folders.places import ROOT, SEEDS
from pages import blocks
from programs.evaluations import JUDGED, UNUSED, dagengine_test_run, run, without
from programs.snippets import any_reply
from servers.openai_server import OpenAIServer

import dagengine.cli.test as command

pytest_plugins = ["pytester"]
PAGE = ROOT / "docs" / "testing.md"


def test_the_suite_of_the_page_on_tests_ends_as_it_says(pytester: pytest.Pytester) -> None:
    page = blocks(PAGE.read_text(encoding="utf-8"))
    code = [block.text for block in page if block.title.startswith("test_support.py")]
    assert len(code) == 2
    pytester.makepyfile(test_support="".join(code))
    left = run(pytester)
    found = {event[1].partition("::")[2]: (event[2], event[4]) for event in left.outcomes}
    assert found == {
        "test_answers[helpful]": ("passed", ""),
        "test_answers[blames]": ("failed", "0.3 < 0.5 Support quality: Tone is rude"),
        "test_again[helpful]": ("passed", ""),
        "test_again[blames]": (
            "failed",
            "failed (p = 1.00, 4 of 4 votes failed): 0.3 < 0.5 Support quality: Tone is rude",
        ),
    }


def test_the_options_of_the_page_are_those_of_the_plugin(pytester: pytest.Pytester) -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"--evals[a-z-]*", text))
    known = set(
        re.findall(
            r"--evals[a-z-]*", pytester.runpytest_inprocess("-h", *without(*UNUSED)).stdout.str()
        )
    )
    assert named <= known
    assert known - named <= {"--evals-ignore-errors", "--evals-repeat"}  # `test run -i`, `-r`


def published(document: str, first: str, last: str) -> str:
    """Lines of a published document after the line `first`, their imports with our name."""
    path = next(iter(sorted(SEEDS.glob(f"{document}_*.txt"))), None)
    if path is None:
        pytest.skip(f"no seed documents in {SEEDS} (set DAGENGINE_SEEDS)")
    lines = path.read_text(encoding="utf-8").splitlines()
    begin = lines.index(first) + 1
    code = "\n".join(lines[begin : lines.index(last, begin) + 1])
    return re.sub(r"^(from|import) deepeval", r"\1 dagengine", code, flags=re.MULTILINE)


def test_the_published_bulk_test_runs_in_parallel_as_printed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = '    print("Test finished!")'
    code = published("003", "test_bulk.py", end).replace("@deepeval.", "@dagengine.")
    code = code.replace(
        "EvaluationDataset(test_cases=[...])", "EvaluationDataset(test_cases=CASES)"
    )
    cases = (
        "import pytest\nfrom dagengine.test_case import LLMTestCase as Case\n"
        "CASES = [Case(name=f'case {n}', input='x', actual_output='y', context=['z'])"
        " for n in range(6)]\n"
        "def print(text):  # what workers print is lost\n"
        "    open('said.txt', 'a').write(text)\n"
    )
    pytester.makepyfile(test_bulk=cases + code)

    with OpenAIServer(any_reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        exit_code, done = dagengine_test_run(pytester, monkeypatch, "test_bulk.py", "-n", "2")
    assert exit_code == 0
    done.assert_outcomes(passed=6)
    assert (pytester.path / "said.txt").read_text() == "Test finished!"


def test_flags_that_people_know_do_what_they_did(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(f"""{JUDGED}
from dagengine.errors import RefusedError

refusing = metric(judge=ScriptedJudge(lambda question: RefusedError("no"), name="refusing"))


@pytest.mark.parametrize("one", [case("good"), case("bad"), case("bad, too")])
def test_each(one):
    assert_test(one, [quality])


def test_has_no_score():
    assert_test(good, [refusing])
""")

    def outcomes(*flags: str) -> tuple[dict[str, int], str]:
        done = dagengine_test_run(pytester, monkeypatch, *flags)[1]
        found = done.parseoutcomes()
        return {name: found[name] for name in found if name != "warnings"}, done.stdout.str()

    assert outcomes("-i", "-v")[0] == {"passed": 1, "failed": 2, "skipped": 1}
    assert outcomes("-x")[0] == {"passed": 1, "failed": 1}
    found, output = outcomes("-c", "-r", "2")
    assert found == {"passed": 2, "failed": 6}
    assert "8 questions, 8 judge calls" in output
    assert "8 questions, 2 judge calls, 6 from the store" in outcomes("-c", "-r", "2")[1], (
        "what did not fail is not asked again"
    )


def test_a_session_that_is_interrupted_ends_with_the_code_of_all_commands() -> None:
    interrupts = "import os, signal, sys; os.kill(os.getppid(), signal.SIGINT); sys.exit(2)"
    assert command._exit_code([sys.executable, "-c", interrupts]) == 130


def test_a_signal_that_ends_pytest_is_the_exit_code_of_the_command() -> None:
    dying = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert command._exit_code([sys.executable, "-c", dying]) == 128 + signal.SIGTERM
