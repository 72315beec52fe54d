"""When the number of tokens that a server counted for a prompt is looked into.

What is *suspicious* may well be right: a text of another language, a text of a length that is new.
Nothing here accuses a server; `truncated_prompts` asks it. An honest server is asked a few times
in a run at most, since what it proves is remembered.
Everywhere `size` is what a prompt is estimated to have, and `read` the tokens that were counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dagengine.prompts.lengths.token_counts import NOTHING, Size

_SMALL: Final = 64.0  # tokens of a prompt; no window is so small
_LIMIT: Final = 100  # tokens of the smallest limit that is looked for
_SHORT: Final = 512  # tokens that are not proved unless something speaks against them
_AROUND: Final = 40.0  # tokens of a chat's template and of the answer's schema
_AROUND_CHARACTERS: Final = 4 * _AROUND
# Characters of a prompt that has to be proved, if it is also `_GROWTH` times as long as the longest
# so far of its script. Tokenizers differ more about other scripts than about words.
_LONG: Final = {"words": 6_000}
_LONG_ELSEWHERE: Final = 600
_GROWTH: Final = 4
# A count is low below this share
_FIRST: Final = 0.6  # of what an efficient tokenizer counts, before anything is learnt
_LEARNT: Final = 0.75  # of what this server usually counts for the script
_LEARNT_DENSITY: Final = 0.6  # of the same per character, which differs more: blanks share tokens
_EXCUSED: Final = 0.95  # of a count that was proved to be whole
_DENSEST: Final = 5.0  # tokens of the densest tokenizer per token of an efficient one
_USUAL: Final = 1.25  # tokens of any server per token of an efficient one
_WEIGHT: Final = 0.2  # of the newest count in what is usual
_ALIKE: Final = 0.04  # how far the sizes of prompts of one length may lie apart


@dataclass(slots=True)
class _Script:
    """What a server counted for prompts of one script.

    `level` is its usual number of tokens per expected token, `density` per character. From
    `excused` or `excused_density` on a count is not low: a count near it was proved to be whole.
    The `longest` prompt has that many characters.
    """

    level: float
    density: float
    excused: float
    excused_density: float
    longest: int = 0


@dataclass(slots=True)
class PromptCounts:
    """What one server counted, and where it was seen to cut.

    `window` is the number of tokens that it reads, if known. If it `refuses`, it says so itself
    when a prompt is longer. `limit` is the count that it gives for everything that is longer. It
    read `proved` tokens whole. A `mute` server counts the same for everything, which tells nothing.
    """

    window: int | None = None
    refuses: bool = False
    limit: int | None = None
    proved: int = 0
    mute: bool = False
    _top: int = 0  # the highest count so far, and the size of its prompt
    _top_size: Size = NOTHING
    _scripts: dict[str, _Script] = field(default_factory=dict)

    def is_cut(self, size: Size, read: int) -> bool:
        """Return whether a count is the one that the server has for everything that is too long."""
        return read == self.limit and size.tokens >= _SMALL

    def is_suspicious(self, size: Size, read: int) -> bool:
        """Return whether `read` tokens may be only a part of a prompt; no, if `limit` is known."""
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
        # Far longer than any prompt that was read: whether it is read has to be seen.
        script = self._scripts.get(size.script)
        longest = 0 if script is None else script.longest
        least = _LONG.get(size.script, _LONG_ELSEWHERE)
        if size.characters > least and size.characters > _GROWTH * longest:
            return True
        return self.is_few(size, read) or self._may_be_limit(size, read)

    def is_few(self, size: Size, read: int) -> bool:
        """Return whether a count is low beside those of other prompts of its script."""
        script, (level, density) = self._scripts.get(size.script), _ratios(size, read)
        if script is None:
            return read < _FIRST * size.tokens
        if level < _LEARNT * script.level and level < script.excused:
            return True
        return density < _LEARNT_DENSITY * script.density and density < script.excused_density

    def _may_be_limit(self, size: Size, read: int) -> bool:
        """Return whether a count may be a limit: the highest yet, and high, round or repeated."""
        if read <= self.proved or read < self._top or read < _LIMIT:
            return False
        repeats = read - self._top <= 1 and (
            abs(size.tokens - self._top_size.tokens) > _ALIKE * size.tokens
            or abs(size.characters - self._top_size.characters) > _ALIKE * size.characters
        )
        # A count that people set as a limit is round, or what Ollama makes of one: a token or two
        # above a power of two.
        power = 1 << (read.bit_length() - 1)
        is_round = not read % 50 or not read % 256 or read - power <= 2
        return read > _SHORT or repeats or is_round

    def accept(self, size: Size, read: int, proved: int = 0) -> None:
        """Learn from a prompt that was read whole; `proved` tokens are known to be (0: none)."""
        if not read or size.tokens < _SMALL:
            return
        (level, density), script = _ratios(size, read), self._scripts.get(size.script)
        if script is None:
            script = self._scripts[size.script] = _Script(level, density, level, density)
        script.level += _WEIGHT * (level - script.level)
        script.density += _WEIGHT * (density - script.density)
        script.longest = max(script.longest, size.characters)
        if proved:
            script.excused = min(script.excused, _EXCUSED * level)
            script.excused_density = min(script.excused_density, _EXCUSED * density)
            self.proved = max(self.proved, proved)
        if read > self._top:
            self._top, self._top_size = read, size

    def tokens_needed(self, size: Size) -> int:
        """Approximate tokens that this server needs for a prompt."""
        script = self._scripts.get(size.script)
        return round(size.tokens * (_USUAL if script is None else max(1.0, script.level)))


def _ratios(size: Size, read: int) -> tuple[float, float]:
    """Tokens per expected token, and per character."""
    return read / (size.tokens + _AROUND), read / (size.characters + _AROUND_CHARACTERS)
