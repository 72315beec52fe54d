"""Documents as text: files of many kinds, and the document objects of other libraries."""

from __future__ import annotations

import itertools
import logging
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dagengine.errors import InputError, MissingExtraError, load_extra
from dagengine.synthesis.values import Document, Section, Unreadable
from dagengine.system.regular_files import require_regular

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
Read = Document | Unreadable


def read_documents(sources: Iterable[Any]) -> list[Read]:
    """Documents in their order: files, folders, and objects of other libraries.

    Objects are taken by their shape: `page_content` and `metadata` (LangChain), `text` or
    `get_content()` and `metadata` (LlamaIndex). Several pages of one source are one document. A
    document without text is `Unreadable`, with the cause. Raises InputError, before any is read,
    for a file that is not there or of an unknown kind. Raises MissingExtraError if a package for
    its kind is missing.
    """
    listed = _source_list(sources)
    files = [_files(source) if isinstance(source, str | Path) else source for source in listed]
    documents: list[Read] = []
    pages: dict[str, list[tuple[str, int | None]]] = {}
    for origin, source in zip(listed, files, strict=True):
        if isinstance(source, list):
            documents += map(_read_in_folder if Path(origin).is_dir() else _read, source)
        else:
            name, text, page = _page(source, len(pages))
            pages.setdefault(name, []).append((text, page))
    for name, parts in pages.items():
        if any(page == 0 for _, page in parts):  # LangChain's begin with 0
            parts = [(text, None if page is None else page + 1) for text, page in parts]
        documents.append(_document(name, _in_a_row(parts)))
    # Quotas and provenance call documents by their names.
    (name, count), *_ = Counter(document.name for document in documents).most_common(1) or [("", 0)]
    if count > 1:
        raise InputError(f"two documents are called {name!r}: give each its own name")
    return documents


def _source_list(sources: Any) -> list[Any]:
    # One path may stand for a list of it; a text is iterable, too, but by its characters.
    if isinstance(sources, str | Path):
        return [sources]
    if not isinstance(sources, Iterable):
        raise InputError(f"documents must be a list of paths or objects, got {sources!r:.60}")
    listed = list(sources)
    if not listed:
        raise InputError("there is no document: the list is empty")
    return listed


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


def _read_in_folder(path: Path) -> Read:
    """A file of a folder: nobody named it, so it is read only if it is in the folder itself."""
    try:
        require_regular(path)
    except InputError as error:
        return Unreadable(str(path), "broken", f"it is not read: {error}")
    return _read(path)


def _read(path: Path) -> Read:
    suffix, name = path.suffix.lower(), str(path)
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
    return _document(name, _split(text) if suffix in _MARKED else [Section(text, 0)])


def _pdf(path: Path) -> Read:
    load_extra("pypdf", f"{path} needs", "documents")
    import pypdf
    from pypdf.errors import DependencyError

    # What the parser remarks on broken files is in the report.
    logging.getLogger("pypdf").addHandler(logging.NullHandler())
    name = str(path)
    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            return Unreadable(name, "encrypted", "it is encrypted and needs a password")
        pages = [(page.extract_text(), number) for number, page in enumerate(reader.pages, 1)]
    except DependencyError as error:
        return Unreadable(name, "encrypted", f"it is encrypted ({error})")
    except Exception as error:  # noqa: BLE001 - the parser meets any bytes
        return Unreadable(name, "broken", f"it is not a readable PDF ({error})")
    blank = sum(not text.strip() for text, _ in pages)
    if blank == len(pages):
        has = "its only page has" if blank == 1 else f"its {blank} pages have"
        return Unreadable(name, "scanned", f"{has} no text, only pictures")
    remark = f"{blank} of its {len(pages)} pages have no text" if blank else ""
    return _document(name, _in_a_row(pages), remark)


def _convert(path: Path) -> Read:
    load_extra("markitdown", f"{path} needs", "documents")
    import markitdown
    from markitdown import converters

    suffix = path.suffix.lower()
    if suffix in _CONVERTERS:
        if not zipfile.is_zipfile(path):
            return Unreadable(str(path), "broken", f"it is no {suffix} file: no zip archive")
        unpacked = _unpacked_size(path)
        if unpacked > _UNPACKED:
            sizes = f"{unpacked / 1e6:,.0f} MB, and at most {_UNPACKED / 1e6:,.0f} MB are read"
            return Unreadable(str(path), "broken", f"it unpacks to {sizes}; split it")
    # One converter, and not the whole of `MarkItDown`. That takes a broken file, or one whose
    # parser is not installed, for a plain archive, and the listing would pass as the text.
    convert: Any = vars(converters)[_CONVERTERS.get(suffix, "HtmlConverter")]()
    try:
        with path.open("rb") as file:
            text = convert.convert(file, markitdown.StreamInfo(extension=suffix)).markdown
    except markitdown.MissingDependencyException:
        package = f"markitdown[{suffix[1:]}]"
        raise MissingExtraError(f"{path} needs {package}: pip install '{package}'") from None
    except Exception as error:  # noqa: BLE001 - the parsers meet any bytes
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Unreadable(str(path), "broken", f"it is no {suffix} that can be read ({why})")
    return _document(str(path), _split(text))


def _unpacked_size(path: Path) -> int:
    """The bytes that an archive says it unpacks to; no reader takes more out of it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(part.file_size for part in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile):  # its reader says what is wrong
        return 0


def _split(text: str) -> list[Section]:
    """Parts of a Markdown text, each from its heading on; a # inside a code block is none."""
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


def _in_a_row(pages: Iterable[tuple[str, int | None]]) -> list[Section]:
    """Pages one after another, a line apart."""
    sections, offset = list[Section](), 0
    for text, page in pages:
        sections.append(Section(text, offset, page))
        offset += len(text) + 1
    return sections


def _document(name: str, sections: Iterable[Section], remark: str = "") -> Read:
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
