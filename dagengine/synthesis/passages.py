"""Material for goldens: documents are read and cut into passages, and passages become contexts."""

from __future__ import annotations

import itertools
import logging
import math
import re
import zipfile
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from dagengine.errors import InputError, MissingExtraError, load_extra
from dagengine.synthesis.near_duplicates import NearDuplicates, words_in
from dagengine.synthesis.quotas import Context, random_by
from dagengine.synthesis.synthesis_types import (
    ContextConstructionConfig,
    Document,
    Passage,
    Report,
    Section,
    Unreadable,
)
from dagengine.system.safe_files import require_regular
from dagengine.system.terminal_text import text_if

_REPEATED = "they repeat others"
_CHARACTERS = 4  # of a token, about
_LEADERS = 4  # dots between a title and its page, at least
_LISTED = 5  # titles with pages in order that make a table of contents, at least
_LONGEST = 40  # letters of a word; encoded data has longer runs
_LINK = re.compile(r"(?:[-*+] |\d{1,3}[.)] )?\[[^\]]*\]\([^)]*\)")
_PAGE = re.compile(r"[^\W\d].{0,120}?\s(\d{1,4})")
_TELLING = 24  # words of a passage, the rarest, by which its neighbours are found
_NEAREST = 32  # passages with such a word that are looked at
_HEADING = re.compile(r"#{1,6}\s")
_FENCES = ("```", "~~~")
_CONVERTERS = {
    ".docx": "DocxConverter",
    ".pptx": "PptxConverter",
    ".xlsx": "XlsxConverter",
    ".epub": "EpubConverter",
}
_CONVERTED = (*_CONVERTERS, ".html", ".htm")
_MARKED = (".md", ".markdown")
_TEXT = (".txt", ".text", ".rst", ".csv", ".json")
SUFFIXES = (*_TEXT, *_MARKED, ".pdf", *_CONVERTED)
_UNPACKED = 200_000_000  # bytes of what an archive unpacks to
ReadResult = Document | Unreadable


class NoTextError(InputError):
    """Raised when no document contains a text to ask about; `report` says why, for each."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__("\n".join(["no document holds a text to ask about", *report.lines()[1:]]))


@dataclass(slots=True)
class Sources:
    """The contexts of a run, and a report on what was left out."""

    contexts: list[Context]
    report: Report


def document_sources(documents: Iterable[Any], config: ContextConstructionConfig | None) -> Sources:
    """The passages of documents as contexts, without poor ones and near duplicates.

    Raises NoTextError when no document contains a text, and what `read_documents` raises.
    """
    config, report = config or ContextConstructionConfig(), Report()
    passages: list[Passage] = []
    for document in read_documents(documents):
        if isinstance(document, Document):
            passages += passages_of(document, config)
            if document.remark:
                report.partial.append(f"{document.name}: {document.remark}")
        else:
            report.unreadable.append(document)
    report.passages = len(passages)
    seen, distinct = NearDuplicates(), list[Passage]()
    for passage in passages:
        why = flaw(passage.text) or (None if seen.is_new(passage.text) else _REPEATED)
        if why is None:
            distinct.append(passage)
        else:
            report.poor[why] = report.poor.get(why, 0) + 1
    chosen_passages = _limit(distinct, config)
    if not chosen_passages:
        raise NoTextError(report)
    neighbours = Neighbours(chosen_passages)
    contexts: list[Context] = []
    for passage in chosen_passages:
        # Some questions need two passages. One without a neighbour is not used for these.
        neighbour = neighbours.of(passage)
        wider = () if neighbour is None else (passage, neighbour)
        contexts.append(Context(passage.document, (passage,), wider))
    return Sources(contexts, report)


def _limit(passages: list[Passage], config: ContextConstructionConfig) -> list[Passage]:
    """A random sample of the passages of each document, in order; the same in every run."""
    most = config.max_contexts_per_document
    if most is None:
        return passages
    kept: list[Passage] = []
    for name, passages_of_one in itertools.groupby(passages, attrgetter("document")):
        group = list(passages_of_one)
        indices = random_by(name or "").sample(range(len(group)), min(most, len(group)))
        kept += map(group.__getitem__, sorted(indices))
    return kept


def text_sources(contexts: Iterable[Sequence[str]], source_files: Sequence[str] | None) -> Sources:
    """The caller's own contexts, each a list of texts; raises InputError for anything else."""
    if not is_list_like(contexts):
        raise InputError(f"contexts must be lists of texts, got {contexts!r:.60}")
    lists = list(contexts)
    if not lists:
        raise InputError("contexts must have at least one list of texts")
    names: Sequence[str | None] = source_files or [None] * len(lists)
    if len(names) != len(lists):
        raise InputError(f"{len(lists)} contexts need as many source_files, got {len(names)}")
    made: list[Context] = []
    for number, (texts, name) in enumerate(zip(lists, names, strict=True), 1):
        if not (is_list_like(texts) and all(isinstance(text, str) for text in texts)):
            raise InputError(f"context {number} must be a list of texts, got {texts!r:.60}")
        passages = tuple(Passage(text, name) for text in filter(str.strip, texts))
        if not passages:
            raise InputError(f"context {number} holds no text")
        source = name or f"context {number}"
        made.append(Context(source, passages, passages if len(passages) > 1 else ()))
    return Sources(made, Report(passages=sum(len(context.passages) for context in made)))


