"""Completions in every shape that servers give them, as the one shape that is read here.

The usual shape is read at once (`completions`), and only what does not fit it comes here: messages
of Anthropic, Gemini, Ollama and OpenAI's Responses, a text beside the message, parts, calls whose
arguments are an object, a stream that nobody asked for. Finish reasons are here, too: how an answer
ended, in the words of every server.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from dagengine.judges.wire.dialects.error_responses import pairs_in
from dagengine.prompts.json_in_text import fields_of, items_of, shallow_value


class End(Enum):
    """How an answer ended: whole, cut at a limit, stopped by a filter, or broken off."""

    WHOLE = "whole"
    CUT = "cut"
    FILTERED = "filtered"
    BROKEN = "broken"


# Origins of the words: OpenAI (stop, length, tool_calls, function_call, content_filter), Anthropic
# (end_turn, stop_sequence, tool_use, max_tokens, refusal, model_context_window_exceeded), Gemini
# (STOP, MAX_TOKENS, SAFETY, RECITATION, BLOCKLIST, PROHIBITED_CONTENT, MALFORMED_FUNCTION_CALL),
# Bedrock (guardrail_intervened, content_filtered), Mistral (model_length, error), DeepSeek
# (insufficient_system_resource), Zhipu (sensitive, network_error), TGI (eos_token), vLLM and SGLang
# (abort). Words that are not here are read by their stems.
# The first row that fits counts: "rate_limit" is no limit of tokens, "timeout" none either.
_STEMS: Final = (
    (
        End.FILTERED,
        r"filter|safety|block|prohibit|polic|refus|guardrail|moderat|sensitiv|recit|harm|violat"
        r"|spii|flagged|risk|inappropriate|toxic|offens|hate|sexual|violen|jailbreak|^language$",
    ),
    (
        End.BROKEN,
        r"error(?!_limit)|abort|cancel|time_?(?:d_)?(?:out|limit)|malformed|fail|overload|insufficient"
        r"|unavailable|interrupt|exhaust|network|unexpected|rate_limit|disconnect|too_many"
        r"|preempt|unload|capacity",
    ),
    (End.CUT, r"length|max_|limit|truncat|incomplete|window|budget|^max|cut_?off"),
)
# What a refusal in prose says: an apology or "as an AI" near the start, and what it will not do.
_CANNOT: Final = re.compile(
    r"\b(?:i|we)(?:'m| am|'re| are)? (?:(?:just |really |very |so )*sorry|afraid)\b"
    r"|\bas an? (?:ai|artificial|language model|large language|assistant|responsible)\b"
    r"|\b(?:i|we) (?:can(?:'t|not| not)|won't|will not|must decline|decline|refuse)\b"
    r"|\b(?:i|we)(?:'m| am|'re| are) (?:not (?:able|allowed|permitted|going|comfortable)|unable)\b"
    r"|^(?:sorry|apologies|my apologies|unfortunately)\b|\bmust (?:respectfully )?decline\b",
    re.IGNORECASE,
)
_TASK: Final = re.compile(
    r"(?:can(?:'t|not| not)|won't|will not|unable to|not (?:able|allowed|permitted|going) to"
    r"|decline to|refuse to|must decline|not comfortable)\s+(?:\w+\s+){0,2}"
    r"(?:help|assist|comply|fulfil|provide|engag|participate|process|discuss|continue|create"
    r"|generate|do (?:that|this|so)|support|answer (?:that|this)|respond to (?:that|this)|proceed"
    r"|complete (?:that|this)|judge (?:that|this)|evaluate (?:that|this)|assess (?:that|this)"
    r"|rate (?:that|this)|share|offer)|must (?:respectfully )?decline"
    r"|against my (?:guidelines|policy|programming)|violates? (?:my|our|the) (?:\w+ )?polic",
    re.IGNORECASE,
)
# The openings of the same in other languages.
_ELSEWHERE: Final = re.compile(
    r"\A(?:(?:es )?tut mir leid|leider (?:kann|darf)|(?:lo )?siento|lo lamento|no puedo"
    r"|je suis (?:vraiment )?désolée?|désolée?|je ne peux pas|mi dispiace|non posso|desculp"
    r"|sinto muito|lamento|não posso|het spijt me|helaas|przykro mi|przepraszam|niestety|omlouvám"
    r"|bohužel|je mi líto|prepáčte|sajnál|elnézést|îmi pare rău|ne pare rău|tyvärr|beklager"
    r"|desværre|undskyld|valitettavasti|anteeksi|üzgünüm|maalesef|özür|xin lỗi|rất tiếc|maaf"
    r"|mohon maaf|извин|простите|к сожалению|вибач|на жаль|пробач|съжалявам|\u03bb\u03c5\u03c0"
    r"|\u03c3\u03c5\u03b3\u03b3\u03bd|عذر|آسف|معذر|نعتذر|أعتذر|متأسف|متاسف|מצטער|סליחה|क्षमा|माफ"
    r"|मुझे खेद|দুঃখিত|மன்னிக்க|ขออภัย|ขอโทษ|(?:很|非常)?抱歉|对不起|對不起|很遗憾|無法|我无法|我不能"
    r"|申し訳|すみません|ごめん|恐れ入り|죄송|미안)",
    re.IGNORECASE,
)
_LONGEST_REFUSAL: Final = 800  # characters; a refusal is short, and what is longer is prose
# Where the pieces of an answer lie, in the order of the body; other keys are passed over.
_KINDS: Final = {
    **dict.fromkeys(("choices", "candidates", "message", "delta", "content", "parts", "output")),
    **dict.fromkeys(("text", "value", "output_text", "generated_text", "json")),
    **dict.fromkeys(("data", "result", "results", "response", "completion")),
    **dict.fromkeys(
        ("reasoning_content", "reasoning", "thinking", "thoughts", "thinking_content"), "thoughts"
    ),
    "refusal": "refusal",
    **dict.fromkeys(("tool_calls", "function_call", "function", "custom"), "call"),
    **dict.fromkeys(("arguments", "input", "args", "parameters"), "call"),
}
_TYPES: Final = {
    **dict.fromkeys(("thinking", "reasoning", "thought", "redacted_thinking"), "thoughts"),
    "refusal": "refusal",
    **dict.fromkeys(("tool_use", "function_call"), "call"),
}
# What is behind these keys is data of the model, however it is shaped.
_DATA: Final = frozenset({"arguments", "input", "args", "parameters", "json", "refusal"})
# What is an object here is an answer itself, unless it has one of these.
_WHOLE: Final = frozenset({"content", "response"})
_WRAPPING: Final = frozenset({"type", "parts", "text", "content", "message", "choices", "role"})
_LAST: Final = 60  # events of a stream that are looked at for how it ended
_FINISH: Final = re.compile(r"(?:finish|stop|done|block)_?reason")
_ASKED: Final = re.compile(r"(?:prompt|input)_?(?:tokens|tokencount|eval_count)")
_ANSWERED: Final = re.compile(r"(?:completion|output|candidates)_?(?:tokens|tokencount)|eval_count")
_TOTAL: Final = re.compile(r"total_?(?:tokens|tokencount)")

Json = dict[str, Any]


def end_of(reason: object) -> End:
    """The end of an answer by its finish reason; a reason that nobody knows is a whole answer."""
    return _end_of(reason) if type(reason) is str else End.WHOLE


@lru_cache(maxsize=256)
def _end_of(reason: str) -> End:
    word = re.sub(r"[\s-]+", "_", reason.lower().strip())[:100]
    if word in ("stop", "stop_sequence", "eos", "eos_token", "end_turn"):
        return End.WHOLE
    return next((end for end, stems in _STEMS if re.search(stems, word)), End.WHOLE)


def refusal_in(text: str) -> bool:
    """Return whether a text that should be an answer is a refusal in prose, and nothing else."""
    text = text.replace("\u2019", "'").strip().strip("\"'`*").strip()
    if not text or len(text) > _LONGEST_REFUSAL or "{" in text:
        return False
    if _ELSEWHERE.match(text):
        return True
    return _CANNOT.search(text[:200]) is not None and _TASK.search(text) is not None


def only_json(text: str) -> str:
    """A text that is one JSON object with nothing around it; empty for any other text."""
    text = text.strip()
    with suppress(ValueError):
        if isinstance(shallow_value(text), dict):
            return text
    return ""


def with_system_in_front(body: Json) -> Json:
    """A body whose instructions begin the message of the user, for models without a system role."""
    own, messages = list[Json](), list[Json]()
    for message in body["messages"]:
        (own if message["role"] == "system" else messages).append(message)
    roles = list(map(itemgetter("role"), messages))
    if own and "user" in roles:
        index = roles.index("user")
        content = "\n\n".join(map(itemgetter("content"), (*own, messages[index])))
        messages[index] = {**messages[index], "content": content}
        body = {**body, "messages": messages}
    return body


def normalise(body: Any) -> Json | None:
    """A completion of any known shape in the form of OpenAI's protocol; None for any other."""
    pieces: dict[str, list[str]] = {"text": [], "thoughts": [], "refusal": [], "call": []}
    fields = fields_of(body)
    # A text beside a code is the gateway's own: {"code": 0, "message": "ok", "data": …}.
    if "code" in fields and isinstance(fields.get("message"), str):
        body = {**fields, "message": None}
    _gather(body, "text", pieces)
    pairs = list(pairs_in(items_of(body)[:-_LAST:-1] or body))
    values = {key: value for key, value in reversed(pairs) if value is not None}
    details = fields_of(values.get("incomplete_details"))  # of OpenAI's Responses
    finish = details.get("reason") or _first(values, _FINISH)
    if not isinstance(finish, str):  # SGLang: {"type": "length", "length": 8}
        finish = next(filter(None, (fields_of(finish).get("type"), *items_of(finish))), None)
    is_answer = any(pieces.values()) or isinstance(values.get("message"), dict)
    if not is_answer and end_of(finish) is End.WHOLE:
        return None
    message = {
        "content": "".join(pieces["text"]),
        "refusal": "".join(pieces["refusal"]) or None,
        "reasoning_content": "".join(pieces["thoughts"]) or None,
        "tool_calls": [{"function": {"arguments": call}} for call in pieces["call"]],
    }
    choice = {
        "message": message,
        "finish_reason": finish if isinstance(finish, str) else None,
        "logprobs": _logprobs_of(values.get("logprobs")),
    }
    usage = {
        "prompt_tokens": _first(values, _ASKED),
        "completion_tokens": _first(values, _ANSWERED),
        "total_tokens": _first(values, _TOTAL),
        "cached_tokens": values.get("cached_tokens"),
    }
    return {"choices": [choice], "usage": usage}


