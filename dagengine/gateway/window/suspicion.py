"""When the number of tokens that a server counted for a prompt is looked into.

What is *suspicious* may well be right: a text of another language, a text of a length that is new.
Nothing here accuses a server; `whole_prompts` asks it. An honest server is asked a few times in a
run at most, since what it proves is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dagengine.prompts.lengths.token_counts import NOTHING, Size

_SMALL: Final = 64.0  # tokens of a prompt; no window is so small
_LIMIT: Final = 100  # tokens of the smallest limit that is looked for
_AROUND: Final = 40.0  # tokens of a chat's template and of the answer's schema
_NEW: Final = {"words": 6_000}  # characters of a prompt whose length has to be proved …
_NEW_ELSEWHERE: Final = 600  # … and of other scripts, which tokenizers differ about
_GROWTH: Final = 4  # times the longest prompt so far that has to be proved again
_SHORT: Final = 512  # tokens that are not proved unless something speaks against them
_FIRST: Final = 0.6  # of what an efficient tokenizer counts, before anything is learnt
_LEARNT: Final = 0.75  # of what this server counted for texts of this script
_LEARNT_DENSITY: Final = 0.6  # … per character, which differs more: of blanks a token has many
_EXCUSED: Final = 0.95  # of a count that was proved to be whole
_DENSEST: Final = 5.0  # times what an efficient tokenizer counts
_WEIGHT: Final = 0.2  # of the newest count
_ALIKE: Final = 0.04  # how far the sizes of prompts of one length may lie apart


@dataclass(slots=True)
class _Script:
    """What a server counted for prompts of one script.

    Tokens per expected token and per character: what is usual, and the fewest that were proved.
    """

    level: float
    density: float
    excused: float
    excused_density: float
    longest: int = 0


@dataclass(slots=True)
class PromptCounts:
    """What one server counted, and where it was seen to cut.

    `window` is the number of tokens that it reads, if known; one that `refuses` says when a prompt
    is longer. `limit` is the count that it gives
    for everything that is longer. `proved` tokens were read whole. A `mute` server counts the same
    for everything, which tells nothing.
    """

    window: int | None = None
    refuses: bool = False
    limit: int | None = None
    proved: int = 0
    mute: bool = False
    _top: int = 0
    _top_size: Size = NOTHING
    _scripts: dict[str, _Script] = field(default_factory=dict)

    def is_cut(self, size: Size, read: int) -> bool:
        """Return whether a count is the one that the server has for everything that is too long."""
        return read == self.limit and size.tokens >= _SMALL

    def is_suspicious(self, size: Size, read: int) -> bool:
        """Return whether `read` tokens of a prompt may be a part of it."""
        if self.mute or not read or size.tokens < _SMALL or self.limit is not None:
            return False
        if self.window is not None:
            # What some servers keep of a prompt that is longer than their window: half of it.
            if abs(read - (self.window // 2 + 2)) <= 1:
                return True
            # Even the densest tokenizer would not fill the window with this prompt.
            if max(_DENSEST * (size.tokens + _AROUND), size.characters) < self.window:
                return False
        if self.refuses:
            return self.is_few(size, read)
        # Longer than any prompt that was read, by far: whether it is read has to be seen.
        script = self._scripts.get(size.script)
        longest = 0 if script is None else script.longest
        least = _NEW.get(size.script, _NEW_ELSEWHERE)
        new = least < size.characters > _GROWTH * longest
        return new or self.is_few(size, read) or self._is_most(size, read)

    def is_few(self, size: Size, read: int) -> bool:
        """Return whether it is fewer than for other texts of the script."""
        script, ratio, density = self._scripts.get(size.script), *_ratios(size, read)
        if script is None:
            return read < _FIRST * size.tokens
        if _LEARNT * script.level > ratio < script.excused:
            return True
        return _LEARNT_DENSITY * script.density > density < script.excused_density

    def _is_most(self, size: Size, read: int) -> bool:
        """The most so far, and long, or as limits are: round, or the same for other lengths."""
        if read <= self.proved or read < self._top or read < _LIMIT:
            return False
        apart = read - self._top <= 1 and (
            abs(size.tokens - self._top_size.tokens) > _ALIKE * size.tokens
            or abs(size.characters - self._top_size.characters) > _ALIKE * size.characters
        )
        # A count that people set as a limit is round, or what Ollama makes of one: a token or two
        # above a power of two.
        power = 1 << (read.bit_length() - 1)
        is_round = not read % 50 or not read % 256 or read - power <= 2
        return read > _SHORT or apart or is_round

    def accept(self, size: Size, read: int, proved: int = 0) -> None:
        """Learn from a prompt that was read whole; so were `proved` tokens, if it was proved."""
        if not read or size.tokens < _SMALL:
            return
        (ratio, density), script = _ratios(size, read), self._scripts.get(size.script)
        if script is None:
            script = self._scripts[size.script] = _Script(ratio, density, ratio, density)
        script.level += _WEIGHT * (ratio - script.level)
        script.density += _WEIGHT * (density - script.density)
        script.longest = max(script.longest, size.characters)
        if proved:
            script.excused = min(script.excused, _EXCUSED * ratio)
            script.excused_density = min(script.excused_density, _EXCUSED * density)
            self.proved = max(self.proved, proved)
        if read > self._top:
            self._top, self._top_size = read, size

    def tokens_needed(self, size: Size) -> int:
        """Approximate tokens that this server needs for a prompt."""
        script = self._scripts.get(size.script)
        return round(size.tokens * (1.25 if script is None else max(1.0, script.level)))


def _ratios(size: Size, read: int) -> tuple[float, float]:
    """Tokens per expected token, and per character."""
    return read / (size.tokens + _AROUND), read / (size.characters + 4 * _AROUND)
