"""Texts that say the same: passages that repeat others, and goldens that may ask for one answer.

A law: no clock, no I/O. Likeness only nominates. Two questions on one topic are often nearer than
two ways to put one question, so that no bound parts them: a judge confirms (see `generation`).
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from dagengine.errors import load_extra

ALIKE = 0.8
"""The cosine from which on two texts are alike. Generous: a judge confirms."""
ALIKE_WORDS = 0.8
"""The share of common word triples from which on two texts are alike."""
NEAREST = 3
"""How many others a text is compared with at most."""
_HASHES, _WORDS = 64, 3  # hashes that estimate the share, words of a triple
_ROWS = 64  # of vectors, to begin with
_DIGITS = 6  # of a cosine: how a product is summed must not change an order
# Scripts without blanks between words count by their signs.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_ENDS = " .?\u2026\u3002\uff1f\u00bf"


def words_in(text: str) -> list[str]:
    """The words of a text in lower case; single signs where no spaces part them."""
    return _WORD.findall(text.lower())


class NearDuplicates:
    """Finds texts that are nearly equal to one that was added before (MinHash, LSH).

    Linear in the number of texts. Broder 1997, https://doi.org/10.1109/SEQUEN.1997.666900.
    """

    def __init__(self) -> None:
        """Raises MissingExtraError."""
        datasketch = load_extra("datasketch", "goldens need", "documents")
        self._empty: Any = datasketch.MinHash(num_perm=_HASHES, hashfunc=zlib.crc32)
        self._seen: Any = datasketch.MinHashLSH(threshold=ALIKE_WORDS, num_perm=_HASHES)
        self._kept: list[array[int]] = []
        # A text is asked for, and then mostly added.
        self._last: tuple[str, tuple[array[int], Any]] | None = None

    def is_new(self, text: str) -> bool:
        """Whether no text before was nearly the same; the text then counts for later ones."""
        if any(share >= ALIKE_WORDS for share in self.shares(text).values()):
            return False
        self.add(text)
        return True

    def shares(self, text: str) -> dict[int, float]:
        """By its place, the share of common word triples (0 to 1) of each text that is about so
        alike."""
        triples, hashes = self._hashes(text)
        # The buckets also bring texts that are alike in half; counting tells them apart.
        mine, shares = set(triples), dict[int, float]()
        for index in self._seen.query(hashes):
            theirs = set(self._kept[index])
            shares[index] = len(mine & theirs) / len(mine | theirs)
        return shares

    def add(self, text: str) -> int:
        """Let a text count for later ones; returns its place, from 0 on."""
        triples, hashes = self._hashes(text)
        self._seen.insert(len(self._kept), hashes)
        self._kept.append(triples)
        return len(self._kept) - 1

    def remove(self, place: int) -> None:
        """Let a text count no longer."""
        self._seen.remove(place)
        self._kept[place] = array("L")

    def _hashes(self, text: str) -> tuple[array[int], Any]:
        """The numbers of a text's triples of words, and the smallest of their hashes."""
        # A text is compared first and added next: it is hashed once.
        if self._last is not None and text == self._last[0]:
            return self._last[1]
        words = words_in(text)
        count = max(1, len(words) - _WORDS + 1)
        triples = sorted({" ".join(words[index : index + _WORDS]) for index in range(count)})
        pieces = [triple.encode(errors="surrogatepass") for triple in triples]
        hashes = self._empty.copy()
        hashes.update_batch(pieces)
        hashed = array("L", map(zlib.crc32, pieces)), hashes
        self._last = text, hashed
        return hashed


