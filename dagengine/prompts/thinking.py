"""Thoughts that a model writes before its answer: a draft in them is never the answer.

Models mark their thoughts with markers of many forms, which chat templates and servers should take
out and often do not. Three things are read by rule, not by a list of models:

* a *marker*: a name in brackets (`<think>`, `[THINK]`, `<|begin_of_thought|>`, `<seed:think>`),
  with what closes it;
* a *channel* (`<|channel|>analysis<|message|>…`, https://developers.openai.com/cookbook/articles/
  openai-harmony), where only the channel `final`, or a call, is an answer;
* a marker that only closes, since the template opened it.
"""

from __future__ import annotations

import re
from typing import Final

# `<name>`, `[name]`, `<|name|>`, `◁name▷`, `&lt;name&gt;`; a slash, "end" or, behind it, "suffix"
# closes.
_MARKER: Final = re.compile(
    r"(?:[<\[◁⟨【\uff1c〈]|&lt;)\|?[ \t]*(?P<closes>/|end[_ ]?(?:of[_ ]?)?)?"
    r"(?:(?:begin|start)[_ ]?(?:of[_ ]?)?)?(?P<name>[^\W\d_][\w:.-]{0,40}?)"
    r"(?:_prefix|(?P<after>_suffix))?(?:[ \t][^<>\n]{0,100})?\|?(?:[>\]▷⟩】\uff1e〉]|&gt;)",
    re.IGNORECASE,
)
_THINKS: Final = re.compile(
    r"think|thought|reason|analy[sz]|reflect|scratch|monolog|ponder|deliberat|contemplat|rationale"
    r"|introspect|brainstorm|working_out|draft|planning|^inner|(?:^|[_:.-])cot(?:$|[_:.-])"
    r"|思考|推理|分析|gedanken|überleg|réflexion|raisonnement|pensamiento|razonamiento|размышл",
    re.IGNORECASE,
)
# Names around an answer, and marks of templates before it.
_ANSWERS: Final = re.compile(
    r"answer|output|final|solution|response|result|json|tool|function|invoke|verdict|message"
    r"|assistant|header|user|system|im_|text|object|data|code|content|score|rating|judg|^bos|^s$",
    re.IGNORECASE,
)
_CHANNEL: Final = re.compile(
    r"<\|channel\|>\s*(?P<name>\w+)(?P<to>[^<]*)(?:<\|constrain\|>[^<]*)?<\|message\|>"
    r"(?P<text>.*?)(?=<\|(?:end|return|call|start|channel)\|>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
# The same where a server has taken out the marks and left the names of the channels, and headings
# of a model's own: a line of them, with or without a colon. That of the answer may state it.
_SECTIONS: Final = re.compile(
    r"\A\s*(?:(?:assistant)?(?:analysis|commentary)(?=[A-Z\W]).*assistant\s*final"
    r"|(?i:(?:here(?:'s| is) my )?[*#_> ]*(?:thought process|thoughts?|thinking|reasoning|analysis"
    r"|scratchpad|draft|思考过程|思考|推理|分析)[*_ ]*(?:[:\uff1a]|\.{3}|[*_ ]*\n)).*"
    r"(?=^(?i:[ \t]*(?:here(?:'s| is) my )?[*#_> ]*(?:(?:final |my )?(?:answer|response|output"
    r"|result|verdict)|(?:最终)?(?:答案|回答|结论|结果)|\.{3} ?done thinking)[*_ ]*"
    r"(?:[:\uff1a.]|$))))(?P<text>.*)\Z",
    re.DOTALL | re.MULTILINE,
)
# Comments of HTML before an answer, and the line with which Ollama's own screen begins thoughts.
_COMMENTS: Final = re.compile(r"\A\s*(?:<!--.*?(?:-->|\Z)\s*)+", re.DOTALL)
_BEGUN: Final = re.compile(r"\A\s*thinking(?:\.{3}|\u2026)", re.IGNORECASE)
_SIGNS: Final = re.compile(
    r"[<\[◁⟨【\uff1c〈&]|\A\s*(?:assistant|commentary|here)|\A[\s*#_>]*[^\W\d_]", re.IGNORECASE
)
_VISIBLE: Final = re.compile(r"\S")


def is_thinking(name: str) -> bool:
    """Return whether a name is one of thoughts or drafts."""
    return _THINKS.search(name) is not None


def without_thoughts(text: str) -> str:
    """Return a text with blanks for its thoughts, so that the answer stays at its offset.

    Thoughts that never end take the rest of the text.
    """
    if _SIGNS.search(text) is None:
        return text
    if "<|channel|>" in text.lower():
        return _keep_only(text, _answers_in_channels(text)[-1:])
    sections = _SECTIONS.match(text)
    if sections is not None:
        return _keep_only(text, [sections.span("text")])
    if _BEGUN.match(text):
        return _blank(text)
    comments = _COMMENTS.match(text)
    if comments is not None:
        text = _keep_only(text, [(comments.end(), len(text))])
    start = _end_of_leading_thoughts(text)
    return _keep_only(text, _spans_outside_thoughts(text, start))


def are_unended(text: str) -> bool:
    """Return whether a text is nothing but thoughts."""
    return bool(text.strip()) and not without_thoughts(text).strip()


def _answers_in_channels(text: str) -> list[tuple[int, int]]:
    """The spans of the final texts and calls in channels; without any, of all but thoughts."""
    channels = [part for part in _CHANNEL.finditer(text) if not is_thinking(part["name"])]
    final = [part for part in channels if part["name"].lower() == "final" or "to=" in part["to"]]
    return [part.span("text") for part in final or channels]


def _end_of_leading_thoughts(text: str) -> int:
    """The offset at which the thoughts at the start of a text end; its length if they do not."""
    start = 0
    while True:
        visible = _VISIBLE.search(text, start)
        opening = _MARKER.match(text, visible.start()) if visible else None
        if opening is None or _closes(opening) or _ANSWERS.search(opening["name"]):
            return start
        thinks = is_thinking(opening["name"])
        if not thinks and opening[0][0] not in "<\uff1c&":
            return start  # a list or a reference
        end = _end_of_block(text, opening)
        if end is None:
            # A mark of a template has no partner, and says nothing of what follows.
            return start if not thinks and opening[0].endswith("|>") else len(text)
        # A block of an unknown name with nothing after it may be the answer itself.
        if not thinks and "{" not in text[end:] and "[" not in text[end:]:
            return start
        start = end


def _end_of_block(text: str, opening: re.Match[str]) -> int | None:
    """The offset after the marker that closes a block; None if none does."""
    name = opening["name"].casefold()
    for marker in _MARKER.finditer(text, opening.end()):
        if _closes(marker) and marker["name"].casefold() == name:
            return marker.end()
    return None


def _spans_outside_thoughts(text: str, start: int) -> list[tuple[int, int]]:
    """The spans from `start` on that no thinking marker encloses.

    A marker without its partner counts only where a line begins or ends, or an object follows:
    elsewhere it is quoted. One that closes ends thoughts which the chat template began.
    """
    spans, opened = list[tuple[int, int]](), list[int]()
    for marker in _MARKER.finditer(text, start):
        if not is_thinking(marker["name"]):
            continue
        if not _closes(marker):
            opened.append(marker.start())
        elif opened:
            begin = opened.pop()
            if not opened:
                spans.append((start, begin))
                start = marker.end()
        elif _is_apart(text, marker):
            spans, start = [], marker.end()
    unended = (begin for begin in opened if not text[_line_start(text, begin) : begin].strip())
    return [*spans, (start, max(start, next(unended, len(text))))]


def _closes(marker: re.Match[str]) -> bool:
    """Return whether a marker closes: `</name>`, `<|end_of_name|>`, or `<name|>`."""
    half = marker[0].startswith("<") and marker[0][1] != "|" and marker[0].endswith("|>")
    return bool(marker["closes"] or marker["after"]) or half


def _is_apart(text: str, marker: re.Match[str]) -> bool:
    """Return whether a marker begins a line or ends one, or stands before JSON."""
    line_start = text[_line_start(text, marker.start()) : marker.start()]
    following = text[marker.end() : marker.end() + 100].lstrip(" \t")
    return not line_start.strip() or following[:1] in ("", "\n", "\r", "{", "[", "`")


def _line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def _keep_only(text: str, spans: list[tuple[int, int]]) -> str:
    """A text with blanks for all that is in none of the spans; lines stay lines."""
    pieces, end = list[str](), 0
    for start, stop in spans:
        pieces += [_blank(text[end:start]), text[start:stop]]
        end = stop
    return "".join([*pieces, _blank(text[end:])])


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
