"""The requests by which each place takes scores, and what its answers mean. No I/O.

Keys are read from the environment only, under the names that the tools themselves use.
"""

from __future__ import annotations

import base64
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, ClassVar
from urllib.parse import unquote

from dagengine.data.written_lines import value_of, without_nulls
from dagengine.errors import InputError, near_hint
from dagengine.system.terminal_text import counted
from dagengine.traces.formats import DAMAGES
from dagengine.traces.span_scores import Score

_AT_ONCE = 500  # scores in one request


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """One request: where, what, and the scores that are written if the place says so.

    If there is an `otherwise`, it is made in its place when the answer is 404.
    """

    method: str
    path: str
    body: Any
    scores: tuple[Score, ...]
    otherwise: ScoreRequest | None = None


class Backend(ABC):
    """A place that takes scores.

    `repeatable` says whether writing twice leaves one score. Another attempt may help after
    the `transient` statuses. An answer of the place has one of the `answer_fields`; with an empty
    name among them, it may be without a body.
    """

    repeatable: ClassVar[bool] = True
    transient: ClassVar[frozenset[int]] = frozenset({408, 429, 500, 502, 503, 504})
    answer_fields: ClassVar[frozenset[str]] = frozenset()
    # The address: of the first of these environment variables that is set, or else this one.
    addresses: ClassVar[tuple[str, ...]] = ()
    default: ClassVar[str] = ""
    # The environment variables of a token, or else of a name and a password.
    bearer: ClassVar[str] = ""
    basic: ClassVar[tuple[str, ...]] = ()

    def __init__(self, url: str | None, environment: Mapping[str, str]) -> None:
        """Raises InputError without an address."""
        named = next((environment[name] for name in self.addresses if environment.get(name)), None)
        self.url = (url or named or self.default).rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            names = " or ".join(self.addresses)
            flaw = f"{self.url!r:.80} is not an address" if self.url else "the address is not known"
            raise InputError(
                f"{flaw} (http://… or https://…): set {names}, or write --to {self.name}=URL"
            )
        self._environment = environment

    @property
    def name(self) -> str:
        """Name in `--to`."""
        return type(self).__name__.lower()

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The environment variables of its keys."""
        return tuple(filter(None, (self.bearer, *self.basic)))

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request, with the key if there is one."""
        if token := self._variable(self.bearer):
            return {"Authorization": f"Bearer {token}"}
        pair = list(map(self._variable, self.basic))
        if None in pair or not pair:
            return {}
        credentials = base64.b64encode(":".join(map(str, pair)).encode()).decode()
        return {"Authorization": f"Basic {credentials}"}

    @abstractmethod
    def requests(self, scores: Sequence[Score]) -> Iterator[ScoreRequest]:
        """The requests that write the scores."""

    def unwritable(self, score: Score) -> str | None:
        """Why this place cannot take a score; None if it can."""
        return None

    def rejection(self, request: ScoreRequest, text: str) -> tuple[int, str] | None:
        """Return the number of scores that an answer with 2xx did not take, and why, or a warning.

        None if this is not an answer of the place, but for instance a page to log in.
        """
        try:
            is_empty = "" in self.answer_fields and not text.strip()
            answer = {} if is_empty else value_of(text.encode())
            if isinstance(answer, dict) and (not answer or answer.keys() & self.answer_fields):
                return self._read_rejection(request, answer)
        except DAMAGES:
            pass
        return None

    def _read_rejection(self, request: ScoreRequest, answer: Mapping[str, Any]) -> tuple[int, str]:
        """The same, of an answer with a field of the place; raises one of DAMAGES if damaged."""
        return 0, ""

    def absent(self, request: ScoreRequest, answer: str) -> list[Score]:
        """The scores whose spans are not there, after a 404; all of them if it does not say."""
        return list(request.scores)

    @property
    def secrets(self) -> list[str]:
        """Texts that no message may show."""
        keys = [self._variable(name) or "" for name in self.key_variables]
        return [*keys, *(part for value in self.headers.values() for part in value.split())]

    def _variable(self, name: str) -> str | None:
        return self._environment.get(name) or None


def _batches(scores: Iterable[Score]) -> Iterator[tuple[Score, ...]]:
    """Scores, as many at a time as one request has."""
    waiting = iter(scores)
    while batch := tuple(islice(waiting, _AT_ONCE)):
        yield batch


def _batches_by_level(scores: Iterable[Score]) -> Iterator[tuple[str, tuple[Score, ...]]]:
    """Batches of scores of one level (span, trace or session), each after its level."""
    level_of = attrgetter("level")
    for level, group in groupby(sorted(scores, key=level_of), key=level_of):
        for batch in _batches(group):
            yield level, batch


def _metadata(score: Score) -> dict[str, str]:
    """Metadata that backends have no field for, as texts."""
    facts = {"definition": score.definition, "path": " / ".join(score.path), "error": score.error}
    return {f"dagengine.{name}": text for name, text in facts.items() if text}


