"""Passages of documents: cut by tokens, the poor ones named, near duplicates dropped."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dagengine.errors import MissingExtraError
from dagengine.synthesis.values import ContextConstructionConfig, Document, Passage

_CHARACTERS = 4  # of a token, about
_LEADER = re.compile(r"(\.\s?){4,}\s*\d+\s*$")
_WORD = re.compile(r"\w+")
# Near duplicates: the share of common word triples, and how many hashes estimate it.
_ALIKE, _HASHES, _WORDS = 0.8, 64, 3
# Words of a passage that look for its neighbours: the rarest tell most.
_TELLING = 24


def passages_of(document: Document, config: ContextConstructionConfig) -> list[Passage]:
    """The passages of a document, in its order; none goes beyond a heading or a page."""
    cut = _cutter(config.chunk_size)
    found: list[Passage] = []
    for section in document.sections:
        texts, places = cut(section.text, offsets=True, overlap=_overlap(config))
        for text, (start, _) in zip(texts, places, strict=True):
            kept = text.strip()
            if kept:
                offset = section.offset + start + len(text) - len(text.lstrip())
                found.append(Passage(kept, document.name, section.page, offset))
    return found


def _overlap(config: ContextConstructionConfig) -> int | None:
    # A text that is cut in halves that overlap by more than half never ends.
    return min(config.chunk_overlap, config.chunk_size // 2) or None


def _cutter(size: int) -> Any:
    try:
        import semchunk
    except ImportError:
        raise _needs("semchunk") from None
    make: Any = vars(semchunk)["chunkerify"]
    return make(lambda text: -(-len(text) // _CHARACTERS), size, memoize=False)


def _needs(package: str) -> MissingExtraError:
    return MissingExtraError(f"documents need {package}: pip install 'dagengine[documents]'")


def flaw(text: str) -> str | None:
    """Why nothing can be asked about a passage; None when it may be a text.

    Careful with languages: only what is a table of contents or holds hardly a letter.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 2 and sum(bool(_LEADER.search(line)) for line in lines) * 2 > len(lines):
        return "tables of contents"
    signs = [sign for sign in text if not sign.isspace()]
    if sum(sign.isalpha() for sign in signs) * 3 < len(signs):
        return "hardly a letter in them"
    return None


class NearDuplicates:
    """Finds texts that are nearly equal to one that was added before (MinHash, LSH).

    Linear in the number of texts. Broder 1997, https://doi.org/10.1109/SEQUEN.1997.666900.
    """

    def __init__(self, alike: float = _ALIKE) -> None:
        """`alike` is the share of common word triples, from 0 to 1. Raises MissingExtraError."""
        try:
            import datasketch
        except ImportError:
            raise _needs("datasketch") from None
        self._empty: Any = datasketch.MinHash(num_perm=_HASHES, hashfunc=zlib.crc32)
        self._seen: Any = datasketch.MinHashLSH(threshold=alike, num_perm=_HASHES)
        self._count = 0

    def is_new(self, text: str) -> bool:
        """Whether no text before was nearly the same; the text then counts for later ones."""
        found = self._empty.copy()
        found.update_batch([piece.encode(errors="surrogatepass") for piece in _triples(text)])
        if self._seen.query(found):
            return False
        self._seen.insert(self._count, found)
        self._count += 1
        return True


def _triples(text: str) -> list[str]:
    words = _words(text)
    count = max(1, len(words) - _WORDS + 1)
    return sorted({" ".join(words[place : place + _WORDS]) for place in range(count)})


class Neighbours:
    """For a passage the other one that shares most of its telling words (BM25)."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        """Raises MissingExtraError when bm25s is not installed."""
        try:
            import bm25s
        except ImportError:
            raise _needs("bm25s") from None
        self._passages = passages
        self._places = {passage: place for place, passage in enumerate(passages)}
        known: dict[str, int] = {}  # one object per word: texts repeat them a hundred times
        words = [
            [known.setdefault(word, len(known)) for word in _words(one.text)] for one in passages
        ]
        counts = Counter(number for each in words for number in set(each))
        self._spread = {word: counts[number] for word, number in known.items()}
        self._index: Any = bm25s.BM25()
        self._index.index((words, known), show_progress=False)

    def of(self, passage: Passage) -> Passage | None:
        """The nearest other passage; None when no other shares a word."""
        place = self._places[passage]
        telling = sorted(set(_words(passage.text)), key=lambda word: (self._spread[word], word))
        telling = [word for word in telling if self._spread[word] > 1][:_TELLING]
        if not telling:
            return None
        scores = self._index.get_scores(telling)
        scores[place] = 0.0
        best = int(scores.argmax())
        return self._passages[best] if scores[best] > 0 else None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
