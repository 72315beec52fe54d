"""Documents become passages: none goes beyond a heading or a page, and each knows its place."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import markitdown
import pypdf
import pytest
from folders.documents import write_docx, write_pdf
from hypothesis import given
from hypothesis import strategies as st
from markitdown import converters

from dagengine.errors import InputError, MissingExtraError
from dagengine.synthesis.near_duplicates import Directions, GoldenTexts, NearDuplicates
from dagengine.synthesis.passages import (
    Neighbours,
    _heading_sections,
    document_sources,
    flaw,
    passages_of,
    read_documents,
)
from dagengine.synthesis.synthesis_types import (
    ContextConstructionConfig,
    Document,
    Passage,
    Section,
    Unreadable,
)

SMALL = ContextConstructionConfig(chunk_size=16, chunk_overlap=4)
LONG = "The desk answers every letter within two days. " * 6


def text_of(document: Document, passage: Passage) -> str:
    """The text where a passage says that it stands."""
    assert passage.offset is not None
    whole = ""
    for section in document.sections:
        whole = whole.ljust(section.offset) + section.text
    return whole[passage.offset : passage.offset + len(passage.text)]


def only(found: list[Any]) -> Document:
    (document,) = found
    assert isinstance(document, Document)
    return document


def test_no_passage_goes_beyond_a_heading_and_each_says_where_it_stands(tmp_path: Path) -> None:
    text = f"Before.\n\n# One\n\n{LONG}\n\n```\n# no heading\n```\n\n## Two\n\n{LONG}"
    path = tmp_path / "a.md"
    path.write_text(text)
    document = only(read_documents([path]))
    assert [section.text[:5] for section in document.sections] == ["Befor", "# One", "## Tw"]
    passages = passages_of(document, SMALL)
    assert len(passages) > 10
    for passage in passages:
        assert text_of(document, passage) == passage.text
        assert passage.text.count("# One") + passage.text.count("## Two") < 2
    assert len(passages_of(document, ContextConstructionConfig())) == 3


def test_pages_of_a_pdf_keep_their_numbers(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["Refunds take 14 days.", "", "Parcels leave on Mondays."])
    document = only(read_documents([path]))
    found = [(one.page, one.text) for one in passages_of(document, ContextConstructionConfig())]
    assert found == [(1, "Refunds take 14 days."), (3, "Parcels leave on Mondays.")]


def test_a_word_document_and_a_page_of_the_web_are_texts(tmp_path: Path) -> None:
    word = write_docx(tmp_path / "a.docx", ["Refunds take 14 days.", "The desk is in Bern."])
    web = tmp_path / "b.html"
    web.write_text("<h1>Desk</h1><p>It is in Bern.</p><h2>Hours</h2><p>From nine.</p>")
    first, second = read_documents([word, web])
    assert isinstance(first, Document)
    assert isinstance(second, Document)
    assert "Refunds take 14 days." in first.sections[0].text
    assert [section.text.split()[0] for section in second.sections] == ["#", "##"]


def test_documents_that_give_no_text_say_why(tmp_path: Path) -> None:
    def file(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    def archive(name: str) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w") as zipped:
            zipped.writestr("notes.txt", "A zip archive, and no document.")
        return tmp_path / name

    plain = write_pdf(tmp_path / "plain.pdf", ["Secret."])
    writer = pypdf.PdfWriter(clone_from=plain)
    writer.encrypt("password", algorithm="RC4-128")
    writer.write(tmp_path / "locked.pdf")
    given = {
        file("empty.txt", b""): "empty",
        file("blank.md", b" \n \n"): "empty",
        file("latin.txt", "süß".encode("latin-1")): "broken",
        file("broken.pdf", b"%PDF-1.4\nnothing more"): "broken",
        file("broken.docx", b"PK\x03\x04 no zip"): "broken",
        archive("letter.docx"): "broken",
        archive("book.epub"): "broken",
        write_pdf(tmp_path / "scanned.pdf", ["", ""]): "scanned",
        tmp_path / "locked.pdf": "encrypted",
    }
    found = read_documents(given)
    causes = [one.cause for one in found if not isinstance(one, Document)]
    assert causes == list(given.values())
    with pytest.raises(InputError, match=r"no document holds a text(.|\n)*needs a password"):
        document_sources(given, None)


def test_an_archive_that_unpacks_to_too_much_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_docx(tmp_path / "a.docx", ["Refunds take 14 days."])
    monkeypatch.setattr("dagengine.synthesis.passages._UNPACKED", 100)
    (found,) = read_documents([path])
    assert isinstance(found, Unreadable)
    assert "at most 0 MB are read" in found.message


def test_pages_without_a_text_are_told(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["Refunds take 14 days.", "", ""])
    report = document_sources([path], None).report
    assert report.lines()[1:] == [f"{path}: 2 of its 3 pages have no text"]


def test_a_parser_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise markitdown.MissingDependencyException

    monkeypatch.setattr(converters.DocxConverter, "convert", missing)
    path = write_docx(tmp_path / "a.docx", ["Text."])
    with pytest.raises(MissingExtraError, match=r"pip install 'markitdown\[docx\]'"):
        read_documents([path])


def test_a_heading_in_code_is_none_even_where_the_code_has_no_end() -> None:
    text = "a\n# One\n~~~\n# no\n```\n~~~\n## Two\n```\n# no\n"
    headings = [section.text.split("\n")[0] for section in _heading_sections(text)]
    assert headings == ["a", "# One", "## Two"]


def test_objects_of_other_libraries_are_documents_by_their_shape() -> None:
    pages = [
        SimpleNamespace(page_content=f"Page {n}.", metadata={"source": "a.pdf", "page": n})
        for n in (1, 2)
    ]
    counted = [
        SimpleNamespace(page_content="A page.", metadata={"source": "c.pdf", "page": n})
        for n in (0, 1)
    ]
    label = SimpleNamespace(text="A page.", metadata={"file_name": "d.pdf", "page_label": "7"})
    node = SimpleNamespace(get_content=lambda: "A node.", metadata={"file_name": "b.txt"})
    first, second, third, fourth = map(
        only, ([d] for d in read_documents([*pages, node, *counted, label]))
    )
    assert [section.page for section in third.sections] == [1, 2]
    assert [section.page for section in fourth.sections] == [7]
    assert isinstance(first, Document)
    assert (first.name, [section.page for section in first.sections]) == ("a.pdf", [1, 2])
    assert second.name == "b.txt"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["nowhere.md"], "there is no document nowhere.md"),
        ([7], "7 is not a document"),
        ([["a.md"]], r"'a.md'\] is not a document"),
        ([SimpleNamespace(text="a", metadata={"source": "x"}), Path(__file__)], "not '.py'"),
    ],
)
def test_what_is_no_document_is_refused_before_any_is_read(wrong: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_documents(wrong)


def test_two_documents_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("Text.")
    with pytest.raises(InputError, match="two documents are called"):
        read_documents([path, path])


@given(st.text(max_size=400), st.integers(16, 60), st.integers(0, 40))
def test_every_passage_stands_where_it_says_and_no_word_is_lost(
    text: str, size: int, overlap: int
) -> None:
    document = Document("d", (Section(text, 0),))
    config = ContextConstructionConfig(chunk_size=size, chunk_overlap=overlap)
    passages = passages_of(document, config)
    assert all(text_of(document, passage) == passage.text for passage in passages)
    assert all(len(passage.text) <= 4 * size for passage in passages)
    covered = {
        place
        for passage in passages
        for place in range(passage.offset or 0, (passage.offset or 0) + len(passage.text))
    }
    missed = [sign for place, sign in enumerate(text) if place not in covered]
    assert not "".join(missed).strip()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1 Refunds ........ 3\n2 Parcels ........ 14\n3 Desk . . . . . 20", "tables of contents"),
        ("# Contents\n\n- [Refunds](#refunds)\n2. [Parcels](#parcels)", "tables of contents"),
        ("Contents\nRefunds 3\nParcels 3\nDesk 20\nKeys 22\nDogs 30", "tables of contents"),
        ("Prices\nApples 3\nPears 2\nNuts 20\nFigs 22\nPlums 30", None),
        ("# Refunds\n## When", "headings without a text"),
        ("QUJD" * 40 + " is a picture", "hardly a word in them"),
        ("1.2 3.4 5.6\n7.8 9.0 1.2 %", "hardly a letter in them"),
        ("Refunds take 14 days, parcels 3.", None),
        ("退款需要十四天。", None),
        ("Wait ...... what? Line two.\nLine three says nothing.\nLine four.", None),
    ],
)
def test_only_what_nothing_can_be_asked_about_is_left_out(text: str, found: str | None) -> None:
    assert flaw(text) == found


def test_near_duplicates_are_found_and_others_are_not() -> None:
    chinese = "顾客可以在十四天之内退款并且需要出示收据也要到伯尔尼的柜台办理手续。"
    seen = NearDuplicates()
    assert seen.is_new(LONG + "One more sentence stands here, and it is about refunds.")
    assert not seen.is_new(LONG + "One more sentence stands here, and it is about refund.")
    assert seen.is_new("Parcels leave on Mondays, and they weigh at most thirty kilograms.")
    questions = [f"For a visitor with a dog: what does the house in {n} cost?" for n in "abcdefgh"]
    assert all(seen.is_new(question) for question in questions)
    assert seen.is_new(chinese)
    assert not seen.is_new(chinese.replace("手续", "手续的"))
    assert not seen.shares("Nothing was said of this.")
    assert seen.is_new("")
    assert not seen.is_new(" ")


def test_vectors_are_compared_by_where_they_point() -> None:
    seen = Directions()
    seen.add(0, [1.0, 0.0])
    seen.add(1, [0.0, 2.0])
    seen.add(2, [1.0, 0.0, 0.0])  # of another model
    assert list(seen.nearest([4.0, 3.0], 9).items()) == [(0, 0.8), (1, 0.6)]
    assert list(seen.nearest([3.0, 4.0], 1)) == [1]
    assert not any(seen.nearest(vector, 9) for vector in ([0.0, 0.0], [], None, [-1.0, -1.0]))
    seen.remove(1)
    assert list(seen.nearest([3.0, 4.0], 9)) == [0]
    for place in range(3, 200):
        seen.add(place, [1.0, place / 100])
    assert list(seen.nearest([1.0, 1.0], 3)) == [100, 101, 99]


def test_a_text_meets_the_few_that_are_most_like_it_and_no_equal_one() -> None:
    texts = GoldenTexts(["What does the house in Bern cost?"])
    assert texts.add("  what does the house\nin BERN cost") == 0
    assert texts.add("What does the house in Bern cost!") == 1
    (pair,) = texts.nearest(1, None)
    assert (set(pair.places), pair.words, pair.meaning) == ({0, 1}, 1.0, 0.0)
    assert texts.nearest(0, None) == [pair]
    for number in range(6):
        assert texts.add(f"Number {number}", [1.0, number / 10]) == 2 + number
    last = [1.0, 0.5]
    assert [set(pair.places) for pair in texts.nearest(7, last)] == [{7, 6}, {7, 5}, {7, 4}]
    texts.remove(6)
    assert [set(pair.places) for pair in texts.nearest(7, last)] == [{7, 5}, {7, 4}, {7, 3}]
    assert texts.add("Number 4") == 8


def test_the_nearest_passage_shares_the_rare_words() -> None:
    texts = [
        "The refund desk is in Bern and open from nine.",
        "Parcels leave from Basel and never on Sundays.",
        "The desk in Bern also pays refunds in cash.",
        "Nothing whatever.",
    ]
    passages = [Passage(text, "d", None, place) for place, text in enumerate(texts)]
    near = Neighbours(passages)
    assert near.of(passages[0]) is passages[2]
    assert near.of(passages[2]) is passages[0]
    assert near.of(passages[3]) is None
