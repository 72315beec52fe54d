"""What follows from the findings: settings, and why a judge cannot be used. No judge is asked."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime

from dagengine.checkup.findings import (
    Advice,
    Checkup,
    EasyQuestions,
    NotMeasured,
    Probabilities,
    Reading,
    Speed,
)
from dagengine.checkup.questions import EASY
from dagengine.judges.default import Tuning
from dagengine.prompts.lengths.window import window_option
from dagengine.prompts.probabilities.masses import LEAST_MASS
from dagengine.question import Judge, display_name, durable_identity
from dagengine.record.definition import WORDING
from dagengine.record.values import Standing
from dagengine.redaction import public_text

_GAIN = 1.25  # times the throughput, for more calls at a time to be worth it
_ANSWER = 400  # tokens of a long answer to a node: a list of claims
_PROMPT = 1_000  # tokens of a usual prompt, and of what metrics write around a long text
_MARGIN = 2  # times the expected duration of a call
_USUAL_TIMEOUT, _STEP = 120.0, 30
_BLOCK = 1_024


def advice_of(checkup: Checkup, *, hosted: bool) -> Advice:
    """The settings for a judge; a `hosted` one finds out by itself how many calls it takes."""
    in_flight = None if hosted else _in_flight(checkup)
    mass = getattr(checkup.probabilities, "mass", None)
    # A judge that guesses gives odds as well, but they say nothing; one word is too few to tell.
    knows = isinstance(checkup.easy, EasyQuestions) and not checkup.easy.guesses
    return Advice(
        max_in_flight=in_flight,
        call_timeout=None if in_flight is None else _call_timeout(checkup, in_flight),
        window=_window(checkup),
        parameters=getattr(checkup.thinking, "off", None),
        odds=mass is not None and mass >= LEAST_MASS and knows,
    )


def tuning_of(checkup: Checkup) -> Tuning:
    """The settings of a checkup that are worth saving beside its judge."""
    advice = checkup.advice
    return Tuning(
        max_in_flight=advice.max_in_flight,
        call_timeout=advice.call_timeout,
        read_speed=_round(getattr(checkup.reading, "tokens_per_second", None)),
        write_speed=_round(getattr(checkup.speed, "together", None)),
        parameters=advice.parameters,
    )


def standing_of(checkup: Checkup, judge: Judge) -> Standing | None:
    """Return what runs will say of the judge that was asked, without thinking if that is possible.

    None if too few easy questions were asked, or nothing tells the judge apart in another process.
    """
    easy, identity = checkup.easy, durable_identity(judge)
    if isinstance(easy, NotMeasured) or not easy.enough or identity is None:
        return None
    few, model = easy.answered * 2 < easy.asked, getattr(judge, "answered_as", None)
    says = f"got {easy.right} of {easy.answered} easy questions right"
    says += ", no better than guessing" * easy.guesses
    if few:
        says = f"gave a valid answer to {easy.answered} of {easy.asked} easy questions"
    return Standing(
        source="judge check",
        identity=public_text(identity),
        name=display_name(judge),
        model=public_text(model) if isinstance(model, str) else None,
        date=datetime.now(UTC).date(),
        dagengine=importlib.metadata.version("dagengine"),
        wording=WORDING,
        says=says,
        weak=few or easy.guesses,
        repeats=getattr(checkup.speed, "same_again", None),
        **{name: getattr(easy, name) for name in ("asked", "answered", "right")},
    )


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


def _round(speed: float | None) -> float | None:
    """A speed with three figures: more was not measured."""
    return None if speed is None else float(f"{speed:.3g}")


def problems_of(checkup: Checkup) -> Iterator[str]:
    """Why a judge cannot be used, as it is set now."""
    if checkup.connection.problem is not None:
        yield checkup.connection.problem
        return
    easy, reading = checkup.easy, checkup.reading
    if isinstance(easy, NotMeasured):
        yield f"no easy question was answered: {easy.not_measured}"
    elif not easy.enough:
        yield (
            f"it is too slow for this checkup: {easy.asked} of {len(EASY)} easy questions in its "
            "time; give it more with --seconds"
        )
    else:
        if easy.answered * 2 < easy.asked:
            yield (
                f"only {easy.answered} of {easy.asked} easy questions got a valid answer: "
                f"{easy.failure}"
            )
        elif easy.guesses:
            yield f"{easy.right} of {easy.answered} easy questions right: no better than guessing"
    if isinstance(reading, Reading) and reading.of_data:
        if reading.refused is not None:
            yield f"it refuses the longest test case: {reading.refused}"
        elif reading.cut:
            yield (
                f"the server cuts the longest test case: it read {reading.reported:,} of about "
                f"{reading.expected:,} tokens"
            )


def _in_flight(checkup: Checkup) -> int | None:
    """Number of parallel calls that pays off; None if unknown."""
    speed = checkup.speed
    if checkup.facts.slots is not None:
        return checkup.facts.slots
    if not isinstance(speed, Speed) or speed.alone is None or not speed.loads:
        return None
    best, throughput = 1, speed.alone
    for load in speed.loads:
        if load.tokens_per_second >= _GAIN * throughput and not load.failed:
            best, throughput = load.calls, load.tokens_per_second
    return max(best, 2)  # while one answer is read, the server works on the next one


def _call_timeout(checkup: Checkup, in_flight: int) -> float | None:
    """Seconds for a long call when all places are taken; None if the default is enough."""
    speed, reading = checkup.speed, checkup.reading
    if not isinstance(speed, Speed) or speed.together is None:
        return None
    seconds = _ANSWER / speed.together
    if isinstance(reading, Reading) and reading.tokens_per_second:
        seconds += max(reading.reported or 0, _PROMPT) / reading.tokens_per_second
    timeout = _MARGIN * in_flight * seconds
    return None if timeout <= _USUAL_TIMEOUT else float(math.ceil(timeout / _STEP) * _STEP)


def _window(checkup: Checkup) -> int | None:
    """Tokens of a window for the longest case with a prompt and an answer; None if it fits."""
    reading, window = checkup.reading, checkup.facts.window
    if not isinstance(reading, Reading) or not reading.of_data or reading.expected is None:
        return None
    tokens = reading.expected + _PROMPT + _ANSWER
    fits = not (reading.cut or reading.refused) if window is None else tokens <= window
    return None if fits else math.ceil(tokens / _BLOCK) * _BLOCK
