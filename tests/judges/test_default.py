"""The judge of a run that names none: environment, project, user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from servers.openai_server import OpenAIServer

from dagengine import evaluate
from dagengine.errors import InputError, JudgeSetupError
from dagengine.judges import OpenAIJudge, ProviderJudge, as_judge
from dagengine.judges.default import (
    DefaultJudge,
    Tuning,
    default_judge,
    judge_settings,
    project_file,
    read_settings,
    user_file,
    write_settings,
)
from dagengine.loading import load_batch_judge, load_judge
from dagengine.metrics import GEval
from dagengine.results import CaseResult
from dagengine.test_case import LLMTestCase


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project without settings, and a user without any."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("DAGENGINE_JUDGE", "DAGENGINE_BASE_URL", "DAGENGINE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_without_settings_it_is_gpt_4o() -> None:
    assert default_judge() == DefaultJudge("gpt-4o", None, None, "nothing else is set")
    judge = as_judge()
    assert isinstance(judge, OpenAIJudge)
    assert (judge.model, judge.base_url) == ("gpt-4o", None)


def test_the_environment_goes_before_the_project_and_the_project_before_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_settings(user_file(), DefaultJudge("of-user"))
    assert default_judge().model == "of-user"
    write_settings(project_file(), DefaultJudge("of-project", "http://localhost:1/v1"))
    assert default_judge() == DefaultJudge(
        "of-project", "http://localhost:1/v1", None, str(project_file())
    )
    monkeypatch.setenv("DAGENGINE_JUDGE", "of-environment")
    # Model and server belong together: the project's server does not have this model.
    assert default_judge() == DefaultJudge("of-environment", None, None, "the environment")


def test_a_default_may_be_of_another_provider() -> None:
    write_settings(project_file(), DefaultJudge("anthropic/claude-sonnet-4-5"))
    assert isinstance(as_judge(), ProviderJudge)


def test_the_key_is_in_the_variable_that_the_settings_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = DefaultJudge("m", "http://localhost:1/v1", "MY_KEY", "here")
    with pytest.raises(JudgeSetupError, match=r"set MY_KEY \(here names this variable\)"):
        chosen.key()
    monkeypatch.setenv("MY_KEY", "secret")
    assert chosen.key() == "secret"
    assert "secret" not in repr(chosen)
    assert DefaultJudge("m", "http://localhost:1/v1").key() is None
    monkeypatch.setenv("DAGENGINE_API_KEY", "other")
    assert DefaultJudge("m", "http://localhost:1/v1").key() == "other"
    assert DefaultJudge("m").key() is None  # the provider's own variable holds


@pytest.mark.parametrize("door", [as_judge, load_judge, load_batch_judge])
def test_a_server_named_by_the_caller_is_asked_with_the_key_for_own_servers(
    door: Callable[..., OpenAIJudge], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGENGINE_API_KEY", "key of my server")
    named = {"base_url": "http://localhost:1/v1"}
    assert door("m", **named).secrets[0] == door(None, **named).secrets[0] == "key of my server"
    # Who named no server asks that of the default, in batches, too.
    write_settings(project_file(), DefaultJudge("m", "http://localhost:2/v1"))
    judge = door(None, base_url=None)
    assert (judge.base_url, judge.secrets[0]) == ("http://localhost:2/v1", "key of my server")
    assert "key of my server" not in door("gpt-4o", base_url=None).secrets[:1]


def test_a_server_named_by_the_caller_gets_no_key_of_the_default() -> None:
    write_settings(project_file(), DefaultJudge("m", "http://localhost:1/v1", "MY_KEY"))
    judge = as_judge(base_url="http://localhost:2/v1")
    assert isinstance(judge, OpenAIJudge)
    assert (judge.model, judge.base_url) == ("m", "http://localhost:2/v1")


def test_a_named_judge_reads_no_settings() -> None:
    project_file().write_text("nonsense\n", encoding="utf-8")
    judge = as_judge("gpt-4o-mini")
    assert isinstance(judge, OpenAIJudge)
    with pytest.raises(InputError, match="line 1: 'nonsense' is not a setting"):
        as_judge()


def test_a_misspelt_setting_is_refused_with_its_line() -> None:
    path = project_file()
    path.write_text("# mine\n\nDAGENGINE_JUGDE=gpt-4o\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 3: .* did you mean 'DAGENGINE_JUDGE'"):
        read_settings(path)
    with pytest.raises(InputError, match="one line of text"):
        write_settings(path, DefaultJudge("a\nDAGENGINE_BASE_URL=http://evil"))


def test_a_misspelt_variable_is_refused_before_another_model_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DAGENGINE_SEEDS", "of-somebody-else")
    assert default_judge().model == "gpt-4o"
    monkeypatch.setenv("DAGENGINE_JUGDE", "llama3.1")
    with pytest.raises(InputError, match=r"DAGENGINE_JUGDE; did you mean DAGENGINE_JUDGE\?"):
        default_judge()
    monkeypatch.delenv("DAGENGINE_JUGDE")
    monkeypatch.setenv("DAGENGINE_BASEURL", "http://localhost:11434/v1")
    with pytest.raises(InputError, match=r"DAGENGINE_BASEURL; did you mean DAGENGINE_BASE_URL\?"):
        as_judge()


@pytest.mark.parametrize("address", ["localhost:8000/v1", "htp://localhost/v1"])
def test_an_address_needs_its_scheme(address: str) -> None:
    with pytest.raises(JudgeSetupError, match=r"base_url .* does not begin with http:// or"):
        OpenAIJudge("m", base_url=address)


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "DAGENGINE_BASE_URL"])
def test_an_address_of_the_environment_needs_its_scheme(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv(variable, "localhost:8000/v1")
    metric = GEval("m", criteria="Good?", evaluation_params=["input"])
    rows: list[CaseResult] = []
    with pytest.raises(JudgeSetupError, match="'localhost:8000/v1' does not begin with http://"):
        evaluate([LLMTestCase(input="i")], [metric], show=False, on_row=rows.append)
    assert rows == []


@pytest.mark.parametrize("host", ["256.1.1.1", "a\u2024b.invalid"])
def test_a_host_that_none_can_have_is_a_setup_error(host: str) -> None:
    metric = GEval("m", criteria="Good?", evaluation_params=["input"])
    judge = OpenAIJudge("m", base_url=f"http://{host}/v1")
    with pytest.raises(JudgeSetupError, match="base_url is not an address: "):
        evaluate([LLMTestCase(input="i")], [metric], model=judge, show=False)


TUNING = Tuning(4, 240.0, 310.0, 31.5, {"reasoning_effort": "none"})


def test_what_was_measured_of_a_judge_is_kept_beside_it() -> None:
    write_settings(project_file(), DefaultJudge("m", "http://localhost:1/v1", tuning=TUNING))
    assert default_judge().tuning == TUNING
    assert judge_settings(None, None).tuning == TUNING


def test_what_was_measured_holds_for_no_other_judge() -> None:
    write_settings(project_file(), DefaultJudge("m", "http://localhost:1/v1", tuning=TUNING))
    assert judge_settings("gpt-4o", None).tuning == Tuning()
    assert judge_settings(None, "http://localhost:2/v1").tuning == Tuning()


def test_saved_parameters_go_into_every_request() -> None:
    with OpenAIServer() as server:
        write_settings(project_file(), DefaultJudge("m", server.base_url, tuning=TUNING))
        metric = GEval(name="x", criteria="c", evaluation_params=["input"])
        evaluate([LLMTestCase(input="q", actual_output="a")], [metric])
    assert {body["reasoning_effort"] for body in server.requests} == {"none"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("DAGENGINE_MAX_IN_FLIGHT=none", "must be a whole number from 1 on"),
        ("DAGENGINE_CALL_TIMEOUT=-1", "must be a positive number of seconds"),
        ("DAGENGINE_WRITE_SPEED=nan", "must be a positive number of tokens per second"),
        ("DAGENGINE_PARAMETERS=[]", "must be a JSON object without secrets"),
        ('DAGENGINE_PARAMETERS={"api_key": "k"}', "must be a JSON object without secrets"),
        ("DAGENGINE_MAX_INFLIGHT=4", "did you mean 'DAGENGINE_MAX_IN_FLIGHT'"),
    ],
)
def test_a_wrong_measurement_in_a_file_is_told_with_its_line(line: str, message: str) -> None:
    project_file().write_text(f"DAGENGINE_JUDGE=m\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"line 2: .*{message}"):
        default_judge()


def test_measurements_belong_into_a_file_and_not_into_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DAGENGINE_MAX_IN_FLIGHT", "4")
    with pytest.raises(InputError, match=r"is a setting of \.dagengine\.env"):
        default_judge()
