"""Completions in every shape that servers give them, as the one shape that is read here.

The usual shape is read at once (`completions`), and only what does not fit it comes here: messages
of Anthropic, Gemini, Ollama and OpenAI's Responses, a text beside the message, parts, calls whose
arguments are an object, a stream that nobody asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dagengine.judges.wire.dialects.ends import End, end_of

# What a refusal in prose says: an apology or "as an AI" near the start, and what it will not do.
_CANNOT: Final = re.compile(
    r"\b(?:i|we)(?:'m| am|'re| are)? (?:(?:just |really |very |so )*sorry|afraid)\b"
    r"|\bas an? (?:ai|artificial|language model|large language|assistant|responsible)\b"
    r"|\b(?:i|we) (?:can(?:'t|not| not)|won't|will not|must decline|decline|refuse)\b"
    r"|\b(?:i|we)(?:'m| am|'re| are) (?:not (?:able|allowed|permitted|going)|unable)\b"
    r"|^(?:sorry|apologies|my apologies|unfortunately)\b|\bmust (?:respectfully )?decline\b",
    re.IGNORECASE,
)
_TASK: Final = re.compile(
    r"(?:can(?:'t|not| not)|won't|will not|unable to|not (?:able|allowed|permitted|going) to"
    r"|decline to|refuse to|must decline)\s+(?:\w+\s+){0,2}"
    r"(?:help|assist|comply|fulfil|provide|engage|participate|process|discuss|continue|create"
    r"|generate|do (?:that|this|so)|support|answer (?:that|this)|respond to (?:that|this)|proceed"
    r"|complete (?:that|this)|judge (?:that|this)|evaluate (?:that|this)|assess (?:that|this)"
    r"|rate (?:that|this)|share|offer)|must (?:respectfully )?decline"
    r"|against my (?:guidelines|policy|programming)|violates? (?:my|our|the) (?:\w+ )?polic",
    re.IGNORECASE,
)
# The openings of the same in other languages.
_ELSEWHERE: Final = re.compile(
    r"\A(?:es tut mir leid|tut mir leid|lo siento|je suis désolé|désolé|mi dispiace|desculpe"
    r"|sinto muito|het spijt me|przykro mi|извините|к сожалению|对不起|抱歉|很抱歉|申し訳|죄송)",
    re.IGNORECASE,
)
_LONGEST_REFUSAL: Final = 800  # characters; a refusal is short, and what is longer is prose
_TEXT_PARTS: Final = ("text", "output_text", "input_text", "output", "json")
_THINKING_PARTS: Final = ("thinking", "reasoning", "thought", "redacted_thinking")
_THOUGHTS: Final = ("reasoning_content", "reasoning", "thinking", "thoughts", "thinking_content")
_FINISHES: Final = ("finish_reason", "finishReason", "stop_reason", "done_reason", "finish_details")
_USAGES: Final = ("usage", "usageMetadata", "usage_metadata")
_ASKED: Final = ("prompt_tokens", "input_tokens", "promptTokenCount", "prompt_eval_count")
_ANSWERED: Final = ("completion_tokens", "output_tokens", "candidatesTokenCount", "eval_count")
_WRAPPED: Final = ("data", "result", "response", "completion", "body")

Json = dict[str, Any]


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
    try:
        return text if isinstance(json.loads(text), dict) else ""
    except (ValueError, RecursionError):
        return ""


def with_system_in_front(body: Json) -> Json:
    """A body whose instructions begin the message of the user, for models without a system role."""
    own = [message for message in body["messages"] if message["role"] == "system"]
    others = [dict(message) for message in body["messages"] if message["role"] != "system"]
    first = next((message for message in others if message["role"] == "user"), None)
    if own and first is not None:
        texts = [message["content"] for message in (*own, first)]
        first["content"] = "\n\n".join(texts)
        body = {**body, "messages": others}
    return body


def normalise(body: Any) -> Json | None:
    """A completion of any known shape in the form of OpenAI's protocol; None for any other."""
    if isinstance(body, str):
        body = _streamed(body)
    if isinstance(body, list):
        body = body[0] if len(body) == 1 else None
    if not isinstance(body, dict):
        return None
    choice = _choice_of(body)
    if choice is None:
        inner = [body[key] for key in _WRAPPED if isinstance(body.get(key), dict)]
        return normalise(inner[0]) if len(inner) == 1 else None
    finish = next((choice[key] for key in _FINISHES if choice.get(key)), None)
    if isinstance(finish, dict):  # {"type": "stop", …}
        finish = finish.get("type")
    if not choice["message"] and end_of(finish) not in (End.FILTERED, End.BROKEN):
        return None  # no answer, and nothing that says why
    made = {
        "message": _message_of(choice.get("message")),
        "finish_reason": str(finish) if finish is not None else None,
        "logprobs": _logprobs_of(choice.get("logprobs")),
    }
    counts = next((body[key] for key in _USAGES if isinstance(body.get(key), dict)), body)
    usage = {
        "prompt_tokens": next((counts[key] for key in _ASKED if counts.get(key)), 0),
        "completion_tokens": next((counts[key] for key in _ANSWERED if counts.get(key)), 0),
        "prompt_tokens_details": counts.get("prompt_tokens_details"),
    }
    return {"choices": [made], "usage": usage}