def _explanation(score: Score) -> str | None:
    """The reason, or of what has no verdict the error."""
    return score.reason if score.error is None else f"{score.error}: {score.reason or ''}"


class Phoenix(Backend):
    """Arize Phoenix: annotations, which name, span and identifier tell apart."""

    default = "http://localhost:6006"
    addresses = ("PHOENIX_COLLECTOR_ENDPOINT", "PHOENIX_HOST_URL")
    bearer = "PHOENIX_API_KEY"
    answer_fields = frozenset({"data"})

    def requests(self, scores: Sequence[Score]) -> Iterator[ScoreRequest]:
        for level, batch in _batches_by_level(scores):
            data: list[dict[str, Any]] = []
            for score in batch:
                result = {"label": score.label or score.error, "score": score.value}
                result["explanation"] = _explanation(score)
                # One annotation per identifier: a changed metric does not overwrite the old.
                definition = score.definition.removeprefix("sha256:")[:16]
                annotation = {
                    f"{level}_id": score.subject_id,
                    "name": score.name,
                    "annotator_kind": score.source,
                    "result": without_nulls(result),
                    "metadata": _metadata(score),
                    "identifier": f"dagengine:{definition}",
                }
                data.append(annotation)
            yield ScoreRequest("POST", f"/v1/{level}_annotations?sync=true", {"data": data}, batch)

    def _read_rejection(self, request: ScoreRequest, answer: Mapping[str, Any]) -> tuple[int, str]:
        # Every annotation that was written has an id; an empty answer says nothing of them.
        ids = answer.get("data", request.scores)
        return max(0, len(request.scores) - len(ids)), "Phoenix gave no ids for them"

    def absent(self, request: ScoreRequest, answer: str) -> list[Score]:
        """One unknown span refuses the whole batch; the answer names the unknown ones."""
        named = [s for s in request.scores if s.subject_id and s.subject_id in answer]
        return named or super().absent(request, answer)


class Langfuse(Backend):
    """Langfuse: scores, whose own ids tell them apart."""

    addresses = ("LANGFUSE_BASE_URL", "LANGFUSE_HOST")
    basic = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
    answer_fields = frozenset({"id"})

    def requests(self, scores: Sequence[Score]) -> Iterator[ScoreRequest]:
        for score in scores:
            value = score.label or score.error if score.value is None else score.value
            body = {
                "id": score.id,
                "name": score.name,
                "value": value,
                "dataType": "CATEGORICAL" if score.value is None else "NUMERIC",
                "comment": _explanation(score),
                "metadata": _metadata(score),
            }
            if score.trace_id is None:
                body["sessionId"] = score.session_id
            else:
                body |= {"traceId": score.trace_id, "observationId": score.span_id}
            yield ScoreRequest("POST", "/api/public/scores", without_nulls(body), (score,))

    def unwritable(self, score: Score) -> str | None:
        return None if (score.value, score.label, score.error) != (None,) * 3 else "it has no value"


class MLflow(Backend):
    """MLflow 3: assessments of a trace, with ids of our own."""

    default = "http://localhost:5000"
    addresses = ("MLFLOW_TRACKING_URI",)
    bearer = "MLFLOW_TRACKING_TOKEN"
    basic = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    answer_fields = frozenset({"assessment"})

    def requests(self, scores: Sequence[Score]) -> Iterator[ScoreRequest]:
        for score in scores:
            trace = f"tr-{score.trace_id}"
            path = f"/api/3.0/mlflow/traces/{trace}/assessments"
            if score.error is not None:
                message = (score.reason or score.error)[:1000]
                error = {"error_code": score.error.upper(), "error_message": message}
                feedback: dict[str, Any] = {"error": error}
            else:
                feedback = {"value": score.label if score.value is None else score.value}
            change = {
                "assessment_id": f"a-{score.id}",
                "trace_id": trace,
                "feedback": feedback,
                "rationale": score.reason or "",
            }
            assessment = change | {
                "assessment_name": score.name,
                "source": {
                    "source_type": {"LLM": "LLM_JUDGE", "CODE": "CODE"}[score.source],
                    "source_id": "dagengine",
                },
                "metadata": _metadata(score),
            }
            if score.span_id is not None:
                assessment["span_id"] = score.span_id
            # A second POST of one id is an error of the server. So an assessment is changed, and
            # only if it is not there yet, it is posted.
            post = ScoreRequest("POST", path, {"assessment": assessment}, (score,))
            patch = {"assessment": change, "update_mask": "feedback,rationale"}
            yield ScoreRequest("PATCH", f"{path}/a-{score.id}", patch, (score,), post)

    def unwritable(self, score: Score) -> str | None:
        return "MLflow has no scores of sessions" if score.trace_id is None else None


