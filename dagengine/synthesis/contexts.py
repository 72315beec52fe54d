"""What there is to ask about: documents and texts as contexts, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from dagengine.errors import InputError
from dagengine.synthesis.documents import read_documents
from dagengine.synthesis.likeness import NearDuplicates
from dagengine.synthesis.passages import Neighbours, flaw, passages_of
from dagengine.synthesis.quotas import Context
from dagengine.synthesis.values import ContextConstructionConfig, Document, Passage, Report

_REPEATED = "they repeat others"


class NoTextError(InputError):
    """Raised when no document holds a text to ask about; `report` says of each why."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__("\n".join(["no document holds a text to ask about", *report.lines()[1:]]))


@dataclass(slots=True)
class Sources:
    """The contexts of a run, and a report that tells what gave none."""

    contexts: list[Context]
    report: Report


def document_sources(documents: Iterable[Any], config: ContextConstructionConfig | None) -> Sources:
    """The passages of documents as contexts, without poor ones and near duplicates.

    Raises NoTextError when no document holds a text, and what `read_documents` raises.
    """
    config, report = config or ContextConstructionConfig(), Report()
    passages: list[Passage] = []
    for document in read_documents(documents):
        if isinstance(document, Document):
            passages += passages_of(document, config)
            report.partial += [f"{document.name}: {document.remark}"] if document.remark else []
        else:
            report.unreadable.append(document)
    report.passages = len(passages)
    new, distinct = NearDuplicates(), list[Passage]()
    for passage in passages:
        why = flaw(passage.text) or (None if new.is_new(passage.text) else _REPEATED)
        if why is None:
            distinct.append(passage)
        else:
            report.poor[why] = report.poor.get(why, 0) + 1
    chosen_passages = _limit(distinct, config)
    if not chosen_passages:
        raise NoTextError(report)
    near = Neighbours(chosen_passages)
    contexts: list[Context] = []
    for passage in chosen_passages:
        # A passage without a neighbour cannot be asked about together with another one.
        neighbour = near.of(passage)
        wider = () if neighbour is None else (passage, neighbour)
        contexts.append(Context(passage.document, (passage,), wider))
    return Sources(contexts, report)


def _limit(passages: list[Passage], config: ContextConstructionConfig) -> list[Passage]:
    """At most so many passages of each document, spread over it, always the same."""
    most = config.max_contexts_per_document
    if most is None:
        return passages
    mine: dict[str | None, list[Passage]] = {}
    for passage in passages:
        mine.setdefault(passage.document, []).append(passage)
    kept: list[Passage] = []
    for name, group in mine.items():
        # A name that is not UTF-8 cannot be the seed of a generator, except for its quoted form.
        random = Random((name or "").encode(errors="backslashreplace").decode())
        indices = random.sample(range(len(group)), min(most, len(group)))
        kept += [group[index] for index in sorted(indices)]
    return kept


def contexts_of(contexts: Iterable[Sequence[str]], source_files: Sequence[str] | None) -> Sources:
    """Contexts that a caller gives, each a list of texts; raises InputError for anything else."""
    if not _is_listed(contexts):
        raise InputError(f"contexts must be lists of texts, got {contexts!r:.60}")
    lists = list(contexts)
    if not lists:
        raise InputError("contexts must have at least one list of texts")
    names: Sequence[str | None] = source_files or [None] * len(lists)
    if len(names) != len(lists):
        raise InputError(f"{len(lists)} contexts need as many source_files, got {len(names)}")
    made: list[Context] = []
    for number, (texts, name) in enumerate(zip(lists, names, strict=True), 1):
        if not (_is_listed(texts) and all(isinstance(text, str) for text in texts)):
            raise InputError(f"context {number} must be a list of texts, got {texts!r:.60}")
        passages = tuple(Passage(text, name) for text in texts if text.strip())
        if not passages:
            raise InputError(f"context {number} holds no text")
        source = name or f"context {number}"
        made.append(Context(source, passages, passages if len(passages) > 1 else ()))
    return Sources(made, Report(passages=sum(len(context.passages) for context in made)))


def _is_listed(value: Any) -> bool:
    """Return whether it has items; a text is no list of its characters."""
    return isinstance(value, Iterable) and not isinstance(value, str)
