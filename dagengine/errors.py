"""Everything dagengine raises, in one small tree.

::

    DagengineError
    ├── GraphError            a metric's graph is wrong; lists every problem found (a ValueError)
    ├── InputError            a file, a test case or an argument is wrong (a ValueError)
    │   ├── CaseError         … a field of a case, in `dagengine.test_case` (also a TypeError)
    │   └── EngineClosedError     … a case for an engine that is closed, or has ended
    ├── MissingFieldError     a node reads something that the case does not have
    ├── NotApplicableError    a node finds nothing to judge in a case
    ├── MissingExtraError     an optional package is needed for what was asked
    ├── MetricFailedError     `measure()` of one case ended without a score
    │   └── MissingTestCaseParamsError    … as the case lacks a field
    └── JudgeError            a question got no valid answer
        ├── JudgeSetupError       the judge cannot work at all (no key, unknown model)
        ├── UnsupportedError      the judge cannot do what this question asks
        ├── JudgeFailure          the judge itself left it without one
        │   ├── RefusedError          the model declined to answer
        │   ├── UnparseableError      the answer does not fit what was asked
        │   │   ├── CopiedError           … as it copies the prompt
        │   │   ├── RunawayError          … as it has no end: cut off, thinking only, or in a loop
        │   │   └── DoubtfulAnswerError   … though it can be read: it is asked for once more
        │   │       └── UnsupportedQuoteError  … as what it quotes is not in the material
        │   ├── TruncatedError        the server read only a part of the prompt
        │   └── TooLongError          the prompt does not fit into the server's window
        ├── ProviderError         the endpoint failed (HTTP status, connection)
        ├── JudgeCodeError        the code of a judge has a mistake (TypeError, KeyError …)
        ├── JudgeTimeoutError     the call's deadline passed
        ├── OverBudgetError       the run has spent what it may spend
        └── RecordingMissError    a recorded judge, or a store in replay, has no such answer
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from dagengine.unknown import answer_absent

Severity = Literal["error", "warning", "note"]


class DagengineError(Exception):
    """Base of every error raised by dagengine."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding of the compiler.

    `code` is stable (tests and `# noqa`-style lists may rely on it), `where` names the
    metric and node, `hint` says what to do about it.
    """

    code: str
    where: str
    message: str
    hint: str
    severity: Severity = "error"

    def __str__(self) -> str:
        return f"{self.code} {self.where}: {self.message}\n    hint: {self.hint}"


def more_on(codes: Iterable[str]) -> str:
    """The command that says what codes of `check`, or outcomes, mean and what to do."""
    return f"more: dagengine help {' '.join(sorted(set(codes)))}"


class GraphError(DagengineError, ValueError):
    """Raised when a metric's graph does not compile; `problems` holds every finding."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        errors = [p for p in self.problems if p.severity == "error"]
        count = f"{len(errors)} problem{'s' if len(errors) != 1 else ''} in the graph"
        pointer = f"  {more_on(p.code for p in errors)}"
        super().__init__("\n".join([f"{count}:", *(f"  {p}" for p in errors), pointer]))


class InputError(DagengineError, ValueError):
    """Raised when a file, a test case or an argument is invalid."""


class EngineClosedError(InputError):
    """Raised by an engine that takes no case any more; its cause is what ended the run, if any."""


class MissingFieldError(DagengineError):
    """Raised by a node that reads a field that the case lacks; its outcome is `missing_field`."""


class NotApplicableError(DagengineError):
    """Raised by a node that finds nothing to judge in a case; its outcome is `skipped`."""


class MissingExtraError(DagengineError):
    """Raised when a feature needs an optional package that is not installed."""