def _gather(value: Any, kind: str, pieces: dict[str, list[str]], key: str = "") -> None:
    """Add the texts of a body to what was said, thought, refused, or called, by their kind."""
    if isinstance(value, str):
        # Of a call only what it was called with is said, and not its name.
        if kind != "call" or key in _DATA:
            pieces[kind].append(value)
    elif key in _DATA and (value or (value == {} and kind == "call")):  # some need no arguments
        pieces[kind].append(json.dumps(value, ensure_ascii=False))
    elif isinstance(value, list):
        if key in ("choices", "candidates", "results"):
            value = value[:1]
        for item in value:
            _gather(item, kind, pieces)
    elif isinstance(value, dict):
        if key in _WHOLE and not value.keys() & _WRAPPING:
            pieces[kind].append(json.dumps(value, ensure_ascii=False))
            return
        kind = _TYPES.get(str(value.get("type")), kind)
        if value.get("thought") is True:
            kind = "thoughts"
        for name in filter(_KINDS.__contains__, value):
            _gather(value[name], _KINDS[name] or kind, pieces, name)


def _first(values: Json, keys: re.Pattern[str]) -> Any:
    return next((value for key, value in reversed(values.items()) if keys.fullmatch(key)), None)


def without_answer(body: Any) -> str:
    """The words for a completion that has no answer in it; empty for any other body."""
    if not isinstance(body, dict) or "choices" not in body:
        return ""
    choice = next(iter(items_of(body["choices"])), None)
    if choice is None:
        problem = "it has no choice, so nothing was generated"
    elif isinstance(choice, dict) and not choice.get("message"):
        problem = f"its choice has no message (finish_reason {choice.get('finish_reason')!r})"
    else:
        return ""
    return f"{problem}; see the server's log, or ask another model"


def _logprobs_of(logprobs: Any) -> Json | None:
    """Log-probabilities in the form of the protocol, also those of the old completions."""
    if isinstance(logprobs, list):  # of Ollama
        logprobs = {"content": logprobs}
    if not isinstance(logprobs, dict):
        return None
    content = logprobs.get("content")
    texts = (fields_of(item).get("token") for item in items_of(content))
    if isinstance(content, list) and all(isinstance(text, str) for text in texts):
        return logprobs
    tokens, tops = logprobs.get("tokens"), logprobs.get("top_logprobs")
    if not isinstance(tokens, list) or not isinstance(tops, list) or len(tokens) != len(tops):
        return None
    content = []
    for token, top in zip(tokens, tops, strict=True):
        pairs = fields_of(top).items()
        alternatives = [{"token": text, "logprob": value} for text, value in pairs]
        content.append({"token": str(token), "top_logprobs": alternatives})
    return {"content": content}
