"""`dagengine judge`, and the same under the names of published examples."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs.commands import output_of
from servers.openai_server import OpenAIServer

from dagengine import evaluate
from dagengine.metrics import AnswerRelevancyMetric
from dagengine.test_case import LLMTestCase

LOCAL = "http://localhost:11434/v1"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def said(*words: str, code: int = 0) -> str:
    return " ".join(output_of(*words, code=code, terminal_width=300).split())


def settings() -> list[str]:
    return Path(".dagengine.env").read_text(encoding="utf-8").splitlines()


def test_a_judge_is_set_shown_and_unset() -> None:
    assert said("judge", "show") == "gpt-4o (nothing else is set)"
    assert said("judge", "set", "llama3.1", "--base-url", LOCAL).endswith(f"llama3.1 at {LOCAL}")
    assert said("judge", "show").startswith(f"llama3.1 at {LOCAL} (")
    assert "is removed" in said("judge", "unset")
    assert "no judge was set" in said("judge", "unset")
    assert said("judge", "show") == "gpt-4o (nothing else is set)"


def test_a_judge_is_set_for_all_projects_of_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said("judge", "set", "anthropic/claude-sonnet-4-5", "--user")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert said("judge", "show").startswith("anthropic/claude-sonnet-4-5 (")
    said("judge", "unset", "--user")
    assert said("judge", "show").startswith("gpt-4o")


def test_the_variable_of_a_key_is_named_and_its_value_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said("judge", "set", "m", "--base-url", LOCAL, "--key-from", "MY_KEY")
    assert "from MY_KEY, which is NOT set" in said("judge", "show")
    monkeypatch.setenv("MY_KEY", "hush")
    shown = said("judge", "show")
    assert "which is set" in shown
    assert "hush" not in shown


@pytest.mark.parametrize(
    "words",
    [
        ("judge", "set", "m", "--api-key", "hush"),
        ("set-local-model", "--model-name=m", f"--base-url={LOCAL}", "--api-key=hush"),
        (
            *("set-azure-openai", "--openai-endpoint=https://mine.example"),
            *("--deployment-name=d", "--openai-api-key=hush"),
        ),
    ],
)
def test_a_key_on_the_command_line_is_refused_and_not_repeated(words: tuple[str, ...]) -> None:
    shown = said(*words, code=2)
    assert "do not pass a key on the command line" in shown
    assert "hush" not in shown
    assert not Path(".dagengine.env").exists()


def test_published_names_set_the_same_settings() -> None:
    said("set-ollama", "deepseek-r1:1.5b")
    assert settings() == ["DAGENGINE_JUDGE=deepseek-r1:1.5b", f"DAGENGINE_BASE_URL={LOCAL}"]
    said("unset-ollama")
    said("set-local-model", "--model-name=m", "--base-url=http://localhost:1234/v1/")
    assert settings() == ["DAGENGINE_JUDGE=m", "DAGENGINE_BASE_URL=http://localhost:1234/v1/"]
    said("unset-local-model")
    shown = said(
        *("set-azure-openai", "--openai-endpoint=https://mine.example/", "--deployment-name=d"),
        "--openai-api-version=2024-10-21",
    )
    assert "are ignored" in shown
    assert settings() == [
        "DAGENGINE_JUDGE=d",
        "DAGENGINE_BASE_URL=https://mine.example/openai/v1/",
        "DAGENGINE_API_KEY_FROM=AZURE_OPENAI_API_KEY",
    ]
    said("unset-azure-openai")
    assert not Path(".dagengine.env").exists()


def test_a_run_asks_the_judge_that_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer() as server:
        said("judge", "set", "mine", "--base-url", server.base_url, "--key-from", "MY_KEY")
        monkeypatch.setenv("MY_KEY", "hush")
        case = LLMTestCase(input="Who?", actual_output="Ada.")
        evaluate([case], [AnswerRelevancyMetric()], show=False)
    assert {body["model"] for body in server.requests} == {"mine"}
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer hush"}


def test_there_is_nothing_to_log_in_to() -> None:
    assert "stays on your machine" in said("login", code=2)