def load_extra(module: str, what: str, extra: str) -> Any:
    """Return a module of an extra; `what` needs it, says a MissingExtraError if it is not there."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise MissingExtraError(f'{what} {package}: pip install "dagengine[{extra}]"') from None


class MetricFailedError(DagengineError):
    """Raised by `measure()` when a case ends without a score.

    `kind` is the outcome's kind (`missing_field`, `judge_refused`, ...). If an evaluation ends with
    this error (`ErrorConfig`), `result` has all its results.
    """

    def __init__(self, metric: str, node: str | None, kind: str, message: str) -> None:
        self.metric, self.node, self.kind = metric, node, kind
        self.result: object = None
        position = f"metric {metric!r}" + (f", node {node!r}" if node else "")
        super().__init__(f"{position}: {kind}: {message}")


class MissingTestCaseParamsError(MetricFailedError):
    """Raised in its place when the case lacks a field that the metric reads."""


def metric_failed(metric: str, node: str | None, kind: str, message: str) -> MetricFailedError:
    """The error of a metric that ended without a score, by the kind of its outcome."""
    missing = kind == "missing_field"
    error = MissingTestCaseParamsError if missing else MetricFailedError
    return error(metric, node, kind, message)


class JudgeError(DagengineError):
    """Base of the errors of a question without a valid answer."""

    kind = "provider_error"
    tokens: tuple[int, int] = (0, 0)
    retry_after: float | None = None
    lasting = False
    """Whether the judge answers nobody for now."""
    complaint: Any = None
    """What a server said, as long as its judge needs it."""


class JudgeSetupError(JudgeError):
    """Raised before the first case if a judge cannot work at all."""


class UnsupportedError(JudgeError):
    """Raised when a judge cannot do what a question asks (schema, text)."""


class JudgeFailure(JudgeError):
    """Base of what the judge itself left a question with, and no accident on the way.

    `tokens` are the tokens that the call used: (input, output).
    """

    def __init__(self, message: str, tokens: tuple[int, int] = (0, 0)) -> None:
        self.tokens = tokens
        super().__init__(message)


class RefusedError(JudgeFailure):
    """Raised when the model declined to answer; final, never retried."""

    kind = "judge_refused"


class UnparseableError(JudgeFailure):
    """Raised when an answer is invalid; carries the raw text.

    The gateway asks again with `message`, up to `Limits.reasks` times.
    """

    kind = "unparseable"

    def __init__(self, message: str, raw: str = "", tokens: tuple[int, int] = (0, 0)) -> None:
        self.raw = raw
        super().__init__(message, tokens)


class CopiedError(UnparseableError):
    """Raised when an answer copies the prompt in place of an answer.

    The message is for people. A model that is told which line it copied copies it again.
    """


class RunawayError(UnparseableError):
    """Raised when an answer did not end: the same question would bring the same again.

    `cause` says how: `cut` at a token limit, `thinking` up to the limit without an answer, or a
    `loop`. The message is for people, and says what to do. The gateway tells the model nothing of
    it: it asks once for a shorter answer, and after `thinking` not at all.
    """

    def __init__(
        self,
        message: str,
        raw: str = "",
        tokens: tuple[int, int] = (0, 0),
        cause: Literal["cut", "thinking", "loop"] = "cut",
    ) -> None:
        self.cause = cause
        super().__init__(message, raw, tokens)


class DoubtfulAnswerError(UnparseableError):
    """Raised when an answer can be read, but may not be meant, as more is said after it.

    `answer` is the answer itself. The gateway asks once more with `message`; then it counts.
    """

    def __init__(self, message: str, raw: str, tokens: tuple[int, int], answer: Any) -> None:
        self.answer = answer
        super().__init__(message, raw, tokens)


class UnsupportedQuoteError(DoubtfulAnswerError):
    """Raised when an answer fits but for its quotes: they are not where it says.

    The gateway asks once more with `message`; then the node decides whether the verdict counts.
    """

    kind = "unsupported"


class TruncatedError(JudgeFailure):
    """Raised instead of an answer to a part of the prompt; final, never retried.

    The server cut the prompt and did not say so; `tokens` are those that it counted.
    """

    kind = "truncated"


class TooLongError(JudgeFailure):
    """Raised when a prompt does not fit into the window of the server; final, never retried.

    `needed` are the tokens that it needs, `window` those that the server reads; None where nobody
    said.
    """

    kind = "too_long"

    def __init__(
        self,
        message: str,
        tokens: tuple[int, int] = (0, 0),
        *,
        needed: int | None = None,
        window: int | None = None,
    ) -> None:
        self.needed, self.window = needed, window
        super().__init__(message, tokens)


_LASTING = frozenset({401, 402, 403, 404})


class ProviderError(JudgeError):
    """Raised when the endpoint failed.

    `transient` failures (429, 5xx, connection) are retried by the gateway; `retry_after` is the
    number of seconds that the provider asked to wait, or None. `lasting` ones are about the key,
    the account, the model's name, the address or the quota of the day: no repetition soon changes
    them, whatever is asked. None: the statuses 401 to 404 are, unless they are transient.
    """

    def __init__(
        self,
        message: str,
        *,
        transient: bool,
        status: int | None = None,
        retry_after: float | None = None,
        lasting: bool | None = None,
    ) -> None:
        self.transient, self.status, self.retry_after = transient, status, retry_after
        lasts = not transient and status in _LASTING
        self.lasting = lasts if lasting is None else lasting
        super().__init__(message)


class JudgeTimeoutError(JudgeError):
    """Raised when one call exceeded its timeout; retried like a transient error."""

    kind = "timeout"


class JudgeCodeError(JudgeError):
    """Raised for a bug in the code of a judge, for instance a TypeError; never retried."""

    kind = "code_error"


class OverBudgetError(JudgeError):
    """Raised instead of a call that the run's `max_calls` or `budget` does not allow."""

    kind = "over_budget"


class RecordingMissError(JudgeError):
    """Raised by a recorded judge or a replay for a question without a recorded answer."""


def first_flaw(error: Any) -> str:
    """Return the first mistake of a ValidationError in words: where it is, and what is wrong."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def require_format(document: Any, most: int, place: str) -> None:
    """Raise InputError if a newer version wrote a document: its `format` is above `most`."""
    written = document.get("format") if isinstance(document, dict) else None
    if isinstance(written, int) and written > most:
        raise InputError(
            f"{place} has the format {written}, and this dagengine reads up to {most}: "
            "install a newer one"
        )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` for the known name nearest to `word`; empty if none is near."""
    near = nearest(word, known)
    return near and f"did you mean {near!r}?"


def near_hint(word: str, known: Iterable[str]) -> str:
    """`did_you_mean` in brackets, to be put behind the word; empty if none is near."""
    near = did_you_mean(word, known)
    return near and f" ({near})"


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known name nearest to `word`, if they are as alike (0 to 1) as `cutoff`; else empty."""
    import difflib  # only a mistake needs it

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return str(near[0]) if near else ""  # also of a member of a StrEnum


answer_absent(__name__)
