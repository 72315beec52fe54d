"""Reads a verdict out of a text that ends in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagengine.errors import UnparseableError
from dagengine.metrics.common.principles import Letter

# What may be around a letter, and what ends the words before it.
_AROUND = " \t\"'`*_.,!:;()[]{}<>#-"
_STOPS = ".:;!?"
_WORDS: Mapping[str, Letter] = {"Y": "Y", "YES": "Y", "N": "N", "NO": "N"}


@dataclass(frozen=True)
class LastLine:
    """Reads a text that ends in Y or N, the reason standing before it.

    The last line is the letter (also "yes", "**Y**"), or ends in it after a stop or colon
    ("Verdict: N"). "Y or N" is none of these: such an answer is asked for again. Where the
    last line has no letter, a first line that is nothing else is read.
    """

    def __call__(self, text: str, /) -> Mapping[str, Any]:
        try:
            return self._last(text)
        except UnparseableError:
            top_line, _, body = text.strip().partition("\n")
            verdict = _WORDS.get(top_line.strip(_AROUND).upper())
            if verdict is None or not body.strip():
                raise
            return {"reason": body.strip(), "verdict": verdict}

    def _last(self, text: str) -> Mapping[str, Any]:
        above, _, line = text.rstrip().rpartition("\n")
        plain = line.strip(_AROUND)
        word = re.split(r"\W+", plain)[-1]
        head = plain.removesuffix(word).rstrip()
        alone = not head or head.rstrip(" \"'`*_([{<")[-1:] in _STOPS
        # A single y in the middle of a line is not a verdict.
        verdict = _WORDS.get(word if head and len(word) == 1 else word.upper())
        if verdict is None or not alone:
            raise UnparseableError(f"the last line is {line!r:.80}, not Y or N", raw=text)
        return {"reason": f"{above}\n{head}".strip(), "verdict": verdict}