def without_answer(body: Any) -> str:
    """The words for a completion that has no answer in it; empty for any other body."""
    if not isinstance(body, dict) or "choices" not in body:
        return ""
    choices = body["choices"]
    choice = choices[0] if isinstance(choices, list) and choices else None
    if choice is None:
        what = "it has no choice, so nothing was generated"
    elif isinstance(choice, dict) and not choice.get("message"):
        what = f"its choice has no message (finish_reason {choice.get('finish_reason')!r})"
    else:
        return ""
    return f"{what}; see the server's log, or ask another model"


def _choice_of(body: Json) -> Json | None:
    """The one answer of a body, with a `message` in it; None if there is none."""
    choices = body.get("choices", body.get("candidates"))
    if isinstance(choices, Mapping):
        choices = [choices]
    blocked = body.get("promptFeedback", body.get("prompt_feedback"))
    if not choices and isinstance(blocked, dict):
        return {"message": None, "finish_reason": f"blocked: {blocked.get('blockReason')}"}
    if isinstance(choices, list):
        choice = next((choice for choice in choices if isinstance(choice, dict)), None)
        return None if choice is None else {**choice, "message": _message_in(choice)}
    if isinstance(body.get("output"), list):  # OpenAI's Responses
        parts = [item for item in body["output"] if isinstance(item, dict)]
        return {**body, "message": {"content": [_part_of_output(item) for item in parts]}}
    if "generated_text" in body:
        return {**body, "message": {"content": body["generated_text"]}}
    if any(isinstance(body.get(key), dict | list) for key in ("message", "content")):
        return {**body, "message": _message_in(body)}
    return None


def _logprobs_of(logprobs: Any) -> Json | None:
    """Log-probabilities in the form of the protocol, also those of the old completions."""
    if not isinstance(logprobs, dict):
        return None
    content = logprobs.get("content")
    if isinstance(content, list) and all(
        isinstance(item, dict) and isinstance(item.get("token"), str) for item in content
    ):
        return logprobs
    tokens, tops = logprobs.get("tokens"), logprobs.get("top_logprobs")
    if not isinstance(tokens, list) or not isinstance(tops, list) or len(tokens) != len(tops):
        return None
    items = [
        {
            "token": str(token),
            "top_logprobs": [
                {"token": other, "logprob": value}
                for other, value in (top.items() if isinstance(top, dict) else ())
            ],
        }
        for token, top in zip(tokens, tops, strict=True)
    ]
    return {"content": items}


def _part_of_output(item: Json) -> Any:
    kind = item.get("type")
    if kind == "message":
        return {"type": "text", "text": _joined(item.get("content"), _TEXT_PARTS)}
    return (
        {**item, "type": "tool_use", "input": item.get("arguments")}
        if kind == "function_call"
        else item
    )


