"""Error bodies: what a server's failure says, in whatever form, and which JudgeError it is.

An error is read from any status, also from 200, and from any shape: OpenAI's `{"error": {…}}`,
FastAPI's `{"detail": […]}`, Google's list, a bare text, a web page. Codes count more than words,
and words only if they do not repeat the prompt: judged texts speak of tools, too.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

from dagengine.errors import JudgeError, ProviderError, RefusedError, TooLongError, UnparseableError
from dagengine.prompts.json_in_text import fields_of, items_of, shallow_value
from dagengine.prompts.lengths.context_overflow import Overflow, overflow_in

TRANSIENT: Final = frozenset({408, 409, 424, 425, 429})
"""Statuses that say "later" rather than "no"."""
OVERFLOWS: Final = frozenset({400, 413, 422, 500})
"""Statuses with which servers refuse prompts that are too long."""
ACCESS: Final = {
    401: "; check the API key (DAGENGINE_API_KEY for a server of your own)",
    402: "; the account has no credit left",
    404: "; check the model's name and the address, which mostly ends in /v1",
}
"""What to do about statuses that every call gets: they speak of the judge, not of a question."""
_NO_MODEL: Final = "; check the model's name: the server does not have this model"
_USED_UP: Final = "; the quota is used up: run again when there is more, or use another key"
HINTS: Final = (*ACCESS.values(), _NO_MODEL, _USED_UP)
"""How messages end whose cause no repetition changes."""
_REFUSABLE: Final = frozenset({400, 403, 406, 422, 451, 500})
_MOST: Final = 300  # values of a body that are looked at
_SHOWN: Final = 2_000
_CODE: Final = 100  # characters; what is longer is no code
# Keys of what an error says in one word, and of what it says in words.
_CODES: Final = frozenset(
    ("code", "type", "status", "reason", "reasons", "error_code", "error_type", "errortype", "kind")
) | {"__type", "param", "loc", "quotaid", "quota_id", "blockreason", "block_reason", "status_code"}
_TELLING_KEYS: Final = frozenset({"flagged_input", "blockreason", "block_reason", "reasons"})
_TEXT: Final = re.compile(
    r"\w*(?:message|msg|detail|description)|errors?|title|raw|fault|exception|failure"
)
_TEXTS: Final = 8  # of them are told

# Origins: OpenAI content_policy_violation, content_filter, invalid_prompt; Azure
# ResponsibleAIPolicyViolation; litellm ContentPolicyViolationError; DashScope DataInspectionFailed;
# DeepSeek "Content Exists Risk"; Gemini blockReason; Bedrock guardrails; OpenRouter flagged inputs.
_REFUSED: Final = re.compile(
    r"content_?filter|content_?policy|policy_?violation|invalid_prompt|responsible_?ai"
    r"|data_?inspection|inappropriate[_ ]content|content exists risk|prohibited_content|blocklist"
    r"|block_?reason|\bsafety\b|\bflagged\b|flagged_input|moderation|usage polic|guardrail"
    r"|content management policy|(?<!case[- _])(?<!in)sensitive|harmful content|敏感|不安全|违规"
    r"|\b(?:response|prompt|input|output|answer|content) (?:was|is|has been) (?:blocked|rejected)"
    r"|violat\w* (?:\w+ ){0,6}(?:polic|guideline|terms)",
    re.IGNORECASE,
)
_UNKNOWN_MODEL: Final = re.compile(
    r"model_?not_?(?:found|exist\w*|available)|model_not_supported|unknown[_ ]model"
    r"|invalid[_ ]model|no such model|model not exist|not a valid model"
    r"|models?\b.{0,80}(?:does ?n[o']t exist|do not exist|not (?:be )?found|not exist"
    r"|is not available|was not found|is not loaded|not supported by any provider"
    r"|has been (?:deprecated|decommissioned))|(?:not found|does not exist).{0,20}\bmodel\b"
    r"|no (?:allowed )?providers? (?:are )?available",
    re.IGNORECASE | re.DOTALL,
)
_DAY: Final = re.compile(
    r"per[_ -]?day|\bdaily\b|/ ?day\b|\b[rt]pd\b|per[_ -]?month|monthly|insufficient_?quota"
    r"|insufficient[_ ](?:funds|balance|credit)|out of credit|credit balance|arrearage"
    r"|budget[_ ](?:has been |is |was )?exceeded|used up|spending limit|limit: 0(?!\.?\d)",
    re.IGNORECASE,
)
# Gemini says "billing" and "free tier" of the quota of a minute, too.
_QUOTA: Final = re.compile(
    r"exceeded your current quota|quota[_ ](?:has been |is |was )?exceeded|billing|free tier",
    re.IGNORECASE,
)
_SOON: Final = re.compile(r"per[_ -]?min|per[_ -]?sec|retry in|try again in", re.IGNORECASE)
# What a rejection means that has the status 400, 403 or 412: too many requests, or a wrong key.
_MEANT: Final = (
    (429, r"rate[_ ]?limit|throttl|too_?many_?requests"),
    (401, r"(?:incorrect|invalid|wrong|missing|expired)[\W_]+(?:\w+ )?api[_ ]?key"),
    (401, r"api[_ ]?key[\W_]+(?:\w+ ){0,3}(?:invalid|incorrect|not valid|not found|expired)"),
)
# A server's own check of what its model wrote (Groq, vLLM): the model may do better next time.
_INVALID_JSON: Final = re.compile(r"json_validate_failed|tool_use_failed|failed_generation")
_PAGE: Final = re.compile(r"\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype|html|head|body)\b", re.IGNORECASE)
_TITLE: Final = re.compile(r"<(?:title|h1)[^>]*>([^<]{1,120})", re.IGNORECASE)
# Words that stand for a status where a body comes with 200.
_STATUSES: Final = (
    (429, r"rate.?limit|too.?many|resource_?exhausted|quota|throttl"),
    (503, r"overload|unavailable|capacity|try again|busy|loading"),
    (504, r"time.?d?.?out|deadline|cancel|client.closed"),
    (401, r"authenticat|unauthori[sz]ed|api.?key|invalid_?token"),
    (402, r"billing|payment|credit|balance"),
    (403, r"permission|forbidden"),
    (404, r"not_?found"),
    (500, r"internal|server_?error|api_?error|provider returned|upstream"),
)
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus if status.value >= 300}
_SECONDS: Final = re.compile(r"\s*[0-9]{1,12}(\.[0-9]{0,12})?\s*")
_ESCAPE: Final = re.compile(r"\\+(?:u[0-9a-fA-F]{4}|.)")
_NUMBERED: Final = re.compile(r"\w*\d\w*")
_WORD: Final = re.compile(r"\w+")
_QUOTED: Final = 3  # words in a row that are those of the prompt
_PROMPT: Final = 400_000  # characters of a prompt that quotations are looked for in


@dataclass(frozen=True, slots=True)
class Complaint:
    """What a server said in place of an answer.

    `message` are its words as they came, `words` the same without what repeats the prompt, and
    `codes` everything that it says in codes, types and names of parameters. `generated` is what the
    model wrote, where the server says it.
    """

    status: int
    message: str
    words: str
    codes: str
    body: Any = None
    retry_after: float | None = None
    generated: str | None = None

    @property
    def shape(self) -> str:
        """Status and words without numbers and ids, so that equal complaints are known."""
        return f"{self.status} {_NUMBERED.sub('#', self.message)}"

    @property
    def is_known(self) -> bool:
        """True if the cause is known and no demand: the model is not there, or a web page came."""
        page = isinstance(self.body, str) and _PAGE.match(self.body) is not None
        return page or _UNKNOWN_MODEL.search(self.said) is not None

    @property
    def said(self) -> str:
        """Codes and words together, for tables."""
        return f"{self.codes} {self.words}"


def complaint_in(
    status: int,
    body: Any,
    *,
    prompt: str = "",
    retry_after: float | None = None,
    failed: bool = False,
) -> Complaint | None:
    """The complaint in a body; None for a body with status 2xx that has no error in it.

    `body` is parsed JSON, or a text that is none. `prompt` is all that was sent as text. A body
    that `failed` has no answer in it: all its words are about that.
    """
    parts = list(filter(None, map(fields_of, items_of(body))))
    body = next(filter(_has_error, parts), next(iter(parts), body))  # a stream fails in the middle
    fine = 200 <= status < 300
    words = _words_in(body)
    if fine and not (isinstance(body, dict) and ((failed and words) or _has_error(body))):
        return None
    message = words or (json.dumps(body)[:200] if body else _PHRASES.get(status, "error"))
    codes = " ".join(_codes(body))
    texts = (str(text) for key, text in pairs_in(body) if key == "failed_generation")
    generated = next(texts, None)
    words = blank_quotations(message[:_SHOWN], prompt)
    status = _status_of(status, codes, words)
    return Complaint(status, message, words, codes, body, retry_after, generated)


def response_error(
    status: int, body: Any, *, prompt: str = "", retry_after: float | None = None
) -> JudgeError:
    """The error of a failed response, with its complaint until its judge lets go of it."""
    complaint = complaint_in(status, body, prompt=prompt, retry_after=retry_after)
    assert complaint is not None, "a response with status 2xx and no error has not failed"
    return error_of(complaint)


def error_of(complaint: Complaint) -> JudgeError:
    """The error that a complaint is, with the complaint until its judge lets go of it."""
    error: JudgeError
    status, words = complaint.status, complaint.said
    text = f"HTTP {status}: {complaint.message}"
    # One request above the limit of a minute is refused however long it waits.
    may_overflow = status in OVERFLOWS or (status == 429 and "too large" in complaint.words)
    overflow = overflow_in(complaint.words, complaint.body) if may_overflow else None
    if complaint.generated is not None or _INVALID_JSON.search(complaint.codes):
        why = f"the server could not use what the model wrote: {complaint.message}"
        error = UnparseableError(why, complaint.generated or "")
    elif overflow is not None or status == 413:
        error = TooLongError(text, **(overflow or Overflow(None, None))._asdict())
    elif status in _REFUSABLE and _REFUSED.search(words):
        error = RefusedError(f"the provider's content filter refused the question: {text}")
    else:
        error = _provider_error(complaint, text)
    error.complaint = complaint
    return error


def _provider_error(complaint: Complaint, text: str) -> ProviderError:
    """An error that is about neither the prompt nor the answer, with what to do about it."""
    status, words = complaint.status, complaint.said
    hint, lasting = ACCESS.get(status, ""), None
    transient = status in TRANSIENT or status >= 500
    if not transient and _UNKNOWN_MODEL.search(words):
        hint, lasting = _NO_MODEL, True
    used_up = _DAY.search(words) or (_QUOTA.search(words) and not _SOON.search(words))
    if status in (400, 402, 403, 412, 429) and used_up:
        hint, lasting, transient = _USED_UP, True, False
    return ProviderError(
        f"{text}{hint}",
        transient=transient,
        status=status,
        retry_after=complaint.retry_after,
        lasting=lasting,
    )


def page_in(text: str) -> str | None:
    """A sentence on a text that is a web page, with what to do; None for any other text."""
    if _PAGE.match(text) is None:
        return None
    title = _TITLE.search(text)
    heading = f" ({title[1].strip()!r})" if title else ""
    return (
        f"a web page{heading} came in place of an answer; check the address (most servers want one "
        "that ends in /v1), and whether a proxy or a login is in between"
    )


def blank_quotations(message: str, prompt: str) -> str:
    """A message with blanks for what it repeats of the prompt: three words in a row, or more."""
    if not prompt:
        return message
    plain = _ESCAPE.sub(lambda escape: " " * len(escape[0]), message)
    words, characters = list(_WORD.finditer(plain)), list(message)
    own = set(_runs_of(_WORD.findall(_ESCAPE.sub(" ", prompt[:_PROMPT]))))
    for index, run in enumerate(_runs_of(_WORD.findall(plain))):
        if run in own:
            start, end = words[index].start(), words[index + _QUOTED - 1].end()
            characters[start:end] = " " * (end - start)
    return "".join(characters)


def _runs_of(words: Iterable[str]) -> Iterator[tuple[str, ...]]:
    folded = list(map(str.casefold, words))
    return zip(*(folded[start:] for start in range(_QUOTED)), strict=False)


def _has_error(body: Mapping[str, Any]) -> bool:
    """Return whether a body says that it is an error: an answer beside an empty `error` is none."""
    choice = next(iter(items_of(body.get("choices"))), None)
    if isinstance(choice, dict):
        says = fields_of(choice.get("message")).get("content")
        return bool(choice.get("error") or (not says and body.get("error")))
    if body.get("choices"):
        return False
    marks = ("error", "errors", "detail", "error_code", "errorMessage")
    is_named = "error" in (body.get("object"), body.get("type"), body.get("status"))
    code = str(body.get("code", 0)).lower()
    flat = isinstance(body.get("message"), str) and code not in ("0", "200", "ok", "success")
    return is_named or flat or body.get("success") is False or any(map(body.get, marks))


def _words_in(body: Any) -> str:
    """The words of an error body, from wherever it has them."""
    if isinstance(body, str):
        return page_in(body) or body.strip()
    texts = dict[str, None]()
    for key, value in pairs_in(body):
        items = _as_list(value)
        if key == "loc":
            texts[".".join(map(str, items))] = None
        elif _TEXT.fullmatch(key):
            texts |= dict.fromkeys(_words_in(item) for item in items if isinstance(item, str))
    return "; ".join([*filter(None, texts)][:_TEXTS])


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def pairs_in(value: Any) -> Iterator[tuple[str, Any]]:
    """The keys and values of a body, at every depth, as far as they are looked at."""
    level, budget = [value], _MOST
    while level and budget > 0:
        part = level.pop(0)
        budget -= 1
        if isinstance(part, dict):
            yield from ((str(key).lower(), item) for key, item in part.items())
            part = list(part.values())
        if isinstance(part, list):
            level += [item for item in part if isinstance(item, dict | list)]


def _codes(body: Any) -> Iterator[str]:
    for key, value in pairs_in(body):
        if key in _TELLING_KEYS and value:
            yield key
        if key not in _CODES or isinstance(value, dict | bool):
            continue
        for item in _as_list(value):
            if isinstance(item, str | int) and len(str(item)) <= _CODE:
                yield str(item)


def _status_of(status: int, codes: str, words: str) -> int:
    """The status that a body stands for, by its number or its words, where its own says little."""
    table: tuple[tuple[int, str], ...] = _MEANT if status in (400, 403, 412) else ()
    if status < 500 and status not in _PHRASES:
        numbers = re.findall(r"(?<!\S)[45]\d\d(?!\S)", codes)
        table, status = _STATUSES, 400
        if numbers:
            return int(numbers[0])
    for number, pattern in table:
        if re.search(pattern, f"{codes} {words}", re.IGNORECASE):
            return number
    return status


def parse_body(content: bytes) -> Any:
    """A body as JSON, as events (behind `data:`, or a line each), else as text."""
    text = content.decode("utf-8-sig", errors="replace")
    with suppress(ValueError):
        # Models write endless numbers, too.
        value = shallow_value(text, parse_int=lambda n: int(n) if len(n) <= 4_000 else None)
        if not isinstance(value, str):
            return value
        text = value  # JSON in JSON
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip() and line[0] != ":"]
    lines = [line[5:] for line in lines if line.startswith("data:")] or lines
    with suppress(ValueError):
        return [shallow_value(line) for line in lines if line.strip() != "[DONE]"] or text
    return text


def unreadable(content: bytes, kind: str, problem: str, prompt: str = "") -> JudgeError:
    """The error of a body with status 2xx that is not what was asked for.

    `kind` is what it should be, and `problem` why it is not. Errors travel with status 200, too,
    and web pages, and nothing at all.
    """
    text = content.decode(errors="replace")
    complaint = complaint_in(200, parse_body(content), prompt=prompt, failed=True)
    if complaint is not None:
        return error_of(complaint)
    page = page_in(text)
    why = page or f"{text[:120]!r}: {problem}"
    breaks_off = bool(text.strip()) and "EOF while parsing" in problem
    if not text.strip():
        why = "it is empty; see whether the server runs well, and what is between it and you"
    # A page comes whatever is asked, as long as nobody mends the address.
    return ProviderError(
        f"the endpoint sent no {kind}: {why}",
        transient=breaks_off,
        lasting=page is not None,
    )


def of_response(error: Any, prompt: str = "") -> JudgeError:
    """The error of a response that the openai client raised (`APIStatusError`)."""
    content = error.response.content
    body = parse_body(content) if content else error.body
    retry_after = _retry_after(error.response.headers)
    return response_error(error.status_code, body, prompt=prompt, retry_after=retry_after)


def _retry_after(headers: Any) -> float | None:
    """Seconds to wait, where a header says so in one of the forms of RFC 9110, 10.2.3."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = str(headers.get(name, ""))
        if _SECONDS.fullmatch(value):
            return float(value) / unit
    try:
        date = parsedate_to_datetime(str(headers.get("retry-after", "")))
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, OverflowError, OSError):  # no date, or one that no clock shows
        return None