class Directions:
    """Vectors by where they point; every one is compared with all others of its length.

    Vectors of different lengths are of different models, and never alike.
    """

    def __init__(self) -> None:
        import numpy

        self._numpy: Any = numpy
        self._rows: dict[int, Any] = {}  # by length; the first rows are in use
        self._places: dict[int, list[int]] = {}

    def nearest(self, vector: Sequence[float] | None, most: int) -> dict[int, float]:
        """The cosines (above 0, at most 1) of at most so many others by place, nearest first."""
        direction = self._direction(vector)
        if direction is None or len(direction) not in self._rows:
            return {}
        indices = self._places[len(direction)]
        cosines = (self._rows[len(direction)][: len(indices)] @ direction).round(_DIGITS)
        nearest = self._numpy.argsort(-cosines, kind="stable")[:most]
        return {indices[row]: float(cosines[row]) for row in nearest if cosines[row] > 0}

    def add(self, place: int, vector: Sequence[float] | None) -> None:
        """Let a vector count for later ones."""
        direction = self._direction(vector)
        if direction is None:
            return
        size = len(direction)
        indices, rows = self._places.setdefault(size, []), self._rows.get(size)
        if rows is None or len(rows) == len(indices):
            # Twice as many rows each time: adding one by one would copy all of them for each.
            larger = self._numpy.zeros((max(_ROWS, len(indices)), size))
            self._rows[size] = larger if rows is None else self._numpy.concatenate([rows, larger])
        self._rows[size][len(indices)] = direction
        indices.append(place)

    def remove(self, place: int) -> None:
        """Let a vector count no longer."""
        for size, indices in self._places.items():
            if place in indices:
                self._rows[size][indices.index(place)] = 0.0  # points nowhere

    def _direction(self, vector: Sequence[float] | None) -> Any:
        """The vector with the length 1; None if it has no direction."""
        length = math.hypot(*vector or ())
        return self._numpy.asarray(vector) / length if length else None


@dataclass(frozen=True, slots=True)
class TextPair:
    """Two texts by their places, and how alike they are: `words` is the share of common word
    triples, `meaning` the cosine of their vectors (both 0 to 1, 0 if not known)."""

    places: tuple[int, int]
    texts: tuple[str, str]
    words: float
    meaning: float


class GoldenTexts:
    """The texts of goldens and drafts, and for each the few that are most like it.

    Texts are equal whatever their case, their blanks and the mark at their end; equal texts have
    one place.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._words, self._directions = NearDuplicates(), Directions()
        self._places: dict[str, int] = {}
        self._texts: list[str] = []
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        """Number of indices, also of texts that were removed."""
        return len(self._texts)

    def add(self, text: str, vector: Sequence[float] | None = None) -> int:
        """The place of a text, which counts from now on."""
        evened = _normalise(text)
        if evened not in self._places:
            index = self._places[evened] = self._words.add(text)
            self._directions.add(index, vector)
            self._texts.append(text)
        return self._places[evened]

    def __getitem__(self, place: int) -> str:
        """The text that came first to a place."""
        return self._texts[place]

    def remove(self, place: int) -> None:
        """Let a text count no longer."""
        del self._places[_normalise(self._texts[place])]
        self._words.remove(place)
        self._directions.remove(place)

    def nearest(self, place: int, vector: Sequence[float] | None) -> list[TextPair]:
        """A text with each of the `NEAREST` others that are most like it, the most alike first."""
        words = self._words.shares(self._texts[place])
        meaning = self._directions.nearest(vector, NEAREST + 1)  # it is its own nearest
        likeness: dict[int, tuple[float, float]] = {}
        for neighbour in (words.keys() | meaning.keys()) - {place}:
            likeness[neighbour] = words.get(neighbour, 0.0), meaning.get(neighbour, 0.0)
        pairs: list[TextPair] = []
        for neighbour in nsmallest(NEAREST, likeness, lambda at: (-max(likeness[at]), at)):
            # The same pair from either side, so that it is asked about once.
            first, second = sorted((place, neighbour), key=lambda at: (self._texts[at], at))
            texts = self._texts[first], self._texts[second]
            pairs.append(TextPair((first, second), texts, *likeness[neighbour]))
        return pairs


def _normalise(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split()).strip(_ENDS)
