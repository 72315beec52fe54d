"""From the spans of a trace to the case that is judged, by rules that are the same for all tools.

`input` and `actual_output` are those of the topmost span that has texts of its own. Of several
beside each other an agent goes before other steps, and these before models; the input is that of
the first, the output that of the last. What was retrieved and the tools that were called are the
spans of these kinds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from dagengine.errors import InputError
from dagengine.prompts.evidence import as_text
from dagengine.results.metric_results import STARTED
from dagengine.system.terminal_text import counted, text_if
from dagengine.test_case import (
    CaseError,
    ConversationalTestCase,
    InvalidCase,
    LLMTestCase,
    Span,
    ToolCall,
    Turn,
)
from dagengine.traces.formats import RawRecord, of_type, session_of
from dagengine.traces.instrumentations import AGENT, LLM, RETRIEVER, TOOL, TraceStep, steps_of

TRACE, SESSION, _SPAN = "trace", "session", "span:"
_NO_TEXTS = (
    "no texts captured: the trace has neither an input nor an output. Capturing content is a "
    "setting of the instrumentation (OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only, "
    "or event_only with the file of the logs as another --data)"
)
_NO_INPUT = "no input captured: the trace has an output, but no text that a user put in"


# Steps whose texts are not those of the trace, with all that is in them. Not every instrumentation
# has a kind for what looks at texts before and after, but people name it so.
_BESIDE = frozenset({TOOL, RETRIEVER, "guardrail", "evaluator", "embedding", "reranker", "prompt"})
_GUARD = re.compile("guard.?rail|moderation", re.IGNORECASE)
# Attributes that say how, where and by what something was done, not what was said.
_ABOUT = re.compile(
    r"(http|url|server|client|net|network|service|telemetry|otel|exception|error|code|thread|db|rpc|"
    r"user_agent|process|host|session|metadata|gen_ai\.(?!prompt|completion)|tool|logfire)[._].*|"
    r".*[._](id|ids|name|type|kind|model|version|mime_type|system|provider|\w*parameters)",
    re.IGNORECASE,
)
_NAMED = 6  # attributes that are named
TextOf = Callable[[TraceStep], str | None]
_RANKS = {AGENT: 0, LLM: 2}  # who speaks for a trace, of those beside each other; else 1


@dataclass(frozen=True, slots=True)
class CaseUnit:
    """What one case is: a trace, a session, or every span of a kind."""

    text: str = TRACE

    def __post_init__(self) -> None:
        if self.text not in (TRACE, SESSION) and not self.kind:
            raise InputError(
                f"the unit is trace, session or span:KIND (for instance span:tool), not {self.text}"
            )

    @property
    def kind(self) -> str:
        """The kind of the spans that are cases; empty if spans are not."""
        return self.text.removeprefix(_SPAN).lower() if self.text.startswith(_SPAN) else ""

    @property
    def is_session(self) -> bool:
        """Return whether a case is a conversation of several traces."""
        return self.text == SESSION


@dataclass(slots=True)
class CaseParts:
    """What a case is made of: the root, the steps below it, and the texts.

    `id` is that of the trace or of the span; `origins` says where the input and the output were
    found.
    """

    id: str
    root: TraceStep
    steps: list[TraceStep]
    session: str | None
    input: str | None
    output: str | None
    passages: list[str] | None
    origins: dict[str, str]

    @property
    def spans(self) -> list[Span]:
        """The spans of the steps."""
        return [step.span for step in self.steps]

    @property
    def textless(self) -> int:
        """The number of retrievals whose texts were not captured."""
        return sum(span.kind == RETRIEVER and not span.documents for span in self.spans)

    @property
    def calls(self) -> list[ToolCall]:
        """The tools that were called, in the order in which they began."""
        return [
            ToolCall(
                name=span.name,
                input_parameters=of_type(span.input, dict, None),
                output=span.output,
                error=span.error,
                span_id=span.span_id,
            )
            for span in self.spans
            if span.kind == TOOL
        ]

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata that say where the case was read from."""
        ids = {"trace_id": self.root.span.trace_id, "span_id": self.root.span.span_id}
        start = self.root.raw.start  # nanoseconds since 1970; 0 for a span that says none
        if start:
            # A wrong clock may name a year that Python's calendar does not have.
            with suppress(ValueError, OverflowError, OSError):
                ids[STARTED] = datetime.fromtimestamp(start // 10**9, UTC).isoformat()
        return ids if self.session is None else {**ids, "session_id": self.session}


def parts_in(records: Sequence[RawRecord], unit: CaseUnit) -> list[CaseParts]:
    """Parts of the cases of one trace; of a session, the turns of one trace.

    None if it has only log records, or no span of the kind.
    """
    steps = steps_of(records)
    if not steps:
        return []
    session = next(filter(None, map(session_of, records)), None)
    if not unit.kind:
        # The span without a parent; of several the first. Of a part of a trace, its first top
        # span. A clock that is wrong lets a span begin before the one that it is in
        whole = (step for step in steps if not step.span.parent_id)
        root = next(whole, None) or _tops(steps)[0]
        return [_parts_of(root, steps, session, root.span.trace_id or "")]
    roots = (step for step in steps if step.span.kind == unit.kind)
    return [_parts_of(root, _within([root], steps), session, root.span.span_id) for root in roots]


def trace_case(parts: CaseParts) -> LLMTestCase | InvalidCase:
    """The case; what is refused, such as a picture, costs this case only."""
    root = parts.root
    models = [span for span in parts.spans if span.kind == LLM]
    # The end of an id: tools begin all of theirs with zeros, or with the time.
    name = f"{root.span.name} {parts.id[-8:]}"
    note = None
    if parts.textless:
        note = (
            f"{parts.textless} retrievals without texts: what they found was not captured, so "
            "`retrieval_context` " + ("has less than they found" if parts.passages else "is absent")
        )
    try:
        case = LLMTestCase(
            name=name,
            input=parts.input or "",
            actual_output=parts.output,
            retrieval_context=parts.passages,
            tools_called=parts.calls or None,
            input_token_count=_sum(span.input_token_count for span in models),
            output_token_count=_sum(span.output_token_count for span in models),
            completion_time=root.span.seconds,
            spans=parts.spans,
            additional_metadata=parts.metadata,
            comments=note,
        )
    except CaseError as error:
        return InvalidCase(f"trace {root.span.trace_id}", str(error))
    if parts.input is not None:
        return case
    why = _why_no_texts([parts]) if parts.output is None else _NO_INPUT
    return InvalidCase(name, why, nothing_to_judge=True, test_case=case)


def conversation_of(parts: Sequence[CaseParts]) -> ConversationalTestCase | InvalidCase:
    """The case of a session: a turn of the user and one of the assistant for every trace."""
    turns: list[Turn] = []
    for part in parts:
        ids = part.metadata
        if part.input is not None:
            turns.append(Turn(role="user", content=part.input, additional_metadata=ids))
        if part.output is not None or part.calls:
            turns.append(
                Turn(
                    role="assistant",
                    content=part.output or "",
                    retrieval_context=part.passages,
                    tools_called=part.calls or None,
                    additional_metadata=ids,
                )
            )
    name = f"session {parts[0].session}"
    if all(part.input is None and part.output is None for part in parts):
        return InvalidCase(name, _why_no_texts(parts), nothing_to_judge=True)
    metadata = parts[0].metadata
    ids = {name: metadata[name] for name in ("session_id", STARTED) if name in metadata}
    return ConversationalTestCase(name=name, turns=turns, additional_metadata=ids)


def _tops(steps: Sequence[TraceStep]) -> list[TraceStep]:
    """The spans whose parent is not there; where parents go in a circle, all."""
    ids = {step.span.span_id for step in steps}
    return [step for step in steps if step.span.parent_id not in ids] or list(steps)


def _tree(tops: Iterable[TraceStep], steps: Sequence[TraceStep]) -> Iterator[tuple[TraceStep, int]]:
    """Spans with their depth: after each those that are in it. Circles of parents end."""
    children: dict[str | None, list[TraceStep]] = {}
    for step in steps:
        children.setdefault(step.span.parent_id, []).append(step)
    ids: set[str] = set()
    for top in tops:
        waiting = [(top, 0)]
        while waiting:
            step, depth = waiting.pop()
            if step.span.span_id not in ids:
                ids.add(step.span.span_id)
                yield step, depth
                # Reversed, since the last that waits is taken first.
                below = children.get(step.span.span_id, ())
                waiting += [(child, depth + 1) for child in reversed(below)]


def _ids_within(tops: Iterable[TraceStep], steps: Sequence[TraceStep]) -> set[str]:
    """The ids of spans, and of all that are in them."""
    return {step.span.span_id for step, _ in _tree(tops, steps)}


def _within(tops: Iterable[TraceStep], steps: Sequence[TraceStep]) -> list[TraceStep]:
    """Spans with all that are in them, in their order of time."""
    ids = _ids_within(tops, steps)
    return [step for step in steps if step.span.span_id in ids]


def _parts_of(root: TraceStep, steps: list[TraceStep], session: str | None, id: str) -> CaseParts:
    """Parts of the case of a span and the spans in it."""
    passages = list(chain.from_iterable(step.span.documents or () for step in steps))
    if root.span.kind in (TOOL, RETRIEVER):
        answer = root.span.output if root.span.kind == TOOL else "\n\n".join(passages) or None
        text_in, text_out = _as_text(root.span.input), _as_text(answer)
        teller = root if text_in else None
        speaker = root if text_out else None
    else:
        asking = _speakers(root, steps, attrgetter("text_in"))
        answering = _speakers(root, steps, attrgetter("text_out"))
        # The last that did not fail: a step may have been tried again.
        answering.sort(key=lambda step: step.span.error is None)
        teller, speaker = next(iter(asking), None), next(reversed(answering), None)
        text_in, text_out = getattr(teller, "text_in", None), getattr(speaker, "text_out", None)
    origins = {"input": _origin(teller), "actual_output": _origin(speaker)}
    return CaseParts(id, root, steps, session, text_in, text_out, passages or None, origins)


def _speakers(root: TraceStep, steps: list[TraceStep], text: TextOf) -> list[TraceStep]:
    """The spans that have a text for the whole; of several, in their order."""
    groups = (_topmost(group, text) for group in _groups(root, steps))
    return next(filter(None, groups), [])


def _groups(root: TraceStep, steps: list[TraceStep]) -> Iterator[list[TraceStep]]:
    """The spans in which a text is looked for, one group after the other."""
    yield [root]
    aside = [
        step
        for step in steps
        if step is not root and (step.span.kind in _BESIDE or _GUARD.search(step.span.name))
    ]
    hidden = _ids_within(aside, steps)
    working = [step for step in steps if step.span.span_id not in hidden]
    own = _within([root], working)
    speakers = _topmost(own, lambda step: step.text_in or step.text_out)
    # Where these lack a text, a step in them has it.
    yield from (speakers, _within(speakers, own), own, working, steps)


def _topmost(steps: list[TraceStep], text: TextOf) -> list[TraceStep]:
    """The topmost spans that have a text, of the kind that speaks for the others, in order."""
    speakers: list[TraceStep] = []
    limit = math.inf  # what is deeper is in the span that spoke last
    for step, depth in _tree(_tops(steps), steps):
        if depth <= limit:
            limit = math.inf
            if text(step):
                speakers.append(step)
                limit = depth

    def rank(step: TraceStep) -> int:
        return _RANKS.get(step.span.kind, 1)

    _, best = next(groupby(sorted(speakers, key=rank), key=rank), (0, ()))
    return sorted(best, key=lambda step: step.raw.start)


def _why_no_texts(parts: Iterable[CaseParts]) -> str:
    """The message for a case without texts, with the attributes that may have them."""
    sizes = Counter[str]()
    for step in chain.from_iterable(part.steps for part in parts):
        for name, text in step.raw.attributes.items():
            if isinstance(text, str) and not _ABOUT.fullmatch(name):
                sizes[name] += len(text)
    names = ", ".join(name for name, _ in sizes.most_common(_NAMED))
    unknown = f". Attributes that are there, but not known as texts: {names}"
    return _NO_TEXTS + text_if(names, unknown)


def _origin(step: TraceStep | None) -> str:
    return "" if step is None else f"{step.span.kind} {step.span.name!r:.60} [{step.span.span_id}]"


def _as_text(value: Any) -> str | None:
    return None if value is None else as_text(value)


def _sum(counts: Any) -> int | None:
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if numbers else None


def mapping_lines(parts: CaseParts) -> list[str]:
    """Lines that show the span of each field, and the spans as a tree."""
    retrievals = sum(span.kind == RETRIEVER for span in parts.spans)
    silent = f", {parts.textless} without texts" if parts.textless else ""
    fields = {
        "input": (parts.input and f"{parts.input!r:.70}", parts.origins["input"]),
        "actual_output": (parts.output and f"{parts.output!r:.70}", parts.origins["actual_output"]),
        "retrieval_context": (
            counted(len(parts.passages), "passage") if parts.passages else None,
            counted(retrievals, "retrieval") + silent,
        ),
        "tools_called": (
            ", ".join(call.name for call in parts.calls) or None,
            counted(len(parts.calls), "span") + " of tools",
        ),
    }
    trace, spans = parts.root.span.trace_id, counted(len(parts.steps), "span")
    title = f"trace {trace}" if parts.id == trace else f"span {parts.id} of trace {trace}"
    lines = [f"{title} ({spans}):"]
    for name, (value, origin) in fields.items():
        lines.append(f"  {name:17} {value or 'absent'}" + (f"  ← {origin}" if origin else ""))
    tops = [parts.root, *_tops(parts.steps), *parts.steps]
    for step, depth in _tree(tops, parts.steps):
        span = step.span
        failed = f"  failed: {span.error:.60}" if span.error else ""
        lines.append(f"  {'  ' * depth}{span.kind}: {span.name:.60} [{span.span_id}]{failed}")
    return lines
