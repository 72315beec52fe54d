"""Texts that say the same: passages that repeat others, and goldens that may ask for one answer.

A law: no clock, no I/O. For goldens, likeness only nominates pairs, and a judge confirms (see
`generation`). No bound would do: two questions on one topic are often more alike than two wordings
of one question.
"""

from __future__ import annotations

import math
import unicodedata
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from dagengine.errors import load_extra
from dagengine.prompts.evidence import WORD

ALIKE = 0.8
"""The least cosine of the vectors of two texts that are alike. It is low, as a judge confirms."""
ALIKE_WORDS = 0.8
"""The least share of common word triples of two texts that are alike."""
NEAREST = 3
"""The largest number of texts that a judge compares a text with."""
_HASHES = 64  # by which the share of common word triples is estimated
_WORDS = 3  # of a triple
_ROWS = 64  # of a table of vectors, to begin with
_DIGITS = 6  # of a cosine: rounding errors must not change an order
_ENDS = " .?\u2026\u3002\uff1f\u00bf"  # marks that do not count at the ends of a golden's text


def words_in(text: str) -> list[str]:
    """The words of a text in lower case; single characters of scripts without blanks."""
    return WORD.findall(text.lower())


class NearDuplicates:
    """Finds texts that are nearly equal to one that was added before (MinHash, LSH).

    Takes linear time. Broder 1997, https://doi.org/10.1109/SEQUEN.1997.666900.
    """

    def __init__(self) -> None:
        """Raises MissingExtraError."""
        datasketch = load_extra("datasketch", "goldens need", "documents")
        self._empty: Any = datasketch.MinHash(num_perm=_HASHES, hashfunc=zlib.crc32)
        self._buckets: Any = datasketch.MinHashLSH(threshold=ALIKE_WORDS, num_perm=_HASHES)
        self._triples: list[array[int]] = []  # of each text
        self._latest: tuple[str, tuple[array[int], Any]] | None = None  # a text with its hashes

    def is_new(self, text: str) -> bool:
        """Add a text and return True, unless a text before is nearly the same."""
        if any(share >= ALIKE_WORDS for share in self.shares(text).values()):
            return False
        self.add(text)
        return True

    def shares(self, text: str) -> dict[int, float]:
        """The shares of common word triples (0 to 1) with all texts that may be alike, by place."""
        triples, hashes = self._hashes(text)
        # The buckets also bring texts that share only half of them, so they are counted.
        own, shares = set(triples), dict[int, float]()
        for index in self._buckets.query(hashes):
            theirs = set(self._triples[index])
            shares[index] = len(own & theirs) / len(own | theirs)
        return shares

    def add(self, text: str) -> int:
        """Add a text that later ones are compared with; returns its place, from 0 on."""
        triples, hashes = self._hashes(text)
        self._buckets.insert(len(self._triples), hashes)
        self._triples.append(triples)
        return len(self._triples) - 1

    def remove(self, place: int) -> None:
        """Remove a text; its place stays empty."""
        self._buckets.remove(place)
        self._triples[place] = array("L")

    def _hashes(self, text: str) -> tuple[array[int], Any]:
        """The hash of each triple of words in a text, and their MinHash."""
        # A text is mostly compared first and added next: it is hashed once.
        if self._latest is not None and text == self._latest[0]:
            return self._latest[1]
        words = words_in(text)
        count = max(1, len(words) - _WORDS + 1)
        triples = sorted({" ".join(words[index : index + _WORDS]) for index in range(count)})
        pieces = [triple.encode(errors="surrogatepass") for triple in triples]
        hashes = self._empty.copy()
        hashes.update_batch(pieces)
        hashed = array("L", map(zlib.crc32, pieces)), hashes
        self._latest = text, hashed
        return hashed


class Directions:
    """The directions of the vectors of texts; each is compared with all of as many dimensions.

    Vectors of different dimensions are of different models, and never alike.
    """

    def __init__(self) -> None:
        import numpy

        self._numpy: Any = numpy
        # Both by the dimensions of vectors: a table, whose first rows are used, and their texts.
        self._rows: dict[int, Any] = {}
        self._places: dict[int, list[int]] = {}

    def nearest(self, vector: Sequence[float] | None, most: int) -> dict[int, float]:
        """The cosines (above 0, at most 1) of the `most` nearest texts by place, nearest first."""
        direction = self._direction(vector)
        if direction is None or len(direction) not in self._rows:
            return {}
        indices = self._places[len(direction)]
        cosines = (self._rows[len(direction)][: len(indices)] @ direction).round(_DIGITS)
        nearest = self._numpy.argsort(-cosines, kind="stable")[:most]
        return {indices[row]: float(cosines[row]) for row in nearest if cosines[row] > 0}

    def add(self, place: int, vector: Sequence[float] | None) -> None:
        """Add the vector of the text at a place, if it has a direction."""
        direction = self._direction(vector)
        if direction is None:
            return
        size = len(direction)
        indices, rows = self._places.setdefault(size, []), self._rows.get(size)
        if rows is None or len(rows) == len(indices):
            # Twice as many rows each time: one more each time would copy the table as often.
            larger = self._numpy.zeros((max(_ROWS, len(indices)), size))
            self._rows[size] = larger if rows is None else self._numpy.concatenate([rows, larger])
        self._rows[size][len(indices)] = direction
        indices.append(place)

    def remove(self, place: int) -> None:
        """Remove the vector of the text at a place."""
        for size, indices in self._places.items():
            if place in indices:
                self._rows[size][indices.index(place)] = 0.0  # its cosines are 0

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

    Texts that differ only in case, in blanks and in the mark at the end have one place, a number.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._words, self._directions = NearDuplicates(), Directions()
        self._places: dict[str, int] = {}
        self._texts: list[str] = []
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        """Number of places, also of texts that were removed."""
        return len(self._texts)

    def add(self, text: str, vector: Sequence[float] | None = None) -> int:
        """Add a text that later ones are compared with; returns its place."""
        normal = _normalise(text)
        if normal not in self._places:
            index = self._places[normal] = self._words.add(text)
            self._directions.add(index, vector)
            self._texts.append(text)
        return self._places[normal]

    def __getitem__(self, place: int) -> str:
        """The text at a place, as it was first added."""
        return self._texts[place]

    def remove(self, place: int) -> None:
        """Remove the text at a place, which stays empty."""
        del self._places[_normalise(self._texts[place])]
        self._words.remove(place)
        self._directions.remove(place)

    def nearest(self, place: int, vector: Sequence[float] | None) -> list[TextPair]:
        """The pairs of a text with the `NEAREST` that are most like it, the most alike first."""
        words = self._words.shares(self._texts[place])
        meaning = self._directions.nearest(vector, NEAREST + 1)  # the text itself is among them
        likeness: dict[int, tuple[float, float]] = {}
        for neighbour in (words.keys() | meaning.keys()) - {place}:
            likeness[neighbour] = words.get(neighbour, 0.0), meaning.get(neighbour, 0.0)
        pairs: list[TextPair] = []
        for neighbour in nsmallest(NEAREST, likeness, lambda at: (-max(likeness[at]), at)):
            # Either text comes to the same pair, so a judge is asked once.
            first, second = sorted((place, neighbour), key=lambda at: (self._texts[at], at))
            texts = self._texts[first], self._texts[second]
            pairs.append(TextPair((first, second), texts, *likeness[neighbour]))
        return pairs


def _normalise(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split()).strip(_ENDS)