def _message_in(choice: Json) -> Any:
    """The message of a choice, whichever of its fields it is in."""
    for key in ("message", "delta"):
        if choice.get(key):
            return choice[key]
    content = choice.get("content")
    if isinstance(content, dict):  # Gemini's {"parts": […]}
        return {**content, "content": content.get("parts", content)}
    if content is not None:
        return {"content": content}
    return {"content": choice["text"]} if choice.get("text") is not None else None


def _message_of(message: Any) -> Json:
    """A message in the form of the protocol: one text, one refusal, the call of one tool."""
    if not isinstance(message, dict):
        return {"content": message if isinstance(message, str) else None}
    content = message.get("content", message.get("text"))
    thoughts = next((message[key] for key in _THOUGHTS if message.get(key)), None)
    refused = message.get("refusal")
    made: Json = {
        "content": _text_of(content),
        "refusal": _text_of(refused) or None if refused is not True else "refused",
        "reasoning_content": _joined(thoughts, None) or _joined(content, _THINKING_PARTS) or None,
    }
    if isinstance(content, list):
        refusals = _joined(content, ("refusal",))
        made["refusal"] = made["refusal"] or refusals or None
    call = _call_of(message, content)
    if call is not None:
        made["tool_calls"] = [{"function": {"arguments": call}}]
    return made


def _call_of(message: Json, content: Any) -> str | None:
    """What a tool was called with, as text; None if none was."""
    calls = message.get("tool_calls")
    if isinstance(calls, Mapping):
        calls = [calls] if "function" in calls else list(calls.values())
    calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    if isinstance(content, list):
        calls += [
            part for part in content if isinstance(part, dict) and part.get("type") == "tool_use"
        ]
    if message.get("function_call"):
        calls.append({"function": message["function_call"]})
    for call in calls:
        inner = next(
            (call[key] for key in ("function", "custom") if isinstance(call.get(key), dict)), call
        )
        for key in ("arguments", "input", "args", "parameters"):
            if inner.get(key):
                return _as_text(inner[key])
    return None


def _text_of(content: Any) -> str | None:
    """A content as one text: that of its parts, or the JSON of an object."""
    if isinstance(content, str) or content is None or isinstance(content, bool):
        return content if isinstance(content, str) else None
    if isinstance(content, list):
        return _joined(content, _TEXT_PARTS)
    if isinstance(content, dict) and content.keys() <= {"type", "text", "annotations"}:
        return _as_text(content.get("text"))
    return _as_text(content)  # the answer itself, as an object


def _joined(parts: Any, kinds: Iterable[str] | None) -> str:
    """The texts of parts of some kinds (None: of all), one after the other."""
    if isinstance(parts, str):
        return parts
    if isinstance(parts, dict):
        parts = [parts]
    texts = list[str]()
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, str) and (kinds is None or "text" in kinds):
            texts.append(part)
        if not isinstance(part, dict):
            continue
        kind = part.get("type") or ("thought" if part.get("thought") is True else "text")
        if kinds is not None and kind not in kinds:
            continue
        text = part.get("text", part.get(kind, part.get("content")))
        if isinstance(text, dict):
            text = text.get("value", text if kind == "json" else None)
        texts.append(_joined(text, None) if isinstance(text, list) else _as_text(text))
    return "".join(texts)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _streamed(text: str) -> Json | None:
    """The completion that the events of a stream make together; None for any other text."""
    message: Json = {"content": "", "reasoning_content": ""}
    finish, usage, events = None, None, 0
    for line in text.splitlines():
        if not line.startswith("data:") or line[5:].strip() in ("", "[DONE]"):
            continue
        try:
            event = json.loads(line[5:])
            choice = event["choices"][0] if event.get("choices") else {}
        except (ValueError, LookupError, TypeError, AttributeError):
            return None
        events += 1
        delta = choice.get("delta") or {}
        for key in message:
            message[key] += delta.get(key) or ""
        finish = choice.get("finish_reason") or finish
        usage = event.get("usage") or usage
    return (
        {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}
        if events
        else None
    )
