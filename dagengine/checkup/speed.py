"""How quickly a judge writes: alone, and with several calls at a time."""

from __future__ import annotations

from dataclasses import replace

import anyio

from dagengine.checkup.examiner import Examiner, OutOfTimeError
from dagengine.checkup.findings import Load, Speed
from dagengine.checkup.questions import WRITTEN, story, yes_or_no
from dagengine.errors import JudgeError

USUAL, MANY = 4, 16
"""Calls at a time where the server does not say how many it works on, and the next load."""
_GROWTH = 2.0  # times the throughput, for a larger load to be tried
_SHARE = 0.25  # of the time that is left, for one load
_LEAST = 8  # tokens; shorter texts measure little


async def speed_of(examiner: Examiner, places: int | None) -> Speed:
    """The speed of writing; `places` is how many calls the server works on at the same time."""
    latency = (await examiner.ask(yes_or_no())).seconds
    opener = await examiner.ask(story(0))
    second = await examiner.ask(replace(story(0), options=replace(story(0).options, sample=1)))
    raw, count = opener.answer.raw, opener.answer.usage.output_tokens
    is_same = opener.answer.raw == second.answer.raw if raw else None
    if not count:
        return Speed(latency, None, same_again=is_same)
    # The first token took as long as a whole answer of one token.
    seconds = opener.seconds - latency
    alone = (count - 1) / seconds if count > 1 and seconds > 0 else count / opener.seconds
    speed = Speed(latency, alone, same_again=is_same)

    # The loads that the time allows; a larger one only where it may pay.
    best = alone
    for calls in [min(places, MANY)] if places else [USUAL, MANY]:
        if calls < 2:
            break
        tokens = min(WRITTEN, int(_SHARE * examiner.left * best / calls))
        if tokens < _LEAST:
            break
        load, text = await _load(examiner, calls, tokens)
        alike = raw.startswith(text) or text.startswith(raw) if text and raw else None
        speed = replace(
            speed,
            loads=(*speed.loads, load),
            same_beside=alike if speed.same_beside is None else speed.same_beside,
        )
        if load.failed or load.tokens_per_second < _GROWTH * best:
            break
        best = load.tokens_per_second
    return speed


async def _load(examiner: Examiner, calls: int, tokens: int) -> tuple[Load, str]:
    """So many texts at the same time, and the first of them."""
    lengths: list[int] = []
    texts: dict[int, str] = {}

    async def ask(number: int) -> None:
        try:
            answer = (await examiner.ask(story(number, tokens))).answer
        except (JudgeError, OutOfTimeError):
            return
        lengths.append(answer.usage.output_tokens)
        texts[number] = answer.raw

    begin = anyio.current_time()
    async with anyio.create_task_group() as group:
        for number in range(calls):
            group.start_soon(ask, number)
    seconds = anyio.current_time() - begin
    speed = sum(lengths) / seconds if seconds > 0 else 0.0
    return Load(calls, speed, seconds, calls - len(lengths)), texts.get(0, "")
