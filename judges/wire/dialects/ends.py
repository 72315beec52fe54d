"""Finish reasons: how an answer ended, in the words of every server.

Origins of the words: OpenAI (stop, length, tool_calls, function_call, content_filter), Anthropic
(end_turn, stop_sequence, tool_use, max_tokens, refusal, model_context_window_exceeded), Gemini
(STOP, MAX_TOKENS, SAFETY, RECITATION, BLOCKLIST, PROHIBITED_CONTENT, MALFORMED_FUNCTION_CALL),
Bedrock (guardrail_intervened, content_filtered), Mistral (model_length, error), DeepSeek
(insufficient_system_resource), Zhipu (sensitive, network_error), TGI (eos_token), vLLM and SGLang
(abort). Words that are not here are read by their stems.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Final


class End(Enum):
    """How an answer ended: whole, cut at a limit, stopped by a filter, or broken off."""

    WHOLE = "whole"
    CUT = "cut"
    FILTERED = "filtered"
    BROKEN = "broken"


# The first row that fits counts: "rate_limit" is no limit of tokens, "timeout" none either.
_STEMS: Final = (
    (
        End.FILTERED,
        r"filter|safety|block|prohibit|polic|refus|guardrail|moderat|sensitiv|recit|harm|violat"
        r"|spii|flagged|risk|inappropriate|toxic|offens|hate|sexual|violen|jailbreak|^language$",
    ),
    (
        End.BROKEN,
        r"error|abort|cancel|time_?(?:d_)?(?:out|limit)|malformed|fail|overload|insufficient"
        r"|unavailable|interrupt|exhaust|network|unexpected|rate_limit|disconnect|too_many",
    ),
    (End.CUT, r"length|max_|limit|truncat|incomplete|window|budget|^max|cut_?off"),
)


def end_of(reason: object) -> End:
    """The end of an answer by its finish reason; a reason that nobody knows is a whole answer."""
    return _end_of(reason) if type(reason) is str else End.WHOLE


@lru_cache(maxsize=256)
def _end_of(reason: str) -> End:
    word = re.sub(r"[\s-]+", "_", reason.lower().strip())[:100]
    if word in ("stop", "stop_sequence", "eos", "eos_token", "end_turn"):
        return End.WHOLE
    return next((end for end, stems in _STEMS if re.search(stems, word)), End.WHOLE)
