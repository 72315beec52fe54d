"""The programs of the page on rewards and gates, with small stand-ins for their libraries."""

from __future__ import annotations

import asyncio
import importlib
import math
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders.places import ROOT
from pages import blocks
from servers.openai_server import OpenAIServer, Reply

from dagengine import Engine, Limits

PAGE = (ROOT / "docs" / "how-to" / "rewards.md").read_text(encoding="utf-8")
FILES = [block for block in blocks(PAGE) if block.title.endswith(".py")]


def answer(body: Any) -> Reply:
    prompt = body["messages"][-1]["content"]
    if "fails" in prompt:
        return Reply("no", status=400)
    return Reply('{"verdict": false}' if "rude" in prompt else '{"verdict": true}')


class HTTPException(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)


class FastAPI:
    def __init__(self, lifespan: Any) -> None:
        self.lifespan = lifespan

    def post(self, path: str) -> Any:
        return lambda function: function


class Rubric:
    """As verifiers 0.1.14 has it: None and exceptions are 0.0."""

    def __init__(self, funcs: Any) -> None:
        (self.function,) = funcs

    async def score(self, state: dict[str, Any]) -> float:
        try:
            return float(await self.function(state["prompt"], state["completion"], state))
        except Exception:  # noqa: BLE001 - it does so
            return 0.0


def module(name: str, **names: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(names)
    return made


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for block in FILES:
        (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    libraries: dict[str, dict[str, Any]] = {
        "verifiers": {"Rubric": Rubric, "InfraError": type("InfraError", (Exception,), {})},
        "openenv.core.rubrics.base": {"Rubric": object},
        "fastapi": {"FastAPI": FastAPI, "HTTPException": HTTPException},
    }
    for name, names in libraries.items():
        parts = name.split(".")
        for end in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), module(parts[end - 1]))
        monkeypatch.setitem(sys.modules, name, module(name, **names))
    monkeypatch.syspath_prepend(tmp_path)
    with OpenAIServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-your-key")
        yield lambda name: importlib.import_module(name)
    for block in FILES:
        sys.modules.pop(block.title.removesuffix(".py"), None)


@pytest.fixture
def engine(page: Any) -> Iterator[Any]:
    limits = Limits(max_in_flight=4, attempts=1)
    with Engine(page("polite").polite, model="gpt-4o-mini", limits=limits) as opened:
        yield opened


def test_a_reward_function_of_trl_gives_none_where_the_judge_fails(page: Any, engine: Any) -> None:
    judged = page("reward_trl").reward_of(engine)
    texts = ["fine", "rude", "fails", "fine"]
    talks = [[{"role": "assistant", "content": text}] for text in texts]
    for completions in (texts, talks):
        rewards = asyncio.run(judged(["hello"] * 4, completions, trainer_state=None))
        assert rewards == [1.0, 0.0, None, 1.0]
    assert [math.nan if reward is None else reward for reward in rewards][1] == 0
    assert engine.totals.asked == 8
    assert engine.totals.calls == 2 + 2  # equal ones are asked once, what failed again


def test_a_rubric_of_verifiers_notes_the_failure_that_it_makes_zero_of(
    page: Any, engine: Any
) -> None:
    rubric = page("rubric").rubric_of(engine)
    for text, reward in {"fine": 1.0, "rude": 0.0, "fails": 0.0}.items():
        state: dict[str, Any] = {
            "prompt": [{"content": "hello"}],
            "completion": [{"content": text}],
        }
        assert asyncio.run(rubric.score(state)) == reward
        assert ("error" in state) == (text == "fails")


def test_a_rubric_of_openenv_gives_none_where_the_judge_fails(page: Any, engine: Any) -> None:
    rubric = page("environment").Polite(engine)

    def reward(text: str) -> Any:
        action = types.SimpleNamespace(message=text)
        return asyncio.run(rubric.forward(action, types.SimpleNamespace(question="hello")))

    assert [reward("fine"), reward("rude"), reward("fails")] == [1.0, 0.0, None]


def test_a_gate_says_that_it_has_no_verdict(page: Any) -> None:
    gate = page("gate")

    async def main() -> None:
        async with gate.app.lifespan(gate.app):
            assert (await gate.check("hello", "fine"))["passes"]
            assert not (await gate.check("hello", "rude"))["passes"]
            with pytest.raises(HTTPException, match="no verdict: provider_error"):
                await gate.check("hello", "fails")

    asyncio.run(main())


def test_the_programs_are_short() -> None:
    assert {block.title for block in FILES} == {
        "polite.py", "reward_trl.py", "rubric.py", "environment.py", "gate.py",
    }  # fmt: skip
    assert max(block.text.count("\n") for block in FILES) <= 36
