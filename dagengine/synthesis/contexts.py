"""What there is to ask about: documents cut into passages, contexts, and what was left out."""

from __future__ import annotations

import itertools
import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from dagengine.errors import InputError, load_extra
from dagengine.synthesis.documents import read_documents
from dagengine.synthesis.likeness import NearDuplicates, words_in
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


_CHARACTERS = 4  # of a token, about
_LEADERS = 4  # dots in a row that lead to a page
_LISTED = 5  # titles with pages that are more than an accident
_LONGEST = 40  # letters of a word; encoded data has longer runs
_LINK = re.compile(r"(?:[-*+] |\d{1,3}[.)] )?\[[^\]]*\]\([^)]*\)")
_PAGE = re.compile(r"[^\W\d].{0,120}?\s(\d{1,4})")
# Words of a passage that look for its neighbours (the rarest tell most), and passages of a word.
_TELLING, _NEAREST = 24, 32


def passages_of(document: Document, config: ContextConstructionConfig) -> list[Passage]:
    """The passages of a document, in its order; none goes beyond a heading or a page."""
    make = load_extra("semchunk", "documents need", "documents").chunkerify
    # Tokens are counted as so many characters each, so no tokenizer has to be loaded.
    cut = make(lambda text: -(-len(text) // _CHARACTERS), config.chunk_size, memoize=False)
    passages: list[Passage] = []
    for section in document.sections:
        # A text that is cut in halves that overlap by more than half never ends.
        overlap = min(config.chunk_overlap, config.chunk_size // 2) or None
        texts, offsets = cut(section.text, offsets=True, overlap=overlap)
        for text, (start, _) in zip(texts, offsets, strict=True):
            passage = text.strip()
            if passage:
                offset = section.offset + start + len(text) - len(text.lstrip())
                passages.append(Passage(passage, document.name, section.page, offset))
    return passages


def flaw(text: str) -> str | None:
    """Why nothing can be asked about a passage; None when it may be a text.

    Careful with languages: only what is a table of contents, a heading without a text, or
    holds hardly a letter or hardly a word.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 2 and _lists_titles(lines):
        return "tables of contents"
    if all(line.startswith("#") for line in lines):
        return "headings without a text"
    signs = "".join(text.split())
    if sum(map(str.isalpha, signs)) * 3 < len(signs):
        return "hardly a letter in them"
    words = words_in(text)
    if sum(len(word) for word in words if len(word) > _LONGEST) * 2 > sum(map(len, words)):
        return "hardly a word in them"
    return None


def _lists_titles(lines: Sequence[str]) -> bool:
    """Return whether lines are titles with dots and a page, or with only a link.

    Or titles whose pages never fall behind a first line.
    """
    leads = 0
    for line in lines:
        title = line.rstrip("0123456789")
        ending = "".join(title.rstrip()[-_LEADERS * 2 :].split())
        has_page = title != line and ending.endswith("." * _LEADERS)
        leads += has_page or bool(_LINK.fullmatch(line))
    if leads * 2 > len(lines):
        return True
    matches = list(map(_PAGE.fullmatch, lines[1:]))
    pages = [int(match[1]) for match in matches if match]
    return len(pages) == len(matches) >= _LISTED and pages == sorted(pages)


class Neighbours:
    """For a passage the other one that shares most of its telling words, the rarest ones.

    Linear in the number of passages: of a word that many share, only those that stand nearest
    are looked at. Words weigh as in BM25 (Robertson and Zaragoza 2009,
    https://doi.org/10.1561/1500000019).
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = passages
        self._numbers = dict(zip(passages, itertools.count(), strict=False))
        vocabulary: dict[str, int] = {}  # numbers, in the order of the texts: sets have none
        self._words: list[array[int]] = []  # of each passage
        self._places: list[array[int]] = []  # of each word
        for index, passage in enumerate(passages):
            self._words.append(array("L"))
            for word in dict.fromkeys(words_in(passage.text)):
                number = vocabulary.setdefault(word, len(vocabulary))
                if number == len(self._places):
                    self._places.append(array("L"))
                self._places[number].append(index)
                self._words[-1].append(number)

    def of(self, passage: Passage) -> Passage | None:
        """The nearest other passage; None when no other shares a word."""
        index = self._numbers[passage]
        shared = [word for word in self._words[index] if len(self._places[word]) > 1]
        telling = sorted(shared, key=lambda word: (len(self._places[word]), word))[:_TELLING]
        scores: dict[int, float] = {}
        for word in telling:
            offsets = self._places[word]
            # The inverse document frequency of BM25: a word of few passages says most.
            count = len(offsets)
            weight = math.log1p((len(self._passages) - count + 0.5) / (count + 0.5))
            start = max(0, bisect_left(offsets, index) - _NEAREST // 2)
            for neighbour in offsets[start : start + _NEAREST + 1]:
                scores[neighbour] = scores.get(neighbour, 0.0) + weight
        scores.pop(index, None)
        if not scores:
            return None
        best = min(
            scores, key=lambda neighbour: (-scores[neighbour], abs(neighbour - index), neighbour)
        )
        return self._passages[best]