def is_list_like(value: Any) -> bool:
    """Return whether a value has items; a text is no list of its characters."""
    return isinstance(value, Iterable) and not isinstance(value, str)


def passages_of(document: Document, config: ContextConstructionConfig) -> list[Passage]:
    """The passages of a document, in its order; none goes beyond a heading or a page."""
    make = load_extra("semchunk", "documents need", "documents").chunkerify
    # Tokens are estimated by characters (rounded up), so no tokenizer has to be loaded.
    cut = make(lambda text: -(-len(text) // _CHARACTERS), config.chunk_size, memoize=False)
    # With a larger overlap, chunks hardly advance, and cutting would not end.
    overlap = min(config.chunk_overlap, config.chunk_size // 2) or None
    passages: list[Passage] = []
    for section in document.sections:
        texts, offsets = cut(section.text, offsets=True, overlap=overlap)
        for text, (start, _) in zip(texts, offsets, strict=True):
            passage = text.strip()
            if passage:
                offset = section.offset + start + len(text) - len(text.lstrip())
                passages.append(Passage(passage, document.name, section.page, offset))
    return passages


def flaw(text: str) -> str | None:
    """The reason why nothing can be asked about a passage, for the report; None for a text.

    It has to hold in all languages. So it finds only tables of contents, headings without a text,
    and passages with hardly a letter or hardly a word.
    """
    lines = list(filter(None, map(str.strip, text.splitlines())))
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
    """Return whether lines are a table of contents: links, dots with a page, or ascending pages."""
    titles = 0
    for line in lines:
        title = line.rstrip("0123456789")
        ending = "".join(title.rstrip()[-_LEADERS * 2 :].split())
        has_page = title != line and ending.endswith("." * _LEADERS)
        titles += has_page or bool(_LINK.fullmatch(line))
    if titles * 2 > len(lines):
        return True
    # Titles without dots: behind the first line, each has a page, and no page is less than before.
    matches = list(map(_PAGE.fullmatch, lines[1:]))
    pages = [int(match[1]) for match in matches if match]
    return len(pages) == len(matches) >= _LISTED and pages == sorted(pages)


class Neighbours:
    """Finds for a passage the other one that shares most of its rarest words.

    The time is linear in the number of passages: of those that share a word, only the nearest in
    order are looked at. Words weigh as in BM25 (Robertson and Zaragoza 2009,
    https://doi.org/10.1561/1500000019).
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = passages
        self._numbers = dict(zip(passages, itertools.count(), strict=False))
        vocabulary: dict[str, int] = {}  # words get numbers in the order in which texts have them
        self._words: list[array[int]] = []  # of each passage
        self._passages_with: list[array[int]] = []  # of each word, ascending
        for index, passage in enumerate(passages):
            self._words.append(array("L"))
            for text in dict.fromkeys(words_in(passage.text)):
                word = vocabulary.setdefault(text, len(vocabulary))
                if word == len(self._passages_with):
                    self._passages_with.append(array("L"))
                self._passages_with[word].append(index)
                self._words[-1].append(word)

    def of(self, passage: Passage) -> Passage | None:
        """The nearest other passage; None when no other shares a word."""
        index = self._numbers[passage]
        shared = [word for word in self._words[index] if len(self._passages_with[word]) > 1]
        shared.sort(key=lambda word: (len(self._passages_with[word]), word))
        scores: dict[int, float] = {}
        for word in shared[:_TELLING]:
            passages = self._passages_with[word]
            # The inverse document frequency of BM25: a word of few passages says most.
            count = len(passages)
            weight = math.log1p((len(self._passages) - count + 0.5) / (count + 0.5))
            start = max(0, bisect_left(passages, index) - _NEAREST // 2)
            for neighbour in passages[start : start + _NEAREST + 1]:
                scores[neighbour] = scores.get(neighbour, 0.0) + weight
        scores.pop(index, None)
        if not scores:
            return None
        best = min(scores, key=lambda near: (-scores[near], abs(near - index), near))
        return self._passages[best]


def read_documents(sources: Any) -> list[ReadResult]:
    """Read files and folders, and objects of other libraries; documents of objects come last.

    Objects are known by their attributes: `page_content` and `metadata` (LangChain), `text` or
    `get_content()` and `metadata` (LlamaIndex). Several pages of one source are one document. A
    document without text is `Unreadable`, with the cause. Raises InputError, before any is read,
    for a file that is not there or of an unknown kind. Raises MissingExtraError if a package for
    its kind is missing.
    """
    # One path is taken as a list of it: as an iterable it would give its characters.
    listed = [sources] if isinstance(sources, str | Path) else sources
    if not isinstance(listed, Iterable):
        raise InputError(f"documents must be a list of paths or objects, got {sources!r:.60}")
    if not (listed := list(listed)):
        raise InputError("there is no document: the list is empty")
    files = [_files(source) if isinstance(source, str | Path) else None for source in listed]
    documents: list[ReadResult] = []
    pages: dict[str, list[tuple[str, int | None]]] = {}
    for source, paths in zip(listed, files, strict=True):
        if paths is not None:
            documents += map(_read, paths, itertools.repeat(Path(source).is_dir()))
        else:
            name, text, page = _page(source, len(pages))
            pages.setdefault(name, []).append((text, page))
    for name, parts in pages.items():
        documents.append(_document(name, _page_sections(parts)))
    # Quotas and provenance refer to documents by name.
    (name, count), *_ = Counter(document.name for document in documents).most_common(1) or [("", 0)]
    if count > 1:
        raise InputError(f"two documents are called {name!r}: give each its own name")
    return documents


def _files(source: str | Path) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = sorted(
            file
            for file in path.rglob("*")
            if file.suffix.lower() in SUFFIXES and (file.is_symlink() or not file.is_dir())
        )
        if not files:
            raise InputError(f"the folder {path} has no document ({', '.join(SUFFIXES)})")
        return files
    if not path.is_file():
        raise InputError(f"there is no document {path}")
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: documents are {', '.join(SUFFIXES)}, not {path.suffix!r}")
    return [path]


def _read(path: Path, of_folder: bool) -> ReadResult:
    """Read a file; of a folder, whose files nobody named, only a regular one: no link, no pipe."""
    suffix, name = path.suffix.lower(), str(path)
    if of_folder:
        try:
            require_regular(path)
        except InputError as error:
            return Unreadable(name, "broken", f"it is not read: {error}")
    if not path.stat().st_size:
        return Unreadable(name, "empty", "the file is empty")
    if suffix == ".pdf":
        return _pdf(path)
    if suffix in _CONVERTED:
        return _convert(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Unreadable(name, "broken", f"it is not UTF-8 text (byte {error.start:,})")
    return _document(name, _heading_sections(text) if suffix in _MARKED else [Section(text, 0)])


def _pdf(path: Path) -> ReadResult:
    pypdf = load_extra("pypdf", f"{path} needs", "documents")
    # The parser's log shall not reach the terminal: the report says what is wrong.
    logging.getLogger("pypdf").addHandler(logging.NullHandler())
    name = str(path)
    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            return Unreadable(name, "encrypted", "it is encrypted and needs a password")
        pages = [(page.extract_text(), number) for number, page in enumerate(reader.pages, 1)]
    except pypdf.errors.DependencyError as error:
        return Unreadable(name, "encrypted", f"it is encrypted ({error})")
    except Exception as error:  # noqa: BLE001 - the parser meets any bytes
        return Unreadable(name, "broken", f"it is not a readable PDF ({error})")
    blank = sum(not text.strip() for text, _ in pages)
    if blank == len(pages):
        has = "its only page has" if blank == 1 else f"its {blank} pages have"
        return Unreadable(name, "scanned", f"{has} no text, only pictures")
    remark = text_if(blank, f"{blank} of its {len(pages)} pages have no text")
    return _document(name, _page_sections(pages), remark)


def _convert(path: Path) -> ReadResult:
    markitdown = load_extra("markitdown", f"{path} needs", "documents")
    suffix = path.suffix.lower()
    if suffix in _CONVERTERS:
        if not zipfile.is_zipfile(path):
            return Unreadable(str(path), "broken", f"it is no {suffix} file: no zip archive")
        unpacked = _unpacked_size(path)
        if unpacked > _UNPACKED:
            sizes = f"{unpacked / 1e6:,.0f} MB, and at most {_UNPACKED / 1e6:,.0f} MB are read"
            return Unreadable(str(path), "broken", f"it unpacks to {sizes}; split it")
    # The converter itself, and not `MarkItDown`. That takes a broken file, or one whose parser is
    # not installed, for a plain archive, and gives the list of its files as the text.
    converter = getattr(markitdown.converters, _CONVERTERS.get(suffix, "HtmlConverter"))()
    try:
        with path.open("rb") as file:
            text = converter.convert(file, markitdown.StreamInfo(extension=suffix)).markdown
    except markitdown.MissingDependencyException:
        package = f"markitdown[{suffix[1:]}]"
        raise MissingExtraError(f"{path} needs {package}: pip install '{package}'") from None
    except Exception as error:  # noqa: BLE001 - the parsers meet any bytes
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Unreadable(str(path), "broken", f"it is no {suffix} that can be read ({why})")
    return _document(str(path), _heading_sections(text))


def _unpacked_size(path: Path) -> int:
    """The bytes that an archive says it unpacks to; no reader takes more out of it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(part.file_size for part in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile):  # the converter says what is wrong
        return 0


def _heading_sections(text: str) -> list[Section]:
    """The sections of a Markdown text, each from a heading on; in a code block a # is none."""
    starts, fence, offset = [0], "", 0
    for line in text.split("\n"):
        mark = line[:3]
        if fence:
            fence = "" if mark == fence else fence
        elif mark in _FENCES:
            fence = mark
        elif offset and _HEADING.match(line):
            starts.append(offset)
        offset += len(line) + 1
    return [Section(text[a:b], a) for a, b in itertools.pairwise([*starts, len(text)]) if a < b]


def _page_sections(pages: Sequence[tuple[str, int | None]]) -> list[Section]:
    """A section for each page, with offsets as if a line break were between pages."""
    sections, offset = list[Section](), 0
    shift = int(any(page == 0 for _, page in pages))  # to count from 1; LangChain counts from 0
    for text, page in pages:
        sections.append(Section(text, offset, None if page is None else page + shift))
        offset += len(text) + 1
    return sections


def _document(name: str, sections: Iterable[Section], remark: str = "") -> ReadResult:
    texts = tuple(section for section in sections if section.text.strip())
    return Document(name, texts, remark) if texts else Unreadable(name, "empty", "it has no text")


def _page(source: Any, number: int) -> tuple[str, str, int | None]:
    """Name, text and page of a document object; raises InputError for anything else."""
    content: Any = getattr(source, "page_content", None)
    if content is None:
        get: Callable[[], Any] | None = getattr(source, "get_content", None)
        content = get() if callable(get) else getattr(source, "text", None)
    if not isinstance(content, str):
        raise InputError(
            f"{source!r:.60} is not a document: give a path, or an object with `page_content` "
            "or `text`"
        )
    metadata = getattr(source, "metadata", None)
    fields = metadata if isinstance(metadata, dict) else {}
    names: Iterator[Any] = (fields.get(key) for key in ("source", "file_path", "file_name"))
    name = next((str(label) for label in names if label), f"document {number + 1}")
    page = fields.get("page", fields.get("page_label"))
    if isinstance(page, str) and page.isdecimal():
        page = int(page)
    return name, content, page if isinstance(page, int) and not isinstance(page, bool) else None
