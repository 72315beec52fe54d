"""Whether a judge reads all of a long text: words planted in it, and the tokens it counted."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dagengine.checkup.examiner import Examiner, OutOfTimeError
from dagengine.checkup.findings import NotMeasured, Reading
from dagengine.checkup.questions import PLANTED, password, plant_words, prose
from dagengine.errors import JudgeError, ProviderError, UnparseableError
from dagengine.prompts.decisions import decision_state
from dagengine.prompts.evidence import as_text
from dagengine.test_case import TestCase

_PIECE = 1_500  # characters that are sent first, to learn tokens per character and the speed
_USUAL = 4_500  # tokens of a text of our own where the window is not known, or is larger
_SHARE = 0.8  # of the time that is left, for a text of our own
_AROUND = 300  # tokens of a window for the question, the answer and the template
_REFUSED: Final = frozenset({400, 413, 422})


def longest_text(cases: Iterable[TestCase]) -> str:
    """The texts of the case that has most of them."""
    longest = ""
    for state in map(decision_state, cases):
        text = "\n\n".join(f"{name}: {as_text(value)}" for name, value in state.items())
        longest = max(longest, text, key=len)
    return longest


async def reading_of(
    examiner: Examiner, text: str, latency: float, window: int | None
) -> Reading | NotMeasured:
    """Measure how much a judge reads of `text`, or of one that nearly fills the `window`.

    `latency` is the time of an answer of one token, in seconds, `window` in tokens.
    """
    of_data = bool(text)
    piece = _unread(plant_words((text or prose(_PIECE))[:_PIECE]))
    pilot = await examiner.ask(password(piece, PLANTED[1][1]))
    characters, tokens_counted = len(_prompt(piece)), pilot.answer.usage.input_tokens
    seconds = max(pilot.seconds - latency, 0.0)
    if not text:
        per_token = characters / tokens_counted if tokens_counted else 4.0
        tokens = min(_USUAL, (window or _USUAL + _AROUND) - _AROUND)
        if seconds > 0:  # the server may have to read it for every word again
            tokens = min(tokens, int(_SHARE * examiner.left * characters / per_token / seconds / 3))
        text = prose(max(_PIECE, int(tokens * per_token) - (characters - len(piece))))
    whole = _unread(plant_words(text))
    share = len(_prompt(whole)) / characters
    expected = round(tokens_counted * share) if tokens_counted else None
    time_needed = seconds * share + 3 * latency
    if time_needed > examiner.left:
        return NotMeasured(
            f"reading {len(text):,} characters takes about {time_needed:.0f} s, and "
            f"{max(0.0, examiner.left):.0f} s are left"
        )
    reading = Reading(len(text), expected=expected, of_data=of_data)
    return await _read(examiner, reading, whole, latency)


async def _read(examiner: Examiner, reading: Reading, text: str, latency: float) -> Reading:
    """Ask for every word; the server reads the text for the first, and may keep it for others."""
    answers: list[tuple[float, bool]] = []
    reported: int | None = None
    speed: float | None = None
    for share, door, word in PLANTED:
        try:
            reply = await examiner.ask(password(text, door))
        except UnparseableError:
            answers.append((share, False))
            continue
        except OutOfTimeError:
            if not answers:
                raise
            break  # what the first words tell holds without the others
        except JudgeError as error:
            # A server may refuse a prompt for what it is, or for what it cannot do just now; only
            # the first says something of its window.
            if answers or not (
                error.kind in ("too_long", "truncated")
                or (isinstance(error, ProviderError) and error.status in _REFUSED)
            ):
                raise
            return replace(reading, refused=str(error))
        answers.append((share, word in reply.answer.raw.casefold()))
        if reported is None and reply.answer.usage.input_tokens:
            usage, seconds = reply.answer.usage, reply.seconds - latency
            reported = usage.input_tokens
            speed = (reported - usage.cached_tokens) / seconds if seconds > 0 else None
    return replace(reading, found=tuple(answers), reported=reported, tokens_per_second=speed)


def _unread(text: str) -> str:
    """A text that no server has in its cache: what it need not read says nothing of its speed."""
    return f"Page {random.randrange(10**9)}\n\n{text}"


def _prompt(text: str) -> str:
    """All words of the question for a password in a text."""
    return "".join(message["content"] for message in password(text, PLANTED[0][1]).messages)
