"""A checkup of a judge as a table on the terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, Final, Literal

from dagengine.checkup.findings import (
    Checkup,
    EasyQuestions,
    NotMeasured,
    Probabilities,
    Reading,
    Speed,
    Structure,
    Thinking,
)
from dagengine.checkup.reachability import models_in_words
from dagengine.errors import did_you_mean
from dagengine.prompts.lengths.window import window_option
from dagengine.prompts.probabilities.masses import LEAST_MASS, mass_words
from dagengine.system.terminal import counted, plain

Status = Literal["ok", "warning", "fails", "-"]
Line = tuple[str, Status, str]
_STYLES: Final[dict[Status, str]] = {"ok": "green", "warning": "yellow", "fails": "red", "-": "dim"}
_MODES: Final = {
    "json_schema": "as JSON schema",
    "tools": "as a call of a tool (the server rejects JSON schemas)",
    "json": "in the words of the prompt (the server rejects JSON schemas and tools)",
}
_FORCED: Final = frozenset({"json_schema", "tools"})


def as_dict(checkup: Checkup) -> dict[str, Any]:
    """JSON-ready form; a part that was not measured is `{"not_measured": "why"}`."""
    standing = checkup.standing and checkup.standing.model_dump(mode="json")
    return {"usable": checkup.usable, **dataclasses.asdict(checkup), "standing": standing}


def print_checkup(checkup: Checkup) -> None:
    """Print a line or two for each part, what is recommended, and whether the judge can be used."""
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, status, text in lines(checkup):
        table.add_row(name, Text(status, style=_STYLES[status]), Text(plain(text)))
    out = Console()

    def say(text: str, style: str = "") -> None:
        out.print(Padding(Text(plain(text), style=style), (0, 0, 0, 1), expand=False))

    say(checkup.judge, "bold")
    out.print(table)
    for text in recommendations(checkup):
        say(text)
    usage, calls = checkup.usage, counted(checkup.calls, "call")
    tokens = f"{usage.input_tokens:,} tokens in and {usage.output_tokens:,} out"
    slow = ", more than a minute as the server is slow" * checkup.slow
    say(f"{calls} in {checkup.seconds:.0f} s{slow}; {tokens}", "dim")
    for text in conclusion(checkup):
        say(text, ("bold red", "bold green")[checkup.usable])


def lines(checkup: Checkup) -> Iterator[Line]:
    """Lines of the report: part, state and words."""
    connection = checkup.connection
    if connection.problem is not None:
        yield "answers", "fails", connection.problem
        return
    yield "answers", "ok", f"the first answer came after {_seconds(connection.seconds)}"
    yield from _part("knows", checkup.easy, _easy)
    model = connection.model or ""
    if model and connection.is_listed is None:
        yield "model", "-", f"{model}; the server lists no models"
    elif model and connection.is_listed:
        yield "model", "ok", model
    elif model:  # some servers answer with the model that they have, whatever was asked for
        models = connection.listed or ()
        hint = f"{models_in_words(models)}; {did_you_mean(model, models)}".rstrip("; ")
        yield "model", "warning", f"{model} is not listed, but something answers. {hint}"
    facts = checkup.facts
    if facts.server:
        yield "server", "ok", facts.server
    else:
        yield "server", "-", "it does not say what it is"
    if facts.window is None:
        yield "window", "-", "the server does not say how many tokens it reads"
    else:
        yield "window", "ok", f"{facts.window:,} tokens for a prompt and its answer"
    if facts.slots is not None:
        yield "places", "ok", f"{counted(facts.slots, 'call')} at a time"
    yield from _part("schema", checkup.structure, _structure)
    yield from _part("thinking", checkup.thinking, _thinking)
    yield from _part("probability", checkup.probabilities, _probabilities)
    yield from _part("speed", checkup.speed, _speed)
    yield from _part("repeats", checkup.speed, _repeats)
    yield from _part("reading", checkup.reading, _reading)


def recommendations(checkup: Checkup) -> list[str]:
    """Settings that are recommended, in words; of a judge that cannot be used only its window."""
    advice = checkup.advice
    texts: list[str] = []
    if checkup.usable:
        options = ""
        if advice.max_in_flight is not None:
            options += f" --max-in-flight {advice.max_in_flight}"
        if advice.call_timeout is not None:
            options += f" --call-timeout {advice.call_timeout:g}"
        texts.append(f"Recommended:{options or ' the defaults'}.")
    if advice.window is not None:
        option = window_option(checkup.facts, advice.window)
        texts.append(
            f"A window of {advice.window:,} tokens for the longest test case: "
            f"{option or 'set it where the model is served'}."
        )
    if not checkup.usable:
        return texts
    if advice.parameters is not None:
        texts.append(f"In every request: {json.dumps(dict(advice.parameters))}.")
    if isinstance(checkup.probabilities, Probabilities):
        texts.append(f"Probabilities of verdicts {('cannot', 'can')[advice.odds]} be used.")
    return texts


def conclusion(checkup: Checkup) -> list[str]:
    """Return whether the judge can be used, and else why not."""
    if checkup.usable:
        return ["It can be used."]
    return [f"It cannot be used: {problem}" for problem in checkup.problems]


def _part(name: str, section: Any, words: Any) -> Iterator[Line]:
    if isinstance(section, NotMeasured):
        yield name, "-", f"not measured: {section.not_measured}"
        return
    for number, (status, text) in enumerate(words(section)):
        yield name * (not number), status, text


def _mark(is_good: bool) -> Status:
    return "ok" if is_good else "warning"


def _structure(found: Structure) -> Iterator[tuple[Status, str]]:
    mode = _MODES.get(found.mode, f"mode {found.mode}")
    if found.enforced:
        yield "ok", f"holds, asked for {mode}"
    elif found.valid:
        yield "warning", f"is only a wish: the model keeps to it when it wants to; asked for {mode}"
    else:
        yield "fails", "answers are no valid JSON: the server ignores the schema"
    if not found.valid and found.enforced:
        yield "warning", "but a reason with a verdict did not end within its tokens"
    bounds = {"maxLength": found.max_length, "maxItems": found.max_items}
    broken = [name for name, kept in bounds.items() if kept is False]
    if broken:
        yield "warning", f"bounds are not honoured: {' and '.join(broken)}; max_tokens ends answers"
    elif found.max_items:
        yield "ok", f"bounds are honoured: {' and '.join(k for k, v in bounds.items() if v)}"


def _thinking(found: Thinking) -> Iterator[tuple[Status, str]]:
    if not found.thinks:
        yield "ok", "none before an answer"
    elif found.off is not None:
        yield "ok", f"can be switched off: {json.dumps(dict(found.off))}; so it was for the rest"
    else:
        yield "warning", f"{found.tokens} tokens for an answer of one word, not switched off"


def _probabilities(found: Probabilities) -> Iterator[tuple[Status, str]]:
    if found.mass is None:
        yield "-", "the judge gives none"
        return
    share = f"{mass_words(found.mass)} of all probability is on the verdicts"
    if found.mass >= LEAST_MASS:
        yield "ok", share
    else:
        yield "warning", f"only {share}: odds are unknown"
    if found.before_schema is not None:
        when = ("after", "before")[found.before_schema]
        yield "ok", f"they are those from {when} the schema"
    if found.ten == 1:
        yield "ok", "the number 10 is one token"
    elif found.ten is not None:
        yield "ok", f'the number 10 is {found.ten} tokens; after "1" one more is read'


def _speed(found: Speed) -> Iterator[tuple[Status, str]]:
    if found.alone is None:
        yield "-", f"the judge counts no tokens; an answer takes {_seconds(found.latency)}"
        return
    yield (
        "ok",
        f"writes {found.alone:,.0f} tokens/s alone, after {_seconds(found.latency)} for the first",
    )
    for load in found.loads:
        text = f"{load.calls} at a time: {load.tokens_per_second:,.0f} tokens/s together"
        yield _mark(not load.failed), text + f"; {load.failed} of them failed" * bool(load.failed)


def _repeats(found: Speed) -> Iterator[tuple[Status, str]]:
    again, beside = found.same_again, found.same_beside
    if again is None:
        yield "-", "not measured: the judge gave no text"
    elif not again:
        yield "warning", "an equal question at temperature 0 got another text"
    elif beside is False:
        yield "warning", "the same text again alone, but another one beside other calls"
    else:
        yield "ok", "the same text again at temperature 0"


def _reading(found: Reading) -> Iterator[tuple[Status, str]]:
    bad: Status
    long, bad = f"a text, {found.characters:,} characters", "warning"
    if found.of_data:
        long, bad = f"the longest test case, {found.characters:,} characters", "fails"
    if found.refused is not None:
        yield bad, f"{long}: refused ({found.refused})"
        return
    if found.cut:
        yield (
            bad,
            f"{long}: CUT, {found.reported:,} of about {found.expected:,} tokens were read",
        )
    else:
        if found.reported is not None:
            long += f", {found.reported:,} tokens read"
        if found.tokens_per_second is not None:
            long += f" at {found.tokens_per_second:,.0f} tokens/s"
        yield "ok", long
    hits = [f"{share:.0%}" for share, hit in found.found if hit]
    missed = [f"{share:.0%}" for share, hit in found.found if not hit]
    depths = "not " * bool(missed) + f"at {', '.join(missed or hits)}"
    words = f"found {len(hits)} of {len(found.found)} words planted there ({depths})"
    yield _mark(not missed), words


def _easy(found: EasyQuestions) -> Iterator[tuple[Status, str]]:
    if not found.answered:
        yield "fails", f"no valid answer to {counted(found.asked, 'question')}: {found.failure}"
        return
    result = f"{found.right} of {found.answered} easy questions right"
    if not found.enough:
        yield "-", f"{result}: too few answers in the time to say more"
        return
    always = {0: "; it always says no", found.answered: "; it always says yes"}.get(found.yes, "")
    if found.guesses:
        yield "fails", f"{result}: no better than guessing{always}"
    else:
        yield _mark(found.right == found.answered), result
    yield "-", f"by guessing one gets {found.right} or more with probability {found.chance:.2g}"
    if found.answered < found.asked:
        missing = counted(found.asked - found.answered, "answer")
        yield "warning", f"{missing} not valid: {found.failure}"


def _seconds(seconds: float | None) -> str:
    value = seconds or 0.0
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
