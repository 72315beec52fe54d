"""Passages of documents: cut by tokens, the poor ones named, each with its neighbour."""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence

from dagengine.errors import load_extra
from dagengine.synthesis.values import ContextConstructionConfig, Document, Passage

_CHARACTERS = 4  # of a token, about
_LEADERS = 4  # dots in a row that lead to a page
_LISTED = 5  # titles with pages that are more than an accident
_LONGEST = 40  # letters of a word; encoded data has longer runs
_LINK = re.compile(r"(?:[-*+] |\d{1,3}[.)] )?\[[^\]]*\]\([^)]*\)")
_PAGE = re.compile(r"[^\W\d].{0,120}?\s(\d{1,4})")
# Scripts without blanks between words count by their signs.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
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
        self._numbers = {passage: index for index, passage in enumerate(passages)}
        vocabulary: dict[str, int] = {}  # numbers, in the order of the texts: sets have none
        self._words = [
            array(
                "L", [vocabulary.setdefault(word, len(vocabulary)) for word in dict.fromkeys(words)]
            )
            for words in (words_in(passage.text) for passage in passages)
        ]
        self._places = [array("L") for _ in vocabulary]
        for index, words in enumerate(self._words):
            for word in words:
                self._places[word].append(index)

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


def words_in(text: str) -> list[str]:
    """The words of a text in lower case; single signs where no spaces part them."""
    return _WORD.findall(text.lower())