class Opik(Backend):
    """Opik: feedback scores of traces and spans, which their names tell apart."""

    addresses = ("OPIK_URL_OVERRIDE",)
    bearer = "OPIK_API_KEY"
    answer_fields = frozenset({""})

    @property
    def headers(self) -> dict[str, str]:
        pairs = {"authorization": self.bearer, "Comet-Workspace": "OPIK_WORKSPACE"}
        return {name: key for name, source in pairs.items() if (key := self._variable(source))}

    def requests(self, scores: Sequence[Score]) -> Iterator[ScoreRequest]:
        for level, batch in _batches_by_level(scores):
            rows: list[dict[str, Any]] = []
            for score in batch:
                row = {
                    "id": score.subject_id,
                    "name": score.name,
                    "value": score.value,
                    "source": "sdk",
                    "reason": score.reason,
                    "category_name": score.label,
                    "project_name": self._variable("OPIK_PROJECT_NAME"),
                }
                rows.append(without_nulls(row))
            path = f"/v1/private/{level}s/feedback-scores"
            yield ScoreRequest("PUT", path, {"scores": rows}, batch)

    def unwritable(self, score: Score) -> str | None:
        if score.trace_id is None:
            return "Opik has no scores of sessions"
        return "Opik takes numbers only" if score.value is None else None


class Otlp(Backend):
    """Any OTLP receiver: a log record `gen_ai.evaluation.result` in the context of the span.

    Nothing there tells two records apart, so each is written at most once. The statuses that may be
    repeated are those of the specification (https://opentelemetry.io/docs/specs/otlp/).
    """

    repeatable = False
    transient = frozenset({429, 502, 503, 504})
    answer_fields = frozenset({"", "partialSuccess", "partial_success"})
    default = "http://localhost:4318"
    addresses = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    bearer = "OTEL_EXPORTER_OTLP_HEADERS"  # no token alone, but whole headers

    @property
    def headers(self) -> dict[str, str]:
        pairs = (pair.partition("=") for pair in (self._variable(self.bearer) or "").split(","))
        return {name.strip(): unquote(value.strip()) for name, _, value in pairs if name.strip()}

    def requests(self, scores: Sequence[Score]) -> Iterator[ScoreRequest]:
        path = "" if self.url.endswith("/v1/logs") else "/v1/logs"
        for batch in _batches(scores):
            records = [self._record(score, time.time_ns()) for score in batch]
            scope = {"scope": {"name": "dagengine"}, "logRecords": records}
            resource = {"attributes": _pairs({"service.name": "dagengine"})}
            body = {"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}
            yield ScoreRequest("POST", path, body, batch)

    def _read_rejection(self, request: ScoreRequest, answer: Mapping[str, Any]) -> tuple[int, str]:
        partial = answer.get("partialSuccess", answer.get("partial_success")) or {}
        rejected, count = 0, len(request.scores)
        for name, number in partial.items():
            if name.startswith("rejected") and number is not None:
                rejected += int(str(number))  # a text, as JSON of protobuf; and no other number
        if not 0 <= rejected <= count:
            raise ValueError(f"{rejected} of {count} records rejected")
        why = partial.get("errorMessage") or partial.get("error_message")
        if not rejected:
            return 0, str(why or "")
        return rejected, f"{rejected} of {counted(count, 'record')} of one request rejected: {why}"

    def _record(self, score: Score, now: int) -> dict[str, Any]:
        attributes = {
            "gen_ai.evaluation.name": score.name,
            "gen_ai.evaluation.score.value": score.value,
            "gen_ai.evaluation.score.label": score.label,
            "gen_ai.evaluation.explanation": score.reason,
            "error.type": score.error,
            "session.id": score.session_id,
            "dagengine.definition": score.definition,
            "dagengine.path": list(score.path) or None,
            "dagengine.score.max": None if score.value is None else 1.0,
        }
        record = {
            "timeUnixNano": str(now),
            "observedTimeUnixNano": str(now),
            "eventName": "gen_ai.evaluation.result",
            "attributes": _pairs(attributes),
            "traceId": score.trace_id,
            "spanId": score.span_id,
        }
        return without_nulls(record)


def _pairs(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP writes them."""
    pairs = without_nulls(values).items()
    return [{"key": key, "value": _typed_value(value)} for key, value in pairs]


def _typed_value(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": list(map(_typed_value, value))}}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}


BACKENDS: dict[str, type[Backend]] = {
    kind.__name__.lower(): kind for kind in (Otlp, Phoenix, Langfuse, MLflow, Opik)
}


def backend_of(text: str, environment: Mapping[str, str]) -> Backend:
    """The place that `--to` names, `KIND` or `KIND=URL`; raises InputError for an unknown one."""
    name, _, url = text.partition("=")
    kind = BACKENDS.get(name.lower())
    if kind is None:
        hint = near_hint(name, BACKENDS)
        raise InputError(f"--to takes {', '.join(BACKENDS)}, not {name!r:.40}{hint}")
    return kind(url or None, environment)
